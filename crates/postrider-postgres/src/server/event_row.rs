//! Reading an event out of a row.

use bytes::Bytes;
use postrider_core::event::{Lengths, Listed, StoredEvent, is_json};
use postrider_core::{Event, EventId, limits};
use tokio_postgres::Row;

use crate::server::values::{At, JsonBytes, JsonText};

/// How many columns [`event_read`] takes.
pub(crate) const EVENT_COLUMNS: usize = 11;

/// A JSON payload lies in its column with a header of up to so many bytes.
const VARLENA_BYTES: usize = 4;

/// The event in the columns id, topic, type, key, payload, payload_bytes, headers, created_at, due_at,
/// lengths and size from `first` on. Without a type the type is the topic.
pub(crate) fn event_read(row: &Row, first: usize) -> Result<Event, tokio_postgres::Error> {
    let topic = row.try_get::<_, &str>(first + 1)?;
    let lengths: Option<Vec<Option<i32>>> = row.try_get(first + 9)?;
    let size = row.try_get::<_, Option<i32>>(first + 10)?.unwrap_or(0).max(0) as usize;
    let is_large = size > limits::PAYLOAD_BYTES_MAX + VARLENA_BYTES;
    let stored = StoredEvent {
        id: EventId(row.try_get(first)?),
        topic,
        kind: row.try_get::<_, Option<&str>>(first + 2)?.unwrap_or(topic),
        key: row.try_get(first + 3)?,
        payload: payload_read(row, first + 4)?.unwrap_or_default(),
        headers: row.try_get::<_, Option<JsonText<'_>>>(first + 6)?.map(|json| json.0),
        created_at: row.try_get::<_, At>(first + 7)?.0,
        due_at: row.try_get::<_, Option<At>>(first + 8)?.map(|at| at.0),
        lengths: (lengths.is_some() || is_large)
            .then(|| lengths_of(lengths.as_deref().unwrap_or_default(), if is_large { size } else { 0 })),
    };
    Ok(stored.into_event())
}

/// What a listing shows of an event: the same columns with the beginning of the payload, then how long that
/// is, and whether headers were left out.
pub(crate) fn preview_read(row: &Row) -> Result<Listed, tokio_postgres::Error> {
    let mut event = event_read(row, 0)?;
    // Characters were counted.
    event.payload.truncate(limits::PREVIEW_BYTES_MAX);
    Ok(Listed {
        event,
        payload_bytes: row.try_get::<_, Option<i32>>(EVENT_COLUMNS)?.unwrap_or(0).max(0) as u64,
        headers_cut: row.try_get(EVENT_COLUMNS + 1)?,
    })
}

/// That of the headers and how many payloads there are, and that of the payload.
fn lengths_of(lengths: &[Option<i32>], payload: usize) -> Lengths {
    let length = |index: usize| lengths.get(index).copied().flatten().unwrap_or(0).max(0) as u64;
    Lengths { headers: length(0), payload: payload as u64, payloads: length(1), ..Lengths::default() }
}

/// The payload in two columns, of which at most one has a value: JSON, then bytes. Both come as they were written.
pub(crate) fn payload_read(row: &Row, first: usize) -> Result<Option<Bytes>, tokio_postgres::Error> {
    let json = row.try_get::<_, Option<JsonBytes<'_>>>(first)?.map(|json| json.0);
    let payload = match json {
        Some(json) => Some(json),
        None => row.try_get::<_, Option<&[u8]>>(first + 1)?,
    };
    Ok(payload.map(Bytes::copy_from_slice))
}

/// A payload as the values of its two columns: JSON if it is that, else bytes.
pub(crate) fn payload_columns(payload: &[u8]) -> (Option<JsonBytes<'_>>, Option<&[u8]>) {
    if is_json(payload) { (Some(JsonBytes(payload)), None) } else { (None, Some(payload)) }
}
