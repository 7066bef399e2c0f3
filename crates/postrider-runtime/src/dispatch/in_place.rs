//! Beginning a hand-out on the task of the loop that hands out, which saves a task if it is done at once.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::dispatch::hand_out::Attempted;
use crate::dispatch::handler::Handling;

/// A hand-out that needs more than this before its first await runs on a task of its own from the start, so
/// that several cores can share the work; a cheaper one is begun in place, which saves the task. That costs a
/// microsecond or two for a hand-out, however many events it holds: a sink that makes a batch ready is worth
/// one, a run of handlers that do nothing is not.
const COST_MAX: Duration = Duration::from_micros(50);
/// How often the cost is measured again.
const PROBE_EVERY: u64 = 64;

/// What is known of the cost.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    /// What beginning a hand-out costs, on average.
    cost: Duration,
    begun: u64,
}

impl InPlace {
    /// Begins a hand-out in place, unless experience says that this would take long. Returns its outcomes if
    /// it is finished at once.
    pub(crate) fn begin(&mut self, handling: &mut Handling) -> Option<Vec<Attempted>> {
        self.begun += 1;
        let measured = self.begun.is_multiple_of(PROBE_EVERY);
        if self.cost >= COST_MAX && !measured {
            return None;
        }
        let began = measured.then(Instant::now);
        // The waker is of no account: if it is not done at once, a task polls it again.
        let polled = handling.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Some(began) = began {
            self.cost = (self.cost * 3 + began.elapsed()) / 4;
        }
        match polled {
            Poll::Ready(attempted) => Some(attempted),
            Poll::Pending => None,
        }
    }
}
