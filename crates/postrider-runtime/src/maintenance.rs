//! Retention in the background, in bites that producers do not notice.

use std::time::Duration;

use postrider_core::Store;
use tracing::{debug, warn};

const ROUND_EVERY: Duration = Duration::from_secs(60);
/// Between two bites others may write.
const BITE_PAUSE: Duration = Duration::from_millis(50);
/// A round ends after this many bites even if there is more to remove.
const BITES_MAX: usize = 1_000;

/// Removes what is older than `retention` and needed by nobody, until dropped.
pub(crate) async fn prune<S: Store>(store: S, retention: Duration) {
    loop {
        tokio::time::sleep(ROUND_EVERY).await;
        let mut removed = 0;
        for _ in 0..BITES_MAX {
            match store.prune(retention).await {
                Ok(bite) => {
                    removed += bite.removed;
                    if let Some(subscription) = bite.pinned_by {
                        warn!(
                            subscription,
                            "events older than the retention are kept: this subscription has not read them"
                        );
                    }
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
        debug!(removed, "retention round");
    }
}
