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

impl DeadLetterQuery {
    /// The ids of the events whose letters it asks for, first and last included. It is empty if the first is
    /// larger than the last.
    ///
    /// ```
    /// # use postrider_core::{EventId, store::DeadLetterQuery};
    /// let page = DeadLetterQuery { after: Some(EventId(7)), ..DeadLetterQuery::default() };
    /// assert_eq!(page.range(), (EventId(8), EventId(i64::MAX)));
    /// let one = DeadLetterQuery { event_id: Some(EventId(3)), ..DeadLetterQuery::default() };
    /// assert_eq!(one.range(), (EventId(3), EventId(3)));
    /// ```
    pub fn range(&self) -> (EventId, EventId) {
        let first = self.after.map_or(EventId(i64::MIN), |id| EventId(id.0.saturating_add(1)));
        match self.event_id {
            Some(id) => (id.max(first), id),
            None => (first, EventId(i64::MAX)),
        }
    }
}

/// One dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct LetterId {
    /// The subscription's name.
    pub subscription: String,
    /// The event.
    pub event_id: EventId,
}
