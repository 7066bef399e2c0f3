//! What people did to a delivery.

use serde::Serialize;

use crate::event::EventId;
use crate::time::Timestamp;

/// What an operator did to a delivery, as the audit tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActionReport {
    /// What was done.
    pub action: DeliveryAction,
    /// When, on the database's clock.
    pub at: Timestamp,
    /// Who did it, as the audit names them.
    pub actor: String,
}

/// What people do to deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryAction {
    /// Gave a dead letter another payload.
    Edited,
    /// Sent a dead letter round again.
    Replayed,
    /// Gave a dead letter up.
    Discarded,
    /// Ended it while it waited in a queue, or told its worker to.
    Cancelled,
    /// Moved the subscription to a position behind it: unless it was delivered before, it never is.
    PassedOver,
    /// Moved the subscription to a position before it: it is delivered, whatever became of it before.
    BroughtBack,
}

impl DeliveryAction {
    /// The action that a line of the audit tells of, seen from one event. None if the line is of no concern
    /// to it.
    ///
    /// Stores call it for the lines of an event, and for those that tell of a seek, which name the position
    /// at their end.
    ///
    /// ```
    /// # use postrider_core::{EventId, store::DeliveryAction};
    /// let read = |detail| DeliveryAction::read("subscription_seek", Some(detail), EventId(7));
    /// assert_eq!(read("from 3 to 9"), Some(DeliveryAction::PassedOver));
    /// assert_eq!(read("from 9 to 6"), Some(DeliveryAction::BroughtBack));
    /// ```
    pub fn read(action: &str, detail: Option<&str>, event: EventId) -> Option<Self> {
        match action {
            "dead_letter_edit" => Some(Self::Edited),
            "dead_letter_replay" => Some(Self::Replayed),
            "dead_letter_discard" => Some(Self::Discarded),
            "delivery_cancel" => Some(Self::Cancelled),
            "subscription_seek" => {
                let position: i64 = detail?.rsplit(' ').next()?.parse().ok()?;
                Some(if position >= event.0 { Self::PassedOver } else { Self::BroughtBack })
            }
            _ => None,
        }
    }
}
