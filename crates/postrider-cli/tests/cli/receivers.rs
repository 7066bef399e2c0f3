//! Brokers that tests of the relay share, and what they hold.
//!
//! They are lent to one test at a time, so that it may freeze them; each test takes names of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream;
use lapin::options::{BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use postrider_testkit::brokers::Credentials;
use postrider_testkit::brokers::kafka::Kafka;
use postrider_testkit::brokers::nats::Nats;
use postrider_testkit::brokers::rabbitmq::{self, RabbitMq};
use postrider_testkit::brokers::redis::Redis;
use postrider_testkit::postgres::Database;
// tidy: foreign because rdkafka names it so
use rdkafka::consumer::{BaseConsumer as Client, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::runtime::Runtime;

/// Who publishes to RabbitMQ.
pub(crate) const RIDER: &str = "rider";
/// With this password, which stands nowhere but here and in the files of tests.
pub(crate) const RIDER_PASSWORD: &str = "horse7battery";
const READ_MAX: Duration = Duration::from_secs(60);
/// Topics are made by asking for them, with so many.
const PARTITIONS: i32 = 3;

/// What the clients of the brokers run on.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// All of them, each with its state at rest.
pub(crate) struct Brokers {
    pub(crate) kafka: Kafka,
    pub(crate) nats: Nats,
    pub(crate) rabbitmq: RabbitMq,
    pub(crate) redis: Redis,
}

/// The brokers, for one test at a time; started by the first that asks, all at once since some take seconds.
pub(crate) fn lent() -> MutexGuard<'static, Brokers> {
    static BROKERS: LazyLock<Mutex<Brokers>> = LazyLock::new(|| Mutex::new(Brokers::start()));
    let mut brokers = BROKERS.lock().unwrap_or_else(PoisonError::into_inner);
    // A test that has failed may have left them frozen.
    brokers.kafka.thaw_node(0);
    brokers.nats.thaw();
    brokers
}

/// An event that a receiver holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) key: String,
    /// Its number in the ledger, with which its payload begins.
    pub(crate) number: u64,
    /// The same however often it comes.
    pub(crate) dedup_id: String,
}

impl Arrived {
    /// Of what stands beside the payload.
    pub(crate) fn new(payload: &[u8], headers: &HashMap<String, String>) -> Self {
        let number = std::str::from_utf8(payload).unwrap().trim_end().parse().unwrap();
        assert_eq!(headers["postrider-attempt"], "1", "nothing here costs an attempt");
        Self {
            key: headers["postrider-key"].clone(),
            number,
            dedup_id: headers["postrider-dedup-id"].clone(),
        }
    }
}

impl Brokers {
    fn start() -> Self {
        let rider = rabbitmq::User {
            credentials: Credentials::new(RIDER, RIDER_PASSWORD),
            configure: "^$".to_owned(),
            write: ".*".to_owned(),
            read: "^$".to_owned(),
        };
        let settings = rabbitmq::Settings { users: vec![rider], ..Default::default() };
        std::thread::scope(|scope| {
            let kafka = scope.spawn(Kafka::start);
            let rabbitmq = scope.spawn(|| RabbitMq::start_with(&settings));
            let (nats, redis) = (Nats::start(), Redis::start());
            Self { kafka: kafka.join().unwrap(), nats, rabbitmq: rabbitmq.join().unwrap(), redis }
        })
    }

    /// A stream that listens on its name.
    pub(crate) fn make_stream(&self, name: &str) {
        let config = jetstream::stream::Config {
            name: name.to_owned(),
            subjects: vec![name.to_owned()],
            ..Default::default()
        };
        RUNTIME.block_on(async {
            let client = async_nats::connect(self.nats.url()).await.unwrap();
            jetstream::new(client).create_stream(config).await.unwrap();
        });
    }

    /// A topic all of whose partitions can be written to.
    pub(crate) fn make_topic(&self, name: &str) {
        crate::harness::until("the topic is there", || {
            let told = self.kafka.ask_for_topic(name);
            told.is_ok()
                && self.kafka_client().fetch_metadata(Some(name), READ_MAX).is_ok_and(|told| {
                    let partitions = told.topics()[0].partitions();
                    partitions.len() == PARTITIONS as usize && partitions.iter().all(|part| part.leader() > 0)
                })
        });
    }

    /// A durable queue, to which the nameless exchange routes.
    pub(crate) fn make_queue(&self, name: &str) {
        RUNTIME.block_on(async {
            let channel = self.channel().await;
            let durable = QueueDeclareOptions::durable();
            channel.queue_declare(name.into(), durable, FieldTable::default()).await.unwrap();
        });
    }

    pub(crate) fn in_topic(&self, name: &str) -> Vec<Arrived> {
        let client = self.kafka_client();
        let mut partitions = TopicPartitionList::new();
        let mut count = 0;
        for partition in 0..PARTITIONS {
            partitions.add_partition_offset(name, partition, Offset::Beginning).unwrap();
            // tidy: foreign because rdkafka names it so
            count += client.fetch_watermarks(name, partition, READ_MAX).unwrap().1;
        }
        client.assign(&partitions).unwrap();
        let mut arrived = Vec::new();
        while (arrived.len() as i64) < count {
            let record = client.poll(READ_MAX).expect("a record is there").unwrap();
            let headers = record.headers().unwrap().iter();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let headers =
                headers.map(|header| (header.key.to_owned(), text(header.value.unwrap()))).collect();
            arrived.push(Arrived::new(record.payload().unwrap(), &headers));
            assert_eq!(text(record.key().unwrap()), arrived[arrived.len() - 1].key);
        }
        arrived
    }

