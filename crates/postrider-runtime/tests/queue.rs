//! What a relay promises in mode `queue`: leases, blocks, lanes, limits, drains, and workers that crash, stall and share.
//!
//! Time is paused and jumps from timer to timer, so that nothing here waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::store::{DeadLetterQuery, LetterId};
use postrider_core::subscription::Rate;
use postrider_core::{
    Delivery, Event, EventId, Failure, LeaseBy, Mode, NewEvent, NewSubscription, Order, Outcome, QueueStore,
    RetryPolicy, Store, Timestamp, queue,
};
use postrider_runtime::{InTasks, Relay, Summary, Worker};
use postrider_testkit::interference::Passage;
use postrider_testkit::simulation::SimClock;
use postrider_testkit::{Interference, MemoryStore, MemoryTx, MemoryWork, Moment};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
/// The lease of these queues.
const LEASE: Duration = Duration::from_secs(8);

/// One call of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    id: i64,
    attempt: u32,
    at: Duration,
}

/// A store with events, and what handlers have seen.
struct Scene {
    store: MemoryStore,
    began: Instant,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A relay at work in the background.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<postrider_core::Result<Summary>>,
}

impl Running {
    async fn stop(self) -> Summary {
        self.stop.cancel();
        self.task.await.unwrap().unwrap()
    }

    /// What a crash is: nothing of it goes on.
    async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl Scene {
    /// Events with ids from 1 on, with these keys; an empty one stands for none.
    async fn new(keys: &[&str]) -> Self {
        let event = |key: &&str| if key.is_empty() { Event::new("t") } else { Event::new("t").key(*key) };
        Self::with(keys.iter().map(event).collect()).await
    }

    async fn with(events: Vec<NewEvent>) -> Self {
        let store = MemoryStore::new(SimClock::new());
        store.event_emit(events).await.unwrap();
        Self { store, began: Instant::now(), seen: Arc::default() }
    }

    fn relay(&self) -> Relay<MemoryStore> {
        Relay::new(self.store.clone()).retention(None).seed(1)
    }

    /// A worker that notes each event, then does what `handler` says.
    fn worker<F, Fut>(&self, subscription: NewSubscription, handler: F) -> Worker<InTasks>
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let (seen, began) = (Arc::clone(&self.seen), self.began);
        Worker::new(subscription).each(move |delivery: Delivery| {
            let note = Seen { id: delivery.id.0, attempt: delivery.attempt, at: began.elapsed() };
            seen.lock().unwrap().push(note);
            handler(delivery)
        })
    }

    fn start(&self, worker: Worker<InTasks>) -> Running {
        Self::start_relay(self.relay().worker(worker))
    }

    fn start_relay(relay: Relay<MemoryStore>) -> Running {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(relay.run(async move { stopped.cancelled().await }));
        Running { stop, task }
    }

    async fn until_idle(&self, worker: Worker<InTasks>) -> Summary {
        self.relay().worker(worker).run_until_idle(std::future::pending()).await.unwrap()
    }

    async fn run_for(&self, worker: Worker<InTasks>, time: Duration) -> Summary {
        let running = self.start(worker);
        pass(time).await;
        running.stop().await
    }

    fn ids(&self) -> Vec<i64> {
        self.seen.lock().unwrap().iter().map(|seen| seen.id).collect()
    }

    fn sorted(&self) -> Vec<i64> {
        let mut ids = self.ids();
        ids.sort_unstable();
        ids
    }

    fn calls(&self) -> Vec<(i64, u32)> {
        self.seen.lock().unwrap().iter().map(|seen| (seen.id, seen.attempt)).collect()
    }

    /// When each call for an event was made.
    fn times(&self, id: i64) -> Vec<Duration> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.id == id).map(|seen| seen.at).collect()
    }

    async fn left(&self) -> (u64, u64, u64, u64) {
        let report = self.store.subscription_report("q").await.unwrap();
        (report.lag_events, report.pending, report.leased, report.dead)
    }

    /// The errors of a dead letter's attempts.
    async fn errors(&self, id: i64) -> Vec<String> {
        let letter = LetterId { subscription: "q".to_owned(), event_id: EventId(id) };
        let letter = self.store.dead_letter_get(&letter).await.unwrap();
        letter.history.iter().map(|attempt| attempt.error.clone()).collect()
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await; // tidy: sleep because time is simulated
}

