//! Reading an event out of a row, whatever its producer has put there.
//!
//! Rows that came by plain SQL are delivered as they are: text may be a blob, a payload may be a number, and
//! bytes that are no UTF-8 are replaced. Failing on one of them would stop everything behind it. An event
//! that breaks a limit comes with a flaw.

use std::borrow::Cow;

use bytes::Bytes;
use postrider_core::event::{Lengths, Listed, StoredEvent};
use postrider_core::{Event, EventId, Headers, Key, Timestamp, limits};
use rusqlite::Row;
use rusqlite::types::ValueRef;

/// The event in a row of the columns id, topic, type, key, payload, headers, created_at and due_at, and of
/// the lengths of topic, type, key, payload and headers.
pub(crate) fn event_read(row: &Row<'_>) -> rusqlite::Result<Event> {
    let topic = text(row.get_ref(1)?);
    let kind = kind(row, &topic)?;
    read(row, &topic, &kind, Some(lengths(row)?))
}

/// The same for a caller that has looked at topic and type already, and of a row without lengths.
pub(crate) fn event_read_named(row: &Row<'_>, topic: &str, kind: &str) -> rusqlite::Result<Event> {
    read(row, topic, kind, None)
}

/// What a listing shows of an event, of a row with the beginning of its payload.
pub(crate) fn event_preview(row: &Row<'_>) -> rusqlite::Result<Listed> {
    let mut lengths = lengths(row)?;
    let payload_bytes = lengths.payload;
    let headers_cut = row.get_ref(5)? == ValueRef::Null && lengths.headers > 0;
    if payload_bytes <= limits::PAYLOAD_BYTES_MAX as u64 {
        lengths.payload = 0;
    }
    let topic = text(row.get_ref(1)?);
    let kind = kind(row, &topic)?;
    Ok(Listed { event: read(row, &topic, &kind, Some(lengths))?, payload_bytes, headers_cut })
}

fn read(row: &Row<'_>, topic: &str, kind: &str, lengths: Option<Lengths>) -> rusqlite::Result<Event> {
    let (key, headers) = (row.get_ref(3)?, row.get_ref(5)?);
    let payload = row.get_ref(4)?;
    // Far above its limit a payload need not be copied to be found too large.
    let large = payload.as_bytes().map_or(0, <[u8]>::len).saturating_sub(limits::PAYLOAD_BYTES_MAX) as u64;
    let lengths = match lengths {
        None if large > 0 => {
            let payload = large + limits::PAYLOAD_BYTES_MAX as u64;
            Some(Lengths { payload, ..Lengths::default() })
        }
        lengths => lengths,
    };
    let key = (key != ValueRef::Null).then(|| text(key));
    let headers = (headers != ValueRef::Null).then(|| text(headers));
    let stored = StoredEvent {
        id: event_id(row)?,
        topic,
        kind,
        key: key.as_deref(),
        headers: headers.as_deref(),
        payload: if large > 0 { Bytes::new() } else { bytes(payload) },
        created_at: Timestamp::from_micros(integer(row.get_ref(6)?).unwrap_or_default()),
        due_at: integer(row.get_ref(7)?).map(Timestamp::from_micros),
        lengths,
    };
    Ok(stored.into_event())
}

fn lengths(row: &Row<'_>) -> rusqlite::Result<Lengths> {
    let length = |column| Ok::<_, rusqlite::Error>(integer(row.get_ref(column)?).unwrap_or(0).max(0) as u64);
    Ok(Lengths {
        topic: length(8)?,
        kind: length(9)?,
        key: length(10)?,
        payload: length(11)?,
        headers: length(12)?,
        payloads: 1,
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

/// The key, in the fourth column; none if it is longer than keys may be, as [`StoredEvent`] has it.
pub(crate) fn key(row: &Row<'_>) -> rusqlite::Result<Option<Key>> {
    Ok(match row.get_ref(3)? {
        ValueRef::Null => None,
        value => Some(text(value)).filter(|key| key.len() <= limits::KEY_BYTES_MAX).map(Key::new),
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

/// A value as a number, if it is one.
pub(crate) fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64),
        ValueRef::Text(_) | ValueRef::Blob(_) | ValueRef::Null => None,
    }
}
