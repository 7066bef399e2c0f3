//! What it takes to be woken on PostgreSQL, and what that costs producers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::store::Wake;
use postrider_core::{Delivery, Error, NewSubscription, Result, Start, Store};
use postrider_postgres::bare::{BareReader, Listener, Observer, Producer};
use postrider_postgres::{PostgresOptions, PostgresStore, TwoPhase};
use postrider_runtime::{Relay, Worker};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::rounds::{Rounds, Samples};
use super::{Measure, PAYLOAD, event, panicked, start_relay};
use crate::args::BenchArgs;

/// Connections that emit at a time.
const PRODUCERS: [(usize, &str); 3] = [
    (1, "emit beside the trigger, 1 connection"),
    (8, "emit beside the trigger, 8 connections"),
    (16, "emit beside the trigger, 16 connections"),
];
const ROUNDS: usize = 24;
const SLICE: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The first event after a rest, and producers at full speed.
pub(super) async fn measure(url: &str, args: &BenchArgs) -> Result<Vec<Measure>> {
    let mut measures = first_events(url, Duration::from_secs(args.rest), args.seconds * 2).await?;
    let (mut notified, mut emitted) = (0, 0);
    for (producers, name) in PRODUCERS {
        let speed = full_speed(url, producers).await?;
        (notified, emitted) = (notified + speed.notified, emitted + speed.emitted);
        measures.push(Measure {
            name,
            value: 1.0 / speed.costs.ours(),
            unit: "events/s",
            reference: 1.0 / speed.costs.reference(),
            ratio: speed.costs.speed(),
        });
    }
    measures.push(Measure {
        name: "commits that notified meanwhile, of all",
        value: notified as f64,
        unit: "commits",
        reference: emitted as f64,
        ratio: notified as f64 / emitted as f64,
    });
    choose(url, Wake::Poll).await?;
    Ok(measures)
}

/// A store that has not learnt anything about how it is woken yet.
async fn choose(url: &str, wake: Wake) -> Result<PostgresStore> {
    let store = PostgresStore::open(PostgresOptions::from_url(url)?).await?;
    store.wake_set(wake, TwoPhase::Unused, "bench").await?;
    Ok(store)
}

async fn until_guarded(observer: &Observer) -> Result<()> {
    while !observer.is_guarded().await? {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// From the call of COMMIT to the handler, for single events after a rest, beside a bare reader that rests as long.
async fn first_events(url: &str, rest: Duration, events: u64) -> Result<Vec<Measure>> {
    let store = choose(url, Wake::Notify).await?;
    let subscription = NewSubscription::new("woken").start(Start::Now);
    store.subscription_create(subscription.clone()).await?;
    let (sender, mut arrived) = mpsc::unbounded_channel();
    let worker = Worker::new(subscription).each(move |_: Delivery| {
        let _ = sender.send(Instant::now());
        std::future::ready(Ok::<(), Error>(()))
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = Relay::new(store.clone()).retention(None).worker(worker);
    let running = tokio::spawn(relay.run(async { stopped.await.unwrap_or_default() }));
    let observer = Observer::connect(url).await?;
    let mut producer = Producer::connect(url).await?;
    let mut reader = BareReader::connect(url).await?;
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    for number in 0..events {
        until_guarded(&observer).await?;
        tokio::time::sleep(rest).await;
        let called = Stamp::default();
        producer.emit_stamped(event(number as usize), called.stamp()).await?;
        ours.push(called.until(arrived.recv().await));
        until_guarded(&observer).await?;
        tokio::time::sleep(rest).await;
        let called = Stamp::default();
        // The reader waits while the producer commits, as the relay does.
        let reading = async { reader.next().await.map(|read| read.then(Instant::now)) };
        let ((), read) =
            tokio::try_join!(producer.insert_stamped(PAYLOAD.as_bytes(), called.stamp()), reading)?;
        bare.push(called.until(read));
    }
    drop(stop);
    running.await.map_err(panicked)??;
    reader.remove().await?;
    store.subscription_delete("woken", "bench").await?;
    Ok(vec![
        Measure::time("COMMIT to handler after a rest, p50", ours.median(), bare.median()),
        Measure::time("COMMIT to handler after a rest, p99", ours.p99(), bare.p99()),
    ])
}

/// When a COMMIT was called.
#[derive(Debug, Clone, Default)]
struct Stamp(Arc<Mutex<Option<Instant>>>);

impl Stamp {
    fn stamp(&self) -> impl FnOnce() + use<> {
        let slot = Arc::clone(&self.0);
        move || {
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(Instant::now());
            }
        }
    }

    fn until(&self, came: Option<Instant>) -> Duration {
        let called = self.0.lock().ok().and_then(|slot| *slot);
        called.zip(came).map(|(called, came)| came.saturating_duration_since(called)).unwrap_or_default()
    }
}

/// What producers at full speed do beside a relay.
struct Speed {
    /// Seconds an event, with the trigger and without.
    costs: Rounds,
    emitted: u64,
    /// Commits that notified.
    notified: u64,
}

/// Producers emit all the while, and the trigger comes and goes: so both ways have the same neighbours.
async fn full_speed(url: &str, producers: usize) -> Result<Speed> {
    let store = choose(url, Wake::Notify).await?;
    let (stop, running) = start_relay(&store);
    until_guarded(&Observer::connect(url).await?).await?;
    let mut listener = Listener::of_wakes(url).await?;
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..producers {
        let (mut producer, count) = (Producer::connect(url).await?, Arc::clone(&count));
        tasks.spawn(async move {
            while producer.emit(event(count.fetch_add(1, Ordering::Relaxed) as usize)).await.is_ok() {}
        });
    }
    // The relay is woken, which is not what is measured here.
    tokio::time::sleep(SLICE).await;
    let mut costs = Rounds::default();
    for round in 0..ROUNDS {
        let mut turn = [0.0; 2];
        for with in [round % 2 == 0, round % 2 == 1] {
            switch(&store, if with { Wake::Notify } else { Wake::Poll }).await?;
            let (before, began) = (count.load(Ordering::Relaxed), Instant::now());
            tokio::time::sleep(SLICE).await;
            let emitted = count.load(Ordering::Relaxed) - before;
            turn[usize::from(with)] = began.elapsed().as_secs_f64() / emitted.max(1) as f64;
        }
        costs.push_raw(turn[1], turn[0]);
    }
    tasks.shutdown().await;
    let (emitted, notified) = (count.load(Ordering::Relaxed), listener.count());
    drop(stop);
    running.await.map_err(panicked)??;
    Ok(Speed { costs, emitted, notified })
}

/// Makes or removes the trigger between the commits of producers.
async fn switch(store: &PostgresStore, wake: Wake) -> Result<()> {
    while let Err(error) = store.wake_set(wake, TwoPhase::Unused, "bench").await {
        if !error.is_retryable() {
            return Err(error);
        }
    }
    Ok(())
}
