//! Rows that no emit would write: 500 of them from a seed, by plain SQL, into a log with its checks and into
//! one without. Each is refused at the insert, or becomes a dead letter with a reason, or is harmless and
//! arrives. Neighbours arrive in order, in both modes, and neither relay nor CLI grows or ends.

mod corpus;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use postrider_postgres::tokio_postgres::{Client, NoTls, connect};
use postrider_sqlite::rusqlite::Connection;
use postrider_testkit::postgres::{Version, shared};
use rustix::process::Signal;
use serde_json::Value;

use self::corpus::{Blob, Row, Time, corpus};
use crate::harness::{Place, Running, until};
use crate::receivers::RUNTIME;

const SEED: u64 = 0x5eed_0001;
const ROWS: usize = 500;
/// Keys of neighbours.
const KEYS: usize = 7;
/// What a process may take.
const RSS_KIB_MAX: u64 = 128 * 1024;

const CONFIG: &str = "
[sinks.log]
type = 'file'
path = 'log.jsonl'
[subscriptions.log]
sink = 'log'
[sinks.queue]
type = 'file'
path = 'queue.jsonl'
[subscriptions.queue]
sink = 'queue'
mode = 'queue'
";

/// What became of the inserts.
#[derive(Default)]
struct Written {
    /// The id of each neighbour, with its key.
    neighbours: BTreeMap<i64, String>,
    /// Those of hostile rows that were not refused, with what they are about.
    hostile: BTreeMap<i64, &'static str>,
    refused: usize,
}

#[test]
fn hostile_rows_stop_nothing_on_sqlite() {
    for checked in [true, false] {
        let place = Place::new();
        place.ok(&["store", "migrate"]);
        let app = Connection::open(place.database()).unwrap();
        app.pragma_update(None, "ignore_check_constraints", !checked).unwrap();
        let mut written = Written::default();
        for (n, row) in corpus(SEED, ROWS).into_iter().enumerate() {
            let key = format!("n{}", n % KEYS);
            app.execute(
                "insert into postrider_event (topic, type, key, payload) values ('order', 'n', ?1, ?2)",
                (&key, n as i64),
            )
            .unwrap();
            written.neighbours.insert(app.last_insert_rowid(), key);
            match insert_sqlite(&app, &row) {
                Ok(id) => drop(written.hostile.insert(id, row.about)),
                Err(_) => written.refused += 1,
            }
        }
        assert_eq!(written.refused > 0, checked, "checks are what refuses");
        survives(&place, "sqlite://p.db", &written);
    }
}

fn insert_sqlite(app: &Connection, row: &Row) -> Result<i64, postrider_sqlite::rusqlite::Error> {
    let times = [&row.created_at, &row.due_at].map(|time| match time {
        Time::None => None,
        Time::Never => Some(i64::MAX),
        Time::Ancient => Some(i64::MIN),
    });
    // The default of created_at counts only if the column is left out.
    let (columns, values) = match times[0] {
        Some(_) => ("created_at, ", "?7, "),
        None => ("", ""),
    };
    let insert = format!(
        "insert into postrider_event ({columns}topic, type, key, headers, payload, due_at)
         values ({values}?1, ?2, ?3, ?4, ?5, ?6)"
    );
    let mut statement = app.prepare(&insert)?;
    statement.raw_bind_parameter(1, &row.topic)?;
    statement.raw_bind_parameter(2, &row.kind)?;
    statement.raw_bind_parameter(3, row.key.as_ref())?;
    statement.raw_bind_parameter(4, row.headers.as_ref())?;
    match &row.payload {
        Blob::Text(text) => statement.raw_bind_parameter(5, text)?,
        Blob::Bytes(bytes) => statement.raw_bind_parameter(5, bytes)?,
    }
    statement.raw_bind_parameter(6, times[1])?;
    if times[0].is_some() {
        statement.raw_bind_parameter(7, times[0])?;
    }
    statement.raw_execute()?;
    drop(statement);
    Ok(app.last_insert_rowid())
}

#[test]
fn hostile_rows_by_a_producer_stop_nothing_on_postgresql() {
    let db = shared(Version::V18).create_database();
    let place = Place::new();
    place.ok(&["store", "migrate", "--store", &db.url]);
    place.ok(&["store", "roles", "--prefix", &db.name, "--store", &db.url]);
    db.query(&format!("create role {0}_app login in role {0}_producer", db.name));
    let producer = db.url.replace("postgres@", &format!("{}_app@", db.name));
    let written = RUNTIME.block_on(write_postgres(&producer));
    assert!(written.refused > 0, "checks refuse what breaks a limit");
    survives(&place, &db.url, &written);
}

/// The types of the columns bound topic, type and key for everybody; nothing bounds headers and payloads.
#[test]
fn hostile_rows_by_the_owner_stop_nothing_on_postgresql() {
    let db = shared(Version::V15).create_database();
    let place = Place::new();
    place.ok(&["store", "migrate", "--store", &db.url]);
    let written = RUNTIME.block_on(write_postgres(&db.url));
    survives(&place, &db.url, &written);
}

async fn write_postgres(url: &str) -> Written {
    let (app, connection) = connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut written = Written::default();
    for (n, row) in corpus(SEED, ROWS).into_iter().enumerate() {
        let key = format!("n{}", n % KEYS);
        let neighbour = Row { key: Some(key.clone()), payload: Blob::Text(n.to_string()), ..Row::plain() };
        let id = insert_postgres(&app, &neighbour).await.expect("a neighbour is not refused");
        written.neighbours.insert(id, key);
        match insert_postgres(&app, &row).await {
            Some(id) => drop(written.hostile.insert(id, row.about)),
            None => written.refused += 1,
        }
    }
    drop(app);
    connection.await.unwrap().unwrap();
    written
}

