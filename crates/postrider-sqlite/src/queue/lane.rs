//! Lanes of a queue: one row of a key at a time, or as many as the limit of a key says.
//!
//! Of the queued rows in a lane at most one is its head: ready, due at a time, or leased. A dead
//! letter that holds its key is a head too. All others wait, in the order of their turns, and the call that takes a
//! head away makes the next one ready in the same transaction.
//!
//! Where keys have a limit and no order, a lane may have that many heads. The alternatives are worse: every
//! claim would have to write a counter for each key, and in a lane for each place, events would wait for a
//! long one while other places are free.

use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Subscription};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Doing;
use crate::queue::row::{Queued, QueuedState};
use crate::settle::lane::{lane_head, lane_read};

/// The event that the others of the lane wait for: a queued one, or a dead letter.
pub(crate) fn queue_head(
    conn: &Connection,
    subscription: SubscriptionId,
    lane: &Lane,
) -> Result<Option<EventId>> {
    let queued = conn
        .prepare_cached(sql!("queue/lane/queued_head"))
        .and_then(|mut head| {
            head.query_row((subscription.0, lane.key.as_str(), lane.late), |row| row.get(0).map(EventId))
                .optional()
        })
        .doing("find the head of a key's queue")?;
    if queued.is_some() { Ok(queued) } else { lane_head(conn, subscription, lane) }
}

/// Whether a row that enters a lane has to wait.
fn is_full(conn: &Connection, subscription: SubscriptionId, lane: &Lane) -> Result<bool> {
    let full = conn
        .prepare_cached(sql!("queue/lane/queued_is_full"))
        .and_then(|mut full| {
            full.query_row((subscription.0, lane.key.as_str(), lane.late), |row| row.get::<_, bool>(0))
        })
        .doing("count the heads of a key's queue")?;
    Ok(full || lane_head(conn, subscription, lane)?.is_some())
}

/// Puts a row in. One that is ready enters its lane, as a head or behind those that it has.
pub(crate) fn queue_enter(tx: &Transaction<'_>, subscription: SubscriptionId, mut row: Queued) -> Result<()> {
    if let (QueuedState::Ready, Some(lane)) = (row.state, &row.lane) {
        row.parks = true;
        if is_full(tx, subscription, lane)? {
            row.state = QueuedState::Waiting;
        }
    }
    row.put(tx, subscription)
}

/// Makes the next rows of a lane ready, as many as it has room for. Doing so twice is the same as once.
pub(crate) fn queue_advance(conn: &Connection, subscription: SubscriptionId, lane: &Lane) -> Result<()> {
    while !is_full(conn, subscription, lane)? {
        let promoted = conn
            .prepare_cached(sql!("queue/lane/queued_promote"))
            .and_then(|mut promote| promote.execute((subscription.0, lane.key.as_str(), lane.late)))
            .doing("let the next event of a key go on")?;
        if promoted == 0 {
            break;
        }
    }
    Ok(())
}

/// Keeps to a limit of keys that has changed: what it allows is ready, and what it does not waits, unless it is leased.
pub(crate) fn queue_retune(tx: &Transaction<'_>, subscription: &Subscription) -> Result<()> {
    if let Some(heads) = subscription.tuning.queue.per_key {
        tx.prepare_cached(sql!("queue/lane/queued_demote"))
            .and_then(|mut demote| demote.execute((subscription.id.0, heads)))
            .doing("keep to the limit of a key")?;
    }
    queue_mend(tx, subscription.id)
}

/// Gives every lane a head that has lost it. A seek takes heads away; nothing else should, but a lane without
/// a head is one that no call would ever look at again.
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
    conn.prepare_cached(sql!("queue/lane/queued_next_waiting"))
        .and_then(|mut next| {
            next.query_row((subscription.0, last.key.as_str(), last.late), lane_read).optional()
        })
        .doing("read the keys that wait")
}
