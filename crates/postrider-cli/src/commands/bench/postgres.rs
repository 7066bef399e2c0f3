//! The figures on PostgreSQL, in a database of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider_core::{Delivery, Error, ErrorKind, LeaseBy, LogStore, Mode, NewSubscription, Result, Store};
use postrider_postgres::bare::{self, Listener, Observer, Producer, Scratch};
use postrider_postgres::{PostgresOptions, PostgresStore, Reading};
use postrider_runtime::{Relay, Worker};

use super::rounds::{Rounds, Samples, cpu_seconds, cpu_seconds_of, resident_peak};
use super::{
    KEYS, MIB, Measure, PAYLOAD, ROUNDS_OF_DRAINS, SMALL, drain, drain_measures, event, failing, group,
    managed, panicked, queue, sinks, start_relay, wake, wal,
};
use crate::args::{BenchArgs, BenchPart};
use crate::output::Output;
use crate::progress::Progress;

/// Connections that emit at a time.
const PRODUCERS: usize = 8;
const ROUNDS: usize = 5;
/// Events that one round of bulk emits writes.
const BULK: usize = 100_000;
/// Events a second when latency is measured, and producers that share them.
pub(super) const RATE: u64 = 1_000;
const PACED: u64 = 4;

/// Runs everything in a database that is gone afterwards.
pub(super) async fn run(args: &BenchArgs, url: &str, output: &Output) -> Result<Vec<Measure>> {
    let scratch = Scratch::create(url).await?;
    let measured = measure(args, &scratch, output).await;
    scratch.remove().await?;
    measured
}

async fn measure(args: &BenchArgs, scratch: &Scratch, output: &Output) -> Result<Vec<Measure>> {
    let url = scratch.url();
    let store = PostgresStore::open(PostgresOptions::from_url(url)?).await?;
    let parts = [
        BenchPart::Emit,
        BenchPart::Latency,
        BenchPart::Failing,
        BenchPart::Idle,
        BenchPart::Wake,
        BenchPart::Wal,
        BenchPart::Managed,
        BenchPart::Group,
        BenchPart::Snapshot,
        BenchPart::QueueSnapshot,
        BenchPart::QueueLatency,
        BenchPart::Queue,
        BenchPart::Drain,
        BenchPart::Sink,
        BenchPart::SinkLatency,
    ];
    let sinks = sinks::specs(args)?;
    // Not every server writes enough into its log for the one, and not every role may do the other.
    let by_name = [BenchPart::Wal, BenchPart::Managed];
    let is_asked_for = |part: BenchPart| !by_name.contains(&part) || args.only.contains(&part);
    let wanted: Vec<BenchPart> =
        parts.into_iter().filter(|part| args.wants(*part) && is_asked_for(*part)).collect();
    let progress = Progress::new(output, Some(wanted.len() as u64));
    let mut measures = Vec::new();
    for part in wanted {
        measures.extend(match part {
            BenchPart::Emit => {
                let mut rates = emit_rates(scratch).await?;
                rates.push(bulk(url).await?);
                rates
            }
            BenchPart::Latency => latencies(&store, url, args.seconds).await?,
            BenchPart::Failing => failing::measure(&store, args.seconds).await?,
            BenchPart::Idle => idle(&store, url, args.seconds).await?,
            BenchPart::Wake => wake::measure(url, args).await?,
            BenchPart::Wal => wal::measure(url, args.seconds).await?,
            BenchPart::Managed => managed::measure(url, args).await?,
            BenchPart::Group => group::measure(url).await?,
            BenchPart::Snapshot => held_snapshot(&store, url, args.seconds, Mode::Log).await?,
            BenchPart::QueueSnapshot => held_snapshot(&store, url, args.seconds, Mode::Queue).await?,
            BenchPart::Queue => queue::measure(url, args).await?,
            BenchPart::QueueLatency => queue::latencies(&store, url, args.seconds).await?,
            BenchPart::Drain => match &args.through {
                Some(pooler) => vec![drains_through(scratch, pooler, args.events as usize).await?],
                None => drains(url, args.events as usize).await?,
            },
            BenchPart::Sink => sinks::rates(url, &sinks, args).await?,
            BenchPart::SinkLatency => sinks::latencies(url, &sinks, args.seconds).await?,
        });
        progress.advance(1);
    }
    measures.push(memory_peak());
    Ok(measures)
}

