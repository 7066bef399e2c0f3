//! Does a real server do what [`SimPg`] does?
//!
//! A [`Trace`] is a list of steps of a few sessions and of a reader, as a plain value: none waits for
//! another, so that they can be taken one after the other on any server. After each [`Step::Look`] there is
//! an [`Answer`] that names no xid and no id, and so is the same on every server that does the same.
//!
//! To replay on PostgreSQL, implement [`Replay`]: one connection per session and one for the reader, and for
//! each [`Action`] the statement that it is documented with. Then compare:
//!
//! ```
//! # use postrider_testkit::sim_pg::trace::Trace;
//! let trace = Trace::random(7);
//! let expected = trace.replay_on_sim();
//! // let found = trace.replay(&mut server).await?;
//! # let found = trace.replay_on_sim();
//! assert_eq!(found, expected, "seed 7");
//! assert!(found.iter().all(|answer| answer.bound_holds && answer.lowest_holds));
//! ```

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use postrider_core::log::{Probe, Tick, Window, Xid};

use super::{Lost, Session, SimPg};

/// Steps of a trace, roughly.
const STEPS: usize = 120;
/// Savepoints within each other at the most.
const SAVEPOINTS_MAX: usize = 3;

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// How many sessions take part, besides the reader.
    pub sessions: usize,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A session does something.
    Act(usize, Action),
    /// The reader looks at the server.
    Look,
}

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `begin`
    Begin,
    /// `select pg_current_xact_id()`
    TakeXid,
    /// `savepoint s`; they may lie within each other
    Savepoint,
    /// `rollback to s; release s`
    RollbackTo,
    /// `release s`
    Release,
    /// `insert into event … returning xid, id`
    Insert,
    /// `commit`
    Commit,
    /// `rollback`
    Rollback,
    /// `prepare transaction '…'`, under a name of the session's; it has one at a time
    Prepare,
    /// `commit prepared '…'`
    CommitPrepared,
    /// `rollback prepared '…'`
    RollbackPrepared,
}

/// What a session learned by an action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acted {
    /// By [`Action::TakeXid`] and [`Action::Insert`].
    pub xid: Option<Xid>,
    /// By [`Action::Insert`].
    pub id: Option<i64>,
}

/// What the reader learned in one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The probe.
    pub probe: Probe,
    /// The rows that the statement saw.
    pub ids: BTreeSet<i64>,
}

/// A server on which a trace can be replayed. It begins without rows.
pub trait Replay {
    /// Why it could not.
    type Error;

    /// A session does something.
    fn act(&mut self, session: usize, action: Action) -> impl Future<Output = Result<Acted, Self::Error>>;

    /// The reader looks: a probe and, in the same statement, all rows that it sees.
    fn look(&mut self) -> impl Future<Output = Result<Look, Self::Error>>;
}

/// What a look shows, without numbers that differ from server to server. Rows are those that were inserted
/// before it, in that order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether each row was there.
    pub visible: Vec<bool>,
    /// Whether the snapshot says that it sees each row's transaction, committed or not.
    pub seen: Vec<bool>,
    /// Transactions of our sessions that have an xid and that the snapshot does not see.
    pub unseen: usize,
    /// Whether every row of an xid at or above the look's next xid, also of those that came later, has an id
    /// above the look's sequence value, and each that is visible one at or below it.
    pub bound_holds: bool,
    /// Whether every row that became visible since the look before lies where its tick said that it would.
    pub lowest_holds: bool,
}

impl Trace {
    /// The trace of a seed.
    pub fn random(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut drafts: Vec<Draft> = (0..rng.usize(2..7)).map(|_| Draft::default()).collect();
        let mut steps = Vec::with_capacity(STEPS);
        while steps.len() < STEPS {
            if rng.u32(0..6) == 0 {
                steps.push(Step::Look);
                continue;
            }
            let session = rng.usize(0..drafts.len());
            if let Some(action) = drafts[session].next(&mut rng) {
                steps.push(Step::Act(session, action));
            }
        }
        steps.push(Step::Look);
        Self { sessions: drafts.len(), steps }
    }

