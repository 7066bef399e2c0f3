//! Faults while workers have events of a queue in their hands: a network that is cut, a process that is
//! stopped, a server that does not answer, operators who do the same at the same time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::queue::{Again, Ask, Claimed, Count, Fate, QueueSettle, SettledRow};
use postrider_core::settle::MemberId;
use postrider_core::store::DeadLetterQuery;
use postrider_core::{Delivery, Event, Failure, LogStore, Order, QueueStore, Result, Store, Subscription};
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::{Server, Settings, Version};
use postrider_testkit::tcp_proxy::{Counting, Proxy, Side};
use tokio::sync::Notify;

use crate::queue_lanes::Hand;
use crate::queues::queue;
use crate::stage::{Stage, connect, emit, open, options, run, until};
use crate::takeover::{Sleeper, URL};

const LEFT: &str = "select (select count(*) from postrider.queued) + (select count(*) from postrider.claim)";

/// How an event stands: whether it is leased, its attempts that were begun and that failed, and how often it
/// is a dead letter; then what claims say of it.
const STANDS: &str = "
    select (select count(*) from postrider.queued),
        (select count(*) from postrider.queued where leased),
        (select coalesce(sum(started * 10 + finished), 0) from postrider.queued),
        (select count(*) from postrider.delivery where state = 'dead'),
        (select coalesce(sum(rows_left), 0) from postrider.claim)";

/// Rows, leased ones, what they count, letters, rows of claims.
type Stands = [i64; 5];

async fn stands(session: &Client) -> Stands {
    let row = session.query_one(STANDS, &[]).await.unwrap();
    [0, 1, 2, 3, 4].map(|column| row.get(column))
}

/// A worker behind a network that fails.
struct Far {
    stage: Stage,
    session: Client,
    proxy: Proxy,
    store: PostgresStore,
    subscription: Subscription,
    member: MemberId,
}

impl Far {
    async fn new() -> Self {
        let stage = Stage::on(Version::V15).await;
        let subscription = stage.store.subscription_create(queue().order(Order::None)).await.unwrap();
        let proxy = Proxy::start(stage.db.address());
        let far = options(&stage.db.through(proxy.address()));
        let store = PostgresStore::open(far).await.unwrap();
        let (session, member) = (stage.session().await, stage.store.member_join("ada").await.unwrap());
        // The first feed would make that known.
        let rank = "insert into postrider.queue_front (subscription_id, rank, front) values ($1, 0, 0)";
        session.execute(rank, &[&subscription.id.0]).await.unwrap();
        Self { stage, session, proxy, store, subscription, member }
    }

    /// Two events, ready.
    async fn two(&self) {
        run(&self.session, "truncate postrider.queued, postrider.claim, postrider.delivery").await;
        let two = vec![Event::new("order"), Event::new("order")];
        let ids = self.stage.store.event_emit(two).await.unwrap();
        // As the feeder does, without its detour.
        for id in ids {
            let row = "insert into postrider.queued
                           (subscription_id, event_id, last_id, virtual_time, turn, bytes, events, rank, late, parks, state)
                       values ($1, $2, $2, $2, $2, 0, 1, 0, false, false, 'r')";
            self.session.execute(row, &[&self.subscription.id.0, &id.0]).await.unwrap();
        }
    }

    async fn claim(&self, store: &PostgresStore) -> Result<Claimed> {
        let ask =
            Ask { rows: 9, events: 9, bytes: 1 << 20, again: 9, all: false, lease: Duration::from_secs(60) };
        store.claim(&self.subscription, self.member, ask).await
    }

