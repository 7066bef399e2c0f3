//! The way in: what people do with a store, and the connection and transaction each call runs in.

pub(crate) mod log_store;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::event::Listed;
use postrider_core::store::{
    DeadLetter, DeadLetterQuery, DeliveryReport, EventQuery, LetterId, Payloads, Pruned, StoreReport,
    SubscriptionReport, Wake,
};
use postrider_core::{
    Emit, Event, EventId, NewEvent, NewSubscription, Position, Result, Start, Store, Subscription, Tuning,
};
use tokio::sync::{Mutex, Notify};
use tracing::{info, warn};

use crate::admin::adopt::{AdoptProgress, Adopted};
use crate::admin::outbox::Outbox;
use crate::admin::roles::Roles;
use crate::admin::subscription::Change;
use crate::admin::{adopt, check, dead_letter, delivery, event, outbox, report, seek, subscription};
use crate::emit::On;
use crate::log::fetch::SharedTail;
use crate::log::holding::Holdings;
use crate::log::log_rows::Appetite;
use crate::log::straggler::Stragglers;
use crate::options::{PostgresOptions, Source, TwoPhase};
use crate::queue::floors::Floors;
use crate::queue::hints::Hints;
use crate::retention::prune;
use crate::server::identity::{Identity, identify};
use crate::server::link::{Link, SharedLink};
use crate::server::migrate;
use crate::server::pooler::Way;
use crate::server::session::{Role, Session};
use crate::server::statement::Schema;
use crate::wake::sentry::Sentry;
use crate::wake::tell;
use crate::wal::{Reading, Wal};
use crate::{emit, wake, wal};

/// What people look at: in one transaction, so that all of it is read on one connection.
macro_rules! read {
    ($store:expr, |$tx:ident| $work:expr) => {{
        let mut session = $store.inner.operator.session().await?;
        let $tx = session.begin().await?;
        let value = $work.await?;
        $tx.commit("end a read").await?;
        value
    }};
}

/// What people change: whole or not at all, flushed, and worth a look for all workers, of this process or another.
macro_rules! change {
    ($store:expr, $what:literal, |$tx:ident| $work:expr) => {{
        let mut session = $store.inner.operator.session().await?;
        let $tx = session.begin().await?;
        let value = $work.await?;
        tell(&$tx).await?;
        $tx.commit($what).await?;
        $store.inner.wake.notify_waiters();
        value
    }};
}

/// Postrider's tables in a PostgreSQL database. Cheap to clone; all clones are the same store.
///
/// It opens connections as it needs them, at most one for each of nine purposes, and closes them when the last
/// clone is dropped. Producers emit through theirs.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) identity: Identity,
    payloads: Payloads,
    pub(crate) options: Arc<PostgresOptions>,
    pub(crate) way: Arc<Way>,
    pub(crate) reader: SharedLink,
    pub(crate) writer: Link,
    pub(crate) keeper: Link,
    pub(crate) settler: Link,
    pub(crate) claimer: Link,
    pub(crate) worker: Link,
    pub(crate) operator: Link,
    pub(crate) retention: Link,
    pub(crate) holdings: Holdings,
    pub(crate) hints: Hints,
    pub(crate) floors: Floors,
    /// Shared by all subscriptions of the process.
    pub(crate) tail: Mutex<SharedTail>,
    pub(crate) appetite: Appetite,
    pub(crate) stragglers: Stragglers,
    /// Told when something was written through this store that workers of this process may want to see.
    pub(crate) wake: Notify,
    /// Waits for what others write.
    pub(crate) sentry: Sentry,
    /// The log as the server's write-ahead log tells it, if that is wanted.
    pub(crate) wal: Option<Wal>,
}

impl PostgresStore {
    /// Connects, checks the server, and brings the schema up to date.
    pub async fn open(options: PostgresOptions) -> Result<Self> {
        if let Some(warning) = options.tls.warning(&options.config) {
            warn!(store = %options, "{warning}");
        }
        let options = Arc::new(options);
        let way = Way::new(options.pooler);
        let operator = Link::new(Role::Operator, &options, &way);
        let (id, payloads) = {
            let mut session = operator.session().await?;
            wal::source_check(options.source, session.wal_place())?;
            migrate::migrate(&mut session, &options).await?;
            (identified(&mut session, &options).await?, session.payloads())
        };
        if way.is_pooled() {
            info!(store = %options, "connected through a transaction pooler: new events are found by polling");
        }
        let inner = Arc::new_cyclic(|store| Inner {
            identity: Identity::new(id),
            payloads,
            reader: SharedLink::new(Role::Reader, &options, &way),
            writer: Link::new(Role::Writer, &options, &way),
            keeper: Link::new(Role::Keeper, &options, &way),
            settler: Link::new(Role::Settler, &options, &way),
            claimer: Link::new(Role::Claimer, &options, &way),
            worker: Link::new(Role::Worker, &options, &way),
            operator,
            retention: Link::new(Role::Retention, &options, &way),
            holdings: Holdings::default(),
            hints: Hints::default(),
            floors: Floors::default(),
            tail: Mutex::default(),
            appetite: Appetite::default(),
            stragglers: Stragglers::default(),
            wake: Notify::new(),
            sentry: Sentry::default(),
            wal: (options.source != Source::Poll).then(|| Wal::begin(store)),
            options,
            way,
        });
        Ok(Self { inner })
    }

