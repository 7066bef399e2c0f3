//! When the store is asked for what, and what its answers mean.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::{Again, Ask, Claimed, Fate, QueueSettle, QueueSettled, Remnant};
use postrider_core::{ErrorKind, Mode, Order, QueueStore, Result, Subscription, limits};
use tokio::time::Instant;
use tracing::warn;

use super::{
    BESIDE_FOR, CLAIM_EVERY, CLAIM_EVERY_BESIDE, Claiming, LOOK_AT_TUNING_EVERY, Queue, RATE_WAIT,
    SETTLE_ROWS, SLOW_AFTER, SWEEP_EVERY, Settling, SweptAndTuned,
};
use crate::call::{Call, ends_worker};
use crate::context::{Context, ERROR_WAIT_MAX, ERROR_WAIT_MIN};
use crate::dispatch::breaker::Permission;
use crate::handoff::Answer;

/// Reads a subscription, as often as it takes; none if it is gone or it is time to stop.
pub(super) async fn subscription<S: QueueStore>(
    store: &S,
    name: &str,
    context: &Context,
) -> Result<Option<Subscription>> {
    let mut wait = ERROR_WAIT_MIN;
    loop {
        match store.subscription_get(name).await {
            Ok(subscription) => return Ok(Some(subscription)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if ends_worker(&error, context.until_idle) => return Err(error),
            Err(error) => warn!(subscription = name, %error, "could not read the subscription; trying again"),
        }
        tokio::select! {
            () = context.stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(ERROR_WAIT_MAX),
        }
    }
}

impl<S: QueueStore> Queue<S> {
    /// Rows and events to claim, if there is room for any, and how many of these rows may have failed before.
    pub(super) fn wanted(&self) -> Option<(usize, usize, usize)> {
        let now = self.now();
        if self.end.is_some() || !self.aborted.is_empty() {
            return None;
        }
        match self.breaker.permission(now) {
            Permission::Freely => {}
            Permission::One => return self.leases.room(1, now).map(|_| (1, 1, usize::from(self.again_turn))),
            Permission::Not { .. } => return None,
        }
        let concurrency = self.subscription.tuning.concurrency as usize;
        let slots = concurrency.saturating_sub(self.under_way.len()).min(self.context.permits.available());
        let events = self.leases.room(slots.saturating_mul(self.batch_events()), now)?;
        let rows = if self.leases.is_careful() { 1 } else { events.min(limits::CLAIM_ROWS_MAX) };
        let again = match rows {
            _ if self.places_again() == 0 => 0,
            1 => usize::from(self.again_turn),
            rows => self.leases.room_again(rows),
        };
        Some((rows, events, again))
    }

    /// Whether a claim is under way, by ourselves or by the feeder beside us.
    pub(super) fn is_claiming(&self) -> bool {
        self.claiming.is_some() || self.context.fed.offer.taken().is_some()
    }

    /// What is wanted beyond what is being claimed.
    pub(super) fn ask(&self) -> Option<Ask> {
        let (mut rows, mut events, mut again) = self.wanted()?;
        let under_way = self.claiming.iter().map(|claiming| claiming.ask);
        for ask in under_way.chain(self.context.fed.offer.taken()) {
            (rows, events) = (rows.saturating_sub(ask.rows), events.saturating_sub(ask.events));
            again = again.saturating_sub(ask.again);
        }
        let lease = self.subscription.tuning.queue.lease;
        let bytes = limits::CHUNK_BYTES_MAX;
        (rows > 0 && events > 0).then_some(Ask { rows, events, bytes, again, all: false, lease })
    }

    /// Begins a claim if it is time to, and lets the feeder claim what there is room for besides.
    pub(super) fn begin_claim(&mut self) {
        if self.claiming.is_none()
            && self.now() >= self.claim_at
            && let Some(ask) = self.ask()
        {
            // A part is left for the feeder, who is faster.
            let part = if self.is_beside() { 2 } else { 1 };
            let Ask { rows, events, again, .. } = ask;
            let [rows, events, again] = [rows, events, again].map(|some| some.div_ceil(part));
            self.claim(Ask { rows, events, again, ..ask });
        }
        let queue = &self.subscription.tuning.queue;
        // Limits of all members together are for claims only: those who feed must not wait for anybody.
        let limited = queue.total.is_some() || queue.rate.is_some();
        match self.ask().filter(|_| !limited) {
            Some(ask) => self.context.fed.offer.open(ask),
            None => self.context.fed.offer.close(),
        }
    }

    fn claim(&mut self, ask: Ask) {
        let member = self.context.membership.borrow().member;
        let (store, subscription) = (self.store.clone(), Arc::clone(&self.subscription));
        let last = self.idle.swept && self.leases.is_empty() && self.is_settled();
        // A worker that is about to end must have looked at everything, also at rows that failed before.
        let ask = if last { Ask { all: true, again: ask.rows, ..ask } } else { ask };
        let asked = Instant::now();
        let call = Call::begin(async move { store.claim(&subscription, member, ask).await });
        self.claiming = Some(Claiming { call, ask, asked, last });
    }

    pub(super) fn claimed(&mut self, claimed: Result<Claimed>) -> Result<()> {
        let Some(Claiming { ask, asked, last, .. }) = self.claiming.take() else { return Ok(()) };
        let nothing = claimed.as_ref().is_ok_and(|claimed| claimed.rows.is_empty());
        if last && nothing {
            let now = self.now();
            self.idle.nothing_since.get_or_insert(now);
        }
        self.brought(claimed, ask, asked)
    }

    /// Takes in what the feeder beside us has claimed for us.
    pub(super) fn offered(&mut self, answer: Option<Answer>) -> Result<()> {
        let Some(Answer { claimed, ask, asked }) = answer else { return Ok(()) };
        self.beside_at = Some(self.now());
        self.brought(claimed, ask, asked)
    }

    fn brought(&mut self, claimed: Result<Claimed>, ask: Ask, asked: Instant) -> Result<()> {
        let now = self.now();
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                self.claim_at = now + self.error_wait;
                return self.failed("claim", error);
            }
        };
        self.error_wait = ERROR_WAIT_MIN;
        if claimed.paused && !self.paused {
            self.leases.give_back(Duration::ZERO);
        }
        self.paused = claimed.paused;
        let (rows, events) =
            (claimed.rows.len(), claimed.rows.iter().map(|row| row.events.len()).sum::<usize>());
        if rows > 0 {
            self.idle.nothing_since = None;
            self.poller.found(now);
        }
        let again = claimed.rows.iter().filter(|row| row.finished > 0).count();
        let full =
            rows > 0 && (rows >= ask.rows || events >= ask.events || (again > 0 && again >= ask.again));
        let freely = self.breaker.permission(now) == Permission::Freely;
        self.again_turn = ask.again == 0 && (rows == 0 || freely);
        self.claim_at =
            now + if full { Duration::ZERO } else { self.poller.wait(now).max(self.claim_every()) };
        if rows > 0 {
            self.take_claim(claimed, asked, ask.lease);
        }
        Ok(())
    }

    /// Whether there is a feeder beside us.
    fn is_beside(&self) -> bool {
        self.beside_at.is_some_and(|at| self.now() < at + BESIDE_FOR)
    }

    /// Shortest wait after a claim that was not full.
    fn claim_every(&self) -> Duration {
        if self.is_beside() { CLAIM_EVERY_BESIDE } else { CLAIM_EVERY }
    }

    fn take_claim(&mut self, claimed: Claimed, asked: Instant, lease: Duration) {
        for token in self.leases.outdated_by(&claimed) {
            self.lose(token);
        }
        let token = claimed.token;
        if !self.claims.hold(token, lease, asked) {
            warn!(
                subscription = self.origin.subscription,
                "a claim was answered too late; it will be made again"
            );
            return;
        }
        let tally = self.leases.offer(claimed, self.now());
        self.count(tally);
        if self.end.is_some() {
            self.leases.give_back(Duration::ZERO);
        }
    }

    /// Whether the store knows all outcomes.
    pub(super) fn is_settled(&self) -> bool {
        let now = self.now();
        self.settling.is_none() && self.resend.is_none() && self.leases.unsettled(now, SLOW_AFTER) == 0
    }

    pub(super) fn begin_settle(&mut self) {
        let now = self.now();
        if self.settling.is_some() {
            return;
        }
        if let Some(settle) = &self.resend {
            if now >= self.settle_at {
                self.send(Arc::clone(settle));
            }
            return;
        }
        let rows = self.leases.unsettled(now, SLOW_AFTER);
        // A worker with nothing else to do settles at once if a lane may wait for that, or another worker that
        // a limit keeps from claiming.
        let queue = &self.subscription.tuning.queue;
        let awaited =
            self.subscription.order == Order::Key || queue.per_key.is_some() || queue.total.is_some();
        let idles = (awaited && !self.leases.has_ready(now)) || self.end.is_some() || self.context.until_idle;
        if rows > 0 && (now >= self.settle_at || rows >= SETTLE_ROWS || idles) {
            let settle = self.leases.compose(now, SLOW_AFTER);
            self.send(Arc::new(settle));
        }
    }

    fn send(&mut self, settle: Arc<QueueSettle>) {
        let member = self.context.membership.borrow().member;
        let (store, subscription) = (self.store.clone(), Arc::clone(&self.subscription));
        let sent = Arc::clone(&settle);
        let call = Call::begin(async move { store.queue_settle(&subscription, member, sent).await });
        self.settle_at = self.now() + self.store.pace().settle_every;
        self.settling = Some(Settling { settle, call });
    }

    pub(super) fn settled(&mut self, settled: Result<QueueSettled>) -> Result<()> {
        let Some(Settling { settle, .. }) = self.settling.take() else { return Ok(()) };
        let now = self.now();
        let settled = match settled {
            Ok(settled) => settled,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.resend = None;
                self.lose_all();
                return self.failed("settle", error);
            }
            Err(error) => {
                self.resend = Some(settle);
                self.settle_at = now + self.error_wait;
                return self.failed("settle", error);
            }
        };
        self.error_wait = ERROR_WAIT_MIN;
        self.note_settled(&settle);
        if self.resend.take().is_none() && !settled.fenced.is_empty() {
            warn!(
                subscription = self.origin.subscription,
                rows = settled.fenced.len(),
                "others have taken these over: what became of them here counts for nothing"
            );
            self.claims.hurry();
        }
        // What has left may have made others ready, and what stays may be due soon.
        self.idle.nothing_since = None;
        self.claim_at = self.claim_at.min(now);
        if let Some(after) = soonest(&settle) {
            self.sweep_at = self.sweep_at.min(now + after);
        }
        Ok(())
    }

    /// Forgets the claims of which nothing is left.
    pub(super) fn note_settled(&mut self, settle: &QueueSettle) {
        for token in self.leases.settled(settle) {
            self.claims.forget(token);
        }
    }

    pub(super) fn begin_sweep(&mut self) {
        let now = self.now();
        if self.sweeping.is_some() || self.end.is_some() || now < self.sweep_at {
            return;
        }
        self.idle.sweeping = self.idle.fed;
        let (store, subscription) = (self.store.clone(), Arc::clone(&self.subscription));
        let look = now >= self.tuned_at;
        if look {
            self.tuned_at = now + LOOK_AT_TUNING_EVERY;
        }
        self.sweeping = Some(Call::begin(async move {
            let swept = store.sweep(&subscription).await?;
            let tuned =
                if look { Some(Box::new(store.subscription_get(&subscription.name).await?)) } else { None };
            Ok((swept, tuned))
        }));
    }

    pub(super) fn swept(&mut self, swept: Result<SweptAndTuned>) -> Result<()> {
        self.sweeping = None;
        let now = self.now();
        let (swept, tuned) = match swept {
            Ok(swept) => swept,
            Err(error) => {
                self.sweep_at = now + self.error_wait;
                return self.failed("sweep", error);
            }
        };
        let found = swept.reaped + swept.due;
        let every = SWEEP_EVERY.mul_f64(0.75 + self.rng.f64() / 2.0);
        let more = found >= limits::SWEEP_ROWS_MAX as u64;
        let soon = swept.next_due_in.filter(|_| !more).unwrap_or(every);
        self.sweep_at =
            now + if more { Duration::ZERO } else { soon.clamp(self.store.pace().poll_min, every) };
        self.idle.swept = self.idle.sweeping && found == 0 && swept.unsure == 0;
        if self.idle.fed && !self.idle.sweeping {
            self.sweep_at = now;
        } else if self.idle.fed && swept.unsure > 0 {
            self.sweep_at = now + self.store.pace().poll_min;
        }
        if found > 0 {
            self.idle.nothing_since = None;
            self.claim_at = now;
            if self.idle.fed {
                self.sweep_at = now + self.store.pace().poll_min;
            }
        }
        match tuned {
            Some(tuned) if tuned.mode == Mode::Queue => {
                self.leases.set_retry(tuned.tuning.retry.clone());
                self.subscription = Arc::from(tuned);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether nothing has been left for long enough to believe it.
    pub(super) fn is_idle(&self) -> bool {
        let limited = self.subscription.tuning.queue.rate.is_some();
        let patience = if limited { RATE_WAIT } else { Duration::ZERO };
        let nothing = self.idle.nothing_since.is_some_and(|since| self.now() >= since + patience);
        self.idle.swept && (nothing || self.paused)
    }
}

/// After how long the first of these rows is to be attempted again.
fn soonest(settle: &QueueSettle) -> Option<Duration> {
    let after = |again: &Again| Some(again.after).filter(|after| !after.is_zero());
    let of_row = |fate: &Fate| match fate {
        Fate::Again(again) => after(again),
        Fate::Split(remnants) => {
            let again = remnants.iter().filter_map(|(_, remnant)| match remnant {
                Remnant::Again(again) => after(again),
                Remnant::Dead | Remnant::Running | Remnant::Acked => None,
            });
            again.min()
        }
        Fate::Done | Fate::Dead | Fate::Acked(_) => None,
    };
    settle.rows.iter().filter_map(|row| of_row(&row.fate)).min()
}
