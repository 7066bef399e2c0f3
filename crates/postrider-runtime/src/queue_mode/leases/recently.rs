//! How fast handlers are.

use std::time::Duration;

/// How far back is looked.
const WINDOW: Duration = Duration::from_millis(50);
/// Before anything is known.
const TOOK_UNKNOWN: Duration = Duration::from_secs(1);

/// What was finished in the present window and in the one before it.
#[derive(Debug, Default)]
pub(super) struct Recently {
    window: u128,
    now: usize,
    before: usize,
    took: Option<Duration>,
}

impl Recently {
    pub(super) fn note(&mut self, events: usize, took: Duration, now: Duration) {
        let window = now.as_millis() / WINDOW.as_millis();
        if window != self.window {
            self.before = if window == self.window + 1 { self.now } else { 0 };
            (self.window, self.now) = (window, 0);
        }
        self.now += events;
        self.took = Some(self.took.map_or(took, |average| (average * 7 + took) / 8));
    }

    /// How many events were finished in one of the last windows.
    pub(super) fn finished(&self, now: Duration) -> usize {
        match (now.as_millis() / WINDOW.as_millis()).saturating_sub(self.window) {
            0 => self.now.max(self.before),
            1 => self.now,
            _ => 0,
        }
    }

    /// How long an event took on average, long if that is not known.
    pub(super) fn took(&self) -> Duration {
        self.took.unwrap_or(TOOK_UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_finished_lately_counts_and_is_forgotten() {
        let ms = Duration::from_millis;
        let mut recently = Recently::default();
        assert_eq!((recently.finished(ms(0)), recently.took()), (0, TOOK_UNKNOWN));
        recently.note(10, ms(8), ms(5));
        recently.note(20, ms(16), ms(40));
        assert_eq!((recently.finished(ms(45)), recently.took()), (30, ms(9)));
        recently.note(5, ms(9), ms(60));
        assert_eq!([60, 110, 200].map(|at| recently.finished(ms(at))), [30, 5, 0]);
    }
}
