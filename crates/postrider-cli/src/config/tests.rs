//! Whole configs: what they mean, and how what is wrong with them is told.

use std::time::Duration;

use super::*;
use crate::args::ModeArg;

fn source() -> Source {
    Source {
        path: "p.toml".into(),
        store: None,
        store_from: StoreFrom::Typed,
        once: false,
        drain_within: None,
        retention: None,
        pid_file: None,
    }
}

fn understand(text: &str, environment: &[(&str, &str)]) -> Result<Plan, String> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    source().understand(text, environment).map_err(|problems| problems.to_string())
}

/// The config is refused with these lines.
#[track_caller]
fn check(text: &str, lines: &[&str]) {
    let told = understand(text, &[]).err().unwrap_or_default();
    assert_eq!(told.lines().collect::<Vec<_>>(), lines, "{text}");
}

const WHOLE: &str = r#"
store = "sqlite://shop.db"
log_format = "json"
drain_within = "5s"
retention = "3d"
pid_file = "p.pid"
health_file = "p.well"

[sinks.audit]
type = "file"
path = "audit.jsonl"

[sinks.nowhere]
url = "null"

[subscriptions.audit]
sink = "audit"
topics = ["order", "invoice.*"]
types = "*.created"
from = 2026-11-15T08:30:00Z
order = "key"
on_dead = "hold"
retry = "fixed:5s"
attempts = 3
members = "one"
concurrency = 4
timeout = "10s"
batch_events = 50
latency_goal = "20ms"

[subscriptions.work]
sink = "nowhere"
from = 17
mode = "queue"
order = "none"
lease = "1m"
lease_by = "event"
fair = "header:tenant"
total = 9
per_key = 2
rate = "100/s"
"#;

