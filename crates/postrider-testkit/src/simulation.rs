//! The whole runtime under seeded interference.
//!
//! A seed becomes a [`Plan`]: how many members, which handlers, what goes wrong and how often. The plan is
//! run on one thread with a clock that jumps from timer to timer, so that minutes of trouble take
//! milliseconds and the same seed always does the same. Members run the real relay over a [`MemoryStore`];
//! they crash at any moment of any store call and inside handlers, are cut off from the store for longer
//! than their lease, drain and come back, lose wakes, and see store calls fail before and after they were
//! applied. Then everything heals, and within a bounded time every event must have arrived. The
//! [`History`] of the run must be free of violations.

mod member;
mod plan;
mod producer;

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::store::{DeadLetterQuery, Pace};
use postrider_core::time::Clock;
use postrider_core::{EventId, Mode, NewSubscription, OnDead, RetryPolicy, Store, Timestamp};
use postrider_runtime::sabotage::Sabotage;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use plan::{Handling, Plan, Receiver};

use crate::history::{Expectation, History, Record, Subject, Violation};
use crate::interference::{Odds, SeededInterference};
use crate::memory_store::{MemoryOptions, MemoryStore};

/// The one subscription of a simulation.
const SUBSCRIPTION: &str = "simulated";
/// How long a healed system may take to deliver everything. Waiting retries take most of it.
const HEALED_WITHIN: Duration = Duration::from_secs(300);

/// What a run that kept all promises did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Events emitted.
    pub emitted: usize,
    /// Times that a handler was called.
    pub handled: usize,
    /// Things that went wrong.
    pub faults: usize,
    /// Events that an operator had to deal with.
    pub operated: usize,
}

impl Report {
    /// Adds another run.
    pub fn add(&mut self, other: Self) {
        self.emitted += other.emitted;
        self.handled += other.handled;
        self.faults += other.faults;
        self.operated += other.operated;
    }
}

/// A broken promise, with all that is needed to see it again.
#[derive(Debug)]
pub struct Broken {
    /// The plan, seed included.
    pub plan: Plan,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Whether it never came to rest although everything had healed.
    pub stuck: bool,
    /// What it panicked with: the store found a broken rule, or the runtime broke one of its own.
    pub panicked: Option<String>,
    /// What happened to the events in question, in order.
    pub trace: String,
}

impl Broken {
    fn by_panic(plan: &Plan, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        let panicked = Some(text.to_owned());
        Self { plan: plan.clone(), violations: Vec::new(), stuck: false, panicked, trace: String::new() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {0} breaks a promise; run it again with POSTRIDER_SEED={0}", self.plan.seed)?;
        writeln!(f, "{:?}", self.plan)?;
        if self.stuck {
            writeln!(f, "stuck: not everything was delivered although everything had healed")?;
        }
        if let Some(message) = &self.panicked {
            writeln!(f, "panicked: {message}")?;
        }
        for violation in self.violations.iter().take(10) {
            writeln!(f, "{violation}")?;
        }
        f.write_str(&self.trace)
    }
}

/// Runs a plan, with a planted bug if there is one.
pub fn run(plan: &Plan, sabotage: Option<Sabotage>) -> Result<Report, Box<Broken>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing that can be missing");
    let lived = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let world = World::new(plan.clone(), sabotage);
            world.live().await;
            world.judge()
        })
    }));
    lived.unwrap_or_else(|panic| Err(Box::new(Broken::by_panic(plan, &*panic))))
}

/// Everything that the parts of a simulation share.
struct World {
    plan: Plan,
    sabotage: Option<Sabotage>,
    clock: SimClock,
    /// The store without interference, for operators and the truth.
    store: MemoryStore,
    /// The store as producers see it: all that goes wrong is that their wakes get lost.
    producers: MemoryStore,
    history: History,
    rng: Mutex<fastrand::Rng>,
    /// How many events each key has; the last stands for no key.
    emitted: Mutex<Vec<u64>>,
    incarnations: AtomicU64,
    /// How many of the store's take-overs are in the history.
    take_overs: AtomicU64,
    /// How many of its reaped claims are.
    reaps: AtomicU64,
    /// Which of its dead letters are.
    dead: Mutex<BTreeSet<EventId>>,
    /// From here on nothing goes wrong any more, except that wakes are lost.
    healed: AtomicBool,
    /// Cancelled at the end: members drain.
    over: CancellationToken,
    stuck: AtomicBool,
}

impl World {
    fn new(plan: Plan, sabotage: Option<Sabotage>) -> Arc<Self> {
        let clock = SimClock::new();
        let default = MemoryOptions::default();
        let options = MemoryOptions { pace: Pace { lease: plan.lease, ..default.pace }, ..default };
        let store = MemoryStore::with_options(clock.clone(), options);
        let wakes =
            Odds { yields_max: 0, fail_before: 0.0, fail_after: 0.0, lose_wake: plan.calls.lose_wake };
        Arc::new(Self {
            rng: Mutex::new(fastrand::Rng::with_seed(plan.seed)),
            producers: store.clone().with_interference(Arc::new(SeededInterference::new(plan.seed, wakes))),
            store,
            history: History::new(clock.clone()),
            emitted: Mutex::new(vec![0; plan.keys as usize + 1]),
            incarnations: AtomicU64::new(0),
            take_overs: AtomicU64::new(0),
            reaps: AtomicU64::new(0),
            dead: Mutex::default(),
            healed: AtomicBool::new(false),
            over: CancellationToken::new(),
            stuck: AtomicBool::new(false),
            clock,
            plan,
            sabotage,
        })
    }

