//! The figures on SQLite, in one file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postrider_core::{Error, ErrorKind, Result, Store, emit};
use postrider_sqlite::bare::{self, Producer};
use postrider_sqlite::{SqliteOptions, SqliteStore, rusqlite};

use super::rounds::{Rounds, Samples};
use super::{
    Drained, KEYS, MIB, Measure, PAYLOAD, ROUNDS_OF_DRAINS, SMALL, drain, drain_measures, event, failing,
    panicked, start_relay,
};
use crate::args::{BenchArgs, BenchPart};
use crate::output::Output;
use crate::progress::Progress;

const ROUNDS: usize = 15;

/// Runs everything in a folder of its own that is gone afterwards.
pub(super) async fn run(args: &BenchArgs, output: &Output) -> Result<Vec<Measure>> {
    let folder = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = Folder::new(&folder)?;
    let progress = Progress::new(output, Some(6));
    let mut measures = Vec::new();
    if args.wants(BenchPart::Emit) {
        measures.extend(emit_rates(&folder.0, &progress).await?);
    }
    if args.wants(BenchPart::Drain) {
        measures.extend(drains(&folder.0, args.events as usize, &progress).await?);
    }
    if args.wants(BenchPart::Latency) {
        measures.push(producer_latency(&folder.0, args.seconds).await?);
        progress.advance(1);
    }
    if args.wants(BenchPart::Failing) {
        let store = SqliteStore::open(SqliteOptions::new(folder.0.join("failing.db"))).await?;
        measures.extend(failing::measure(&store, args.seconds).await?);
        store.close().await;
        progress.advance(1);
    }
    Ok(measures)
}

/// Emit beside bare inserts, one and a thousand a transaction, in turns.
async fn emit_rates(folder: &Path, progress: &Progress) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for (name, per_transaction, transactions) in
        [("emit, 1 a transaction", 1, 300), ("emit, 1000 a transaction", 1000, 20)]
    {
        let path = folder.join(format!("emit-{per_transaction}.db"));
        SqliteStore::open(SqliteOptions::new(&path)).await?.close().await;
        let rounds = tokio::task::spawn_blocking(move || emit_in_turns(&path, per_transaction, transactions));
        let rounds = rounds.await.map_err(panicked)?.map_err(bench_failed)?;
        let events = (per_transaction * transactions) as f64;
        let (ours, bare) = (events / rounds.ours(), events / rounds.reference());
        measures.push(Measure {
            name,
            value: ours,
            unit: "events/s",
            reference: bare,
            ratio: rounds.speed(),
        });
        progress.advance(1);
    }
    Ok(measures)
}

fn emit_in_turns(path: &Path, per_transaction: usize, transactions: usize) -> rusqlite::Result<Rounds> {
    let mut producer = Producer::open(path, true)?;
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        let mut bare = Duration::ZERO;
        let mut ours = Duration::ZERO;
        for transaction in 0..transactions {
            // The second side finds the caches warm, so the sides take turns at going first.
            for ours_next in [transaction % 2 == 0, transaction % 2 == 1] {
                if ours_next {
                    ours += producer.transaction(|tx| {
                        (0..per_transaction)
                            .try_for_each(|_| emit(tx, event(transaction)).map(|_| ()).map_err(refused))
                    })?;
                } else {
                    bare += producer.transaction(|tx| {
                        (0..per_transaction).try_for_each(|_| bare::insert(tx, transaction % KEYS, PAYLOAD))
                    })?;
                }
            }
        }
        rounds.push(ours, bare);
    }
    Ok(rounds)
}

