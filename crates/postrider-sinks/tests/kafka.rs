//! The Kafka sink against real Kafka.
#![cfg(feature = "kafka")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[cfg(feature = "kafka-tls")]
#[path = "parts/authority.rs"]
mod authority;
#[path = "support/ledger.rs"]
mod ledger;
#[path = "support/network.rs"]
mod network;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ledger::{Held, Ledger};
use postrider_core::{Delivery, FailureClass, Outcome, Sink};
use postrider_sinks::envelope::names;
use postrider_sinks::kafka::{Compression, KafkaOptions};
use postrider_sinks::{KafkaSink, Secret, SinkOptions};
use postrider_testkit::brokers::Credentials;
use postrider_testkit::brokers::kafka::{self, Kafka};
use postrider_testkit::receiver::{Received, check_sink};
use postrider_testkit::tcp_proxy::Proxy;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
// tidy: foreign because rdkafka names it so
use rdkafka::consumer::{BaseConsumer as Client, Consumer as _};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

const PARTITIONS: i32 = 3;
const READ_MAX: Duration = Duration::from_secs(60);

fn options(kafka: &Kafka, topic: &str) -> KafkaOptions {
    let mut options = KafkaOptions::new(&kafka.bootstrap(), topic.parse().unwrap()).unwrap();
    // A busy machine is no broken one.
    options.timeout_ms = 60_000.try_into().unwrap();
    options
}

fn open(options: &KafkaOptions) -> KafkaSink {
    KafkaSink::open(options).unwrap()
}

/// With credentials if the broker asks for them.
async fn make_topic(config: &ClientConfig, topic: &str, replicas: i32, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let mut new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(replicas));
    for (name, value) in settings {
        new = new.set(name, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(READ_MAX)).request_timeout(Some(READ_MAX));
    let made = admin.create_topics(&[new], &options).await.unwrap();
    assert_eq!(made, [Ok(topic.to_owned())]);
}

fn client(kafka: &Kafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap());
    config
}

/// Reads a topic from its beginning.
struct Reader {
    client: Client,
    topic: String,
}

impl Reader {
    fn new(config: &ClientConfig, topic: &str) -> Self {
        let mut config = config.clone();
        config.set("group.id", "reader").set("enable.auto.commit", "false");
        let client: Client = config.create().unwrap();
        let mut partitions = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            partitions.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        client.assign(&partitions).unwrap();
        Self { client, topic: topic.to_owned() }
    }

