//! The server ends in the middle of everything.

use postrider_core::{LogStore, Mode, NewSubscription, Store};
use postrider_postgres::{Durability, PostgresStore};
use postrider_testkit::history::Fault;
use postrider_testkit::postgres::{Database, Server, Settings, Version};

use crate::relay::{LEDGER, Witness, produce};
use crate::stage::{AMPLE, Owner, Stage, connect, emit, open, options, run};

/// How a server goes down in the middle of work.
#[derive(Clone, Copy)]
enum Crash {
    /// One backend is killed with -9; the postmaster ends the others and recovers.
    Backend,
    /// All of it ends at once, and is started again.
    Immediate,
}

async fn crash(mut server: Server, how: Crash, db: Database) -> Server {
    tokio::task::spawn_blocking(move || {
        match how {
            Crash::Backend => {
                let pid = "select pid from pg_stat_activity
                           where backend_type = 'client backend' and pid <> pg_backend_pid()
                           order by application_name = 'postrider/writer' desc limit 1";
                // Right after a crash there may be none for a moment.
                let pid = std::iter::repeat_with(|| db.try_query(pid).unwrap_or_default())
                    .find_map(|rows| rows.first()?[0].as_ref()?.parse().ok());
                server.kill_backend_9(pid.unwrap());
                server.wait_until_it_answers();
            }
            Crash::Immediate => {
                server.kill_immediate();
                server.start_again();
            }
        }
        server
    })
    .await
    .unwrap()
}

async fn survive(version: Version, how: Crash) {
    let mut server = Server::start(version, Settings::fast());
    let stage = Stage::in_database(server.create_database()).await;
    stage.run(LEDGER);
    let witness = Witness::new();
    let relay = witness.start(stage.store.clone(), 1);
    let producers: Vec<_> =
        (0..3).map(|_| tokio::spawn(produce(stage.db.url.clone(), 700, "select"))).collect();
    for round in 1..=2 {
        let early: Vec<i64> = vec![round * 50];
        witness.until_seen(&early).await;
        server = crash(server, how, stage.db.clone()).await;
        // What was delivered and not settled comes again.
        witness.fault(Fault::CommitUnknown);
    }
    for producer in producers {
        producer.await.unwrap();
    }
    witness.judge(&stage.db).await;
    assert!(!relay.is_finished(), "the relay has lived through it");
    relay.abort();
    drop(server);
}

#[tokio::test]
async fn a_backend_that_is_killed_loses_nothing() {
    for version in Version::ALL {
        survive(version, Crash::Backend).await;
    }
}

#[tokio::test]
async fn an_immediate_stop_loses_nothing() {
    for version in Version::ALL {
        survive(version, Crash::Immediate).await;
    }
}

/// Who reads the same log for a queue: what it reads need not be on disk.
#[derive(Clone, Copy, PartialEq)]
enum Feeder {
    Nobody,
    /// It has read before the other one takes its subscription.
    Before,
    /// It reads first, but both had theirs.
    Beside,
}

/// Emits without a flush, hands out, crashes; what was handed out, and what is left.
async fn vanished(version: Version, durability: Durability, feeder: Feeder) -> (usize, i64) {
    // The server's own writer sleeps, so nothing reaches the disk unless a session asks for it.
    let settings = Settings::fast().set("wal_writer_delay", "10s");
    let mut server = Server::start(version, settings);
    let db = server.create_database();
    let stage = Stage { store: PostgresStore::open(options(&db).durability(durability)).await.unwrap(), db };
    stage.store.subscription_create(NewSubscription::new("orders")).await.unwrap();
    stage.store.subscription_create(NewSubscription::new("fed").mode(Mode::Queue)).await.unwrap();
    let orders = Owner::of(&stage.store, "orders");
    let fed = if feeder == Feeder::Nobody { None } else { Some(Owner::of(&stage.store, "fed").await) };
    let mut orders = Box::pin(orders);
    let early = if feeder == Feeder::Before { None } else { Some(orders.as_mut().await) };
    let p = stage.session().await;
    run(&p, "set synchronous_commit = off").await;
    // From the beginning of a page on: one that is full is flushed by and by, however the writer sleeps.
    stage.run("select pg_switch_wal()");
    for n in 0..10 {
        emit(&p, "k", &format!("{n}")).await;
    }
    if let Some(fed) = fed {
        let chunk = fed.store.fetch(&fed.hold, fed.at, AMPLE).await.unwrap();
        // Beside the other one it has to wait for the disk too, unless the server's writer was about to flush.
        let waits = feeder == Feeder::Beside && chunk.soon;
        assert_eq!(chunk.events.len(), if waits { 0 } else { 10 });
    }
    let mut owner = match early {
        Some(owner) => owner,
        None => orders.await,
    };
    let handed_out = owner.read().await.len();
    server.kill_immediate();
    server.start_again();
    (handed_out, stage.number("select count(*) from postrider.event"))
}

