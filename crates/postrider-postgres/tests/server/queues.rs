//! Mode `queue` with several processes and a real server: who gets what, in which order, and through which faults.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::queue::feed::Feeder;
use postrider_core::queue::{Ask, Claimed, Fate, Feed, QueueSettle, SettledRow};
use postrider_core::settle::MemberId;
use postrider_core::{
    Delivery, Event, EventId, Failure, Fair, LeaseBy, LogStore, Mode, NewEvent, NewSubscription, Order,
    QueueStore, Store, Subscription,
};
use postrider_postgres::PostgresStore;
use postrider_postgres::tokio_postgres::types::ToSql;
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::{Server, Settings, Version};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::stage::{AMPLE, Owner, Stage, emit, open, run, until};

const KEYS: usize = 20;
const LEFT: &str = "select (select count(*) from postrider.queued) + (select count(*) from postrider.claim)";

pub(crate) fn queue() -> NewSubscription {
    let mut new = NewSubscription::new("orders").mode(Mode::Queue).concurrency(8);
    new.tuning.queue.lease_by = LeaseBy::Event;
    new.tuning.queue.lease = Duration::from_secs(1);
    new
}

fn keyed(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| Event::new("order").key(format!("k{}", n % KEYS))).collect()
}

/// Claims by hand.
pub(crate) async fn claim(
    store: &PostgresStore,
    subscription: &Subscription,
    member: MemberId,
    rows: usize,
) -> Claimed {
    let ask =
        Ask { rows, events: 10_000, bytes: 1 << 30, again: rows, all: false, lease: Duration::from_secs(60) };
    store.claim(subscription, member, ask).await.unwrap()
}

pub(crate) async fn ack(
    store: &PostgresStore,
    subscription: &Subscription,
    member: MemberId,
    claimed: &Claimed,
) -> Vec<EventId> {
    let done = |id| SettledRow { id, token: claimed.token, fate: Fate::Done };
    let rows = claimed.rows.iter().map(|row| done(row.id)).collect();
    let settle = Arc::new(QueueSettle { rows, ..QueueSettle::default() });
    store.queue_settle(subscription, member, settle).await.unwrap().fenced
}

/// Feeds all that is there.
pub(crate) async fn feed(stage: &Stage, subscription: &Subscription) {
    let mut owner = Owner::of(&stage.store, &subscription.name).await;
    let mut feeder = Feeder::new(subscription, &stage.store.fed(&owner.hold).await.unwrap());
    loop {
        let chunk = owner.step(AMPLE).await.unwrap();
        let feed = Feed { mark: chunk.end, rows: feeder.plan(&chunk.events) };
        stage.store.feed(&owner.hold, Arc::new(feed)).await.unwrap();
        if !chunk.more {
            return;
        }
    }
}

/// Every event is claimed by one of eight. `POSTRIDER_QUEUE_EVENTS` says of how many.
#[tokio::test]
async fn eight_who_claim_share_no_event() {
    let events =
        std::env::var("POSTRIDER_QUEUE_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    for (version, by) in [(Version::V15, LeaseBy::Event), (Version::V18, LeaseBy::Block)] {
        let stage = Stage::on(version).await;
        let mut new = queue().order(Order::None);
        new.tuning.queue.lease_by = by;
        let subscription = stage.store.subscription_create(new).await.unwrap();
        stage.run(&format!(
            "insert into postrider.event (topic, type) select 'order', 'order' from generate_series(1, {events})"
        ));
        feed(&stage, &subscription).await;
        let mut tasks = Vec::new();
        for n in 0..8 {
            let (store, subscription) = (open(&stage.db).await, subscription.clone());
            tasks.push(tokio::spawn(async move {
                let member = store.member_join("ada").await.unwrap();
                let mut seen = Vec::new();
                loop {
                    let claimed = claim(&store, &subscription, member, 10 + n).await;
                    if claimed.rows.is_empty() {
                        return seen;
                    }
                    seen.extend(claimed.rows.iter().flat_map(|row| &row.events).map(|event| event.id));
                    assert_eq!(ack(&store, &subscription, member, &claimed).await, []);
                }
            }));
        }
        let mut seen = BTreeSet::new();
        for task in tasks {
            for id in task.await.unwrap() {
                assert!(seen.insert(id), "event {id} was handed out twice");
            }
        }
        assert_eq!((seen.len(), stage.number(LEFT)), (events, 0), "{version:?}");
    }
}

