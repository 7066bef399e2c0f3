//! One route at work: opens its sink, makes sure of its subscription, and delivers until it is told to end.
//!
//! Each route is a member of its store by itself. A member stands for a subscription until it leaves, so that one that
//! served many could not leave one of them without the others; and what one route waits for, a sink above all, cannot
//! delay another.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use postrider_core::{QueueStore, Result};
use postrider_runtime::{Pulse, Relay, Summary, Worker};
use postrider_sinks::{AnySink, SinkSpec};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::plan::{Ends, Route};
use crate::commands::subscription;

/// Between two tries to open a sink or a store that cannot be opened.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(500);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(15);

/// The sinks that are open. Routes with the same sink share it, since two writers of one file would tear each
/// other's lines.
#[derive(Clone, Default)]
pub(crate) struct Sinks(Arc<Mutex<Vec<Place>>>);

/// A sink that a route uses, open or about to be.
struct Place {
    spec: SinkSpec,
    sink: Weak<OnceCell<AnySink>>,
}

impl Sinks {
    /// A place for a sink, the same for all routes that hold one.
    fn place(&self, spec: &SinkSpec) -> Arc<OnceCell<AnySink>> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.sink.strong_count() > 0);
        let mut usable = places.iter().filter(|place| place.spec == *spec && !place.is_stale());
        usable.find_map(|place| place.sink.upgrade()).unwrap_or_else(|| {
            let sink = Arc::new(OnceCell::new());
            places.push(Place { spec: spec.clone(), sink: Arc::downgrade(&sink) });
            sink
        })
    }

    /// Whether a route uses such a sink that has to be opened again.
    pub(super) fn is_stale(&self, spec: &SinkSpec) -> bool {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.iter().any(|place| place.spec == *spec && place.is_stale())
    }
}

impl Place {
    /// Whether no route may begin with this sink.
    fn is_stale(&self) -> bool {
        self.sink.upgrade().is_some_and(|sink| sink.get().is_some_and(|sink| self.spec.is_stale(sink)))
    }
}

/// What is done when a sink or store cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It is tried again until it can be, and others go on meanwhile.
    Endless,
    /// The relay ends with the error.
    None,
}

/// Which task removes old events and fires schedules.
#[derive(Clone)]
pub(crate) enum House {
    /// The delivery itself, and its pulse is felt.
    Own { retention: Duration, pulse: Pulse },
    /// Another task.
    Others,
}

/// One route at work.
pub(crate) struct Delivering<S> {
    pub(crate) store: S,
    pub(crate) subscription: String,
    pub(crate) route: Route,
    /// The name under which people see it.
    pub(crate) member: String,
    pub(crate) sinks: Sinks,
    pub(crate) house: House,
    pub(crate) ends: Ends,
    pub(crate) patience: Patience,
    pub(crate) drain_within: Duration,
    pub(crate) stop: CancellationToken,
}

impl<S: QueueStore> Delivering<S> {
    /// Delivers until it is told to end, and has drained. Dropping it is a crash.
    pub(crate) async fn run(self) -> Result<Summary> {
        let place = self.sinks.place(&self.route.sink);
        let mut wait = RETRY_AFTER_MIN;
        while !self.stop.is_cancelled() {
            let opened = tokio::select! {
                opened = place.get_or_try_init(|| self.route.sink.open()) => opened,
                () = self.stop.cancelled() => break,
            };
            let (error, what) = match opened {
                Err(error) if self.patience == Patience::Endless => (error, "the sink cannot be opened"),
                Err(error) => return Err(error),
                Ok(sink) => match self.deliver(sink.clone()).await {
                    Err(error) if self.patience == Patience::Endless && error.is_retryable() => {
                        (error, "the store does not answer")
                    }
                    done => return done,
                },
            };
            warn!(subscription = self.subscription, sink = %self.route.sink, %error, "{what}; trying again");
            pause(&mut wait, &self.stop).await;
        }
        Ok(Summary::default())
    }

    async fn deliver(&self, sink: AnySink) -> Result<Summary> {
        let subscription =
            subscription::ensure(&self.store, &self.subscription, &self.route.settings).await?;
        let mut worker = Worker::new(subscription);
        if let Some(events) = self.route.batch_events {
            worker = worker.batch_events(events);
        }
        if let Some(goal) = self.route.latency_goal {
            worker = worker.latency_goal(goal);
        }
        let relay = Relay::new(self.store.clone()).name(&self.member).drain_within(self.drain_within);
        let relay = match &self.house {
            House::Own { retention, pulse } => relay.retention(Some(*retention)).pulse(pulse.clone()),
            House::Others => relay.without_housekeeping(),
        };
        let relay = relay.worker(worker.sink(sink));
        match self.ends {
            Ends::Never => relay.run(self.stop.cancelled()).await,
            Ends::WhenIdle => relay.run_until_idle(self.stop.cancelled()).await,
        }
    }
}

/// Waits before the next try, ever longer, or until it is time to stop.
pub(crate) async fn pause(wait: &mut Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(*wait) => {}
        () = stop.cancelled() => {}
    }
    *wait = (*wait * 2).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
}
