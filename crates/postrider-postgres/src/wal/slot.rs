//! The publication and the slot: made when they are absent, taken over from a relay that is gone, never kept
//! without need.
//!
//! The publication comes first: a slot decodes with the catalog of the moment it decodes, and one of an
//! earlier moment would be refused for ever. A slot that is made or replaced begins somewhere in the log;
//! what came before it is in the table, and the snapshot that comes with the slot says what that is.

use std::time::{Duration, Instant};

use postrider_core::log::Snapshot;
use postrider_core::{Error, ErrorKind, Result};
use tracing::{info, warn};

use super::budget::Budget;
use crate::error::Doing;
use crate::options::OverBudget;
use crate::replication::{NewSlot, Refusal, Replication, System, refusal};
use crate::server::identity::identify;
use crate::server::session::Tx;
use crate::server::values::SnapshotValue;
use crate::store::Inner;

const WHAT: &str = "prepare to follow the write-ahead log";
/// The follower of a slot says every second that it lives.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// How often people are told what a slot that is being made waits for.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Another follower of the slot, as seen by a relay that would like to follow it.
pub(super) struct Other {
    pid: i32,
    said: String,
    /// Since when it has said nothing more.
    since: Instant,
}

/// What can be followed.
pub(super) struct Ready {
    pub(super) slot: String,
    pub(super) publication: String,
    /// What the table must show before: the slot does not tell of it.
    pub(super) must_see: Option<Snapshot>,
}

/// How things stand with a slot.
pub(super) struct Look {
    wal_level: String,
    pub(super) version: i32,
    pub(super) publication: bool,
    pub(super) slot: Slot,
    pub(super) active_pid: Option<i32>,
    follower: String,
    /// When it last said that it lives, by whatever clock: it says so every second.
    said: String,
    /// Which server and timeline this is.
    home: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Absent,
    /// Another program's, or of another database.
    Foreign,
    /// The server has let go of what it needs.
    Lost,
    /// It was made, and no relay has read the log up to where it begins; or it was given up.
    Unused,
    Fit,
}

/// Makes what is absent. The connection's next command must be the one that follows the slot, if there is a snapshot.
pub(super) async fn prepare(
    store: &Inner,
    replication: &mut Replication,
    other: &mut Option<Other>,
) -> Result<Ready> {
    let publication = store.options.schema.name().to_owned();
    let (slot, look) = look(store, &publication).await?;
    check(store, replication, &slot, &look, other).await?;
    if !look.publication {
        let tables = format!(" for table {publication}.event");
        publication_create(store, &publication, &tables).await?;
    }
    let over = match look.slot {
        Slot::Fit => over_budget(store, &slot).await?,
        _ => false,
    };
    let why = match look.slot {
        Slot::Fit if over => Some("the server kept more of its log for it than the budget"),
        Slot::Lost => Some("the server has let go of what it needs"),
        Slot::Unused => Some("it was made and not used, or without its publication"),
        Slot::Fit if !look.publication => Some("its publication was gone"),
        Slot::Fit | Slot::Absent | Slot::Foreign => None,
    };
    if let Some(why) = why {
        warn!(slot, "the slot is made anew: {why}; what it missed is read from the table");
        drop_slot(store, &slot).await?;
    }
    let must_see = if look.slot == Slot::Fit && why.is_none() {
        None
    } else {
        Some(create(store, replication, &slot, look.version >= 170_000).await?)
    };
    Ok(Ready { slot, publication, must_see })
}

/// Whether the server keeps so much for a slot that it is to be replaced. A slot that is to be left is refused.
async fn over_budget(store: &Inner, slot: &str) -> Result<bool> {
    let mut budget = Budget::of(&store.options, slot);
    if budget.over == OverBudget::Alarm {
        return Ok(false);
    }
    let session = store.operator.session().await?;
    match budget.look(&session).await? {
        Some(over) if budget.over == OverBudget::Leave => {
            let told = format!("{over}: it is left alone until somebody drops it");
            Err(Error::new(ErrorKind::Unavailable, told))
        }
        over => Ok(over.is_some()),
    }
}

