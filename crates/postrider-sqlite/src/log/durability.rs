//! An event may be handed out only when it cannot vanish any more.
//!
//! A producer that commits with `synchronous = NORMAL` has its rows in the WAL file, where every
//! connection sees them, but perhaps not on disk: a power cut may take them back. An event that has
//! been published by then is a phantom, and another event will get its id. The producer's setting cannot be
//! seen from here, so before a chunk is handed out the WAL file is flushed.
//!
//! *Why that is enough.* What a snapshot shows is in one of two places. Either its frames are in the WAL
//! file, written before the snapshot was taken, so that a flush after it covers them. Or they have been
//! copied into the database file, and the WAL was reset: but a connection in `NORMAL` or `FULL` flushes
//! the WAL before it copies, and the database file before it resets. (Connections in `OFF` do neither. They
//! are outside this promise, and outside every other promise of SQLite about power cuts.) The header of a
//! fresh WAL is flushed together with its directory by the connection that writes it, under the same
//! condition.
//!
//! *Why it is cheap.* The flush takes no lock and no commit of ours, which would make producers wait. The
//! greatest id in the snapshot is remembered: ids become visible in their order, so all events up to it
//! are covered, and one flush serves a whole backlog.
//!
//! *Why another file handle is harmless.* Closing a file drops the locks that its process holds on it.
//! SQLite keeps its locks on the database file and on the shared memory file, never on the WAL.
//!
//! *When a flush fails,* Linux may mark the pages as clean although they are not on disk, so that the next
//! flush succeeds and proves nothing. From then on a flush does not count until everything has been copied
//! into the database file, from memory, and the WAL has been reset. A WAL that is gone is such a failure
//! too: SQLite removes it only when the last connection closes, so another program did.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use postrider_core::{Error, ErrorKind, EventId, Result};
use rusqlite::Connection;

use crate::error::Doing;

/// What is known to be on disk.
pub(crate) struct WalFlush {
    wal: PathBuf,
    /// Every event up to this one is on disk.
    durable_to: EventId,
    /// A flush has failed since the WAL was last reset.
    doubtful: bool,
}

impl WalFlush {
    pub(crate) fn new(wal: PathBuf) -> Self {
        Self { wal, durable_to: EventId(0), doubtful: false }
    }

    /// Whether all events up to this one are on disk.
    pub(crate) fn covers(&self, id: EventId) -> bool {
        id <= self.durable_to
    }

    /// Makes all events up to `newest`, the greatest id of a snapshot that has ended, durable.
    pub(crate) fn flush(&mut self, conn: &Connection, newest: EventId) -> Result<()> {
        if self.doubtful {
            reset(conn)?;
            self.doubtful = false;
        } else if let Err(error) = sync(&self.wal) {
            self.doubtful = true;
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "cannot flush `{}`, so events that could still vanish are kept back: check the disk, and that \
                     no program removes this file",
                    self.wal.display()
                ),
            )
            .with_source(error));
        }
        self.durable_to = self.durable_to.max(newest);
        Ok(())
    }
}

fn sync(wal: &Path) -> io::Result<()> {
    File::open(wal)?.sync_data()
}

/// Copies the whole WAL into the database file, flushes that, and empties the WAL.
fn reset(conn: &Connection) -> Result<()> {
    let busy: bool = conn
        .query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0))
        .doing("move the WAL into the database after a failed flush")?;
    if busy {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "a flush of the WAL has failed, and other connections keep it from being moved into the database: \
             no event is handed out until they end their transactions",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_flush_none_counts_until_the_wal_is_reset() {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join("a.db")).unwrap();
        conn.busy_timeout(std::time::Duration::ZERO).unwrap();
        conn.execute_batch("pragma journal_mode = wal; create table t (x); insert into t values (1)")
            .unwrap();
        let mut flush = WalFlush::new(dir.path().join("gone.db-wal"));
        assert_eq!(flush.flush(&conn, EventId(7)).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(!flush.covers(EventId(1)));

        flush.wal = dir.path().join("a.db-wal");
        let reader = Connection::open(dir.path().join("a.db")).unwrap();
        reader.execute_batch("begin; select * from t").unwrap();
        conn.execute("insert into t values (2)", []).unwrap();
        assert_eq!(flush.flush(&conn, EventId(7)).unwrap_err().kind(), ErrorKind::Unavailable);

        reader.execute_batch("rollback").unwrap();
        flush.flush(&conn, EventId(7)).unwrap();
        assert!(flush.covers(EventId(7)) && !flush.covers(EventId(8)));
        assert_eq!(std::fs::metadata(&flush.wal).unwrap().len(), 0);
    }
}
