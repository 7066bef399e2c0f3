//! What is settled next.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::queue::{EventProgress, EventResult, Fate, QueueSettle, Remnant, SettledRow, Token};
use postrider_core::settle::AttemptRecord;

use super::{HeldRow, HeldState, Item, Leases, NOT_TOUCHED, RowKey};

/// A row whose fate is known, with what goes along.
#[derive(Debug)]
pub(super) struct FinishedRow {
    pub(super) row: SettledRow,
    attempts: Vec<(Duration, AttemptRecord)>,
    results: Vec<EventResult>,
    progress: Vec<EventProgress>,
}

impl HeldRow {
    /// Keeps the record of a failed attempt until the row is settled.
    pub(super) fn record(&mut self, now: Duration, record: AttemptRecord) {
        self.attempts.push((now, record));
    }

    /// Everything that is to be written of it.
    fn into_finished(self, fate: Fate) -> FinishedRow {
        let Self { id, token, events, attempts, .. } = self;
        let (mut results, mut progress) = (Vec::new(), Vec::new());
        for held in events {
            let event_id = held.event.id;
            results.extend(held.result.map(|result| EventResult { event_id, result }));
            progress.extend(held.progress);
        }
        FinishedRow { row: SettledRow { id, token, fate }, attempts, results, progress }
    }

    fn fate(&self) -> Fate {
        let stays = self.events.iter().filter_map(|held| match &held.state {
            HeldState::Stays(remnant) => Some((held.event.id, *remnant)),
            _ => None,
        });
        let stays: Vec<_> = stays.collect();
        let acked = stays.iter().filter(|(_, remnant)| *remnant == Remnant::Acked).count();
        match stays.first() {
            None => Fate::Done,
            Some(_) if acked == self.events.len() => {
                Fate::Acked(stays.into_iter().map(|(id, _)| id).collect())
            }
            Some(_) if self.is_block => Fate::Split(stays),
            Some((_, Remnant::Again(again))) => Fate::Again(*again),
            Some((_, Remnant::Dead)) => Fate::Dead,
            Some((_, Remnant::Running | Remnant::Acked)) => {
                unreachable!("it has an outcome, and is the only one")
            }
        }
    }
}

impl Leases {
    /// Moves a row whose events all have an outcome to what is settled next.
    pub(super) fn close(&mut self, key: RowKey) {
        let Some(row) = self.remove(key) else { return };
        let fate = row.fate();
        self.finished.push(row.into_finished(fate));
    }

    /// How many rows [`Leases::compose`] would bring.
    pub(crate) fn unsettled(&self, now: Duration, slow_after: Duration) -> usize {
        self.finished.len() + usize::from(self.slow_at(slow_after).is_some_and(|at| now >= at))
    }

    /// When the oldest block with events that have no outcome will count as slow.
    pub(crate) fn slow_at(&self, slow_after: Duration) -> Option<Duration> {
        let unfinished = |(_, key): &&(Duration, RowKey)| self.rows.contains_key(key);
        self.blocks.iter().find(unfinished).map(|(since, _)| *since + slow_after)
    }

    /// Everything that can be settled now. The result must be settled, or settled again until it is: this
    /// memory has moved on. A block that was claimed longer than `slow_after` ago does not wait for the rest
    /// of its events.
    pub(crate) fn compose(&mut self, now: Duration, slow_after: Duration) -> QueueSettle {
        while let Some((since, key)) = self.blocks.front().copied() {
            let unfinished = self.rows.contains_key(&key);
            if unfinished && now < since + slow_after {
                break;
            }
            self.blocks.pop_front();
            if unfinished {
                self.split(key);
            }
        }
        let mut settle = QueueSettle::default();
        let tokens: BTreeSet<Token> = self.finished.iter().map(|finished| finished.row.token).collect();
        let has_more = |token: &Token| self.claims.get(token).is_some_and(|claim| !claim.rows.is_empty());
        settle.held = tokens.into_iter().filter(has_more).collect();
        for finished in self.finished.drain(..) {
            settle.rows.push(finished.row);
            settle.results.extend(finished.results);
            settle.progress.extend(finished.progress);
            let ago = |(at, record)| AttemptRecord { ended_ago: now.saturating_sub(at), ..record };
            settle.attempts.extend(finished.attempts.into_iter().map(ago));
        }
        settle
    }

    /// Settles a block in parts: what runs goes on as a row of its own, what has not begun is given back.
    fn split(&mut self, key: RowKey) {
        let Some(mut row) = self.remove(key) else { return };
        let mut remnants = Vec::new();
        for (index, mut held) in std::mem::take(&mut row.events).into_iter().enumerate() {
            let id = held.event.id;
            match &held.state {
                HeldState::Done => row.events.push(held),
                HeldState::Stays(remnant) => {
                    remnants.push((id, *remnant));
                    row.events.push(held);
                }
                HeldState::Ready => {
                    self.line(row.finished > 0).count -= 1;
                    held.state = HeldState::Stays(Remnant::Again(NOT_TOUCHED));
                    remnants.push((id, Remnant::Again(NOT_TOUCHED)));
                    row.events.push(held);
                }
                HeldState::Running { out, .. } => {
                    let out = *out;
                    remnants.push((id, Remnant::Running));
                    let part = HeldRow {
                        id,
                        token: row.token,
                        is_block: false,
                        finished: row.finished,
                        events: vec![held],
                        left: 1,
                        attempts: Vec::new(),
                    };
                    let part = self.insert(part);
                    self.move_item(out, Item { row: key, index }, Item { row: part, index: 0 });
                }
            }
        }
        let fate = if remnants.is_empty() { Fate::Done } else { Fate::Split(remnants) };
        self.finished.push(row.into_finished(fate));
    }

    fn move_item(&mut self, out: usize, from: Item, to: Item) {
        let items = &mut self.running[out].items;
        let item = items.iter_mut().find(|item| **item == from);
        *item.expect("a running event is part of its hand-out") = to;
    }

    /// Takes note of what was settled. Returns the claims of which nothing is left.
    pub(crate) fn settled(&mut self, settle: &QueueSettle) -> Vec<Token> {
        let mut over = Vec::new();
        for row in &settle.rows {
            let Some(claim) = self.claims.get_mut(&row.token) else { continue };
            let parts = match &row.fate {
                Fate::Split(remnants) => {
                    remnants.iter().filter(|(_, remnant)| *remnant == Remnant::Running).count()
                }
                _ => 0,
            };
            claim.unsettled = (claim.unsettled + parts).saturating_sub(1);
            if claim.unsettled == 0 {
                self.claims.remove(&row.token);
                over.push(row.token);
            }
        }
        over
    }
}