/// Refuses what cannot be followed, and ends one who follows it and is gone.
pub(super) async fn check(
    store: &Inner,
    replication: &mut Replication,
    slot: &str,
    look: &Look,
    other: &mut Option<Other>,
) -> Result<()> {
    let System { id, timeline } = replication.identify().await?;
    if !look.home.starts_with(&format!("{id}/{timeline:08X}.")) {
        // The URL may name several.
        let message = "the stream would be another server's than the one whose tables are read";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    if look.wal_level != "logical" {
        return Err(Error::invalid(format!(
            "the server writes too little into its log (wal_level = {}): set wal_level = logical there and restart it",
            look.wal_level
        )));
    }
    if look.slot == Slot::Foreign {
        return Err(Error::invalid(format!(
            "the slot `{slot}` is another program's, or of another database: drop or rename it"
        )));
    }
    match look.active_pid {
        Some(pid) => take_over(store, slot, pid, look, other).await,
        None => Ok(()),
    }
}

/// The slot's name, and how things stand with it.
pub(super) async fn look(store: &Inner, publication: &str) -> Result<(String, Look)> {
    let mut session = store.operator.session().await?;
    if store.way.is_pooled() {
        return Err(Error::invalid(
            "the connection goes through a pooler, which cannot pass the write-ahead log on: connect directly",
        ));
    }
    let tx = session.begin().await?;
    // After a failover no other process may have been here yet. Who this process believes to be is told to it with
    // its shards.
    identify(&tx, &store.options).await?;
    let number: i64 = tx.query_one(sql!("wal/slot_name"), &[], WHAT).await?.try_get(0).doing(WHAT)?;
    let slot = format!("{}_{number}", store.options.schema.name());
    let row = tx.query_one(sql!("wal/wal_look"), &[&publication, &slot], WHAT).await?;
    tx.commit(WHAT).await?;
    let read = || {
        Ok(Look {
            wal_level: row.try_get(0)?,
            version: row.try_get(1)?,
            publication: row.try_get(2)?,
            slot: match (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?, row.try_get(6)?) {
                (false, ..) => Slot::Absent,
                (_, _, false, _) => Slot::Foreign,
                (.., true) => Slot::Lost,
                (_, true, ..) => Slot::Unused,
                _ => Slot::Fit,
            },
            active_pid: row.try_get(7)?,
            follower: row.try_get(8)?,
            said: row.try_get(9)?,
            home: row.try_get(10)?,
        })
    };
    Ok((slot, read().doing(WHAT)?))
}

/// Ends a follower that has fallen silent, as one does whose machine has gone; another one keeps its slot.
async fn take_over(
    store: &Inner,
    slot: &str,
    pid: i32,
    look: &Look,
    other: &mut Option<Other>,
) -> Result<()> {
    let same = other.take().filter(|other| other.pid == pid && other.said == look.said);
    let seen = same.unwrap_or_else(|| Other { pid, said: look.said.clone(), since: Instant::now() });
    let silent = seen.since.elapsed();
    *other = Some(seen);
    if look.follower != "postrider/wal" || silent < SILENT_AFTER {
        let message =
            format!("the slot `{slot}` is followed by another relay (pid {pid}): this one reads the table");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    let silent = silent.as_secs();
    warn!(slot, pid, "whoever followed the slot has been silent for {silent} s: it is taken over");
    write(store, "slot takeover", slot, async |tx| {
        tx.query(sql!("wal/walsender_end"), &[&pid], "end a follower that is gone").await.map(drop)
    })
    .await
}

/// Makes a publication of tables, or of none.
pub(super) async fn publication_create(store: &Inner, publication: &str, tables: &str) -> Result<()> {
    let script = format!(
        "create publication {publication}{tables} with (publish = 'insert', publish_via_partition_root = true)"
    );
    info!(publication, "the publication is made");
    write(store, "publication create", publication, async |tx| {
        tx.run(&script, "create the publication").await
    })
    .await
}

pub(super) async fn drop_slot(store: &Inner, slot: &str) -> Result<()> {
    write(store, "slot drop", slot, async |tx| {
        tx.query(sql!("wal/slot_drop"), &[&slot], "drop the slot").await.map(drop)
    })
    .await
}

/// Changes something and leaves a line about it.
pub(super) async fn write(
    store: &Inner,
    action: &'static str,
    detail: &str,
    work: impl AsyncFnOnce(&Tx<'_>) -> Result<()>,
) -> Result<()> {
    let mut session = store.operator.session().await?;
    let tx = session.begin().await?;
    work(&tx).await?;
    tx.query(sql!("wal/slot_note"), &[&action, &detail], action).await?;
    tx.commit(action).await
}

/// Makes a slot. That waits for transactions that run, and says for which.
pub(super) async fn make(
    store: &Inner,
    replication: &mut Replication,
    slot: &str,
    failover: bool,
) -> Result<NewSlot> {
    info!(slot, "the slot is made");
    let creating = replication.slot_create(slot, failover);
    tokio::pin!(creating);
    let new = loop {
        tokio::select! {
            created = &mut creating => break created?,
            () = tokio::time::sleep(TELL_EVERY) => tell_blockers(store, slot).await?,
        }
    };
    write(store, "slot create", slot, async |_| Ok(())).await?;
    Ok(new)
}

/// The same; what is visible where it begins.
async fn create(
    store: &Inner,
    replication: &mut Replication,
    slot: &str,
    failover: bool,
) -> Result<Snapshot> {
    let mut session = store.operator.session().await?;
    session.change(sql!("wal/new_slot_put"), &[&slot], WHAT).await?;
    drop(session);
    let NewSlot { snapshot, .. } = make(store, replication, slot, failover).await?;
    let mut session = store.operator.session().await?;
    let tx = session.begin().await?;
    let script = format!(
        "set transaction isolation level repeatable read; set transaction snapshot '{}'",
        snapshot.replace('\'', "''")
    );
    tx.run(&script, WHAT).await?;
    let seen = tx
        .query_one(sql!("wal/snapshot_get"), &[], WHAT)
        .await?
        .try_get::<_, SnapshotValue>(0)
        .doing(WHAT)?
        .0;
    tx.commit(WHAT).await?;
    Ok(seen)
}

/// Has the next relay that wants to follow the slot replace it, if an error says that it will never do: the
/// plugin looks for the publication as of the moment of each change, and there was a moment without.
pub(super) async fn give_up(store: &Inner, slot: &str, error: &Error) -> Result<()> {
    if refusal(error) != Some(Refusal::PublicationMissing) {
        return Ok(());
    }
    let mut session = store.operator.session().await?;
    session.change(sql!("wal/new_slot_put"), &[&slot], WHAT).await.map(drop)
}

/// The log was read up to where a new slot begins: from now on it can be gone by.
pub(super) async fn was_read(store: &Inner, slot: &str) -> Result<()> {
    let mut session = store.operator.session().await?;
    session.change(sql!("wal/new_slot_delete"), &[&slot], WHAT).await.map(drop)
}

async fn tell_blockers(store: &Inner, slot: &str) -> Result<()> {
    let mut session = store.operator.session().await?;
    let tx = session.begin().await?;
    let rows = tx.query(sql!("wal/slot_blockers"), &[], WHAT).await?;
    tx.commit(WHAT).await?;
    for row in rows {
        let (pid, database): (i32, String) = (row.try_get(0).doing(WHAT)?, row.try_get(1).doing(WHAT)?);
        let (state, seconds): (String, f64) = (row.try_get(2).doing(WHAT)?, row.try_get(3).doing(WHAT)?);
        warn!(
            slot,
            "the slot waits for a transaction to end: pid {pid} in database {database}, {state}, open for {seconds:.0} s; \
             to end it, run `select pg_terminate_backend({pid})`"
        );
    }
    Ok(())
}

/// Why a slot cannot be followed, in words. The next attempt replaces a slot that the server has given up.
pub(super) fn explained(slot: &str, error: Error) -> Error {
    match refusal(&error) {
        Some(Refusal::SlotInUse) => {
            Error::new(ErrorKind::Unavailable, format!("the slot `{slot}` is followed by another relay"))
        }
        Some(Refusal::SlotLost) => Error::new(
            ErrorKind::Unavailable,
            format!("the server has let go of what the slot `{slot}` needs"),
        ),
        _ => error,
    }
}
