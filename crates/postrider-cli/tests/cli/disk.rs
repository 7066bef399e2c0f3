//! A disk that does not keep what it was given.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Place;

/// The binary's arguments behind strace, which lets every flush fail as a dying disk would.
fn without_flushes(place: &Place, args: &[&str]) -> Command {
    let plain = place.command(args);
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"])
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
    // Somebody reads all the while, so that the events stay in the WAL and have to be flushed from there: they cannot be moved
    // into the database, by flushes of another kind, instead.
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
