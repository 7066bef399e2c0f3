//! What a session does, one moment a call.

use std::collections::BTreeSet;

use postrider_core::log::{Lsn, Xid};

use super::settlement::Settlement;
use super::wal::Record;
use super::{Inner, Lost, Row, Session, SimPg};

/// A transaction that has not ended.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    pub(super) xid: Option<Xid>,
    /// The highest xid that it has used, savepoints included.
    highest: Xid,
    /// Its open savepoints, outermost first.
    savepoints: Vec<Savepoint>,
    /// Keys whose locks it holds until it has ended.
    pub(super) locks: BTreeSet<u32>,
    pub(super) work: Work,
    pub(super) phase: Phase,
}

/// A savepoint that is open.
#[derive(Debug, Clone, Copy)]
struct Savepoint {
    /// How many rows there were when it was set.
    rows: usize,
    /// Assigned with the first row that is written under it.
    xid: Option<Xid>,
}

/// How far a transaction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Its commit is in the write-ahead log and not visible yet.
    Committing,
}

/// What a commit makes visible.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    pub(super) rows: Vec<Row>,
    pub(super) settlements: Vec<Settlement>,
}

impl SimPg {
    /// Begins a transaction; it has no xid yet.
    pub fn begin(&mut self, session: Session) -> Result<(), Lost> {
        let slot = self.sessions.get_mut(&session).ok_or(Lost)?;
        assert!(slot.is_none(), "a transaction is open");
        *slot = Some(Transaction {
            xid: None,
            highest: Xid(0),
            savepoints: Vec::new(),
            locks: BTreeSet::new(),
            work: Work::default(),
            phase: Phase::Open,
        });
        Ok(())
    }

    /// The transaction's xid, which it gets now if it has none.
    pub fn take_xid(&mut self, session: Session) -> Result<Xid, Lost> {
        if let Some(xid) = self.open(session)?.xid {
            return Ok(xid);
        }
        let xid = self.issue_xid();
        let transaction = self.open(session)?;
        (transaction.xid, transaction.highest) = (Some(xid), xid);
        Ok(xid)
    }

    /// Runs through `count` inner transactions that write nothing here and have xids of their own, as loops
    /// with an exception handler do.
    pub fn nest(&mut self, session: Session, count: u32, inner: Inner) -> Result<(), Lost> {
        self.take_xid(session)?;
        for _ in 0..count {
            let xid = self.issue_xid();
            self.open(session)?.highest = xid;
            if inner == Inner::Undone {
                self.wal.push(xid, Record::Abort);
                self.latest_completed = self.latest_completed.max(xid);
            }
        }
        Ok(())
    }

    /// Sets a savepoint.
    pub fn savepoint(&mut self, session: Session) -> Result<(), Lost> {
        let transaction = self.open(session)?;
        let rows = transaction.work.rows.len();
        transaction.savepoints.push(Savepoint { rows, xid: None });
        Ok(())
    }

    /// Undoes what was written since the last savepoint and forgets it. Its xid, if it wrote, is completed.
    pub fn rollback_to(&mut self, session: Session) -> Result<(), Lost> {
        let transaction = self.open(session)?;
        let savepoint = transaction.savepoints.pop().expect("a savepoint is set");
        transaction.work.rows.truncate(savepoint.rows);
        if let Some(xid) = savepoint.xid {
            self.wal.push(xid, Record::Abort);
            self.latest_completed = self.latest_completed.max(xid);
        }
        Ok(())
    }

    /// Forgets the last savepoint and keeps what was written since.
    pub fn release(&mut self, session: Session) -> Result<(), Lost> {
        self.open(session)?.savepoints.pop();
        Ok(())
    }

    /// Takes the lock on a key unless another transaction holds it.
    pub fn lock(&mut self, session: Session, key: u32) -> Result<bool, Lost> {
        self.open(session)?;
        let others = self.sessions.iter().filter(|(other, _)| **other != session);
        let mut open = others.filter_map(|(_, open)| open.as_ref()).chain(self.prepared.values());
        let free = !open.any(|other| other.locks.contains(&key));
        if free {
            self.open(session)?.locks.insert(key);
        }
        Ok(free)
    }

    /// Draws an id from the sequence. If the draw has to be logged, the transaction has an xid from here on.
    pub fn draw_id(&mut self, session: Session) -> Result<i64, Lost> {
        let logs = self.sequence.last >= self.sequence.logged;
        let by = if logs { self.take_xid(session)? } else { Xid(0) };
        self.alive(session)?;
        Ok(self.issue_id(by))
    }

