//! What becomes of each event of a batch.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::{Confirmation, ConnectionStatus, PublisherConfirm};
use postrider_core::{Delivery, Failure, Outcome, Result, Sink};
use tokio::time::{Instant, sleep, sleep_until};

use super::RabbitMqOptions;
use super::channels::{Channels, Lease, blocked};
use super::publication::Publication;
use super::refusal::Refusal;
use crate::batch::sizes;

/// How often a connection is looked at that may have been blocked: the broker tells it after a publish.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Connections that a batch may lose to closed channels, its own or of other batches, before the broker counts as down.
const CROSSINGS_MAX: usize = 8;

/// Publishes deliveries to RabbitMQ. Clones share their connection.
#[derive(Debug, Clone)]
pub struct RabbitMqSink {
    channels: Arc<Channels>,
}

impl RabbitMqSink {
    /// Reads the password. No broker is reached yet.
    pub fn open(options: &RabbitMqOptions) -> Result<Self> {
        Ok(Self { channels: Arc::new(Channels::new(options)?) })
    }
}

impl Sink for RabbitMqSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let options = self.channels.options();
        let publications: Vec<_> = batch.iter().map(|delivery| Publication::of(delivery, options)).collect();
        let mut sending = Sending {
            channels: &self.channels,
            publications: &publications,
            deadline: Instant::now() + Duration::from_millis(options.timeout_ms.get().into()),
            outcomes: vec![Outcome::Untried; batch.len()],
            closed_exchanges: HashMap::new(),
            crossings: 0,
        };
        sending.run().await;
        sending.outcomes
    }
}

/// A batch under way.
struct Sending<'a> {
    channels: &'a Channels,
    publications: &'a [Result<Publication<'a>, Failure>],
    deadline: Instant,
    /// `Untried` until something is known.
    outcomes: Vec<Outcome>,
    /// Exchanges that take nothing from us: each costs a channel, so that they are asked once.
    closed_exchanges: HashMap<&'a str, Failure>,
    /// How often a connection was lost to a closed channel.
    crossings: usize,
}

/// Why a message was not confirmed.
#[derive(Debug, Clone)]
enum Missed {
    /// The broker or the client said so.
    Told(lapin::Error),
    /// The deadline passed.
    Late,
    /// The broker takes nothing from anybody.
    Blocked,
}

/// What one channel has shown.
#[derive(Debug, Default)]
struct Findings {
    /// Published in vain through no fault of theirs, or with an unknown result.
    again: Vec<usize>,
    /// Nothing can be published at all.
    is_down: bool,
    has_failures: bool,
    /// The broker would not have one of them: which one shows when they go alone.
    parts: bool,
}

type Confirmed = Vec<(usize, Result<Confirmation, Missed>)>;

