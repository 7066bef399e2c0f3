//! A look at the log's end.

use postrider_core::Result;
use postrider_core::log::{Lsn, Probe, Xid};
use postrider_core::subscription::SubscriptionId;
use tokio_postgres::Row;
use tokio_postgres::types::PgLsn;

use crate::error::Doing;
use crate::ownership::fence::{Standing, standing_read};
use crate::server::session::{Session, Tx};
use crate::server::values::SnapshotValue;

const WHAT: &str = "look at the end of the log";

/// Columns that a probe takes at the beginning of a row.
pub(crate) const PROBE_COLUMNS: usize = 7;

/// Looks, in a transaction that has no xid and has not looked before: the next xid is frozen within one. Nothing is
/// written: no xid, no WAL.
pub(crate) async fn probe(tx: &Tx<'_>) -> Result<Probe> {
    let rows = tx.query(sql!("log/probe").where_wal_is(tx.wal_place()), &[&None::<i64>], WHAT).await?;
    probe_read(&rows[0]).map(|(probe, _)| probe).doing(WHAT)
}

/// The same in a transaction of its own, for an owner, who learns how its subscription stands; none if it was deleted.
pub(crate) async fn probe_for(session: &Session, id: SubscriptionId) -> Result<(Probe, Option<Standing>)> {
    let rows =
        session.query(sql!("log/probe").where_wal_is(session.wal_place()), &[&Some(id.0)], WHAT).await?;
    probe_read(&rows[0]).doing(WHAT)
}

/// How a subscription stands if the WAL is on disk up to `inserted`, or comes to be within a fraction of a millisecond;
/// none if it does not.
pub(crate) async fn flushed_for(
    session: &Session,
    id: SubscriptionId,
    inserted: Lsn,
) -> Result<Option<Option<Standing>>> {
    let rows = session.query(sql!("log/flushed"), &[&PgLsn::from(inserted.0), &id.0], WHAT).await?;
    rows.first().map(|row| standing_read(row, 0)).transpose().doing(WHAT)
}

/// The probe at the beginning of a row, and how the subscription stood that it asked about.
pub(crate) fn probe_read(row: &Row) -> Result<(Probe, Option<Standing>), tokio_postgres::Error> {
    let snapshot = row.try_get::<_, SnapshotValue>(2)?.0;
    // The age of xid 3 is the low half of the next xid, less 3.
    let low = (row.try_get::<_, i32>(1)? as u32).wrapping_add(3);
    let probe = Probe {
        next_xid: Xid::widen(low, snapshot.xmax()),
        snapshot,
        seq: row.try_get(0)?,
        // A server that does not tell counts as one that has not flushed.
        inserted: row.try_get::<_, Option<PgLsn>>(3)?.map_or(Lsn::BEYOND, |lsn| Lsn(lsn.into())),
        flushed: row.try_get::<_, Option<PgLsn>>(4)?.map_or(Lsn::default(), |lsn| Lsn(lsn.into())),
    };
    Ok((probe, standing_read(row, 5)?))
}
