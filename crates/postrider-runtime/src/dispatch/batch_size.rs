//! How many events a batch holds.
//!
//! Large batches are cheap for receivers, and an event waits in them for the others. With a goal the size
//! follows what the receiver shows: it grows while full batches are done in less than half of the goal, and
//! shrinks when one takes longer.
//!
//! ```text
//!   took      0 ───────── goal/2 ───────── goal ─────────►
//!   size      doubles if it   stays         in proportion,
//!             was full                      halved at most
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// With a goal, the first batch has so many events: what it takes is not known yet.
const EVENTS_FIRST: usize = 32;

/// The size of the next batch; shared by all that are on their way.
#[derive(Debug)]
pub(crate) struct BatchSize {
    events_max: usize,
    goal: Option<Duration>,
    events: AtomicUsize,
}

impl BatchSize {
    /// `events_max` always, or up to that many within the goal.
    pub(crate) fn new(events_max: usize, goal: Option<Duration>) -> Self {
        let first = if goal.is_some() { EVENTS_FIRST.min(events_max) } else { events_max };
        Self { events_max, goal, events: AtomicUsize::new(first) }
    }

    /// Events of the next batch at the most.
    pub(crate) fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    /// A batch of so many events took so long, from its hand-out to its outcomes.
    pub(crate) fn note(&self, events: usize, took: Duration) {
        let Some(goal) = self.goal else { return };
        // One that was begun under another size may change it once more: both looked at the same receiver.
        let next = |size: usize| {
            if took > goal {
                let fitting = events as f64 * goal.as_secs_f64() / took.as_secs_f64();
                Some((fitting as usize).max(size / 2).clamp(1, size))
            } else if took < goal / 2 && events >= size {
                Some((size * 2).min(self.events_max))
            } else {
                None
            }
        };
        // Nothing to change is no error.
        let _ = self.events.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: Duration = Duration::from_millis(20);

    /// Full batches to a receiver that takes so long for each, and for each event in it.
    fn settled(each: Duration, event: Duration, events_max: usize) -> (usize, Duration) {
        let size = BatchSize::new(events_max, Some(GOAL));
        let took = |events: usize| each + event * events as u32;
        for _ in 0..100 {
            size.note(size.events(), took(size.events()));
        }
        (size.events(), took(size.events()))
    }

    #[test]
    fn a_size_without_a_goal_stays() {
        let size = BatchSize::new(500, None);
        size.note(500, Duration::from_secs(9));
        size.note(500, Duration::ZERO);
        assert_eq!(size.events(), 500);
    }

    #[test]
    fn a_quick_receiver_gets_as_many_as_it_may() {
        assert_eq!(settled(Duration::from_micros(300), Duration::from_micros(1), 5_000).0, 5_000);
    }

    #[test]
    fn batches_settle_between_half_of_the_goal_and_the_goal() {
        for (each, event) in [(100, 10), (0, 100), (5_000, 50), (9_000, 3)] {
            let (events, took) = settled(Duration::from_micros(each), Duration::from_micros(event), 100_000);
            assert!(took <= GOAL && took * 2 >= GOAL, "{each} + {event} µs: {events} events took {took:?}");
        }
    }

    #[test]
    fn a_receiver_that_is_slower_than_the_goal_gets_one_at_a_time() {
        assert_eq!(settled(Duration::from_millis(50), Duration::from_micros(10), 5_000).0, 1);
    }

    #[test]
    fn batches_that_were_not_full_make_nothing_larger() {
        let size = BatchSize::new(5_000, Some(GOAL));
        let before = size.events();
        size.note(before - 1, Duration::ZERO);
        assert_eq!(size.events(), before);
    }
}