    /// Claims on a connection that works.
    async fn claim_again(&self) -> Claimed {
        loop {
            match self.claim(&self.store).await {
                Ok(claimed) if claimed.rows.len() == 2 => return claimed,
                // Another process, or a front that has moved: looked at again.
                Ok(_) => {}
                // The first one to use a connection may be the one who learns that it was cut.
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    }

    /// How all stands once the server is done with what came through before the cut.
    async fn stands_after(&self, role: &str) -> Stands {
        let end = "select count(pg_terminate_backend(pid, 60000)) from pg_stat_activity
                   where datname = current_database() and application_name = $1";
        self.session.query_one(end, &[&role]).await.unwrap();
        stands(&self.session).await
    }

    async fn settle(&self, settle: &Arc<QueueSettle>) -> Result<usize> {
        let settled = self.store.queue_settle(&self.subscription, self.member, Arc::clone(settle)).await?;
        Ok(settled.fenced.len())
    }
}

/// How often something failed and had happened, and how often it had not.
#[derive(Debug, Default)]
struct Cuts {
    done: usize,
    undone: usize,
}

/// A claim whose worker does not learn of it is leased as a whole, and comes back when its lease has run out;
/// one that did not happen has left nothing.
#[tokio::test]
async fn a_claim_that_is_cut_at_any_byte_has_happened_or_has_not() {
    let far = Far::new().await;
    let mut cuts = Cuts::default();
    for (side, stride) in [(Side::Client, 7), (Side::Server, 29)] {
        for bytes in (0..).step_by(stride) {
            // Once without trouble, so that statements are prepared.
            far.two().await;
            far.claim_again().await;
            far.two().await;
            far.proxy.cut_after(side, bytes, Counting::FromNow);
            let claimed = far.claim(&far.store).await;
            let over = far.proxy.cuts() == 0 && claimed.is_ok();
            far.proxy.heal();
            if over {
                break;
            }
            match (claimed.is_ok(), far.stands_after("postrider/claimer").await) {
                (_, [2, 2, 20, 0, 2]) => cuts.done += 1,
                (false, [2, 0, 0, 0, 0]) => cuts.undone += 1,
                (_, half) => panic!("after {bytes} bytes of the {side:?}: {half:?}"),
            }
            run(&far.session, "update postrider.claim set until = postrider.clock()").await;
            far.stage.store.sweep(&far.subscription).await.unwrap();
            assert_eq!(stands(&far.session).await[1], 0, "its lease has run out");
        }
    }
    assert!(cuts.done > 5 && cuts.undone > 5, "{cuts:?}");
}

/// What became of events is written as a whole or not at all, and the same settle again makes sure of it: a
/// dead letter is one letter and no row, what is attempted again counts once.
#[tokio::test]
async fn a_settle_of_a_queue_that_is_cut_at_any_byte_has_happened_or_has_not() {
    let again = Again { after: Duration::ZERO, count: Count::Failed };
    let far = Far::new().await;
    for (fate, wanted) in
        [(Fate::Done, [0, 0, 0, 0, 0]), (Fate::Dead, [0, 0, 0, 2, 0]), (Fate::Again(again), [2, 0, 22, 0, 0])]
    {
        let mut cuts = Cuts::default();
        for (side, stride) in [(Side::Client, 19), (Side::Server, 17)] {
            for bytes in (0..).step_by(stride) {
                far.two().await;
                let claimed = far.claim_again().await;
                let row = |id| SettledRow { id, token: claimed.token, fate: fate.clone() };
                let rows = claimed.rows.iter().map(|claimed| row(claimed.id)).collect();
                let settle = Arc::new(QueueSettle { rows, ..QueueSettle::default() });
                far.proxy.cut_after(side, bytes, Counting::FromNow);
                let settled = far.settle(&settle).await;
                let over = far.proxy.cuts() == 0 && settled.is_ok();
                far.proxy.heal();
                if over {
                    break;
                }
                let happened = match far.stands_after("postrider/settler").await {
                    stands if stands == wanted => true,
                    [2, 2, 20, 0, 2] if settled.is_err() => false,
                    half => panic!("{fate:?} after {bytes} bytes of the {side:?}: {half:?}"),
                };
                *(if happened { &mut cuts.done } else { &mut cuts.undone }) += 1;
                let fenced = loop {
                    match far.settle(&settle).await {
                        Ok(fenced) => break fenced,
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                };
                assert_eq!((fenced, stands(&far.session).await), (if happened { 2 } else { 0 }, wanted));
            }
        }
        assert!(cuts.done > 0 && cuts.undone > 5, "{fate:?}: {cuts:?}");
    }
}

/// Two who replay at once replay each letter once.
#[tokio::test]
async fn a_letter_of_a_queue_is_replayed_once_by_two_at_once() {
    let stage = Stage::on(Version::V18).await;
    stage.store.subscription_create(queue()).await.unwrap();
    let other = open(&stage.db).await;
    let mut hand = Hand::of(&stage.store, "orders").await;
    let session = stage.session().await;
    for round in 0..3 {
        for n in 0..5 {
            emit(&session, &format!("k{n}"), "").await;
        }
        hand.feed().await;
        hand.bury(&hand.claim(9).await).await;
        let all = || DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
        let (one, two) = tokio::join!(
            stage.store.dead_letter_replay(all(), "ann"),
            other.dead_letter_replay(all(), "bob")
        );
        assert_eq!(one.unwrap() + two.unwrap(), 5, "round {round}");
        // What others have made ready is found within a second.
        let mut done = 0;
        while done < 5 {
            done += hand.work(99).await.len();
        }
        assert_eq!((done, stage.number(LEFT)), (5, 0), "round {round}");
    }
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
}

/// A worker that notes what it begins, and goes on when no session holds its advisory lock.
async fn worker(url: &str, who: &'static str, lock: i64) {
    let options = PostgresOptions::from_url(url).unwrap().lease(Duration::from_secs(1));
    let store = PostgresStore::open(options).await.unwrap();
    let notes = Arc::new(connect(url).await);
    let handler = move |delivery: Delivery| {
        let notes = Arc::clone(&notes);
        async move {
            let begun = "insert into begun values ($1, $2)";
            notes.execute(begun, &[&delivery.id.0, &who]).await?;
            notes.query("select pg_advisory_xact_lock($1)", &[&lock]).await.map(drop)
        }
    };
    let relay = Relay::new(store).name(who).retention(None).worker(Worker::new(queue()).each(handler));
    relay.run(pending()).await.map(drop).unwrap();
}

/// A process that sleeps through its lease with an event in its hands finds, when it wakes, that another has it.
#[tokio::test]
async fn a_stopped_worker_is_followed_and_changes_nothing_when_it_wakes() {
    const SLEEPER: i64 = 7;
    const FOLLOWER: i64 = 8;
    if let Ok(url) = std::env::var(URL) {
        return worker(&url, "sleeper", SLEEPER).await;
    }
    let stage = Stage::on(Version::V15).await;
    stage.run("create table begun (event_id bigint, who text)");
    let begun = |event: i64, who: &str| {
        format!("select count(*) from begun where event_id = {event} and who = '{who}'")
    };
    let (session, locks) = (stage.session().await, stage.session().await);
    run(&locks, &format!("select pg_advisory_lock({SLEEPER}), pg_advisory_lock({FOLLOWER})")).await;
    let test = "queue_faults::a_stopped_worker_is_followed_and_changes_nothing_when_it_wakes";
    let sleeper = Sleeper::start(test, &[(URL, &stage.db.url)]);
    until(&stage, "select count(*) from postrider.subscription", 1).await;
    let event = emit(&session, "k", "").await;
    until(&stage, &begun(event, "sleeper"), 1).await;
    sleeper.signal("-STOP");
    let url = stage.db.url.clone();
    let follower = tokio::spawn(async move { worker(&url, "follower", FOLLOWER).await });
    until(&stage, &begun(event, "follower"), 1).await;
    let row = format!(
        "select concat_ws(' ', token, leased, started, finished) from postrider.queued where event_id = {event}"
    );
    let before = stage.text(&row);
    assert!(before.ends_with(" t 2 0"), "{before}");
    sleeper.signal("-CONT");
    run(&locks, &format!("select pg_advisory_unlock({SLEEPER})")).await;
    // It has seen to what it lost before it begins anything else. The other one has its hands full.
    for n in 0..40 {
        emit(&session, &format!("other {n}"), "").await;
    }
    let awake = format!("select least(1, count(*)) from begun where event_id > {event} and who = 'sleeper'");
    until(&stage, &awake, 1).await;
    assert_eq!(stage.text(&row), before, "the event is still the other one's");
    run(&locks, &format!("select pg_advisory_unlock({FOLLOWER})")).await;
    until(&stage, LEFT, 0).await;
    assert_eq!(stage.number(&format!("select count(*) from begun where event_id = {event}")), 2);
    assert_eq!(stage.number("select count(*) from postrider.delivery"), 0, "nothing is a dead letter");
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
    follower.abort();
}

/// Those who have the event in their hands.
#[derive(Default)]
struct Hands {
    calls: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
    begun: Notify,
    ended: Notify,
}

/// A handler that has ended, or was dropped.
struct End<'a>(&'a Hands);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify_one();
    }
}

