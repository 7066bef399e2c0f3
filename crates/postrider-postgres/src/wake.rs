//! How relays at rest learn of new events: what people choose. The protocol is in `sentry`.
//!
//! What is chosen is what is there: the trigger `wake` on the log's table. Nothing else says it, so that nothing can
//! say otherwise.

pub(crate) mod sentry;

use postrider_core::store::Wake;
use postrider_core::{Error, Result};

use crate::admin::audit::Entry;
use crate::error::Doing;
use crate::options::TwoPhase;
use crate::server::session::Tx;

/// What people have chosen.
pub(crate) async fn wake_get(tx: &Tx<'_>) -> Result<Wake> {
    let what = "ask how relays are woken";
    let row = tx.query_one(sql!("wake/wake_look"), &[], what).await?;
    Ok(if row.try_get(0).doing(what)? { Wake::Notify } else { Wake::Poll })
}

/// Changes it. Every transaction that emitted without the trigger has ended when the trigger is there, since making it
/// waits for them: relays may rely on it from its first moment on.
pub(crate) async fn wake_set(tx: &Tx<'_>, wake: Wake, two_phase: TwoPhase, actor: &str) -> Result<()> {
    let what = "change how relays are woken";
    // Producers queue behind a statement that waits for their table.
    tx.run("set local lock_timeout = '100ms'", what).await?;
    tx.query(sql!("wake/wake_lock"), &[], what).await?;
    if wake_get(tx).await? == wake {
        return Ok(());
    }
    match wake {
        Wake::Poll => tx.execute(sql!("wake/wake_drop"), &[], what).await?,
        Wake::Notify => {
            two_phase_check(tx, two_phase).await?;
            tx.execute(sql!("wake/wake_create"), &[], what).await?
        }
    };
    Entry { actor, action: "store wake", detail: Some(wake.word()) }.write_of_store(tx).await
}

async fn two_phase_check(tx: &Tx<'_>, two_phase: TwoPhase) -> Result<()> {
    let what = "ask whether transactions can be prepared";
    let row = tx.query_one(sql!("wake/wake_two_phase"), &[], what).await?;
    let prepared_max: i32 = row.try_get(0).doing(what)?;
    if prepared_max == 0 || two_phase == TwoPhase::Unused {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "this server lets producers prepare transactions (max_prepared_transactions = {prepared_max}), which fails for \
         those that wake a relay: keep to polling, or say that no producer of this store does"
    )))
}

/// Wakes relays of other processes when the transaction commits, if producers wake them.
pub(crate) async fn tell(tx: &Tx<'_>) -> Result<()> {
    tx.query(sql!("wake/wake_tell"), &[], "wake relays").await.map(drop)
}
