//! Which exceptions are due: retries, delayed events, replayed ones, and those that wait behind them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::settle::{DueRow, DueRows, Hold, Lane, Room, Run};
use postrider_core::{DeliveryState, Event, EventId, Key, Result, Shard, ShardSet, Timestamp, limits};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::Doing;
use crate::file::event_row;
use crate::log::event::event_get;
use crate::ownership::fence::fence;

/// Reads what is due and not in `loaded`. Rows in memory are passed over on the index alone, so they
/// neither cost much nor hide what lies behind them.
pub(crate) fn fetch_due(
    conn: &Connection,
    hold: &Hold,
    loaded: &HashSet<EventId>,
    room: Room,
    now: Timestamp,
) -> Result<DueRows> {
    if fence(conn, hold)?.paused {
        return Ok(DueRows::default());
    }
    let mut load = Load { conn, hold, shards: hold.set(), loaded, room, taken: HashSet::new() };
    let mut found = DueRows::default();
    let mut due = conn.prepare_cached(sql!("settle/delivery_due")).doing("read what is due")?;
    let mut rows = due.query([hold.subscription.id.0]).doing("read what is due")?;
    while let Some(row) = rows.next().doing("read what is due")? {
        let (id, due_at) = due_entry(row).doing("read what is due")?;
        if due_at > now {
            found.next_in = Some(due_at.since(now));
            break;
        }
        if loaded.contains(&id) {
            continue;
        }
        if load.is_full() {
            // What is left over is due already.
            found.next_in = Some(Duration::ZERO);
            break;
        }
        found.runs.extend(load.run(id)?);
    }
    Ok(found)
}

fn due_entry(row: &Row<'_>) -> rusqlite::Result<(EventId, Timestamp)> {
    Ok((EventId(row.get(0)?), Timestamp::from_micros(row.get(1)?)))
}

/// A read of due rows under way.
struct Load<'a> {
    conn: &'a Connection,
    hold: &'a Hold,
    shards: ShardSet,
    loaded: &'a HashSet<EventId>,
    /// What is left.
    room: Room,
    /// What has been put into a run.
    taken: HashSet<EventId>,
}

impl Load<'_> {
    fn is_full(&self) -> bool {
        self.room.events == 0 || self.room.bytes == 0
    }

    /// The run that begins with the due row of `id`; none if its event is gone, which `check` reports.
    fn run(&mut self, id: EventId) -> Result<Option<Run>> {
        if self.taken.contains(&id) {
            return Ok(None);
        }
        let Some(head) = self.head(id)?.filter(|head| self.shards.contains(head.shard)) else {
            return Ok(None);
        };
        let Some(first) = self.load(id, head.row)? else { return Ok(None) };
        let mut rows = vec![first];
        if let (true, Some(lane)) = (head.parks, &head.lane) {
            self.follow(lane, &mut rows)?;
        }
        Ok(Some(Run { lane: head.lane, parks: head.parks, rows }))
    }

    fn head(&self, id: EventId) -> Result<Option<Head>> {
        self.conn
            .prepare_cached(sql!("settle/delivery_get"))
            .and_then(|mut get| get.query_row((self.hold.subscription.id.0, id.0), head_read).optional())
            .doing("read a due delivery")
    }

    /// Adds what waits behind the head. It ends before a row that is in memory: what follows that one must
    /// not overtake it.
    fn follow(&mut self, lane: &Lane, run: &mut Vec<DueRow>) -> Result<()> {
        let what = "read what waits behind a due delivery";
        let mut waiting = self.conn.prepare_cached(sql!("settle/delivery_lane")).doing(what)?;
        let mut rows =
            waiting.query((self.hold.subscription.id.0, lane.key.as_str(), lane.late)).doing(what)?;
        while run.len() < limits::RUN_EVENTS_MAX && !self.is_full() {
            let Some(row) = rows.next().doing(what)? else { break };
            let (id, row) = waiting_read(row).doing(what)?;
            if self.loaded.contains(&id) {
                break;
            }
            run.extend(self.load(id, row)?);
        }
        Ok(())
    }

    fn load(&mut self, id: EventId, row: RowRead) -> Result<Option<DueRow>> {
        let Some(mut event) = event_get(self.conn, id)? else { return Ok(None) };
        if let Some(edited) = row.edited_payload {
            event = event.with_payload(edited);
        }
        self.taken.insert(id);
        self.room.events = self.room.events.saturating_sub(1);
        self.room.bytes = self.room.bytes.saturating_sub(event.bytes().max(1));
        let event: Arc<Event> = Arc::new(event);
        Ok(Some(DueRow { event, attempts: row.attempts, turn: row.turn, discarded: row.discarded }))
    }
}

struct Head {
    lane: Option<Lane>,
    parks: bool,
    row: RowRead,
    shard: Shard,
}

struct RowRead {
    turn: i64,
    attempts: u32,
    discarded: bool,
    edited_payload: Option<Bytes>,
}

fn head_read(row: &Row<'_>) -> rusqlite::Result<Head> {
    let key: Option<String> = row.get(0)?;
    let late = row.get(1)?;
    Ok(Head {
        lane: key.map(|key| Lane { key: Key::new(key), late }),
        parks: row.get(3)?,
        shard: Shard(row.get(9)?),
        row: RowRead {
            turn: row.get(2)?,
            attempts: row.get(5)?,
            discarded: row.get_ref(4)?.as_str()? == DeliveryState::Done.as_str(),
            edited_payload: edited(row, 8)?,
        },
    })
}

fn waiting_read(row: &Row<'_>) -> rusqlite::Result<(EventId, RowRead)> {
    let read = RowRead {
        turn: row.get(1)?,
        attempts: row.get(2)?,
        discarded: false,
        edited_payload: edited(row, 3)?,
    };
    Ok((EventId(row.get(0)?), read))
}

/// The payload that an operator has put in place of the event's own.
pub(crate) fn edited(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Bytes>> {
    Ok(match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => None,
        value => Some(event_row::bytes(value)),
    })
}
