use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use postrider_core::NewSubscription;
use postrider_sqlite::rusqlite::Connection;
use serde_json::json;

use crate::harness::{Place, snapshot};

#[test]
fn migrate_makes_a_store_and_says_which() {
    let place = Place::new();
    let first = place.json(&["store", "migrate"]);
    assert_eq!(first["schema_version"], 1);
    assert_eq!(place.json(&["store", "migrate"]), first);
    assert!(place.ok(&["store", "migrate"]).ends_with(" is at schema version 1\n"));
}

#[test]
fn a_command_leaves_one_complete_file() {
    let place = Place::new();
    let alone =
        || snapshot(place.dir()).into_iter().map(|(path, _)| path).collect::<Vec<_>>() == [place.database()];
    for args in [
        &["emit", "order", "--count", "1500"][..],
        &["relay", "--subscription", "a", "--sink", "null", "--once"],
        &["stats"],
        &["store", "prune", "--retention", "0s"],
    ] {
        place.ok(args);
        assert!(alone(), "{args:?} left more than one file");
    }
    assert_eq!(place.run(&["event", "show", "7777"]).code, 3);
    assert!(alone(), "an error left more than one file");
}

#[test]
fn the_printed_sql_makes_the_same_store_and_printing_makes_none() {
    let place = Place::new();
    let sql = place.ok(&["store", "migrate", "--sql"]);
    assert_eq!(place.json(&["store", "migrate", "--sql"])["sql"], sql);
    assert!(!place.database().exists());
    Connection::open(place.database()).unwrap().execute_batch(&sql).unwrap();
    place.ok(&["emit", "order"]);
    assert_eq!(place.ok(&["store", "check"]), "no damage found\n");
}

#[test]
fn processes_that_make_the_same_store_at_once_all_succeed() {
    let place = Place::new();
    let start =
        |args: &[&str]| place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> =
        (0..6).flat_map(|_| [start(&["store", "migrate"]), start(&["emit", "order"])]).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(place.json(&["stats"])["events"], 6);
}

#[test]
fn a_check_tells_what_it_found_with_a_code_of_its_own() {
    let place = Place::new();
    place.ok(&["subscription", "create", "audit"]);
    place.ok(&["emit", "order"]);
    assert_eq!(place.json(&["store", "check"]), json!({"findings": []}));
    place.refuse_everything(NewSubscription::new("audit"));
    let database = Connection::open(place.database()).unwrap();
    database.execute("delete from postrider_event", []).unwrap();
    drop(database);
    let ran = place.run(&["store", "check"]);
    assert_eq!(ran.code, 10, "{ran:?}");
    assert!(ran.stdout.starts_with("1 problem found\n- event 1 is gone"), "{ran:?}");
    let ran = place.run(&["store", "check", "--json"]);
    assert_eq!(ran.code, 10);
    assert!(ran.stdout.starts_with("{\"findings\":[\"event 1 is gone"), "{ran:?}");
}

#[test]
fn pruning_keeps_what_is_young_or_undelivered() {
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "2500"]);
    place.ok(&["subscription", "create", "audit"]);
    assert_eq!(place.json(&["store", "prune"]), json!({"removed": 0, "pinned_by": null}));
    let pinned = place.ok(&["store", "prune", "--retention", "0s"]);
    assert_eq!(pinned, "removed 0 events\nolder events stay for audit, which has not delivered them yet\n");
    place.ok(&["relay", "--subscription", "audit", "--sink", "null", "--once"]);
    assert_eq!(place.ok(&["store", "prune", "--retention", "0s"]), "removed 2,500 events\n");
    assert_eq!(place.json(&["stats"])["events"], 0);
}

/// Every command that opens a store ends with this code and these words, and the files stay as they are.
fn check_refused(place: &Place, code: i32, words: &str) {
    let before = snapshot(place.dir());
    for args in [
        &["emit", "order"][..],
        &["stats"],
        &["store", "migrate"],
        &["relay", "--subscription", "a", "--sink", "null", "--once"],
        &["up"],
        &["subscription", "create", "a"],
        &["event", "list", "--json"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
        assert!(snapshot(place.dir()) == before, "{args:?} changed a file");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    place.write("p.db", "This is a letter to my aunt. ".repeat(100));
    check_refused(&place, 6, "is not an SQLite database");
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    place.ok(&["emit", "order"]);
    let database = Connection::open(place.database()).unwrap();
    database
        .execute(
            "update postrider_meta set value = '999' where name in ('schema_version', 'oldest_version')",
            [],
        )
        .unwrap();
    drop(database);
    check_refused(&place, 7, "use a newer Postrider");
}

#[test]
fn damage_in_the_middle_is_found_before_a_relay_works_on_it() {
    let place = Place::new();
    place.ok(&["emit", "order", "--count", "5000", "--payload", "\"some text to fill pages\""]);
    let file = fs::OpenOptions::new().write(true).open(place.database()).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    for page in pages / 2..pages / 2 + 20 {
        file.write_all_at(&[0xa5; 4096], page * 4096).unwrap();
    }
    let ran = place.run(&["relay", "--subscription", "a", "--sink", "null", "--once"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("restore it from a backup"), "{ran:?}");
    let ran = place.run(&["store", "check"]);
    assert!([6, 10].contains(&ran.code), "{ran:?}");
}

#[test]
fn a_store_that_may_not_be_written_is_told_as_such() {
    const NOBODY: u32 = 65534;
    let place = Place::new();
    place.ok(&["emit", "order"]);
    let dir = place.dir().to_owned();
    let binary = place.path("postrider");
    fs::copy(env!("CARGO_BIN_EXE_postrider"), &binary).unwrap();
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let mode = if path == binary { 0o555 } else { 0o444 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = std::process::Command::new(&binary);
    command.args(["emit", "order", "--store", "sqlite://p.db"]).current_dir(&dir);
    if rustix::process::geteuid().is_root() {
        // Nothing is forbidden to root.
        command.uid(NOBODY);
    }
    let output = command.output().unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{stderr}");
    assert!(stderr.contains("right") && stderr.contains("directory"), "{stderr}");
    assert_eq!(place.json(&["stats"])["events"], 1);
}

#[test]
fn a_locked_store_is_busy_not_broken() {
    let place = Place::new();
    place.ok(&["emit", "order"]);
    let database = Connection::open(place.database()).unwrap();
    database.execute_batch("begin immediate").unwrap();
    let ran = place.run(&["emit", "order", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.starts_with("{\"error\":{\"exit_code\":5,\"kind\":\"busy\","), "{ran:?}");
    database.execute_batch("rollback").unwrap();
    assert_eq!(place.ok(&["emit", "order"]), "emitted event 2\n");
}
