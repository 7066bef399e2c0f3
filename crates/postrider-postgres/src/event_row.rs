//! Reading an event out of a row.

use bytes::Bytes;
use postrider_core::event::is_json;
use postrider_core::{Event, EventId, Headers, Key, Kind, Topic};
use tokio_postgres::Row;

use crate::values::{At, JsonBytes, JsonText};

/// How many columns [`event_read`] takes.
pub(crate) const EVENT_COLUMNS: usize = 9;

/// The event in the columns id, topic, type, key, payload, payload_bytes, headers, created_at and due_at from `first` on.
/// Without a type the type is the topic.
pub(crate) fn event_read(row: &Row, first: usize) -> Result<Event, tokio_postgres::Error> {
    let topic = row.try_get::<_, &str>(first + 1)?;
    Ok(Event {
        id: EventId(row.try_get(first)?),
        topic: Topic::new(topic),
        kind: Kind::new(row.try_get::<_, Option<&str>>(first + 2)?.unwrap_or(topic)),
        key: row.try_get::<_, Option<&str>>(first + 3)?.map(Key::new),
        payload: payload_read(row, first + 4)?.unwrap_or_default(),
        headers: match row.try_get::<_, Option<JsonText<'_>>>(first + 6)? {
            Some(json) => Headers::from_json(json.0),
            None => Headers::default(),
        },
        created_at: row.try_get::<_, At>(first + 7)?.0,
        due_at: row.try_get::<_, Option<At>>(first + 8)?.map(|at| at.0),
    })
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
