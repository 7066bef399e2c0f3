//! Retention: removing old events that are not needed any more.
//!
//! A bite has two halves. The reading thread walks the log and picks what may go; the writing thread then
//! removes it in one short transaction that checks every condition again. So the writer lock, for which
//! producers wait, is held only to delete.
//!
//! Events that exceptions and queues still need stay where they are, at the front of the log, and each round has to
//! walk over them. A cursor that lives as long as the round keeps the bites of one round from walking over
//! them again and again:
//!
//! ```text
//!     ids   3 . 8 . . 20 21 22 23 │24 25 …            k  kept by an exception
//!           k   k     └ bite 2 ┘  │ least position    .  removed earlier
//!           └ bite 1 ──────────┘  or younger than the retention: the round ends, the cursor returns
//! ```

use postrider_core::store::Pruned;
use postrider_core::{EventId, Result, Timestamp, limits};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Doing;
use crate::log::event::event_oldest;

/// Events that one bite looks at, removable or not.
const SCAN_MAX: usize = 5_000;

/// Bytes of payload that one bite removes, give or take the last event: freeing large ones takes time.
const BYTES_MAX: i64 = 16 * 1024 * 1024;

/// Events in a row that are too young before a round ends. One is not enough: while a clock stood wrong,
/// a few may have got a time in the future.
const YOUNG_MAX: usize = 1_000;

/// What a bite has picked.
#[derive(Debug)]
pub(crate) struct Bite {
    pub(crate) ids: Vec<EventId>,
    /// Where the next bite begins; back at the front when the round is over.
    pub(crate) next: EventId,
    pub(crate) pinned_by: Option<String>,
}

impl Bite {
    /// What this bite did.
    pub(crate) fn pruned(self, removed: u64) -> Pruned {
        Pruned { removed, more: self.next.0 > 0, pinned_by: self.pinned_by }
    }
}

/// Picks events behind `from` that were emitted before `cutoff` and that every position is past.
pub(crate) fn pick(conn: &Connection, from: EventId, cutoff: Timestamp) -> Result<Bite> {
    let least = position_least(conn)?;
    let floor = least.as_ref().map_or(EventId(i64::MAX), |(floor, _)| *floor);
    let mut bite = walk(conn, from, floor, cutoff).doing("look for old events")?;
    if let Some((floor, name)) = least {
        let held_back = event_oldest(conn, floor)?.is_some_and(|(_, created_at)| created_at < cutoff);
        bite.pinned_by = held_back.then_some(name);
    }
    Ok(bite)
}

fn walk(conn: &Connection, from: EventId, floor: EventId, cutoff: Timestamp) -> rusqlite::Result<Bite> {
    let mut bite = Bite { ids: Vec::new(), next: EventId(0), pinned_by: None };
    let (mut bytes, mut young) = (0, 0);
    let mut walk = conn.prepare_cached(sql!("retention/event_prunable"))?;
    let mut rows = walk.query((from.0, cutoff.as_micros()))?;
    for _ in 0..SCAN_MAX {
        let Some(row) = rows.next()? else { return Ok(over(bite)) };
        let (id, old): (i64, bool) = (row.get(0)?, row.get(1)?);
        if id > floor.0 {
            return Ok(over(bite));
        }
        bite.next = EventId(id);
        if !old {
            young += 1;
            if young == YOUNG_MAX {
                return Ok(over(bite));
            }
            continue;
        }
        young = 0;
        if row.get::<_, bool>(2)? {
            continue;
        }
        bite.ids.push(EventId(id));
        bytes += row.get::<_, i64>(3)?;
        if bite.ids.len() == limits::PRUNE_ROWS_MAX || bytes >= BYTES_MAX {
            break;
        }
    }
    let goes_on = rows.next()?.is_some_and(|row| row.get(0).is_ok_and(|id: i64| id <= floor.0));
    Ok(if goes_on { bite } else { over(bite) })
}

/// The round is over; the next one begins at the front.
fn over(bite: Bite) -> Bite {
    Bite { next: EventId(0), ..bite }
}

/// Removes what was picked, unless a position, a delivery or a queued row has come to need it since.
pub(crate) fn remove(tx: &Transaction<'_>, ids: &[EventId]) -> Result<u64> {
    let floor = position_least(tx)?.map_or(i64::MAX, |(floor, _)| floor.0);
    let remove = || {
        let mut removed = 0;
        let mut event = tx.prepare_cached(sql!("retention/event_prune"))?;
        let mut attempts = tx.prepare_cached(sql!("retention/attempt_prune"))?;
        let mut idempotency = tx.prepare_cached(sql!("retention/idempotency_prune"))?;
        let mut superseded = tx.prepare_cached(sql!("retention/superseded_prune"))?;
        let mut results = tx.prepare_cached(sql!("retention/result_prune"))?;
        for id in ids {
            if event.execute((id.0, floor))? > 0 {
                attempts.execute([id.0])?;
                idempotency.execute([id.0])?;
                superseded.execute([id.0])?;
                results.execute([id.0])?;
                removed += 1;
            }
        }
        Ok(removed)
    };
    remove().doing("remove old events")
}

fn position_least(conn: &Connection) -> Result<Option<(EventId, String)>> {
    conn.prepare_cached(sql!("retention/position_least"))
        .and_then(|mut least| least.query_row([], |row| Ok((EventId(row.get(0)?), row.get(1)?))).optional())
        .doing("find the least advanced subscription")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the two halves of a bite a subscription may move back, or an event may fail.
    #[test]
    fn what_has_come_to_be_needed_since_it_was_picked_stays() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&crate::schema_sql()).unwrap();
        conn.execute_batch(
            "insert into postrider_event (topic, type) values ('a', 'a'), ('a', 'a'), ('a', 'a');
             insert into postrider_subscription (id, name, filter, mode, order_rule, on_dead, tuning, created_at)
             values (1, 'mail', '{}', 'log', 'key', 'skip', '{}', 0);
             insert into postrider_shard (subscription_id, shard, epoch, last_id) values (1, 0, 1, 2);
             insert into postrider_delivery
                 (subscription_id, event_id, shard, late, turn, parks, state, attempts, due_at)
             values (1, 2, 0, 0, 2, 0, 'pending', 1, 0);",
        )
        .unwrap();
        let tx = conn.transaction().unwrap();
        assert_eq!(remove(&tx, &[EventId(1), EventId(2), EventId(3)]).unwrap(), 1);
        assert!(event_oldest(&tx, EventId(0)).unwrap().is_some_and(|(id, _)| id == EventId(2)));
    }
}
