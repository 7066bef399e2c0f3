//! A broken promise, with what is needed to find out why.

use std::fmt;

use postrider_core::{EventId, Key};

use super::Incarnation;

/// A broken promise. `at` is the index of the entry at which it was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A committed event was neither acked nor became a dead letter nor was discarded.
    Lost {
        /// For which subscription.
        subscription: String,
        /// Which event.
        event: EventId,
        /// How often it was delivered nevertheless.
        deliveries: usize,
    },
    /// An event was delivered that was never committed.
    Phantom {
        /// To which subscription.
        subscription: String,
        /// Which event.
        event: EventId,
        /// Where.
        at: usize,
    },
    /// An event arrived with another key or number than it was emitted with.
    Altered {
        /// To which subscription.
        subscription: String,
        /// Which event.
        event: EventId,
        /// Where.
        at: usize,
    },
    /// An event was delivered to a subscription that does not want it.
    Unwanted {
        /// To which subscription.
        subscription: String,
        /// Which event.
        event: EventId,
        /// Where.
        at: usize,
    },
    /// An event was delivered over an earlier one of its key that had not been delivered, or not since
    /// the receiver was rewound.
    Skipped {
        /// To which subscription.
        subscription: String,
        /// Of which key.
        key: Key,
        /// Which event came too early.
        event: EventId,
        /// Which one was passed over.
        missing: EventId,
        /// Where.
        at: usize,
    },
    /// An event was delivered while an earlier one of its key had failed or was still worked on.
    Overtaken {
        /// To which subscription.
        subscription: String,
        /// Of which key.
        key: Key,
        /// Which event came too early.
        event: EventId,
        /// Which one was not done.
        unfinished: EventId,
        /// Where.
        at: usize,
    },
    /// One member worked on two events of one lane, or twice on one event, at the same time.
    Overlap {
        /// For which subscription.
        subscription: String,
        /// Which event began.
        event: EventId,
        /// Which one was still running.
        running: EventId,
        /// Who.
        by: Incarnation,
        /// Where.
        at: usize,
    },
    /// An event was delivered again after it was acked or had died, and no fault explains it.
    Duplicate {
        /// To which subscription.
        subscription: String,
        /// Which event.
        event: EventId,
        /// Where the delivery began that should have been the last.
        finished_at: usize,
        /// Where.
        at: usize,
    },
    /// An event that was dealt with left no effect.
    EffectMissing {
        /// Which event.
        event: EventId,
    },
    /// An event took effect more than once.
    EffectRepeated {
        /// Which event.
        event: EventId,
        /// How often.
        times: usize,
    },
    /// An effect of an event that was never committed.
    EffectPhantom {
        /// Which event.
        event: EventId,
    },
}

impl Violation {
    /// The event that it is about.
    pub fn event(&self) -> EventId {
        match self {
            Self::Lost { event, .. }
            | Self::Phantom { event, .. }
            | Self::Altered { event, .. }
            | Self::Unwanted { event, .. }
            | Self::Skipped { event, .. }
            | Self::Overtaken { event, .. }
            | Self::Overlap { event, .. }
            | Self::Duplicate { event, .. }
            | Self::EffectMissing { event }
            | Self::EffectRepeated { event, .. }
            | Self::EffectPhantom { event } => *event,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { subscription, event, deliveries } => {
                write!(
                    f,
                    "lost: event {event} for `{subscription}`, delivered {deliveries} times, never acked"
                )
            }
            Self::Phantom { subscription, event, at } => {
                write!(f, "phantom: event {event} for `{subscription}` was never committed (entry {at})")
            }
            Self::Altered { subscription, event, at } => {
                write!(f, "altered: event {event} for `{subscription}` is not what was emitted (entry {at})")
            }
            Self::Unwanted { subscription, event, at } => {
                write!(f, "unwanted: `{subscription}` never asked for event {event} (entry {at})")
            }
            Self::Skipped { subscription, key, event, missing, at } => write!(
                f,
                "skipped: event {event} of key `{key}` for `{subscription}` came over {missing} (entry {at})"
            ),
            Self::Overtaken { subscription, key, event, unfinished, at } => write!(
                f,
                "overtaken: event {event} of key `{key}` for `{subscription}` came while {unfinished} was not done (entry {at})"
            ),
            Self::Overlap { subscription, event, running, by, at } => write!(
                f,
                "overlap: event {event} for `{subscription}` began at {by:?} while {running} ran (entry {at})"
            ),
            Self::Duplicate { subscription, event, finished_at, at } => write!(
                f,
                "duplicate: event {event} for `{subscription}` was done by the delivery of entry {finished_at} and came again (entry {at})"
            ),
            Self::EffectMissing { event } => write!(f, "effect missing: event {event}"),
            Self::EffectRepeated { event, times } => {
                write!(f, "effect repeated: event {event} took effect {times} times")
            }
            Self::EffectPhantom { event } => {
                write!(f, "effect phantom: event {event} was never committed")
            }
        }
    }
}
