//! Limits of keys with several processes and a real server: those who feed, claim, settle, sweep and change
//! the limit meet in the same few keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::queue::{Again, Claimed, Count, Fate, LeasedRow, QueueSettle, SettledRow};
use postrider_core::settle::MemberId;
use postrider_core::{EventId, LogStore, NewSubscription, Order, QueueStore, Shard, Store, Subscription};
use postrider_postgres::PostgresStore;
use postrider_postgres::tokio_postgres::Transaction;
use postrider_testkit::postgres::Version;
use tokio::task::JoinHandle;

use crate::queues::{ack, claim, feed, queue};
use crate::stage::{Stage, open, until};

const KEYS: usize = 4;
const EVENTS: usize = 1_200;
const LEFT: &str = "select (select count(*) from postrider.queued) + (select count(*) from postrider.claim)";
/// The most events of a key that workers have in their hands.
const MOST: &str = "select coalesce(max(leased), 0)
    from (select count(*) as leased from postrider.queued where leased group by key) as of_key";

fn limited(per_key: u32) -> NewSubscription {
    let mut new = queue().order(Order::None);
    new.tuning.queue.per_key = Some(per_key);
    new
}

/// So many events, a few keys in turn.
fn emit(stage: &Stage, events: usize) {
    stage.run(&format!(
        "insert into postrider.event (topic, type, key)
         select 'order', 'order', 'k' || n % {KEYS} from generate_series(1, {events}) as n"
    ));
}

/// What those who claim have in their hands and what they are done with.
#[derive(Default)]
struct Board {
    hands: BTreeMap<String, usize>,
    most: usize,
    done: BTreeSet<EventId>,
}

impl Board {
    fn begin(&mut self, claimed: &Claimed) {
        for event in claimed.rows.iter().flat_map(|row| &row.events) {
            let hands = self.hands.entry(event.key.as_ref().unwrap().to_string()).or_default();
            *hands += 1;
            self.most = self.most.max(*hands);
        }
    }

    fn end(&mut self, claimed: &Claimed) {
        for event in claimed.rows.iter().flat_map(|row| &row.events) {
            *self.hands.get_mut(event.key.as_ref().unwrap().as_str()).unwrap() -= 1;
        }
    }
}

/// Some fail the first time, and some of these wait before they are attempted again.
fn fate(row: &LeasedRow) -> Fate {
    let again = |after| Fate::Again(Again { after, count: Count::Failed });
    match row.id.0 % 11 {
        3 if row.finished == 0 => again(Duration::from_millis(1)),
        7 if row.finished == 0 => again(Duration::ZERO),
        _ => Fate::Done,
    }
}

/// Claims and settles until so many events are done.
fn start(store: PostgresStore, subscription: Subscription, board: Arc<Mutex<Board>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let member = store.member_join("ada").await.unwrap();
        while board.lock().unwrap().done.len() < EVENTS {
            let claimed = claim(&store, &subscription, member, 3).await;
            if claimed.rows.is_empty() {
                store.sweep(&subscription).await.unwrap();
                continue;
            }
            board.lock().unwrap().begin(&claimed);
            tokio::task::yield_now().await;
            board.lock().unwrap().end(&claimed);
            let settled = |row: &LeasedRow| SettledRow { id: row.id, token: claimed.token, fate: fate(row) };
            let rows: Vec<SettledRow> = claimed.rows.iter().map(settled).collect();
            let done = rows.iter().filter(|row| row.fate == Fate::Done).map(|row| row.id).collect::<Vec<_>>();
            let settle = Arc::new(QueueSettle { rows, ..QueueSettle::default() });
            let settled = store.queue_settle(&subscription, member, settle).await.unwrap();
            assert_eq!(settled.fenced, []);
            let mut board = board.lock().unwrap();
            for id in done {
                assert!(board.done.insert(id), "event {id} was done twice");
            }
        }
    })
}

/// Eight who claim beside each other, each in a process of its own.
async fn eight(stage: &Stage, subscription: &Subscription) -> (Arc<Mutex<Board>>, Vec<JoinHandle<()>>) {
    let board = Arc::new(Mutex::new(Board::default()));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(start(open(&stage.db).await, subscription.clone(), Arc::clone(&board)));
    }
    (board, tasks)
}

/// Never are more of a key in their hands than it may be, and each event is delivered.
#[tokio::test]
async fn eight_who_claim_keep_to_the_limit_of_a_key() {
    const LIMIT: u32 = 3;
    for version in [Version::V15, Version::V18] {
        let stage = Stage::on(version).await;
        let subscription = stage.store.subscription_create(limited(LIMIT)).await.unwrap();
        emit(&stage, EVENTS / 2);
        feed(&stage, &subscription).await;
        let (board, tasks) = eight(&stage, &subscription).await;
        for _ in 0..4 {
            emit(&stage, EVENTS / 8);
            feed(&stage, &subscription).await;
        }
        let mut seen = 0;
        while board.lock().unwrap().done.len() < EVENTS && tasks.iter().all(|task| !task.is_finished()) {
            seen = seen.max(stage.number(MOST));
            assert!(seen <= i64::from(LIMIT), "{version:?}: {seen} of a key are leased");
            tokio::task::yield_now().await;
        }
        for task in tasks {
            task.await.unwrap();
        }
        let (most, done) = {
            let board = board.lock().unwrap();
            (board.most, board.done.len())
        };
        assert!(most <= LIMIT as usize && most > 1, "{version:?}: {most} of a key at once");
        assert_eq!((done, stage.number(LEFT)), (EVENTS, 0), "{version:?}");
        assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
    }
}

