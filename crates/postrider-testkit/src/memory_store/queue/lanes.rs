//! Lanes of a queue: which rows of a key are its heads, and who is next.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::settle::Lane;
use postrider_core::{DeliveryState, EventId, Order, Subscription};

use super::{Progress, Queue, Queued, Standing, StoredRow};

/// How many heads a lane may have.
pub(super) fn heads_max(subscription: &Subscription) -> usize {
    match subscription.order {
        Order::Key => 1,
        Order::None => subscription.tuning.queue.per_key.map_or(usize::MAX, |limit| limit as usize),
    }
}

impl Queue {
    pub(in super::super) fn lane(&self, lane: &Lane) -> impl Iterator<Item = (&EventId, &Queued)> {
        self.rows.iter().filter(move |(_, row)| row.parks && row.lane.as_ref() == Some(lane))
    }

    fn heads(&self, lane: &Lane) -> usize {
        self.lane(lane).filter(|(_, row)| row.standing != Standing::Waiting).count()
    }

    /// Whether rows of a lane have to wait.
    fn is_full(&self, lane: &Lane, letters: &BTreeMap<EventId, StoredRow>) -> bool {
        let held = |row: &StoredRow| {
            row.state == DeliveryState::Dead && row.parks && row.lane.as_ref() == Some(lane)
        };
        self.heads(lane) >= self.heads_max || letters.values().any(held)
    }

    /// Makes the next rows of a lane ready, if there is room for them.
    pub(super) fn promote(&mut self, lane: &Lane, letters: &BTreeMap<EventId, StoredRow>) {
        while !self.is_full(lane, letters) {
            let waiting = self.lane(lane).filter(|(_, row)| row.standing == Standing::Waiting);
            let next = waiting.min_by_key(|(id, row)| (row.turn, **id)).map(|(id, _)| *id);
            let Some(row) = next.and_then(|id| self.rows.get_mut(&id)) else { return };
            row.standing = Standing::Ready;
        }
    }

    /// Puts a row in, as a head of its lane or behind it.
    pub(super) fn put(&mut self, id: EventId, mut row: Queued, letters: &BTreeMap<EventId, StoredRow>) {
        if let Some(lane) = &row.lane
            && row.standing == Standing::Ready
        {
            row.parks = true;
            if self.is_full(lane, letters) {
                row.standing = Standing::Waiting;
            }
        }
        self.rows.insert(id, row);
    }

    fn lanes(&self) -> BTreeSet<Lane> {
        self.rows.values().filter(|row| row.parks).filter_map(|row| row.lane.clone()).collect()
    }
}

impl Progress {
    /// Keeps to a limit per key that has changed: what it allows is ready, and what it does not waits, unless
    /// it is leased.
    pub(in super::super) fn queue_retune(&mut self) {
        self.queue.heads_max = heads_max(&self.subscription);
        for lane in self.queue.lanes() {
            while self.queue.heads(&lane) > self.queue.heads_max {
                let ready = self.queue.lane(&lane).filter(|(_, row)| row.standing == Standing::Ready);
                let Some(last) = ready.max_by_key(|(id, row)| (row.turn, **id)).map(|(id, _)| *id) else {
                    break;
                };
                self.queue.rows.get_mut(&last).expect("it was found just now").standing = Standing::Waiting;
            }
            self.queue.promote(&lane, &self.rows);
        }
    }

    /// Every lane that has not the heads that it should have, one sentence each.
    pub(super) fn lanes_broken(&self) -> Vec<String> {
        let name = &self.subscription.name;
        let mut broken = Vec::new();
        for lane in &self.queue.lanes() {
            let held = self.rows.values().filter(|row| row.parks && row.lane.as_ref() == Some(lane)).count();
            let heads = self.queue.heads(lane) + held;
            // A limit may have been larger when they were leased.
            if heads == 0 || (self.subscription.order == Order::Key && heads > 1) {
                broken.push(format!("`{name}` has {heads} heads in the lane of key `{}`", lane.key));
            }
        }
        broken
    }
}
