//! The relay into a broker, beside the broker's client library alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use postrider_core::delivery::Origin;
use postrider_core::limits::EMIT_BYTES_MAX;
use postrider_core::{
    Delivery, Epoch, Error, ErrorKind, Event, EventId, Headers, Key, Kind, NewSubscription, Outcome, Result,
    Sink, Start, Store, Timestamp, Topic,
};
use postrider_postgres::bare::Producer;
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_runtime::{Relay, Worker};
use postrider_sinks::{AnySink, SinkSpec, bare};

use super::rounds::{Moment, Rounds, Samples, Spent};
use super::{KEYS, Measure, PAYLOAD, event, panicked};
use crate::args::BenchArgs;

/// Turns of ours and of the bare client.
const ROUNDS: usize = 3;
/// Connections that emit as fast as they can.
const PRODUCERS: u64 = 4;
/// Events that such producers may write before their times are no longer noted.
const STAMPED_MAX: u64 = 4_000_000;

/// The sinks that were named.
pub(super) fn specs(args: &BenchArgs) -> Result<Vec<SinkSpec>> {
    let read = |text: &String| {
        if text.trim_start().starts_with('{') {
            serde_json::from_str(text)
                .map_err(|error| Error::invalid(format!("--sink: this is no table of a sink: {error}")))
        } else {
            text.parse()
        }
    };
    args.sinks.iter().map(read).collect()
}

/// A backlog through the relay, against the same messages from memory through the client library.
pub(super) async fn rates(url: &str, specs: &[SinkSpec], args: &BenchArgs) -> Result<Vec<Measure>> {
    let (events, mut measures) = (args.events as usize, Vec::new());
    if specs.is_empty() {
        return Ok(measures);
    }
    let options = PostgresOptions::from_url(url)?.schema("to_sinks")?;
    let store = PostgresStore::open(options).await?;
    let payload = Bytes::from(vec![b'x'; args.payload_bytes as usize]);
    fill(&store, events, &payload).await?;
    let deliveries = from_memory(&store, events, &payload);
    for (number, spec) in specs.iter().enumerate() {
        let sink = spec.open().await?;
        let (mut times, mut cpu) = (Rounds::default(), Rounds::default());
        // Once without counting, because neither side is to pay for a broker that has just been started or
        // for pages that have not been read yet.
        relay(&store, &format!("sink-{number}"), sink.clone(), args).await?;
        bare::publish(spec, &deliveries, Moment::now).await?;
        for round in 0..ROUNDS {
            let name = format!("sink-{number}-{round}");
            // The second side finds the work that the first has left, so the sides take turns at going first.
            let (ours, reference) = if round % 2 == 0 {
                let ours = relay(&store, &name, sink.clone(), args).await?;
                (ours, bare::publish(spec, &deliveries, Moment::now).await?)
            } else {
                let reference = bare::publish(spec, &deliveries, Moment::now).await?;
                (relay(&store, &name, sink.clone(), args).await?, reference)
            };
            let reference = reference.0.until(reference.1);
            times.push(ours.time, reference.time);
            cpu.push_raw(ours.cpu, reference.cpu);
        }
        let per_event = 1e6 / events as f64;
        measures.extend([
            Measure {
                name: rate_name(spec),
                value: events as f64 / times.ours(),
                unit: "events/s",
                reference: events as f64 / times.reference(),
                ratio: times.speed(),
            },
            // What the database, the relay or the loop, the client and the broker compute together: the rate cannot be
            // above the number of processors by this.
            Measure {
                name: "the same: all processors' time for an event",
                value: cpu.ours() * per_event,
                unit: "µs",
                reference: cpu.reference() * per_event,
                ratio: 1.0 / cpu.speed(),
            },
        ]);
    }
    Ok(measures)
}

fn rate_name(spec: &SinkSpec) -> &'static str {
    match spec.kind() {
        "kafka" => "relay to Kafka against its client alone",
        "nats" => "relay to NATS JetStream against its client alone",
        "redis" => "relay to Redis Streams against its client alone",
        "http" => "relay to a webhook against its client alone",
        _ => "relay to a sink against its client alone",
    }
}