/// A limit that goes up and down meanwhile leaves no event waiting when nothing holds it up.
#[tokio::test]
async fn a_limit_may_change_while_eight_claim() {
    const LIMITS: [u32; 4] = [1, 4, 2, 1];
    let stage = Stage::on(Version::V15).await;
    let subscription = stage.store.subscription_create(limited(4)).await.unwrap();
    emit(&stage, EVENTS);
    feed(&stage, &subscription).await;
    let (board, tasks) = eight(&stage, &subscription).await;
    for (n, limit) in LIMITS.iter().cycle().take(16).enumerate() {
        while board.lock().unwrap().done.len() < EVENTS * n / 20
            && tasks.iter().all(|task| !task.is_finished())
        {
            assert!(stage.number(MOST) <= 4);
            tokio::task::yield_now().await;
        }
        let tuning = limited(*limit).tuning;
        stage.store.subscription_tune(&subscription.name, tuning).await.unwrap();
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((board.lock().unwrap().done.len(), stage.number(LEFT)), (EVENTS, 0));
    assert!(board.lock().unwrap().most <= 4);
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
}

/// A queue with two of each key in the hands of a worker, and more that wait.
async fn two_of_each(stage: &Stage) -> (Subscription, MemberId, Claimed) {
    let subscription = stage.store.subscription_create(limited(2)).await.unwrap();
    emit(stage, KEYS * 5);
    feed(stage, &subscription).await;
    let member = stage.store.member_join("ada").await.unwrap();
    let claimed = claim(&stage.store, &subscription, member, 99).await;
    assert_eq!(claimed.rows.len(), KEYS * 2);
    (subscription, member, claimed)
}

/// Of a claim, what has the key of which two handlers ack.
fn of_key(claimed: &Claimed) -> Vec<&LeasedRow> {
    claimed.rows.iter().filter(|row| row.events[0].key.as_ref().unwrap().as_str() == "k1").collect()
}

/// As a handler does.
async fn ack_in(tx: &Transaction<'_>, subscription: &Subscription, claimed: &Claimed, row: &LeasedRow) {
    let bucket = i32::from(Shard::of(row.events[0].key.as_ref(), EventId(0), 256).0);
    let told = [&subscription.id.0 as _, &row.id.0 as _, &claimed.token.0 as _, &bucket as _];
    assert!(tx.query_one("select postrider.ack($1, $2, $3, $4)", &told).await.unwrap().get::<_, bool>(0));
}

/// Those who wait for a bucket of lanes.
const WAITING: &str = "select count(*) from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())";
const READY: &str = "select count(*) from postrider.queued where key = 'k1' and state = 'r'";

/// Acks in transactions that are open side by side free a place each, and no more; neither waits for the other.
#[tokio::test]
async fn handlers_that_ack_side_by_side_free_a_place_each() {
    let stage = Stage::on(Version::V15).await;
    let (subscription, member, first) = two_of_each(&stage).await;
    let (mut one, mut two) = (stage.session().await, stage.session().await);
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    let rows = of_key(&first);
    ack_in(&one, &subscription, &first, rows[0]).await;
    ack_in(&two, &subscription, &first, rows[1]).await;
    assert_eq!(claim(&stage.store, &subscription, member, 99).await.rows.len(), 0);
    one.commit().await.unwrap();
    two.commit().await.unwrap();
    assert_eq!(stage.number(READY), 2);
    let acked =
        |row: &&LeasedRow| SettledRow { id: row.id, token: first.token, fate: Fate::Acked(vec![row.id]) };
    let settle = QueueSettle { rows: rows.iter().map(acked).collect(), ..QueueSettle::default() };
    stage.store.queue_settle(&subscription, member, Arc::new(settle)).await.unwrap();
    let next = claim(&stage.store, &subscription, member, 99).await;
    assert_eq!((next.rows.len(), of_key(&next).len()), (2, 2));
    assert_eq!(ack(&stage.store, &subscription, member, &next).await, []);
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
}

/// After the limit was lowered one of them leaves its place empty, and not both, although neither sees what
/// the other does.
#[tokio::test]
async fn handlers_that_ack_side_by_side_leave_nobody_behind() {
    let stage = Stage::on(Version::V15).await;
    let (subscription, _, first) = two_of_each(&stage).await;
    stage.store.subscription_tune(&subscription.name, limited(1).tuning).await.unwrap();
    let (mut one, mut two) = (stage.session().await, stage.session().await);
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    let rows = of_key(&first);
    ack_in(&one, &subscription, &first, rows[0]).await;
    // One of the two is alone with the key until it commits.
    let goes_first = async {
        until(&stage, WAITING, 1).await;
        one.commit().await.unwrap();
    };
    tokio::join!(ack_in(&two, &subscription, &first, rows[1]), goes_first);
    two.commit().await.unwrap();
    assert_eq!(stage.number(READY), 1);
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
}
