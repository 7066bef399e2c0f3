//! Members that share a subscription, through what can happen to one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Delivery, Event, EventId, Failure, NewSubscription, RetryPolicy, Store};
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::{Database, Server, Settings, Version, shared};
use postrider_testkit::tcp_proxy::Proxy;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::stage::{Stage, until};

const KEYS: usize = 200;
/// The topic of events that no attempt delivers.
const FAILS: &str = "fails";

/// Who was given what, in order.
#[derive(Default)]
struct Log {
    seen: Mutex<Vec<(usize, EventId)>>,
    moved: Notify,
}

impl Log {
    fn note(&self, member: usize, event: EventId) {
        self.seen.lock().unwrap().push((member, event));
        self.moved.notify_waiters();
    }

    fn seen(&self) -> Vec<(usize, EventId)> {
        self.seen.lock().unwrap().clone()
    }

    async fn until(&self, reached: impl Fn(&[(usize, EventId)]) -> bool) {
        loop {
            let moved = self.moved.notified();
            if reached(&self.seen.lock().unwrap()) {
                return;
            }
            moved.await;
        }
    }

    /// Who was given something.
    fn members(&self) -> BTreeSet<usize> {
        self.seen().iter().map(|(member, _)| *member).collect()
    }
}

fn subscription() -> NewSubscription {
    NewSubscription::new("orders").retry(RetryPolicy::fixed(Duration::from_millis(20)).attempts_max(5))
}

async fn open(url: &str, lease: Duration) -> PostgresStore {
    PostgresStore::open(PostgresOptions::from_url(url).unwrap().lease(lease)).await.unwrap()
}

/// A relay in a task of its own, which is killed by aborting it.
fn start(store: PostgresStore, number: usize, log: &Arc<Log>) -> JoinHandle<()> {
    let log = Arc::clone(log);
    let handler = move |delivery: Delivery| {
        log.note(number, delivery.event.id);
        let fails = delivery.event.topic.as_str() == FAILS;
        async move { if fails { Err(Failure::retry("told to fail")) } else { Ok(()) } }
    };
    // All have the same name.
    let relay =
        Relay::new(store).name("ada").retention(None).worker(Worker::new(subscription()).each(handler));
    tokio::spawn(async move { relay.run(pending()).await.map(drop).unwrap() })
}

fn events(count: usize) -> Vec<postrider_core::NewEvent> {
    (0..count).map(|n| Event::new("order").key(format!("k{}", n % KEYS))).collect()
}

/// Waits until so many members hold an even part each.
async fn balanced(stage: &Stage, members: usize) {
    let uneven = format!(
        "select count(*) from (
            select member_id from postrider.shard group by member_id having member_id is null or count(*) > {0}
         ) as uneven",
        64_usize.div_ceil(members)
    );
    until(stage, &uneven, 0).await;
    until(stage, "select count(distinct member_id) from postrider.shard", members as i64).await;
}

async fn stage_on(db: Database) -> Stage {
    let stage = Stage::in_database(db).await;
    stage.store.subscription_create(subscription()).await.unwrap();
    stage
}

#[tokio::test]
async fn members_of_one_name_share_the_work() {
    let stage = stage_on(shared(Version::V15).create_database()).await;
    let log = Arc::new(Log::default());
    let lease = Duration::from_secs(8);
    for number in 0..2 {
        start(open(&stage.db.url, lease).await, number, &log);
    }
    balanced(&stage, 2).await;
    stage.store.event_emit(events(KEYS)).await.unwrap();
    log.until(|seen| seen.len() >= KEYS).await;
    assert_eq!(log.members().len(), 2);
    let each: BTreeSet<EventId> = log.seen().into_iter().map(|(_, event)| event).collect();
    assert_eq!((each.len(), log.seen().len()), (KEYS, KEYS), "each came once");
}

#[tokio::test]
async fn fifty_members_deliver_one_event_once() {
    let server = Server::start(Version::V15, Settings::fast().set("max_connections", "600"));
    let stage = stage_on(server.create_database()).await;
    let log = Arc::new(Log::default());
    for number in 0..50 {
        start(open(&stage.db.url, Duration::from_secs(8)).await, number, &log);
    }
    balanced(&stage, 50).await;
    stage.store.event_emit(events(1)).await.unwrap();
    log.until(|seen| !seen.is_empty()).await;
    // The member that delivered it has settled it, so no other member will.
    while stage.store.subscription_report("orders").await.unwrap().lag_events > 0 {}
    assert_eq!(log.seen().len(), 1);
}

