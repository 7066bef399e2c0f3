//! The way in: each call of the store contract, and the thread and transaction it runs in.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::balance::Survey;
use postrider_core::event::Listed;
use postrider_core::queue::{
    Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token,
};
use postrider_core::settle::{Chunk, DueRows, Hold, MemberId, Room, Settle, Settled, Taken};
use postrider_core::store::{
    Cancelled, DeadLetter, DeadLetterQuery, DeliveryReport, EventQuery, LetterId, Pace, Pruned, StoreReport,
    SubscriptionReport,
};
use postrider_core::{
    Event, EventId, Failure, LogStore, NewEvent, NewSubscription, Position, QueueStore, Result, ShardSet,
    Start, Store, Subscription, Timestamp, Tuning,
};
use rusqlite::Transaction;
use tokio::sync::Notify;

use crate::admin::event::Listing;
use crate::admin::subscription::Change;
use crate::admin::{check, dead_letter, event, report, seek, subscription};
use crate::audit::Auditor;
use crate::file::connection::{Commit, ConnectionThread, Writer, read};
use crate::file::{migrate, open};
use crate::log::durability::WalFlush;
use crate::log::reader::Reader;
use crate::log::{event as log_event, fetch};
use crate::options::{Durability, SqliteOptions};
use crate::ownership::fence::fence;
use crate::ownership::liveness::{Observer, Process};
use crate::ownership::{member, shard};
use crate::queue;
use crate::queue::claim::Claim;
use crate::queue::progress::progress_put_extended;
use crate::queue::sweep::{SweepTime, Sweepings};
use crate::retention::prune;
use crate::settle::work::{SettleWith, Work};
use crate::settle::{self, due};
use crate::subscription as subscriptions;

/// Postrider's tables in an SQLite file. Cheap to clone; all clones are the same store.
///
/// It has two connections of its own, which close when the last clone is dropped. Producers emit through
/// theirs.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    options: SqliteOptions,
    process: Process,
    wal: PathBuf,
    writer: ConnectionThread<Writer>,
    reader: ConnectionThread<Reader>,
    wake: Notify,
    /// Where the next bite of retention begins.
    prune_from: AtomicI64,
}

