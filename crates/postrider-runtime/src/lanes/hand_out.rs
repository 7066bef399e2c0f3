//! What is handed out next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::Delivery;
use smallvec::{SmallVec, smallvec};

use super::{
    Class, Entry, EntryState, HandOut, Item, LATE, Lanes, MAIN, Part, Parts, Ready, Running, Shape, Track,
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
    /// Several lanes in it share it: a batch that holds all of a few lanes leaves older events of others behind, and keeps a
    /// receiver waiting that takes one event of a key at a time. But not all lanes go into one batch, so that several can be on
    /// their way. What is left over once nothing else is ready goes to those that are in it.
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
            if let Some(part) = self.take(ready, share.min(left)) {
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

    /// The next hand-out for transactional handlers, whose own event must be the next that the mark passes: a row, of those
    /// first that have not failed, or the first event in the order of the log. What has failed and all else take turns; a probe
    /// is made by what has not failed, if there is any.
    pub(crate) fn hand_out_in_order(&mut self, probes: bool, now: Duration) -> Option<HandOut> {
        self.turns(probes).into_iter().find_map(|class| {
            let out = match class {
                Class::Fresh => self.next_in_order(),
                Class::Again => self.again.pop_front(),
            };
            let part = self.take(out?, 1)?;
            self.again_next = class == Class::Fresh;
            self.start(smallvec![part], now)
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
                let lane = &mut self.slots[index];
                lane.queued = false;
                // Rows of the late track first: they are rare, and a busy key must not starve them.
                let late = if lane.tracks[LATE].run.is_empty() { MAIN } else { LATE };
                let track = &mut lane.tracks[late];
                let items: SmallVec<[Item; 1]> = if track.run.is_empty() {
                    if track.parked {
                        return None;
                    }
                    let n = most.min(track.tail.len());
                    track.tail.drain(..n).map(Item::Entry).collect()
                } else {
                    let n = most.min(track.run.len());
                    track.run.drain(..n).map(Item::Row).collect()
                };
                if items.is_empty() {
                    return None;
                }
                lane.running = true;
                Some(Part { lane: Some(index), late: late == LATE, items })
            }
        }
    }

    /// Adds more of a part's lane to it.
    fn take_more(&mut self, part: &mut Part, most: usize) -> usize {
        let Some(lane) = part.lane else { return 0 };
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
