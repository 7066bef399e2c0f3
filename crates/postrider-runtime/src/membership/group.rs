//! A worker's part in the group that shares its subscription: takes the shards that it should have, works on them, and
//! gives up those that others should have.
//!
//! ```text
//!   survey ─► plan ─┬ take: free shards that are ours    ─► a new owner beside those at work
//!      ▲            └ give: shards that should be others' ─► their owner drains, settles, releases all that it holds
//!      └──── every second, and whenever an owner ends ◄──────┘
//! ```
//!
//! An owner's shards never change while it runs. So a second owner takes the shards of a member that died, and does
//! not disturb the owner at work. An owner that has to give some of its shards releases all of them, and a new owner
//! takes those that stay ours again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use postrider_core::balance::Plan;
use postrider_core::settle::Taken;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, Members, Mode, QueueStore, Result, ShardSet};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::call::ends_worker;
use crate::context::{Context, Ended, Summary};
use crate::dispatch::permits::places_again;
use crate::dispatch::worker::Duty;
use crate::log_mode::owner::Owner;
use crate::queue_mode::feeding;

/// How often a member asks while shards are free or about to be.
const ASK_SOON: Duration = Duration::from_millis(250);
/// How often it asks while everything is as it should be.
const ASK_EVERY: Duration = Duration::from_secs(1);
const ERROR_WAIT_MAX: Duration = Duration::from_secs(5);
/// For how many leases a worker that ends when all is done waits for others that may be dead. One is enough
/// unless theirs is longer, or the database's clock is set.
const SILENCE_LEASES_MAX: u32 = 2;

/// Runs one worker until it has drained.
pub(crate) async fn run<S: QueueStore>(store: S, duty: Duty<S>, context: Context) -> Result<Summary> {
    let rng = fastrand::Rng::with_seed(context.seed);
    let group = Group {
        store,
        duty,
        context,
        rng,
        owners: FuturesUnordered::new(),
        held: Vec::new(),
        begun: 0,
        subscription: None,
        limit: None,
        limit_again: None,
        summary: Summary::default(),
        wait: Duration::ZERO,
        lost_wait: Duration::ZERO,
        stood_by: false,
        drained: ShardSet::default(),
        silent_since: None,
    };
    group.run().await
}

struct Group<S: QueueStore> {
    store: S,
    duty: Duty<S>,
    context: Context,
    rng: fastrand::Rng,
    owners: FuturesUnordered<Pin<Box<dyn Future<Output = Finished> + Send>>>,
    held: Vec<Held>,
    /// How many owners have begun.
    begun: u64,
    /// Which subscription it is that goes by its name, once shards of it were taken.
    subscription: Option<SubscriptionId>,
    /// How many hand-outs all owners of this worker may have under way.
    limit: Option<Arc<Semaphore>>,
    /// How many of these may be of what has failed before.
    limit_again: Option<Arc<Semaphore>>,
    summary: Summary,
    /// Before the store is asked again.
    wait: Duration,
    /// How long to leave shards alone whose owner was lost soon after it had begun.
    lost_wait: Duration,
    stood_by: bool,
    /// The shards of owners that have ended in order.
    drained: ShardSet,
    /// Since when shards are waited for whose owner may be dead. Only by a worker that ends when all is done:
    /// it leaves to others what they hold, but not to one that was killed.
    silent_since: Option<Instant>,
}

/// What an owner at work holds.
struct Held {
    owner: u64,
    since: Instant,
    shards: ShardSet,
    give: CancellationToken,
}

/// An owner that has ended.
struct Finished {
    owner: u64,
    shards: ShardSet,
    summary: Summary,
    ended: Result<Ended>,
}

/// What the store said.
enum Asked {
    /// What was found, and what was taken.
    Found { give: ShardSet, settled: bool, silent: ShardSet, taken: Option<Box<Taken>> },
    /// The subscription is gone.
    Deleted,
    /// It must be asked again.
    Failed,
}

