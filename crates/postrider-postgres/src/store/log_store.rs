//! What workers do with a store, and the connection and transaction each call runs in.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::balance::Survey;
use postrider_core::log::ShardPosition;
use postrider_core::settle::{Chunk, DueRows, Hold, MemberId, Room, Settle, Settled, Taken};
use postrider_core::store::{Pace, Watch};
use postrider_core::{EventId, Failure, LogStore, Position, Result, ShardSet};
use tracing::info;

use crate::error::Doing;
use crate::log::fetch;
use crate::log::holding::Sessions;
use crate::ownership::fence::{Standing, fence, lost};
use crate::ownership::lock::{blamed, lock_settle};
use crate::ownership::{member, shard};
use crate::server::identity::identify;
use crate::server::self_test;
use crate::server::session::{Session, Tx};
use crate::server::values::XidValue;
use crate::settle::due;
use crate::settle::settle_apply;
use crate::settle::work::{Work, work_do};
use crate::store::{Inner, PostgresStore};
use crate::wake::wake_get;
use crate::wal::Wal;

impl LogStore for PostgresStore {
    type Work = Work;

    fn pace(&self) -> Pace {
        Pace {
            // One small row each time, and no flush.
            settle_every: Duration::from_millis(100),
            // A look takes the server about 70 µs, and as long again to be sent and answered.
            poll_min: Duration::from_micros(50),
            // A quiet store is asked ten times a second: less than half a percent of a core on either side.
            poll_max: Duration::from_millis(100),
            rest_max: Some(self.inner.options.rest_max),
            lease: self.inner.options.lease,
        }
    }

    async fn member_join(&self, name: &str) -> Result<MemberId> {
        let mut session = self.inner.keeper.session().await?;
        self_test::run(&mut session).await?;
        let tx = session.begin().await?;
        let member = member::member_join(&tx, name, self.inner.options.lease).await?;
        let wake = wake_get(&tx).await?;
        tx.commit("register this process").await?;
        info!(store = %self.inner.options, name, wake = wake.word(), "joined");
        Ok(member)
    }

    async fn member_beat(&self, member: MemberId) -> Result<()> {
        let mut session = self.inner.keeper.session().await?;
        let tx = session.begin().await?;
        member::member_beat(&tx, member).await?;
        tx.commit("renew the lease").await
    }

    async fn member_leave(&self, member: MemberId) -> Result<()> {
        let mut session = self.inner.keeper.session().await?;
        let tx = session.begin().await?;
        member::member_leave(&tx, member).await?;
        tx.commit("forget a member").await?;
        drop(session);
        self.inner.sentry.leave().await;
        Ok(())
    }

    async fn shards_survey(&self, subscription: &str, member: MemberId, stands: bool) -> Result<Survey> {
        let mut session = self.inner.keeper.session().await?;
        let tx = session.begin().await?;
        let survey = shard::survey(&tx, subscription, member, stands).await?;
        tx.commit("find who holds the shards").await?;
        Ok(survey)
    }

    async fn shards_take(
        &self,
        subscription: &str,
        member: MemberId,
        wanted: ShardSet,
    ) -> Result<Option<Taken>> {
        // Both connections are there before anything is read under them.
        let reader = self.inner.reader.session().await?;
        let mut session = self.inner.writer.session().await?;
        let sessions = Sessions { reader: reader.id(), writer: session.id() };
        let tx = session.begin().await?;
        // On the server on which the shards are: a lost connection may be all that is seen of a failover.
        let id = identify(&tx, &self.inner.options).await?;
        if id != self.inner.identity.get() {
            // It may have been made just now, and goes into the world with the first event.
            tx.run("set local synchronous_commit = on", "begin under a new identity").await?;
        }
        let taken = shard::shards_take(&tx, subscription, member, wanted, sessions).await?;
        tx.commit("take a subscription's shards").await?;
        self.inner.identity.set(id, &self.inner.options);
        Ok(taken.map(|(taken, holding)| {
            self.inner.holdings.put(&taken.hold, holding);
            self.inner.wal.iter().for_each(Wal::want);
            taken
        }))
    }

    async fn shards_release(&self, hold: &Hold) -> Result<()> {
        let mut session = self.inner.writer.session().await?;
        let tx = session.begin().await?;
        shard::shards_release(&tx, hold).await?;
        tx.commit("give shards back").await?;
        self.inner.holdings.forget(hold);
        Ok(())
    }

    async fn fetch(&self, hold: &Hold, after: Position, room: Room) -> Result<Chunk> {
        fetch::fetch(&self.inner, hold, after, room).await
    }

    async fn fetch_due(&self, hold: &Hold, loaded: HashSet<EventId>, room: Room) -> Result<DueRows> {
        due::fetch_due(&self.inner, hold, &loaded, room).await
    }

    async fn settle(&self, hold: &Hold, settle: Arc<Settle>) -> Result<Settled> {
        blamed(self.inner.settle(hold, &settle).await, &self.inner.operator).await
    }

