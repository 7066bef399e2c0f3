//! Who takes part in a run, and whose turn it is.
//!
//! Everybody is a future that gives way between two moments of the server. Whose turn is next is a matter
//! of the seed.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::SimPg;
use super::flaw::Flaw;
use super::plan::Plan;
use super::run::Report;
use super::witness::Witness;

/// Everything that takes part in a run shares.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) flaw: Option<Flaw>,
    pub(super) pg: RefCell<SimPg>,
    pub(super) rng: RefCell<fastrand::Rng>,
    pub(super) witness: RefCell<Witness>,
    pub(super) report: RefCell<Report>,
    /// From here on no task begins anything new and nothing goes wrong.
    pub(super) ending: Cell<bool>,
    /// From here on nothing is written to the log any more, and all of it is on disk.
    pub(super) quiet: Cell<bool>,
    /// Subscriptions that exist.
    pub(super) created: Cell<usize>,
}

impl World {
    pub(super) fn new(plan: &Plan, flaw: Option<Flaw>) -> Rc<Self> {
        Rc::new(Self {
            flaw,
            pg: RefCell::new(SimPg::new(plan.first_xid)),
            rng: RefCell::new(fastrand::Rng::with_seed(plan.seed)),
            witness: RefCell::new(Witness::new(plan.subscriptions.len())),
            report: RefCell::default(),
            ending: Cell::new(false),
            quiet: Cell::new(false),
            created: Cell::new(0),
            plan: plan.clone(),
        })
    }

    pub(super) fn chance(&self, probability: f64) -> bool {
        self.rng.borrow_mut().f64() < probability
    }

    pub(super) fn below(&self, end: usize) -> usize {
        self.rng.borrow_mut().usize(0..end)
    }

    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) fn count(&self, by: impl FnOnce(&mut Report)) {
        by(&mut self.report.borrow_mut());
    }

    /// Lets others go before for a while.
    pub(super) async fn dawdle(&self, turns_max: usize) {
        for _ in 0..self.below(turns_max + 1) {
            turn().await;
        }
    }
}

/// Gives way: others may have any number of turns before this returns.
pub(super) fn turn() -> impl Future<Output = ()> {
    let mut given = false;
    poll_fn(move |_| if std::mem::replace(&mut given, true) { Poll::Ready(()) } else { Poll::Pending })
}

/// One who takes part.
pub(super) struct Actor {
    future: Pin<Box<dyn Future<Output = ()>>>,
    /// Share of turns that it lets pass.
    slowness: f64,
}

impl Actor {
    pub(super) fn new(slowness: f64, future: impl Future<Output = ()> + 'static) -> Self {
        Self { future: Box::pin(future), slowness }
    }

    /// Its turn, if it takes it; whether it has come to its end.
    pub(super) fn go(&mut self, world: &World) -> bool {
        if self.slowness > 0.0 && world.chance(self.slowness) {
            return false;
        }
        let mut context = Context::from_waker(Waker::noop());
        self.future.as_mut().poll(&mut context).is_ready()
    }
}
