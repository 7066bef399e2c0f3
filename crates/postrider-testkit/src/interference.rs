//! What can go wrong between a call and its return.
//!
//! Each call of a [`MemoryStore`](crate::MemoryStore) passes two moments:
//!
//! ```text
//!   caller ──► Before ──► applied, at once and whole ──► After ──► caller
//!                │                                         │
//!                │ an error here: nothing was written      │ an error here: it was written, and the
//!                │                                         │ caller cannot know
//!                └ other tasks run while it waits          └ other tasks run while it waits
//! ```
//!
//! A simulation decides at each of them; the default decides nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use postrider_core::settle::MemberId;
use postrider_core::{Error, ErrorKind, Result};

/// A moment of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The call, by the name of its method: `settle`.
    pub call: &'static str,
    /// The member that calls, where the call says so. A simulation cuts one member off by it.
    pub member: Option<MemberId>,
    /// Before or after the call is applied.
    pub when: When,
}

/// On which side of its effect a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Nothing has been written yet.
    Before,
    /// Everything has been written, but the caller does not know.
    After,
}

/// What a moment lasts and how it ends.
pub type Passage = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Decides what happens at each moment.
///
/// Called from every task that uses the store, once per moment. The future may yield, wait for anything,
/// or never resolve; an error becomes the result of the call.
pub trait Interference: Send + Sync + 'static {
    /// What happens at this moment.
    fn at(&self, moment: Moment) -> Passage;

    /// Whether the wake that is about to be given is lost.
    fn loses_wake(&self) -> bool {
        false
    }
}

/// Lets other tasks run, `times` times.
pub async fn yields(times: u32) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// How often a [`SeededInterference`] does what. Probabilities are between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Odds {
    /// Yields at a moment, at the most.
    pub yields_max: u32,
    /// Probability that a call fails before it is applied.
    pub fail_before: f64,
    /// Probability that a call fails after it was applied.
    pub fail_after: f64,
    /// Probability that a wake is lost.
    pub lose_wake: f64,
}

/// Interference by chance, repeatable by its seed as long as the tasks run in a repeatable order.
#[derive(Debug)]
pub struct SeededInterference {
    rng: Mutex<fastrand::Rng>,
    odds: Odds,
}

impl SeededInterference {
    /// Chance from `seed` with these odds.
    pub fn new(seed: u64, odds: Odds) -> Self {
        Self { rng: Mutex::new(fastrand::Rng::with_seed(seed)), odds }
    }

    fn roll<T>(&self, dice: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        dice(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Interference for SeededInterference {
    fn at(&self, moment: Moment) -> Passage {
        let odds = self.odds;
        let fail = match moment.when {
            When::Before => odds.fail_before,
            When::After => odds.fail_after,
        };
        let (pauses, fails) = self.roll(|rng| (rng.u32(0..=odds.yields_max), rng.f64() < fail));
        Box::pin(async move {
            yields(pauses).await;
            if fails { Err(unavailable(moment)) } else { Ok(()) }
        })
    }

    fn loses_wake(&self) -> bool {
        self.roll(|rng| rng.f64() < self.odds.lose_wake)
    }
}

/// The error of a lost connection, worded so that a trace tells which side of the effect it was on.
pub fn unavailable(moment: Moment) -> Error {
    let side = match moment.when {
        When::Before => "before",
        When::After => "after",
    };
    Error::new(ErrorKind::Unavailable, format!("connection lost {side} {} was applied", moment.call))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::{Event, Store};

    use super::*;
    use crate::conformance::run;
    use crate::{ManualClock, MemoryStore};

    fn odds(fail_before: f64, fail_after: f64) -> Odds {
        Odds { yields_max: 3, fail_before, fail_after, lose_wake: 0.0 }
    }

    /// How many events are there after an emit that met this interference, and whether it said so.
    fn emit_under(odds: Odds) -> (bool, u64) {
        let calm = MemoryStore::new(ManualClock::new());
        let store = calm.clone().with_interference(Arc::new(SeededInterference::new(7, odds)));
        run(async move {
            let emitted = store.event_emit(vec![Event::new("order")]).await;
            Ok((emitted.is_ok(), calm.stats().await?.events))
        })
    }

    #[test]
    fn a_failure_before_writes_nothing_and_one_after_writes_all() {
        assert_eq!(emit_under(odds(0.0, 0.0)), (true, 1));
        assert_eq!(emit_under(odds(1.0, 0.0)), (false, 0));
        assert_eq!(emit_under(odds(0.0, 1.0)), (false, 1));
    }

    #[test]
    fn the_same_seed_makes_the_same_decisions() {
        let decisions = |seed| {
            let chance = SeededInterference::new(seed, Odds { lose_wake: 0.5, ..odds(0.0, 0.0) });
            (0..64).map(|_| chance.loses_wake()).collect::<Vec<_>>()
        };
        assert_eq!(decisions(1), decisions(1));
        assert_ne!(decisions(1), decisions(2));
    }
}
