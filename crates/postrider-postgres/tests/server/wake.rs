//! Producers wake relays: no relay sleeps through an event, whichever producer emits it and however.
//!
//! The longest rest is an hour here, so a test that loses a wake never ends well.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::store::Wake;
use postrider_core::{Event, LogStore, NewSubscription, Start, Store};
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::{PostgresOptions, PostgresStore, RoleKind, Roles, TwoPhase, copy};
use postrider_testkit::postgres::{Database, Server, Settings, Version, shared};
use tokio::sync::{Notify, watch};

use crate::relay::Witness;
use crate::stage::{Owner, Stage, connect, emit, options, run, until};

const HOUR: Duration = Duration::from_secs(3600);
/// How long a test waits for what must happen: far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many sentries there are.
const SENTRIES: &str = "select count(*) from pg_locks
    where locktype = 'advisory' and mode = 'ExclusiveLock' and granted and objsubid = 2 and objid = 0
        and classid = 'postrider.event'::regclass::oid
        and database = (select oid from pg_database where datname = current_database())";

/// How many processes listen.
const LISTENERS: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and application_name = 'postrider/sentry'";

fn patient(db: &Database) -> PostgresOptions {
    options(db).rest_max(HOUR)
}

async fn open(db: &Database) -> PostgresStore {
    PostgresStore::open(patient(db)).await.unwrap()
}

/// A store whose producers wake relays.
async fn stage(version: Version) -> Stage {
    in_database(shared(version).create_database()).await
}

async fn in_database(db: Database) -> Stage {
    let store = open(&db).await;
    store.wake_set(Wake::Notify, TwoPhase::Unused, "ada").await.unwrap();
    Stage { db, store }
}

/// Waits until everybody who wants to sleep does, as far as the server can tell.
async fn asleep(stage: &Stage) {
    until(stage, SENTRIES, 1).await;
}

#[tokio::test]
async fn the_first_event_after_a_rest_wakes_the_relay_however_it_was_emitted() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let witness = Witness::new();
        let relay = witness.start(stage.store.clone(), 1);
        let mut producer = stage.session().await;
        let ways = [
            "insert into postrider.event (topic, type) values ('t', 't') returning id",
            "select postrider.emit('t', 't')",
            "select postrider.emit('t', 't', idempotency_key => 'once')",
            "with made as (insert into postrider.event (topic, type) values ('t', 't'), ('t', 't') returning id)
             select max(id) from made",
        ];
        for way in ways {
            asleep(&stage).await;
            let id: i64 = producer.query_one(way, &[]).await.unwrap().get(0);
            witness.until_seen(&[id]).await;
        }
        asleep(&stage).await;
        let tx = producer.transaction().await.unwrap();
        copy(&tx, ["a", "b"].map(|key| Event::new("t").key(key))).await.unwrap();
        tx.commit().await.unwrap();
        witness.until_seen(&[stage.number("select max(id) from postrider.event")]).await;
        relay.abort();
    }
}

#[tokio::test]
async fn savepoints_and_rollbacks_neither_wake_nor_hide_anything() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let witness = Witness::new();
        let relay = witness.start(stage.store.clone(), 1);
        let producer = stage.session().await;
        asleep(&stage).await;
        run(&producer, "begin").await;
        emit(&producer, "a", "never").await;
        run(&producer, "rollback").await;
        assert_eq!(stage.number(SENTRIES), 1, "who rolls back wakes nobody");
        run(&producer, "begin; savepoint s").await;
        emit(&producer, "a", "never").await;
        run(&producer, "rollback to s").await;
        let second = emit(&producer, "a", "second").await;
        run(&producer, "commit").await;
        witness.until_seen(&[second]).await;
        // The other way round: the lock is taken before the rest, lost with a savepoint and taken again.
        run(&producer, "begin; savepoint s").await;
        emit(&producer, "a", "never").await;
        run(&producer, "rollback to s").await;
        asleep(&stage).await;
        let fourth = emit(&producer, "a", "fourth").await;
        run(&producer, "commit").await;
        witness.until_seen(&[fourth]).await;
        relay.abort();
    }
}

/// Emits in one transaction of some kind.
async fn produce(client: &Client, mut rng: fastrand::Rng) {
    run(client, "begin").await;
    for _ in 0..rng.usize(1..4) {
        match rng.u8(..4) {
            0 => {
                run(client, "savepoint s").await;
                emit(client, "a", "never").await;
                run(client, "rollback to s").await;
            }
            1 => run(client, "savepoint s; select postrider.emit('order', 'order'); release s").await,
            _ => drop(emit(client, "a", "plain").await),
        }
        for _ in 0..rng.usize(..20) {
            run(client, "select").await;
        }
    }
    run(client, if rng.u8(..4) == 0 { "rollback" } else { "commit" }).await;
}

/// What a reader has done so far.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    read: i64,
    sleeps: usize,
}

/// Reads on as a relay at rest does, but without any poll during a sleep.
async fn read_when_woken(mut owner: Owner, done: watch::Sender<Done>) {
    loop {
        let watch = owner.store.watch().await;
        let found = owner.read().await.len() as i64;
        done.send_modify(|done| done.read += found);
        if let (Some(watch), 0) = (watch, found) {
            done.send_modify(|done| done.sleeps += 1);
            watch.await;
        }
    }
}