    /// Creates the roles that are absent, and grants each the rights for its purpose in this store and no others. The
    /// user who opened the store must own the schema, and be allowed to create roles unless all of them exist.
    pub async fn roles_create(&self, roles: &Roles) -> Result<()> {
        let what = "create roles and grant them their rights";
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        tx.run(&roles.statements(), what).await?;
        tx.commit(what).await
    }

    /// Makes this server the home of a store that was restored from a dump, upgraded or replicated from
    /// another server, under a new identity. It reads and writes the whole log, batch by batch. After an
    /// interruption, the next call goes on. None if the store is at home here. The user in the options must own
    /// the schema.
    pub async fn adopt(options: PostgresOptions, actor: &str) -> Result<Option<Adopted>> {
        Self::adopt_with(options, actor, adopt::BATCH_EVENTS, |_| ()).await
    }

    /// The same by so many events at a time, telling how far it has come.
    pub async fn adopt_with(
        options: PostgresOptions,
        actor: &str,
        batch: u32,
        told: impl FnMut(AdoptProgress),
    ) -> Result<Option<Adopted>> {
        let options = Arc::new(options);
        let operator = Link::new(Role::Operator, &options, &Way::new(options.pooler));
        let mut session = operator.session().await?;
        migrate::migrate(&mut session, &options).await?;
        adopt::adopt(&mut session, actor, batch.max(1), told).await
    }

    /// The schema that holds the store's tables.
    pub fn schema(&self) -> &Schema {
        &self.inner.options.schema
    }

    /// Emits an event to this store's schema, in the caller's transaction. Without a store, or with another
    /// one, it is the schema that decides: `emit(&tx, …)` always writes to `postrider`, and [`Schema::on`] to
    /// the one that it names.
    ///
    /// ```no_run
    /// # async fn order(store: &postrider_postgres::PostgresStore, tx: tokio_postgres::Transaction<'_>) -> postrider_core::Result<()> {
    /// use postrider_core::Event;
    /// use postrider_postgres::tokio_postgres;
    ///
    /// store.emit(&tx, Event::new("order")).await?;
    /// # Ok(()) }
    /// ```
    pub fn emit<'a, M, T>(&'a self, tx: T, event: NewEvent) -> <On<'a, T> as Emit<M>>::Output
    where
        On<'a, T>: Emit<M>,
    {
        postrider_core::emit(self.schema().on(tx), event)
    }

    /// Where this process reads the log now, and how often that has changed.
    pub fn reading(&self) -> (Reading, u64) {
        self.inner.wal.as_ref().map_or((Reading::Table, 0), |wal| (wal.reading(), wal.switches()))
    }

    /// Removes the slot and the publication that relays with source `wal` have made; returns their names. No
    /// relay may follow them. The user who opened the store must own the schema and be allowed to replicate.
    pub async fn source_drop(&self, actor: &str) -> Result<Vec<String>> {
        wal::source_drop(&self.inner, actor).await
    }

    /// Makes events of the rows that another program inserts into its outbox table, in its own transactions,
    /// by a trigger; returns how many it made of existing rows. The user who opened the store must own the
    /// schema, and be allowed to make triggers on the table.
    ///
    /// It waits for writers of the table for two seconds at the most. The error is then retryable.
    pub async fn outbox_attach(&self, outbox: &Outbox, actor: &str) -> Result<u64> {
        Ok(change!(self, "attach an outbox table", |tx| outbox::outbox_attach(&tx, outbox, actor)))
    }

    /// Leaves an outbox table alone from now on; whether it was attached.
    pub async fn outbox_detach(&self, table: &str, actor: &str) -> Result<bool> {
        Ok(change!(self, "detach an outbox table", |tx| outbox::outbox_detach(&tx, table, actor)))
    }

    /// The outbox tables whose rows become events.
    pub async fn outbox_list(&self) -> Result<Vec<String>> {
        Ok(read!(self, |tx| outbox::outbox_list(&tx)))
    }

    /// Whether its connections go through a pooler, so that new events are polled for: nothing else can be.
    pub fn is_pooled(&self) -> bool {
        self.inner.way.is_pooled()
    }

    /// Chooses how relays at rest learn of new events: by asking ten times a second, which is the default, or from the
    /// first producer that commits. That takes a trigger on the log's table, so the user who opened the store must
    /// own the schema. Running relays take it up within a minute.
    ///
    /// It waits for producers for a tenth of a second at the most, because others wait behind it. The error is then
    /// retryable.
    pub async fn wake_set(&self, wake: Wake, two_phase: TwoPhase, actor: &str) -> Result<()> {
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        wake::wake_set(&tx, wake, two_phase, actor).await?;
        tx.commit("change how relays are woken").await
    }

    async fn subscription_change(&self, name: &str, change: Change) -> Result<Subscription> {
        Ok(change!(self, "change a subscription", |tx| subscription::subscription_change(&tx, name, &change)))
    }
}

