use std::collections::BTreeSet;
use std::io::{BufRead as _, Read as _};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Place, Running, until};

/// What a relay logs once it delivers.
const AT_WORK: &str = "owned";

#[test]
fn once_delivers_what_is_there_and_ends() {
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "1500", "--payload", "{\"a\": 1}"]);
    place.ok(&["emit", "order", "--due", "1h"]);
    let relay = ["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "--once"];
    assert_eq!(place.json(&relay), json!({"delivered": 1500, "failed": 0, "dead": 0, "cut_off": 0}));
    let ids: Vec<_> = place.delivered("out.jsonl").iter().map(|line| line["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, (1..=1500).collect::<Vec<_>>());
    assert_eq!(place.ok(&relay), "delivered 0 events\n");
    assert_eq!(place.delivered("out.jsonl").len(), 1500);
    assert!(place.ok(&["event", "why", "1501"]).contains("delayed, due in 60 min"));
}

#[test]
fn events_go_to_stdout_and_all_else_to_stderr() {
    let place = Place::new();
    place.ok(&["emit", "order", "--key", "42", "--payload", "{\"a\": 1}", "--header", "h=v"]);
    let ran = place.run(&["relay", "--subscription", "s", "--sink", "stdout", "--once", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let line: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (
            &line["id"],
            &line["key"],
            &line["payload"],
            &line["headers"],
            &line["subscription"],
            &line["attempt"]
        ),
        (&json!(1), &json!("42"), &json!({"a": 1}), &json!({"h": "v"}), &json!("s"), &json!(1))
    );
    assert!(ran.stderr.ends_with("{\"delivered\":1,\"failed\":0,\"dead\":0,\"cut_off\":0}\n"), "{ran:?}");
    let quiet = place.run(&["relay", "--subscription", "t", "--sink", "stdout", "--once", "-q"]);
    assert_eq!((quiet.stdout.lines().count(), quiet.stderr.as_str()), (1, ""));
}

#[test]
fn logs_are_json_when_asked_and_never_hold_payloads() {
    let place = Place::new();
    place.ok(&["emit", "order", "--key", "secret-key", "--payload", "\"secret-payload\""]);
    let args = [
        "relay",
        "--subscription",
        "s",
        "--sink",
        "null",
        "--once",
        "--log-format",
        "json",
        "-vvv",
        "--json",
    ];
    let ran = place.run(&args);
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    for line in ran.stderr.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn an_existing_subscription_keeps_its_meaning_and_takes_new_tuning() {
    let place = Place::new();
    place.ok(&["emit", "order", "--type", "order.created"]);
    place.ok(&["emit", "invoice"]);
    let relay = |more: &[&str]| {
        place.run(
            &[&["relay", "--subscription", "audit", "--sink", "null", "--once", "--json"], more].concat(),
        )
    };
    assert!(relay(&["--topic", "order", "--attempts", "3"]).stdout.contains("\"delivered\":1"));
    // Without filter options, and with the same ones, it is the same subscription.
    assert_eq!(relay(&[]).code, 0);
    assert_eq!(relay(&["--topic", "order", "--from", "start"]).code, 0);
    for other in [&["--topic", "invoice"][..], &["--type", "*"], &["--order", "none"], &["--on-dead", "hold"]]
    {
        let ran = relay(other);
        assert_eq!(ran.code, 4, "{other:?}: {ran:?}");
        assert!(ran.stderr.contains("use another name, or delete it first"), "{ran:?}");
    }
    let tuning = || place.json(&["subscription", "show", "audit"])["tuning"].clone();
    assert_eq!(tuning()["retry"]["attempts_max"], 3);
    relay(&["--concurrency", "2"]);
    assert_eq!((&tuning()["retry"]["attempts_max"], &tuning()["concurrency"]), (&json!(3), &json!(2)));
    assert_eq!(place.run(&["subscription", "create", "audit"]).code, 4);
}

#[test]
fn a_signal_drains_and_ends_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let args = ["relay", "--subscription", "audit", "--sink", "file:out.jsonl"];
        let running = Running::start(place.command(&args), AT_WORK);
        place.ok(&["emit", "order", "--count", "300"]);
        until("the events are delivered", || place.delivered("out.jsonl").len() == 300);
        let members = place.json(&["stats"])["members"].clone();
        assert_eq!(members.as_array().unwrap().len(), 1, "{members}");
        assert!(place.ok(&["subscription", "list"]).contains("running"));
        running.signal(signal);
        assert_eq!(running.ended().code(), Some(0), "{signal:?}");
        assert_eq!(place.json(&["stats"])["members"], json!([]));
    }
}

/// It finishes or gives back the events in its hands: no worker waits for a lease to end, and no event comes twice.
#[test]
fn a_signal_leaves_nothing_of_a_queue_leased() {
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "3000"]);
    let args = ["relay", "--subscription", "work", "--mode", "queue", "--lease-by", "event", "--lease", "1h"];
    let args = [&args[..], &["--sink", "file:out.jsonl"]].concat();
    let running = Running::start(place.command(&args), AT_WORK);
    until("some events are delivered", || !place.delivered("out.jsonl").is_empty());
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
    let report = &place.json(&["subscription", "list"])[0];
    assert_eq!(report["leased"], json!(0), "{report}");
    place.ok(&[&args[..], &["--once"]].concat());
    let ids: Vec<i64> =
        place.delivered("out.jsonl").iter().map(|event| event["id"].as_i64().unwrap()).collect();
    let each: BTreeSet<i64> = ids.iter().copied().collect();
    assert_eq!((ids.len(), each.len()), (3000, 3000));
}

