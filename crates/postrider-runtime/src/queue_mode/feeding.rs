//! The loop of a member that feeds a queue: reads the log, plans rows, writes them with the position.
//!
//! ```text
//!   read ─► events, mark ─► plan ─► feed ─► rows are ready: workers are told
//!     ▲        │ with a backlog, the next read goes on while a feed is under way,
//!     └────────┘ and what it brings goes into one feed
//! ```
//!
//! Every await can be the last: rows and the position are written together, and events that were read and not
//! fed are read again. A feed must never be repeated. So after a feed has failed, memory is worthless, and the
//! shards are taken again.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::Feed;
use postrider_core::queue::feed::Feeder;
use postrider_core::settle::{Chunk, Hold, Room, Taken};
use postrider_core::{Error, Event, Position, QueueStore, Result, limits};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::call::{Call, ends_worker, optional};
use crate::context::{Context, ERROR_WAIT_MAX, ERROR_WAIT_MIN, Ended, SETTLE_GAPS_EVERY};
use crate::reading::fine_timer::FineTimer;
use crate::reading::reader::{Reader, Rested};

/// Instants are durations since `began`.
pub(crate) struct Feeding<S: QueueStore> {
    store: S,
    hold: Hold,
    context: Context,
    began: Instant,
    reader: Reader<S>,
    timer: FineTimer,
    feeder: Feeder,
    /// What was read and not fed.
    events: Vec<Arc<Event>>,
    bytes: usize,
    /// How far that reaches.
    mark: Option<Position>,
    /// The feed that is under way.
    call: Option<Call<Fed>>,
    /// When positions move over events that the filter passes over.
    gaps_at: Duration,
    error_wait: Duration,
    paused: bool,
    /// Since a drain began: when it ends at the latest.
    drain_until: Option<Duration>,
}

/// What a feed has done.
struct Fed {
    /// Where the queue stands, if that was asked.
    front: Option<i64>,
    /// Whether it has claimed for the worker beside us.
    claimed: bool,
}

enum Happened {
    Stop,
    Fed(Result<Fed>),
    Fetched(Result<Chunk>),
    Woken,
    Rested(Rested),
    Timer,
}

/// Feeds until drained or lost. Dropping it is a crash.
pub(crate) async fn run<S: QueueStore>(store: S, taken: Taken, context: Context) -> Result<Ended> {
    let Taken { hold, start, .. } = taken;
    let fed = match store.fed(&hold).await {
        Ok(fed) => fed,
        Err(error) => return lost("read what was fed", &hold, error, &context).await,
    };
    let began = Instant::now();
    let feeding = Feeding {
        reader: Reader::new(store.clone(), hold.clone(), start, began),
        timer: FineTimer::new(store.pace().poll_min < Duration::from_millis(1)),
        feeder: Feeder::new(&hold.subscription, &fed),
        store,
        hold,
        context,
        began,
        events: Vec::new(),
        bytes: 0,
        mark: None,
        call: None,
        gaps_at: Duration::ZERO,
        error_wait: ERROR_WAIT_MIN,
        paused: false,
        drain_until: None,
    };
    feeding.run().await
}

