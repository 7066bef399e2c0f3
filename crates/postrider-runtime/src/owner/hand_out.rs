//! Handing events out, and taking note of what became of them.

use std::sync::Arc;
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

use postrider_core::{Delivery, LogStore};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::warn;

use super::{Finished, Owner, RowCall, SLOW_AFTER, spawn};
use crate::breaker::Permission;
use crate::handler::Handle;
use crate::lanes::{Attempted, HandOut, Shape};
use crate::worker::Work;

/// Hand-outs between two looks at everything else.
const BURST: usize = 256;
/// A handler that needs more than this before its first await runs on a task of its own from the start, so
/// that several cores can share the work; a cheaper one is begun in place, which saves the task.
const INLINE_COST_MAX: Duration = Duration::from_micros(20);
/// How often the cost is measured again.
const INLINE_PROBE_EVERY: u64 = 64;

impl<S: LogStore> Owner<S> {
    /// Hands out what is ready and permitted. Returns whether there may be more.
    pub(super) fn hand_out(&mut self) -> bool {
        if self.drain_until.is_some() || self.paused || !self.context.membership.borrow().is_trusted() {
            return false;
        }
        for _ in 0..BURST {
            let begun = match self.work.clone() {
                Work::Tasks(handle) => self.begin_tasks(&handle),
                Work::Transaction(make) => self.begin_work(&*make),
            };
            if !begun {
                return false;
            }
        }
        true
    }

    fn begin_tasks(&mut self, handle: &Arc<dyn Handle>) -> bool {
        let tuning = &self.hold.subscription.tuning;
        if !self.lanes.has_ready() || self.tasks.len() >= tuning.concurrency as usize {
            return false;
        }
        let timeout = tuning.timeout;
        let now = self.now();
        let permission = self.breaker.permission(now);
        let shape = match permission {
            Permission::Freely => handle.shape(),
            Permission::One => Shape { events: 1, parts: 1, per_lane: 1 },
            Permission::Not { .. } => return false,
        };
        let Ok(permit) = self.permit() else { return false };
        let Some(out) = self.lanes.hand_out(shape, now) else { return self.lanes.has_ready() };
        if permission == Permission::One {
            self.breaker.probe();
        }
        let ticket = out.ticket;
        let deliveries = self.deliveries(out);
        self.begin_task(handle, ticket, deliveries, timeout, permit);
        true
    }

    /// Begins a hand-out in place, or on a task of its own if it does not finish at once.
    fn begin_task(
        &mut self,
        handle: &Arc<dyn Handle>,
        ticket: usize,
        deliveries: Vec<Delivery>,
        timeout: Duration,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let count = deliveries.len();
        let mut handling = Arc::clone(handle).handle(deliveries, timeout);
        self.begun += 1;
        if self.inline_cost < INLINE_COST_MAX || self.begun.is_multiple_of(INLINE_PROBE_EVERY) {
            let began = Instant::now();
            // The waker is of no account: if it is not done at once, the task polls it again.
            let polled = handling.as_mut().poll(&mut PollContext::from_waker(Waker::noop()));
            self.inline_cost = (self.inline_cost * 7 + began.elapsed() / count.max(1) as u32) / 8;
            if let Poll::Ready(attempted) = polled {
                self.finish(ticket, attempted);
                return;
            }
        }
        let ticket = Some(ticket);
        #[cfg(feature = "sabotage")]
        let ticket = self.ack_early(ticket, count);
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
        self.finish(ticket?, vec![acked; count]);
        None
    }

    /// Begins a transactional handler's work: the settle that acks its event, with everything else that can
    /// be settled by now.
    fn begin_work(&mut self, make: &(dyn Fn(Delivery) -> S::Work + Send + Sync)) -> bool {
        if !matches!(self.row_call, RowCall::None) || self.resend.is_some() || !self.lanes.has_ready() {
            return false;
        }
        let now = self.now();
        let permission = self.breaker.permission(now);
        if matches!(permission, Permission::Not { .. }) {
            return false;
        }
        let Some(out) = self.lanes.hand_out_in_order(now) else { return false };
        if permission == Permission::One {
            self.breaker.probe();
        }
        let ticket = out.ticket;
        let settle = Arc::new(self.lanes.compose(now, SLOW_AFTER));
        let with_ack = Arc::new(self.lanes.with_ack((*settle).clone(), ticket));
        let Some(delivery) = self.deliveries(out).pop() else { return false };
        let work = make(delivery);
        let (store, hold) = (self.store.clone(), self.hold.clone());
        let call = spawn(async move { store.settle_with(&hold, with_ack, work).await });
        self.row_call = RowCall::Work { ticket, settle, began: now, call };
        true
    }

    fn deliveries(&self, out: HandOut) -> Vec<Delivery> {
        let origin = |(event, attempt)| Delivery { event, attempt, origin: Arc::clone(&self.origin) };
        out.events.into_iter().map(origin).collect()
    }

    /// A permit of the limit over all workers, if there is such a limit.
    fn permit(&mut self) -> Result<Option<OwnedSemaphorePermit>, ()> {
        let Some(everywhere) = &self.context.everywhere else { return Ok(None) };
        if let Some(permit) = self.permit.take() {
            return Ok(Some(permit));
        }
        Arc::clone(everywhere).try_acquire_owned().map(Some).map_err(|_| self.permit_wanted = true)
    }

    pub(super) fn finish(&mut self, ticket: usize, attempted: Vec<Attempted>) {
        let now = self.now();
        let acked = |attempted: &Attempted| attempted.outcome == postrider_core::Outcome::Ack;
        if !self.breaker.is_calm() || !attempted.iter().all(acked) {
            for (id, attempted) in self.lanes.ids(ticket).into_iter().zip(&attempted) {
                if self.breaker.note(id, &attempted.outcome, now) {
                    warn!(
                        subscription = self.origin.subscription,
                        event = id.0,
                        "the receiver fails: fewer events are handed out until it recovers"
                    );
                }
            }
        }
        let rng = &mut self.rng;
        let tally = self.lanes.finish(ticket, attempted, now, &mut || rng.f64());
        self.summary.delivered += tally.delivered;
        self.summary.failed += tally.failed;
        self.summary.dead += tally.dead;
        if tally.dead > 0 {
            warn!(
                subscription = self.origin.subscription,
                count = tally.dead,
                "gave events up as dead letters; see `postrider dead-letter list`"
            );
        }
    }
}
