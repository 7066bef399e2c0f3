//! The end of an owner's loop: nothing is begun, what runs is finished or cut off, progress is settled,
//! ownership is given back.

use std::sync::Arc;

use postrider_core::settle::Settle;
use postrider_core::{Error, ErrorKind, LogStore, Result};
use tracing::warn;

use super::{Ended, Owner, RowCall};
use crate::call::ends_worker;
use crate::context::{LAST_TRIES, LAST_TRY_WAIT};

impl<S: LogStore> Owner<S> {
    /// Whether it is time to end.
    pub(super) fn is_over(&self) -> Result<bool> {
        let settled = matches!(self.row_call, RowCall::None) && self.resend.is_none();
        if let Some(until) = self.drain_until {
            let finished = self.tasks.is_empty() && !self.lanes.is_running();
            return Ok((settled && finished) || self.now() >= until);
        }
        if !self.context.until_idle {
            return Ok(false);
        }
        if self.breaker.is_open() {
            let name = &self.origin.subscription;
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the receiver of subscription `{name}` is not available; nothing is lost, run it again later"
                ),
            ));
        }
        let delivered = self.reader.at_end && self.nothing_due && self.lanes.is_empty();
        // What is in memory of a paused subscription stays above the mark.
        let halted = self.paused && !self.lanes.is_running();
        Ok((delivered || halted) && settled && self.reader.fetching.is_none() && self.tasks.is_empty())
    }

    /// Ends in order. Bounded by the time-out of the drain and the tries of the last settle.
    pub(super) async fn end(&mut self) -> Result<Ended> {
        self.summary.cut_off += self.tasks.len() as u64;
        // Dropped futures have ended before the last settle is composed, so that nothing of what it calls
        // not tried is still being tried.
        self.tasks.shutdown().await;
        let pending = match std::mem::replace(&mut self.row_call, RowCall::None) {
            RowCall::Settle { settle, .. } => Some(settle),
            // Whether its work was committed only the store knows; its event stays above the mark.
            RowCall::Work { .. } => return Ok(Ended::Drained),
            RowCall::Due(_) | RowCall::None => self.resend.take(),
        };
        let last = Arc::new(self.lanes.compose_last(self.now()));
        for settle in pending.into_iter().chain([last]) {
            if !self.settle_at_last(settle).await? {
                return Ok(Ended::Drained);
            }
        }
        if let Err(error) = self.store.shards_release(&self.hold).await {
            warn!(subscription = self.origin.subscription, %error, "could not give ownership back");
        }
        Ok(Ended::Drained)
    }

    /// Whether it was settled. If the store does not take it, what it acks will be delivered again.
    async fn settle_at_last(&mut self, settle: Arc<Settle>) -> Result<bool> {
        if settle.is_empty() {
            return Ok(true);
        }
        for _ in 0..LAST_TRIES {
            match self.store.settle(&self.hold, Arc::clone(&settle)).await {
                Ok(settled) => {
                    self.lanes.settled(&settled);
                    return Ok(true);
                }
                Err(error) if error.is_fenced() => return Ok(false),
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
