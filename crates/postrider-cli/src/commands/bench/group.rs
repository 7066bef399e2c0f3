//! What several processes make of a subscription that one is too slow for, and how long a crash of one stops its keys.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider_core::store::{MemberReport, SubscriptionReport};
use postrider_core::{Delivery, Error, ErrorKind, Event, NewSubscription, Result, Start, Store};
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_runtime::{Relay, Worker};

use super::rounds::Rounds;
use super::{KEYS, Measure};

const MEMBERS: usize = 4;
const ROUNDS: usize = 3;
const EVENTS: usize = 10_000;
/// Handlers that sleep at a time in each process.
const CONCURRENCY: u32 = 4;
const SUBSCRIPTION: &str = "shared";
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Long after all should be over.
const PATIENCE: Duration = Duration::from_secs(120);

/// The life of one of the processes: it delivers to a handler that sleeps for a millisecond, until its input ends.
pub(super) async fn live(url: &str) -> Result<()> {
    let store = PostgresStore::open(PostgresOptions::from_url(url)?).await?;
    let handler = |_: Delivery| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok::<(), Error>(())
    };
    let worker = Worker::new(subscription()).each(handler);
    let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let relay = Relay::new(store).retention(None).worker(worker);
    relay.run(async { drop(ended.await) }).await.map(drop)
}

fn subscription() -> NewSubscription {
    NewSubscription::new(SUBSCRIPTION).concurrency(CONCURRENCY).start(Start::Now)
}

/// A process that is killed when it is dropped.
struct Member(Child);

impl Member {
    fn start(url: &str) -> Result<Self> {
        let started = std::env::current_exe().and_then(|program| {
            Command::new(program)
                .args(["bench", "--quiet", "--member"])
                // Not as an argument, because a list of processes would show its password.
                .env("POSTRIDER_STORE", url)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
        });
        started.map(Self).map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot start another process of this program").with_source(error)
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Drains by one process and by four, in turns; then one of the four is killed.
pub(super) async fn measure(url: &str) -> Result<Vec<Measure>> {
    let store = PostgresStore::open(PostgresOptions::from_url(url)?).await?;
    store.subscription_create(subscription()).await?;
    let mut rounds = Rounds::default();
    let mut freed = Duration::ZERO;
    for round in 0..ROUNDS {
        let one = {
            let _alone = group(&store, url, 1).await?;
            drain(&store).await?
        };
        let mut members = group(&store, url, MEMBERS).await?;
        let four = drain(&store).await?;
        rounds.push(four, one);
        if round + 1 == ROUNDS {
            freed = crash(&store, &mut members).await?;
        }
    }
    let each = |seconds: f64| EVENTS as f64 / seconds;
    let lease = Duration::from_secs(8).as_secs_f64();
    Ok(vec![
        Measure {
            name: "4 processes against one, a handler that sleeps 1 ms",
            value: each(rounds.ours()),
            unit: "events/s",
            reference: each(rounds.reference()),
            ratio: rounds.speed(),
        },
        Measure {
            name: "shards of a process that was killed, until others hold them, against the lease",
            value: freed.as_secs_f64(),
            unit: "s",
            reference: lease,
            ratio: freed.as_secs_f64() / lease,
        },
    ])
}

/// So many processes, each of which holds its part.
async fn group(store: &PostgresStore, url: &str, size: usize) -> Result<Vec<Member>> {
    let members = (0..size).map(|_| Member::start(url)).collect::<Result<Vec<_>>>()?;
    until(store, "the members share the work", |report| {
        let holds = |member: &&MemberReport| {
            member.lives && report.shards.iter().any(|shard| shard.member == Some(member.id))
        };
        report.members.iter().filter(holds).count() == size && is_held(report)
    })
    .await?;
    Ok(members)
}

/// Whether members that live hold all shards.
fn is_held(report: &SubscriptionReport) -> bool {
    let lives = |id| report.members.iter().any(|member| member.id == id && member.lives);
    report.shards.iter().all(|shard| shard.member.is_some_and(lives))
}

async fn drain(store: &PostgresStore) -> Result<Duration> {
    let events = (0..EVENTS).map(|n| Event::new("order").key(n % KEYS)).collect();
    store.event_emit(events).await?;
    let began = Instant::now();
    until(store, "all events are delivered", |report| report.lag_events == 0).await?;
    Ok(began.elapsed())
}

/// Kills one and waits until others hold its shards.
async fn crash(store: &PostgresStore, members: &mut Vec<Member>) -> Result<Duration> {
    drop(members.pop());
    let began = Instant::now();
    until(store, "others hold the shards", |report| {
        let living = report.members.iter().filter(|member| member.lives).count();
        living == MEMBERS - 1 && is_held(report)
    })
    .await?;
    Ok(began.elapsed())
}

async fn until(
    store: &PostgresStore,
    what: &str,
    reached: impl Fn(&SubscriptionReport) -> bool,
) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if reached(&store.subscription_report(SUBSCRIPTION).await?) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Error::new(ErrorKind::Internal, format!("it never comes to pass that {what}")))
}