    /// Replays it, and tells what each look showed.
    pub async fn replay<R: Replay>(&self, server: &mut R) -> Result<Vec<Answer>, R::Error> {
        let mut told = Told::default();
        for step in &self.steps {
            match *step {
                Step::Act(session, action) => {
                    let acted = server.act(session, action).await?;
                    told.act(acted);
                }
                Step::Look => told.look(server.look().await?),
            }
        }
        Ok(told.answers())
    }

    /// Replays it on a [`SimPg`].
    pub fn replay_on_sim(&self) -> Vec<Answer> {
        let mut server = Sim::new(self.sessions);
        let replay = pin!(self.replay(&mut server));
        match replay.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answers) => answers.expect("nobody crashes it"),
            Poll::Pending => unreachable!("each of its steps is ready at once"),
        }
    }
}

/// A session while a trace is made up.
#[derive(Debug, Default)]
struct Draft {
    /// How many savepoints are set, in an open transaction.
    open: Option<usize>,
    has_prepared: bool,
}

impl Draft {
    /// Something that the session can do now, if chance finds it.
    fn next(&mut self, rng: &mut fastrand::Rng) -> Option<Action> {
        let Some(savepoints) = self.open else {
            if self.has_prepared && rng.bool() {
                self.has_prepared = false;
                return Some(if rng.bool() { Action::CommitPrepared } else { Action::RollbackPrepared });
            }
            self.open = Some(0);
            return Some(Action::Begin);
        };
        let action = match rng.u32(0..12) {
            0 => Action::TakeXid,
            1 | 2 if savepoints < SAVEPOINTS_MAX => Action::Savepoint,
            3 if savepoints > 0 => Action::RollbackTo,
            4 if savepoints > 0 => Action::Release,
            5..=8 => Action::Insert,
            9 => Action::Commit,
            10 => Action::Rollback,
            11 if !self.has_prepared => Action::Prepare,
            _ => return None,
        };
        self.open = match action {
            Action::Savepoint => Some(savepoints + 1),
            Action::RollbackTo | Action::Release => Some(savepoints - 1),
            Action::Commit | Action::Rollback | Action::Prepare => None,
            _ => Some(savepoints),
        };
        self.has_prepared |= action == Action::Prepare;
        Some(action)
    }
}

/// What a replay has shown so far.
#[derive(Debug, Default)]
struct Told {
    rows: Vec<(Xid, i64)>,
    xids: BTreeSet<Xid>,
    /// Each with the number of rows that had been inserted.
    looks: Vec<(Look, usize)>,
}

impl Told {
    fn act(&mut self, acted: Acted) {
        self.xids.extend(acted.xid);
        if let Acted { xid: Some(xid), id: Some(id) } = acted {
            self.rows.push((xid, id));
        }
    }

    fn look(&mut self, look: Look) {
        self.looks.push((look, self.rows.len()));
    }

    fn answers(&self) -> Vec<Answer> {
        let mut before = Arc::new(Tick::start());
        let mut was_visible = BTreeSet::new();
        let mut answers = Vec::with_capacity(self.looks.len());
        for (look, rows) in &self.looks {
            let probe = &look.probe;
            let window = Window { from: Arc::clone(&before), to: Arc::new(before.next(probe)) };
            let mut new = look.ids.difference(&was_visible).peekable();
            let lowest_holds = (new.peek().is_none() || before.is_outdated_by(probe))
                && new.all(|id| *id > window.lowest())
                && was_visible.is_subset(&look.ids);
            answers.push(Answer { lowest_holds, ..self.answer(look, *rows) });
            (before, was_visible) = (window.to, look.ids.clone());
        }
        answers
    }

    fn answer(&self, look: &Look, rows: usize) -> Answer {
        let probe = &look.probe;
        let known = &self.rows[..rows];
        let first_later = self.rows.iter().all(|(xid, id)| *xid < probe.next_xid || *id > probe.seq);
        let running = |xid: &&Xid| **xid < probe.next_xid && !probe.snapshot.sees(**xid);
        Answer {
            visible: known.iter().map(|(_, id)| look.ids.contains(id)).collect(),
            seen: known.iter().map(|(xid, _)| probe.snapshot.sees(*xid)).collect(),
            unseen: self.xids.iter().filter(running).count(),
            bound_holds: first_later && look.ids.iter().all(|id| *id <= probe.seq),
            lowest_holds: true,
        }
    }
}

