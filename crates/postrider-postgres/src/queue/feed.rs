//! From the log into the queue.

use std::collections::{BTreeMap, HashSet};

use postrider_core::log::Window;
use postrider_core::queue::{Fed, Feed, NewRow};
use postrider_core::settle::{Hold, Lane};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Fair, Result};

use super::hints::{Hints, Ready};
use super::lanes::{lanes_busy, lanes_take};
use super::rows::spans_text;
use crate::error::Doing;
use crate::position::position_put;
use crate::session::Tx;
use crate::values::At;

const WHAT: &str = "feed a queue";

/// What was fed so far and is not done.
pub(super) async fn fed(tx: &Tx<'_>, hold: &Hold) -> Result<Fed> {
    let what = "look at a queue";
    let id = hold.subscription.id.0;
    let row = tx.query_one(sql!("queued_newest"), &[&id], what).await?;
    let newest = row.try_get(0).doing(what)?;
    let mut fed = Fed { front: front(tx, hold.subscription.id).await?, tenants: Vec::new(), newest };
    if hold.subscription.tuning.queue.fair != Fair::Nobody {
        let rows = tx.query(sql!("queued_tenants"), &[&id], what).await?;
        let read = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
        fed.tenants = rows.iter().map(read).collect::<Result<_, _>>().doing(what)?;
    }
    Ok(fed)
}

/// Where the queue stands.
pub(super) async fn front(tx: &Tx<'_>, id: SubscriptionId) -> Result<Option<i64>> {
    tx.query_one(sql!("queued_front"), &[&id.0], WHAT).await?.try_get(0).doing(WHAT)
}

/// Moves the position and writes the rows, under a fence that the caller has checked in this same transaction. Returns
/// lanes of which it is not known whether somebody is in them: their rows wait until they are looked at again.
pub(super) async fn feed_apply(
    tx: &Tx<'_>,
    hold: &Hold,
    feed: &Feed,
    mark: Option<(Window, EventId)>,
    hints: &Hints,
) -> Result<Vec<Lane>> {
    let id = hold.subscription.id;
    if let Some((window, last_id)) = mark {
        position_put(tx, id, hold.set(), &window, last_id).await?;
    }
    if feed.rows.is_empty() {
        return Ok(Vec::new());
    }
    let ranks = hints.new_ranks(id, feed.rows.iter().map(rank));
    if !ranks.is_empty() {
        tx.execute(sql!("queue_front_put"), &[&id.0, &ranks], WHAT).await?;
    }
    let entering = |row: &&NewRow| row.due_at.is_none();
    let lanes: HashSet<Lane> = feed.rows.iter().filter(entering).filter_map(|row| row.lane.clone()).collect();
    let (free, unsure) = lanes_take(tx, id, lanes.into_iter().collect()).await?;
    let busy = lanes_busy(tx, id, &free).await?;
    let mut closed: HashSet<Lane> = busy.into_iter().chain(unsure.iter().cloned()).collect();
    // The first row of a lane is its head, unless somebody is there.
    let waits =
        |row: &NewRow| row.due_at.is_none() && row.lane.clone().is_some_and(|lane| !closed.insert(lane));
    let waits: Vec<bool> = feed.rows.iter().map(waits).collect();
    rows_put(tx, id, &feed.rows, &waits).await?;
    Ok(unsure)
}

/// The first of each rank, for those who claim in this process.
pub(super) fn ready(rows: &[NewRow]) -> Vec<Ready> {
    let mut firsts: BTreeMap<i16, i64> = BTreeMap::new();
    for row in rows {
        let first = firsts.entry(rank(row)).or_insert(row.virtual_time);
        *first = row.virtual_time.min(*first);
    }
    firsts.into_iter().collect()
}

/// The lower, the more urgent.
fn rank(row: &NewRow) -> i16 {
    -i16::from(row.priority.level())
}

async fn rows_put(tx: &Tx<'_>, id: SubscriptionId, rows: &[NewRow], waits: &[bool]) -> Result<()> {
    let ids = |of: fn(&NewRow) -> EventId| -> Vec<i64> { rows.iter().map(|row| of(row).0).collect() };
    let (firsts, lasts) = (ids(|row| row.events.first()), ids(|row| row.events.last()));
    let times: Vec<i64> = rows.iter().map(|row| row.virtual_time).collect();
    let turns: Vec<i64> = rows.iter().map(|row| row.turn).collect();
    let due: Vec<Option<At>> = rows.iter().map(|row| row.due_at.map(At)).collect();
    let tenants: Vec<Option<i64>> = rows.iter().map(|row| row.tenant).collect();
    let bytes: Vec<i32> = rows.iter().map(|row| row.bytes.min(i32::MAX as u32) as i32).collect();
    let events: Vec<i16> = rows.iter().map(|row| row.events.count() as i16).collect();
    let ranks: Vec<i16> = rows.iter().map(rank).collect();
    let lates: Vec<bool> = rows.iter().map(|row| row.lane.as_ref().is_some_and(|lane| lane.late)).collect();
    let keys: Vec<Option<&str>> =
        rows.iter().map(|row| row.lane.as_ref().map(|lane| lane.key.as_str())).collect();
    let spans: Vec<Option<String>> = rows.iter().map(|row| spans_text(&row.events)).collect();
    tx.execute(
        sql!("queued_feed"),
        &[
            &id.0, &firsts, &lasts, &times, &turns, &due, &tenants, &bytes, &events, &ranks, &lates, &waits,
            &keys, &spans,
        ],
        WHAT,
    )
    .await
    .map(drop)
}
