//! The tasks that work on one store: a delivery for each route, and a steward that keeps house for them.
//!
//! ```text
//!   orders ─► differ from what runs? ─┬ nothing differs            ─► left alone
//!                                     ├ tuning that workers notice ─► written to the store
//!                                     ├ anything else              ─► drains, then begins anew
//!                                     ├ its sink is stale          ─► the same
//!                                     └ the route is gone          ─► drains
//! ```
//!
//! A delivery has to begin again because its runtime takes a subscription's settings when it takes shards,
//! and cannot change a sink. A drain finishes the events that were handed out and settles them. The next
//! delivery begins after that, so nothing is lost and nothing is delivered twice. Workers of mode `queue` look
//! at most of their tuning every ten seconds by themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, QueueStore, Result};
use postrider_runtime::{Pulse, Relay, Summary};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::delivery::{Delivering, House, Patience, Sinks, pause};
use super::outlook;
use super::plan::{Ends, Plan, Route, StoreSpec};
use crate::args::{ModeArg, SubscriptionArgs};
use crate::commands::subscription;

/// What the crew of one store is to do.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) routes: BTreeMap<String, Route>,
    pub(crate) retention: Duration,
    pub(crate) drain_within: Duration,
}

impl Orders {
    /// The part of a plan that concerns a store.
    pub(crate) fn of(plan: &Plan, store: &StoreSpec) -> Self {
        let ours = plan.routes.iter().filter(|(_, route)| route.store == *store);
        Self {
            routes: ours.map(|(name, route)| (name.clone(), route.clone())).collect(),
            retention: plan.retention,
            drain_within: plan.drain_within,
        }
    }
}

/// What a crew is told while it works.
pub(crate) enum Word {
    /// Say whether these orders could be followed.
    Could(Orders, oneshot::Sender<Result<()>>),
    /// Follow these orders from now on.
    Follow(Orders),
}

/// What a crew has beside its store.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) member: String,
    pub(crate) sinks: Sinks,
    pub(crate) pulse: Pulse,
    pub(crate) ends: Ends,
    /// Endless for a crew whose orders may change; it has a steward.
    pub(crate) patience: Patience,
    pub(crate) stop: CancellationToken,
}

/// Works until `stop` is cancelled, or until all of its deliveries have ended and no new orders can come.
pub(crate) async fn run<S: QueueStore>(
    store: S,
    orders: Orders,
    mut words: mpsc::Receiver<Word>,
    post: Post,
) -> Result<Summary> {
    match could(&store, &orders).await {
        // A delivery tries again after a retryable error.
        Err(error) if !error.is_retryable() => return Err(error),
        _ => {}
    }
    let stop = post.stop.child_token();
    let mut crew = Crew {
        store,
        post: Post { stop: stop.clone(), ..post },
        running: BTreeMap::new(),
        steward: None,
        tasks: JoinSet::new(),
    };
    crew.follow(orders).await;
    let mut summary = Summary::default();
    let mut failure = None;
    loop {
        tokio::select! {
            ended = crew.tasks.join_next() => match ended {
                None => break,
                Some(Ok(Ok(done))) => add(&mut summary, done),
                Some(Ok(Err(error))) => {
                    // Those that end by themselves when all is done are left alone by the failure of another.
                    if crew.post.ends == Ends::Never {
                        stop.cancel();
                    }
                    failure.get_or_insert(error);
                }
                Some(Err(error)) => {
                    stop.cancel();
                    failure.get_or_insert(Error::new(ErrorKind::Internal, "a worker panicked").with_source(error));
                }
            },
            Some(word) = words.recv(), if !stop.is_cancelled() => match word {
                // The daemon may have stopped waiting for the answer.
                Word::Could(orders, answer) => drop(answer.send(could(&crew.store, &orders).await)),
                Word::Follow(orders) => crew.follow(orders).await,
            },
        }
    }
    failure.map_or(Ok(summary), Err)
}

