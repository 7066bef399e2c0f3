//! Healthy keys beside a thousand that fail: from COMMIT to the handler, against the same without them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::{Delivery, Event, EventId, Failure, Mode, NewSubscription, QueueStore, Result};
use postrider_runtime::{Relay, Worker};

use super::rounds::Samples;
use super::{Measure, PAYLOAD, panicked};

const FAILING_KEYS: u64 = 1_000;
/// Between two healthy events, each of a key of its own.
const EVERY: Duration = Duration::from_millis(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const FAILING: &str = "failing";

/// What the handler sees.
#[derive(Default)]
struct Seen {
    arrived: Mutex<HashMap<EventId, Instant>>,
    failed: AtomicU64,
}

impl Seen {
    fn arrived(&self, id: EventId) -> Option<Instant> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }
}

/// Both modes, in a store that has no events yet.
pub(super) async fn measure<S: QueueStore>(store: &S, seconds: u64) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for (mode, median, p99) in [
        (Mode::Log, "COMMIT to handler beside 1,000 failing keys, median", "the same, p99"),
        (Mode::Queue, "mode queue, COMMIT to handler beside 1,000 failing keys, median", "the same, p99"),
    ] {
        let calm = latencies(store, mode, false, seconds).await?;
        let beside = latencies(store, mode, true, seconds).await?;
        measures.push(Measure::time(median, beside.median(), calm.median()));
        measures.push(Measure::time(p99, beside.p99(), calm.p99()));
    }
    Ok(measures)
}

async fn latencies<S: QueueStore>(store: &S, mode: Mode, failing: bool, seconds: u64) -> Result<Samples> {
    let name = format!("beside-{mode:?}-{failing}").to_lowercase();
    let seen = Arc::new(Seen::default());
    let worker = worker(NewSubscription::new(&name).mode(mode).topic(&name)?, &seen);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = Relay::new(store.clone()).retention(None).worker(worker);
    let relay = tokio::spawn(async move { relay.run(async { stopped.await.unwrap_or_default() }).await });
    if failing {
        let events = (0..FAILING_KEYS).map(|n| Event::new(&name).kind(FAILING).key(format!("failing-{n}")));
        store.event_emit(events.collect()).await?;
        while seen.failed.load(Ordering::Relaxed) < FAILING_KEYS {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    let mut samples = Samples::default();
    let mut emitted = Vec::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        let event =
            Event::new(&name).kind("healthy").key(format!("healthy-{}", emitted.len())).json_text(PAYLOAD);
        let ids = store.event_emit(vec![event]).await?;
        let committed = Instant::now();
        emitted.extend(ids.into_iter().map(|id| (id, committed)));
        tokio::time::sleep(EVERY).await;
    }
    for (id, committed) in emitted {
        let arrived = loop {
            match seen.arrived(id) {
                Some(arrived) => break arrived,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        };
        samples.push(arrived.saturating_duration_since(committed));
    }
    drop(stop);
    relay.await.map_err(panicked)??;
    store.subscription_delete(&name, "bench").await?;
    Ok(samples)
}

fn worker(subscription: NewSubscription, seen: &Arc<Seen>) -> Worker<postrider_runtime::InTasks> {
    let seen = Arc::clone(seen);
    Worker::new(subscription).each(move |delivery: Delivery| {
        let outcome = if delivery.kind.as_str() == FAILING {
            seen.failed.fetch_add(1, Ordering::Relaxed);
            Err(Failure::retry("it fails for ever"))
        } else {
            seen.arrived.lock().unwrap_or_else(PoisonError::into_inner).insert(delivery.id, Instant::now());
            Ok(())
        };
        std::future::ready(outcome)
    })
}
