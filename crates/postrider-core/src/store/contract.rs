//! The four contracts: for people, for schedules, and for workers in both modes.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::delivery::Failure;
use crate::error::Result;
use crate::event::{Event, EventId, Listed, NewEvent};
use crate::position::{Position, ShardSet};
use crate::queue::{
    Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token,
};
use crate::schedule::{DueSchedules, Fire, Fired, NewSchedule, Schedule, ScheduleReport};
use crate::settle::{Chunk, DueRows, Hold, MemberId, Room, Settle, Settled, Taken};
use crate::store::query::{DeadLetterQuery, EventQuery, LetterId};
use crate::store::report::{Cancelled, DeadLetter, DeliveryReport, Pruned, StoreReport, SubscriptionReport};
use crate::subscription::balance::Survey;
use crate::subscription::{NewSubscription, Start, Subscription, Tuning};

/// Administration: what people do with a store. Cheap to clone; all clones are the same store.
///
/// Every change that destroys or skips something takes the name of the `actor` and leaves a line in the
/// store's audit table, in the same transaction.
pub trait Store: Clone + Send + Sync + 'static {
    /// The store's identity, made at its first migration, and again when a failover or restore has made it
    /// another store; part of every deduplication id. It does not change while shards are held.
    fn id(&self) -> String;

    /// Whether payloads and headers are shown to the role that has opened the store. Where they are withheld,
    /// events and dead letters come with empty ones, which says nothing about what was emitted.
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

    /// Sends dead letters round again with their attempts counted from zero; returns how many. A letter that
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

/// Schedules: people put, pause and delete them, workers fire them. What the head of
/// [`store`](crate::store) says of errors, repetition and time holds here too.
pub trait ScheduleStore: Store {
    /// Creates a schedule, or replaces the one of this name, which leaves a line in the audit table. One
    /// whose expression and time zone stay the same goes on where it stands, with what it has missed; any
    /// other goes on from now. A pause lasts on. Nothing is written if nothing would change, so that a
    /// program may put its schedules whenever it starts.
    ///
    /// `Conflict` if there are [`SCHEDULES_MAX`](crate::limits::SCHEDULES_MAX) others.
    fn schedule_put(&self, new: NewSchedule, actor: &str) -> impl Future<Output = Result<Schedule>> + Send;

    /// One schedule by name, with what it emits; `NotFound` if there is none. Payload and headers are empty where they
    /// are [`Withheld`](crate::store::Payloads::Withheld).
    fn schedule_get(&self, name: &str) -> impl Future<Output = Result<ScheduleReport>> + Send;

    /// All schedules, by name.
    fn schedule_list(&self) -> impl Future<Output = Result<Vec<Schedule>>> + Send;

    /// Keeps a schedule from being fired until it is resumed; idempotent.
    fn schedule_pause(&self, name: &str) -> impl Future<Output = Result<Schedule>> + Send;

    /// Ends a pause; idempotent. What was missed meanwhile is treated like anything else that was missed.
    fn schedule_resume(&self, name: &str) -> impl Future<Output = Result<Schedule>> + Send;

    /// Removes a schedule. Its events stay.
    fn schedule_delete(&self, name: &str, actor: &str) -> impl Future<Output = Result<()>> + Send;

    /// The schedules whose time has come. Called by every relay whenever one may be due, and every few
    /// seconds: it must be cheap if none is.
    fn schedules_due(&self) -> impl Future<Output = Result<DueSchedules>> + Send;

    /// Emits the schedule's event for each of the ticks and moves it on, in one transaction, if it stands
    /// where the caller saw it, is not paused, and has not been replaced. Otherwise nothing is changed.
    /// Whatever the answer, and also if it was lost, the caller looks again.
    ///
    /// The events are made of what is stored and not of what the caller knows, so that who fires need not be
    /// allowed to emit.
    fn schedule_fire(&self, fire: Fire) -> impl Future<Output = Result<Fired>> + Send;
}

/// What workers do with a store in mode `log`.
///
/// # Ownership
///
/// A process joins once and beats while it lives. It takes a subscription's shards; each change of owner
/// adds one to a shard's epoch. A member with an older epoch gets `Fenced` from every call that carries
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
    /// again; none if there are none. Positions and parked lanes are read after ownership has changed, in the same
    /// transaction. A member that holds other shards is not disturbed; one that loses some is forgotten.
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
/// The member that holds all shards of the subscription feeds: it reads the log by [`LogStore::fetch`] and
/// writes queued rows by [`feed`](Self::feed). A worker claims, needs no shard for that, and is fenced by
/// tokens. See [`queue`](crate::queue) for the rules.
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
    /// could be given to another claim. An answer that was lost leaves a claim that no worker extends.
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

    /// Writes what became of leased rows. An event that was cancelled meanwhile goes, whatever its
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

    /// Ends a delivery that is not wanted any more; none if there is nothing to end. One that is in a worker's hands is
    /// ended by its worker, which learns of it when it extends its lease.
    fn delivery_cancel(
        &self,
        letter: &LetterId,
        actor: &str,
    ) -> impl Future<Output = Result<Option<Cancelled>>> + Send;
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
