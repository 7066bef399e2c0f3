//! Leaving no slot and no publication behind.
//!
//! Messages are forbidden first, and then stored: a transaction fetches its number before it reads whether it may write messages,
//! so that all that have written some have ended once all have that had a number. What is stored then is all there is.

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use super::message::{SUFFIX, drain, missed};
use super::slot::{self, Slot};
use crate::audit::Entry;
use crate::error::Doing;
use crate::store::Inner;
use crate::values::XidValue;

const WHAT: &str = "remove the slots";
/// How long transactions are waited for, and then messages.
const WAIT_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Removes the slots and publications of a store; their names. Nobody may follow the slots.
pub(crate) async fn source_drop(store: &Inner, actor: &str) -> Result<Vec<String>> {
    let schema = store.options.schema.name();
    let mut removed = Vec::new();
    for suffix in [SUFFIX, ""] {
        let publication = format!("{schema}{suffix}");
        let (slot, look) = slot::look(store, &publication, suffix).await?;
        if look.active_pid.is_some() {
            let told = format!("the slot `{slot}` is followed: stop the relays that do, and try again");
            return Err(Error::new(ErrorKind::Busy, told));
        }
        if suffix == SUFFIX {
            messages_end(store, &slot, look.slot == Slot::Fit).await?;
        }
        if !matches!(look.slot, Slot::Absent | Slot::Foreign) {
            slot::drop_slot(store, &slot).await?;
            removed.push(format!("slot {slot}"));
        }
        if look.publication {
            publication_drop(store, &publication, actor).await?;
            removed.push(format!("publication {publication}"));
        }
    }
    Ok(removed)
}

/// Stores what there is, and has events be rows as all others from now on.
async fn messages_end(store: &Inner, slot: &str, has_slot: bool) -> Result<()> {
    let mut session = store.operator.session().await?;
    session.change(sql!("message_forbid"), &[], WHAT).await?;
    // By a transaction of its own: all that have written messages began before it.
    let number: XidValue = session.change(sql!("xact_id"), &[], WHAT).await?[0].try_get(0).doing(WHAT)?;
    let until = Instant::now() + WAIT_MAX;
    loop {
        let rows = session.query(sql!("xact_open"), &[&number], WHAT).await?;
        let open: Option<String> = rows[0].try_get(0).doing(WHAT)?;
        let Some(open) = open else { break };
        if Instant::now() >= until {
            let told = format!(
                "a transaction that may have written messages is open ({open}): end it, and try again"
            );
            return Err(Error::new(ErrorKind::Busy, told));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    drop(session);
    if has_slot {
        drain(store, WAIT_MAX).await?;
    } else {
        missed(store, slot).await?;
    }
    let mut session = store.operator.session().await?;
    let tx = session.begin().await?;
    tx.run("set local lock_timeout = '5s'", WHAT).await?;
    // Those who are about to write what waits look again once they have the lock.
    tx.execute(sql!("message_lock"), &[], WHAT).await?;
    tx.query(sql!("message_move_all"), &[], WHAT).await?;
    tx.execute(sql!("message_end"), &[], WHAT).await?;
    tx.commit(WHAT).await
}

async fn publication_drop(store: &Inner, publication: &str, actor: &str) -> Result<()> {
    let mut session = store.operator.session().await?;
    let tx = session.begin().await?;
    tx.run(&format!("drop publication {publication}"), WHAT).await?;
    Entry { actor, action: "publication drop", detail: Some(publication) }.write_of_store(&tx).await?;
    tx.commit(WHAT).await
}
