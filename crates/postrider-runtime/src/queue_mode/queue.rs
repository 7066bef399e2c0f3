//! The loop of a worker in mode `queue`: claim, hand out, settle, sweep.
//!
//! ```text
//!           ┌────────────────────────────────────────────────────────────┐
//!           │ hand out what is ready · begin a settle, a claim, a sweep  │◄─┐
//!           └──────┬─────────────────────────────────────────────────────┘  │
//!   claimed rows, outcomes, the store's answers, news of leases, wake, timer ┘
//! ```
//!
//! It holds no shards: any number of processes run it, and the database shares the work out. All decisions
//! are made by [`Leases`], [`Breaker`] and [`Poller`], which are pure; this file owns the tasks and the
//! clock. At most one claim, one settle and one sweep are under way at a time, and a claim by the feeder
//! beside it. Meanwhile `claims.rs` extends the leases.
//!
//! Every await can be the last: what was claimed and not settled comes back when its lease has run out.
//! Nothing is handed out while the future of a lost hand-out has not ended, so that a process never works on
//! one event twice at a time.

mod calls;
mod drain;
mod hand_out;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::Origin;
use postrider_core::queue::{Ask, Board, Claimed, QueueSettle, QueueSettled, Swept, Token};
use postrider_core::{Error, ErrorKind, QueueStore, Result, Subscription};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::call::{Call, ends_worker, optional};
use crate::context::{Context, ERROR_WAIT_MAX, ERROR_WAIT_MIN, SLOW_AFTER, Summary, panicked};
use crate::dispatch::breaker::{Breaker, Permission};
use crate::dispatch::failures::FailureLog;
use crate::dispatch::hand_out::{Attempted, Class};
use crate::dispatch::handler::Handle;
use crate::dispatch::in_place::InPlace;
use crate::dispatch::permits::{Leave, Permit};
use crate::handoff::Answer;
use crate::queue_mode::claims::{self, Claims, Doubted, News};
use crate::queue_mode::leases::Leases;
use crate::reading::fine_timer::FineTimer;
use crate::reading::poller::Poller;

/// How often rows are looked for that are due, or whose worker has ended.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether the subscription was tuned.
const LOOK_AT_TUNING_EVERY: Duration = Duration::from_secs(10);
/// A handler whose event was cancelled is dropped if it has not ended after this long.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Shortest wait between two claims that were not full. A claim costs the store more than a look at the log,
/// and where the feeder is in this process it says when there is something.
const CLAIM_EVERY: Duration = Duration::from_millis(2);
/// The same where a feeder beside us claims for us with what it feeds: only what others have made ready is
/// found by asking.
const CLAIM_EVERY_BESIDE: Duration = Duration::from_millis(20);
/// For how long a feeder is taken to be there that has claimed for us.
const BESIDE_FOR: Duration = Duration::from_secs(1);
/// Rows that are settled at once when so many wait.
const SETTLE_ROWS: usize = 1_000;
/// How long a limit on the rate may keep everything from being claimed.
const RATE_WAIT: Duration = Duration::from_millis(1_500);

/// Instants are durations since `began`.
pub(crate) struct Queue<S: QueueStore> {
    store: S,
    subscription: Arc<Subscription>,
    handle: Arc<dyn Handle>,
    context: Context,
    origin: Arc<Origin>,
    began: Instant,
    rng: fastrand::Rng,
    summary: Summary,

    leases: Leases,
    claims: Arc<Claims>,
    breaker: Breaker,
    failure_log: FailureLog,
    poller: Poller,
    timer: FineTimer,

    /// Hand-outs that did not finish at once.
    tasks: JoinSet<Finished>,
    /// Their tasks, by hand-out.
    under_way: BTreeMap<usize, UnderWay>,
    /// When some of these must have ended.
    ending: BTreeMap<usize, Instant>,
    /// Tasks that were aborted and have not ended yet.
    aborted: HashSet<Id>,
    /// Claims that are given up when their time comes.
    doubted: Vec<Doubted>,
    leave: Leave,
    /// Leave for what has failed before.
    leave_again: Leave,
    in_place: InPlace,
    /// Extends leases beside this loop.
    _keeper: JoinSet<()>,

