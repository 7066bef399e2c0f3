//! A receiver with a database of its own handles each event once.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use postrider_postgres::inbox;
use postrider_postgres::tokio_postgres::{Client, NoTls};
use postrider_testkit::postgres::{Database, Version, shared};

async fn connect(db: &Database) -> Client {
    let (client, connection) = postrider_postgres::tokio_postgres::connect(&db.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn take(db: &mut Client, receiver: &str, dedup_id: &str, commits: bool) -> bool {
    let tx = db.transaction().await.unwrap();
    let taken = inbox::take(&tx, receiver, dedup_id).await.unwrap();
    if commits {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }
    taken
}

#[tokio::test]
async fn an_event_is_taken_once_by_each_receiver_if_its_transaction_commits() {
    for version in [Version::V15, Version::V18] {
        let database = shared(version).create_database();
        let mut db = connect(&database).await;
        inbox::create(&db).await.unwrap();
        inbox::create(&db).await.unwrap();
        assert!(take(&mut db, "billing", "s-1-1", false).await);
        assert!(take(&mut db, "billing", "s-1-1", true).await, "what was rolled back was not handled");
        assert!(!take(&mut db, "billing", "s-1-1", true).await);
        assert!(take(&mut db, "billing", "s-2-1", true).await);
        assert!(take(&mut db, "mail", "s-1-1", true).await);
    }
}

#[tokio::test]
async fn two_who_take_the_same_event_wait_for_each_other_and_one_has_it() {
    let database = shared(Version::V15).create_database();
    let (mut one, mut two) = (connect(&database).await, connect(&database).await);
    inbox::create(&one).await.unwrap();
    for (id, first_commits) in [("s-1-1", true), ("s-2-1", false)] {
        let first = one.transaction().await.unwrap();
        assert!(inbox::take(&first, "billing", id).await.unwrap());
        let second = two.transaction().await.unwrap();
        let waits = inbox::take(&second, "billing", id);
        let ends = async {
            if first_commits { first.commit().await.unwrap() } else { first.rollback().await.unwrap() }
        };
        let (taken, ()) = tokio::join!(waits, ends);
        assert_eq!(taken.unwrap(), !first_commits);
        second.commit().await.unwrap();
    }
}

#[tokio::test]
async fn what_is_old_is_forgotten_some_at_a_time_and_nothing_else() {
    let database = shared(Version::V15).create_database();
    let mut db = connect(&database).await;
    inbox::create(&db).await.unwrap();
    for id in 0..5 {
        assert!(take(&mut db, "billing", &format!("s-{id}-1"), true).await);
    }
    let old = "update postrider_inbox set taken_at = taken_at - interval '100 s' where dedup_id < 's-3'";
    assert_eq!(db.execute(old, &[]).await.unwrap(), 3);
    let prune =
        async |seconds, rows_max| inbox::prune(&db, Duration::from_secs(seconds), rows_max).await.unwrap();
    assert_eq!((prune(1000, 10).await, prune(50, 2).await, prune(50, 2).await), (0, 2, 1));
    assert_eq!(prune(u64::MAX, 10).await, 0);
    assert!(!take(&mut db, "billing", "s-4-1", true).await);
    assert!(take(&mut db, "billing", "s-0-1", true).await);
}
