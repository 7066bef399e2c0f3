//! Where the acks of a stream arrive: one inbox for a connection, in which each batch has a number and each
//! event its place.
//!
//! The client can publish to a stream too, but with an inbox, a channel and two timers for each event. For
//! many events at a time this way needs half of the processor's time. An ack that comes after its batch was
//! given up reaches no other batch, because numbers are never used again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Client, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;

/// Acks that may be on their way to a connection: half of what the client has room for before it drops any.
const IN_FLIGHT_MAX: u32 = 32 * 1024;

/// The inbox of a connection.
#[derive(Debug)]
pub(super) struct Acks {
    prefix: String,
    batches: Arc<Batches>,
    numbers: AtomicU64,
    permits: Semaphore,
    router: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Batches(Mutex<HashMap<u64, Arc<Arrivals>>>);

#[derive(Debug, Default)]
struct Arrivals {
    answers: Mutex<Vec<Answer>>,
    some: Notify,
}

/// What a stream has answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The event's place in its batch.
    pub(super) place: usize,
    pub(super) payload: Bytes,
    /// None listens on the subject.
    pub(super) is_unheard: bool,
}

/// The part of the inbox that belongs to one batch. Dropping it gives up what has not arrived.
#[derive(Debug)]
pub(super) struct Inbox<'a> {
    acks: &'a Acks,
    number: u64,
    arrivals: Arc<Arrivals>,
    _permits: SemaphorePermit<'a>,
}

impl Acks {
    pub(super) async fn open(client: &Client) -> Result<Self, async_nats::SubscribeError> {
        let prefix = client.new_inbox();
        let batches = Arc::new(Batches::default());
        let subscriber = client.subscribe(format!("{prefix}.*.*")).await?;
        let router = tokio::spawn(route(subscriber, Arc::clone(&batches)));
        Ok(Self {
            prefix,
            batches,
            numbers: AtomicU64::new(0),
            permits: Semaphore::new(IN_FLIGHT_MAX as usize),
            router,
        })
    }

    /// A place for the acks of a batch of which so many events are on their way at a time.
    pub(super) async fn inbox(&self, in_flight_max: usize) -> Inbox<'_> {
        let permits = u32::try_from(in_flight_max).map_or(IN_FLIGHT_MAX, |events| events.min(IN_FLIGHT_MAX));
        let permits = self.permits.acquire_many(permits).await.expect("nobody closes the permits");
        let (number, arrivals) = (self.numbers.fetch_add(1, Ordering::Relaxed), Arc::default());
        self.batches.lock().insert(number, Arc::clone(&arrivals));
        Inbox { acks: self, number, arrivals, _permits: permits }
    }
}

impl Drop for Acks {
    fn drop(&mut self) {
        self.router.abort();
    }
}

impl Inbox<'_> {
    /// Where the event at this place is to be answered.
    pub(super) fn reply_to(&self, place: usize) -> String {
        format!("{}.{}.{place}", self.acks.prefix, self.number)
    }

    /// Waits for answers and gives all that have come. Cancel safe.
    pub(super) async fn arrived(&self) -> Vec<Answer> {
        loop {
            let answers = std::mem::take(&mut *unpoisoned(&self.arrivals.answers));
            if !answers.is_empty() {
                return answers;
            }
            self.arrivals.some.notified().await;
        }
    }
}

impl Drop for Inbox<'_> {
    fn drop(&mut self) {
        self.acks.batches.lock().remove(&self.number);
    }
}

impl Batches {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Arrivals>>> {
        unpoisoned(&self.0)
    }

    fn arrive(&self, message: Message) {
        let Some((number, place)) = address(&message.subject) else { return };
        let Some(arrivals) = self.lock().get(&number).map(Arc::clone) else { return };
        let is_unheard = message.status == Some(StatusCode::NO_RESPONDERS);
        unpoisoned(&arrivals.answers).push(Answer { place, payload: message.payload, is_unheard });
        arrivals.some.notify_one();
    }
}

/// Runs as long as the connection.
async fn route(mut subscriber: Subscriber, batches: Arc<Batches>) {
    while let Some(message) = subscriber.next().await {
        batches.arrive(message);
    }
}

/// The batch and the place that the end of a subject tells.
fn address(subject: &str) -> Option<(u64, usize)> {
    let (rest, place) = subject.rsplit_once('.')?;
    let (_, number) = rest.rsplit_once('.')?;
    Some((number.parse().ok()?, place.parse().ok()?))
}

/// Nothing panics while one of ours is held.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_subject_tells_whose_answer_it_is() {
        assert_eq!(address("_INBOX.a.b.7.12"), Some((7, 12)));
        for strange in ["", "_INBOX", "_INBOX.a.b", "_INBOX.7.x", "_INBOX.x.7"] {
            assert_eq!(address(strange), None, "{strange}");
        }
    }
}