    claiming: Option<Claiming>,
    settling: Option<Settling>,
    /// A settle that must be sent again: whether it was applied is not known.
    resend: Option<Arc<QueueSettle>>,
    sweeping: Option<Call<SweptAndTuned>>,

    claim_at: Duration,
    /// Whether a claim of one row is for one that has failed before: those take turns with the others.
    again_turn: bool,
    /// When a feeder beside us has last claimed for us.
    beside_at: Option<Duration>,
    settle_at: Duration,
    sweep_at: Duration,
    tuned_at: Duration,
    error_wait: Duration,
    paused: bool,
    idle: Idle,
    end: Option<End>,
}

/// What a sweep found, and the subscription as it was tuned, if that was looked at.
type SweptAndTuned = (Swept, Option<Box<Subscription>>);

/// A hand-out at work.
struct UnderWay {
    task: AbortHandle,
    class: Class,
}

struct Claiming {
    call: Call<Claimed>,
    ask: Ask,
    asked: Instant,
    /// Whether everything had been fed, settled and swept before, so that nothing is left if it brings nothing.
    last: bool,
}

struct Settling {
    settle: Arc<QueueSettle>,
    call: Call<QueueSettled>,
}

/// What is known about whether anything is left that can be delivered now.
#[derive(Debug, Default)]
struct Idle {
    /// Everything was fed.
    fed: bool,
    /// The sweep that is under way has begun after that.
    sweeping: bool,
    /// One of these has found nothing.
    swept: bool,
    /// Since when claims bring nothing.
    nothing_since: Option<Duration>,
}

/// How this worker ends.
#[derive(Debug)]
struct End {
    /// When a drain ends at the latest.
    until: Duration,
    result: Result<()>,
}

/// A hand-out that has ended.
struct Finished {
    /// None if the worker does not wait for it any more.
    out: Option<usize>,
    attempted: Vec<Attempted>,
}

/// What the loop was waiting for.
enum Happened {
    Stop,
    Settled(Result<QueueSettled>),
    Claimed(Result<Claimed>),
    Offered(Option<Answer>),
    Swept(Result<SweptAndTuned>),
    Finished(Result<(Id, Finished), JoinError>),
    Permit(Class, Permit),
    News,
    Woken,
    Timer,
}

/// Runs one worker until it has drained. Dropping it is a crash.
pub(crate) async fn run<S: QueueStore>(
    store: S,
    subscription: String,
    handle: Arc<dyn Handle>,
    context: Context,
) -> Result<Summary> {
    let subscription = calls::subscription(&store, &subscription, &context).await?;
    let Some(subscription) = subscription else {
        context.gone.cancel();
        return Ok(Summary::default());
    };
    let mut queue = Queue::new(store, subscription, handle, context);
    let ended = queue.turn().await;
    queue.context.fed.offer.close();
    // The next worker in this process must not run beside a handler of ours.
    queue.tasks.shutdown().await;
    queue.tell_failures();
    queue.failure_log.tell_rest();
    ended.map(|()| queue.summary)
}

