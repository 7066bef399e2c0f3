//! Mode `queue`: leases by block and by event, beside PGMQ if its SQL is given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::queue::feed::Feeder;
use postrider_core::queue::{Ask, Fate, Feed, QueueSettle, SettledRow};
use postrider_core::settle::{MemberId, Room};
use postrider_core::{
    Error, ErrorKind, LeaseBy, LogStore, Mode, NewSubscription, Order, QueueStore, Result, ShardSet, Start,
    Store, Subscription, limits,
};
use postrider_postgres::bare::{Producer, pgmq};
use postrider_postgres::{PostgresOptions, PostgresStore};

use super::postgres::{Load, deliver_for};
use super::rounds::{Rounds, Samples};
use super::{Measure, SMALL, event, panicked};
use crate::args::BenchArgs;

/// Workers, each with connections of its own.
const WORKERS: usize = 4;
/// Events that one claim brings.
const BATCH: usize = 100;
const ROUNDS: usize = 3;
/// Events of the backlog that PGMQ is compared by.
const EVENTS: usize = 200_000;
const LEASE: Duration = Duration::from_secs(30);

/// Drains a backlog by leases of both kinds, in turns with PGMQ; and what a large backlog costs.
pub(super) async fn measure(url: &str, args: &BenchArgs) -> Result<Vec<Measure>> {
    let peer = match &args.pgmq {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .map_err(|error| Error::invalid(format!("cannot read {}: {error}", path.display())))?,
        ),
        None => None,
    };
    if let Some(script) = &peer {
        pgmq::install(url, script).await?;
    }
    let mut measures = Vec::new();
    for by in [LeaseBy::Block, LeaseBy::Event] {
        let mut against_peer = Rounds::default();
        let mut against_small = Rounds::default();
        let mut feeds = Vec::new();
        for round in 1..=ROUNDS {
            let small = backlog(url, by, SMALL).await?.per_event();
            let ours = backlog(url, by, EVENTS).await?;
            feeds.push(ours.fed.as_secs_f64() / EVENTS as f64);
            if peer.is_some() {
                pgmq::fill(url, EVENTS).await?;
                let (count, took) = pgmq::drain(url, WORKERS, BATCH).await?;
                against_peer.push_raw(ours.per_event(), took.as_secs_f64() / count as f64);
            }
            if args.events as usize <= EVENTS {
                against_small.push_raw(ours.per_event(), small);
            } else if round == ROUNDS {
                // One is enough: it takes minutes, and whatever disturbs it for a moment does not count.
                let large = backlog(url, by, args.events as usize).await?.per_event();
                against_small.push_raw(large, small);
            }
        }
        let names = match by {
            LeaseBy::Block => {
                ["queue, leases by block, against PGMQ", "queue, by block, large backlog against 10k"]
            }
            LeaseBy::Event => {
                ["queue, leases by event, against PGMQ", "queue, by event, large backlog against 10k"]
            }
        };
        if peer.is_some() {
            measures.push(Measure {
                name: names[0],
                value: 1.0 / against_peer.ours(),
                unit: "events/s",
                reference: 1.0 / against_peer.reference(),
                ratio: against_peer.speed(),
            });
        }
        measures.push(Measure {
            name: names[1],
            value: against_small.ours() * 1e9,
            unit: "ns",
            reference: against_small.reference() * 1e9,
            ratio: 1.0 / against_small.speed(),
        });
        feeds.sort_by(f64::total_cmp);
        let feed = 1.0 / feeds[feeds.len() / 2];
        measures.push(Measure {
            name: "queue, feed",
            value: feed,
            unit: "events/s",
            reference: feed,
            ratio: 1.0,
        });
    }
    Ok(measures)
}

/// From COMMIT to the start of a handler that takes a millisecond, 32 of them at a time, in both modes by turns.
pub(super) async fn latencies(store: &PostgresStore, url: &str, seconds: u64) -> Result<Vec<Measure>> {
    let load = Load { rate: 800, seconds: 2, works: Duration::from_millis(1) };
    let (mut log, mut queue) = (Samples::default(), Samples::default());
    for turn in 0..seconds.div_ceil(2) {
        for (mode, samples) in [(Mode::Log, &mut log), (Mode::Queue, &mut queue)] {
            let mut new = NewSubscription::new(format!("{mode:?}-{turn}"))
                .mode(mode)
                .order(Order::None)
                .concurrency(32);
            if mode == Mode::Queue {
                new.tuning.queue.lease_by = LeaseBy::Event;
            }
            samples.extend(deliver_for(store, url, new, load).await?);
        }
    }
    Ok(vec![
        Measure::time("queue, COMMIT to handler against mode log, p50", queue.median(), log.median()),
        Measure::time("queue, COMMIT to handler against mode log, p99", queue.p99(), log.p99()),
    ])
}

