//! How an event gets into the caller's transaction.
//!
//! [`emit`](postrider_core::emit()) takes a reference to a rusqlite connection, transaction or savepoint and
//! writes one row through it. It opens nothing and commits nothing: the event exists if and only if the
//! caller's transaction commits, and a savepoint that is rolled back takes its events with it.
//!
//! Begin the transaction with `BEGIN IMMEDIATE` ([`TransactionBehavior::Immediate`]). A transaction that
//! begins with a read and writes later fails at once, whatever the busy time-out, if another connection wrote
//! in between, because SQLite cannot bring its snapshot up to date.
//!
//! [`TransactionBehavior::Immediate`]: rusqlite::TransactionBehavior::Immediate

use std::time::SystemTime;

use postrider_core::{Emit, EventId, Key, NewEvent, Result, Timestamp};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Savepoint, Transaction, TransactionBehavior};

use crate::error::Doing;

/// Marks what is emitted through rusqlite. Callers need not name it.
#[derive(Debug, Clone, Copy)]
pub struct Rusqlite;

macro_rules! emit_through {
    ($($connection:ty),+) => {
        $(impl Emit<Rusqlite> for $connection {
            type Output = Result<EventId>;

            fn emit(self, event: NewEvent) -> Result<EventId> {
                event_insert(self, &event, SystemTime::now().into())
            }
        })+
    };
}

emit_through!(
    &Connection,
    &mut Connection,
    &Transaction<'_>,
    &mut Transaction<'_>,
    &Savepoint<'_>,
    &mut Savepoint<'_>
);

/// Writes one event. `now` is when it was emitted.
pub(crate) fn event_insert(conn: &Connection, event: &NewEvent, now: Timestamp) -> Result<EventId> {
    event.check()?;
    match event.idempotency() {
        None => insert(conn, event, now),
        Some(key) if conn.is_autocommit() => insert_once_alone(conn, event, now, &key),
        Some(key) => insert_once(conn, event, now, &key),
    }
    .map(EventId)
    .doing("emit an event")
}

fn insert(conn: &Connection, event: &NewEvent, now: Timestamp) -> rusqlite::Result<i64> {
    let (topic, kind) = (event.topic().as_str(), event.kind_or_topic());
    let key = event.ordering_key().map(Key::as_str);
    let payload = payload(event);
    let due_at = event.due_from(now).map(Timestamp::as_micros);
    // Two values fewer to bind save three parts in a hundred of the whole insert.
    if event.headers().is_empty() && due_at.is_none() {
        conn.prepare_cached(sql!("emit/event_insert_plain"))?.execute((
            topic,
            kind,
            key,
            payload,
            now.as_micros(),
        ))?;
    } else {
        let headers = event.headers().to_json();
        let mut insert = conn.prepare_cached(sql!("emit/event_insert"))?;
        insert.execute((topic, kind, key, payload, headers, now.as_micros(), due_at))?;
    }
    Ok(conn.last_insert_rowid())
}

/// JSON as text, so that people can read it and SQLite's functions take it; else a blob.
fn payload(event: &NewEvent) -> ToSqlOutput<'_> {
    let bytes = event.payload_bytes();
    ToSqlOutput::Borrowed(if event.is_json() { ValueRef::Text(bytes) } else { ValueRef::Blob(bytes) })
}

/// Writes the event unless its idempotency key is taken; returns the id of the event that holds the key then. No
/// other connection can take it meanwhile, since the first statement has the writer lock.
fn insert_once(conn: &Connection, event: &NewEvent, now: Timestamp, key: &str) -> rusqlite::Result<i64> {
    let claimed = conn.prepare_cached(sql!("emit/idempotency_claim"))?.execute([key])?;
    if claimed == 0
        && let Some(holder) = holder(conn, key, now)?
    {
        if !event.replaces() {
            return Ok(holder);
        }
        conn.prepare_cached(sql!("emit/superseded_put"))?.execute([holder])?;
    }
    let id = insert(conn, event, now)?;
    let until = event.unique_for().map(|period| now.after(period).as_micros());
    conn.prepare_cached(sql!("emit/idempotency_note"))?.execute((key, id, until))?;
    Ok(id)
}

/// The event that holds a key; none if its period is over.
fn holder(conn: &Connection, key: &str, now: Timestamp) -> rusqlite::Result<Option<i64>> {
    let mut get = conn.prepare_cached(sql!("emit/idempotency_get"))?;
    let (holder, until): (i64, Option<i64>) = get.query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(until.is_none_or(|until| until > now.as_micros()).then_some(holder))
}

/// The same for a caller without a transaction: the key and the event must still be written together.
fn insert_once_alone(
    conn: &Connection,
    event: &NewEvent,
    now: Timestamp,
    key: &str,
) -> rusqlite::Result<i64> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let id = insert_once(&tx, event, now, key)?;
    tx.commit()?;
    Ok(id)
}
