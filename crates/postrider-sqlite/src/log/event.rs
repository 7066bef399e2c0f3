//! Single events, and where the log begins and ends.

use postrider_core::{Event, EventId, Result, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Doing;
use crate::file::event_row;

/// One event.
pub(crate) fn event_get(conn: &Connection, id: EventId) -> Result<Option<Event>> {
    conn.prepare_cached(sql!("log/event_get"))
        .and_then(|mut get| get.query_row([id.0], event_row::event_read).optional())
        .doing("read an event")
}

/// The newest event that is there.
pub(crate) fn event_newest(conn: &Connection) -> Result<Option<EventId>> {
    conn.prepare_cached(sql!("log/event_newest"))
        .and_then(|mut newest| newest.query_row([], |row| row.get::<_, Option<i64>>(0)))
        .map(|id| id.map(EventId))
        .doing("find the newest event")
}

/// The oldest event behind `id`, and when it was emitted.
pub(crate) fn event_oldest(conn: &Connection, after: EventId) -> Result<Option<(EventId, Timestamp)>> {
    conn.prepare_cached(sql!("log/event_oldest"))
        .and_then(|mut oldest| {
            oldest
                .query_row([after.0], |row| {
                    let at = event_row::integer(row.get_ref(1)?).unwrap_or_default();
                    Ok((EventId(row.get(0)?), Timestamp::from_micros(at)))
                })
                .optional()
        })
        .doing("find the oldest event")
}

/// The greatest id that was ever handed out; 0 before the first.
pub(crate) fn event_issued(conn: &Connection) -> Result<EventId> {
    conn.prepare_cached(sql!("log/event_issued"))
        .and_then(|mut issued| issued.query_row([], |row| row.get(0)).optional())
        .map(|id| EventId(id.unwrap_or(0)))
        .doing("find the last id")
}
