//! PostgreSQL's part in reading the log, as a small deterministic program.
//!
//! What can go wrong when a log with many writers is read lies between the statements of others: an xid is
//! taken long before a row is written, ids become visible in any order, a snapshot and a sequence are read at
//! two moments, a commit is visible and not yet on disk, and a crash issues xids again. A store in memory
//! that does everything at once knows none of this. [`SimPg`] does nothing else: each of its calls is one
//! moment of a server, and the caller decides what happens in between.
//!
//! ```text
//!  session:  begin ─ take xid ─ draw id ─ insert ─ commit written ─ (flushed) ─ commit shown
//!  reader:   snapshot ─ sequence ─ next xid ─ inserted ─ flushed ─ rows
//!  server:   flush · crash: all that is not flushed is gone, and its xids are issued again
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `sim_pg/transaction` | what does a session hold until it commits? |
//! | `sim_pg/wal` | what survives a crash, and what does the server look like then? |
//! | `sim_pg/settlement` | what do subscriptions store? |
//! | `sim_pg/leaves` | when is an old leaf emptied? |
//! | `sim_pg/world`, `producer`, `naive` | who takes part in a run, and who writes? |
//! | `sim_pg/reader` | how does a store read the log, with the core's ticks, windows and tail? |
//! | `sim_pg/subscriber` | how are events handed out, parked and settled? |
//! | `sim_pg/witness` | was anything lost, repeated, inverted or invented? |
//! | [`run()`], [`Plan`], [`Flaw`] | does it hold for a seed, and are known mistakes caught? |
//! | [`trace`] | does a real server do the same? |

mod flaw;
mod leaves;
mod naive;
mod plan;
mod producer;
mod reader;
mod run;
mod settlement;
mod subscriber;
#[cfg(test)]
mod tests;
pub mod trace;
mod transaction;
mod wal;
mod witness;
mod world;

use std::collections::BTreeMap;

use postrider_core::log::{Lsn, Snapshot, Xid};

pub use flaw::Flaw;
pub use plan::{Plan, SimStart};
pub use run::{Broken, Report, run};
pub use witness::Violation;

use settlement::Progress;
use transaction::{Phase, Transaction, Work};
use wal::{Record, Wal};

/// How many ids the sequence writes ahead, so that not every draw is logged.
const IDS_LOGGED_AHEAD: i64 = 32;

/// A session of the server: a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session(u64);

/// The connection is gone, and with it all that the session had not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// A row of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its transaction; never that of a savepoint.
    pub xid: Xid,
    /// From the sequence.
    pub id: i64,
    /// The key.
    pub key: u32,
    /// Which one of its key it is, counted from 1 by the holder of the key's lock.
    pub n: u64,
    /// Unlike ids and xids never issued twice, not even after a crash: how a witness tells rows apart.
    pub token: u64,
}

/// What becomes of an inner transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner {
    /// It ends well: its xid counts as running for as long as the outer one runs.
    Released,
    /// It is undone: its xid is completed at once.
    Undone,
}

/// See the head of this file.
#[derive(Debug)]
pub struct SimPg {
    start: Xid,
    next_xid: Xid,
    latest_completed: Xid,
    sequence: Sequence,
    wal: Wal,
    sessions: BTreeMap<Session, Option<Transaction>>,
    /// By the number of the session that prepared it.
    prepared: BTreeMap<Session, Transaction>,
    /// Committed and not removed, by id.
    rows: BTreeMap<i64, Row>,
    /// Copies of removed rows that deliveries still refer to.
    kept: BTreeMap<i64, Row>,
    /// Every row that was ever committed and has survived, removed or not, by token.
    committed: BTreeMap<u64, Row>,
    /// How many events each key has.
    counters: BTreeMap<u32, u64>,
    progress: BTreeMap<usize, Progress>,
    sessions_made: u64,
    tokens_made: u64,
}

#[derive(Debug, Default)]
struct Sequence {
    last: i64,
    logged: i64,
}

impl SimPg {
    /// An empty server whose first xid is `start`.
    pub fn new(start: Xid) -> Self {
        Self {
            start,
            next_xid: start,
            latest_completed: Xid(start.0 - 1),
            sequence: Sequence::default(),
            wal: Wal::default(),
            sessions: BTreeMap::new(),
            prepared: BTreeMap::new(),
            rows: BTreeMap::new(),
            kept: BTreeMap::new(),
            committed: BTreeMap::new(),
            counters: BTreeMap::new(),
            progress: BTreeMap::new(),
            sessions_made: 0,
            tokens_made: 0,
        }
    }

