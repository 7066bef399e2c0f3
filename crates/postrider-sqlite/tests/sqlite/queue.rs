//! Queues: what no other store need promise.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::feed::Feeder;
use postrider_core::queue::{
    Again, Ask, Claimed, Count, EventResult, Fate, Feed, QueueSettle, QueueSettled, Remnant, SettledRow,
    Token,
};
use postrider_core::settle::Hold;
use postrider_core::store::{Cancelled, DeadLetterQuery, LetterId};
use postrider_core::subscription::Rate;
use postrider_core::{
    Event, EventId, LeaseBy, LogStore, Mode, NewSubscription, OnDead, Order, QueueStore, Start, Store, limits,
};

use crate::scene::{ROOM, Scene};

const LEASE: Duration = Duration::from_secs(8);
const SECOND: Duration = Duration::from_secs(1);

/// A queue in a scene, with a member that feeds it and works on it.
struct Queue {
    scene: Scene,
    hold: Hold,
}

impl Queue {
    async fn new(new: NewSubscription) -> Self {
        let scene = Scene::with(|options| options.busy_timeout(Duration::from_millis(50))).await;
        scene.store.subscription_create(new).await.unwrap();
        let hold = scene.take("work").await;
        Self { scene, hold }
    }

    async fn emit(&self, keys: &[&str]) -> Vec<EventId> {
        let ids = self.scene.emit(keys).await;
        self.feed().await;
        ids
    }

    async fn feed(&self) {
        let store = &self.scene.store;
        let fed = store.fed(&self.hold).await.unwrap();
        let mut feeder = Feeder::new(&self.hold.subscription, &fed);
        let stands = store.subscription_report("work").await.unwrap().shards[0].position;
        let chunk = store.fetch(&self.hold, stands, ROOM).await.unwrap();
        let feed = Feed { mark: chunk.end, rows: feeder.plan(&chunk.events) };
        store.feed(&self.hold, Arc::new(feed)).await.unwrap();
    }

    async fn claim(&self, rows: usize) -> Claimed {
        let ask = Ask { rows, events: 100_000, bytes: 1 << 30, again: rows, all: false, lease: LEASE };
        self.scene.store.claim(&self.hold.subscription, self.hold.member, ask).await.unwrap()
    }

    async fn settle(&self, rows: Vec<SettledRow>) -> QueueSettled {
        let settle = QueueSettle { rows, ..QueueSettle::default() };
        self.settle_all(settle).await
    }

    async fn settle_all(&self, settle: QueueSettle) -> QueueSettled {
        let store = &self.scene.store;
        store.queue_settle(&self.hold.subscription, self.hold.member, Arc::new(settle)).await.unwrap()
    }

    async fn is_sound(&self) {
        assert_eq!(self.scene.store.check().await.unwrap(), Vec::<String>::new());
    }

    fn rows(&self, state: &str) -> i64 {
        self.scene.number(&format!("select count(*) from postrider_queued where state = '{state}'"))
    }
}

fn queue() -> NewSubscription {
    let mut new = NewSubscription::new("work").mode(Mode::Queue);
    new.tuning.queue.lease_by = LeaseBy::Event;
    new
}

fn blocks() -> NewSubscription {
    NewSubscription::new("work").mode(Mode::Queue).order(Order::None)
}

fn row(claimed: &Claimed, index: usize, fate: Fate) -> SettledRow {
    SettledRow { id: claimed.rows[index].id, token: claimed.token, fate }
}

fn letter(event_id: EventId) -> LetterId {
    LetterId { subscription: "work".to_owned(), event_id }
}

fn ids(claimed: &Claimed) -> Vec<EventId> {
    claimed.rows.iter().flat_map(|row| &row.events).map(|event| event.id).collect()
}

