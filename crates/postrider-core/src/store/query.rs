//! Which events and dead letters people ask for.

use serde::Serialize;

use crate::event::{EventId, Key};
use crate::subscription::filter::Filter;

/// Which events to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// By topic and type.
    pub filter: Filter,
    /// By key.
    pub key: Option<Key>,
    /// Only events with a smaller id: the next page.
    pub before: Option<EventId>,
    /// How many at the most; capped at [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX).
    pub limit: usize,
}

/// Which dead letters to list, replay or discard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// Of one subscription only.
    pub subscription: Option<String>,
    /// Of one event only.
    pub event_id: Option<EventId>,
    /// Only letters of events with a larger id: the next page.
    pub after: Option<EventId>,
    /// How many at the most; capped at [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX).
    pub limit: usize,
}

/// One dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct LetterId {
    /// The subscription's name.
    pub subscription: String,
    /// The event.
    pub event_id: EventId,
}
