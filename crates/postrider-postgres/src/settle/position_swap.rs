//! Two tables for positions: one is written, the other is emptied now and then.
//!
//! ```text
//!    a ▓▓▓▓▓▓▓▓▓ written             a ▓▓▓▓▓▓▓▓▓                a (truncated)
//!    b                   ── switch ─►  b ▓ written  ── copy ──►  b ▓▓ written, with the few of a that still count
//! ```
//!
//! Readers look at both tables, and of each shard the row with the greatest `n` counts, so that at each of
//! these moments they find the same. That holds for a settle too that has read which table is written before
//! the switch and writes to it afterwards: if it comes before the copy, it has its table locked, is waited
//! for and copied; and if it came after the truncation, its row would lie in the emptied table with an `n`
//! that is greater than that of any row before it, count for that, and be taken over by the next copy.
//! Settles of one shard do not overlap, since each waits for the lock of its subscription or comes by the
//! same connection, so that the order of `n` is the order of settles.

use postrider_core::{ErrorKind, Result};
use tokio_postgres::Row;
use tracing::debug;

use crate::error::Doing;
use crate::ownership::lock::{LOCK_TIMEOUT, lock_retention};
use crate::server::link::Link;
use crate::server::session::Tx;
use crate::server::statement::PositionTable;

/// Rows after which the other table is written.
const ROWS_MAX: i64 = 10_000;
/// Seconds after which it is, however few rows there are.
const SECONDS_MAX: f64 = 300.0;

const WHAT: &str = "tidy up positions";

/// What a look at the two tables tells.
struct Look {
    current: PositionTable,
    seconds: f64,
    rows: i64,
    other_is_empty: bool,
}

impl Look {
    async fn at(tx: &Tx<'_>) -> Result<Self> {
        let row =
            tx.query_one(sql!("settle/position_swap/position_table_look"), &[&(ROWS_MAX + 1)], WHAT).await?;
        Self::read(&row).doing(WHAT)
    }

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            current: if row.try_get(0)? { PositionTable::A } else { PositionTable::B },
            seconds: row.try_get(1)?,
            rows: row.try_get(2)?,
            other_is_empty: row.try_get(3)?,
        })
    }

    fn is_due(&self) -> bool {
        self.rows > ROWS_MAX || (self.rows > 0 && self.seconds > SECONDS_MAX)
    }
}

/// Switches tables if it is time to, and empties the one that is not written.
pub(crate) async fn position_swap(link: &Link) -> Result<()> {
    let mut session = link.session().await?;
    {
        let tx = session.begin().await?;
        let look = Look::at(&tx).await?;
        if look.other_is_empty && !look.is_due() {
            return Ok(());
        }
    }
    {
        // The switch is committed before the old table is waited for, so that those who come meanwhile do not need it.
        let tx = session.begin().await?;
        lock_retention(&tx).await?;
        let look = Look::at(&tx).await?;
        if look.other_is_empty && look.is_due() {
            tx.execute(sql!("settle/position_swap/position_table_switch"), &[], WHAT).await?;
            tx.commit(WHAT).await?;
        }
    }
    let tx = session.begin().await?;
    lock_retention(&tx).await?;
    let look = Look::at(&tx).await?;
    if look.other_is_empty {
        return Ok(());
    }
    tx.run(LOCK_TIMEOUT, WHAT).await?;
    let old = look.current.other();
    match tx.execute(sql!("settle/position_swap/position_table_lock").emptying(old), &[], WHAT).await {
        Err(error) if error.kind() == ErrorKind::Busy => {
            debug!("somebody uses the positions; they are tidied up another time");
            return Ok(());
        }
        locked => locked?,
    };
    let copied =
        tx.execute(sql!("settle/position_swap/position_table_copy").emptying(old), &[], WHAT).await?;
    tx.execute(sql!("settle/position_swap/position_table_truncate").emptying(old), &[], WHAT).await?;
    tx.commit(WHAT).await?;
    debug!(copied, "positions that no longer count were removed");
    Ok(())
}
