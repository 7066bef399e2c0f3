//! Six sinks of six kinds in one relay, one of which refuses our login.

use std::collections::BTreeSet;

use postrider_testkit::postgres::{Version, shared};
use rustix::process::Signal;

use crate::harness::{Place, Running, until};
use crate::http_receiver::{Receiver, Reply, Request};
use crate::receivers::{Arrived, Brokers, Ledger, RIDER, RIDER_PASSWORD, RUNTIME, lent};

const EVENTS: u64 = 200;

fn config(brokers: &Brokers, webhook: &str) -> String {
    let sinks = format!(
        "health_file = 'well'\n\
         [sinks.kafka]\ntype = 'kafka'\nbrokers = ['{kafka}']\ntopic = 'six'\n\
         [sinks.nats]\ntype = 'nats'\nservers = ['{nats}']\nsubject = 'six'\n\
         [sinks.redis]\ntype = 'redis'\nserver = '{redis}'\nstream = 'six'\n\
         [sinks.rabbitmq]\ntype = 'rabbitmq'\nbrokers = ['{rabbitmq}']\nexchange = ''\nrouting_key = 'six'\n\
         user = '{RIDER}'\npassword = 'file:password'\n\
         [sinks.webhook]\ntype = 'http'\nurl = '{webhook}/'\nallow = ['127.0.0.1']\n\
         [sinks.file]\ntype = 'file'\npath = 'six.jsonl'\n",
        kafka = brokers.kafka.bootstrap(),
        nats = brokers.nats.address(),
        redis = brokers.redis.address(),
        rabbitmq = brokers.rabbitmq.address(),
    );
    let names = ["kafka", "nats", "redis", "rabbitmq", "webhook", "file"];
    names.iter().fold(sinks, |text, name| format!("{text}[subscriptions.{name}]\nsink = '{name}'\n"))
}

fn of_request(request: &Request) -> Arrived {
    Arrived::new(&request.body, &request.headers.iter().cloned().collect())
}

fn in_file(place: &Place) -> Vec<Arrived> {
    let lines = place.delivered("six.jsonl").into_iter().map(|line| Arrived {
        key: line["key"].as_str().unwrap().to_owned(),
        number: line["payload"].as_u64().unwrap(),
        dedup_id: line["id"].to_string(),
    });
    lines.collect()
}

#[test]
fn a_sink_that_refuses_our_login_delays_its_own_events_alone() {
    let (place, brokers) = (Place::new(), lent());
    brokers.make_topic("six");
    brokers.make_stream("six");
    brokers.make_queue("six");
    let webhook = RUNTIME.block_on(Receiver::start(|_| Reply::ok()));
    let ledger = Ledger::new(shared(Version::V15).create_database(), 7);
    let store = ledger.db.url.clone();
    place.ok(&["store", "migrate", "--store", &store]);
    place.write("p.toml", config(&brokers, &webhook.url()));
    place.write("password", "canary");
    let mut command = place.command(&["relay", "--config", "p.toml"]);
    command.env("POSTRIDER_STORE", &store);
    let running = Running::start(command, "ready: every store has taken a beat");
    ledger.emit(EVENTS);

    let mut requests = Vec::new();
    until("the five that are well have everything", || {
        requests.extend(webhook.take());
        let counts = [
            requests.len(),
            brokers.in_topic("six").len(),
            brokers.in_nats("six").len(),
            brokers.in_redis("six").len(),
            in_file(&place).len(),
        ];
        counts.iter().all(|count| *count >= EVENTS as usize)
    });
    running.says("RabbitMQ refuses the connection", 1);
    let stats = place.json(&["stats", "--store", &store]);
    let of = |name: &str| {
        let subscriptions = stats["subscriptions"].as_array().unwrap();
        subscriptions.iter().find(|one| one["name"] == name).unwrap()
    };
    assert_eq!(
        (&of("rabbitmq")["lag_events"], &of("rabbitmq")["pending"], &of("rabbitmq")["dead"]),
        (&EVENTS.into(), &0.into(), &0.into()),
        "it waits, and nothing was counted: {stats}"
    );
    // What a sink lacks is no illness of the relay: others would be ended with it.
    assert!(place.path("well").exists());

    place.write("password", RIDER_PASSWORD);
    let mut queued = Vec::new();
    until("the password that was mended is found", || {
        queued.extend(brokers.out_of_queue("six"));
        queued.len() >= EVENTS as usize
    });
    until("all is settled", || {
        let stats = place.json(&["stats", "--store", &store]);
        stats["subscriptions"].as_array().unwrap().iter().all(|one| one["lag_events"] == 0)
    });
    running.signal(Signal::TERM);
    let said = running.said();
    assert_eq!(running.ended().code(), Some(0));
    assert!(!said.contains("canary") && !said.contains(RIDER_PASSWORD), "{said}");
    requests.extend(webhook.take());
    queued.extend(brokers.out_of_queue("six"));
    let webhook: Vec<_> = requests.iter().map(of_request).collect();
    for (who, arrived) in [
        ("kafka", brokers.in_topic("six")),
        ("nats", brokers.in_nats("six")),
        ("redis", brokers.in_redis("six")),
        ("rabbitmq", queued),
        ("webhook", webhook),
        ("file", in_file(&place)),
    ] {
        assert_eq!(ledger.compare(who, &arrived), 0, "{who}: nothing has failed, so nothing comes twice");
        assert_eq!(arrived.iter().map(|event| &event.key).collect::<BTreeSet<_>>().len(), 7);
    }
}