impl Sending<'_> {
    async fn run(&mut self) {
        let mut waiting: Vec<usize> = (0..self.publications.len()).collect();
        let mut is_alone = false;
        while !waiting.is_empty() {
            let rest = if is_alone { waiting.split_off(1) } else { Vec::new() };
            let places = self.sendable(mem::replace(&mut waiting, rest));
            if places.is_empty() {
                continue;
            }
            let lease = match self.channels.take(self.deadline).await {
                Ok(lease) => lease,
                Err(failure) => return places.iter().for_each(|place| self.fail(*place, failure.clone())),
            };
            let confirmed = self.publish(&lease, &places).await;
            let findings = self.judge(confirmed);
            if findings.is_down {
                return;
            }
            if !findings.has_failures {
                lease.give_back();
            }
            is_alone |= findings.parts;
            waiting = [findings.again, waiting].concat();
        }
    }

    /// Settles those that need no broker for it, and gives the rest.
    fn sendable(&mut self, mut places: Vec<usize>) -> Vec<usize> {
        places.retain(|place| {
            let failure = match &self.publications[*place] {
                Ok(publication) => self.closed_exchanges.get(publication.exchange.as_str()),
                Err(failure) => Some(failure),
            };
            match failure.cloned() {
                Some(failure) => self.fail(*place, failure),
                None => return true,
            }
            false
        });
        places
    }

    /// Publishes all, and then waits for all confirms.
    async fn publish(&self, lease: &Lease<'_>, places: &[usize]) -> Confirmed {
        let mut patience = Patience::until(self.deadline, lease.status.clone());
        let mut confirmed = Vec::with_capacity(places.len());
        let mut under_way: Vec<(usize, PublisherConfirm)> = Vec::with_capacity(places.len());
        for place in places {
            let publication = self.publications[*place].as_ref().expect("what cannot be sent was sorted out");
            let publishing = lease.channel.basic_publish(
                publication.exchange.clone(),
                publication.routing_key.clone(),
                BasicPublishOptions { mandatory: true, immediate: false },
                publication.body(),
                publication.properties(),
            );
            match patience.wait_for(publishing).await {
                Ok(confirm) => under_way.push((*place, confirm)),
                // A closed channel says so for each of the rest.
                Err(missed @ Missed::Told(_)) => confirmed.push((*place, Err(missed))),
                Err(missed) => {
                    confirmed.push((*place, Err(missed)));
                    break;
                }
            }
        }
        for (place, confirm) in under_way {
            confirmed.push((place, patience.wait_for(confirm).await));
        }
        confirmed
    }

    /// Settles what a channel has settled. What was given back may come with the confirm of another message.
    fn judge(&mut self, confirmed: Confirmed) -> Findings {
        let mut findings = Findings::default();
        let (mut has_refusals, mut has_crossed) = (false, false);
        let is_single = confirmed.len() == 1;
        let mut returned: HashSet<String> = HashSet::new();
        for (_, result) in &confirmed {
            // tidy: foreign because AMQP names it so
            if let Ok(Confirmation::Ack(Some(message)) | Confirmation::Nack(Some(message))) = result {
                returned.extend(dedup_id(message));
            }
        }
        for (place, result) in confirmed {
            findings.has_failures |= result.is_err();
            let options = self.channels.options();
            match result {
                Ok(_) if self.is_among(place, &returned) => self.fail(
                    place,
                    Failure::retry(format!(
                        "exchange `{}` of RabbitMQ routes the event to no queue: bind one for routing key `{}`",
                        options.exchange, options.routing_key
                    )),
                ),
                Ok(Confirmation::Ack(_)) => self.outcomes[place] = Outcome::Ack,
                Ok(_) => self.fail(
                    place,
                    Failure::retry(format!("exchange `{}` of RabbitMQ: a queue did not take the event", options.exchange)),
                ),
                Err(Missed::Told(error)) => match self.judge_error(place, &error, is_single, &mut findings) {
                    Refusal::Exchange | Refusal::Content => has_refusals = true,
                    Refusal::Crossing => has_crossed = true,
                    Refusal::Collateral | Refusal::Connection => {}
                },
                Err(Missed::Late) => {
                    findings.is_down = true;
                    let after = options.timeout_ms;
                    self.fail(place, Failure::unavailable(format!("RabbitMQ: no confirm after {after} ms")));
                }
                Err(Missed::Blocked) => {
                    findings.is_down = true;
                    self.fail(place, blocked());
                }
            }
        }
        self.crossings += usize::from(has_crossed);
        findings.parts = has_refusals || (findings.has_failures && !has_crossed);
        findings
    }

    fn judge_error(
        &mut self,
        place: usize,
        error: &lapin::Error,
        is_single: bool,
        findings: &mut Findings,
    ) -> Refusal {
        let options = self.channels.options();
        let exchange = &options.exchange;
        let refusal = match Refusal::of(error) {
            // A channel that was closed before the only message on it fell to another batch's crossing.
            Refusal::Collateral if is_single => Refusal::Crossing,
            refusal => refusal,
        };
        match refusal {
            Refusal::Crossing if self.crossings < CROSSINGS_MAX => findings.again.push(place),
            Refusal::Crossing | Refusal::Connection => {
                findings.is_down = true;
                self.fail(place, Failure::unavailable(format!("RabbitMQ: {error}")));
            }
            Refusal::Exchange if exchange.is_constant() || is_single => {
                let failure = if exchange.is_constant() {
                    Failure::unavailable(format!("exchange `{exchange}` of RabbitMQ: {error}"))
                } else {
                    // Without the broker's words, which name it, and so may hold the event's key.
                    Failure::retry(format!("exchange `{exchange}` of RabbitMQ is not there, or not ours"))
                };
                if let Ok(publication) = &self.publications[place] {
                    self.closed_exchanges.insert(publication.exchange.as_str(), failure.clone());
                }
                self.fail(place, failure);
            }
            Refusal::Content if is_single => {
                let bytes =
                    self.publications[place].as_ref().map_or(0, |publication| publication.body().len());
                let limit = options.message_bytes_max;
                self.fail(
                    place,
                    Failure::permanent(format!(
                        "RabbitMQ refuses the event, which is {bytes} bytes: {error}. The sink sends up to {limit} \
                         (`message_bytes_max`): if the broker's `max_message_size` is lower, raise it and replay the dead letter"
                    )),
                );
            }
            Refusal::Exchange | Refusal::Content | Refusal::Collateral => findings.again.push(place),
        }
        refusal
    }

    fn is_among(&self, place: usize, ids: &HashSet<String>) -> bool {
        !ids.is_empty()
            && self.publications[place].as_ref().is_ok_and(|one| ids.contains(one.dedup_id.as_str()))
    }

    fn fail(&mut self, place: usize, failure: Failure) {
        self.outcomes[place] = sizes::outcome(failure);
    }
}

fn dedup_id(message: &BasicReturnMessage) -> Option<String> {
    // tidy: foreign because AMQP names it so
    message.properties.message_id().as_ref().map(|id| id.as_str().to_owned())
}

/// How long a batch is waited for. What was confirmed by then counts, however late it is asked.
struct Patience {
    end: Pin<Box<dyn Future<Output = Missed> + Send>>,
    ended: Option<Missed>,
}

impl Patience {
    fn until(deadline: Instant, status: ConnectionStatus) -> Self {
        let end = Box::pin(async move {
            let blocked = async {
                while !status.blocked() {
                    sleep(LOOK_EVERY).await;
                }
            };
            tokio::select! {
                () = blocked => Missed::Blocked,
                () = sleep_until(deadline) => Missed::Late,
            }
        });
        Self { end, ended: None }
    }

    async fn wait_for<T>(&mut self, told: impl Future<Output = lapin::Result<T>>) -> Result<T, Missed> {
        let told = if let Some(missed) = &self.ended {
            tokio::select! {
                biased;
                told = told => told,
                () = ready(()) => return Err(missed.clone()),
            }
        } else {
            tokio::select! {
                biased;
                told = told => told,
                missed = &mut self.end => {
                    self.ended = Some(missed.clone());
                    return Err(missed);
                }
            }
        };
        told.map_err(Missed::Told)
    }
}
