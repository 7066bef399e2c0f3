//! A pooler in transaction mode stands between.

use std::sync::Arc;

use postrider_core::settle::Settle;
use postrider_core::{Delivery, ErrorKind, Event, LogStore, NewSubscription, Result, Store};
use postrider_postgres::tokio_postgres::{Client, Transaction};
use postrider_postgres::{PostgresOptions, PostgresStore, Work, emit_all, in_transaction};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::{
    Database, Pooler, PoolerSettings, Server, Settings, Startup, Version, shared,
};

use crate::cancellation::drop_calls;
use crate::stage::{AMPLE, Owner, Stage, connect, emit, open, run};

/// A store behind a pooler; the database is the one that is reached directly.
struct Behind {
    stage: Stage,
    pooled: Database,
    _pooler: Pooler,
}

impl Behind {
    async fn on(server: &Server, sessions: u32) -> Self {
        let pooler = Pooler::start(server, PoolerSettings { sessions, startup: Startup::Refuses });
        let db = server.create_database();
        let pooled = pooler.database(&db);
        let stage = Stage { store: open(&pooled).await, db };
        Self { stage, pooled, _pooler: pooler }
    }

    /// Through the pooler, as the application comes.
    async fn application(&self) -> Client {
        connect(&self.pooled.url).await
    }
}

#[tokio::test]
async fn which_way_it_is_is_found_out() {
    let server = shared(Version::V15);
    for startup in [Startup::Refuses, Startup::Ignores] {
        let pooler = Pooler::start(server, PoolerSettings { sessions: 2, startup });
        let db = server.create_database();
        assert!(!open(&db).await.is_pooled(), "nobody stands between");
        let pooled = pooler.database(&db).url;
        let open = async |parameter: &str| {
            PostgresStore::open(PostgresOptions::from_url(&format!("{pooled}?{parameter}"))?).await
        };
        for parameter in ["", "pooler=detect", "pooler=transaction"] {
            let store = open(parameter).await.unwrap();
            assert!(store.is_pooled(), "{startup:?} {parameter}");
            let location = store.stats().await.unwrap().location;
            assert!(location.ends_with(", through a transaction pooler: polling)"), "{location}");
        }
        let refused = open("pooler=none").await.unwrap_err();
        assert!(refused.to_string().contains("a pooler stands between"), "{refused}");
    }
}

#[tokio::test]
async fn settings_in_the_url_stay_beside_ours() {
    let db = shared(Version::V15).create_database();
    open(&db).await.subscription_create(NewSubscription::new("orders")).await.unwrap();
    let url = format!("{}?options=-c%20statement_timeout%3D2s", db.url);
    let store = PostgresStore::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    assert!(!store.is_pooled());
    let lock = connect(&db.url).await;
    run(&lock, "begin; lock table postrider.subscription").await;
    // Ours would end the wait later, and say that it was for a lock.
    let refused = store.subscription_get("orders").await.unwrap_err();
    assert!(refused.to_string().contains("statement timeout"), "{refused}");
}

/// What a session of the server remembers, as the application finds it.
const REMEMBERED: &str = "
    select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where source in ('session', 'client')
        and name not in ('application_name', 'client_encoding')
    union all select 'prepared ' || name from pg_prepared_statements
    union all select 'locked ' || locktype from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
    union all select 'listens ' || channel from pg_listening_channels() as channel
    union all select 'temporary ' || relname from pg_class where relnamespace = pg_my_temp_schema()";