/// Ways that the planner may be kept from, in all combinations.
const WAYS: [&str; 8] =
    ["nestloop", "hashjoin", "mergejoin", "material", "indexscan", "bitmapscan", "seqscan", "sort"];

/// However the server goes about it: a claim leases as many rows as it may, and notes these and no others.
#[tokio::test]
async fn a_claim_keeps_to_its_limit_under_any_plan() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let subscription = stage.store.subscription_create(queue().order(Order::None)).await.unwrap();
        // What the planner knows is that there is nothing.
        stage.run("analyze postrider.queued; analyze postrider.claim");
        stage.run(
            "insert into postrider.event (topic, type) select 'order', 'order' from generate_series(1, 300)",
        );
        feed(&stage, &subscription).await;
        let statement = include_str!("../../sql/queue/feed/queued_claim.sql")
            .replace("$10", "$lows")
            .replace("$8", "interval '1 min'")
            .replace("$9", "$8")
            .replace("$lows", "$9");
        let (rows, many) = (3_i64, 1_000_000_i64);
        let (ranks, lows, member) = (vec![0_i16], vec![i64::MIN], 1_i64);
        let told: [&(dyn ToSql + Sync); 9] =
            [&subscription.id.0, &rows, &many, &many, &ranks, &lows, &member, &rows, &lows];
        let mut session = stage.session().await;
        run(&session, "set jit = off").await;
        for kept_from in 0..1_usize << WAYS.len() {
            let tx = session.transaction().await.unwrap();
            for (n, way) in WAYS.iter().enumerate() {
                let allowed = if kept_from >> n & 1 == 0 { "on" } else { "off" };
                tx.batch_execute(&format!("set local enable_{way} = {allowed}")).await.unwrap();
            }
            let leased = tx.query(&statement, &told).await.unwrap().len();
            let noted = "select count(*), (select sum(rows_left) from postrider.claim),
                             (select count(*) from postrider.claim, unnest(rows) as row
                              where row in (select event_id from postrider.queued where leased))
                         from postrider.queued where leased";
            let noted = tx.query_one(noted, &[]).await.unwrap();
            let noted: (i64, i64, i64) = (noted.get(0), noted.get(1), noted.get(2));
            assert_eq!((leased, noted), (3, (3, 3, 3)), "{version:?}, kept from {kept_from:b} of {WAYS:?}");
            tx.rollback().await.unwrap();
        }
    }
}

/// A tenant that brings a thousand times as many events as each of the others gets no more than each of them.
#[tokio::test]
async fn a_noisy_tenant_gets_one_share_of_fifty() {
    const QUIET: usize = 49;
    let stage = Stage::on(Version::V15).await;
    let mut new = queue().order(Order::None);
    new.tuning.queue.fair = Fair::Key;
    let subscription = stage.store.subscription_create(new).await.unwrap();
    stage.run(
        "insert into postrider.event (topic, type, key)
         select 'order', 'order', 'noisy' from generate_series(1, 20000)",
    );
    feed(&stage, &subscription).await;
    let member = stage.store.member_join("ada").await.unwrap();
    // The noisy one has been served for a while when the others come.
    let begun = claim(&stage.store, &subscription, member, 500).await;
    assert_eq!(ack(&stage.store, &subscription, member, &begun).await, []);
    stage.run(&format!(
        "insert into postrider.event (topic, type, key)
         select 'order', 'order', 'quiet ' || n % {QUIET} from generate_series(1, {QUIET} * 20) as n"
    ));
    feed(&stage, &subscription).await;
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    let mut left = (QUIET + 1) * 20;
    while left > 0 {
        let claimed = claim(&stage.store, &subscription, member, left.min(25)).await;
        for event in claimed.rows.iter().flat_map(|row| &row.events) {
            *served.entry(event.key.as_ref().unwrap().to_string()).or_default() += 1;
        }
        left -= claimed.rows.len();
        assert_eq!(ack(&stage.store, &subscription, member, &claimed).await, []);
    }
    assert_eq!(served.len(), QUIET + 1);
    // One claim more or less for where each of them stood.
    assert!(served.values().all(|count| (19..=21).contains(count)), "{served:?}");
}