    async fn settle_with(
        &self,
        hold: &Hold,
        settle: Arc<Settle>,
        work: Work,
    ) -> Result<Result<Settled, Failure>> {
        let mut session = self.inner.worker.session().await?;
        let writer = self.inner.join_worker(hold, &session).await?;
        let (reached, known) = self.inner.mark_of(hold, settle.mark, writer)?;
        let mut tx = session.begin().await?;
        let standing = fenced(&tx, hold, known).await?;
        let number = xact_id(&tx).await?;
        if let Err(failure) = work_do(work, tx.inner()).await {
            tx.rollback("undo a handler's work").await?;
            return Ok(Err(failure));
        }
        match xact_id(&tx).await {
            Ok(found) if found == number => {}
            Ok(_) => {
                // Its writes may be committed already; another attempt would make them again.
                return Ok(Err(Failure::permanent(
                    "the handler has ended the transaction that it was given: it must leave that to Postrider",
                )));
            }
            // A statement of the handler has failed, and it went on as if not.
            Err(error) => return Ok(Err(Failure::retry(error.to_string()))),
        }
        let settled = settle_apply(&tx, hold, &settle, &reached).await?;
        tx.commit("commit a transactional handler").await?;
        self.inner.marked(hold, settle.mark, standing)?;
        Ok(Ok(settled))
    }

    async fn wake(&self) {
        let told = self.inner.wake.notified();
        match &self.inner.wal {
            None => told.await,
            Some(wal) => tokio::select! {
                () = told => {}
                () = wal.news() => {}
            },
        }
    }

    async fn watch(&self) -> Option<Watch> {
        self.inner.sentry.watch(&self.inner).await
    }
}

/// Keeps ownership from changing until the transaction ends, and refuses an owner that is none any more.
async fn fenced(tx: &Tx<'_>, hold: &Hold, known: i64) -> Result<Standing> {
    lock_settle(tx, hold.subscription.id, hold.member).await?;
    fence(tx, hold, known).await
}

async fn xact_id(tx: &Tx<'_>) -> Result<u64> {
    let what = "ask for the transaction's number";
    let row = tx.query_one(sql!("store/xact_id"), &[], what).await?;
    Ok(row.try_get::<_, XidValue>(0).doing(what)?.0.0)
}

impl Inner {
    /// Where shards stand by a mark, if it moves forward, and the fence as this hold knows it. Fenced if the hold is of
    /// another connection than `writer`.
    pub(crate) fn mark_of(
        &self,
        hold: &Hold,
        mark: Option<Position>,
        writer: u64,
    ) -> Result<(Vec<ShardPosition>, i64)> {
        self.holdings.with(hold, |holding| {
            if !holding.is_of_writer(writer) {
                return Err(lost(hold));
            }
            let moved = mark.filter(|mark| holding.settled.is_none_or(|settled| settled < *mark));
            let reached = match moved {
                Some(mark) => holding.reached(mark).ok_or_else(|| lost(hold))?,
                None => Vec::new(),
            };
            Ok((reached, holding.standing.fence))
        })?
    }

    /// Notes how far a position was moved.
    pub(crate) fn marked(&self, hold: &Hold, mark: Option<Position>, standing: Standing) -> Result<()> {
        self.holdings.with(hold, |holding| {
            holding.standing = standing;
            if let Some(mark) = mark {
                holding.settle(mark);
            }
        })
    }

    async fn settle(&self, hold: &Hold, settle: &Settle) -> Result<Settled> {
        let mut session = self.writer.session().await?;
        let (reached, known) = self.mark_of(hold, settle.mark, session.id())?;
        let tx = session.begin().await?;
        let standing = fenced(&tx, hold, known).await?;
        let settled = settle_apply(&tx, hold, settle, &reached).await?;
        tx.commit("settle").await?;
        self.marked(hold, settle.mark, standing)?;
        Ok(settled)
    }

    /// Makes sure that the connection for handlers is of the same time as the hold, and returns the writer's number.
    /// It is when the writer's, under which the shards were taken, still lives after it was made: then the server
    /// has not crashed in between.
    async fn join_worker(&self, hold: &Hold, worker: &Session) -> Result<u64> {
        let writer = self.writer.session().await?;
        let known = self.holdings.with(hold, |holding| {
            holding.is_of_writer(writer.id()).then_some(holding.worker == Some(worker.id()))
        })?;
        match known {
            Some(true) => {}
            Some(false) => {
                writer.check_life().await?;
                self.holdings.with(hold, |holding| holding.worker = Some(worker.id()))?;
            }
            None => return Err(lost(hold)),
        }
        Ok(writer.id())
    }

    /// Flushes the server's write-ahead log as far as it has come.
    pub(crate) async fn flush(&self) -> Result<()> {
        let what = "flush the server's log";
        let mut session = self.operator.session().await?;
        let tx = session.begin().await?;
        tx.run("set local synchronous_commit = on", what).await?;
        tx.query(sql!("store/flush"), &[], what).await?;
        tx.commit(what).await
    }
}
