//! Handlers that ack in transactions of their own, with real servers: through each client library, as each
//! role, beside those who feed and extend, and through faults.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::Connection as _;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use postrider_core::delivery::Origin;
use postrider_core::queue::{Claimed, Fate, QueueSettle, SettledRow, Ticket};
use postrider_core::{
    Delivery, ErrorKind, Event, EventId, Failure, LeaseBy, LogStore, NewEvent, NewSubscription, Order,
    QueueStore, Result, RetryPolicy, Store, Subscription, ack_in,
};
use postrider_postgres::tokio_postgres::IsolationLevel;
use postrider_postgres::{RoleKind, Roles};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::Version;
use sea_orm::TransactionTrait as _;
use sqlx::Connection as _;
use tokio::sync::Notify;

use crate::queues::{ack, claim, feed, queue};
use crate::stage::{Stage, connect, open, until};

const EFFECTS: &str = "create table effect (event_id bigint not null)";
const QUEUED: &str = "select count(*) from postrider.queued";

fn deliveries(subscription: &Subscription, claimed: &Claimed) -> Vec<Delivery> {
    let origin = Arc::new(Origin { subscription: subscription.name.clone(), store_id: String::new() });
    let deliver = |event: &Arc<Event>| {
        let ticket = Some(Ticket::new(subscription.id, event.id, claimed.token));
        Delivery { ticket, ..Delivery::new(Arc::clone(event), 1, Arc::clone(&origin)) }
    };
    claimed.rows.iter().flat_map(|row| &row.events).map(deliver).collect()
}

/// A queue, and deliveries of all that was emitted to it.
async fn delivered(
    stage: &Stage,
    new: NewSubscription,
    events: Vec<NewEvent>,
) -> (Subscription, Claimed, Vec<Delivery>) {
    let subscription = stage.store.subscription_create(new).await.unwrap();
    stage.store.event_emit(events).await.unwrap();
    feed(stage, &subscription).await;
    let member = stage.store.member_join("ada").await.unwrap();
    let claimed = claim(&stage.store, &subscription, member, 100).await;
    let deliveries = deliveries(&subscription, &claimed);
    (subscription, claimed, deliveries)
}

async fn ack_tokio(url: &str, delivery: &Delivery) -> Result<()> {
    let mut client = connect(url).await;
    let tx = client.transaction().await.unwrap();
    ack_in(&tx, delivery).await?;
    tx.commit().await.unwrap();
    Ok(())
}

async fn ack_sqlx(url: &str, delivery: &Delivery) -> Result<()> {
    let mut conn = sqlx::PgConnection::connect(url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    ack_in(&mut tx, delivery).await?;
    tx.commit().await.unwrap();
    Ok(())
}

async fn ack_diesel(url: &str, delivery: &Delivery) -> Result<()> {
    let (url, delivery) = (url.to_owned(), delivery.clone());
    let blocking = move || {
        let mut conn = diesel::PgConnection::establish(&url).unwrap();
        let mut acked = Ok(());
        let ended = conn.transaction(|tx| {
            acked = ack_in(tx, &delivery);
            acked.as_ref().map(drop).map_err(|_| diesel::result::Error::RollbackTransaction)
        });
        assert_eq!(ended.is_ok(), acked.is_ok());
        acked
    };
    tokio::task::spawn_blocking(blocking).await.unwrap()
}

async fn ack_diesel_async(url: &str, delivery: &Delivery) -> Result<()> {
    let mut conn = AsyncPgConnection::establish(url).await.unwrap();
    let mut acked = Ok(());
    let _ = conn
        .transaction::<(), diesel::result::Error, _>(async |tx| {
            acked = ack_in(tx, delivery).await;
            acked.as_ref().map(drop).map_err(|_| diesel::result::Error::RollbackTransaction)
        })
        .await;
    acked
}

async fn ack_sea_orm(url: &str, delivery: &Delivery) -> Result<()> {
    let db = sea_orm::Database::connect(url).await.unwrap();
    let tx = db.begin().await.unwrap();
    ack_in(&tx, delivery).await?;
    tx.commit().await.unwrap();
    Ok(())
}

/// Each client library acks, and gets an error when the claim has lost the event.
#[tokio::test(flavor = "multi_thread")]
async fn every_client_library_acks() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let (_, _, deliveries) = delivered(&stage, queue(), vec![Event::new("order"); 5]).await;
        let url = stage.db.url.as_str();
        for round in 0..2 {
            let said = [
                ack_tokio(url, &deliveries[0]).await,
                ack_sqlx(url, &deliveries[1]).await,
                ack_diesel(url, &deliveries[2]).await,
                ack_diesel_async(url, &deliveries[3]).await,
                ack_sea_orm(url, &deliveries[4]).await,
            ];
            for (n, said) in said.into_iter().enumerate() {
                match said {
                    Ok(()) => assert_eq!(round, 0, "{n}: it was acked already"),
                    Err(error) => assert_eq!((error.kind(), round), (ErrorKind::Fenced, 1), "{n}: {error}"),
                }
            }
            assert!(deliveries.iter().all(|delivery| delivery.lease().unwrap().is_acked()));
            assert_eq!(stage.number(QUEUED), 0);
        }
    }
}

