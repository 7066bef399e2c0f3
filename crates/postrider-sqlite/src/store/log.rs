//! Calls of workers in mode `log`: membership, shards, reading and settling.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::balance::Survey;
use postrider_core::settle::{Chunk, DueRows, Hold, MemberId, Room, Settle, Settled, Taken};
use postrider_core::store::Pace;
use postrider_core::{EventId, Failure, LogStore, Mode, Position, Result, ShardSet, Timestamp};
use rusqlite::Transaction;

use crate::file::connection::Commit;
use crate::log::fetch;
use crate::options::Durability;
use crate::ownership::fence::fence;
use crate::ownership::{member, shard};
use crate::queue::lane::queue_mend;
use crate::settle::lane::lanes_parked;
use crate::settle::work::{SettleWith, Work};
use crate::settle::{due, settle_apply};
use crate::store::SqliteStore;

impl LogStore for SqliteStore {
    type Work = Work;

    fn pace(&self) -> Pace {
        Pace {
            // Twenty a second, so that producers seldom find the writer lock taken.
            settle_every: Duration::from_millis(50),
            // Each read that finds something flushes the WAL, and the disk has to do that between the commits
            // of a producer: at 1 ms its p99 grew by up to 1.8 times, at 5 ms it does not.
            poll_min: Duration::from_millis(5),
            // A quiet store is asked twenty times a second: half a percent of a core.
            poll_max: Duration::from_millis(50),
            // A file has no process that could wake its readers.
            rest_max: None,
            lease: self.inner.options.lease,
        }
    }

    async fn member_join(&self, name: &str) -> Result<MemberId> {
        let (name, observer, now) = (name.to_owned(), self.observer(), self.now());
        self.write(Commit::Plain, move |tx| member::member_join(tx, &name, &observer, now)).await
    }

    async fn member_beat(&self, member: MemberId) -> Result<()> {
        let uptime_us = self.uptime_us();
        self.write(Commit::Plain, move |tx| member::member_beat(tx, member, uptime_us)).await
    }

    async fn member_leave(&self, member: MemberId) -> Result<()> {
        let now = self.now();
        self.write(Commit::Plain, move |tx| member::member_leave(tx, member, now)).await
    }

    async fn shards_survey(&self, subscription: &str, member: MemberId, stands: bool) -> Result<Survey> {
        let survey = || {
            let (name, observer) = (subscription.to_owned(), self.observer());
            self.read(move |tx| shard::survey(tx, &name, member, &observer))
        };
        let found = survey().await?;
        if !stands || found.members.contains(&member) {
            return Ok(found);
        }
        // Written once: producers should seldom find the writer lock taken.
        let name = subscription.to_owned();
        self.write(Commit::Plain, move |tx| shard::stand(tx, &name, member)).await?;
        survey().await
    }

    async fn shards_take(
        &self,
        subscription: &str,
        member: MemberId,
        wanted: ShardSet,
    ) -> Result<Option<Taken>> {
        let (name, observer, now) = (subscription.to_owned(), self.observer(), self.now());
        let take = move |tx: &Transaction<'_>| {
            let hold = shard::shards_take(tx, &name, member, wanted, &observer, now)?;
            hold.map(|hold| taken(tx, hold, now)).transpose()
        };
        self.write(Commit::Plain, take).await
    }

    async fn shards_release(&self, hold: &Hold) -> Result<()> {
        let (hold, now) = (hold.clone(), self.now());
        self.write(Commit::Plain, move |tx| shard::shards_release(tx, &hold, now)).await
    }

    async fn fetch(&self, hold: &Hold, after: Position, room: Room) -> Result<Chunk> {
        let (hold, durability): (Hold, Durability) = (hold.clone(), self.inner.options.durability);
        self.inner.reader.run(move |reader| fetch::fetch(reader, &hold, after, room, durability)).await
    }

    async fn fetch_due(&self, hold: &Hold, loaded: HashSet<EventId>, room: Room) -> Result<DueRows> {
        let (hold, now) = (hold.clone(), self.now());
        self.read(move |tx| due::fetch_due(tx, &hold, &loaded, room, now)).await
    }

    async fn settle(&self, hold: &Hold, settle: Arc<Settle>) -> Result<Settled> {
        let (hold, now) = (hold.clone(), self.now());
        self.write(Commit::Plain, move |tx| {
            fence(tx, &hold)?;
            settle_apply(tx, &hold, &settle, now)
        })
        .await
    }

    async fn settle_with(
        &self,
        hold: &Hold,
        settle: Arc<Settle>,
        work: Work,
    ) -> Result<Result<Settled, Failure>> {
        let call =
            SettleWith { hold: hold.clone(), settle, work, now: self.now(), beat_at: self.uptime_us() };
        self.inner.writer.run(move |writer| call.run(writer)).await
    }

    async fn wake(&self) {
        self.inner.wake.notified().await;
    }
}

/// What the new owner of shards has to know, read in the transaction that took them.
fn taken(tx: &Transaction<'_>, hold: Hold, now: Timestamp) -> Result<Taken> {
    let subscription = hold.subscription.id;
    let parked = lanes_parked(tx, subscription, hold.set(), now)?;
    if hold.subscription.mode == Mode::Queue {
        queue_mend(tx, subscription)?;
    }
    let start = hold.shards.iter().map(|held| held.position).min().unwrap_or(Position::START);
    Ok(Taken { hold, start, parked })
}
