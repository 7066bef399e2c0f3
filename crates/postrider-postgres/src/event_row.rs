//! Reading an event out of a row.

use bytes::Bytes;
use postrider_core::{Event, EventId, Headers, Key, Kind, Topic};
use tokio_postgres::Row;

use crate::values::{At, JsonText};

/// The event in the columns id, topic, type, key, payload, headers, created_at and due_at from `first` on.
pub(crate) fn event_read(row: &Row, first: usize) -> Result<Event, tokio_postgres::Error> {
    let payload: Option<&[u8]> = row.try_get(first + 4)?;
    Ok(Event {
        id: EventId(row.try_get(first)?),
        topic: Topic::new(row.try_get::<_, &str>(first + 1)?),
        kind: Kind::new(row.try_get::<_, &str>(first + 2)?),
        key: row.try_get::<_, Option<&str>>(first + 3)?.map(Key::new),
        payload: payload.map(Bytes::copy_from_slice).unwrap_or_default(),
        headers: match row.try_get::<_, Option<JsonText<'_>>>(first + 5)? {
            Some(json) => Headers::from_json(json.0),
            None => Headers::default(),
        },
        created_at: row.try_get::<_, At>(first + 6)?.0,
        due_at: row.try_get::<_, Option<At>>(first + 7)?.map(|at| at.0),
    })
}