async fn identified(session: &mut Session, options: &PostgresOptions) -> Result<String> {
    let tx = session.begin().await?;
    let id = identify(&tx, options).await?;
    tx.commit("find out who this store is").await?;
    Ok(id)
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.inner.options)
    }
}

impl Store for PostgresStore {
    fn id(&self) -> String {
        self.inner.identity.get()
    }

    fn payloads(&self) -> Payloads {
        self.inner.payloads
    }

    async fn event_emit(&self, events: Vec<NewEvent>) -> Result<Vec<EventId>> {
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        let ids = emit::event_emit(&tx, events).await?;
        tx.commit("emit events").await?;
        // Others are woken as by any producer.
        self.inner.wake.notify_waiters();
        Ok(ids)
    }

    async fn event_list(&self, query: EventQuery) -> Result<Vec<Listed>> {
        event::event_list(&self.inner.operator, &query).await
    }

    async fn event_get(&self, id: EventId) -> Result<Option<Event>> {
        let mut found = read!(self, |tx| event::event_get(&tx, [id]));
        Ok(found.remove(&id).map(|found| found.event))
    }

    async fn event_deliveries(&self, id: EventId) -> Result<Vec<DeliveryReport>> {
        Ok(read!(self, |tx| delivery::event_deliveries(&tx, id)))
    }

    async fn subscription_create(&self, new: NewSubscription) -> Result<Subscription> {
        Ok(change!(self, "create a subscription", |tx| subscription::subscription_create(&tx, &new)))
    }

    async fn subscription_get(&self, name: &str) -> Result<Subscription> {
        Ok(read!(self, |tx| subscription::subscription_get(&tx, name)))
    }

    async fn subscription_list(&self) -> Result<Vec<SubscriptionReport>> {
        Ok(read!(self, |tx| async {
            let found = subscription::subscription_list(&tx).await?;
            report::subscription_reports(&tx, found).await
        }))
    }

    async fn subscription_report(&self, name: &str) -> Result<SubscriptionReport> {
        let mut reports = read!(self, |tx| async {
            let found = subscription::subscription_get(&tx, name).await?;
            report::subscription_reports(&tx, vec![found]).await
        });
        Ok(reports.remove(0))
    }

    async fn subscription_tune(&self, name: &str, tuning: Tuning) -> Result<Subscription> {
        let tuned = self.subscription_change(name, Change::Tune(tuning)).await?;
        // A larger limit of keys makes rows ready.
        self.inner.hints.look_again(tuned.id);
        self.inner.wake.notify_waiters();
        Ok(tuned)
    }

    async fn subscription_pause(&self, name: &str) -> Result<Subscription> {
        self.subscription_change(name, Change::Pause).await
    }

    async fn subscription_resume(&self, name: &str) -> Result<Subscription> {
        self.subscription_change(name, Change::Resume).await
    }

    async fn subscription_seek(&self, name: &str, to: Start, actor: &str) -> Result<Position> {
        Ok(change!(self, "move a subscription", |tx| seek::subscription_seek(&tx, name, to, actor)))
    }

    async fn subscription_delete(&self, name: &str, actor: &str) -> Result<()> {
        change!(self, "delete a subscription", |tx| subscription::subscription_delete(&tx, name, actor));
        Ok(())
    }

    async fn dead_letter_list(&self, query: DeadLetterQuery) -> Result<Vec<DeadLetter>> {
        Ok(read!(self, |tx| dead_letter::dead_letter_list(&tx, &query)))
    }

    async fn dead_letter_get(&self, letter: &LetterId) -> Result<DeadLetter> {
        Ok(read!(self, |tx| dead_letter::dead_letter_get(&tx, letter)))
    }

    async fn dead_letter_edit(&self, letter: &LetterId, payload: Bytes, actor: &str) -> Result<()> {
        change!(self, "edit a dead letter", |tx| dead_letter::dead_letter_edit(&tx, letter, &payload, actor));
        Ok(())
    }

    async fn dead_letter_replay(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        Ok(change!(self, "replay dead letters", |tx| dead_letter::dead_letter_replay(&tx, &which, actor)))
    }

    async fn dead_letter_discard(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        Ok(change!(self, "discard dead letters", |tx| dead_letter::dead_letter_discard(&tx, &which, actor)))
    }

    async fn stats(&self) -> Result<StoreReport> {
        Ok(read!(self, |tx| report::store_report(&tx, &self.inner)))
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(read!(self, |tx| check::check(&tx, &self.inner.options)))
    }

    async fn prune(&self, retention: Duration) -> Result<Pruned> {
        prune::prune(&self.inner.retention, retention).await
    }
}
