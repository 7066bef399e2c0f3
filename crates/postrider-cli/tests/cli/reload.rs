//! SIGHUP while events flow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_testkit::postgres::{Version, shared};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Place, Running, until};
use crate::http_receiver::{Receiver, Reply};
use crate::receivers::RUNTIME;

const TAKEN_OVER: &str = "the config was taken over";
const REFUSED: &str = "the old one stays in force";
const READY: &str = "ready: every store has taken a beat";

/// A config of subscriptions, each with a file of its own.
fn config(subscriptions: &[(&str, &str, &str)]) -> String {
    let one = |(name, file, more): &(&str, &str, &str)| {
        format!(
            "[sinks.{name}]\ntype = 'file'\npath = '{file}'\n[subscriptions.{name}]\nsink = '{name}'\n{more}\n"
        )
    };
    subscriptions.iter().map(one).collect::<Vec<_>>().concat()
}

fn start(place: &Place, text: &str) -> Running {
    place.write("p.toml", text);
    Running::start(place.command(&["relay", "--config", "p.toml"]), READY)
}

fn reload(place: &Place, running: &Running, text: &str, answer: &str) {
    let before = running.said().matches(answer).count();
    place.write("p.toml", text);
    running.signal(Signal::HUP);
    running.says(answer, before + 1);
}

/// How often each event is in some files.
fn times(place: &Place, files: &[&str]) -> BTreeMap<i64, usize> {
    let mut times = BTreeMap::new();
    for line in files.iter().flat_map(|file| place.delivered(file)) {
        *times.entry(line["id"].as_i64().unwrap()).or_default() += 1;
    }
    times
}

/// Sinks change while events flow, and each event arrives once.
fn sinks_change(place: &Place, store: &str, more: &str) {
    let before = [("moves", "old.jsonl", more), ("stays", "stays.jsonl", more)];
    let after = [("moves", "new.jsonl", more), ("stays", "stays.jsonl", more)];
    place.write("p.toml", config(&before));
    let mut command = place.command(&["relay", "--config", "p.toml"]);
    command.env("POSTRIDER_STORE", store);
    let running = Running::start(command, READY);
    let over = AtomicBool::new(false);
    let emitted = std::thread::scope(|scope| {
        let emitter = scope.spawn(|| {
            let mut emitted = 0;
            while !over.load(Ordering::Relaxed) {
                let key = (emitted % 7).to_string();
                place.ok(&["emit", "order", "--key", &key, "--count", "40", "--store", store]);
                emitted += 40;
            }
            emitted
        });
        until("events flow", || place.delivered("old.jsonl").len() > 100);
        reload(place, &running, &config(&after), TAKEN_OVER);
        until("they flow elsewhere", || place.delivered("new.jsonl").len() > 100);
        reload(place, &running, &config(&before), TAKEN_OVER);
        let old = place.delivered("old.jsonl").len();
        until("they flow as before", || place.delivered("old.jsonl").len() > old);
        over.store(true, Ordering::Relaxed);
        emitter.join().unwrap()
    });
    let all = |files: &[&str]| times(place, files).len() == emitted;
    until("everything is delivered", || all(&["old.jsonl", "new.jsonl"]) && all(&["stays.jsonl"]));
    running.signal(Signal::TERM);
    let said = running.said();
    assert_eq!(running.ended().code(), Some(0));
    for files in [&["old.jsonl", "new.jsonl"][..], &["stays.jsonl"]] {
        assert!(times(place, files).values().all(|times| *times == 1), "{files:?}: something came twice");
    }
    // Each key arrives in its order, whichever file it went to; the files of one route follow each other.
    for file in ["old.jsonl", "new.jsonl", "stays.jsonl"] {
        let mut last: BTreeMap<String, i64> = BTreeMap::new();
        for line in place.delivered(file) {
            let (id, key) = (line["id"].as_i64().unwrap(), line["key"].as_str().unwrap().to_owned());
            assert!(last.insert(key, id).is_none_or(|before| before < id), "{file}: {id}");
        }
    }
    // What did not change was not disturbed: it was owned when the relay was ready, and never again.
    let taken_again = said.lines().filter(|line| line.contains("stays") && line.contains("owned")).count();
    assert!(taken_again <= 1, "{said}");
}

#[test]
fn sinks_change_while_events_flow_from_a_file() {
    sinks_change(&Place::new(), "sqlite://p.db", "");
}

#[test]
fn sinks_change_while_events_flow_from_a_server() {
    let database = shared(Version::V15).create_database();
    sinks_change(&Place::new(), &database.url, "");
}

