//! What people see of a store: its events, deliveries, subscriptions and members.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::delivery::DeliveryState;
use crate::event::{EventId, Key, Listed};
use crate::position::{Epoch, Position, Shard};
use crate::settle::MemberId;
use crate::store::actions::ActionReport;
use crate::store::query::LetterId;
use crate::subscription::Subscription;
use crate::time::Timestamp;

/// A delivery that will not be attempted again unless it is replayed.
#[derive(Clone, PartialEq)]
pub struct DeadLetter {
    /// Which one.
    pub letter: LetterId,
    /// The event as it was emitted.
    pub event: Listed,
    /// The payload that a replay will deliver, if it was edited; in listings the beginning of it.
    pub edited_payload: Option<Bytes>,
    /// How long that is; 0 if there is none.
    pub edited_bytes: u64,
    /// Whether its key waits for it.
    pub holds: bool,
    /// When it died.
    pub died_at: Timestamp,
    /// Attempts made.
    pub attempts: u32,
    /// What happened at each attempt, oldest first. Empty in listings but for the last one.
    pub history: Vec<AttemptReport>,
}

/// As of an [`Event`](crate::Event), and without what went wrong: receivers repeat what they were sent.
impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("letter", &self.letter)
            .field("event", &self.event)
            .field("edited_bytes", &self.edited_bytes)
            .field("holds", &self.holds)
            .field("died_at", &self.died_at)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

/// One recorded attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttemptReport {
    /// Which attempt, counted from 1.
    pub attempt: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// The member that made it.
    pub member: String,
    /// What went wrong, in full.
    pub error: String,
}

/// Where one event stands for one subscription.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeliveryReport {
    /// The subscription's name.
    pub subscription: String,
    /// Where it stands. Above the position it is pending.
    pub state: DeliveryState,
    /// Attempts that have begun since it was emitted or last replayed, the one that runs included. Nothing is
    /// known of them once it is done: see the history.
    pub attempts: u32,
    /// How many of these were lost with their worker. They are no failures, and a handler does not count
    /// them: what runs is attempt `attempts - lost` to it.
    pub lost: u32,
    /// When it may be attempted, if a time is set.
    pub due_at: Option<Timestamp>,
    /// The event of its key that it waits for.
    pub behind: Option<EventId>,
    /// How many events lie between the subscription's position and it, if the position has not reached it.
    pub ahead: Option<u64>,
    /// Whether the subscription is paused.
    pub paused: bool,
    /// What happened at each recorded attempt, oldest first.
    pub history: Vec<AttemptReport>,
    /// What people did to it, oldest first, at most the last [`limits::DELIVERY_ACTIONS_MAX`](crate::limits).
    /// None if this may not be read: then it is not known how it came to be done.
    pub actions: Option<Vec<ActionReport>>,
    /// What its handler wanted to be kept: a text, by convention JSON.
    pub result: Option<String>,
    /// How far its handler has come, or had when it ended.
    pub progress: Option<ProgressReport>,
}

/// How far a handler has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgressReport {
    /// How much is done, of a hundred.
    pub percent: Option<u8>,
    /// What it was doing.
    pub note: String,
    /// When that was written down, on the database's clock.
    pub at: Timestamp,
}

/// A subscription with its progress.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubscriptionReport {
    /// The subscription itself.
    pub subscription: Subscription,
    /// Who stands for it or holds some of its shards.
    pub members: Vec<MemberReport>,
    /// Its shards, in order.
    pub shards: Vec<ShardReport>,
    /// Events between the least advanced position and the end of the log that its filter wants. Of many it is
    /// an estimate, by the share of those that were looked at.
    pub lag_events: u64,
    /// Age of the oldest of these.
    pub lag: Option<Duration>,
    /// Rows that are pending: retries, delayed events and those that wait behind them.
    pub pending: u64,
    /// Rows that are handed out for long.
    pub leased: u64,
    /// Dead letters.
    pub dead: u64,
    /// Lanes that are parked; the first few of them, by the age of their head.
    pub parked: Vec<ParkedReport>,
    /// How many lanes are parked.
    pub parked_count: u64,
}

/// One shard of a subscription.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShardReport {
    /// Which one.
    pub shard: Shard,
    /// Where it stands.
    pub position: Position,
    /// At which epoch.
    pub epoch: Epoch,
    /// The member that holds it, unless it has been forgotten.
    pub member: Option<MemberId>,
}

/// A member of a subscription's group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberReport {
    /// Different for every start of a process.
    pub id: MemberId,
    /// Its name for people; several may have the same.
    pub name: String,
    /// Whether its lease lasts.
    pub lives: bool,
}

/// A lane that waits behind a failed event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParkedReport {
    /// Its key.
    pub key: Key,
    /// The event it waits for.
    pub head: EventId,
    /// How many events wait, the head included.
    pub waiting: u64,
    /// When the head is attempted again, if a time is set.
    pub due_at: Option<Timestamp>,
}

/// How a reader at rest learns of new events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wake {
    /// It looks, ten times a second.
    #[default]
    Poll,
    /// The first producer that commits wakes it.
    Notify,
}

impl Wake {
    /// As people write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Notify => "notify",
        }
    }
}

/// The store as a whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreReport {
    /// Its identity.
    pub store_id: String,
    /// Where it is and what it runs on, without secrets.
    pub location: String,
    /// Version of its schema.
    pub schema_version: u32,
    /// How readers at rest learn of new events.
    pub wake: Wake,
    /// Events that are there.
    pub events: u64,
    /// The newest event's id; none before the first.
    pub newest_id: Option<EventId>,
    /// When the oldest event was emitted.
    pub oldest_at: Option<Timestamp>,
    /// Bytes on disk.
    pub bytes: u64,
    /// Names of the members that live.
    pub members: Vec<String>,
    /// What a server keeps of its write-ahead log for readers of this store.
    pub slots: Vec<SlotReport>,
    /// All subscriptions, by name.
    pub subscriptions: Vec<SubscriptionReport>,
}

/// What a server keeps of its write-ahead log for one reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotReport {
    /// Its name.
    pub slot: String,
    /// Whether a reader follows it; none if the server does not have it any more.
    pub followed: Option<bool>,
    /// Bytes that are kept for it.
    pub kept_bytes: u64,
    /// How often readers have changed between it and the table.
    pub switches: u64,
    /// Where they read at last, and since when.
    pub reading: Option<(String, Timestamp)>,
}

/// What one bite of retention did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Events removed.
    pub removed: u64,
    /// Whether another bite would remove more.
    pub more: bool,
    /// The subscription that keeps older events from going, if one does.
    pub pinned_by: Option<String>,
}

/// What became of a delivery that was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cancelled {
    /// It waited, and is gone.
    Gone,
    /// It is in a worker's hands, which will be told.
    Told,
}
