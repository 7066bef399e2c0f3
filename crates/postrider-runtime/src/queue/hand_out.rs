//! Handing events out, and taking note of what became of them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::QueueStore;
use tokio::task::{Id, JoinError};
use tracing::warn;

use super::{Finished, Queue, panicked};
use crate::breaker::{self, Permission};
use crate::handler::Handling;
use crate::lanes::{Attempted, HandOut};
use crate::leases::{Judge, Tally};
use crate::permits::Permit;

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
        let Some(permit) = self.leave.take() else { return false };
        let Some(out) = self.leases.hand_out(most, now) else { return false };
        if permission == Permission::One {
            self.breaker.probe();
        }
        let HandOut { ticket: out, deliveries } = out;
        let events = deliveries.len();
        let mut handling = Arc::clone(&self.handle).handle(deliveries, timeout);
        match self.in_place.begin(&mut handling) {
            Some(attempted) => self.finish_out(out, attempted, now),
            None => self.begin_task(out, events, handling, permit),
        }
        true
    }

    /// How many events one hand-out holds at the most.
    pub(super) fn batch_events(&self) -> usize {
        let shape = self.handle.shape();
        // Those that take one event at a time get one, however fast they are: in a run of several, one that is slow would
        // keep the others waiting behind it, and nobody else could take them.
        if shape.parts > 1 { shape.events } else { 1 }
    }

    #[cfg_attr(
        not(feature = "sabotage"),
        expect(unused_variables, reason = "only the planted bug counts them")
    )]
    fn begin_task(&mut self, out: usize, events: usize, handling: Handling, permit: Permit) {
        let out = Some(out);
        #[cfg(feature = "sabotage")]
        let out = self.ack_early(out, events);
        let task = self.tasks.spawn(async move {
            let attempted = handling.await;
            drop(permit);
            Finished { out, attempted }
        });
        if let Some(out) = out {
            self.under_way.insert(out, task);
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
        let acked = |attempted: &Attempted| attempted.outcome == postrider_core::Outcome::Ack;
        if !self.breaker.is_calm() || !attempted.iter().all(acked) {
            for (id, attempted) in self.leases.ids(out).into_iter().zip(&attempted) {
                if self.breaker.note(id, &attempted.outcome, now) {
                    breaker::tell(&self.origin.subscription, id, &attempted.outcome);
                }
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
        if tally.dead > 0 {
            warn!(
                subscription = self.origin.subscription,
                count = tally.dead,
                "gave events up as dead letters; see `postrider dead-letter list`"
            );
        }
    }
}
