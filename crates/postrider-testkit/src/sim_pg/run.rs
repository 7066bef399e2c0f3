//! A seed from its beginning to its judgement.

use std::fmt;
use std::rc::Rc;

use super::flaw::Flaw;
use super::plan::Plan;
use super::producer;
use super::reader::Reader;
use super::subscriber;
use super::witness::Violation;
use super::world::{Actor, World};
use super::{Row, naive};

/// Turns after which a run that nothing disturbs any more must have come to rest.
const REST_WITHIN_TURNS: u32 = 400_000;

/// What a run that kept all promises did and met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is a count of what it is called")]
pub struct Report {
    pub events: u64,
    pub deliveries: u64,
    pub windows: u64,
    /// Windows with rows below the last id of the one before.
    pub stragglers: u64,
    /// Windows that were cut off.
    pub cut: u64,
    /// Times that a window waited for the disk.
    pub waits: u64,
    pub caught_up: u64,
    pub settles: u64,
    pub hand_overs: u64,
    pub parked: u64,
    /// Rows that a savepoint took back.
    pub undone: u64,
    pub prepared: u64,
    pub crashes: u64,
    /// Xids that a crash made the server issue again.
    pub reissued_xids: u64,
    /// Events that were visible and gone after a crash.
    pub vanished: u64,
    /// Times that the reading process died.
    pub restarts: u64,
    /// Times that it lost its connection.
    pub cut_offs: u64,
    pub rotated: u64,
    /// Rows that were removed with their leaves.
    pub removed: u64,
    /// Times that a subscription was moved back.
    pub seeks: u64,
}

impl Report {
    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        let Self { events, deliveries, windows, stragglers, cut, waits, caught_up, settles, parked, .. } =
            other;
        let Self {
            undone,
            prepared,
            crashes,
            reissued_xids,
            vanished,
            restarts,
            cut_offs,
            rotated,
            removed,
            hand_overs,
            seeks,
            ..
        } = other;
        self.events += events;
        self.deliveries += deliveries;
        self.windows += windows;
        self.stragglers += stragglers;
        self.cut += cut;
        self.waits += waits;
        self.caught_up += caught_up;
        self.settles += settles;
        self.parked += parked;
        self.undone += undone;
        self.prepared += prepared;
        self.crashes += crashes;
        self.reissued_xids += reissued_xids;
        self.vanished += vanished;
        self.restarts += restarts;
        self.cut_offs += cut_offs;
        self.rotated += rotated;
        self.removed += removed;
        self.hand_overs += hand_overs;
        self.seeks += seeks;
    }
}

/// A broken promise, with all that is needed to see it again.
#[derive(Debug)]
pub struct Broken {
    /// The plan, seed included.
    pub plan: Plan,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// What the run had met.
    pub report: Report,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {0} breaks a promise; run it again with POSTRIDER_SEED={0}", self.plan.seed)?;
        writeln!(f, "{:?}\n{:?}", self.plan, self.report)?;
        for violation in self.violations.iter().take(10) {
            writeln!(f, "{violation}")?;
        }
        Ok(())
    }
}

/// Runs a plan, with a mistake if there is one.
pub fn run(plan: &Plan, flaw: Option<Flaw>) -> Result<Report, Box<Broken>> {
    let plan = circumstances(plan, flaw);
    let world = World::new(&plan, flaw);
    let mut cast = Cast::new(&world);
    let at_rest = cast.play();
    drop(cast);
    if !at_rest {
        world.witness.borrow_mut().violations.push(Violation::Stuck);
    }
    judge(&world)
}

/// The plan under which a flaw can show itself.
fn circumstances(plan: &Plan, flaw: Option<Flaw>) -> Plan {
    let mut plan = plan.clone();
    if flaw == Some(Flaw::SettledByOlderXid) {
        // Its owner has a transaction open all the time.
        plan.seek = 0.0;
    }
    match flaw {
        // They have no memory to lose, and fail without.
        Some(Flaw::MaxIdCursor | Flaw::HorizonCursor) => {
            (plan.crash, plan.restart, plan.retention, plan.seek) = (0.0, 0.0, false, 0.0);
            plan.subscriptions.truncate(1);
        }
        // Where windows wait for the disk it does no harm.
        Some(Flaw::PositionOutlivesCrash) => {
            (plan.trust, plan.unflushed, plan.foreign, plan.crash) = (true, 0.0, 4, 0.003);
        }
        // Nor does this, but half of the seeds try it where nothing else stands in its way.
        Some(Flaw::SettledByOlderXid) if plan.seed % 2 == 1 => {
            (plan.trust, plan.unflushed, plan.foreign, plan.crash) = (true, 0.0, 4, 0.003);
        }
        Some(Flaw::MovedToNow) => (plan.seek, plan.retention) = (0.01, false),
        _ => {}
    }
    plan
}

fn judge(world: &World) -> Result<Report, Box<Broken>> {
    let pg = world.pg.borrow();
    let mut witness = world.witness.borrow_mut();
    witness.judge(&pg, |subscription, row: &Row| subscriber::wants(subscription)(row.key));
    let mut report = *world.report.borrow();
    report.events = pg.committed().count() as u64;
    report.deliveries = witness.deliveries();
    if witness.violations.is_empty() {
        return Ok(report);
    }
    let violations = std::mem::take(&mut witness.violations);
    Err(Box::new(Broken { plan: world.plan.clone(), violations, report }))
}

