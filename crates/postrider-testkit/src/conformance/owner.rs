//! An owner as the suite plays it: step by step, without a runtime.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::settle::{
    AttemptRecord, Chunk, DueRows, Hold, Lane, MemberId, Room, Row, RowDue, Run, Settle, Settled, Taken,
};
use postrider_core::store::LetterId;
use postrider_core::{
    DeliveryState, ErrorKind, Event, EventId, LogStore, NewEvent, NewSubscription, Position, Result, Shard,
    ShardSet, Store, Timestamp,
};

use super::{Kept, Rig};

/// The subscription that most promises are about.
pub const SUBSCRIPTION: &str = "orders";
/// Who does what is audited.
pub const ACTOR: &str = "grace";
/// More room than any promise fills.
pub const AMPLE: Room = Room { events: 1_000_000, bytes: 1_000_000_000 };
/// A while, for due times.
pub const SECOND: Duration = Duration::from_secs(1);

/// A member that holds a subscription's shards, with what it knows of them.
pub struct Owner<S> {
    /// The store as its process sees it.
    pub store: S,
    /// Who it is.
    pub member: MemberId,
    /// What it got when it took the shards.
    pub taken: Taken,
    read: Mutex<Read>,
}

/// What an owner has read so far, to name positions.
struct Read {
    to: Position,
    behind: HashMap<EventId, Position>,
}

impl<S: LogStore> Owner<S> {
    /// Joins and takes the shards of an existing subscription.
    pub async fn of(store: &S, subscription: &str) -> Kept<Self> {
        let member = store.member_join("ada").await?;
        let taken =
            store.shards_take(subscription, member, ShardSet::ALL).await?.expect("the shards are free");
        Ok(Self::holding(store, member, taken))
    }

    /// A member that has taken shards.
    pub fn holding(store: &S, member: MemberId, taken: Taken) -> Self {
        let read = Mutex::new(Read { to: taken.start, behind: HashMap::new() });
        Self { store: store.clone(), member, taken, read }
    }

    /// Creates the subscription first.
    pub async fn create(store: &S, new: NewSubscription) -> Kept<Self> {
        let name = store.subscription_create(new).await?.name;
        Self::of(store, &name).await
    }

    /// The proof of its ownership.
    pub fn hold(&self) -> &Hold {
        &self.taken.hold
    }

    /// Where its shards stood when it took them; all at the same position.
    pub fn position(&self) -> Position {
        self.taken.start
    }

    /// Reads on in the log until something is there, or nothing is.
    pub async fn fetch(&self, mut after: Position, room: Room) -> Result<Chunk> {
        loop {
            let chunk = self.fetch_once(after, room).await?;
            if !chunk.events.is_empty() || !chunk.more {
                return Ok(chunk);
            }
            after = chunk.end;
        }
    }

    /// Reads on in the log once; only what is not durable yet is waited for.
    pub async fn fetch_once(&self, after: Position, room: Room) -> Result<Chunk> {
        for _ in 0..100_000 {
            let chunk = self.store.fetch(self.hold(), after, room).await?;
            if !chunk.soon {
                return Ok(chunk);
            }
            tokio::task::yield_now().await;
        }
        panic!("something was seen, but it never becomes durable");
    }

    /// The position right behind the event `id`: reads on until it has come past it.
    pub async fn behind(&self, id: EventId) -> Result<Position> {
        loop {
            let (known, after) = {
                let read = self.read.lock().expect("nothing panics while it is held");
                (read.behind.get(&id).copied(), read.to)
            };
            if let Some(known) = known {
                return Ok(known);
            }
            let chunk = self.fetch_once(after, AMPLE).await?;
            if chunk.events.is_empty() && !chunk.more {
                // Not wanted, or the subscription is paused.
                return Ok(chunk.end.at(id));
            }
            let mut read = self.read.lock().expect("nothing panics while it is held");
            read.behind.extend(chunk.events.iter().map(|event| (event.id, chunk.position_of(event))));
            read.to = chunk.end;
        }
    }

    /// Where the next look at the log begins, for a caller that reads the log once.
    pub fn read_to(&self) -> Position {
        self.read.lock().expect("nothing panics while it is held").to
    }

    /// Notes how far the log was read.
    pub fn note_read_to(&self, to: Position) {
        self.read.lock().expect("nothing panics while it is held").to = to;
    }

    /// Reads the log from the position of its take to the end.
    pub async fn read_all(&self) -> Kept<Vec<Arc<Event>>> {
        let (mut events, mut after) = (Vec::new(), self.position());
        loop {
            let chunk = self.fetch_once(after, AMPLE).await?;
            events.extend(chunk.events);
            if !chunk.more {
                return Ok(events);
            }
            assert!(chunk.end > after, "there is more, but reading on would bring the same again");
            after = chunk.end;
        }
    }

    /// What is due, with nothing loaded.
    pub async fn due(&self) -> Result<DueRows> {
        self.due_beside(&[]).await
    }

    /// What is due beside these events, which it has in memory.
    pub async fn due_beside(&self, loaded: &[EventId]) -> Result<DueRows> {
        let loaded: HashSet<EventId> = loaded.iter().copied().collect();
        self.store.fetch_due(self.hold(), loaded, AMPLE).await
    }

    /// Writes back.
    pub async fn settle(&self, settle: Settle) -> Result<Settled> {
        self.store.settle(self.hold(), Arc::new(settle)).await
    }