#[tokio::test]
async fn nothing_is_slept_through_among_many_producers_and_relays() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let mut readers = Vec::new();
        for name in ["a", "b", "c"] {
            let store = open(&stage.db).await;
            store.subscription_create(NewSubscription::new(name)).await.unwrap();
            let (sender, done) = watch::channel(Done::default());
            let reader = read_when_woken(Owner::of(&store, name).await, sender);
            readers.push((tokio::spawn(reader), done));
        }
        let producers = [stage.session().await, stage.session().await, stage.session().await];
        for round in 0..40 {
            let rng = |number: u64| fastrand::Rng::with_seed(round * 3 + number);
            let [a, b, c] = &producers;
            tokio::join!(produce(a, rng(0)), produce(b, rng(1)), produce(c, rng(2)));
            // No producer emits any more: a reader that sleeps through an event now does so for good.
            let emitted = stage.number("select count(*) from postrider.event");
            for (_, done) in &mut readers {
                let all = done.wait_for(|done| done.read >= emitted);
                let all = tokio::time::timeout(PATIENCE, all).await;
                let done = *all.unwrap_or_else(|_| panic!("slept through one in round {round}")).unwrap();
                assert_eq!(done.read, emitted);
            }
        }
        for (reader, done) in readers {
            assert!(done.borrow().sleeps >= 10, "{:?} says nothing about sleeping", *done.borrow());
            reader.abort();
        }
    }
}

#[tokio::test]
async fn an_emit_that_is_under_way_keeps_everybody_awake() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let mut owner = stage.owner("a").await;
        assert!(stage.store.watch().await.is_some());
        let producer = stage.session().await;
        run(&producer, "begin").await;
        // It finds the sentry, so it will notify; from then on no relay keeps watch.
        emit(&producer, "a", "first").await;
        let watch = stage.store.watch().await.unwrap();
        run(&producer, "commit").await;
        watch.await;
        until(&stage, SENTRIES, 0).await;
        run(&producer, "begin").await;
        emit(&producer, "a", "second").await;
        assert!(stage.store.watch().await.is_none(), "{version:?}");
        assert_eq!(owner.read().await, ["first"]);
        run(&producer, "commit").await;
        assert!(stage.store.watch().await.is_some());
        assert_eq!(owner.read().await, ["second"]);
    }
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_wakes_again() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let witness = Witness::new();
        let relay = witness.start(stage.store.clone(), 1);
        let producer = stage.session().await;
        for _ in 0..3 {
            asleep(&stage).await;
            stage.run(
                "select pg_terminate_backend(pid) from pg_stat_activity
                 where datname = current_database() and application_name = 'postrider/sentry'",
            );
            let id = emit(&producer, "a", "meanwhile").await;
            witness.until_seen(&[id]).await;
            asleep(&stage).await;
            let id = emit(&producer, "a", "afterwards").await;
            witness.until_seen(&[id]).await;
        }
        relay.abort();
    }
}

#[tokio::test]
async fn a_sentry_that_is_silent_is_sent_away_by_the_server() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let store = PostgresStore::open(options(&stage.db).rest_max(Duration::from_secs(1))).await.unwrap();
        let watch = store.watch().await.unwrap();
        asleep(&stage).await;
        until(&stage, SENTRIES, 0).await;
        watch.await;
    }
}

#[tokio::test]
async fn all_processes_are_woken_and_the_watch_passes_on() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let (first, second) = (Witness::new(), Witness::new());
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let leaves = tokio::spawn(
            first
                .relay_of(open(&stage.db).await, 1, NewSubscription::new("first"))
                .run(async move { stopped.notified().await }),
        );
        let stays = tokio::spawn(
            second
                .relay_of(open(&stage.db).await, 2, NewSubscription::new("second"))
                .run(std::future::pending()),
        );
        let producer = stage.session().await;
        for _ in 0..5 {
            until(&stage, LISTENERS, 2).await;
            asleep(&stage).await;
            let id = emit(&producer, "a", "for both").await;
            first.until_seen(&[id]).await;
            second.until_seen(&[id]).await;
        }
        asleep(&stage).await;
        stop.notify_one();
        leaves.await.unwrap().unwrap();
        asleep(&stage).await;
        let id = emit(&producer, "a", "for one").await;
        second.until_seen(&[id]).await;
        stays.abort();
    }
}

#[tokio::test]
async fn what_people_change_wakes_relays_of_other_processes() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let witness = Witness::new();
        let relay = witness.start(stage.store.clone(), 1);
        let producer = stage.session().await;
        let id = emit(&producer, "a", "twice").await;
        witness.until_seen(&[id]).await;
        asleep(&stage).await;
        open(&stage.db).await.subscription_seek("orders", Start::Oldest, "ada").await.unwrap();
        witness.until_seen_times(id, 2).await;
        relay.abort();
    }
}

