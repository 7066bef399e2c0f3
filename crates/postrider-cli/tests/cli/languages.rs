//! Programs in other languages emit by plain SQL, in transactions of their own: those in `examples/`, run as their
//! readers run them.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_testkit::postgres::{Version, shared};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::harness::Place;

/// What the relay prints of an event, with the payload as it stands there.
#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    key: &'a str,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<&'a str>,
    headers: serde_json::Value,
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Debian's Python has the driver; another one that comes first on the path need not.
fn python(program: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(example("python").join(program));
    command
}

fn node() -> Command {
    let mut command = Command::new("node");
    command.arg(example("node").join("shop.mjs"));
    command
}

/// The set-up has fetched the modules, because a test downloads nothing.
fn go() -> Command {
    let mut command = Command::new("go");
    command.args(["run", "."]).current_dir(example("go"));
    command.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    command
}

/// Runs a program, which tells of the order that it has rolled back.
fn run(mut program: Command, shop: &str) {
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {stderr}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("refused {shop}-2\n"));
}

/// A shop's two events, in their order, and nothing of the order that was rolled back.
fn check(delivered: &[Line<'_>], shop: &str, payload: &str) {
    let order = format!("{shop}-1");
    let own: Vec<_> = delivered.iter().filter(|line| line.key.starts_with(&format!("{shop}-"))).collect();
    let [placed, receipt] = own[..] else { panic!("{shop}: {} events", own.len()) };
    assert_eq!((placed.r#type, placed.key), ("order.placed", order.as_str()));
    assert_eq!(placed.payload.unwrap().get(), payload);
    assert_eq!(placed.headers, json!({"shop": shop}));
    assert_eq!((receipt.r#type, receipt.key), ("order.receipt", order.as_str()));
    let bytes = STANDARD.decode(receipt.payload_base64.unwrap()).unwrap();
    assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
}

/// Everything that a new subscription gets.
fn relay(place: &Place, store: &str) -> String {
    let ran = place.run(&["relay", "--store", store, "--subscription", "all", "--sink", "stdout", "--once"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

fn lines(delivered: &str) -> Vec<Line<'_>> {
    delivered.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// As `json.dumps` writes it by default.
const PYTHON: &str = r#"{"order": "python-1", "total": 1999, "note": "f\u00fcr Zo\u00eb \u2615"}"#;
const PYTHON_SQLITE: &str = r#"{"order": "python-1", "total": 1999, "note": "für Zoë ☕"}"#;
const NODE: &str = r#"{"order":"node-1","total":1999,"note":"für Zoë ☕"}"#;
const GO: &str = r#"{"order":"go-1","total":1999,"note":"für Zoë ☕"}"#;

#[test]
fn python_node_and_go_emit_in_their_transactions_on_a_server() {
    let place = Place::new();
    let db = shared(Version::V15).create_database();
    let store = db.url.as_str();
    place.ok(&["store", "migrate", "--store", store]);
    // A program needs no more than this to emit; the rest is for its table.
    place.ok(&["store", "roles", "--prefix", &db.name, "--store", store]);
    db.query(&format!("create role {0}_shop login in role {0}_producer", db.name));
    db.query(&format!("grant create on schema public to {}_shop", db.name));
    let url = format!("{}?sslmode=disable", store.replace("postgres@", &format!("{}_shop@", db.name)));
    for (mut program, shop) in [(python("shop.py"), "python"), (node(), "node"), (go(), "go")] {
        program.env("DATABASE_URL", &url);
        run(program, shop);
    }
    let delivered = relay(&place, store);
    let delivered = lines(&delivered);
    assert_eq!(delivered.len(), 6);
    for (shop, payload) in [("python", PYTHON), ("node", NODE), ("go", GO)] {
        check(&delivered, shop, payload);
    }
    let orders = db.query("select id from orders order by id");
    let orders: Vec<_> = orders.into_iter().flatten().flatten().collect();
    assert_eq!(orders, ["go-1", "node-1", "python-1"], "each event has its order");
}

#[test]
fn python_emits_in_its_transactions_in_a_file() {
    let place = Place::new();
    place.ok(&["store", "migrate"]);
    let mut program = python("shop_sqlite.py");
    program.env("DATABASE", place.database());
    run(program, "python");
    let delivered = relay(&place, "sqlite://p.db");
    let delivered = lines(&delivered);
    assert_eq!(delivered.len(), 2);
    check(&delivered, "python", PYTHON_SQLITE);
}
