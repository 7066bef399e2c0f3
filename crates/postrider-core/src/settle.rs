//! What a subscription's owner reads and writes back in mode `log`.
//!
//! Progress is a **mark** that moves up the log. An event that the mark passes is done, unless a row
//! says otherwise:
//!
//! ```text
//!   ids     1  2  3  4  5  6  7  8  9 …            ▲ above the mark: in the owner's memory only
//!           ✓  ✓  ✗  ✓  w  ✓ │ …  …  …             │ no rows up here, ever
//!                 │     │    mark
//!                 │     └ 5 has the key of 3: a row that waits
//!                 └ 3 failed: a row with a due time, the head of its lane
//! ```
//!
//! Rules that every store and every owner keeps:
//!
//! 1. A row exists only for an event that its shard's position covers. So each event is either above
//!    the mark, or has a row, or is done; never two of these.
//! 2. Rows that **park** their lane are worked off in the order `(turn, event_id)`. At most one of them,
//!    the head, has a due time, is leased, or is held as a dead letter; all others wait without a due time.
//! 3. An event of a parked lane that comes up the log is not handed out. It waits in memory, and as a
//!    row once the mark passes it.
//! 4. When the head leaves, the same transaction gives the next row of its lane a due time. If there is
//!    none, the lane is free again, and the owner's memory is next: nothing else can hold the lane.
//! 5. Delayed events of a key form a separate lane, in the order of their due times.

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::DeliveryState;
use crate::event::{Event, EventId, Key};
use crate::position::{Epoch, Position, Shard, ShardSet};
use crate::subscription::Subscription;
use crate::time::Timestamp;

pub use crate::position::MemberId;

/// Proof of ownership: the shards of a subscription that a member holds, each at an epoch.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The subscription.
    pub subscription: Arc<Subscription>,
    /// Who holds.
    pub member: MemberId,
    /// What is held.
    pub shards: Arc<[HeldShard]>,
    /// How many shards the subscription has in all.
    pub shard_count: u16,
}

impl Hold {
    /// Which shards are held.
    pub fn set(&self) -> ShardSet {
        ShardSet::of(self.shards.iter().map(|held| held.shard))
    }

    /// The epoch under which an event is handed out; none if its shard is not held.
    pub fn epoch_of(&self, event: &Event) -> Option<Epoch> {
        let shard = Shard::of(event.key.as_ref(), event.id, self.shard_count);
        // Who holds all has each in its place.
        let in_place = self.shards.get(usize::from(shard.0)).filter(|held| held.shard == shard);
        in_place.or_else(|| self.shards.iter().find(|held| held.shard == shard)).map(|held| held.epoch)
    }

    /// The epoch under which every event is handed out, if all shards are held at the same.
    pub fn sole_epoch(&self) -> Option<Epoch> {
        let first = self.shards.first()?.epoch;
        let is_sole = self.shards.len() == usize::from(self.shard_count)
            && self.shards.iter().all(|held| held.epoch == first);
        is_sole.then_some(first)
    }
}

/// One shard of a [`Hold`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldShard {
    /// Which one.
    pub shard: Shard,
    /// At which epoch.
    pub epoch: Epoch,
    /// Where it stood when it was taken.
    pub position: Position,
}

/// What a member gets when it takes a subscription's shards.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The proof that every later call carries.
    pub hold: Hold,
    /// Where to read on: behind what every held shard has come past. What a shard is past already is not
    /// read again.
    pub start: Position,
    /// Lanes that are parked: rows of theirs wait in the store.
    pub parked: Vec<Lane>,
}

/// The events of one key that wait for each other. The delayed ones form a lane of their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// The key.
    pub key: Key,
    /// Whether it is the lane of the key's delayed events.
    pub late: bool,
}

/// How much a read may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Events at the most.
    pub events: usize,
    /// Bytes of their content at the most, give or take the last event.
    pub bytes: usize,
}

