//! What becomes of each event of a batch.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Delivery, Failure, Key, Outcome, Result, Sink};
use rdkafka::error::KafkaError;
use rdkafka::producer::{Producer as _, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode;
use tokio::time::{Instant, sleep, sleep_until};

use super::KafkaOptions;
use super::courses::{Course, Courses};
use super::producers::{Lease, Producer, Producers};
use super::record::Record;
use super::refusal::{self, LockedOut, Refusal};
use super::wave::Waves;
use crate::FailedKeys;
use crate::batch::sizes;

/// How often a batch may lose its producer before its events are sent one by one.
const TOGETHER_MAX: u32 = 2;
/// How often a producer that reports nothing is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long what is on its way may still be acked once a producer has failed.
const LAST_ACKS_MAX: Duration = Duration::from_secs(1);

/// Sends deliveries to Kafka. Clones share their producers.
#[derive(Debug, Clone)]
pub struct KafkaSink {
    producers: Arc<Producers>,
}

impl KafkaSink {
    /// Reads the password and makes the first producer. No broker is reached yet.
    pub fn open(options: &KafkaOptions) -> Result<Self> {
        Ok(Self { producers: Arc::new(Producers::new(options)?) })
    }
}

impl Sink for KafkaSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let options = self.producers.options();
        let deadline = Instant::now() + Duration::from_millis(options.timeout_ms.get().into());
        // Before any record is made, so that those of batches that wait for a producer take no room.
        let lease = self.producers.take(deadline).await;
        let records: Vec<_> = batch.iter().map(|delivery| Record::of(delivery, options)).collect();
        let mut sending = Sending {
            producers: &self.producers,
            batch: &batch,
            records: &records,
            deadline,
            outcomes: vec![Outcome::Untried; batch.len()],
            failed: FailedKeys::default(),
            closed_topics: HashMap::new(),
        };
        sending.run(lease).await;
        sending.outcomes
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

/// A batch under way.
struct Sending<'a> {
    producers: &'a Producers,
    batch: &'a [Delivery],
    records: &'a [Result<Record<'a>, Failure>],
    deadline: Instant,
    /// `Untried` until something is known.
    outcomes: Vec<Outcome>,
    failed: FailedKeys,
    /// Topics that take nothing from us: each costs a producer, so that they are asked once.
    closed_topics: HashMap<&'a str, Failure>,
}

/// Why a record was not acked.
#[derive(Debug, Clone)]
enum Missed {
    /// Kafka or its client said so.
    Told(KafkaError),
    /// The deadline passed.
    Late,
    /// Nothing can come of waiting.
    LockedOut(LockedOut),
    /// It was never handed to the client, since an earlier one had failed.
    NotSent,
}

/// What a wave has shown.
#[derive(Debug, Default)]
struct Findings {
    /// Sent in vain through no fault of their own.
    again: Vec<usize>,
    /// Some record of a request cannot be taken.
    has_bad_content: bool,
    /// Nothing can be sent at all.
    is_down: bool,
    has_failures: bool,
}

impl<'a> Sending<'a> {
    async fn run(&mut self, lease: Result<Lease<'_>, Failure>) {
        let mut waves = Waves::new(self.batch.len());
        let mut lease = Some(lease);
        let (mut lost, mut is_alone) = (0, false);
        while !waves.is_empty() {
            let taken = match lease.take() {
                Some(taken) => taken,
                None => self.producers.take(self.deadline).await,
            };
            let mut held = match taken {
                Ok(held) => held,
                Err(failure) => {
                    let wave = self.next_wave(&mut waves, &Courses::default(), false);
                    return wave.iter().for_each(|place| self.fail(*place, failure.clone()));
                }
            };
            let producer = held.producer();
            let wave = self.next_wave(&mut waves, &producer.courses, is_alone);
            let results = self.produce(producer, &wave).await;
            let findings = self.judge(results, producer);
            if findings.has_failures {
                drop(held);
                lost += 1;
                is_alone |= findings.has_bad_content || lost >= TOGETHER_MAX;
                waves.again(&findings.again);
            } else {
                let proof = waves.proof(|place| self.outcomes[place] == Outcome::Ack);
                proof.for_each(|place| producer.courses.prove(self.key_and_course(place).1));
                lease = Some(Ok(held));
            }
            if findings.is_down {
                // What was not tried stays so.
                waves.give_up();
            }
        }
        if let Some(Ok(lease)) = lease {
            lease.give_back();
        }
    }

