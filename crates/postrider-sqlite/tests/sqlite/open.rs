//! Which files are fit for use, and what is said about those that are not.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};

use postrider_core::{ErrorKind, Event, Store};
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::{SqliteOptions, SqliteStore};

use crate::scene::Scene;

/// Opening `path` fails with `kind`, and the sentence says `words`.
async fn refuses(path: &Path, kind: ErrorKind, words: &str) {
    let error = SqliteStore::open(SqliteOptions::new(path)).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn stores_that_migrate_the_same_file_at_once_all_succeed() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = Arc::new(dir.path().join("app.db"));
        let start = Arc::new(Barrier::new(6));
        let open = || {
            let (path, start) = (Arc::clone(&path), Arc::clone(&start));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                start.wait();
                runtime.block_on(async { SqliteStore::open(SqliteOptions::new(&*path)).await.unwrap().id() })
            })
        };
        let threads: Vec<_> = (0..6).map(|_| open()).collect();
        let ids: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 16), "{ids:?}");
    }
}

#[tokio::test]
async fn the_file_is_in_wal_mode_and_the_applications_part_of_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let app = Connection::open(&path).unwrap();
    app.execute_batch("pragma user_version = 77; create table invoice (id); insert into invoice values (1)")
        .unwrap();
    let store = SqliteStore::open(SqliteOptions::new(&path)).await.unwrap();
    let ask = |sql: &str| app.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(ask("select cast(count(*) as text) from invoice"), "1");
    assert_eq!(ask("pragma journal_mode"), "wal");
    assert_eq!(app.query_row("pragma user_version", [], |row| row.get::<_, i64>(0)).unwrap(), 77);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_the_file_stays_as_it_is() {
    let scene = Scene::new().await;
    let conn = scene.raw();
    conn.execute("update postrider_meta set value = '2' where name = 'schema_version'", []).unwrap();
    let path = scene.path();
    let Scene { store, dir, .. } = scene;
    store.close().await;
    // One that was only expanded suits this version too.
    SqliteStore::open(SqliteOptions::new(&path)).await.unwrap().close().await;
    conn.execute("update postrider_meta set value = '2' where name = 'oldest_version'", []).unwrap();
    drop(conn);
    let before = fs::read(&path).unwrap();
    refuses(&path, ErrorKind::Incompatible, "schema version 2").await;
    assert!(fs::read(&path).unwrap() == before, "the file was changed");
    drop(dir);
}

#[tokio::test]
async fn a_text_file_a_directory_and_a_missing_directory_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    fs::write(&text, "dear diary, ".repeat(1000)).unwrap();
    refuses(&text, ErrorKind::Corrupt, "is not an SQLite database").await;
    assert_eq!(fs::read_to_string(&text).unwrap(), "dear diary, ".repeat(1000));
    refuses(dir.path(), ErrorKind::Invalid, "is a directory").await;
    refuses(&dir.path().join("a/b/app.db"), ErrorKind::NotFound, "does not exist: create it").await;
    refuses(Path::new(":memory:"), ErrorKind::Invalid, "needs a file").await;
    let absent = SqliteOptions::new(dir.path().join("absent.db")).create(false);
    let error = SqliteStore::open(absent).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!dir.path().join("absent.db").exists());
}

#[tokio::test]
async fn a_damaged_file_is_refused_before_it_loses_anything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(&postrider_sqlite::schema_sql()).unwrap();
    conn.execute_batch("begin immediate").unwrap();
    for n in 0..500 {
        postrider_core::emit(&conn, Event::new("order").key(n).payload(vec![7; 500])).unwrap();
    }
    conn.execute_batch("commit").unwrap();
    drop(conn);
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(20 * 4096)).unwrap();
    file.write_all(&vec![0xa5; 20 * 4096]).unwrap();
    drop(file);
    refuses(&path, ErrorKind::Corrupt, "restore it from a backup").await;
}

/// The superuser may write anything, so this test runs itself again as another user.
#[tokio::test]
async fn a_file_that_may_not_be_written_is_refused_with_the_remedy() {
    const FILE: &str = "POSTRIDER_TEST_READ_ONLY_FILE";
    if let Some(path) = std::env::var_os(FILE) {
        return refuses(Path::new(&path), ErrorKind::ReadOnly, "give it that right").await;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    Connection::open(&path).unwrap().execute_batch(&postrider_sqlite::schema_sql()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::metadata(&path).unwrap().uid() != 0 {
        return refuses(&path, ErrorKind::ReadOnly, "give it that right").await;
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "open::a_file_that_may_not_be_written_is_refused_with_the_remedy"])
        .env(FILE, &path)
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
}

#[tokio::test]
async fn a_store_keeps_its_identity_and_says_what_it_is() {
    let scene = Scene::new().await;
    let id = scene.store.id();
    let again = SqliteStore::open(SqliteOptions::new(scene.path())).await.unwrap();
    assert_eq!(again.id(), id);
    scene.emit(&["a", "b"]).await;
    scene.subscribe("mail").await;
    let report = scene.store.stats().await.unwrap();
    assert_eq!((report.store_id, report.schema_version, report.events), (id, 1, 2));
    assert!(report.location.contains("app.db (SQLite 3.") && report.bytes > 0);
    assert_eq!(report.subscriptions[0].lag_events, 2);
}

#[tokio::test]
async fn a_closed_store_is_one_complete_file() {
    let scene = Scene::new().await;
    let clone = scene.store.clone();
    let ids = scene.emit(&["a", "b"]).await;
    let Scene { store, dir, .. } = scene;
    store.close().await;
    assert!(clone.event_get(ids[0]).await.unwrap().is_some(), "a clone keeps it open");
    clone.close().await;
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::copy(dir.path().join("app.db"), dir.path().join("copy.db")).unwrap();
    let copy = SqliteStore::open(SqliteOptions::new(dir.path().join("copy.db"))).await.unwrap();
    assert!(copy.event_get(ids[1]).await.unwrap().is_some());
}

#[tokio::test]
async fn a_file_that_is_made_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).await.unwrap();
    store.event_emit(vec![Event::new("order")]).await.unwrap();
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        let mode = std::fs::metadata(&name).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", name.display());
    }
    let shared = dir.path().join("shared.db");
    std::fs::write(&shared, "").unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o660)).unwrap();
    SqliteStore::open(SqliteOptions::new(&shared)).await.unwrap();
    assert_eq!(
        std::fs::metadata(&shared).unwrap().permissions().mode() & 0o777,
        0o660,
        "as its owner wanted it"
    );
}
