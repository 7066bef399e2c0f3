//! What a relay promises that waits at its store: it is quiet, it wakes at once, and a lost wake costs latency only.
//!
//! Time is paused and jumps from timer to timer, so that nothing here waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::store::Pace;
use postrider_core::{Delivery, Event, Failure, NewSubscription, Store};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::interference::Passage;
use postrider_testkit::simulation::SimClock;
use postrider_testkit::{Interference, MemoryOptions, MemoryStore, Moment, When};
use tokio::sync::mpsc;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Counts reads of the log, and loses wakes if told to.
#[derive(Default)]
struct Counter {
    reads: AtomicUsize,
    deaf: AtomicBool,
}

impl Interference for Counter {
    fn at(&self, moment: Moment) -> Passage {
        if moment.call == "fetch" && moment.when == When::Before {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn loses_wake(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }
}

/// A relay that has found nothing for a minute.
struct Scene {
    store: MemoryStore,
    counter: Arc<Counter>,
    delivered: mpsc::UnboundedReceiver<Instant>,
}

impl Scene {
    async fn at_rest(rest_max: Option<Duration>) -> Self {
        let pace = Pace { rest_max, ..MemoryOptions::default().pace };
        let options = MemoryOptions { pace, ..MemoryOptions::default() };
        let counter = Arc::new(Counter::default());
        let store = MemoryStore::with_options(SimClock::new(), options)
            .with_interference(Arc::clone(&counter) as Arc<dyn Interference>);
        let (sender, delivered) = mpsc::unbounded_channel();
        let worker = Worker::new(NewSubscription::new("s")).each(move |_: Delivery| {
            sender.send(Instant::now()).unwrap();
            std::future::ready(Ok::<(), Failure>(()))
        });
        let relay = Relay::new(store.clone()).retention(None).seed(1).worker(worker);
        tokio::spawn(relay.run(std::future::pending()));
        let scene = Self { store, counter, delivered };
        scene.reads_in(SECOND * 60).await;
        scene
    }

    async fn reads_in(&self, time: Duration) -> usize {
        let before = self.counter.reads.load(Ordering::Relaxed);
        tokio::time::sleep(time).await; // tidy: sleep because time is simulated
        self.counter.reads.load(Ordering::Relaxed) - before
    }

    /// How long the next event takes from its commit to its handler.
    async fn latency(&mut self) -> Duration {
        let emitted_at = Instant::now();
        self.store.event_emit(vec![Event::new("t")]).await.unwrap();
        self.delivered.recv().await.unwrap() - emitted_at
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_at_rest_does_not_read_and_is_woken_at_once() {
    let mut scene = Scene::at_rest(Some(HOUR)).await;
    for _ in 0..5 {
        assert_eq!(scene.reads_in(SECOND * 60).await, 0);
        assert_eq!(scene.latency().await, Duration::ZERO);
        scene.reads_in(SECOND * 60).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_costs_latency_only() {
    let mut scene = Scene::at_rest(Some(SECOND * 5)).await;
    scene.counter.deaf.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        let latency = scene.latency().await;
        assert!(latency <= SECOND * 5, "{latency:?}");
        scene.reads_in(SECOND * 60).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_rest_ends_with_a_look_and_a_new_watch() {
    let scene = Scene::at_rest(Some(SECOND * 5)).await;
    let reads = scene.reads_in(SECOND * 50).await;
    // One read when the rest is over, and one under the new watch.
    assert!((18..=22).contains(&reads), "{reads}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_no_watch_is_polled() {
    let scene = Scene::at_rest(None).await;
    let reads = scene.reads_in(SECOND * 10).await;
    assert!((95..=105).contains(&reads), "{reads}");
}

#[tokio::test(start_paused = true)]
async fn who_is_paused_is_not_put_to_rest() {
    let scene = Scene::at_rest(Some(HOUR)).await;
    scene.store.subscription_pause("s").await.unwrap();
    // The pause is found by a read; from then on the end of the pause is looked for.
    scene.store.event_emit(vec![Event::new("t")]).await.unwrap();
    scene.reads_in(SECOND).await;
    let reads = scene.reads_in(SECOND * 10).await;
    assert!(reads >= 95, "{reads}");
}
