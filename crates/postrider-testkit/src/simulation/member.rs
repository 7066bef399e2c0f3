//! The lives of a member: it starts, works, crashes or drains, and starts again.

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::settle::MemberId;
use postrider_core::{Delivery, Failure, Outcome, Sink};
use postrider_runtime::{Relay, Worker};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::plan::Receiver;
use super::{SUBSCRIPTION, World};
use crate::history::{Fault, Incarnation, Record, Running, Subject};
use crate::interference::{Interference, Moment, Passage, When, unavailable, yields};
use crate::memory_store::{MemoryStore, MemoryTx, MemoryWork};

/// Lives until everything is over.
pub(super) async fn live(world: Arc<World>) {
    while !world.over.is_cancelled() {
        let life = Arc::new(Life::new(&world));
        let stop = life.stop_at_some_time();
        let relay = life.relay().run(stop);
        let crashed = tokio::select! {
            biased;
            () = life.crash.cancelled() => true,
            // An error ends the process in order; it comes back like after a crash.
            ended = relay => ended.is_err(),
        };
        if crashed {
            life.bury();
        }
        let absence = world.roll(|rng| rng.u64(0..4000));
        tokio::time::sleep(Duration::from_millis(absence)).await;
    }
}

/// One life: what goes wrong in it.
struct Life {
    world: Arc<World>,
    incarnation: Incarnation,
    crash: CancellationToken,
    crashed: AtomicBool,
    /// Who we are in the store, once we have joined.
    member: Mutex<Option<MemberId>>,
    /// Until when the store cannot be reached, in microseconds of uptime.
    cut_off_until: AtomicU64,
}

impl Life {
    fn new(world: &Arc<World>) -> Self {
        Self {
            world: Arc::clone(world),
            incarnation: Incarnation(world.incarnations.fetch_add(1, Ordering::Relaxed)),
            crash: CancellationToken::new(),
            crashed: AtomicBool::new(false),
            member: Mutex::new(None),
            cut_off_until: AtomicU64::new(0),
        }
    }

    fn relay(self: &Arc<Self>) -> Relay<MemoryStore> {
        let interference: Arc<dyn Interference> = Arc::new(Meddler(Arc::clone(self)));
        let store = self.world.store.clone().with_interference(interference);
        let worker = Worker::new(self.world.subscription());
        let relay = Relay::new(store)
            .name(format!("life {}", self.incarnation.0))
            .seed(self.world.roll(|rng| rng.u64(..)))
            .retention(None)
            .drain_within(self.world.plan.timeout * 4)
            .sabotage(self.world.sabotage);
        let life = Arc::clone(self);
        match self.world.plan.receiver {
            Receiver::Each => relay.worker(worker.each(move |delivery| Arc::clone(&life).handle(delivery))),
            Receiver::Batch => relay.worker(worker.sink(Batches { life, keeps_order: false })),
            Receiver::OrderedBatch => relay.worker(worker.sink(Batches { life, keeps_order: true })),
            Receiver::Transactional => {
                relay.worker(worker.transactional(move |delivery| life.work(delivery)))
            }
        }
    }

    /// A shutdown in order: at the end of everything, or earlier by chance.
    fn stop_at_some_time(&self) -> impl Future<Output = ()> + Send + use<> {
        let over = self.world.over.clone();
        let early = self.world.roll(|rng| (rng.u32(0..3) == 0).then(|| rng.u64(100..8000)));
        let early = early.filter(|_| !self.world.is_healed());
        async move {
            let early = async {
                match early {
                    Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = early => {}
            }
        }
    }

    /// Makes the end of a crashed life known to those who can know it.
    fn bury(&self) {
        let member = *self.member.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(member), true) = (member, self.world.roll(fastrand::Rng::bool)) {
            self.world.store.kill(member);
        }
    }