#[tokio::test]
async fn whoever_finds_nothing_leaves_producers_alone() {
    let mut new = queue();
    new.tuning.queue.rate = Some(Rate { per_second: 1, burst: 1 });
    let queue = Queue::new(new).await;
    let producer = queue.scene.raw();
    let busy = async || {
        producer.execute_batch("begin immediate").unwrap();
        assert_eq!(queue.claim(9).await.rows.len(), 0);
        let swept = queue.scene.store.sweep(&queue.hold.subscription).await.unwrap();
        producer.execute_batch("rollback").unwrap();
        swept.next_due_in
    };
    assert_eq!(busy().await, None, "nothing is queued");
    queue.emit(&["a", "b"]).await;
    let claimed = queue.claim(1).await;
    assert_eq!(busy().await, None, "the rate allows no more");
    let again = Again { after: SECOND, count: Count::Failed };
    queue.settle(vec![row(&claimed, 0, Fate::Again(again))]).await;
    assert_eq!(busy().await, Some(SECOND), "it is not due yet");
}

#[tokio::test]
async fn leases_and_rates_survive_a_start_of_the_machine() {
    let mut new = queue();
    new.tuning.queue.rate = Some(Rate { per_second: 1, burst: 1 });
    let queue = Queue::new(new).await;
    let events = queue.emit(&["a"]).await;
    assert_eq!(ids(&queue.claim(1).await), events);
    // The clock that they went by has started again since.
    let later = 400_000_000_000_i64;
    queue.scene.raw().execute("update postrider_claim set until_us = until_us + ?1", [later]).unwrap();
    queue.scene.raw().execute("update postrider_allowance set since_us = since_us + ?1", [later]).unwrap();
    assert_eq!(queue.scene.store.sweep(&queue.hold.subscription).await.unwrap().reaped, 1);
    assert_eq!(ids(&queue.claim(1).await), events);
}

#[tokio::test]
async fn a_large_claim_is_reaped_bit_by_bit() {
    let queue = Queue::new(blocks()).await;
    let events = queue.emit(&["a"; 1_000]).await;
    let more = queue.emit(&["a"; 1_000]).await;
    let claimed = queue.claim(20).await;
    assert_eq!((claimed.rows.len(), ids(&claimed).len()), (20, 2_000));
    assert_eq!(
        queue.scene.store.delivery_cancel(&letter(more[999]), "ann").await.unwrap(),
        Some(Cancelled::Told)
    );
    queue.scene.clock.pass(LEASE);
    let swept = queue.scene.store.sweep(&queue.hold.subscription).await.unwrap();
    assert_eq!((swept.reaped, swept.next_due_in), (0, Some(Duration::ZERO)), "there is more to do");
    assert_eq!((queue.rows("ready"), queue.rows("leased")), (limits::SWEEP_ROWS_MAX as i64, 10));
    queue.is_sound().await;
    let settled = queue.settle(vec![row(&claimed, 0, Fate::Done), row(&claimed, 10, Fate::Done)]).await;
    assert_eq!(settled.fenced, [events[0]], "only what is still leased can be settled");
    let swept = queue.scene.store.sweep(&queue.hold.subscription).await.unwrap();
    assert_eq!((swept.reaped, swept.next_due_in), (1, None));
    assert_eq!((queue.rows("ready"), queue.rows("leased")), (1_899, 0), "one was cancelled, a hundred done");
    for table in ["claim", "cancelled"] {
        assert_eq!(queue.scene.number(&format!("select count(*) from postrider_{table}")), 0, "{table}");
    }
    queue.is_sound().await;
}

#[tokio::test]
async fn what_a_seek_took_out_of_a_leased_block_is_fed_once() {
    let mut queue = Queue::new(blocks()).await;
    let events = queue.emit(&["a"; 6]).await;
    let claimed = queue.claim(1).await;
    queue.scene.store.subscription_seek("work", Start::Id(events[3]), "ann").await.unwrap();
    queue.hold = queue.scene.take_as("work", queue.hold.member).await;
    queue.feed().await;
    queue.is_sound().await;
    let again = Again { after: Duration::ZERO, count: Count::Failed };
    let left = [events[1], events[4]].map(|event| (event, Remnant::Again(again)));
    let settled = queue.settle(vec![row(&claimed, 0, Fate::Split(left.to_vec()))]).await;
    assert_eq!(settled, QueueSettled::default(), "the lower part of the block is still leased");
    queue.is_sound().await;
    let mut next = ids(&queue.claim(9).await);
    next.sort_unstable();
    assert_eq!(next, [events[1], events[3], events[4], events[5]]);
}