/// Emit beside bare inserts, one a transaction on eight connections, in turns of a second; and what both write.
async fn emit_rates(scratch: &Scratch) -> Result<Vec<Measure>> {
    let mut rates = Rounds::default();
    let mut wal = Rounds::default();
    for round in 0..ROUNDS * 2 {
        let mut turn = [0.0; 2];
        let mut written = [0.0; 2];
        // The second side finds the caches warm, so the sides take turns at going first.
        for ours in [round % 2 == 0, round % 2 == 1] {
            let before = scratch.wal().await?;
            let count = produce_for(scratch.url(), Duration::from_secs(1), ours).await?;
            let after = scratch.wal().await?;
            turn[usize::from(ours)] = 1.0 / count as f64;
            written[usize::from(ours)] = (after - before) as f64 / count as f64;
        }
        rates.push_raw(turn[1], turn[0]);
        wal.push_raw(written[1], written[0]);
    }
    let each = |seconds: f64| 1.0 / seconds;
    Ok(vec![
        Measure {
            name: "emit, 1 a transaction, 8 connections",
            value: each(rates.ours()),
            unit: "events/s",
            reference: each(rates.reference()),
            ratio: rates.speed(),
        },
        Measure {
            name: "write-ahead log of an event",
            value: wal.ours(),
            unit: "bytes",
            reference: wal.reference(),
            ratio: 1.0 / wal.speed(),
        },
    ])
}

async fn produce_for(url: &str, time: Duration, ours: bool) -> Result<u64> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..PRODUCERS {
        let mut producer = Producer::connect(url).await?;
        let stop = Arc::clone(&stop);
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                if ours {
                    producer.emit(event(count)).await?;
                } else {
                    producer.insert(count % KEYS, PAYLOAD).await?;
                }
                count += 1;
            }
            Ok::<_, Error>(count as u64)
        }));
    }
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut count = 0;
    for task in tasks {
        count += task.await.map_err(panicked)??;
    }
    Ok(count.max(1))
}

/// Bulk emit beside a bare COPY, in turns.
async fn bulk(url: &str) -> Result<Measure> {
    let mut producer = Producer::connect(url).await?;
    let mut rounds = Rounds::default();
    for round in 0..ROUNDS {
        let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
        for ours_next in [round % 2 == 0, round % 2 == 1] {
            if ours_next {
                ours = producer.copy((0..BULK).map(event)).await?;
            } else {
                bare = producer.copy_bare((0..BULK).map(|n| n % KEYS), PAYLOAD).await?;
            }
        }
        rounds.push(ours, bare);
    }
    Ok(Measure {
        name: "bulk emit by COPY",
        value: BULK as f64 / rounds.ours(),
        unit: "events/s",
        reference: BULK as f64 / rounds.reference(),
        ratio: rounds.speed(),
    })
}

/// When each numbered event was committed, and when it arrived.
pub(super) struct Stamps {
    began: Instant,
    sent: Vec<AtomicU64>,
    pub(super) came: Vec<AtomicU64>,
}

impl Stamps {
    pub(super) fn new(events: u64) -> Arc<Self> {
        let zeros = || (0..events).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { began: Instant::now(), sent: zeros(), came: zeros() })
    }

    pub(super) fn note(&self, list: &[AtomicU64], number: u64) {
        if let Some(slot) = list.get(number as usize) {
            slot.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn latencies(&self) -> Samples {
        let mut samples = Samples::default();
        for (sent, came) in self.sent.iter().zip(&self.came) {
            let (sent, came) = (sent.load(Ordering::Relaxed), came.load(Ordering::Relaxed));
            if came > 0 {
                samples.push(Duration::from_nanos(came.saturating_sub(sent)));
            }
        }
        samples
    }
}

/// From the call of COMMIT to the handler, beside a bare listener that is notified in the same transaction.
async fn latencies(store: &PostgresStore, url: &str, seconds: u64) -> Result<Vec<Measure>> {
    let mut bare = Samples::default();
    let mut ours = [Samples::default(), Samples::default()];
    let turns = seconds.div_ceil(2);
    for turn in 0..turns {
        bare.extend(listen_for(url, 2).await?);
        for (open, samples) in ours.iter_mut().enumerate() {
            let writer = Observer::connect(url).await?;
            if open == 1 {
                writer.hold_writer().await?;
            }
            let subscription = NewSubscription::new(format!("latency-{}", turn * 2 + open as u64));
            let load = Load { rate: RATE, seconds: 2, works: Duration::ZERO };
            samples.extend(deliver_for(store, url, subscription, load).await?);
        }
    }
    let [alone, beside] = &ours;
    Ok(vec![
        Measure::time("COMMIT to handler, p50, 1000/s", alone.median(), bare.median()),
        Measure::time("COMMIT to handler, p99, 1000/s", alone.p99(), bare.p99()),
        Measure::time("the same beside an open writer, p50", beside.median(), bare.median()),
        Measure::time("the same beside an open writer, p99", beside.p99(), bare.p99()),
    ])
}

async fn listen_for(url: &str, seconds: u64) -> Result<Samples> {
    let events = RATE * seconds;
    let stamps = Stamps::new(events);
    let mut listener = Listener::connect(url).await?;
    let heard = Arc::clone(&stamps);
    let listening = tokio::spawn(async move {
        for _ in 0..events {
            let Some(number) = listener.next().await else { break };
            heard.note(&heard.came, number);
        }
    });
    paced(url, &stamps, RATE, None).await?;
    listening.await.map_err(panicked)?;
    Ok(stamps.latencies())
}

/// What a relay is given to do.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// Events a second.
    pub(super) rate: u64,
    pub(super) seconds: u64,
    /// How long a handler takes.
    pub(super) works: Duration,
}

