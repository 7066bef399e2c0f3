//! A receiver with a database of its own handles each event once.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use postrider_sqlite::inbox;
use postrider_sqlite::rusqlite::Connection;

fn take(db: &mut Connection, receiver: &str, dedup_id: &str, commits: bool) -> bool {
    let tx = db.transaction().unwrap();
    let taken = inbox::take(&tx, receiver, dedup_id).unwrap();
    if commits {
        tx.commit().unwrap();
    }
    taken
}

#[test]
fn an_event_is_taken_once_by_each_receiver_if_its_transaction_commits() {
    let mut db = Connection::open_in_memory().unwrap();
    inbox::create(&db).unwrap();
    inbox::create(&db).unwrap();
    assert!(take(&mut db, "billing", "s-1-1", false));
    assert!(take(&mut db, "billing", "s-1-1", true), "what was rolled back was not handled");
    assert!(!take(&mut db, "billing", "s-1-1", true));
    assert!(take(&mut db, "billing", "s-2-1", true));
    assert!(take(&mut db, "mail", "s-1-1", true));
}

#[test]
fn what_is_old_is_forgotten_some_at_a_time_and_nothing_else() {
    let mut db = Connection::open_in_memory().unwrap();
    inbox::create(&db).unwrap();
    for id in 0..5 {
        assert!(take(&mut db, "billing", &format!("s-{id}-1"), true));
    }
    let old = "update postrider_inbox set taken_at = taken_at - 100 where dedup_id < 's-3'";
    assert_eq!(db.execute(old, ()).unwrap(), 3);
    assert_eq!(inbox::prune(&db, Duration::from_secs(1000), 10).unwrap(), 0);
    assert_eq!(inbox::prune(&db, Duration::from_secs(50), 2).unwrap(), 2);
    assert_eq!(inbox::prune(&db, Duration::from_secs(50), 2).unwrap(), 1);
    assert!(!take(&mut db, "billing", "s-4-1", true));
    assert!(take(&mut db, "billing", "s-0-1", true));
    assert_eq!(inbox::prune(&db, Duration::MAX, 10).unwrap(), 0);
}
