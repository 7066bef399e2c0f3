//! What others know of the process.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use postrider_testkit::postgres::{Server, Settings, Version};
use rustix::process::Signal;

use crate::harness::{Place, Running, until};

const CONFIG: &str = "health_file = 'well'\npid_file = 'p.pid'\n\
                      [sinks.out]\nurl = 'file:out.jsonl'\n[subscriptions.a]\nsink = 'out'\n";
const RELAY: [&str; 3] = ["relay", "--config", "p.toml"];

/// Stands for systemd.
struct Manager(UnixDatagram);

impl Manager {
    fn new(place: &Place) -> Self {
        let socket = UnixDatagram::bind(place.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(socket)
    }

    /// The relay, watched.
    fn relay(place: &Place) -> Command {
        let mut command = place.command(&RELAY);
        command.env("NOTIFY_SOCKET", place.path("notify")).env("WATCHDOG_USEC", "600000");
        command
    }

    fn next(&self) -> String {
        let mut told = [0; 1000];
        let length = self.0.recv(&mut told).expect("it tells in time");
        String::from_utf8(told[..length].to_vec()).unwrap()
    }

    /// The next that is not about the watchdog.
    fn next_but_watchdog(&self) -> String {
        loop {
            let told = self.next();
            if told != "WATCHDOG=1\n" {
                return told;
            }
        }
    }

    /// Whether nothing has been told.
    fn has_heard_nothing(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let nothing = self.0.recv(&mut [0; 10]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).unwrap();
        nothing
    }
}

#[test]
fn systemd_is_told_of_a_life_from_ready_to_stopping() {
    let place = Place::new();
    place.write("p.toml", CONFIG);
    let manager = Manager::new(&place);
    let running = Running::start(Manager::relay(&place), "ready: every store has taken a beat");
    let ready = manager.next_but_watchdog();
    assert_eq!(ready, "READY=1\nSTATUS=delivering 1 subscription from 1 store\n");
    for _ in 0..3 {
        assert_eq!(manager.next(), "WATCHDOG=1\n");
    }
    running.signal(Signal::HUP);
    let reloading = manager.next_but_watchdog();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.next_but_watchdog(), ready);
    place.write("p.toml", "nonsense\n");
    running.signal(Signal::HUP);
    assert!(manager.next_but_watchdog().starts_with("RELOADING=1\n"));
    assert_eq!(
        manager.next_but_watchdog(),
        "READY=1\nSTATUS=the last reload was refused; the old config is in force\n"
    );
    running.signal(Signal::TERM);
    assert_eq!(manager.next_but_watchdog(), "STOPPING=1\nSTATUS=draining\n");
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn a_relay_is_ready_only_once_its_store_answers_and_well_only_while_it_does() {
    let place = Place::new();
    let mut server = Server::start(Version::V15, Settings::honest());
    let url = server.create_database().url.clone();
    server.kill_9();
    place.write("p.toml", CONFIG);
    let manager = Manager::new(&place);
    let mut command = Manager::relay(&place);
    command.env("POSTRIDER_STORE", &url);
    let running = Running::start(command, "the store cannot be opened; trying again");
    assert!(manager.has_heard_nothing() && !place.path("well").exists());
    server.start_again();
    assert!(manager.next().starts_with("READY=1\n"));
    until("it is well", || place.path("well").exists());
    place.ok(&["emit", "order", "--store", &url]);
    until("it delivers", || place.delivered("out.jsonl").len() == 1);
    server.kill_9();
    until("it is no longer well", || !place.path("well").exists());
    // Reads the messages that were sent before; from here on the relay does not feed the watchdog.
    while !manager.has_heard_nothing() {}
    manager.0.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let told = manager.0.recv(&mut [0; 100]);
    assert!(told.is_err(), "the watchdog was fed although the store is dead");
    manager.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    server.start_again();
    assert_eq!(manager.next(), "WATCHDOG=1\n");
    until("it is well again", || place.path("well").exists());
    place.ok(&["emit", "later", "--store", &url]);
    // What came before the crash may come once more: its settle was not flushed.
    until("it delivers again", || place.delivered("out.jsonl").iter().any(|line| line["topic"] == "later"));
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
    assert!(!place.path("well").exists(), "nobody is well who is not there");
}

/// A server that is frozen takes connections and bytes and answers nothing: only a beat there and back tells that.
#[test]
fn a_relay_whose_store_hangs_is_no_longer_well_though_its_connections_are_up() {
    let place = Place::new();
    let mut server = Server::start(Version::V15, Settings::honest());
    let url = server.create_database().url.clone();
    place.write("p.toml", CONFIG);
    let manager = Manager::new(&place);
    let mut command = Manager::relay(&place);
    command.env("POSTRIDER_STORE", &url);
    let running = Running::start(command, "ready: every store has taken a beat");
    until("it is well", || place.path("well").exists());
    server.freeze();
    until("it is no longer well", || !place.path("well").exists());
    while !manager.has_heard_nothing() {}
    manager.0.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let told = manager.0.recv(&mut [0; 100]);
    assert!(told.is_err(), "the watchdog was fed although the store does not answer");
    manager.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    server.thaw();
    assert_eq!(manager.next(), "WATCHDOG=1\n");
    until("it is well again", || place.path("well").exists());
    place.ok(&["emit", "order", "--store", &url]);
    until("it delivers again", || place.delivered("out.jsonl").len() == 1);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn a_pid_file_names_the_process_while_it_lives() {
    let place = Place::new();
    place.write("p.toml", CONFIG);
    let pid = || std::fs::read_to_string(place.path("p.pid"));
    let running = Running::start(place.command(&RELAY), "owned");
    assert_eq!(pid().unwrap(), format!("{}\n", running.pid()));
    let second = place.run(&RELAY);
    assert!(second.code == 4 && second.stderr.contains("end it first"), "{second:?}");
    assert_eq!(pid().unwrap(), format!("{}\n", running.pid()));
    // After a crash the file is left behind, and does not keep the next process from starting.
    running.kill();
    assert!(pid().is_ok());
    let running = Running::start(place.command(&RELAY), "owned");
    assert_eq!(pid().unwrap(), format!("{}\n", running.pid()));
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
    assert!(pid().is_err());
    let typed = ["relay", "--subscription", "a", "--sink", "null", "--once", "--pid", "no/p.pid"];
    assert_eq!(place.run(&typed).code, 2);
}

#[test]
fn nothing_is_lost_when_a_relay_of_many_is_killed_in_the_middle() {
    const EVENTS: usize = 6_000;
    let place = Place::new();
    let config = ["a", "b", "c"].map(|name| {
        format!("[sinks.{name}]\nurl = 'file:{name}.jsonl'\n[subscriptions.{name}]\nsink = '{name}'\n")
    });
    place.write("p.toml", config.concat());
    for round in 1..=3 {
        let running = Running::start(place.command(&RELAY), "owned");
        place.ok(&["emit", "order", "--count", &(EVENTS / 3).to_string()]);
        until("some are delivered", || place.delivered("b.jsonl").len() > (round - 1) * EVENTS / 3);
        running.kill();
    }
    let ran = place.run(&["relay", "--config", "p.toml", "--once"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for name in ["a", "b", "c"] {
        let ids: std::collections::BTreeSet<i64> = place
            .delivered(&format!("{name}.jsonl"))
            .iter()
            .map(|line| line["id"].as_i64().unwrap())
            .collect();
        assert_eq!(ids.len(), EVENTS, "{name}");
    }
}