    /// A new connection.
    pub fn connect(&mut self) -> Session {
        self.sessions_made += 1;
        let session = Session(self.sessions_made);
        self.sessions.insert(session, None);
        session
    }

    /// The client has gone. A commit that was written is completed; anything else is undone.
    pub fn disconnect(&mut self, session: Session) {
        if let Some(Some(transaction)) = self.sessions.get(&session) {
            let done = match transaction.phase {
                Phase::Committing => self.commit_show(session),
                Phase::Open => self.rollback(session),
            };
            done.expect("the session is there");
        }
        self.sessions.remove(&session);
    }

    /// Whether the session is still there.
    pub fn alive(&self, session: Session) -> Result<(), Lost> {
        self.sessions.contains_key(&session).then_some(()).ok_or(Lost)
    }

    /// What is visible now: `xmax` is behind the latest transaction that ended, so that there may be xids
    /// between it and the next one. Transactions of other databases are among the running ones; xids of
    /// savepoints never are.
    pub fn snapshot(&self) -> Snapshot {
        let xmax = Xid(self.latest_completed.0 + 1);
        let running: Vec<Xid> = self.running().filter(|xid| *xid < xmax).collect();
        let xmin = running.iter().copied().min().unwrap_or(xmax);
        Snapshot::new(xmin, xmax, running).expect("running ones lie between xmin and xmax")
    }

    /// The last id that the sequence issued.
    pub fn seq(&self) -> i64 {
        self.sequence.last
    }

    /// The next xid. A server tells its low half only: see [`Xid::widen`].
    pub fn next_xid(&self) -> Xid {
        self.next_xid
    }

    /// How far the write-ahead log has been written.
    pub fn inserted(&self) -> Lsn {
        self.wal.inserted()
    }

    /// How far it is on disk.
    pub fn flushed(&self) -> Lsn {
        self.wal.flushed()
    }

    /// Brings the write-ahead log to disk up to here.
    pub fn flush(&mut self, to: Lsn) {
        self.wal.flush(to);
    }

    /// Rows that a statement with this snapshot sees, with ids above `after`, in their order.
    pub fn rows(&self, seen_by: &Snapshot, after: i64) -> impl Iterator<Item = &Row> {
        self.rows.range(after + 1..).map(|(_, row)| row).filter(|row| seen_by.sees(row.xid))
    }

    /// A committed row by its id, also if only its copy is left.
    pub fn row(&self, id: i64) -> Option<&Row> {
        self.rows.get(&id).or_else(|| self.kept.get(&id))
    }

    /// Every row that was committed and has survived all crashes so far.
    pub fn committed(&self) -> impl Iterator<Item = &Row> {
        self.committed.values()
    }

    /// The row with this token, if it is committed, visible to all, and has survived.
    pub fn committed_as(&self, token: u64) -> Option<&Row> {
        self.committed.get(&token)
    }

    fn running(&self) -> impl Iterator<Item = Xid> {
        let open = self.sessions.values().flatten().chain(self.prepared.values());
        open.filter_map(|transaction| transaction.xid)
    }

    fn issue_xid(&mut self) -> Xid {
        let xid = self.next_xid;
        self.next_xid = Xid(xid.0 + 1);
        xid
    }

    /// Draws an id. Never undone, whatever becomes of the transaction.
    fn issue_id(&mut self, by: Xid) -> i64 {
        self.sequence.last += 1;
        if self.sequence.last > self.sequence.logged {
            self.sequence.logged = self.sequence.last + IDS_LOGGED_AHEAD;
            self.wal.push(by, Record::Sequence { logged: self.sequence.logged });
        }
        self.sequence.last
    }

    /// Makes a transaction's work visible to all.
    fn show(&mut self, work: &Work) {
        for row in &work.rows {
            self.rows.insert(row.id, *row);
            self.committed.insert(row.token, *row);
            let counter = self.counters.entry(row.key).or_default();
            *counter = row.n.max(*counter);
        }
        for settlement in &work.settlements {
            settlement.apply(&mut self.progress);
        }
    }
}
