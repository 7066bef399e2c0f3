//! A canary in every place where a store's password can stand, and in everything that the binary says.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::harness::{Place, Running};

const CANARY: &str = "cAnArY9";

/// Nothing listens there.
const NOWHERE: &str = "127.0.0.1:1";

/// Ways to name a store, right and wrong, each with a password in it.
fn stores() -> Vec<String> {
    [
        "postgres://u:CANARY@NOWHERE/db",
        "postgres://u:p@CANARY@NOWHERE/db",
        "postgresql://u:CANARY@NOWHERE/db?connect_timeout=1",
        "postgres://u:CANARY@NOWHERE/db?nonsense=CANARY",
        "postgres://u:CANARY@NOWHERE/db?CANARY",
        "postgres://u:p?CANARY@NOWHERE/db",
        "postgres://u:p/CANARY@NOWHERE/db",
        "postgres://u:p#CANARY@NOWHERE/db",
        "postgres://u:%CANARY@NOWHERE/db",
        "postgres://NOWHERE/db?user=u&password=CANARY",
        "postgres://u@NOWHERE:CANARY/db",
        "postgres:u:CANARY@NOWHERE",
        "postgres//u:CANARY@NOWHERE",
        "host=NOWHERE password=CANARY",
        "host=NOWHERE password=a:CANARY",
        "password=CANARY://x",
        "mysql://u:CANARY@h/db",
        "u:CANARY@h",
        "CANARY",
    ]
    .iter()
    .map(|form| form.replace("CANARY", CANARY).replace("NOWHERE", NOWHERE))
    .collect()
}

/// One command of each kind, and some that cannot be understood.
const COMMANDS: [&[&str]; 17] = [
    &["up"],
    &["emit", "order"],
    &["stats"],
    &["event", "list"],
    &["event", "why", "1"],
    &["dead-letter", "list"],
    &["dead-letter", "discard", "a", "--all", "--yes"],
    &["subscription", "list"],
    &["subscription", "create", "a"],
    &["schedule", "list"],
    &["store", "migrate"],
    &["store", "check"],
    &["store", "roles"],
    &["store", "adopt"],
    &["relay", "--subscription", "a", "--sink", "null", "--once"],
    &["relay", "--subscription", "a", "--sink", "null", "--check"],
    &["stats", "--nonsense"],
];

/// Runs a command to its end; nothing that it says has the canary in it.
fn check(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(!said.contains(CANARY), "{command:?} says {said}");
    assert!(!said.contains("panicked") && !said.contains("a bug of postrider"), "{command:?} says {said}");
    said
}

#[test]
fn no_command_says_a_word_of_the_store_that_was_typed() {
    let place = Place::new();
    for store in stores() {
        for args in COMMANDS {
            check(place.command(args).args(["--store", &store, "-vvvvv"]));
        }
    }
}

#[test]
fn no_error_says_it_whichever_way_the_store_is_named() {
    let place = Place::new();
    let dir = place.dir().to_owned();
    for (number, store) in stores().iter().enumerate() {
        check(place.command(&["stats", "--json"]).args(["--store", store]));
        check(place.command(&["stats", "--log-format", "json"]).env("POSTRIDER_STORE", store));
        check(place.command(&["stats", "--store", "env:CANARY_URL"]).env("CANARY_URL", store));
        let (url, config) = (format!("url{number}"), format!("p{number}.toml"));
        place.write(&url, store);
        check(place.command(&["stats"]).args(["--store", &format!("file:{}", dir.join(&url).display())]));
        let text = format!("store = {store:?}\n[sinks.out]\nurl = 'null'\n[subscriptions.a]\nsink = 'out'\n");
        place.write(&config, text);
        for format in ["human", "json"] {
            check(
                place
                    .command(&["relay", "--config", &config, "--check", "--log-format", format])
                    .env_remove("POSTRIDER_STORE"),
            );
        }
        // Where it does not belong. A word that nothing tells from others is repeated.
        if store == CANARY {
            continue;
        }
        check(&mut place.command(&["stats", store]));
        check(&mut place.command(&["emit", "order", "--due", store]));
        check(place.command(&["stats"]).arg(format!("--stor={store}")));
    }
}

#[test]
fn what_is_not_text_is_an_error_and_no_panic() {
    let place = Place::new();
    let odd = |text: &str| {
        let mut word = OsString::from(text);
        word.push(OsStr::from_bytes(b"\xff"));
        word
    };
    let url = format!("postgres://u:{CANARY}@{NOWHERE}/db");
    let bad = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        check(command);
    };
    bad(place.command(&["stats"]).args([OsString::from("--store"), odd(&url)]));
    bad(place.command(&["stats", "--store", &url]).arg(odd("x")));
    bad(place.command(&["stats"]).env("POSTRIDER_STORE", odd(&url)));
}

#[test]
fn a_file_of_passwords_that_others_may_read_is_not_used() {
    let place = Place::new();
    let db = postrider_testkit::postgres::shared(postrider_testkit::postgres::Version::V15).create_database();
    // The server trusts everybody on this machine, so that only the client's side of it can be seen here:
    // with a file that others may read, a warning; with one that they may not, none.
    let file = place.dir().join("pgpass");
    std::fs::write(&file, format!("*:*:*:*:{CANARY}\n")).unwrap();
    let run = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        check(place.command(&["stats", "--store", &db.url]).env("PGPASSFILE", &file))
    };
    assert!(run(0o644).contains("others may read it"), "it is not used");
    assert!(!run(0o600).contains("others may read it"));
}

#[test]
fn the_arguments_of_a_relay_and_its_children_hold_no_password() {
    let place = Place::new();
    place.ok(&["emit", "order"]);
    let url = format!("sqlite://{}", place.database().display());
    let mut command =
        place.command(&["relay", "--subscription", "a", "--sink", "exec:cat", "--store", "env:CANARY_URL"]);
    command.env("CANARY_URL", &url).env("UNRELATED", CANARY);
    let relay = Running::start(command, "owned");
    let arguments = std::fs::read(format!("/proc/{}/cmdline", relay.pid())).unwrap();
    let shown = String::from_utf8_lossy(&arguments).replace('\0', " ");
    assert!(shown.contains("env:CANARY_URL") && !shown.contains(&url), "{shown}");
    relay.kill();
}
