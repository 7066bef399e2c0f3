//! Feed, settle and sweep of one key, statement by statement, in all orders.
//!
//! A separate store does each of the three, and a turnstile before the server lets their statements through in
//! a chosen order. In every order, nothing is lost, no event of a key begins before the earlier ones are done,
//! no event waits when nothing holds it up, and the answer to a settle is true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::feed::Feeder;
use postrider_core::queue::{Ask, Claimed, Fate, Feed, QueueSettle, SettledRow};
use postrider_core::settle::MemberId;
use postrider_core::store::{DeadLetterQuery, LetterId};
use postrider_core::{
    Event, EventId, LeaseBy, LogStore, Mode, NewSubscription, QueueStore, Result, Store, Subscription,
};
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::Version;
use tokio::task::JoinHandle;

use crate::stage::{AMPLE, Owner, Stage};
use crate::turnstile::Turnstile;

/// Orders of all three that are tried, chosen by a seed. All of them would be 60,060.
const ORDERS_OF_THREE: usize = 150;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Feed,
    Settle,
    Sweep,
    Cancel,
    Replay,
}

impl Act {
    /// Statements that are let through together, at the beginning: what comes before the first that others can notice.
    fn first(self) -> usize {
        match self {
            // begin, feed_begin, hold_check, position_put, queue_lane_take
            Self::Feed => 5,
            // begin, queued_done_one
            Self::Settle => 2,
            // begin, claim_expired
            Self::Sweep => 2,
            // begin, the subscription, its lock
            Self::Cancel | Self::Replay => 3,
        }
    }
}

/// One process.
struct Actor {
    store: PostgresStore,
    turnstile: Turnstile,
}

impl Actor {
    async fn new(stage: &Stage) -> Self {
        let server = stage.db.address();
        let turnstile = Turnstile::before(server).await;
        let url = stage.db.url.replace(&server.to_string(), &turnstile.address.to_string());
        assert_ne!(url, stage.db.url);
        let store = PostgresStore::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
        Self { store, turnstile }
    }
}

/// Which of those that can go on goes on: all orders one after the other, or some.
enum Orders {
    All { taken: Vec<(usize, usize)>, at: usize },
    Some { rng: fastrand::Rng, left: usize },
}

impl Orders {
    fn all() -> Self {
        Self::All { taken: Vec::new(), at: 0 }
    }

    fn choose(&mut self, of: usize) -> usize {
        match self {
            Self::All { taken, at } => {
                if *at == taken.len() {
                    taken.push((0, of));
                }
                *at += 1;
                taken[*at - 1].0
            }
            Self::Some { rng, .. } => rng.usize(0..of),
        }
    }

    /// Whether there is another one.
    fn next(&mut self) -> bool {
        match self {
            Self::All { taken, at } => {
                *at = 0;
                while taken.pop_if(|(choice, of)| *choice + 1 == *of).is_some() {}
                taken.last_mut().map(|(choice, _)| *choice += 1).is_some()
            }
            Self::Some { left, .. } => {
                *left -= 1;
                *left > 0
            }
        }
    }
}

struct World {
    stage: Stage,
    watcher: Client,
    subscription: Subscription,
    member: MemberId,
    actors: [Actor; 5],
    owner: Owner,
    feeder: Feeder,
    runs: usize,
}

/// What has been said by those who have ended.
#[derive(Default)]
struct Said {
    /// Whether the settle was told that it counts for nothing.
    fenced: Option<bool>,
}

enum Ended {
    Fed(Result<Option<i64>>),
    Settled(Result<postrider_core::queue::QueueSettled>),
    Swept(Result<postrider_core::queue::Swept>),
    Operated(Result<bool>),
}

/// What the acts are about.
struct Scene {
    feed: Arc<Feed>,
    settle: Arc<QueueSettle>,
    /// Which event people do something with.
    event: EventId,
}