/// From the call of COMMIT to the handler's first line.
pub(super) async fn deliver_for(
    store: &PostgresStore,
    url: &str,
    subscription: NewSubscription,
    load: Load,
) -> Result<Samples> {
    let events = load.rate * load.seconds;
    let stamps = Stamps::new(events);
    let (arrived, all) = tokio::sync::oneshot::channel::<()>();
    let arrived = std::sync::Mutex::new(Some(arrived));
    let ready = Arc::new(tokio::sync::Notify::new());
    let (seen, left, first) = (Arc::clone(&stamps), AtomicU64::new(events), Arc::clone(&ready));
    let subscription = subscription.start(postrider_core::Start::Now);
    let name = subscription.name.clone();
    store.subscription_create(subscription.clone()).await?;
    let worker = Worker::new(subscription).each(move |delivery: Delivery| {
        let number =
            delivery.payload.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        match number {
            Some(number) if number < events => seen.note(&seen.came, number),
            _ => first.notify_one(),
        }
        let counts = number.is_some_and(|number| number < events);
        if counts && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let sender = arrived.lock().ok().and_then(|mut sender| sender.take());
            let _ = sender.map(|sender| sender.send(()));
        }
        async move {
            if !load.works.is_zero() {
                tokio::time::sleep(load.works).await;
            }
            Ok::<(), Error>(())
        }
    });
    let relay = Relay::new(store.clone()).retention(None).worker(worker);
    let running = tokio::spawn(relay.run(async {
        // Ends when all have arrived, or when the channel's other end is gone.
        let _ = all.await;
    }));
    // A listener is connected before anything is sent; the relay is at work when it has delivered something.
    store.event_emit(vec![event(0)]).await?;
    ready.notified().await;
    streaming(store).await;
    paced(url, &stamps, load.rate, Some(())).await?;
    running.await.map_err(panicked)??;
    store.subscription_delete(&name, "bench").await?;
    Ok(stamps.latencies())
}

