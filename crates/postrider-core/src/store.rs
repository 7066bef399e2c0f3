//! What a database must do for us: the contract in prose.
//!
//! [`Store`] is the part for people: the CLI, the API and the dashboard read and change state through it and
//! nothing else. [`ScheduleStore`] adds schedules. [`LogStore`] is the part for workers in mode `log`,
//! [`QueueStore`] what mode `queue` needs beyond it. The conformance suite of the testkit states each promise
//! below as a named test; a store is correct when it passes.
//!
//! For all of them: a call that returns an error has changed nothing, except that a lost connection may leave
//! its outcome unknown, so every call but [`LogStore::settle_with`], [`QueueStore::feed`] and
//! [`QueueStore::feed_and_claim`] may be repeated. A store never sleeps, spawns nothing but its
//! connections, and reads the time from the database's clock only. Dropping a returned future cancels
//! the wait; the call itself may still take effect.

mod actions;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::balance::Survey;
use crate::delivery::{DeliveryState, Failure};
use crate::error::Result;
use crate::event::{Event, EventId, Key, Listed, NewEvent};
use crate::filter::Filter;
use crate::position::{Epoch, Position, Shard, ShardSet};
use crate::queue::{
    Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token,
};
use crate::schedule::ScheduleStore;
use crate::settle::{Chunk, DueRows, Hold, MemberId, Room, Settle, Settled, Taken};
use crate::subscription::{NewSubscription, Start, Subscription, Tuning};
use crate::time::Timestamp;

pub use actions::{ActionReport, DeliveryAction};