async fn fill(store: &PostgresStore, events: usize, payload: &Bytes) -> Result<()> {
    // 1,000 events, or as many as one call takes.
    let at_once = (EMIT_BYTES_MAX / 2 / payload.len()).clamp(1, 1_000);
    let emitted = |number| event(number).payload(payload.clone());
    for begin in (0..events).step_by(at_once) {
        store.event_emit((begin..events.min(begin + at_once)).map(emitted).collect()).await?;
    }
    Ok(())
}

async fn relay(store: &PostgresStore, name: &str, sink: AnySink, args: &BenchArgs) -> Result<Spent> {
    let (events, began) = (args.events, Moment::now());
    let worker = Worker::new(NewSubscription::new(name));
    let worker = match args.batch_events {
        Some(events) => worker.batch_events(events as usize).sink(sink),
        None => worker.sink(sink),
    };
    let relay = Relay::new(store.clone()).retention(None).worker(worker);
    let summary = relay.run_until_idle(std::future::pending()).await?;
    let spent = began.until(Moment::now());
    if summary.delivered != u64::from(events) {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the sink took {} of {events} events: `postrider relay --check` says more",
                summary.delivered
            ),
        ));
    }
    store.subscription_delete(name, "bench").await?;
    Ok(spent)
}

/// Events as they would come from the store: the same messages are made of them, to the byte but for their
/// numbers and times.
fn from_memory(store: &PostgresStore, events: usize, payload: &Bytes) -> Vec<Delivery> {
    let origin = Arc::new(Origin { subscription: "bench".to_owned(), store_id: store.id() });
    let delivery = |number: usize| {
        let event = Event {
            id: EventId(number as i64 + 1),
            topic: Topic::new("order"),
            kind: Kind::new("order.created"),
            key: Some(Key::new((number % KEYS).to_string())),
            payload: payload.clone(),
            headers: Headers::default(),
            created_at: Timestamp::from_micros(1_800_000_000_000_000 + number as i64),
            due_at: None,
            flaw: None,
        };
        let mut delivery = Delivery::new(Arc::new(event), 1, Arc::clone(&origin));
        delivery.epoch = Some(Epoch(1));
        delivery
    };
    (0..events).map(delivery).collect()
}

/// Producers at full speed, one event a transaction, while the relay sends to Kafka: does it keep up, and how
/// long after COMMIT is an event acked? Beside it the acks of a bare producer that sends as many a second.
pub(super) async fn latencies(url: &str, specs: &[SinkSpec], seconds: u64) -> Result<Vec<Measure>> {
    let Some(spec) = specs.iter().find(|spec| spec.kind() == "kafka") else { return Ok(Vec::new()) };
    let store = PostgresStore::open(PostgresOptions::from_url(url)?).await?;
    let stamps = Arc::new(AckStamps::new());
    let subscription = NewSubscription::new("acks").start(Start::Now);
    store.subscription_create(subscription.clone()).await?;
    let sink = Noting { sink: spec.open().await?, stamps: Arc::clone(&stamps) };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = Relay::new(store.clone()).retention(None).worker(Worker::new(subscription).sink(sink));
    let running = tokio::spawn(relay.run(async { stopped.await.unwrap_or_default() }));
    // The first event finds no connection yet.
    produce(url, &stamps, Duration::from_millis(500)).await?;
    stamps.caught_up().await;
    let warm = stamps.count.load(Ordering::Relaxed);
    let halves = [seconds.div_ceil(2), seconds.div_ceil(2)].map(Duration::from_secs);
    let mut lags = [0.0; 2];
    let began = Instant::now();
    for (lag, half) in lags.iter_mut().zip(halves) {
        *lag = produce(url, &stamps, half).await?;
    }
    let committed = stamps.count.load(Ordering::Relaxed) - warm;
    let rate = (committed as f64 / began.elapsed().as_secs_f64()) as u64;
    stamps.caught_up().await;
    drop(stop);
    running.await.map_err(panicked)??;
    let ours = stamps.latencies(warm);
    let deliveries =
        from_memory(&store, committed.min(STAMPED_MAX) as usize, &Bytes::from_static(PAYLOAD.as_bytes()));
    let mut bare = Samples::default();
    bare::ack_times(spec, &deliveries, rate.max(1)).await?.into_iter().for_each(|time| bare.push(time));
    Ok(vec![
        Measure {
            name: "Kafka beside producers at full speed: mean lag, second half to first",
            value: lags[1],
            unit: "events",
            reference: lags[0],
            ratio: lags[1] / lags[0],
        },
        Measure {
            name: "the same: delivered against committed",
            value: ours.len() as f64,
            unit: "events",
            reference: committed as f64,
            ratio: ours.len() as f64 / committed as f64,
        },
        Measure::time("the same: COMMIT to ack, p50, bare producer's ack", ours.median(), bare.median()),
        Measure::time("the same: COMMIT to ack, p99, bare producer's ack", ours.p99(), bare.p99()),
    ])
}

