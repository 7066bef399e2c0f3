//! Handlers that fail now and then, and a history of what they saw.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Delivery, EventId, Failure, NewSubscription, Outcome, RetryPolicy, Store};
use postrider_postgres::PostgresStore;
use postrider_runtime::{Relay, Worker};
use postrider_testkit::history::{Emitted, Fault, Record};
use postrider_testkit::{Expectation, History, Incarnation, ManualClock};
use tokio::sync::Notify;

const SUBSCRIPTIONS: [&str; 3] = ["mail", "search", "audit"];

pub(crate) struct Receivers {
    seed: u64,
    lives: AtomicU64,
    state: Arc<State>,
}

struct State {
    history: History,
    seen: Mutex<Seen>,
    moved: Notify,
}

#[derive(Default)]
struct Seen {
    deliveries: usize,
    failures: usize,
    acked: BTreeMap<String, HashSet<EventId>>,
}

impl Receivers {
    pub(crate) async fn new(store: &PostgresStore, seed: u64) -> Self {
        for name in SUBSCRIPTIONS {
            store.subscription_create(subscription(name)).await.unwrap();
        }
        let state =
            State { history: History::new(ManualClock::new()), seen: Mutex::default(), moved: Notify::new() };
        Self { seed, lives: AtomicU64::new(0), state: Arc::new(state) }
    }

    /// A relay with a worker for each subscription: another life.
    pub(crate) fn relay(&self, store: PostgresStore) -> Relay<PostgresStore> {
        self.relay_of(self.begin_life(), store)
    }

    pub(crate) fn begin_life(&self) -> Incarnation {
        Incarnation(self.lives.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn relay_of(&self, life: Incarnation, store: PostgresStore) -> Relay<PostgresStore> {
        let mut relay = Relay::new(store).name(format!("life-{}", life.0)).seed(self.seed ^ life.0);
        for name in SUBSCRIPTIONS {
            let (state, seed) = (Arc::clone(&self.state), self.seed);
            let handler = move |delivery: Delivery| handle(Arc::clone(&state), seed, life, delivery);
            relay = relay.worker(Worker::new(subscription(name)).each(handler));
        }
        relay
    }

    pub(crate) fn deliveries(&self) -> usize {
        self.state.seen.lock().unwrap().deliveries
    }

    pub(crate) fn failures(&self) -> usize {
        self.state.seen.lock().unwrap().failures
    }

    /// Returns when more than so many deliveries were made.
    pub(crate) async fn more_than(&self, deliveries: usize) {
        self.until(|seen| seen.deliveries > deliveries).await;
    }

    /// Resolves when every subscription has acked so many events.
    pub(crate) fn all_of(&self, events: usize) -> impl Future<Output = ()> + Send + use<> {
        let state = Arc::clone(&self.state);
        async move {
            state.until(|seen| SUBSCRIPTIONS.iter().all(|name| seen.acked(name) >= events)).await;
        }
    }

    pub(crate) fn told(&self) -> String {
        let seen = self.state.seen.lock().unwrap();
        SUBSCRIPTIONS.map(|name| format!("{name} {}", seen.acked(name))).join(", ")
    }

    /// Notes that something went wrong which explains repeats. What was ended may end a moment later.
    pub(crate) async fn fault(&self, fault: Fault) {
        self.fault_of(fault, None).await;
    }

    /// The same of one life: repeats of what others did stay unexplained.
    pub(crate) async fn fault_of(&self, fault: Fault, life: Option<Incarnation>) {
        self.state.history.fault(fault, life);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.state.history.fault(fault, life);
    }

    /// Panics if a promise was broken.
    pub(crate) fn judge(&self, emitted: Vec<Emitted>) {
        assert!(emitted.len() > 100, "{} events say nothing", emitted.len());
        for emitted in emitted {
            self.state.history.record(Record::Emitted(emitted));
        }
        let expectations = SUBSCRIPTIONS.map(|name| Expectation::from(&subscription(name)));
        self.state.history.assert_kept(&expectations);
    }

    async fn until(&self, reached: impl Fn(&Seen) -> bool) {
        self.state.until(reached).await;
    }
}

impl State {
    async fn until(&self, reached: impl Fn(&Seen) -> bool) {
        loop {
            let moved = self.moved.notified();
            if reached(&self.seen.lock().unwrap()) {
                return;
            }
            moved.await;
        }
    }
}

impl Seen {
    fn acked(&self, subscription: &str) -> usize {
        self.acked.get(subscription).map_or(0, HashSet::len)
    }
}

fn subscription(name: &str) -> NewSubscription {
    let retry = RetryPolicy::fixed(Duration::from_millis(10)).attempts_max(1000);
    NewSubscription::new(name).retry(retry)
}

async fn handle(state: Arc<State>, seed: u64, life: Incarnation, delivery: Delivery) -> Result<(), Failure> {
    let running = state.history.delivered(&delivery, life);
    let mix = seed ^ (delivery.event.id.0 as u64) << 8 ^ u64::from(delivery.attempt);
    let mut rng = fastrand::Rng::with_seed(mix ^ delivery.origin.subscription.len() as u64);
    let fails = rng.u32(0..50) == 0;
    if rng.u32(0..20) == 0 {
        tokio::task::yield_now().await;
    }
    let mut seen = state.seen.lock().unwrap();
    seen.deliveries += 1;
    let result = if fails {
        seen.failures += 1;
        let failure = Failure::retry("told to fail");
        running.finish(&Outcome::Retry(failure.clone()));
        Err(failure)
    } else {
        running.finish(&Outcome::Ack);
        seen.acked.entry(delivery.origin.subscription.clone()).or_default().insert(delivery.event.id);
        Ok(())
    };
    drop(seen);
    state.moved.notify_waiters();
    result
}
