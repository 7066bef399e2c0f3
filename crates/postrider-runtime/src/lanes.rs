//! Which event may be handed out, and how far the mark may move: mode `log` as a pure machine.
//!
//! The worker feeds it what it reads ([`Lanes::offer`], [`Lanes::load`]) and what became of it
//! ([`Lanes::finish`]), and asks it for the next hand-out ([`Lanes::hand_out`]) and the next settle
//! ([`Lanes::compose`]). It does no I/O, has no clock and no randomness of its own.
//!
//! ```text
//!  read ─► span ──────────────────────────────► compose ─► settle (mark, rows)
//!          │ entries above the mark, in order      ▲
//!          ▼                                       │
//!          lanes, one per key ─► ready ─► hand-out ┴ finish (outcomes)
//!          ▲
//!  rows that are due
//! ```
//!
//! # Why no event is lost, and none of a key is overtaken
//!
//! *No loss.* `compose` moves the mark over an entry only if it is done or if the same settle writes its
//! row. What lies above the mark is read again after a crash.
//!
//! *Order.* Events of a key enter its lane in the order of the log. A lane hands out nothing while one
//! hand-out of its own runs; an event that fails parks its track at once, in memory, before anything else
//! of the lane can be handed out. While a track is parked, only rows that the store gives back are handed
//! out, and they come in lane order; what arrives from the log waits in the tail and becomes a waiting
//! row when the mark passes it. The track is free again when the store says that no row of it is left
//! *and* no failed entry of it is still above the mark. Settles and reads of rows never overlap, so the
//! store's answer and this memory describe the same moment.
//!
//! *Flaws.* An event that breaks a limit takes its turn like any other, alone, and fails for good without being handed out:
//! what was said of order holds for it and for those behind it. One whose key is too long comes without a key.
//!
//! *Bounds.* The span holds at most [`limits::SPAN_EVENTS_MAX`] entries and a chunk, due rows at most
//! [`limits::DUE_LOADED_MAX`]; what is done leaves the span at once, and at most
//! [`limits::UNSETTLED_EVENTS_MAX`] events are done without being settled. Parked lanes stop the reading at
//! [`limits::PARKED_KEYS_MAX`].

mod compose;
mod finish;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use postrider_core::delivery::Origin;
use postrider_core::settle::{
    AttemptRecord, Chunk, DueRow, DueRows, Lane, Room, Row, RowDue, Run, Settle, Settled, Taken,
};
use postrider_core::{
    Delivery, DeliveryState, Event, EventId, Failure, Key, OnDead, Order, Outcome, Position, RetryPolicy,
    Shard, limits,
};
use slab::Slab;
use smallvec::{SmallVec, smallvec};

pub(crate) use compose::Wanted;
pub(crate) use finish::{Attempted, Tally};

/// What a subscription says about order and failure.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) order: Order,
    pub(crate) on_dead: OnDead,
    pub(crate) retry: RetryPolicy,
    /// A bug planted on purpose: see `sabotage`.
    #[cfg(feature = "sabotage")]
    pub(crate) forget_to_park: bool,
}

/// Instants in here are durations since the worker began.
#[derive(Debug)]
pub(crate) struct Lanes {
    rules: Rules,
    origin: Arc<Origin>,
    shard_count: u16,
    /// Entries above the mark, in the order of the log; the first has the ordinal `base`.
    span: VecDeque<Entry>,
    base: u64,
    /// How many of them have an outcome.
    finished: usize,
    /// How far the mark may move by what is done already and has left the span.
    mark: Option<Position>,
    /// How many events that is.
    unsettled: usize,
    /// Payload bytes in memory.
    bytes: usize,
    /// Where to read on.
    read_to: Position,
    by_key: HashMap<Key, usize, RandomState>,
    slots: Slab<LaneState>,
    /// Rows of the store that are in memory.
    loaded: HashMap<EventId, Loaded, RandomState>,
    ready: VecDeque<Ready>,
    running: Slab<Running>,
    parked: usize,
    /// Row changes for the next settle.
    changes: Settle,
    /// Failed attempts for the next settle, with the instant at which each ended.
    records: Vec<(Duration, AttemptRecord)>,
    /// Whether an outcome has come in since the last settle.
    touched: bool,
    /// What became of events with a flaw since somebody asked.
    buried: Tally,
}

/// One event between being read and being passed by the mark.
#[derive(Debug)]
struct Entry {
    /// Given up once it is done, to free the payload. None from the start where only a position is kept.
    event: Option<Arc<Event>>,
    /// The position right behind it.
    position: Position,
    state: EntryState,
}

