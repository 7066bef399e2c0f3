//! What is done with events: closures and sinks behind one shape.

use std::any::Any;
use std::error::Error as StdError;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_core::{Delivery, Failure, Outcome, Sink, limits};
use tokio::time::Instant;

use crate::dispatch::batch_size::BatchSize;
use crate::dispatch::hand_out::{Attempted, Shape};

/// A hand-out of one lane stops after this long, so that one busy key does not keep its events from
/// being settled; what is left of it is handed out again.
const RUN_TIME_MAX: Duration = Duration::from_millis(20);

pub(crate) type Handling = Pin<Box<dyn Future<Output = Vec<Attempted>> + Send>>;

/// Runs hand-outs. Never panics, ends within the time-out of an attempt for each event, and returns one
/// result per delivery. Dropping the future is allowed at any await.
pub(crate) trait Handle: Send + Sync + 'static {
    /// How much one hand-out may hold.
    fn shape(&self) -> Shape;

    fn handle(self: Arc<Self>, deliveries: Vec<Delivery>, timeout: Duration) -> Handling;
}

/// A closure for one event.
pub(crate) struct Each<F>(pub(crate) F);

impl<F, Fut, E> Handle for Each<F>
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    fn shape(&self) -> Shape {
        Shape { events: limits::RUN_EVENTS_MAX, parts: 1, per_lane: limits::RUN_EVENTS_MAX }
    }

    fn handle(self: Arc<Self>, deliveries: Vec<Delivery>, timeout: Duration) -> Handling {
        Box::pin(async move {
            let mut attempted = Vec::with_capacity(deliveries.len());
            let mut deliveries = deliveries.into_iter();
            let began = Instant::now();
            let mut started = began;
            for delivery in deliveries.by_ref() {
                let outcome = guarded(timeout, async { into_outcome((self.0)(delivery).await) }).await;
                let outcome = outcome.unwrap_or_else(Outcome::Retry);
                let acked = outcome == Outcome::Ack;
                let ended = Instant::now();
                attempted.push(Attempted { outcome, took: ended - started });
                if !acked || ended - began > RUN_TIME_MAX {
                    break;
                }
                started = ended;
            }
            let untried = || Attempted { outcome: Outcome::Untried, took: Duration::ZERO };
            attempted.extend(deliveries.map(|_| untried()));
            attempted
        })
    }
}

/// A sink, or a closure for a batch.
pub(crate) struct Batch<K> {
    pub(crate) sink: K,
    pub(crate) size: BatchSize,
}

impl<K: Sink> Handle for Batch<K> {
    fn shape(&self) -> Shape {
        let per_lane = if self.sink.keeps_order() { limits::RUN_EVENTS_MAX } else { 1 };
        let events = self.size.events();
        Shape { events, parts: events, per_lane }
    }

    fn handle(self: Arc<Self>, deliveries: Vec<Delivery>, timeout: Duration) -> Handling {
        Box::pin(async move {
            let count = deliveries.len();
            let began = Instant::now();
            let outcomes = guarded(timeout, async { self.sink.send(deliveries).await }).await;
            let took = began.elapsed();
            let mut outcomes = outcomes.unwrap_or_else(|failure| vec![Outcome::Retry(failure); count]);
            if outcomes.iter().all(|outcome| *outcome == Outcome::Ack) {
                self.size.note(count, took);
            }
            // Surplus outcomes belong to no event; missing ones count as failed, which `finish` sees to.
            outcomes.truncate(count);
            outcomes.into_iter().map(|outcome| Attempted { outcome, took }).collect()
        })
    }
}

/// A closure for a batch, as a sink.
pub(crate) struct BatchFn<F>(pub(crate) F);

impl<F, Fut> Sink for BatchFn<F>
where
    F: Fn(Vec<Delivery>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Vec<Outcome>> + Send + 'static,
{
    fn send(&self, batch: Vec<Delivery>) -> impl Future<Output = Vec<Outcome>> + Send {
        (self.0)(batch)
    }
}

/// Runs one attempt within its time-out; a panic is an attempt that failed.
async fn guarded<T>(timeout: Duration, attempt: impl Future<Output = T>) -> Result<T, Failure> {
    let mut attempt = std::pin::pin!(AssertUnwindSafe(attempt).catch_unwind());
    // One that is done at once needs no timer.
    let ended = match futures_util::poll!(attempt.as_mut()) {
        Poll::Ready(ended) => Ok(ended),
        Poll::Pending => tokio::time::timeout(timeout, attempt).await,
    };
    match ended {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(panic)) => {
            let message = format!("the handler panicked: {}", panic_message(&*panic));
            Err(Failure::retry(message).labelled("the handler panicked"))
        }
        Err(_) => {
            let message = format!("timed out after {} ms", timeout.as_millis());
            Err(Failure::retry(message.clone()).labelled(message))
        }
    }
}

fn into_outcome<E: Into<Box<dyn StdError + Send + Sync>>>(result: Result<(), E>) -> Outcome {
    match result {
        Ok(()) => Outcome::Ack,
        Err(error) => Outcome::Retry(Failure::from_error(&*error.into())),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