#[tokio::test]
async fn nothing_of_ours_stays_with_the_applications_session() {
    for version in Version::ALL {
        let behind = Behind::on(shared(version), 1).await;
        let application = behind.application().await;
        // Names that the client library of this process would choose next are taken.
        for n in 0..2_000 {
            run(&application, &format!("prepare s{n} as select {n}")).await;
        }
        let mut owner = behind.stage.owner("orders").await;
        behind.stage.store.event_emit(vec![Event::new("order").payload("a")]).await.unwrap();
        assert_eq!(owner.read().await, ["a"], "{version:?}");
        owner.settle().await.unwrap();
        let settle = Arc::new(Settle { mark: Some(owner.at), ..Settle::default() });
        owner.store.settle_with(&owner.hold, settle, work()).await.unwrap().unwrap();
        behind.stage.store.prune(std::time::Duration::ZERO).await.unwrap();
        assert_eq!(behind.stage.store.check().await.unwrap(), [""; 0]);
        run(&application, "deallocate all").await;
        let remembered = application.simple_query(REMEMBERED).await.unwrap();
        let rows = remembered.iter().filter_map(|message| match message {
            postrider_postgres::tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(rows.collect::<Vec<_>>(), [""; 0], "{version:?}");
    }
}

fn work() -> Work {
    Box::new(|tx: &mut Transaction<'_>| {
        Box::pin(async move {
            let done = tx.batch_execute("select").await;
            done.map_err(|error| postrider_core::Failure::retry(error.to_string()))
        })
    })
}

#[tokio::test]
async fn a_single_session_is_enough_for_a_relay_with_transactional_handlers() {
    for version in Version::ALL {
        let behind = Behind::on(shared(version), 1).await;
        behind.stage.run("create table effect (n bigint primary key)");
        let mut application = behind.application().await;
        let tx = application.transaction().await.unwrap();
        let events = (0..200).map(|n| Event::new("order").key(n % 7)).collect();
        emit_all(&tx, events).await.unwrap();
        tx.commit().await.unwrap();
        let handler = in_transaction(|tx: &mut Transaction<'_>, event: Delivery| {
            Box::pin(async move {
                tx.execute_typed(&format!("insert into effect values ({})", event.id), &[]).await?;
                // What it emits is delivered as well.
                if event.id.0 % 50 == 0 && event.topic.as_str() == "order" {
                    emit_all(&*tx, vec![Event::new("echo")]).await.map_err(Box::new)?;
                }
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            })
        });
        // The second finds what the last handlers of the first have emitted.
        for _ in 0..2 {
            let worker = Worker::new(NewSubscription::new("orders")).transactional(handler.clone());
            let relay = Relay::new(behind.stage.store.clone()).worker(worker);
            relay.run_until_idle(std::future::pending()).await.unwrap();
        }
        let done = behind.stage.number("select count(*) from effect");
        let emitted = behind.stage.number("select count(*) from postrider.event");
        assert!(emitted > 200, "handlers have emitted");
        assert_eq!(done, emitted, "{version:?}");
    }
}

#[tokio::test]
async fn a_dropped_call_leaves_no_transaction_open() {
    let behind = Behind::on(shared(Version::V15), 2).await;
    drop_calls(&behind.stage).await;
}

/// Whether the server's era ends with a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    Ends,
    /// It is kept in a table that survives: as if no session asked for it.
    Survives,
}

/// An owner behind a pooler whose server crashes, and which has seen transactions whose numbers are issued again.
async fn crashed(version: Version, era: Era) -> (Behind, Owner, Server) {
    let mut server = Server::start(version, Settings::fast().set("wal_writer_delay", "10s"));
    let behind = Behind::on(&server, 1).await;
    let stage = &behind.stage;
    let mut owner = stage.owner("orders").await;
    let p = stage.session().await;
    emit(&p, "k", "first").await;
    assert_eq!(owner.read().await, ["first"]);
    owner.settle().await.unwrap();
    if era == Era::Survives {
        stage.run("alter table postrider.era set logged");
    }
    // Commits with a flush, so that the settle above survives; what follows begins a page, which is not
    // flushed before it is full.
    stage.run("create table flushed (n int)");
    stage.run("select pg_switch_wal()");
    let next = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    for _ in 0..40 {
        run(&p, "begin; select pg_current_xact_id(); commit").await;
    }
    // An id is drawn, so that there is a new moment of the log to see.
    run(&p, "begin; insert into postrider.event (topic, type) values ('order', 'order'); rollback").await;
    assert_eq!(owner.read().await, [""; 0]);
    let burnt = stage.number(next);
    let pid: i32 = p.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    server.kill_backend_9(pid as u32);
    server.wait_until_it_answers();
    assert!(stage.number(next) < burnt, "the test shows nothing on {version:?}");
    // The pooler's only session is a new one from here on, so that the owner's connections notice nothing by
    // themselves.
    let is_new = (0..100).any(|_| behind.pooled.try_query("select 1").is_ok());
    assert!(is_new, "the pooler connects again");
    let p = stage.session().await;
    for n in 0..5 {
        emit(&p, "k", &format!("{n}")).await;
    }
    (behind, owner, server)
}

