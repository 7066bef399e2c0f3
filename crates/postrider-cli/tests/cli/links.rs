//! The relay between a store and a broker, either of which may fall silent at the worst of moments.

use std::fs;

use postrider_testkit::postgres::{Version, shared};
use postrider_testkit::tcp_proxy::Proxy;
use rustix::process::Signal;

use crate::harness::{Place, Running, until};
use crate::receivers::{Arrived, Brokers, Ledger, lent};

const KEYS: u64 = 20;
const BATCH: u64 = 3 * KEYS;
/// The bytes of an event from each key, which is what any sink has under way at once.
const UNDER_WAY: u64 = KEYS * 1000;

/// What a process has been sent and has not read, as the kernel tells it.
fn unread_bytes(port: u16) -> u64 {
    // Java listens for both kinds of addresses at once, which counts as the second.
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap()).concat();
    let unread = sockets.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields[1].rsplit_once(':')?;
        let (_, unread) = fields[4].split_once(':')?;
        (u16::from_str_radix(local, 16) == Ok(port)).then(|| u64::from_str_radix(unread, 16).unwrap())
    });
    unread.sum()
}

fn freeze(brokers: &mut Brokers) {
    brokers.kafka.freeze_node(0);
    brokers.nats.freeze();
}

fn thaw(brokers: &mut Brokers) {
    brokers.kafka.thaw_node(0);
    brokers.nats.thaw();
}

/// Whether both brokers hold the event or a later one.
fn has_arrived(brokers: &Brokers, number: u64) -> bool {
    let has = |arrived: Vec<Arrived>| arrived.iter().any(|event| event.number >= number);
    has(brokers.in_topic("killed")) && has(brokers.in_nats("killed"))
}

/// Both in one relay: killed when the brokers have events and have acked none, and killed again when they
/// have acked them and the store cannot be told.
#[test]
fn a_relay_that_is_killed_around_the_ack_loses_nothing_and_repeats_under_the_same_id() {
    let (place, mut brokers) = (Place::new(), lent());
    brokers.make_topic("killed");
    brokers.make_stream("killed");
    let db = shared(Version::V15).create_database();
    let proxy = Proxy::start(db.address());
    let (near, far) = (db.url.clone(), db.through(proxy.address()).url);
    place.ok(&["store", "migrate", "--store", &near]);
    let ledger = Ledger::new(db, KEYS);
    let (kafka, nats) = (brokers.kafka.bootstrap(), brokers.nats.url());
    place.write(
        "p.toml",
        format!(
            "[sinks.kafka]\nurl = 'kafka://{kafka}/killed'\n[sinks.nats]\nurl = '{nats}/killed'\n\
             [subscriptions.kafka]\nsink = 'kafka'\n[subscriptions.nats]\nsink = 'nats'\n"
        ),
    );
    let relay = |more: &[&str]| {
        let mut command = place.command(&[&["relay", "--config", "p.toml"], more].concat());
        command.env("POSTRIDER_STORE", &far);
        command
    };
    let lags = || lags(&place, &near);
    // A connection that has been used lets events through to a broker that is frozen later.
    let warmed_up = || {
        let running = Running::start(relay(&[]), "ready: every store has taken a beat");
        ledger.emit(1);
        until("all is settled", || lags() == [0, 0]);
        running
    };
    let emit_to_frozen = |brokers: &mut Brokers| {
        freeze(brokers);
        ledger.emit(BATCH);
        for port in [brokers.kafka.port(), brokers.nats.port()] {
            until("events lie before the frozen broker", || unread_bytes(port) >= UNDER_WAY);
        }
    };

    let running = warmed_up();
    emit_to_frozen(&mut brokers);
    running.kill();
    thaw(&mut brokers);
    assert_eq!(lags(), [BATCH, BATCH], "what was not acked is not settled");

    let running = warmed_up();
    let before = ledger.count();
    emit_to_frozen(&mut brokers);
    proxy.black_hole();
    thaw(&mut brokers);
    until("events are acked", || has_arrived(&brokers, before + 1));
    running.kill();
    // What lies in the network would settle after all: it is lost, as the relay is.
    proxy.reset_all();
    proxy.heal();
    assert_eq!(lags(), [BATCH, BATCH], "acked, and not settled");

    until("the dead relay's lease has ended, and another delivers", || {
        let ended = relay(&["--once"]).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        lags() == [0, 0]
    });
    let repeats = ledger.compare("kafka", &brokers.in_topic("killed"));
    assert!(repeats > 0, "what was acked and not settled comes again");
    assert!(repeats <= 2 * BATCH as usize, "and nothing else does: {repeats}");
    assert_eq!(ledger.compare("nats", &brokers.in_nats("killed")), 0, "the stream knows the ids");
}

/// How far the subscriptions are behind.
fn lags(place: &Place, store: &str) -> [u64; 2] {
    let stats = place.json(&["stats", "--store", store]);
    [0, 1].map(|place| stats["subscriptions"][place]["lag_events"].as_u64().unwrap())
}

#[test]
fn links_that_hang_one_by_one_and_heal_in_any_order_lose_nothing() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (place, brokers) = (Place::new(), lent());
    brokers.make_stream("links");
    let db = shared(Version::V15).create_database();
    let links = [db.address(), brokers.nats.address(), brokers.redis.address()].map(Proxy::start);
    place.ok(&["store", "migrate", "--store", &db.url]);
    let [store, nats, redis] = [0, 1, 2].map(|link| links[link].address());
    place.write(
        "p.toml",
        format!(
            "[sinks.nats]\ntype = 'nats'\nservers = ['{nats}']\nsubject = 'links'\ntime_limit = '1s'\n\
             [sinks.redis]\ntype = 'redis'\nserver = '{redis}'\nstream = 'links'\ntime_limit = '1s'\n\
             [subscriptions.nats]\nsink = 'nats'\n[subscriptions.redis]\nsink = 'redis'\n"
        ),
    );
    let far = db.through(store).url;
    let near = db.url.clone();
    let ledger = Ledger::new(db, KEYS);
    let mut command = place.command(&["relay", "--config", "p.toml"]);
    command.env("POSTRIDER_STORE", &far);
    let running = Running::start(command, "ready: every store has taken a beat");
    let mut order = [0, 1, 2];
    for _ in 0..2 {
        rng.shuffle(&mut order);
        for link in order {
            ledger.emit(BATCH);
            links[link].black_hole();
        }
        ledger.emit(BATCH);
        rng.shuffle(&mut order);
        for link in order {
            // A partition ends with connections that go on, or with connections that are gone.
            if rng.bool() {
                links[link].reset_all();
            }
            links[link].heal();
            ledger.emit(BATCH);
        }
        until("all is delivered again", || lags(&place, &near) == [0, 0]);
    }
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code(), Some(0));
    assert_eq!(ledger.compare("nats", &brokers.in_nats("links")), 0, "the stream knows the ids");
    let repeats = ledger.compare("redis", &brokers.in_redis("links"));
    println!("{repeats} of {} came again", ledger.count());
}
