//! What becomes of events whose attempt has ended, or never began.

use std::time::Duration;

use postrider_core::queue::{Again, Count, Remnant, Token};
use postrider_core::retry::Verdict;
use postrider_core::settle::AttemptRecord;
use postrider_core::{EventId, Failure, Outcome};

use super::{HeldState, Item, Leases, NOT_TOUCHED, Tally};
use crate::dispatch::hand_out::Attempted;

/// The record of an attempt that was cancelled, and that has not failed.
const CANCELLED: &str = "cancelled";

/// What is needed to judge an outcome.
pub(crate) struct Judge<'a> {
    pub(crate) now: Duration,
    pub(crate) roll: &'a mut dyn FnMut() -> f64,
    /// How long a receiver that is down is left alone.
    pub(crate) wait: Duration,
}

impl Leases {
    /// Reports the outcomes of a hand-out, one per event in its order; a missing one counts as failed.
    pub(crate) fn finish(&mut self, out: usize, attempted: Vec<Attempted>, judge: &mut Judge<'_>) -> Tally {
        let mut tally = Tally::default();
        let mut attempted = attempted.into_iter();
        let mut untried = Vec::new();
        for item in self.end_out(out) {
            let attempted = attempted.next().unwrap_or_else(|| Attempted {
                outcome: Outcome::Retry(Failure::retry("the handler returned no outcome for this event")),
                took: Duration::ZERO,
            });
            let tried = attempted.outcome != Outcome::Untried;
            if tried {
                self.recently.note(1, attempted.took, judge.now);
            }
            if tried || self.is_cancelled(item) {
                self.finish_attempt(item, &attempted, judge, &mut tally);
            } else {
                untried.push(item);
            }
        }
        for item in untried.into_iter().rev() {
            self.make_ready(item);
        }
        tally
    }

    fn finish_attempt(
        &mut self,
        item: Item,
        attempted: &Attempted,
        judge: &mut Judge<'_>,
        tally: &mut Tally,
    ) {
        let Some(row) = self.rows.get_mut(&item.row) else { return };
        let attempt = row.finished + 1;
        let held = &mut row.events[item.index];
        let acked = held.is_acked();
        if let HeldState::Running { ticket, .. } = &held.state {
            held.result = ticket.take_result();
            held.progress = ticket.take_progress().map(|progress| ticket.noted(progress));
        }
        let again = |after, count| HeldState::Stays(Remnant::Again(Again { after, count }));
        let verdict = self.retry.judge(attempt, &attempted.outcome, (judge.roll)());
        self.failures.note(held.event.id, attempt, &attempted.outcome, verdict);
        let state = match verdict {
            Verdict::Done => {
                tally.delivered += 1;
                if acked { HeldState::Stays(Remnant::Acked) } else { HeldState::Done }
            }
            Verdict::Untried => again(judge.wait, Count::Nothing),
            Verdict::Snooze(after) => again(after, Count::Nothing),
            Verdict::Again(after) => {
                tally.failed += 1;
                again(after, Count::Failed)
            }
            Verdict::Dead => {
                tally.failed += 1;
                tally.dead += 1;
                HeldState::Stays(Remnant::Dead)
            }
        };
        let counts = matches!(
            state,
            HeldState::Stays(Remnant::Dead | Remnant::Again(Again { count: Count::Failed, .. }))
        );
        if let (true, Outcome::Retry(failure) | Outcome::Dead(failure)) = (counts, &attempted.outcome) {
            let (error, took) = (failure.record(), attempted.took);
            let event_id = held.event.id;
            row.record(
                judge.now,
                AttemptRecord { event_id, attempt, ended_ago: Duration::ZERO, took, error },
            );
        } else if held.unwanted {
            // Nothing failed; but people want to know when it was over.
            let (event_id, took) = (held.event.id, attempted.took);
            let error = CANCELLED.to_owned();
            row.record(
                judge.now,
                AttemptRecord { event_id, attempt, ended_ago: Duration::ZERO, took, error },
            );
        }
        self.finish_item(item, state);
    }

    /// Makes a dead letter of an event that was not handed out.
    pub(super) fn bury(&mut self, item: Item, error: String, now: Duration, tally: &mut Tally) {
        let Some(row) = self.rows.get_mut(&item.row) else { return };
        let event_id = row.events[item.index].event.id;
        let (attempt, took) = (row.finished + 1, Duration::ZERO);
        self.failures.note_buried(event_id, attempt, &error);
        row.record(now, AttemptRecord { event_id, attempt, ended_ago: took, took, error });
        tally.dead += 1;
        self.finish_item(item, HeldState::Stays(Remnant::Dead));
    }

    /// Gives an event its outcome; with the last one its row can be settled.
    pub(super) fn finish_item(&mut self, item: Item, state: HeldState) {
        let Some(row) = self.rows.get_mut(&item.row) else { return };
        row.events[item.index].state = state;
        row.left -= 1;
        if row.left == 0 {
            self.close(item.row);
        }
    }

    fn make_ready(&mut self, item: Item) {
        let Some(row) = self.rows.get_mut(&item.row) else { return };
        row.events[item.index].state = HeldState::Ready;
        let again = row.finished > 0;
        self.line(again).push_front(item);
    }

