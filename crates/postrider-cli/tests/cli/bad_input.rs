use postrider_core::limits;

use crate::harness::{Place, snapshot};

/// The command ends with this code, its stderr holds these words, its stdout is empty, and neither an
/// absent nor an existing store is touched.
#[track_caller]
fn check(place: &Place, args: &[&str], code: i32, words: &str) {
    let before = snapshot(place.dir());
    let ran = place.run(args);
    assert_eq!(ran.code, code, "{args:?}: {ran:?}");
    assert!(ran.stderr.contains(words), "{args:?}: `{words}` is missing in {}", ran.stderr);
    assert!(ran.stderr.starts_with("error: "), "{args:?}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{args:?}");
    assert!(snapshot(place.dir()) == before, "{args:?} changed a file");
}

fn check_all(cases: &[(&[&str], i32, &str)]) {
    let absent = Place::new();
    let existing = Place::new();
    existing.ok(&["emit", "order"]);
    for (args, code, words) in cases {
        check(&absent, args, *code, words);
        check(&existing, args, *code, words);
    }
    assert_eq!(existing.json(&["stats"])["events"], 1);
}

#[test]
fn bad_options_are_refused_with_a_remedy() {
    check_all(&[
        (&["emit", "order", "--colour", "red"], 2, "--color"),
        (&["emit", "order", "--due", "-5m"], 2, "negative"),
        (&["emit", "order", "--due", "soon"], 2, "write it as 500ms, 10s, 5m, 2h or 7d"),
        (&["emit", "order", "--due", "99999d"], 2, "check its unit"),
        (&["emit", "order", "--due", "99999999999999999999s"], 2, "write it as"),
        (&["emit", "order", "--count", "-1"], 2, "--count"),
        (&["emit", "order", "--header", "novalue"], 2, "NAME=VALUE"),
        (&["relay", "--subscription", "a", "--sink", "null", "--retention", "-1d"], 2, "write it as"),
        (&["relay", "--subscription", "a", "--sink", "null", "--timeout", "0s"], 2, "more than zero"),
        (&["relay", "--subscription", "a", "--sink", "null", "--timeout", "25h"], 2, "at most 24 hours"),
        (&["relay", "--subscription", "a", "--sink", "null", "--retry", "fixed:31d"], 2, "check its unit"),
        (&["relay", "--subscription", "a", "--sink", "null", "--from", "yesterday"], 2, "use start, now"),
        (&["relay", "--subscription", "a", "--sink", "fax:1"], 2, "use stdout, null"),
        (&["relay", "--subscription", "a b", "--sink", "null"], 2, "use letters, digits"),
        (&["subscription", "create", "a", "--topic", "x y"], 2, "use letters, digits"),
        (&["subscription", "create", ""], 2, "1 to 100 bytes"),
        (&["subscription", "create", "a", "--mode", "queue", "--per-key", "2"], 2, "is for order `none`"),
        (&["subscription", "create", "a", "--order", "none", "--per-key", "2"], 2, "choose mode `queue`"),
        (&["subscription", "frobnicate"], 2, "unrecognized subcommand"),
        (&["store", "prune", "--retention", "yesterday"], 2, "write it as"),
    ]);
}

#[test]
fn bad_events_are_refused_with_a_remedy() {
    let long_key = "k".repeat(limits::KEY_BYTES_MAX + 1);
    let long_header = format!("h={}", "v".repeat(limits::HEADERS_BYTES_MAX));
    check_all(&[
        (&["emit", "order", "--payload", "{\"a\":"], 2, "line 1 column 5"),
        (&["emit", "order", "--payload", "{'a':1}"], 2, "--raw"),
        (&["emit", "order", "--payload", "@nowhere.json"], 3, "`nowhere.json`"),
        (&["emit", "order", "--payload", "@/dev/zero", "--raw"], 2, "emit a reference"),
        (&["emit", "order", "--key", &long_key], 2, "the limit is 1024"),
        (&["emit", "order", "--key", ""], 2, "leave it out"),
        (&["emit", "order", "--header", &long_header], 2, "the limit is 16384"),
        (&["emit", "order", "--header", "a=b\r\nc: d"], 2, "line break"),
        (&["emit", "two words"], 2, "use letters, digits"),
        (&["emit", "order", "--type", "order*"], 2, "use letters, digits"),
        (&["emit", "--jsonl", "nowhere.jsonl"], 3, "`nowhere.jsonl`"),
    ]);
}