/// Administration: what people do with a store. Cheap to clone; all clones are the same store.
///
/// Every change that destroys or skips something takes the name of the `actor` and leaves a line in the
/// store's audit table, in the same transaction.
pub trait Store: Clone + Send + Sync + 'static {
    /// The store's identity, made at its first migration, and anew when a failover or restore has made it
    /// another store; part of every deduplication id. It does not change while shards are held.
    fn id(&self) -> String;

    /// Whether payloads and headers are shown to whoever has opened the store. Where they are withheld, events and dead
    /// letters come with empty ones, which says nothing about what was emitted.
    fn payloads(&self) -> Payloads {
        Payloads::Shown
    }

    /// Emits events in one transaction of the store's own, for producers without a transaction, such as
    /// the CLI. All or none are written; the ids come in order. They carry the caller's trace, as by
    /// [`emit`](crate::emit()). Durable on return.
    fn event_emit(&self, events: Vec<NewEvent>) -> impl Future<Output = Result<Vec<EventId>>> + Send;

    /// Events, newest first, with the beginning of their payloads: what a page takes is bounded in bytes. No
    /// column travels further than it is shown, and filters look at the first
    /// [`NAME_BYTES_MAX`](crate::limits::NAME_BYTES_MAX) bytes of names.
    fn event_list(&self, query: EventQuery) -> impl Future<Output = Result<Vec<Listed>>> + Send;

    /// One event, if it is still there; whole, but for what breaks a limit.
    fn event_get(&self, id: EventId) -> impl Future<Output = Result<Option<Event>>> + Send;

    /// Where an event stands for each subscription that wants it, in the order of their names.
    fn event_deliveries(&self, id: EventId) -> impl Future<Output = Result<Vec<DeliveryReport>>> + Send;

    /// Creates a subscription; `Conflict` if the name is taken. From its start position on, retention
    /// keeps what it has not been delivered.
    fn subscription_create(&self, new: NewSubscription) -> impl Future<Output = Result<Subscription>> + Send;

    /// One subscription by name; `NotFound` if there is none.
    fn subscription_get(&self, name: &str) -> impl Future<Output = Result<Subscription>> + Send;

    /// All subscriptions with their progress, by name.
    fn subscription_list(&self) -> impl Future<Output = Result<Vec<SubscriptionReport>>> + Send;

    /// One subscription with its progress.
    fn subscription_report(&self, name: &str) -> impl Future<Output = Result<SubscriptionReport>> + Send;

    /// Changes what may change at any time. Running workers take it up when they next take ownership.
    fn subscription_tune(
        &self,
        name: &str,
        tuning: Tuning,
    ) -> impl Future<Output = Result<Subscription>> + Send;

    /// Stops hand-out until resumed; idempotent. What runs is finished.
    fn subscription_pause(&self, name: &str) -> impl Future<Output = Result<Subscription>> + Send;

    /// Ends a pause; idempotent.
    fn subscription_resume(&self, name: &str) -> impl Future<Output = Result<Subscription>> + Send;

    /// Moves the position of every shard and fences the present owner. Rows above the new position go,
    /// since their events will be read again; rows below it stay.
    fn subscription_seek(
        &self,
        name: &str,
        to: Start,
        actor: &str,
    ) -> impl Future<Output = Result<Position>> + Send;

    /// Removes a subscription with all its state, and fences the present owner.
    fn subscription_delete(&self, name: &str, actor: &str) -> impl Future<Output = Result<()>> + Send;

    /// Dead letters, oldest event first, with the beginning of their payloads.
    fn dead_letter_list(
        &self,
        query: DeadLetterQuery,
    ) -> impl Future<Output = Result<Vec<DeadLetter>>> + Send;

    /// One dead letter with its attempts, whole; `NotFound` if that delivery is not dead.
    fn dead_letter_get(&self, letter: &LetterId) -> impl Future<Output = Result<DeadLetter>> + Send;

    /// Replaces the payload that a replay will deliver. The event itself stays as it was emitted.
    fn dead_letter_edit(
        &self,
        letter: &LetterId,
        payload: Bytes,
        actor: &str,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Sends dead letters round again with their attempts counted anew; returns how many. A letter that
    /// is no longer dead is passed over, so that two replays at once replay it once. Under
    /// [`OnDead::Skip`](crate::OnDead::Skip) it re-enters its key's lane behind what waits there.
    fn dead_letter_replay(
        &self,
        which: DeadLetterQuery,
        actor: &str,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Gives dead letters up for good; returns how many. A lane that was held goes on.
    fn dead_letter_discard(
        &self,
        which: DeadLetterQuery,
        actor: &str,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// The store as a whole.
    fn stats(&self) -> impl Future<Output = Result<StoreReport>> + Send;

    /// Looks for damage; an empty list is a clean bill of health.
    fn check(&self) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// Removes one bite of events older than `retention` that every subscription, paused ones included, is past
    /// and that no row refers to. A bite is at most [`PRUNE_ROWS_MAX`](crate::limits::PRUNE_ROWS_MAX) rows, or a
    /// whole piece of the log at little cost; a piece may stay until all of its events are old enough. Called
    /// every minute or so, and again at once while there is more.
    fn prune(&self, retention: Duration) -> impl Future<Output = Result<Pruned>> + Send;
}

/// Whether payloads and headers can be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Payloads {
    /// As they were emitted.
    #[default]
    Shown,
    /// The database lets this role look at everything else.
    Withheld,
}

/// What workers do with a store in mode `log`.
///
/// # Ownership
///
/// A process joins once and beats while it lives. It takes a subscription's shards; each change of owner
/// adds one to a shard's epoch. Whoever holds an older epoch gets `Fenced` from every call that carries
/// its [`Hold`] and has thereby changed nothing. The shards of a member that left, whose process is known
/// to be dead, or that has not beaten for [`Pace::lease`] may be taken; leased rows are then pending and
/// due at once, with no attempt counted.
///
/// # Reading
///
/// `fetch` returns the wanted events behind a position in delivery order: for each key the order in which
/// its owner emitted. It returns each committed event exactly once as the caller moves from chunk to
/// chunk, whatever transactions are open, and never one that could still vanish: what it returns is
/// durable. It must be cheap when nothing is new, since it is called whenever the worker's poll comes
/// round.
///
/// No row may stop a read. Whatever has come by plain SQL, every event that is read, here, among due rows or
/// by a claim, is made by [`StoredEvent::into_event`](crate::event::StoredEvent): no column that breaks its
/// limit travels in full, and the event comes with a [`Flaw`](crate::event::Flaw). What a read brings is
/// bounded in bytes of all columns.
///
/// # Writing
///
/// Only the owner writes positions and rows, in `settle`, under its epochs. Operators change rows that
/// are `dead`, which an owner never touches. See [`settle`](crate::settle) for the rules that bind rows,
/// lanes and the mark.
pub trait LogStore: ScheduleStore {
    /// What a transactional handler does inside the settle's transaction; the store crate says how to
    /// make one.
    type Work: Send + 'static;

    /// The rhythm that suits this store.
    fn pace(&self) -> Pace;

    /// Registers this process under a name for people. The identity is fresh at every call.
    fn member_join(&self, name: &str) -> impl Future<Output = Result<MemberId>> + Send;

    /// Says that the member lives; `Fenced` if it has been forgotten.
    fn member_beat(&self, member: MemberId) -> impl Future<Output = Result<()>> + Send;

    /// Forgets the member and frees what it holds.
    fn member_leave(&self, member: MemberId) -> impl Future<Output = Result<()>> + Send;

    /// Who stands for a subscription and lives, and who holds its shards. `stands` says whether the caller wants a part
    /// of them from now on, until it leaves or its lease runs out.
    fn shards_survey(
        &self,
        subscription: &str,
        member: MemberId,
        stands: bool,
    ) -> impl Future<Output = Result<Survey>> + Send;

    /// Takes those of the `wanted` shards of a subscription that no other living member holds, and the member's own
    /// anew; none if there are none. Positions and parked lanes are read after ownership has changed, in the same
    /// transaction. Whoever holds other shards is not disturbed; whoever loses some is forgotten.
    fn shards_take(
        &self,
        subscription: &str,
        member: MemberId,
        wanted: ShardSet,
    ) -> impl Future<Output = Result<Option<Taken>>> + Send;

    /// Gives the shards of a hold back, so that another member need not wait; their leased rows are pending again.
    fn shards_release(&self, hold: &Hold) -> impl Future<Output = Result<()>> + Send;

    /// Reads on in the log, within one window. What the position of an event's own shard covered when the
    /// shards were taken is passed over, and so are events of shards that are not held.
    fn fetch(&self, hold: &Hold, after: Position, room: Room) -> impl Future<Output = Result<Chunk>> + Send;

    /// Reads rows that are due and not in `loaded`, the events that the owner has in memory already. The
    /// first row of each run is due; the others wait behind it. Nothing is written: the rows are the
    /// owner's until it settles them.
    fn fetch_due(
        &self,
        hold: &Hold,
        loaded: HashSet<EventId>,
        room: Room,
    ) -> impl Future<Output = Result<DueRows>> + Send;

    /// Writes everything or nothing, under the epochs of `hold`. The mark never moves back. Losing a
    /// committed settle in a crash of the database costs duplicates, never an event, so it need not be
    /// flushed.
    fn settle(&self, hold: &Hold, settle: Arc<Settle>) -> impl Future<Output = Result<Settled>> + Send;

    /// Settles and does a transactional handler's work in one transaction, flushed on return. If the work
    /// fails, nothing is written.
    ///
    /// This is the one call that must not simply be repeated: after an error it is not known whether the work
    /// was committed. The ack went with it, so the store knows: the caller discards its memory, takes the
    /// shards again and goes on from their positions.
    fn settle_with(
        &self,
        hold: &Hold,
        settle: Arc<Settle>,
        work: Self::Work,
    ) -> impl Future<Output = Result<Result<Settled, Failure>>> + Send;

    /// Resolves when there may be something new to fetch. It is a hint without content: it may come late,
    /// for nothing, or never, and losing every one of them costs latency only.
    fn wake(&self) -> impl Future<Output = ()> + Send;

    /// Long polling: keeps watch, so that a reader need not ask again and again. What becomes visible to no read that
    /// began after this returned resolves the watch. So a reader asks for a watch, reads once more, and if that read
    /// leaves it where it is, waits for the watch instead of polling.
    ///
    /// None if no watch can be kept now: the reader polls on and asks again when it comes to its longest wait, which is
    /// the only time at which it asks. A watch is a wake like any other: it may end for nothing, and if it is lost,
    /// the next read comes after [`Pace::rest_max`].
    fn watch(&self) -> impl Future<Output = Option<Watch>> + Send {
        std::future::ready(None)
    }
}

/// What workers do with a store in mode `queue`.
///
/// Whoever holds all shards of the subscription feeds: reads the log by [`LogStore::fetch`] and writes queued rows by
/// [`feed`](Self::feed). Whoever works claims, needs no shard for that, and is fenced by tokens. See
/// [`queue`](crate::queue) for the rules.
pub trait QueueStore: LogStore {
    /// What was fed so far and is not done, for a feeder that begins.
    fn fed(&self, hold: &Hold) -> impl Future<Output = Result<Fed>> + Send;

    /// Moves the position of all held shards and writes the rows that lie between, in one transaction, under
    /// the epochs of `hold`. A row with a lane is ready if nothing of its lane is there, and waits otherwise.
    /// Where the queue stands now is returned if the subscription is fair, and may be none otherwise.
    ///
    /// Losing a committed feed in a crash of the database loses the position with it, so it need not be
    /// flushed. It must not be repeated: after an error it is not known whether the rows are there, and
    /// perhaps done already. The feeder takes the shards again and goes on from their positions.
    fn feed(&self, hold: &Hold, feed: Arc<Feed>) -> impl Future<Output = Result<Option<i64>>> + Send;

    /// Feeds, and claims for the member of `hold` as [`claim`](Self::claim) does, at best in one transaction:
    /// where workers wait in the process that feeds, this is the shortest way from a commit to a handler.
    /// `events` are those that the rows are made of, so that they need not be read again. What is fed is fed
    /// whatever becomes of the claim.
    fn feed_and_claim(
        &self,
        hold: &Hold,
        feed: Arc<Feed>,
        events: Vec<Arc<Event>>,
        ask: Ask,
    ) -> impl Future<Output = Result<(Option<i64>, Result<Claimed>)>> + Send {
        drop(events);
        async move {
            let front = self.feed(hold, feed).await?;
            Ok((front, self.claim(&hold.subscription, hold.member, ask).await))
        }
    }

    /// Leases rows that are ready, in order. Durable on return: a token that a crash of the database forgot
    /// could be given to somebody else. An answer that was lost leaves a claim that nobody extends.
    fn claim(
        &self,
        subscription: &Subscription,
        member: MemberId,
        ask: Ask,
    ) -> impl Future<Output = Result<Claimed>> + Send;

    /// Makes the leases of some claims last from now on, each as long as was asked for. A claim that is not
    /// in the answer has been reaped or is settled to the last row. With it goes how far handlers have come
    /// with events of these claims; of a claim that is not there nothing is written.
    fn extend(
        &self,
        tokens: Vec<Token>,
        progress: Vec<EventProgress>,
    ) -> impl Future<Output = Result<Vec<Extended>>> + Send;

    /// Writes what became of leased rows. An event that somebody has cancelled meanwhile goes, whatever its
    /// fate. Losing a committed settle in a crash of the database costs duplicates, never an event, so it
    /// need not be flushed.
    fn queue_settle(
        &self,
        subscription: &Subscription,
        member: MemberId,
        settle: Arc<QueueSettle>,
    ) -> impl Future<Output = Result<QueueSettled>> + Send;

    /// Reaps claims whose lease has run out, and makes rows ready whose time has come. Any member may do it
    /// at any time; claims bring nothing that only a sweep would find. At most
    /// [`SWEEP_ROWS_MAX`](crate::limits::SWEEP_ROWS_MAX) rows of each kind.
    fn sweep(&self, subscription: &Subscription) -> impl Future<Output = Result<Swept>> + Send;

    /// Ends a delivery that nobody wants any more; none if there is nothing to end. One that is in a worker's hands is
    /// ended by its worker, which learns of it when it extends its lease.
    fn delivery_cancel(
        &self,
        letter: &LetterId,
        actor: &str,
    ) -> impl Future<Output = Result<Option<Cancelled>>> + Send;
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

/// Ends when there may be something new; see [`LogStore::watch`].
pub type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The rhythm that suits a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Shortest time between two settles of a subscription.
    pub settle_every: Duration,
    /// Shortest wait between two reads that found nothing.
    pub poll_min: Duration,
    /// Longest wait between two reads.
    pub poll_max: Duration,
    /// The same while a watch is kept; none if the store keeps none.
    pub rest_max: Option<Duration>,
    /// How long a member that does not beat is believed to live.
    pub lease: Duration,
}

/// Which events to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// By topic and type.
    pub filter: Filter,
    /// By key.
    pub key: Option<Key>,
    /// Only events with a smaller id: the next page.
    pub before: Option<EventId>,
    /// How many at the most; capped at [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX).
    pub limit: usize,
}

/// Which dead letters to list, replay or discard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// Of one subscription only.
    pub subscription: Option<String>,
    /// Of one event only.
    pub event_id: Option<EventId>,
    /// Only letters of events with a larger id: the next page.
    pub after: Option<EventId>,
    /// How many at the most; capped at [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX).
    pub limit: usize,
}

/// One dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct LetterId {
    /// The subscription's name.
    pub subscription: String,
    /// The event.
    pub event_id: EventId,
}

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

/// As of an [`Event`], and without what went wrong: receivers repeat what they were sent.
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
    /// Whether somebody follows it; none if the server does not have it any more.
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
