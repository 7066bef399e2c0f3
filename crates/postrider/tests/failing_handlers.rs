//! A hundred thousand events, a thousand keys, a handler that fails one time in twenty: everything arrives, in
//! order, once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::sqlite::{SqliteOptions, SqliteStore, rusqlite};
use postrider::{Delivery, Event, Failure, NewSubscription, Relay, RetryPolicy, Worker, emit};

const EVENTS: u64 = 100_000;
const KEYS: u64 = 1_000;
const SEED: u64 = 20_261_115;

/// What the handler has accepted: per key, the numbers of its events in the order in which they came.
#[derive(Default)]
struct Received {
    by_key: HashMap<String, Vec<u64>>,
    accepted: u64,
    failed: u64,
}

fn emit_all(path: &std::path::Path) {
    let mut db = rusqlite::Connection::open(path).unwrap();
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    for n in 0..EVENTS {
        emit(&tx, Event::new("order").key(n % KEYS).payload((n / KEYS).to_string())).unwrap();
    }
    tx.commit().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_in_order_once_although_one_attempt_in_twenty_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).await.unwrap();
    emit_all(&path);

    let received = Arc::new(Mutex::new(Received::default()));
    let chance = Arc::new(Mutex::new(fastrand::Rng::with_seed(SEED)));
    let all_accepted = Arc::new(tokio::sync::Notify::new());
    let (seen, last) = (Arc::clone(&received), Arc::clone(&all_accepted));
    let handler = move |delivery: Delivery| {
        let (seen, last) = (Arc::clone(&seen), Arc::clone(&last));
        let fails = chance.lock().unwrap().u32(0..20) == 0;
        async move {
            let mut seen = seen.lock().unwrap();
            if fails {
                seen.failed += 1;
                return Err(Failure::retry("one in twenty"));
            }
            let number = std::str::from_utf8(&delivery.payload).unwrap().parse().unwrap();
            seen.by_key.entry(delivery.key.as_ref().unwrap().to_string()).or_default().push(number);
            seen.accepted += 1;
            if seen.accepted == EVENTS {
                last.notify_one();
            }
            Ok(())
        }
    };
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).attempts_max(100);
    let worker = Worker::new(NewSubscription::new("orders").retry(retry)).each(handler);
    let summary = Relay::new(store).worker(worker).run(all_accepted.notified()).await.unwrap();

    let received = received.lock().unwrap();
    assert!(received.failed > EVENTS / 40, "the handler hardly ever failed");
    assert_eq!(
        (summary.delivered, summary.failed, summary.dead, summary.cut_off),
        (EVENTS, received.failed, 0, 0)
    );
    let expected: Vec<u64> = (0..EVENTS / KEYS).collect();
    for (key, numbers) in &received.by_key {
        assert_eq!(numbers, &expected, "key {key}, seed {SEED}");
    }
    assert_eq!(received.by_key.len() as u64, KEYS);
}
