//! What a stream dropped as a repeat, and whether that was to be expected.
//!
//! A stream acks a repeat as it acks a new event, with the word that it is one. On a later attempt, or of an
//! event whose ack this process has not heard, that is what the id is for. On a first attempt it means that
//! the stream got the id from elsewhere, so that what it holds may be something else than this event: that is
//! told, and counted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_core::Delivery;

/// Events of which this process does not know whether a stream has them. Beyond it nothing is told any more,
/// since a repeat of an event that was forgotten would be told for no reason.
const UNCERTAIN_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Repeats {
    uncertain: Mutex<Uncertain>,
    told: AtomicU64,
}

#[derive(Debug, Default)]
struct Uncertain {
    ids: HashSet<String>,
    has_forgotten: bool,
}

impl Repeats {
    /// Notes that this process does not know whether a stream has this event.
    pub(super) fn note(&self, delivery: &Delivery) {
        let mut uncertain = self.uncertain();
        if uncertain.ids.len() < UNCERTAIN_MAX {
            uncertain.ids.insert(delivery.dedup_id());
        } else {
            uncertain.has_forgotten = true;
        }
    }

    /// Notes an ack, and whether it is that of a repeat; true if there is no reason for one.
    pub(super) fn is_strange(&self, delivery: &Delivery, is_repeat: bool) -> bool {
        let mut uncertain = self.uncertain();
        if uncertain.ids.is_empty() && !is_repeat {
            return false;
        }
        let was_uncertain = uncertain.ids.remove(&delivery.dedup_id());
        is_repeat && delivery.attempt == 1 && !was_uncertain && !uncertain.has_forgotten
    }

    /// Tells of so many of a batch.
    pub(super) fn tell(&self, count: u64, subscription: &str) {
        let total = self.told.fetch_add(count, Ordering::Relaxed) + count;
        tracing::warn!(
            subscription,
            count,
            total,
            "the stream dropped events as repeats on their first attempt, and they count as delivered: after a crash, a seek or a \
             subscription that was created again that is to be expected within the stream's duplicate window; else something else \
             publishes with their Nats-Msg-Id"
        );
    }

    pub(super) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    fn uncertain(&self) -> MutexGuard<'_, Uncertain> {
        // Nothing panics while it is held.
        self.uncertain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;

    #[test]
    fn a_repeat_is_strange_on_a_first_attempt_whose_outcome_was_never_in_doubt() {
        let repeats = Repeats::default();
        let (first, mut second) = (delivery(1, b""), delivery(2, b""));
        assert!(!repeats.is_strange(&first, false) && repeats.is_strange(&first, true));
        repeats.note(&first);
        assert!(!repeats.is_strange(&first, true), "its ack was not heard");
        assert!(repeats.is_strange(&first, true), "and then it was");
        second.attempt = 2;
        assert!(!repeats.is_strange(&second, true));
    }

    #[test]
    fn what_does_not_fit_into_memory_makes_no_noise() {
        let repeats = Repeats::default();
        for id in 0..=UNCERTAIN_MAX as i64 {
            repeats.note(&delivery(id, b""));
        }
        assert_eq!(repeats.uncertain().ids.len(), UNCERTAIN_MAX);
        assert!(!repeats.is_strange(&delivery(-1, b""), true));
    }
}
