//! How far the mark may move, and which rows go with it.

use std::time::Duration;

use postrider_core::settle::{AttemptRecord, Lane, Row, RowDue, Settle};
use postrider_core::{DeliveryState, Event, limits};

use super::{Entry, EntryState, Item, Lanes, Loaded, MAIN};

/// A hand-out of several lanes and more events than this is a batch.
const FEW_EVENTS_MAX: usize = 16;
/// How many times longer a batch may hold the mark.
const BATCH_PATIENCE: u32 = 10;
/// How many times shorter anything else may, once it keeps half of the span from being settled.
const CROWDED_IMPATIENCE: u32 = 20;

/// Whether a settle is worth its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    /// Only events that the filter passed over lie behind the mark: no hurry.
    Sometime,
    Soon,
}

impl Lanes {
    /// Everything that can be settled now. The result must be settled, or settled again until it is:
    /// this memory has moved on.
    ///
    /// An event that has been running for `slow_after`, or that holds back half of the span, does not hold
    /// the mark: it becomes a leased row and goes on running. A batch is given more time.
    pub(crate) fn compose(&mut self, now: Duration, slow_after: Duration) -> Settle {
        let mut settle = self.take_changes(now);
        while self.span.front().is_some_and(|front| self.passable(front, now, slow_after)) {
            self.pass(&mut settle, now);
        }
        settle
    }

    /// The last settle of a drain. Whatever still runs counts as not tried. The mark passes everything
    /// that has an outcome, so that a clean stop repeats nothing; what lies below that without an outcome
    /// becomes a row that is due at once.
    pub(crate) fn compose_last(&mut self, now: Duration) -> Settle {
        self.abandon(now);
        let mut settle = self.take_changes(now);
        let finished = |entry: &Entry| matches!(entry.state, EntryState::Done | EntryState::Failed(_));
        let last = self.span.iter().rposition(finished).map_or(0, |last| last + 1);
        for _ in 0..last {
            self.pass(&mut settle, now);
        }
        settle
    }

    /// Adds to a settle, composed while the hand-out of `ticket` runs, the ack of its only event. The hand-out
    /// was made in the order of the log, so that the mark stands right before that event.
    pub(crate) fn with_ack(&self, mut settle: Settle, ticket: usize) -> Settle {
        match self.running[ticket].parts[0].items[0] {
            Item::Entry(ordinal) => {
                assert_eq!(
                    ordinal, self.base,
                    "a transactional handler's event is the next that the mark passes"
                );
                settle.mark = self.span.front().map(|entry| entry.position);
            }
            Item::Row(id) => {
                settle.done.push(id);
                settle.freed.extend(self.loaded[&id].lane.clone());
            }
        }
        settle
    }

    /// Whether and how soon [`Lanes::compose`] would bring something worth a transaction.
    pub(crate) fn wanted(&self, now: Duration, slow_after: Duration) -> Wanted {
        let rows = self.span.front().is_some_and(|front| self.passable(front, now, slow_after));
        if rows || !self.changes.is_empty() || !self.records.is_empty() {
            return Wanted::Soon;
        }
        match self.mark {
            Some(_) if self.touched => Wanted::Soon,
            Some(_) => Wanted::Sometime,
            None => Wanted::Nothing,
        }
    }

    /// When the event that holds the mark back will count as slow.
    pub(crate) fn slow_at(&self, slow_after: Duration) -> Option<Duration> {
        match self.span.front()?.state {
            EntryState::Running(ticket) => {
                Some(self.running[ticket].since + self.patience(ticket, slow_after))
            }
            _ => None,
        }
    }

    fn passable(&self, entry: &Entry, now: Duration, slow_after: Duration) -> bool {
        match &entry.state {
            EntryState::Done | EntryState::Failed(_) | EntryState::Delayed => true,
            EntryState::Running(ticket) => {
                now.saturating_sub(self.running[*ticket].since) >= self.patience(*ticket, slow_after)
            }
            EntryState::Queued => !self.is_ready(entry),
        }
    }

    /// How long a hand-out may hold the mark. What passes it costs a row for each of its events and parks
    /// their keys, whose later events then cost rows as well: worth it for a single event that keeps
    /// thousands from being settled. A batch is waited for, unless that takes long: others have done half of
    /// the span by then, and wait no longer than it takes. (A sink whose first batches waited a second for
    /// their connections wrote 100,000 rows and more for 500,000 events, and was many times slower for it.)
    fn patience(&self, ticket: usize, slow_after: Duration) -> Duration {
        let parts = &self.running[ticket].parts;
        let is_batch =
            parts.len() > 1 && parts.iter().map(|part| part.items.len()).sum::<usize>() > FEW_EVENTS_MAX;
        let is_crowded = self.finished > limits::SPAN_EVENTS_MAX / 2;
        match (is_batch, is_crowded) {
            (false, true) => slow_after / CROWDED_IMPATIENCE,
            (false, false) => slow_after,
            (true, _) => slow_after * BATCH_PATIENCE,
        }
    }