    pub(crate) fn in_nats(&self, stream: &str) -> Vec<Arrived> {
        RUNTIME.block_on(async {
            let client = async_nats::connect(self.nats.url()).await.unwrap();
            let stream = jetstream::new(client).get_stream(stream).await.unwrap();
            let count = stream.cached_info().state.messages;
            let mut arrived = Vec::new();
            for sequence in 1..=count {
                let message = stream.get_raw_message(sequence).await.unwrap();
                let headers = message.headers.iter();
                let headers =
                    headers.map(|(name, values)| (name.to_string(), values[0].to_string())).collect();
                arrived.push(Arrived::new(&message.payload, &headers));
            }
            arrived
        })
    }

    pub(crate) fn in_redis(&self, stream: &str) -> Vec<Arrived> {
        let mut client = redis::Client::open(self.redis.url()).unwrap().get_connection().unwrap();
        let entries: redis::streams::StreamRangeReply =
            redis::cmd("XRANGE").arg(stream).arg("-").arg("+").query(&mut client).unwrap();
        let arrived = entries.ids.into_iter().map(|entry| {
            let text = |value| redis::from_redis_value::<String>(value).unwrap();
            let fields: HashMap<_, _> =
                entry.map.into_iter().map(|(name, value)| (name, text(value))).collect();
            Arrived::new(fields["payload"].as_bytes(), &fields)
        });
        arrived.collect()
    }

    /// Takes everything out of a queue.
    pub(crate) fn out_of_queue(&self, name: &str) -> Vec<Arrived> {
        RUNTIME.block_on(async {
            let channel = self.channel().await;
            let mut arrived = Vec::new();
            let take = || channel.basic_get(name.into(), BasicGetOptions { no_ack: true });
            while let Some(got) = take().await.unwrap() {
                let headers = got.properties.headers().as_ref().unwrap().inner().iter();
                let headers = headers.map(|(name, value)| match value {
                    AMQPValue::LongString(text) => (name.to_string(), text.to_string()),
                    other => panic!("{name}: {other:?}"),
                });
                arrived.push(Arrived::new(&got.data, &headers.collect()));
            }
            arrived
        })
    }

    async fn channel(&self) -> lapin::Channel {
        let properties = lapin::ConnectionProperties::default();
        let connection = lapin::Connection::connect(&self.rabbitmq.url(), properties).await.unwrap();
        connection.create_channel().await.unwrap()
    }

    fn kafka_client(&self) -> Client {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.kafka.bootstrap());
        config.set("group.id", "reader").set("enable.auto.commit", "false");
        config.create().unwrap()
    }
}

/// What was emitted, written down in the same transactions.
pub(crate) struct Ledger {
    pub(crate) db: Database,
    keys: u64,
}

impl Ledger {
    /// In a database with Postrider's tables.
    pub(crate) fn new(db: Database, keys: u64) -> Self {
        db.query("create table ledger (number bigint primary key, key text not null)");
        Self { db, keys }
    }

    /// Emits so many events, the keys taking turns, and as many in a transaction that is rolled back.
    pub(crate) fn emit(&self, count: u64) {
        let (keys, next) = (self.keys, self.count() + 1);
        for (first, end) in [(next + 1_000_000, "rollback"), (next, "commit")] {
            let last = first + count - 1;
            // Padded, so that bytes on their way can be told from the small talk of a protocol.
            self.db.query(&format!(
                "begin;
                 insert into ledger (number, key) select n, 'key-' || n % {keys} from generate_series({first}, {last}) as n;
                 insert into postrider.event (topic, type, key, payload_bytes)
                 select 'order', 'order.placed', key, convert_to(rpad(number::text, 1000), 'UTF8')
                 from ledger where number >= {first} order by number;
                 {end};"
            ));
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.db.query("select count(*) from ledger")[0][0].as_ref().unwrap().parse().unwrap()
    }

    /// Nothing is missing and nothing was made up; the events of a key came for the first time in their
    /// order; each has one id, however often it came. Gives how many came again.
    #[track_caller]
    pub(crate) fn compare(&self, who: &str, arrived: &[Arrived]) -> usize {
        let rows = self.db.query("select number, key from ledger order by number");
        let emitted: BTreeMap<u64, String> = rows
            .into_iter()
            .map(|row| (row[0].as_ref().unwrap().parse().unwrap(), row[1].clone().unwrap()))
            .collect();
        let mut ids: BTreeMap<u64, &str> = BTreeMap::new();
        let mut last: HashMap<&str, u64> = HashMap::new();
        for event in arrived {
            assert_eq!(emitted.get(&event.number), Some(&event.key), "{who}: never emitted: {event:?}");
            if let Some(id) = ids.insert(event.number, &event.dedup_id) {
                assert_eq!(id, event.dedup_id, "{who}: it came again under another id");
                continue;
            }
            let before = last.insert(&event.key, event.number);
            assert!(before < Some(event.number), "{who}: {event:?} came after {before:?}");
        }
        let lost: Vec<_> = emitted.keys().filter(|number| !ids.contains_key(number)).collect();
        assert!(lost.is_empty(), "{who}: {} of {} are lost: {lost:?}", lost.len(), emitted.len());
        arrived.len() - emitted.len()
    }
}
