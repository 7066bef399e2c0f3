//! Limits on how many hand-outs run at a time: of a worker, and over all workers of the process.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits under which an owner hands out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Permits(SmallVec<[Arc<Semaphore>; 2]>);

/// Leave for one hand-out; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit(
    #[expect(dead_code, reason = "dropping it is its use")] SmallVec<[OwnedSemaphorePermit; 2]>,
);

/// How many of so many places what has failed before may take: half of them, so that the others find one, however many
/// events fail and however long that takes.
pub(crate) fn places_again(concurrency: u32) -> u32 {
    (concurrency / 2).max(1)
}

impl Permits {
    /// The same with another limit. All owners take leave in the same order, so that none waits for itself.
    pub(crate) fn and(&self, limit: &Arc<Semaphore>) -> Self {
        Self(self.0.iter().chain([limit]).cloned().collect())
    }

    /// The same with all limits of `others` behind these.
    pub(crate) fn then(&self, others: &Self) -> Self {
        Self(self.0.iter().chain(&others.0).cloned().collect())
    }

    /// How many hand-outs could begin now.
    pub(crate) fn available(&self) -> usize {
        self.0.iter().map(|limit| limit.available_permits()).min().unwrap_or(usize::MAX)
    }

    /// Leave at once, if there is any.
    pub(crate) fn try_take(&self) -> Option<Permit> {
        let all = self.0.iter().map(|limit| Arc::clone(limit).try_acquire_owned());
        all.collect::<Result<_, _>>().ok().map(Permit)
    }

    /// Waits for leave. Cancel safe: what was taken is given back.
    pub(crate) async fn take(&self) -> Permit {
        let mut taken = SmallVec::new();
        for limit in &self.0 {
            match Arc::clone(limit).acquire_owned().await {
                Ok(permit) => taken.push(permit),
                // A limit is never closed.
                Err(_) => std::future::pending().await,
            }
        }
        Permit(taken)
    }
}

/// How one loop takes leave: at once, or by waiting for it.
#[derive(Debug)]
pub(crate) struct Leave {
    permits: Permits,
    /// Leave that was waited for.
    given: Option<Permit>,
    wanted: bool,
}

impl Leave {
    pub(crate) fn new(permits: Permits) -> Self {
        Self { permits, given: None, wanted: false }
    }

    /// Leave for one hand-out; if there is none, it is waited for.
    pub(crate) fn take(&mut self) -> Option<Permit> {
        let permit = self.given.take().or_else(|| self.permits.try_take());
        self.wanted = permit.is_none();
        permit
    }

    /// Waits for leave that was refused; for ever if none was. Cancel safe.
    pub(crate) async fn wait(&self) -> Permit {
        if self.wanted { self.permits.take().await } else { std::future::pending().await }
    }

    /// Keeps leave that was waited for.
    pub(crate) fn keep(&mut self, permit: Permit) {
        self.wanted = false;
        self.given = Some(permit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_is_given_by_all_limits_or_by_none() {
        let (few, many) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(2)));
        let permits = Permits::default().and(&many).and(&few);
        let first = permits.try_take();
        assert!(first.is_some() && permits.try_take().is_none());
        assert_eq!(many.available_permits(), 1, "what could not be used was given back");
        drop(first);
        assert!(permits.try_take().is_some());
        assert!(Permits::default().try_take().is_some(), "without limits there is always leave");
    }
}