/// A server does not answer for longer than a lease. Handlers learn it in time from their own process's clock,
/// and no event is in two hands when the server goes on.
#[tokio::test]
async fn a_server_that_stops_for_longer_than_a_lease_gives_nothing_to_two() {
    let mut server = Server::start(Version::V15, Settings::fast());
    let stage = Stage::in_database(server.create_database()).await;
    let hands = Arc::new(Hands::default());
    for _ in 0..2 {
        let hands = Arc::clone(&hands);
        let worker = Worker::new(queue()).each(move |delivery: Delivery| {
            let hands = Arc::clone(&hands);
            async move {
                let first = hands.calls.fetch_add(1, Ordering::SeqCst) == 0;
                let most = hands.now.fetch_add(1, Ordering::SeqCst) + 1;
                hands.most.fetch_max(most, Ordering::SeqCst);
                let _end = End(&hands);
                if first {
                    hands.begun.notify_one();
                    delivery.cancelled().await;
                }
                Ok::<(), Failure>(())
            }
        });
        let relay = Relay::new(open(&stage.db).await).retention(None).worker(worker);
        tokio::spawn(async move { relay.run(pending()).await.map(drop).unwrap() });
    }
    until(&stage, "select count(*) from postrider.subscription", 1).await;
    let session = stage.session().await;
    emit(&session, "k", "").await;
    hands.begun.notified().await;
    server.freeze();
    hands.ended.notified().await;
    server.thaw();
    until(&stage, LEFT, 0).await;
    let (calls, most) = (hands.calls.load(Ordering::SeqCst), hands.most.load(Ordering::SeqCst));
    assert!(calls <= 2 && most == 1, "{calls} calls, {most} at a time");
    assert_eq!(stage.number("select count(*) from postrider.delivery"), 0);
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
}
