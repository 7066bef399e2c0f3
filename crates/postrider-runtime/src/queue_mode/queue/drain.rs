//! The end of a worker's loop: nothing is begun, what has not begun is given back, what runs is finished or
//! cut off, all of it is settled.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::QueueSettle;
use postrider_core::{Error, ErrorKind, QueueStore, Result};
use tracing::{debug, warn};

use super::{End, Queue, SLOW_AFTER};
use crate::call::ends_worker;
use crate::context::{LAST_TRIES, LAST_TRY_WAIT};

impl<S: QueueStore> Queue<S> {
    /// Begins to end.
    pub(super) fn drain(&mut self, result: Result<()>) {
        if self.end.is_some() {
            return;
        }
        debug!(subscription = self.origin.subscription, "draining");
        self.end = Some(End { until: self.now() + self.context.drain_within, result });
        self.sweeping = None;
        self.context.fed.offer.close();
        self.leases.give_back(Duration::ZERO);
    }

    /// Whether the end of the feeder would be news.
    pub(super) fn awaits_feeder(&self) -> bool {
        self.context.until_idle && self.end.is_none() && !self.idle.fed
    }

    /// A worker that runs until nothing is left finds out whether that is so:
    ///
    /// 1. Everything that was committed before has been fed: the feeder has come to the end of the log, and
    ///    has ended.
    /// 2. A sweep that began after that has found no row whose time has come, no claim whose lease has run
    ///    out, and no lane that another worker had in hand.
    /// 3. With nothing in hand and nothing to settle, a claim that began after that has looked at everything,
    ///    not only where there was something to find lately, and has brought nothing.
    ///
    /// Whatever is settled after (2) or (3) puts them off. So each row that could be delivered would have
    /// been found by (3), unless another process has it in hand, which then sees to it.
    pub(super) fn look_for_the_end(&mut self) {
        if !self.context.until_idle || self.end.is_some() || !self.context.fed.over.is_cancelled() {
            return;
        }
        if self.breaker.is_open() {
            let name = &self.origin.subscription;
            let error = Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the receiver of subscription `{name}` is not available; nothing is lost, run it again later"
                ),
            );
            self.drain(Err(error));
        } else if !self.idle.fed {
            self.idle.fed = true;
            self.sweep_at = self.now();
        } else if self.is_idle() && !self.is_claiming() && self.leases.is_empty() && self.is_settled() {
            self.drain(Ok(()));
        }
    }

    /// Whether it is time to end.
    pub(super) fn is_over(&self) -> bool {
        let Some(end) = &self.end else { return false };
        let finished = self.tasks.is_empty() && !self.leases.is_running() && !self.is_claiming();
        (finished && self.is_settled()) || self.now() >= end.until
    }

    /// Ends in order. Bounded by the time-out of the drain and the tries of the last settle.
    pub(super) async fn finish(&mut self) -> Result<()> {
        self.summary.cut_off += self.under_way.len() as u64;
        // Dropped futures have ended before the last settle is composed, so that nothing of what it gives back is still
        // being tried.
        self.tasks.shutdown().await;
        for out in std::mem::take(&mut self.under_way).into_keys() {
            self.leases.abandon(out, self.now());
        }
        let pending = self.settling.take().map(|settling| settling.settle).or_else(|| self.resend.take());
        let last = Arc::new(self.leases.compose(self.now(), SLOW_AFTER));
        for settle in pending.into_iter().chain([last]) {
            if !self.settle_at_last(settle).await? {
                break;
            }
        }
        self.end.take().map_or(Ok(()), |end| end.result)
    }

    /// The subscription is gone, and all that was claimed with it.
    pub(super) fn lose_all(&mut self) {
        for token in self.leases.tokens() {
            self.lose(token);
        }
    }

    /// Whether it was settled. If the store does not take it, what it acks will be delivered again.
    async fn settle_at_last(&mut self, settle: Arc<QueueSettle>) -> Result<bool> {
        if settle.rows.is_empty() {
            return Ok(true);
        }
        let member = self.context.membership.borrow().member;
        for _ in 0..LAST_TRIES {
            match self.store.queue_settle(&self.subscription, member, Arc::clone(&settle)).await {
                Ok(_) => {
                    self.note_settled(&settle);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                Err(error) if ends_worker(&error, self.context.until_idle) => return Err(error),
                Err(error) => {
                    warn!(subscription = self.origin.subscription, %error, "could not settle; trying again");
                }
            }
            tokio::time::sleep(LAST_TRY_WAIT).await;
        }
        warn!(
            subscription = self.origin.subscription,
            "could not settle: the last events will be delivered again"
        );
        Ok(false)
    }
}