impl<S: QueueStore> Group<S> {
    async fn run(mut self) -> Result<Summary> {
        let mut asking = None;
        loop {
            if self.is_over() {
                return Ok(self.summary);
            }
            let stopping = self.context.stop.is_cancelled();
            let wants_more = self.owners.is_empty() || !self.context.until_idle;
            if asking.is_none() && !stopping && wants_more {
                asking = Some(Box::pin(self.ask()));
            }
            tokio::select! {
                biased;
                () = self.context.stop.cancelled(), if !stopping => asking = None,
                Some(finished) = self.owners.next(), if !self.owners.is_empty() => {
                    // Whatever was asked, it was asked about other shards than are held now.
                    asking = None;
                    self.finish(finished)?;
                }
                asked = async { asking.as_mut().expect("it is asked").await }, if asking.is_some() => {
                    asking = None;
                    if !self.take_in(asked?) {
                        return Ok(self.summary);
                    }
                }
            }
        }
    }

    /// Whether this worker has drained, or has nothing to do.
    fn is_over(&self) -> bool {
        let nothing_more = self.context.until_idle
            && self.silent_since.is_none()
            && (self.stood_by || !self.drained.is_empty());
        self.owners.is_empty() && (self.context.stop.is_cancelled() || nothing_more)
    }

    /// How many members share the shards. A queue has one feeder; its workers share what that feeds.
    fn members(&self) -> Members {
        match self.duty.subscription.mode {
            Mode::Log => self.duty.subscription.tuning.members,
            Mode::Queue => Members::One,
        }
    }