    fn take_changes(&mut self, now: Duration) -> Settle {
        self.touched = false;
        self.unsettled = 0;
        let mut settle = std::mem::take(&mut self.changes);
        settle.mark = self.mark.take();
        settle.attempts.extend(self.records.drain(..).map(|(at, mut record)| {
            record.ended_ago = now.saturating_sub(at);
            record
        }));
        settle
    }

    /// Moves the mark over the first entry of the span, with the row that it leaves behind.
    fn pass(&mut self, settle: &mut Settle, now: Duration) {
        let Some(entry) = self.span.pop_front() else { return };
        let ordinal = self.base;
        self.base += 1;
        settle.mark = Some(entry.position);
        if matches!(entry.state, EntryState::Done | EntryState::Failed(_)) {
            self.finished -= 1;
        }
        let Some(event) = entry.event else { return };
        let row = match entry.state {
            EntryState::Done => return,
            EntryState::Running(ticket) => {
                let row = self.lease(ordinal, ticket, &event);
                let loaded =
                    Loaded { attempts: 0, turn: row.turn, parks: row.parks, lane: row.lane.clone(), event };
                self.loaded.insert(row.event_id, loaded);
                settle.rows.push(row);
                return;
            }
            EntryState::Failed(mut failed) => {
                let since = now.saturating_sub(failed.at);
                if let RowDue::After(delay) = failed.row.due {
                    failed.row.due = RowDue::After(delay.saturating_sub(since));
                }
                self.failure_written(ordinal, &failed.row);
                settle
                    .attempts
                    .extend(failed.record.map(|record| AttemptRecord { ended_ago: since, ..record }));
                failed.row
            }
            EntryState::Delayed => self.delayed_row(&event),
            EntryState::Queued => self.waiting_row(ordinal, &event),
        };
        self.bytes -= event.bytes();
        settle.rows.push(row);
    }

    /// The row of an event that runs on below the mark. Its ticket now stands for the row. Only the first
    /// event of a hand-out is the head of its lane; those behind it wait.
    fn lease(&mut self, ordinal: u64, ticket: usize, event: &Event) -> Row {
        let part =
            self.running[ticket].parts.iter_mut().find(|part| part.items.contains(&Item::Entry(ordinal)));
        let part = part.expect("a running entry is part of its hand-out");
        let place = part.items.iter().position(|item| *item == Item::Entry(ordinal)).expect("found above");
        part.items[place] = Item::Row(event.id);
        let lane = part.lane;
        if let Some(index) = lane {
            self.park(index, MAIN);
        }
        let state = if place == 0 || lane.is_none() { DeliveryState::Leased } else { DeliveryState::Pending };
        Row { state, parks: lane.is_some(), ..self.plain_row(event) }
    }

    /// A row of the event's own lane that waits.
    fn plain_row(&self, event: &Event) -> Row {
        Row {
            event_id: event.id,
            shard: self.shard_of(event),
            lane: self.key_of(event).map(|key| Lane { key: key.clone(), late: false }),
            turn: event.id.0,
            parks: false,
            state: DeliveryState::Pending,
            attempts: 0,
            due: RowDue::Waiting,
        }
    }

    fn delayed_row(&self, event: &Event) -> Row {
        let due_at = event.due_at.expect("only delayed events are in this state");
        let row = self.plain_row(event);
        let lane = row.lane.map(|lane| Lane { late: true, ..lane });
        Row { lane, turn: due_at.as_micros(), due: RowDue::At(due_at), ..row }
    }

    /// The row of an event that has not been handed out: it waits behind the head of its lane, or is due
    /// at once as the head if there is none (which happens at the end of a drain only).
    fn waiting_row(&mut self, ordinal: u64, event: &Event) -> Row {
        let row = self.plain_row(event);
        let Some(lane) = &row.lane else { return Row { due: RowDue::After(Duration::ZERO), ..row } };
        let index = self.by_key[&lane.key];
        let track = &mut self.slots[index].tracks[MAIN];
        let first = track.tail.pop_front();
        debug_assert_eq!(first, Some(ordinal), "a tail holds its entries in the order of the log");
        let due = if track.parked { RowDue::Waiting } else { RowDue::After(Duration::ZERO) };
        self.park(index, MAIN);
        Row { parks: true, due, ..row }
    }

    fn failure_written(&mut self, ordinal: u64, row: &Row) {
        let Some(index) = row.lane.as_ref().and_then(|lane| self.by_key.get(&lane.key)) else { return };
        let track = &mut self.slots[*index].tracks[MAIN];
        if track.failed == Some(ordinal) {
            track.failed = None;
        }
    }

    /// Ends all hand-outs as not tried.
    fn abandon(&mut self, now: Duration) {
        let tickets: Vec<usize> = self.running.iter().map(|(ticket, _)| ticket).collect();
        for ticket in tickets {
            let events = self.running[ticket].parts.iter().map(|part| part.items.len()).sum();
            let untried =
                super::Attempted { outcome: postrider_core::Outcome::Untried, took: Duration::ZERO };
            self.finish(ticket, vec![untried; events], now, &mut || 0.0);
        }
    }
}
