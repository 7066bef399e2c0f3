use postrider_core::{NewSubscription, Order};
use serde_json::{Value, json};

use crate::harness::Place;

/// Three dead letters of `audit`, with the keys a, a and b.
fn with_dead_letters() -> Place {
    let place = Place::new();
    place.ok(&["subscription", "create", "audit"]);
    for key in ["a", "a", "b"] {
        place.ok(&["emit", "order", "--key", key, "--payload", "{\"total\": 99}"]);
    }
    place.refuse_everything(NewSubscription::new("audit"));
    place
}

fn events(letters: &Value) -> Vec<i64> {
    letters.as_array().unwrap().iter().map(|letter| letter["event"]["id"].as_i64().unwrap()).collect()
}

#[test]
fn dead_letters_are_listed_and_shown() {
    let place = with_dead_letters();
    assert_eq!(events(&place.json(&["dead-letter", "list"])), [1, 2, 3]);
    assert_eq!(
        events(&place.json(&[
            "dead-letter",
            "list",
            "--subscription",
            "audit",
            "--after",
            "1",
            "--limit",
            "1"
        ])),
        [2]
    );
    let list = place.ok(&["dead-letter", "list"]);
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines[0], "SUBSCRIPTION  ID  TYPE   KEY  DIED      ATTEMPTS  ERROR");
    assert!(lines[1].ends_with("refused \\u{1b}[31mfor good"), "{list}");

    let letter = place.json(&["dead-letter", "show", "audit", "2"]);
    assert_eq!(
        (&letter["subscription"], &letter["event"]["id"], &letter["attempts"]),
        (&json!("audit"), &json!(2), &json!(1))
    );
    assert_eq!(letter["history"][0]["error"], "refused \x1b[31mfor good");
    assert_eq!(letter["history"][0]["member"], "refuser");
    let shown = place.ok(&["dead-letter", "show", "audit", "2"]);
    assert!(shown.contains("\n{\"total\": 99}\n") && shown.contains("ATTEMPT  STARTED"), "{shown}");

    let why = place.ok(&["event", "why", "2"]);
    assert!(why.contains("after 1 attempt (refused \\u{1b}[31mfor good)"), "{why}");
    assert!(why.contains("postrider dead-letter replay audit 2 --store sqlite://p.db"), "{why}");
    assert_eq!(place.json(&["subscription", "show", "audit"])["dead"], 3);
}