impl<S: QueueStore> Queue<S> {
    fn new(store: S, subscription: Subscription, handle: Arc<dyn Handle>, context: Context) -> Self {
        let pace = store.pace();
        let origin = Arc::new(Origin { subscription: subscription.name.clone(), store_id: store.id() });
        let board = Board::default();
        let claims = Arc::new(Claims::new(board.clone()));
        let mut keeper = JoinSet::new();
        keeper.spawn(claims::keep(store.clone(), Arc::clone(&claims)));
        Self {
            leases: Leases::new(&subscription, Arc::clone(&origin), board),
            claims,
            breaker: Breaker::new(),
            failure_log: FailureLog::new(Arc::clone(&origin)),
            poller: Poller::new(pace.poll_min, pace.poll_max),
            timer: FineTimer::new(pace.poll_min < Duration::from_millis(1)),
            rng: fastrand::Rng::with_seed(context.seed),
            leave: Leave::new(context.permits.clone()),
            leave_again: Leave::new(context.again.then(&context.permits)),
            store,
            subscription: Arc::new(subscription),
            handle,
            context,
            origin,
            began: Instant::now(),
            summary: Summary::default(),
            tasks: JoinSet::new(),
            under_way: BTreeMap::new(),
            ending: BTreeMap::new(),
            aborted: HashSet::new(),
            doubted: Vec::new(),
            in_place: InPlace::default(),
            _keeper: keeper,
            claiming: None,
            settling: None,
            resend: None,
            sweeping: None,
            claim_at: Duration::ZERO,
            again_turn: false,
            beside_at: None,
            settle_at: Duration::ZERO,
            sweep_at: Duration::ZERO,
            tuned_at: LOOK_AT_TUNING_EVERY,
            error_wait: ERROR_WAIT_MIN,
            paused: false,
            idle: Idle::default(),
            end: None,
        }
    }