/// What handlers did, in order.
#[derive(Default)]
struct Log {
    steps: Mutex<Vec<Step>>,
    moved: Notify,
}

#[derive(Debug, Clone)]
struct Step {
    key: String,
    event: EventId,
    begins: bool,
}

impl Log {
    fn note(&self, delivery: &Delivery, begins: bool) {
        let key = delivery.key.as_ref().map(ToString::to_string).unwrap_or_default();
        self.steps.lock().unwrap().push(Step { key, event: delivery.id, begins });
        self.moved.notify_waiters();
    }

    async fn until_ended(&self, count: usize) {
        loop {
            let moved = self.moved.notified();
            if self.steps.lock().unwrap().iter().filter(|step| !step.begins).count() >= count {
                return;
            }
            moved.await;
        }
    }
}

fn start(store: PostgresStore, log: &Arc<Log>) -> JoinHandle<()> {
    let log = Arc::clone(log);
    let handler = move |delivery: Delivery| {
        let log = Arc::clone(&log);
        async move {
            log.note(&delivery, true);
            tokio::task::yield_now().await;
            log.note(&delivery, false);
            Ok::<(), Failure>(())
        }
    };
    let relay = Relay::new(store).retention(None).worker(Worker::new(queue()).each(handler));
    tokio::spawn(async move { relay.run(pending()).await.map(drop).unwrap() })
}

/// The feeder and the workers that settle meet in the same few keys all the time. No event is left waiting when
/// nothing holds it up.
#[tokio::test]
async fn a_keys_events_come_one_by_one_whoever_works() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let log = Arc::new(Log::default());
        for _ in 0..3 {
            start(open(&stage.db).await, &log);
        }
        let mut ids = Vec::new();
        for _ in 0..60 {
            ids.extend(stage.store.event_emit(keyed(40)).await.unwrap());
        }
        log.until_ended(ids.len()).await;
        until(&stage, LEFT, 0).await;
        let mut open: BTreeMap<String, EventId> = BTreeMap::new();
        let mut last: BTreeMap<String, EventId> = BTreeMap::new();
        for Step { key, event, begins } in log.steps.lock().unwrap().iter() {
            if *begins {
                assert_eq!(open.insert(key.clone(), *event), None, "two of key {key} at a time");
                assert!(
                    last.insert(key.clone(), *event).is_none_or(|last| last < *event),
                    "key {key} goes back"
                );
            } else {
                assert_eq!(open.remove(key), Some(*event));
            }
        }
        assert_eq!(log.steps.lock().unwrap().len(), 2 * ids.len(), "each came once");
        assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
    }
}

/// A worker that is gone is followed by another, and its key goes on in order.
#[tokio::test]
async fn a_dead_workers_events_are_delivered_by_another() {
    let stage = Stage::on(Version::V15).await;
    let ids = stage.store.event_emit(keyed(KEYS * 2)).await.unwrap();
    let stuck = Arc::new(Notify::new());
    let begun = Arc::clone(&stuck);
    let worker = Worker::new(queue()).each(move |_: Delivery| {
        begun.notify_one();
        pending::<Result<(), Failure>>()
    });
    let relay = Relay::new(open(&stage.db).await).retention(None).worker(worker);
    let victim = tokio::spawn(async move { relay.run(pending()).await.map(drop).unwrap() });
    stuck.notified().await;
    victim.abort();
    assert!(victim.await.unwrap_err().is_cancelled());
    let log = Arc::new(Log::default());
    start(open(&stage.db).await, &log);
    log.until_ended(ids.len()).await;
    until(&stage, LEFT, 0).await;
    let ended: BTreeSet<EventId> = log.steps.lock().unwrap().iter().map(|step| step.event).collect();
    assert_eq!(ended, ids.into_iter().collect());
}