#[derive(Debug)]
enum EntryState {
    /// In its lane's tail, or ready on its own.
    Queued,
    /// Handed out with this ticket.
    Running(usize),
    Done,
    /// Its row is complete and will be written when the mark passes it.
    Failed(Box<FailedEntry>),
    /// Becomes a row of its key's late lane.
    Delayed,
}

#[derive(Debug)]
struct FailedEntry {
    row: Row,
    /// None of an event that only asked for time.
    record: Option<AttemptRecord>,
    at: Duration,
}

/// A row of the store that is in memory.
#[derive(Debug)]
struct Loaded {
    event: Arc<Event>,
    attempts: u32,
    turn: i64,
    parks: bool,
    lane: Option<Lane>,
}

#[derive(Debug)]
struct LaneState {
    key: Key,
    /// Whether a hand-out of this lane is under way, of whichever track.
    running: bool,
    /// Whether it stands in `ready`, so that it does so only once.
    queued: bool,
    /// The key's events, and its delayed ones. They share one hand-out at a time but not their order.
    tracks: [Track; 2],
}

#[derive(Debug, Default)]
struct Track {
    /// Whether rows of it are in the store, or a failed entry of it is on its way there.
    parked: bool,
    /// The entry that failed and is still above the mark.
    failed: Option<u64>,
    /// Rows that may be handed out now, in order.
    run: VecDeque<EventId>,
    /// Entries from the log, in order.
    tail: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Ready {
    Lane(usize),
    Entry(u64),
    Row(EventId),
}

/// A hand-out that is under way.
#[derive(Debug)]
struct Running {
    parts: Parts,
    since: Duration,
}

/// The events of one lane in a hand-out.
#[derive(Debug)]
struct Part {
    lane: Option<usize>,
    late: bool,
    items: SmallVec<[Item; 1]>,
}

/// Most hand-outs hold one event of one lane.
type Parts = SmallVec<[Part; 1]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Entry(u64),
    Row(EventId),
}

/// What is handed to a handler or sink, and the ticket under which to report.
#[derive(Debug)]
pub(crate) struct HandOut {
    pub(crate) ticket: usize,
    pub(crate) deliveries: Vec<Delivery>,
}

/// How much one hand-out may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Events in all.
    pub(crate) events: usize,
    /// Different lanes, or events without one.
    pub(crate) parts: usize,
    /// Events of one lane.
    pub(crate) per_lane: usize,
}

const MAIN: usize = 0;
const LATE: usize = 1;
/// Batches that the lanes which are ready are enough for.
const BATCHES_BESIDE: usize = 4;

impl Lanes {
    pub(crate) fn new(rules: Rules, origin: Arc<Origin>, taken: &Taken) -> Self {
        let mut lanes = Self {
            rules,
            origin,
            shard_count: taken.hold.shard_count,
            span: VecDeque::new(),
            base: 0,
            finished: 0,
            mark: None,
            unsettled: 0,
            bytes: 0,
            read_to: taken.start,
            by_key: HashMap::default(),
            slots: Slab::new(),
            loaded: HashMap::default(),
            ready: VecDeque::new(),
            running: Slab::new(),
            parked: 0,
            changes: Settle::default(),
            records: Vec::new(),
            touched: false,
            buried: Tally::default(),
        };
        for lane in &taken.parked {
            let index = lanes.lane_of(&lane.key);
            lanes.park(index, usize::from(lane.late));
        }
        lanes
    }

    /// Where to read on in the log.
    pub(crate) fn read_to(&self) -> Position {
        self.read_to
    }

    /// How much more of the log may be read; none while memory is full or too many keys are parked.
    pub(crate) fn room(&self) -> Option<Room> {
        let events = limits::SPAN_EVENTS_MAX.saturating_sub(self.span.len()).min(limits::CHUNK_EVENTS_MAX);
        let bytes = limits::SPAN_BYTES_MAX.saturating_sub(self.bytes).min(limits::CHUNK_BYTES_MAX);
        let enough = events == limits::CHUNK_EVENTS_MAX && bytes == limits::CHUNK_BYTES_MAX;
        let settles = self.unsettled < limits::UNSETTLED_EVENTS_MAX && self.parked < limits::PARKED_KEYS_MAX;
        (enough && settles).then_some(Room { events, bytes })
    }