    /// The next wave, without what needs no broker to be settled.
    fn next_wave(&mut self, waves: &mut Waves, courses: &Courses, is_alone: bool) -> Vec<usize> {
        let wave = if is_alone {
            waves.next_alone()
        } else {
            waves.next(courses, |place| self.key_and_course(place))
        };
        self.sendable(wave)
    }

    fn key_and_course(&self, place: usize) -> (Option<&'a str>, Course<'a>) {
        let key = self.batch[place].key.as_ref().map(Key::as_str);
        let record = self.records[place].as_ref().ok();
        (key, record.and_then(|record| Some((&*record.topic, record.key.as_deref()?))))
    }

    /// Settles those of a wave that need no broker for it, and gives the rest.
    fn sendable(&mut self, mut wave: Vec<usize>) -> Vec<usize> {
        wave.retain(|place| {
            if self.failed.blocks(&self.batch[*place]) {
                return false;
            }
            let failure = match &self.records[*place] {
                Ok(record) => self.closed_topics.get(&*record.topic),
                Err(failure) => Some(failure),
            };
            match failure.cloned() {
                Some(failure) => self.fail(*place, failure),
                None => return true,
            }
            false
        });
        wave
    }

    /// Hands a wave to the client and waits for all of it. What the client has no room for waits for what it holds.
    async fn produce(&self, producer: &Producer, wave: &[usize]) -> Vec<(usize, Result<(), Missed>)> {
        let reports = &producer.heard.reports;
        let mut patience = Patience::until(self.deadline, producer);
        reports.begin(wave.len());
        let mut sent = 0;
        let mut refused = None;
        while sent < wave.len() {
            let record = self.records[wave[sent]].as_ref().expect("a wave holds what can be sent");
            let Err((error, _)) = producer.client.send(record.to_send(sent)) else {
                sent += 1;
                continue;
            };
            let (arrived, is_full) =
                (reports.arrived(), error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull));
            if !is_full || arrived == sent {
                refused = Some(error);
                break;
            }
            // Half of what it holds, so that it is not asked for each.
            patience.wait_for(arrived + (sent - arrived).div_ceil(2)).await;
            if reports.has_failures() || patience.ended.is_some() {
                break;
            }
        }
        patience.wait_for(sent).await;
        let missed = patience.ended.unwrap_or(Missed::Told(KafkaError::Canceled));
        let reports = reports.take().into_iter().zip(wave).enumerate();
        reports
            .map(|(number, (report, place))| {
                let result = match report {
                    Some(report) => report.map_err(Missed::Told),
                    None if number < sent => Err(missed.clone()),
                    None => Err(refused.take().map_or(Missed::NotSent, Missed::Told)),
                };
                (*place, result)
            })
            .collect()
    }

    /// Settles what a wave has settled.
    fn judge(&mut self, results: Vec<(usize, Result<(), Missed>)>, producer: &Producer) -> Findings {
        let mut findings = Findings::default();
        let is_single = results.len() == 1;
        for (place, result) in results {
            findings.has_failures |= result.is_err();
            // Even what was acked: the event before it is still to come, and this one is to follow it.
            if self.failed.blocks(&self.batch[place]) {
                continue;
            }
            match result {
                Ok(()) => self.outcomes[place] = Outcome::Ack,
                Err(Missed::NotSent) => findings.again.push(place),
                Err(Missed::Told(error)) => self.judge_error(place, &error, is_single, &mut findings),
                Err(Missed::Late) => {
                    findings.is_down = true;
                    let (heard, after) = (producer.heard.last(), self.producers.options().timeout_ms);
                    self.fail(place, Failure::unavailable(format!("Kafka: no ack after {after} ms{heard}")));
                }
                Err(Missed::LockedOut(why)) => {
                    findings.is_down = true;
                    let (words, heard) = (why.words(), producer.heard.last());
                    self.fail(place, Failure::unavailable(format!("{words}{heard}")));
                }
            }
        }
        findings
    }

    fn judge_error(&mut self, place: usize, error: &KafkaError, is_single: bool, findings: &mut Findings) {
        let options = self.producers.options();
        let (words, topic) = (refusal::words(error), &options.topic);
        match Refusal::of(error) {
            Refusal::Content if is_single => {
                let bytes = self.records[place].as_ref().map_or(0, Record::bytes);
                let limit = options.message_bytes_max;
                self.fail(
                    place,
                    Failure::permanent(format!(
                        "topic `{topic}` refuses the event, which is {bytes} bytes on the wire: {words}. The sink sends up to \
                         {limit} (`message_bytes_max`): if the topic's `max.message.bytes` is lower, raise it and replay the \
                         dead letter"
                    )),
                );
            }
            Refusal::Content => {
                findings.has_bad_content = true;
                findings.again.push(place);
            }
            Refusal::Collateral if is_single => {
                self.fail(place, Failure::retry(format!("the producer for Kafka has failed: {words}")));
            }
            Refusal::Collateral => findings.again.push(place),
            Refusal::Topic => {
                let message = format!("topic `{topic}` of Kafka: {words}");
                let is_sole = topic.is_constant();
                let failure = if is_sole { Failure::unavailable(message) } else { Failure::retry(message) };
                if let Ok(record) = &self.records[place] {
                    self.closed_topics.insert(&record.topic, failure.clone());
                }
                self.fail(place, failure);
            }
            Refusal::Cluster => {
                findings.is_down = true;
                self.fail(place, Failure::unavailable(format!("Kafka: {words}")));
            }
            Refusal::Unknown => {
                self.fail(place, Failure::retry(format!("topic `{topic}` of Kafka: {words}")));
            }
        }
    }

    fn fail(&mut self, place: usize, failure: Failure) {
        self.failed.note(&self.batch[place]);
        self.outcomes[place] = sizes::outcome(failure);
    }
}

