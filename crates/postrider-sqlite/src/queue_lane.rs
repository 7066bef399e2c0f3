//! Lanes of a queue: of one key, one at a time.
//!
//! Of the queued rows that stand in a lane at most one is its head: ready, due at a time, or leased. A dead letter that
//! holds its key is a head too. All others wait, in the order of their turns, and whoever takes a head away makes the next
//! one ready in the same transaction.

use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Doing;
use crate::lane::{lane_head, lane_read};
use crate::queue_row::{Queued, QueuedState};

/// The event that the others of the lane wait for: a queued one, or a dead letter.
pub(crate) fn queue_head(
    conn: &Connection,
    subscription: SubscriptionId,
    lane: &Lane,
) -> Result<Option<EventId>> {
    let queued = conn
        .prepare_cached(sql!("queued_head"))
        .and_then(|mut head| {
            head.query_row((subscription.0, lane.key.as_str(), lane.late), |row| row.get(0).map(EventId))
                .optional()
        })
        .doing("find the head of a key's queue")?;
    if queued.is_some() { Ok(queued) } else { lane_head(conn, subscription, lane) }
}

/// Puts a row in. One that is ready enters its lane, as its head or behind it.
pub(crate) fn queue_enter(tx: &Transaction<'_>, subscription: SubscriptionId, mut row: Queued) -> Result<()> {
    if let (QueuedState::Ready, Some(lane)) = (row.state, &row.lane) {
        row.parks = true;
        if queue_head(tx, subscription, lane)?.is_some() {
            row.state = QueuedState::Waiting;
        }
    }
    row.put(tx, subscription)
}

/// Makes the next row of a lane ready, if the lane has no head. Doing so twice is the same as once. Says whether it has done
/// so.
pub(crate) fn queue_advance(conn: &Connection, subscription: SubscriptionId, lane: &Lane) -> Result<bool> {
    if queue_head(conn, subscription, lane)?.is_some() {
        return Ok(false);
    }
    conn.prepare_cached(sql!("queued_promote"))
        .and_then(|mut promote| promote.execute((subscription.0, lane.key.as_str(), lane.late)))
        .map(|promoted| promoted > 0)
        .doing("let the next event of a key go on")
}

/// Gives every lane a head that has lost it. A seek takes heads away; nothing else should, but a lane without a head is one
/// that nobody would ever look at again.
pub(crate) fn queue_mend(tx: &Transaction<'_>, subscription: SubscriptionId) -> Result<()> {
    // The first lane there can be, since the walk looks behind a lane.
    let mut last = Lane { key: Key::new(""), late: false };
    queue_advance(tx, subscription, &last)?;
    while let Some(lane) = next_waiting(tx, subscription, &last)? {
        queue_advance(tx, subscription, &lane)?;
        last = lane;
    }
    Ok(())
}

fn next_waiting(conn: &Connection, subscription: SubscriptionId, last: &Lane) -> Result<Option<Lane>> {
    conn.prepare_cached(sql!("queued_next_waiting"))
        .and_then(|mut next| {
            next.query_row((subscription.0, last.key.as_str(), last.late), lane_read).optional()
        })
        .doing("read the keys that wait")
}
