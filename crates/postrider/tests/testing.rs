//! The helpers for tests: what is due is delivered here and now, and what was emitted can be asserted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::sqlite::rusqlite::Connection;
use postrider::testing::{Emitted, Inline, Scratch, wanted};
use postrider::{
    Delivery, Event, Failure, InTasks, Mode, NewSubscription, RetryPolicy, Store, Worker, ack_in, emit,
};

const MINUTE: Duration = Duration::from_secs(60);

/// A worker that notes the types of its events.
fn noting(subscription: NewSubscription) -> (Worker<InTasks>, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let worker = Worker::new(subscription).each(move |delivery: Delivery| {
        noted.lock().unwrap().push(delivery.kind.to_string());
        std::future::ready(Ok::<(), Failure>(()))
    });
    (worker, seen)
}

#[tokio::test]
async fn everything_that_is_due_is_delivered_to_those_who_want_it() {
    let scratch = Scratch::new().await.unwrap();
    let later = Event::new("order").kind("order.forgotten").due_after(MINUTE);
    scratch.store().event_emit(vec![Event::new("order"), Event::new("mail"), later]).await.unwrap();
    let (orders, seen_orders) = noting(NewSubscription::new("orders").topic("order").unwrap());
    let (all, seen_all) = noting(NewSubscription::new("all").mode(Mode::Queue));
    let inline = Inline::new(&scratch.store()).worker(orders).worker(all);
    let summary = inline.run().await.unwrap();
    assert_eq!((summary.delivered, summary.failed, summary.dead), (3, 0, 0));
    assert_eq!(*seen_orders.lock().unwrap(), ["order"]);
    assert_eq!(seen_all.lock().unwrap().len(), 2);
    assert_eq!(inline.run().await.unwrap().delivered, 0, "nothing is delivered twice");
    let summary = inline.run_until(scratch.clock(), MINUTE * 2).await.unwrap();
    assert_eq!(summary.delivered, 2);
    assert_eq!(*seen_orders.lock().unwrap(), ["order", "order.forgotten"]);
}

#[tokio::test]
async fn what_handlers_emit_is_delivered_too_after_others_have_ended() {
    let scratch = Scratch::new().await.unwrap();
    scratch.store().event_emit(vec![Event::new("a").payload("3")]).await.unwrap();
    // Each answers the other until the number in the payload has come down to nothing.
    let answering = |topic: &'static str, other: &'static str| {
        let path = scratch.path();
        Worker::new(NewSubscription::new(topic).topic(topic).unwrap()).each(move |delivery: Delivery| {
            let path = path.clone();
            async move {
                let left: u32 = std::str::from_utf8(&delivery.payload)?.parse()?;
                if left > 0 {
                    let db = Connection::open(path)?;
                    emit(&db, Event::new(other).payload((left - 1).to_string()))?;
                }
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            }
        })
    };
    let inline = Inline::new(&scratch.store()).worker(answering("a", "b")).worker(answering("b", "a"));
    assert_eq!(inline.run().await.unwrap().delivered, 4);
    let emitted = scratch.emitted().await.unwrap();
    emitted.times(&wanted("a"), 2);
    emitted.times(&wanted("b"), 2);
}

#[tokio::test]
async fn retries_are_made_when_their_time_has_come_and_dead_letters_are_counted() {
    for mode in [Mode::Log, Mode::Queue] {
        let scratch = Scratch::new().await.unwrap();
        scratch
            .store()
            .event_emit(vec![Event::new("order").key(1), Event::new("order").key(1)])
            .await
            .unwrap();
        let retry = RetryPolicy::fixed(MINUTE).attempts_max(3);
        let fails = Worker::new(NewSubscription::new("q").mode(mode).retry(retry)).each(
            |delivery: Delivery| async move {
                if delivery.id.0 == 1 { Err(Failure::retry("no")) } else { Ok(()) }
            },
        );
        let inline = Inline::new(&scratch.store()).worker(fails);
        let summary = inline.run().await.unwrap();
        assert_eq!((summary.delivered, summary.failed), (0, 1), "the key waits");
        let summary = inline.run_until(scratch.clock(), MINUTE * 30).await.unwrap();
        assert_eq!((summary.delivered, summary.failed, summary.dead), (1, 2, 1));
    }
}

#[tokio::test]
async fn a_handler_that_acks_in_its_own_transaction_can_be_tested() {
    let scratch = Scratch::new().await.unwrap();
    scratch.connect().unwrap().execute("create table charge (event_id integer)", []).unwrap();
    scratch.store().event_emit(vec![Event::new("order"); 3]).await.unwrap();
    let path = scratch.path();
    let charges =
        Worker::new(NewSubscription::new("charges").mode(Mode::Queue)).each(move |delivery: Delivery| {
            let path = path.clone();
            async move {
                let mut db = Connection::open(path)?;
                let tx = db
                    .transaction_with_behavior(postrider::sqlite::rusqlite::TransactionBehavior::Immediate)?;
                tx.execute("insert into charge values (?1)", [delivery.id.0])?;
                ack_in(&tx, &delivery)?;
                tx.commit()?;
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            }
        });
    let summary = Inline::new(&scratch.store()).worker(charges).run().await.unwrap();
    assert_eq!((summary.delivered, summary.failed), (3, 0));
    let count = "select count(*), count(distinct event_id) from charge";
    let db = scratch.connect().unwrap();
    let counts: (i64, i64) = db.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(counts, (3, 3));
    assert_eq!(scratch.store().check().await.unwrap(), Vec::<String>::new());
}

/// What an assertion says that fails.
fn complaint(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[tokio::test]
async fn a_failed_assertion_says_what_was_emitted_instead() {
    let scratch = Scratch::new().await.unwrap();
    let order = wanted("order").kind("order.created").key(42).header("tenant", "acme");
    let said = complaint(|| drop(Emitted::default().times(&order, 1)));
    assert_eq!(
        said,
        "1 events were expected of topic `order`, type `order.created`, key `42`, header `tenant: acme`; found 0. \
         Nothing was emitted."
    );
    let paid = Event::new("order").kind("order.paid").key(42).payload("x".repeat(500));
    scratch.store().event_emit(vec![paid]).await.unwrap();
    scratch.store().event_emit(vec![Event::new("mail"); 30]).await.unwrap();
    let emitted = scratch.emitted().await.unwrap();
    let said = complaint(|| {
        emitted.one(&order);
    });
    assert!(said.contains("\n  1 order order.paid key 42: xxxx"), "{said}");
    assert!(said.contains("x… (500 bytes)") && said.ends_with("… and 11 more"), "{said}");
    assert!(said.len() < 3_000, "{} bytes", said.len());
    emitted.one(&wanted("order").key(42));
    emitted.times(&wanted("mail"), 30);
    emitted.none(&wanted("mail").kind("mail.sent"));
    let said = complaint(|| emitted.nothing());
    assert!(said.starts_with("0 events were expected of anything at all; found 31."), "{said}");
}
