//! A store call that is under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use postrider_core::{Error, ErrorKind, Result};

/// A store call under way; dropping it drops the wait.
///
/// It is polled here, not on a task of its own: that would cost a switch of threads on the way to the store
/// and another one on the way back.
pub(crate) enum Call<T> {
    UnderWay(Pin<Box<dyn Future<Output = Result<T>> + Send>>),
    /// It was done at once.
    Done(Option<Result<T>>),
}

impl<T> Call<T> {
    /// Sends the call on its way.
    pub(crate) fn begin(call: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        let mut call: Pin<Box<dyn Future<Output = Result<T>> + Send>> = Box::pin(call);
        // The waker does not matter, because `answer` polls the call again.
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Self::Done(Some(result)),
            Poll::Pending => Self::UnderWay(call),
        }
    }

    /// Waits for the answer. Cancel safe; to be called no more once it has been given.
    pub(crate) async fn answer(&mut self) -> Result<T> {
        match self {
            Self::UnderWay(call) => call.await,
            Self::Done(result) => match result.take() {
                Some(result) => result,
                None => std::future::pending().await,
            },
        }
    }
}

/// Waits for the answer of a call, for ever if there is none. Cancel safe.
pub(crate) async fn optional<T>(call: &mut Option<Call<T>>) -> Result<T> {
    match call {
        Some(call) => call.answer().await,
        None => std::future::pending().await,
    }
}

/// Whether an error of the store ends its worker. A worker that runs for good tries again whatever it is,
/// less and less often: one row, one damaged page or one missing right must not end the other subscriptions
/// of its process. Only a schema that this program does not understand does. A worker that ends when all is
/// done ends with what will not pass by itself.
pub(crate) fn ends_worker(error: &Error, until_idle: bool) -> bool {
    !error.is_retryable() && (until_idle || error.kind() == ErrorKind::Incompatible)
}
