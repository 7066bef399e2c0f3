//! When to read again after a read that found nothing.

use std::time::Duration;

/// Waits briefly while events flow and longer while they do not, within a floor and a ceiling.
///
/// The ceiling is also the net under lost wakes: whatever happens to hints, an event waits no longer
/// than that for the next read.
#[derive(Debug, Clone)]
pub(crate) struct Poller {
    min: Duration,
    max: Duration,
    wait: Duration,
}

impl Poller {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), wait: min }
    }

    /// A read brought something: the next one follows soon.
    pub(crate) fn found(&mut self) {
        self.wait = self.min;
    }

    /// A read brought nothing: how long to wait for the next one. Grows by half each time, so that the
    /// first quiet moments are watched closely.
    pub(crate) fn missed(&mut self) -> Duration {
        let wait = self.wait;
        self.wait = (wait + wait / 2).min(self.max);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_ceiling_and_fall_to_the_floor() {
        let ms = Duration::from_millis;
        let mut poller = Poller::new(ms(1), ms(25));
        let waits: Vec<_> = (0..20).map(|_| poller.missed()).collect();
        assert_eq!(waits[0], ms(1));
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(waits[19], ms(25));
        poller.found();
        assert_eq!(poller.missed(), ms(1));
    }
}