#[tokio::test]
async fn a_split_that_is_repeated_brings_nothing_back() {
    let queue = Queue::new(blocks()).await;
    let events = queue.emit(&["a"; 4]).await;
    let claimed = queue.claim(1).await;
    let again = Remnant::Again(Again { after: Duration::ZERO, count: Count::Failed });
    let split =
        Fate::Split(vec![(events[0], Remnant::Running), (events[1], again), (events[2], Remnant::Dead)]);
    queue.settle(vec![row(&claimed, 0, split.clone())]).await;
    let second = queue.claim(1).await;
    assert_eq!(ids(&second), [events[1]]);
    // What runs on has the name of the block, and its token.
    queue.settle(vec![row(&claimed, 0, split.clone())]).await;
    assert_eq!(queue.settle(vec![row(&second, 0, Fate::Done)]).await, QueueSettled::default());
    queue.settle(vec![row(&claimed, 0, split)]).await;
    assert_eq!((queue.rows("leased"), queue.rows("ready")), (1, 0));
    assert_eq!(queue.settle(vec![row(&claimed, 0, Fate::Done)]).await, QueueSettled::default());
    assert_eq!(queue.scene.number("select count(*) from postrider_queued"), 0);
    queue.is_sound().await;
}

#[tokio::test]
async fn a_cancelled_event_goes_whatever_becomes_of_its_block() {
    for fate in [Fate::Again(Again { after: Duration::ZERO, count: Count::Nothing }), Fate::Dead] {
        let queue = Queue::new(blocks()).await;
        let events = queue.emit(&["a"; 3]).await;
        let claimed = queue.claim(1).await;
        queue.scene.store.delivery_cancel(&letter(events[0]), "ann").await.unwrap();
        queue.settle(vec![row(&claimed, 0, fate)]).await;
        queue.is_sound().await;
        let query = DeadLetterQuery { limit: 9, ..DeadLetterQuery::default() };
        queue.scene.store.dead_letter_replay(query, "ann").await.unwrap();
        assert_eq!(ids(&queue.claim(9).await), events[1..]);
    }
}

#[tokio::test]
async fn a_block_keeps_its_time_when_one_of_its_events_is_cancelled() {
    let queue = Queue::new(blocks()).await;
    let events = queue.emit(&["a"; 3]).await;
    let claimed = queue.claim(1).await;
    let again = Again { after: SECOND, count: Count::Failed };
    queue.settle(vec![row(&claimed, 0, Fate::Again(again))]).await;
    let cancelled = queue.scene.store.delivery_cancel(&letter(events[0]), "ann").await.unwrap();
    assert_eq!((cancelled, queue.claim(9).await.rows.len()), (Some(Cancelled::Gone), 0));
    queue.scene.clock.pass(SECOND);
    assert_eq!(queue.scene.store.sweep(&queue.hold.subscription).await.unwrap().due, 1);
    assert_eq!(ids(&queue.claim(9).await), events[1..]);
    assert_eq!(
        queue.scene.number("select count(*) from postrider_audit where action = 'delivery_cancel'"),
        1
    );
}

#[tokio::test]
async fn what_waits_for_a_dead_letter_says_so() {
    let queue = Queue::new(queue().on_dead(OnDead::Hold)).await;
    let events = queue.emit(&["a", "a"]).await;
    let claimed = queue.claim(1).await;
    queue.settle(vec![row(&claimed, 0, Fate::Dead)]).await;
    assert_eq!(queue.claim(9).await.rows.len(), 0);
    let report = queue.scene.store.event_deliveries(events[1]).await.unwrap().remove(0);
    assert_eq!(report.behind, Some(events[0]));
    queue.is_sound().await;
}

