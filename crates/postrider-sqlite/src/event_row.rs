//! Reading an event out of a row, whatever its producer has put there.
//!
//! Rows that came by plain SQL are delivered as they are: text may be a blob, a payload may be a number,
//! and bytes that are no UTF-8 are replaced. Failing on one of them would stop everything behind it.

use std::borrow::Cow;

use bytes::Bytes;
use postrider_core::{Event, EventId, Headers, Key, Kind, Timestamp, Topic};
use rusqlite::Row;
use rusqlite::types::ValueRef;

/// The event in a row of the columns id, topic, type, key, payload, headers, created_at and due_at.
pub(crate) fn event_read(row: &Row<'_>) -> rusqlite::Result<Event> {
    let topic = text(row.get_ref(1)?);
    let kind = kind(row, &topic)?;
    event_read_named(row, &topic, &kind)
}

/// The same for a caller that has looked at topic and type already.
pub(crate) fn event_read_named(row: &Row<'_>, topic: &str, kind: &str) -> rusqlite::Result<Event> {
    Ok(Event {
        id: event_id(row)?,
        topic: Topic::new(topic),
        kind: Kind::new(kind),
        key: key(row)?,
        payload: bytes(row.get_ref(4)?),
        headers: headers(row.get_ref(5)?),
        created_at: Timestamp::from_micros(integer(row.get_ref(6)?).unwrap_or_default()),
        due_at: integer(row.get_ref(7)?).map(Timestamp::from_micros),
    })
}

/// The id, in the first column.
pub(crate) fn event_id(row: &Row<'_>) -> rusqlite::Result<EventId> {
    row.get(0).map(EventId)
}

/// The type, in the third column. Without one it is the topic.
pub(crate) fn kind<'a>(row: &'a Row<'_>, topic: &'a str) -> rusqlite::Result<Cow<'a, str>> {
    Ok(match row.get_ref(2)? {
        ValueRef::Null => Cow::Borrowed(topic),
        value => text(value),
    })
}

/// The key, in the fourth column.
pub(crate) fn key(row: &Row<'_>) -> rusqlite::Result<Option<Key>> {
    Ok(match row.get_ref(3)? {
        ValueRef::Null => None,
        value => Some(Key::new(text(value))),
    })
}

/// A value as text, without a copy if it is that already.
pub(crate) fn text(value: ValueRef<'_>) -> Cow<'_, str> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        },
        ValueRef::Integer(number) => Cow::Owned(number.to_string()),
        ValueRef::Real(number) => Cow::Owned(number.to_string()),
        ValueRef::Null => Cow::Borrowed(""),
    }
}

/// A value as bytes.
pub(crate) fn bytes(value: ValueRef<'_>) -> Bytes {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Bytes::copy_from_slice(bytes),
        other => Bytes::from(text(other).into_owned()),
    }
}

/// A value as headers.
pub(crate) fn headers(value: ValueRef<'_>) -> Headers {
    match value {
        ValueRef::Null => Headers::default(),
        value => Headers::from_json(&text(value)),
    }
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64),
        ValueRef::Text(_) | ValueRef::Blob(_) | ValueRef::Null => None,
    }
}
