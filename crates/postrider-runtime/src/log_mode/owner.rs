//! The loop of a member that owns a subscription: read, hand out, settle.
//!
//! ```text
//!           ┌────────────────────────────────────────────────────────────┐
//!           │ hand out what is ready · begin a settle, a read · wait     │◄─┐
//!           └──────┬─────────────────────────────────────────────────────┘  │
//!   chunk of the log, due rows, outcomes, the store's answer, wake, timer ──┘
//! ```
//!
//! All decisions are made by [`Lanes`], [`Breaker`] and [`Poller`], which are pure; this file owns the
//! tasks and the clock. At most one read of the log is under way, beside at most one *row call*: a settle,
//! a read of due rows, or a transactional handler's work. Row calls never overlap, which is what lets the
//! store's answers and the lanes' memory describe the same moment.
//!
//! Every await can be the last: nothing is kept here that the store does not also know, or that being
//! delivered again does not make good.

mod drain;
mod hand_out;

use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::Origin;
use postrider_core::settle::{Chunk, DueRows, Hold, Settle, Settled, Taken};
use postrider_core::store::Pace;
use postrider_core::{Epoch, Error, Failure, LogStore, Outcome, Result, limits};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::call::{Call, ends_worker, optional};
use crate::context::{
    Context, ERROR_WAIT_MAX, ERROR_WAIT_MIN, Ended, SETTLE_GAPS_EVERY, SLOW_AFTER, Summary, panicked,
};
use crate::dispatch::breaker::{Breaker, Permission};
use crate::dispatch::failures::FailureLog;
use crate::dispatch::hand_out::{Attempted, Class};
use crate::dispatch::in_place::InPlace;
use crate::dispatch::permits::{Leave, Permit};
use crate::dispatch::worker::Work;
use crate::log_mode::lanes::{Lanes, Rules, Wanted};
use crate::reading::fine_timer::FineTimer;
use crate::reading::reader::{Reader, Rested};

/// How often the owner looks for rows that others have made due, e.g. by a replay.
const LOOK_FOR_DUE_EVERY: Duration = Duration::from_secs(1);
/// How often to report that too many keys wait.
const TELL_PARKED_EVERY: Duration = Duration::from_secs(60);
/// An outcome that has waited this many times the pace of settles for its own holds the hand-out back: what
/// is finished and not settled comes again if the process dies, and would be more and more while a store is
/// slow to take settles.
const OVERDUE_AFTER: u32 = 2;

/// Instants are durations since `began`.
pub(crate) struct Owner<S: LogStore> {
    store: S,
    hold: Hold,
    /// The epoch of all shards, if all are held at one.
    sole_epoch: Option<Epoch>,
    work: Work<S>,
    context: Context,
    pace: Pace,
    origin: Arc<Origin>,
    began: Instant,
    rng: fastrand::Rng,
    summary: Summary,

    lanes: Lanes,
    breaker: Breaker,
    failure_log: FailureLog,
    reader: Reader<S>,
    timer: FineTimer,

    /// Hand-outs that did not finish at once.
    tasks: JoinSet<Finished>,
    leave: Leave,
    /// Leave for what has failed before.
    leave_again: Leave,
    in_place: InPlace,

    row_call: RowCall,
    /// A settle that must be sent again: whether it was applied is not known.
    resend: Option<Arc<Settle>>,
    /// When the first outcome came in that no settle has taken up yet.
    finished_at: Option<Duration>,
    /// The same of the settle that is under way, or to be sent again.
    settles_from: Option<Duration>,

    due_at: Duration,
    settle_at: Duration,
    settle_gaps_at: Duration,
    error_wait: Duration,

    paused: bool,
    /// When people are told again that too many keys wait.
    tell_parked_at: Duration,
    /// Whether the last look for due rows found none.
    nothing_due: bool,
    /// Since a drain began: when it ends at the latest.
    drain_until: Option<Duration>,
}