    /// Crashes now if chance wills: nothing of this life goes on from here.
    async fn perhaps_crash(&self) {
        if !self.crashed.load(Ordering::Relaxed) && self.world.chance(self.world.plan.crash) {
            self.crashed.store(true, Ordering::Relaxed);
            self.world.history.fault(Fault::Crash, Some(self.incarnation));
            self.crash.cancel();
        }
        if self.crashed.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    async fn handle(self: Arc<Self>, delivery: Delivery) -> Result<(), Failure> {
        let running = self.world.history.delivered(&delivery, self.incarnation);
        self.meet_trouble().await;
        let outcome = self.outcome();
        running.finish(&outcome);
        match outcome {
            Outcome::Ack | Outcome::Untried => Ok(()),
            Outcome::Retry(failure) | Outcome::Dead(failure) => Err(failure),
        }
    }

    /// All that can keep a handler from telling an outcome, or from telling it soon.
    async fn meet_trouble(&self) {
        self.perhaps_crash().await;
        let handling = self.world.plan.handling;
        if self.world.chance(handling.slow) {
            let millis = self.world.roll(|rng| rng.u64(1..3000));
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        if self.world.chance(handling.hang) {
            std::future::pending::<()>().await;
        }
        if self.world.chance(handling.panic) {
            // Unlike `panic!`, this leaves the terminal alone.
            resume_unwind(Box::new("simulated panic"));
        }
        self.perhaps_crash().await;
    }

    fn outcome(&self) -> Outcome {
        let handling = self.world.plan.handling;
        if self.world.chance(handling.fail) {
            Outcome::Retry(Failure::retry("simulated failure"))
        } else if self.world.chance(handling.refuse) {
            Outcome::Retry(Failure::permanent("simulated refusal"))
        } else if self.world.chance(handling.snooze) {
            let millis = self.world.roll(|rng| rng.u64(0..3000));
            Outcome::Retry(Failure::snooze(Duration::from_millis(millis)))
        } else if self.world.chance(handling.down) {
            Outcome::Retry(Failure::unavailable("simulated outage"))
        } else {
            Outcome::Ack
        }
    }

    /// A transactional handler's work: its effect counts only if the transaction commits.
    fn work(self: &Arc<Self>, delivery: Delivery) -> MemoryWork {
        let life = Arc::clone(self);
        Box::new(move |tx: &mut MemoryTx| {
            let running = life.world.history.delivered(&delivery, life.incarnation);
            tx.note(delivery.id, "done");
            if life.world.chance(life.world.plan.handling.panic) {
                resume_unwind(Box::new("simulated panic"));
            }
            let outcome = life.outcome();
            running.finish(&outcome);
            match outcome {
                Outcome::Retry(failure) | Outcome::Dead(failure) => Err(failure),
                Outcome::Ack | Outcome::Untried => Ok(()),
            }
        })
    }
}

/// A sink that handles a batch event by event.
struct Batches {
    life: Arc<Life>,
    keeps_order: bool,
}

impl Sink for Batches {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let life = &self.life;
        let begin = |delivery: &Delivery| life.world.history.delivered(delivery, life.incarnation);
        // Trouble comes before the first event takes effect: later it would take the outcomes of events that
        // have, which is the window of a batch and not a bug. It costs the first event of each key an attempt.
        let mut begun: Vec<Option<Running>> = Vec::with_capacity(batch.len());
        for (index, delivery) in batch.iter().enumerate() {
            let first =
                delivery.key.is_none() || batch[..index].iter().all(|earlier| earlier.key != delivery.key);
            begun.push(first.then(|| begin(delivery)));
        }
        life.meet_trouble().await;
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
        for (index, (delivery, running)) in batch.iter().zip(begun).enumerate() {
            let failed_before = batch[..index].iter().zip(&outcomes).any(|(earlier, outcome)| {
                earlier.key.is_some() && earlier.key == delivery.key && *outcome != Outcome::Ack
            });
            if failed_before {
                outcomes.push(Outcome::Untried);
                continue;
            }
            let outcome = life.outcome();
            running.unwrap_or_else(|| begin(delivery)).finish(&outcome);
            outcomes.push(outcome);
        }
        outcomes
    }

    fn keeps_order(&self) -> bool {
        self.keeps_order
    }
}

/// Interferes with the store calls of one life.
struct Meddler(Arc<Life>);

impl Interference for Meddler {
    fn at(&self, moment: Moment) -> Passage {
        let life = Arc::clone(&self.0);
        Box::pin(async move { life.pass(moment).await })
    }

    fn loses_wake(&self) -> bool {
        self.0.world.roll(fastrand::Rng::f64) < self.0.world.plan.calls.lose_wake
    }
}

impl Life {
    async fn pass(&self, moment: Moment) -> postrider_core::Result<()> {
        if moment.member.is_some() {
            *self.member.lock().unwrap_or_else(PoisonError::into_inner) = moment.member;
        }
        // Before anything else can happen, so that the history has it in its place.
        match (moment.call, moment.when) {
            ("shards_take", When::After) => self.note_take_over(),
            ("sweep", When::After) => self.note_reaps(),
            ("queue_settle", When::After) => self.note_the_dead(),
            _ => {}
        }
        self.perhaps_crash().await;
        self.perhaps_cut_off().await;
        let world = &self.world;
        let odds = world.plan.calls;
        yields(world.roll(|rng| rng.u32(0..=odds.yields_max))).await;
        let fails = match moment.when {
            When::Before => odds.fail_before,
            When::After => odds.fail_after,
        };
        if !world.chance(fails) {
            return Ok(());
        }
        if moment.call == "settle_with" {
            // Its caller cannot know on which side of the commit it failed, and starts from the store again.
            world.history.fault(Fault::CommitUnknown, Some(self.incarnation));
        }
        Err(unavailable(moment))
    }

    async fn perhaps_cut_off(&self) {
        let world = &self.world;
        if world.chance(world.plan.cut_off) {
            let lasts = Duration::from_millis(world.roll(|rng| rng.u64(1..25_000)));
            let until = postrider_core::time::Clock::uptime(&world.clock) + lasts;
            self.cut_off_until.store(until.as_micros() as u64, Ordering::Relaxed);
        }
        let until = Duration::from_micros(self.cut_off_until.load(Ordering::Relaxed));
        let now = postrider_core::time::Clock::uptime(&world.clock);
        if let Some(left) = until.checked_sub(now) {
            tokio::time::sleep_until(Instant::now() + left).await;
        }
    }

    /// A lease that has run out explains repeated deliveries, whichever member held it.
    fn note_reaps(&self) {
        let world = &self.world;
        let now = world.store.reaps();
        if world.reaps.swap(now, Ordering::Relaxed) < now {
            world.history.fault(Fault::TakeOver, None);
        }
    }

    /// An event can die without a handler's word: if its workers end again and again.
    fn note_the_dead(&self) {
        let now: BTreeSet<_> = self.world.store.dead(SUBSCRIPTION).into_iter().collect();
        let mut known = self.world.dead.lock().unwrap_or_else(PoisonError::into_inner);
        for event in now.difference(&known) {
            let subject = Subject { subscription: SUBSCRIPTION.to_owned(), event: *event };
            self.world.history.record(Record::Died(subject));
        }
        *known = now;
    }

    /// A change of owner explains repeated deliveries only if the owner before it did not end in order.
    fn note_take_over(&self) {
        let world = &self.world;
        let now = world.store.take_overs();
        if world.take_overs.swap(now, Ordering::Relaxed) < now {
            world.history.fault(Fault::TakeOver, None);
        }
    }
}
