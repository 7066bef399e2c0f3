//! A waiting worker offers what it would take to the feeder beside it, whose next feed claims that in the same
//! transaction.
//!
//! ```text
//!   closed ◄──────► open ──the feeder begins a feed──► taken ──it has ended──► answered
//!      ▲     the worker has room, or not any more        │                        │
//!      └─────────────────────────────────────────────────┴────────────────────────┘
//!                     the feed has failed               the worker has the answer
//! ```
//!
//! Without it, an event would wait for two transactions, and for the worker to hear of the first. A feeder
//! that has taken an offer claims in the worker's name. Until the offer is closed again, the worker does not
//! end, and keeps room for the rows that may come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::Result;
use postrider_core::queue::{Ask, Claimed};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What the feeder of a process and the worker beside it tell each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fed {
    /// Rows were fed.
    pub(crate) news: Arc<Notify>,
    /// The feeder has ended.
    pub(crate) over: CancellationToken,
    /// What the worker would take with the next feed.
    pub(crate) offer: Arc<Offer>,
}

/// What a worker would take.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(Ask),
    Taken(Ask),
    Answered(Answer),
}

/// What became of an offer that was taken.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) claimed: Result<Claimed>,
    pub(crate) ask: Ask,
    /// Since when the lease counts.
    pub(crate) asked: Instant,
}

impl Offer {
    /// Says what would be taken now, unless the feeder is at it.
    pub(crate) fn open(&self, ask: Ask) {
        let mut state = self.lock();
        if matches!(*state, State::Closed | State::Open(_)) {
            *state = State::Open(ask);
        }
    }

    /// Takes it back, unless the feeder is at it.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if matches!(*state, State::Open(_)) {
            *state = State::Closed;
        }
    }

    /// What it was, if the feeder is at it, or was and the answer was not fetched.
    pub(crate) fn taken(&self) -> Option<Ask> {
        match &*self.lock() {
            State::Taken(ask) => Some(*ask),
            State::Answered(answer) => Some(answer.ask),
            State::Closed | State::Open(_) => None,
        }
    }

    /// Waits for what becomes of it once it was taken; none if nothing does. Cancel safe.
    pub(crate) async fn answered(&self) -> Option<Answer> {
        self.changed.notified().await;
        let mut state = self.lock();
        if !matches!(*state, State::Answered(_)) {
            return None;
        }
        match std::mem::take(&mut *state) {
            State::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// Takes it, if it is open. The feeder claims on its behalf from now on.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Taken> {
        let mut state = self.lock();
        let State::Open(ask) = *state else { return None };
        *state = State::Taken(ask);
        Some(Taken { offer: Arc::clone(self), ask, asked: Instant::now() })
    }

    /// Nothing panics under this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An offer in the feeder's hands. Dropped unanswered, it is closed: rows that were claimed belong to no worker.
#[derive(Debug)]
pub(crate) struct Taken {
    offer: Arc<Offer>,
    pub(crate) ask: Ask,
    asked: Instant,
}

impl Taken {
    pub(crate) fn answer(self, claimed: Result<Claimed>) {
        *self.offer.lock() = State::Answered(Answer { claimed, ask: self.ask, asked: self.asked });
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.offer.lock();
        if matches!(*state, State::Taken(_)) {
            *state = State::Closed;
        }
        drop(state);
        self.offer.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::Timestamp;
    use postrider_core::queue::Token;

    use super::*;

    const ASK: Ask =
        Ask { rows: 3, events: 3, bytes: 9, again: 3, all: false, lease: Duration::from_secs(8) };

    #[tokio::test]
    async fn an_offer_is_taken_once_and_its_answer_is_fetched_once() {
        let offer = Arc::new(Offer::default());
        assert!(offer.take().is_none(), "nothing was offered");
        offer.open(ASK);
        let taken = offer.take().unwrap();
        assert_eq!(taken.ask, ASK);
        offer.close();
        assert!(offer.take().is_none());
        assert_eq!(offer.taken(), Some(ASK));
        offer.open(Ask { rows: 9, ..ASK });
        let claimed =
            Claimed { token: Token(7), at: Timestamp::from_micros(0), rows: Vec::new(), paused: false };
        taken.answer(Ok(claimed));
        assert_eq!(offer.taken(), Some(ASK), "until the worker has the answer it must not end");
        assert_eq!(offer.answered().await.unwrap().claimed.unwrap().token, Token(7));
        assert_eq!(offer.taken(), None);
    }

    #[tokio::test]
    async fn a_feed_that_fails_lets_the_worker_go_on() {
        let offer = Arc::new(Offer::default());
        offer.open(ASK);
        drop(offer.take());
        assert!(offer.answered().await.is_none() && offer.taken().is_none());
    }

    #[test]
    fn an_offer_that_was_taken_back_is_not_there() {
        let offer = Arc::new(Offer::default());
        offer.open(ASK);
        offer.close();
        assert!(offer.take().is_none());
    }
}