/// A relay's role may ack, and so may one that was given the function; a producer may not.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_ack_was_told_so() {
    let stage = Stage::on(Version::V18).await;
    let (_, _, deliveries) = delivered(&stage, queue(), vec![Event::new("order"); 2]).await;
    let roles = Roles::new("postrider", &stage.db.name).unwrap();
    stage.store.roles_create(&roles).await.unwrap();
    let login = |name: &str, kind| {
        let name = format!("{}_{name}", stage.db.name);
        stage.run(&format!("create role {name} login in role {}", roles.name(kind)));
        (stage.db.url.replace("postgres@", &format!("{name}@")), name)
    };
    let (relay, _) = login("ada", RoleKind::Relay);
    ack_tokio(&relay, &deliveries[0]).await.unwrap();
    let (app, name) = login("bob", RoleKind::Producer);
    let refused = ack_tokio(&app, &deliveries[1]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
    stage.run(&format!("grant execute on function postrider.ack to {name}"));
    ack_tokio(&app, &deliveries[1]).await.unwrap();
    assert_eq!(stage.number(QUEUED), 0);
}

/// An ack with an old snapshot cannot know which events wait behind its own, and its error says so. Where no event
/// can wait, the snapshot does not matter.
#[tokio::test]
async fn an_old_snapshot_acks_only_what_nobody_waits_for() {
    let stage = Stage::on(Version::V15).await;
    let events = vec![Event::new("order").key("a"), Event::new("order")];
    let (_, _, deliveries) = delivered(&stage, queue(), events).await;
    for (delivery, acks) in deliveries.iter().zip([false, true]) {
        let mut client = stage.session().await;
        let level = IsolationLevel::RepeatableRead;
        let tx = client.build_transaction().isolation_level(level).start().await.unwrap();
        let said = ack_in(&tx, delivery).await;
        assert_eq!(said.is_ok(), acks, "{said:?}");
        assert!(said.is_ok() || said.unwrap_err().to_string().contains("read committed"));
        tx.commit().await.unwrap();
    }
    assert_eq!(stage.number(QUEUED), 1);
}

/// A handler that takes its time between its ack and its commit keeps neither its lease from being extended
/// nor others from being fed, claimed and settled.
#[tokio::test]
async fn an_open_ack_holds_nobody_up() {
    let stage = Stage::on(Version::V18).await;
    let events = vec![Event::new("order").key("a"), Event::new("order")];
    let (subscription, claimed, deliveries) = delivered(&stage, queue(), events).await;
    let mut client = stage.session().await;
    let tx = client.transaction().await.unwrap();
    ack_in(&tx, &deliveries[0]).await.unwrap();
    assert_eq!(stage.store.extend(vec![claimed.token], vec![]).await.unwrap().len(), 1);
    stage.store.event_emit(vec![Event::new("order").key("a"), Event::new("order")]).await.unwrap();
    feed(&stage, &subscription).await;
    let other = stage.store.member_join("bob").await.unwrap();
    let more = claim(&stage.store, &subscription, other, 9).await;
    assert_eq!(more.rows.len(), 1, "the key waits");
    let settled = ack(&stage.store, &subscription, other, &more).await;
    assert_eq!(settled, []);
    // Whether it commits is not known: that its worker believes so must neither wait nor free it.
    let id = deliveries[0].id;
    let rows = vec![SettledRow { id, token: claimed.token, fate: Fate::Acked(vec![id]) }];
    let settle = Arc::new(QueueSettle { rows, ..QueueSettle::default() });
    stage.store.queue_settle(&subscription, other, settle).await.unwrap();
    assert_eq!(claim(&stage.store, &subscription, other, 9).await.rows.len(), 0);
    tx.commit().await.unwrap();
    stage.store.sweep(&subscription).await.unwrap();
    let next = claim(&stage.store, &subscription, other, 9).await;
    assert_eq!(next.rows.len(), 1, "what was fed meanwhile waits for nobody");
}

