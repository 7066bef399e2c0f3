//! Reading an event out of a row.

use bytes::Bytes;
use postrider_core::event::{Lengths, Listed, StoredEvent};
use postrider_core::{Event, EventId};
use tokio_postgres::Row;

use crate::values::{At, JsonText};

/// How many columns [`event_read`] takes.
pub(crate) const EVENT_COLUMNS: usize = 9;

/// The event in the columns id, topic, type, key, payload, headers, created_at, due_at and lengths from `first` on.
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
        lengths: row.try_get::<_, Option<Vec<Option<i32>>>>(first + 8)?.map(|lengths| lengths_of(&lengths)),
    };
    Ok(stored.into_event())
}

/// What a listing shows of an event: the same columns with the beginning of the payload, then how long that is, and whether
/// headers were left out.
pub(crate) fn preview_read(row: &Row) -> Result<Listed, tokio_postgres::Error> {
    Ok(Listed {
        event: event_read(row, 0)?,
        payload_bytes: row.try_get::<_, i64>(EVENT_COLUMNS)?.max(0) as u64,
        headers_cut: row.try_get(EVENT_COLUMNS + 1)?,
    })
}

/// Those of topic, type, key, headers and payload.
fn lengths_of(lengths: &[Option<i32>]) -> Lengths {
    let length = |index: usize| lengths.get(index).copied().flatten().unwrap_or(0).max(0) as u64;
    Lengths { topic: length(0), kind: length(1), key: length(2), headers: length(3), payload: length(4) }
}
