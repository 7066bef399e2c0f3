//! Functions and operators that some role has planted are called by no session of ours, and by nothing of
//! ours in sessions of others.
//!
//! `scripts/plant.sql` says what is planted. The conformance suite runs beside it too, by roles and through a
//! pooler, and so do the emits of all client libraries; here is the rest.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use postrider_core::delivery::Origin;
use postrider_core::store::{DeadLetterQuery, EventQuery, Wake};
use postrider_core::{Delivery, Event, EventId, Mode, NewSubscription, ScheduleStore, Start, Store, emit};
use postrider_postgres::inbox::{self, InboxTable};
use postrider_postgres::tokio_postgres::{self, Client, NoTls};
use postrider_postgres::{
    Outbox, Pooler, PostgresOptions, PostgresStore, RoleKind, Roles, TwoPhase, schema_sql,
};
use postrider_testkit::conformance::owner::{Owner, ids};
use postrider_testkit::postgres::{Database, Version, shared};

/// A copy of a database in which everything was planted.
fn planted(version: Version) -> Database {
    static V15: OnceLock<Database> = OnceLock::new();
    static V18: OnceLock<Database> = OnceLock::new();
    let template = if version == Version::V15 { &V15 } else { &V18 };
    let template = template.get_or_init(|| {
        let database = shared(version).create_database();
        database.query(include_str!("scripts/plant.sql"));
        database
    });
    shared(version).copy_database(&template.name)
}

