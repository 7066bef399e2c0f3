//! The process as a member of its store: joins, runs workers, keeps itself alive, drains, leaves.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::settle::MemberId;
use postrider_core::{Error, ErrorKind, LogStore, Mode, NewSubscription, QueueStore, Result, Subscription};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::{Context, Membership, Summary};
use crate::dispatch::permits::{Permits, places_again};
use crate::dispatch::worker::{Duty, RunsOn, Work};
use crate::handoff::Fed;
use crate::housekeeping::maintenance;
use crate::housekeeping::schedules;
use crate::membership::keeper::{self, Pulse};
use crate::membership::serving::{self, agree};

/// Moves events from a store to handlers and sinks.
///
/// Any number of processes may run the same subscriptions. In mode `log` they share its shards, and take over
/// when one of them ends, within moments if its process is dead and within the store's lease if it is silent.
/// In mode `queue` one of them feeds the queue, and all of them claim from it. While it runs, a relay also
/// fires the store's schedules.
pub struct Relay<S: QueueStore> {
    store: S,
    name: String,
    duties: Vec<Duty<S>>,
    concurrency: Option<u32>,
    retention: Option<Duration>,
    fires_schedules: bool,
    pulse: Option<Pulse>,
    drain_within: Duration,
    seed: u64,
    #[cfg(feature = "sabotage")]
    sabotage: Option<crate::sabotage::Sabotage>,
}

impl<S: QueueStore> Relay<S> {
    /// A relay over `store` without workers yet.
    pub fn new(store: S) -> Self {
        Self {
            store,
            name: format!("pid-{}", std::process::id()),
            duties: Vec::new(),
            concurrency: None,
            retention: Some(Duration::from_secs(7 * 24 * 3600)),
            fires_schedules: true,
            pulse: None,
            drain_within: Duration::from_secs(30),
            seed: fastrand::u64(..),
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }

    /// The name under which people see this process.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a worker.
    #[must_use]
    pub fn worker(mut self, worker: impl RunsOn<S>) -> Self {
        self.duties.push(worker.into_duty());
        self
    }

    /// Limits how many hand-outs run at a time over all workers, beside each worker's own limit.
    #[must_use]
    pub fn concurrency(mut self, limit: u32) -> Self {
        self.concurrency = Some(limit.max(1));
        self
    }

    /// How long delivered events stay; they can be delivered again by a seek. None keeps them for ever.
    #[must_use]
    pub fn retention(mut self, retention: Option<Duration>) -> Self {
        self.retention = retention;
        self
    }

    /// Leaves retention and schedules to another relay: of several in one process, one keeps house for all.
    #[must_use]
    pub fn without_housekeeping(mut self) -> Self {
        self.retention = None;
        self.fires_schedules = false;
        self
    }

    /// Tells `pulse` of every beat that the store takes, the first of which is then sent at once.
    #[must_use]
    pub fn pulse(mut self, pulse: Pulse) -> Self {
        self.pulse = Some(pulse);
        self
    }

    /// How long a drain waits for what runs.
    #[must_use]
    pub fn drain_within(mut self, limit: Duration) -> Self {
        self.drain_within = limit;
        self
    }

    /// Fixes the randomness of retry delays, so that a simulation can repeat itself.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Plants a bug.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotage(mut self, sabotage: Option<crate::sabotage::Sabotage>) -> Self {
        self.sabotage = sabotage;
        self
    }