    async fn live(self: &Arc<Self>) {
        self.store.subscription_create(self.subscription()).await.expect("a fresh store takes it");
        let members: Vec<_> =
            (0..self.plan.members).map(|_| tokio::spawn(member::live(Arc::clone(self)))).collect();
        producer::produce(self, self.plan.events).await;
        self.healed.store(true, Ordering::Relaxed);
        // A clock that was set back would keep delayed events waiting for hours, rightly.
        if self.plan.mode == Mode::Log {
            self.clock.step(producer::CLOCK_JUMP_MAX_MICROS * i64::from(self.plan.events));
        }
        // Events that arrive in quiet times, each on its own: only a poll or a wake can find them.
        producer::trickle(self, 4).await;
        self.operate_until_settled().await;
        self.over.cancel();
        for member in members {
            member.await.expect("a member's life does not panic");
        }
        self.note_the_dead().await;
    }

    fn subscription(&self) -> NewSubscription {
        let plan = &self.plan;
        let retry = RetryPolicy::exponential(Duration::from_millis(20), Duration::from_secs(2));
        let mut new = NewSubscription::new(SUBSCRIPTION)
            .mode(plan.mode)
            .order(plan.order)
            .on_dead(plan.on_dead)
            .concurrency(plan.concurrency)
            .timeout(plan.timeout)
            .retry(retry.attempts_max(plan.attempts));
        new.tuning.queue.lease = plan.claim_lease;
        new.tuning.queue.lease_by = plan.lease_by;
        new
    }

    /// Plays the operator until everything is delivered or given up.
    async fn operate_until_settled(&self) {
        let deadline = Instant::now() + HEALED_WITHIN;
        while Instant::now() < deadline {
            let report = self.store.subscription_report(SUBSCRIPTION).await.expect("it exists");
            let held = self.plan.on_dead == OnDead::Hold && report.dead > 0;
            if report.lag_events == 0 && report.leased == 0 && report.pending == 0 && !held {
                return;
            }
            if held {
                self.operate().await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.stuck.store(true, Ordering::Relaxed);
    }

    /// Replays or discards the oldest dead letter.
    async fn operate(&self) {
        let query = DeadLetterQuery { limit: 1, ..DeadLetterQuery::default() };
        let letters = self.store.dead_letter_list(query).await.expect("nothing interferes");
        let Some(letter) = letters.first() else { return };
        let event = letter.letter.event_id;
        let one = DeadLetterQuery { event_id: Some(event), limit: 1, ..DeadLetterQuery::default() };
        let subject = Subject { subscription: SUBSCRIPTION.to_owned(), event };
        // Recorded first: the owner may be at work on it before the call returns.
        if self.roll(fastrand::Rng::bool) {
            self.history.record(Record::Replayed(subject));
            self.store.dead_letter_replay(one, "operator").await.expect("nothing interferes");
        } else {
            self.history.record(Record::Discarded(subject));
            self.store.dead_letter_discard(one, "operator").await.expect("nothing interferes");
        }
    }

    async fn note_the_dead(&self) {
        let query = DeadLetterQuery { limit: usize::MAX, ..DeadLetterQuery::default() };
        for letter in self.store.dead_letter_list(query).await.expect("nothing interferes") {
            let subject = Subject { subscription: SUBSCRIPTION.to_owned(), event: letter.letter.event_id };
            self.history.record(Record::Died(subject));
        }
    }

    fn judge(&self) -> Result<Report, Box<Broken>> {
        let expectation = Expectation::from(&self.subscription());
        let mut violations = self.history.check(std::slice::from_ref(&expectation));
        if self.plan.receiver == Receiver::Transactional {
            violations.extend(self.history.check_effects(&expectation, &self.store.effects()));
        }
        let stuck = self.stuck.load(Ordering::Relaxed);
        if violations.is_empty() && !stuck {
            return Ok(self.report());
        }
        let about: BTreeSet<_> = violations.iter().take(3).map(Violation::event).collect();
        let trace = self.history.about(&about);
        Err(Box::new(Broken { plan: self.plan.clone(), violations, stuck, panicked: None, trace }))
    }

    fn report(&self) -> Report {
        let mut report = Report::default();
        for entry in self.history.entries() {
            match entry.record {
                Record::Emitted(_) => report.emitted += 1,
                Record::Delivered(_) => report.handled += 1,
                Record::Fault { .. } => report.faults += 1,
                Record::Replayed(_) | Record::Discarded(_) | Record::Died(_) => report.operated += 1,
                Record::Finished { .. } | Record::Abandoned { .. } | Record::Sought(_) => {}
            }
        }
        report
    }

    fn roll<T>(&self, dice: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        dice(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether something with this probability happens now; nothing does once everything has healed.
    fn chance(&self, probability: f64) -> bool {
        !self.is_healed() && probability > 0.0 && self.roll(fastrand::Rng::f64) < probability
    }

    fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }
}

/// A clock that follows tokio's time, which a test can pause, and can be set forward and back beside it.
#[derive(Debug, Clone)]
pub struct SimClock {
    began: Instant,
    offset_micros: Arc<AtomicI64>,
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl SimClock {
    /// Begins now, on the runtime that this is called on.
    pub fn new() -> Self {
        Self { began: Instant::now(), offset_micros: Arc::default() }
    }

    /// Sets the time of day; uptime goes on as it was.
    fn step(&self, micros: i64) {
        self.offset_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let begin =
            Timestamp::from_micros(1_800_000_000_000_000 + self.offset_micros.load(Ordering::Relaxed));
        begin.after(self.uptime())
    }

    fn uptime(&self) -> Duration {
        self.began.elapsed()
    }
}