/// The cadence of retries is that of the policy, however many members there are.
#[tokio::test]
async fn attempts_do_not_grow_with_the_members() {
    let stage = stage_on(shared(Version::V15).create_database()).await;
    let log = Arc::new(Log::default());
    for number in 0..4 {
        start(open(&stage.db.url, Duration::from_secs(8)).await, number, &log);
    }
    balanced(&stage, 4).await;
    let failing = (0..10).map(|n| Event::new(FAILS).key(format!("f{n}"))).collect();
    let failing: BTreeSet<EventId> = stage.store.event_emit(failing).await.unwrap().into_iter().collect();
    // The receiver works for others, so that it is not taken for sick.
    stage.store.event_emit(events(10 * KEYS)).await.unwrap();
    until(&stage, "select count(*) from postrider.delivery where state = 'dead'", 10).await;
    let mut attempts: BTreeMap<EventId, Vec<usize>> = BTreeMap::new();
    for (member, event) in log.seen() {
        attempts.entry(event).or_default().push(member);
    }
    for (event, members) in attempts.into_iter().filter(|(event, _)| failing.contains(event)) {
        assert_eq!(members.len(), 5, "event {event}");
        assert!(members.iter().all(|member| *member == members[0]), "one member made all attempts");
    }
}

/// A member that dies stops its own shards until its lease has run out. The shards of others never stop.
#[tokio::test]
async fn a_crash_disturbs_nobody_else() {
    let stage = stage_on(shared(Version::V18).create_database()).await;
    let log = Arc::new(Log::default());
    // So long that nothing can be taken over while the test looks.
    let victim = start(open(&stage.db.url, Duration::from_secs(3600)).await, 0, &log);
    start(open(&stage.db.url, Duration::from_secs(8)).await, 1, &log);
    balanced(&stage, 2).await;
    stage.store.event_emit(events(KEYS)).await.unwrap();
    log.until(|seen| seen.len() >= KEYS).await;
    let mine = log.seen().iter().filter(|(member, _)| *member == 1).count();
    while stage.store.subscription_report("orders").await.unwrap().lag_events > 0 {}
    victim.abort();
    assert!(victim.await.unwrap_err().is_cancelled());
    for round in 1..=5 {
        stage.store.event_emit(events(KEYS)).await.unwrap();
        log.until(|seen| seen.iter().filter(|(member, _)| *member == 1).count() >= mine * (round + 1)).await;
    }
    assert_eq!(
        stage.number("select count(distinct member_id) from postrider.shard"),
        2,
        "nothing was taken over"
    );
    // Its lease runs out: as if an hour had passed.
    stage.run("update postrider.member set beat_at = beat_at - interval '2 hours' where lease > interval '1 minute'");
    log.until(|seen| seen.iter().map(|(_, event)| *event).collect::<BTreeSet<_>>().len() == 6 * KEYS).await;
    assert_eq!(log.seen().len(), 6 * KEYS, "what was settled did not come again");
}