    /// Moves the mark behind `id` and writes these rows.
    pub async fn settle_rows(&self, mark: EventId, rows: Vec<Row>) -> Result<Settled> {
        let mark = Some(self.behind(mark).await?);
        self.settle(Settle { mark, rows, ..Settle::default() }).await
    }

    /// Takes what is due and has yet to enter a parked lane into it, as the contract asks of an owner:
    /// such a row waits behind what is there. The store may have done so itself.
    pub async fn admit_due(&self) -> Kept<()> {
        let waiting = |run: &Run| {
            let first = &run.rows[0];
            let row = self.row(&first.event).turn(first.turn).attempts(first.attempts);
            Row { lane: run.lane.clone(), ..row.waiting() }
        };
        let runs = self.due().await?.runs;
        let rows: Vec<Row> = runs.iter().filter(|run| !run.parks).map(waiting).collect();
        self.settle(Settle { rows, ..Settle::default() }).await?;
        Ok(())
    }

    /// Begins a row for `event`.
    pub fn row(&self, event: &Event) -> RowDraft {
        let shards = self.hold().shard_count;
        RowDraft {
            event_id: event.id,
            shard: Shard::of(event.key.as_ref(), event.id, shards),
            lane: lane_of(event),
            turn: event.due_at.map_or(event.id.0, Timestamp::as_micros),
            attempts: 0,
            due_at: event.due_at,
        }
    }
}

/// The lane of an event; none without a key.
pub fn lane_of(event: &Event) -> Option<Lane> {
    event.key.clone().map(|key| Lane { key, late: event.due_at.is_some() })
}

/// A row that lacks only its state.
#[derive(Debug, Clone)]
pub struct RowDraft {
    event_id: EventId,
    shard: Shard,
    lane: Option<Lane>,
    turn: i64,
    attempts: u32,
    due_at: Option<Timestamp>,
}

impl RowDraft {
    /// Attempts made so far.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Another place in the lane than the usual one.
    #[must_use]
    pub fn turn(mut self, turn: i64) -> Self {
        self.turn = turn;
        self
    }

    /// Stands for itself, as every event of an unordered subscription does.
    #[must_use]
    pub fn without_lane(mut self) -> Self {
        self.lane = None;
        self
    }

    /// Failed: attempted again after `delay`, and its lane waits.
    pub fn failed(self, delay: Duration) -> Row {
        self.into_row(DeliveryState::Pending, RowDue::After(delay), true)
    }

    /// Waits for the head of its lane.
    pub fn waiting(self) -> Row {
        self.into_row(DeliveryState::Pending, RowDue::Waiting, true)
    }

    /// Handed out while the mark passes it.
    pub fn leased(self) -> Row {
        self.into_row(DeliveryState::Leased, RowDue::Waiting, true)
    }

    /// A dead letter that its lane waits for.
    pub fn dead_held(self) -> Row {
        self.into_row(DeliveryState::Dead, RowDue::Waiting, true)
    }

    /// A dead letter that its lane goes on without.
    pub fn dead_skipped(self) -> Row {
        self.into_row(DeliveryState::Dead, RowDue::Waiting, false)
    }

    /// A delayed event before its time.
    pub fn delayed(self) -> Row {
        let at = self.due_at.expect("a delayed event has a due time");
        self.into_row(DeliveryState::Pending, RowDue::At(at), false)
    }

    fn into_row(self, state: DeliveryState, due: RowDue, parks: bool) -> Row {
        Row {
            event_id: self.event_id,
            shard: self.shard,
            parks: parks && self.lane.is_some(),
            lane: self.lane,
            turn: self.turn,
            state,
            attempts: self.attempts,
            due,
        }
    }
}

/// A failed attempt that ended three seconds ago and took two.
pub fn failed_attempt(event: EventId, attempt: u32, error: &str) -> AttemptRecord {
    AttemptRecord {
        event_id: event,
        attempt,
        ended_ago: SECOND * 3,
        took: SECOND * 2,
        error: error.to_owned(),
    }
}

/// A plain event of `key`.
pub fn event_of(key: &str) -> NewEvent {
    Event::new("order").kind("order.created").key(key).payload(key.to_owned().into_bytes())
}

/// Emits `count` events of `key` and returns them.
pub async fn emit_of<R: Rig>(rig: &R, key: &str, count: usize) -> Kept<Vec<Event>> {
    emit(rig, vec![event_of(key); count]).await
}

/// Emits and returns what is stored.
pub async fn emit<R: Rig>(rig: &R, events: Vec<NewEvent>) -> Kept<Vec<Event>> {
    let mut stored = Vec::new();
    for id in rig.store().event_emit(events).await? {
        stored.push(rig.store().event_get(id).await?.expect("what was emitted is there"));
    }
    Ok(stored)
}

/// The ids of these events, in order.
pub fn ids<'a>(events: impl IntoIterator<Item = &'a Arc<Event>>) -> Vec<EventId> {
    events.into_iter().map(|event| event.id).collect()
}

/// The ids of each run's rows.
pub fn run_ids(due: &DueRows) -> Vec<Vec<EventId>> {
    due.runs.iter().map(|run| run.rows.iter().map(|row| row.event.id).collect()).collect()
}

/// A dead letter of [`SUBSCRIPTION`].
pub fn letter(event: EventId) -> LetterId {
    LetterId { subscription: SUBSCRIPTION.to_owned(), event_id: event }
}

/// The kind of error of a call that must not succeed.
#[track_caller]
pub fn refused<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("the store did what it had to refuse"),
        Err(error) => error.kind(),
    }
}