    /// How many more due rows may be read.
    pub(crate) fn room_for_due(&self) -> Option<Room> {
        let events = limits::DUE_LOADED_MAX.saturating_sub(self.loaded.len());
        let bytes = limits::SPAN_BYTES_MAX.saturating_sub(self.bytes).min(limits::CHUNK_BYTES_MAX);
        (events >= limits::RUN_EVENTS_MAX && bytes == limits::CHUNK_BYTES_MAX)
            .then_some(Room { events, bytes })
    }

    /// The rows that are in memory, and those whose change is not settled yet: the store still shows them as
    /// they were, so that a read of due rows must pass over them.
    pub(crate) fn loaded(&self) -> HashSet<EventId> {
        let changed =
            self.changes.done.iter().copied().chain(self.changes.rows.iter().map(|row| row.event_id));
        self.loaded.keys().copied().chain(changed).collect()
    }

    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// Takes in a stretch of the log that begins at [`Lanes::read_to`].
    pub(crate) fn offer(&mut self, chunk: &Chunk) {
        let before = self.span.len();
        for event in &chunk.events {
            self.enter(Arc::clone(event), chunk.position_of(event));
        }
        if chunk.end == self.read_to {
            return;
        }
        self.read_to = chunk.end;
        // What the filter passed over is covered with the last event before it.
        let entered = self.span.len() > before;
        match self.span.back_mut() {
            Some(last) if entered => last.position = chunk.end,
            _ => {
                self.finished += 1;
                self.span.push_back(Entry { event: None, position: chunk.end, state: EntryState::Done });
            }
        }
        self.shorten();
    }

    fn enter(&mut self, event: Arc<Event>, position: Position) {
        let ordinal = self.base + self.span.len() as u64;
        self.bytes += event.bytes();
        let state = if event.due_at.is_some() {
            EntryState::Delayed
        } else {
            match self.key_of(&event).cloned() {
                Some(key) => {
                    let lane = self.lane_of(&key);
                    self.slots[lane].tracks[MAIN].tail.push_back(ordinal);
                    self.refresh(lane);
                }
                None => self.ready.push_back(Ready::Entry(ordinal)),
            }
            EntryState::Queued
        };
        self.span.push_back(Entry { event: Some(event), position, state });
    }

    /// Takes in rows that are due.
    pub(crate) fn load(&mut self, due: DueRows) {
        for run in due.runs {
            if run.rows.first().is_some_and(|row| self.loaded.contains_key(&row.event.id)) {
                continue;
            }
            match run.lane.clone() {
                Some(lane) => self.load_run(run, &lane),
                None => {
                    for row in run.rows {
                        self.ready.push_back(Ready::Row(row.event.id));
                        self.remember(row, false, None);
                    }
                }
            }
        }
    }

    fn load_run(&mut self, run: Run, lane: &Lane) {
        let index = self.lane_of(&lane.key);
        let late = usize::from(lane.late);
        if run.parks {
            self.park(index, late);
        }
        for row in run.rows {
            if row.discarded {
                // Given up by an operator: it leaves, and the store brings the next of its lane.
                self.changes.done.push(row.event.id);
                self.changes.freed.push(lane.clone());
                break;
            }
            let id = row.event.id;
            if !run.parks && self.slots[index].tracks[late].parked {
                // It wants to enter a lane that waits for an earlier event: it waits behind it.
                self.changes.rows.push(Row {
                    event_id: id,
                    shard: self.shard_of(&row.event),
                    lane: Some(lane.clone()),
                    turn: row.turn,
                    parks: true,
                    state: DeliveryState::Pending,
                    attempts: row.attempts,
                    due: RowDue::Waiting,
                });
                continue;
            }
            self.remember(row, run.parks, Some(lane.clone()));
            self.slots[index].tracks[late].run.push_back(id);
        }
        self.refresh(index);
    }

    fn remember(&mut self, row: DueRow, parks: bool, lane: Option<Lane>) {
        self.bytes += row.event.bytes();
        let DueRow { event, attempts, turn, .. } = row;
        self.loaded.insert(event.id, Loaded { event, attempts, turn, parks, lane });
    }

    fn forget(&mut self, id: EventId) -> Option<Loaded> {
        let row = self.loaded.remove(&id)?;
        self.bytes -= row.event.bytes();
        Some(row)
    }