/// Whether the store would let these orders be followed.
pub(crate) async fn could<S: QueueStore>(store: &S, orders: &Orders) -> Result<()> {
    for (name, route) in &orders.routes {
        outlook::subscription(store, name, &route.settings).await?;
    }
    Ok(())
}

pub(crate) fn add(summary: &mut Summary, other: Summary) {
    summary.delivered += other.delivered;
    summary.failed += other.failed;
    summary.dead += other.dead;
    summary.cut_off += other.cut_off;
}

struct Crew<S: QueueStore> {
    store: S,
    post: Post,
    running: BTreeMap<String, Running>,
    steward: Option<(Duration, CancellationToken)>,
    tasks: JoinSet<Result<Summary>>,
}

/// A route that was begun.
struct Running {
    route: Route,
    drain_within: Duration,
    stop: CancellationToken,
    /// Cancelled when it has ended, drained or not.
    ended: CancellationToken,
}

/// What a new order means for a route that runs.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    None,
    /// The store is told, and workers notice.
    Tuning,
    Anew,
}

impl<S: QueueStore> Crew<S> {
    /// Makes what runs be what the orders say. Waits for the store, and for no drain.
    async fn follow(&mut self, orders: Orders) {
        if self.post.patience == Patience::Endless {
            self.keep_house(orders.retention);
        }
        for (name, running) in &self.running {
            if !orders.routes.contains_key(name) && !running.stop.is_cancelled() {
                info!(subscription = name, "no longer wanted here; draining");
                running.stop.cancel();
            }
        }
        for (name, route) in orders.routes {
            let mut change = match self.running.get(&name) {
                Some(_) if self.post.sinks.is_stale(&route.sink) => Change::Anew,
                Some(running) => running.change(&route, orders.drain_within),
                None => Change::Anew,
            };
            if change == Change::Tuning {
                match subscription::ensure(&self.store, &name, &route.settings).await {
                    Ok(_) => info!(subscription = name, "tuned"),
                    Err(error) => {
                        warn!(subscription = name, %error, "could not be tuned in place");
                        change = Change::Anew;
                    }
                }
            }
            match change {
                // A reload creates a subscription that was deleted; its delivery waits for that.
                Change::None => match subscription::ensure(&self.store, &name, &route.settings).await {
                    Ok(_) => {}
                    Err(error) => warn!(subscription = name, %error, "could not be looked at"),
                },
                Change::Tuning => {
                    self.running.entry(name).and_modify(|running| running.route = route);
                }
                Change::Anew => self.begin(name, route, orders.retention, orders.drain_within),
            }
        }
    }

    /// Begins a route once its previous delivery has ended.
    fn begin(&mut self, name: String, route: Route, retention: Duration, drain_within: Duration) {
        let before = self.running.get(&name).map(|running| {
            running.stop.cancel();
            running.ended.clone()
        });
        let (stop, ended) = (self.post.stop.child_token(), CancellationToken::new());
        let has_steward = self.steward.is_some();
        let delivering = Delivering {
            store: self.store.clone(),
            subscription: name.clone(),
            route: route.clone(),
            member: if has_steward {
                format!("{}/{name}", self.post.member)
            } else {
                self.post.member.clone()
            },
            sinks: self.post.sinks.clone(),
            house: if has_steward {
                House::Others
            } else {
                House::Own { retention, pulse: self.post.pulse.clone() }
            },
            ends: self.post.ends,
            patience: self.post.patience,
            drain_within,
            stop: stop.clone(),
        };
        info!(subscription = name, sink = %route.sink, "delivering");
        let guard = ended.clone().drop_guard();
        self.tasks.spawn(async move {
            let _ended = guard;
            if let Some(before) = before {
                before.cancelled().await;
            }
            delivering.run().await
        });
        self.running.insert(name, Running { route, drain_within, stop, ended });
    }