#[test]
fn a_sink_with_a_secret_in_it_is_named_by_where_it_is_written() {
    let place = Place::new();
    place.ok(&["store", "migrate"]);
    place.ok(&["emit", "order", "--payload", "1"]);
    let run = |sink: &str, variable: &str| {
        let args = ["relay", "--subscription", "a", "--sink", sink, "--once", "-vvv"];
        let output = place.command(&args).env("ORDERS_SINK", variable).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = run("env:ORDERS_SINK", "file:one.jsonl");
    assert_eq!((code, place.delivered("one.jsonl").len()), (Some(0), 1), "{said}");
    place.ok(&["emit", "order", "--payload", "2"]);
    place.write("sink", "file:two.jsonl\n");
    let (code, said) = run("@sink", "");
    assert_eq!((code, place.delivered("two.jsonl").len()), (Some(0), 1), "{said}");
    // A login in a webhook's URL, and a token in its path, are shown nowhere.
    for (sink, variable) in [
        ("env:ORDERS_SINK", "https://u:canary@127.0.0.1:1/x"),
        ("https://u:canary@127.0.0.1:1/x", ""),
        ("env:ORDERS_SINK", "nats://u:canary@broker.example.com/x"),
        ("env:ORDERS_SINK", "canary"),
    ] {
        let (code, said) = run(sink, variable);
        assert!(code != Some(0) && !said.contains("canary"), "{sink}: {said}");
    }
    let check =
        ["relay", "--subscription", "a", "--sink", "https://127.0.0.1:1/services/canary?t=canary", "--check"];
    let ran = place.run(&check);
    assert!(!ran.stdout.contains("canary") && !ran.stderr.contains("canary"), "{ran:?}");
}

/// The terminal sends the signal to the whole group in which the relay is.
#[test]
fn ctrl_c_ends_the_relay_and_lets_the_program_of_a_sink_finish() {
    let place = Place::new();
    place.ok(&["store", "migrate"]);
    place.ok(&["emit", "order", "--payload", "1"]);
    place.write(
        "program.sh",
        "while IFS= read -r line; do id=${line#*\\\"dedup_id\\\":\\\"}; id=${id%%\\\"*}\n\
         echo begun > begun; read -r go < go\n\
         printf '{\"id\":\"%s\",\"outcome\":\"ack\"}\\n' \"$id\"; done\necho done > finished\n",
    );
    assert!(std::process::Command::new("mkfifo").arg(place.path("go")).status().unwrap().success());
    let mut command = place.command(&["relay", "--subscription", "a", "--sink", "exec:sh program.sh"]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let running = Running::start(command, "ready");
    until("the program has begun", || place.path("begun").exists());
    let group = rustix::process::Pid::from_raw(running.pid().cast_signed()).unwrap();
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    running.says("will end once drained", 1);
    place.write("go", "now\n");
    assert_eq!(running.ended().code(), Some(0));
    let stats = place.json(&["stats"]);
    let one = &stats["subscriptions"][0];
    assert_eq!((&one["lag_events"], &one["pending"]), (&0.into(), &0.into()), "{stats}");
    let why = place.json(&["event", "show", "1"]);
    assert!(!why.to_string().contains("\"error\""), "no attempt has failed: {why}");
}
