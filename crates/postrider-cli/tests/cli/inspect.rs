use std::time::Duration;

use postrider_core::{Failure, NewSubscription, OnDead, RetryPolicy};
use serde_json::{Value, json};

use crate::harness::Place;

#[test]
fn events_are_listed_newest_first_page_by_page() {
    let place = Place::new();
    for n in 1..=5 {
        let (topic, key) = (if n % 2 == 0 { "even" } else { "odd" }, n.to_string());
        place.ok(&["emit", topic, "--type", &format!("{topic}.made"), "--key", &key, "--payload", &key]);
    }
    let ids = |args: &[&str]| -> Vec<i64> {
        let events = place.json(&[&["event", "list"], args].concat());
        events.as_array().unwrap().iter().map(|event| event["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&[]), [5, 4, 3, 2, 1]);
    assert_eq!(ids(&["--topic", "odd"]), [5, 3, 1]);
    assert_eq!(ids(&["--type", "*.made", "--topic", "e*"]), [4, 2]);
    assert_eq!(ids(&["--key", "3"]), [3]);
    assert_eq!(ids(&["--limit", "2", "--before", "4"]), [3, 2]);
    assert_eq!(ids(&["--topic", "nothing"]), [0; 0]);

    let ran = place.run(&["event", "list", "--limit", "2"]);
    let lines: Vec<_> = ran.stdout.lines().collect();
    // How wide the ages are depends on how busy the machine is.
    let (before, after) = lines[0].split_once("EMITTED").unwrap();
    assert_eq!((before, after.trim_start()), ("ID  TOPIC  TYPE       KEY  ", "PAYLOAD"));
    assert!(lines[1].starts_with(" 5  odd    odd.made   5    "), "{lines:?}");
    assert_eq!(ran.stderr, "older ones: add --before 4\n");
    let none = place.run(&["event", "list", "--topic", "nothing"]);
    assert_eq!((none.code, none.stdout.as_str(), none.stderr.as_str()), (0, "", "no events match\n"));
}

#[test]
fn a_limit_per_key_is_shown_and_may_change() {
    let place = Place::new();
    let queue = ["--mode", "queue", "--order", "none", "--per-key"];
    place.ok(&[&["subscription", "create", "calls"], &queue[..], &["3"]].concat());
    let show = || place.ok(&["subscription", "show", "calls"]);
    let line = |shown: String| shown.lines().find(|line| line.starts_with("per key")).map(ToOwned::to_owned);
    assert!(line(show()).is_some_and(|line| line.ends_with(" 3 events in all members")), "{}", show());
    let relay = ["relay", "--subscription", "calls", "--sink", "null", "--once"];
    place.ok(&[&relay[..], &queue[..], &["1"]].concat());
    assert!(line(show()).is_some_and(|line| line.ends_with(" 1 event in all members")), "{}", show());
    assert_eq!(place.json(&["subscription", "show", "calls"])["tuning"]["queue"]["per_key"], json!(1));
}

#[test]
fn a_subscription_lives_from_create_to_delete() {
    let place = Place::new();
    let created = place.json(&[
        "subscription",
        "create",
        "audit",
        "--topic",
        "order",
        "--type",
        "*.created",
        "--order",
        "none",
        "--on-dead",
        "hold",
        "--retry",
        "fixed:5s",
        "--attempts",
        "3",
        "--concurrency",
        "4",
        "--timeout",
        "7s",
        "--from",
        "now",
    ]);
    assert_eq!(created["filter"], json!({"topics": ["order"], "types": ["*.created"]}));
    assert_eq!((&created["order"], &created["on_dead"]), (&json!("none"), &json!("hold")));
    assert_eq!(created["tuning"]["retry"], json!({"backoff": "fixed:5s", "attempts_max": 3}));
    assert_eq!((&created["tuning"]["concurrency"], &created["tuning"]["timeout"]), (&json!(4), &json!("7s")));

    place.ok(&["emit", "order", "--type", "order.created"]);
    let list = place.json(&["subscription", "list"]);
    assert_eq!((&list[0]["name"], &list[0]["lag_events"]), (&json!("audit"), &json!(1)));
    let human = place.ok(&["subscription", "list"]);
    assert!(
        human
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("audit         topic order, type *.created  no member    1"),
        "{human}"
    );
    assert!(
        place.ok(&["subscription", "show", "audit"]).contains("nobody     16         0  ■■■■■■■■■■■■■■■■\n")
    );

    assert!(place.ok(&["subscription", "pause", "audit"]).starts_with("paused audit"));
    assert_ne!(place.json(&["subscription", "show", "audit"])["paused_at"], Value::Null);
    assert!(place.ok(&["subscription", "show", "audit"]).contains("paused since "));
    assert!(
        place
            .ok(&["event", "why", "1"])
            .contains("postrider subscription resume audit --store sqlite://p.db")
    );
    assert_eq!(place.json(&["subscription", "resume", "audit"])["paused_at"], Value::Null);

    assert_eq!(
        place.json(&["subscription", "seek", "audit", "--to", "now", "-y"])["position"],
        json!({"last_id": 1})
    );
    assert_eq!(
        place.ok(&["subscription", "seek", "audit", "--to", "start", "--yes"]),
        "audit goes on with the oldest event\n"
    );
    assert_eq!(place.json(&["subscription", "delete", "audit", "--yes"]), json!({"deleted": "audit"}));
    assert_eq!(place.json(&["subscription", "list"]), json!([]));
    assert_eq!(place.run(&["subscription", "show", "audit"]).code, 3);
}

#[test]
fn why_tells_what_became_of_an_event() {
    let place = Place::new();
    place.ok(&["emit", "order", "--key", "42"]);
    assert!(place.ok(&["event", "why", "1"]).ends_with("no subscription wants it\n"));
    place.ok(&["subscription", "create", "audit"]);
    let why = place.ok(&["event", "why", "1"]);
    assert!(
        why.contains("audit  not reached yet: it comes next; no member delivers the subscription"),
        "{why}"
    );
    place.ok(&["relay", "--subscription", "audit", "--sink", "null", "--once"]);
    let older = place.json(&["event", "why", "1"])["subscriptions"][0]["explanation"].clone();
    assert_eq!(older, "delivered, unless the subscription began behind it: it is newer");
    place.ok(&["emit", "order", "--key", "42"]);
    place.ok(&["relay", "--subscription", "audit", "--sink", "null", "--once"]);
    assert!(place.ok(&["event", "why", "2"]).ends_with("\naudit  delivered\n"));
    let json = place.json(&["event", "why", "2"]);
    assert_eq!(json["event"]["id"], 2);
    assert_eq!(json["subscriptions"][0]["explanation"], "delivered");
    assert_eq!(json["subscriptions"][0]["state"], "done");
}

#[test]
fn why_tells_what_an_event_waits_for() {
    let place = Place::new();
    let patient = || NewSubscription::new("audit").retry(RetryPolicy::fixed(Duration::from_secs(3600)));
    place.ok(&["subscription", "create", "audit", "--retry", "fixed:1h"]);
    for key in ["a", "a", "b"] {
        place.ok(&["emit", "order", "--key", key]);
    }
    place.fail_everything(patient(), Failure::retry("connection refused"));
    let why = |id: &str| place.json(&["event", "why", id])["subscriptions"][0]["explanation"].clone();
    let idle = "; no member delivers the subscription: start a relay or the application's worker";
    let failed = "failed once (connection refused); next attempt in 60 min";
    assert_eq!(why("1"), format!("{failed}{idle}"));
    assert_eq!(why("2"), format!("waits behind event 1 of its key, which {failed}{idle}"));
    let shown = place.ok(&["subscription", "show", "audit"]);
    for told in [
        "parked keys   2\n",
        "PARKED KEY  HEAD  WAITING  NEXT ATTEMPT\n",
        "a              1        2  in 60 min\n",
    ] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    let list = place.ok(&["subscription", "list"]);
    assert!(list.ends_with("        3       2     0\n"), "{list}");
    assert_eq!(
        place.json(&["event", "show", "1"])["deliveries"][0]["history"][0]["error"],
        "connection refused"
    );
}

#[test]
fn a_key_that_is_held_by_a_dead_letter_says_how_to_free_it() {
    let place = Place::new();
    place.ok(&["subscription", "create", "audit", "--on-dead", "hold"]);
    for _ in 0..2 {
        place.ok(&["emit", "order", "--key", "a"]);
    }
    place.refuse_everything(NewSubscription::new("audit").on_dead(OnDead::Hold));
    let why = place.ok(&["event", "why", "2"]);
    assert!(why.contains("waits behind event 1 of its key, which is a dead letter (refused"), "{why}");
    assert!(why.contains("`postrider dead-letter replay audit 1 --store sqlite://p.db`"), "{why}");
    assert!(place.ok(&["dead-letter", "show", "audit", "1"]).contains("\nholds "));
    place.ok(&["dead-letter", "discard", "audit", "1", "--yes"]);
    place.ok(&["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "--once"]);
    assert_eq!(place.delivered("out.jsonl").len(), 1);
}

#[test]
fn stats_tell_of_the_store_as_a_whole() {
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "1234"]);
    place.ok(&["subscription", "create", "audit"]);
    let stats = place.json(&["stats"]);
    assert_eq!(
        (&stats["events"], &stats["newest_id"], &stats["schema_version"]),
        (&json!(1234), &json!(1234), &json!(1))
    );
    assert_eq!(stats["subscriptions"][0]["lag_events"], 1234);
    let human = place.ok(&["stats"]);
    for told in [
        "p.db (SQLite ",
        "\nschema   version 1\n",
        "\nevents   1,234, the oldest emitted ",
        ", newest id 1234\n",
        "\nmembers  none\n",
    ] {
        assert!(human.contains(told), "{told}: {human}");
    }
}

#[test]
fn whatever_was_emitted_cannot_reach_the_terminal_unescaped() {
    let place = Place::new();
    let evil = "\x1b]0;pwned\x07\u{9b}2J\u{202e}";
    let header = format!("note={evil}");
    let payload = format!("\"{}\"", evil.replace(['\x1b', '\x07'], ""));
    place.ok(&["emit", "order", "--key", evil, "--header", &header, "--payload", &payload]);
    place.ok(&["subscription", "create", "audit"]);
    place.refuse_everything(NewSubscription::new("audit"));
    for args in [
        &["event", "list"][..],
        &["event", "show", "1"],
        &["event", "why", "1"],
        &["dead-letter", "list"],
        &["dead-letter", "show", "audit", "1"],
        &["subscription", "show", "audit"],
    ] {
        for more in [&[][..], &["--json"], &["--color", "never"]] {
            let shown = place.ok(&[args, more].concat());
            let treacherous = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!shown.contains(treacherous), "{args:?} {more:?}: {shown:?}");
        }
    }
    // In JSON nothing is lost by it.
    assert_eq!(place.json(&["event", "show", "1"])["key"], evil);
    assert_eq!(place.json(&["event", "show", "1"])["headers"]["note"], evil);
}

#[test]
fn colours_appear_when_asked_for_and_never_in_a_pipe() {
    let place = Place::new();
    place.ok(&["subscription", "create", "audit"]);
    assert!(place.ok(&["subscription", "list", "--color", "always"]).contains("\x1b["));
    assert!(!place.ok(&["subscription", "list"]).contains('\x1b'));
    let mut quiet = place.command(&["subscription", "list"]);
    let output = quiet.env("NO_COLOR", "1").output().unwrap();
    assert!(!output.stdout.contains(&0x1b));
}

#[test]
fn completions_are_printed_for_each_shell_without_a_store() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.ok(&["completions", shell]).contains("dead-letter"), "{shell}");
    }
    assert!(!place.database().exists());
}

#[test]
fn a_reader_that_leaves_ends_a_command_quietly() {
    use std::io::Read as _;
    use std::process::Stdio;
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "1000", "--payload", &format!("\"{}\"", "x".repeat(1_000))]);
    let mut child = place
        .command(&["event", "list", "--limit", "1000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
