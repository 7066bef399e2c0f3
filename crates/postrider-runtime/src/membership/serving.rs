//! One worker of a relay for as long as the relay runs, also when its subscription is deleted and created
//! again meanwhile.
//!
//! ```text
//!   serve ──► group (and in mode `queue` the worker beside it) ──deleted──► wait until it is there again ─┐
//!     ▲                                                                                                  │
//!     └──────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A subscription that is created again is another one with another id. Knowledge of the old one is worthless,
//! so all parts end and begin again. The part that finds its subscription gone tells the other.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, LogStore, Mode, NewSubscription, QueueStore, Result, Subscription};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::{Context, Summary};
use crate::dispatch::worker::{Duty, Work};
use crate::handoff::Fed;
use crate::membership::group;
use crate::queue_mode::queue;

/// How long apart it is looked whether a subscription that was deleted is there again.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(250);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(5);

/// Runs one worker until it has drained.
pub(crate) async fn serve<S: QueueStore>(store: S, duty: Duty<S>, context: Context) -> Result<Summary> {
    let mut seeds = fastrand::Rng::with_seed(context.seed);
    let mut summary = Summary::default();
    loop {
        let (gone, stop) = (CancellationToken::new(), context.stop.child_token());
        let round =
            Context { fed: Fed::default(), gone: gone.clone(), stop: stop.clone(), ..context.clone() };
        let parts = begin(&store, &duty, &round, &mut seeds);
        summary.add(finish(parts, &gone, &stop).await?);
        let ends = context.until_idle || context.stop.is_cancelled() || !gone.is_cancelled();
        if ends || !is_there_again(&store, &duty.subscription, &context.stop).await {
            return Ok(summary);
        }
    }
}

fn begin<S: QueueStore>(
    store: &S,
    duty: &Duty<S>,
    round: &Context,
    seeds: &mut fastrand::Rng,
) -> JoinSet<Result<Summary>> {
    let mut parts = JoinSet::new();
    if let (Mode::Queue, Work::Tasks(handle)) = (duty.subscription.mode, &duty.work) {
        let context = Context { seed: seeds.u64(..), ..round.clone() };
        let (name, handle) = (duty.subscription.name.clone(), Arc::clone(handle));
        parts.spawn(queue::run(store.clone(), name, handle, context));
    }
    let over = round.fed.over.clone();
    let context = Context { seed: seeds.u64(..), ..round.clone() };
    let duty = Duty { subscription: duty.subscription.clone(), work: duty.work.clone() };
    let group = group::run(store.clone(), duty, context);
    parts.spawn(async move {
        let ended = group.await;
        over.cancel();
        ended
    });
    parts
}

/// Waits for all parts. They end together, if one fails or the subscription is gone.
async fn finish(
    mut parts: JoinSet<Result<Summary>>,
    gone: &CancellationToken,
    stop: &CancellationToken,
) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut failure = None;
    loop {
        tokio::select! {
            biased;
            () = gone.cancelled(), if !stop.is_cancelled() => stop.cancel(),
            ended = parts.join_next() => match ended {
                None => return failure.map_or(Ok(summary), Err),
                Some(Ok(Ok(part))) => summary.add(part),
                Some(Ok(Err(error))) => {
                    stop.cancel();
                    failure.get_or_insert(error);
                }
                Some(Err(error)) => {
                    stop.cancel();
                    failure.get_or_insert(Error::new(ErrorKind::Internal, "a worker panicked").with_source(error));
                }
            },
        }
    }
}

/// Waits until a subscription that was deleted is there again and means the same; false if it is time to stop
/// before that.
async fn is_there_again<S: QueueStore>(
    store: &S,
    wanted: &NewSubscription,
    stop: &CancellationToken,
) -> bool {
    let name = wanted.name.as_str();
    warn!(
        subscription = name,
        "the subscription was deleted; it is delivered again when it is created again"
    );
    let (mut wait, mut told) = (LOOK_AGAIN_MIN, None);
    loop {
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(LOOK_AGAIN_MAX);
        let existing = match store.subscription_get(name).await {
            Ok(existing) => existing,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                warn!(subscription = name, %error, "could not look for the subscription; trying again");
                continue;
            }
        };
        let id = existing.id;
        match agree(store, wanted, existing).await {
            Ok(_) => {
                info!(subscription = name, "the subscription is there again");
                return true;
            }
            Err(error) if told != Some(id) => {
                told = Some(id);
                warn!(subscription = name, %error, "the subscription was created again, but is not delivered here");
            }
            Err(_) => {}
        }
    }
}

/// Checks that a subscription is the one that is wanted, and tunes it where it is tuned otherwise.
pub(crate) async fn agree<S: LogStore>(
    store: &S,
    wanted: &NewSubscription,
    existing: Subscription,
) -> Result<Subscription> {
    wanted.agrees_with(&existing)?;
    if wanted.tuning == existing.tuning {
        return Ok(existing);
    }
    store.subscription_tune(&wanted.name, wanted.tuning.clone()).await
}
