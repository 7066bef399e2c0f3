//! The contract of a store as a program: everything in memory, nothing clever.
//!
//! Where the prose of `postrider_core::store` leaves a question open, this store is the answer. Each
//! call is applied at once and whole under one lock; what can go wrong around it is injected by an
//! [`Interference`]. In a debug build every write is followed by a check of the rules in
//! `postrider_core::settle`, so that an owner that breaks one is met in the act.

mod dead_letters;
mod log;
mod ownership;
mod queue;
mod reading;
mod reports;
mod rules;
mod schedules;
mod settling;
mod state;
mod subscriptions;

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::balance::Survey;
use postrider_core::event::{Listed, StoredEvent};
use postrider_core::queue::{
    Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token,
};
use postrider_core::settle::{Chunk, DueRows, Hold, MemberId, Room, Settle, Settled, Taken};
use postrider_core::store::{
    Cancelled, DeadLetter, DeadLetterQuery, DeliveryReport, EventQuery, LetterId, Pace, Pruned, StoreReport,
    SubscriptionReport, Watch,
};
use postrider_core::time::Clock;
use postrider_core::{
    Delivery, DeliveryState, Event, EventId, Failure, LogStore, NewEvent, NewSubscription, Position,
    QueueStore, Result, ShardSet, Start, Store, Subscription, Timestamp, Tuning,
};
use tokio::sync::{Notify, watch};

use crate::interference::{Interference, Moment, When};
use state::{State, Time};

/// What may be chosen about a [`MemoryStore`].
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// The store's identity.
    pub id: String,
    /// Shards of each subscription.
    pub shards: u16,
    /// The rhythm that it recommends, with the lease that it enforces.
    pub pace: Pace,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            id: "memory".to_owned(),
            shards: 16,
            pace: Pace {
                settle_every: Duration::from_millis(10),
                poll_min: Duration::from_millis(1),
                poll_max: Duration::from_millis(100),
                rest_max: Some(Duration::from_secs(5)),
                lease: Duration::from_secs(10),
            },
        }
    }
}

/// A store in memory. All clones are the same store; each may suffer an interference of its own, as
/// processes with connections of their own do.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    interference: Option<Arc<dyn Interference>>,
}

struct Shared {
    options: MemoryOptions,
    state: Mutex<State>,
    wake: Notify,
    watches: watch::Sender<()>,
}

/// What a transactional handler writes through; kept only if its settle commits.
#[derive(Debug, Default)]
pub struct MemoryTx {
    notes: Vec<(EventId, String)>,
}

impl MemoryTx {
    /// Writes an effect of an event.
    pub fn note(&mut self, event: EventId, text: impl Into<String>) {
        self.notes.push((event, text.into()));
    }
}

/// What a transactional handler does inside the settle's transaction. A panic counts as a failure that
/// is worth another attempt. It runs under the store's lock, as it would under that of a database with a
/// single writer, so it must not call the store.
pub type MemoryWork = Box<dyn FnOnce(&mut MemoryTx) -> Result<(), Failure> + Send>;

/// One audited action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// When it was done.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// What was done, in the words of the CLI.
    pub action: &'static str,
    /// To which subscription.
    pub subscription: String,
    /// To which part of it.
    pub detail: String,
}

impl AuditLine {
    fn new(at: Timestamp, actor: &str, action: &'static str, subscription: &str, detail: String) -> Self {
        Self { at, actor: actor.to_owned(), action, subscription: subscription.to_owned(), detail }
    }
}

impl MemoryStore {
    /// An empty store that takes its time from `clock`.
    pub fn new(clock: impl Clock) -> Self {
        Self::with_options(clock, MemoryOptions::default())
    }

    /// An empty store with options of its own.
    pub fn with_options(clock: impl Clock, options: MemoryOptions) -> Self {
        let state = Mutex::new(State::new(options.shards.max(1), options.pace.lease));
        let shared =
            Arc::new(Shared { options, state, wake: Notify::new(), watches: watch::Sender::new(()) });
        Self { shared, clock: Arc::new(clock), interference: None }
    }

    /// The same store as seen by a process that suffers `interference`.
    #[must_use]
    pub fn with_interference(mut self, interference: Arc<dyn Interference>) -> Self {
        self.interference = Some(interference);
        self
    }

