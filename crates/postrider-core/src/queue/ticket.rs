//! What a handler holds of the lease under which it works.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Token;
use crate::error::{Error, Result};
use crate::limits;

/// One delivery of a queue, as its handler holds it: it says when the work is no longer wanted, and takes a result. All
/// clones are the same ticket.
///
/// ```
/// use postrider_core::queue::{Ticket, Token};
/// let ticket = Ticket::new(Token(7));
/// ticket.set_result(r#"{"pages": 12}"#)?;
/// assert!(!ticket.is_cancelled());
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Ticket(Arc<Shared>);

struct Shared {
    token: Token,
    cancelled: AtomicBool,
    /// One for each task that waits.
    waiting: Mutex<Vec<Waker>>,
    result: Mutex<Option<String>>,
}

impl Ticket {
    /// For an event that is leased under this token.
    pub fn new(token: Token) -> Self {
        Self(Arc::new(Shared {
            token,
            cancelled: AtomicBool::new(false),
            waiting: Mutex::default(),
            result: Mutex::default(),
        }))
    }

    /// The token under which the event is leased.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// Whether the work is no longer wanted: somebody has cancelled it, or the lease is lost and others take over. Whatever
    /// the handler returns then, it changes nothing.
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

    /// Keeps a text with the delivery, by convention JSON, for people to see; the last one counts. It is written with what
    /// the handler returns, whatever that is.
    pub fn set_result(&self, result: impl Into<String>) -> Result<()> {
        let result = result.into();
        if result.len() > limits::RESULT_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a result of {} bytes: at most {} are kept; keep a reference to larger ones",
                result.len(),
                limits::RESULT_BYTES_MAX
            )));
        }
        *lock(&self.0.result) = Some(result);
        Ok(())
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
    fn whoever_waits_is_woken_once_and_whoever_comes_later_does_not_wait() {
        let ticket = Ticket::new(Token(1));
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
        let ticket = Ticket::new(Token(1));
        ticket.set_result("first").unwrap();
        ticket.set_result("second").unwrap();
        assert!(ticket.set_result("x".repeat(limits::RESULT_BYTES_MAX + 1)).is_err());
        assert_eq!((ticket.take_result().as_deref(), ticket.take_result()), (Some("second"), None));
    }
}
