//! The slot of messages: made when it is absent, and missed when it is gone.

use std::time::Duration;

use postrider_core::log::Lsn;
use postrider_core::{Error, ErrorKind, Result};
use tracing::warn;

use super::stored::{self, Place};
use crate::replication::{NewSlot, Replication, Stream};
use crate::session::{Role, Session};
use crate::store::Inner;
use crate::wal::slot::{self, Other, Slot};

/// What its name ends with, and that of its publication, which has no tables.
pub(in crate::wal) const SUFFIX: &str = "_message";

/// What can be followed.
pub(super) struct Ready {
    pub(super) slot: String,
    pub(super) stream: Stream,
    pub(super) session: Session,
    pub(super) prefix: String,
    pub(super) stored: Place,
}

/// Makes what is absent, and follows it.
pub(super) async fn prepare(store: &Inner, other: &mut Option<Other>) -> Result<Ready> {
    let mut session = Session::connect(&store.options, &store.way, Role::Messenger).await?;
    let publication = format!("{}{SUFFIX}", store.options.schema.name());
    let (name, found) = slot::look(store, &publication, SUFFIX).await?;
    let known = stored::look(&session).await?;
    let mut place = known.place;
    let is_there = !matches!(found.slot, Slot::Absent | Slot::Lost);
    if !is_there && known.used {
        miss(store, &mut session, &name, place).await?;
        place = Place::default();
    }
    let mut replication = Replication::connect(&store.options).await?;
    slot::check(store, &mut replication, &name, &found, other).await?;
    if !found.publication {
        slot::publication_create(store, &publication, "").await?;
    }
    if found.slot == Slot::Lost {
        slot::drop_slot(store, &name).await?;
    }
    if !is_there {
        let NewSlot { consistent, .. } =
            slot::make(store, &mut replication, &name, found.version >= 170_000).await?;
        let new = Place { lsn: Some(consistent), part: None };
        stored::store(&mut session, place, new, &[]).await?;
        place = new;
    }
    let stream = replication.start(&name, &publication, Lsn::default()).await;
    let stream = stream.map_err(|error| slot::explained(&name, error))?;
    if let Some(lsn) = place.lsn.filter(|lsn| *lsn < stream.position()) {
        // As on a standby that has the slot of its primary, but not all that was written there.
        lost(store, &name, lsn, "the slot is ahead of what is stored").await?;
    }
    Ok(Ready { slot: name, stream, session, prefix: known.prefix, stored: place })
}

/// The slot is gone, and with it what was not stored. Events that waited for that need not wait any more.
async fn miss(store: &Inner, session: &mut Session, slot: &str, place: Place) -> Result<()> {
    stored::allow(session, None).await?;
    if let Some(lsn) = place.lsn {
        lost(store, slot, lsn, "the slot is gone").await?;
        stored::store(session, place, Place::default(), &[]).await?;
    }
    stored::move_waiting(session, Lsn(u64::MAX)).await.map(drop)
}

/// The same for whoever ends the source and finds no slot.
pub(in crate::wal) async fn missed(store: &Inner, slot: &str) -> Result<()> {
    let mut session = Session::connect(&store.options, &store.way, Role::Messenger).await?;
    let known = stored::look(&session).await?;
    if known.used { miss(store, &mut session, slot, known.place).await } else { Ok(()) }
}

async fn lost(store: &Inner, slot: &str, from: Lsn, why: &str) -> Result<()> {
    let from = format!("{:X}/{:X}", from.0 >> 32, from.0 & 0xffff_ffff);
    warn!(slot, "messages that committed from {from} on and were not stored are lost: {why}");
    slot::write(store, "messages lost", &format!("{slot} from {from} on"), async |_| Ok(())).await
}

pub(super) fn too_slow(max: Duration) -> Error {
    let message = format!("messages could not be stored within {max:?}: try again");
    Error::new(ErrorKind::Busy, message)
}
