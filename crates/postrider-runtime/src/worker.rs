//! A subscription together with what is done with its events.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;

use postrider_core::{Delivery, LogStore, NewSubscription, Outcome, Sink};

use crate::handler::{Batch, BatchFn, Each, Handle};

/// Events that a sink gets in one batch at the most, unless said otherwise.
const BATCH_EVENTS: usize = 500;

/// A subscription and its handler, to be run by a [`Relay`](crate::Relay).
///
/// Made by [`Worker::on`] and one of the methods that say what is done with an event.
pub struct Worker<S: LogStore> {
    pub(crate) subscription: NewSubscription,
    pub(crate) work: Work<S>,
}

/// What is done with an event: in tasks beside the store, or inside its transaction.
pub(crate) enum Work<S: LogStore> {
    Tasks(Arc<dyn Handle>),
    Transaction(Arc<dyn Fn(Delivery) -> S::Work + Send + Sync>),
}

impl<S: LogStore> Clone for Work<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Tasks(handle) => Self::Tasks(Arc::clone(handle)),
            Self::Transaction(make) => Self::Transaction(Arc::clone(make)),
        }
    }
}

/// A subscription that has no handler yet.
#[must_use = "say what is done with its events: each, batch, sink or transactional"]
pub struct WorkerOn {
    subscription: NewSubscription,
    batch_events: usize,
}

impl<S: LogStore> Worker<S> {
    /// A worker for `subscription`, which is created if it does not exist.
    #[expect(clippy::new_ret_no_self, reason = "a worker is complete once it has a handler")]
    pub fn new(subscription: NewSubscription) -> WorkerOn {
        WorkerOn { subscription, batch_events: BATCH_EVENTS }
    }
}

impl WorkerOn {
    /// At most this many events in a batch.
    pub fn batch_events(mut self, events: usize) -> Self {
        self.batch_events = events.max(1);
        self
    }

    /// Calls `handler` for each event. An error is an attempt that failed and will be made again;
    /// return a [`Failure`](postrider_core::Failure) to say more about it. Handlers must not block their
    /// thread: give blocking work to `tokio::task::spawn_blocking`.
    pub fn each<S, F, Fut, E>(self, handler: F) -> Worker<S>
    where
        S: LogStore,
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        self.tasks(Each(handler))
    }

    /// Calls `handler` with several events, none two of the same key, and expects one outcome per event
    /// in their order. A missing outcome counts as failed.
    pub fn batch<S, F, Fut>(self, handler: F) -> Worker<S>
    where
        S: LogStore,
        F: Fn(Vec<Delivery>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<Outcome>> + Send + 'static,
    {
        self.sink(BatchFn(handler))
    }

    /// Sends events to a sink, in batches.
    pub fn sink<S: LogStore>(self, sink: impl Sink) -> Worker<S> {
        let events_max = self.batch_events;
        self.tasks(Batch { sink, events_max })
    }

    /// Does its work inside the transaction that records the ack, so that both commit or neither does.
    /// One event at a time, in the order of the log. The store crate says how to make the work.
    pub fn transactional<S: LogStore>(
        self,
        make: impl Fn(Delivery) -> S::Work + Send + Sync + 'static,
    ) -> Worker<S> {
        Worker { subscription: self.subscription, work: Work::Transaction(Arc::new(make)) }
    }

    fn tasks<S: LogStore>(self, handle: impl Handle) -> Worker<S> {
        Worker { subscription: self.subscription, work: Work::Tasks(Arc::new(handle)) }
    }
}
