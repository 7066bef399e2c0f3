//! The schema of the next release is there while programs of this one run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_core::{Delivery, NewSubscription, Store};
use postrider_postgres::tokio_postgres::Error;
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::Version;
use tokio::sync::Notify;

use crate::stage::{Stage, emit, open};

/// What a release may do that only adds: columns in every table, whether they have a default or none, and tables.
const EXPAND: &str = "
    do $$
    declare
        relation regclass;
    begin
        for relation in select oid from pg_class
            where relnamespace = 'postrider'::regnamespace and relkind in ('r', 'p') and not relispartition
        loop
            execute format('alter table %s add column later text, add column sooner int not null default 7', relation);
        end loop;
    end $$;
    create table postrider.further (id bigint primary key);
    update postrider.meta set value = '2' where name = 'schema_version'";

/// Expands as a migration does: it gives up rather than make producers wait.
async fn expand(stage: &Stage) -> usize {
    let session = stage.session().await;
    for tries in 1..100 {
        let script = format!("begin; set local lock_timeout = '200ms'; {EXPAND}; commit");
        match session.batch_execute(&script).await {
            Ok(()) => return tries,
            Err(error) => assert_eq!(error.code().unwrap().code(), "55P03", "{error}"),
        }
        session.batch_execute("rollback").await.unwrap();
    }
    panic!("it never gets the locks");
}

/// Producers emit and a relay delivers before, during and after; no program fails and nothing is lost.
async fn programs_go_on_over_an_expanded_schema(version: Version) {
    const EACH: usize = 300;
    let stage = Stage::on(version).await;
    stage.store.subscription_create(NewSubscription::new("orders")).await.unwrap();
    let (seen, moved) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let handler = {
        let (seen, moved) = (Arc::clone(&seen), Arc::clone(&moved));
        move |_: Delivery| {
            seen.fetch_add(1, Ordering::Relaxed);
            moved.notify_one();
            async { Ok(()) }
        }
    };
    let until = async |wanted: usize| {
        while seen.load(Ordering::Relaxed) < wanted {
            moved.notified().await;
        }
    };
    let worker = Worker::new(NewSubscription::new("orders")).each::<_, _, Error>(handler);
    let producing = async {
        let session = stage.session().await;
        for n in 0..EACH {
            emit(&session, &format!("k{}", n % 7), "").await;
        }
    };
    let events = async {
        tokio::join!(producing, async {
            until(10).await;
            assert!(expand(&stage).await < 100);
        });
        until(EACH).await;
        // A store that is opened only now works with it too, and so do an operator's calls.
        let later = open(&stage.db).await;
        later.event_emit(vec![postrider_core::Event::new("order")]).await.unwrap();
        until(EACH + 1).await;
        assert_eq!(later.check().await.unwrap(), Vec::<String>::new());
        later.stats().await.unwrap();
    };
    Relay::new(open(&stage.db).await).worker(worker).run(Box::pin(events)).await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), EACH + 1, "each came once");
}

#[tokio::test]
async fn programs_go_on_over_an_expanded_schema_on_postgresql_15() {
    Box::pin(programs_go_on_over_an_expanded_schema(Version::V15)).await;
}

#[tokio::test]
async fn programs_go_on_over_an_expanded_schema_on_postgresql_18() {
    Box::pin(programs_go_on_over_an_expanded_schema(Version::V18)).await;
}
