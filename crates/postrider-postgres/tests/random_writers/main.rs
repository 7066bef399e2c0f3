//! Many writers do whatever writers do, a relay is killed or the server crashes, and afterwards every promise
//! was kept.
//!
//! `POSTRIDER_REGROUPINGS` says how often the number of members changes, every two seconds,
//! `POSTRIDER_SWITCHES` how often the stream is cut off, `POSTRIDER_TRANSACTIONS` says how many transactions
//! are committed over all tests, `POSTRIDER_SEED` repeats a run as far as chance goes: who is scheduled when
//! is not ours to repeat.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod failovers;
mod group;
mod receivers;
mod sources;
mod writers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::history::Fault;
use postrider_testkit::postgres::{Database, Server, Settings, Version, shared};

use group::Group;
use receivers::Receivers;
use writers::Writers;

/// Tests of this file, which share the transactions.
const TESTS: usize = 6;

/// How often a server is crashed.
const CRASHES: usize = 4;

struct Scene {
    db: Database,
    seed: u64,
    writers: Writers,
    receivers: Receivers,
}

impl Scene {
    async fn new(db: Database) -> Self {
        let seed = number("POSTRIDER_SEED").unwrap_or_else(|| fastrand::u64(..));
        println!("POSTRIDER_SEED={seed}");
        let commits = number("POSTRIDER_TRANSACTIONS").unwrap_or(51_000) as usize / TESTS;
        let store = open(&db).await;
        let writers = Writers::new(&db, seed, commits);
        let receivers = Receivers::new(&store, seed).await;
        Self { db, seed, writers, receivers }
    }

    /// One life of a relay, until it is told to end.
    async fn live(&self, end: impl Future<Output = ()> + Send) {
        let store = open(&self.db).await;
        self.receivers.relay(store).run(end).await.unwrap();
    }