/// Emits for a while as fast as it goes, and gives the mean of how many events were not acked yet.
async fn produce(url: &str, stamps: &Arc<AckStamps>, time: Duration) -> Result<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..PRODUCERS {
        let mut producer = Producer::connect(url).await?;
        let (stop, stamps) = (Arc::clone(&stop), Arc::clone(stamps));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let number = stamps.count.fetch_add(1, Ordering::Relaxed);
                let mut payload = PAYLOAD.as_bytes().to_vec();
                payload[..8].copy_from_slice(&number.to_le_bytes());
                let new = event(number as usize).payload(payload);
                producer.emit_stamped(new, || stamps.note(&stamps.sent, number)).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    let (mut lags, mut looks) = (0.0, 0);
    let began = Instant::now();
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(10)).await;
        lags += stamps.lag() as f64;
        looks += 1;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.map_err(panicked)??;
    }
    Ok(lags / f64::from(looks.max(1)))
}

/// When each numbered event was committed, and when it was acked.
struct AckStamps {
    began: Instant,
    count: AtomicU64,
    acked_count: AtomicU64,
    sent: Vec<AtomicU64>,
    acked: Vec<AtomicU64>,
}

impl AckStamps {
    fn new() -> Self {
        let zeros = || (0..STAMPED_MAX).map(|_| AtomicU64::new(0)).collect();
        Self {
            began: Instant::now(),
            count: AtomicU64::new(0),
            acked_count: AtomicU64::new(0),
            sent: zeros(),
            acked: zeros(),
        }
    }

    fn note(&self, list: &[AtomicU64], number: u64) {
        if let Some(slot) = list.get(number as usize) {
            slot.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn lag(&self) -> u64 {
        self.count.load(Ordering::Relaxed).saturating_sub(self.acked_count.load(Ordering::Relaxed))
    }

    /// All that was committed is acked; producers are at rest.
    async fn caught_up(&self) {
        while self.lag() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn latencies(&self, from: u64) -> Samples {
        let mut samples = Samples::default();
        for (sent, acked) in self.sent.iter().zip(&self.acked).skip(from as usize) {
            let (sent, acked) = (sent.load(Ordering::Relaxed), acked.load(Ordering::Relaxed));
            if acked > 0 {
                samples.push(Duration::from_nanos(acked.saturating_sub(sent)));
            }
        }
        samples
    }
}

/// Notes when events are acked.
struct Noting {
    sink: AnySink,
    stamps: Arc<AckStamps>,
}

impl Sink for Noting {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let number = |delivery: &Delivery| {
            delivery.payload.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
        };
        let numbers: Vec<_> = batch.iter().map(number).collect();
        let outcomes = self.sink.send(batch).await;
        for number in outcomes.iter().zip(numbers).filter(|(outcome, _)| **outcome == Outcome::Ack) {
            if let Some(number) = number.1 {
                self.stamps.note(&self.stamps.acked, number);
            }
            self.stamps.acked_count.fetch_add(1, Ordering::Relaxed);
        }
        outcomes
    }

    fn keeps_order(&self) -> bool {
        self.sink.keeps_order()
    }
}
