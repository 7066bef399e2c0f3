//! A store in a database of its own, with a clock that stands still until a test moves it.

use std::time::Duration;

use postrider_core::store::{DeliveryReport, Pruned};
use postrider_core::{DeliveryState, Event, EventId, Key, NewSubscription, Shard, Start, Store, Timestamp};
use postrider_postgres::tokio_postgres::{Client, NoTls};
use postrider_postgres::{PostgresOptions, PostgresStore, SHARDS};
use postrider_testkit::postgres::{Database, Version, shared};

/// 2026-11-15T08:00:00Z.
pub(crate) const MORNING: Timestamp = Timestamp::from_micros(1_794_729_600_000_000);

/// Ids of one turn of the ring.
pub(crate) const TURN: i64 = 1 << 34;

pub(crate) struct Scene {
    pub(crate) db: Database,
    pub(crate) store: PostgresStore,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::on(Version::V15).await
    }

    pub(crate) async fn on(version: Version) -> Self {
        let db = shared(version).create_database();
        let store = PostgresStore::open(PostgresOptions::from_url(&db.url).unwrap()).await.unwrap();
        let scene = Self { db, store };
        scene.run(&format!(
            "create table public.test_clock as select to_timestamp({}) as at;
             create or replace function postrider.clock() returns timestamptz language sql volatile
             return (select at from public.test_clock);
             update postrider.position_table set switched_at = postrider.clock()",
            MORNING.as_micros() / 1_000_000
        ));
        scene
    }

    /// The same store as another process sees it.
    pub(crate) async fn second(&self) -> PostgresStore {
        PostgresStore::open(PostgresOptions::from_url(&self.db.url).unwrap()).await.unwrap()
    }

    /// What an operator does with psql.
    pub(crate) fn run(&self, statements: &str) {
        self.db.query(statements);
    }

    /// The only value of a query, as text.
    pub(crate) fn text(&self, query: &str) -> String {
        self.db.query(query)[0][0].clone().unwrap_or_default()
    }

    /// The only value of a query, as a number.
    pub(crate) fn number(&self, query: &str) -> i64 {
        self.text(query).parse().unwrap()
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.run(&format!("update public.test_clock set at = at + interval '{} us'", time.as_micros()));
    }

    /// Retention as a relay runs it: bite by bite while there is more. What went in all, and what the last bite said.
    pub(crate) async fn prune(&self, retention: Duration) -> Pruned {
        let mut all = Pruned::default();
        for _ in 0..1_000 {
            let bite = self.store.prune(retention).await.unwrap();
            all = Pruned { removed: all.removed + bite.removed, ..bite };
            if !all.more {
                return all;
            }
        }
        panic!("retention says that there is more and more: {all:?}");
    }

    /// How many events are in the log, leaves only.
    pub(crate) fn events(&self) -> i64 {
        self.number("select count(*) from postrider.event")
    }

    /// The turn in which the next id lies.
    pub(crate) fn turn(&self) -> i64 {
        self.number("select last_value >> 34 from postrider.event_id_seq")
    }

    /// Waits until a query says `t`.
    pub(crate) async fn wait_until(&self, query: &str) {
        for _ in 0..2_000 {
            if self.text(query) == "t" {
                return;
            }
            // tidy: sleep because the server has no signal for it
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it never comes true: {query}");
    }

    /// Turns the ring, as retention does.
    pub(crate) fn rotate(&self) {
        self.run(
            "select setval('postrider.event_id_seq', ((last_value >> 34) + 1) << 34, true)
             from postrider.event_id_seq",
        );
    }

    /// Empties a leaf, as retention does, but for the events that are still needed.
    pub(crate) fn empty_leaf(&self, leaf: u8, kept: &[EventId]) {
        let ids: Vec<String> = kept.iter().map(ToString::to_string).collect();
        self.run(&format!(
            "insert into postrider.kept_event
                 select id, created_at, due_at, topic, type, key, headers, payload, payload_bytes
                 from postrider.event_{leaf} where id = any('{{{}}}'::bigint[]);
             truncate postrider.event_{leaf}",
            ids.join(",")
        ));
    }

    /// Emits one event for each key.
    pub(crate) async fn emit(&self, keys: &[&str]) -> Vec<EventId> {
        let events = keys.iter().map(|key| Event::new("order").key(key).payload("{}")).collect();
        self.store.event_emit(events).await.unwrap()
    }

    pub(crate) async fn subscribe(&self, name: &str, start: Start) {
        self.store.subscription_create(NewSubscription::new(name).start(start)).await.unwrap();
    }

    pub(crate) fn subscription_id(&self, name: &str) -> i64 {
        self.number(&format!("select id from postrider.subscription where name = '{name}'"))
    }

    /// A transaction that has emitted an event and is still open.
    pub(crate) async fn open_writer(&self, key: &str) -> OpenWriter {
        let client = self.client().await;
        client.batch_execute("begin").await.unwrap();
        let emit =
            "insert into postrider.event (topic, type, key) values ('order', 'order', $1) returning id";
        let row = client.query_one(emit, &[&key]).await.unwrap();
        OpenWriter { client, id: EventId(row.get(0)) }
    }

    pub(crate) async fn client(&self) -> Client {
        let (client, connection) =
            postrider_postgres::tokio_postgres::connect(&self.db.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Writes a row as an owner would.
    pub(crate) fn put(&self, subscription: &str, row: &Row<'_>) {
        let shard = Shard::of(row.key.map(Key::new).as_ref(), row.event_id, SHARDS).0;
        let key = row.key.map_or_else(|| "null".to_owned(), |key| format!("'{key}'"));
        let due = row.due_in.map_or_else(
            || "null".to_owned(),
            |due| format!("postrider.clock() + interval '{} us'", due.as_micros()),
        );
        let died = if row.state == DeliveryState::Dead { "postrider.clock()" } else { "null" };
        self.run(&format!(
            "insert into postrider.delivery
                 (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, due_at, died_at)
             select id, {}, {shard}, {key}, {}, {}, {}, '{}', 3, {due}, {died}
             from postrider.subscription where name = '{subscription}'",
            row.event_id,
            row.late,
            row.turn.unwrap_or(row.event_id.0),
            row.parks,
            row.state.as_str(),
        ));
    }

    /// Where an event stands for a subscription.
    pub(crate) async fn stands(&self, subscription: &str, id: EventId) -> DeliveryReport {
        let reports = self.store.event_deliveries(id).await.unwrap();
        reports.into_iter().find(|report| report.subscription == subscription).unwrap()
    }

    /// Those of some events that a subscription has yet to read.
    pub(crate) async fn unread(&self, subscription: &str, events: &[EventId]) -> Vec<EventId> {
        let mut unread = Vec::new();
        for id in events {
            if self.stands(subscription, *id).await.state == DeliveryState::Pending {
                unread.push(*id);
            }
        }
        unread
    }

    pub(crate) async fn lag(&self, subscription: &str) -> (u64, Option<Duration>) {
        let report = self.store.subscription_report(subscription).await.unwrap();
        (report.lag_events, report.lag)
    }

    pub(crate) async fn check(&self) -> Vec<String> {
        self.store.check().await.unwrap()
    }
}

/// A row of a subscription.
pub(crate) struct Row<'a> {
    pub(crate) event_id: EventId,
    pub(crate) key: Option<&'a str>,
    pub(crate) late: bool,
    pub(crate) turn: Option<i64>,
    pub(crate) parks: bool,
    pub(crate) state: DeliveryState,
    pub(crate) due_in: Option<Duration>,
}

impl<'a> Row<'a> {
    /// The head of a lane, due at once.
    pub(crate) fn head(event_id: EventId, key: &'a str) -> Self {
        Self { due_in: Some(Duration::ZERO), ..Self::waiting(event_id, key) }
    }

    /// One that waits in its lane.
    pub(crate) fn waiting(event_id: EventId, key: &'a str) -> Self {
        Self {
            event_id,
            key: Some(key),
            late: false,
            turn: None,
            parks: true,
            state: DeliveryState::Pending,
            due_in: None,
        }
    }

    /// A dead letter that its key does not wait for.
    pub(crate) fn dead(event_id: EventId, key: &'a str) -> Self {
        Self { state: DeliveryState::Dead, parks: false, ..Self::waiting(event_id, key) }
    }
}

/// A producer that takes its time.
pub(crate) struct OpenWriter {
    client: Client,
    pub(crate) id: EventId,
}

impl OpenWriter {
    pub(crate) async fn commit(self) -> EventId {
        self.client.batch_execute("commit").await.unwrap();
        self.id
    }
}