    /// Puts an event into the log past all checks, as plain SQL may. Its id is given.
    pub fn plant(&self, stored: StoredEvent<'_>) -> EventId {
        self.lock().plant(stored)
    }

    /// Makes it known that the member's process is dead, as a lock on a file or a closed connection does.
    pub fn kill(&self, member: MemberId) {
        let time = self.time();
        self.lock().forget(member, time);
    }

    /// How often shards were taken that their last owner had not given back in order.
    pub fn take_overs(&self) -> u64 {
        self.lock().take_overs
    }

    /// How often a claim of a queue was reaped.
    pub fn reaps(&self) -> u64 {
        self.lock().reaps
    }

    /// The events that are dead letters of a subscription.
    pub fn dead(&self, subscription: &str) -> Vec<EventId> {
        let state = self.lock();
        let rows = state.subscriptions.get(subscription).into_iter().flat_map(|progress| &progress.rows);
        rows.filter(|(_, row)| row.state == DeliveryState::Dead).map(|(id, _)| *id).collect()
    }

    /// What transactional handlers have written, in the order of their commits.
    pub fn effects(&self) -> Vec<(EventId, String)> {
        self.lock().effects.clone()
    }

    /// A transaction of a handler's own: its work, and the ack of its delivery. Both are there, or neither.
    /// It passes no interference, since it goes over the handler's connection.
    pub fn ack_with(&self, delivery: &Delivery, work: MemoryWork) -> Result<Result<(), Failure>> {
        let mut state = self.lock();
        let mut tx = MemoryTx::default();
        match catch_unwind(AssertUnwindSafe(|| work(&mut tx))) {
            Err(_) => Ok(Err(Failure::retry("the handler panicked"))),
            Ok(Err(failure)) => {
                delivery.lease()?.note_acked();
                Ok(Err(failure))
            }
            Ok(Ok(())) => {
                state.ack(delivery)?;
                state.effects.append(&mut tx.notes);
                Ok(Ok(()))
            }
        }
    }

    /// What a handler of a queue has kept for an event.
    pub fn result_of(&self, subscription: &str, event: EventId) -> Option<String> {
        let state = self.lock();
        state.subscriptions.get(subscription)?.queue.results.get(&event).cloned()
    }

    /// Every audited action, oldest first.
    pub fn audit(&self) -> Vec<AuditLine> {
        self.lock().audit.clone()
    }

