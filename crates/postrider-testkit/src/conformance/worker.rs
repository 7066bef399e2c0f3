//! A feeder and a worker of a queue as the suite plays them: step by step, without a runtime.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::feed::Feeder;
use postrider_core::queue::{
    Again, Ask, Claimed, Count, Fate, Feed, LeasedRow, QueueSettle, QueueSettled, SettledRow, Token,
};
use postrider_core::settle::MemberId;
use postrider_core::{
    EventId, LeaseBy, Mode, NewEvent, NewSubscription, Order, Position, QueueStore, Result, Start,
    Subscription,
};

use super::Kept;
use super::owner::{AMPLE, Owner, SUBSCRIPTION};

/// How long the leases of the suite last.
pub const LEASE: Duration = Duration::from_secs(8);

/// A queue with a lease for each event, in the order of keys, of what is emitted from now on.
pub fn queue() -> NewSubscription {
    let mut new = NewSubscription::new(SUBSCRIPTION).mode(Mode::Queue).start(Start::Now);
    new.tuning.queue.lease_by = LeaseBy::Event;
    new
}

/// A queue of blocks.
pub fn blocks() -> NewSubscription {
    let mut new = queue().order(Order::None);
    new.tuning.queue.lease_by = LeaseBy::Block;
    new
}

/// A member that feeds a queue and works on it.
pub struct Worker<S> {
    /// The store as its process sees it.
    pub store: S,
    /// Who it is.
    pub member: MemberId,
    /// What it works on.
    pub subscription: Subscription,
    owner: Option<Owner<S>>,
}

impl<S: QueueStore> Worker<S> {
    /// Creates a queue and begins to feed it.
    pub async fn create(store: &S, new: NewSubscription) -> Kept<Self> {
        let subscription = store.subscription_create(new).await?;
        let owner = Owner::of(store, &subscription.name).await?;
        Ok(Self { store: store.clone(), member: owner.member, subscription, owner: Some(owner) })
    }

    /// Another one, in another process, that only works.
    pub async fn beside(&self, store: &S) -> Kept<Self> {
        let member = store.member_join("bob").await?;
        Ok(Self { store: store.clone(), member, subscription: self.subscription.clone(), owner: None })
    }

    /// Takes the shards again after they were taken from it.
    pub async fn take_again(&mut self) -> Kept<()> {
        let owner = Owner::of(&self.store, &self.subscription.name).await?;
        self.subscription = Subscription::clone(&owner.hold().subscription);
        self.owner = Some(owner);
        Ok(())
    }

    /// The part of it that feeds.
    pub fn feeder(&self) -> &Owner<S> {
        self.owner.as_ref().expect("this one feeds")
    }

    /// Emits events and feeds them.
    pub async fn emit(&self, events: Vec<NewEvent>) -> Kept<Vec<EventId>> {
        let ids = self.store.event_emit(events).await?;
        self.feed().await?;
        Ok(ids)
    }

    /// Feeds whatever is new, as one feeder after the other would.
    pub async fn feed(&self) -> Kept<()> {
        let feed = self.plan().await?;
        self.store.feed(self.feeder().hold(), Arc::new(feed)).await?;
        Ok(())
    }

    /// What is new, as it would be fed.
    pub async fn plan(&self) -> Kept<Feed> {
        let owner = self.feeder();
        let fed = self.store.fed(owner.hold()).await?;
        let mut feeder = Feeder::new(&self.subscription, &fed);
        let mut feed = Feed { mark: self.fed_to(), rows: Vec::new() };
        loop {
            let chunk = owner.fetch_once(feed.mark, AMPLE).await?;
            feed.rows.extend(feeder.plan(&chunk.events));
            feed.mark = chunk.end;
            if !chunk.more {
                self.note(feed.mark);
                return Ok(feed);
            }
        }
    }

    fn fed_to(&self) -> Position {
        self.feeder().read_to()
    }

    fn note(&self, mark: Position) {
        self.feeder().note_read_to(mark);
    }

    /// Claims at most so many rows.
    pub async fn claim(&self, rows: usize) -> Result<Claimed> {
        let ask = Ask {
            rows,
            events: usize::MAX >> 1,
            bytes: usize::MAX >> 1,
            again: rows,
            all: false,
            lease: LEASE,
        };
        self.store.claim(&self.subscription, self.member, ask).await
    }

    /// Claims at most so many rows and says which events came.
    pub async fn claim_ids(&self, rows: usize) -> Kept<Vec<EventId>> {
        Ok(events_of(&self.claim(rows).await?))
    }

    /// Says what became of rows of a claim.
    pub async fn settle(&self, token: Token, rows: &[(EventId, Fate)]) -> Result<QueueSettled> {
        let rows = rows.iter().map(|(id, fate)| SettledRow { id: *id, token, fate: fate.clone() }).collect();
        self.settle_all(QueueSettle { rows, ..QueueSettle::default() }).await
    }

    /// Writes back.
    pub async fn settle_all(&self, settle: QueueSettle) -> Result<QueueSettled> {
        self.store.queue_settle(&self.subscription, self.member, Arc::new(settle)).await
    }

    /// Everything that a claim brought is done.
    pub async fn ack(&self, claimed: &Claimed) -> Kept<()> {
        let rows: Vec<_> = claimed.rows.iter().map(|row| (row.id, Fate::Done)).collect();
        assert_eq!(self.settle(claimed.token, &rows).await?, QueueSettled::default(), "nobody else has them");
        Ok(())
    }

    /// Claims and finishes one row after the other until nothing is ready.
    pub async fn drain(&self) -> Kept<Vec<EventId>> {
        let mut ids = Vec::new();
        loop {
            let claimed = self.claim(1).await?;
            if claimed.rows.is_empty() {
                return Ok(ids);
            }
            ids.extend(events_of(&claimed));
            self.ack(&claimed).await?;
        }
    }
}

/// The events of a claim, in order.
pub fn events_of(claimed: &Claimed) -> Vec<EventId> {
    claimed.rows.iter().flat_map(|row| &row.events).map(|event| event.id).collect()
}

/// The only row of a claim.
pub fn only(claimed: &Claimed) -> &LeasedRow {
    assert_eq!(claimed.rows.len(), 1, "one row was claimed");
    &claimed.rows[0]
}

/// It failed, and is attempted again.
pub fn retry(after: Duration) -> Fate {
    Fate::Again(Again { after, count: Count::Failed })
}

/// It is left alone for a while, at no cost.
pub fn snooze(after: Duration) -> Fate {
    Fate::Again(Again { after, count: Count::Nothing })
}