impl World {
    async fn new() -> Self {
        let stage = Stage::on(Version::V15).await;
        let mut new = NewSubscription::new("orders").mode(Mode::Queue);
        new.tuning.queue.lease_by = LeaseBy::Event;
        let subscription = stage.store.subscription_create(new).await.unwrap();
        let actors = [
            Actor::new(&stage).await,
            Actor::new(&stage).await,
            Actor::new(&stage).await,
            Actor::new(&stage).await,
            Actor::new(&stage).await,
        ];
        let owner = Owner::of(&actors[0].store, &subscription.name).await;
        let feeder = Feeder::new(&subscription, &owner.store.fed(&owner.hold).await.unwrap());
        let member = stage.store.member_join("ada").await.unwrap();
        let watcher = stage.session().await;
        Self { stage, watcher, subscription, member, actors, owner, feeder, runs: 0 }
    }

    /// What would be fed now.
    async fn plan(&mut self) -> Arc<Feed> {
        let chunk = self.owner.step(AMPLE).await.unwrap();
        Arc::new(Feed { mark: chunk.end, rows: self.feeder.plan(&chunk.events) })
    }

    async fn emit(&self) -> EventId {
        let event = Event::new("order").key(format!("k{}", self.runs));
        self.stage.store.event_emit(vec![event]).await.unwrap()[0]
    }

    /// One order: an event of a key is in the hands of a worker whose lease has run out, and another one comes.
    async fn run(&mut self, acts: &[Act], orders: &mut Orders) {
        self.runs += 1;
        let first = self.emit().await;
        let feed = self.plan().await;
        self.owner.store.feed(&self.owner.hold, feed).await.unwrap();
        let claimed =
            claim(&self.owner.store, &self.subscription, self.member, Duration::from_micros(1)).await;
        assert_eq!(claimed.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [first]);
        let second = self.emit().await;
        let feed = self.plan().await;
        let scene = Scene { feed: Arc::clone(&feed), settle: settle_of(&claimed), event: second };
        let (order, said) = self.play(acts, &scene, orders).await;
        if !acts.contains(&Act::Feed) {
            self.owner.store.feed(&self.owner.hold, feed).await.unwrap();
        }
        // The feeder's process knows which lanes have to be looked at again.
        self.owner.store.sweep(&self.subscription).await.unwrap();
        let delivered = self.drain().await;
        let expected = if said.fenced == Some(false) { vec![second] } else { vec![first, second] };
        assert_eq!(delivered, expected, "{order:?}");
        let left = "select (select count(*) from postrider.queued) + (select count(*) from postrider.claim)";
        assert_eq!(self.watcher.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0, "{order:?}");
    }