    /// Inserts a row under an id that was drawn before. Under the key's lock `n` counts the key's events.
    pub fn insert(&mut self, session: Session, id: i64, key: u32) -> Result<Row, Lost> {
        let xid = self.take_xid(session)?;
        self.take_inner_xids(session)?;
        self.tokens_made += 1;
        let token = self.tokens_made;
        let before = self.counters.get(&key).copied().unwrap_or(0);
        let transaction = self.open(session)?;
        let own = transaction.work.rows.iter().filter(|row| row.key == key).count() as u64;
        let row = Row { xid, id, key, n: before + own + 1, token };
        transaction.work.rows.push(row);
        let highest = transaction.highest;
        self.wal.push(highest, Record::Written);
        Ok(row)
    }

    /// Writes what a subscription has done; takes an xid if there is none.
    pub(super) fn settle(&mut self, session: Session, settlement: Settlement) -> Result<(), Lost> {
        self.take_xid(session)?;
        let transaction = self.open(session)?;
        transaction.work.settlements.push(settlement);
        let highest = transaction.highest;
        self.wal.push(highest, Record::Written);
        Ok(())
    }

    /// The first moment of a commit: it is in the write-ahead log, up to the returned place. A caller that
    /// wants it durable flushes before it is shown.
    pub fn commit_write(&mut self, session: Session) -> Result<Lsn, Lost> {
        let transaction = self.open(session)?;
        transaction.phase = Phase::Committing;
        let (xid, highest, work) = (transaction.xid, transaction.highest, transaction.work.clone());
        if xid.is_some() {
            self.wal.push(highest, Record::Commit(work));
        }
        Ok(self.inserted())
    }

    /// The second moment: snapshots see it from here on, and its locks are free.
    pub fn commit_show(&mut self, session: Session) -> Result<(), Lost> {
        let transaction = self.sessions.get_mut(&session).ok_or(Lost)?.take();
        let transaction = transaction.expect("a transaction is open");
        assert_eq!(transaction.phase, Phase::Committing, "a commit is written before it is shown");
        self.show(&transaction.work);
        self.complete(&transaction);
        Ok(())
    }

    /// Both moments at once, durable.
    pub fn commit(&mut self, session: Session) -> Result<(), Lost> {
        let written = self.commit_write(session)?;
        self.flush(written);
        self.commit_show(session)
    }

    /// Undoes everything but the draws from the sequence.
    pub fn rollback(&mut self, session: Session) -> Result<(), Lost> {
        let transaction = self.sessions.get_mut(&session).ok_or(Lost)?.take();
        let transaction = transaction.expect("a transaction is open");
        if transaction.xid.is_some() {
            self.wal.push(transaction.highest, Record::Abort);
        }
        self.complete(&transaction);
        Ok(())
    }

    /// Prepares the transaction, which from here on belongs to no session and survives crashes.
    pub fn prepare(&mut self, session: Session) -> Result<(), Lost> {
        self.take_xid(session)?;
        let transaction = self.sessions.get_mut(&session).ok_or(Lost)?.take();
        let transaction = transaction.expect("a transaction is open");
        assert!(!self.prepared.contains_key(&session), "a session prepares one transaction at a time");
        self.wal.push(transaction.highest, Record::Prepare(session, transaction.clone()));
        self.wal.flush(self.wal.inserted());
        self.prepared.insert(session, transaction);
        Ok(())
    }

    /// Who has prepared a transaction that is not resolved.
    pub fn prepared(&self) -> Vec<Session> {
        self.prepared.keys().copied().collect()
    }

    /// Commits or undoes a prepared transaction, durably.
    pub fn resolve(&mut self, prepared_by: Session, commits: bool) {
        let Some(transaction) = self.prepared.remove(&prepared_by) else { return };
        self.wal.push(transaction.highest, Record::Resolve(prepared_by, commits));
        self.wal.flush(self.wal.inserted());
        if commits {
            self.show(&transaction.work);
        }
        self.complete(&transaction);
    }

    /// Rows that transactions have written which have not ended.
    pub(super) fn rows_in_flight(&self) -> impl Iterator<Item = &Row> {
        let open = self.sessions.values().flatten().chain(self.prepared.values());
        open.flat_map(|transaction| &transaction.work.rows)
    }

    /// Each open savepoint gets an xid with the first row that is written under it.
    fn take_inner_xids(&mut self, session: Session) -> Result<(), Lost> {
        for index in 0..self.open(session)?.savepoints.len() {
            if self.open(session)?.savepoints[index].xid.is_none() {
                let xid = self.issue_xid();
                let transaction = self.open(session)?;
                (transaction.savepoints[index].xid, transaction.highest) = (Some(xid), xid);
            }
        }
        Ok(())
    }

    fn complete(&mut self, transaction: &Transaction) {
        self.latest_completed = self.latest_completed.max(transaction.highest);
    }

    fn open(&mut self, session: Session) -> Result<&mut Transaction, Lost> {
        let transaction = self.sessions.get_mut(&session).ok_or(Lost)?.as_mut();
        let transaction = transaction.expect("a transaction is open");
        assert_eq!(transaction.phase, Phase::Open, "nothing is written after the commit");
        Ok(transaction)
    }
}
