//! Transactional handlers: their writes and the settle of the event commit together, or neither does.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use postrider_core::settle::{Hold, Settle, Settled};
use postrider_core::{Delivery, Failure, Result, Timestamp};
use rusqlite::Transaction;

use crate::file::connection::{Commit, Writer, panic_text};
use crate::ownership::fence::fence;
use crate::ownership::member::beat;
use crate::settle::settle_apply;

/// What a transactional handler does inside the transaction of the settle. It must leave the transaction
/// open, and should be quick: it holds the only writer lock that the database has.
pub type Work = Box<dyn FnOnce(&Transaction<'_>) -> Result<(), Failure> + Send>;

/// Makes a transactional handler out of a function of the transaction and the event.
///
/// ```
/// use postrider_core::Delivery;
/// use postrider_sqlite::{in_transaction, rusqlite};
///
/// let handler = in_transaction(|tx: &rusqlite::Transaction<'_>, event: &Delivery| {
///     tx.execute("insert into invoice (order_id) values (?1)", [event.key.as_ref().map(|key| key.as_str())])?;
///     Ok::<(), rusqlite::Error>(())
/// });
/// # let _: Box<dyn Fn(Delivery) -> postrider_sqlite::Work> = Box::new(handler);
/// ```
pub fn in_transaction<F, E>(handler: F) -> impl Fn(Delivery) -> Work + Clone + Send + Sync + 'static
where
    F: Fn(&Transaction<'_>, &Delivery) -> Result<(), E> + Send + Sync + 'static,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let handler = Arc::new(handler);
    move |delivery| {
        let handler = Arc::clone(&handler);
        Box::new(move |tx| {
            handler(tx, &delivery).map_err(|error| {
                let error: Box<dyn StdError + Send + Sync> = error.into();
                Failure::from_error(error.as_ref())
            })
        })
    }
}

/// What a member needs to settle with work.
pub(crate) struct SettleWith {
    pub(crate) hold: Hold,
    pub(crate) settle: Arc<Settle>,
    pub(crate) work: Work,
    pub(crate) now: Timestamp,
    pub(crate) beat_at: i64,
}

/// The work failed; everything is rolled back by returning this as the transaction's error.
enum Undone {
    Failed(Failure),
    Error(postrider_core::Error),
}

impl SettleWith {
    /// Fence, work, settle, in that order. No member can take the shards over in between, since that takes the
    /// writer lock.
    pub(crate) fn run(self, writer: &mut Writer) -> Result<Result<Settled, Failure>> {
        let mut failed = None;
        let result = writer.transaction(Commit::Flushed, |tx| {
            self.steps(tx).map_err(|undone| match undone {
                Undone::Error(error) => error,
                Undone::Failed(failure) => {
                    failed = Some(failure);
                    postrider_core::Error::new(postrider_core::ErrorKind::Internal, "the handler failed")
                }
            })
        });
        match failed {
            Some(failure) => Ok(Err(failure)),
            None => result.map(Ok),
        }
    }

    fn steps(self, tx: &Transaction<'_>) -> Result<Settled, Undone> {
        fence(tx, &self.hold).map_err(Undone::Error)?;
        let work = self.work;
        match catch_unwind(AssertUnwindSafe(|| work(tx))) {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => return Err(Undone::Failed(failure)),
            Err(panic) => {
                let text = format!("handler panicked: {}", panic_text(panic.as_ref()));
                return Err(Undone::Failed(Failure::retry(text)));
            }
        }
        if tx.is_autocommit() {
            // Its writes may be committed already; another attempt would make them again.
            return Err(Undone::Failed(Failure::permanent(
                "the handler has ended the transaction that it was given: it must leave that to Postrider",
            )));
        }
        // The beat could not be written while the handler had the writer lock.
        beat(tx, self.hold.member, self.beat_at).map_err(Undone::Error)?;
        settle_apply(tx, &self.hold, &self.settle, self.now).map_err(Undone::Error)
    }
}
