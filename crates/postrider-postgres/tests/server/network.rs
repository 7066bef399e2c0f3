//! The network between a store and its server fails.

use std::time::Duration;

use postrider_core::LogStore;
use postrider_core::ShardSet;
use postrider_postgres::PostgresStore;
use postrider_testkit::history::Fault;
use postrider_testkit::postgres::{Version, shared};
use postrider_testkit::tcp_proxy::{Counting, Proxy, Side};

use crate::relay::{LEDGER, Witness};
use crate::stage::{Owner, Stage, emit, options};

/// What became of settles whose connection was cut.
#[derive(Debug, Default)]
struct Cuts {
    /// It failed, and is not there.
    undone: usize,
    /// It failed, but is there: its reply was lost.
    reply_lost: usize,
    /// It succeeded before the cut.
    done: usize,
}

/// Takes the shards again for the same member, as after a lost connection.
async fn again(owner: &Owner) -> Owner {
    let (store, member) = (owner.store.clone(), owner.hold.member);
    for _ in 0..100 {
        match store.shards_take("orders", member, ShardSet::ALL).await {
            Ok(taken) => {
                let taken = taken.unwrap();
                return Owner { store, hold: taken.hold, at: taken.start };
            }
            // The first one to use a connection may be the one who learns that it was cut.
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    panic!("no connection lasts for a take");
}

#[tokio::test]
async fn a_settle_that_is_cut_at_any_byte_has_happened_or_has_not() {
    for version in Version::ALL {
        let direct = Stage::in_database(shared(version).create_database()).await;
        let proxy = Proxy::start(direct.db.address());
        let far = options(&direct.db.through(proxy.address())).lease(Duration::from_secs(600));
        let stage = Stage { store: PostgresStore::open(far).await.unwrap(), db: direct.db.clone() };
        let p = direct.session().await;
        let mut owner = stage.owner("orders").await;
        for side in [Side::Client, Side::Server] {
            let mut cuts = Cuts::default();
            // At every byte on one version; on the other at every third, which is enough to meet each message.
            let stride = if version == Version::V15 { 1 } else { 3 };
            for bytes in (0..).step_by(stride) {
                // Once without trouble, so that statements are prepared.
                emit(&p, "k", "before").await;
                assert_eq!(owner.read().await, ["before"]);
                owner.settle().await.unwrap();
                let note = format!("{side:?} {bytes}");
                emit(&p, "k", &note).await;
                assert_eq!(owner.read().await, std::slice::from_ref(&note));
                proxy.cut_after(side, bytes, Counting::FromNow);
                let settled = owner.settle().await;
                if proxy.cuts() == 0 && settled.is_ok() {
                    proxy.heal();
                    break;
                }
                proxy.heal();
                owner = again(&owner).await;
                let rest = owner.read().await;
                match (settled, rest.is_empty()) {
                    (Ok(()), true) => cuts.done += 1,
                    (Ok(()), false) => panic!("{note} was settled, and came again: {rest:?}"),
                    (Err(error), false) => {
                        assert_eq!(rest, [note], "{error}");
                        cuts.undone += 1;
                    }
                    (Err(_), true) => cuts.reply_lost += 1,
                }
                owner.settle().await.unwrap();
            }
            assert!(cuts.undone * stride > 50, "{side:?} on {version:?}: {cuts:?}");
            if side == Side::Server {
                assert!(cuts.reply_lost > 0, "on {version:?}: {cuts:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_peer_that_has_vanished_is_given_up_and_work_goes_on_after_it_is_back() {
    for version in Version::ALL {
        let stage = Stage::in_database(shared(version).create_database()).await;
        stage.run(LEDGER);
        let proxy = Proxy::start(stage.db.address());
        let far = options(&stage.db.through(proxy.address())).call_timeout(Duration::from_millis(500));
        let witness = Witness::new();
        let first = witness.start(PostgresStore::open(far).await.unwrap(), 1);
        let emit = |key: &str| stage.number(&format!("select numbered('{key}')"));
        let before = emit("k");
        witness.until_seen(&[before]).await;
        proxy.black_hole();
        witness.fault(Fault::TakeOver);
        // The other one has the lease when the first one's has run out.
        let during = emit("k");
        let second = witness.start(stage.store.clone(), 2);
        witness.until_seen(&[during]).await;
        second.abort();
        let _ = second.await;
        witness.fault(Fault::Crash);
        proxy.heal();
        let after = emit("k");
        witness.judge(&stage.db).await;
        assert!(witness.seen().len() >= 3 && after > during, "{version:?}");
        assert!(!first.is_finished(), "the first one lives");
        first.abort();
    }
}

/// Rows that commit while the statements for reading are being prepared are read.
#[tokio::test]
async fn what_commits_between_the_first_read_and_the_first_probe_is_delivered() {
    for version in Version::ALL {
        let direct = Stage::in_database(shared(version).create_database()).await;
        let p = direct.session().await;
        direct.owner("orders").await;
        for n in 0..3 {
            emit(&p, "k", &format!("{n}")).await;
        }
        // A position inside a window: there reading goes on before the log's end is looked at.
        let room = postrider_core::settle::Room { events: 1, bytes: 1_000_000 };
        let mut owner = Owner::of(&direct.store, "orders").await;
        owner.step(room).await.unwrap();
        owner.leave().await;
        let proxy = Proxy::start(direct.db.address());
        let far = options(&direct.db.through(proxy.address()));
        let mut owner = Owner::of(&PostgresStore::open(far).await.unwrap(), "orders").await;
        let mut notes = Vec::new();
        let chunk = owner.step(crate::stage::AMPLE).await.unwrap();
        notes.extend(chunk.events.iter().map(|event| crate::stage::note(&event.payload)));
        assert_eq!(notes, ["1", "2"]);
        // The next call prepares what it has not yet used; it is held up at that.
        let lock = direct.session().await;
        crate::stage::run(&lock, "begin; lock table postrider.subscription in access exclusive mode").await;
        let reading = tokio::spawn(async move {
            let first = owner.read().await;
            (first, owner)
        });
        let waits = "select count(*) from pg_locks join pg_stat_activity using (pid)
                     where not granted and application_name = 'postrider/reader'";
        until(|| direct.number(waits) == 1).await;
        proxy.black_hole();
        crate::stage::run(&lock, "commit").await;
        let busy = "select count(*) from pg_stat_activity
                    where datname = current_database() and application_name = 'postrider/reader' and state <> 'idle'";
        until(|| direct.number(busy) == 0).await;
        emit(&p, "k", "between").await;
        proxy.heal();
        let (mut notes, mut owner) = reading.await.unwrap();
        notes.extend(owner.read().await);
        assert_eq!(notes, ["between"], "{version:?}");
    }
}

/// A read full of rows that belong to a later window says nothing about what lies behind them.
#[tokio::test]
async fn a_large_commit_while_a_read_waits_hides_nothing_behind_it() {
    for version in Version::ALL {
        let stage = Stage::in_database(shared(version).create_database()).await;
        let mut owner = stage.owner("orders").await;
        // Everything is prepared by now, so that the probe is not held up by what holds up the read.
        assert!(owner.read().await.is_empty());
        let (bulk, p) = (stage.session().await, stage.session().await);
        let many = "begin; insert into postrider.event (topic, type, key, payload_bytes)
                    select 'order', 'order', 'bulk', 'bulk' from generate_series(1, 10000)";
        crate::stage::run(&bulk, many).await;
        emit(&p, "small", "small").await;
        crate::stage::run(&bulk, "lock table postrider.event_0 in access exclusive mode").await;
        let reading = tokio::spawn(async move {
            let first = owner.read().await;
            (first, owner)
        });
        let waits = "select count(*) from pg_locks join pg_stat_activity using (pid)
                     where not granted and application_name = 'postrider/reader'
                         and datname = current_database()";
        until(|| stage.number(waits) == 1).await;
        crate::stage::run(&bulk, "commit").await;
        let (mut notes, mut owner) = reading.await.unwrap();
        notes.extend(owner.read().await);
        let count = |wanted: &str| notes.iter().filter(|note| *note == wanted).count();
        assert_eq!((count("small"), count("bulk")), (1, 10_000), "{version:?}");
    }
}

/// Waits for something that only the server knows.
async fn until(reached: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if reached() {
            return;
        }
        // tidy: sleep because the server has no other sign than its views
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never comes to that");
}
