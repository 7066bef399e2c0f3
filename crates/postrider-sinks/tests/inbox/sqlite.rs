//! An inbox on SQLite.

use std::path::{Path, PathBuf};

use postrider_core::{Outcome, Sink};
use postrider_sinks::SinkOptions;
use postrider_sqlite::rusqlite::Connection;
use postrider_testkit::receiver::{Received, check_sink};

use super::carrier::Carrier;
use super::{check_refusals, open, options, send_with_interruptions, unavailable};

/// A folder, and the file in it that the inbox is in.
struct File {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { path: folder.path().join("receiver.db"), _folder: folder }
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.path.display())
    }
}

fn held(path: &Path) -> Vec<String> {
    let db = Connection::open(path).unwrap();
    let mut rows = db.prepare("select dedup_id from postrider_inbox_event order by arrival").unwrap();
    rows.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn execute(path: &Path, statement: &str) -> usize {
    Connection::open(path).unwrap().execute(statement, ()).unwrap()
}

fn count(path: &Path, table: &str) -> i64 {
    let db = Connection::open(path).unwrap();
    db.query_row(&format!("select count(*) from {table}"), (), |row| row.get(0)).unwrap()
}

/// As a receiver does: takes the rows away.
fn take_all(path: &Path) -> Vec<Received> {
    let db = Connection::open(path).unwrap();
    let mut rows =
        db.prepare("select payload, headers, dedup_id from postrider_inbox_event order by arrival").unwrap();
    let received = rows.query_map((), |row| {
        let headers: std::collections::BTreeMap<String, String> =
            serde_json::from_str(&row.get::<_, String>(1)?).unwrap();
        Ok(Received { payload: row.get(0)?, headers: headers.into_iter().collect(), dedup_id: row.get(2)? })
    });
    let received = received.unwrap().map(Result::unwrap).collect();
    db.execute("delete from postrider_inbox_event", ()).unwrap();
    received
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_what_every_sink_does() {
    let file = File::new();
    let sink = open(&file.url()).await;
    check_sink(&sink, 1_000_000, async |_| take_all(&file.path)).await;
    assert_eq!(held(&file.path).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_again_is_left_out_even_if_its_row_was_taken() {
    let file = File::new();
    let mut options = options(&format!("{}?table=inbox", file.url()));
    let found = options.check().await.unwrap();
    assert_eq!(found[1], "would create the tables `inbox` and `inbox_seen`");
    assert!(found[0].starts_with("would create the file") && !file.path.exists(), "{found:?}");
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(2, 5);
    let batch = carrier.waiting.clone();
    carrier.send_all(&sink, 10).await;
    assert_eq!(execute(&file.path, "delete from inbox where arrival % 2 = 0"), 5);
    assert_eq!(sink.send(batch.clone()).await, vec![Outcome::Ack; 10]);
    assert_eq!(count(&file.path, "inbox"), 5);
    assert_eq!(options.check().await.unwrap(), ["delivers into the table `inbox`"]);
    let row = "select arrival || ' ' || id || ' ' || topic || ' ' || type || ' ' || key || ' ' || cast(payload as text) || ' '
               || headers || ' ' || created_at || ' ' || subscription || ' ' || dedup_id
               from inbox where received_at > unixepoch() * 1000000 - 3600000000 order by arrival limit 1";
    let row: String = Connection::open(&file.path).unwrap().query_row(row, (), |row| row.get(0)).unwrap();
    let expected = format!(
        "1 1 order order.created key-0 {{\"total\":1}} {{}} 1800000000000001 carry {}",
        batch[0].dedup_id()
    );
    assert_eq!(row, expected);

    // Ids are forgotten when they are old, two for each event that comes, and not before.
    execute(&file.path, "update inbox_seen set seen_at = seen_at - 20 * 86400");
    carrier.emit(None, b"1");
    carrier.send_all(&sink, 1).await;
    assert_eq!(count(&file.path, "inbox_seen"), 11);
    options.remember = postrider_core::time::parse_duration("10d").unwrap();
    carrier.emit(None, b"1");
    carrier.send_all(&options.open().await.unwrap(), 1).await;
    assert_eq!(count(&file.path, "inbox_seen"), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_writer_or_a_file_that_is_gone_costs_no_attempt() {
    let file = File::new();
    let mut options = options(&file.url());
    options.time_limit = "50ms".parse().unwrap();
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(2, 10);
    carrier.send(&sink, 5).await;
    let other = Connection::open(&file.path).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let outcomes = carrier.send(&sink, 5).await;
    unavailable(&outcomes[0], "kept the database locked");
    assert_eq!(outcomes[1], Outcome::Untried);
    other.execute_batch("commit").unwrap();
    drop(other);
    carrier.send(&sink, 5).await;
    assert_eq!(carrier.compare(&held(&file.path)), 0);
    assert_eq!(carrier.acked.len(), 10);

    // A receiver would not find rows that are written to the removed file.
    for name in ["receiver.db", "receiver.db-wal", "receiver.db-shm"] {
        let _ = std::fs::remove_file(file.path.with_file_name(name));
    }
    unavailable(&carrier.send(&sink, 5).await[0], "moved or removed");
    assert_eq!(carrier.send(&sink, 5).await, vec![Outcome::Ack; 5]);
    assert_eq!(held(&file.path).len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_refuses_is_dead_and_holds_up_its_key_alone() {
    let file = File::new();
    let sink = open(&file.url()).await;
    Carrier::with_keys(1, 1).send_all(&sink, 1).await;
    execute(&file.path, "delete from postrider_inbox_event");
    execute(
        &file.path,
        "create trigger payload_is_small before insert on postrider_inbox_event when length(new.payload) >= 100
         begin select raise(abort, 'payload is not small'); end",
    );
    check_refusals(&sink, || held(&file.path)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_is_dropped_half_way_harms_nothing() {
    let file = File::new();
    let carrier = send_with_interruptions(&open(&file.url()).await).await;
    assert_eq!(carrier.compare(&held(&file.path)), 0);
}
