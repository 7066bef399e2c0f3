//! Writing down what became of leased rows.
//!
//! A settle first takes each row out under its token, and then puts the rest of it in again. So it cannot
//! change a row that was not leased under that token.

use std::collections::BTreeSet;

use postrider_core::queue::{Again, Fate, QueueSettle, QueueSettled, Remnant, SettledRow};
use postrider_core::settle::MemberId;
use postrider_core::{EventId, OnDead, Order, Result, Shard, Subscription, Timestamp};
use rusqlite::Transaction;

use crate::error::Doing;
use crate::log::event::event_get;
use crate::ownership::shard::SHARDS;
use crate::queue::claim::{Claims, cancelled, forget, is_held};
use crate::queue::lane::queue_advance;
use crate::queue::progress::progress_put;
use crate::queue::row::{Queued, queued_take_leased};
use crate::queue::sweep::free;
use crate::settle::{Recorder, attempt_put};
use crate::subscription::subscription_same;

/// Writes what became of leased rows; those that were fenced are left out.
pub(crate) fn queue_settle(
    tx: &Transaction<'_>,
    subscription: &Subscription,
    member: MemberId,
    settle: &QueueSettle,
    now: Timestamp,
) -> Result<QueueSettled> {
    let settling = Settling { tx, subscription: subscription_same(tx, subscription)?, now };
    let id = subscription.id;
    let mut settled = QueueSettled::default();
    let (mut ours, mut tokens) = (BTreeSet::new(), BTreeSet::new());
    for row in &settle.rows {
        match queued_take_leased(tx, id, row.id, row.token)? {
            Some(found) => {
                ours.extend(found.events.iter().chain(row.fate.acked()));
                tokens.insert(row.token);
                settling.row(row, &found)?;
            }
            // Its handler has taken it out already. What is left of its claim is that it was here.
            None if matches!(row.fate, Fate::Acked(_)) && is_held(tx, row.token)? => {
                ours.extend(row.fate.acked());
                tokens.insert(row.token);
            }
            None => settled.fenced.push(row.id),
        }
    }
    let recorder = Recorder { subscription: id, member, now };
    for attempt in settle.attempts.iter().filter(|attempt| ours.contains(&attempt.event_id)) {
        attempt_put(tx, &recorder, attempt).doing("record an attempt")?;
    }
    for kept in settle.results.iter().filter(|kept| ours.contains(&kept.event_id)) {
        tx.prepare_cached(sql!("queue/settle/result_put"))
            .and_then(|mut put| put.execute((id.0, kept.event_id.0, &kept.result)))
            .doing("keep a result")?;
    }
    for noted in settle.progress.iter().filter(|noted| ours.contains(&noted.event_id)) {
        progress_put(tx, noted, now)?;
    }
    for token in tokens.into_iter().filter(|token| !settle.held.contains(token)) {
        forget(tx, id, Claims::One(token))?;
    }
    Ok(settled)
}

struct Settling<'a> {
    tx: &'a Transaction<'a>,
    subscription: Subscription,
    now: Timestamp,
}

impl Settling<'_> {
    /// Puts in what is left of a row that was taken out.
    fn row(&self, settled: &SettledRow, row: &Queued) -> Result<()> {
        // Whatever their fate, these go.
        let gone: BTreeSet<EventId> = cancelled(self.tx, settled.token)?.into_iter().collect();
        let is_left = |event: &EventId| !gone.contains(event);
        match &settled.fate {
            Fate::Done => {}
            Fate::Again(again) => {
                if let Some(left) = row.only(is_left) {
                    self.again(left, *again)?;
                }
            }
            Fate::Dead => {
                for event in row.events.iter().filter(is_left) {
                    self.bury(event, row)?;
                }
            }
            Fate::Acked(_) => free(self.tx, self.subscription.id, row, &gone)?,
            Fate::Split(remnants) => {
                // A seek may have taken events out of the block, which will be fed again.
                let ours = |event: &EventId| is_left(event) && row.events.contains(*event);
                for (event, remnant) in remnants.iter().filter(|(event, _)| ours(event)) {
                    self.remnant(row, *event, *remnant)?;
                }
            }
        }
        row.lane.as_ref().map_or(Ok(()), |lane| queue_advance(self.tx, self.subscription.id, lane))
    }

    fn remnant(&self, row: &Queued, event: EventId, remnant: Remnant) -> Result<()> {
        match remnant {
            Remnant::Again(again) => self.again(row.part(event), again),
            Remnant::Dead => self.bury(event, row),
            // It is leased as the block was.
            Remnant::Running => row.part(event).put(self.tx, self.subscription.id),
            // It was not committed.
            Remnant::Acked => free(self.tx, self.subscription.id, &row.part(event), &BTreeSet::new()),
        }
    }

    /// It was a head of its lane, and stays it; but where keys have no order no other row waits for its time with it.
    fn again(&self, row: Queued, again: Again) -> Result<()> {
        let parks = row.parks && (again.after.is_zero() || self.subscription.order == Order::Key);
        Queued { parks, ..row.again(again, self.now) }.put(self.tx, self.subscription.id)
    }

    /// Whether the others of its lane wait for it when it is dead.
    fn holds(&self, row: &Queued) -> bool {
        let Subscription { on_dead, order, .. } = &self.subscription;
        row.lane.is_some() && (*on_dead, *order) == (OnDead::Hold, Order::Key)
    }

    /// Makes an event a dead letter. Under `hold` it stays the head of its lane.
    fn bury(&self, event: EventId, row: &Queued) -> Result<()> {
        let found = event_get(self.tx, event)?;
        let shard = Shard::of(found.as_ref().and_then(|event| event.key.as_ref()), event, SHARDS);
        let turn = row.part(event).turn;
        self.tx
            .prepare_cached(sql!("queue/settle/dead_letter_put"))
            .and_then(|mut put| {
                put.execute((
                    self.subscription.id.0,
                    event.0,
                    shard.0,
                    row.lane.as_ref().map(|lane| lane.key.as_str()),
                    row.lane.as_ref().is_some_and(|lane| lane.late),
                    turn,
                    self.holds(row),
                    row.started.max(1),
                    row.edited_payload.as_deref(),
                    self.now.as_micros(),
                ))
            })
            .map(drop)
            .doing("write a dead letter")
    }
}
