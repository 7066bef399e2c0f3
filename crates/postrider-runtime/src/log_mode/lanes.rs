//! Which event may be handed out, and how far the mark may move: mode `log` as a pure machine.
//!
//! The worker feeds it what it reads ([`Lanes::offer`], [`Lanes::load`]) and what became of it
//! ([`Lanes::finish`]), and asks it for the next hand-out ([`Lanes::hand_out`]) and the next settle
//! ([`Lanes::compose`]). It does no I/O, and has neither a clock nor randomness.
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
//! of its hand-outs runs; an event that fails parks its track at once, in memory, before anything else
//! of the lane can be handed out. While a track is parked, only rows that the store gives back are handed
//! out, and they come in lane order; what arrives from the log waits in the tail and becomes a waiting
//! row when the mark passes it. The track is free again when the store says that no row of it is left
//! *and* no failed entry of it is still above the mark. Settles and reads of rows never overlap, so the
//! store's answer and this memory describe the same moment.
//!
//! *Failures.* Rows whose event has failed before wait in a separate line ([`Class::Again`]). Both lines take
//! turns, no hand-out mixes them, and the worker gives the second line half of its places at the most.
//! However many keys fail, and however long their attempts take, the others find a place.
//!
//! *Flaws.* An event that breaks a limit takes its turn like any other, alone, and fails for good without
//! being handed out. So the order holds for it and for the events behind it. An event whose key is too long
//! comes without a key.
//!
//! *Bounds.* The span holds at most [`limits::SPAN_EVENTS_MAX`] entries and a chunk, due rows at most
//! [`limits::DUE_LOADED_MAX`]; what is done leaves the span at once, and at most
//! [`limits::UNSETTLED_EVENTS_MAX`] events are done without being settled. A parked lane of which nothing
//! else is in memory costs a few bytes; [`limits::PARKED_KEYS_MAX`] of them stop the reading, which the
//! worker tells.

mod compose;
mod finish;
mod hand_out;
mod idle;
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
    DeliveryState, Event, EventId, Key, OnDead, Order, Position, RetryPolicy, Shard, limits,
};
use slab::Slab;
use smallvec::SmallVec;

use crate::dispatch::failures::Failures;
use crate::dispatch::hand_out::{Attempted, Class, HandOut, Shape, Tally};
pub(crate) use compose::Wanted;
use idle::Idle;

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
    /// What may be handed out, in order.
    ready: VecDeque<Ready>,
    /// The same of what has failed before.
    again: VecDeque<Ready>,
    /// Whose turn it is.
    again_next: bool,
    running: Slab<Running>,
    /// How many tracks are parked, those included that have nothing in memory.
    parked: usize,
    idle: Idle,
    /// Row changes for the next settle.
    changes: Settle,
    /// Failed attempts for the next settle, with the instant at which each ended.
    records: Vec<(Duration, AttemptRecord)>,
    /// Whether an outcome has come in since the last settle.
    touched: bool,
    /// What the log has to be told.
    pub(crate) failures: Failures,
    /// The outcomes of events with a flaw since the last call of `take_buried`.
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

const MAIN: usize = 0;
const LATE: usize = 1;

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
            again: VecDeque::new(),
            again_next: false,
            running: Slab::new(),
            parked: 0,
            idle: Idle::default(),
            changes: Settle::default(),
            records: Vec::new(),
            touched: false,
            failures: Failures::default(),
            buried: Tally::default(),
        };
        for lane in &taken.parked {
            lanes.parked += usize::from(lanes.idle.insert(&lane.key, usize::from(lane.late)));
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
                        let class = if row.attempts > 0 { Class::Again } else { Class::Fresh };
                        self.line(class).push_back(Ready::Row(row.event.id));
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

    /// Takes in the store's answer to a settle.
    pub(crate) fn settled(&mut self, settled: &Settled) {
        for lane in &settled.unparked {
            let Some(&index) = self.by_key.get(&lane.key) else {
                self.parked -= usize::from(self.idle.remove(&lane.key, usize::from(lane.late)));
                continue;
            };
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
        !self.ready.is_empty() || !self.again.is_empty()
    }

    /// The same of one line.
    pub(crate) fn has_ready_of(&self, class: Class) -> bool {
        match class {
            Class::Fresh => !self.ready.is_empty(),
            Class::Again => !self.again.is_empty(),
        }
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
        let track = |parked| Track { parked, ..Track::default() };
        let tracks = [MAIN, LATE].map(|late| track(self.idle.remove(key, late)));
        let state = LaneState { key: key.clone(), running: false, queued: false, tracks };
        let index = self.slots.insert(state);
        self.by_key.insert(key.clone(), index);
        index
    }

    /// Lines a lane up if it has something to hand out, and forgets it if it has nothing left in memory, but
    /// for whether it is parked.
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
            let class = self.class_of(index);
            self.line(class).push_back(Ready::Lane(index));
        } else if lane.tracks.iter().all(|track| track.failed.is_none() && track.tail.is_empty()) {
            let lane = self.slots.remove(index);
            self.by_key.remove(&lane.key);
            for late in [MAIN, LATE].into_iter().filter(|late| lane.tracks[*late].parked) {
                self.idle.insert(&lane.key, late);
            }
        }
    }

    /// Whether what a lane would hand out next has failed before.
    fn class_of(&self, index: usize) -> Class {
        let first = self.slots[index].tracks.iter().rev().find_map(|track| track.run.front());
        match first.and_then(|id| self.loaded.get(id)) {
            Some(row) if row.attempts > 0 => Class::Again,
            _ => Class::Fresh,
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