#[tokio::test]
async fn a_role_that_may_only_emit_wakes_relays_that_may_only_deliver() {
    for version in Version::ALL {
        let stage = stage(version).await;
        let roles = Roles::new("postrider", &stage.db.name).unwrap();
        stage.store.roles_create(&roles).await.unwrap();
        let login = |kind: RoleKind| {
            let role = roles.name(kind);
            stage.run(&format!("create role {role}_login login in role {role}"));
            stage.db.url.replace("postgres@", &format!("{role}_login@"))
        };
        let relay_options = PostgresOptions::from_url(&login(RoleKind::Relay)).unwrap().rest_max(HOUR);
        let witness = Witness::new();
        let relay = witness.start(PostgresStore::open(relay_options).await.unwrap(), 1);
        let producer = connect(&login(RoleKind::Producer)).await;
        for way in [
            "insert into postrider.event (topic, type) values ('t', 't') returning id",
            "select postrider.emit('t', 't')",
        ] {
            asleep(&stage).await;
            let id: i64 = producer.query_one(way, &[]).await.unwrap().get(0);
            witness.until_seen(&[id]).await;
        }
        relay.abort();
    }
}

#[tokio::test]
async fn producers_that_prepare_transactions_are_refused_a_wake() {
    let stage = Stage::on(Version::V15).await;
    let error = stage.store.wake_set(Wake::Notify, TwoPhase::Refuse, "ada").await.unwrap_err();
    assert!(error.to_string().contains("max_prepared_transactions = 20"), "{error}");
    assert_eq!(stage.store.stats().await.unwrap().wake, Wake::Poll);
    // What would happen otherwise.
    stage.store.wake_set(Wake::Notify, TwoPhase::Unused, "ada").await.unwrap();
    let producer = stage.session().await;
    let prepare = "begin; select postrider.emit('t', 't'); prepare transaction 'one'";
    run(&producer, prepare).await;
    assert!(stage.store.watch().await.is_none(), "what is prepared is under way");
    run(&producer, "rollback prepared 'one'").await;
    assert!(stage.store.watch().await.is_some());
    assert!(producer.batch_execute(prepare).await.is_err(), "a transaction that notifies cannot be prepared");
}

#[tokio::test]
async fn a_server_without_prepared_transactions_needs_no_word_about_them() {
    let server = Server::start(Version::V15, Settings::fast().set("max_prepared_transactions", "0"));
    let store = PostgresStore::open(patient(&server.create_database())).await.unwrap();
    store.wake_set(Wake::Notify, TwoPhase::Refuse, "ada").await.unwrap();
    assert!(store.watch().await.is_some());
}

#[tokio::test]
async fn the_choice_can_be_made_again_and_is_written_down() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        for wake in [Wake::Notify, Wake::Notify, Wake::Poll, Wake::Poll, Wake::Notify] {
            stage.store.wake_set(wake, TwoPhase::Unused, "ada").await.unwrap();
            assert_eq!(stage.store.stats().await.unwrap().wake, wake);
        }
        let audit =
            "select string_agg(concat_ws(' ', actor, action, detail), ', ' order by id) from postrider.audit";
        assert_eq!(stage.text(audit), "ada store wake notify, ada store wake poll, ada store wake notify");
        stage.run("alter table postrider.event disable trigger wake");
        assert_eq!(stage.store.stats().await.unwrap().wake, Wake::Poll);
        stage.store.wake_set(Wake::Notify, TwoPhase::Unused, "ada").await.unwrap();
        assert_eq!(stage.store.stats().await.unwrap().wake, Wake::Notify);
    }
}

#[tokio::test]
async fn the_choice_does_not_wait_for_a_producer_that_takes_its_time() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let producer = stage.session().await;
        for wake in [Wake::Notify, Wake::Poll] {
            run(&producer, "begin").await;
            emit(&producer, "a", "slow").await;
            let error = stage.store.wake_set(wake, TwoPhase::Unused, "ada").await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            run(&producer, "commit").await;
            stage.store.wake_set(wake, TwoPhase::Unused, "ada").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_full_queue_of_notifications_fails_no_producer() {
    // Older releases have room for 8 GB.
    let server = Server::start(Version::V18, Settings::fast().set("max_notify_queue_pages", "64"));
    let stage = in_database(server.create_database()).await;
    let sleeper = stage.session().await;
    // A session that listens and stays in a transaction keeps the queue from being emptied.
    run(&sleeper, "listen other").await;
    run(&sleeper, "begin; select").await;
    let noisy = stage.session().await;
    let fill = "select pg_notify('other', repeat(md5(g::text), 240)) from generate_series(1, 10) g";
    for _ in 0..10 {
        // The last one finds no room.
        let _ = noisy.batch_execute(fill).await;
    }
    assert!(noisy.batch_execute(fill).await.is_err(), "a full queue fails whoever notifies");
    // A session that sleeps, like a relay that fell asleep before.
    let sentry = stage.session().await;
    run(&sentry, "select pg_advisory_lock('postrider.event'::regclass::oid::integer, 0)").await;
    let mut owner = stage.owner("a").await;
    emit(&noisy, "a", "one").await;
    assert_eq!(owner.read().await, ["one"]);
}