/// What was called of it; nothing.
fn called(database: &Database) -> Vec<Vec<Option<String>>> {
    let question = "set search_path = pg_catalog;
         select what from public.planted, public.planted_call where is_called and n = last_value";
    database.query(question)
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn open(url: &str, pooler: Pooler) -> PostgresStore {
    let options = PostgresOptions::from_url(url).unwrap().lease(Duration::from_secs(1)).pooler(pooler);
    PostgresStore::open(options).await.unwrap()
}

#[tokio::test]
async fn what_is_planted_is_called_where_nothing_keeps_from_it() {
    let database = planted(Version::V15);
    let client = connect(&database.url).await;
    let told = client.batch_execute("select unnest('{1}'::bigint[])").await.unwrap_err();
    assert!(told.as_db_error().unwrap().message().starts_with("planted: unnest"), "{told:?}");
    assert_eq!(called(&database), [[Some("unnest(bigint[])".to_owned())]]);
}

#[tokio::test]
async fn the_script_of_the_schema_refers_to_nothing_that_was_planted() {
    for version in Version::ALL {
        let database = planted(version);
        connect(&database.url).await.batch_execute(&schema_sql("postrider").unwrap()).await.unwrap();
        let referred = "set search_path = pg_catalog;
             select pg_describe_object(d.classid, d.objid, d.objsubid), pg_describe_object(d.refclassid, d.refobjid, 0)
             from pg_depend as d
             left join pg_proc as f on f.oid = d.refobjid and d.refclassid = 'pg_proc'::regclass
             left join pg_operator as o on o.oid = d.refobjid and d.refclassid = 'pg_operator'::regclass
             where coalesce(f.pronamespace, o.oprnamespace) = 'public'::regnamespace
                 and d.classid <> 'pg_operator'::regclass";
        assert_eq!(database.query(referred), Vec::<Vec<Option<String>>>::new(), "{version:?}");
        assert_eq!(called(&database), Vec::<Vec<Option<String>>>::new(), "{version:?}");
    }
}

#[tokio::test]
async fn nobody_who_looks_calls_what_was_planted() {
    for (version, pooler) in
        [(Version::V15, Pooler::None), (Version::V15, Pooler::Transaction), (Version::V18, Pooler::None)]
    {
        let database = planted(version);
        let owner = open(&database.url, pooler).await;
        let roles = Roles::new("postrider", &database.name).unwrap();
        owner.roles_create(&roles).await.unwrap();
        let mut stores = vec![owner];
        for kind in [RoleKind::Relay, RoleKind::Operator, RoleKind::Reader] {
            let login = format!("{}_login", roles.name(kind));
            database.query(&format!("create role {login} login in role {}", roles.name(kind)));
            stores.push(open(&database.url.replace("postgres@", &format!("{login}@")), pooler).await);
        }
        stores[0].subscription_create(NewSubscription::new("log")).await.unwrap();
        stores[0].subscription_create(NewSubscription::new("queue").mode(Mode::Queue)).await.unwrap();
        let event = Event::new("order").key("a").payload("{}").header("h", "x");
        let emitted = stores[0].event_emit(vec![event]).await.unwrap();
        for store in &stores {
            look(store, emitted[0]).await;
        }
        for name in ["log", "queue"] {
            stores[2].subscription_seek(name, Start::Oldest, "ann").await.unwrap();
            stores[2].subscription_pause(name).await.unwrap();
            stores[2].subscription_resume(name).await.unwrap();
        }
        let reading = Owner::of(&stores[1], "log").await.unwrap();
        assert_eq!(ids(&reading.read_all().await.unwrap()), emitted);
        reading.settle_rows(emitted[0], Vec::new()).await.unwrap();
        stores[1].prune(Duration::from_secs(1)).await.unwrap();
        stores[2].subscription_delete("queue", "ann").await.unwrap();
        assert_eq!(called(&database), Vec::<Vec<Option<String>>>::new(), "{version:?} {pooler:?}");
    }
}

/// All that shows something.
async fn look(store: &PostgresStore, event: EventId) {
    let letters = DeadLetterQuery { subscription: None, event_id: None, after: None, limit: 100 };
    store.subscription_list().await.unwrap();
    store.subscription_report("log").await.unwrap();
    store.subscription_report("queue").await.unwrap();
    store.event_list(EventQuery { limit: 10, ..EventQuery::default() }).await.unwrap();
    store.event_get(event).await.unwrap().unwrap();
    store.event_deliveries(event).await.unwrap();
    store.dead_letter_list(letters).await.unwrap();
    store.schedule_list().await.unwrap();
    store.stats().await.unwrap();
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn outboxes_wakes_and_inboxes_call_nothing_that_was_planted() {
    for version in Version::ALL {
        let database = planted(version);
        let store = open(&database.url, Pooler::None).await;
        store.wake_set(Wake::Notify, TwoPhase::Unused, "ann").await.unwrap();
        let mut client = connect(&database.url).await;
        let table = "create table public.outbox (id bigint, aggregatetype text, aggregateid integer, type name, payload jsonb)";
        client.batch_execute(table).await.unwrap();
        client.batch_execute("insert into outbox values (1, 'order', 7, 'made', '{}')").await.unwrap();
        store.outbox_attach(&Outbox::new("outbox").existing(true), "ann").await.unwrap();
        client.batch_execute("insert into outbox values (2, 'order', 7, 'made', '{}')").await.unwrap();
        client
            .batch_execute(
                "insert into postrider.outbox (id, topic, type, key) values (default, 'order', 'made', '7')",
            )
            .await
            .unwrap();
        client
            .batch_execute("select postrider.emit('order', 'made', replace => true, idempotency_key => 'k')")
            .await
            .unwrap();
        assert_eq!(store.stats().await.unwrap().events, 4, "{version:?}");

        inbox::create(&client).await.unwrap();
        let tx = client.transaction().await.unwrap();
        emit(&tx, Event::new("order").due_after(Duration::from_secs(1))).await.unwrap();
        assert!(inbox::take(&tx, "billing", "s-1-1").await.unwrap());
        tx.commit().await.unwrap();
        inbox::prune(&client, Duration::ZERO, 10).await.unwrap();
        let options = PostgresOptions::from_url(&database.url).unwrap();
        let mut into = InboxTable::connect(&options, &"public.received".parse().unwrap()).await.unwrap();
        into.make().await.unwrap();
        assert!(into.is_there().await.unwrap());
        let event =
            store.event_list(EventQuery { limit: 1, ..EventQuery::default() }).await.unwrap().remove(0);
        let origin = Origin { subscription: "mail".to_owned(), store_id: "s".to_owned() };
        let delivery = Delivery::new(Arc::new(event.event), 1, Arc::new(origin));
        let delivered = into.deliver(&[delivery], Duration::ZERO).await;
        assert_eq!(delivered.ok(), Some(1), "{version:?}");
        assert_eq!(called(&database), Vec::<Vec<Option<String>>>::new(), "{version:?}");
    }
}