/// The simulated server as one on which traces are replayed.
struct Sim {
    pg: SimPg,
    sessions: Vec<Session>,
}

impl Sim {
    fn new(sessions: usize) -> Self {
        let mut pg = SimPg::new(Xid((1 << 32) - 20));
        let sessions = (0..sessions).map(|_| pg.connect()).collect();
        Self { pg, sessions }
    }

    fn take(&mut self, session: Session, action: Action) -> Result<Acted, Lost> {
        let pg = &mut self.pg;
        match action {
            Action::Begin => pg.begin(session)?,
            Action::Savepoint => pg.savepoint(session)?,
            Action::RollbackTo => pg.rollback_to(session)?,
            Action::Release => pg.release(session)?,
            Action::Commit => pg.commit(session)?,
            Action::Rollback => pg.rollback(session)?,
            Action::Prepare => pg.prepare(session)?,
            Action::CommitPrepared => pg.resolve(session, true),
            Action::RollbackPrepared => pg.resolve(session, false),
            Action::TakeXid => return Ok(Acted { xid: Some(pg.take_xid(session)?), id: None }),
            Action::Insert => {
                pg.take_xid(session)?;
                let id = pg.draw_id(session)?;
                let row = pg.insert(session, id, 0)?;
                return Ok(Acted { xid: Some(row.xid), id: Some(row.id) });
            }
        }
        Ok(Acted::default())
    }
}

impl Replay for Sim {
    type Error = Lost;

    async fn act(&mut self, session: usize, action: Action) -> Result<Acted, Lost> {
        self.take(self.sessions[session], action)
    }

    async fn look(&mut self) -> Result<Look, Lost> {
        let pg = &self.pg;
        let snapshot = pg.snapshot();
        let next_xid = Xid::widen(pg.next_xid().0 as u32, snapshot.xmax());
        let ids = pg.rows(&snapshot, 0).map(|row| row.id).collect();
        let probe =
            Probe { snapshot, seq: pg.seq(), next_xid, inserted: pg.inserted(), flushed: pg.flushed() };
        Ok(Look { probe, ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_shows_all_that_can_happen_and_every_fact_holds() {
        let (mut actions, mut stragglers, mut hidden) = (BTreeSet::new(), 0, 0);
        for seed in 0..500 {
            let trace = Trace::random(seed);
            assert_eq!(trace, Trace::random(seed), "a seed is a trace");
            actions.extend(trace.steps.iter().map(|step| match step {
                Step::Act(_, action) => format!("{action:?}"),
                Step::Look => String::new(),
            }));
            let answers = trace.replay_on_sim();
            for answer in &answers {
                assert!(answer.bound_holds && answer.lowest_holds, "seed {seed}: {answer:?}");
                let seen_if_visible =
                    answer.visible.iter().zip(&answer.seen).all(|(visible, seen)| !visible || *seen);
                assert!(seen_if_visible, "seed {seed}: {answer:?}");
                // A row that is hidden although a later one is visible.
                stragglers += usize::from(!answer.visible.is_sorted_by(|a, b| a >= b));
                hidden += answer.visible.iter().filter(|visible| !**visible).count();
            }
        }
        assert_eq!(actions.len(), 12, "{actions:?}");
        assert!(stragglers > 100 && hidden > 1000, "{stragglers} {hidden}");
    }

    #[test]
    fn a_server_that_does_otherwise_is_told_apart() {
        let trace = Trace::random(1);
        let honest = trace.replay_on_sim();
        let differs = |(at, step): (usize, &Step)| {
            let Step::Act(session, Action::Commit) = *step else { return false };
            let mut other = trace.clone();
            other.steps[at] = Step::Act(session, Action::Rollback);
            other.replay_on_sim() != honest
        };
        assert!(trace.steps.iter().enumerate().any(differs), "a commit that writes nothing is like none");
    }
}
