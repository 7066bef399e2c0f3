//! Handing events out, and taking note of what became of them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Delivery, LogStore};

use super::{Call, Finished, Owner, RowCall, SLOW_AFTER};
use crate::dispatch::breaker::Permission;
use crate::dispatch::hand_out::{Attempted, Class, HandOut, Shape, Tally};
use crate::dispatch::handler::{Handle, Handling};
use crate::dispatch::permits::{Leave, Permit};
use crate::dispatch::worker::Work;

/// Hand-outs between two looks at everything else.
const BURST: usize = 256;

impl<S: LogStore> Owner<S> {
    /// Hands out what is ready and permitted. Returns whether there may be more.
    pub(super) fn hand_out(&mut self) -> bool {
        if self.drain_until.is_some() || self.paused || !self.context.membership.borrow().is_trusted() {
            return false;
        }
        // One look at the clock per burst: a burst of handlers that are begun in place takes microseconds.
        let now = self.now();
        if self.is_settle_overdue(now) {
            return false;
        }
        let work = self.work.clone();
        for _ in 0..BURST {
            let begun = match &work {
                Work::Tasks(handle) => self.begin_tasks(handle, now),
                Work::Transaction(make) => self.begin_work(&**make, now),
            };
            if !begun {
                return false;
            }
        }
        true
    }

    fn begin_tasks(&mut self, handle: &Arc<dyn Handle>, now: Duration) -> bool {
        let tuning = &self.hold.subscription.tuning;
        if !self.lanes.has_ready() || self.tasks.len() >= tuning.concurrency as usize {
            return false;
        }
        let timeout = tuning.timeout;
        let permission = self.breaker.permission(now);
        let shape = match permission {
            Permission::Freely => handle.shape(),
            Permission::One => Shape { events: 1, parts: 1, per_lane: 1 },
            Permission::Not { .. } => return false,
        };
        let out = self.next_out(shape, permission == Permission::One, now);
        self.count_buried();
        let Some((permit, out)) = out else { return false };
        if permission == Permission::One {
            self.breaker.probe();
        }
        let HandOut { ticket, mut deliveries } = out;
        for delivery in &mut deliveries {
            self.tell_epoch(delivery);
        }
        let events = deliveries.len();
        let mut handling = Arc::clone(handle).handle(deliveries, timeout);
        match self.in_place.begin(&mut handling) {
            Some(attempted) => self.finish(ticket, attempted, now),
            None => self.begin_task(ticket, events, handling, permit),
        }
        true
    }

    /// The next hand-out, of those whose turn it is or else of the others, with leave for it.
    fn next_out(&mut self, shape: Shape, probes: bool, now: Duration) -> Option<(Permit, HandOut)> {
        for class in self.lanes.turns(probes) {
            while self.lanes.has_ready_of(class) {
                let Some(permit) = self.leave_of(class).take() else { break };
                // What is ready may be parked by now, so that nothing comes of it.
                if let Some(out) = self.lanes.hand_out(class, shape, now) {
                    return Some((permit, out));
                }
            }
        }
        None
    }

    pub(super) fn leave_of(&mut self, class: Class) -> &mut Leave {
        match class {
            Class::Fresh => &mut self.leave,
            Class::Again => &mut self.leave_again,
        }
    }

    #[cfg_attr(
        not(feature = "sabotage"),
        expect(unused_variables, reason = "only the planted bug counts them")
    )]
    fn begin_task(&mut self, ticket: usize, events: usize, handling: Handling, permit: Permit) {
        let ticket = Some(ticket);
        #[cfg(feature = "sabotage")]
        let ticket = self.ack_early(ticket, events);
        self.tasks.spawn(async move {
            let attempted = handling.await;
            drop(permit);
            Finished { ticket, attempted }
        });
    }

    /// The planted bug: counts as delivered what has only been begun.
    #[cfg(feature = "sabotage")]
    fn ack_early(&mut self, ticket: Option<usize>, count: usize) -> Option<usize> {
        if self.context.sabotage != Some(crate::sabotage::Sabotage::AckEarly) {
            return ticket;
        }
        let acked = Attempted { outcome: postrider_core::Outcome::Ack, took: Duration::ZERO };
        self.finish(ticket?, vec![acked; count], self.now());
        None
    }

    /// Begins a transactional handler's work: the settle that acks its event, with everything else that can
    /// be settled by now.
    fn begin_work(&mut self, make: &(dyn Fn(Delivery) -> S::Work + Send + Sync), now: Duration) -> bool {
        if !matches!(self.row_call, RowCall::None) || self.resend.is_some() || !self.lanes.has_ready() {
            return false;
        }
        let permission = self.breaker.permission(now);
        if matches!(permission, Permission::Not { .. }) {
            return false;
        }
        let probes = permission == Permission::One;
        let out = self.lanes.hand_out_in_order(probes, now);
        self.count_buried();
        let Some(out) = out else { return false };
        if probes {
            self.breaker.probe();
        }
        let ticket = out.ticket;
        let settle = Arc::new(self.lanes.compose(now, SLOW_AFTER));
        let with_ack = Arc::new(self.lanes.with_ack((*settle).clone(), ticket));
        let Some(mut delivery) = out.deliveries.into_iter().next() else { return false };
        self.tell_epoch(&mut delivery);
        let work = make(delivery);
        let (store, hold) = (self.store.clone(), self.hold.clone());
        let call = Call::begin(async move { store.settle_with(&hold, with_ack, work).await });
        self.row_call = RowCall::Work { ticket, settle, began: now, call };
        true
    }

    /// For receivers that can tell a former owner by it.
    fn tell_epoch(&self, delivery: &mut Delivery) {
        delivery.epoch = self.sole_epoch.or_else(|| self.hold.epoch_of(&delivery.event));
    }

    pub(super) fn finish(&mut self, ticket: usize, attempted: Vec<Attempted>, now: Duration) {
        for Attempted { outcome, .. } in &attempted {
            if let Some(turn) = self.breaker.note(outcome, now) {
                self.failure_log.turned(turn, outcome);
            }
        }
        self.finished_at.get_or_insert(now);
        let rng = &mut self.rng;
        let tally = self.lanes.finish(ticket, attempted, now, &mut || rng.f64());
        self.count(tally);
    }

    /// Counts events that break a limit, and were not handed out.
    fn count_buried(&mut self) {
        let tally = self.lanes.take_buried();
        self.count(tally);
    }

    fn count(&mut self, tally: Tally) {
        self.summary.delivered += tally.delivered;
        self.summary.failed += tally.failed;
        self.summary.dead += tally.dead;
    }

    /// Writes to the log what has failed.
    pub(super) fn tell_failures(&mut self) {
        let (attempts_max, now) = (self.hold.subscription.tuning.retry.attempts(), self.now());
        self.failure_log.tell(&mut self.lanes.failures, attempts_max, now);
    }
}
