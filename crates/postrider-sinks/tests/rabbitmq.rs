//! The RabbitMQ sink against a real RabbitMQ.
#![cfg(feature = "rabbitmq")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "support/ledger.rs"]
mod ledger;
#[path = "support/network.rs"]
mod network;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use ledger::{Held, Ledger};
use postrider_core::{FailureClass, Outcome, Sink};
use postrider_sinks::envelope::names;
use postrider_sinks::rabbitmq::{RabbitMqOptions, RabbitMqSink};
use postrider_sinks::{Secret, SinkOptions};
use postrider_testkit::brokers::rabbitmq::{self, RabbitMq};
use postrider_testkit::receiver::{Received, check_sink};
use postrider_testkit::tcp_proxy::Proxy;

const READ_MAX: Duration = Duration::from_secs(60);

fn options(server: &RabbitMq, exchange: &str) -> RabbitMqOptions {
    let mut options = RabbitMqOptions::new(&server.address().to_string(), exchange.parse().unwrap()).unwrap();
    // A busy machine is no broken one.
    options.timeout_ms = 60_000.try_into().unwrap();
    options
}

fn open(options: &RabbitMqOptions) -> RabbitMqSink {
    RabbitMqSink::open(options).unwrap()
}

/// A durable exchange with a durable queue of the same name behind it.
struct Queue {
    _connection: Connection,
    channel: Channel,
    name: String,
}

impl Queue {
    async fn declare(server: &RabbitMq, name: &str, routing_key: &str) -> Self {
        Self::declare_with(server, name, routing_key, FieldTable::default()).await
    }

    async fn declare_with(server: &RabbitMq, name: &str, routing_key: &str, arguments: FieldTable) -> Self {
        let queue = Self::connect(server, name).await;
        let channel = &queue.channel;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let none = FieldTable::default;
        channel.exchange_declare(name.into(), ExchangeKind::Topic, durable, none()).await.unwrap();
        channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
        let bind = QueueBindOptions::default();
        channel.queue_bind(name.into(), name.into(), routing_key.into(), bind, none()).await.unwrap();
        queue
    }