    fn time(&self) -> Time {
        Time { now: self.clock.now(), uptime: self.clock.uptime() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A broken rule panics under the lock; the report of that panic is worth more than a second one.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call: its two moments, and between them its effect.
    async fn call<T>(
        &self,
        call: &'static str,
        member: Option<MemberId>,
        apply: impl FnOnce(&mut State, Time) -> Result<T>,
    ) -> Result<T> {
        if let Some(interference) = &self.interference {
            interference.at(Moment { call, member, when: When::Before }).await?;
        }
        let result = {
            let time = self.time();
            let mut state = self.lock();
            let result = apply(&mut state, time);
            rules::assert_kept(&state, call);
            result
        };
        if let Some(interference) = &self.interference {
            interference.at(Moment { call, member, when: When::After }).await?;
        }
        result
    }

    /// A call after which there may be something to fetch. The wake belongs to the effect, not to the
    /// return: a waiting task is woken even if the caller never learns that the call succeeded.
    async fn call_and_wake<T>(
        &self,
        call: &'static str,
        apply: impl FnOnce(&mut State, Time) -> Result<T>,
    ) -> Result<T> {
        self.call(call, None, |state, time| {
            let result = apply(state, time)?;
            self.give_wake();
            Ok(result)
        })
        .await
    }

    fn give_wake(&self) {
        if !self.interference.as_ref().is_some_and(|interference| interference.loses_wake()) {
            self.shared.wake.notify_waiters();
            // And one for a task that is between its read and its wait.
            self.shared.wake.notify_one();
            self.shared.watches.send_replace(());
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("state", &*self.lock()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn id(&self) -> String {
        self.shared.options.id.clone()
    }

    async fn event_emit(&self, mut events: Vec<NewEvent>) -> Result<Vec<EventId>> {
        events.iter_mut().for_each(postrider_core::emit::trace);
        self.call_and_wake("event_emit", |state, time| state.emit(&events, time)).await
    }

    async fn event_list(&self, query: EventQuery) -> Result<Vec<Listed>> {
        self.call("event_list", None, |state, _| Ok(state.event_list(&query))).await
    }

    async fn event_get(&self, id: EventId) -> Result<Option<Event>> {
        self.call("event_get", None, |state, _| Ok(state.events.get(&id).map(|event| Event::clone(event))))
            .await
    }

    async fn event_deliveries(&self, id: EventId) -> Result<Vec<DeliveryReport>> {
        self.call("event_deliveries", None, |state, _| state.deliveries(id)).await
    }

    async fn subscription_create(&self, new: NewSubscription) -> Result<Subscription> {
        self.call("subscription_create", None, |state, time| state.create(new, time)).await
    }

    async fn subscription_get(&self, name: &str) -> Result<Subscription> {
        self.call("subscription_get", None, |state, _| {
            Ok(Subscription::clone(&state.progress(name)?.subscription))
        })
        .await
    }

    async fn subscription_list(&self) -> Result<Vec<SubscriptionReport>> {
        self.call("subscription_list", None, |state, time| {
            Ok(state.subscriptions.values().map(|progress| state.report(progress, time)).collect())
        })
        .await
    }

    async fn subscription_report(&self, name: &str) -> Result<SubscriptionReport> {
        self.call("subscription_report", None, |state, time| Ok(state.report(state.progress(name)?, time)))
            .await
    }

    async fn subscription_tune(&self, name: &str, tuning: Tuning) -> Result<Subscription> {
        self.call_and_wake("subscription_tune", |state, time| state.tune(name, tuning, time)).await
    }

    async fn subscription_pause(&self, name: &str) -> Result<Subscription> {
        self.call("subscription_pause", None, |state, time| state.pause(name, time)).await
    }

    async fn subscription_resume(&self, name: &str) -> Result<Subscription> {
        self.call_and_wake("subscription_resume", |state, _| state.resume(name)).await
    }

    async fn subscription_seek(&self, name: &str, to: Start, actor: &str) -> Result<Position> {
        self.call_and_wake("subscription_seek", |state, time| state.seek(name, to, actor, time)).await
    }

    async fn subscription_delete(&self, name: &str, actor: &str) -> Result<()> {
        self.call("subscription_delete", None, |state, time| state.delete(name, actor, time)).await
    }

    async fn dead_letter_list(&self, query: DeadLetterQuery) -> Result<Vec<DeadLetter>> {
        self.call("dead_letter_list", None, |state, _| Ok(state.letter_list(&query))).await
    }

    async fn dead_letter_get(&self, letter: &LetterId) -> Result<DeadLetter> {
        self.call("dead_letter_get", None, |state, _| state.letter_get(letter)).await
    }

    async fn dead_letter_edit(&self, letter: &LetterId, payload: Bytes, actor: &str) -> Result<()> {
        self.call("dead_letter_edit", None, |state, time| state.letter_edit(letter, payload, actor, time))
            .await
    }

    async fn dead_letter_replay(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        self.call_and_wake("dead_letter_replay", |state, time| Ok(state.letters_replay(&which, actor, time)))
            .await
    }

    async fn dead_letter_discard(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        self.call_and_wake(
            "dead_letter_discard",
            |state, time| Ok(state.letters_discard(&which, actor, time)),
        )
        .await
    }

    async fn stats(&self) -> Result<StoreReport> {
        self.call("stats", None, |state, time| Ok(state.stats(&self.id(), time))).await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.call("check", None, |state, _| Ok(rules::violations(state))).await
    }

    async fn prune(&self, retention: Duration) -> Result<Pruned> {
        self.call("prune", None, |state, time| Ok(state.prune(retention, time))).await
    }
}

impl LogStore for MemoryStore {
    type Work = MemoryWork;

    fn pace(&self) -> Pace {
        self.shared.options.pace
    }

    async fn member_join(&self, name: &str) -> Result<MemberId> {
        self.call("member_join", None, |state, time| Ok(state.join(name, time))).await
    }

    async fn member_beat(&self, member: MemberId) -> Result<()> {
        self.call("member_beat", Some(member), |state, time| state.beat(member, time)).await
    }

    async fn member_leave(&self, member: MemberId) -> Result<()> {
        self.call("member_leave", Some(member), |state, time| {
            state.forget(member, time);
            Ok(())
        })
        .await
    }

    async fn shards_survey(&self, subscription: &str, member: MemberId, stands: bool) -> Result<Survey> {
        let survey = |state: &mut State, time| state.survey(subscription, member, stands, time);
        self.call("shards_survey", Some(member), survey).await
    }

    async fn shards_take(
        &self,
        subscription: &str,
        member: MemberId,
        wanted: ShardSet,
    ) -> Result<Option<Taken>> {
        let take = |state: &mut State, time| state.take(subscription, member, wanted, time);
        self.call("shards_take", Some(member), take).await
    }

    async fn shards_release(&self, hold: &Hold) -> Result<()> {
        self.call("shards_release", Some(hold.member), |state, time| state.release(hold, time)).await
    }

    async fn fetch(&self, hold: &Hold, after: Position, room: Room) -> Result<Chunk> {
        self.call("fetch", Some(hold.member), |state, _| state.fetch(hold, after, room)).await
    }

    async fn fetch_due(&self, hold: &Hold, loaded: HashSet<EventId>, room: Room) -> Result<DueRows> {
        self.call("fetch_due", Some(hold.member), |state, time| state.fetch_due(hold, &loaded, room, time))
            .await
    }

    async fn settle(&self, hold: &Hold, settle: Arc<Settle>) -> Result<Settled> {
        self.call("settle", Some(hold.member), |state, time| state.settle(hold, &settle, time)).await
    }

    async fn settle_with(
        &self,
        hold: &Hold,
        settle: Arc<Settle>,
        work: MemoryWork,
    ) -> Result<Result<Settled, Failure>> {
        self.call("settle_with", Some(hold.member), |state, time| {
            state.held(hold)?;
            let mut tx = MemoryTx::default();
            match catch_unwind(AssertUnwindSafe(|| work(&mut tx))) {
                Err(_) => Ok(Err(Failure::retry("the handler panicked"))),
                Ok(Err(failure)) => Ok(Err(failure)),
                Ok(Ok(())) => {
                    let settled = state.settle(hold, &settle, time)?;
                    state.effects.append(&mut tx.notes);
                    Ok(Ok(settled))
                }
            }
        })
        .await
    }

    async fn wake(&self) {
        self.shared.wake.notified().await;
    }

    async fn watch(&self) -> Option<Watch> {
        let mut watch = self.shared.watches.subscribe();
        Some(Box::pin(async move {
            // A store that is gone has nothing new any more, and a wake may come for nothing.
            let _ = watch.changed().await;
        }))
    }
}

impl QueueStore for MemoryStore {
    async fn fed(&self, hold: &Hold) -> Result<Fed> {
        self.call("fed", Some(hold.member), |state, _| state.fed(hold)).await
    }

    async fn feed(&self, hold: &Hold, feed: Arc<Feed>) -> Result<Option<i64>> {
        self.call_and_wake("feed", |state, _| state.feed(hold, &feed)).await
    }

    async fn claim(&self, subscription: &Subscription, member: MemberId, ask: Ask) -> Result<Claimed> {
        self.call("claim", Some(member), |state, time| state.claim(subscription, ask, time)).await
    }

    async fn extend(&self, tokens: Vec<Token>, progress: Vec<EventProgress>) -> Result<Vec<Extended>> {
        self.call("extend", None, |state, time| Ok(state.extend(&tokens, &progress, time))).await
    }

    async fn queue_settle(
        &self,
        subscription: &Subscription,
        member: MemberId,
        settle: Arc<QueueSettle>,
    ) -> Result<QueueSettled> {
        let apply = |state: &mut State, time| state.queue_settle(subscription, member, &settle, time);
        self.call("queue_settle", Some(member), apply).await
    }

    async fn sweep(&self, subscription: &Subscription) -> Result<Swept> {
        self.call("sweep", None, |state, time| {
            let swept = state.sweep(subscription, time)?;
            if swept.reaped + swept.due > 0 {
                self.give_wake();
            }
            Ok(swept)
        })
        .await
    }

    async fn delivery_cancel(&self, letter: &LetterId, actor: &str) -> Result<Option<Cancelled>> {
        self.call("delivery_cancel", None, |state, time| state.cancel(letter, actor, time)).await
    }
}
