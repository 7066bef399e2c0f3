//! The threads that touch the database: one writes and one reads, each with its own connection.
//!
//! SQLite's calls block, and a connection belongs to one thread at a time, so callers send closures and
//! wait for the answer. One writer is enough, because SQLite admits no second one, and with one writer
//! Postrider never waits for its own locks. The threads end when the store is dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use postrider_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::error::Doing;

/// Calls that may wait for a connection; the next one waits outside.
const QUEUE_MAX: usize = 64;

/// A thread that owns a connection and whatever belongs to it.
pub(crate) struct ConnectionThread<S> {
    calls: mpsc::Sender<Call<S>>,
    /// Resolves when the thread has closed its connection and ended.
    ended: oneshot::Receiver<()>,
}

type Call<S> = Box<dyn FnOnce(&mut S) + Send>;

impl<S: 'static> ConnectionThread<S> {
    /// Starts the thread; `open` runs on it. Returns what `open` found out besides the connection.
    pub(crate) async fn start<T: Send + 'static>(
        name: &str,
        open: impl FnOnce() -> Result<(S, T)> + Send + 'static,
    ) -> Result<(Self, T)> {
        let (calls, mut inbox) = mpsc::channel::<Call<S>>(QUEUE_MAX);
        let (reply, opened) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            let mut state = match guarded(open) {
                Ok((state, found)) => {
                    drop(reply.send(Ok(found)));
                    state
                }
                Err(error) => return drop(reply.send(Err(error))),
            };
            while let Some(call) = inbox.blocking_recv() {
                call(&mut state);
            }
            drop(state);
            drop(end);
        };
        thread::Builder::new().name(format!("postrider-{name}")).spawn(run).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot start a thread for the database connection")
                .with_source(error)
        })?;
        let found = opened.await.map_err(|_| gone())??;
        Ok((Self { calls, ended }, found))
    }

    /// Runs `call` on the thread and waits for its answer. A call whose caller has gone still runs.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut S) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let call: Call<S> = Box::new(move |state| drop(reply.send(guarded(|| call(state)))));
        self.calls.send(call).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Finishes what was called and closes the connection.
    pub(crate) async fn close(self) {
        drop(self.calls);
        // Nothing is ever sent: the thread drops its end behind its connection.
        let _ = self.ended.await;
    }
}

/// Runs `call`; a panic in it is an error of this call and not the end of the thread. Transactions roll
/// back as they are dropped, so the connection is as good as before.
fn guarded<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(Error::new(
            ErrorKind::Internal,
            format!("a call of the store panicked: {}; this is a bug", panic_text(panic.as_ref())),
        ))
    })
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

fn gone() -> Error {
    Error::new(ErrorKind::Internal, "the store's connection thread has ended")
}

/// Whether a commit is on disk when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// Yes: events, handlers' writes and what people change.
    Flushed,
    /// Not necessarily: losing it costs duplicates, never an event.
    Plain,
}

/// What the writing thread owns.
pub(crate) struct Writer {
    conn: Connection,
    commit: Commit,
}

impl Writer {
    /// Takes a connection that is set to flush its commits.
    pub(crate) fn new(conn: Connection) -> Self {
        Self { conn, commit: Commit::Flushed }
    }

    /// Runs `work` in one transaction that holds the writer lock from its beginning: one that began by
    /// reading would fail without waiting if another connection wrote in between.
    pub(crate) fn transaction<T>(
        &mut self,
        commit: Commit,
        work: impl FnOnce(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        self.set_commit(commit)?;
        let tx = self
            .conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .doing("begin a transaction")?;
        let value = work(&tx)?;
        tx.commit().doing("commit")?;
        Ok(value)
    }

    fn set_commit(&mut self, commit: Commit) -> Result<()> {
        if self.commit != commit {
            let level = match commit {
                Commit::Flushed => "full",
                Commit::Plain => "normal",
            };
            self.conn.pragma_update(None, "synchronous", level).doing("set when commits are flushed")?;
            self.commit = commit;
        }
        Ok(())
    }
}

/// Runs `work` in one short read transaction. It ends here in any case: a snapshot that stays open keeps
/// the WAL from being reset, so that it grows without end.
pub(crate) fn read<T>(conn: &Connection, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
    let tx = conn.unchecked_transaction().doing("begin to read")?;
    let value = work(&tx)?;
    tx.finish().doing("end reading")?;
    Ok(value)
}
