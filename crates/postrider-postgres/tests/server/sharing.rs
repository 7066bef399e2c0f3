//! Subscriptions that share a slot, of which some are of no use: neither the others nor the slot are held up.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Delivery, Failure, NewSubscription, RetryPolicy, Store};
use postrider_postgres::Reading;
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::{Server, Settings, Version};
use tokio::sync::Notify;

use crate::sources::{BEHIND, wal_stage};
use crate::stage::{Stage, note, run, until};

const PATIENCE: Duration = Duration::from_secs(60);
/// More than a relay keeps of events that no subscription takes.
const TRANSACTIONS: usize = 50;
const EVENTS: usize = 25_000;
const KEYS: usize = 20;

/// What each subscription has got, by key.
#[derive(Clone, Default)]
struct Got {
    notes: Arc<Mutex<BTreeMap<String, Notes>>>,
    moved: Arc<Notify>,
}

type Notes = BTreeMap<String, Vec<String>>;

impl Got {
    fn put(&self, delivery: &Delivery) {
        let mut notes = self.notes.lock().unwrap();
        let of = notes.entry(delivery.origin.subscription.clone()).or_default();
        let key = delivery.event.key.as_ref().unwrap().to_string();
        of.entry(key).or_default().push(note(&delivery.event.payload));
        self.moved.notify_waiters();
    }

    fn of(&self, subscription: &str) -> Notes {
        self.notes.lock().unwrap().get(subscription).cloned().unwrap_or_default()
    }

    async fn until(&self, subscription: &str, count: usize) {
        let enough = async {
            loop {
                let moved = self.moved.notified();
                if self.of(subscription).values().map(Vec::len).sum::<usize>() >= count {
                    return;
                }
                moved.await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, enough).await.is_ok(), "{subscription} has not got {count}");
    }
}

fn keep_trying(name: &str) -> NewSubscription {
    NewSubscription::new(name).retry(RetryPolicy::fixed(Duration::from_millis(500)).attempts_max(1_000))
}

/// A relay with one subscription that works, one that fails for a key, one that never answers and one that is paused.
fn relay(stage: &Stage, got: &Got) -> Relay<postrider_postgres::PostgresStore> {
    let worker = |name: &str, fails: &'static str| {
        let got = got.clone();
        let handler = move |delivery: Delivery| {
            let got = got.clone();
            async move {
                if delivery.event.key.as_ref().unwrap().as_str() == fails {
                    return Err(Failure::retry("told to fail"));
                }
                got.put(&delivery);
                Ok(())
            }
        };
        Worker::new(keep_trying(name)).each(handler)
    };
    let stuck = |_: Delivery| async { pending::<Result<(), Failure>>().await };
    Relay::new(stage.store.clone())
        .worker(worker("works", "none"))
        .worker(worker("fails", "k0"))
        .worker(Worker::new(NewSubscription::new("stuck")).each(stuck))
        .worker(worker("paused", "none"))
}

fn wanted(keys: impl Iterator<Item = usize>) -> Notes {
    let of = |key| (0..EVENTS).filter(move |n| n % KEYS == key).map(|n| n.to_string()).collect();
    keys.map(|key| (format!("k{key}"), of(key))).collect()
}

#[tokio::test]
async fn one_that_fails_is_stuck_or_paused_holds_neither_the_others_nor_the_slot() {
    let settings = Settings::fast().set("wal_level", "logical").set("wal_sender_timeout", "2s");
    let server = Server::start(Version::V15, settings);
    let stage = wal_stage(server.create_database()).await;
    for name in ["works", "fails", "stuck", "paused"] {
        stage.store.subscription_create(keep_trying(name)).await.unwrap();
    }
    stage.store.subscription_pause("paused").await.unwrap();
    let got = Got::default();
    let running = tokio::spawn(relay(&stage, &got).run(pending()));
    let follows = "select count(*) from postrider.switch where reading = 'the write-ahead log'";
    until(&stage, follows, 1).await;
    let follower = stage.text("select active_pid from pg_replication_slots");
    let began = stage.text("select clock_timestamp()");
    let (each, p) = (EVENTS / TRANSACTIONS, stage.session().await);
    for first in (0..EVENTS).step_by(each) {
        let some = format!(
            "insert into postrider.event (topic, type, key, payload_bytes)
             select 'order', 'order', 'k' || n % {KEYS}, convert_to(n::text, 'utf8')
             from generate_series({first}, {first} + {each} - 1) as n"
        );
        run(&p, &some).await;
    }
    got.until("works", EVENTS).await;
    got.until("fails", EVENTS - EVENTS / KEYS).await;
    until(&stage, &format!("select (({BEHIND}) < 100000)::integer"), 1).await;
    // The same connection has said that it lives, for more than twice as long as the server waits for a word.
    let lives = format!(
        "select (reply_time > '{began}'::timestamptz + interval '5 s')::integer from pg_stat_replication where pid = {follower}"
    );
    until(&stage, &lives, 1).await;
    assert!(matches!(stage.store.reading(), (Reading::Stream { .. }, 1)), "{:?}", stage.store.reading());
    assert!(got.of("works") == wanted(0..KEYS), "each once and in order");
    assert!(got.of("fails") == wanted(1..KEYS), "all but the key that fails");
    assert!(got.of("stuck").is_empty() && got.of("paused").is_empty());
    stage.store.subscription_resume("paused").await.unwrap();
    got.until("paused", EVENTS).await;
    assert!(got.of("paused") == wanted(0..KEYS), "from the table, each once and in order");
    assert!(!running.is_finished());
    running.abort();
}