    /// Delivers what is left, and judges.
    async fn finish(self) {
        let emitted = self.writers.emitted();
        let all = self.receivers.all_of(emitted.len());
        tokio::time::timeout(Duration::from_secs(120), self.live(all)).await.unwrap_or_else(|_| {
            panic!("not all of {} events were delivered: {}", emitted.len(), self.receivers.told());
        });
        self.receivers.judge(emitted);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

async fn open(db: &Database) -> PostgresStore {
    // The shortest lease, so that a relay which was killed is soon followed by the next.
    open_for(db, Duration::from_secs(1)).await
}

async fn open_for(db: &Database, lease: Duration) -> PostgresStore {
    PostgresStore::open(PostgresOptions::from_url(&db.url).unwrap().lease(lease)).await.unwrap()
}

/// Nothing goes wrong: every event is delivered once.
async fn calm(version: Version) {
    let scene = Scene::new(shared(version).create_database()).await;
    tokio::select! {
        () = scene.live(std::future::pending()) => panic!("nobody told it to end"),
        () = async {
            scene.writers.run().await;
            scene.receivers.all_of(scene.writers.emitted().len()).await;
        } => {}
    }
    assert!(scene.receivers.failures() > 0, "some attempts failed");
    // No fault was noted, so that each repeat would be one too many.
    scene.receivers.judge(scene.writers.emitted());
}

/// Relays are killed at any moment, and sometimes told to end.
async fn killed(version: Version) {
    let scene = Scene::new(shared(version).create_database()).await;
    let done = AtomicBool::new(false);
    let mut rng = fastrand::Rng::with_seed(scene.seed);
    let lives = async {
        let mut lives = 0;
        while !done.load(Ordering::Relaxed) {
            let begun = scene.receivers.deliveries();
            // Its predecessor's lease has to run out first.
            let some = scene.receivers.more_than(begun + rng.usize(0..400));
            let kill = async {
                some.await;
                // tidy: sleep because a relay is to be killed at any moment, not only after a delivery
                tokio::time::sleep(Duration::from_millis(rng.u64(0..300))).await;
            };
            tokio::select! {
                () = scene.live(std::future::pending()) => panic!("nobody told it to end"),
                () = kill => {}
            }
            scene.receivers.fault(Fault::Crash).await;
            lives += 1;
        }
        lives
    };
    let writing = async {
        scene.writers.run().await;
        done.store(true, Ordering::Relaxed);
    };
    let (lives, ()) = tokio::join!(lives, writing);
    assert!(lives > 1, "{lives} lives");
    scene.finish().await;
}

/// The server crashes while a relay lives through it.
async fn crashed(version: Version) {
    let mut server = Server::start(version, Settings::fast());
    let scene = Scene::new(server.create_database()).await;
    let crashes = async {
        for crash in 1..=CRASHES {
            scene.writers.until_committed(scene.writers.wanted() * crash / (CRASHES + 1)).await;
            server = tokio::task::spawn_blocking(move || {
                server.kill_immediate();
                server.start_again();
                server
            })
            .await
            .unwrap();
            scene.receivers.fault(Fault::CommitUnknown).await;
        }
        server
    };
    let _server = tokio::select! {
        () = scene.live(std::future::pending()) => panic!("nobody told it to end"),
        ((), server) = async { tokio::join!(scene.writers.run(), crashes) } => server,
    };
    scene.receivers.fault(Fault::Crash).await;
    scene.finish().await;
}

/// Members come and go every two seconds; who goes is told to end or is killed.
async fn regrouped(version: Version) {
    let scene = Scene::new(shared(version).create_database()).await;
    scene.writers.go_on();
    let mut rng = fastrand::Rng::with_seed(scene.seed);
    let mut group = Group::default();
    let changes = async {
        let sizes = [2, 3, 1, 4].into_iter().cycle();
        for size in sizes.take(number("POSTRIDER_REGROUPINGS").unwrap_or(8) as usize) {
            group.resize(&scene, size, &mut rng).await;
            // tidy: sleep because members are to change at any moment of what they do
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        scene.writers.stop();
    };
    tokio::join!(changes, scene.writers.run());
    group.end_all().await;
    println!("{} events, {} killed, {} ended", scene.writers.emitted().len(), group.killed, group.ended);
    assert!(group.ended + group.killed >= 6, "members came and went");
    scene.finish().await;
}

#[tokio::test]
async fn members_that_come_and_go_lose_nothing_on_postgresql_15() {
    regrouped(Version::V15).await;
}

#[tokio::test]
async fn members_that_come_and_go_lose_nothing_on_postgresql_18() {
    regrouped(Version::V18).await;
}

#[tokio::test]
async fn sources_take_turns_unnoticed_on_postgresql_15() {
    sources::switched(Version::V15).await;
}

#[tokio::test]
async fn sources_take_turns_unnoticed_on_postgresql_18() {
    sources::switched(Version::V18).await;
}

#[tokio::test]
async fn a_standby_that_takes_over_loses_nothing_on_postgresql_15() {
    failovers::failed_over(Version::V15).await;
}

#[tokio::test]
async fn a_standby_that_takes_over_loses_nothing_on_postgresql_18() {
    failovers::failed_over(Version::V18).await;
}

#[tokio::test]
async fn every_event_is_delivered_once_on_postgresql_15() {
    calm(Version::V15).await;
}

#[tokio::test]
async fn every_event_is_delivered_once_on_postgresql_18() {
    calm(Version::V18).await;
}

#[tokio::test]
async fn killed_relays_lose_nothing_on_postgresql_15() {
    killed(Version::V15).await;
}

#[tokio::test]
async fn killed_relays_lose_nothing_on_postgresql_18() {
    killed(Version::V18).await;
}

#[tokio::test]
async fn a_crashed_server_loses_nothing_on_postgresql_15() {
    crashed(Version::V15).await;
}

#[tokio::test]
async fn a_crashed_server_loses_nothing_on_postgresql_18() {
    crashed(Version::V18).await;
}