    /// Runs until `shutdown` resolves, then drains: nothing new is begun, what runs is finished, progress
    /// is settled, ownership is given back. A relay that never had a worker keeps house until then.
    ///
    /// A worker whose subscription is deleted waits until any process creates it again under its name, and
    /// then starts over. The worker itself creates nothing.
    ///
    /// Dropping the future is like a crash: safe at any await. Events that were handed out and not settled are
    /// delivered again.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<Summary> {
        self.run_until(shutdown, false).await
    }

    /// Runs until nothing is left that can be delivered now, or until `shutdown` resolves. Events with a
    /// later due time, waiting retries and paused subscriptions do not hold it up. It fires no schedules.
    ///
    /// What was committed before it began is delivered. What is emitted meanwhile, by handlers too, may be
    /// left for the next run: each worker ends by itself.
    pub async fn run_until_idle(self, shutdown: impl Future<Output = ()> + Send) -> Result<Summary> {
        self.run_until(shutdown, true).await
    }

    async fn run_until(self, shutdown: impl Future<Output = ()> + Send, until_idle: bool) -> Result<Summary> {
        for duty in &self.duties {
            check(duty)?;
            ensure(&self.store, &duty.subscription).await?;
        }
        let membership = keeper::join(&self.store, &self.name).await?;
        let (sender, receiver) = watch::channel(membership);
        let mut housekeeping = JoinSet::new();
        housekeeping.spawn(keeper::keep(self.store.clone(), self.name.clone(), sender, self.pulse.clone()));
        if let Some(retention) = self.retention {
            housekeeping.spawn(maintenance::prune(self.store.clone(), retention));
        }
        if !until_idle && self.fires_schedules {
            housekeeping.spawn(schedules::fire(self.store.clone()));
        }
        let store = self.store.clone();
        let stop = CancellationToken::new();
        let keeps_house_only = self.duties.is_empty() && !until_idle;
        let workers = self.spawn_workers(&receiver, &stop, until_idle);
        let result = if keeps_house_only {
            shutdown.await;
            Ok(Summary::default())
        } else {
            supervise(workers, &stop, until_idle, shutdown).await
        };
        // The keeper beats until the workers have drained, or the lease could run out meanwhile.
        housekeeping.shutdown().await;
        let member = receiver.borrow().member;
        leave(&store, member).await;
        result
    }

    fn spawn_workers(
        self,
        membership: &watch::Receiver<Membership>,
        stop: &CancellationToken,
        until_idle: bool,
    ) -> JoinSet<Result<Summary>> {
        let limited = |limit: Option<u32>| {
            limit.map_or_else(Permits::default, |limit| {
                Permits::default().and(&Arc::new(Semaphore::new(limit as usize)))
            })
        };
        let permits = limited(self.concurrency);
        let again = limited(self.concurrency.map(places_again));
        let mut seeds = fastrand::Rng::with_seed(self.seed);
        let mut workers = JoinSet::new();
        for duty in self.duties {
            let context = Context {
                fed: Fed::default(),
                gone: CancellationToken::new(),
                membership: membership.clone(),
                stop: stop.clone(),
                permits: permits.clone(),
                again: again.clone(),
                drain_within: self.drain_within,
                until_idle,
                seed: seeds.u64(..),
                #[cfg(feature = "sabotage")]
                sabotage: self.sabotage,
            };
            workers.spawn(serving::serve(self.store.clone(), duty, context));
        }
        workers
    }
}

/// Waits for all workers. The first failure, or the shutdown, makes all of them drain; but those that end by
/// themselves when all is done are left alone by the failure of another.
async fn supervise(
    mut workers: JoinSet<Result<Summary>>,
    stop: &CancellationToken,
    until_idle: bool,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut failure = None;
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown, if !stop.is_cancelled() => {
                info!("draining");
                stop.cancel();
            }
            ended = workers.join_next() => match ended {
                None => break,
                Some(Ok(Ok(worker))) => summary.add(worker),
                Some(Ok(Err(error))) => {
                    if !until_idle {
                        stop.cancel();
                    }
                    failure.get_or_insert(error);
                }
                Some(Err(error)) => {
                    stop.cancel();
                    failure.get_or_insert(Error::new(ErrorKind::Internal, "a worker panicked").with_source(error));
                }
            },
        }
    }
    failure.map_or(Ok(summary), Err)
}

async fn leave<S: LogStore>(store: &S, member: MemberId) {
    if let Err(error) = store.member_leave(member).await {
        warn!(%error, "could not leave the store in order; others will take over when the lease ends");
    }
}

/// Refuses what cannot work.
fn check<S: LogStore>(duty: &Duty<S>) -> Result<()> {
    if duty.subscription.mode == Mode::Queue && matches!(duty.work, Work::Transaction(_)) {
        return Err(Error::invalid(format!(
            "subscription `{}` is a queue, which has no transactional workers: let the handler open a transaction of its \
             own, and call `ack_in` in it",
            duty.subscription.name
        )));
    }
    Ok(())
}

/// Creates a subscription, or checks that the existing one means the same and takes over its tuning.
async fn ensure<S: LogStore>(store: &S, wanted: &NewSubscription) -> Result<Subscription> {
    wanted.check()?;
    match store.subscription_get(&wanted.name).await {
        Ok(existing) => agree(store, wanted, existing).await,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match store.subscription_create(wanted.clone()).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    // Another process was faster.
                    let existing = store.subscription_get(&wanted.name).await?;
                    agree(store, wanted, existing).await
                }
                created => created,
            }
        }
        Err(error) => Err(error),
    }
}
