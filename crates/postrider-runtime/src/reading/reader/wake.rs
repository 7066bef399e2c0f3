//! Being woken without missing a wake.

use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use postrider_core::LogStore;

/// A wake that is asked for before a read begins, and kept. A store wakes those who wait at that moment; a
/// reader that began to wait after its read would miss the events of that time, and find them only when it
/// polls again.
#[derive(Default)]
pub(crate) enum Wake {
    #[default]
    NotAsked,
    Asked(Pin<Box<dyn Future<Output = ()> + Send>>),
    Woken,
}

impl Wake {
    /// Asks for it, unless that was done before.
    pub(super) fn ask<S: LogStore>(&mut self, store: &S) {
        if !matches!(self, Self::NotAsked) {
            return;
        }
        let store = store.clone();
        let mut asked: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { store.wake().await });
        // The first poll is what makes it wait.
        *self = match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(()) => Self::Woken,
            Poll::Pending => Self::Asked(asked),
        };
    }

    /// Waits for the wake that was asked for. Cancel safe.
    pub(crate) async fn next(&mut self) {
        match self {
            Self::NotAsked => pending().await,
            Self::Asked(asked) => asked.await,
            Self::Woken => {}
        }
        *self = Self::NotAsked;
    }
}