    fn read<T>(&self, count: usize, shape: impl Fn(&BorrowedMessage<'_>) -> T) -> Vec<T> {
        let started = Instant::now();
        let mut found = Vec::new();
        while found.len() < count {
            assert!(started.elapsed() < READ_MAX, "{} of {count} messages arrived", found.len());
            match self.client.poll(Duration::from_millis(200)) {
                None => {}
                Some(Ok(message)) => found.push(shape(&message)),
                // A broker that was killed is told as well; the bound decides.
                Some(Err(_)) => {}
            }
        }
        found
    }

    /// Everything that the topic holds now, of which nothing was read before.
    fn read_all<T>(&self, shape: impl Fn(&BorrowedMessage<'_>) -> T) -> Vec<T> {
        let held = (0..PARTITIONS).map(|partition| {
            // tidy: foreign because rdkafka names it so
            let (low, high) = self.client.fetch_watermarks(&self.topic, partition, READ_MAX).unwrap();
            (high - low) as usize
        });
        let count = held.sum();
        self.read(count, shape)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn headers(message: &BorrowedMessage<'_>) -> Vec<(String, String)> {
    let headers = message.headers().unwrap();
    headers.iter().map(|header| (header.key.to_owned(), text(header.value.unwrap()))).collect()
}

fn held(message: &BorrowedMessage<'_>) -> Held {
    let dedup_id = headers(message).into_iter().find(|(name, _)| name == names::DEDUP_ID).unwrap().1;
    Held { key: message.key().map(text), dedup_id }
}

fn received(message: &BorrowedMessage<'_>) -> Received {
    let payload = message.payload().unwrap().to_vec();
    Received { payload, headers: headers(message), dedup_id: held(message).dedup_id }
}

fn failure(outcome: &Outcome) -> (FailureClass, String) {
    match outcome {
        Outcome::Retry(failure) | Outcome::Dead(failure) => (failure.class(), failure.message().to_owned()),
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_sink_must_do() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "every", 1, &[]).await;
    let reader = Reader::new(&client(kafka), "every");
    let sink = open(&options(kafka, "every"));
    check_sink(&sink, 990_000, async |count| reader.read(count, received)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_compression_arrives() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "compressed", 1, &[]).await;
    let mut ledger = Ledger::new("compressed");
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let sink = open(&KafkaOptions { compression, ..options(kafka, "compressed") });
        let batch: Vec<_> = (0..50).map(|_| ledger.emit(Some("k"), vec![b'x'; 5000])).collect();
        let outcomes = ledger.attempt(&sink, &batch).await;
        assert_eq!(outcomes, vec![Outcome::Ack; 50], "{compression:?}");
    }
    let found = Reader::new(&client(kafka), "compressed").read_all(held);
    assert_eq!(found.len(), 200);
    ledger.compare(&found);
}

/// Hashes from the tests of Java's client.
const JAVA: [(&str, i32); 6] = [
    ("21", -973_932_308),
    ("foobar", -790_332_482),
    ("a-little-bit-long-string", -985_981_536),
    ("a-little-bit-longer-string", -1_486_304_829),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
    ("abc", 479_470_107),
];

#[tokio::test(flavor = "multi_thread")]
async fn keys_land_where_javas_clients_put_them() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "java", 1, &[]).await;
    let mut ledger = Ledger::new("java");
    let batch: Vec<_> = JAVA.iter().map(|(key, _)| ledger.emit(Some(key), "x")).collect();
    assert_eq!(ledger.attempt(&open(&options(kafka, "java")), &batch).await, vec![Outcome::Ack; JAVA.len()]);
    let reader = Reader::new(&client(kafka), "java");
    let mut found = reader.read_all(|message| (text(message.key().unwrap()), message.partition()));
    let java = |(key, hash): (&str, i32)| (key.to_owned(), (hash & i32::MAX) % PARTITIONS);
    let mut expected = JAVA.map(java).to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_payload_is_a_tombstone_where_wished_and_headers_are_added() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "tombstones", 1, &[]).await;
    let mut wished = options(kafka, "tombstones");
    wished.tombstones = true;
    wished.headers.insert("kind".to_owned(), "{type}".parse().unwrap());
    let mut ledger = Ledger::new("tombstones");
    let batch = [ledger.emit(Some("a"), ""), ledger.emit(Some("a"), "x")];
    assert_eq!(ledger.attempt(&open(&wished), &batch).await, [Outcome::Ack, Outcome::Ack]);
    let found = Reader::new(&client(kafka), "tombstones").read_all(|message| {
        let kind = headers(message).into_iter().find(|(name, _)| name == "kind").unwrap().1;
        (message.payload().map(<[u8]>::to_vec), kind)
    });
    let kind = || "order.created".to_owned();
    assert_eq!(found, [(None, kind()), (Some(b"x".to_vec()), kind())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_the_sink_is_dead_at_once_and_its_key_waits() {
    let kafka = kafka::shared();
    let mut small = options(kafka, "small");
    small.message_bytes_max = 2000.try_into().unwrap();
    let mut ledger = Ledger::new("small");
    let batch =
        [ledger.emit(Some("a"), vec![b'x'; 2000]), ledger.emit(Some("a"), "x"), ledger.emit(Some("b"), "x")];
    let outcomes = ledger.attempt(&open(&small), &batch).await;
    let (class, message) = failure(&outcomes[0]);
    assert_eq!(class, FailureClass::Permanent);
    assert!(message.starts_with("the event is 2") && message.contains("takes 2000"), "{message}");
    assert_eq!(outcomes[1..], [Outcome::Untried, Outcome::Ack]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_the_topic_is_found_among_the_rest() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "narrow", 1, &[("max.message.bytes", "10000")]).await;
    let mut ledger = Ledger::new("narrow");
    // Together they are too large as well, and alone they are not.
    let mut batch: Vec<_> =
        (0..30).map(|key| ledger.emit(Some(&key.to_string()), vec![b'x'; 1000])).collect();
    batch.push(ledger.emit(Some("large"), vec![b'x'; 20_000]));
    batch.push(ledger.emit(Some("large"), "after it"));
    batch.push(ledger.emit(Some("29"), "x"));
    let outcomes = ledger.attempt(&open(&options(kafka, "narrow")), &batch).await;
    assert_eq!(outcomes[..30], vec![Outcome::Ack; 30]);
    let (class, message) = failure(&outcomes[30]);
    assert_eq!(class, FailureClass::Permanent);
    assert!(message.contains("is 20") && message.contains("max.message.bytes"), "{message}");
    assert_eq!(outcomes[31..], [Outcome::Untried, Outcome::Ack]);
    let found = Reader::new(&client(kafka), "narrow").read_all(held);
    assert!(found.iter().all(|event| event.key.as_deref() != Some("large")), "the key waits: {found:?}");
    ledger.compare(&found);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_refused_event_in_another_request_never_arrives() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "behind", 1, &[("max.message.bytes", "5000")]).await;
    let mut cut = options(kafka, "behind");
    // The refused event and the one behind it do not fit into one request.
    cut.message_bytes_max = 10_000.try_into().unwrap();
    let (small, large, next) = (10, 8000, 4000);
    // In the first case the broker has never heard of the producer. In the second it knows it by the first event, and
    // the other two are under way at once.
    for sizes in [&[large, next][..], &[small, large, next]].repeat(3) {
        let mut ledger = Ledger::new(&format!("behind-{}", sizes.len()));
        let batch: Vec<_> = sizes.iter().map(|size| ledger.emit(Some("k"), vec![b'x'; *size])).collect();
        let outcomes = ledger.attempt(&open(&cut), &batch).await;
        let (before, rest) = outcomes.split_at(sizes.len() - 2);
        assert!(before.iter().all(|outcome| *outcome == Outcome::Ack), "{outcomes:?}");
        assert_eq!((failure(&rest[0]).0, &rest[1]), (FailureClass::Permanent, &Outcome::Untried));
        let found = Reader::new(&client(kafka), "behind").read_all(held);
        let behind = batch[sizes.len() - 1].dedup_id();
        assert!(found.iter().all(|event| event.dedup_id != behind), "{sizes:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_events_go_to_several_topics_keeps_its_order_when_one_is_refused() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "fork.open", 1, &[]).await;
    make_topic(&client(kafka), "fork.narrow", 1, &[("max.message.bytes", "5000")]).await;
    let mut ledger = Ledger::new("fork");
    let batch = [
        ledger.emit_of("open", Some("a"), "1"),
        ledger.emit_of("narrow", Some("a"), vec![b'x'; 9000]),
        ledger.emit_of("open", Some("a"), "2"),
        ledger.emit_of("open", Some("b"), "3"),
    ];
    let outcomes = ledger.attempt(&open(&options(kafka, "fork.{type}")), &batch).await;
    assert_eq!(failure(&outcomes[1]).0, FailureClass::Permanent);
    assert_eq!([&outcomes[0], &outcomes[2], &outcomes[3]], [&Outcome::Ack, &Outcome::Untried, &Outcome::Ack]);
    let found = Reader::new(&client(kafka), "fork.open").read_all(held);
    let ids: Vec<_> = found.iter().map(|event| &event.dedup_id).collect();
    assert!(!ids.contains(&&batch[2].dedup_id()) && ids.len() == 2, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_back_pressure_and_no_failure() {
    let kafka = kafka::shared();
    make_topic(&client(kafka), "queue", 1, &[]).await;
    let mut tight = options(kafka, "queue");
    tight.queue_bytes_max = 100_000.try_into().unwrap();
    tight.message_bytes_max = 50_000.try_into().unwrap();
    let mut ledger = Ledger::new("queue");
    let batch: Vec<_> =
        (0..200).map(|n| ledger.emit(Some(&(n % 7).to_string()), vec![b'x'; 20_000])).collect();
    assert_eq!(ledger.attempt(&open(&tight), &batch).await, vec![Outcome::Ack; 200]);
    let found = Reader::new(&client(kafka), "queue").read_all(held);
    assert_eq!(found.len(), 200);
    ledger.compare(&found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_not_there_makes_the_sink_unavailable() {
    let mut nobody = KafkaOptions::new("127.0.0.1:1", "t".parse().unwrap()).unwrap();
    nobody.timeout_ms = 1500.try_into().unwrap();
    let mut ledger = Ledger::new("nobody");
    let batch = [ledger.emit(Some("a"), "x"), ledger.emit(Some("a"), "y"), ledger.emit(None, "z")];
    let outcomes = ledger.attempt(&open(&nobody), &batch).await;
    let (class, message) = failure(&outcomes[0]);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(message.contains("no ack after 1500 ms") && message.contains("127.0.0.1:1"), "{message}");
    assert_eq!((&outcomes[1], failure(&outcomes[2]).0), (&Outcome::Untried, FailureClass::Unavailable));
    let error = nobody.check().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("cannot be reached"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_a_login_takes_the_right_one_and_topics_are_not_made_unasked() {
    let credentials = Some(Credentials::new("rider", "secret"));
    let lines = vec!["auto.create.topics.enable=false".to_owned()];
    let kafka = Kafka::start_with(&kafka::Settings { credentials, lines, ..Default::default() });
    let mut right = options(&kafka, "orders");
    (right.user, right.password) = (Some("rider".to_owned()), Some(Secret::here("secret")));
    let mut ledger = Ledger::new("login");
    let batch = [ledger.emit(Some("a"), "x")];

    let wrong = KafkaOptions { password: Some(Secret::here("canary")), ..right.clone() };
    let (class, message) = failure(&ledger.attempt(&open(&wrong), &batch).await[0]);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(message.starts_with("Kafka refuses the login") && !message.contains("canary"), "{message}");
    let error = wrong.check().await.unwrap_err();
    assert!(!error.is_retryable() && error.to_string().starts_with("Kafka refuses the login"), "{error}");
    assert!(KafkaSink::open(&KafkaOptions { password: None, ..right.clone() }).is_err());

    let found = right.check().await.unwrap();
    assert_eq!(found[0], "reaches Kafka, brokers: 1");
    assert!(found[1].starts_with("topic `orders` is not there"), "{found:?}");
    let hasty = KafkaOptions { timeout_ms: 8000.try_into().unwrap(), ..right.clone() };
    let (class, message) = failure(&ledger.attempt(&open(&hasty), &batch).await[0]);
    assert_eq!(class, FailureClass::Unavailable);
    assert!(message.starts_with("topic `orders` of Kafka: "), "{message}");

    let mut config = client(&kafka);
    config.set("security.protocol", "sasl_plaintext").set("sasl.mechanism", "PLAIN");
    config.set("sasl.username", "rider").set("sasl.password", "secret");
    make_topic(&config, "orders", 1, &[]).await;
    assert_eq!(right.check().await.unwrap()[1], "topic `orders` has 3 partitions");
    assert_eq!(ledger.attempt(&open(&right), &batch).await, [Outcome::Ack]);

    // A password that was changed where it is kept is found by the next producer.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "canary").unwrap();
    let place = format!("file:{}", path.display()).parse().unwrap();
    let rotated = open(&KafkaOptions { password: Some(place), ..right.clone() });
    let batch = [ledger.emit(Some("a"), "y")];
    assert_eq!(failure(&ledger.attempt(&rotated, &batch).await[0]).0, FailureClass::Unavailable);
    std::fs::write(&path, "secret\n").unwrap();
    assert_eq!(ledger.attempt(&rotated, &batch).await, [Outcome::Ack]);
    ledger.compare(&Reader::new(&config, "orders").read_all(held));
}

/// With SCRAM, over TLS, to clients that show a certificate.
#[cfg(feature = "kafka-tls")]
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_tls_and_scram_must_be_trusted_and_must_trust_us() {
    use postrider_sinks::kafka::Sasl;

    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let ours = authority::Authority::new("ours");
    let (certificate, key) = ours.sign("127.0.0.1");
    let kafka = Kafka::start_with(&kafka::Settings {
        credentials: Some(Credentials::new("rider", "secret")),
        tls: Some(kafka::Tls { certificate, key, clients: Some(ours.certificate()) }),
        ..Default::default()
    });
    let (certificate, key) = ours.sign("relay");
    let url = format!("kafkas://rider:secret@{}/orders?sasl=scram-sha-512", kafka.bootstrap());
    let right = KafkaOptions {
        ca_file: put("ca.pem", &ours.certificate()),
        cert_file: put("relay.pem", &certificate),
        key_file: put("relay.key", &key),
        timeout_ms: 60_000.try_into().unwrap(),
        ..KafkaOptions::from_text(&url).unwrap()
    };
    let mut ledger = Ledger::new("tls");
    let batch = ledger.emit_turns(3, 10);

    // What time does not heal is told at once, costs no attempt, and repeats no secret.
    let stranger = put("stranger.pem", &authority::Authority::new("a stranger").certificate());
    let by_name = vec![format!("localhost:{}", kafka.port())];
    for (bad, words) in [
        (KafkaOptions { password: Some(Secret::here("canary")), ..right.clone() }, "Kafka refuses the login"),
        (KafkaOptions { ca_file: stranger, ..right.clone() }, "Kafka has not proved who it is"),
        (KafkaOptions { ca_file: None, ..right.clone() }, "Kafka has not proved who it is"),
        // The certificate is for the address.
        (KafkaOptions { brokers: by_name, ..right.clone() }, "Kafka has not proved who it is"),
        (
            KafkaOptions { cert_file: None, key_file: None, ..right.clone() },
            "Kafka wants a certificate of ours",
        ),
    ] {
        let outcomes = ledger.attempt(&open(&bad), &batch).await;
        let (class, message) = failure(&outcomes[0]);
        assert_eq!(class, FailureClass::Unavailable, "{message}");
        assert!(message.starts_with(words), "{words}: {message}");
        assert!(!outcomes.contains(&Outcome::Ack));
        let error = bad.check().await.unwrap_err().to_string();
        assert!(error.starts_with(words), "{words}: {error}");
        assert!(!format!("{outcomes:?} {error} {bad:?} {bad}").contains("canary"));
    }

    let mut config = client(&kafka);
    config.set("security.protocol", "sasl_ssl").set("sasl.mechanism", "SCRAM-SHA-256");
    config.set("sasl.username", "rider").set("sasl.password", "secret");
    for (setting, name) in [
        ("ssl.ca.location", "ca.pem"),
        ("ssl.certificate.location", "relay.pem"),
        ("ssl.key.location", "relay.key"),
    ] {
        config.set(setting, folder.path().join(name).to_str().unwrap());
    }
    make_topic(&config, "orders", 1, &[]).await;
    assert_eq!(right.check().await.unwrap()[1], "topic `orders` has 3 partitions");
    ledger.deliver(&open(&right), batch).await;
    let shorter = KafkaOptions { sasl: Sasl::ScramSha256, ..right };
    let batch = ledger.emit_turns(3, 10);
    ledger.deliver(&open(&shorter), batch).await;
    let found = Reader::new(&config, "orders").read_all(held);
    assert_eq!(found.len(), 60, "each came once: nothing of the failed attempts arrived");
    ledger.compare(&found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_fails_and_a_broker_that_hangs_or_dies_lose_nothing() {
    // No broker listens there yet.
    let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], 1)));
    let through = kafka::Settings { advertised: Some(proxy.address()), ..Default::default() };
    let mut kafka = Kafka::start_with(&through);
    proxy.set_target(SocketAddr::from(([127, 0, 0, 1], kafka.port())));
    make_topic(&client(&kafka), "orders", 1, &[]).await;
    let mut hasty = KafkaOptions::new(&proxy.address().to_string(), "orders".parse().unwrap()).unwrap();
    hasty.timeout_ms = 3000.try_into().unwrap();
    let sink = open(&hasty);
    let mut ledger = Ledger::new("dies");
    let first = ledger.emit_turns(10, 10);
    ledger.deliver(&open(&options(&kafka, "orders")), first).await;
    network::fail_in_every_way(&sink, &proxy, &mut ledger).await;

    // It takes bytes and acks nothing: neither do we.
    kafka.freeze_node(0);
    let batch = ledger.emit_turns(10, 10);
    let outcomes = ledger.attempt(&sink, &batch).await;
    assert!(outcomes.iter().all(|outcome| *outcome != Outcome::Ack), "{outcomes:?}");
    assert_eq!(failure(&outcomes[0]).0, FailureClass::Unavailable);
    // The caller gives these up.
    let abandoned = tokio::time::timeout(Duration::from_millis(500), sink.send(batch.clone())).await;
    assert!(abandoned.is_err());
    ledger.note_abandoned(&batch);
    kafka.thaw_node(0);
    ledger.deliver(&sink, batch).await;

    for _ in 0..2 {
        let batch = ledger.emit_turns(20, 100);
        let (kafka_again, ()) = tokio::join!(
            tokio::task::spawn_blocking(move || {
                kafka.kill();
                kafka.start_again();
                kafka
            }),
            ledger.deliver(&sink, batch),
        );
        kafka = kafka_again.unwrap();
    }
    // A broker that has just started shows readers less than it holds. It acks an event only when it shows all
    // that lies before it.
    let last = ledger.emit_turns(1, 1);
    ledger.deliver(&sink, last).await;
    let found = Reader::new(&client(&kafka), "orders").read_all(held);
    assert!(found.len() >= 4700, "{}", found.len());
    ledger.compare(&found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_leaders_loses_nothing_and_turns_nothing_around() {
    let mut kafka = Kafka::start_cluster();
    make_topic(&client(&kafka), "orders", 3, &[]).await;
    make_topic(&client(&kafka), "careful", 3, &[("min.insync.replicas", "3")]).await;
    let leads = |kafka: &Kafka, node: usize, leader: i32| {
        let told = kafka.metadata(node, "orders").unwrap();
        told.leaders.iter().any(|(_, of_partition)| *of_partition == leader)
    };
    // In the protocol, nodes are counted from 1.
    assert!(leads(&kafka, 1, 1), "the node that is about to be killed has something to lead");
    let sink = open(&options(&kafka, "orders"));
    let mut ledger = Ledger::new("leaders");
    for round in 0..12 {
        let batch: Vec<Delivery> = ledger.emit_turns(20, 10);
        if round == 4 {
            let (killed, ()) = tokio::join!(
                tokio::task::spawn_blocking(move || {
                    kafka.kill_node(0);
                    kafka
                }),
                ledger.deliver(&sink, batch),
            );
            kafka = killed.unwrap();
        } else {
            ledger.deliver(&sink, batch).await;
        }
    }
    let mut config = client(&kafka);
    config.set("bootstrap.servers", format!("127.0.0.1:{}", kafka.port_of(1)));
    let found = Reader::new(&config, "orders").read_all(held);
    assert!(found.len() >= 2400, "{}", found.len());
    ledger.compare(&found);

    assert!(!leads(&kafka, 1, 1), "others have taken over");

    // With a node down the topic has too few replicas in sync: nothing is acked, and no attempt is counted.
    let mut ledger = Ledger::new("careful");
    let batch = ledger.emit_turns(20, 3);
    let hasty = KafkaOptions { timeout_ms: 4000.try_into().unwrap(), ..options(&kafka, "careful") };
    for outcome in ledger.attempt(&open(&hasty), &batch).await {
        assert!(
            outcome == Outcome::Untried || failure(&outcome).0 == FailureClass::Unavailable,
            "{outcome:?}"
        );
    }
    kafka.start_node_again(0);
    ledger.deliver(&open(&options(&kafka, "careful")), batch).await;
    ledger.compare(&Reader::new(&config, "careful").read_all(held));
}