/// What a backlog took.
struct Drained {
    events: usize,
    fed: Duration,
    took: Duration,
}

impl Drained {
    fn per_event(&self) -> f64 {
        self.took.as_secs_f64() / self.events as f64
    }
}

/// Feeds so many events and claims them all.
async fn backlog(url: &str, by: LeaseBy, events: usize) -> Result<Drained> {
    let store = PostgresStore::open(PostgresOptions::from_url(url)?).await?;
    let mut new = NewSubscription::new("queue").mode(Mode::Queue).order(Order::None).start(Start::Now);
    new.tuning.queue.lease_by = by;
    let subscription = store.subscription_create(new).await?;
    let mut producer = Producer::connect(url).await?;
    producer.copy((0..events).map(event)).await?;
    let member = store.member_join("bench").await?;
    let fed = feed(&store, &subscription, member, events).await?;
    let mut stores = Vec::new();
    for _ in 0..WORKERS {
        stores.push(PostgresStore::open(PostgresOptions::from_url(url)?).await?);
    }
    let rows = if by == LeaseBy::Block { 1 } else { BATCH };
    let began = Instant::now();
    let work = |store| tokio::spawn(work(store, subscription.clone(), member, rows));
    let tasks: Vec<_> = stores.into_iter().map(work).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.map_err(panicked)??;
    }
    let took = began.elapsed();
    store.member_leave(member).await?;
    store.subscription_delete("queue", "bench").await?;
    if count != events {
        return Err(Error::new(ErrorKind::Internal, format!("{count} of {events} events were claimed")));
    }
    Ok(Drained { events, fed, took })
}

async fn feed(
    store: &PostgresStore,
    subscription: &Subscription,
    member: MemberId,
    events: usize,
) -> Result<Duration> {
    let began = Instant::now();
    let taken = store.shards_take(&subscription.name, member, ShardSet::ALL).await?;
    let taken = taken.ok_or_else(|| Error::new(ErrorKind::Internal, "the shards are not free"))?;
    let mut feeder = Feeder::new(subscription, &store.fed(&taken.hold).await?);
    let room = Room { events: limits::CHUNK_EVENTS_MAX, bytes: limits::CHUNK_BYTES_MAX };
    let mut at = taken.start;
    let mut fed = 0;
    while fed < events {
        let chunk = store.fetch(&taken.hold, at, room).await?;
        at = chunk.end;
        fed += chunk.events.len();
        let rows = feeder.plan(&chunk.events);
        if !rows.is_empty() {
            store.feed(&taken.hold, Arc::new(Feed { mark: at, rows })).await?;
        } else if !chunk.more && !chunk.soon {
            return Err(Error::new(ErrorKind::Internal, format!("{fed} of {events} events were read")));
        }
    }
    store.shards_release(&taken.hold).await?;
    Ok(began.elapsed())
}

async fn work(
    store: PostgresStore,
    subscription: Subscription,
    member: MemberId,
    rows: usize,
) -> Result<usize> {
    let ask =
        Ask { rows, events: BATCH, bytes: limits::CHUNK_BYTES_MAX, again: rows, all: false, lease: LEASE };
    let mut count = 0;
    loop {
        let claimed = store.claim(&subscription, member, ask).await?;
        if claimed.rows.is_empty() {
            return Ok(count);
        }
        count += claimed.rows.iter().map(|row| row.events.len()).sum::<usize>();
        let done = |row: &postrider_core::queue::LeasedRow| SettledRow {
            id: row.id,
            token: claimed.token,
            fate: Fate::Done,
        };
        let settle = QueueSettle { rows: claimed.rows.iter().map(done).collect(), ..QueueSettle::default() };
        let settled = store.queue_settle(&subscription, member, Arc::new(settle)).await?;
        if !settled.fenced.is_empty() {
            return Err(Error::new(ErrorKind::Internal, "a lease was lost within its time"));
        }
    }
}