/// Draining a large and a small backlog with a handler that does nothing.
async fn drains(folder: &Path, events: usize, progress: &Progress) -> Result<Vec<Measure>> {
    let tiny = backlog(folder, "tiny", 1).await?;
    let small = backlog(folder, "small", SMALL).await?;
    let large = backlog(folder, "large", events).await?;
    progress.advance(1);
    let (mut against_bare, mut against_small, mut memory) =
        (Rounds::default(), Rounds::default(), Rounds::default());
    let mut runs = 0..;
    for _ in 0..ROUNDS_OF_DRAINS {
        let mut start = Samples::default();
        let mut little = Samples::default();
        for _ in 0..ROUNDS_OF_DRAINS {
            start.push(drain_file(&tiny, 1, runs.next()).await?.to_last);
            little.push(drain_file(&small, SMALL, runs.next()).await?.to_last);
        }
        let path = large.clone();
        let (count, bare) = tokio::task::spawn_blocking(move || bare::select(&path))
            .await
            .map_err(panicked)?
            .map_err(bench_failed)?;
        let drained = drain_file(&large, events, runs.next()).await?;
        let per_event = |took: Duration, count: usize| took.div_f64(count as f64);
        against_bare.push(per_event(drained.whole, events), per_event(bare, count));
        let cost = |to_last: Duration, count| per_event(to_last.saturating_sub(start.median()), count);
        against_small.push(cost(drained.to_last, events), cost(little.median(), SMALL));
        memory.push_raw(drained.memory as f64, drained.memory_early as f64);
    }
    progress.advance(1);
    let [drained, cost] = drain_measures(&against_bare, &against_small);
    Ok(vec![
        drained,
        cost,
        Measure {
            name: "resident memory, whole drain against its first tenth",
            value: memory.ours() / MIB,
            unit: "MiB",
            reference: memory.reference() / MIB,
            ratio: 1.0 / memory.speed(),
        },
    ])
}

async fn backlog(folder: &Path, name: &str, events: usize) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.db"));
    let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
    let mut left = events;
    while left > 0 {
        let n = left.min(10_000);
        store.event_emit((0..n).map(event).collect()).await?;
        left -= n;
    }
    store.close().await;
    Ok(path)
}

async fn drain_file(path: &Path, events: usize, run: Option<u32>) -> Result<Drained> {
    let store = SqliteStore::open(SqliteOptions::new(path).check(false)).await?;
    let drained = drain(&store, events, run).await;
    store.close().await;
    drained
}

/// How long a producer's transaction takes, in turns of a second with and without a relay at work on the
/// same file.
async fn producer_latency(folder: &Path, seconds: u64) -> Result<Measure> {
    let path = folder.join("producer.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
    let (mut alone, mut beside) = (Samples::default(), Samples::default());
    for turn in 0..seconds * 2 {
        let relay = (turn % 2 == 1).then(|| start_relay(&store));
        let path = path.clone();
        let produced = tokio::task::spawn_blocking(move || produce(&path, Duration::from_secs(1)));
        let latencies = produced.await.map_err(panicked)?.map_err(bench_failed)?;
        match relay {
            None => alone.extend(latencies),
            Some((stop, running)) => {
                beside.extend(latencies);
                drop(stop);
                running.await.map_err(panicked)??;
            }
        }
    }
    store.close().await;
    let (with, without) = (beside.p99().as_secs_f64() * 1e3, alone.p99().as_secs_f64() * 1e3);
    Ok(Measure {
        name: "producer's p99 with a busy relay",
        value: with,
        unit: "ms",
        reference: without,
        ratio: with / without,
    })
}

/// A thousand transactions of one event a second, begun on time whatever the last one took.
fn produce(path: &Path, duration: Duration) -> rusqlite::Result<Samples> {
    let mut producer = Producer::open(path, true)?;
    let mut latencies = Samples::default();
    let began = Instant::now();
    let mut due = Duration::ZERO;
    while due < duration {
        if let Some(wait) = due.checked_sub(began.elapsed()) {
            std::thread::sleep(wait);
        }
        latencies.push(producer.transaction(|tx| emit(tx, event(7)).map(|_| ()).map_err(refused))?);
        due += Duration::from_millis(1);
    }
    Ok(latencies)
}

fn refused(error: Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

fn bench_failed(error: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "a benchmark could not use its database").with_source(error)
}

/// A folder that goes away with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(parent: &Path) -> Result<Self> {
        let path = parent.join(format!("postrider-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("cannot make the folder `{}`: name another with --dir", path.display()),
            )
            .with_source(error)
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