#[tokio::test]
async fn what_was_handed_out_does_not_vanish_in_a_crash() {
    for version in Version::ALL {
        for feeder in [Feeder::Nobody, Feeder::Before, Feeder::Beside] {
            assert_eq!(vanished(version, Durability::Flush, feeder).await, (10, 10), "{version:?}");
        }
        // Without it they do: so the test above can fail.
        assert_eq!(vanished(version, Durability::Trust, Feeder::Nobody).await, (10, 0), "{version:?}");
    }
}

#[tokio::test]
async fn a_subscription_that_is_paused_while_its_window_waits_for_the_disk_is_not_handed_it() {
    for version in Version::ALL {
        let server = Server::start(version, Settings::fast().set("wal_writer_delay", "10s"));
        let stage = Stage::in_database(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        let p = stage.session().await;
        run(&p, "set synchronous_commit = off").await;
        let mut waits = 0;
        for n in 0..100 {
            emit(&p, "k", &format!("{n}")).await;
            let first = owner.store.fetch(&owner.hold, owner.at, AMPLE).await.unwrap();
            if !first.soon {
                // The server's writer was about to flush, so that there was nothing to wait for.
                owner.at = first.end;
                continue;
            }
            assert!(first.events.is_empty(), "handed out before it is on disk");
            // Another store pauses it, so this owner does not know. The commit flushes the window as well.
            open(&stage.db).await.subscription_pause("orders").await.unwrap();
            let paused = owner.step(AMPLE).await.unwrap();
            assert!(paused.paused && paused.events.is_empty(), "{paused:?} on {version:?}");
            stage.store.subscription_resume("orders").await.unwrap();
            assert_eq!(owner.read().await, [format!("{n}")], "{version:?}");
            waits += 1;
            if waits == 3 {
                break;
            }
        }
        assert_eq!(waits, 3, "windows have to wait for the disk, or the test shows nothing on {version:?}");
    }
}

#[tokio::test]
async fn xids_that_are_issued_again_hide_nothing() {
    for version in Version::ALL {
        let settings = Settings::fast().set("wal_writer_delay", "10s");
        let mut server = Server::start(version, settings);
        let stage = Stage::in_database(server.create_database()).await;
        stage.run(LEDGER);
        let witness = Witness::new();
        let relay = witness.start(stage.store.clone(), 1);
        let mut owner = stage.owner("by-hand").await;
        stage.run("select numbered('k')");
        witness.until_seen(&[1]).await;
        assert_eq!(owner.read().await.len(), 1);
        owner.settle().await.unwrap();
        // Commits with a flush, so that the settle above survives.
        stage.run("create table flushed (n int)");
        let before = stage.number("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint");
        let p = stage.session().await;
        for _ in 0..40 {
            run(&p, "begin; select pg_current_xact_id(); commit").await;
        }
        let burnt = stage.number("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint");
        assert!(burnt >= before + 40);
        // Both know of a snapshot that has seen them.
        assert_eq!(owner.read().await, [""; 0]);
        let _ = owner.settle().await;
        witness.fault(Fault::CommitUnknown);
        server.kill_immediate();
        server.start_again();
        let after = stage.number("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint");
        assert!(after < burnt, "the test shows nothing: {after} comes after {burnt} on {version:?}");
        let db = stage.db.clone();
        let emit = move || (0..60).for_each(|_| drop(db.query("select numbered('k')")));
        tokio::task::spawn_blocking(emit).await.unwrap();
        witness.judge(&stage.db).await;
        relay.abort();
        let mut later = Owner::of(&open(&stage.db).await, "by-hand").await;
        assert_eq!(later.read().await.len(), 60, "{version:?}");
    }
}

#[tokio::test]
async fn a_prepared_transaction_outlives_a_restart() {
    for version in Version::ALL {
        let mut server = Server::start(version, Settings::fast());
        let stage = Stage::in_database(server.create_database()).await;
        let mut owner = stage.owner("orders").await;
        let p = stage.session().await;
        for (name, key) in [("kept", "a"), ("given up", "b")] {
            run(&p, "begin").await;
            emit(&p, key, name).await;
            run(&p, &format!("prepare transaction '{name}'")).await;
        }
        emit(&p, "c", "free").await;
        assert_eq!(owner.read().await, ["free"]);
        owner.settle().await.unwrap();
        server.stop();
        server.start_again();
        let mut owner = Owner::of(&open(&stage.db).await, "orders").await;
        let p = connect(&stage.db.url).await;
        emit(&p, "c", "free again").await;
        assert_eq!(owner.read().await, ["free again"], "{version:?}");
        run(&p, "rollback prepared 'given up'").await;
        assert_eq!(owner.read().await, [""; 0]);
        run(&p, "commit prepared 'kept'").await;
        assert_eq!(owner.read().await, ["kept"], "{version:?}");
        assert_eq!(owner.read().await, [""; 0]);
    }
}
