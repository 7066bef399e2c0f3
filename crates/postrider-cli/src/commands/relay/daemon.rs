//! The relay as a process: a crew for each store, signals, reloads, and what the service manager is told.
//!
//! ```text
//!   SIGHUP ─► read the config anew ─► may every store's crew follow it? ─┬ no  ─► told; the old one stays in force
//!                                                                       └ yes ─► all of them follow
//! ```
//!
//! Stores do not wait for each other: a crew opens its own, again and again if it must. A reload waits for all of them,
//! for a limited time, since a config is taken over as a whole or not at all.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use postrider_runtime::{Pulse, Summary};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::crew::{self, Orders, Post, Word};
use super::delivery::{Patience, Sinks, pause};
use super::health_file::HealthFile;
use super::member_name;
use super::plan::{Ends, Plan, StoreSpec};
use super::service_manager::ServiceManager;
use crate::commands::{Absent, FirstLook};
use crate::config::{Problems, Source};
use crate::signal::Hangups;
use crate::store_url::{self, OpenStore};

/// How often pulses are felt.
const FEEL_EVERY: Duration = Duration::from_millis(250);
/// How long a reload may wait for stores.
const RELOAD_WITHIN: Duration = Duration::from_secs(15);
/// Words that may wait for a crew; one reload says two.
const WORDS_MAX: usize = 4;

/// Delivers what a plan says until `stop` is cancelled, or until nothing is left if that was asked for.
pub(super) async fn run(
    plan: Plan,
    source: Option<Source>,
    mut opened: BTreeMap<StoreSpec, OpenStore>,
    stop: CancellationToken,
) -> Result<Summary> {
    // A config of a file may change, so that one crew must be able to wait while others work.
    let patience = match (&source, plan.ends) {
        (Some(_), Ends::Never) => Patience::Endless,
        _ => Patience::None,
    };
    let mut hangups = match patience {
        Patience::Endless => Some(Hangups::listen()?),
        Patience::None => None,
    };
    let mut daemon = Daemon {
        sinks: Sinks::default(),
        crews: BTreeMap::new(),
        ended: JoinSet::new(),
        stop,
        manager: ServiceManager::new(),
        health: plan.health_file.clone().map(HealthFile::new),
        patience,
        source,
        plan,
    };
    for store in daemon.plan.stores() {
        let opened = opened.remove(&store);
        daemon.begin(store, opened);
    }
    let mut reloading: Option<JoinHandle<Result<Prepared>>> = None;
    let mut feel = tokio::time::interval(FEEL_EVERY);
    feel.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut summary, mut failure) = (Summary::default(), None);
    let mut told = false;
    loop {
        if daemon.stop.is_cancelled() && !told {
            told = true;
            daemon.manager.stopping();
        }
        tokio::select! {
            () = daemon.stop.cancelled(), if !told => {}
            ended = daemon.ended.join_next() => match ended {
                None => break,
                Some(Ok(Ok(done))) => crew::add(&mut summary, done),
                Some(Ok(Err(error))) => daemon.fail(&mut failure, error),
                Some(Err(error)) => {
                    let panicked = Error::new(ErrorKind::Internal, "a crew panicked").with_source(error);
                    daemon.fail(&mut failure, panicked);
                }
            },
            () = Hangups::next(&mut hangups), if reloading.is_none() && !told => {
                reloading = daemon.prepare();
            }
            prepared = async { reloading.as_mut().expect("it is reloading").await }, if reloading.is_some() => {
                reloading = None;
                daemon.reloaded(prepared.unwrap_or_else(|error| {
                    Err(Error::new(ErrorKind::Internal, "reading the config panicked").with_source(error))
                })).await;
            }
            _ = feel.tick() => daemon.feel(),
        }
    }
    if let Some(health) = daemon.health {
        health.remove();
    }
    failure.map_or(Ok(summary), Err)
}

struct Daemon {
    plan: Plan,
    source: Option<Source>,
    patience: Patience,
    sinks: Sinks,
    crews: BTreeMap<StoreSpec, Crew>,
    ended: JoinSet<Result<Summary>>,
    stop: CancellationToken,
    manager: ServiceManager,
    health: Option<HealthFile>,
}

/// A crew at work, or one that waits for its store.
struct Crew {
    words: mpsc::Sender<Word>,
    stop: CancellationToken,
    pulse: Pulse,
}

/// A plan that can be followed, and the stores that were opened to find that out.
struct Prepared {
    plan: Plan,
    opened: BTreeMap<StoreSpec, OpenStore>,
}

impl Daemon {
    /// Sends a crew to a store.
    fn begin(&mut self, store: StoreSpec, opened: Option<OpenStore>) {
        let (words, inbox) = mpsc::channel(WORDS_MAX);
        let (stop, pulse) = (self.stop.child_token(), Pulse::default());
        let post = Post {
            member: member_name(),
            sinks: self.sinks.clone(),
            pulse: pulse.clone(),
            ends: self.plan.ends,
            patience: self.patience,
            stop: stop.clone(),
        };
        let orders = Orders::of(&self.plan, &store);
        self.ended.spawn(work(store.clone(), opened, orders, inbox, post));
        self.crews.insert(store, Crew { words, stop, pulse });
    }

    /// One crew's failure ends them all, because an operator has to see what a store refuses for good.
    fn fail(&mut self, failure: &mut Option<Error>, error: Error) {
        self.stop.cancel();
        failure.get_or_insert(error);
    }

