//! The write-ahead log: what survives.

use postrider_core::log::{Lsn, Xid};

use super::transaction::{Transaction, Work};
use super::{Session, SimPg};

/// What one entry says.
#[derive(Debug, Clone)]
pub(super) enum Record {
    /// Something was written; it counts if its transaction's commit follows.
    Written,
    /// The sequence may have issued ids up to here.
    Sequence {
        logged: i64,
    },
    Commit(Work),
    Abort,
    Prepare(Session, Transaction),
    /// A prepared transaction was committed, or not.
    Resolve(Session, bool),
    /// The rows of a leaf are gone; of those in the second list a copy is kept.
    Truncate(Vec<i64>, Vec<i64>),
}

/// Entries in order. The place behind the n-th is n.
#[derive(Debug, Default)]
pub(super) struct Wal {
    entries: Vec<(Xid, Record)>,
    flushed: usize,
}

impl Wal {
    pub(super) fn push(&mut self, by: Xid, record: Record) {
        self.entries.push((by, record));
    }

    pub(super) fn inserted(&self) -> Lsn {
        Lsn(self.entries.len() as u64)
    }

    pub(super) fn flushed(&self) -> Lsn {
        Lsn(self.flushed as u64)
    }

    pub(super) fn flush(&mut self, to: Lsn) {
        self.flushed = self.flushed.max((to.0 as usize).min(self.entries.len()));
    }
}

impl SimPg {
    /// The server dies and comes back as its log on disk says. Connections are gone; transactions that are
    /// not committed there never were, and every xid that the log on disk does not mention is issued again.
    pub fn crash(&mut self) {
        let mut wal = std::mem::take(&mut self.wal);
        wal.entries.truncate(wal.flushed);
        let before = std::mem::replace(self, Self::new(self.start));
        (self.sessions_made, self.tokens_made) = (before.sessions_made, before.tokens_made);
        for (by, record) in &wal.entries {
            self.next_xid = self.next_xid.max(Xid(by.0 + 1));
            self.redo(record);
        }
        self.latest_completed = Xid(self.next_xid.0 - 1);
        self.wal = wal;
    }

    fn redo(&mut self, record: &Record) {
        match record {
            Record::Written | Record::Abort => {}
            Record::Sequence { logged } => {
                (self.sequence.last, self.sequence.logged) = (*logged, *logged);
            }
            Record::Commit(work) => self.show(work),
            Record::Prepare(session, transaction) => {
                self.prepared.insert(*session, transaction.clone());
            }
            Record::Resolve(session, commits) => {
                let transaction = self.prepared.remove(session).expect("it was prepared before");
                if *commits {
                    self.show(&transaction.work);
                }
            }
            Record::Truncate(gone, kept) => self.remove(gone, kept),
        }
    }
}