/// How long the records of a wave are waited for.
///
/// Once one has failed, or the producer has died, those that are still in its queue will never be sent, and
/// nothing in it times out: they are purged, which reports them. Those on their way have a moment to be
/// acked, and are purged then.
struct Patience<'a> {
    end: Pin<Box<dyn Future<Output = Missed> + Send + 'a>>,
    ended: Option<Missed>,
    producer: &'a Producer,
    failed_at: Option<Instant>,
}

impl<'a> Patience<'a> {
    fn until(deadline: Instant, producer: &'a Producer) -> Self {
        let end = Box::pin(async move {
            tokio::select! {
                why = producer.heard.locked_out() => Missed::LockedOut(why),
                () = sleep_until(deadline) => Missed::Late,
            }
        });
        Self { end, ended: None, producer, failed_at: None }
    }

    /// Waits until so many records of the wave are reported, or there is no use in waiting.
    async fn wait_for(&mut self, reports: usize) {
        let arriving = &self.producer.heard.reports;
        while self.ended.is_none() && arriving.arrived() < reports {
            tokio::select! {
                biased;
                () = arriving.reach(reports) => {}
                missed = &mut self.end => self.ended = Some(missed),
                () = sleep(LOOK_EVERY) => self.purge_if_failed(),
            }
        }
    }

    fn purge_if_failed(&mut self) {
        if self.producer.heard.is_dead() || self.producer.heard.reports.has_failures() {
            self.failed_at.get_or_insert_with(Instant::now);
        }
        let Some(failed_at) = self.failed_at else { return };
        let queue = PurgeConfig::default().queue();
        let is_over = failed_at.elapsed() > LAST_ACKS_MAX;
        self.producer.client.purge(if is_over { queue.inflight() } else { queue });
    }
}