/// What a call comes to that may be repeated as often as its error says.
async fn insisting<T>(mut call: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    for _ in 0..100 {
        match call().await {
            Err(error) if error.is_retryable() => {}
            ended => return ended,
        }
    }
    panic!("it is never said whether it is possible");
}

#[tokio::test]
async fn a_crash_behind_the_pooler_fences_its_owners() {
    for version in Version::ALL {
        let (behind, owner, _server) = crashed(version, Era::Ends).await;
        let settled = insisting(async || owner.settle().await).await;
        assert_eq!(settled.unwrap_err().kind(), ErrorKind::Fenced, "{version:?}");
        let read = insisting(async || owner.store.fetch(&owner.hold, owner.at, AMPLE).await).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Fenced, "{version:?}");
        let settle = Arc::new(Settle { mark: Some(owner.at), ..Settle::default() });
        let done = async || owner.store.settle_with(&owner.hold, Arc::clone(&settle), work()).await;
        assert_eq!(insisting(done).await.unwrap_err().kind(), ErrorKind::Fenced, "{version:?}");
        let mut later = Owner::of(&open(&behind.pooled).await, "orders").await;
        assert_eq!(later.read().await, ["0", "1", "2", "3", "4"], "{version:?}");
    }
}

#[tokio::test]
async fn a_reader_notices_a_crash_before_it_hands_anything_out() {
    let (_behind, owner, _server) = crashed(Version::V15, Era::Ends).await;
    let read = insisting(async || owner.store.fetch(&owner.hold, owner.at, AMPLE).await).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Fenced);
}

/// So that the tests above can fail. It can be noticed in other ways too if the server takes long, so that
/// one of several tries is enough.
#[tokio::test]
async fn without_its_era_a_crash_behind_the_pooler_would_hide_events() {
    for _ in 0..5 {
        let (behind, owner, _server) = crashed(Version::V15, Era::Survives).await;
        let there = behind.stage.number("select count(*) from postrider.event");
        assert_eq!(there, 6);
        if sees_nothing(&owner).await.is_ok() {
            return;
        }
    }
    panic!("the owner noticed every time");
}

/// The owner works on, and no event comes.
async fn sees_nothing(owner: &Owner) -> Result<()> {
    for _ in 0..20 {
        let chunk = owner.store.fetch(&owner.hold, owner.at, AMPLE).await?;
        assert!(chunk.events.is_empty());
    }
    owner.settle().await
}

#[tokio::test]
async fn a_session_that_turns_out_to_be_lent_is_used_as_such_from_then_on() {
    let stage = Stage::on(Version::V15).await;
    let owner = stage.owner("orders").await;
    let settle = || Arc::new(Settle { mark: Some(owner.at), ..Settle::default() });
    let forget = || -> Work {
        Box::new(|tx: &mut Transaction<'_>| {
            Box::pin(async move {
                let done = tx.batch_execute("deallocate all").await;
                done.map_err(|error| postrider_core::Failure::retry(error.to_string()))
            })
        })
    };
    let failure = owner.store.settle_with(&owner.hold, settle(), forget()).await.unwrap().unwrap_err();
    assert!(format!("{failure:?}").contains("prepared statement"), "{failure:?}");
    assert!(stage.store.is_pooled());
    let mut owner = Owner::of(&stage.store, "orders").await;
    stage.store.event_emit(vec![Event::new("order").payload("a")]).await.unwrap();
    assert_eq!(owner.read().await, ["a"]);
    owner.settle().await.unwrap();
}
