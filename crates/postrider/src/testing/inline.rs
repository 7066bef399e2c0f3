//! Delivering everything that is due, here and now.

use std::time::Duration;

use postrider_core::store::EventQuery;
use postrider_core::{DeliveryState, Error, ErrorKind, EventId, QueueStore, Result, Timestamp, limits};
use postrider_runtime::{Relay, RunsOn, Summary};

use super::TestClock;

/// Rounds after which handlers that emit for each other are taken to do so for ever.
const ROUNDS_MAX: usize = 1_000;

/// Runs workers until nothing is left to deliver, instead of a relay that runs beside the test.
///
/// ```
/// use std::time::Duration;
/// use postrider::testing::{Inline, Scratch};
/// use postrider::{Delivery, Event, Failure, NewSubscription, RetryPolicy, Store, Worker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> postrider::Result<()> {
/// let scratch = Scratch::new().await?;
/// let reminder = Event::new("reminder").due_after(Duration::from_secs(24 * 3600));
/// scratch.store().event_emit(vec![Event::new("order"), reminder]).await?;
///
/// // Fails at its first attempt.
/// let retry = RetryPolicy::fixed(Duration::from_secs(60));
/// let worker = Worker::new(NewSubscription::new("mails").retry(retry)).each(|delivery: Delivery| async move {
///     if delivery.attempt == 1 { Err(Failure::retry("try again")) } else { Ok(()) }
/// });
/// let inline = Inline::new(&scratch.store()).worker(worker);
///
/// let now = inline.run().await?;
/// assert_eq!((now.delivered, now.failed), (0, 1));
/// let later = inline.run_until(scratch.clock(), Duration::from_secs(48 * 3600)).await?;
/// assert_eq!((later.delivered, later.failed), (2, 1));
/// # Ok(()) }
/// ```
pub struct Inline<S: QueueStore> {
    store: S,
    workers: Vec<AddWorker<S>>,
}

/// Adds a worker to the relay of a round.
type AddWorker<S> = Box<dyn Fn(Relay<S>) -> Relay<S> + Send + Sync>;

impl<S: QueueStore> Inline<S> {
    /// On `store`, without workers yet.
    pub fn new(store: &S) -> Self {
        Self { store: store.clone(), workers: Vec::new() }
    }

    /// Adds a worker. Its subscription is created by the first run.
    #[must_use]
    pub fn worker<W: RunsOn<S> + Clone + Send + Sync + 'static>(mut self, worker: W) -> Self {
        self.workers.push(Box::new(move |relay| relay.worker(worker.clone())));
        self
    }

    /// Delivers everything that is due now, what handlers emit meanwhile included. What failed waits for its
    /// retry, what is due later for its time, and neither is waited for. Says what was delivered and what
    /// failed.
    pub async fn run(&self) -> Result<Summary> {
        let mut all = Summary::default();
        for _ in 0..ROUNDS_MAX {
            let relay = Relay::new(self.store.clone()).retention(None);
            let relay = self.workers.iter().fold(relay, |relay, with| with(relay));
            let round = relay.run_until_idle(std::future::pending()).await?;
            add(&mut all, round);
            // A handler may have emitted for a worker that had come to its end.
            if round.delivered + round.failed == 0 {
                return Ok(all);
            }
        }
        Err(Error::new(
            ErrorKind::Internal,
            format!(
                "there is still something to deliver after {ROUNDS_MAX} rounds: handlers emit for each other for ever"
            ),
        ))
    }

    /// The same, and then puts `clock`, the store's, forward to the next retry or due time, for as long as there is one
    /// within `within` from now.
    pub async fn run_until(&self, clock: &TestClock, within: Duration) -> Result<Summary> {
        let end = clock.now().after(within);
        let mut all = self.run().await?;
        while let Some(due_at) = self.next_due(clock.now()).await?.filter(|due_at| *due_at <= end) {
            clock.advance(due_at.since(clock.now()));
            add(&mut all, self.run().await?);
        }
        Ok(all)
    }

    /// When the next delivery is due, of all that wait for a time.
    async fn next_due(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let (mut next, mut before): (Option<Timestamp>, Option<EventId>) = (None, None);
        loop {
            let limit = limits::PAGE_ROWS_MAX;
            let page = self.store.event_list(EventQuery { before, limit, ..EventQuery::default() }).await?;
            for event in &page {
                let deliveries = self.store.event_deliveries(event.id).await?;
                let waits =
                    deliveries.into_iter().filter(|it| it.state == DeliveryState::Pending && !it.paused);
                let due = waits.filter_map(|it| it.due_at).filter(|at| *at > now);
                next = next.into_iter().chain(due).min();
            }
            before = page.last().map(|event| event.id);
            if page.len() < limit {
                return Ok(next);
            }
        }
    }
}

fn add(all: &mut Summary, round: Summary) {
    all.delivered += round.delivered;
    all.failed += round.failed;
    all.dead += round.dead;
    all.cut_off += round.cut_off;
}