#[test]
fn an_edited_letter_is_delivered_as_edited_and_the_event_stays() {
    let place = with_dead_letters();
    let edited = place.ok(&["dead-letter", "edit", "audit", "2", "--payload", "{\"total\": 10}"]);
    assert_eq!(edited, "edited event 2 of audit: a replay delivers the new payload (13 bytes)\n");
    assert_eq!(place.json(&["dead-letter", "show", "audit", "2"])["edited"]["payload"], json!({"total": 10}));
    assert_eq!(place.json(&["dead-letter", "replay", "audit", "2"]), json!({"replayed": 1}));
    assert_eq!(events(&place.json(&["dead-letter", "list"])), [1, 3]);

    place.ok(&["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "--once"]);
    let delivered = place.delivered("out.jsonl");
    assert_eq!(delivered.len(), 1, "{delivered:?}");
    assert_eq!((&delivered[0]["id"], &delivered[0]["payload"]), (&json!(2), &json!({"total": 10})));
    assert_eq!(place.json(&["event", "show", "2"])["payload"], json!({"total": 99}));
}

#[test]
fn all_letters_are_replayed_or_discarded_at_once() {
    let place = with_dead_letters();
    assert_eq!(place.ok(&["dead-letter", "replay", "audit", "--all"]), "replayed 3 dead letters\n");
    assert_eq!(place.json(&["dead-letter", "list"]), json!([]));
    place.refuse_everything(NewSubscription::new("audit"));
    assert_eq!(events(&place.json(&["dead-letter", "list"])), [1, 2, 3]);
    assert_eq!(place.ok(&["dead-letter", "discard", "audit", "3", "--yes"]), "discarded 1 dead letter\n");
    assert_eq!(place.json(&["dead-letter", "discard", "audit", "--all", "--yes"]), json!({"discarded": 2}));
    assert_eq!(place.json(&["dead-letter", "discard", "audit", "--all", "--yes"]), json!({"discarded": 0}));
    let relayed = place.json(&["relay", "--subscription", "audit", "--sink", "null", "--once"]);
    assert_eq!(relayed["delivered"], 0);
}

#[test]
fn more_letters_than_one_bite_takes_are_all_replayed() {
    let place = Place::new();
    place.ok(&["subscription", "create", "audit", "--order", "none"]);
    place.ok(&["emit", "order", "--count", "2345"]);
    place.refuse_everything(NewSubscription::new("audit").order(Order::None));
    assert_eq!(place.json(&["dead-letter", "replay", "audit", "--all"]), json!({"replayed": 2345}));
    assert_eq!(
        place.json(&["relay", "--subscription", "audit", "--sink", "null", "--once"])["delivered"],
        2345
    );
}

#[test]
fn what_is_not_dead_cannot_be_repaired() {
    let place = with_dead_letters();
    for args in [
        &["dead-letter", "show", "audit", "7"][..],
        &["dead-letter", "edit", "audit", "7", "--payload", "1"],
        &["dead-letter", "replay", "audit", "7"],
        &["dead-letter", "discard", "audit", "7", "--yes"],
        &["dead-letter", "replay", "nobody", "1"],
        &["dead-letter", "replay", "nobody", "--all"],
        &["dead-letter", "list", "--subscription", "nobody"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 3, "{args:?}: {ran:?}");
        assert!(ran.stderr.starts_with("error: "), "{args:?}: {ran:?}");
    }
    assert_eq!(events(&place.json(&["dead-letter", "list"])), [1, 2, 3]);
}

#[test]
fn what_cannot_be_undone_needs_consent() {
    let place = with_dead_letters();
    for args in [
        &["dead-letter", "discard", "audit", "--all"][..],
        &["dead-letter", "discard", "audit", "1"],
        &["subscription", "delete", "audit"],
        &["subscription", "seek", "audit", "--to", "now"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("add --yes to agree"), "{args:?}: {ran:?}");
    }
    assert_eq!(events(&place.json(&["dead-letter", "list"])), [1, 2, 3]);
}

#[test]
fn what_destroys_or_skips_is_audited_with_the_user() {
    let place = with_dead_letters();
    place.ok(&["dead-letter", "discard", "audit", "1", "--yes"]);
    place.ok(&["subscription", "seek", "audit", "--to", "now", "--yes"]);
    place.ok(&["subscription", "delete", "audit", "--yes"]);
    let audit = place.audit();
    assert_eq!(audit.len(), 3, "{audit:?}");
    assert!(audit.iter().all(|(actor, _)| actor == "tester (cli)"), "{audit:?}");
}

#[test]
fn paging_over_all_subscriptions_loses_no_letter() {
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "2"]);
    for name in ["audit", "mail"] {
        place.refuse_everything(NewSubscription::new(name));
    }
    let page =
        |args: &[&str]| events(&place.json(&[&["dead-letter", "list", "--limit", "3"], args].concat()));
    assert_eq!(page(&[]), [1, 1], "the letters of event 2 do not all fit");
    assert_eq!(page(&["--after", "1"]), [2, 2]);
}

#[test]
fn why_tells_who_did_what_and_guesses_nothing() {
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "3"]);
    place.refuse_everything(NewSubscription::new("audit"));
    let why = |id: &str| {
        place.json(&["event", "why", id])["subscriptions"][0]["explanation"].as_str().unwrap().to_owned()
    };
    place.ok(&["dead-letter", "edit", "audit", "1", "--payload", "{}"]);
    assert!(
        why("1").contains(", edited by tester just now; `postrider dead-letter replay audit 1 "),
        "{}",
        why("1")
    );
    place.ok(&["dead-letter", "replay", "audit", "1"]);
    let waits = why("1");
    assert!(waits.starts_with("replayed by tester just now: due, and waits for its turn"), "{waits}");
    place.ok(&["dead-letter", "discard", "audit", "2", "--yes"]);
    place.ok(&["relay", "--subscription", "audit", "--sink", "null", "--once"]);
    let told = why("1");
    let (failed, then) = told.split_once(')').unwrap();
    assert!(failed.starts_with("failed once (refused "), "{told}");
    assert!(
        then.starts_with(", edited by tester, replayed by tester ") && then.ends_with(", delivered"),
        "{told}"
    );
    let told = why("2");
    assert!(told.starts_with("failed once (") && told.contains("), discarded by tester "), "{told}");
    let shown = place.ok(&["event", "show", "1"]);
    assert!(shown.contains("\nedited for audit by tester (cli) "), "{shown}");
    let none = place.run(&["dead-letter", "discard", "audit", "3", "--yes"]);
    assert_eq!(none.code, 0);
    let none = place.run(&["dead-letter", "discard", "audit", "--all"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, "discarded 0 dead letters\n"));
    assert!(none.stderr.contains("`audit` has no dead letters"), "{none:?}");
}