    /// Asks who holds which shards, and takes those that should be ours. Dropping it at any moment does no harm:
    /// shards that were taken meanwhile are found at the next time, and taken again.
    fn ask(&self) -> impl Future<Output = Result<Asked>> + Send + use<S> {
        let (store, name, wait) = (self.store.clone(), self.duty.subscription.name.clone(), self.wait);
        let (membership, until_idle) = (self.context.membership.clone(), self.context.until_idle);
        let stands = !until_idle;
        let members = self.members();
        let done = if self.context.until_idle { self.drained } else { ShardSet::default() };
        let held = self.held.iter().fold(ShardSet::default(), |all, held| all.union(held.shards));
        async move {
            tokio::time::sleep(wait).await;
            let member = membership.borrow().member;
            let asked = async {
                let survey = store.shards_survey(&name, member, stands).await?;
                let Plan { take, give } = survey.plan(member, held, members);
                let take = take.without(done);
                let taken =
                    if take.is_empty() { None } else { store.shards_take(&name, member, take).await? };
                Ok::<_, Error>(Asked::Found {
                    give,
                    settled: survey.is_settled(),
                    silent: survey.silent,
                    taken: taken.map(Box::new),
                })
            };
            match asked.await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Asked::Deleted),
                // The keeper is about to join again for a member that was forgotten.
                Err(error) if error.is_fenced() || !ends_worker(&error, until_idle) => {
                    warn!(subscription = name, %error, "cannot take shards yet; trying again");
                    Ok(Asked::Failed)
                }
                asked => asked,
            }
        }
    }

    /// Acts on an answer; false if there is nothing left to do.
    fn take_in(&mut self, asked: Asked) -> bool {
        let Asked::Found { give, settled, silent, taken } = asked else {
            self.wait = (self.wait * 2).clamp(ASK_SOON, ERROR_WAIT_MAX);
            if matches!(asked, Asked::Deleted) {
                self.context.gone.cancel();
            }
            return matches!(asked, Asked::Failed) || !self.owners.is_empty();
        };
        for held in self.held.iter().filter(|held| held.shards.meets(give)) {
            held.give.cancel();
        }
        self.note_silence(silent);
        let calm = settled && give.is_empty() && self.silent_since.is_none();
        self.wait = if calm { ASK_EVERY } else { ASK_SOON };
        match taken {
            Some(taken) if self.subscription.is_some_and(|id| id != taken.hold.subscription.id) => {
                // It was deleted and created again: the other parts of this worker still know the old one.
                self.context.gone.cancel();
            }
            Some(taken) => self.begin(*taken),
            None if self.owners.is_empty() && self.drained.is_empty() && !self.stood_by => {
                self.stood_by = true;
                let what_now = if self.context.until_idle { "they deliver" } else { "standing by" };
                info!(subscription = self.duty.subscription.name, "others hold all shards; {what_now}");
            }
            None => {}
        }
        true
    }

    /// Takes in whose owners may be dead: within a lease they are heard of, or their shards are free.
    fn note_silence(&mut self, silent: ShardSet) {
        if !self.context.until_idle || silent.is_empty() {
            self.silent_since = None;
            return;
        }
        let since = *self.silent_since.get_or_insert_with(|| {
            info!(
                subscription = self.duty.subscription.name,
                shards = silent.len(),
                "others hold shards and may be dead; waiting until that is known"
            );
            Instant::now()
        });
        if since.elapsed() > self.store.pace().lease * SILENCE_LEASES_MAX {
            self.silent_since = None;
        }
    }

    /// Begins to work on shards that were taken.
    fn begin(&mut self, taken: Taken) {
        let shards = taken.hold.set();
        self.subscription = Some(taken.hold.subscription.id);
        info!(
            subscription = self.duty.subscription.name,
            shards = shards.len(),
            position = %taken.start,
            parked = taken.parked.len(),
            "owned"
        );
        let tuning = &taken.hold.subscription.tuning;
        if self.owners.is_empty() {
            let limit = |places: u32| Arc::new(Semaphore::new(places as usize));
            // Where one owner works for all shards its own count will do.
            self.limit = (self.members() == Members::Many).then(|| limit(tuning.concurrency));
            self.limit_again = Some(limit(places_again(tuning.concurrency)));
        }
        let give = self.context.stop.child_token();
        let mut context = Context { stop: give.clone(), seed: self.rng.u64(..), ..self.context.clone() };
        if let Some(limit) = &self.limit {
            context.permits = context.permits.and(limit);
        }
        if let Some(limit) = &self.limit_again {
            context.again = context.again.and(limit);
        }
        self.begun += 1;
        let owner = self.begun;
        self.held.push(Held { owner, since: Instant::now(), shards, give });
        let (store, work) = (self.store.clone(), self.duty.work.clone());
        self.owners.push(match self.duty.subscription.mode {
            Mode::Log => Box::pin(async move {
                let (summary, ended) = Owner::new(store, taken, work, context).run().await;
                Finished { owner, shards, summary, ended }
            }),
            Mode::Queue => Box::pin(async move {
                let ended = feeding::run(store, taken, context).await;
                Finished { owner, shards, summary: Summary::default(), ended }
            }),
        });
    }

    fn finish(&mut self, finished: Finished) -> Result<()> {
        let Finished { owner, shards, summary, ended } = finished;
        let lived = self.held.iter().find(|held| held.owner == owner).map(|held| held.since.elapsed());
        self.held.retain(|held| held.owner != owner);
        self.summary.add(summary);
        self.wait = Duration::ZERO;
        match ended? {
            Ended::Drained => {
                self.drained = self.drained.union(shards);
                debug!(subscription = self.duty.subscription.name, shards = shards.len(), "given back");
            }
            Ended::Lost => {
                // One that is lost as soon as it has begun may be lost again and again.
                self.wait = if lived < Some(ERROR_WAIT_MAX) { self.lost_wait } else { Duration::ZERO };
                self.lost_wait = (self.wait * 2).clamp(ASK_SOON / 4, ERROR_WAIT_MAX);
                warn!(subscription = self.duty.subscription.name, shards = shards.len(), "shards were lost");
            }
        }
        Ok(())
    }
}