#[test]
fn bad_schedules_are_refused_with_a_remedy() {
    let put = |name: &'static str, cron: &'static str, zone: &'static str| {
        ["schedule", "put", name, "--topic", "order", "--cron", cron, "--zone", zone]
    };
    check_all(&[
        (&put("a b", "@daily", "UTC"), 2, "use letters, digits"),
        (&put("a", "0 9 * *", "UTC"), 2, "write minute, hour, day, month and weekday"),
        (&put("a", "0 25 * * *", "UTC"), 2, "`0 25 * * *` is no cron expression"),
        (&put("a", "0 0 30 2 *", "UTC"), 2, "never comes"),
        (&put("a", "@daily", "Europe/Berlim"), 2, "did you mean Europe/Berlin?"),
        (&put("a", "@daily", "Nowhere"), 2, "use a name such as Europe/Berlin"),
        (&["schedule", "put", "a", "--cron", "@daily"], 2, "--topic"),
        (
            &["schedule", "put", "a", "--cron", "@daily", "--topic", "a", "--missed", "some"],
            2,
            "skip, once, all",
        ),
        (&["schedule", "put", "a", "--cron", "@daily", "--topic", "a", "--payload", "{"], 2, "--raw"),
        (
            &["schedule", "put", "a", "--cron", "@daily", "--topic", "a", "--header", "postrider-tick=1"],
            2,
            "leave it out",
        ),
    ]);
}

#[test]
fn oversize_payloads_are_refused_wherever_they_come_from() {
    let place = Place::new();
    let large = format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX));
    place.write("large.json", &large);
    check(&place, &["emit", "order", "--payload", "@large.json"], 2, "emit a reference");
    let ran = place.piped(&["emit", "order", "--payload", "-"], &large);
    assert_eq!(ran.code, 2, "{ran:?}");
    let ran = place.piped(&["emit", "--jsonl", "-"], &format!("{{\"topic\":\"t\",\"payload\":{large}}}\n"));
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("line 1 of stdin") && ran.stderr.contains("nothing was written"), "{ran:?}");
    assert!(!place.database().exists());
    // One byte less on each side fits.
    let fits = format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2));
    assert_eq!(place.piped(&["emit", "order", "--payload", "-"], &fits).stdout, "emitted event 1\n");
}

#[test]
fn bad_store_urls_are_refused_without_repeating_secrets() {
    let place = Place::new();
    for (url, code, words) in [
        ("", 2, "sqlite://FILE"),
        ("p.db", 2, "write sqlite://p.db"),
        ("mysql://user:secret@host/db", 2, "sqlite://FILE"),
        ("postgres://user:secret@host/db?nonsense=1", 2, "write postgres://USER@HOST/DATABASE"),
        ("postgres://user:secret@127.0.0.1:1/db", 5, "cannot connect to postgres://127.0.0.1:1/db"),
        ("sqlite://", 2, "write sqlite://FILE"),
        ("sqlite://p.db?mode=secret", 2, "takes no options"),
        ("sqlite://no/such/folder/p.db", 3, "create it, or correct the store's path"),
        ("sqlite://.", 2, "is a directory"),
        ("sqlite::memory:", 2, "needs a file"),
    ] {
        check(&place, &["emit", "order", "--store", url], code, words);
        let ran = place.run(&["emit", "order", "--store", url]);
        assert!(!ran.stderr.contains("secret"), "{ran:?}");
    }
    let mut command = place.command(&["relay", "--help"]);
    let help = command.env("POSTRIDER_STORE", "postgres://user:secret@host/db").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("secret"));
}

#[test]
fn what_only_reads_makes_no_store() {
    let place = Place::new();
    for args in [
        &["stats"][..],
        &["event", "list"],
        &["subscription", "list"],
        &["subscription", "pause", "a"],
        &["schedule", "list"],
        &["schedule", "pause", "a"],
        &["dead-letter", "list"],
        &["store", "check"],
        &["store", "prune"],
    ] {
        check(&place, args, 3, "postrider store migrate");
    }
}

#[test]
fn what_does_not_exist_is_told_as_such() {
    let place = Place::new();
    place.ok(&["emit", "order"]);
    for args in [
        &["event", "show", "2"][..],
        &["event", "why", "2"],
        &["subscription", "show", "a"],
        &["subscription", "pause", "a"],
        &["subscription", "resume", "a"],
        &["subscription", "seek", "a", "--to", "now", "--yes"],
        &["subscription", "delete", "a", "--yes"],
        &["schedule", "show", "a"],
        &["schedule", "pause", "a"],
        &["schedule", "resume", "a"],
        &["schedule", "delete", "a", "--yes"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 3, "{args:?}: {ran:?}");
        let ran = place.run(&[args, &["--json"]].concat());
        assert!(ran.stderr.contains("\"kind\":\"not_found\""), "{args:?}: {ran:?}");
    }
}

#[test]
fn an_error_cannot_reach_the_terminal_unescaped() {
    let place = Place::new();
    let ran = place.run(&["subscription", "show", "\x1b[2J", "--store", "sqlite://p.db"]);
    assert!(!ran.stderr.contains('\x1b'), "{ran:?}");
    place.ok(&["store", "migrate"]);
    let ran = place.run(&["subscription", "show", "\x1b[2J"]);
    assert!(ran.code == 3 && !ran.stderr.contains('\x1b'), "{ran:?}");
    let ran = place.run(&["event", "show", "\x1b[2J"]);
    assert!(ran.code == 2 && !ran.stderr.contains('\x1b'), "{ran:?}");
    let ran = place.run(&["event", "show", "x", "--json"]);
    assert!(ran.code == 2 && ran.stderr.starts_with("{\"error\":"), "{ran:?}");
}
