//! What workers read and write in mode `queue`.
//!
//! ```text
//!   log ──feed──► queued rows ──claim──► leased ──settle──► done
//!                     ▲  ▲                 │ │
//!                     │  └──── reap ───────┘ │     the lease ran out
//!                     └─────── again, split ─┘     retry, snooze, given back
//! ```
//!
//! A **queued row** stands for one event, or for a **block** of them: at most
//! [`BLOCK_EVENTS_MAX`](crate::limits::BLOCK_EVENTS_MAX) that need neither order nor a due time. It is fed by
//! the owner of the subscription's shards, in the transaction that moves their position over the events, so
//! that each event is either above the position, or in a queued row, or a dead letter, or done.
//!
//! Rules that every store and every worker keeps:
//!
//! 1. A **claim** leases some rows under a **token** that no claim ever had before, and that is larger than
//!    any that these rows had. All of them have one lease, on the database's clock.
//! 2. Whatever is done to a leased row on behalf of its holder names the row and the token. If the row is
//!    gone, free, or leased under another token, nothing happens to it and the store tells the holder that it
//!    was **fenced**. A handler may take its event out of the queue itself, in its own transaction
//!    ([`ack_in`](crate::ack_in)), under the same rule.
//! 3. A claim whose lease has run out is **reaped**: its rows are free again. No other claim takes a leased row.
//!    A block that is reaped becomes one row for each of its events, because one of them may have ended its
//!    worker.
//! 4. Of the rows of one lane at most one, the head, is ready, due at a time, or leased. The others wait, in
//!    the order `(turn, event)`. When the head leaves, the same transaction makes the next one ready. Where
//!    keys have an order and ids become visible in any order, the store itself gives the turns, in the order
//!    in which rows are fed. Where keys have a limit and no order, a lane has as many heads as the limit
//!    says, ready or leased. A row that is to be attempted after a while leaves its lane, and enters it again
//!    when its time has come.
//! 5. Rows that are ready are claimed in the order of priority, virtual time and event. Virtual time is given
//!    when a row is fed, see [`feed`], and never taken back: a row that is ready again comes behind what has
//!    been claimed.

pub mod feed;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventId};
use crate::position::Position;
use crate::settle::{AttemptRecord, Lane};
use crate::time::Timestamp;

pub use crate::delivery::progress::{Board, EventProgress, Progress};
pub use crate::delivery::ticket::{Ticket, Token};
pub use spans::Spans;

/// How urgent an event is; the larger, the sooner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Priority(i8);

impl Priority {
    /// The header that carries it.
    pub const HEADER: &'static str = "postrider-priority";
    /// The most and the least urgent ones.
    pub const LEVELS: std::ops::RangeInclusive<i8> = -9..=9;

    /// The nearest level there is.
    pub fn new(level: i8) -> Self {
        Self(level.clamp(*Self::LEVELS.start(), *Self::LEVELS.end()))
    }

    /// Of an event. What cannot be understood counts as nothing said: a bad header must never lose an event.
    pub fn of(event: &Event) -> Self {
        let said = event.headers.get(Self::HEADER).and_then(|text| text.parse::<i64>().ok());
        said.map_or_else(Self::default, |level| Self::new(level.clamp(-9, 9) as i8))
    }

    /// As a number.
    pub fn level(self) -> i8 {
        self.0
    }
}

/// The header that says until when an event is worth delivering.
pub const EXPIRES_HEADER: &str = "postrider-expires-at";

/// When an event expires, if it does.
pub fn expires_at(event: &Event) -> Option<Timestamp> {
    event.headers.get(EXPIRES_HEADER).and_then(|text| text.parse().ok())
}

/// A row to be fed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The events that it stands for.
    pub events: Spans,
    /// Bytes of their content, so that a claim can be bounded before it is read.
    pub bytes: u32,
    /// How urgent they are.
    pub priority: Priority,
    /// Their virtual time.
    pub virtual_time: i64,
    /// Who has to share with others, if the subscription is fair.
    pub tenant: Option<i64>,
    /// The lane of an event that has an order, or whose key has a limit.
    pub lane: Option<Lane>,
    /// Its place in the lane: the event id, or the due time of an event in a lane of delayed ones in microseconds.
    pub turn: i64,
    /// Before when it may not be claimed.
    pub due_at: Option<Timestamp>,
}

