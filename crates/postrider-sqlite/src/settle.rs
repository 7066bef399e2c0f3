//! Writing down what has been delivered and what has not.

pub(crate) mod due;
pub(crate) mod lane;
pub(crate) mod work;

use std::time::Duration;

use postrider_core::settle::{AttemptRecord, Hold, MemberId, Row, RowDue, Settle, Settled};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{DeliveryState, Result, Timestamp, limits};
use rusqlite::Transaction;

use crate::error::Doing;
use crate::settle::lane::{LaneState, lane_advance};

/// Applies `settle` under a fence that the caller has checked in this same transaction.
pub(crate) fn settle_apply(
    tx: &Transaction<'_>,
    hold: &Hold,
    settle: &Settle,
    now: Timestamp,
) -> Result<Settled> {
    write(tx, hold, settle, now).doing("settle")?;
    let mut settled = Settled::default();
    for lane in &settle.freed {
        if lane_advance(tx, hold.subscription.id, lane, now)? == LaneState::Empty {
            settled.unparked.push(lane.clone());
        }
    }
    Ok(settled)
}

fn write(tx: &Transaction<'_>, hold: &Hold, settle: &Settle, now: Timestamp) -> rusqlite::Result<()> {
    let subscription = hold.subscription.id.0;
    if let Some(mark) = settle.mark {
        tx.prepare_cached(sql!("settle/shard_advance"))?.execute((
            subscription,
            hold.set().0 as i64,
            mark.last_id.0,
        ))?;
    }
    if !settle.rows.is_empty() {
        let mut put = tx.prepare_cached(sql!("settle/delivery_put"))?;
        for row in &settle.rows {
            put.execute((
                subscription,
                row.event_id.0,
                row.shard.0,
                row.lane.as_ref().map(|lane| lane.key.as_str()),
                row.lane.as_ref().is_some_and(|lane| lane.late),
                row.turn,
                row.parks && row.lane.is_some(),
                row.state.as_str(),
                row.attempts,
                due_at(row, now).map(Timestamp::as_micros),
                (row.state == DeliveryState::Dead).then_some(now.as_micros()),
            ))?;
        }
    }
    if !settle.done.is_empty() {
        let mut done = tx.prepare_cached(sql!("settle/delivery_done"))?;
        for id in &settle.done {
            done.execute((subscription, id.0))?;
        }
    }
    let recorder = Recorder { subscription: hold.subscription.id, member: hold.member, now };
    for attempt in &settle.attempts {
        attempt_put(tx, &recorder, attempt)?;
    }
    Ok(())
}

/// When a row may be attempted: never for one that is handed out or dead. One that parks nothing stands in
/// no lane, so it has nothing to wait for.
fn due_at(row: &Row, now: Timestamp) -> Option<Timestamp> {
    if row.state != DeliveryState::Pending {
        return None;
    }
    match row.due {
        RowDue::At(at) => Some(at),
        RowDue::After(delay) => Some(now.after(delay)),
        RowDue::Waiting if row.parks && row.lane.is_some() => None,
        RowDue::Waiting => Some(now),
    }
}

/// Who records attempts, and when.
pub(crate) struct Recorder {
    pub(crate) subscription: SubscriptionId,
    pub(crate) member: MemberId,
    pub(crate) now: Timestamp,
}

/// Records a failed attempt; the oldest ones give way.
pub(crate) fn attempt_put(
    tx: &Transaction<'_>,
    recorder: &Recorder,
    record: &AttemptRecord,
) -> rusqlite::Result<()> {
    let (subscription, event) = (recorder.subscription.0, record.event_id.0);
    tx.prepare_cached(sql!("settle/attempt_put"))?.execute((
        subscription,
        event,
        record.attempt,
        recorder.now.before(record.ended_ago).before(record.took).as_micros(),
        micros(record.took),
        recorder.member.0,
        &record.error,
    ))?;
    if record.attempt > limits::ATTEMPT_RECORDS_MAX {
        let last_to_drop = record.attempt - limits::ATTEMPT_RECORDS_MAX;
        tx.prepare_cached(sql!("settle/attempt_trim"))?.execute((subscription, event, last_to_drop))?;
    }
    Ok(())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
