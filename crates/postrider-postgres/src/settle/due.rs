//! Which exceptions are due: retries, delayed events, replayed ones, and those that wait behind them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::settle::{DueRow, DueRows, Hold, Lane, Room, Run};
use postrider_core::{Event, EventId, Key, Result, limits};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::log::turn::Turn;
use crate::ownership::fence::{look_again, lost, standing};
use crate::server::event_row::{event_read, payload_read};
use crate::server::session::Session;
use crate::settle::position::SHARDS;
use crate::store::Inner;

const WHAT: &str = "read what is due";

/// Events that are read together before their size is known.
const STEP_MIN: usize = 16;

/// Heads that one read looks at.
const HEADS_MAX: usize = 256;

/// Reads what is due and not in `loaded`.
pub(crate) async fn fetch_due(
    store: &Inner,
    hold: &Hold,
    loaded: &HashSet<EventId>,
    room: Room,
) -> Result<DueRows> {
    let session = store.reader.session().await?;
    let id = hold.subscription.id.0;
    let in_memory: Vec<i64> = loaded.iter().map(|event| event.0).collect();
    let heads = room.events.min(HEADS_MAX) as i64;
    let followers = (limits::RUN_EVENTS_MAX - 1) as i64;
    // Usually all shards are held, and then the statement need not look at a row's shard.
    let shards = (hold.shards.len() < usize::from(SHARDS)).then(|| hold.set().0 as i64);
    let next: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&id, &shards];
    let due: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [&id, &in_memory, &heads, &followers, &shards];
    let (standing, next, rows) = tokio::join!(
        standing(&session, hold),
        session.query(sql!("settle/due/delivery_next_due"), &next, WHAT),
        session.query(sql!("settle/due/delivery_due"), &due, WHAT),
    );
    let found = standing?.ok_or_else(|| lost(hold))?;
    let known = store.holdings.with(hold, |holding| holding.standing)?;
    let found = if found.fence == known.fence { found } else { look_again(&session, hold).await? };
    if found.paused {
        return Ok(DueRows::default());
    }
    let (rows, next) = (rows?, next?);
    if rows.is_empty() {
        return Ok(DueRows { runs: Vec::new(), next_in: next_in(next.first())? });
    }
    let mut read: Vec<Found> = rows.iter().map(Found::read).collect::<Result<_, _>>().doing(WHAT)?;
    let skipped = shorten(&mut read, loaded, room);
    let (events, looked) = events_that_fit(&session, &read, room).await?;
    let full = looked < read.len();
    read.truncate(looked);
    let more = skipped || full || read.iter().filter(|row| row.place == 0).count() == heads as usize;
    // What is left over is due already.
    let next_in = if more { Some(Duration::ZERO) } else { next_in(next.first())? };
    Ok(DueRows { runs: runs(read, events), next_in })
}

fn next_in(row: Option<&Row>) -> Result<Option<Duration>> {
    let Some(row) = row else { return Ok(None) };
    let seconds: f64 = row.try_get(0).doing(WHAT)?;
    Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)))
}

/// One row that was found.
struct Found {
    run: i64,
    /// 0 for the head of the run.
    place: i64,
    id: EventId,
    lane: Option<Lane>,
    turn: i64,
    parks: bool,
    discarded: bool,
    attempts: u32,
    edited_payload: Option<Bytes>,
}

impl Found {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let key: Option<&str> = row.try_get(3)?;
        let late = row.try_get(4)?;
        Ok(Self {
            run: row.try_get(0)?,
            place: row.try_get(1)?,
            id: EventId(row.try_get(2)?),
            lane: key.map(|key| Lane { key: Key::new(key), late }),
            turn: row.try_get(5)?,
            parks: row.try_get(6)?,
            discarded: row.try_get(7)?,
            attempts: row.try_get::<_, i32>(8)? as u32,
            edited_payload: payload_read(row, 9)?,
        })
    }
}