#[test]
fn every_key_is_understood() {
    let plan = understand(WHOLE, &[]).unwrap();
    assert_eq!(plan.drain_within, Duration::from_secs(5));
    assert_eq!(plan.retention, Duration::from_secs(3 * 24 * 3600));
    assert_eq!(plan.pid_file.as_deref(), Some(Path::new("p.pid")));
    assert_eq!(plan.health_file.as_deref(), Some(Path::new("p.well")));
    assert!(plan.log_format.is_some());
    let audit = &plan.routes["audit"];
    assert_eq!(audit.store.to_string(), "sqlite://shop.db");
    assert_eq!((audit.sink.to_string().as_str(), audit.batch_events), ("file:audit.jsonl", Some(50)));
    assert_eq!(audit.latency_goal, Some(Duration::from_millis(20)));
    assert_eq!((audit.settings.topics.len(), audit.settings.types.len()), (2, 1));
    assert_eq!((audit.settings.attempts, audit.settings.concurrency), (Some(3), Some(4)));
    let work = &plan.routes["work"].settings;
    assert_eq!((work.mode, work.total, work.per_key), (Some(ModeArg::Queue), Some(9), Some(2)));
    assert!(work.from.is_some() && work.rate.is_some() && work.fair.is_some());
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once() {
    let forms = SinkSpec::forms();
    check(
        r#"
stor = "sqlite://shop.db"
retention = "for ever"

[sinks.out]
type = "file"
pth = "x"

[sinks.fax]
type = "fax"

[sinks.both]
url = "null"
path = "x"

[sinks.neither]

[subscriptions.a]
sink = "outt"
concurrency = 0
mode = "qeue"

[subscriptions.b]
topics = ["a b"]
retry = "often"

[subscriptions.c]
sink = "fax"
store = "main"
per_key = 2
"#,
        &[
            "p.toml:2:1: unknown key `stor`; did you mean `store`?",
            "p.toml:3:13: `for ever` is not a duration: write it as 500ms, 10s, 5m, 2h or 7d",
            "p.toml:5:1: the key `path` is missing",
            "p.toml:7:1: unknown key `pth`; did you mean `path`?",
            &format!("p.toml:10:8: there is no type of sink `fax`; use {}", sink::kinds().join(", ")),
            "p.toml:14:1: `path` stands beside `url`; write type = \"…\" instead of url, with the options of that kind",
            &format!(
                "p.toml:16:1: it does not say what kind of sink it is; write type = \"file\" and its options, or url = \"…\": {forms}"
            ),
            "p.toml:19:8: there is no sink `outt`; did you mean `out`?",
            "p.toml:20:15: 0 is out of bounds: use 1 to 10000",
            "p.toml:21:8: unknown value `qeue`; did you mean `queue`?",
            "p.toml:23:1: the key `sink` is missing; a subscription needs it",
            "p.toml:24:11: pattern `a b` contains ' ': use letters, digits, . _ - : / and * for any text",
            "p.toml:25:9: `often` is not a retry policy: write fixed:5s, exponential:1s..10m or schedule:1s,10s,1m",
            "p.toml:27:16: a subscription of mode `log` has no leases, fairness or limits of a queue: choose mode `queue`",
            "p.toml:29:9: there is no store `main`; write [stores.main]",
        ],
    );
}

#[test]
fn a_config_without_work_is_a_mistake() {
    check(
        "store = 'sqlite://p.db'\n",
        &["p.toml:1:1: there is no subscription to deliver; write [subscriptions.NAME] with a sink"],
    );
}

#[test]
fn variables_come_over_the_file_and_options_over_both() {
    let variables = [
        ("POSTRIDER_STORE", "sqlite://other.db"),
        ("POSTRIDER_DRAIN_WITHIN", "7s"),
        ("POSTRIDER_RETENTION", "9d"),
        ("POSTRIDER_SUBSCRIPTIONS__AUDIT__CONCURRENCY", "8"),
        ("POSTRIDER_SUBSCRIPTIONS__AUDIT__TOPICS", "[\"x\"]"),
        ("POSTRIDER_SINKS__AUDIT__PATH", "elsewhere.jsonl"),
        ("POSTRIDER_SUBSCRIPTIONS__MORE__SINK", "nowhere"),
    ];
    let plan = understand(WHOLE, &variables).unwrap();
    assert_eq!(plan.drain_within, Duration::from_secs(7));
    let audit = &plan.routes["audit"];
    assert_eq!(audit.store.to_string(), "sqlite://other.db");
    assert_eq!(audit.sink.to_string(), "file:elsewhere.jsonl");
    assert_eq!((audit.settings.concurrency, audit.settings.topics.len()), (Some(8), 1));
    assert_eq!(plan.routes["more"].sink.to_string(), "null");
    let typed = Source {
        retention: Some(Duration::from_secs(1)),
        store: Some("sqlite://typed.db".into()),
        ..source()
    };
    let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let plan = typed.understand(WHOLE, environment).unwrap();
    assert_eq!(plan.retention, Duration::from_secs(1));
    assert_eq!(plan.routes["audit"].store.to_string(), "sqlite://typed.db");
    let told = understand(WHOLE, &[("POSTRIDER_RETENTION", "often")]).err().unwrap();
    assert!(told.starts_with("POSTRIDER_RETENTION: "), "{told}");
}

#[test]
fn several_stores_are_told_apart_by_name() {
    let text = |store: &str| {
        format!(
            "[stores.eu]\nurl = 'postgres://u:hunter2@eu/db'\nsource = 'wal'\n[stores.us]\nurl = 'sqlite://us.db'\n\
             [sinks.n]\nurl = 'null'\n[subscriptions.a]\nsink = 'n'\n{store}\n[subscriptions.b]\nsink = 'n'\nstore = 'us'\n"
        )
    };
    let plan = understand(&text("store = 'eu'"), &[]).unwrap();
    assert_eq!(format!("{:?}", plan.routes["a"].store), "postgres://eu/db by Wal");
    assert_eq!(plan.routes["b"].store.to_string(), "sqlite://us.db");
    assert_eq!(plan.stores().len(), 2);
    check(&text(""), &["p.toml:8:16: it does not say in which store it is; write store = \"eu\""]);
    check(&text("store = 'uss'"), &["p.toml:10:9: there is no store `uss`; did you mean `us`?"]);
    check(
        &text("store = 'us'\nsource = 'wal'"),
        &[
            "p.toml:11:10: SQLite passes no write-ahead log on: its events are read in their table. Leave the source out",
        ],
    );
}

#[test]
fn secrets_are_not_repeated() {
    let text = "store = 'mysql://ada:hunter2@h/db'\n[stores.x]\nurl = 31337\n[sinks.n]\nurl = 'gopher://ada:hunter2@h'\n\
                [subscriptions.a]\nsink = 'n'\nconcurrency = 'hunter2'\n";
    let told = understand(text, &[]).err().unwrap();
    assert!(told.lines().count() >= 4, "{told}");
    assert!(!told.contains("hunter2") && !told.contains("31337"), "{told}");
}

#[test]
fn a_store_may_be_named_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("url");
    std::fs::write(&path, "sqlite://from-a-file.db\n").unwrap();
    let text =
        |place: &str| format!("store = '{place}'\n[sinks.n]\nurl = 'null'\n[subscriptions.a]\nsink = 'n'\n");
    let plan = understand(&text(&format!("file:{}", path.display())), &[]).unwrap();
    assert_eq!(plan.routes["a"].store.to_string(), "sqlite://from-a-file.db");
    let told = understand(&text("env:POSTRIDER_TEST_NOT_SET"), &[]).err().unwrap();
    assert!(told.starts_with("p.toml:1:9: ") && told.contains("is not set"), "{told}");
}