    /// One order: a worker settles one event of a key, and an operator does something with another one.
    async fn operate(&mut self, act: Act, orders: &mut Orders) {
        self.runs += 1;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(self.emit().await);
        }
        let feed = self.plan().await;
        self.owner.store.feed(&self.owner.hold, Arc::clone(&feed)).await.unwrap();
        let mut claimed = self.claim_one(ids[0]).await;
        let (event, left) = match act {
            Act::Replay => {
                let rows = vec![SettledRow { id: ids[0], token: claimed.token, fate: Fate::Dead }];
                let dead = Arc::new(QueueSettle { rows, ..QueueSettle::default() });
                self.owner.store.queue_settle(&self.subscription, self.member, dead).await.unwrap();
                let second = self.claim_one(ids[1]).await;
                self.owner
                    .store
                    .queue_settle(&self.subscription, self.member, settle_of(&second))
                    .await
                    .unwrap();
                claimed = self.claim_one(ids[2]).await;
                (ids[0], ids[0])
            }
            _ => (ids[1], ids[2]),
        };
        let scene = Scene { feed, settle: settle_of(&claimed), event };
        let (order, said) = self.play(&[Act::Settle, act], &scene, orders).await;
        assert_eq!(said.fenced, Some(false), "{order:?}");
        // Without a sweep, the next one of the key is ready by itself.
        assert_eq!(self.drain().await, [left], "{order:?}");
    }

    async fn claim_one(&self, expected: EventId) -> Claimed {
        let claimed =
            claim(&self.owner.store, &self.subscription, self.member, Duration::from_secs(60)).await;
        assert_eq!(claimed.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [expected]);
        claimed
    }

    async fn play(&self, acts: &[Act], scene: &Scene, orders: &mut Orders) -> (Vec<Act>, Said) {
        let begun = acts.iter().map(|act| (*act, self.begin(*act, scene))).collect();
        self.turns(begun, orders).await
    }

    fn begin(&self, act: Act, scene: &Scene) -> JoinHandle<Ended> {
        let actor = &self.actors[act as usize];
        let (store, subscription, member) = (actor.store.clone(), self.subscription.clone(), self.member);
        let (hold, feed) = (self.owner.hold.clone(), Arc::clone(&scene.feed));
        let (settle, event) = (Arc::clone(&scene.settle), scene.event);
        let letter = LetterId { subscription: subscription.name.clone(), event_id: event };
        actor.turnstile.hold(async move {
            match act {
                Act::Feed => Ended::Fed(store.feed(&hold, feed).await),
                Act::Settle => Ended::Settled(store.queue_settle(&subscription, member, settle).await),
                Act::Sweep => Ended::Swept(store.sweep(&subscription).await),
                Act::Cancel => {
                    let cancelled = store.delivery_cancel(&letter, "ada").await;
                    Ended::Operated(cancelled.map(|cancelled| cancelled.is_some()))
                }
                Act::Replay => {
                    let LetterId { subscription, event_id } = letter;
                    let which = DeadLetterQuery {
                        subscription: Some(subscription),
                        event_id: Some(event_id),
                        after: None,
                        limit: 1,
                    };
                    Ended::Operated(store.dead_letter_replay(which, "ada").await.map(|count| count == 1))
                }
            }
        })
    }

    /// Lets them go on in turns until all have ended.
    async fn turns(&self, mut begun: Vec<(Act, JoinHandle<Ended>)>, orders: &mut Orders) -> (Vec<Act>, Said) {
        let (mut order, mut said) = (Vec::new(), Said::default());
        // Statements that wait for a lock, and how many answers there are when they have one.
        let mut blocked: BTreeMap<Act, usize> = BTreeMap::new();
        loop {
            let (mut ready, mut still) = (Vec::new(), Vec::new());
            for (act, work) in begun {
                let is_blocked = blocked.contains_key(&act);
                if !is_blocked && !self.turnstile(act).arrived().await {
                    match work.await.unwrap() {
                        Ended::Fed(fed) => drop(fed.unwrap()),
                        Ended::Settled(settled) => said.fenced = Some(!settled.unwrap().fenced.is_empty()),
                        Ended::Swept(swept) => drop(swept.unwrap()),
                        Ended::Operated(done) => assert!(done.unwrap(), "{order:?}"),
                    }
                    continue;
                }
                if !is_blocked {
                    ready.push(act);
                }
                still.push((act, work));
            }
            begun = still;
            if begun.is_empty() {
                return (order, said);
            }
            assert!(!ready.is_empty(), "all of {blocked:?} wait for each other after {order:?}");
            let act = ready[orders.choose(ready.len())];
            let statements = if order.contains(&act) { 1 } else { act.first() };
            order.push(act);
            for _ in 0..statements {
                if blocked.contains_key(&act) || !self.turnstile(act).arrived().await {
                    break;
                }
                blocked.insert(act, self.turnstile(act).answered() + 1);
                self.turnstile(act).let_pass();
                self.until_answered_or_blocked(&mut blocked).await;
            }
        }
    }

    fn turnstile(&self, act: Act) -> &Turnstile {
        &self.actors[act as usize].turnstile
    }

    /// Waits until all of these have an answer, except those that wait for a lock.
    async fn until_answered_or_blocked(&self, asked: &mut BTreeMap<Act, usize>) {
        loop {
            asked.retain(|act, answers| self.turnstile(*act).answered() < *answers);
            // In this order: one that waits now has not been set free by an answer that was counted.
            if self.waiting().await >= asked.len() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// How many wait for a lock.
    async fn waiting(&self) -> usize {
        let waiting = "select count(distinct pid) from pg_locks join pg_stat_activity using (pid)
                       where not granted and datname = current_database()";
        self.watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) as usize
    }

    /// Events that are delivered from now on, one by one. The store that makes one ready is the first to find it.
    async fn drain(&self) -> Vec<EventId> {
        let mut delivered = Vec::new();
        let mut looks = 0;
        while looks < self.actors.len() {
            let store = &self.actors[(delivered.len() + looks) % self.actors.len()].store;
            let claimed = claim(store, &self.subscription, self.member, Duration::from_secs(60)).await;
            assert!(claimed.rows.len() < 2, "two of a key at a time");
            looks = if claimed.rows.is_empty() { looks + 1 } else { 0 };
            delivered.extend(claimed.rows.iter().map(|row| row.id));
            let settle = settle_of(&claimed);
            let settled = store.queue_settle(&self.subscription, self.member, settle).await.unwrap();
            assert_eq!(settled.fenced, []);
        }
        delivered
    }
}

