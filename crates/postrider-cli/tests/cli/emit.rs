use std::fmt::Write as _;

use serde_json::json;

use crate::harness::Place;

#[test]
fn one_event_is_written_as_typed() {
    let place = Place::new();
    assert_eq!(place.ok(&["emit", "order", "--key", "42", "--payload", "{\"a\":1}"]), "emitted event 1\n");
    let typed = [
        "emit",
        "order",
        "--type",
        "order.paid",
        "--key",
        "-7",
        "--payload",
        "{\"total\": 1.10}",
        "--header",
        "trace=a=b",
        "--header",
        "who=me",
        "--due",
        "2030-01-01T00:00:00Z",
    ];
    assert_eq!(place.json(&typed), json!({"id": 2}));
    let event = place.json(&["event", "show", "2"]);
    assert_eq!(event["type"], "order.paid");
    assert_eq!(event["key"], "-7");
    assert_eq!(event["headers"], json!({"trace": "a=b", "who": "me"}));
    assert_eq!(event["due_at"], "2030-01-01T00:00:00Z");
    // The payload is stored byte for byte, digits included.
    assert!(place.ok(&["event", "show", "2", "--json"]).contains(r#""payload":{"total": 1.10}"#));
}

#[test]
fn payloads_come_from_the_line_a_file_or_stdin() {
    let place = Place::new();
    place.write("order.json", "{\n  \"from\": \"file\"\n}\n");
    place.ok(&["emit", "t", "--payload", "@order.json"]);
    assert_eq!(
        place.piped(&["emit", "t", "--payload", "-"], "[\"from\", \"stdin\"]").stdout,
        "emitted event 2\n"
    );
    place.ok(&["emit", "t", "--payload", "no json", "--raw"]);
    place.ok(&["emit", "t", "--payload", "-12.5"]);
    place.ok(&["emit", "t"]);
    let payload = |id: &str| place.json(&["event", "show", id]);
    assert_eq!(payload("1")["payload"], json!({"from": "file"}));
    assert_eq!(payload("2")["payload"], json!(["from", "stdin"]));
    assert_eq!(payload("3")["payload_base64"], "bm8ganNvbg==");
    assert_eq!(payload("4")["payload"], json!(-12.5));
    assert_eq!(payload("5")["payload_base64"], "");
    assert!(place.ok(&["event", "show", "1"]).contains("\n{\n  \"from\": \"file\"\n}\n"));
}

#[test]
fn a_count_is_emitted_in_transactions_of_a_thousand() {
    let place = Place::new();
    assert_eq!(
        place.json(&["emit", "t", "--count", "2500"]),
        json!({"count": 2500, "first_id": 1, "last_id": 2500})
    );
    assert_eq!(place.ok(&["emit", "t", "--count", "1"]), "emitted 1 event: 2501 to 2501\n");
    assert_eq!(place.json(&["stats"])["events"], 2501);
}

#[test]
fn a_repeat_with_the_same_idempotency_key_writes_nothing() {
    let place = Place::new();
    for _ in 0..3 {
        assert_eq!(place.json(&["emit", "t", "--idempotency-key", "once"]), json!({"id": 1}));
    }
    assert_eq!(place.json(&["stats"])["events"], 1);
}

#[test]
fn a_key_may_be_taken_for_a_while_and_taken_over() {
    let place = Place::new();
    let once = ["emit", "t", "--idempotency-key", "once", "--unique-for", "1h"];
    assert_eq!(place.json(&once), json!({"id": 1}));
    assert_eq!(place.json(&once), json!({"id": 1}));
    let replace = [&once[..], &["--replace"]].concat();
    assert_eq!(place.json(&replace), json!({"id": 2}));
    assert_eq!(place.json(&once), json!({"id": 2}));
    let lines = r#"{"topic":"t","idempotency_key":"once","unique_for":"1h"}
{"topic":"t","idempotency_key":"once","replace":true}
{"topic":"t","idempotency_key":"once"}
"#;
    let ran = place.piped(&["emit", "--jsonl", "-", "--json"], lines);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "{\"count\":3,\"first_id\":2,\"last_id\":3}\n"),
        "{ran:?}"
    );
    assert_eq!(place.json(&["stats"])["events"], 3);
}

#[test]
fn a_key_may_count_within_a_topic_or_a_type() {
    let place = Place::new();
    let emit = |topic: &str, kind: &str, scope: &str| {
        let args = ["emit", topic, "--type", kind, "--idempotency-key", "once", "--scope", scope];
        place.json(&args)["id"].as_i64().unwrap()
    };
    assert_eq!((emit("a", "x", "topic"), emit("b", "x", "topic"), emit("a", "y", "topic")), (1, 2, 1));
    assert_eq!((emit("a", "x", "type"), emit("a", "y", "type"), emit("a", "x", "type")), (3, 4, 3));
    assert_eq!((emit("a", "x", "store"), emit("b", "y", "store")), (5, 5));
    let line = r#"{"topic":"b","type":"x","idempotency_key":"once","scope":"topic"}"#;
    let ran = place.piped(&["emit", "--jsonl", "-", "--json"], line);
    assert_eq!(ran.stdout, "{\"count\":1,\"first_id\":2,\"last_id\":2}\n", "{ran:?}");
}

#[test]
fn lines_become_events() {
    let place = Place::new();
    let lines = r#"{"topic":"order","type":"order.created","key":"1","payload":{"n": 1.0},"headers":{"a":"b"},"idempotency_key":"x"}

{"topic":"invoice","due_at":"2030-01-01T00:00:00Z","payload":null}
"#;
    let ran = place.piped(&["emit", "--jsonl", "-", "--json"], lines);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "{\"count\":2,\"first_id\":1,\"last_id\":2}\n"),
        "{ran:?}"
    );
    let events = place.json(&["event", "list"]);
    assert_eq!(events[0]["topic"], "invoice");
    assert_eq!(events[0]["payload"], json!(null));
    assert_eq!(events[1]["headers"], json!({"a": "b"}));
    place.write("empty.jsonl", "");
    assert_eq!(place.ok(&["emit", "--jsonl", "empty.jsonl"]), "nothing to emit\n");
}

#[test]
fn a_bad_line_spares_the_batches_before_it_and_takes_its_own_with_it() {
    let place = Place::new();
    let mut lines = String::new();
    for n in 1..=2_500 {
        let _ = match n {
            2_200 => writeln!(lines, "{{\"topic\":\"t\",\"colour\":\"red\"}}"),
            _ => writeln!(lines, "{{\"topic\":\"t\",\"key\":\"{n}\"}}"),
        };
    }
    place.write("events.jsonl", &lines);
    let ran = place.run(&["emit", "--jsonl", "events.jsonl"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    for told in
        ["line 2200 of events.jsonl", "unknown field `colour`", "2,000 events", "go on from line 2001"]
    {
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
    }
    assert_eq!(place.json(&["stats"])["events"], 2_000);

    // And doing as told completes the work.
    let rest =
        lines.lines().skip(2_000).filter(|line| !line.contains("colour")).collect::<Vec<_>>().join("\n");
    assert_eq!(place.piped(&["emit", "--jsonl", "-"], &rest).code, 0);
    assert_eq!(place.json(&["stats"])["events"], 2_499);
}