/// What a feeder writes: rows, and how far they reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feed {
    /// Where all held shards stand now.
    pub mark: Position,
    /// What lies between that and where they stood, as far as it is wanted.
    pub rows: Vec<NewRow>,
}

/// What a feeder has to know of what was fed before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fed {
    /// The least virtual time among what is ready to be claimed; none if nothing is.
    pub front: Option<i64>,
    /// The largest virtual time of each tenant that has rows.
    pub tenants: Vec<(i64, i64)>,
    /// The largest of all.
    pub newest: Option<i64>,
}

/// How much a claim may bring. The first row comes whatever it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Rows at the most.
    pub rows: usize,
    /// Events at the most, give or take the last row.
    pub events: usize,
    /// Bytes at the most, give or take the last row.
    pub bytes: usize,
    /// Of these rows, how many at the most whose event has failed before: so that those which fail over and over leave
    /// room for the others.
    pub again: usize,
    /// Whether to look at everything, and not only where there was something to find lately: for one that
    /// ends when nothing is left.
    pub all: bool,
    /// How long the lease lasts unless it is extended.
    pub lease: Duration,
}

/// What a claim brought.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// Under which token all of it is leased.
    pub token: Token,
    /// When, on the database's clock.
    pub at: Timestamp,
    /// In the order in which it should be worked on; empty if nothing was ready.
    pub rows: Vec<LeasedRow>,
    /// Whether the subscription is paused; then nothing was claimed.
    pub paused: bool,
}

/// A row that was claimed.
#[derive(Debug, Clone)]
pub struct LeasedRow {
    /// Its name: the first of its events.
    pub id: EventId,
    /// Its events, in order, with their payload as edited if it was. One that is gone from the log is
    /// missing, and so is one that is [superseded](crate::unique): the worker takes it for done.
    pub events: Vec<Arc<Event>>,
    /// Whether it is a block.
    pub is_block: bool,
    /// How often it was claimed, this time included.
    pub started: u32,
    /// How many attempts have ended with a failure that counts.
    pub finished: u32,
}

impl LeasedRow {
    /// How many workers have ended with it in their hands.
    pub fn crashes(&self) -> u32 {
        self.started.saturating_sub(self.finished).saturating_sub(1)
    }
}

/// What became of some leased rows; applied as a whole. Rows that were fenced are left out.
///
/// Applying the same settle twice has the effect of applying it once: the second time, all is fenced. A row
/// whose fate is [`Fate::Acked`] is fenced only if its claim is gone too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueSettle {
    /// One by one.
    pub rows: Vec<SettledRow>,
    /// Failed attempts to record, of events in these rows.
    pub attempts: Vec<AttemptRecord>,
    /// What handlers want to be kept of their work, of events in these rows.
    pub results: Vec<EventResult>,
    /// How far handlers had come when they ended, of events in these rows, where that was not written down before.
    pub progress: Vec<EventProgress>,
    /// Those of the claims of these rows of which the worker has others in its hands. They are kept even if
    /// none of these is left in the store: their handlers may have acked them and still run.
    pub held: Vec<Token>,
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledRow {
    /// Its name.
    pub id: EventId,
    /// Under which token it was leased.
    pub token: Token,
    /// What became of it.
    pub fate: Fate,
}

/// What becomes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It goes, with all its events.
    Done,
    /// Its event is attempted again.
    Again(Again),
    /// Its event becomes a dead letter.
    Dead,
    /// Its handlers have acked all its events, these, in transactions of their own
    /// ([`ack_in`](crate::ack_in)). If they were committed, the row is gone, and the claim has one less. What
    /// is still there is freed as by a reap, unless such a transaction has it in hand just now: then it stays
    /// leased until the lease runs out.
    Acked(Vec<EventId>),
    /// It is a block, and goes. The events named here stay, each as a row of its own; all others are done.
    Split(Vec<(EventId, Remnant)>),
}

