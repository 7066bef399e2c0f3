//! What becomes of events whose attempt has ended.

use std::time::Duration;

use postrider_core::retry::Verdict;
use postrider_core::settle::{AttemptRecord, Lane, Row, RowDue};
use postrider_core::{DeliveryState, Event, EventId, Failure, Key, OnDead, Outcome};

use super::{Attempted, Class, EntryState, FailedEntry, Item, Lanes, MAIN, Part, Tally};

/// The part of a lane's hand-out that is being worked through.
struct Progress {
    lane: Option<usize>,
    late: usize,
    /// Whether an event of the part has stayed behind, so that later ones of its lane must not count.
    blocked: bool,
    /// Whether the one that stayed behind has failed, so that its track is parked.
    parked: bool,
    /// Whether rows have left the lane.
    freed: bool,
    untried: Vec<Item>,
}

/// How an event stays behind.
struct Failed {
    verdict: Verdict,
    /// Attempts that count by now.
    attempts: u32,
    record: Option<AttemptRecord>,
    now: Duration,
}

impl Lanes {
    /// Reports the outcomes of a hand-out, one per event in its order; a missing one counts as failed.
    pub(crate) fn finish(
        &mut self,
        ticket: usize,
        attempted: Vec<Attempted>,
        now: Duration,
        roll: &mut dyn FnMut() -> f64,
    ) -> Tally {
        let mut tally = Tally::default();
        let mut attempted = attempted.into_iter();
        let mut untried = Vec::new();
        for part in self.running.remove(ticket).parts {
            untried.extend(self.finish_part(part, &mut attempted, now, roll, &mut tally));
        }
        // Each in front of those that came after it: during a long outage the oldest events are not to come last.
        for item in untried.into_iter().rev() {
            self.line_up_again(item);
        }
        self.touched |= tally != Tally::default();
        self.shorten();
        tally
    }

    /// Gives back what was not tried and is in no lane.
    fn finish_part(
        &mut self,
        part: Part,
        attempted: &mut dyn Iterator<Item = Attempted>,
        now: Duration,
        roll: &mut dyn FnMut() -> f64,
        tally: &mut Tally,
    ) -> Vec<Item> {
        let late = usize::from(part.late);
        let mut progress = Progress {
            lane: part.lane,
            late,
            blocked: false,
            parked: false,
            freed: false,
            untried: Vec::new(),
        };
        for item in part.items {
            let Attempted { outcome, took } = attempted.next().unwrap_or_else(|| Attempted {
                outcome: Outcome::Retry(Failure::retry("the handler returned no outcome for this event")),
                took: Duration::ZERO,
            });
            let attempt = self.attempt_of(item);
            let verdict = match self.rules.retry.judge(attempt, &outcome, roll()) {
                // A receiver that fails two events of a key in one batch has broken its contract; the
                // second one is taken as not tried, since a lane has one head only.
                Verdict::Again(_) | Verdict::Snooze(_) | Verdict::Dead if progress.blocked => {
                    Verdict::Untried
                }
                verdict => verdict,
            };
            match verdict {
                Verdict::Done => {
                    tally.delivered += 1;
                    self.deliver(item, &mut progress);
                }
                Verdict::Untried => {
                    progress.blocked |= part.lane.is_some();
                    progress.untried.push(item);
                }
                Verdict::Again(_) | Verdict::Dead => {
                    tally.failed += 1;
                    tally.dead += u64::from(verdict == Verdict::Dead);
                    self.failures.note(self.event_of(item).id, attempt, &outcome, verdict);
                    let record = self.record(item, attempt, took, &outcome);
                    self.fail(
                        item,
                        Failed { verdict, attempts: attempt, record: Some(record), now },
                        &mut progress,
                    );
                }
                Verdict::Snooze(_) => {
                    self.touched = true;
                    let snoozed = Failed { verdict, attempts: attempt - 1, record: None, now };
                    self.fail(item, snoozed, &mut progress);
                }
            }
        }
        self.leave(progress)
    }

    fn attempt_of(&self, item: Item) -> u32 {
        match item {
            Item::Entry(_) => 1,
            Item::Row(id) => self.loaded[&id].attempts + 1,
        }
    }

    fn event_of(&self, item: Item) -> &Event {
        match item {
            Item::Entry(ordinal) => {
                self.span[(ordinal - self.base) as usize].event.as_ref().expect("not done yet")
            }
            Item::Row(id) => &self.loaded[&id].event,
        }
    }

    fn record(&self, item: Item, attempt: u32, took: Duration, outcome: &Outcome) -> AttemptRecord {
        let error = match outcome {
            Outcome::Retry(failure) | Outcome::Dead(failure) => failure.record(),
            Outcome::Ack | Outcome::Untried => String::new(),
        };
        AttemptRecord { event_id: self.event_of(item).id, attempt, ended_ago: Duration::ZERO, took, error }
    }