enum RowCall {
    None,
    Settle {
        settle: Arc<Settle>,
        call: Call<Settled>,
    },
    Due(Call<DueRows>),
    /// A transactional handler at work inside the settle that acks its event.
    Work {
        ticket: usize,
        settle: Arc<Settle>,
        began: Duration,
        call: Call<Result<Settled, Failure>>,
    },
}

/// A hand-out that has ended.
struct Finished {
    /// None if the owner does not wait for it any more.
    ticket: Option<usize>,
    attempted: Vec<Attempted>,
}

/// What the loop was waiting for.
enum Happened {
    Stop,
    Fetched(Result<Chunk>),
    Rows(RowAnswer),
    Finished(Result<Finished, JoinError>),
    Permit(Class, Permit),
    Woken,
    Rested(Rested),
    Timer,
}

enum RowAnswer {
    Settled(Result<Settled>),
    Due(Result<DueRows>),
    Worked(Result<Result<Settled, Failure>>),
}

impl<S: LogStore> Owner<S> {
    pub(crate) fn new(store: S, taken: Taken, work: Work<S>, context: Context) -> Self {
        let subscription = &taken.hold.subscription;
        let rules = Rules {
            order: subscription.order,
            on_dead: subscription.on_dead,
            retry: subscription.tuning.retry.clone(),
            #[cfg(feature = "sabotage")]
            forget_to_park: context.sabotage == Some(crate::sabotage::Sabotage::ForgetToPark),
        };
        let pace = store.pace();
        let origin = Arc::new(Origin { subscription: subscription.name.clone(), store_id: store.id() });
        let lanes = Lanes::new(rules, Arc::clone(&origin), &taken);
        let began = Instant::now();
        Self {
            reader: Reader::new(store.clone(), taken.hold.clone(), lanes.read_to(), began),
            lanes,
            failure_log: FailureLog::new(Arc::clone(&origin)),
            origin,
            sole_epoch: taken.hold.sole_epoch(),
            hold: taken.hold,
            breaker: Breaker::new(),
            timer: FineTimer::new(pace.poll_min < Duration::from_millis(1)),
            rng: fastrand::Rng::with_seed(context.seed),
            leave: Leave::new(context.permits.clone()),
            leave_again: Leave::new(context.again.then(&context.permits)),
            store,
            work,
            context,
            pace,
            began,
            summary: Summary::default(),
            tasks: JoinSet::new(),
            in_place: InPlace::default(),
            row_call: RowCall::None,
            resend: None,
            finished_at: None,
            settles_from: None,
            due_at: Duration::ZERO,
            settle_at: Duration::ZERO,
            settle_gaps_at: Duration::ZERO,
            error_wait: ERROR_WAIT_MIN,
            paused: false,
            tell_parked_at: Duration::ZERO,
            nothing_due: false,
            drain_until: None,
        }
    }

    /// Runs until drained or lost. Dropping it is a crash.
    pub(crate) async fn run(mut self) -> (Summary, Result<Ended>) {
        let ended = self.turn().await;
        self.tell_failures();
        self.failure_log.tell_rest();
        // The next owner of these shards in this process must not run beside a handler of ours.
        self.tasks.shutdown().await;
        (self.summary, ended)
    }

