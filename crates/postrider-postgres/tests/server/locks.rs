//! Who waits for whom.

use std::sync::Arc;

use postrider_core::settle::Settle;
use postrider_core::store::DeadLetterQuery;
use postrider_core::{ErrorKind, LogStore, Result, ShardSet, Start, Store};
use postrider_testkit::postgres::Version;

use crate::stage::{Owner, Stage, emit, open};

const CALLS: [&str; 7] = ["settle", "take", "seek", "replay", "pause", "resume", "release"];

async fn call(owner: &Owner, what: &str) -> Result<()> {
    let store = &owner.store;
    match what {
        "settle" => {
            let settle = Settle { mark: Some(owner.at), ..Settle::default() };
            store.settle(&owner.hold, Arc::new(settle)).await.map(drop)
        }
        "take" => store.shards_take("orders", owner.hold.member, ShardSet::ALL).await.map(drop),
        "seek" => store.subscription_seek("orders", Start::Now, "ann").await.map(drop),
        "replay" => {
            let which =
                DeadLetterQuery { subscription: Some("orders".to_owned()), ..DeadLetterQuery::default() };
            store.dead_letter_replay(which, "ann").await.map(drop)
        }
        "pause" => store.subscription_pause("orders").await.map(drop),
        "resume" => store.subscription_resume("orders").await.map(drop),
        _ => store.shards_release(&owner.hold).await,
    }
}

#[tokio::test]
async fn no_two_calls_wait_for_each_other() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.owner("orders").await.leave().await;
        let p = stage.session().await;
        let other = open(&stage.db).await;
        for first in CALLS {
            for second in CALLS {
                emit(&p, "k", "x").await;
                stage.store.subscription_resume("orders").await.unwrap();
                let mut owner = Owner::of(&stage.store, "orders").await;
                owner.read().await;
                let member = other.member_join("bob").await.unwrap();
                let mut beside = Owner { store: other.clone(), hold: owner.hold.clone(), at: owner.at };
                beside.hold.member = member;
                let pair = tokio::join!(call(&owner, first), call(&beside, second));
                for ended in [pair.0, pair.1] {
                    let told = ended.map_err(|error| (error.kind(), error.to_string()));
                    assert!(
                        matches!(told, Ok(()) | Err((ErrorKind::Fenced, _))),
                        "{first} beside {second} on {version:?}: {told:?}"
                    );
                }
                stage.run("update postrider.shard set member_id = null");
            }
        }
        assert_eq!(
            stage.number("select deadlocks from pg_stat_database where datname = current_database()"),
            0
        );
    }
}

#[tokio::test]
async fn a_snapshot_that_is_held_makes_no_dead_rows_and_stops_nobody() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let holder = stage.session().await;
        crate::stage::run(
            &holder,
            "begin isolation level repeatable read; select count(*) from postrider.event",
        )
        .await;
        {
            let store = open(&stage.db).await;
            store.subscription_create(postrider_core::NewSubscription::new("orders")).await.unwrap();
            let mut owner = Owner::of(&store, "orders").await;
            let p = stage.session().await;
            for n in 0..200 {
                emit(&p, "k", &format!("{n}")).await;
                assert_eq!(owner.read().await, [format!("{n}")], "{version:?}");
                owner.settle().await.unwrap();
            }
        }
        // Counts of a session are there when it has ended.
        let sessions = "select count(*) from pg_stat_activity
                        where datname = current_database() and application_name = 'postrider/writer'";
        for _ in 0..1_000 {
            if stage.number(sessions) == 0 {
                break;
            }
            // tidy: sleep because the server has no other sign than its views
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let rows = stage.db.query(
            "select sum(n_tup_upd + n_tup_del), sum(n_tup_ins) filter (where relname like 'position%')
             from pg_stat_user_tables where relname ~ '^(event|position)_[a0-9]'",
        );
        let cells: Vec<i64> = rows[0].iter().map(|cell| cell.as_ref().unwrap().parse().unwrap()).collect();
        assert_eq!(cells[0], 0, "rows of the log or of positions were changed on {version:?}");
        assert!(cells[1] >= 200, "{} positions on {version:?}", cells[1]);
    }
}
