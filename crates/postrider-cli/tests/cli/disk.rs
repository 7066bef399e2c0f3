//! A disk that does not keep what it was given.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Place, Running, until};

/// The binary behind strace, which lets some of its system calls fail.
fn with_fault(place: &Place, fault: &[&str], args: &[&str]) -> Command {
    let plain = place.command(args);
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-o", "/dev/null"])
        .args(fault)
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(place.dir())
        .stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Every flush fails as a dying disk would.
fn without_flushes(place: &Place, args: &[&str]) -> Command {
    with_fault(place, &["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"], args)
}

/// The only member's process, which is the second part of its name.
fn relay_pid(place: &Place) -> Pid {
    let members = &place.json(&["stats"])["members"];
    let pid = members[0].as_str().and_then(|name| name.rsplit(':').next()).and_then(|pid| pid.parse().ok());
    Pid::from_raw(pid.expect("a member is called host:pid")).unwrap()
}

#[test]
fn nothing_is_handed_out_that_is_not_on_disk() {
    let place = Place::new();
    place.ok(&["emit", "order", "--payload", "1"]);
    // Another connection reads all the while, so the events stay in the WAL and have to be flushed from
    // there: they cannot be moved into the database, by flushes of another kind, instead.
    let other = postrider_sqlite::rusqlite::Connection::open(place.database()).unwrap();
    other.execute("insert into postrider_event (topic, type) values ('late', 'late')", []).unwrap();
    other.execute_batch("begin; select count(*) from postrider_event").unwrap();
    // A relay that hands out all the same comes to an end, and with it the lines that are waited for.
    let relay = ["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "--once"];
    let mut child = without_flushes(&place, &relay)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace is installed by `cargo xtask setup`");
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let told = stderr.lines().map_while(Result::ok).find(|line| line.contains("cannot flush"));
    assert!(told.is_some(), "it ended without saying that nothing can be flushed");
    // Not strace itself: the relay would live on without it.
    kill_process(relay_pid(&place), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert_eq!(place.delivered("out.jsonl").len(), 0);
    drop(other);
    place.ok(&["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "--once"]);
    assert_eq!(place.delivered("out.jsonl").len(), 2, "a healthy disk gets everything");
}

#[test]
fn a_full_disk_delays_what_goes_to_a_file_and_loses_nothing() {
    const EVENTS: i64 = 50;
    let place = Place::new();
    place.ok(&["emit", "order", "--count", &EVENTS.to_string()]);
    place.write("out.jsonl", "");
    let out = place.path("out.jsonl").canonicalize().unwrap();
    // There is no room for the first writes of each thread, and nothing else is concerned.
    let fault =
        ["-P", out.to_str().unwrap(), "-e", "trace=write", "-e", "inject=write:error=ENOSPC:when=1..3"];
    let args = ["relay", "--subscription", "audit", "--sink", "file:out.jsonl"];
    let running = Running::start(with_fault(&place, &fault, &args), "owned");
    running.says("free some space; nothing is lost meanwhile", 1);
    until("there is room again", || place.delivered("out.jsonl").len() as i64 >= EVENTS);
    kill_process(relay_pid(&place), Signal::TERM).unwrap();
    assert_eq!(running.ended().code(), Some(0));
    let lines = place.delivered("out.jsonl");
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, (1..=EVENTS).collect::<Vec<_>>(), "nothing of it was written twice");
    assert!(lines.iter().all(|line| line["attempt"] == 1), "a full disk is no fault of an event");
}
