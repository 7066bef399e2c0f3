//! What an owner reads: the log, and the rows that are due.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use postrider_core::settle::{Chunk, DueRow, DueRows, Hold, Room, Run};
use postrider_core::{DeliveryState, Event, EventId, Position, Result, ShardSet, Timestamp, limits};

use super::state::{Progress, State, StoredRow, Time};

/// What is left of a [`Room`]. The last event may exceed the bytes: without that, one that is larger
/// than the room would never be read.
struct Budget {
    events: usize,
    bytes: usize,
}

impl Budget {
    fn new(room: Room, events_max: usize) -> Self {
        Self { events: room.events.min(events_max), bytes: room.bytes.min(limits::CHUNK_BYTES_MAX) }
    }

    fn is_spent(&self) -> bool {
        self.events == 0 || self.bytes == 0
    }

    fn spend(&mut self, event: &Event) {
        self.events -= 1;
        self.bytes = self.bytes.saturating_sub(event.payload.len());
    }
}

impl State {
    pub(super) fn fetch(&mut self, hold: &Hold, after: Position, room: Room) -> Result<Chunk> {
        let subscription = Arc::clone(&self.held(hold)?.subscription);
        if subscription.paused_at.is_some() {
            return Ok(Chunk { paused: true, ..Chunk::empty(after) });
        }
        let mut budget = Budget::new(room, limits::CHUNK_EVENTS_MAX);
        let mut chunk = Chunk::empty(after);
        let behind = (Bound::Excluded(after.last_id), Bound::Unbounded);
        for (looked_at, event) in self.events.range(behind).map(|(_, event)| event).enumerate() {
            if looked_at == limits::CHUNK_SCAN_MAX || budget.is_spent() {
                chunk.more = true;
                break;
            }
            let shard = self.shard_of(event);
            let held = hold.shards.iter().any(|held| held.shard == shard && !held.position.covers(event.id));
            if held && subscription.filter.matches(event.topic.as_str(), event.kind.as_str()) {
                budget.spend(event);
                chunk.events.push(Arc::clone(event));
            }
            chunk.end = after.at(event.id);
        }
        Ok(chunk)
    }

    pub(super) fn fetch_due(
        &mut self,
        hold: &Hold,
        loaded: &HashSet<EventId>,
        room: Room,
        time: Time,
    ) -> Result<DueRows> {
        self.held(hold)?;
        let progress = self.progress(&hold.subscription.name)?;
        if progress.subscription.paused_at.is_some() {
            return Ok(DueRows::default());
        }
        let reader = DueReader { events: &self.events, progress, loaded, shards: hold.set() };
        Ok(reader.read(Budget::new(room, limits::DUE_LOADED_MAX), time.now))
    }
}

struct DueReader<'a> {
    events: &'a BTreeMap<EventId, Arc<Event>>,
    progress: &'a Progress,
    loaded: &'a HashSet<EventId>,
    /// Those whose rows are asked for.
    shards: ShardSet,
}

impl DueReader<'_> {
    fn read(&self, mut budget: Budget, now: Timestamp) -> DueRows {
        let mut timed: Vec<_> = self
            .progress
            .rows
            .iter()
            .filter(|(_, row)| row.state == DeliveryState::Pending && self.shards.contains(row.shard))
            .filter(|(id, _)| !self.loaded.contains(id))
            .filter_map(|(id, row)| row.due.map(|due| (due, row.turn, *id, row)))
            .collect();
        timed.sort_by_key(|(due, turn, id, _)| (*due, *turn, *id));
        let mut found = DueRows::default();
        for (due, _, id, row) in timed {
            if due > now || budget.is_spent() {
                // The first one that is left out is the next one due; it may be due already.
                found.next_in = Some(due.since(now));
                break;
            }
            found.runs.push(self.run(id, row, &mut budget));
        }
        found
    }

    fn run(&self, head: EventId, row: &StoredRow, budget: &mut Budget) -> Run {
        let mut rows = vec![self.due_row(head, row, budget)];
        if let (true, Some(lane)) = (row.parks, &row.lane) {
            // A loaded row ends the run: what follows it must not overtake it.
            let waiting = self.progress.lane(lane).into_iter().filter(|(id, _)| *id != head);
            for (id, row) in waiting.take_while(|(id, _)| !self.loaded.contains(id)) {
                if rows.len() == limits::RUN_EVENTS_MAX || budget.is_spent() {
                    break;
                }
                rows.push(self.due_row(id, row, budget));
            }
        }
        Run { lane: row.lane.clone(), parks: row.parks, rows }
    }

    fn due_row(&self, id: EventId, row: &StoredRow, budget: &mut Budget) -> DueRow {
        let mut event = Arc::clone(&self.events[&id]);
        if let Some(edited) = &row.edited {
            event = Arc::new(Event::clone(&event).with_payload(edited.clone()));
        }
        budget.spend(&event);
        DueRow { event, attempts: row.attempts, turn: row.turn, discarded: row.discarded }
    }
}