/// All who take part.
struct Cast {
    world: Rc<World>,
    /// Those who write to the log.
    writers: Vec<Actor>,
    /// Those who serve the server.
    servants: Vec<Actor>,
    /// The subscriptions of the reading processes.
    subscribers: Vec<Actor>,
    readers: Vec<Rc<Reader>>,
}

impl Cast {
    fn new(world: &Rc<World>) -> Self {
        let plan = &world.plan;
        let slowness = || if world.chance(plan.slow) { 0.95 } else { 0.0 };
        let mut writers: Vec<Actor> = (0..plan.producers)
            .map(|_| Actor::new(slowness(), producer::produce(Rc::clone(world))))
            .collect();
        writers
            .extend((0..plan.foreign).map(|_| Actor::new(slowness(), producer::elsewhere(Rc::clone(world)))));
        let mut servants = vec![
            Actor::new(0.0, producer::resolve(Rc::clone(world))),
            Actor::new(slowness().min(0.7), producer::flush(Rc::clone(world))),
        ];
        if plan.retention {
            servants.push(Actor::new(0.0, producer::keep_house(Rc::clone(world))));
        }
        let readers = Self::readers(world);
        let subscribers = Self::subscribers(world, &readers);
        Self { world: Rc::clone(world), writers, servants, subscribers, readers }
    }

    fn readers(world: &Rc<World>) -> Vec<Rc<Reader>> {
        (0..world.plan.members).map(|_| Reader::new(world)).collect()
    }

    fn subscribers(world: &Rc<World>, readers: &[Rc<Reader>]) -> Vec<Actor> {
        if matches!(world.flaw, Some(Flaw::MaxIdCursor | Flaw::HorizonCursor)) {
            return vec![Actor::new(0.0, naive::follow(Rc::clone(world)))];
        }
        let all = 0..world.plan.subscriptions.len();
        all.map(|number| {
            // Some are much slower than others, so that they fall behind the tail.
            let slowness = if world.chance(0.3) { 0.8 } else { 0.0 };
            Actor::new(slowness, subscriber::subscribe(Rc::clone(world), readers.to_vec(), number))
        })
        .collect()
    }

    /// Plays to the end; whether all came to rest.
    fn play(&mut self) -> bool {
        for _ in 0..self.world.plan.turns {
            self.go();
            if self.world.chance(self.world.plan.crash) {
                self.crash();
            }
            if self.world.chance(self.world.plan.restart) {
                self.restart();
            }
            if self.world.chance(self.world.plan.restart) {
                self.cut_off();
            }
        }
        self.world.ending.set(true);
        for _ in 0..REST_WITHIN_TURNS {
            self.go();
            let written = self.writers.is_empty() && self.world.pg.borrow().prepared().is_empty();
            let on_disk = || {
                let pg = self.world.pg.borrow();
                pg.flushed() >= pg.inserted()
            };
            if written && (self.world.quiet.get() || on_disk()) {
                self.world.quiet.set(true);
            }
            if self.subscribers.is_empty() {
                return true;
            }
        }
        false
    }

    /// The turn of a writer, a servant or a subscriber.
    fn go(&mut self) {
        let (writers, servants) = (self.writers.len(), self.servants.len());
        // Readers have half of the turns, however many they are.
        let readers = if self.subscribers.is_empty() { 0 } else { writers + servants };
        let which = self.world.below(writers + servants + readers);
        let (group, index) = if which < writers {
            (&mut self.writers, which)
        } else if which < writers + servants {
            (&mut self.servants, which - writers)
        } else {
            let index = self.world.below(self.subscribers.len());
            (&mut self.subscribers, index)
        };
        if group[index].go(&self.world) {
            drop(group.swap_remove(index));
        }
    }

    fn crash(&self) {
        let (xid, events) = {
            let pg = self.world.pg.borrow();
            (pg.next_xid().0, pg.committed().count())
        };
        let progress = self.world.pg.borrow().progress.clone();
        self.world.pg.borrow_mut().crash();
        if self.world.has(Flaw::PositionOutlivesCrash) {
            self.world.pg.borrow_mut().progress = progress;
        }
        let pg = self.world.pg.borrow();
        self.world.count(|report| {
            report.crashes += 1;
            report.reissued_xids += xid - pg.next_xid().0;
            report.vanished += events.saturating_sub(pg.committed().count()) as u64;
        });
    }

    /// A reader's connection is lost; those of its subscriptions, by which they settle, are not.
    fn cut_off(&self) {
        self.readers[self.world.below(self.readers.len())].disconnect();
        self.world.count(|report| report.cut_offs += 1);
    }

    fn restart(&mut self) {
        self.subscribers.clear();
        self.readers.iter().for_each(|reader| reader.disconnect());
        for number in 0..self.world.plan.subscriptions.len() {
            self.world.witness.borrow_mut().reloaded(number);
        }
        self.readers = Self::readers(&self.world);
        self.subscribers = Self::subscribers(&self.world, &self.readers);
        self.world.count(|report| report.restarts += 1);
    }
}