/// Cut off from the store but not from the receiver, a member stops handing out before anybody takes over.
#[tokio::test]
async fn a_member_that_is_cut_off_stops_before_another_begins() {
    let stage = stage_on(shared(Version::V15).create_database()).await;
    let log = Arc::new(Log::default());
    let proxy = Proxy::start(stage.db.address());
    let through = stage.db.through(proxy.address());
    let lease = Duration::from_secs(2);
    let slow = |log: &Arc<Log>, number: usize| {
        let log = Arc::clone(log);
        move |delivery: Delivery| {
            let log = Arc::clone(&log);
            async move {
                // tidy: sleep because there has to be something left in memory when the lease runs out
                tokio::time::sleep(Duration::from_millis(10)).await;
                log.note(number, delivery.event.id);
                Ok::<(), Failure>(())
            }
        }
    };
    let cut_off = Relay::new(open(&through.url, lease).await)
        .name("cut off")
        .worker(Worker::new(subscription().concurrency(4)).each(slow(&log, 0)));
    tokio::spawn(async move { cut_off.run(pending()).await.map(drop).unwrap() });
    stage.store.event_emit(events(20 * KEYS)).await.unwrap();
    log.until(|seen| seen.len() >= 100).await;
    proxy.black_hole();
    let heir = Relay::new(open(&stage.db.url, lease).await)
        .name("heir")
        .worker(Worker::new(subscription().concurrency(1000)).each(slow(&log, 1)));
    tokio::spawn(async move { heir.run(pending()).await.map(drop).unwrap() });
    let all = |seen: &[(usize, EventId)]| {
        seen.iter().map(|(_, event)| *event).collect::<BTreeSet<_>>().len() == 20 * KEYS
    };
    log.until(all).await;
    let seen = log.seen();
    let first = seen.iter().position(|(member, _)| *member == 1).expect("it took over");
    assert!(first < 20 * KEYS, "it was cut off in the middle");
    assert!(seen[first..].iter().all(|(member, _)| *member == 1), "nothing was begun past the lease");
}

/// Answers that take half a second each way cost speed, and no lease.
#[tokio::test]
async fn a_slow_network_loses_no_lease() {
    let stage = stage_on(shared(Version::V15).create_database()).await;
    let log = Arc::new(Log::default());
    let proxy = Proxy::start(stage.db.address());
    let through = stage.db.through(proxy.address());
    let store = open(&through.url, Duration::from_secs(8)).await;
    proxy.slow_down(Duration::from_millis(200));
    start(store, 0, &log);
    until(&stage, "select count(distinct member_id) from postrider.shard", 1).await;
    stage.store.event_emit(events(1000)).await.unwrap();
    log.until(|seen| seen.len() >= 1000).await;
    let settled = "select coalesce(max(last_id), 0) from (
        select last_id from postrider.position_a union all select last_id from postrider.position_b) as p";
    until(&stage, settled, 1000).await;
    assert_eq!(stage.number("select max(epoch) from postrider.shard"), 1, "nothing changed hands");
    assert_eq!(log.seen().len(), 1000, "each came once");
}

/// A relay that has its connections delivers on when the server gives none to others, and producers are told so.
#[tokio::test]
async fn a_server_without_connections_stops_no_relay() {
    let server = Server::start(Version::V15, Settings::fast().set("max_connections", "14"));
    let stage = stage_on(server.create_database()).await;
    let log = Arc::new(Log::default());
    start(open(&stage.db.url, Duration::from_secs(8)).await, 0, &log);
    until(&stage, "select count(distinct member_id) from postrider.shard", 1).await;
    stage.store.event_emit(events(1)).await.unwrap();
    log.until(|seen| seen.len() == 1).await;
    let mut taken = Vec::new();
    let refused = loop {
        match PostgresStore::open(PostgresOptions::from_url(&stage.db.url).unwrap()).await {
            Ok(store) => taken.push(store),
            Err(error) => break error,
        }
        assert!(taken.len() < 20, "the server never runs out of connections");
    };
    assert!(refused.is_retryable() && refused.to_string().contains("too many clients"), "{refused}");
    stage.store.event_emit(events(1)).await.unwrap();
    log.until(|seen| seen.len() == 2).await;
}

/// A member dies and the database's clock is set an hour back: the next member does not wait an hour for its shards.
#[tokio::test]
async fn a_clock_that_was_set_back_keeps_no_dead_member_alive() {
    let stage = stage_on(shared(Version::V15).create_database()).await;
    let log = Arc::new(Log::default());
    let lease = Duration::from_secs(2);
    let victim = start(open(&stage.db.url, lease).await, 0, &log);
    balanced(&stage, 1).await;
    victim.abort();
    assert!(victim.await.unwrap_err().is_cancelled());
    stage.run(
        "create or replace function postrider.clock() returns timestamptz language sql volatile parallel safe
         return pg_catalog.clock_timestamp() - interval '1 hour'",
    );
    start(open(&stage.db.url, lease).await, 1, &log);
    stage.store.event_emit(events(KEYS)).await.unwrap();
    log.until(|seen| seen.len() >= KEYS).await;
    assert_eq!(log.members(), BTreeSet::from([1]));
}