    /// Begins a reload: reads the config, and asks whether everybody could follow it.
    fn prepare(&mut self) -> Option<JoinHandle<Result<Prepared>>> {
        let source = self.source.clone()?;
        info!("reading the config anew");
        self.manager.reloading();
        let crews: BTreeMap<_, _> =
            self.crews.iter().map(|(store, crew)| (store.clone(), crew.words.clone())).collect();
        Some(tokio::spawn(async move {
            let prepared = tokio::time::timeout(RELOAD_WITHIN, prepare(&source, crews)).await;
            prepared.unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::Unavailable,
                    "a store did not answer in time, so that the config cannot be compared with it",
                ))
            })
        }))
    }

    /// Follows a plan that was prepared, or says why there is none.
    async fn reloaded(&mut self, prepared: Result<Prepared>) {
        let Prepared { plan, mut opened } = match prepared {
            Ok(prepared) => prepared,
            Err(refused) => {
                tell(&refused);
                error!("the config was not taken over; the old one stays in force");
                self.manager.ready("the last reload was refused; the old config is in force");
                return;
            }
        };
        if self.stop.is_cancelled() {
            return;
        }
        if (&plan.pid_file, &plan.health_file, plan.log_format)
            != (&self.plan.pid_file, &self.plan.health_file, self.plan.log_format)
        {
            warn!("pid_file, health_file and log_format are taken over at the next start only");
        }
        self.plan = plan;
        let wanted = self.plan.stores();
        let gone: Vec<_> = self.crews.keys().filter(|store| !wanted.contains(store)).cloned().collect();
        for crew in gone.iter().filter_map(|store| self.crews.remove(store)) {
            crew.stop.cancel();
        }
        for store in wanted {
            if let Some(crew) = self.crews.get(&store) {
                // A crew that is gone has failed, and its failure is about to be seen.
                drop(crew.words.send(Word::Follow(Orders::of(&self.plan, &store))).await);
            } else {
                let opened = opened.remove(&store);
                self.begin(store, opened);
            }
        }
        info!(subscriptions = self.plan.routes.len(), "the config was taken over");
        self.manager.ready(&self.status());
    }

    /// Feels the pulse of every crew, and tells who watches this process.
    fn feel(&mut self) {
        if self.crews.values().all(|crew| crew.pulse.has_beaten())
            && self.manager.become_ready(&self.status())
        {
            info!(subscriptions = self.plan.routes.len(), "ready: every store has taken a beat");
        }
        let alive = self.crews.values().all(|crew| crew.pulse.is_alive());
        self.manager.turn(alive);
        if let Some(health) = &mut self.health {
            health.tell(alive);
        }
    }

    fn status(&self) -> String {
        format!(
            "delivering {} from {}",
            count(self.plan.routes.len(), "subscription"),
            count(self.crews.len(), "store")
        )
    }
}

fn count(number: usize, noun: &str) -> String {
    crate::text::counted(number as u64, noun)
}

/// Opens a store, unless that was done, and lets a crew work on it.
async fn work(
    spec: StoreSpec,
    opened: Option<OpenStore>,
    orders: Orders,
    words: mpsc::Receiver<Word>,
    post: Post,
) -> Result<Summary> {
    let mut wait = Duration::ZERO;
    let mut opened = opened;
    let store = loop {
        if let Some(store) = opened.take() {
            break store;
        }
        if post.stop.is_cancelled() {
            return Ok(Summary::default());
        }
        match store_url::open(&spec, Absent::Create, FirstLook::Thorough).await {
            Ok(store) => opened = Some(store),
            Err(error) if post.patience == Patience::Endless && error.is_retryable() => {
                warn!(store = %spec, %error, "the store cannot be opened; trying again");
                pause(&mut wait, &post.stop).await;
            }
            Err(error) => return Err(error),
        }
    };
    let done = store.crew(orders, words, post).await;
    store.close().await;
    done
}

/// Reads the config, and asks every store whether it would let it be followed.
async fn prepare(source: &Source, crews: BTreeMap<StoreSpec, mpsc::Sender<Word>>) -> Result<Prepared> {
    let plan = source.read()?;
    let mut opened = BTreeMap::new();
    for spec in plan.stores() {
        let orders = Orders::of(&plan, &spec);
        if let Some(words) = crews.get(&spec) {
            let (answer, answered) = oneshot::channel();
            // A crew that has ended answers nothing.
            drop(words.send(Word::Could(orders, answer)).await);
            let unanswered = || Error::new(ErrorKind::Unavailable, format!("{spec} is not worked on"));
            answered.await.map_err(|_| unanswered())??;
        } else {
            let store = store_url::open(&spec, Absent::Create, FirstLook::Thorough).await?;
            store.could(&orders).await?;
            opened.insert(spec, store);
        }
    }
    Ok(Prepared { plan, opened })
}

/// Logs an error, one line for each mistake.
fn tell(refused: &Error) {
    let problems = std::error::Error::source(refused).and_then(|source| source.downcast_ref::<Problems>());
    let Some(problems) = problems else {
        error!("{}", crate::output::chain(refused));
        return;
    };
    for problem in &problems.told {
        error!("{problem}");
    }
    if problems.more {
        error!("there may be more mistakes: correct these first");
    }
}