/// None if it was refused, by a check or because the server knows no such value.
async fn insert_postgres(app: &Client, row: &Row) -> Option<i64> {
    let time = |time: &Time| match time {
        Time::None => None,
        Time::Never => Some("infinity"),
        Time::Ancient => Some("-infinity"),
    };
    let created = time(&row.created_at).map_or("", |_| "created_at, ");
    let created_at = time(&row.created_at).map_or(String::new(), |at| format!("'{at}', "));
    let insert = format!(
        "insert into postrider.event ({created}topic, type, key, headers, payload, payload_bytes, due_at)
         values ({created_at}$1, $2, $3, $4::text::json, $5::text::json, $6, $7::text::timestamptz) returning id"
    );
    let (json, bytes) = match &row.payload {
        Blob::Text(text) => (Some(text), None),
        Blob::Bytes(bytes) => (None, Some(bytes)),
    };
    let values: [&(dyn postrider_postgres::tokio_postgres::types::ToSql + Sync); 7] =
        [&row.topic, &row.kind, &row.key, &row.headers, &json, &bytes, &time(&row.due_at)];
    app.query_one(&insert, &values).await.ok().map(|row| row.get(0))
}

/// Runs a relay for both modes until everything has arrived or is dead, and every command that shows it.
fn survives(place: &Place, store: &str, written: &Written) {
    place.write("p.toml", CONFIG);
    let mut command = place.command(&["relay", "--config", "p.toml"]);
    command.env("POSTRIDER_STORE", store);
    let mut relay = Running::start(command, "ready: every store has taken a beat");
    for subscription in ["log", "queue"] {
        let all = written.neighbours.len() + written.hostile.len();
        let mut dead = BTreeMap::new();
        until(&format!("`{subscription}` is through, of {all}"), || {
            assert!(!relay.has_ended(), "the relay has ended: {}", relay.said());
            dead = dead_letters(place, store, subscription);
            arrived(place, subscription).len() + dead.len() >= all
        });
        let arrived = arrived(place, subscription);
        for (id, about) in &written.hostile {
            match dead.get(id) {
                Some(reason) => assert!(!reason.is_empty(), "{about}"),
                None => assert!(arrived.contains_key(id), "{about}: neither delivered nor dead"),
            }
        }
        for key in written.neighbours.values().collect::<BTreeSet<_>>() {
            let emitted: Vec<i64> =
                written.neighbours.iter().filter(|(_, own)| *own == key).map(|(id, _)| *id).collect();
            let mut came: Vec<(usize, i64)> =
                emitted.iter().map(|id| (*arrived.get(id).expect("a neighbour arrives"), *id)).collect();
            came.sort_unstable();
            assert_eq!(came.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), emitted, "{key} in order");
        }
    }
    let peak = peak_kib(relay.pid());
    assert!(peak <= RSS_KIB_MAX, "the relay took {peak} KiB");
    relay.signal(Signal::TERM);
    assert!(relay.ended().success());
    for args in [
        &["event", "list", "--limit", "1000"][..],
        &["event", "list", "--limit", "1000", "--json"],
        &["dead-letter", "list", "--limit", "1000", "--json"],
    ] {
        let peak = peak_of_command(place, store, args);
        assert!(peak <= RSS_KIB_MAX, "{args:?} took {peak} KiB");
    }
    for args in [&["stats"][..], &["subscription", "list"], &["store", "check"]] {
        let args: Vec<&str> = args.iter().copied().chain(["--store", store]).collect();
        place.ok(&args);
    }
    for (id, about) in written.hostile.iter().step_by(17) {
        for verb in ["show", "why"] {
            let ran = place.run(&["event", verb, &id.to_string(), "--store", store]);
            assert_eq!(ran.code, 0, "{about}: {ran:?}");
        }
    }
}

/// In which line of its file each event has come for the first time.
fn arrived(place: &Place, subscription: &str) -> BTreeMap<i64, usize> {
    let mut arrived = BTreeMap::new();
    let content = fs::read_to_string(place.path(&format!("{subscription}.jsonl"))).unwrap_or_default();
    // By hand, because a payload may be nested deeper than a JSON library reads.
    let ids =
        content.lines().filter_map(|line| line.strip_prefix("{\"id\":")?.split(',').next()?.parse().ok());
    for (n, id) in ids.enumerate() {
        arrived.entry(id).or_insert(n);
    }
    arrived
}

/// The dead letters of a subscription, with their reasons.
fn dead_letters(place: &Place, store: &str, subscription: &str) -> BTreeMap<i64, String> {
    let args = ["dead-letter", "list", "--subscription", subscription, "--limit", "1000", "--store", store];
    let letters = place.json(&args);
    let letter = |letter: &Value| {
        let reason = letter["history"].as_array().and_then(|history| history.last());
        let reason = reason.and_then(|attempt| attempt["error"].as_str()).unwrap_or_default();
        (letter["event"]["id"].as_i64().unwrap(), reason.to_owned())
    };
    letters.as_array().unwrap().iter().map(letter).collect()
}

/// The most that was resident, without the pages of the program itself, which is large when it was built for tests.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    kib("VmHWM:").saturating_sub(kib("RssFile:"))
}

/// The most that a command has taken by the time at which it begins to print: by then it holds all that it will.
fn peak_of_command(place: &Place, store: &str, args: &[&str]) -> u64 {
    let mut command = place.command(args);
    let mut child = command.env("POSTRIDER_STORE", store).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0];
    stdout.read_exact(&mut first).unwrap();
    let peak = peak_kib(child.id());
    stdout.read_to_end(&mut Vec::new()).unwrap();
    assert!(child.wait().unwrap().success(), "{args:?}");
    peak
}
