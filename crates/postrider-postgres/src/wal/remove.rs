//! Leaving no slot and no publication behind.

use postrider_core::{Error, ErrorKind, Result};

use super::slot::{self, Slot};
use crate::admin::audit::Entry;
use crate::store::Inner;

const WHAT: &str = "remove the slot";

/// Removes the slot and the publication of a store; their names. No relay may follow the slot.
pub(crate) async fn source_drop(store: &Inner, actor: &str) -> Result<Vec<String>> {
    let publication = store.options.schema.name().to_owned();
    let (slot, look) = slot::look(store, &publication).await?;
    if look.active_pid.is_some() {
        let told = format!("the slot `{slot}` is followed: stop the relays that do, and try again");
        return Err(Error::new(ErrorKind::Busy, told));
    }
    let mut removed = Vec::new();
    if !matches!(look.slot, Slot::Absent | Slot::Foreign) {
        slot::drop_slot(store, &slot).await?;
        removed.push(format!("slot {slot}"));
    }
    if look.publication {
        publication_drop(store, &publication, actor).await?;
        removed.push(format!("publication {publication}"));
    }
    Ok(removed)
}

async fn publication_drop(store: &Inner, publication: &str, actor: &str) -> Result<()> {
    let mut session = store.operator.session().await?;
    let tx = session.begin().await?;
    tx.run(&format!("drop publication {publication}"), WHAT).await?;
    Entry { actor, action: "publication drop", detail: Some(publication) }.write_of_store(&tx).await?;
    tx.commit(WHAT).await
}
