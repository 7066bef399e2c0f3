//! A transaction of more events than anybody would keep, told by the write-ahead log.
//!
//! `POSTRIDER_LARGE_ROWS` says how many.

use std::io::Read;
use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use postrider_core::{Delivery, Failure, NewSubscription, Store};
use postrider_postgres::{PostgresOptions, PostgresStore, Source};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::{Database, Server, Settings, Version};
use tokio::sync::Notify;

use crate::sources::BEHIND;
use crate::stage::{Stage, connect, options, run};

/// Where a child of this test finds its store.
const URL: &str = "POSTRIDER_TEST_LARGE_URL";
/// Half of what the transaction holds, or less: a relay that took it whole would need more.
const MEMORY_KIB_MAX: u64 = 100 << 10;
const BYTES: u64 = 200 << 20;
/// Events of the other subscription: while the transaction is open, right behind its commit, and at the end.
const OTHERS: u64 = 3;

fn rows() -> u64 {
    std::env::var("POSTRIDER_LARGE_ROWS").map_or(25_000, |rows| rows.parse().unwrap())
}

/// What has come to the child.
#[derive(Default)]
struct Come {
    rows: AtomicU64,
    others: AtomicU64,
    moved: Notify,
}

impl Come {
    async fn until_all(&self) {
        loop {
            let moved = self.moved.notified();
            let (rows_come, others) =
                (self.rows.load(Ordering::Relaxed), self.others.load(Ordering::Relaxed));
            if rows_come == rows() && others == OTHERS {
                return;
            }
            moved.await;
        }
    }
}

/// Delivers everything, and fails if that took too much memory or the stream was lost for a moment.
async fn deliver(url: &str) {
    let options = PostgresOptions::from_url(url).unwrap().source(Source::Wal);
    let store = PostgresStore::open(options).await.unwrap();
    let (come, notes) = (Arc::new(Come::default()), Arc::new(connect(url).await));
    let of_large = {
        let come = Arc::clone(&come);
        move |_: Delivery| {
            if come.rows.fetch_add(1, Ordering::Relaxed) == 0 {
                println!("the first has come at {:?}", since_1970());
            }
            come.moved.notify_waiters();
            async { Ok::<(), Failure>(()) }
        }
    };
    let of_others = {
        let come = Arc::clone(&come);
        move |delivery: Delivery| {
            let (come, notes) = (Arc::clone(&come), Arc::clone(&notes));
            async move {
                notes.execute("insert into effect values ($1)", &[&delivery.event.id.0]).await.unwrap();
                come.others.fetch_add(1, Ordering::Relaxed);
                come.moved.notify_waiters();
                Ok::<(), Failure>(())
            }
        }
    };
    let large = Worker::new(subscription("large")).each(of_large);
    let others = Worker::new(subscription("others")).each(of_others);
    let all = {
        let come = Arc::clone(&come);
        async move { come.until_all().await }
    };
    Relay::new(store.clone()).worker(large).worker(others).run(all).await.unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("at most {peak} KiB");
    assert!(peak < MEMORY_KIB_MAX, "{peak} KiB");
    let (_, switches) = store.reading();
    assert_eq!(switches, 1, "the stream was lost: {:?}", store.reading());
}

/// For times of two processes.
fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

/// However that ends: it holds the other end of a pipe.
fn end_with_the_parent() {
    let _ = std::io::stdin().read(&mut [0]);
    process::exit(1);
}

fn subscription(topic: &str) -> NewSubscription {
    NewSubscription::new(topic).topic(topic).unwrap()
}

fn start(db: &Database) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "large::a_large_transaction_is_told_in_bounded_memory", "--nocapture"])
        .env(URL, &db.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until a query gives a number, for as long as the child lives and somewhat in proportion to its work.
async fn until(stage: &Stage, child: &mut Child, query: &str, wanted: i64) {
    let began = Instant::now();
    let patience = Duration::from_secs(60 + rows() / 5_000);
    while stage.number(query) != wanted {
        assert!(child.try_wait().unwrap().is_none(), "the child has ended before `{query}` gives {wanted}");
        assert!(began.elapsed() < patience, "`{query}` does not give {wanted}");
        // tidy: sleep because the server has no other sign than its tables
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const OTHER: &str = "insert into postrider.event (topic, type) values ('others', 'others')";
const EFFECTS: &str = "select count(*) from effect";

#[tokio::test]
async fn a_large_transaction_is_told_in_bounded_memory() {
    if let Ok(url) = std::env::var(URL) {
        thread::spawn(end_with_the_parent);
        return deliver(&url).await;
    }
    // Shorter than the server takes for millions: it gives up a client that is silent meanwhile.
    let settings = Settings::honest().set("fsync", "off").set("wal_level", "logical");
    let server = Server::start(Version::V15, settings.set("wal_sender_timeout", "2s"));
    let db = server.create_database();
    let stage = Stage { store: PostgresStore::open(options(&db)).await.unwrap(), db };
    for name in ["large", "others"] {
        stage.store.subscription_create(subscription(name)).await.unwrap();
    }
    stage.run("create table effect (event_id bigint)");
    let mut child = start(&stage.db);
    until(&stage, &mut child, "select count(*) from pg_stat_replication", 1).await;
    let (large, p) = (stage.session().await, stage.session().await);
    let (rows, began) = (rows(), Instant::now());
    let payload_bytes = (BYTES / rows).max(40);
    run(&large, "begin").await;
    let insert = format!(
        "insert into postrider.event (topic, type, key, payload_bytes)
         select 'large', 'large', 'k' || n % 100, convert_to(repeat('x', {payload_bytes}), 'utf8')
         from generate_series(1, {rows}) as n"
    );
    run(&large, &insert).await;
    run(&p, OTHER).await;
    until(&stage, &mut child, EFFECTS, 1).await;
    println!("{rows} rows are written after {:?}", began.elapsed());
    run(&large, "commit").await;
    println!("they are committed at {:?}", since_1970());
    let began = Instant::now();
    run(&p, OTHER).await;
    until(&stage, &mut child, EFFECTS, 2).await;
    println!("what was emitted behind them has come {:?} after their commit", began.elapsed());
    until(&stage, &mut child, &format!("select (({BEHIND}) < 1000000)::integer"), 1).await;
    println!("the slot has come past them after {:?}", began.elapsed());
    run(&p, OTHER).await;
    let _alive = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    println!("all have come after {:?}; {told}", began.elapsed());
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
}
