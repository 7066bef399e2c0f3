//! A store with events, relays over it, and what their handlers have seen.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::store::LetterId;
use postrider_core::{
    Delivery, Event, EventId, Failure, LeaseBy, Mode, NewEvent, NewSubscription, Order, RetryPolicy, Store,
};
use postrider_runtime::{InTasks, Relay, Summary, Worker};
use postrider_testkit::MemoryStore;
use postrider_testkit::simulation::SimClock;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The lease of these queues.
pub(crate) const LEASE: Duration = Duration::from_secs(8);

/// One call of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: i64,
    pub(crate) attempt: u32,
    pub(crate) at: Duration,
}

/// A store with events, and what handlers have seen.
pub(crate) struct Scene {
    pub(crate) store: MemoryStore,
    pub(crate) began: Instant,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
}

/// A relay at work in the background.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<postrider_core::Result<Summary>>,
}

impl Running {
    pub(crate) async fn stop(self) -> Summary {
        self.stop.cancel();
        self.task.await.unwrap().unwrap()
    }

    /// What a crash is: nothing of it goes on.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl Scene {
    /// Events with ids from 1 on, with these keys; an empty one stands for none.
    pub(crate) async fn new(keys: &[&str]) -> Self {
        let event = |key: &&str| if key.is_empty() { Event::new("t") } else { Event::new("t").key(*key) };
        Self::with(keys.iter().map(event).collect()).await
    }

    pub(crate) async fn with(events: Vec<NewEvent>) -> Self {
        let store = MemoryStore::new(SimClock::new());
        store.event_emit(events).await.unwrap();
        Self { store, began: Instant::now(), seen: Arc::default() }
    }

    pub(crate) fn relay(&self) -> Relay<MemoryStore> {
        Relay::new(self.store.clone()).retention(None).seed(1)
    }

    /// A worker that notes each event, then does what `handler` says.
    pub(crate) fn worker<F, Fut>(&self, subscription: NewSubscription, handler: F) -> Worker<InTasks>
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let (seen, began) = (Arc::clone(&self.seen), self.began);
        Worker::new(subscription).each(move |delivery: Delivery| {
            let note = Seen { id: delivery.id.0, attempt: delivery.attempt, at: began.elapsed() };
            seen.lock().unwrap().push(note);
            handler(delivery)
        })
    }

    pub(crate) fn start(&self, worker: Worker<InTasks>) -> Running {
        Self::start_relay(self.relay().worker(worker))
    }

    pub(crate) fn start_relay(relay: Relay<MemoryStore>) -> Running {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(relay.run(async move { stopped.cancelled().await }));
        Running { stop, task }
    }

    pub(crate) async fn until_idle(&self, worker: Worker<InTasks>) -> Summary {
        self.relay().worker(worker).run_until_idle(std::future::pending()).await.unwrap()
    }

    pub(crate) async fn run_for(&self, worker: Worker<InTasks>, time: Duration) -> Summary {
        let running = self.start(worker);
        pass(time).await;
        running.stop().await
    }

    pub(crate) fn ids(&self) -> Vec<i64> {
        self.seen.lock().unwrap().iter().map(|seen| seen.id).collect()
    }

    pub(crate) fn sorted(&self) -> Vec<i64> {
        let mut ids = self.ids();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn calls(&self) -> Vec<(i64, u32)> {
        self.seen.lock().unwrap().iter().map(|seen| (seen.id, seen.attempt)).collect()
    }

    /// When each call for an event was made.
    pub(crate) fn times(&self, id: i64) -> Vec<Duration> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.id == id).map(|seen| seen.at).collect()
    }

    pub(crate) async fn left(&self) -> (u64, u64, u64, u64) {
        let report = self.store.subscription_report("q").await.unwrap();
        (report.lag_events, report.pending, report.leased, report.dead)
    }

    /// The errors of a dead letter's attempts.
    pub(crate) async fn errors(&self, id: i64) -> Vec<String> {
        let letter = LetterId { subscription: "q".to_owned(), event_id: EventId(id) };
        let letter = self.store.dead_letter_get(&letter).await.unwrap();
        letter.history.iter().map(|attempt| attempt.error.clone()).collect()
    }
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await; // tidy: sleep because time is simulated
}

pub(crate) fn subscription() -> NewSubscription {
    let mut new = NewSubscription::new("q").mode(Mode::Queue);
    new = new.retry(RetryPolicy::fixed(SECOND).attempts_max(3)).timeout(SECOND * 100);
    new.tuning.queue.lease = LEASE;
    new
}

pub(crate) fn unordered() -> NewSubscription {
    subscription().order(Order::None)
}

pub(crate) fn one_by_one() -> NewSubscription {
    let mut new = unordered();
    new.tuning.queue.lease_by = LeaseBy::Event;
    new
}

pub(crate) fn done(_: Delivery) -> std::future::Ready<Result<(), Failure>> {
    std::future::ready(Ok(()))
}

/// Does what it does at once, depending on the delivery.
pub(crate) fn at_once(
    outcome: impl Fn(&Delivery) -> Result<(), Failure> + Send + Sync + 'static,
) -> impl Fn(Delivery) -> std::future::Ready<Result<(), Failure>> + Send + Sync + 'static {
    move |delivery| std::future::ready(outcome(&delivery))
}

pub(crate) fn range(last: i64) -> Vec<i64> {
    (1..=last).collect()
}
