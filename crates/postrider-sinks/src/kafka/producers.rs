//! Where producers come from, and where they go.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Failure, Result};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, DeliveryResult, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};

use super::courses::Courses;
use super::refusal::{self, LockedOut};
use super::reports::Reports;
use super::{KafkaOptions, security};

/// How long a broker that went away is left alone at most before it is tried again.
const RECONNECT_MS_MAX: u32 = 1000;
/// How long a thread waits for reports at a time, and so how long a producer takes to end. The client
/// computes for the last millisecond of it instead of waiting: with a tenth of a second, four producers at
/// rest took 3 % of a processor.
const POLL_FOR: Duration = Duration::from_secs(1);
/// What the client takes at least as its largest message.
const MESSAGE_BYTES_MAX_MIN: u32 = 1000;

/// Producers that may be used, at most so many at once.
pub(super) struct Producers {
    options: KafkaOptions,
    permits: Semaphore,
    idle: Mutex<Vec<Producer>>,
}

/// A client with the threads that serve it, and what they heard.
pub(super) struct Producer {
    pub(super) client: Arc<BaseProducer<Ear>>,
    polling: Option<Polling>,
    pub(super) heard: Arc<Heard>,
    /// Where brokers know it.
    pub(super) courses: Courses,
}

/// The thread that takes a client's reports.
struct Polling {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A producer for one batch. Unless it is given back it is thrown away, with all that it holds: also when the future
/// that sends the batch is dropped.
pub(super) struct Lease<'a> {
    producers: &'a Producers,
    /// None only once it was given back.
    producer: Option<Producer>,
    _permit: SemaphorePermit<'a>,
}

/// What a client tells of records and of brokers.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) reports: Reports,
    last: Mutex<Option<String>>,
    locked_out: watch::Sender<Option<LockedOut>>,
    is_dead: AtomicBool,
}

/// Where a client tells it.
pub(super) struct Ear(Arc<Heard>);

impl Producers {
    /// Makes the first producer, so that options which it refuses are told at once.
    pub(super) fn new(options: &KafkaOptions) -> Result<Self> {
        let first = Producer::new(options, &[])?;
        Ok(Self {
            options: options.clone(),
            permits: Semaphore::new(options.producers_max.get() as usize),
            idle: Mutex::new(vec![first]),
        })
    }

    pub(super) fn options(&self) -> &KafkaOptions {
        &self.options
    }

    /// An idle producer or a new one, which reads the password again.
    pub(super) async fn take(&self, deadline: Instant) -> Result<Lease<'_>, Failure> {
        let Ok(permit) = timeout_at(deadline, self.permits.acquire()).await else {
            return Err(Failure::unavailable("Kafka: all producers were busy until the deadline passed"));
        };
        let permit = permit.expect("nobody closes the permits");
        let idle = self.idle().pop();
        let mut producer = match idle {
            Some(producer) => producer,
            None => {
                Producer::new(&self.options, &[]).map_err(|error| Failure::unavailable(error.to_string()))?
            }
        };
        producer.courses.wake(Instant::now());
        Ok(Lease { producers: self, producer: Some(producer), _permit: permit })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Producer>> {
        // Nothing panics while it is held.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease<'_> {
    pub(super) fn producer(&mut self) -> &mut Producer {
        self.producer.as_mut().expect("it is given back by value")
    }

    /// For the next batch: everything that it was given was acked.
    pub(super) fn give_back(mut self) {
        let Some(mut producer) = self.producer.take() else { return };
        producer.courses.rest(Instant::now());
        self.producers.idle().push(producer);
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.producer.take().into_iter().for_each(Producer::retire);
    }
}

impl Drop for Producers {
    fn drop(&mut self) {
        self.idle().drain(..).for_each(Producer::retire);
    }
}

impl Producer {
    /// `more` goes before all other settings.
    pub(super) fn new(options: &KafkaOptions, more: &[(&str, &str)]) -> Result<Self> {
        let heard = Arc::new(Heard::default());
        let mut config = config(options)?;
        for (name, value) in more {
            config.set(*name, *value);
        }
        let client: BaseProducer<Ear> =
            config.create_with_context(Ear(Arc::clone(&heard))).map_err(|error| {
                // The client's text may repeat a value, of which one is the password.
                let what = match &error {
                    KafkaError::ClientConfig(_, _, name, _) => {
                        format!("its client refuses the setting `{name}`")
                    }
                    other => refusal::words(other),
                };
                Error::new(ErrorKind::Invalid, format!("sink `kafka` cannot be opened: {what}"))
            })?;
        let client = Arc::new(client);
        let polling = Some(Polling::begin(&client)?);
        Ok(Self { client, polling, heard, courses: Courses::default() })
    }

