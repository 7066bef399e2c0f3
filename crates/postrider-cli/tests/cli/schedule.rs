use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Place, Running, until};

/// What a relay says once it delivers.
const AT_WORK: &str = "owned";

const PUT: [&str; 14] = [
    "schedule",
    "put",
    "tidy-up",
    "--cron",
    "0 9 * * mon-fri",
    "--zone",
    "europe/berlin",
    "--topic",
    "house",
    "--header",
    "floor=1",
    "--payload",
    "{\"a\": 1.10}",
    "--missed=all",
];

#[test]
fn a_schedule_is_stored_as_typed() {
    let place = Place::new();
    let put = place.ok(&PUT);
    assert!(put.starts_with("put tidy-up, which emits on house: next "), "{put}");
    let shown = place.json(&["schedule", "show", "tidy-up"]);
    assert_eq!((&shown["cron"], &shown["zone"]), (&json!("0 9 * * mon-fri"), &json!("Europe/Berlin")));
    assert_eq!(
        (&shown["topic"], &shown["type"], &shown["key"]),
        (&json!("house"), &json!("house"), &Value::Null)
    );
    assert_eq!((&shown["missed"], &shown["headers"]), (&json!("all"), &json!({"floor": "1"})));
    assert_eq!(shown["next"].as_array().unwrap().len(), 5);
    assert_eq!(shown["next"][0]["at"], shown["next_at"]);
    // The payload is stored byte for byte, digits included.
    assert!(place.ok(&["schedule", "show", "tidy-up", "--json"]).contains(r#""payload":{"a": 1.10}"#));
    assert!(place.ok(&["schedule", "show", "tidy-up"]).contains("T09:00:00+0"));
    let again = place.json(&PUT);
    assert_eq!(again["id"], shown["id"], "nothing has changed");
    place.ok(&[
        "schedule",
        "put",
        "tidy-up",
        "--cron",
        "@daily",
        "--topic",
        "garden",
        "--type",
        "garden.wild",
        "--key",
        "-7",
    ]);
    let list = place.json(&["schedule", "list"]);
    assert_eq!(
        (list.as_array().unwrap().len(), &list[0]["topic"], &list[0]["key"]),
        (1, &json!("garden"), &json!("-7"))
    );
    assert!(place.ok(&["schedule", "list"]).contains("@daily"));
}

#[test]
fn a_schedule_is_paused_resumed_and_deleted() {
    let place = Place::new();
    place.ok(&PUT);
    assert_eq!(
        place.ok(&["schedule", "pause", "tidy-up"]),
        "paused tidy-up, which emits on house: next when it is resumed\n"
    );
    assert!(place.json(&["schedule", "show", "tidy-up"])["paused_at"].is_string());
    assert!(place.ok(&["schedule", "list"]).contains("paused"));
    assert!(place.json(&["schedule", "resume", "tidy-up"])["paused_at"].is_null());
    let refused = place.run(&["schedule", "delete", "tidy-up"]);
    assert!(refused.code == 2 && refused.stderr.contains("add --yes"), "{refused:?}");
    assert_eq!(place.json(&["schedule", "delete", "tidy-up", "--yes"]), json!({"deleted": "tidy-up"}));
    assert_eq!(place.json(&["schedule", "list"]), json!([]));
    let listed = place.run(&["schedule", "list"]);
    assert!(listed.stdout.is_empty() && listed.stderr.contains("no schedule yet"), "{listed:?}");
    assert_eq!(place.audit(), [("tester (cli)".to_owned(), "schedule_delete".to_owned())]);
}

/// Each tick of the second has one event, without a gap.
fn ticks(place: &Place) -> BTreeSet<String> {
    let events = place.json(&["event", "list", "--topic", "beat", "--limit", "1000"]);
    let all: Vec<String> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["headers"]["postrider-tick"].as_str().unwrap().to_owned())
        .collect();
    let different: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(different.len(), all.len(), "no tick comes twice: {all:?}");
    different
}

#[test]
fn two_relays_fire_each_tick_once_and_one_goes_on_when_the_other_is_killed() {
    let place = Place::new();
    place.ok(&["schedule", "put", "beat", "--cron", "* * * * * *", "--topic", "beat", "--missed", "all"]);
    let relay = |subscription| {
        let command = place.command(&["relay", "--subscription", subscription, "--sink", "null"]);
        Running::start(command, AT_WORK)
    };
    let (first, second) = (relay("a"), relay("b"));
    until("some ticks have come", || ticks(&place).len() >= 3);
    first.signal(Signal::KILL);
    let before = ticks(&place).len();
    until("ticks go on", || ticks(&place).len() >= before + 3);
    second.signal(Signal::TERM);
    assert!(second.ended().success());
    let ticks: Vec<i64> = ticks(&place)
        .iter()
        .map(|tick| tick.parse::<postrider_core::Timestamp>().unwrap().as_micros())
        .collect();
    assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000), "no tick is missing: {ticks:?}");
}
