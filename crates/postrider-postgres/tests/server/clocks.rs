//! Leases and due times go by the database's clock alone.

use std::fs;
use std::path::Path;

use postrider_core::LogStore;
use postrider_core::ShardSet;
use postrider_core::settle::Settle;
use postrider_testkit::postgres::Version;

use crate::stage::{AMPLE, Owner, Stage, open};

/// A database whose clock differs from this process's by decades, and moves when told to.
const TURNED: &str = "
    create table hands as select timestamptz '1999-12-31 23:59:00+00' as at;
    create or replace function postrider.clock() returns timestamptz language sql volatile
    return (select at from public.hands)";

async fn due(owner: &Owner) -> usize {
    let due = owner.store.fetch_due(&owner.hold, std::collections::HashSet::new(), AMPLE).await.unwrap();
    due.runs.len()
}

#[tokio::test]
async fn a_process_with_a_wrong_clock_changes_nothing() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(TURNED);
        let mut owner = stage.owner("orders").await;
        stage.run("select postrider.emit('order', 'order', 'k', due_in => '1 minute')");
        let chunk = owner.step(AMPLE).await.unwrap();
        let event = chunk.events.first().unwrap();
        assert!(event.due_at.is_some() && event.created_at.to_string().starts_with("1999-12-31"));
        let row = postrider_core::settle::Row {
            event_id: event.id,
            shard: postrider_core::Shard::of(event.key.as_ref(), event.id, postrider_postgres::SHARDS),
            lane: event.key.clone().map(|key| postrider_core::settle::Lane { key, late: true }),
            turn: event.due_at.unwrap().as_micros(),
            parks: false,
            state: postrider_core::DeliveryState::Pending,
            attempts: 0,
            due: postrider_core::settle::RowDue::At(event.due_at.unwrap()),
        };
        let settle = Settle { mark: Some(owner.at), rows: vec![row], ..Settle::default() };
        owner.store.settle(&owner.hold, settle.into()).await.unwrap();
        assert_eq!(due(&owner).await, 0, "by this process's clock it was due long ago");
        let other = open(&stage.db).await;
        let member = other.member_join("bob").await.unwrap();
        assert!(
            other.shards_take("orders", member, ShardSet::ALL).await.unwrap().is_none(),
            "the lease has not run out"
        );
        stage.run("update hands set at = at + interval '61 seconds'");
        assert_eq!(due(&owner).await, 1, "{version:?}");
        let member = other.member_join("bob").await.unwrap();
        assert!(other.shards_take("orders", member, ShardSet::ALL).await.unwrap().is_some(), "{version:?}");
        assert!(owner.settle().await.unwrap_err().is_fenced());
    }
}

/// Instants of this process never reach a statement, because the sources have no way to make one.
#[test]
fn no_source_reads_a_clock_of_the_process() {
    let mut read = 0;
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for clock in ["SystemTime", "Utc::now", "Timestamp::now", "Zoned::now"] {
            assert!(!text.contains(clock), "{} reads a clock: {clock}", path.display());
        }
        read += 1;
    }
    assert!(read > 20, "{read} sources");
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("sql")];
    let mut statements = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            // Those folders hold scripts, which may call it.
            let rooms = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            left.extend(rooms.filter(|path| !path.ends_with("migrations") && !path.ends_with("scripts")));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("now()"), "{}: that is when the transaction began", path.display());
        statements += 1;
    }
    assert!(statements > 200, "{statements} statements");
}