    /// Purges it and waits for its threads, which takes up to a second that no task has.
    fn retire(self) {
        let retiring = thread::Builder::new().name("kafka-retire".to_owned()).spawn(move || drop(self));
        // Without a thread the closure, and the producer with it, was dropped here.
        drop(retiring);
    }
}

impl Polling {
    fn begin(client: &Arc<BaseProducer<Ear>>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, client) = (Arc::clone(&stop), Arc::clone(client));
        let poll = move || {
            while !stopped.load(Ordering::Relaxed) {
                client.poll(POLL_FOR);
            }
        };
        let thread =
            thread::Builder::new().name("kafka-reports".to_owned()).spawn(poll).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "sink `kafka` cannot start a thread").with_source(error)
            })?;
        Ok(Self { stop, thread })
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let Some(Polling { stop, thread }) = self.polling.take() else { return };
        stop.store(true, Ordering::Relaxed);
        // It ends without the client only if it has panicked, and then there is nothing to wait for either.
        drop(thread.join());
    }
}

pub(super) fn config(options: &KafkaOptions) -> Result<ClientConfig> {
    let message_bytes_max = options.message_bytes_max.get().max(MESSAGE_BYTES_MAX_MIN);
    let queue_kbytes = (options.queue_bytes_max.get().max(message_bytes_max) / 1024).max(1) + 1;
    let settings = [
        ("bootstrap.servers", options.brokers.join(",")),
        ("client.id", "postrider".to_owned()),
        // What order and acks rest upon: see the head of the module.
        ("acks", "all".to_owned()),
        ("enable.idempotence", "true".to_owned()),
        ("enable.gapless.guarantee", "true".to_owned()),
        ("max.in.flight.requests.per.connection", "5".to_owned()),
        ("message.timeout.ms", "0".to_owned()),
        // As Java's clients do, so that a key is in one partition whichever client sends.
        ("partitioner", "murmur2_random".to_owned()),
        ("compression.type", options.compression.as_str().to_owned()),
        ("linger.ms", options.linger_ms.to_string()),
        ("message.max.bytes", message_bytes_max.to_string()),
        ("batch.size", message_bytes_max.to_string()),
        ("queue.buffering.max.kbytes", queue_kbytes.to_string()),
        ("reconnect.backoff.max.ms", RECONNECT_MS_MAX.to_string()),
        // A topic that is not there is told before the deadline, and not by it.
        ("topic.metadata.propagation.max.ms", (options.timeout_ms.get() / 2).to_string()),
        ("log.connection.close", "false".to_owned()),
    ];
    let mut config = ClientConfig::new();
    for (name, value) in settings {
        config.set(name, value);
    }
    security::apply(&mut config, options)?;
    Ok(config)
}

impl Heard {
    /// The last that was told about brokers, as the end of a sentence.
    pub(super) fn last(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|last| format!(": {last}")).unwrap_or_default()
    }

    /// Whether the producer has failed for good, so that it sends nothing more.
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    pub(super) fn is_locked_out(&self) -> Option<LockedOut> {
        *self.locked_out.borrow()
    }

    /// Waits until nothing can come of waiting for a broker.
    pub(super) async fn locked_out(&self) -> LockedOut {
        match self.locked_out.subscribe().wait_for(Option::is_some).await.map(|why| *why) {
            Ok(Some(why)) => why,
            // The sender is ours.
            _ => std::future::pending().await,
        }
    }
}

impl ClientContext for Ear {
    /// What matters comes as an error too.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(why) = LockedOut::of(&error, reason) {
            self.0.locked_out.send_replace(Some(why));
        }
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.0.is_dead.store(true, Ordering::Relaxed);
        }
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        // That all of them are down says less than why the last of them is.
        let says_more = error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown);
        if says_more || last.is_none() {
            *last = Some(reason.to_owned());
        }
    }
}

impl ProducerContext for Ear {
    /// The record's number in its wave.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let report = result.as_ref().map(drop).map_err(|(error, _)| error.clone());
        self.0.reports.note(number, report);
    }
}

impl fmt::Debug for Producers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producers").field("options", &self.options).finish_non_exhaustive()
    }
}