    async fn turn(&mut self) -> Result<()> {
        loop {
            self.doubt();
            let busy = self.hand_out();
            self.tell_failures();
            self.begin_settle();
            self.begin_claim();
            self.begin_sweep();
            self.look_for_the_end();
            if self.is_over() {
                return self.finish().await;
            }
            let happened = self.wait(busy).await;
            self.take_in(happened)?;
            while let Some(finished) = self.tasks.try_join_next_with_id() {
                self.take_in(Happened::Finished(finished))?;
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for the next thing to happen. Cancel safe: whatever is not returned is still there.
    async fn wait(&mut self, busy: bool) -> Happened {
        let deadline = self.began + self.next_deadline();
        let may_claim = self.end.is_none() && self.claiming.is_none();
        tokio::select! {
            biased;
            () = self.context.stop.cancelled(), if self.end.is_none() => Happened::Stop,
            () = self.claims.told() => Happened::News,
            settled = answer(&mut self.settling, |settling| &mut settling.call) => Happened::Settled(settled),
            claimed = answer(&mut self.claiming, |claiming| &mut claiming.call) => Happened::Claimed(claimed),
            answer = self.context.fed.offer.answered() => Happened::Offered(answer),
            swept = optional(&mut self.sweeping) => Happened::Swept(swept),
            Some(finished) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => Happened::Finished(finished),
            () = std::future::ready(()), if busy => Happened::Timer,
            permit = self.leave.wait() => Happened::Permit(Class::Fresh, permit),
            permit = self.leave_again.wait() => Happened::Permit(Class::Again, permit),
            () = self.context.fed.news.notified(), if may_claim => Happened::Woken,
            () = self.store.wake(), if may_claim => Happened::Woken,
            () = self.context.fed.over.cancelled(), if self.awaits_feeder() => Happened::Timer,
            () = self.timer.wait_until(deadline) => Happened::Timer,
        }
    }

    fn next_deadline(&self) -> Duration {
        let now = self.now();
        let since_began = |at: Instant| at.saturating_duration_since(self.began);
        let mut next = now + SWEEP_EVERY;
        let mut consider = |at: Option<Duration>| next = at.map_or(next, |at| next.min(at));
        consider(self.end.as_ref().map(|end| end.until));
        consider(self.failure_log.tells_at());
        consider(self.claims.doubted_at().map(since_began));
        consider(self.doubted.iter().map(|doubted| since_began(doubted.let_go_at)).min());
        consider(self.ending.values().copied().map(since_began).min());
        if self.settling.is_none() {
            let slow_at = self.leases.slow_at(SLOW_AFTER);
            let waits = self.resend.is_some() || self.leases.unsettled(now, SLOW_AFTER) > 0;
            consider(if waits { Some(self.settle_at) } else { slow_at });
        }
        if self.end.is_none() {
            if self.sweeping.is_none() {
                consider(Some(self.sweep_at));
            }
            if self.claiming.is_none() && self.ask().is_some() {
                consider(Some(self.claim_at));
            }
            consider(self.leases.alone_until().filter(|at| *at > now));
            if let Permission::Not { until } = self.breaker.permission(now) {
                consider(until);
            }
        }
        // A deadline that has passed without effect must not spin.
        next.max(now + Duration::from_micros(50))
    }

    fn take_in(&mut self, happened: Happened) -> Result<()> {
        match happened {
            Happened::Stop => self.drain(Ok(())),
            Happened::Settled(settled) => return self.settled(settled),
            Happened::Claimed(claimed) => return self.claimed(claimed),
            Happened::Offered(answer) => return self.offered(answer),
            Happened::Swept(swept) => return self.swept(swept),
            Happened::Finished(finished) => return self.ended(finished),
            Happened::Permit(class, permit) => self.leave_of(class).keep(permit),
            Happened::News => self.learn(),
            Happened::Woken => self.claim_at = self.now(),
            Happened::Timer => {}
        }
        Ok(())
    }

    /// Takes in what the keeper has learnt.
    fn learn(&mut self) {
        for news in self.claims.news() {
            match news {
                News::Lost(token) => self.lose(token),
                News::Cancelled(token, events) => {
                    let end_by = Instant::now() + CANCEL_GRACE;
                    for out in self.leases.cancel(token, &events) {
                        self.ending.insert(out, end_by);
                    }
                }
            }
        }
    }

    /// Sees to claims that are not trusted any more, and to handlers that should have ended by now.
    fn doubt(&mut self) {
        let now = Instant::now();
        if self.claims.doubted_at().is_some_and(|at| at <= now) {
            for doubted in self.claims.doubted(now) {
                warn!(
                    subscription = self.origin.subscription,
                    token = doubted.token.0,
                    "a lease could not be extended in time; others will take its events over"
                );
                self.leases.doubt(doubted.token);
                self.doubted.push(doubted);
            }
        }
        let over: Vec<Token> = self
            .doubted
            .extract_if(.., |doubted| doubted.let_go_at <= now)
            .map(|doubted| doubted.token)
            .collect();
        for token in over {
            self.lose(token);
        }
        let late: Vec<usize> =
            self.ending.iter().filter(|(_, at)| **at <= now).map(|(out, _)| *out).collect();
        for out in late {
            self.abort(out);
            self.leases.abandon(out, self.now());
        }
    }

    /// Forgets a claim, and ends its handlers at once: others may be at work on its events.
    fn lose(&mut self, token: Token) {
        self.claims.forget(token);
        #[cfg(feature = "sabotage")]
        if self.context.sabotage == Some(crate::sabotage::Sabotage::KeepLost) {
            return;
        }
        let outs = self.leases.lose(token);
        if !outs.is_empty() {
            debug!(
                subscription = self.origin.subscription,
                token = token.0,
                "a lease was lost; its handlers end"
            );
        }
        for out in outs {
            self.abort(out);
        }
    }

    fn abort(&mut self, out: usize) {
        self.ending.remove(&out);
        if let Some(UnderWay { task, .. }) = self.under_way.remove(&out) {
            task.abort();
            self.breaker.cut_off(self.now());
            self.aborted.insert(task.id());
        }
    }

    /// Sorts a store's error: worth another try, or the end of this worker.
    fn failed(&mut self, what: &str, error: Error) -> Result<()> {
        if error.kind() == ErrorKind::NotFound {
            self.context.gone.cancel();
            self.drain(Ok(()));
            return Ok(());
        }
        if ends_worker(&error, self.context.until_idle) {
            return Err(error);
        }
        warn!(subscription = self.origin.subscription, %error, "could not {what}; trying again");
        self.error_wait = (self.error_wait * 2).min(ERROR_WAIT_MAX);
        Ok(())
    }
}

/// Waits for the answer of a call that is kept with something else, for ever if there is none. Cancel safe.
async fn answer<C, T>(kept: &mut Option<C>, call: impl Fn(&mut C) -> &mut Call<T>) -> Result<T> {
    match kept {
        Some(kept) => call(kept).answer().await,
        None => std::future::pending().await,
    }
}
