//! `postrider bench`: how fast is it here, beside bare loops in the same run?
//!
//! Machines differ and are noisy, so every figure is a ratio: what Postrider does against what the database's
//! client library does without it, in turns, in one process, on one file.

mod failing;
mod group;
mod managed;
mod postgres;
mod queue;
mod rounds;
mod sinks;
mod sqlite;
mod wake;
mod wal;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider_core::{Delivery, Error, ErrorKind, Event, NewSubscription, QueueStore, Result};
use postrider_runtime::{Relay, Worker};
use serde::Serialize;

use crate::args::BenchArgs;
use crate::output::{Cell, Column, Output, Page, View};
use crate::store_url::StoreUrl;
use rounds::{Rounds, resident_bytes};

/// A hundred bytes of JSON.
const PAYLOAD: &str =
    r#"{"order": 12345, "customer": "Zora Example", "total": 129.90, "items": [1, 2, 3], "ok": true, "x":4}"#;
const KEYS: usize = 1_000;
/// Events of the small backlog that the large one is compared with.
const SMALL: usize = 10_000;
const ROUNDS_OF_DRAINS: usize = 3;
const MIB: f64 = 1024.0 * 1024.0;

/// Runs everything in a place of its own that is gone afterwards: a folder, or a database of the server that the
/// store's URL names.
pub(crate) fn run(args: &BenchArgs, store: &str, output: &Output) -> Result<()> {
    let named = StoreUrl::parse(store)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot start the async runtime").with_source(error)
    })?;
    if args.member {
        return runtime.block_on(group::live(store));
    }
    let measures = match named {
        StoreUrl::Sqlite(_) if args.through.is_some() => {
            return Err(Error::invalid(
                "--through names a pooler in front of PostgreSQL: name the server with --store",
            ));
        }
        StoreUrl::Sqlite(_) => runtime.block_on(sqlite::run(args, output))?,
        StoreUrl::Postgres(_) => runtime.block_on(postgres::run(args, store, output))?,
    };
    output.show(&Measures(measures))
}

/// One figure.
#[derive(Debug, Serialize)]
struct Measure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// The bare loop's figure in the same run.
    reference: f64,
    /// Ours against the bare loop's.
    ratio: f64,
}

impl Measure {
    /// How long something took beside its reference, in milliseconds.
    fn time(name: &'static str, value: Duration, reference: Duration) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (value, reference) = (ms(value), ms(reference));
        Self { name, value, unit: "ms", reference, ratio: value / reference }
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Measures(Vec<Measure>);

impl View for Measures {
    fn human(&self, page: &Page) -> String {
        let number = |value: f64| if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
        let mut table = page.table([
            Column::left("BENCH"),
            Column::right("POSTRIDER"),
            Column::right("REFERENCE"),
            Column::left("UNIT"),
            Column::right("RATIO"),
        ]);
        for measure in &self.0 {
            table.row([
                Cell::new(measure.name),
                Cell::new(number(measure.value)),
                Cell::new(number(measure.reference)),
                Cell::new(measure.unit),
                Cell::new(format!("{:.2}", measure.ratio)),
            ]);
        }
        table.finish()
    }
}

/// The figures of drains, from what an event costs in each round.
fn drain_measures(against_bare: &Rounds, against_small: &Rounds) -> [Measure; 2] {
    [
        Measure {
            name: "drain, no-op handler, settled",
            value: 1.0 / against_bare.ours(),
            unit: "events/s",
            reference: 1.0 / against_bare.reference(),
            ratio: against_bare.speed(),
        },
        Measure {
            name: "cost of an event, large backlog against 10k",
            value: against_small.ours() * 1e9,
            unit: "ns",
            reference: against_small.reference() * 1e9,
            ratio: 1.0 / against_small.speed(),
        },
    ]
}

/// What one drain took.
struct Drained {
    /// From the start of the relay to its end, everything settled.
    whole: Duration,
    /// From the start of the relay to the last event.
    to_last: Duration,
    /// The most memory that was resident during the first tenth, and during all of it.
    memory_early: u64,
    memory: u64,
}

async fn drain<S: QueueStore>(store: &S, events: usize, run: Option<u32>) -> Result<Drained> {
    let seen = Arc::new(Seen::new(events));
    let handler = Arc::clone(&seen);
    let name = format!("bench-{}", run.unwrap_or_default());
    let worker = Worker::new(NewSubscription::new(name)).each(move |_: Delivery| {
        handler.note();
        std::future::ready(Ok::<(), Error>(()))
    });
    let relay = Relay::new(store.clone()).retention(None).worker(worker);
    let summary = relay.run_until_idle(std::future::pending()).await?;
    let whole = seen.began.elapsed();
    if summary.delivered != events as u64 {
        return Err(Error::new(
            ErrorKind::Internal,
            format!("{} of {events} events arrived", summary.delivered),
        ));
    }
    let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
    Ok(Drained {
        whole,
        to_last: Duration::from_nanos(read(&seen.last)),
        memory_early: read(&seen.memory_early),
        memory: read(&seen.memory),
    })
}

/// What the handler of a drain sees.
struct Seen {
    began: Instant,
    events: u64,
    count: AtomicU64,
    last: AtomicU64,
    memory_early: AtomicU64,
    memory: AtomicU64,
}

impl Seen {
    fn new(events: usize) -> Self {
        let resident = resident_bytes();
        Self {
            began: Instant::now(),
            events: events as u64,
            count: AtomicU64::new(0),
            last: AtomicU64::new(0),
            memory_early: AtomicU64::new(resident),
            memory: AtomicU64::new(resident),
        }
    }

    /// Looks at the clock and at the memory now and then only: they cost more than the event.
    fn note(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(100) {
            self.last.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        if count.is_multiple_of(10_000) {
            let resident = resident_bytes();
            self.memory.fetch_max(resident, Ordering::Relaxed);
            if count <= self.events / 10 {
                self.memory_early.fetch_max(resident, Ordering::Relaxed);
            }
        }
    }
}

type Running = tokio::task::JoinHandle<Result<postrider_runtime::Summary>>;

/// A relay at work until the sender is dropped.
fn start_relay<S: QueueStore>(store: &S) -> (tokio::sync::oneshot::Sender<()>, Running) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker =
        Worker::new(NewSubscription::new("busy")).each(|_: Delivery| std::future::ready(Ok::<(), Error>(())));
    let relay = Relay::new(store.clone()).worker(worker);
    (stop, tokio::spawn(async move { relay.run(async { stopped.await.unwrap_or_default() }).await }))
}

fn event(n: usize) -> postrider_core::NewEvent {
    Event::new("order").kind("order.created").key(n % KEYS).json_text(PAYLOAD)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn panicked(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Internal, format!("a benchmark ended unexpectedly: {error}"))
}