impl SqliteStore {
    /// Opens the file, checks it, and brings its schema up to date.
    ///
    /// Whatever makes the file unfit is found before anything is written: the error says what it is and
    /// what to do.
    pub async fn open(options: SqliteOptions) -> Result<Self> {
        let for_writer = options.clone();
        let (writer, (id, wal)) = ConnectionThread::start("writer", move || {
            let conn = open::open_writer(&for_writer)?;
            let found = (migrate::store_id(&conn)?, open::wal_path(&for_writer)?);
            Ok((Writer::new(conn), found))
        })
        .await?;
        let for_reader = options.clone();
        let flush = WalFlush::new(wal.clone());
        let (reader, ()) = ConnectionThread::start("reader", move || {
            let conn = open::open_reader(&for_reader)?;
            Ok((Reader { conn, flush, idle: HashMap::new() }, ()))
        })
        .await?;
        let inner = Inner {
            id,
            options,
            process: Process::current(),
            wal,
            writer,
            reader,
            wake: Notify::new(),
            prune_from: AtomicI64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Closes the store and waits until that is done, if this is its last clone. Whoever closes a database
    /// last moves the WAL into the file, so that the file alone is complete; without this call the
    /// connections close on their own threads, which the end of the process may forestall.
    pub async fn close(self) {
        if let Some(inner) = Arc::into_inner(self.inner) {
            inner.reader.close().await;
            inner.writer.close().await;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.inner.options.clock.now()
    }

    fn observer(&self) -> Observer {
        Observer {
            process: self.inner.process.clone(),
            uptime: self.inner.options.clock.uptime(),
            lease: self.inner.options.lease,
        }
    }

    fn uptime_us(&self) -> i64 {
        self.inner.options.clock.uptime().as_micros() as i64
    }

    pub(crate) fn auditor(&self, actor: &str) -> Auditor {
        Auditor { actor: actor.to_owned(), now: self.now() }
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.inner.reader.run(|reader| read(&reader.conn, work)).await
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        commit: Commit,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.inner.writer.run(move |writer| writer.transaction(commit, work)).await
    }

    /// What people change: flushed, and worth a look for all workers of this process.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let value = self.write(Commit::Flushed, work).await?;
        self.give_wake();
        Ok(value)
    }

    /// Lets all workers of this process look.
    pub(crate) fn give_wake(&self) {
        self.inner.wake.notify_waiters();
    }

    async fn subscription_change(&self, name: &str, change: Change) -> Result<Subscription> {
        let (name, now) = (name.to_owned(), self.now());
        self.change(move |tx| subscription::subscription_change(tx, &name, &change, now)).await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn id(&self) -> String {
        self.inner.id.clone()
    }

    async fn event_emit(&self, mut events: Vec<NewEvent>) -> Result<Vec<EventId>> {
        // Here and not below: the thread that writes has no trace of the caller's.
        events.iter_mut().for_each(postrider_core::emit::trace);
        let now = self.now();
        self.change(move |tx| event::event_emit(tx, &events, now)).await
    }

    async fn event_list(&self, query: EventQuery) -> Result<Vec<Listed>> {
        let mut listing = Listing::new(query);
        while !listing.done {
            listing = self
                .read(move |tx| {
                    listing.step(tx)?;
                    Ok(listing)
                })
                .await?;
        }
        Ok(listing.found)
    }

    async fn event_get(&self, id: EventId) -> Result<Option<Event>> {
        self.read(move |tx| log_event::event_get(tx, id)).await
    }

    async fn event_deliveries(&self, id: EventId) -> Result<Vec<DeliveryReport>> {
        self.read(move |tx| report::event_deliveries(tx, id)).await
    }

    async fn subscription_create(&self, new: NewSubscription) -> Result<Subscription> {
        let now = self.now();
        self.change(move |tx| subscription::subscription_create(tx, &new, now)).await
    }

    async fn subscription_get(&self, name: &str) -> Result<Subscription> {
        let name = name.to_owned();
        self.read(move |tx| subscriptions::subscription_get(tx, &name)).await
    }

    async fn subscription_list(&self) -> Result<Vec<SubscriptionReport>> {
        let (observer, now) = (self.observer(), self.now());
        self.read(move |tx| {
            subscriptions::subscription_list(tx)?
                .into_iter()
                .map(|found| report::subscription_report(tx, found, &observer, now))
                .collect()
        })
        .await
    }

    async fn subscription_report(&self, name: &str) -> Result<SubscriptionReport> {
        let (name, observer, now) = (name.to_owned(), self.observer(), self.now());
        self.read(move |tx| {
            let found = subscriptions::subscription_get(tx, &name)?;
            report::subscription_report(tx, found, &observer, now)
        })
        .await
    }

    async fn subscription_tune(&self, name: &str, tuning: Tuning) -> Result<Subscription> {
        self.subscription_change(name, Change::Tune(tuning)).await
    }

    async fn subscription_pause(&self, name: &str) -> Result<Subscription> {
        self.subscription_change(name, Change::Pause).await
    }

    async fn subscription_resume(&self, name: &str) -> Result<Subscription> {
        self.subscription_change(name, Change::Resume).await
    }

    async fn subscription_seek(&self, name: &str, to: Start, actor: &str) -> Result<Position> {
        let (name, auditor) = (name.to_owned(), self.auditor(actor));
        self.change(move |tx| seek::subscription_seek(tx, &name, to, &auditor)).await
    }

    async fn subscription_delete(&self, name: &str, actor: &str) -> Result<()> {
        let (name, auditor) = (name.to_owned(), self.auditor(actor));
        self.change(move |tx| subscription::subscription_delete(tx, &name, &auditor)).await
    }

    async fn dead_letter_list(&self, query: DeadLetterQuery) -> Result<Vec<DeadLetter>> {
        self.read(move |tx| dead_letter::dead_letter_list(tx, &query)).await
    }

    async fn dead_letter_get(&self, letter: &LetterId) -> Result<DeadLetter> {
        let letter = letter.clone();
        self.read(move |tx| dead_letter::dead_letter_get(tx, &letter)).await
    }

    async fn dead_letter_edit(&self, letter: &LetterId, payload: Bytes, actor: &str) -> Result<()> {
        let (letter, auditor) = (letter.clone(), self.auditor(actor));
        self.change(move |tx| dead_letter::dead_letter_edit(tx, &letter, &payload, &auditor)).await
    }

    async fn dead_letter_replay(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        let auditor = self.auditor(actor);
        self.change(move |tx| dead_letter::dead_letter_replay(tx, &which, &auditor)).await
    }

    async fn dead_letter_discard(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        let auditor = self.auditor(actor);
        self.change(move |tx| dead_letter::dead_letter_discard(tx, &which, &auditor)).await
    }

    async fn stats(&self) -> Result<StoreReport> {
        let (observer, now, wal) = (self.observer(), self.now(), self.inner.wal.clone());
        let location = format!("{} (SQLite {})", self.inner.options.path.display(), rusqlite::version());
        self.read(move |tx| {
            let bytes = open::bytes_on_disk(tx, &wal)?;
            report::store_report(tx, &observer, now, report::Place { location, bytes })
        })
        .await
    }

    async fn check(&self) -> Result<Vec<String>> {
        // Reading the whole file takes long; fetches must not wait for it.
        let options = self.inner.options.clone();
        let (_, found) = ConnectionThread::start("check", move || {
            let conn = open::open_reader(&options)?;
            let found = read(&conn, |tx| check::check(tx))?;
            Ok(((), found))
        })
        .await?;
        Ok(found)
    }

    async fn prune(&self, retention: Duration) -> Result<Pruned> {
        let cutoff = self.now().before(retention);
        let from = EventId(self.inner.prune_from.load(Ordering::Relaxed));
        let mut bite = self.read(move |tx| prune::pick(tx, from, cutoff)).await?;
        self.inner.prune_from.store(bite.next.0, Ordering::Relaxed);
        let ids = std::mem::take(&mut bite.ids);
        let removed = if ids.is_empty() {
            0
        } else {
            // Losing the removal in a power cut does no harm: the events are removed again.
            self.write(Commit::Plain, move |tx| prune::remove(tx, &ids)).await?
        };
        Ok(bite.pruned(removed))
    }
}

impl LogStore for SqliteStore {
    type Work = Work;

    fn pace(&self) -> Pace {
        Pace {
            // Twenty a second, so that producers seldom find the writer lock taken.
            settle_every: Duration::from_millis(50),
            // Each read that finds something flushes the WAL, and the disk has to do that between the commits
            // of a producer: at 1 ms its p99 grew by up to 1.8 times, at 5 ms it does not.
            poll_min: Duration::from_millis(5),
            // A quiet store is asked twenty times a second: half a percent of a core.
            poll_max: Duration::from_millis(50),
            // A file has nobody who could wake its readers.
            rest_max: None,
            lease: self.inner.options.lease,
        }
    }

    async fn member_join(&self, name: &str) -> Result<MemberId> {
        let (name, observer, now) = (name.to_owned(), self.observer(), self.now());
        self.write(Commit::Plain, move |tx| member::member_join(tx, &name, &observer, now)).await
    }

    async fn member_beat(&self, member: MemberId) -> Result<()> {
        let uptime_us = self.uptime_us();
        self.write(Commit::Plain, move |tx| member::member_beat(tx, member, uptime_us)).await
    }

    async fn member_leave(&self, member: MemberId) -> Result<()> {
        let now = self.now();
        self.write(Commit::Plain, move |tx| member::member_leave(tx, member, now)).await
    }

    async fn shards_survey(&self, subscription: &str, member: MemberId, stands: bool) -> Result<Survey> {
        let survey = || {
            let (name, observer) = (subscription.to_owned(), self.observer());
            self.read(move |tx| shard::survey(tx, &name, member, &observer))
        };
        let found = survey().await?;
        if !stands || found.members.contains(&member) {
            return Ok(found);
        }
        // Written once: producers should seldom find the writer lock taken.
        let name = subscription.to_owned();
        self.write(Commit::Plain, move |tx| shard::stand(tx, &name, member)).await?;
        survey().await
    }

    async fn shards_take(
        &self,
        subscription: &str,
        member: MemberId,
        wanted: ShardSet,
    ) -> Result<Option<Taken>> {
        let (name, observer, now) = (subscription.to_owned(), self.observer(), self.now());
        let take = move |tx: &Transaction<'_>| shard::shards_take(tx, &name, member, wanted, &observer, now);
        self.write(Commit::Plain, take).await
    }

    async fn shards_release(&self, hold: &Hold) -> Result<()> {
        let (hold, now) = (hold.clone(), self.now());
        self.write(Commit::Plain, move |tx| shard::shards_release(tx, &hold, now)).await
    }

    async fn fetch(&self, hold: &Hold, after: Position, room: Room) -> Result<Chunk> {
        let (hold, durability): (Hold, Durability) = (hold.clone(), self.inner.options.durability);
        self.inner.reader.run(move |reader| fetch::fetch(reader, &hold, after, room, durability)).await
    }

    async fn fetch_due(&self, hold: &Hold, loaded: HashSet<EventId>, room: Room) -> Result<DueRows> {
        let (hold, now) = (hold.clone(), self.now());
        self.read(move |tx| due::fetch_due(tx, &hold, &loaded, room, now)).await
    }

    async fn settle(&self, hold: &Hold, settle: Arc<Settle>) -> Result<Settled> {
        let (hold, now) = (hold.clone(), self.now());
        self.write(Commit::Plain, move |tx| {
            fence(tx, &hold)?;
            settle::settle_apply(tx, &hold, &settle, now)
        })
        .await
    }

    async fn settle_with(
        &self,
        hold: &Hold,
        settle: Arc<Settle>,
        work: Work,
    ) -> Result<Result<Settled, Failure>> {
        let call =
            SettleWith { hold: hold.clone(), settle, work, now: self.now(), beat_at: self.uptime_us() };
        self.inner.writer.run(move |writer| call.run(writer)).await
    }

    async fn wake(&self) {
        self.inner.wake.notified().await;
    }
}

impl QueueStore for SqliteStore {
    async fn fed(&self, hold: &Hold) -> Result<Fed> {
        let hold = hold.clone();
        self.read(move |tx| queue::feed::fed(tx, &hold)).await
    }

    async fn feed(&self, hold: &Hold, feed: Arc<Feed>) -> Result<Option<i64>> {
        let hold = hold.clone();
        self.write(Commit::Plain, move |tx| queue::feed::feed(tx, &hold, &feed)).await
    }

    async fn claim(&self, subscription: &Subscription, member: MemberId, ask: Ask) -> Result<Claimed> {
        let clock = Arc::clone(&self.inner.options.clock);
        let claim = Arc::new(Claim { subscription: subscription.clone(), member, ask, clock });
        let at = self.now();
        let looking = Arc::clone(&claim);
        let look = self.read(move |tx| looking.look(tx)).await?;
        if look.events == 0 {
            return Ok(Claimed { token: Token(0), at, rows: Vec::new(), paused: look.paused });
        }
        let lease = self.write(Commit::Flushed, move |tx| claim.take(tx)).await?;
        let rows = self.read(move |tx| queue::claim::load(tx, lease.rows)).await?;
        Ok(Claimed { token: lease.token, at: lease.at, rows, paused: lease.paused })
    }

    async fn extend(&self, tokens: Vec<Token>, progress: Vec<EventProgress>) -> Result<Vec<Extended>> {
        let clock = Arc::clone(&self.inner.options.clock);
        let extend = move |tx: &Transaction<'_>| {
            let extended = queue::claim::extend(tx, &tokens, clock.as_ref())?;
            progress_put_extended(tx, &progress, &extended, clock.now())?;
            Ok(extended)
        };
        self.write(Commit::Plain, extend).await
    }

    async fn queue_settle(
        &self,
        subscription: &Subscription,
        member: MemberId,
        settle: Arc<QueueSettle>,
    ) -> Result<QueueSettled> {
        let (subscription, now) = (subscription.clone(), self.now());
        let settle =
            move |tx: &Transaction<'_>| queue::settle::queue_settle(tx, &subscription, member, &settle, now);
        self.write(Commit::Plain, settle).await
    }

    async fn sweep(&self, subscription: &Subscription) -> Result<Swept> {
        let subscription = subscription.clone();
        let time = SweepTime { now: self.now(), uptime_us: self.uptime_us() };
        let looking = subscription.clone();
        let found = self.read(move |tx| Sweepings::look(tx, &looking, time)).await?;
        match found.nothing() {
            Some(swept) => Ok(swept),
            None => self.write(Commit::Plain, move |tx| queue::sweep::sweep(tx, &subscription, time)).await,
        }
    }

    async fn delivery_cancel(&self, letter: &LetterId, actor: &str) -> Result<Option<Cancelled>> {
        let (letter, auditor) = (letter.clone(), self.auditor(actor));
        self.change(move |tx| queue::cancel::delivery_cancel(tx, &letter, &auditor)).await
    }
}
