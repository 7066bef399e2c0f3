//! Reading on in the log: one read at a time, soon while events flow, rarely while they do not.
//!
//! Shared by the owner of mode `log` and the feeder of mode `queue`, each of which waits for it in its loop.

mod rest;
mod wake;

use std::time::Duration;

use postrider_core::settle::{Chunk, Hold, Room};
use postrider_core::store::{Pace, Watch};
use postrider_core::{LogStore, Position};
use tokio::time::Instant;

use crate::call::Call;
use crate::reading::poller::Poller;
pub(crate) use rest::{Rest, Rested};
use wake::Wake;

/// Where the log is read and when it is read next. Instants are durations since `began`.
pub(crate) struct Reader<S: LogStore> {
    store: S,
    hold: Hold,
    pace: Pace,
    began: Instant,
    poller: Poller,
    /// The read that is under way.
    pub(crate) fetching: Option<Call<Chunk>>,
    /// Where to read on in the log.
    read_to: Position,
    pub(crate) poll_at: Duration,
    pub(crate) rest: Rest,
    pub(crate) wake: Wake,
    /// Whether the last read has looked at the end of the log and found nothing new.
    pub(crate) at_end: bool,
    /// Whether it found more than it brought.
    pub(crate) behind: bool,
}

impl<S: LogStore> Reader<S> {
    pub(crate) fn new(store: S, hold: Hold, start: Position, began: Instant) -> Self {
        let pace = store.pace();
        Self {
            store,
            hold,
            pace,
            began,
            poller: Poller::new(pace.poll_min, pace.poll_max),
            fetching: None,
            read_to: start,
            poll_at: Duration::ZERO,
            rest: Rest::Awake,
            wake: Wake::default(),
            at_end: false,
            behind: false,
        }
    }

    /// Where to read on in the log.
    pub(crate) fn read_to(&self) -> Position {
        self.read_to
    }

    /// Begins a read, if it is time and none is under way.
    pub(crate) fn begin(&mut self, room: Option<Room>) {
        let (None, Some(room)) = (&self.fetching, room) else { return };
        if self.now() < self.poll_at {
            return;
        }
        self.rest_before_read();
        self.wake.ask(&self.store);
        let (store, hold, after) = (self.store.clone(), self.hold.clone(), self.read_to);
        self.fetching = Some(Call::begin(async move { store.fetch(&hold, after, room).await }));
    }

    /// Takes note of what a read has found, and decides when the next one comes.
    pub(crate) fn found(&mut self, chunk: &Chunk) {
        let found = !chunk.events.is_empty();
        self.behind = chunk.more;
        // One whose position moves may have been read from memory, which says nothing about this moment.
        self.at_end = chunk.is_empty_at(self.read_to);
        let now = self.now();
        if found {
            self.poller.found(now);
        } else if chunk.more || chunk.soon {
            self.poller.expected(now);
        }
        let wait = self.rest_after_read(chunk, now);
        self.poll_at = now + if chunk.more { Duration::ZERO } else { wait };
        self.read_to = chunk.end;
    }

    /// A read has failed: the next one comes after this long.
    pub(crate) fn failed(&mut self, wait: Duration) {
        self.rest = Rest::Awake;
        self.poll_at = self.now() + wait;
    }

    /// There may be something new.
    pub(crate) fn woken(&mut self) {
        self.poll_at = self.now();
    }

    /// The store has said whether it keeps watch.
    pub(crate) fn watch_answered(&mut self, watch: Option<Watch>) {
        self.rest = match watch {
            Some(watch) => {
                self.poll_at = self.now();
                Rest::Watched { watch, looking: false }
            }
            None => Rest::Awake,
        };
    }

    /// Gives up the read and the watch.
    pub(crate) fn stop(&mut self) {
        self.fetching = None;
        self.rest = Rest::Awake;
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use postrider_core::{Event, EventId, NewSubscription, ShardSet, Store};
    use postrider_testkit::{ManualClock, MemoryStore};

    use super::*;

    /// The store answers a read while an event is committed that this read does not see.
    #[tokio::test]
    async fn an_event_that_comes_during_a_read_wakes_the_reader_after_it() {
        let store = MemoryStore::new(ManualClock::default());
        store.subscription_create(NewSubscription::new("orders")).await.unwrap();
        let member = store.member_join("ada").await.unwrap();
        let taken = store.shards_take("orders", member, ShardSet::ALL).await.unwrap().unwrap();
        let mut reader = Reader::new(store.clone(), taken.hold, taken.start, Instant::now());
        reader.begin(Some(Room { events: 10, bytes: 1 << 20 }));
        let chunk = reader.fetching.take().unwrap().answer().await.unwrap();
        store.event_emit(vec![Event::new("order")]).await.unwrap();
        reader.found(&chunk);
        reader.wake.next().now_or_never().expect("it is woken at once");
        assert!(reader.wake.next().now_or_never().is_none(), "once");
    }

    #[tokio::test]
    async fn whoever_has_moved_over_what_it_does_not_want_is_not_at_the_end_yet() {
        let store = MemoryStore::new(ManualClock::default());
        store.subscription_create(NewSubscription::new("orders")).await.unwrap();
        let member = store.member_join("ada").await.unwrap();
        let taken = store.shards_take("orders", member, ShardSet::ALL).await.unwrap().unwrap();
        let mut reader = Reader::new(store, taken.hold, taken.start, Instant::now());
        let moved = Chunk::empty(taken.start.at(EventId(7)));
        for (chunk, wanted) in [
            (Chunk { soon: true, ..Chunk::empty(taken.start) }, false),
            (moved.clone(), false),
            (moved.clone(), true),
            (Chunk { more: true, ..moved }, false),
        ] {
            reader.found(&chunk);
            assert_eq!(reader.at_end, wanted, "{chunk:?}");
        }
    }
}
