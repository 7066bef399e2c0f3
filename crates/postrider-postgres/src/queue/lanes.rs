//! Lanes of a queue: of the events of one key, one at a time, or as many as the limit of a key says.
//!
//! Two kinds of transaction change the head: one takes a head away and looks for the next row, the other puts
//! a row in and looks for a head. Side by side, neither would see the other's change: the first finds no row
//! that waits, the second finds a head that is just leaving, and the new row would wait without a head. So
//! lanes have locks, by buckets of their keys: the first kind takes them shared, the second alone. A feed must
//! not wait for a handler's transaction, which may take its time: it takes the free buckets, and lets rows of
//! other buckets wait. The next sweep looks at these lanes again. A replay or a cancel has the time to wait,
//! and takes them alone.
//!
//! Where keys have a limit and no order, a lane has as many heads as the limit says, and the same locks. So a
//! claim need not count, and writes nothing more. A counter for each key would be one row that all claims and
//! settles of the key wait for; a lane for each place would let events wait for a long one while other places
//! are free. Several may take heads of one lane away at once then, which is why they replace what they have
//! taken and no more (`queue_lane_fill.sql`).

use std::collections::{HashMap, HashSet};

use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Order, Result, Shard, Subscription, limits};
use tokio_postgres::Row;

use super::floors::Rest;
use super::hints::Ready;
use crate::error::Doing;
use crate::server::session::Tx;
use crate::settle::lane::lane_read;

const WHAT: &str = "let the next event of a key go on";

/// Buckets of a subscription's lanes.
const BUCKETS: u16 = 256;

pub(super) fn bucket(lane: &Lane) -> i32 {
    bucket_of(&lane.key)
}

/// The bucket of the lanes of a key.
pub(crate) fn bucket_of(key: &Key) -> i32 {
    i32::from(Shard::of(Some(key), EventId(0), BUCKETS).0)
}

fn columns<'a>(lanes: impl Iterator<Item = &'a Lane>) -> (Vec<&'a str>, Vec<bool>) {
    lanes.map(|lane| (lane.key.as_str(), lane.late)).unzip()
}

/// A rank and a virtual time, in two columns.
pub(super) fn ready_read(row: &Row) -> Result<Ready, tokio_postgres::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// Keeps rows from being put into lanes whose head is taken away.
pub(crate) async fn lanes_share(tx: &Tx<'_>, id: SubscriptionId, lanes: &[Rest]) -> Result<()> {
    if lanes.is_empty() {
        return Ok(());
    }
    let buckets: Vec<i32> = lanes.iter().map(|rest| bucket(&rest.lane)).collect();
    tx.query(sql!("queue/lanes/queue_lane_share"), &[&id.0, &buckets], WHAT).await.map(drop)
}

/// The same alone, for a transaction that puts rows in or takes waiting rows out. It waits for any transaction that
/// takes a head away, as long as a handler's may last. It must not yet hold a row of these lanes that others wait for.
pub(crate) async fn lanes_alone(tx: &Tx<'_>, id: SubscriptionId, lanes: &[Lane]) -> Result<()> {
    if lanes.is_empty() {
        return Ok(());
    }
    let buckets: Vec<i32> = lanes.iter().map(bucket).collect();
    tx.query(sql!("queue/lanes/queue_lane_alone"), &[&id.0, &buckets], WHAT).await.map(drop)
}

/// Those of some lanes from which no transaction is taking a head away, until this one ends; and the others.
pub(super) async fn lanes_take(
    tx: &Tx<'_>,
    id: SubscriptionId,
    lanes: Vec<Rest>,
) -> Result<(Vec<Rest>, Vec<Rest>)> {
    if lanes.is_empty() {
        return Ok((lanes, Vec::new()));
    }
    let buckets: Vec<i32> = lanes.iter().map(|rest| bucket(&rest.lane)).collect();
    let taken =
        buckets_taken(&tx.query(sql!("queue/feed/queue_lane_take"), &[&id.0, &buckets], WHAT).await?)?;
    Ok(lanes.into_iter().partition(|rest| taken.contains(&bucket(&rest.lane))))
}

/// What `queue_lane_take` answers.
pub(super) fn buckets_taken(rows: &[Row]) -> Result<HashSet<i32>> {
    let Some(row) = rows.first() else { return Ok(HashSet::new()) };
    let taken: &str = row.try_get(0).doing(WHAT)?;
    Ok(taken.split(',').filter_map(|bucket| bucket.parse().ok()).collect())
}

