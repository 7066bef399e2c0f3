//! What a handler holds of the lease under which it works.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use serde::{Deserialize, Serialize};

use crate::delivery::progress::{Board, EventProgress, Progress};
use crate::error::{Error, Result};
use crate::event::EventId;
use crate::limits;
use crate::position::SubscriptionId;

/// The number of a claim: what tells the lease of a row from every other one that it has had or will have. It grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub i64);

/// One delivery of a queue, as its handler holds it: it says when the work is no longer wanted, and takes a result and
/// notes on progress. All clones are the same ticket.
///
/// ```
/// use postrider_core::queue::{Ticket, Token};
/// use postrider_core::EventId;
/// use postrider_core::subscription::SubscriptionId;
/// let ticket = Ticket::new(SubscriptionId(1), EventId(3), Token(7));
/// ticket.set_progress((25, "page 3 of 12"))?;
/// ticket.set_result(r#"{"pages": 12}"#)?;
/// assert!(!ticket.is_cancelled());
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Ticket(Arc<Shared>);

/// What the clones of a ticket share.
#[derive(Debug)]
pub(super) struct Shared {
    subscription: SubscriptionId,
    event: EventId,
    token: Token,
    cancelled: AtomicBool,
    acked: AtomicBool,
    /// One for each task that waits.
    waiting: Mutex<Vec<Waker>>,
    result: Mutex<Option<String>>,
    /// What was not written down yet.
    progress: Mutex<Option<Progress>>,
    board: Board,
}

impl Ticket {
    /// For an event of a subscription that is leased under this token.
    pub fn new(subscription: SubscriptionId, event: EventId, token: Token) -> Self {
        Self::on(&Board::default(), subscription, event, token)
    }

    /// The same, whose progress is taken from a board.
    pub fn on(board: &Board, subscription: SubscriptionId, event: EventId, token: Token) -> Self {
        Self(Arc::new(Shared {
            subscription,
            event,
            token,
            cancelled: AtomicBool::new(false),
            acked: AtomicBool::new(false),
            waiting: Mutex::default(),
            result: Mutex::default(),
            progress: Mutex::default(),
            board: board.clone(),
        }))
    }

    /// The subscription whose delivery it is.
    pub fn subscription(&self) -> SubscriptionId {
        self.0.subscription
    }

    /// The token under which the event is leased.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// Whether the work is no longer wanted: an operator has cancelled it, or the lease is lost and others take
    /// over. Whatever the handler returns then, it changes nothing.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Waits until the work is no longer wanted. Cancel safe. A handler that does not end soon after that is dropped.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        Waiting(self.clone())
    }

    /// Says that the work is no longer wanted.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *lock(&self.0.waiting));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether the handler has acked the event in a transaction of its own. Only the handler knows
    /// whether that was committed: if it returns `Ok`, that is believed and looked at; if it fails, the event
    /// is attempted again.
    pub fn is_acked(&self) -> bool {
        self.0.acked.load(Ordering::Acquire)
    }

    /// Notes that the event was acked in a transaction of the handler's: for those who implement
    /// [`Ack`](crate::ack::Ack).
    pub fn note_acked(&self) {
        self.0.acked.store(true, Ordering::Release);
    }

    /// Keeps a text with the delivery, by convention JSON, for people to see; the last one counts. It is
    /// written with what the handler returns, whatever that is.
    pub fn set_result(&self, result: impl Into<String>) -> Result<()> {
        let result = result.into();
        if result.len() > limits::RESULT_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a result of {} bytes: at most {} are kept; keep a reference to larger ones",
                result.len(),
                limits::RESULT_BYTES_MAX
            )));
        }
        if result.contains('\0') {
            return Err(Error::invalid("a result with a NUL character, which databases cut or refuse"));
        }
        *lock(&self.0.result) = Some(result);
        Ok(())
    }

    /// Says how far the handler has come, for people to see: `ticket.set_progress("page 3")`, or with a
    /// percentage, `ticket.set_progress((25, "page 3"))`. It may be called as often as one likes: the last
    /// word is written when the lease is extended, every few seconds, and when the handler ends.
    pub fn set_progress(&self, progress: impl Into<Progress>) -> Result<()> {
        let progress = progress.into();
        progress.check()?;
        let before = lock(&self.0.progress).replace(progress);
        if before.is_none() {
            self.0.board.post(Arc::downgrade(&self.0));
        }
        Ok(())
    }

    /// Takes what was said of the progress since it was last taken, if anything was.
    pub fn take_progress(&self) -> Option<Progress> {
        lock(&self.0.progress).take()
    }

    /// Progress of this delivery, as it is written down.
    pub fn noted(&self, progress: Progress) -> EventProgress {
        let Shared { subscription, event, token, .. } = &*self.0;
        EventProgress { subscription: *subscription, event_id: *event, token: *token, progress }
    }

    pub(super) fn from_shared(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Takes the result, if there is one.
    pub fn take_result(&self) -> Option<String> {
        lock(&self.0.result).take()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, cancelled) = (self.token(), self.is_cancelled());
        f.debug_struct("Ticket").field("token", &token).field("cancelled", &cancelled).finish_non_exhaustive()
    }
}

struct Waiting(Ticket);

impl Future for Waiting {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let ticket = &self.0;
        if ticket.is_cancelled() {
            return Poll::Ready(());
        }
        {
            let mut waiting = lock(&ticket.0.waiting);
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
        }
        // It may have been cancelled between the first look and the entry into the list.
        if ticket.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Nothing panics under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waiting_task_is_woken_once_and_a_later_one_does_not_wait() {
        let ticket = Ticket::new(SubscriptionId(1), EventId(1), Token(1));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut waiting = Box::pin(ticket.cancelled());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        ticket.clone().cancel();
        assert_eq!((count.0.load(Ordering::Relaxed), ticket.is_cancelled()), (1, true));
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        assert!(Box::pin(ticket.cancelled()).as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn the_last_result_counts_and_is_bounded() {
        let ticket = Ticket::new(SubscriptionId(1), EventId(1), Token(1));
        ticket.set_result("first").unwrap();
        ticket.set_result("second").unwrap();
        assert!(ticket.set_result("x".repeat(limits::RESULT_BYTES_MAX + 1)).is_err());
        assert!(ticket.set_result("a\0b").is_err());
        assert_eq!((ticket.take_result().as_deref(), ticket.take_result()), (Some("second"), None));
    }

    #[test]
    fn of_all_that_is_said_of_progress_the_last_is_taken_and_once() {
        let board = Board::default();
        let ticket = |event| Ticket::on(&board, SubscriptionId(1), EventId(event), Token(9));
        let (first, second) = (ticket(1), ticket(2));
        for percent in [10, 20, 30] {
            first.set_progress((percent, "page")).unwrap();
        }
        second.set_progress("begun").unwrap();
        drop(second);
        assert_eq!(
            board.take(),
            [first.noted(Progress::from((30, "page")))],
            "a ticket that is gone reports nothing"
        );
        assert_eq!(board.take(), []);
        first.set_progress("the end").unwrap();
        assert_eq!((first.take_progress(), board.take()), (Some(Progress::from("the end")), vec![]));
        assert!(first.set_progress((101, "")).is_err());
        assert!(first.set_progress("x".repeat(limits::PROGRESS_BYTES_MAX + 1)).is_err());
    }
}