    fn deliver(&mut self, item: Item, progress: &mut Progress) {
        match item {
            Item::Entry(ordinal) => {
                let entry = self.entry(ordinal);
                entry.state = EntryState::Done;
                // Passing it will need no more than its position.
                let freed = entry.event.take().map_or(0, |event| event.bytes());
                self.finished += 1;
                self.bytes -= freed;
            }
            Item::Row(id) => {
                self.forget(id);
                self.changes.done.push(id);
                progress.freed = true;
            }
        }
    }

    fn fail(&mut self, item: Item, failed: Failed, progress: &mut Progress) {
        let Failed { verdict, attempts, record, now } = failed;
        let row = self.failed_row(item, verdict, attempts, progress);
        // A dead letter that no event waits for leaves its lane; any other event that fails is its head.
        let stays = row.parks;
        progress.blocked |= stays;
        progress.parked |= stays;
        match item {
            Item::Entry(ordinal) => {
                self.finished += 1;
                self.entry(ordinal).state =
                    EntryState::Failed(Box::new(FailedEntry { row, record, at: now }));
                if let (true, Some(lane)) = (stays, progress.lane) {
                    self.slots[lane].tracks[MAIN].failed = Some(ordinal);
                }
            }
            Item::Row(id) => {
                self.forget(id);
                self.changes.rows.push(row);
                self.records.extend(record.map(|record| (now, record)));
                progress.freed |= !stays;
            }
        }
    }

    fn failed_row(&self, item: Item, verdict: Verdict, attempts: u32, progress: &Progress) -> Row {
        let event = self.event_of(item);
        let lane = progress.lane.map(|index| lane_name(&self.slots[index].key, progress.late));
        let ordered = lane.is_some();
        let turn = match item {
            Item::Entry(_) => event.id.0,
            Item::Row(id) => self.loaded[&id].turn,
        };
        let (state, parks, due) = match verdict {
            Verdict::Again(delay) | Verdict::Snooze(delay) => {
                (DeliveryState::Pending, ordered, RowDue::After(delay))
            }
            _ => (DeliveryState::Dead, ordered && self.rules.on_dead == OnDead::Hold, RowDue::Waiting),
        };
        Row { event_id: event.id, shard: self.shard_of(event), lane, turn, parks, state, attempts, due }
    }

    /// Parks a track behind an event that has just failed. What was about to be handed out stays in the
    /// store: rows that wait there already are forgotten, rows that were to enter the lane now wait too.
    fn park_behind_failure(&mut self, lane: usize, late: usize) {
        #[cfg(feature = "sabotage")]
        if self.rules.forget_to_park {
            return;
        }
        self.park(lane, late);
        let run: Vec<EventId> = self.slots[lane].tracks[late].run.drain(..).collect();
        for id in run {
            let Some(row) = self.forget(id) else { continue };
            if !row.parks {
                let shard = self.shard_of(&row.event);
                self.changes.rows.push(Row {
                    event_id: id,
                    shard,
                    lane: row.lane,
                    turn: row.turn,
                    parks: true,
                    state: DeliveryState::Pending,
                    attempts: row.attempts,
                    due: RowDue::Waiting,
                });
            }
        }
    }

    /// Ends a part: what was not tried goes back to the front of its lane, which may go on, or is given back.
    fn leave(&mut self, progress: Progress) -> Vec<Item> {
        let Progress { lane, late, parked, freed, untried, .. } = progress;
        let Some(index) = lane else { return untried };
        if freed {
            let name = lane_name(&self.slots[index].key, late);
            self.changes.freed.push(name);
        }
        for item in untried.into_iter().rev() {
            match item {
                Item::Entry(ordinal) => {
                    self.entry(ordinal).state = EntryState::Queued;
                    self.slots[index].tracks[MAIN].tail.push_front(ordinal);
                }
                Item::Row(id) => self.slots[index].tracks[late].run.push_front(id),
            }
        }
        if parked {
            self.park_behind_failure(index, late);
        }
        self.slots[index].running = false;
        self.refresh(index);
        Vec::new()
    }

    fn line_up_again(&mut self, item: Item) {
        match item {
            Item::Entry(ordinal) => {
                self.entry(ordinal).state = EntryState::Queued;
                self.ready.push_front(super::Ready::Entry(ordinal));
            }
            Item::Row(id) => {
                let has_failed = self.loaded.get(&id).is_some_and(|row| row.attempts > 0);
                let class = if has_failed { Class::Again } else { Class::Fresh };
                self.line(class).push_front(super::Ready::Row(id));
            }
        }
    }
}

fn lane_name(key: &Key, late: usize) -> Lane {
    Lane { key: key.clone(), late: late != MAIN }
}
