//! What is handed out next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Delivery, Failure, Outcome};
use smallvec::{SmallVec, smallvec};

use super::{
    Attempted, Class, Entry, EntryState, HandOut, Item, LATE, Lanes, MAIN, Part, Parts, Ready, Running,
    Shape, Tally, Track,
};

/// Batches that the lanes which are ready are enough for.
const BATCHES_BESIDE: usize = 4;

impl Lanes {
    /// From which lines to hand out next, in this order; a probe is made by what has not failed, if there is any.
    pub(crate) fn turns(&self, probes: bool) -> [Class; 2] {
        if self.again_next && !probes { [Class::Again, Class::Fresh] } else { [Class::Fresh, Class::Again] }
    }

    pub(super) fn line(&mut self, class: Class) -> &mut VecDeque<Ready> {
        match class {
            Class::Fresh => &mut self.ready,
            Class::Again => &mut self.again,
        }
    }

    /// The next hand-out of a line, if anything is ready in it.
    ///
    /// Several lanes in it share it: a batch that holds all of a few lanes leaves older events of others
    /// behind, and keeps a receiver waiting that takes one event of a key at a time. But not all lanes go
    /// into one batch, so that several can be on their way. What is left over once nothing else is ready goes
    /// to those that are in it.
    pub(crate) fn hand_out(&mut self, class: Class, shape: Shape, now: Duration) -> Option<HandOut> {
        let mut parts = Parts::new();
        let mut left = shape.events;
        let share = if shape.parts > 1 {
            (shape.events * BATCHES_BESIDE).div_ceil(self.line(class).len().max(1)).clamp(1, shape.per_lane)
        } else {
            shape.per_lane
        };
        while parts.len() < shape.parts && left > 0 {
            let Some(ready) = self.line(class).pop_front() else { break };
            if let Some(part) = self.take(ready, share.min(left)).and_then(|part| self.bury(part, now)) {
                left -= part.items.len();
                parts.push(part);
            }
        }
        for part in &mut parts {
            left -= self.take_more(part, (shape.per_lane - part.items.len()).min(left));
        }
        self.again_next = class == Class::Fresh;
        self.start(parts, now)
    }

    /// The next hand-out for transactional handlers, whose own event must be the next that the mark passes: a
    /// row, of those first that have not failed, or the first event in the order of the log. What has failed
    /// and all else take turns; a probe is made by what has not failed, if there is any.
    pub(crate) fn hand_out_in_order(&mut self, probes: bool, now: Duration) -> Option<HandOut> {
        self.turns(probes).into_iter().find_map(|class| {
            loop {
                let ready = match class {
                    Class::Fresh => self.next_in_order(),
                    Class::Again => self.again.pop_front(),
                };
                let part = self.take(ready?, 1)?;
                if let Some(part) = self.bury(part, now) {
                    self.again_next = class == Class::Fresh;
                    return self.start(smallvec![part], now);
                }
            }
        })
    }

    fn next_in_order(&mut self) -> Option<Ready> {
        let row = self.ready.iter().position(|ready| match ready {
            Ready::Row(_) => true,
            Ready::Lane(lane) => self.slots[*lane].tracks.iter().any(|track| !track.run.is_empty()),
            Ready::Entry(_) => false,
        });
        let first_queued = || {
            let ordinal = self.span.iter().position(|entry| self.is_ready(entry))? as u64 + self.base;
            let key =
                self.span[(ordinal - self.base) as usize].event.as_ref().and_then(|event| self.key_of(event));
            let lane = key.and_then(|key| self.by_key.get(key).copied());
            self.ready.iter().position(|ready| match (ready, lane) {
                (Ready::Lane(ready), Some(lane)) => *ready == lane,
                (Ready::Entry(ready), _) => *ready == ordinal,
                _ => false,
            })
        };
        let index = row.or_else(first_queued)?;
        self.ready.remove(index)
    }

    pub(super) fn is_ready(&self, entry: &Entry) -> bool {
        matches!(entry.state, EntryState::Queued)
            && entry.event.as_ref().is_some_and(|event| match self.key_of(event) {
                Some(key) => self.by_key.get(key).is_none_or(|lane| !self.slots[*lane].tracks[MAIN].parked),
                None => true,
            })
    }

