//! Reading on in the log.
//!
//! This is the path that every event takes, so a row costs no more than what it brings: the filter looks at
//! SQLite's own memory, and only what is wanted is copied. SQLite loads a row whole. Its limit on the length
//! of a value, which costs nothing, keeps it from loading a row that is far too large. Such a row is very
//! rare: then a statement that looks at lengths first reads the same stretch.

use std::sync::Arc;

use postrider_core::event::beginning;
use postrider_core::settle::{Chunk, HeldShard, Hold, MemberId, Room};
use postrider_core::{EventId, Position, Result, Shard, limits};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode};

use crate::error::Doing;
use crate::file::connection::read;
use crate::file::event_row;
use crate::log::event::event_newest;
use crate::log::reader::Reader;
use crate::options::Durability;
use crate::ownership::fence::fence;
use crate::ownership::shard::SHARDS;

/// A fetch that found nothing. Until another connection commits, it would find nothing again.
pub(crate) struct IdleFetch {
    data_version: i64,
    after: Position,
    member: MemberId,
    shards: Arc<[HeldShard]>,
    paused: bool,
}

/// Reads the wanted events behind `after`; what it returns is durable.
pub(crate) fn fetch(
    reader: &mut Reader,
    hold: &Hold,
    after: Position,
    room: Room,
    durability: Durability,
) -> Result<Chunk> {
    // Read before the snapshot: a commit in between makes the next fetch look again.
    let data_version = data_version(&reader.conn)?;
    if let Some(chunk) = still_idle(reader, hold, after, data_version) {
        return Ok(chunk);
    }
    let (chunk, newest) = read(&reader.conn, |tx| {
        if fence(tx, hold)?.paused {
            return Ok((empty(after, true), None));
        }
        let chunk = scan(tx, hold, after, room).doing("read the log")?;
        let known = chunk.events.is_empty() || reader.flush.covers(chunk.end.last_id);
        let newest = if known || durability == Durability::Trust { None } else { event_newest(tx)? };
        Ok((chunk, newest))
    })?;
    if let Some(newest) = newest {
        reader.flush.flush(&reader.conn, newest)?;
    }
    if chunk.events.is_empty() && !chunk.more && chunk.end == after {
        let idle = IdleFetch {
            data_version,
            after,
            member: hold.member,
            shards: Arc::clone(&hold.shards),
            paused: chunk.paused,
        };
        reader.idle.insert(hold.subscription.id, idle);
    }
    Ok(chunk)
}

fn still_idle(reader: &Reader, hold: &Hold, after: Position, data_version: i64) -> Option<Chunk> {
    let idle = reader.idle.get(&hold.subscription.id)?;
    let same = idle.data_version == data_version
        && idle.after == after
        && idle.member == hold.member
        && idle.shards == hold.shards;
    same.then(|| empty(after, idle.paused))
}

fn data_version(conn: &Connection) -> Result<i64> {
    conn.prepare_cached(sql!("log/data_version"))
        .and_then(|mut version| version.query_row([], |row| row.get(0)))
        .doing("ask whether the database has changed")
}

/// Of `event_fetch`.
const FETCH_COLUMNS: usize = 8;

fn empty(after: Position, paused: bool) -> Chunk {
    Chunk { paused, ..Chunk::empty(after) }
}

/// Above what an event may hold in one column, and far below what would hurt.
const COLUMN_BYTES_MAX: i32 = 2 * limits::PAYLOAD_BYTES_MAX as i32;

fn scan(conn: &Connection, hold: &Hold, after: Position, room: Room) -> rusqlite::Result<Chunk> {
    let usual = conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, COLUMN_BYTES_MAX)?;
    let chunk = scan_by(conn, sql!("log/event_fetch"), hold, after, room);
    conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, usual)?;
    match chunk {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::TooBig) => {
            scan_by(conn, sql!("log/event_fetch_cut"), hold, after, room)
        }
        chunk => chunk,
    }
}

fn scan_by(
    conn: &Connection,
    statement: &str,
    hold: &Hold,
    after: Position,
    room: Room,
) -> rusqlite::Result<Chunk> {
    let events_max = room.events.min(limits::CHUNK_EVENTS_MAX);
    let bytes_max = room.bytes.min(limits::CHUNK_BYTES_MAX);
    let filter = &hold.subscription.filter;
    // Usually all shards are held and stand at one place, and then no event's shard need be computed.
    let holds_all =
        hold.shards.len() == usize::from(SHARDS) && hold.shards.iter().all(|held| held.position <= after);
    let mut chunk = empty(after, false);
    let (mut bytes, mut scanned) = (0, 0);
    let mut select = conn.prepare_cached(statement)?;
    let with_lengths = select.column_count() > FETCH_COLUMNS;
    let mut rows = select.query([after.last_id.0])?;
    loop {
        if chunk.events.len() >= events_max || bytes >= bytes_max || scanned >= limits::CHUNK_SCAN_MAX {
            chunk.more = true;
            return Ok(chunk);
        }
        let Some(row) = rows.next()? else { return Ok(chunk) };
        scanned += 1;
        let id = event_row::event_id(row)?;
        chunk.end = after.at(id);
        let topic = event_row::text(row.get_ref(1)?);
        let kind = event_row::kind(row, &topic)?;
        let names = (beginning(&topic), beginning(&kind));
        if !filter.matches(names.0, names.1) || !(holds_all || is_held(hold, id, row)?) {
            continue;
        }
        let event = if with_lengths {
            event_row::event_read(row)?
        } else {
            event_row::event_read_named(row, &topic, &kind)?
        };
        bytes += event.bytes();
        chunk.events.push(Arc::new(event));
    }
}

fn is_held(hold: &Hold, id: EventId, row: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
    let shard = Shard::of(event_row::key(row)?.as_ref(), id, SHARDS);
    Ok(hold.shards.iter().any(|held| held.shard == shard && !held.position.covers(id)))
}
