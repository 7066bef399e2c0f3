//! The queue of events that wait for each other.
//!
//! Of the rows that park a lane at most one is its head: due, handed out, held as a dead letter, or given up and
//! about to leave. All others wait without a due time. Heads and waiting rows have an index each, so that a lane
//! of any length costs the same.

use std::collections::HashSet;

use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Shard, ShardSet};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::server::session::Tx;
use crate::settle::position::SHARDS;

/// Gives each of the lanes a head if rows wait in it and it has none. Returns those in which none waits.
pub(crate) async fn lane_advance(tx: &Tx<'_>, id: SubscriptionId, lanes: &[Lane]) -> Result<Vec<Lane>> {
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let what = "let the next event of a key go on";
    let (keys, lates): (Vec<&str>, Vec<bool>) =
        lanes.iter().map(|lane| (lane.key.as_str(), lane.late)).unzip();
    tx.execute(sql!("settle/lane/lane_promote"), &[&id.0, &keys, &lates], what).await?;
    let empty = tx.query(sql!("settle/lane/lane_empty"), &[&id.0, &keys, &lates], what).await?;
    empty.iter().map(lane_read).collect::<Result<_, _>>().doing(what)
}

/// All parked lanes of some shards, for their new owner. A lane that has lost its head gets one,
/// because no other code would ever look at it again.
pub(crate) async fn lanes_parked(tx: &Tx<'_>, id: SubscriptionId, shards: ShardSet) -> Result<Vec<Lane>> {
    let is_ours = |lane: &Lane| shards.contains(Shard::of(Some(&lane.key), EventId(0), SHARDS));
    let what = "read the parked keys";
    let heads = tx.query(sql!("settle/lane/lane_heads"), &[&id.0], what).await?;
    let mut lanes: HashSet<Lane> = heads.iter().map(lane_read).collect::<Result<_, _>>().doing(what)?;
    lanes.retain(is_ours);
    let mut headless: Vec<Lane> = Vec::new();
    for row in tx.query(sql!("settle/lane/lane_waiting"), &[&id.0], what).await? {
        let lane = lane_read(&row).doing(what)?;
        if is_ours(&lane) && lanes.insert(lane.clone()) {
            headless.push(lane);
        }
    }
    lane_advance(tx, id, &headless).await?;
    let mut lanes: Vec<Lane> = lanes.into_iter().collect();
    lanes.sort_unstable();
    Ok(lanes)
}

/// The lane in the columns key and late.
pub(crate) fn lane_read(row: &Row) -> Result<Lane, tokio_postgres::Error> {
    Ok(Lane { key: Key::new(row.try_get::<_, &str>(0)?), late: row.try_get(1)? })
}
