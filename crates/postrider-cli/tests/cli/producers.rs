//! Natural JSON of every client library arrives unchanged: the programs in `tests/producers`, run as producers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_testkit::postgres::{Version, shared};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::harness::Place;

/// Every way of every library, and whether it was given texts. A library that is given values writes JSON by itself.
const PYTHON: &[&str] = &[
    "asyncpg.emit",
    "asyncpg.emit-value",
    "asyncpg.insert",
    "django.emit",
    "django.emit-value",
    "django.insert",
    "django.insert-value",
    "psycopg.emit",
    "psycopg.emit-value",
    "psycopg.insert",
    "psycopg.insert-value",
    "sqlalchemy.emit",
    "sqlalchemy.insert",
    "sqlalchemy.insert-value",
];
const NODE: &[&str] = &[
    "drizzle.emit",
    "drizzle.insert-value",
    "knex.emit",
    "knex.insert",
    "knex.insert-value",
    "node-postgres.emit",
    "node-postgres.emit-value",
    "node-postgres.insert",
    "node-postgres.insert-value",
    "typeorm.emit",
    "typeorm.insert-value",
];
const GO: &[&str] = &[
    "gorm.emit",
    "gorm.insert",
    "gorm.insert-value",
    "lib-pq.emit",
    "lib-pq.insert",
    "pgx-stdlib.emit",
    "pgx-stdlib.insert",
    "pgx.emit",
    "pgx.insert",
    "pgx.insert-value",
];
const JAVA: &[&str] = &[
    "jdbc-keys.insert",
    "jdbc-other.insert",
    "jdbc-unspecified.emit",
    "jdbc-unspecified.insert",
    "jdbc.emit",
    "jdbc.insert",
];

#[test]
fn natural_json_of_libraries_for_python_arrives_unchanged() {
    let mut program = Command::new("/usr/bin/python3");
    program.arg(folder("python").join("producers.py")).env("PYTHONPATH", folder("python").join("packages"));
    check(program, PYTHON);
}

#[test]
fn natural_json_of_libraries_for_node_arrives_unchanged() {
    let mut program = Command::new("node");
    program.arg(folder("node").join("producers.mjs"));
    check(program, NODE);
}

/// The set-up has fetched the libraries, because a test downloads nothing.
#[test]
fn natural_json_of_libraries_for_go_arrives_unchanged() {
    let mut program = Command::new("go");
    program.args(["run", "."]).current_dir(folder("go"));
    program.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    check(program, GO);
}

#[test]
fn natural_json_of_jdbc_arrives_unchanged() {
    let mut program = Command::new("java");
    program.arg("-cp").arg(folder("java").join("lib/*")).arg(folder("java").join("Producers.java"));
    program.arg(folder("cases.json"));
    check(program, JAVA);
}

#[test]
fn natural_json_of_pythons_sqlite_arrives_unchanged() {
    let place = Place::new();
    place.ok(&["store", "migrate"]);
    let mut program = Command::new("/usr/bin/python3");
    program.arg(folder("python").join("producers.py")).env("PYTHONPATH", folder("python").join("packages"));
    run(program.env("DATABASE", place.database()));
    compare(&place, "sqlite://p.db", &["sqlite3.insert"]);
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/producers").join(name)
}

/// Runs a program as a producer, then a relay, and compares what it delivers.
fn check(mut program: Command, topics: &[&str]) {
    let place = Place::new();
    let db = shared(Version::V18).create_database();
    let store = db.url.as_str();
    place.ok(&["store", "migrate", "--store", store]);
    place.ok(&["store", "roles", "--prefix", &db.name, "--store", store]);
    db.query(&format!("create role {0}_shop login in role {0}_producer", db.name));
    let url = store.replace("postgres@", &format!("{}_shop@", db.name));
    run(program.env("DATABASE_URL", format!("{url}?sslmode=disable")));
    compare(&place, store, topics);
}

fn run(program: &mut Command) {
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
    assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the relay prints of an event, with the payload as it stands there.
#[derive(Deserialize)]
struct Line<'a> {
    topic: String,
    key: &'a str,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<&'a str>,
    headers: Value,
}

/// Everything that a new subscription gets, against the cases that each topic was to emit.
fn compare(place: &Place, store: &str, topics: &[&str]) {
    let ran = place.run(&["relay", "--store", store, "--subscription", "all", "--sink", "stdout", "--once"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let cases = std::fs::read_to_string(folder("cases.json")).unwrap();
    let cases: Vec<String> = serde_json::from_str(&cases).unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in ran.stdout.lines() {
        let line: Line<'_> = serde_json::from_str(line).unwrap();
        let case = &cases[line.key.parse::<usize>().unwrap() % cases.len()];
        let told = match (line.payload, line.payload_base64) {
            (Some(json), None) => json.get().to_owned(),
            (_, base64) => String::from_utf8(STANDARD.decode(base64.unwrap()).unwrap()).unwrap(),
        };
        if line.topic.ends_with("-value") {
            let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(value(&told), value(case), "{}", line.topic);
            // A number of Rust would have rounded both.
            let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
            assert_eq!(digits(&told).max(Some(4)), digits(case).max(Some(4)), "{}", line.topic);
        } else {
            assert_eq!(told, *case, "{}", line.topic);
        }
        assert_eq!(line.headers, serde_json::json!({}), "{}", line.topic);
        *counts.entry(line.topic).or_default() += 1;
    }
    let found: Vec<&str> = counts.keys().map(String::as_str).collect();
    assert_eq!(found, topics);
    for (topic, count) in counts {
        // Numbers of JavaScript have 53 bits; keys that come back are tried once.
        let few = topic == "jdbc-keys.insert" || topic.ends_with("-value");
        assert!(few || count >= cases.len(), "{topic}: {count}");
    }
}
