//! What an owner writes back.

use postrider_core::settle::{AttemptRecord, Hold, Row, RowDue, Settle, Settled};
use postrider_core::store::AttemptReport;
use postrider_core::{DeliveryState, Result, Timestamp, limits};

use super::rules;
use super::state::{Progress, State, StoredAttempt, StoredRow, Time};

impl State {
    /// Checks the fence first; from there on nothing can fail, so it is written as a whole.
    pub(super) fn settle(&mut self, hold: &Hold, settle: &Settle, time: Time) -> Result<Settled> {
        self.held(hold)?;
        let member = self.members.get(&hold.member).map(|member| member.name.clone()).unwrap_or_default();
        let progress = self.held(hold)?;
        if let Some(mark) = settle.mark {
            for held in hold.shards.iter() {
                let position = &mut progress.shards[usize::from(held.shard.0)].position;
                *position = mark.max(*position);
            }
        }
        for row in &settle.rows {
            progress.write(row, time.now);
        }
        for id in &settle.done {
            rules::assert_may_finish(progress.rows.get(id));
            progress.rows.remove(id);
        }
        for attempt in &settle.attempts {
            progress.record(attempt, &member, time.now);
        }
        // Last, so that a row of this very settle can be the next head.
        let mut settled = Settled::default();
        for lane in &settle.freed {
            if !progress.promote(lane, time.now) {
                settled.unparked.push(lane.clone());
            }
        }
        Ok(settled)
    }
}

impl Progress {
    fn write(&mut self, row: &Row, now: Timestamp) {
        let old = self.rows.get(&row.event_id);
        rules::assert_may_replace(old, row);
        let due = match (row.state, row.due) {
            (DeliveryState::Pending, RowDue::At(at)) => Some(at),
            (DeliveryState::Pending, RowDue::After(delay)) => Some(now.after(delay)),
            _ => None,
        };
        let died_at =
            (row.state == DeliveryState::Dead).then(|| old.and_then(|old| old.died_at).unwrap_or(now));
        let stored = StoredRow {
            shard: row.shard,
            lane: row.lane.clone(),
            turn: row.turn,
            parks: row.parks,
            state: row.state,
            attempts: row.attempts,
            due,
            // What an operator did to the row outlives what the owner does to it.
            edited: old.and_then(|old| old.edited.clone()),
            died_at,
            discarded: false,
            round: old.map_or(0, |old| old.round),
        };
        self.rows.insert(row.event_id, stored);
    }

    pub(super) fn record(&mut self, attempt: &AttemptRecord, member: &str, now: Timestamp) {
        let round = self.rows.get(&attempt.event_id).map_or(0, |row| row.round);
        let report = AttemptReport {
            attempt: attempt.attempt,
            started_at: now.before(attempt.ended_ago).before(attempt.took),
            took: attempt.took,
            member: member.to_owned(),
            error: attempt.error.clone(),
        };
        let history = self.attempts.entry(attempt.event_id).or_default();
        // The same settle again.
        if history.iter().any(|old| (old.round, old.report.attempt) == (round, attempt.attempt)) {
            return;
        }
        history.push(StoredAttempt { round, report });
        if history.len() > limits::ATTEMPT_RECORDS_MAX as usize {
            history.remove(0);
        }
    }
}