/// The server never forgets a token that it gave: no other claim can get the same one.
#[tokio::test]
async fn a_claim_survives_a_crash_of_the_server() {
    for version in Version::ALL {
        // Nothing reaches the disk unless a session waits for it.
        let mut server = Server::start(version, Settings::fast().set("wal_writer_delay", "10s"));
        let stage = Stage::in_database(server.create_database()).await;
        let subscription = stage.store.subscription_create(queue()).await.unwrap();
        stage.store.event_emit(keyed(3)).await.unwrap();
        feed(&stage, &subscription).await;
        let member = stage.store.member_join("ada").await.unwrap();
        let claimed = claim(&stage.store, &subscription, member, 2).await;
        assert_eq!(claimed.rows.len(), 2);
        server.kill_immediate();
        server.start_again();
        let after = open(&stage.db).await;
        let other = after.member_join("bob").await.unwrap();
        let theirs = claim(&after, &subscription, other, 9).await;
        assert_eq!(theirs.rows.len(), 1, "{version:?}: what was claimed is not free");
        assert!(theirs.token > claimed.token);
        assert_eq!(after.extend(vec![claimed.token], vec![]).await.unwrap().len(), 1);
        assert_eq!(ack(&after, &subscription, other, &claimed).await, []);
    }
}

/// Nor does it forget a token that it gave with a feed, although no session waits for the feed's own commits. The
/// events do not vanish, although their producer does not wait for the disk either.
#[tokio::test]
async fn a_claim_of_a_feeder_survives_a_crash_of_the_server() {
    let mut server = Server::start(Version::V18, Settings::fast().set("wal_writer_delay", "10s"));
    let stage = Stage::in_database(server.create_database()).await;
    let subscription = stage.store.subscription_create(queue()).await.unwrap();
    let owner = Owner::of(&stage.store, &subscription.name).await;
    let mut feeder = Feeder::new(&subscription, &stage.store.fed(&owner.hold).await.unwrap());
    let p = stage.session().await;
    run(&p, "set synchronous_commit = off").await;
    for n in 0..3 {
        emit(&p, &format!("k{n}"), "").await;
    }
    let chunk = owner.store.fetch(&owner.hold, owner.at, AMPLE).await.unwrap();
    assert_eq!(chunk.events.len(), 3, "nobody waits for the disk before the claim");
    let feed = Arc::new(Feed { mark: chunk.end, rows: feeder.plan(&chunk.events) });
    let ask =
        Ask { rows: 2, events: 9, bytes: 1 << 30, again: 2, all: false, lease: Duration::from_secs(60) };
    let (_, claimed) = stage.store.feed_and_claim(&owner.hold, feed, chunk.events, ask).await.unwrap();
    let claimed = claimed.unwrap();
    assert_eq!(claimed.rows.len(), 2);
    server.kill_immediate();
    server.start_again();
    let after = open(&stage.db).await;
    let other = after.member_join("bob").await.unwrap();
    let theirs = claim(&after, &subscription, other, 9).await;
    assert_eq!(theirs.rows.len(), 1, "what was claimed is not free, and the third was fed");
    assert!(theirs.token > claimed.token);
    assert_eq!(stage.number("select count(*) from postrider.event"), 3);
    assert_eq!(ack(&after, &subscription, other, &claimed).await, []);
}

/// A member that takes shards over waits for a feed as it does for a settle, because both hold the same locks.
#[tokio::test]
async fn a_feed_holds_the_locks_of_a_settle() {
    let stage = Stage::on(Version::V15).await;
    let subscription = stage.store.subscription_create(queue()).await.unwrap();
    let owner = Owner::of(&stage.store, &subscription.name).await;
    let (id, member) = (subscription.id.0, owner.hold.member.0);
    let session = stage.session().await;
    let held = "select string_agg(format('%s %s %s %s', classid, objid, objsubid, mode), ', ' order by classid, objid)
                from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    let mut locks = Vec::new();
    for (text, fenced) in [
        (include_str!("../../sql/ownership/lock/lock_settle.sql"), false),
        (include_str!("../../sql/queue/feed/hold_check.sql"), true),
    ] {
        let query = "select fence from postrider.subscription where id = $1";
        let fence: i64 = session.query_one(query, &[&id]).await.unwrap().get(0);
        session.batch_execute("begin").await.unwrap();
        if fenced {
            session.query(text, &[&id, &member, &fence]).await.unwrap();
        } else {
            session.query(text, &[&id, &member]).await.unwrap();
        }
        locks.push(session.query_one(held, &[]).await.unwrap().get::<_, Option<String>>(0));
        session.batch_execute("rollback").await.unwrap();
    }
    assert!(locks[0].is_some());
    assert_eq!(locks[0], locks[1]);
}

