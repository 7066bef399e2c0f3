//! What happens when the disk does not play along.

use std::path::Path;
use std::process::Command;

use postrider_core::{ErrorKind, Event, EventId, Store};
use postrider_sqlite::{SqliteOptions, SqliteStore};

use crate::scene::Scene;

const FILE: &str = "POSTRIDER_TEST_FULL_DISK";

/// The test runs itself again in a process that may write no file beyond a few megabytes, which SQLite
/// meets as it would a full disk.
#[tokio::test]
async fn a_full_disk_is_an_error_for_the_producer_and_loses_nothing_that_was_emitted() {
    if let Some(path) = std::env::var_os(FILE) {
        return emits_until_the_disk_is_full(Path::new(&path)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let again = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg("faults::a_full_disk_is_an_error_for_the_producer_and_loses_nothing_that_was_emitted")
        .env(FILE, dir.path().join("app.db"))
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
}

async fn emits_until_the_disk_is_full(path: &Path) {
    let store = SqliteStore::open(SqliteOptions::new(path)).await.unwrap();
    let mut emitted: Vec<EventId> = Vec::new();
    let error = loop {
        match store.event_emit(vec![Event::new("order").payload(vec![7; 100_000])]).await {
            Ok(ids) => emitted.extend(ids),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(emitted.len() > 5, "{}", emitted.len());
    for id in &emitted {
        assert!(store.event_get(*id).await.unwrap().is_some());
    }
    assert_eq!(store.stats().await.unwrap().events, emitted.len() as u64);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_wal_that_is_removed_keeps_events_back_until_they_are_safe() {
    use postrider_core::LogStore;
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    scene.emit(&["a"]).await;
    let hold = scene.take("mail").await;
    std::fs::remove_file(scene.dir.path().join("app.db-wal")).unwrap();
    let start = postrider_core::Position::START;
    let error = scene.store.fetch(&hold, start, crate::scene::ROOM).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no program removes this file"), "{error}");
    // By now it has been moved into the database file from memory.
    assert_eq!(scene.store.fetch(&hold, start, crate::scene::ROOM).await.unwrap().events.len(), 1);
}
