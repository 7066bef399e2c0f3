//! Servers that keep to themselves what others tell of their write-ahead log and of themselves, as managed ones may.

use postrider_core::{ErrorKind, NewSubscription, Store};
use postrider_postgres::{PostgresOptions, PostgresStore, Source};
use postrider_testkit::postgres::{Server, Settings, Version, shared};

use crate::stage::{Owner, connect, emit, run};

#[tokio::test]
async fn a_source_that_needs_the_write_ahead_log_is_refused_by_the_name_of_the_parameter() {
    for version in Version::ALL {
        let url = shared(version).create_database().managed();
        let options = PostgresOptions::from_url(&url).unwrap().source(Source::Wal);
        let Err(refused) = PostgresStore::open(options).await else { panic!("it is not refused") };
        assert_eq!(refused.kind(), ErrorKind::Incompatible);
        assert!(refused.to_string().contains("rds.logical_replication"), "{refused}");
    }
}

/// A dump draws the token again where it is restored.
#[tokio::test]
async fn a_store_knows_its_server_by_a_token_that_no_dump_carries() {
    for version in Version::ALL {
        let db = shared(version).create_database();
        let options = PostgresOptions::from_url(&db.managed()).unwrap();
        let store = PostgresStore::open(options.clone()).await.unwrap();
        store.subscription_create(NewSubscription::new("orders")).await.unwrap();
        let mut owner = Owner::of(&store, "orders").await;
        let p = connect(&db.url).await;
        emit(&p, "k", "before").await;
        assert_eq!(owner.read().await, ["before"], "{version:?}");
        owner.leave().await;
        let id = store.id();
        db.query("refresh materialized view postrider.server_token");
        let Err(refused) = PostgresStore::open(options.clone()).await else {
            panic!("it is taken for its home")
        };
        assert_eq!(refused.kind(), ErrorKind::Moved, "{refused}");
        let adopted = PostgresStore::adopt(options.clone(), "ann").await.unwrap().unwrap();
        assert_ne!(adopted.store_id, id);
        emit(&p, "k", "after").await;
        let store = PostgresStore::open(options).await.unwrap();
        assert_eq!(Owner::of(&store, "orders").await.read().await, ["after"], "{version:?}");
    }
}

/// The producer has not waited for the disk, and the server does not tell how far that is: a commit of ours flushes it.
#[tokio::test]
async fn what_is_handed_out_survives_a_crash() {
    for version in Version::ALL {
        let mut server = Server::start(version, Settings::honest().set("wal_writer_delay", "10s"));
        let db = server.create_database();
        let store = PostgresStore::open(PostgresOptions::from_url(&db.managed()).unwrap()).await.unwrap();
        store.subscription_create(NewSubscription::new("orders")).await.unwrap();
        let mut owner = Owner::of(&store, "orders").await;
        let p = connect(&db.url).await;
        run(&p, "set synchronous_commit = off").await;
        emit(&p, "k", "read").await;
        assert_eq!(owner.read().await, ["read"], "{version:?}");
        server.kill_9();
        server.start_again();
        assert_eq!(
            db.query("select count(*) from postrider.event")[0][0].as_deref(),
            Some("1"),
            "{version:?}"
        );
    }
}