/// What the documentation shows can be written, and it names every key.
#[test]
fn the_documentation_shows_what_is_true() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = std::fs::read_to_string(format!("{root}/docs/relay.md")).unwrap();
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let mut examples = 0;
    for text in [&page, &readme] {
        for block in text.split("```toml\n").skip(1) {
            let example = block.split("```").next().unwrap().replace("env:DATABASE_URL", "sqlite://p.db");
            understand(&example, &[]).unwrap_or_else(|told| panic!("{told}\n{example}"));
            examples += 1;
        }
    }
    assert!(examples >= 2);
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    let tables = [
        &schema["properties"],
        &schema["definitions"]["StoreKeys"]["properties"],
        &schema["definitions"]["SubscriptionKeys"]["properties"],
    ];
    for table in tables {
        for key in table.as_object().unwrap().keys() {
            let named = page.contains(&format!("`{key}`")) || page.contains(&format!("`[{key}"));
            assert!(named, "docs/relay.md does not say what `{key}` is");
        }
    }
}

#[test]
fn a_store_of_the_environment_does_not_silently_take_the_place_of_those_in_the_file() {
    let text = "[stores.main]\nurl = 'sqlite://main.db'\n[sinks.out]\nurl = 'null'\n[subscriptions.audit]\nsink = 'out'\n";
    let with = |text: &str, url: &str, store_from| {
        let source = Source { store: Some(url.to_owned()), store_from, ..source() };
        source.understand(text, []).map_err(|problems| problems.to_string())
    };
    let told = with(text, "sqlite://other.db", StoreFrom::Environment).err().unwrap();
    assert_eq!(
        told,
        "p.toml:5:16: POSTRIDER_STORE names another store than [stores.main], and this does not say in which it is; write \
         store = \"main\", or unset POSTRIDER_STORE"
    );
    let same = with(text, "sqlite://main.db", StoreFrom::Environment).unwrap();
    assert_eq!(same.routes["audit"].store.to_string(), "sqlite://main.db");
    let named = text.replace("sink = 'out'", "sink = 'out'\nstore = 'main'");
    let named = with(&named, "sqlite://other.db", StoreFrom::Environment).unwrap();
    assert_eq!(named.routes["audit"].store.to_string(), "sqlite://main.db");
    let typed = with(text, "sqlite://other.db", StoreFrom::Typed).unwrap();
    assert_eq!(typed.routes["audit"].store.to_string(), "sqlite://other.db", "who types it means it");
    let key = "store = 'sqlite://key.db'\n[sinks.out]\nurl = 'null'\n[subscriptions.audit]\nsink = 'out'\n";
    let key = with(key, "sqlite://other.db", StoreFrom::Environment).unwrap();
    assert_eq!(key.routes["audit"].store.to_string(), "sqlite://other.db");
    assert_eq!(key.warnings.len(), 1, "{:?}", key.warnings);
}

#[test]
fn mistakes_are_bounded() {
    let tables: Vec<String> = (0..5_000).map(|n| format!("[sinks.s{n}]\nurll = 'null'")).collect();
    let text = tables.join("\n");
    let problems = source().understand(&text, []).err().unwrap();
    assert_eq!((problems.told.len(), problems.more), (Problems::TOLD_MAX, true));
}

#[test]
fn a_config_is_a_file_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.toml");
    std::fs::write(&path, vec![b'#'; 1024 * 1024 + 1]).unwrap();
    let refused = |path: &Path| read_file(path).unwrap_err();
    assert!(refused(&path).to_string().contains("more than 1048576 bytes"));
    assert_eq!(refused(Path::new("/dev/zero")).kind(), ErrorKind::Invalid);
    assert_eq!(refused(dir.path()).kind(), ErrorKind::Invalid);
    assert_eq!(read_file(Path::new("/dev/null")).unwrap(), "");
}
