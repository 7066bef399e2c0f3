//! A batch on its way to a stream: all keys at once, and the events of one key one after the other.

use std::collections::VecDeque;
use std::pin::pin;
use std::task::Poll;

use async_nats::jetstream;
use postrider_core::{Delivery, Failure, Outcome};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout};

use super::acks::{Answer, Inbox};
use super::repeats::Repeats;
use super::{Connection, IN_FLIGHT_MAX, NatsOptions, Prepared, Shared, failures};
use crate::batch::per_key::Chains;
use crate::batch::sizes;

/// Cancel safe: what was on its way may be sent again.
pub(super) async fn send(connection: &Connection, shared: &Shared, batch: &[Delivery]) -> Vec<Outcome> {
    let mut sending = Sending {
        connection,
        options: &shared.options,
        repeats: &shared.repeats,
        strange: 0,
        batch,
        inbox: connection.acks.inbox(batch.len().min(IN_FLIGHT_MAX)).await,
        chains: Chains::new(batch),
        in_flight: VecDeque::new(),
        count: 0,
        outcomes: vec![None; batch.len()],
    };
    sending.run().await;
    if sending.strange > 0 {
        shared.repeats.tell(sending.strange, &batch[0].origin.subscription);
    }
    let outcomes = std::mem::take(&mut sending.outcomes);
    outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Untried)).collect()
}

struct Sending<'a> {
    connection: &'a Connection,
    options: &'a NatsOptions,
    repeats: &'a Repeats,
    /// Events that the stream called repeats for no reason that we know.
    strange: u64,
    batch: &'a [Delivery],
    inbox: Inbox<'a>,
    chains: Chains,
    /// Places of events that have left and when they are late, in that order; some are answered already.
    in_flight: VecDeque<(usize, Instant)>,
    /// How many of them are not.
    count: usize,
    /// None of what has not left, or is on its way.
    outcomes: Vec<Option<Outcome>>,
}

/// An ack, or why there is none.
#[derive(Debug, Deserialize)]
struct PublishAnswer {
    error: Option<jetstream::Error>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
}

/// Events that were on their way when the sending was dropped may have arrived.
impl Drop for Sending<'_> {
    fn drop(&mut self) {
        for (place, _) in &self.in_flight {
            if self.outcomes.get(*place).is_some_and(Option::is_none) {
                self.repeats.note(&self.batch[*place]);
            }
        }
    }
}

impl Sending<'_> {
    async fn run(&mut self) {
        let mut lost = pin!(self.connection.lost());
        loop {
            // One look at the clock for all that leave together.
            let late_at = Instant::now() + self.options.time_limit.get();
            while self.count < IN_FLIGHT_MAX
                && let Some(place) = self.chains.next()
            {
                match self.publish(place).await {
                    Ok(()) => {
                        self.in_flight.push_back((place, late_at));
                        self.count += 1;
                    }
                    Err(failure) => self.end_in_doubt(place, sizes::outcome(failure)),
                }
            }
            let Some(late_at) = self.next_late_at() else { return };
            tokio::select! {
                biased;
                answers = self.inbox.arrived() => answers.iter().for_each(|answer| self.answered(answer)),
                failure = lost.as_mut() => return self.give_up(&failure),
                () = sleep_until(late_at) => self.end_late(),
            }
        }
    }

    /// Hands an event to the client, which has room for it at once as a rule.
    async fn publish(&self, place: usize) -> Result<(), Failure> {
        let Prepared { subject, headers, payload, bytes } = Prepared::of(&self.batch[place], self.options)?;
        let (client, reply_to) = (&self.connection.client, self.inbox.reply_to(place));
        let mut taking = pin!(client.publish_with_reply_and_headers(subject, reply_to, headers, payload));
        let taken = match futures_util::poll!(taking.as_mut()) {
            Poll::Ready(taken) => Ok(taken),
            Poll::Pending => tokio::select! {
                taken = timeout(self.options.time_limit.get(), taking) => taken,
                failure = self.connection.lost() => return Err(failure),
            },
        };
        match taken {
            Ok(taken) => taken.map_err(|error| failures::of_publish(&error, self.connection, bytes)),
            Err(_) => Err(failures::no_ack(self.options, self.connection)),
        }
    }

    fn answered(&mut self, answer: &Answer) {
        // One that was late has its outcome.
        if self.outcomes[answer.place].is_none() {
            let outcome = match self.judge(answer) {
                Ok(is_repeat) => {
                    let is_strange = self.repeats.is_strange(&self.batch[answer.place], is_repeat);
                    self.strange += u64::from(is_strange);
                    Outcome::Ack
                }
                Err(failure) => sizes::outcome(failure),
            };
            self.count -= 1;
            self.end(answer.place, outcome);
        }
    }

    /// Whether the stream had it before.
    fn judge(&self, answer: &Answer) -> Result<bool, Failure> {
        if answer.is_unheard {
            return Err(failures::absent_stream(self.options));
        }
        match serde_json::from_slice(&answer.payload) {
            Ok(PublishAnswer { error: Some(error), .. }) => Err(failures::of_answer(&error, self.options)),
            Ok(PublishAnswer { error: None, seq: Some(_), duplicate }) => Ok(duplicate),
            Ok(PublishAnswer { error: None, seq: None, .. }) | Err(_) => {
                let subject = &self.options.subject;
                Err(Failure::retry(format!("what answers on `{subject}` is no JetStream stream of NATS")))
            }
        }
    }

    /// Of an event that may have arrived all the same.
    fn end_in_doubt(&mut self, place: usize, outcome: Outcome) {
        if matches!(outcome, Outcome::Retry(_)) {
            self.repeats.note(&self.batch[place]);
        }
        self.end(place, outcome);
    }

    fn end(&mut self, place: usize, outcome: Outcome) {
        self.chains.note(place, &outcome);
        self.outcomes[place] = Some(outcome);
    }

    /// When the oldest that is on its way is late; none if none is.
    fn next_late_at(&mut self) -> Option<Instant> {
        while let Some((place, late_at)) = self.in_flight.front() {
            if self.outcomes[*place].is_none() {
                return Some(*late_at);
            }
            self.in_flight.pop_front();
        }
        None
    }

    fn end_late(&mut self) {
        let now = Instant::now();
        while let Some(late_at) = self.next_late_at()
            && late_at <= now
            && let Some((place, _)) = self.in_flight.pop_front()
        {
            let failure = failures::no_ack(self.options, self.connection);
            self.count -= 1;
            self.end_in_doubt(place, sizes::outcome(failure));
        }
    }

    /// Nothing that is on its way will be answered.
    fn give_up(&mut self, failure: &Failure) {
        while self.next_late_at().is_some()
            && let Some((place, _)) = self.in_flight.pop_front()
        {
            self.end_in_doubt(place, Outcome::Retry(failure.clone()));
        }
    }
}
