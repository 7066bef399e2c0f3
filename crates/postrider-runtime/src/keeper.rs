//! Keeps this process's membership alive, and says how long it may be trusted.

use std::time::Duration;

use postrider_core::settle::MemberId;
use postrider_core::{LogStore, Result};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

/// Who we are in the store, and until when nobody else may believe us dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) member: MemberId,
    /// On this process's monotonic clock: measured from before the last successful beat was sent, with a
    /// fifth of the lease as margin. Nothing is handed out past it.
    pub(crate) trusted_until: Instant,
}

impl Membership {
    pub(crate) fn is_trusted(&self) -> bool {
        Instant::now() < self.trusted_until
    }
}

/// Joins the store.
pub(crate) async fn join<S: LogStore>(store: &S, name: &str) -> Result<Membership> {
    let asked = Instant::now();
    let member = store.member_join(name).await?;
    Ok(Membership { member, trusted_until: asked + trust(store.pace().lease) })
}

/// Beats until dropped. A member that was forgotten, because it slept too long, joins again under a fresh
/// identity; its workers find out by being fenced.
pub(crate) async fn keep<S: LogStore>(store: S, name: String, membership: watch::Sender<Membership>) {
    let lease = store.pace().lease;
    let mut wait = lease / 5;
    loop {
        tokio::time::sleep(wait).await;
        let asked = Instant::now();
        let member = membership.borrow().member;
        let renewed = match store.member_beat(member).await {
            Ok(()) => Ok(Membership { member, trusted_until: asked + trust(lease) }),
            Err(error) if error.is_fenced() => join(&store, &name).await,
            Err(error) => Err(error),
        };
        wait = match renewed {
            Ok(renewed) => {
                membership.send_replace(renewed);
                lease / 5
            }
            Err(error) => {
                warn!(%error, "the store did not take this member's beat; trying again");
                (lease / 20).max(Duration::from_millis(10))
            }
        };
    }
}

fn trust(lease: Duration) -> Duration {
    lease / 5 * 4
}