    async fn connect(server: &RabbitMq, name: &str) -> Self {
        let connection = Connection::connect(&server.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self { _connection: connection, channel, name: name.to_owned() }
    }

    async fn get(&self) -> Option<(BasicProperties, Vec<u8>)> {
        let options = BasicGetOptions { no_ack: true };
        let got = self.channel.basic_get(self.name.as_str().into(), options).await.unwrap()?;
        Some((got.properties.clone(), got.data.clone()))
    }

    async fn read(&self, count: usize) -> Vec<Received> {
        let started = Instant::now();
        let mut found = Vec::new();
        while found.len() < count {
            assert!(started.elapsed() < READ_MAX, "{} of {count} messages arrived", found.len());
            found.extend(self.get().await.map(|(properties, payload)| received(&properties, payload)));
        }
        found
    }

    async fn read_all(&self) -> Vec<Held> {
        let mut found = Vec::new();
        while let Some((properties, payload)) = self.get().await {
            let event = received(&properties, payload);
            let key =
                event.headers.iter().find(|(name, _)| name == names::KEY).map(|(_, value)| value.clone());
            found.push(Held { key, dedup_id: event.dedup_id });
        }
        found
    }
}

fn received(properties: &BasicProperties, payload: Vec<u8>) -> Received {
    assert_eq!(properties.delivery_mode(), &Some(2), "messages are persistent");
    let headers = properties.headers().as_ref().unwrap().inner().iter();
    let headers = headers.map(|(name, value)| match value {
        AMQPValue::LongString(text) => {
            (name.to_string(), String::from_utf8(text.as_bytes().to_vec()).unwrap())
        }
        other => panic!("{name}: {other:?}"),
    });
    // tidy: foreign because AMQP names it so
    let dedup_id = properties.message_id().as_ref().unwrap().to_string();
    Received { payload, headers: headers.collect(), dedup_id }
}

fn failure(outcome: &Outcome) -> (FailureClass, String) {
    match outcome {
        Outcome::Retry(failure) | Outcome::Dead(failure) => (failure.class(), failure.message().to_owned()),
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_sink_must_do() {
    let server = rabbitmq::shared();
    let queue = Queue::declare(server, "every", "#").await;
    let sink = open(&options(server, "every"));
    check_sink(&sink, 1_000_000, async |count| queue.read(count).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_queue_wants_fails_and_nothing_else_does() {
    let server = rabbitmq::shared();
    let queue = Queue::declare(server, "picky", "known").await;
    let sink = open(&options(server, "picky"));
    let mut ledger = Ledger::new("picky");
    let is_known = |n: usize| n % 7 != 3;
    let batch: Vec<_> =
        (0..500).map(|n| ledger.emit_of(if is_known(n) { "known" } else { "nobody" }, None, "x")).collect();
    let outcomes = ledger.attempt(&sink, &batch).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        if is_known(n) {
            assert_eq!(*outcome, Outcome::Ack, "{n}");
        } else {
            let (class, message) = failure(outcome);
            assert_eq!(class, FailureClass::Retryable);
            assert!(message.contains("routes the event to no queue"), "{message}");
        }
    }
    let found = queue.read_all().await;
    assert_eq!(found.len(), (0..500).filter(|n| is_known(*n)).count());
    ledger.compare(&found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_what_it_cannot_take_and_no_other_event_fails() {
    let server = rabbitmq::shared();
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(3));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let queue = Queue::declare_with(server, "full", "#", arguments).await;
    let sink = open(&options(server, "full"));
    let mut ledger = Ledger::new("full");
    let mut left = ledger.emit_turns(10, 2);
    let mut found = Vec::new();
    let mut refusals = 0;
    while !left.is_empty() {
        // As a worker does, one event of a key at a time.
        let batch: Vec<_> = left.iter().take(10).cloned().collect();
        let outcomes = ledger.attempt(&sink, &batch).await;
        let mut refused = Vec::new();
        for (delivery, outcome) in
            batch.iter().zip(&outcomes).filter(|(_, outcome)| **outcome != Outcome::Ack)
        {
            let (class, message) = failure(outcome);
            assert_eq!(class, FailureClass::Retryable, "others may have room: {message}");
            assert!(message.contains("a queue did not take the event"), "{message}");
            refused.push(delivery.id);
        }
        refusals += refused.len();
        let taken = queue.read_all().await;
        assert_eq!(taken.len(), batch.len() - refused.len(), "what was refused is not there");
        found.extend(taken);
        let done: Vec<_> = batch.iter().map(|event| event.id).filter(|id| !refused.contains(id)).collect();
        left.retain(|delivery| !done.contains(&delivery.id));
        // What was refused goes first of its key, as the rest of it waits.
        left.sort_by_key(|delivery| delivery.id);
    }
    assert!(refusals > 0 && found.len() == 20, "{refusals} refusals, {} arrived", found.len());
    ledger.compare(&found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_fails_in_every_way_loses_nothing() {
    let server = rabbitmq::shared();
    let queue = Queue::declare(server, "network", "#").await;
    let proxy = Proxy::start(server.address());
    let brokers = vec![proxy.address().to_string()];
    let hasty =
        RabbitMqOptions { brokers, timeout_ms: 2000.try_into().unwrap(), ..options(server, "network") };
    let mut ledger = Ledger::new("network");
    network::fail_in_every_way(&open(&hasty), &proxy, &mut ledger).await;
    ledger.compare(&queue.read_all().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_was_changed_is_found_by_the_next_connection() {
    let server = rabbitmq::shared();
    let queue = Queue::declare(server, "rotated", "#").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "canary").unwrap();
    let mut rotated = options(server, "rotated");
    rotated.user = Some("guest".to_owned());
    rotated.password = Some(format!("file:{}", path.display()).parse().unwrap());
    let sink = open(&rotated);
    let mut ledger = Ledger::new("rotated");
    let batch = ledger.emit_turns(3, 1);
    assert_eq!(failure(&ledger.attempt(&sink, &batch).await[0]).0, FailureClass::Unavailable);
    std::fs::write(&path, "guest\n").unwrap();
    assert_eq!(ledger.attempt(&sink, &batch).await, vec![Outcome::Ack; 3]);
    ledger.compare(&queue.read_all().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_or_a_missing_exchange_makes_the_sink_unavailable() {
    let server = rabbitmq::shared();
    let mut ledger = Ledger::new("refused");
    let batch = [ledger.emit(Some("a"), "x"), ledger.emit(Some("b"), "y")];
    let mut wrong = options(server, "refused");
    (wrong.user, wrong.password) = (Some("guest".to_owned()), Some(Secret::here("canary")));
    let (class, message) = failure(&ledger.attempt(&open(&wrong), &batch).await[0]);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(message.contains("refuses the connection") && !message.contains("canary"), "{message}");
    let error = wrong.check().await.unwrap_err();
    assert!(!error.is_retryable() && error.to_string().contains("refuses the connection"), "{error}");
    assert!(RabbitMqSink::open(&RabbitMqOptions { password: None, ..wrong }).is_err());

    let missing = options(server, "refused");
    let error = missing.check().await.unwrap_err().to_string();
    assert!(error.contains("exchange `refused`") && error.contains("declare it"), "{error}");
    for outcome in ledger.attempt(&open(&missing), &batch).await {
        assert_eq!(failure(&outcome).0, FailureClass::Unavailable);
    }
    let queue = Queue::declare(server, "refused", "#").await;
    assert_eq!(missing.check().await.unwrap()[1], "publishes to the exchange `refused`");
    assert_eq!(ledger.attempt(&open(&missing), &batch).await, [Outcome::Ack, Outcome::Ack]);
    ledger.compare(&queue.read_all().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_is_missing_for_some_events_holds_up_no_other() {
    let server = rabbitmq::shared();
    let queue = Queue::declare(server, "fork.open", "#").await;
    let mut ledger = Ledger::new("fork");
    let batch: Vec<_> =
        (0..20).map(|n| ledger.emit_of(if n % 5 == 2 { "closed" } else { "open" }, None, "x")).collect();
    // A broker that closes a channel says not what it had taken by then: all is published again, within one attempt.
    ledger.note_abandoned(&batch);
    let outcomes = ledger.attempt(&open(&options(server, "fork.{type}")), &batch).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        if n % 5 == 2 {
            assert_eq!(failure(outcome).0, FailureClass::Retryable);
        } else {
            assert_eq!(*outcome, Outcome::Ack, "{n}");
        }
    }
    ledger.compare(&queue.read_all().await);
}

/// A broker that closes a channel while more is published on it closes the connection as well, now and then:
/// once in sixty times on a quiet machine, more often on a busy one.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_is_closed_in_the_midst_of_a_batch_costs_no_other_event_its_ack() {
    const ROUNDS: usize = 30;
    let server = rabbitmq::shared();
    let names = ["midst.one", "midst.two", "midst.three"];
    let mut scenes = Vec::new();
    for name in names {
        scenes.push((Ledger::new(name), Queue::declare(server, name, "#").await));
    }
    let sink = open(&options(server, "midst.{type}"));
    for _ in 0..ROUNDS {
        let batches = scenes.iter_mut().zip(names).enumerate().map(|(number, ((ledger, _), name))| {
            // The last batch stands beside two that close their channels.
            let is_closed = move |n| n == 5 && number < 2;
            let kind = |n| if is_closed(n) { "closed" } else { name.trim_start_matches("midst.") };
            let batch: Vec<_> = (0..50).map(|n| ledger.emit_of(kind(n), None, "x")).collect();
            ledger.note_abandoned(&batch);
            let sink = &sink;
            async move {
                for (n, outcome) in ledger.attempt(sink, &batch).await.iter().enumerate() {
                    if is_closed(n) {
                        assert_eq!(failure(outcome).0, FailureClass::Retryable);
                    } else {
                        assert_eq!(*outcome, Outcome::Ack, "{n}");
                    }
                }
            }
        });
        join_all(batches).await;
    }
    for (ledger, queue) in scenes {
        ledger.compare(&queue.read_all().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_not_there_makes_the_sink_unavailable() {
    let mut nobody = RabbitMqOptions::new("127.0.0.1:1", "e".parse().unwrap()).unwrap();
    nobody.timeout_ms = 1000.try_into().unwrap();
    let mut ledger = Ledger::new("nobody");
    let batch = [ledger.emit(Some("a"), "x")];
    let (class, message) = failure(&ledger.attempt(&open(&nobody), &batch).await[0]);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(message.contains("cannot be reached"), "{message}");
    assert!(nobody.check().await.unwrap_err().is_retryable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_blocks_hangs_or_dies_in_the_middle_of_a_batch_loses_nothing() {
    let lines = vec!["max_message_size = 100000".to_owned()];
    let mut server = RabbitMq::start_with(&rabbitmq::Settings { lines, ..Default::default() });
    Queue::declare(&server, "orders", "#").await;
    let sink = open(&options(&server, "orders"));
    let mut ledger = Ledger::new("dies");

    // Too large for the broker: found among the rest.
    let batch = [ledger.emit(None, "x"), ledger.emit(None, vec![b'x'; 150_000]), ledger.emit(None, "y")];
    ledger.note_abandoned(&batch);
    let outcomes = ledger.attempt(&sink, &batch).await;
    let (class, message) = failure(&outcomes[1]);
    assert_eq!(class, FailureClass::Permanent);
    assert!(message.contains("is 150000 bytes") && message.contains("max_message_size"), "{message}");
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Ack, &Outcome::Ack));

    // Short of memory: the broker takes bytes from no client.
    // tidy: foreign because RabbitMQ names it so
    server.ctl(&["set_vm_memory_high_watermark", "0.00001"]);
    let batch = ledger.emit_turns(50, 1);
    let outcomes = ledger.attempt(&sink, &batch).await;
    let (class, message) = failure(&outcomes[0]);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(message.contains("blocks publishers"), "{message}");
    assert!(outcomes.iter().all(|outcome| *outcome != Outcome::Ack));
    // tidy: foreign because RabbitMQ names it so
    server.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    let hasty = open(&RabbitMqOptions { timeout_ms: 3000.try_into().unwrap(), ..options(&server, "orders") });
    ledger.deliver(&hasty, batch).await;

    // It takes bytes and confirms nothing: neither do we.
    server.freeze();
    let batch = ledger.emit_turns(50, 1);
    let outcomes = ledger.attempt(&hasty, &batch).await;
    assert!(outcomes.iter().all(|outcome| *outcome != Outcome::Ack), "{outcomes:?}");
    assert_eq!(failure(&outcomes[0]).0, FailureClass::Unavailable);
    // The caller gives these up.
    let abandoned = tokio::time::timeout(Duration::from_millis(300), hasty.send(batch.clone())).await;
    assert!(abandoned.is_err());
    ledger.note_abandoned(&batch);
    server.thaw();
    ledger.deliver(&hasty, batch).await;

    let batch = ledger.emit_turns(100, 30);
    let (again, ()) = tokio::join!(
        tokio::task::spawn_blocking(move || {
            server.kill();
            server.start_again();
            server
        }),
        ledger.deliver(&sink, batch),
    );
    let server = again.unwrap();
    let found = Queue::connect(&server, "orders").await.read_all().await;
    assert!(found.len() >= 3102, "{}", found.len());
    ledger.compare(&found);
}
