//! A process that sleeps through its lease loses what it held, and changes nothing when it wakes.

use std::future::pending;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::settle::Settle;
use postrider_core::{Delivery, LogStore, NewSubscription, Store};
use postrider_postgres::tokio_postgres::{Error, Transaction};
use postrider_postgres::{PostgresOptions, PostgresStore, Work};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::Version;
use tokio::sync::Notify;

use crate::stage::{Owner, Stage, connect, emit, open, until};

/// Where a child of this test finds its store.
pub(crate) const URL: &str = "POSTRIDER_TEST_URL";
const LEASE_MS: &str = "POSTRIDER_TEST_LEASE_MS";

/// A relay that notes each delivery under its name.
async fn relay(url: &str, who: &'static str, lease: Duration) {
    let store = PostgresStore::open(PostgresOptions::from_url(url).unwrap().lease(lease)).await.unwrap();
    let notes = Arc::new(connect(url).await);
    let handler = move |delivery: Delivery| {
        let notes = Arc::clone(&notes);
        async move {
            let id = delivery.event.id.0;
            notes.execute("insert into effect values ($1, $2)", &[&id, &who]).await.map(drop)
        }
    };
    let worker = Worker::new(NewSubscription::new("orders")).each::<_, _, Error>(handler);
    Relay::new(store).name(who).worker(worker).run(pending()).await.unwrap();
}

/// A process of its own, ended with the test.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    /// This program again, which runs one test as the process of a child.
    pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let done = Command::new("kill").arg(signal).arg(self.0.id().to_string()).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes down, by the database's clock, when shards change hands.
const WATCH: &str = "
    create table effect (event_id bigint, who text);
    create table taken (at timestamptz);
    create function note_taken() returns trigger language plpgsql as $$
    begin
        insert into public.taken values (postrider.clock());
        return null;
    end $$;
    create trigger note_taken after update on postrider.shard for each statement execute function note_taken()";

/// How long a member may take to notice and to take over, beside the lease that has to run out.
const NOTICE_MAX: Duration = Duration::from_secs(2);

async fn sleep_through(version: Version, lease: Duration) {
    let stage = Stage::on(version).await;
    stage.run(WATCH);
    let sleeper = Sleeper::start(
        "takeover::a_stopped_process_is_followed_and_changes_nothing_when_it_wakes",
        &[(URL, &stage.db.url), (LEASE_MS, &lease.as_millis().to_string())],
    );
    let p = stage.session().await;
    until(&stage, "select count(*) from postrider.subscription", 1).await;
    emit(&p, "k", "1").await;
    until(&stage, "select count(*) from effect where who = 'sleeper'", 1).await;
    let url = stage.db.url.clone();
    let follower = tokio::spawn(async move { relay(&url, "follower", lease).await });
    until(&stage, "select count(*) from postrider.member where name = 'follower'", 1).await;
    stage.run("truncate taken");
    sleeper.signal("-STOP");
    let beat_at = stage.text("select beat_at from postrider.member where name = 'sleeper'");
    let second = emit(&p, "k", "2").await;
    until(&stage, &format!("select count(*) from effect where event_id = {second} and who = 'follower'"), 1)
        .await;
    assert_eq!(stage.number("select count(*) from taken"), 1, "{version:?}");
    let waited =
        format!("select (extract(epoch from at - timestamptz '{beat_at}') * 1000)::bigint from taken");
    let waited = stage.number(&waited);
    let (least, most) = (lease.as_millis() as i64, (lease + NOTICE_MAX).as_millis() as i64);
    assert!(
        (least..=most).contains(&waited),
        "{waited} ms after the last beat on {version:?}, lease {lease:?}"
    );
    let epochs = "select sum(epoch)::bigint from postrider.shard";
    let (before, shards) = (stage.number(epochs), "select count(distinct member_id) from postrider.shard");
    sleeper.signal("-CONT");
    // It finds that it has been forgotten, and joins again.
    until(&stage, "select count(*) from postrider.member where name = 'sleeper' and postrider.lives(beat_at, lease, null)", 1)
        .await;
    let third = emit(&p, "k", "3").await;
    until(&stage, &format!("select count(*) from effect where event_id = {third}"), 1).await;
    assert_eq!((stage.number(epochs), stage.number(shards)), (before, 1), "{version:?}");
    assert_eq!(stage.text(&format!("select who from effect where event_id = {third}")), "follower");
    assert_eq!(stage.number("select count(*) from effect where who = 'sleeper'"), 1, "{version:?}");
    assert_eq!(stage.store.check().await.unwrap(), [""; 0]);
    follower.abort();
}

#[tokio::test]
async fn a_stopped_process_is_followed_and_changes_nothing_when_it_wakes() {
    if let Ok(url) = std::env::var(URL) {
        let lease = Duration::from_millis(std::env::var(LEASE_MS).unwrap().parse().unwrap());
        return relay(&url, "sleeper", lease).await;
    }
    sleep_through(Version::V15, Duration::from_secs(8)).await;
    sleep_through(Version::V18, Duration::from_secs(1)).await;
}

/// The same in the middle of a transactional handler, whose transaction keeps the subscription's lock.
#[tokio::test]
async fn a_process_that_is_stopped_inside_a_transaction_is_followed_too() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run("create table effect (n int)");
        let mut owner = stage.owner("orders").await;
        let p = stage.session().await;
        emit(&p, "k", "1").await;
        assert_eq!(owner.read().await, ["1"]);
        let (reached, woken) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let work: Work = {
            let (reached, woken) = (Arc::clone(&reached), Arc::clone(&woken));
            Box::new(move |tx: &mut Transaction<'_>| {
                Box::pin(async move {
                    let _ = tx.execute("insert into effect values (1)", &[]).await;
                    reached.notify_one();
                    woken.notified().await;
                    Ok(())
                })
            })
        };
        let settle = Arc::new(Settle { mark: Some(owner.at), ..Settle::default() });
        let (store, hold) = (owner.store.clone(), owner.hold.clone());
        let handling = tokio::spawn(async move { store.settle_with(&hold, settle, work).await });
        reached.notified().await;
        let mut next = Owner::of(&open(&stage.db).await, "orders").await;
        assert_eq!(next.read().await, ["1"], "{version:?}");
        woken.notify_one();
        let ended = handling.await.unwrap();
        assert!(!matches!(ended, Ok(Ok(_))), "the sleeper has settled on {version:?}");
        assert_eq!(stage.number("select count(*) from effect"), 0, "{version:?}");
        next.settle().await.unwrap();
    }
}
