//! Retention in the background, in bites that producers do not notice.

use std::time::Duration;

use postrider_core::Store;
use tracing::{debug, warn};

const ROUND_EVERY: Duration = Duration::from_secs(60);
/// Between two bites others may write.
const BITE_PAUSE: Duration = Duration::from_millis(50);
/// A round ends after this many bites even if there is more to remove.
const BITES_MAX: usize = 1_000;

/// Removes events that are older than `retention` and not needed any more, until dropped.
pub(crate) async fn prune<S: Store>(store: S, retention: Duration) {
    loop {
        tokio::time::sleep(ROUND_EVERY).await;
        let mut removed = 0;
        let mut pinned_by = None;
        for _ in 0..BITES_MAX {
            match store.prune(retention).await {
                Ok(bite) => {
                    removed += bite.removed;
                    pinned_by = bite.pinned_by;
                    if !bite.more {
                        break;
                    }
                }
                Err(error) => {
                    warn!(%error, "retention could not remove old events; trying again in a minute");
                    break;
                }
            }
            tokio::time::sleep(BITE_PAUSE).await;
        }
        if let Some(subscription) = pinned_by {
            warn_of(&store, &subscription).await;
        }
        debug!(removed, "retention round");
    }
}

/// Names the subscription that keeps old events, and how many they are by now. Its pause may be unnoticed so far.
async fn warn_of<S: Store>(store: &S, subscription: &str) {
    let message = "events older than the retention are kept: this subscription has not read them";
    match store.subscription_report(subscription).await {
        Ok(report) => warn!(
            subscription,
            lag_events = report.lag_events,
            lag_seconds = report.lag.unwrap_or_default().as_secs(),
            paused = report.subscription.paused_at.is_some(),
            message
        ),
        Err(error) => warn!(subscription, %error, message),
    }
}