impl Fate {
    /// The events of the row that handlers have acked in transactions of their own.
    pub fn acked(&self) -> impl Iterator<Item = EventId> + '_ {
        let (all, some) = match self {
            Self::Acked(events) => (events.as_slice(), [].as_slice()),
            Self::Split(parts) => ([].as_slice(), parts.as_slice()),
            Self::Done | Self::Again(_) | Self::Dead => ([].as_slice(), [].as_slice()),
        };
        let some = some.iter().filter(|(_, remnant)| *remnant == Remnant::Acked).map(|(event, _)| *event);
        all.iter().copied().chain(some)
    }
}

/// What is left of an event of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remnant {
    /// It is attempted again.
    Again(Again),
    /// It becomes a dead letter.
    Dead,
    /// Its handler still runs: it stays leased under the same token.
    Running,
    /// Its handler has acked it in a transaction of its own. If it is still there, that was not committed,
    /// and it is handed out again.
    Acked,
}

/// When an event is attempted again, and what its attempt counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again {
    /// This long after the settle, on the database's clock.
    pub after: Duration,
    /// What the attempt counted for.
    pub count: Count,
}

/// What an attempt counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// It was made, and has failed.
    Failed,
    /// Nothing: the event was not touched, or asked to be left alone for a while.
    Nothing,
}

/// What a handler wants to be kept of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventResult {
    /// The event.
    pub event_id: EventId,
    /// A text, by convention JSON, of at most [`RESULT_BYTES_MAX`](crate::limits::RESULT_BYTES_MAX) bytes.
    pub result: String,
}

/// What a settle brought about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueSettled {
    /// Rows that were not leased under the token that was named.
    pub fenced: Vec<EventId>,
}

/// A claim that still holds, as its holder learns when it extends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extended {
    /// Which one.
    pub token: Token,
    /// Events of it that an operator has cancelled: their handlers should end, and whatever they say, they are
    /// not attempted again.
    pub cancelled: Vec<EventId>,
}

/// What a sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Claims whose lease had run out.
    pub reaped: u64,
    /// Rows whose time has come.
    pub due: u64,
    /// Lanes that had waited for no head: always zero, unless something is wrong.
    pub headless: u64,
    /// Lanes in which a row may wait for no head, and which are looked at again by the next sweep: another worker
    /// had them in hand.
    pub unsure: u64,
    /// How long until the next row is due; none if no row has a due time.
    pub next_due_in: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::event::{Headers, Kind, Topic};

    fn event(headers: &[(&str, &str)]) -> Event {
        let mut all = Headers::default();
        for (name, value) in headers {
            all.set(name, *value);
        }
        Event {
            id: EventId(1),
            topic: Topic::new("order"),
            kind: Kind::new("order.created"),
            key: None,
            payload: Bytes::new(),
            headers: all,
            created_at: Timestamp::from_micros(1),
            due_at: None,
            flaw: None,
        }
    }

    #[test]
    fn a_priority_that_cannot_be_understood_is_none() {
        let level = |text| Priority::of(&event(&[(Priority::HEADER, text)])).level();
        assert_eq!((level("3"), level("-9"), level("12"), level("-400")), (3, -9, 9, -9));
        assert_eq!((level("urgent"), level(""), level("1.5")), (0, 0, 0));
        assert_eq!(Priority::of(&event(&[])).level(), 0);
    }

    #[test]
    fn an_expiry_is_an_instant_or_nothing() {
        let at = |text| expires_at(&event(&[(EXPIRES_HEADER, text)]));
        assert_eq!(at("2026-11-16T08:00:00Z"), "2026-11-16T08:00:00Z".parse().ok());
        assert_eq!((at("soon"), expires_at(&event(&[]))), (None, None));
    }

    #[test]
    fn a_worker_that_ended_is_known_by_the_attempt_it_did_not_finish() {
        let row = |started, finished| LeasedRow {
            id: EventId(1),
            events: Vec::new(),
            is_block: false,
            started,
            finished,
        };
        assert_eq!((row(1, 0).crashes(), row(3, 2).crashes(), row(3, 0).crashes()), (0, 0, 2));
    }
}