/// Rows that are claimed change no index; what is gone is not in the way of those who come later.
#[tokio::test]
async fn a_claim_is_an_update_within_its_page() {
    let stage = Stage::on(Version::V15).await;
    let subscription = stage.store.subscription_create(queue().order(Order::None)).await.unwrap();
    stage.run(
        "insert into postrider.event (topic, type) select 'order', 'order' from generate_series(1, 2000)",
    );
    feed(&stage, &subscription).await;
    let member = stage.store.member_join("ada").await.unwrap();
    let claimed = claim(&stage.store, &subscription, member, 1000).await;
    assert_eq!(claimed.rows.len(), 1000);
    let hot = "select coalesce(sum(n_tup_hot_upd), 0) from pg_stat_all_tables where relname = 'queued'";
    until(&stage, hot, 1000).await;
}

/// A claim passes over rows that another one has in hand, and the other one may leave them. A relay that ends
/// when nothing is left must not have passed over them for good.
#[tokio::test]
async fn whoever_ends_when_nothing_is_left_has_found_what_others_had_in_hand_and_left() {
    let stage = Stage::on(Version::V15).await;
    let mut new = queue().order(Order::None);
    new.tuning.queue.lease_by = LeaseBy::Block;
    let subscription = stage.store.subscription_create(new.clone()).await.unwrap();
    stage.run(
        "insert into postrider.event (topic, type) select 'order', 'order' from generate_series(1, 300)",
    );
    feed(&stage, &subscription).await;
    let other = stage.session().await;
    other
        .batch_execute("begin; select from postrider.queued order by event_id limit 1 for update")
        .await
        .unwrap();
    let (begun, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes_on) = (Arc::clone(&begun), Arc::clone(&left));
    let worker = Worker::new(new).each(move |delivery: Delivery| {
        let (begins, goes_on) = (Arc::clone(&begins), Arc::clone(&goes_on));
        async move {
            if delivery.id == EventId(101) {
                begins.notify_one();
                goes_on.notified().await;
            }
            Ok::<(), Failure>(())
        }
    });
    let relay = tokio::spawn(Relay::new(open(&stage.db).await).worker(worker).run_until_idle(pending()));
    begun.notified().await;
    other.batch_execute("rollback").await.unwrap();
    left.notify_one();
    assert_eq!(relay.await.unwrap().unwrap().delivered, 300);
}

/// A transaction that is open in a handler holds up nothing but its own key.
#[tokio::test]
async fn whoever_is_about_to_take_a_head_away_does_not_hold_up_the_feed() {
    let stage = Stage::on(Version::V18).await;
    let subscription = stage.store.subscription_create(queue()).await.unwrap();
    stage.store.event_emit(keyed(1)).await.unwrap();
    feed(&stage, &subscription).await;
    // As a settle does, and then takes its time.
    let slow = stage.session().await;
    slow.batch_execute("begin").await.unwrap();
    let bucket = "select pg_advisory_xact_lock_shared(
        (('postrider.queued'::regclass::oid::bigint + $1::bigint * 7919) % 2147483647)::integer, bucket
    ) from generate_series(0, 255) as bucket";
    slow.query(bucket, &[&subscription.id.0]).await.unwrap();
    stage.store.event_emit(vec![Event::new("order").key("other"), Event::new("order")]).await.unwrap();
    feed(&stage, &subscription).await;
    let member = stage.store.member_join("ada").await.unwrap();
    let first = claim(&stage.store, &subscription, member, 9).await;
    assert_eq!(first.rows.len(), 2, "the head of the first key, and the event without one");
    assert_eq!(stage.store.sweep(&subscription).await.unwrap().due, 0);
    assert_eq!(
        claim(&stage.store, &subscription, member, 9).await.rows.len(),
        0,
        "it is not known whether it may go"
    );
    slow.batch_execute("rollback").await.unwrap();
    stage.store.sweep(&subscription).await.unwrap();
    assert_eq!(claim(&stage.store, &subscription, member, 9).await.rows.len(), 1, "it was looked at again");
}
