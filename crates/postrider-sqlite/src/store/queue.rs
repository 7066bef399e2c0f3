//! Calls of workers in mode `queue`: feeding, claiming, settling and sweeping.

use std::sync::Arc;

use postrider_core::queue::{
    Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token,
};
use postrider_core::settle::{Hold, MemberId};
use postrider_core::store::{Cancelled, LetterId};
use postrider_core::{QueueStore, Result, Subscription};
use rusqlite::Transaction;

use crate::file::connection::Commit;
use crate::queue;
use crate::queue::claim::Claim;
use crate::queue::progress::progress_put_extended;
use crate::queue::sweep::{SweepTime, Sweepings};
use crate::store::SqliteStore;

impl QueueStore for SqliteStore {
    async fn fed(&self, hold: &Hold) -> Result<Fed> {
        let hold = hold.clone();
        self.read(move |tx| queue::feed::fed(tx, &hold)).await
    }

    async fn feed(&self, hold: &Hold, feed: Arc<Feed>) -> Result<Option<i64>> {
        let hold = hold.clone();
        self.write(Commit::Plain, move |tx| queue::feed::feed(tx, &hold, &feed)).await
    }

    async fn claim(&self, subscription: &Subscription, member: MemberId, ask: Ask) -> Result<Claimed> {
        let clock = Arc::clone(&self.inner.options.clock);
        let claim = Arc::new(Claim { subscription: subscription.clone(), member, ask, clock });
        let at = self.now();
        let looking = Arc::clone(&claim);
        let look = self.read(move |tx| looking.look(tx)).await?;
        if look.events == 0 {
            return Ok(Claimed { token: Token(0), at, rows: Vec::new(), paused: look.paused });
        }
        let lease = self.write(Commit::Flushed, move |tx| claim.take(tx)).await?;
        let rows = self.read(move |tx| queue::claim::load(tx, lease.rows)).await?;
        Ok(Claimed { token: lease.token, at: lease.at, rows, paused: lease.paused })
    }

    async fn extend(&self, tokens: Vec<Token>, progress: Vec<EventProgress>) -> Result<Vec<Extended>> {
        let clock = Arc::clone(&self.inner.options.clock);
        let extend = move |tx: &Transaction<'_>| {
            let extended = queue::claim::extend(tx, &tokens, clock.as_ref())?;
            progress_put_extended(tx, &progress, &extended, clock.now())?;
            Ok(extended)
        };
        self.write(Commit::Plain, extend).await
    }

    async fn queue_settle(
        &self,
        subscription: &Subscription,
        member: MemberId,
        settle: Arc<QueueSettle>,
    ) -> Result<QueueSettled> {
        let (subscription, now) = (subscription.clone(), self.now());
        let settle =
            move |tx: &Transaction<'_>| queue::settle::queue_settle(tx, &subscription, member, &settle, now);
        self.write(Commit::Plain, settle).await
    }

    async fn sweep(&self, subscription: &Subscription) -> Result<Swept> {
        let subscription = subscription.clone();
        let time = SweepTime { now: self.now(), uptime_us: self.uptime_us() };
        let looking = subscription.clone();
        let found = self.read(move |tx| Sweepings::look(tx, &looking, time)).await?;
        match found.nothing() {
            Some(swept) => Ok(swept),
            None => self.write(Commit::Plain, move |tx| queue::sweep::sweep(tx, &subscription, time)).await,
        }
    }

    async fn delivery_cancel(&self, letter: &LetterId, actor: &str) -> Result<Option<Cancelled>> {
        let (letter, auditor) = (letter.clone(), self.auditor(actor));
        self.change(move |tx| queue::cancel::delivery_cancel(tx, &letter, &auditor)).await
    }
}
