//! Keeps this process's membership alive, and says how long it may be trusted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{LogStore, Result};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use crate::context::Membership;

/// When the store last took a relay's beat, which tells others whether the relay lives. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Mutex<Option<Beat>>>);

#[derive(Debug, Clone, Copy)]
struct Beat {
    asked: Instant,
    lease: Duration,
}

impl Pulse {
    /// Whether the store has ever taken a beat.
    pub fn has_beaten(&self) -> bool {
        self.get().is_some()
    }

    /// Whether the store has taken a beat within its lease.
    pub fn is_alive(&self) -> bool {
        self.get().is_some_and(|beat| beat.asked.elapsed() < beat.lease)
    }

    fn get(&self) -> Option<Beat> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self, beat: Beat) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(beat);
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
pub(crate) async fn keep<S: LogStore>(
    store: S,
    name: String,
    membership: watch::Sender<Membership>,
    pulse: Option<Pulse>,
) {
    let lease = store.pace().lease;
    // The caller that watches the pulse waits for its first beat.
    let mut wait = if pulse.is_some() { Duration::ZERO } else { lease / 5 };
    loop {
        tokio::time::sleep(wait).await;
        let asked = Instant::now();
        let member = membership.borrow().member;
        let renewed = match store.member_beat(member).await {
            Ok(()) => {
                if let Some(pulse) = &pulse {
                    pulse.beat(Beat { asked, lease });
                }
                Ok(Membership { member, trusted_until: asked + trust(lease) })
            }
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
