//! What a seed stands for.

use std::time::Duration;

use postrider_core::{LeaseBy, Mode, OnDead, Order};

use crate::interference::Odds;

/// Everything that a run decides beforehand, from its seed alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Where it all comes from.
    pub seed: u64,
    /// Events that the producer emits while things go wrong.
    pub events: u32,
    /// Different keys; some events have none.
    pub keys: u32,
    /// Share of events that are delayed.
    pub delayed: f64,
    /// Processes that run the relay.
    pub members: u32,
    /// How progress is kept.
    pub mode: Mode,
    /// How long a silent member is believed to live.
    pub lease: Duration,
    /// How long a claim of a queue lasts.
    pub claim_lease: Duration,
    /// What one claim of a queue is for.
    pub lease_by: LeaseBy,
    /// Whether events of a key wait for each other.
    pub order: Order,
    /// What a key does when its event dies.
    pub on_dead: OnDead,
    /// Handlers at a time.
    pub concurrency: u32,
    /// Attempts in all.
    pub attempts: u32,
    /// Time-out of an attempt.
    pub timeout: Duration,
    /// What is done with events.
    pub receiver: Receiver,
    /// How handlers behave.
    pub handling: Handling,
    /// How store calls behave.
    pub calls: Odds,
    /// Probability that a member crashes at a moment of a store call, or in a handler.
    pub crash: f64,
    /// Probability that a member is cut off from the store at a moment of a store call.
    pub cut_off: f64,
    /// Probability per emit that the time of day is set forward or back.
    pub clock_jump: f64,
}

/// The kinds of handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// One event at a time.
    Each,
    /// A batch without two events of one key.
    Batch,
    /// A batch in which events of one key follow each other.
    OrderedBatch,
    /// Inside the store's transaction.
    Transactional,
}

/// How handlers behave, as probabilities per call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Handling {
    /// Fails, and may be tried again.
    pub fail: f64,
    /// Refuses for good.
    pub refuse: f64,
    /// Says that the receiver is down.
    pub down: f64,
    /// Panics.
    pub panic: f64,
    /// Never ends.
    pub hang: f64,
    /// Takes long, but not too long.
    pub slow: f64,
    /// Wants to be left alone for a while.
    pub snooze: f64,
}

impl Plan {
    /// The plan of a seed. One in four is free of faults: there every duplicate is a bug.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let calm = rng.u32(0..4) == 0;
        let mut odds = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        let handling = Handling {
            fail: odds(0.2),
            refuse: odds(0.03),
            down: odds(0.02),
            panic: odds(0.05),
            hang: odds(0.01),
            slow: odds(0.1),
            snooze: 0.0,
        };
        let trouble = if calm { 0.0 } else { 1.0 };
        let calls = Odds {
            yields_max: 3,
            fail_before: odds(0.1) * trouble,
            fail_after: odds(0.1) * trouble,
            lose_wake: 0.5,
        };
        let (crash, cut_off, delayed) = (odds(0.01) * trouble, odds(0.003) * trouble, odds(0.1));
        let clock_jump = odds(0.02) * trouble;
        let receivers = [
            Receiver::Each,
            Receiver::Each,
            Receiver::Batch,
            Receiver::OrderedBatch,
            Receiver::Transactional,
        ];
        let mut plan = Self {
            seed,
            events: rng.u32(20..120),
            keys: rng.u32(1..12),
            delayed,
            members: if calm { 1 } else { rng.u32(1..4) },
            mode: Mode::Log,
            lease: Duration::from_secs(10),
            claim_lease: Duration::from_secs(8),
            lease_by: LeaseBy::Block,
            order: if rng.u32(0..5) == 0 { Order::None } else { Order::Key },
            on_dead: if rng.u32(0..3) == 0 { OnDead::Hold } else { OnDead::Skip },
            concurrency: rng.u32(1..9),
            attempts: rng.u32(2..7),
            timeout: Duration::from_secs(5),
            receiver: receivers[rng.usize(..receivers.len())],
            handling,
            calls,
            crash,
            cut_off,
            clock_jump,
        };
        if rng.u32(0..4) == 0 {
            plan.queue(&mut rng);
        }
        if rng.bool() {
            plan.handling.snooze = rng.f64() * 0.05;
        }
        plan
    }

    /// Makes it a queue. Its clock never jumps, because leases of claims are on the database's time of day.
    fn queue(&mut self, rng: &mut fastrand::Rng) {
        self.mode = Mode::Queue;
        self.clock_jump = 0.0;
        self.claim_lease = Duration::from_secs(rng.u64(1..12));
        self.lease_by = if rng.bool() { LeaseBy::Block } else { LeaseBy::Event };
        if self.receiver == Receiver::Transactional {
            self.receiver = Receiver::Each;
        }
    }
}
