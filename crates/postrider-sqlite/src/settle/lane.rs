//! The queue of events that wait for each other.
//!
//! Of the rows that park a lane at most one is its head: due, handed out, held as a dead letter, or given
//! up and about to leave. All others wait without a due time. The column `waits` says which is which, and
//! heads and waiting rows have an index each, so that a lane of any length costs the same.

use std::collections::HashSet;

use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Shard, ShardSet, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::error::Doing;
use crate::ownership::shard::SHARDS;

/// Whether rows keep a lane parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneState {
    Parked,
    Empty,
}

/// Gives a lane a head if it has none. Doing so twice is the same as once.
pub(crate) fn lane_advance(
    tx: &Transaction<'_>,
    subscription: SubscriptionId,
    lane: &Lane,
    now: Timestamp,
) -> Result<LaneState> {
    if lane_head(tx, subscription, lane)?.is_some() {
        return Ok(LaneState::Parked);
    }
    let promoted = tx
        .prepare_cached(sql!("settle/lane_promote"))
        .and_then(|mut promote| {
            promote.execute((subscription.0, lane.key.as_str(), lane.late, now.as_micros()))
        })
        .doing("let the next event of a key go on")?;
    Ok(if promoted == 0 { LaneState::Empty } else { LaneState::Parked })
}

/// The event that the others of the lane wait for.
pub(crate) fn lane_head(
    conn: &Connection,
    subscription: SubscriptionId,
    lane: &Lane,
) -> Result<Option<EventId>> {
    conn.prepare_cached(sql!("settle/lane_head"))
        .and_then(|mut head| {
            head.query_row((subscription.0, lane.key.as_str(), lane.late), |row| row.get(0).map(EventId))
                .optional()
        })
        .doing("find the head of a key's queue")
}

/// All parked lanes of some shards, for their new owner. A lane that has lost its head gets one: no other call
/// would ever look at it again.
pub(crate) fn lanes_parked(
    tx: &Transaction<'_>,
    subscription: SubscriptionId,
    shards: ShardSet,
    now: Timestamp,
) -> Result<Vec<Lane>> {
    let is_ours = |lane: &Lane| shards.contains(Shard::of(Some(&lane.key), EventId(0), SHARDS));
    let heads: Vec<Lane> = tx
        .prepare_cached(sql!("settle/lane_heads"))
        .and_then(|mut heads| heads.query_map([subscription.0], lane_read)?.collect())
        .doing("read the parked keys")?;
    let mut lanes: HashSet<Lane> = heads.into_iter().filter(is_ours).collect();
    let mut last = Lane { key: Key::new(""), late: false };
    while let Some(lane) = lane_next_waiting(tx, subscription, &last)? {
        if is_ours(&lane) && lanes.insert(lane.clone()) {
            lane_advance(tx, subscription, &lane, now)?;
        }
        last = lane;
    }
    let mut lanes: Vec<Lane> = lanes.into_iter().collect();
    lanes.sort_unstable();
    Ok(lanes)
}

fn lane_next_waiting(conn: &Connection, subscription: SubscriptionId, last: &Lane) -> Result<Option<Lane>> {
    conn.prepare_cached(sql!("settle/lane_next_waiting"))
        .and_then(|mut next| {
            next.query_row((subscription.0, last.key.as_str(), last.late), lane_read).optional()
        })
        .doing("read the parked keys")
}

/// The lane in the columns key and late.
pub(crate) fn lane_read(row: &Row<'_>) -> rusqlite::Result<Lane> {
    Ok(Lane { key: Key::new(row.get_ref(0)?.as_str()?), late: row.get(1)? })
}
