//! Fires schedules: looks when the first is due, sleeps until then, fires what is due, and looks again.
//!
//! Every relay does this for the whole store, whatever its subscriptions. Of the relays that fire the same
//! tick the store lets one succeed, so no relay has to be in charge and nothing has to be handed over. A relay
//! asks a quiet store for its first due time, the first entry of an index, once every [`LOOK_EVERY`].

use std::time::Duration;

use postrider_core::schedule::{DueSchedules, Fire, Fired, due};
use postrider_core::{Result, Schedule, ScheduleStore};
use tokio::time::sleep;
use tracing::{debug, warn};

/// Longest wait between two looks: so long may a new schedule go unnoticed.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// After a look or a fire that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// After a fire in which others were faster: they may be about to fire the rest.
const YIELD_FOR: Duration = Duration::from_millis(10);

/// Fires what is due, until dropped.
pub(crate) async fn fire<S: ScheduleStore>(store: S) {
    loop {
        let wait = match store.schedules_due().await {
            Ok(found) => round(&store, &found).await,
            Err(error) => {
                warn!(%error, "could not look for due schedules; trying again");
                RETRY_AFTER
            }
        };
        sleep(wait).await;
    }
}

/// Deals with what a look has found. How long to wait for the next one.
async fn round<S: ScheduleStore>(store: &S, found: &DueSchedules) -> Duration {
    let Some(first) = found.due.first() else {
        let next = found.next_at.map(|next_at| next_at.since(found.now));
        return next.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY));
    };
    debug!(
        count = found.due.len(),
        late_ms = found.now.since(first.next_at).as_millis() as u64,
        "schedules are due"
    );
    // What went best counts: one schedule that cannot be fired must not delay the others.
    let mut wait = LOOK_EVERY;
    for schedule in &found.due {
        wait = wait.min(match fire_one(store, schedule, found).await {
            Ok(Some(Fired::Yes)) => Duration::ZERO,
            Ok(Some(Fired::No)) => YIELD_FOR,
            Ok(None) => LOOK_EVERY,
            Err(error) => {
                warn!(schedule = schedule.name, %error, "a schedule could not be fired; trying again");
                if error.is_retryable() { RETRY_AFTER } else { LOOK_EVERY }
            }
        });
    }
    wait
}

/// Fires one schedule; none if it has nothing to be fired for after all.
async fn fire_one<S: ScheduleStore>(
    store: &S,
    schedule: &Schedule,
    found: &DueSchedules,
) -> Result<Option<Fired>> {
    let Some(due) = due(schedule, found.now)? else { return Ok(None) };
    let fire = Fire { id: schedule.id, seen: schedule.next_at, ticks: due.ticks, next_at: due.next_at };
    let fired = store.schedule_fire(fire).await?;
    if due.dropped && fired == Fired::Yes {
        warn!(
            schedule = schedule.name,
            missed = schedule.missed.word(),
            since = %schedule.next_at,
            "ticks were missed and dropped"
        );
    }
    Ok(Some(fired))
}