#[test]
fn sinks_change_while_a_queue_is_worked_on() {
    sinks_change(&Place::new(), "sqlite://p.db", "mode = 'queue'");
}

#[test]
fn a_bad_config_is_told_and_the_old_one_stays_in_force() {
    let place = Place::new();
    let good = config(&[("a", "a.jsonl", "topics = ['order']")]);
    let running = start(&place, &good);
    let emit_and_see = |count: usize| {
        place.ok(&["emit", "order"]);
        until("it is delivered", || place.delivered("a.jsonl").len() == count);
    };
    emit_and_see(1);
    reload(&place, &running, "[sinks.a]\ntype = 'fil'\n[subscriptions.a]\nsink = 5\n", REFUSED);
    let said = running.said();
    assert!(said.contains("p.toml:2:8: ") && said.contains("p.toml:4:8: "), "{said}");
    emit_and_see(2);
    // Right in itself, and not what the store has.
    reload(&place, &running, &good.replace("order", "other"), REFUSED);
    assert!(running.said().contains("exists with filter"), "{}", running.said());
    emit_and_see(3);
    std::fs::remove_file(place.path("p.toml")).unwrap();
    running.signal(Signal::HUP);
    running.says(REFUSED, 3);
    emit_and_see(4);
    // And a good one is taken over after all that.
    reload(&place, &running, &good.replace("a.jsonl", "b.jsonl"), TAKEN_OVER);
    place.ok(&["emit", "order"]);
    until("it is delivered", || place.delivered("b.jsonl").len() == 1);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn subscriptions_come_go_and_are_tuned() {
    let place = Place::new();
    let running = start(&place, &config(&[("a", "a.jsonl", ""), ("b", "b.jsonl", "")]));
    place.ok(&["emit", "order", "--count", "5"]);
    until("both deliver", || ["a.jsonl", "b.jsonl"].iter().all(|file| place.delivered(file).len() == 5));
    let queue = "mode = 'queue'\nconcurrency = 3";
    reload(
        &place,
        &running,
        &config(&[("a", "a.jsonl", "concurrency = 3"), ("q", "q.jsonl", queue)]),
        TAKEN_OVER,
    );
    place.ok(&["emit", "order", "--count", "5"]);
    until("the new one delivers all and the old one goes on", || {
        place.delivered("q.jsonl").len() == 10 && place.delivered("a.jsonl").len() == 10
    });
    let show = |name: &str| place.json(&["subscription", "show", name]);
    assert_eq!(show("a")["tuning"]["concurrency"], 3);
    until("the removed one is drained and left", || show("b")["members"] == json!([]));
    assert_eq!((show("b")["lag_events"].clone(), place.delivered("b.jsonl").len()), (json!(5), 5));
    let queue = "mode = 'queue'\nconcurrency = 5";
    reload(&place, &running, &config(&[("a", "a.jsonl", ""), ("q", "q.jsonl", queue)]), TAKEN_OVER);
    until("the queue is tuned", || show("q")["tuning"]["concurrency"] == 5);
    assert!(running.said().contains("tuned"), "in place: {}", running.said());
    // What is gone from the file stays as it was in the store.
    assert_eq!(show("a")["tuning"]["concurrency"], 3);
    reload(&place, &running, &config(&[("b", "b.jsonl", "")]), TAKEN_OVER);
    until("what was removed goes on where it stood", || place.delivered("b.jsonl").len() == 10);
    assert!(times(&place, &["b.jsonl"]).values().all(|times| *times == 1));
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
    assert_eq!(place.json(&["stats"])["members"], json!([]));
}

#[test]
fn one_sick_sink_delays_no_other() {
    let place = Place::new();
    let running = start(&place, &config(&[("sick", "no/sick.jsonl", ""), ("well", "well.jsonl", "")]));
    place.ok(&["emit", "order", "--count", "300"]);
    until("the other delivers", || place.delivered("well.jsonl").len() == 300);
    running.says("the sink cannot be opened; trying again", 1);
    std::fs::create_dir(place.path("no")).unwrap();
    until("it is well again", || place.delivered("no/sick.jsonl").len() == 300);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
}

/// The file is the same, and the relay does as the log has said: reload, and it is mended.
#[test]
fn a_webhook_that_was_given_up_or_whose_secret_has_changed_is_opened_anew() {
    let place = Place::new();
    let receiver = RUNTIME.block_on(Receiver::start(|_| Reply::Status(410, String::new())));
    place.write("token", "old");
    let text = format!(
        "[sinks.hook]\ntype = 'http'\nurl = '{}/'\nallow = ['127.0.0.1']\nheaders = {{ authorization = 'file:token' }}\n\
         [subscriptions.hook]\nsink = 'hook'\n{}",
        receiver.url(),
        config(&[("stays", "stays.jsonl", "")])
    );
    let running = start(&place, &text);
    place.ok(&["emit", "order"]);
    running.says("restart or reload the relay", 1);
    receiver.answer(|request| {
        let is_old = request.header("authorization") == Some("old");
        if is_old { Reply::ok() } else { Reply::Status(401, String::new()) }
    });
    reload(&place, &running, &text, TAKEN_OVER);
    let settled = || place.json(&["subscription", "show", "hook"])["lag_events"] == 0;
    until("the receiver that came back has the event", settled);
    let given_up = receiver.take();
    assert_eq!(given_up.len(), 2, "asked once when it was gone, and once when it was there: {given_up:?}");

    receiver.answer(|request| {
        let is_new = request.header("authorization") == Some("new");
        if is_new { Reply::ok() } else { Reply::Status(401, String::new()) }
    });
    place.write("token", "new");
    reload(&place, &running, &text, TAKEN_OVER);
    place.ok(&["emit", "order"]);
    until("the new secret is used", || {
        receiver.take().iter().any(|request| request.header("authorization") == Some("new"))
    });
    running.signal(Signal::TERM);
    let said = running.said();
    assert_eq!(running.ended().code(), Some(0));
    assert!(!said.contains("the config was not taken over"), "{said}");
    let taken = said.lines().filter(|line| line.contains("stays") && line.contains("owned")).count();
    assert!(taken <= 1, "what did not change was not disturbed: {said}");
}

#[test]
fn a_reload_may_bring_and_take_stores() {
    let place = Place::new();
    let of = |stores: &[(&str, &str)]| -> String {
        let sinks = "[sinks.out]\nurl = 'file:out.jsonl'\n".to_owned();
        stores.iter().fold(sinks, |text, (store, subscription)| {
            format!(
                "{text}[stores.{store}]\nurl = 'sqlite://{store}.db'\n\
                 [subscriptions.{subscription}]\nstore = '{store}'\nsink = 'out'\n"
            )
        })
    };
    place.write("p.toml", of(&[("a", "from-a")]));
    let mut command = place.command(&["relay", "--config", "p.toml"]);
    command.env_remove("POSTRIDER_STORE");
    let running = Running::start(command, READY);
    let emit = |store: &str| place.ok(&["emit", "order", "--store", &format!("sqlite://{store}.db")]);
    let count =
        |name: &str| place.delivered("out.jsonl").iter().filter(|line| line["subscription"] == name).count();
    emit("a");
    until("the first delivers", || count("from-a") == 1);
    reload(&place, &running, &of(&[("a", "from-a"), ("b", "from-b")]), TAKEN_OVER);
    emit("a");
    emit("b");
    until("both deliver", || (count("from-a"), count("from-b")) == (2, 1));
    // A store that does not answer is a reason to go on as before.
    let unreachable =
        of(&[("a", "from-a"), ("b", "from-b")]).replace("sqlite://a.db", "postgres://127.0.0.1:1/x");
    reload(&place, &running, &unreachable, REFUSED);
    emit("a");
    until("it goes on", || count("from-a") == 3);
    reload(&place, &running, &of(&[("b", "from-b")]), TAKEN_OVER);
    let members =
        |store: &str| place.json(&["stats", "--store", &format!("sqlite://{store}.db")])["members"].clone();
    until("the first is left", || members("a") == json!([]));
    emit("b");
    until("the second delivers", || count("from-b") == 2);
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
    assert_eq!(members("b"), json!([]));
}

#[test]
fn nothing_is_lost_when_it_is_killed_while_it_reloads() {
    const EVENTS: usize = 3_000;
    let place = Place::new();
    let old = config(&[("a", "old.jsonl", ""), ("b", "b.jsonl", "")]);
    let new = config(&[("a", "new.jsonl", ""), ("b", "b.jsonl", "")]);
    for round in 0..3 {
        let running = start(&place, &old);
        place.ok(&["emit", "order", "--count", &(EVENTS / 3).to_string()]);
        let before = round * EVENTS / 3;
        until("some are delivered", || place.delivered("b.jsonl").len() > before);
        place.write("p.toml", &new);
        running.signal(Signal::HUP);
        running.says("reading the config anew", 1);
        running.kill();
    }
    assert_eq!(place.run(&["relay", "--config", "p.toml", "--once"]).code, 0);
    for files in [&["old.jsonl", "new.jsonl"][..], &["b.jsonl"]] {
        assert_eq!(times(&place, files).len(), EVENTS, "{files:?}");
    }
}