impl<S: QueueStore> Feeding<S> {
    async fn run(mut self) -> Result<Ended> {
        loop {
            if self.context.membership.borrow().member != self.hold.member {
                // The store forgot this member, and the keeper has joined as a new one.
                return Ok(Ended::Lost);
            }
            if self.drain_until.is_none() {
                self.reader.begin(self.room());
            }
            self.begin_feed();
            if self.is_over() {
                return Ok(self.end().await);
            }
            let happened = self.wait().await;
            if let Some(ended) = self.take_in(happened).await? {
                return Ok(ended);
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// How much may be read beside what waits to be fed. While one feed is under way, another read is worth
    /// it only if there is a backlog: looking for what may come would keep the server from the feed (800
    /// events a second on two processors: half of them wait for 4.0 ms and longer instead of 5.3).
    fn room(&self) -> Option<Room> {
        if self.call.is_some() && !self.reader.behind {
            return None;
        }
        let has_room = self.events.len() < limits::CHUNK_EVENTS_MAX && self.bytes < limits::CHUNK_BYTES_MAX;
        has_room.then_some(Room { events: limits::CHUNK_EVENTS_MAX, bytes: limits::CHUNK_BYTES_MAX })
    }

    fn begin_feed(&mut self) {
        if self.call.is_some() || self.drain_until.is_some() {
            return;
        }
        let Some(mark) = self.mark else { return };
        if self.events.is_empty() && self.now() < self.gaps_at && !self.context.until_idle {
            return;
        }
        let events = std::mem::take(&mut self.events);
        let rows = self.feeder.plan(&events);
        (self.mark, self.bytes) = (None, 0);
        self.gaps_at = self.now() + SETTLE_GAPS_EVERY;
        let offer = if rows.is_empty() { None } else { self.context.fed.offer.take() };
        let (store, hold, feed) = (self.store.clone(), self.hold.clone(), Arc::new(Feed { mark, rows }));
        self.call = Some(match offer {
            None => Call::begin(async move {
                let front = store.feed(&hold, feed).await?;
                Ok(Fed { front, claimed: false })
            }),
            Some(offer) => Call::begin(async move {
                let (front, claimed) = store.feed_and_claim(&hold, feed, events, offer.ask).await?;
                offer.answer(claimed);
                Ok(Fed { front, claimed: true })
            }),
        });
    }

    /// Waits for the next thing to happen. Cancel safe: whatever is not returned is still there.
    async fn wait(&mut self) -> Happened {
        let deadline = self.began + self.next_deadline();
        let may_wake = self.reader.fetching.is_none() && self.drain_until.is_none();
        tokio::select! {
            biased;
            () = self.context.stop.cancelled(), if self.drain_until.is_none() => Happened::Stop,
            fed = optional(&mut self.call) => Happened::Fed(fed),
            chunk = optional(&mut self.reader.fetching) => Happened::Fetched(chunk),
            () = self.reader.wake.next(), if may_wake => Happened::Woken,
            rested = self.reader.rest.next(!may_wake) => Happened::Rested(rested),
            () = self.timer.wait_until(deadline) => Happened::Timer,
        }
    }

    fn next_deadline(&self) -> Duration {
        let now = self.now();
        let mut next = self.drain_until.unwrap_or(now + SETTLE_GAPS_EVERY);
        if self.drain_until.is_none() {
            if self.reader.fetching.is_none() && self.room().is_some() {
                next = next.min(self.reader.poll_at);
            }
            if self.mark.is_some() && self.call.is_none() {
                next = next.min(self.gaps_at);
            }
        }
        // A deadline that has passed without effect must not spin.
        next.max(now + Duration::from_micros(50))
    }

    async fn take_in(&mut self, happened: Happened) -> Result<Option<Ended>> {
        match happened {
            Happened::Stop => {
                self.drain_until = Some(self.now() + self.context.drain_within);
                self.reader.stop();
            }
            Happened::Fed(Ok(fed)) => {
                self.call = None;
                self.feeder.stand_at(fed.front);
                if !fed.claimed {
                    self.context.fed.news.notify_one();
                }
            }
            Happened::Fed(Err(error)) => {
                return lost("feed", &self.hold, error, &self.context).await.map(Some);
            }
            Happened::Fetched(chunk) => {
                self.reader.fetching = None;
                return self.fetched(chunk);
            }
            Happened::Woken | Happened::Rested(Rested::Woken) => self.reader.woken(),
            Happened::Rested(Rested::Watch(watch)) => self.reader.watch_answered(watch),
            Happened::Timer => {}
        }
        Ok(None)
    }

    fn fetched(&mut self, chunk: Result<Chunk>) -> Result<Option<Ended>> {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) if error.is_fenced() => return Ok(Some(Ended::Lost)),
            Err(error) if ends_worker(&error, self.context.until_idle) => return Err(error),
            Err(error) => {
                warn!(subscription = self.hold.subscription.name, %error, "could not read the log; trying again");
                self.reader.failed(self.error_wait);
                self.error_wait = (self.error_wait * 2).min(ERROR_WAIT_MAX);
                return Ok(None);
            }
        };
        self.error_wait = ERROR_WAIT_MIN;
        self.paused = chunk.paused;
        let moved = chunk.end != self.reader.read_to();
        self.reader.found(&chunk);
        #[cfg(feature = "sabotage")]
        if self.context.sabotage == Some(crate::sabotage::Sabotage::TrustWakes) && !chunk.more {
            self.reader.poll_at = Duration::MAX;
        }
        if moved {
            self.mark = Some(chunk.end);
        }
        self.bytes += chunk.events.iter().map(|event| event.bytes()).sum::<usize>();
        self.events.extend(chunk.events);
        Ok(None)
    }

    fn is_over(&self) -> bool {
        if let Some(until) = self.drain_until {
            return self.call.is_none() || self.now() >= until;
        }
        let all_fed = self.reader.at_end && self.mark.is_none();
        let idle = self.call.is_none() && self.reader.fetching.is_none() && (all_fed || self.paused);
        self.context.until_idle && idle
    }

    /// Gives the shards back. A feed that is still under way may or may not take effect: with the shards given back its
    /// epochs are old, and it changes nothing.
    async fn end(&mut self) -> Ended {
        debug!(subscription = self.hold.subscription.name, "feeding ends");
        if let Err(error) = self.store.shards_release(&self.hold).await {
            warn!(subscription = self.hold.subscription.name, %error, "could not give ownership back");
        }
        Ended::Drained
    }
}

/// After an error of which the effect is not known, only the store knows what was written.
async fn lost(what: &str, hold: &Hold, error: Error, context: &Context) -> Result<Ended> {
    if error.is_fenced() {
        return Ok(Ended::Lost);
    }
    if ends_worker(&error, context.until_idle) {
        return Err(error);
    }
    warn!(subscription = hold.subscription.name, %error, "could not {what}; taking the shards again");
    // Taking them may succeed at once: a store that fails only here must not be asked without end.
    tokio::time::sleep(ERROR_WAIT_MIN).await;
    Ok(Ended::Lost)
}
