//! Reading an event out of a row.

use bytes::Bytes;
use postrider_core::event::StoredEvent;
use postrider_core::{Event, EventId};
use tokio_postgres::Row;

use crate::values::{At, JsonText};

/// The event in the columns id, topic, type, key, payload, headers, created_at and due_at from `first` on.
pub(crate) fn event_read(row: &Row, first: usize) -> Result<Event, tokio_postgres::Error> {
    let payload: Option<&[u8]> = row.try_get(first + 4)?;
    let stored = StoredEvent {
        id: EventId(row.try_get(first)?),
        topic: row.try_get(first + 1)?,
        kind: row.try_get(first + 2)?,
        key: row.try_get(first + 3)?,
        payload: payload.map(Bytes::copy_from_slice).unwrap_or_default(),
        headers: row.try_get::<_, Option<JsonText<'_>>>(first + 5)?.map(|json| json.0),
        created_at: row.try_get::<_, At>(first + 6)?.0,
        due_at: row.try_get::<_, Option<At>>(first + 7)?.map(|at| at.0),
        lengths: None,
    };
    Ok(stored.into_event())
}
