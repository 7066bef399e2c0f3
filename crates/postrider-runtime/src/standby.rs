//! Waits for a subscription to be free, owns it, and comes back here when it is lost.

use std::time::Duration;

use postrider_core::settle::Taken;
use postrider_core::{ErrorKind, LogStore, Result};
use tracing::{info, warn};

use crate::owner::{Context, Ended, Owner};
use crate::relay::Summary;
use crate::worker::Duty;

/// How often a member that stands by asks whether the subscription is free.
const ASK_EVERY: Duration = Duration::from_millis(250);
const ERROR_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs one worker until it has drained.
pub(crate) async fn run<S: LogStore>(store: S, duty: Duty<S>, mut context: Context) -> Result<Summary> {
    let name = duty.subscription.name.clone();
    let mut summary = Summary::default();
    let mut rng = fastrand::Rng::with_seed(context.seed);
    loop {
        let Some(taken) = take(&store, &name, &context).await? else { return Ok(summary) };
        info!(subscription = name, position = %taken.start, parked = taken.parked.len(), "owned");
        context.seed = rng.u64(..);
        let owner = Owner::new(store.clone(), taken, duty.work.clone(), context.clone());
        let (did, ended) = Box::pin(owner.run()).await;
        summary.add(did);
        match ended? {
            Ended::Drained => return Ok(summary),
            Ended::Lost => warn!(subscription = name, "ownership was lost; standing by"),
        }
    }
}

/// Waits until the subscription is ours; none if it is time to stop, or if the subscription is gone.
async fn take<S: LogStore>(store: &S, name: &str, context: &Context) -> Result<Option<Taken>> {
    let mut wait = ASK_EVERY;
    let mut standing_by = false;
    loop {
        if context.stop.is_cancelled() {
            return Ok(None);
        }
        let member = context.membership.borrow().member;
        match store.shards_take(name, member).await {
            Ok(Some(taken)) => return Ok(Some(taken)),
            Ok(None) => {
                if context.until_idle {
                    // Somebody else delivers what is there.
                    info!(subscription = name, "another process owns this subscription; nothing to do");
                    return Ok(None);
                }
                if !standing_by {
                    info!(subscription = name, "another process owns this subscription; standing by");
                    standing_by = true;
                }
                wait = ASK_EVERY;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                warn!(subscription = name, "the subscription was deleted; its worker ends");
                return Ok(None);
            }
            // A member that was forgotten is about to be joined anew by the keeper.
            Err(error) if error.is_retryable() || error.is_fenced() => {
                warn!(subscription = name, %error, "cannot take the subscription yet; trying again");
                wait = (wait * 2).min(ERROR_WAIT_MAX);
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(wait) => {}
        }
    }
}