    /// The next hand-out, if anything is ready.
    ///
    /// Several lanes in it share it: a batch that holds all of a few lanes leaves older events of others behind, and keeps a
    /// receiver waiting that takes one event of a key at a time. But not all lanes go into one batch, so that several can be on
    /// their way. What is left over once nothing else is ready goes to those that are in it.
    pub(crate) fn hand_out(&mut self, shape: Shape, now: Duration) -> Option<HandOut> {
        let mut parts = Parts::new();
        let mut left = shape.events;
        let share = if shape.parts > 1 {
            (shape.events * BATCHES_BESIDE).div_ceil(self.ready.len().max(1)).clamp(1, shape.per_lane)
        } else {
            shape.per_lane
        };
        while parts.len() < shape.parts && left > 0 {
            let Some(ready) = self.ready.pop_front() else { break };
            if let Some(part) = self.take(ready, share.min(left)).and_then(|part| self.bury(part, now)) {
                left -= part.items.len();
                parts.push(part);
            }
        }
        for part in &mut parts {
            left -= self.take_more(part, (shape.per_lane - part.items.len()).min(left));
        }
        self.start(parts, now)
    }

    /// The next hand-out in the strict order of the log, rows first: for transactional handlers, whose
    /// own event must be the next that the mark passes.
    pub(crate) fn hand_out_in_order(&mut self, now: Duration) -> Option<HandOut> {
        loop {
            let ready = self.next_in_order()?;
            let part = self.take(ready, 1)?;
            if let Some(part) = self.bury(part, now) {
                return self.start(smallvec![part], now);
            }
        }
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

    fn is_ready(&self, entry: &Entry) -> bool {
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

    /// The events of a hand-out, in its order.
    pub(crate) fn ids(&self, ticket: usize) -> Vec<EventId> {
        let items = self.running[ticket].parts.iter().flat_map(|part| &part.items);
        items
            .map(|item| match item {
                Item::Entry(ordinal) => self.span[(ordinal - self.base) as usize]
                    .event
                    .as_ref()
                    .map_or(EventId(0), |event| event.id),
                Item::Row(id) => *id,
            })
            .collect()
    }

    /// Takes in the store's answer to a settle.
    pub(crate) fn settled(&mut self, settled: &Settled) {
        for lane in &settled.unparked {
            let Some(&index) = self.by_key.get(&lane.key) else { continue };
            let track = &mut self.slots[index].tracks[usize::from(lane.late)];
            if track.parked && track.failed.is_none() {
                track.parked = false;
                self.parked -= 1;
            }
            self.refresh(index);
        }
    }

    /// Whether something could be handed out right now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lets what is done leave the front of the span.
    fn shorten(&mut self) {
        while let Some(Entry { state: EntryState::Done, position, .. }) = self.span.front() {
            self.mark = Some(*position);
            self.span.pop_front();
            self.base += 1;
            self.finished -= 1;
            self.unsettled += 1;
        }
    }

    /// Whether nothing is in memory that is not settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.mark.is_none()
            && self.span.is_empty()
            && self.loaded.is_empty()
            && self.running.is_empty()
            && self.changes.is_empty()
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// The key by which an event is ordered, if it is.
    fn key_of<'e>(&self, event: &'e Event) -> Option<&'e Key> {
        match self.rules.order {
            Order::Key => event.key.as_ref(),
            Order::None => None,
        }
    }

    fn lane_of(&mut self, key: &Key) -> usize {
        if let Some(&index) = self.by_key.get(key) {
            return index;
        }
        let state = LaneState { key: key.clone(), running: false, queued: false, tracks: Default::default() };
        let index = self.slots.insert(state);
        self.by_key.insert(key.clone(), index);
        index
    }

    /// Lines a lane up if it has something to hand out, and forgets it if it has nothing left at all.
    fn refresh(&mut self, index: usize) {
        let lane = &mut self.slots[index];
        if lane.running || lane.queued {
            return;
        }
        let can = lane
            .tracks
            .iter()
            .any(|track| !track.run.is_empty() || (!track.parked && !track.tail.is_empty()));
        if can {
            lane.queued = true;
            self.ready.push_back(Ready::Lane(index));
        } else if lane.tracks.iter().all(|track| !track.parked && track.tail.is_empty()) {
            let lane = self.slots.remove(index);
            self.by_key.remove(&lane.key);
        }
    }

    fn park(&mut self, index: usize, late: usize) {
        let track = &mut self.slots[index].tracks[late];
        if !track.parked {
            track.parked = true;
            self.parked += 1;
        }
    }

    fn shard_of(&self, event: &Event) -> Shard {
        Shard::of(event.key.as_ref(), event.id, self.shard_count)
    }

    fn entry(&mut self, ordinal: u64) -> &mut Entry {
        &mut self.span[(ordinal - self.base) as usize]
    }
}