    /// Lets a steward keep house, and feels its pulse.
    fn keep_house(&mut self, retention: Duration) {
        if self.post.ends == Ends::WhenIdle
            || self.steward.as_ref().is_some_and(|(kept, _)| *kept == retention)
        {
            return;
        }
        if let Some((_, stop)) = self.steward.take() {
            stop.cancel();
        }
        let stop = self.post.stop.child_token();
        self.steward = Some((retention, stop.clone()));
        let (store, member, pulse) = (self.store.clone(), self.post.member.clone(), self.post.pulse.clone());
        self.tasks.spawn(async move {
            let mut wait = Duration::ZERO;
            loop {
                let steward = Relay::new(store.clone()).name(&member).retention(Some(retention));
                match steward.pulse(pulse.clone()).run(stop.cancelled()).await {
                    Err(error) if error.is_retryable() && !stop.is_cancelled() => {
                        warn!(%error, "the store does not answer; trying again");
                        pause(&mut wait, &stop).await;
                    }
                    done => return done,
                }
            }
        });
    }
}

impl Running {
    fn change(&self, route: &Route, drain_within: Duration) -> Change {
        let is_over = self.stop.is_cancelled() || self.ended.is_cancelled();
        let settings = &self.route.settings;
        if is_over || self.drain_within != drain_within {
            return Change::Anew;
        }
        if self.route == *route {
            return Change::None;
        }
        let same_but_settings = Route { settings: route.settings.clone(), ..self.route.clone() } == *route;
        if same_but_settings && is_noticed(settings, &route.settings) { Change::Tuning } else { Change::Anew }
    }
}

/// Whether workers notice by themselves what differs between two settings.
fn is_noticed(from: &SubscriptionArgs, to: &SubscriptionArgs) -> bool {
    let noticed = SubscriptionArgs {
        retry: to.retry.clone(),
        attempts: to.attempts,
        concurrency: to.concurrency,
        timeout: to.timeout,
        lease: to.lease,
        total: to.total,
        per_key: to.per_key,
        rate: to.rate,
        ..from.clone()
    };
    to.mode == Some(ModeArg::Queue) && noticed == *to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SourceArg;

    fn route(sink: &str, settings: SubscriptionArgs) -> Route {
        let store = StoreSpec::new("sqlite://p.db", SourceArg::Poll).unwrap();
        Route {
            store,
            settings,
            sink_name: None,
            sink: sink.parse().unwrap(),
            batch_events: None,
            latency_goal: None,
        }
    }

    #[track_caller]
    fn check(from: &Route, to: &Route, change: &Change) {
        let drain_within = Duration::from_secs(1);
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let running = Running { route: from.clone(), drain_within, stop, ended };
        assert_eq!(running.change(to, drain_within), *change);
        assert_eq!(
            running.change(to, drain_within * 2),
            Change::Anew,
            "a drain's limit is given at the start"
        );
        running.ended.cancel();
        assert_eq!(running.change(to, drain_within), Change::Anew, "what has ended begins anew");
    }

    #[test]
    fn what_differs_decides_who_begins_anew() {
        let plain = SubscriptionArgs::default;
        let log = |concurrency| SubscriptionArgs { concurrency, ..plain() };
        let queue = |concurrency| SubscriptionArgs { mode: Some(ModeArg::Queue), concurrency, ..plain() };
        let fair = SubscriptionArgs { fair: Some("key".parse().unwrap()), ..queue(None) };
        check(&route("null", plain()), &route("null", plain()), &Change::None);
        check(&route("null", plain()), &route("stdout", plain()), &Change::Anew);
        check(&route("null", log(None)), &route("null", log(Some(3))), &Change::Anew);
        check(&route("null", queue(None)), &route("null", queue(Some(3))), &Change::Tuning);
        check(&route("null", queue(None)), &route("stdout", queue(Some(3))), &Change::Anew);
        check(&route("null", queue(None)), &route("null", fair), &Change::Anew);
    }
}