/// Leaves out what does not fit, and of each run what lies behind a row that is in memory: it must not overtake
/// that one. Whether a whole run was left out.
fn shorten(read: &mut Vec<Found>, loaded: &HashSet<EventId>, room: Room) -> bool {
    let mut room_left = room.events;
    let mut closed = None;
    let mut skipped = false;
    let mut taken: HashSet<EventId> = HashSet::new();
    read.retain(|row| {
        if closed == Some(row.run) {
            return false;
        }
        if room_left == 0 || loaded.contains(&row.id) || !taken.insert(row.id) {
            skipped |= row.place == 0 && room_left == 0;
            closed = Some(row.run);
            return false;
        }
        room_left -= 1;
        true
    });
    skipped
}

/// Puts rows and events together. A row whose event is gone is passed over, and `check` reports it.
fn runs(read: Vec<Found>, mut events: HashMap<EventId, Event>) -> Vec<Run> {
    let mut runs: Vec<(i64, Run)> = Vec::new();
    for row in read {
        let Some(mut event) = events.remove(&row.id) else { continue };
        if let Some(edited) = row.edited_payload {
            event = event.with_payload(edited);
        }
        let due = DueRow {
            event: Arc::new(event),
            attempts: row.attempts,
            turn: row.turn,
            discarded: row.discarded,
        };
        match runs.last_mut() {
            Some((run, last)) if *run == row.run => last.rows.push(due),
            _ if row.place == 0 => {
                runs.push((row.run, Run { lane: row.lane, parks: row.parks, rows: vec![due] }));
            }
            // Its head is gone: the run stays until an operator mends that.
            _ => {}
        }
    }
    runs.into_iter().map(|(_, run)| run).collect()
}

/// The events of the first rows, until their bytes are enough; and how many rows were looked at. They are
/// read some at a time, more and more while they are small: how large they are is known when they are there.
async fn events_that_fit(
    session: &Session,
    read: &[Found],
    room: Room,
) -> Result<(HashMap<EventId, Event>, usize)> {
    let (mut events, mut looked, mut bytes) = (HashMap::new(), 0, 0);
    let mut step = STEP_MIN;
    while looked < read.len() && (bytes < room.bytes || looked == 0) {
        let next = &read[looked..read.len().min(looked + step)];
        let found = events_get(session, &next.iter().map(|row| row.id).collect::<Vec<_>>()).await?;
        let size: usize = found.values().map(Event::bytes).sum();
        bytes +=
            size + next.iter().filter_map(|row| row.edited_payload.as_ref()).map(Bytes::len).sum::<usize>();
        looked += next.len();
        events.extend(found);
        let each = (size / next.len().max(1)).max(1);
        step = (limits::CHUNK_BYTES_MAX / each).min(next.len() * 8).max(STEP_MIN);
    }
    Ok((events, looked))
}

/// Events by id, from their leaves or from what was kept of a leaf that was emptied.
async fn events_get(session: &Session, ids: &[EventId]) -> Result<HashMap<EventId, Event>> {
    let mut by_leaf: HashMap<u8, Vec<i64>> = HashMap::new();
    for id in ids {
        by_leaf.entry(Turn::of(*id).leaf()).or_default().push(id.0);
    }
    let mut events = HashMap::with_capacity(ids.len());
    let mut take = |rows: Vec<Row>| {
        for row in &rows {
            let event = event_read(row, 0)?;
            events.insert(event.id, event);
        }
        Ok(())
    };
    for (leaf, ids) in &by_leaf {
        let rows = session.query(sql!("settle/due/event_of_leaf").on_leaf(*leaf), &[ids], WHAT).await?;
        take(rows).doing(WHAT)?;
    }
    let missing: Vec<i64> = {
        let found = &events;
        ids.iter().filter(|id| !found.contains_key(id)).map(|id| id.0).collect()
    };
    if !missing.is_empty() {
        for row in &session.query(sql!("settle/due/event_kept"), &[&missing], WHAT).await? {
            let event = event_read(row, 0).doing(WHAT)?;
            events.insert(event.id, event);
        }
    }
    Ok(events)
}