#[test]
fn a_drain_is_cut_off_by_its_limit_or_by_a_second_signal() {
    for limit in ["100ms", "1h"] {
        let place = Place::new();
        place.write("large.json", format!("\"{}\"", "x".repeat(500_000)));
        place.ok(&["emit", "order", "--payload", "@large.json"]);
        let args = ["relay", "--subscription", "s", "--sink", "stdout", "--drain-within", limit];
        let mut running = Running::start(place.command(&args), AT_WORK);
        // The first byte is here, so the rest is on its way into a pipe that is too small for it.
        let mut stdout = running.stdout();
        stdout.read_exact(&mut [0]).unwrap();
        running.signal(Signal::TERM);
        if limit == "1h" {
            until("a second signal ends it", || {
                running.signal(Signal::INT);
                running.has_ended()
            });
        }
        assert_eq!(running.ended().code(), Some(9), "{limit}");
        let why = place.ok(&["event", "why", "1"]);
        assert!(!why.contains("delivered\n"), "{why}");
    }
}

#[test]
fn up_makes_everything_and_prints_what_is_emitted() {
    let place = Place::new();
    for round in 1..=2 {
        let mut running = Running::start(place.command(&["up"]), AT_WORK);
        place.ok(&["emit", "order", "--key", "42", "--payload", "{\"a\":1}"]);
        let mut line = String::new();
        running.stdout().read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("{{\"id\":{round},")), "{line}");
        running.signal(Signal::INT);
        assert_eq!(running.ended().code(), Some(0));
    }
    let subscription = place.json(&["subscription", "show", "stdout"]);
    assert_eq!((&subscription["filter"], &subscription["lag_events"]), (&json!({}), &json!(0)));
}

#[test]
fn the_banner_names_the_store_and_what_to_try() {
    let place = Place::new();
    let command = place.command(&["up", "--store", "sqlite://my.db"]);
    let running = Running::start(command, "postrider subscription list --store sqlite://my.db");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
    assert!(place.path("my.db").exists() && !place.database().exists());
}

#[test]
fn up_ends_when_nobody_reads_its_events_any_more() {
    let place = Place::new();
    let mut running = Running::start(place.command(&["up"]), AT_WORK);
    drop(running.stdout());
    assert_eq!(running.ended().code(), Some(0));
    place.ok(&["emit", "order"]);
    assert_eq!(place.json(&["subscription", "list"])[0]["lag_events"], 1);
}
