//! When to read again after a read that found nothing.

use std::time::Duration;

/// A read costs about as much as an event, so that this many between two events are the price of being early.
const READS_PER_GAP: u32 = 16;

/// In a silence each wait is this part of it: the next event is late by no more than that.
const PART_OF_SILENCE: u32 = 4;

/// Longer gaps between events than this say nothing about what follows an event.
const GAP_MAX: Duration = Duration::from_millis(20);

/// Waits briefly while events flow and longer while they do not, within a floor and a ceiling. How briefly follows
/// the events: the faster they come, the more often is it worth to look.
///
/// The ceiling is also the net under lost wakes: whatever happens to hints, an event waits no longer
/// than that for the next read.
#[derive(Debug, Clone)]
pub(crate) struct Poller {
    min: Duration,
    max: Duration,
    /// How far apart reads were that found something, on average.
    gap: Duration,
    found_at: Duration,
    /// Since when there has been no sign of an event.
    silent_since: Duration,
}

impl Poller {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        let silent_since = Duration::ZERO;
        Self { min, max: max.max(min), gap: Duration::ZERO, found_at: Duration::ZERO, silent_since }
    }

    /// A read brought something: the next one follows soon.
    pub(crate) fn found(&mut self, now: Duration) {
        let gap = now.saturating_sub(self.found_at).min(GAP_MAX);
        self.gap = (self.gap * 7 + gap) / 8;
        self.found_at = now;
        self.silent_since = now;
    }

    /// There was a sign that something is about to come.
    pub(crate) fn expected(&mut self, now: Duration) {
        self.silent_since = now;
    }

    /// How long to wait for the next read.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        let silence = now.saturating_sub(self.silent_since);
        (self.gap / READS_PER_GAP).max(silence / PART_OF_SILENCE).clamp(self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_micros(100);
    const MAX: Duration = Duration::from_millis(100);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waits_grow_in_a_silence_and_fall_to_the_floor() {
        let mut poller = Poller::new(MIN, MAX);
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..60 {
            waits.push(poller.wait(now));
            now += poller.wait(now);
        }
        assert_eq!(waits[0], MIN);
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(waits[59], MAX);
        poller.expected(now);
        assert_eq!(poller.wait(now), MIN);
    }

    #[test]
    fn waits_follow_the_pace_of_events() {
        let wait_at = |gap: Duration| {
            let mut poller = Poller::new(MIN, MAX);
            let mut now = Duration::ZERO;
            for _ in 0..100 {
                now += gap;
                poller.found(now);
            }
            poller.wait(now)
        };
        assert_eq!(wait_at(Duration::from_micros(10)), MIN);
        assert!(wait_at(ms(8)) > wait_at(ms(2)));
        assert!(wait_at(ms(8)) <= ms(1));
        assert_eq!(wait_at(ms(500)), wait_at(ms(5_000)), "rare events may still come in bursts");
    }
}
