//! What the workers of a queue do with a store, and the connection and transaction each call runs in.
//!
//! ```text
//!   log ──feed──► queued ──claim──► queued + claim ──settle──► (gone), delivery: dead letters
//!        writer            claimer                   settler
//! ```
//!
//! Who waits for whom, beyond `lock.rs`: a settle locks its rows, then its claims, then buckets of lanes
//! (shared). A feed takes buckets alone, but only free ones, and never waits. A sweep passes over rows and
//! claims that other transactions have locked. A handler that acks in its own transaction locks its
//! row, then a bucket (shared), and never a claim, however long it takes to commit. So no transaction
//! that holds a lock here waits for another that is held longer than a statement takes. One exception: after
//! the limit of a key was lowered, a transaction that leaves a place empty has the bucket alone until it commits.

mod cancel;
mod claim;
mod feed;
pub(crate) mod floors;
pub(crate) mod hints;
pub(crate) mod lanes;
pub(crate) mod letters;
pub(crate) mod look;
mod progress;
mod rows;
mod settle;
mod sweep;

use std::sync::Arc;
use std::time::Instant;

use postrider_core::queue::{
    Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token,
};
use postrider_core::settle::{Hold, MemberId};
use postrider_core::store::{Cancelled, LetterId};
use postrider_core::{ErrorKind, Event, QueueStore, Result, Subscription};

use self::floors::Rest;
use crate::ownership::lock::blamed;
use crate::store::PostgresStore;
use crate::wake::tell;

/// How often a claim is tried whose token another claim has drawn in the same microsecond.
const CLAIM_TRIES: u32 = 5;

impl QueueStore for PostgresStore {
    async fn fed(&self, hold: &Hold) -> Result<Fed> {
        let mut session = self.inner.writer.session().await?;
        let tx = session.begin().await?;
        let fed = feed::fed(&tx, hold).await?;
        let lanes = lanes::lanes_headless(&tx, hold.subscription.id).await?;
        let lanes = lanes.into_iter().map(Rest::all).collect();
        let ready = lanes::lanes_mend(&tx, &hold.subscription, lanes).await?;
        tx.commit("look at a queue").await?;
        self.inner.hints.lower(hold.subscription.id, &ready.ready);
        self.inner.hints.unsure(hold.subscription.id, ready.left);
        Ok(fed)
    }

    async fn feed(&self, hold: &Hold, feed: Arc<Feed>) -> Result<Option<i64>> {
        let done = feed::feed(&self.inner, hold, &feed, None).await;
        let done = blamed(done, &self.inner.operator).await?;
        self.inner.wake.notify_waiters();
        Ok(done.front)
    }

    async fn feed_and_claim(
        &self,
        hold: &Hold,
        feed: Arc<Feed>,
        events: Vec<Arc<Event>>,
        ask: Ask,
    ) -> Result<(Option<i64>, Result<Claimed>)> {
        // This wakes no worker: the worker beside the feeder has the answer.
        let done = feed::feed(&self.inner, hold, &feed, Some(ask)).await?;
        let claimed = match done.claim {
            Some((claim, rows)) => {
                let known = events.into_iter().map(|event| (event.id, event)).collect();
                claim::claimed(&self.inner, &hold.subscription, &claim, &rows, known).await
            }
            None => self.claim(&hold.subscription, hold.member, ask).await,
        };
        Ok((done.front, claimed))
    }

    async fn claim(&self, subscription: &Subscription, member: MemberId, ask: Ask) -> Result<Claimed> {
        let mut tries = 0;
        loop {
            tries += 1;
            match claim::claim(&self.inner, subscription, member, ask).await {
                Err(error) if error.kind() == ErrorKind::Conflict && tries < CLAIM_TRIES => {}
                claimed => return claimed,
            }
        }
    }

    async fn extend(&self, tokens: Vec<Token>, progress: Vec<EventProgress>) -> Result<Vec<Extended>> {
        let mut session = self.inner.keeper.session().await?;
        let tx = session.begin().await?;
        let extended = claim::extend(&tx, &tokens).await?;
        let lasts = |noted: &&EventProgress| extended.iter().any(|claim| claim.token == noted.token);
        progress::progress_put(&tx, progress.iter().filter(lasts)).await?;
        tx.commit("extend leases").await?;
        Ok(extended)
    }

    async fn queue_settle(
        &self,
        subscription: &Subscription,
        member: MemberId,
        settle: Arc<QueueSettle>,
    ) -> Result<QueueSettled> {
        let mut session = self.inner.settler.session().await?;
        let tx = session.begin().await?;
        let applied = match settle::settle_apply(&tx, subscription, member, &settle).await {
            Ok(applied) => applied,
            Err(error) => return blamed(Err(error), &self.inner.operator).await,
        };
        tx.commit("settle").await?;
        if applied.acked {
            // What a handler's transaction has made ready lies behind the front, wherever that is.
            self.inner.hints.look_again(subscription.id);
        }
        if applied.acked || !applied.ready.is_empty() {
            self.inner.hints.lower(subscription.id, &applied.ready);
            self.inner.wake.notify_waiters();
        }
        Ok(applied.settled)
    }

    async fn sweep(&self, subscription: &Subscription) -> Result<Swept> {
        let id = subscription.id;
        let hints = &self.inner.hints;
        let (unsure, due_from) = (hints.unsure_lanes(id), hints.due_from(id, Instant::now()));
        let mut session = self.inner.settler.session().await?;
        let rests = self.inner.floors.of_sweep(session.id(), id, &unsure);
        let tx = session.begin().await?;
        let cleaned = sweep::sweep(&tx, subscription, rests, due_from).await?;
        tx.commit("sweep a queue").await?;
        hints.sure(id, &unsure, &cleaned.left);
        hints.came_due(id, due_from, cleaned.due_from);
        if !cleaned.ready.is_empty() {
            hints.lower(id, &cleaned.ready);
            self.inner.wake.notify_waiters();
        }
        Ok(cleaned.swept)
    }

    async fn delivery_cancel(&self, letter: &LetterId, actor: &str) -> Result<Option<Cancelled>> {
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        let cancelled = cancel::delivery_cancel(&tx, letter, actor).await?;
        tell(&tx).await?;
        tx.commit("cancel a delivery").await?;
        self.inner.wake.notify_waiters();
        Ok(cancelled)
    }
}
