//! `kill -9` of anything, at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use postrider_testkit::postgres::{Version, shared};
use serde_json::Value;

use crate::harness::{Place, until};

const KEYS: u32 = 40;
const ROUNDS: u32 = 30;
/// Few enough for one transaction.
const EVENTS_A_ROUND: usize = 500;

#[test]
fn nothing_is_lost_and_keys_keep_their_order_whenever_processes_are_killed() {
    let seed = match std::env::var("POSTRIDER_KILL_SEED") {
        Ok(seed) => seed.parse().expect("POSTRIDER_KILL_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    // Shown when the test fails. The moments depend on the machine too, so the seed repeats a run only roughly.
    println!("POSTRIDER_KILL_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let place = Place::new();
    place.ok(&["subscription", "create", "audit"]);
    let relay =
        || spawn(place.command(&["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "-q"]));
    let mut relays = vec![relay()];
    let mut confirmed = 0;
    for round in 0..ROUNDS {
        let file = place.write("events.jsonl", lines(&mut rng, round));
        let mut producer = spawn(place.command(&["emit", "--jsonl", &file]));
        // Sometimes the next relay stands by already when the present one is killed.
        if rng.bool() {
            relays.push(relay());
        }
        pause(&mut rng);
        kill(relays.remove(0));
        if relays.is_empty() {
            relays.push(relay());
        }
        // Some producers are killed while they write: their events are there as a whole or not at all.
        if rng.u8(..4) == 0 {
            kill(producer);
        } else {
            assert!(producer.wait().unwrap().success());
            confirmed += EVENTS_A_ROUND;
        }
    }
    let kills = ROUNDS as usize + relays.len();
    relays.into_iter().for_each(kill);
    let ran = place.run(&["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "--once"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let emitted = all_events(&place);
    assert!(emitted.len() >= confirmed, "{} of {confirmed} confirmed events are there", emitted.len());
    assert_eq!(emitted.len() % EVENTS_A_ROUND, 0, "a transaction was written in part");
    check_history(&emitted, &place.delivered("out.jsonl"), kills);
    assert_eq!(place.json(&["subscription", "list"])[0]["lag_events"], 0);
    assert_eq!(place.ok(&["store", "check"]), "no damage found\n");
}

/// In mode `queue` what a killed relay had in its hands is leased for a while, and what was in the hands of
/// three of them is a dead letter: everything is delivered or that, and nothing of a key comes before its
/// predecessor.
#[test]
fn nothing_is_lost_of_a_queue_whenever_its_workers_are_killed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let place = Place::new();
    place.ok(&["subscription", "create", "audit", "--mode", "queue", "--lease", "1s"]);
    let args = ["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "-q"];
    for round in 0..ROUNDS / 3 {
        let file = place.write("events.jsonl", lines(&mut rng, round));
        let relay = spawn(place.command(&args));
        place.ok(&["emit", "--jsonl", &file]);
        pause(&mut rng);
        kill(relay);
    }
    let left = || {
        let report = &place.json(&["subscription", "list"])[0];
        ["lag_events", "pending", "leased"].iter().map(|what| report[what].as_u64().unwrap()).sum::<u64>()
    };
    until("everything is delivered or a dead letter", || {
        let ran = place.run(&["relay", "--subscription", "audit", "--sink", "file:out.jsonl", "--once"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        left() == 0
    });
    let dead = place.json(&["dead-letter", "list", "--limit", "1000"]);
    let dead: BTreeSet<i64> =
        dead.as_array().unwrap().iter().map(|letter| letter["event"]["id"].as_i64().unwrap()).collect();
    let emitted = all_events(&place);
    assert_eq!(emitted.len(), EVENTS_A_ROUND * (ROUNDS / 3) as usize);
    let mut first: BTreeMap<i64, usize> = BTreeMap::new();
    for (at, (id, _)) in place.delivered("out.jsonl").iter().map(identity).enumerate() {
        first.entry(id).or_insert(at);
    }
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, key) in &emitted {
        let Some(at) = first.get(id) else {
            assert!(dead.contains(id), "event {id} is lost");
            continue;
        };
        let before = last.insert(key, *at);
        assert!(
            before.is_none_or(|before| before < *at),
            "event {id} of key {key} came before its predecessor"
        );
    }
    assert_eq!(place.ok(&["store", "check"]), "no damage found\n");
}

/// On a server a killed relay has its shards until its lease ends. A relay that runs with `--once` waits for
/// that.
#[test]
fn what_a_killed_relay_held_on_a_server_is_delivered_by_the_next_run() {
    let place = Place::new();
    let db = shared(Version::V18).create_database();
    let of = |args: &[&'static str]| [args, &["--store", db.url.as_str()]].concat();
    let relay = ["relay", "--subscription", "audit", "--sink", "file:out.jsonl"];
    let emit = ["emit", "order", "--key", "42", "--count", "3"];
    let running = spawn(place.command(&of(&relay)));
    until("the relay has made its subscription", || {
        place.run(&of(&["subscription", "show", "audit"])).code == 0
    });
    place.ok(&of(&emit));
    until("the first events have arrived", || {
        place.path("out.jsonl").exists() && place.delivered("out.jsonl").len() == 3
    });
    kill(running);
    place.ok(&of(&emit));
    let once = [&relay[..], &["--once"]].concat();
    let ran = place.run(&of(&once));
    assert!(ran.code == 0 && ran.stderr.contains("others hold shards and may be dead"), "{ran:?}");
    check_history(
        &(1..=6).map(|id| (id, "42".to_owned())).collect::<Vec<_>>(),
        &place.delivered("out.jsonl"),
        1,
    );
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

fn pause(rng: &mut fastrand::Rng) {
    // tidy: sleep because the moment of a kill is to be random
    std::thread::sleep(Duration::from_micros(rng.u64(..150_000)));
}

fn lines(rng: &mut fastrand::Rng, round: u32) -> String {
    let mut lines = String::new();
    for n in 0..EVENTS_A_ROUND {
        let key = rng.u32(..KEYS);
        let _ = writeln!(
            lines,
            "{{\"topic\":\"order\",\"key\":\"{key}\",\"payload\":{{\"round\":{round},\"n\":{n}}}}}"
        );
    }
    lines
}

/// All events of the store, oldest first: id and key.
fn all_events(place: &Place) -> Vec<(i64, String)> {
    let mut events = Vec::new();
    let mut before = i64::MAX;
    loop {
        let page = place.json(&["event", "list", "--limit", "1000", "--before", &before.to_string()]);
        let page = page.as_array().unwrap();
        events.extend(page.iter().map(identity));
        match page.last() {
            Some(last) => before = last["id"].as_i64().unwrap(),
            None => break,
        }
    }
    events.reverse();
    events
}

fn identity(event: &Value) -> (i64, String) {
    (event["id"].as_i64().unwrap(), event["key"].as_str().unwrap().to_owned())
}

/// How far the deliveries of one key have come.
#[derive(Default)]
struct Progress {
    /// Events that have arrived at least once: always the first ones.
    reached: usize,
    /// The place behind the last delivery.
    next: usize,
    /// How often it went back.
    rewinds: usize,
}

/// Each event arrived, and within each key events arrived one after the other; after a kill again from an
/// earlier one on, but never one before its predecessor.
fn check_history(emitted: &[(i64, String)], delivered: &[Value], kills: usize) {
    let mut order: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (id, key) in emitted {
        order.entry(key).or_default().push(*id);
    }
    let mut progress: BTreeMap<&str, Progress> = BTreeMap::new();
    for (id, key) in delivered.iter().map(identity) {
        let (key, ids) =
            order.get_key_value(key.as_str()).unwrap_or_else(|| panic!("key {key} was never emitted"));
        let place = ids.binary_search(&id).unwrap_or_else(|_| panic!("event {id} was never emitted"));
        let progress = progress.entry(key).or_default();
        assert!(place <= progress.next, "event {id} of key {key} came before its predecessor");
        progress.rewinds += usize::from(place < progress.next);
        progress.next = place + 1;
        progress.reached = progress.reached.max(progress.next);
    }
    for (key, ids) in &order {
        let Progress { reached, rewinds, .. } = progress.remove(key).unwrap_or_default();
        assert_eq!(reached, ids.len(), "key {key}: events from {:?} on are lost", ids.get(reached));
        assert!(rewinds <= kills, "key {key} went back {rewinds} times in {kills} kills");
    }
    println!("{} events in {} deliveries over {kills} kills", emitted.len(), delivered.len());
}
