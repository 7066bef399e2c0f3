//! What a relay at work does to producers, and handlers to each other: nothing.

use std::time::Duration;

use postrider_core::{Delivery, Failure, NewSubscription};
use postrider_postgres::tokio_postgres::{Client, Error};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::{Version, shared};
use tokio::sync::mpsc;

use crate::relay::{LEDGER, Witness};
use crate::stage::{Stage, connect, emit};

/// Emits in a transaction of the database's default isolation. Keys are of this producer alone, so that producers
/// give each other no reason to fail.
async fn emit_often(client: Client, number: usize, times: usize) -> Result<(), Error> {
    for n in 0..times {
        client.batch_execute(&format!("begin; select numbered('k{number}-{n}'); commit")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn serializable_producers_never_fail_because_of_a_relay() {
    for version in Version::ALL {
        let db = shared(version).create_database();
        db.query(&format!("alter database {} set default_transaction_isolation = 'serializable'", db.name));
        let stage = Stage::in_database(db).await;
        stage.run(LEDGER);
        // Reads of the whole table under this isolation would make writers fail; indexes need some rows to be used.
        stage.run("insert into agg select 'k' || g || '-' || n, 0 from generate_series(0, 7) g, generate_series(0, 99) n");
        stage.run("vacuum analyze agg");
        let witness = Witness::new();
        let relay = witness.start(stage.store.clone(), 1);
        let mut producers = Vec::new();
        for number in 0..8 {
            let client = connect(&stage.db.url).await;
            let isolation: String = client.query_one("show transaction_isolation", &[]).await.unwrap().get(0);
            assert_eq!(isolation, "serializable");
            producers.push(tokio::spawn(emit_often(client, number, 100)));
        }
        for producer in producers {
            producer
                .await
                .unwrap()
                .unwrap_or_else(|error| panic!("a producer failed on {version:?}: {error:?}"));
        }
        witness.judge(&stage.db).await;
        let ours = "select count(*) from pg_locks join pg_stat_activity using (pid)
                    where mode = 'SIReadLock' and application_name like 'postrider/%'";
        assert_eq!(stage.number(ours), 0, "a connection of ours is serializable on {version:?}");
        relay.abort();
    }
}

#[tokio::test]
async fn a_slow_handler_delays_only_its_own_subscription() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let (sender, mut received) = mpsc::unbounded_channel();
        let stuck = |_: Delivery| std::future::pending::<Result<(), Failure>>();
        let quick = move |delivery: Delivery| {
            let sender = sender.clone();
            async move { sender.send(delivery.event.id.0) }
        };
        let relay = Relay::new(stage.store.clone())
            .worker(Worker::new(NewSubscription::new("stuck")).each(stuck))
            .worker(Worker::new(NewSubscription::new("quick")).each(quick));
        let relay = tokio::spawn(relay.run(std::future::pending()));
        let p = stage.session().await;
        for n in 0..50 {
            let id = emit(&p, &format!("k{}", n % 3), "x").await;
            let next = tokio::time::timeout(Duration::from_secs(30), received.recv()).await;
            assert_eq!(next.unwrap_or_else(|_| panic!("{id} waits on {version:?}")), Some(id));
        }
        relay.abort();
    }
}