#[tokio::test]
async fn damage_is_told_and_a_new_owner_mends_lanes() {
    let mut queue = Queue::new(queue()).await;
    let events = queue.emit(&["a", "a", "b", "c"]).await;
    let raw = queue.scene.raw();
    let told = async |queue: &Queue, words: &str| {
        let told = queue.scene.store.check().await.unwrap();
        assert!(told.len() == 1 && told[0].contains(words), "{words}: {told:?}");
    };
    raw.execute("update postrider_queued set state = 'ready' where state = 'waiting'", []).unwrap();
    told(&queue, "worked on 2 times at once").await;
    raw.execute("delete from postrider_queued where event_id = ?1", [events[0].0]).unwrap();
    raw.execute("update postrider_queued set state = 'waiting' where event_id = ?1", [events[1].0]).unwrap();
    told(&queue, "key `a` of subscription `work` waits for nothing").await;
    queue.hold = queue.scene.take_as("work", queue.hold.member).await;
    queue.is_sound().await;
    raw.execute("update postrider_queued set state = 'leased' where event_id = ?1", [events[2].0]).unwrap();
    told(&queue, "under no claim").await;
    raw.execute("delete from postrider_queued where event_id = ?1", [events[2].0]).unwrap();
    raw.execute(
        "update postrider_queued set events = 2, last_id = ?2, spans = '[' || ?1 || ',3]', key = null, parks = 0
         where event_id = ?1",
        (events[1].0, events[3].0),
    )
    .unwrap();
    told(&queue, &format!("two rows for event {}", events[3])).await;
    raw.execute("delete from postrider_queued where event_id = ?1", [events[1].0]).unwrap();
    raw.execute("delete from postrider_event where id = ?1", [events[3].0]).unwrap();
    told(&queue, "it was deleted by hand").await;
}

#[tokio::test]
async fn retention_spares_blocks_and_takes_results_with_their_events() {
    let queue = Queue::new(blocks()).await;
    let first = queue.emit(&["a"; 150]).await;
    let claimed = queue.claim(1).await;
    let results = vec![EventResult { event_id: first[0], result: "{}".to_owned() }];
    queue
        .settle_all(QueueSettle {
            rows: vec![row(&claimed, 0, Fate::Done)],
            results,
            ..QueueSettle::default()
        })
        .await;
    let report = queue.scene.store.event_deliveries(first[0]).await.unwrap().remove(0);
    assert_eq!(report.result.as_deref(), Some("{}"));
    queue.scene.clock.pass(SECOND * 100);
    assert_eq!(queue.scene.store.prune(SECOND).await.unwrap().removed, 100, "the block of fifty stays");
    assert_eq!(queue.scene.number("select count(*) from postrider_result"), 0);
    assert_eq!(ids(&queue.claim(9).await), first[100..]);
    queue.is_sound().await;
}

#[tokio::test]
async fn a_deleted_queue_leaves_nothing_but_the_audit() {
    let mut new = blocks();
    new.tuning.queue.rate = Some(Rate { per_second: 100, burst: 100 });
    let queue = Queue::new(new).await;
    let events = queue.emit(&["a"; 120]).await;
    let claimed = queue.claim(1).await;
    queue.scene.store.delivery_cancel(&letter(events[5]), "ann").await.unwrap();
    let running = Fate::Split(vec![(events[5], Remnant::Running), (events[6], Remnant::Dead)]);
    let results = vec![EventResult { event_id: events[0], result: "{}".to_owned() }];
    let rows = vec![row(&claimed, 0, running)];
    queue.settle_all(QueueSettle { rows, results, ..QueueSettle::default() }).await;
    queue.scene.store.subscription_delete("work", "ann").await.unwrap();
    for table in ["queued", "claim", "cancelled", "allowance", "result", "delivery"] {
        assert_eq!(queue.scene.number(&format!("select count(*) from postrider_{table}")), 0, "{table}");
    }
    // A token is not given again, even if nothing remembers it.
    queue.scene.store.subscription_create(queue_of_others()).await.unwrap();
    let hold = queue.scene.take_as("others", queue.hold.member).await;
    let others = Queue { scene: queue.scene, hold };
    others.scene.store.event_emit(vec![Event::new("order")]).await.unwrap();
    let fed = others.scene.store.fed(&others.hold).await.unwrap();
    let chunk = others.scene.store.fetch(&others.hold, others.hold.shards[0].position, ROOM).await.unwrap();
    let rows = Feeder::new(&others.hold.subscription, &fed).plan(&chunk.events);
    others.scene.store.feed(&others.hold, Arc::new(Feed { mark: chunk.end, rows })).await.unwrap();
    assert_eq!((claimed.token, others.claim(1).await.token), (Token(1), Token(2)));
}

fn queue_of_others() -> NewSubscription {
    NewSubscription::new("others").mode(Mode::Queue).start(Start::Now)
}
