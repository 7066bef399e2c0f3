//! The other end: a receiver that handles each event once.
//!
//! Events come at least once. A receiver with its own SQLite database, which need not be a store, notes the
//! deduplication id of each event in the transaction that does the work, and skips an event whose id it
//! finds.
//!
//! ```
//! # fn run(dedup_id: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_sqlite::{inbox, rusqlite};
//! use std::time::Duration;
//!
//! let mut db = rusqlite::Connection::open_in_memory()?;
//! inbox::create(&db)?; // once
//!
//! let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! if inbox::take(&tx, "billing", dedup_id)? {
//!     // … do the work, in tx …
//! }
//! tx.commit()?; // and only then ack
//!
//! inbox::prune(&db, Duration::from_secs(30 * 86_400), 1000)?; // now and then
//! # Ok(()) }
//! # run("s-1-1").unwrap();
//! ```
//!
//! An event whose id is forgotten can be handled again. Keep ids for longer than an event can take to come
//! again, which is the retention of the store if dead letters may be replayed.
//!
//! [`InboxTable`] is for the relay that delivers into such a database by itself.

mod table;

use std::time::Duration;

use postrider_core::Result;
use rusqlite::{Connection, Transaction};

use crate::error::Doing;

pub use table::InboxTable;

/// Makes the table `postrider_inbox` if it is not there.
pub fn create(conn: &Connection) -> Result<()> {
    let what = "make the inbox";
    conn.execute(sql!("inbox/inbox_table"), ()).doing(what)?;
    conn.execute(sql!("inbox/inbox_index"), ()).map(drop).doing(what)
}

/// Notes an event as handled by `receiver`, in the transaction that does so. `false` if it was noted before:
/// then there is nothing to do.
pub fn take(tx: &Transaction<'_>, receiver: &str, dedup_id: &str) -> Result<bool> {
    let taken =
        tx.prepare_cached(sql!("inbox/inbox_take")).and_then(|mut take| take.execute((receiver, dedup_id)));
    taken.map(|rows| rows == 1).doing("take an event from the inbox")
}

/// Forgets what was noted longer ago than `older_than`, at most so many at a time. Gives how many; call it
/// again while that is as many as asked for.
pub fn prune(conn: &Connection, older_than: Duration, rows_max: u32) -> Result<usize> {
    let seconds = i64::try_from(older_than.as_secs()).unwrap_or(i64::MAX);
    let pruned = conn
        .prepare_cached(sql!("inbox/inbox_prune"))
        .and_then(|mut prune| prune.execute((seconds, rows_max)));
    pruned.doing("prune the inbox")
}