    fn is_cancelled(&self, item: Item) -> bool {
        let held = self.rows.get(&item.row).map(|row| &row.events[item.index].state);
        matches!(held, Some(HeldState::Running { ticket, .. }) if ticket.is_cancelled())
    }

    /// Takes a hand-out that is over.
    fn end_out(&mut self, out: usize) -> Vec<Item> {
        self.alone = self.alone.filter(|(alone, _)| *alone != out);
        self.running.remove(out).items
    }

    /// Ends a hand-out whose future was dropped: its events have not been touched, as far as anybody knows.
    pub(crate) fn abandon(&mut self, out: usize, now: Duration) {
        for item in self.end_out(out) {
            if let Some(row) = self.rows.get_mut(&item.row).filter(|row| row.events[item.index].unwanted) {
                let (event_id, attempt, took) =
                    (row.events[item.index].event.id, row.finished + 1, Duration::ZERO);
                let error = format!("{CANCELLED}: its handler did not end, and was dropped");
                row.record(now, AttemptRecord { event_id, attempt, ended_ago: took, took, error });
            }
            self.finish_item(item, HeldState::Stays(Remnant::Again(NOT_TOUCHED)));
        }
    }

    /// Gives back what has not been handed out, to be claimed again after this long.
    pub(crate) fn give_back(&mut self, after: Duration) {
        let alone = self.last_chance.take().map(|(row, _)| Item { row, index: 0 });
        let (ready, failed) = (std::mem::take(&mut self.ready), std::mem::take(&mut self.again));
        let items: Vec<Item> = ready.items.into_iter().chain(failed.items).chain(alone).collect();
        let again = Again { after, count: Count::Nothing };
        for item in items {
            if self.is_ready(item) {
                self.finish_item(item, HeldState::Stays(Remnant::Again(again)));
            }
        }
    }

    /// A claim may be lost soon: nothing more of it is handed out, its handlers are told to end, and what has not been
    /// handed out is given back, which is fenced if it comes too late. Returns the hand-outs that still run.
    pub(crate) fn doubt(&mut self, token: Token) -> Vec<usize> {
        let mut outs = Vec::new();
        for item in self.items_of(token) {
            // With its last event a row goes.
            let Some(row) = self.rows.get(&item.row) else { continue };
            match &row.events[item.index].state {
                HeldState::Ready => self.drop_ready(item),
                HeldState::Running { out, ticket } => {
                    ticket.cancel();
                    outs.push(*out);
                }
                HeldState::Done | HeldState::Stays(_) => {}
            }
        }
        outs.sort_unstable();
        outs.dedup();
        outs
    }

    /// A claim is lost: all of it is forgotten. Returns the hand-outs whose futures must be dropped; what
    /// they hold of other claims is handed out again.
    pub(crate) fn lose(&mut self, token: Token) -> Vec<usize> {
        let outs = self.doubt(token);
        let rows = self.claims.remove(&token).map(|claim| claim.rows).unwrap_or_default();
        for key in rows {
            self.remove(key);
        }
        // What it had to settle would be fenced.
        self.finished.retain(|finished| finished.row.token != token);
        for out in &outs {
            for item in self.end_out(*out).into_iter().rev() {
                if self.is_cancelled(item) {
                    self.finish_item(item, HeldState::Stays(Remnant::Again(NOT_TOUCHED)));
                } else {
                    self.make_ready(item);
                }
            }
        }
        outs
    }

    /// Events of a claim were cancelled. Returns the hand-outs of which nothing else is left.
    pub(crate) fn cancel(&mut self, token: Token, events: &[EventId]) -> Vec<usize> {
        let mut outs = Vec::new();
        for item in self.items_of(token) {
            let Some(row) = self.rows.get_mut(&item.row) else { continue };
            let held = &mut row.events[item.index];
            if !events.contains(&held.event.id) {
                continue;
            }
            match &held.state {
                // The store knows that it is not wanted, and drops it whatever it is told.
                HeldState::Ready => self.drop_ready(item),
                HeldState::Running { out, ticket } if !ticket.is_cancelled() => {
                    ticket.cancel();
                    outs.push(*out);
                    held.unwanted = true;
                }
                _ => {}
            }
        }
        outs.retain(|out| self.running[*out].items.iter().all(|item| self.is_cancelled(*item)));
        outs
    }

    fn drop_ready(&mut self, item: Item) {
        if self.last_chance.is_some_and(|(row, _)| row == item.row) {
            self.last_chance = None;
        } else {
            let again = self.is_again(item.row);
            self.line(again).count -= 1;
        }
        self.finish_item(item, HeldState::Stays(Remnant::Again(NOT_TOUCHED)));
    }

    fn items_of(&self, token: Token) -> Vec<Item> {
        let rows = self.claims.get(&token).into_iter().flat_map(|claim| &claim.rows);
        let items = |row: &u64| {
            let row = *row;
            (0..self.rows[&row].events.len()).map(move |index| Item { row, index })
        };
        rows.flat_map(items).collect()
    }
}
