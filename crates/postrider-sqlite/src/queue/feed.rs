//! What is fed to a queue: rows for the events that its position moves over.

use postrider_core::queue::{Fed, Feed, Priority};
use postrider_core::settle::Hold;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Fair, Result};
use rusqlite::{Connection, Transaction};

use crate::error::Doing;
use crate::ownership::fence::fence;
use crate::queue::lane::queue_enter;
use crate::queue::row::{Queued, rank};

/// What was fed so far and is not done.
pub(crate) fn fed(conn: &Connection, hold: &Hold) -> Result<Fed> {
    fence(conn, hold)?;
    let id = hold.subscription.id;
    let tenants = conn
        .prepare_cached(sql!("queue/feed/queued_tenants"))
        .and_then(|mut tenants| tenants.query_map([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .doing("read who has queued events")?;
    Ok(Fed { front: queue_front(conn, id)?, tenants, newest: queue_newest(conn, id)? })
}

/// Moves the positions of all held shards and queues what lies between.
pub(crate) fn feed(tx: &Transaction<'_>, hold: &Hold, feed: &Feed) -> Result<Option<i64>> {
    fence(tx, hold)?;
    let id = hold.subscription.id;
    tx.prepare_cached(sql!("settle/shard_advance"))
        .and_then(|mut advance| advance.execute((id.0, hold.set().0 as i64, feed.mark.last_id.0)))
        .doing("move a position")?;
    for row in &feed.rows {
        queue_enter(tx, id, Queued::new(row))?;
    }
    if hold.subscription.tuning.queue.fair == Fair::Nobody {
        return Ok(None);
    }
    queue_front(tx, id)
}

/// The least virtual time among what is ready to be claimed.
pub(crate) fn queue_front(conn: &Connection, subscription: SubscriptionId) -> Result<Option<i64>> {
    let (most, least) = (Priority::new(*Priority::LEVELS.end()), Priority::new(*Priority::LEVELS.start()));
    conn.prepare_cached(sql!("queue/feed/queued_front"))
        .and_then(|mut front| front.query_row((subscription.0, rank(most), rank(least)), |row| row.get(0)))
        .doing("find where a queue stands")
}

/// The largest virtual time of all.
pub(crate) fn queue_newest(conn: &Connection, subscription: SubscriptionId) -> Result<Option<i64>> {
    conn.prepare_cached(sql!("queue/feed/queued_newest"))
        .and_then(|mut newest| newest.query_row([subscription.0], |row| row.get(0)))
        .doing("find what was fed last")
}
