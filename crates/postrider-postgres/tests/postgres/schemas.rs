//! Other schemas, and roles that own nothing else.

use std::io::Write as _;
use std::process::Stdio;

use postrider_core::store::EventQuery;
use postrider_core::{Event, NewSubscription, Start, Store};
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::{Database, Version, shared};

use crate::scene::Scene;

#[tokio::test]
async fn two_stores_share_a_database_and_know_nothing_of_each_other() {
    let scene = Scene::new().await;
    let options = PostgresOptions::from_url(&scene.db.url).unwrap().schema("mail_2").unwrap();
    let other = PostgresStore::open(options).await.unwrap();
    assert_ne!(scene.store.id(), other.id());
    scene.emit(&["a", "b"]).await;
    scene.subscribe("mail", Start::Oldest).await;
    other.event_emit(vec![Event::new("order").key("x")]).await.unwrap();
    other.subscription_create(NewSubscription::new("mail").start(Start::Now)).await.unwrap();
    other.subscription_seek("mail", Start::Oldest, "ann").await.unwrap();
    other.subscription_pause("mail").await.unwrap();
    assert_eq!(
        (scene.lag("mail").await.0, other.subscription_report("mail").await.unwrap().lag_events),
        (2, 1)
    );
    assert_eq!(scene.store.subscription_get("mail").await.unwrap().paused_at, None);
    let listed = other.event_list(EventQuery { limit: 9, ..EventQuery::default() }).await.unwrap();
    assert_eq!(listed.len(), 1);
    let stats = other.stats().await.unwrap();
    assert!(stats.location.contains("?schema=mail_2"), "{}", stats.location);
    assert_eq!((stats.events, scene.store.stats().await.unwrap().events), (1, 2));
    assert_eq!(other.check().await.unwrap(), Vec::<String>::new());
    other.subscription_delete("mail", "ann").await.unwrap();
    assert_eq!(scene.number("select count(*) from postrider.subscription"), 1);
    assert_eq!(scene.number("select count(*) from mail_2.audit"), 2);
}

#[tokio::test]
async fn a_store_emits_to_its_own_schema_in_a_callers_transaction() {
    let scene = Scene::new().await;
    let options = PostgresOptions::from_url(&scene.db.url).unwrap().schema("mail_2").unwrap();
    let other = PostgresStore::open(options).await.unwrap();
    let mut client = scene.client().await;
    let mut tx = client.transaction().await.unwrap();
    other.emit(&tx, Event::new("order")).await.unwrap();
    other.emit(&mut tx, Event::new("order")).await.unwrap();
    scene.store.emit(&tx, Event::new("order")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((scene.events(), scene.number("select count(*) from mail_2.event")), (1, 2));
}

#[tokio::test]
async fn a_role_that_owns_nothing_but_its_schema_can_do_all_of_it() {
    let scene = Scene::new().await;
    // Roles are the server's, and so shared by all tests.
    let role = format!("app_{}", scene.db.name);
    scene.run(&format!(
        "create role {role} login nosuperuser nocreatedb nocreaterole;
         revoke all on database {0} from public;
         grant connect on database {0} to {role};
         create schema shop authorization {role}",
        scene.db.name
    ));
    let url = scene.db.url.replace("postgres://postgres@", &format!("postgres://{role}@"));
    let options = PostgresOptions::from_url(&url).unwrap().schema("shop").unwrap();
    let store = PostgresStore::open(options).await.unwrap();
    let ids = store.event_emit(vec![Event::new("order").key("x"), Event::new("order")]).await.unwrap();
    store.subscription_create(NewSubscription::new("mail")).await.unwrap();
    for to in [Start::Now, Start::Id(ids[0]), Start::Oldest] {
        store.subscription_seek("mail", to, "ann").await.unwrap();
    }
    assert_eq!(store.subscription_list().await.unwrap()[0].lag_events, 2);
    assert_eq!(store.event_deliveries(ids[1]).await.unwrap()[0].ahead, Some(1));
    assert_eq!(store.stats().await.unwrap().events, 2);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    store.subscription_delete("mail", "ann").await.unwrap();
}

/// What psql does with a script.
fn psql(db: &Database, options: &[&str], script: &str) -> bool {
    let mut child = shared(Version::V15)
        .command("psql")
        .args(["--quiet", "--dbname", &db.name])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It may end before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child.wait().unwrap().success()
}

fn schemas(db: &Database) -> i64 {
    let count = db.query("select count(*) from pg_namespace where nspname = 'postrider'");
    count[0][0].as_deref().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_printed_schema_leaves_the_transaction_to_whoever_runs_it() {
    let script = postrider_postgres::schema_sql("postrider").unwrap();
    // A statement of the tool fails after it: nothing stays.
    let db = shared(Version::V15).create_database();
    let stop = ["--single-transaction", "--set", "ON_ERROR_STOP=1"];
    assert!(!psql(&db, &stop, &format!("{script}\nselect 1 / 0;\n")));
    assert_eq!(schemas(&db), 0);
    // Without a transaction it does nothing, with or without a stop at the first error.
    for options in [&[][..], &["--set", "ON_ERROR_STOP=1"]] {
        psql(&db, options, &script);
        assert_eq!(schemas(&db), 0, "{options:?}");
    }
    assert!(psql(&db, &stop, &script));
    PostgresStore::open(PostgresOptions::from_url(&db.url).unwrap().migrate(false)).await.unwrap();
    // All of it in one message, as many clients send it, is one transaction too; so is the script with its own.
    let db = shared(Version::V15).create_database();
    db.query(&script);
    PostgresStore::open(PostgresOptions::from_url(&db.url).unwrap().migrate(false)).await.unwrap();
    let db = shared(Version::V15).create_database();
    let whole = postrider_postgres::schema_transaction_sql("postrider").unwrap();
    assert!(psql(&db, &["--set", "ON_ERROR_STOP=1"], &whole));
    PostgresStore::open(PostgresOptions::from_url(&db.url).unwrap().migrate(false)).await.unwrap();
}