fn subscription() -> NewSubscription {
    let mut new = NewSubscription::new("q").mode(Mode::Queue);
    new = new.retry(RetryPolicy::fixed(SECOND).attempts_max(3)).timeout(SECOND * 100);
    new.tuning.queue.lease = LEASE;
    new
}

fn unordered() -> NewSubscription {
    subscription().order(Order::None)
}

fn one_by_one() -> NewSubscription {
    let mut new = unordered();
    new.tuning.queue.lease_by = LeaseBy::Event;
    new
}

fn done(_: Delivery) -> std::future::Ready<Result<(), Failure>> {
    std::future::ready(Ok(()))
}

/// Does what it does at once, depending on the delivery.
fn at_once(
    outcome: impl Fn(&Delivery) -> Result<(), Failure> + Send + Sync + 'static,
) -> impl Fn(Delivery) -> std::future::Ready<Result<(), Failure>> + Send + Sync + 'static {
    move |delivery| std::future::ready(outcome(&delivery))
}

fn range(last: i64) -> Vec<i64> {
    (1..=last).collect()
}

#[tokio::test(start_paused = true)]
async fn everything_is_delivered_once_and_in_order_per_key_by_many_handlers() {
    let keys: Vec<String> =
        (0..300).map(|n| if n % 7 == 0 { String::new() } else { format!("k{}", n % 10) }).collect();
    let scene = Scene::new(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let slow = |delivery: Delivery| async move {
        pass(Duration::from_millis(delivery.id.0 as u64 * 37 % 50)).await;
        Ok(())
    };
    let summary = scene.until_idle(scene.worker(subscription().concurrency(32), slow)).await;
    assert_eq!((summary.delivered, scene.sorted()), (300, range(300)));
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for id in scene.ids() {
        let key = keys[id as usize - 1].as_str();
        assert!(key.is_empty() || last.insert(key, id).is_none_or(|before| before < id), "{key} {id}");
    }
    assert_eq!(scene.left().await, (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn blocks_and_batches_bring_everything_once() {
    let scene = Scene::new(&vec![""; 2_500]).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let batches = Arc::clone(&seen);
    let worker = Worker::new(unordered()).batch_events(64).batch(move |batch: Vec<Delivery>| {
        batches.lock().unwrap().push(batch.iter().map(|delivery| delivery.id.0).collect::<Vec<_>>());
        std::future::ready(vec![Outcome::Ack; batch.len()])
    });
    let summary = scene.until_idle(worker).await;
    let seen = seen.lock().unwrap();
    let mut ids: Vec<i64> = seen.iter().flatten().copied().collect();
    ids.sort_unstable();
    assert_eq!((summary.delivered, ids), (2_500, range(2_500)));
    assert!(seen.iter().all(|batch| batch.len() <= 64) && seen.len() < 100, "{} batches", seen.len());
}

#[tokio::test(start_paused = true)]
async fn a_failed_event_is_attempted_again_and_becomes_a_dead_letter_while_its_key_waits() {
    let scene = Scene::new(&["bad", "good", "bad", "good"]).await;
    let fails =
        |delivery: &Delivery| if delivery.id == EventId(1) { Err(Failure::retry("no")) } else { Ok(()) };
    let summary = scene.run_for(scene.worker(subscription(), at_once(fails)), SECOND * 10).await;
    assert_eq!(scene.calls(), [(1, 1), (2, 1), (4, 1), (1, 2), (1, 3), (3, 1)]);
    assert_eq!((summary.delivered, summary.failed, summary.dead), (3, 3, 1));
    assert_eq!((scene.errors(1).await, scene.left().await), (vec!["no".to_owned(); 3], (0, 0, 0, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_of_a_block_is_a_dead_letter_and_the_others_are_done() {
    let scene = Scene::new(&[""; 50]).await;
    let refuses = |delivery: &Delivery| match delivery.id.0 {
        7 => Err(Failure::permanent("never")),
        9 if delivery.attempt == 1 => Err(Failure::retry("not yet")),
        _ => Ok(()),
    };
    let summary = scene.run_for(scene.worker(unordered(), at_once(refuses)), SECOND * 5).await;
    assert_eq!((summary.delivered, summary.failed, summary.dead), (49, 2, 1));
    assert_eq!((scene.times(9).len(), scene.ids().len()), (2, 51));
    assert_eq!((scene.errors(7).await, scene.left().await), (vec!["never".to_owned()], (0, 0, 0, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_snooze_costs_no_attempt() {
    let scene = Scene::new(&["a", "a"]).await;
    let ready_at = Instant::now() + SECOND * 60;
    let sleepy = move |delivery: &Delivery| {
        let early = delivery.id == EventId(1) && Instant::now() < ready_at;
        if early { Err(Failure::snooze(SECOND * 10)) } else { Ok(()) }
    };
    let summary = scene.run_for(scene.worker(subscription(), at_once(sleepy)), SECOND * 90).await;
    assert_eq!((summary.delivered, summary.failed, summary.dead), (2, 0, 0));
    assert_eq!(scene.calls().iter().map(|(_, attempt)| *attempt).max(), Some(1));
    assert!((6..=8).contains(&scene.times(1).len()), "{:?}", scene.times(1));
    assert_eq!(scene.ids().last(), Some(&2), "its key waits for it");
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_attempt_and_few_calls() {
    let scene = Scene::new(&["a", "b", "c", "d", "e"]).await;
    let back_at = Instant::now() + SECOND * 120;
    let down = move |_: &Delivery| {
        if Instant::now() < back_at { Err(Failure::unavailable("down")) } else { Ok(()) }
    };
    let summary = scene.run_for(scene.worker(subscription(), at_once(down)), SECOND * 300).await;
    assert_eq!((summary.delivered, summary.failed, summary.dead), (5, 0, 0));
    assert!(scene.ids().len() < 40, "{} calls in two minutes of outage", scene.ids().len());
    assert!(scene.calls().iter().all(|(_, attempt)| *attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_crashed_worker_held_is_delivered_by_another_when_its_lease_has_run_out() {
    let scene = Scene::new(&["a", "a", "b", "", ""]).await;
    let hangs = |_| std::future::pending();
    let crashed = scene.start(scene.worker(subscription(), hangs));
    pass(SECOND * 3).await;
    crashed.crash().await;
    let crashed_at = scene.began.elapsed();
    let summary = scene.run_for(scene.worker(subscription(), done), LEASE + SECOND * 4).await;
    assert_eq!((summary.delivered, scene.left().await), (5, (0, 0, 0, 0)));
    for id in [1, 3, 4, 5] {
        let again = scene.times(id)[1];
        assert!(again <= crashed_at + LEASE + SECOND * 2, "{id} {again:?}");
    }
    assert!(
        scene.calls().iter().all(|(_, attempt)| *attempt == 1),
        "an attempt that did not end is not counted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_job_is_nobody_elses_while_its_worker_lives() {
    let scene = Scene::new(&["a", "a", ""]).await;
    let long = || {
        scene.worker(subscription(), |_| async {
            pass(LEASE * 5).await;
            Ok(())
        })
    };
    let (first, second) = (scene.start(long()), scene.start(long()));
    pass(LEASE * 12).await;
    let delivered = first.stop().await.delivered + second.stop().await.delivered;
    assert_eq!((delivered, scene.sorted()), (3, range(3)));
}

/// Lets no call of a worker through while it is on.
#[derive(Default)]
struct Stall(AtomicBool);

impl Interference for Stall {
    fn at(&self, moment: Moment) -> Passage {
        let concerned = ["extend", "claim", "queue_settle", "sweep"].contains(&moment.call);
        if concerned && self.0.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_worker_is_fenced_and_its_handler_cancelled() {
    let scene = Scene::new(&["a"]).await;
    let stall = Arc::new(Stall::default());
    let stalled = scene.store.clone().with_interference(Arc::clone(&stall) as Arc<dyn Interference>);
    let told: Arc<Mutex<Option<Duration>>> = Arc::default();
    let (note, began) = (Arc::clone(&told), scene.began);
    let worker = scene.worker(subscription(), move |delivery| {
        let note = Arc::clone(&note);
        async move {
            delivery.cancelled().await;
            *note.lock().unwrap() = Some(began.elapsed());
            std::future::pending().await
        }
    });
    let stalled = Scene::start_relay(Relay::new(stalled).retention(None).seed(2).worker(worker));
    pass(SECOND).await;
    stall.0.store(true, Ordering::Relaxed);
    let other = scene.start(scene.worker(subscription(), done));
    pass(LEASE * 2).await;
    let told = told.lock().unwrap().expect("the handler was told to end");
    let again = scene.times(1)[1];
    assert!(told > LEASE / 2 && told < LEASE && again >= LEASE, "told at {told:?}, begun again at {again:?}");
    stall.0.store(false, Ordering::Relaxed);
    pass(LEASE).await;
    assert_eq!((other.stop().await.delivered, scene.left().await), (1, (0, 0, 0, 0)));
    assert_eq!((stalled.stop().await.delivered, scene.ids().len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_slow_event_does_not_hold_back_the_others_of_its_block() {
    let scene = Scene::new(&[""; 100]).await;
    let slow = |delivery: Delivery| async move {
        if delivery.id == EventId(5) {
            pass(SECOND * 50).await;
        }
        Ok(())
    };
    let running = scene.start(scene.worker(unordered().concurrency(4), slow));
    pass(SECOND * 3).await;
    assert_eq!(scene.left().await, (0, 0, 1, 0), "99 of 100 are done");
    running.crash().await;
    let summary = scene.run_for(scene.worker(unordered(), done), LEASE + SECOND * 3).await;
    assert_eq!((summary.delivered, scene.times(5).len(), scene.ids().len()), (1, 2, 101));
}

#[tokio::test(start_paused = true)]
async fn what_a_slow_worker_has_not_begun_is_given_to_others() {
    let scene = Scene::new(&[""; 100]).await;
    let slow = || {
        scene.worker(unordered().concurrency(2), |_| async {
            pass(SECOND * 2).await;
            Ok(())
        })
    };
    let (first, second) = (scene.start(slow()), scene.start(slow()));
    pass(SECOND * 120).await;
    let shares = (first.stop().await.delivered, second.stop().await.delivered);
    assert_eq!((shares.0 + shares.1, scene.sorted()), (100, range(100)));
    assert!(shares.0 >= 40 && shares.1 >= 40, "{shares:?}");
}

/// Runs relays one after the other until none crashes any more; one whose handler gets a poisonous event is a crash.
async fn survive(scene: &Scene, new: NewSubscription, poison: fn(i64) -> bool) -> usize {
    for crashes in 0..50 {
        let crash = CancellationToken::new();
        let crashes_now = crash.clone();
        let worker = scene.worker(new.clone(), move |delivery: Delivery| {
            let crash = crashes_now.clone();
            async move {
                if poison(delivery.id.0) {
                    crash.cancel();
                    std::future::pending::<()>().await;
                }
                pass(Duration::from_millis(5)).await;
                Ok(())
            }
        });
        let running = scene.start(worker);
        let calm = tokio::time::timeout(LEASE * 3, crash.cancelled()).await.is_err();
        if calm {
            running.stop().await;
            return crashes;
        }
        running.crash().await;
        pass(LEASE + SECOND).await;
    }
    panic!("it crashes without end");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_ends_its_workers_becomes_a_dead_letter_alone() {
    for new in [unordered(), one_by_one()] {
        let scene = Scene::new(&[""; 40]).await;
        let crashes =
            survive(&scene, new.retry(RetryPolicy::fixed(SECOND).attempts_max(20)), |id| id == 20).await;
        assert!((3..=4).contains(&crashes), "{crashes}");
        assert_eq!(scene.left().await, (0, 0, 0, 1));
        assert_eq!(scene.errors(20).await, ["its worker has ended 3 times while it ran"]);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_that_end_count_as_attempts() {
    let scene = Scene::new(&["a", "a"]).await;
    let crashes =
        survive(&scene, subscription().retry(RetryPolicy::fixed(SECOND).attempts_max(1)), |id| id == 1).await;
    assert_eq!((crashes, scene.left().await), (1, (0, 0, 0, 1)));
    assert_eq!(scene.errors(1).await, ["its worker has ended 1 times while it ran"]);
    assert_eq!(scene.ids(), [1, 2], "its key goes on without it");
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_a_dead_letter_and_is_not_handed_out() {
    let at = |seconds: i64| Timestamp::from_micros((1_800_000_000 + seconds) * 1_000_000).to_string();
    let event = |seconds| Event::new("t").header(queue::EXPIRES_HEADER, at(seconds));
    let scene =
        Scene::with(vec![event(-1), event(1000), Event::new("t"), event(5).due_after(SECOND * 10)]).await;
    let summary = scene.run_for(scene.worker(unordered(), done), SECOND * 20).await;
    assert_eq!((scene.ids(), summary.delivered, summary.dead), (vec![2, 3], 2, 2));
    assert_eq!(scene.errors(1).await, [format!("expired at {}", at(-1))]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_learns_that_its_event_was_cancelled_and_is_dropped_if_it_does_not_end() {
    let scene = Scene::new(&["polite", "deaf", ""]).await;
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let worker = scene.worker(subscription(), move |delivery| {
        let count = Arc::clone(&count);
        async move {
            match delivery.id.0 {
                1 => delivery.cancelled().await,
                2 => std::future::pending().await,
                _ => {}
            }
            count.fetch_add(1, Ordering::Relaxed);
            Err(Failure::retry("cancelled")).or(if delivery.is_cancelled() {
                Err(Failure::retry("late"))
            } else {
                Ok(())
            })
        }
    });
    let running = scene.start(worker);
    pass(SECOND * 2).await;
    for id in [1, 2] {
        let letter = LetterId { subscription: "q".to_owned(), event_id: EventId(id) };
        assert!(scene.store.delivery_cancel(&letter, "tester").await.unwrap().is_some());
    }
    pass(SECOND * 4).await;
    assert_eq!((ended.load(Ordering::Relaxed), scene.left().await.2), (2, 1), "the deaf one still runs");
    pass(SECOND * 6).await;
    assert_eq!(scene.left().await, (0, 0, 0, 0));
    running.stop().await;
    assert_eq!(scene.sorted(), range(3), "neither is attempted again");
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept() {
    let scene = Scene::new(&["a", ""]).await;
    let keeps = at_once(|delivery: &Delivery| {
        let ticket = delivery.ticket.as_ref().expect("a queue's deliveries have one");
        ticket.set_result(format!("{{\"id\":{}}}", delivery.id)).map_err(|error| Failure::from_error(&error))
    });
    scene.until_idle(scene.worker(subscription(), keeps)).await;
    let kept = |id| scene.store.result_of("q", EventId(id));
    assert_eq!((kept(1).as_deref(), kept(2).as_deref()), (Some("{\"id\":1}"), Some("{\"id\":2}")));
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_back_what_has_not_begun_and_finishes_what_runs() {
    let scene = Scene::new(&[""; 100]).await;
    let slow = |_| async {
        pass(SECOND / 2).await;
        Ok(())
    };
    let summary = scene.run_for(scene.worker(unordered().concurrency(4), slow), SECOND / 4).await;
    assert_eq!((summary.delivered, summary.cut_off, scene.ids().len()), (4, 0, 4));
    assert_eq!(scene.left().await, (0, 96, 0, 0), "nobody has to wait for a lease");
    let rest = scene.until_idle(scene.worker(unordered(), done)).await;
    assert_eq!((rest.delivered, scene.sorted()), (96, range(100)));
    assert!(scene.calls().iter().all(|(_, attempt)| *attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_drain_cuts_off_costs_no_attempt_and_is_given_back() {
    let scene = Scene::new(&["a", "b"]).await;
    let worker = scene.worker(subscription(), |delivery: Delivery| async move {
        if delivery.id == EventId(1) {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let running = Scene::start_relay(scene.relay().drain_within(SECOND).worker(worker));
    pass(SECOND / 2).await;
    let summary = running.stop().await;
    assert_eq!((summary.delivered, summary.cut_off, scene.left().await), (1, 1, (0, 1, 0, 0)));
    scene.until_idle(scene.worker(subscription(), done)).await;
    assert_eq!(scene.calls(), [(1, 1), (2, 1), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn members_together_run_no_more_than_the_total() {
    let scene = Scene::new(&[""; 60]).await;
    let mut new = one_by_one().concurrency(8);
    new.tuning.queue.total = Some(3);
    let gauge = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let worker = || {
        let gauge = Arc::clone(&gauge);
        scene.worker(new.clone(), move |_| {
            let gauge = Arc::clone(&gauge);
            async move {
                let now = gauge.0.fetch_add(1, Ordering::Relaxed) + 1;
                gauge.1.fetch_max(now, Ordering::Relaxed);
                pass(SECOND / 10).await;
                gauge.0.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            }
        })
    };
    let (first, second) = (scene.start(worker()), scene.start(worker()));
    pass(SECOND * 20).await;
    let delivered = first.stop().await.delivered + second.stop().await.delivered;
    assert_eq!((delivered, gauge.1.load(Ordering::Relaxed)), (60, 3));
}

#[tokio::test(start_paused = true)]
async fn members_together_begin_no_more_than_the_rate() {
    let scene = Scene::new(&[""; 60]).await;
    let mut new = one_by_one();
    new.tuning.queue.rate = Some(Rate { per_second: 5, burst: 10 });
    let worker = || scene.worker(new.clone(), done);
    let (first, second) = (scene.start(worker()), scene.start(worker()));
    pass(SECOND * 4).await;
    assert!((26..=31).contains(&scene.ids().len()), "{} in 4 s", scene.ids().len());
    pass(SECOND * 8).await;
    let delivered = first.stop().await.delivered + second.stop().await.delivered;
    assert_eq!((delivered, scene.sorted()), (60, range(60)));
    let more = Scene::new(&[""; 30]).await;
    assert_eq!(more.until_idle(more.worker(new, done)).await.delivered, 30, "a rate is not the end");
}

#[tokio::test(start_paused = true)]
async fn workers_share_and_never_deliver_twice_however_often_is_swept() {
    let scene = Scene::new(&[""; 200]).await;
    let worker = || {
        scene.worker(one_by_one().concurrency(4), |delivery: Delivery| async move {
            pass(Duration::from_millis(500 + delivery.id.0 as u64 * 97 % 3_000)).await;
            Ok(())
        })
    };
    let workers: Vec<_> = (0..5).map(|_| scene.start(worker())).collect();
    let queue = scene.store.subscription_get("q");
    let (store, over) = (scene.store.clone(), CancellationToken::new());
    let stop = over.clone();
    pass(Duration::from_millis(50)).await;
    let queue = queue.await.unwrap();
    let sweeps = tokio::spawn(async move {
        while !stop.is_cancelled() {
            store.sweep(&queue).await.unwrap();
            pass(Duration::from_millis(10)).await;
        }
    });
    pass(SECOND * 60).await;
    over.cancel();
    sweeps.await.unwrap();
    let mut shares = Vec::new();
    for worker in workers {
        shares.push(worker.stop().await.delivered);
    }
    assert_eq!((shares.iter().sum::<u64>(), scene.sorted()), (200, range(200)));
    assert!(shares.iter().all(|share| *share >= 20), "{shares:?}");
}

#[tokio::test(start_paused = true)]
async fn how_often_is_retried_does_not_depend_on_how_many_work() {
    for workers in [1, 8] {
        let scene = Scene::new(&["a"]).await;
        let new = subscription().retry(RetryPolicy::fixed(SECOND * 3).attempts_max(100));
        let fails = || scene.worker(new.clone(), at_once(|_| Err(Failure::retry("no"))));
        let running: Vec<_> = (0..workers).map(|_| scene.start(fails())).collect();
        pass(SECOND * 31).await;
        for worker in running {
            worker.stop().await;
        }
        let calls = scene.calls();
        assert_eq!(calls.len(), 11, "{workers} workers: {:?}", scene.times(1));
        assert_eq!(calls.last(), Some(&(1, 11)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_does_not_starve_what_lives() {
    let mut keys = vec![""; 2_000];
    keys.push("live");
    let scene = Scene::new(&keys).await;
    let refuses =
        |delivery: &Delivery| if delivery.key.is_some() { Ok(()) } else { Err(Failure::permanent("no")) };
    let summary = scene.run_for(scene.worker(subscription(), at_once(refuses)), SECOND * 5).await;
    assert_eq!((summary.delivered, summary.dead, scene.left().await), (1, 2_000, (0, 0, 0, 2_000)));
    scene.store.event_emit(vec![Event::new("t").key("live")]).await.unwrap();
    let rest = scene.until_idle(scene.worker(subscription(), at_once(refuses))).await;
    assert_eq!((rest.delivered, scene.ids().len()), (1, 2_002));
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_hands_out_nothing_until_it_is_resumed() {
    let scene = Scene::new(&["a", "b"]).await;
    scene.store.subscription_create(subscription()).await.unwrap();
    scene.store.subscription_pause("q").await.unwrap();
    assert_eq!(scene.until_idle(scene.worker(subscription(), done)).await.delivered, 0);
    let running = scene.start(scene.worker(subscription(), done));
    pass(SECOND * 5).await;
    assert!(scene.ids().is_empty());
    scene.store.subscription_resume("q").await.unwrap();
    pass(SECOND).await;
    assert_eq!(scene.sorted(), range(2));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_feeder_that_crashes_is_followed_by_another() {
    let scene = Scene::new(&["a"]).await;
    let (first, second) =
        (scene.start(scene.worker(subscription(), done)), scene.start(scene.worker(subscription(), done)));
    pass(SECOND).await;
    first.crash().await;
    scene.store.event_emit(vec![Event::new("t"), Event::new("t").key("a")]).await.unwrap();
    pass(SECOND * 15).await;
    second.stop().await;
    assert_eq!(scene.sorted(), range(3));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_ends_its_worker() {
    let scene = Scene::new(&["a"]).await;
    let running = scene.start(scene.worker(subscription(), |_| async {
        pass(SECOND * 3).await;
        Ok(())
    }));
    pass(SECOND).await;
    scene.store.subscription_delete("q", "tester").await.unwrap();
    assert!(tokio::time::timeout(SECOND * 10, running.task).await.unwrap().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_transactional_worker_is_refused_with_advice() {
    let scene = Scene::new(&["a"]).await;
    let work = |_: Delivery| -> MemoryWork { Box::new(|_: &mut MemoryTx| Ok(())) };
    let worker = Worker::new(subscription()).transactional(work);
    let error = scene.relay().worker(worker).run(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("call `ack_in`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn urgent_events_come_first_and_delayed_ones_when_they_are_due() {
    let events = vec![
        Event::new("t"),
        Event::new("t").header(queue::Priority::HEADER, "5"),
        Event::new("t").due_after(SECOND * 20),
    ];
    let scene = Scene::with(events).await;
    let summary = scene.run_for(scene.worker(one_by_one().concurrency(1), done), SECOND * 30).await;
    assert_eq!((summary.delivered, scene.ids()), (3, vec![2, 1, 3]));
    let due = scene.times(3)[0];
    assert!(due >= SECOND * 20 && due < SECOND * 21, "{due:?}");
    let letters = DeadLetterQuery { limit: 9, ..DeadLetterQuery::default() };
    assert!(scene.store.dead_letter_list(letters).await.unwrap().is_empty());
}