async fn claim(
    store: &PostgresStore,
    subscription: &Subscription,
    member: MemberId,
    lease: Duration,
) -> Claimed {
    let ask = Ask { rows: 9, events: 9, bytes: 1 << 20, again: 9, all: false, lease };
    store.claim(subscription, member, ask).await.unwrap()
}

/// All of it is done.
fn settle_of(claimed: &Claimed) -> Arc<QueueSettle> {
    let done = |id| SettledRow { id, token: claimed.token, fate: Fate::Done };
    let rows = claimed.rows.iter().map(|row| done(row.id)).collect();
    Arc::new(QueueSettle { rows, ..QueueSettle::default() })
}

async fn check(acts: &[Act], mut orders: Orders, expected: std::ops::RangeInclusive<usize>) {
    let mut world = World::new().await;
    // At first statements are prepared, which would be turns of their own.
    for act in acts {
        world.run(&[*act], &mut Orders::all()).await;
    }
    let mut count = 0;
    loop {
        count += 1;
        world.run(acts, &mut orders).await;
        if !orders.next() {
            break;
        }
    }
    assert!(expected.contains(&count), "{count} orders of {acts:?}");
    assert_eq!(world.stage.store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn feed_and_settle_in_all_orders() {
    check(&[Act::Feed, Act::Settle], Orders::all(), 15..=35).await;
}

#[tokio::test]
async fn feed_and_sweep_in_all_orders() {
    check(&[Act::Feed, Act::Sweep], Orders::all(), 30..=400).await;
}

#[tokio::test]
async fn settle_and_sweep_in_all_orders() {
    check(&[Act::Settle, Act::Sweep], Orders::all(), 35..=210).await;
}

/// What people do beside a settle of the same key.
async fn check_operation(act: Act, expected: std::ops::RangeInclusive<usize>) {
    let mut world = World::new().await;
    let (mut orders, mut count) = (Orders::all(), 0);
    // At first statements are prepared, which would be turns of their own.
    world.operate(act, &mut Orders::Some { rng: fastrand::Rng::with_seed(1), left: 1 }).await;
    loop {
        count += 1;
        world.operate(act, &mut orders).await;
        if !orders.next() {
            break;
        }
    }
    assert!(expected.contains(&count), "{count} orders");
    assert_eq!(world.stage.store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn settle_and_cancel_in_all_orders() {
    check_operation(Act::Cancel, 10..=400).await;
}

#[tokio::test]
async fn settle_and_replay_in_all_orders() {
    check_operation(Act::Replay, 10..=400).await;
}

#[tokio::test]
async fn feed_settle_and_sweep_in_many_orders() {
    let seed = std::env::var("POSTRIDER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let orders = Orders::Some { rng: fastrand::Rng::with_seed(seed), left: ORDERS_OF_THREE };
    check(&[Act::Feed, Act::Settle, Act::Sweep], orders, ORDERS_OF_THREE..=ORDERS_OF_THREE).await;
}