/// Waits until a store that is to follow the write-ahead log does.
async fn streaming(store: &PostgresStore) {
    while matches!(store.reading().0, Reading::Without { .. }) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends numbered events on time, whatever the last one took.
pub(super) async fn paced(url: &str, stamps: &Arc<Stamps>, rate: u64, emit: Option<()>) -> Result<()> {
    let mut tasks = Vec::new();
    for lane in 0..PACED {
        let mut producer = Producer::connect(url).await?;
        let stamps = Arc::clone(stamps);
        tasks.push(tokio::spawn(async move {
            let began = tokio::time::Instant::now();
            for number in (lane..stamps.sent.len() as u64).step_by(PACED as usize) {
                tokio::time::sleep_until(began + Duration::from_micros(number * 1_000_000 / rate)).await;
                let mut payload = PAYLOAD.as_bytes().to_vec();
                payload[..8].copy_from_slice(&number.to_le_bytes());
                let stamp = || stamps.note(&stamps.sent, number);
                match emit {
                    Some(()) => producer.emit_stamped(event(number as usize).payload(payload), stamp).await?,
                    None => producer.notify_stamped(number, &payload, stamp).await?,
                }
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        task.await.map_err(panicked)??;
    }
    Ok(())
}

/// What a relay costs that has nothing to do, here and on the server if it is on this machine.
async fn idle(store: &PostgresStore, url: &str, seconds: u64) -> Result<Vec<Measure>> {
    let (stop, running) = start_relay(store);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (ours, theirs, began) = (cpu_seconds(), server_work(url).await?, Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let elapsed = began.elapsed().as_secs_f64();
    let (ours, theirs) = ((cpu_seconds() - ours) / elapsed, (server_work(url).await? - theirs) / elapsed);
    drop(stop);
    running.await.map_err(panicked)??;
    let measure = |name, share: f64| Measure {
        name,
        value: share * 100.0,
        unit: "% of a core",
        reference: 0.5,
        ratio: share * 200.0,
    };
    Ok(vec![measure("idle relay, this process", ours), measure("idle relay, the server", theirs)])
}

/// What was delivered in a while, and what it cost.
#[derive(Default)]
struct Held {
    delivered: u64,
    /// Seconds of a core on the server, in each half.
    work: [f64; 2],
    /// Pages that were looked at for queued rows in the second half.
    pages: f64,
    /// Bytes of queued rows and their indexes at the end.
    bytes: i64,
}

/// Throughput at twice a thousand a second beside a snapshot that another session holds all the while.
async fn held_snapshot(store: &PostgresStore, url: &str, seconds: u64, mode: Mode) -> Result<Vec<Measure>> {
    // Two streams of producers begin at once, and only one may make their table.
    bare::truncate(url).await?;
    let observer = Observer::connect(url).await?;
    let dead_before = Observer::connect(url).await?.dead_rows().await?;
    let free = deliver_halves(store, url, seconds, mode, "free").await?;
    observer.hold_snapshot().await?;
    let held = deliver_halves(store, url, seconds, mode, "held").await?;
    let dead = Observer::connect(url).await?.dead_rows().await?;
    let dead = (dead.0 - dead_before.0, dead.1 - dead_before.1);
    if dead.0 > 0 {
        return Err(Error::new(ErrorKind::Internal, format!("{} dead rows in the log", dead.0)));
    }
    let measure = |name, unit, value: f64, reference: f64| Measure {
        name,
        value,
        unit,
        reference,
        ratio: value / reference,
    };
    let names = match mode {
        Mode::Log => {
            ["delivered beside a held snapshot, 2000/s", "the server's work meanwhile, second half to first"]
        }
        Mode::Queue => {
            ["queue, beside a held snapshot, 2000/s", "queue, the server's work, second half to first"]
        }
    };
    let mut measures = vec![
        measure(names[0], "events", held.delivered as f64, free.delivered as f64),
        measure(names[1], "s of a core", held.work[1], held.work[0]),
    ];
    if mode == Mode::Queue {
        let pages = |half: &Held| half.pages / (half.delivered as f64 / 2.0);
        measures.push(measure("queue, pages an event beside it", "pages", pages(&held), pages(&free)));
        measures.push(measure(
            "queue, rows and indexes after it",
            "bytes",
            held.bytes as f64,
            free.bytes as f64,
        ));
    }
    Ok(measures)
}

async fn deliver_halves(
    store: &PostgresStore,
    url: &str,
    seconds: u64,
    mode: Mode,
    name: &str,
) -> Result<Held> {
    let mut subscription = NewSubscription::new(name).mode(mode).start(postrider_core::Start::Now);
    if mode == Mode::Queue {
        subscription.tuning.queue.lease_by = LeaseBy::Event;
    }
    store.subscription_create(subscription.clone()).await?;
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let worker = Worker::new(subscription).each(move |_: Delivery| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok::<(), Error>(()))
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = Relay::new(store.clone()).retention(None).worker(worker);
    let running = tokio::spawn(relay.run(async { stopped.await.unwrap_or_default() }));
    let mut held = Held::default();
    for half in &mut held.work {
        let before = (server_work(url).await?, Observer::connect(url).await?.queue_pages().await?);
        let stamps = Stamps::new(RATE * seconds.div_ceil(2));
        tokio::try_join!(paced(url, &stamps, RATE, Some(())), paced(url, &stamps, RATE, Some(())))?;
        let (pages, bytes) = Observer::connect(url).await?.queue_pages().await?;
        *half = server_work(url).await? - before.0;
        (held.pages, held.bytes) = ((pages - before.1.0) as f64, bytes);
    }
    held.delivered = count.load(Ordering::Relaxed);
    drop(stop);
    running.await.map_err(panicked)??;
    store.subscription_delete(name, "bench").await?;
    Ok(held)
}

/// Seconds for which the server's processes have computed that read and settle for a relay.
async fn server_work(url: &str) -> Result<f64> {
    let backends = Observer::connect(url).await?.backends().await?;
    Ok(backends.into_iter().map(cpu_seconds_of).sum())
}

/// Draining a large and a small backlog with a handler that does nothing, each in a schema that holds nothing else.
async fn drains(url: &str, events: usize) -> Result<Vec<Measure>> {
    let (mut against_bare, mut against_small) = (Rounds::default(), Rounds::default());
    let mut runs = 0..;
    let small = backlog(url, "small", SMALL).await?;
    let large = backlog(url, "large", events).await?;
    bare::truncate(url).await?;
    let mut producer = Producer::connect(url).await?;
    for begin in (0..events).step_by(BULK) {
        producer.copy_bare((begin..events.min(begin + BULK)).map(|n| n % KEYS), PAYLOAD).await?;
    }
    for _ in 0..ROUNDS_OF_DRAINS {
        let mut little = Samples::default();
        let mut start = Samples::default();
        for _ in 0..ROUNDS_OF_DRAINS * 2 {
            start.push(settled(&small, 0, runs.next()).await?);
            little.push(settled(&small, SMALL, runs.next()).await?);
        }
        let (count, bare) = bare::select(url).await?;
        let drained = drain(&large, events, runs.next()).await?;
        let per_event = |took: Duration, count: usize| took.div_f64(count as f64);
        against_bare.push(per_event(drained.whole, events), per_event(bare, count));
        let little = little.median().saturating_sub(start.median());
        let much = drained.whole.saturating_sub(start.median());
        against_small.push(per_event(much, events), per_event(little, SMALL));
    }
    Ok(drain_measures(&against_bare, &against_small).into())
}

/// Draining a backlog through a pooler beside draining it directly, in turns.
async fn drains_through(scratch: &Scratch, pooler: &str, events: usize) -> Result<Measure> {
    let direct = backlog(scratch.url(), "large", events).await?;
    let options = PostgresOptions::from_url(&scratch.url_through(pooler))?.schema("large")?;
    let pooled = PostgresStore::open(options).await?;
    if !pooled.is_pooled() {
        return Err(Error::invalid("--through names the server itself: name a pooler in transaction mode"));
    }
    let mut rounds = Rounds::default();
    let mut runs = 0..;
    for round in 0..ROUNDS_OF_DRAINS * 2 {
        let mut turn = [Duration::ZERO; 2];
        // The second side finds the caches warm, so the sides take turns at going first.
        for through in [round % 2 == 0, round % 2 == 1] {
            let store = if through { &pooled } else { &direct };
            turn[usize::from(through)] = drain(store, events, runs.next()).await?.whole;
        }
        rounds.push(turn[1], turn[0]);
    }
    let rate = |seconds: f64| events as f64 / seconds;
    Ok(Measure {
        name: "drain through a pooler, against a direct one",
        value: rate(rounds.ours()),
        unit: "events/s",
        reference: rate(rounds.reference()),
        ratio: rounds.speed(),
    })
}

/// The most memory that was resident at any time, by the kernel's account.
fn memory_peak() -> Measure {
    let peak = resident_peak() as f64 / MIB;
    Measure {
        name: "resident memory, against 64 MiB",
        value: peak,
        unit: "MiB",
        reference: 64.0,
        ratio: peak / 64.0,
    }
}

/// How long it takes to drain a store from its oldest event on, or from now on if there is to be none.
async fn settled(store: &PostgresStore, events: usize, run: Option<u32>) -> Result<Duration> {
    if events > 0 {
        return Ok(drain(store, events, run).await?.whole);
    }
    let name = format!("bench-{}", run.unwrap_or_default());
    store.subscription_create(NewSubscription::new(&name).start(postrider_core::Start::Now)).await?;
    Ok(drain(store, 0, run).await?.whole)
}

pub(super) async fn backlog(url: &str, schema: &str, events: usize) -> Result<PostgresStore> {
    let options = PostgresOptions::from_url(url)?.schema(schema)?;
    let store = PostgresStore::open(options).await?;
    for begin in (0..events).step_by(10_000) {
        store.event_emit((begin..events.min(begin + 10_000)).map(event).collect()).await?;
    }
    let _ = store.pace();
    Ok(store)
}