    async fn turn(&mut self) -> Result<Ended> {
        loop {
            if self.context.membership.borrow().member != self.hold.member {
                // The store forgot this member, and the keeper has joined as a new one: no lease protects these shards.
                return Ok(Ended::Lost);
            }
            self.begin_fetch();
            let busy = self.hand_out();
            self.tell_failures();
            self.tell_parked();
            self.begin_row_call();
            if self.is_over()? {
                return self.end().await;
            }
            let happened = self.wait(busy).await;
            if let Some(ended) = self.take_in(happened)? {
                return Ok(ended);
            }
            while let Some(finished) = self.tasks.try_join_next() {
                self.take_in(Happened::Finished(finished))?;
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Tells people, once a minute, that so many keys wait behind failed events that nothing more is read.
    fn tell_parked(&mut self) {
        let now = self.now();
        if self.lanes.parked() < limits::PARKED_KEYS_MAX || now < self.tell_parked_at {
            return;
        }
        self.tell_parked_at = now + TELL_PARKED_EVERY;
        warn!(
            subscription = self.origin.subscription,
            parked = self.lanes.parked(),
            "too many keys wait behind failed events: nothing more is read until some of them are delivered, replayed or \
             discarded; see `postrider dead-letter list`"
        );
    }

    /// Begins the most urgent row call, if none is under way.
    fn begin_row_call(&mut self) {
        if !matches!(self.row_call, RowCall::None) {
            return;
        }
        let now = self.now();
        if let Some(settle) = &self.resend {
            if now >= self.settle_at {
                self.begin_settle(Arc::clone(settle));
            }
            return;
        }
        let settle_due = match self.lanes.wanted(now, SLOW_AFTER) {
            Wanted::Nothing => false,
            Wanted::Sometime => now >= self.settle_gaps_at.max(self.settle_at) || self.context.until_idle,
            Wanted::Soon => now >= self.settle_at,
        };
        if settle_due {
            let settle = self.lanes.compose(now, SLOW_AFTER);
            // What was finished before could not be settled: an earlier event was still running.
            let lately = now.saturating_sub(self.pace.settle_every);
            self.settles_from = self.finished_at.take().map(|finished_at| finished_at.max(lately));
            self.begin_settle(Arc::new(settle));
        } else if now >= self.due_at && self.drain_until.is_none() && !self.paused {
            self.begin_due();
        }
    }

    fn begin_settle(&mut self, settle: Arc<Settle>) {
        let (store, hold, sent) = (self.store.clone(), self.hold.clone(), Arc::clone(&settle));
        let call = Call::begin(async move { store.settle(&hold, sent).await });
        self.settle_at = self.now() + self.pace.settle_every;
        self.settle_gaps_at = self.now() + SETTLE_GAPS_EVERY;
        self.row_call = RowCall::Settle { settle, call };
    }

    /// Whether outcomes wait too long for their settle. Those behind an event that still runs do not count: nothing can
    /// settle them.
    fn is_settle_overdue(&self, now: Duration) -> bool {
        let is_late = |since: Option<Duration>| {
            since.is_some_and(|since| now >= since + self.pace.settle_every * OVERDUE_AFTER)
        };
        match &self.row_call {
            RowCall::Settle { .. } => is_late(self.settles_from.or(self.finished_at)),
            // Settles wait for it.
            RowCall::Due(_) => {
                is_late(self.finished_at) && self.lanes.wanted(now, SLOW_AFTER) == Wanted::Soon
            }
            RowCall::None => self.resend.is_some() && is_late(self.settles_from.or(self.finished_at)),
            RowCall::Work { .. } => false,
        }
    }

    fn begin_due(&mut self) {
        // Without room the look is put off until what is loaded has been settled.
        let Some(room) = self.lanes.room_for_due() else {
            self.due_at = self.now() + self.pace.settle_every;
            return;
        };
        let (store, hold, loaded) = (self.store.clone(), self.hold.clone(), self.lanes.loaded());
        self.row_call = RowCall::Due(Call::begin(async move { store.fetch_due(&hold, loaded, room).await }));
    }

    fn begin_fetch(&mut self) {
        if self.drain_until.is_none() {
            self.reader.begin(self.lanes.room());
        }
    }

    /// Waits for the next thing to happen. Cancel safe: whatever is not returned is still there.
    async fn wait(&mut self, busy: bool) -> Happened {
        let deadline = self.began + self.next_deadline();
        let may_wake = self.reader.fetching.is_none() && self.drain_until.is_none();
        tokio::select! {
            biased;
            () = self.context.stop.cancelled(), if self.drain_until.is_none() => Happened::Stop,
            answer = answer(&mut self.row_call) => {
                Happened::Rows(answer)
            }
            chunk = optional(&mut self.reader.fetching) => Happened::Fetched(chunk),
            Some(finished) = self.tasks.join_next(), if !self.tasks.is_empty() => Happened::Finished(finished),
            () = std::future::ready(()), if busy => Happened::Timer,
            permit = self.leave.wait() => Happened::Permit(Class::Fresh, permit),
            permit = self.leave_again.wait() => Happened::Permit(Class::Again, permit),
            () = self.reader.wake.next(), if may_wake => Happened::Woken,
            rested = self.reader.rest.next(!may_wake) => Happened::Rested(rested),
            () = self.timer.wait_until(deadline) => Happened::Timer,
        }
    }

    fn next_deadline(&self) -> Duration {
        let now = self.now();
        let mut next = now + LOOK_FOR_DUE_EVERY;
        let mut consider = |at: Option<Duration>| next = at.map_or(next, |at| next.min(at));
        consider(self.drain_until);
        if self.reader.fetching.is_none() && self.drain_until.is_none() && self.lanes.room().is_some() {
            consider(Some(self.reader.poll_at));
        }
        if matches!(self.row_call, RowCall::None) {
            if self.drain_until.is_none() && !self.paused {
                consider(Some(self.due_at));
            }
            match self.lanes.wanted(now, SLOW_AFTER) {
                _ if self.resend.is_some() => consider(Some(self.settle_at)),
                Wanted::Soon => consider(Some(self.settle_at)),
                Wanted::Sometime => consider(Some(self.settle_gaps_at.max(self.settle_at))),
                Wanted::Nothing => consider(self.lanes.slow_at(SLOW_AFTER)),
            }
        }
        if let Permission::Not { until } = self.breaker.permission(now) {
            consider(until);
        }
        consider(self.failure_log.tells_at());
        // A deadline that has passed without effect must not spin.
        next.max(now + Duration::from_micros(50))
    }

    fn take_in(&mut self, happened: Happened) -> Result<Option<Ended>> {
        match happened {
            Happened::Stop => {
                debug!(subscription = self.origin.subscription, "draining");
                self.drain_until = Some(self.now() + self.context.drain_within);
                self.reader.stop();
            }
            Happened::Fetched(chunk) => {
                self.reader.fetching = None;
                return self.fetched(chunk);
            }
            Happened::Rows(answer) => return self.rows_answered(answer),
            Happened::Finished(finished) => {
                let finished = finished.map_err(|error| panicked(&error))?;
                if let Some(ticket) = finished.ticket {
                    self.finish(ticket, finished.attempted, self.now());
                }
            }
            Happened::Permit(class, permit) => self.leave_of(class).keep(permit),
            Happened::Woken | Happened::Rested(Rested::Woken) => {
                self.reader.woken();
                self.due_at = self.due_at.min(self.now() + self.pace.settle_every);
            }
            Happened::Rested(Rested::Watch(watch)) => self.reader.watch_answered(watch),
            Happened::Timer => {}
        }
        Ok(None)
    }

    fn fetched(&mut self, chunk: Result<Chunk>) -> Result<Option<Ended>> {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                self.reader.failed(self.error_wait);
                return self.failed("read the log", error);
            }
        };
        self.error_wait = ERROR_WAIT_MIN;
        if chunk.paused != self.paused {
            debug!(subscription = self.origin.subscription, paused = chunk.paused, "pause changed");
        }
        self.paused = chunk.paused;
        self.reader.found(&chunk);
        #[cfg(feature = "sabotage")]
        if self.context.sabotage == Some(crate::sabotage::Sabotage::TrustWakes) && !chunk.more {
            self.reader.poll_at = Duration::MAX;
        }
        // The next read first, so that the store works while this one is handed out.
        self.begin_fetch();
        self.lanes.offer(&chunk);
        Ok(None)
    }

    fn rows_answered(&mut self, answer: RowAnswer) -> Result<Option<Ended>> {
        match (std::mem::replace(&mut self.row_call, RowCall::None), answer) {
            (RowCall::Settle { settle, .. }, RowAnswer::Settled(settled)) => match settled {
                Ok(settled) => {
                    self.error_wait = ERROR_WAIT_MIN;
                    (self.resend, self.settles_from) = (None, None);
                    self.settled(&settle, &settled);
                }
                Err(error) => {
                    self.resend = Some(settle);
                    self.settle_at = self.now() + self.error_wait;
                    return self.failed("settle", error);
                }
            },
            (RowCall::Due(_), RowAnswer::Due(due)) => match due {
                Ok(due) => {
                    self.nothing_due = due.runs.is_empty();
                    let next = due.next_in.unwrap_or(LOOK_FOR_DUE_EVERY).min(LOOK_FOR_DUE_EVERY);
                    self.due_at = self.now() + if due.runs.is_empty() { next } else { Duration::ZERO };
                    self.lanes.load(due);
                }
                Err(error) => {
                    self.due_at = self.now() + self.error_wait;
                    return self.failed("read due rows", error);
                }
            },
            (RowCall::Work { ticket, settle, began, .. }, RowAnswer::Worked(worked)) => {
                return self.worked(ticket, settle, began, worked);
            }
            _ => unreachable!("an answer belongs to the call that is under way"),
        }
        Ok(None)
    }

    fn settled(&mut self, settle: &Settle, settled: &Settled) {
        self.lanes.settled(settled);
        if !settle.rows.is_empty() || !settle.freed.is_empty() {
            self.nothing_due = false;
            self.due_at = self.now();
        }
    }

    fn worked(
        &mut self,
        ticket: usize,
        settle: Arc<Settle>,
        began: Duration,
        worked: Result<Result<Settled, Failure>>,
    ) -> Result<Option<Ended>> {
        let took = self.now().saturating_sub(began);
        match worked {
            Ok(Ok(settled)) => {
                self.finish(ticket, vec![Attempted { outcome: Outcome::Ack, took }], self.now());
                self.settled(&settle, &settled);
            }
            Ok(Err(failure)) => {
                // Nothing was written, so that what went along with the ack must be sent by itself.
                self.resend = Some(settle).filter(|settle| !settle.is_empty());
                self.finish(ticket, vec![Attempted { outcome: Outcome::Retry(failure), took }], self.now());
            }
            Err(error) => {
                // The work may have been committed: only the store knows, so that memory must go.
                return match self.failed("commit a transactional handler", error)? {
                    Some(ended) => Ok(Some(ended)),
                    None => Ok(Some(Ended::Lost)),
                };
            }
        }
        Ok(None)
    }

    /// Sorts a store's error: ownership lost, worth another try, or the end of this worker.
    fn failed(&mut self, what: &str, error: Error) -> Result<Option<Ended>> {
        if error.is_fenced() {
            return Ok(Some(Ended::Lost));
        }
        if ends_worker(&error, self.context.until_idle) {
            return Err(error);
        }
        warn!(subscription = self.origin.subscription, %error, "could not {what}; trying again");
        self.error_wait = (self.error_wait * 2).min(ERROR_WAIT_MAX);
        Ok(None)
    }
}

async fn answer(call: &mut RowCall) -> RowAnswer {
    match call {
        RowCall::None => std::future::pending().await,
        RowCall::Settle { call, .. } => RowAnswer::Settled(call.answer().await),
        RowCall::Due(call) => RowAnswer::Due(call.answer().await),
        RowCall::Work { call, .. } => RowAnswer::Worked(call.answer().await),
    }
}