/// Gives each of the lanes the heads that it may have and has not, and says what is ready by that. Their
/// buckets are held, alone or together with the subscription's lock: no other transaction fills them.
pub(crate) async fn lanes_next(
    tx: &Tx<'_>,
    subscription: &Subscription,
    lanes: &[Rest],
) -> Result<Vec<Ready>> {
    match subscription.order {
        _ if lanes.is_empty() => Ok(Vec::new()),
        Order::Key => lanes_promote(tx, subscription.id, lanes).await,
        Order::None => {
            let lanes: Vec<&Lane> = lanes.iter().map(|rest| &rest.lane).collect();
            lanes_fill(tx, subscription.id, &lanes, &vec![None; lanes.len()]).await
        }
    }
}

/// Replaces heads that were taken away: the lane of each of them. Says what is ready by that.
pub(super) async fn lanes_replace(
    tx: &Tx<'_>,
    subscription: &Subscription,
    freed: &[Rest],
) -> Result<Vec<Ready>> {
    if freed.is_empty() {
        return Ok(Vec::new());
    }
    lanes_share(tx, subscription.id, freed).await?;
    if subscription.order == Order::Key {
        return lanes_promote(tx, subscription.id, freed).await;
    }
    let mut counts: HashMap<&Lane, i32> = HashMap::new();
    for Rest { lane, .. } in freed {
        *counts.entry(lane).or_default() += 1;
    }
    let (lanes, taken): (Vec<&Lane>, Vec<Option<i32>>) =
        counts.into_iter().map(|(lane, count)| (lane, Some(count))).unzip();
    lanes_fill(tx, subscription.id, &lanes, &taken).await
}

async fn lanes_promote(tx: &Tx<'_>, id: SubscriptionId, lanes: &[Rest]) -> Result<Vec<Ready>> {
    let (keys, lates) = columns(lanes.iter().map(|rest| &rest.lane));
    let floors: Vec<i64> = lanes.iter().map(|rest| rest.floor).collect();
    let rows = tx.query(sql!("queue/lanes/queue_lane_next"), &[&id.0, &keys, &lates, &floors], WHAT).await?;
    rows.iter().map(ready_read).collect::<Result<_, _>>().doing(WHAT)
}

/// Of each lane says `taken` how many heads the caller has taken away; none if it fills the lane up.
async fn lanes_fill(
    tx: &Tx<'_>,
    id: SubscriptionId,
    lanes: &[&Lane],
    taken: &[Option<i32>],
) -> Result<Vec<Ready>> {
    let (keys, lates) = columns(lanes.iter().copied());
    let buckets: Vec<i32> = lanes.iter().map(|lane| bucket(lane)).collect();
    let rows = tx
        .query(sql!("queue/lanes/queue_lane_fill"), &[&id.0, &keys, &lates, &taken, &buckets], WHAT)
        .await?;
    rows.iter().map(ready_read).collect::<Result<_, _>>().doing(WHAT)
}

/// Keeps to a limit of keys that has changed, at once: what it allows is ready, and what it does not waits,
/// unless it is leased. The subscription's lock is held.
pub(crate) async fn lanes_retune(tx: &Tx<'_>, subscription: &Subscription) -> Result<()> {
    let id = subscription.id;
    let all: Vec<i32> = (0..i32::from(BUCKETS)).collect();
    tx.query(sql!("queue/lanes/queue_lane_share"), &[&id.0, &all], WHAT).await?;
    if let Some(heads) = subscription.tuning.queue.per_key {
        tx.execute(sql!("queue/lanes/queue_lane_demote"), &[&id.0, &i64::from(heads)], WHAT).await?;
    }
    loop {
        let lanes: Vec<Rest> = lanes_headless(tx, id).await?.into_iter().map(Rest::all).collect();
        let ready = lanes_next(tx, subscription, &lanes).await?;
        if ready.is_empty() || lanes.len() < limits::SWEEP_ROWS_MAX {
            return Ok(());
        }
    }
}

/// Lanes in which rows wait without a head.
pub(super) async fn lanes_headless(tx: &Tx<'_>, id: SubscriptionId) -> Result<Vec<Lane>> {
    let most = limits::SWEEP_ROWS_MAX as i64;
    let rows = tx.query(sql!("queue/lanes/queue_lane_headless"), &[&id.0, &most], WHAT).await?;
    rows.iter().map(lane_read).collect::<Result<_, _>>().doing(WHAT)
}

/// What became of lanes that were looked at again.
pub(super) struct Mended {
    pub(super) ready: Vec<Ready>,
    /// Lanes from which another transaction is just taking the head away.
    pub(super) left: Vec<Lane>,
}

/// Looks again at lanes in which rows may wait without a head.
pub(super) async fn lanes_mend(tx: &Tx<'_>, subscription: &Subscription, lanes: Vec<Rest>) -> Result<Mended> {
    let (free, left) = lanes_take(tx, subscription.id, lanes).await?;
    let left = left.into_iter().map(|rest| rest.lane).collect();
    Ok(Mended { ready: lanes_next(tx, subscription, &free).await?, left })
}
