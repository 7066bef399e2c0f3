//! What a store remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::queue::Token;
use postrider_core::refusal::subscription_missing;
use postrider_core::schedule::{ScheduleId, ScheduleReport};
use postrider_core::settle::{Lane, MemberId};
use postrider_core::store::AttemptReport;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{
    DeliveryState, Epoch, Event, EventId, Position, Result, Shard, ShardSet, Subscription, Timestamp,
};

use super::AuditLine;
use super::queue::Queue;

/// The time of one call. It is read once, as a transaction reads it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    pub(super) now: Timestamp,
    pub(super) uptime: Duration,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) shards: u16,
    pub(super) lease: Duration,
    pub(super) events: BTreeMap<EventId, Arc<Event>>,
    /// The last id that was given out; it outlives the event.
    pub(super) newest: EventId,
    pub(super) idempotency: BTreeMap<String, Taken>,
    /// Events whose idempotency key a newer one has taken over.
    pub(super) superseded: BTreeSet<EventId>,
    pub(super) subscriptions: BTreeMap<String, Progress>,
    pub(super) subscription_newest: SubscriptionId,
    pub(super) schedules: BTreeMap<String, ScheduleReport>,
    pub(super) schedule_newest: ScheduleId,
    pub(super) members: BTreeMap<MemberId, Member>,
    pub(super) member_newest: MemberId,
    pub(super) token_newest: Token,
    /// How often shards were taken that their last owner had not given back in order.
    pub(super) take_overs: u64,
    /// How often a claim was reaped.
    pub(super) reaps: u64,
    pub(super) effects: Vec<(EventId, String)>,
    pub(super) audit: Vec<AuditLine>,
}

/// Who holds an idempotency key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) by: EventId,
    /// None if for as long as the event is kept.
    pub(super) until: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// The uptime when it joined.
    pub(super) joined: Duration,
    /// The uptime at its last beat.
    pub(super) beat: Duration,
}

/// A subscription with all its state.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) subscription: Arc<Subscription>,
    pub(super) shards: Vec<OwnedShard>,
    /// Members that want a part of the shards.
    pub(super) standing: BTreeSet<MemberId>,
    pub(super) rows: BTreeMap<EventId, StoredRow>,
    /// Recorded attempts, oldest first. They outlive the row, so that an operator can ask what happened.
    pub(super) attempts: BTreeMap<EventId, Vec<StoredAttempt>>,
    /// In mode `queue`: what was fed and is not done.
    pub(super) queue: Queue,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct OwnedShard {
    pub(super) position: Position,
    pub(super) epoch: Epoch,
    pub(super) owner: Option<MemberId>,
    /// Its last owner did not give it back in order: what it had handed out may be handed out again.
    pub(super) left: bool,
}

#[derive(Debug, Clone)]
pub(super) struct StoredRow {
    pub(super) shard: Shard,
    pub(super) lane: Option<Lane>,
    pub(super) turn: i64,
    pub(super) parks: bool,
    pub(super) state: DeliveryState,
    pub(super) attempts: u32,
    /// None while it waits, is leased or is dead.
    pub(super) due: Option<Timestamp>,
    pub(super) edited: Option<Bytes>,
    pub(super) died_at: Option<Timestamp>,
    /// Given up while its lane waited for it; the owner takes it out of the lane.
    pub(super) discarded: bool,
    /// How often it was replayed. Each round starts a new count of attempts.
    pub(super) round: u32,
}

#[derive(Debug, Clone)]
pub(super) struct StoredAttempt {
    pub(super) round: u32,
    pub(super) report: AttemptReport,
}

impl State {
    pub(super) fn new(shards: u16, lease: Duration) -> Self {
        Self {
            shards,
            lease,
            events: BTreeMap::new(),
            newest: EventId(0),
            idempotency: BTreeMap::new(),
            superseded: BTreeSet::new(),
            subscriptions: BTreeMap::new(),
            subscription_newest: SubscriptionId(0),
            schedules: BTreeMap::new(),
            schedule_newest: ScheduleId(0),
            members: BTreeMap::new(),
            member_newest: MemberId(0),
            token_newest: Token(0),
            take_overs: 0,
            reaps: 0,
            effects: Vec::new(),
            audit: Vec::new(),
        }
    }

    pub(super) fn progress(&self, name: &str) -> Result<&Progress> {
        self.subscriptions.get(name).ok_or_else(|| subscription_missing(name))
    }

    pub(super) fn progress_mut(&mut self, name: &str) -> Result<&mut Progress> {
        self.subscriptions.get_mut(name).ok_or_else(|| subscription_missing(name))
    }

    pub(super) fn shard_of(&self, event: &Event) -> Shard {
        Shard::of(event.key.as_ref(), event.id, self.shards)
    }
}

impl Progress {
    /// The position of the shard that is least far.
    pub(super) fn least(&self) -> Position {
        self.shards.iter().map(|shard| shard.position).min().unwrap_or(Position::START)
    }

    /// The events that rows refer to.
    pub(super) fn referred(&self) -> impl Iterator<Item = EventId> {
        let queued = self.queue.rows.values().flat_map(|row| row.events.iter());
        self.rows.keys().copied().chain(queued)
    }

    pub(super) fn position(&self, shard: Shard) -> Position {
        self.shards[usize::from(shard.0)].position
    }

    /// The rows that park `lane`, in its order.
    pub(super) fn lane(&self, lane: &Lane) -> Vec<(EventId, &StoredRow)> {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| row.parks && row.lane.as_ref() == Some(lane))
            .map(|(id, row)| (*id, row))
            .collect();
        rows.sort_by_key(|(id, row)| (row.turn, *id));
        rows
    }

    /// The row that all others of `lane` wait for.
    pub(super) fn head(&self, lane: &Lane) -> Option<EventId> {
        self.lane(lane).into_iter().find(|(_, row)| row.is_head()).map(|(id, _)| id)
    }

    /// All lanes of which rows wait, in their order.
    pub(super) fn parked(&self, shards: ShardSet) -> Vec<Lane> {
        let rows = self.rows.values().filter(|row| row.parks && shards.contains(row.shard));
        let mut lanes: Vec<_> = rows.filter_map(|row| row.lane.clone()).collect();
        lanes.sort();
        lanes.dedup();
        lanes
    }

    /// Gives `lane` a head if rows of it wait and none of them is its head. Says whether any row is there. A
    /// head that is there already stays, so that a repeated settle promotes no row twice.
    pub(super) fn promote(&mut self, lane: &Lane, now: Timestamp) -> bool {
        let rows = self.lane(lane);
        let Some((first, _)) = rows.first() else { return false };
        let first = *first;
        if !rows.iter().any(|(_, row)| row.is_head())
            && let Some(row) = self.rows.get_mut(&first)
        {
            row.due = Some(now);
        }
        true
    }

    /// Leased rows are pending and due at once; the interrupted attempt is not counted.
    pub(super) fn reap(&mut self, shards: ShardSet, now: Timestamp) {
        let leased = |row: &&mut StoredRow| row.state == DeliveryState::Leased && shards.contains(row.shard);
        for row in self.rows.values_mut().filter(leased) {
            row.state = DeliveryState::Pending;
            row.due = Some(now);
        }
    }
}

impl StoredRow {
    /// Whether the others of its lane wait for this one.
    pub(super) fn is_head(&self) -> bool {
        self.due.is_some() || self.state != DeliveryState::Pending
    }
}
