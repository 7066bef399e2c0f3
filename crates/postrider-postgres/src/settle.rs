//! Writing down what has been delivered and what has not.

pub(crate) mod attempt;
pub(crate) mod due;
pub(crate) mod lane;
pub(crate) mod position;
pub(crate) mod position_swap;
pub(crate) mod work;

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::log::ShardPosition;
use postrider_core::settle::{AttemptRecord, Hold, MemberId, Row, RowDue, Settle, Settled};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Result, limits};

use crate::server::session::Tx;
use crate::server::values::{At, For};
use crate::settle::lane::lane_advance;
use crate::settle::position::position_put;

const WHAT: &str = "settle";

/// Applies `settle` under a fence that the caller has checked in this same transaction. `reached` is what the settle's
/// mark means; nothing if it has not moved.
pub(crate) async fn settle_apply(
    tx: &Tx<'_>,
    hold: &Hold,
    settle: &Settle,
    reached: &[ShardPosition],
) -> Result<Settled> {
    let id = hold.subscription.id;
    for place in reached {
        position_put(tx, id, place).await?;
    }
    if !settle.rows.is_empty() {
        rows_put(tx, hold, &settle.rows).await?;
    }
    if !settle.done.is_empty() {
        let done: Vec<i64> = settle.done.iter().map(|event| event.0).collect();
        tx.execute(sql!("settle/delivery_done"), &[&id.0, &done], WHAT).await?;
    }
    if !settle.attempts.is_empty() {
        attempts_put(tx, id, hold.member, &settle.attempts).await?;
    }
    Ok(Settled { unparked: lane_advance(tx, id, &settle.freed).await? })
}

/// Of several rows of one event the last one counts: a statement can write each only once.
fn last_of_each(rows: &[Row]) -> Vec<&Row> {
    let newest: HashMap<EventId, usize> =
        rows.iter().enumerate().map(|(index, row)| (row.event_id, index)).collect();
    let is_newest = |(index, row): &(usize, &Row)| newest[&row.event_id] == *index;
    rows.iter().enumerate().filter(is_newest).map(|(_, row)| row).collect()
}

async fn rows_put(tx: &Tx<'_>, hold: &Hold, rows: &[Row]) -> Result<()> {
    let rows = last_of_each(rows);
    let lane = |row: &Row| row.lane.clone();
    let events: Vec<i64> = rows.iter().map(|row| row.event_id.0).collect();
    let shards: Vec<i16> = rows.iter().map(|row| row.shard.0 as i16).collect();
    let keys: Vec<Option<&str>> =
        rows.iter().map(|row| row.lane.as_ref().map(|lane| lane.key.as_str())).collect();
    let lates: Vec<bool> = rows.iter().map(|row| lane(row).is_some_and(|lane| lane.late)).collect();
    let turns: Vec<i64> = rows.iter().map(|row| row.turn).collect();
    let parks: Vec<bool> = rows.iter().map(|row| row.parks && row.lane.is_some()).collect();
    let states: Vec<&str> = rows.iter().map(|row| row.state.as_str()).collect();
    let attempts: Vec<i32> = rows.iter().map(|row| row.attempts as i32).collect();
    let due_at: Vec<Option<At>> = rows.iter().map(|row| due_at(row)).collect();
    let due_in: Vec<Option<For>> = rows.iter().map(|row| due_in(row)).collect();
    let id = hold.subscription.id.0;
    tx.execute(
        sql!("settle/delivery_put"),
        &[&id, &events, &shards, &keys, &lates, &turns, &parks, &states, &attempts, &due_at, &due_in],
        WHAT,
    )
    .await
    .map(drop)
}

fn due_at(row: &Row) -> Option<At> {
    match row.due {
        RowDue::At(at) => Some(At(at)),
        RowDue::After(_) | RowDue::Waiting => None,
    }
}

fn due_in(row: &Row) -> Option<For> {
    match row.due {
        RowDue::After(delay) => Some(For(delay)),
        RowDue::At(_) | RowDue::Waiting => None,
    }
}

/// Records failed attempts.
pub(crate) async fn attempts_put(
    tx: &Tx<'_>,
    id: SubscriptionId,
    member: MemberId,
    records: &[AttemptRecord],
) -> Result<()> {
    // A repeat of one attempt within a settle replaces what it repeats.
    let newest: HashMap<(EventId, u32), &AttemptRecord> =
        records.iter().map(|record| ((record.event_id, record.attempt), record)).collect();
    let records: Vec<&AttemptRecord> = newest.into_values().collect();
    let id = id.0;
    let events: Vec<i64> = records.iter().map(|record| record.event_id.0).collect();
    let numbers: Vec<i32> = records.iter().map(|record| record.attempt as i32).collect();
    let lengths = |of: fn(&AttemptRecord) -> Duration| -> Vec<For> {
        records.iter().map(|record| For(of(record))).collect()
    };
    let (ended_ago, took) = (lengths(|record| record.ended_ago), lengths(|record| record.took));
    // Text of PostgreSQL holds no NUL.
    let errors: Vec<String> = records.iter().map(|record| record.error.replace('\0', "\u{fffd}")).collect();
    tx.execute(
        sql!("settle/attempt_put"),
        &[&id, &member.0, &events, &numbers, &ended_ago, &took, &errors],
        WHAT,
    )
    .await?;
    let kept = limits::ATTEMPT_RECORDS_MAX;
    let (events, lasts): (Vec<i64>, Vec<i32>) = records
        .iter()
        .filter(|record| record.attempt > kept)
        .map(|record| (record.event_id.0, (record.attempt - kept) as i32))
        .unzip();
    if !events.is_empty() {
        tx.execute(sql!("settle/attempt_trim"), &[&id, &events, &lasts], WHAT).await?;
    }
    Ok(())
}