    fn take(&mut self, ready: Ready, most: usize) -> Option<Part> {
        match ready {
            Ready::Entry(ordinal) => {
                Some(Part { lane: None, late: false, items: smallvec![Item::Entry(ordinal)] })
            }
            Ready::Row(id) => Some(Part { lane: None, late: false, items: smallvec![Item::Row(id)] }),
            Ready::Lane(index) => {
                self.slots[index].queued = false;
                let lane = &self.slots[index];
                // Rows of the late track first: they are rare, and a busy key must not starve them.
                let late = if lane.tracks[LATE].run.is_empty() { MAIN } else { LATE };
                let track = &lane.tracks[late];
                let from_log = track.run.is_empty();
                if from_log && track.parked {
                    return None;
                }
                // One with a flaw comes alone.
                let n = self.sound(track, from_log, most).max(most.min(1));
                let track = &mut self.slots[index].tracks[late];
                let items: SmallVec<[Item; 1]> = if from_log {
                    track.tail.drain(..n.min(track.tail.len())).map(Item::Entry).collect()
                } else {
                    track.run.drain(..n.min(track.run.len())).map(Item::Row).collect()
                };
                if items.is_empty() {
                    return None;
                }
                self.slots[index].running = true;
                Some(Part { lane: Some(index), late: late == LATE, items })
            }
        }
    }

    /// How many of the next events of a track come before one with a flaw, at the most so many.
    fn sound(&self, track: &Track, from_log: bool, most: usize) -> usize {
        if from_log {
            track.tail.iter().take(most).take_while(|ordinal| !self.has_flaw(Item::Entry(**ordinal))).count()
        } else {
            track.run.iter().take(most).take_while(|id| !self.has_flaw(Item::Row(**id))).count()
        }
    }

    fn has_flaw(&self, item: Item) -> bool {
        match item {
            Item::Entry(ordinal) => {
                let event = &self.span[(ordinal - self.base) as usize].event;
                event.as_ref().is_some_and(|event| event.flaw.is_some())
            }
            Item::Row(id) => self.loaded[&id].event.flaw.is_some(),
        }
    }

    /// Makes a dead letter of an event with a flaw, which is alone in its part; gives any other part back.
    fn bury(&mut self, part: Part, now: Duration) -> Option<Part> {
        if !self.has_flaw(part.items[0]) {
            return Some(part);
        }
        let HandOut { ticket, deliveries } = self.start(smallvec![part], now)?;
        let reason = deliveries[0].flaw.as_ref().map(|flaw| flaw.reason().to_owned()).unwrap_or_default();
        drop(deliveries);
        let outcome = Outcome::Dead(Failure::permanent(reason));
        let tally = self.finish(ticket, vec![Attempted { outcome, took: Duration::ZERO }], now, &mut || 0.0);
        self.buried.dead += tally.dead;
        self.buried.failed += tally.failed;
        None
    }

    /// What became of events with a flaw since this was asked last.
    pub(crate) fn take_buried(&mut self) -> Tally {
        std::mem::take(&mut self.buried)
    }

    /// Adds more of a part's lane to it.
    fn take_more(&mut self, part: &mut Part, most: usize) -> usize {
        let Some(lane) = part.lane else { return 0 };
        let from_log = matches!(part.items.last(), Some(Item::Entry(_)));
        let most = self.sound(&self.slots[lane].tracks[usize::from(part.late)], from_log, most);
        let Track { parked, run, tail, .. } = &mut self.slots[lane].tracks[usize::from(part.late)];
        let before = part.items.len();
        match part.items.last() {
            Some(Item::Row(_)) => part.items.extend(run.drain(..most.min(run.len())).map(Item::Row)),
            Some(Item::Entry(_)) if !*parked => {
                part.items.extend(tail.drain(..most.min(tail.len())).map(Item::Entry));
            }
            _ => {}
        }
        part.items.len() - before
    }

    fn start(&mut self, parts: Parts, now: Duration) -> Option<HandOut> {
        if parts.is_empty() {
            return None;
        }
        let ticket = self.running.vacant_key();
        let mut deliveries = Vec::with_capacity(parts.iter().map(|part| part.items.len()).sum());
        for item in parts.iter().flat_map(|part| &part.items) {
            let (event, attempt) = match item {
                Item::Entry(ordinal) => {
                    let entry = &mut self.span[(ordinal - self.base) as usize];
                    entry.state = EntryState::Running(ticket);
                    (entry.event.as_ref().expect("a queued entry has its event"), 1)
                }
                Item::Row(id) => {
                    let row = &self.loaded[id];
                    (&row.event, row.attempts + 1)
                }
            };
            deliveries.push(Delivery::new(Arc::clone(event), attempt, Arc::clone(&self.origin)));
        }
        self.running.insert(Running { parts, since: now });
        Some(HandOut { ticket, deliveries })
    }
}