/// Two handlers of one block ack at the same time; the second waits for the first, whatever becomes of that.
#[tokio::test]
async fn events_of_a_block_are_acked_side_by_side() {
    for commits in [true, false] {
        let stage = Stage::on(Version::V15).await;
        let mut new = queue().order(Order::None);
        new.tuning.queue.lease_by = LeaseBy::Block;
        let (_, _, deliveries) = delivered(&stage, new, vec![Event::new("order"); 3]).await;
        let mut client = stage.session().await;
        let tx = client.transaction().await.unwrap();
        ack_in(&tx, &deliveries[0]).await.unwrap();
        let (url, second) = (stage.db.url.clone(), deliveries[1].clone());
        let waiting = tokio::spawn(async move { ack_tokio(&url, &second).await });
        let waits = "select count(*) from pg_locks where not granted and locktype = 'transactionid'";
        until(&stage, waits, 1).await;
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        waiting.await.unwrap().unwrap();
        let left = stage.number("select events from postrider.queued");
        assert_eq!(left, if commits { 1 } else { 2 });
    }
}

/// Handlers commit, roll back, fail and are cut off, in three processes of which one is killed: each effect
/// is there once.
#[tokio::test(flavor = "multi_thread")]
async fn effects_happen_once_whatever_happens() {
    for (version, by) in [(Version::V15, LeaseBy::Event), (Version::V18, LeaseBy::Block)] {
        let stage = Stage::on(version).await;
        stage.run(EFFECTS);
        let (calls, moved) = (Arc::new(Calls::default()), Arc::new(Notify::new()));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let mut new = queue().retry(RetryPolicy::fixed(Duration::from_millis(10)).attempts_max(100));
            new.tuning.queue.lease_by = by;
            let (calls, moved, url) = (Arc::clone(&calls), Arc::clone(&moved), stage.db.url.clone());
            let worker = Worker::new(new).each(move |delivery: Delivery| {
                let (call, url) = (calls.note(delivery.id), url.clone());
                moved.notify_waiters();
                async move { pay(&url, &delivery, call).await }
            });
            let relay = Relay::new(open(&stage.db).await).retention(None).worker(worker);
            tasks.push(tokio::spawn(async move { relay.run(pending()).await.map(drop).unwrap() }));
        }
        let event = |n: usize| match n % 3 {
            0 => Event::new("order"),
            _ => Event::new("order").key(format!("k{}", n % 7)),
        };
        let ids = stage.store.event_emit((0..300).map(event).collect()).await.unwrap();
        loop {
            let moved = moved.notified();
            if calls.count.load(Ordering::Relaxed) > 60 {
                break;
            }
            moved.await;
        }
        tasks[0].abort();
        until(&stage, "select count(*) from effect", ids.len() as i64).await;
        until(&stage, QUEUED, 0).await;
        let effects = stage.db.query("select event_id from effect");
        let effects: Vec<EventId> =
            effects.iter().map(|row| EventId(row[0].as_ref().unwrap().parse().unwrap())).collect();
        assert_eq!(effects.len(), ids.len(), "{version:?}");
        assert_eq!(effects.into_iter().collect::<BTreeSet<_>>(), ids.into_iter().collect::<BTreeSet<_>>());
        assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// What handlers were called for.
#[derive(Default)]
struct Calls {
    count: AtomicUsize,
    seen: Mutex<BTreeSet<EventId>>,
}

#[derive(Clone, Copy)]
enum Call {
    Commits,
    Fails,
    /// Rolls back and says nothing. That counts as the end of a worker, so that no event may see it often.
    Forgets,
}

impl Calls {
    fn note(&self, event: EventId) -> Call {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        let first = self.seen.lock().unwrap().insert(event);
        match event.0 % 7 {
            0 if first => Call::Forgets,
            _ if n.is_multiple_of(5) => Call::Fails,
            _ => Call::Commits,
        }
    }
}

/// A handler.
async fn pay(url: &str, delivery: &Delivery, call: Call) -> Result<(), Failure> {
    let failed = |error: &dyn std::error::Error| Failure::retry(error.to_string());
    let mut client = connect(url).await;
    let tx = client.transaction().await.map_err(|error| failed(&error))?;
    let effect = "insert into effect values ($1)";
    tx.execute(effect, &[&delivery.id.0]).await.map_err(|error| failed(&error))?;
    ack_in(&tx, delivery).await.map_err(|error| failed(&error))?;
    match call {
        Call::Commits => tx.commit().await.map_err(|error| failed(&error)),
        Call::Fails => Err(Failure::retry("rolled back")),
        Call::Forgets => tx.rollback().await.map_err(|error| failed(&error)),
    }
}