/// A stretch of one window of the log, in delivery order.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The events that the filter wants.
    pub events: Vec<Arc<Event>>,
    /// The position behind the last event that was looked at, wanted or not.
    pub end: Position,
    /// Whether there was more than fitted, so that reading on at once is worth it.
    pub more: bool,
    /// Whether something has been seen that may not be handed out yet, so that reading again soon is worth it.
    pub soon: bool,
    /// Whether the subscription is paused; then nothing was read.
    pub paused: bool,
}

impl Chunk {
    /// Nothing behind `after`.
    pub fn empty(after: Position) -> Self {
        Self { events: Vec::new(), end: after, more: false, soon: false, paused: false }
    }

    /// Whether it leaves a reader where it was, at `after`: at some moment since the read began, nothing was new.
    pub fn is_empty_at(&self, after: Position) -> bool {
        self.end == after && self.events.is_empty() && !self.more && !self.soon
    }

    /// The position right behind one of this chunk's events.
    pub fn position_of(&self, event: &Event) -> Position {
        self.end.at(event.id)
    }
}

/// What is due now among the rows of a subscription.
#[derive(Debug, Clone, Default)]
pub struct DueRows {
    /// In the order of their due times.
    pub runs: Vec<Run>,
    /// How long until the next row is due; none if no row has a due time.
    pub next_in: Option<Duration>,
}

/// Rows of one lane that may be delivered one after the other, the first of them now.
#[derive(Debug, Clone)]
pub struct Run {
    /// The lane; none for an event without order.
    pub lane: Option<Lane>,
    /// Whether the first row is the head that parks its lane. Otherwise it has yet to enter it: a delayed
    /// event that has come due, or a replayed one.
    pub parks: bool,
    /// At least one row, in lane order.
    pub rows: Vec<DueRow>,
}

/// One row of a [`Run`].
#[derive(Debug, Clone)]
pub struct DueRow {
    /// The event, with its payload as edited if it was.
    pub event: Arc<Event>,
    /// Attempts made so far.
    pub attempts: u32,
    /// Its place in the lane.
    pub turn: i64,
    /// Whether an operator has given it up: it leaves the lane without being delivered.
    pub discarded: bool,
}

/// Everything that changed since the last settle; applied as a whole or not at all.
///
/// Applying the same settle twice has the effect of applying it once, so an owner that does not know
/// whether its last one was committed sends it again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settle {
    /// Where all held shards stand now; none if the mark did not move.
    pub mark: Option<Position>,
    /// Rows to write, each replacing an earlier one of the same event.
    pub rows: Vec<Row>,
    /// Events whose rows are done and go.
    pub done: Vec<EventId>,
    /// Lanes whose head is among the above and has left.
    pub freed: Vec<Lane>,
    /// Failed attempts to record.
    pub attempts: Vec<AttemptRecord>,
}

impl Settle {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.mark.is_none()
            && self.rows.is_empty()
            && self.done.is_empty()
            && self.freed.is_empty()
            && self.attempts.is_empty()
    }
}

/// The state of one delivery that is an exception: failed, delayed, slow, or waiting behind one that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The event.
    pub event_id: EventId,
    /// Its shard.
    pub shard: Shard,
    /// Its lane; none for an event without order.
    pub lane: Option<Lane>,
    /// Its place in the lane: the event id, or the due time of a delayed event in microseconds.
    pub turn: i64,
    /// Whether it keeps later events of its lane waiting.
    pub parks: bool,
    /// `pending`, `leased` (handed out, and the mark has passed it) or `dead`.
    pub state: DeliveryState,
    /// Attempts made so far.
    pub attempts: u32,
    /// When it may be attempted.
    pub due: RowDue,
}

/// When a row may be attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowDue {
    /// Not before the head of its lane has left.
    Waiting,
    /// At this instant of the database's clock.
    At(Timestamp),
    /// This long after the settle, on the database's clock.
    After(Duration),
}

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// The event.
    pub event_id: EventId,
    /// Which attempt, counted from 1.
    pub attempt: u32,
    /// How long ago it ended. Durations come from the member, instants from the database.
    pub ended_ago: Duration,
    /// How long it took.
    pub took: Duration,
    /// What went wrong.
    pub error: String,
}

/// What a settle brought about beyond what it said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Of the freed lanes, those of which no row is left.
    pub unparked: Vec<Lane>,
}
