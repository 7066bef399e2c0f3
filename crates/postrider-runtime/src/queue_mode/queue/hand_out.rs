//! Handing events out, and taking note of what became of them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::QueueStore;
use tokio::task::{Id, JoinError};

use super::{Finished, Queue, UnderWay, panicked};
use crate::dispatch::breaker::Permission;
use crate::dispatch::hand_out::{Attempted, Class, HandOut, Tally};
use crate::dispatch::handler::Handling;
use crate::dispatch::permits::{Leave, Permit, places_again};
use crate::queue_mode::leases::Judge;

/// Hand-outs between two looks at everything else.
const BURST: usize = 256;

impl<S: QueueStore> Queue<S> {
    /// Hands out what is ready and permitted. Returns whether there may be more.
    pub(super) fn hand_out(&mut self) -> bool {
        // One look at the clock per burst: a burst of handlers that are begun in place takes microseconds.
        let now = self.now();
        if self.end.is_some() || self.paused || !self.aborted.is_empty() {
            return false;
        }
        (0..BURST).all(|_| self.begin_one(now))
    }

    fn begin_one(&mut self, now: Duration) -> bool {
        let tuning = &self.subscription.tuning;
        if !self.leases.has_ready(now) || self.under_way.len() >= tuning.concurrency as usize {
            return false;
        }
        let timeout = tuning.timeout;
        let permission = self.breaker.permission(now);
        let most = match permission {
            Permission::Freely => self.batch_events(),
            Permission::One => 1,
            Permission::Not { until } => {
                // Others may reach the receiver. If they cannot either, it is left alone for as long.
                let wait = until.map_or(Duration::ZERO, |until| until.saturating_sub(now));
                self.leases.give_back(wait);
                return false;
            }
        };
        let probes = permission == Permission::One;
        let Some((class, permit, out)) = self.next_out(most, probes, now) else { return false };
        if probes {
            self.breaker.probe();
        }
        let HandOut { ticket: out, deliveries } = out;
        let events = deliveries.len();
        let mut handling = Arc::clone(&self.handle).handle(deliveries, timeout);
        match self.in_place.begin(&mut handling) {
            Some(attempted) => self.finish_out(out, attempted, now),
            None => self.begin_task((out, class), events, handling, permit),
        }
        true
    }

    /// The next hand-out, of those whose turn it is or else of the others, with leave for it.
    fn next_out(&mut self, most: usize, probes: bool, now: Duration) -> Option<(Class, Permit, HandOut)> {
        for class in self.leases.turns(probes) {
            let has_place = class == Class::Fresh || self.places_again() > 0;
            if !has_place || !self.leases.has_ready_of(class, now) {
                continue;
            }
            let Some(permit) = self.leave_of(class).take() else { continue };
            if let Some(out) = self.leases.hand_out(most, class, now) {
                return Some((class, permit, out));
            }
        }
        None
    }

    /// How many more hand-outs of what has failed before may begin.
    pub(super) fn places_again(&self) -> usize {
        let most = places_again(self.subscription.tuning.concurrency) as usize;
        let taken = self.under_way.values().filter(|under_way| under_way.class == Class::Again).count();
        most.saturating_sub(taken).min(self.context.again.available())
    }

    pub(super) fn leave_of(&mut self, class: Class) -> &mut Leave {
        match class {
            Class::Fresh => &mut self.leave,
            Class::Again => &mut self.leave_again,
        }
    }

    /// How many events one hand-out holds at the most.
    pub(super) fn batch_events(&self) -> usize {
        let shape = self.handle.shape();
        // A handler that takes one event at a time gets one, however fast it is. In a run of several, a slow
        // event would keep the others waiting behind it, and no other task or worker could take them.
        if shape.parts > 1 { shape.events } else { 1 }
    }

    #[cfg_attr(
        not(feature = "sabotage"),
        expect(unused_variables, reason = "only the planted bug counts them")
    )]
    fn begin_task(
        &mut self,
        (out, class): (usize, Class),
        events: usize,
        handling: Handling,
        permit: Permit,
    ) {
        let out = Some(out);
        #[cfg(feature = "sabotage")]
        let out = self.ack_early(out, events);
        let task = self.tasks.spawn(async move {
            let attempted = handling.await;
            drop(permit);
            Finished { out, attempted }
        });
        if let Some(out) = out {
            self.under_way.insert(out, UnderWay { task, class });
        }
    }

    /// The planted bug: counts as delivered what has only been begun.
    #[cfg(feature = "sabotage")]
    fn ack_early(&mut self, out: Option<usize>, count: usize) -> Option<usize> {
        if self.context.sabotage != Some(crate::sabotage::Sabotage::AckEarly) {
            return out;
        }
        let acked = Attempted { outcome: postrider_core::Outcome::Ack, took: Duration::ZERO };
        self.finish_out(out?, vec![acked; count], self.now());
        None
    }

    /// A task has ended.
    pub(super) fn ended(&mut self, ended: Result<(Id, Finished), JoinError>) -> postrider_core::Result<()> {
        match ended {
            // Its hand-out is over already, whatever it says.
            Ok((id, _)) if self.aborted.remove(&id) => {}
            Err(error) if self.aborted.remove(&error.id()) => {}
            Err(error) => return Err(panicked(&error)),
            Ok((_, Finished { out, attempted })) => {
                if let Some(out) = out {
                    self.under_way.remove(&out);
                    self.ending.remove(&out);
                    self.finish_out(out, attempted, self.now());
                }
            }
        }
        Ok(())
    }

    fn finish_out(&mut self, out: usize, attempted: Vec<Attempted>, now: Duration) {
        for Attempted { outcome, .. } in &attempted {
            if let Some(turn) = self.breaker.note(outcome, now) {
                self.failure_log.turned(turn, outcome);
            }
        }
        let wait = match self.breaker.permission(now) {
            Permission::Not { until: Some(until) } => until.saturating_sub(now),
            _ => Duration::ZERO,
        };
        let rng = &mut self.rng;
        let mut judge = Judge { now, roll: &mut || rng.f64(), wait };
        let tally = self.leases.finish(out, attempted, &mut judge);
        self.count(tally);
    }

    pub(super) fn count(&mut self, tally: Tally) {
        self.summary.delivered += tally.delivered;
        self.summary.failed += tally.failed;
        self.summary.dead += tally.dead;
    }

    /// Writes to the log what has failed.
    pub(super) fn tell_failures(&mut self) {
        let (attempts_max, now) = (self.subscription.tuning.retry.attempts(), self.now());
        self.failure_log.tell(&mut self.leases.failures, attempts_max, now);
    }
}
