//! A subscription together with what is done with its events.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Delivery, LogStore, NewSubscription, Outcome, Sink};

use crate::dispatch::batch_size::BatchSize;
use crate::dispatch::handler::{Batch, BatchFn, Each, Handle};

/// Events that a sink gets in one batch at the most, unless said otherwise.
const BATCH_EVENTS: usize = 500;

/// A subscription and what is done with its events, to be run by a [`Relay`](crate::Relay).
///
/// ```
/// use postrider_core::{Delivery, NewSubscription};
/// use postrider_runtime::Worker;
///
/// let subscription = NewSubscription::new("audit").topic("order")?;
/// let worker = Worker::new(subscription).each(|delivery: Delivery| async move {
///     println!("{} {}", delivery.id, delivery.kind);
///     Ok::<(), std::io::Error>(())
/// });
/// # let _ = worker;
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Worker<H> {
    subscription: NewSubscription,
    batch_events: usize,
    latency_goal: Option<Duration>,
    handler: H,
}

/// Handles events in tasks of the relay.
#[derive(Clone)]
pub struct InTasks(Arc<dyn Handle>);

/// Handles each event inside the transaction of the store that acks it.
pub struct InTransaction<W>(MakeWork<W>);

/// Makes a transactional handler's work for one event.
pub(crate) type MakeWork<W> = Arc<dyn Fn(Delivery) -> W + Send + Sync>;

impl<W> Clone for InTransaction<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What is done with an event: in tasks beside the store, or inside its transaction.
pub(crate) enum Work<S: LogStore> {
    Tasks(Arc<dyn Handle>),
    Transaction(MakeWork<S::Work>),
}

impl<S: LogStore> Clone for Work<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Tasks(handle) => Self::Tasks(Arc::clone(handle)),
            Self::Transaction(make) => Self::Transaction(Arc::clone(make)),
        }
    }
}

impl Worker<()> {
    /// A worker for `subscription`, which is created if it does not exist. Say next what is done with its
    /// events: [`each`](Self::each), [`batch`](Self::batch), [`sink`](Self::sink) or
    /// [`transactional`](Self::transactional).
    pub fn new(subscription: NewSubscription) -> Self {
        Self { subscription, batch_events: BATCH_EVENTS, latency_goal: None, handler: () }
    }

    /// At most this many events in a batch.
    #[must_use]
    pub fn batch_events(mut self, events: usize) -> Self {
        self.batch_events = events.max(1);
        self
    }

    /// Makes batches as large as the receiver deals with in this time, up to
    /// [`batch_events`](Self::batch_events): an event waits no longer for the others of its batch.
    #[must_use]
    pub fn latency_goal(mut self, goal: Duration) -> Self {
        self.latency_goal = Some(goal);
        self
    }

    /// Calls `handler` for each event. An error is an attempt that failed and will be made again; return a
    /// [`Failure`](postrider_core::Failure) to say more about it, or to
    /// [snooze](postrider_core::Failure::snooze). Handlers must not block their thread: give blocking work to
    /// `tokio::task::spawn_blocking`. In mode `queue` one that takes long should look whether it was
    /// [cancelled](postrider_core::Delivery::cancelled).
    pub fn each<F, Fut, E>(self, handler: F) -> Worker<InTasks>
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        self.with(InTasks(Arc::new(Each(handler))))
    }

    /// Calls `handler` with several events, no two of the same key, and expects one outcome per event
    /// in their order. A missing outcome counts as failed.
    pub fn batch<F, Fut>(self, handler: F) -> Worker<InTasks>
    where
        F: Fn(Vec<Delivery>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<Outcome>> + Send + 'static,
    {
        self.sink(BatchFn(handler))
    }

    /// Sends events to a sink, in batches.
    pub fn sink(self, sink: impl Sink) -> Worker<InTasks> {
        let size = BatchSize::new(self.batch_events, self.latency_goal);
        self.with(InTasks(Arc::new(Batch { sink, size })))
    }

    /// Does the work inside the transaction that records the ack, so that both commit or neither does. One
    /// event at a time, in the order of the log. The store crate says how to make the work. For mode `log`
    /// only: in mode `queue` a handler acks in a transaction of its own, by
    /// [`ack_in`](postrider_core::ack_in).
    pub fn transactional<W>(
        self,
        make: impl Fn(Delivery) -> W + Send + Sync + 'static,
    ) -> Worker<InTransaction<W>> {
        self.with(InTransaction(Arc::new(make)))
    }

    fn with<H>(self, handler: H) -> Worker<H> {
        let Self { subscription, batch_events, latency_goal, handler: () } = self;
        Worker { subscription, batch_events, latency_goal, handler }
    }
}

/// A worker that can run on a store: one with a handler, which for a transactional one must be made for
/// that store.
pub trait RunsOn<S: LogStore>: sealed::IntoDuty<S> {}

impl<S: LogStore, H> RunsOn<S> for Worker<H> where Self: sealed::IntoDuty<S> {}

/// A worker whose handler is settled.
pub(crate) struct Duty<S: LogStore> {
    pub(crate) subscription: NewSubscription,
    pub(crate) work: Work<S>,
}

mod sealed {
    use postrider_core::LogStore;

    pub trait IntoDuty<S: LogStore> {
        #[expect(private_interfaces, reason = "sealed: nobody outside can call it")]
        fn into_duty(self) -> super::Duty<S>;
    }
}

#[expect(private_interfaces, reason = "sealed: nobody outside can call it")]
impl<S: LogStore> sealed::IntoDuty<S> for Worker<InTasks> {
    fn into_duty(self) -> Duty<S> {
        Duty { subscription: self.subscription, work: Work::Tasks(self.handler.0) }
    }
}

#[expect(private_interfaces, reason = "sealed: nobody outside can call it")]
impl<S: LogStore> sealed::IntoDuty<S> for Worker<InTransaction<S::Work>> {
    fn into_duty(self) -> Duty<S> {
        Duty { subscription: self.subscription, work: Work::Transaction(self.handler.0) }
    }
}
