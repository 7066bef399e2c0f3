//! The other end: a receiver that handles each event once.
//!
//! Events come at least once. A receiver with a PostgreSQL database of its own, which need not be a store,
//! notes the deduplication id of each event in the transaction that does the work, and leaves alone what it
//! finds noted.
//!
//! ```no_run
//! # async fn run(db: &mut tokio_postgres::Client, dedup_id: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_postgres::{inbox, tokio_postgres};
//! use std::time::Duration;
//!
//! inbox::create(db).await?; // once
//!
//! let tx = db.transaction().await?;
//! if inbox::take(&tx, "billing", dedup_id).await? {
//!     // … do the work, in tx …
//! }
//! tx.commit().await?; // and only then ack
//!
//! inbox::prune(db, Duration::from_secs(30 * 86_400), 1000).await?; // now and then
//! # Ok(()) }
//! ```
//!
//! The table `postrider_inbox` stands where the search path of the session makes tables. What is forgotten
//! can be handled again: keep it for longer than an event can take to come again, which is the retention of
//! the store if dead letters may be replayed.
//!
//! [`InboxTable`] is for the relay that delivers into such a database by itself.

mod table;

use std::time::Duration;

use postrider_core::Result;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::emit::POSTRIDER;
use crate::error::Doing;
use crate::server::statement::Sql;

pub use table::InboxTable;

const TABLE: Sql = sql!("inbox/inbox_table");
const INDEX: Sql = sql!("inbox/inbox_index");
const TAKE: Sql = sql!("inbox/inbox_take");
const PRUNE: Sql = sql!("inbox/inbox_prune");

/// Makes the table `postrider_inbox` if it is not there.
pub async fn create(db: &Client) -> Result<()> {
    for statement in [TABLE, INDEX] {
        db.batch_execute(&statement.text(&POSTRIDER)).await.doing("make the inbox")?;
    }
    Ok(())
}

/// Notes an event as handled by `receiver`, in the transaction that does so. `false` if it was noted before:
/// then there is nothing to do. If another transaction is about to note it, this waits for its end.
pub async fn take(tx: &Transaction<'_>, receiver: &str, dedup_id: &str) -> Result<bool> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&receiver, Type::TEXT), (&dedup_id, Type::TEXT)];
    let rows =
        tx.query_typed(&TAKE.text(&POSTRIDER), &parameters).await.doing("take an event from the inbox")?;
    Ok(!rows.is_empty())
}

/// Forgets what was noted longer ago than `older_than`, at most so many at a time. Gives how many; call it
/// again while that is as many as asked for.
pub async fn prune(db: &Client, older_than: Duration, rows_max: u32) -> Result<u64> {
    // Within what an interval of PostgreSQL holds.
    let seconds = older_than.as_secs_f64().min(SECONDS_MAX);
    let rows = db
        .query_typed(&PRUNE.text(&POSTRIDER), &[(&seconds, Type::FLOAT8), (&i64::from(rows_max), Type::INT8)])
        .await
        .doing("prune the inbox")?;
    let count = rows.first().map(|row| row.try_get::<_, i64>(0)).transpose().doing("prune the inbox")?;
    Ok(count.unwrap_or(0).unsigned_abs())
}

/// A thousand years.
const SECONDS_MAX: f64 = 1000.0 * 365.25 * 86_400.0;
