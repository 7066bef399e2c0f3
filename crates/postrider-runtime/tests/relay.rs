//! What a relay promises beyond what the simulation checks: limits, isolation, pauses, outages, drains.
//!
//! Time is paused and jumps from timer to timer, so that nothing here waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::store::DeadLetterQuery;
use postrider_core::{
    Delivery, Event, EventId, Failure, LogStore, NewSubscription, Order, Outcome, RetryPolicy, Store,
};
use postrider_runtime::{Pulse, Relay, Summary, Worker};
use postrider_testkit::simulation::SimClock;
use postrider_testkit::{MemoryStore, MemoryTx, MemoryWork};
use tokio::sync::Notify;

const SECOND: Duration = Duration::from_secs(1);

/// A store with events, and what handlers have seen.
struct Scene {
    store: MemoryStore,
    seen: Arc<Mutex<Vec<i64>>>,
}

impl Scene {
    /// Events with ids from 1 on, with these keys; an empty one stands for none.
    async fn new(keys: &[&str]) -> Self {
        let store = MemoryStore::new(SimClock::new());
        let event = |key: &&str| if key.is_empty() { Event::new("t") } else { Event::new("t").key(key) };
        store.event_emit(keys.iter().map(event).collect()).await.unwrap();
        Self { store, seen: Arc::default() }
    }

    fn seen(&self) -> Vec<i64> {
        self.seen.lock().unwrap().clone()
    }

    /// Notes each event, then does what `outcome` says.
    fn handler(
        &self,
        outcome: impl Fn(&Delivery) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> impl Fn(Delivery) -> std::future::Ready<Result<(), Failure>> + Send + Sync + 'static {
        let seen = Arc::clone(&self.seen);
        move |delivery| {
            seen.lock().unwrap().push(delivery.id.0);
            std::future::ready(outcome(&delivery))
        }
    }

    async fn until_idle(&self, relay: Relay<MemoryStore>) -> Summary {
        relay.run_until_idle(std::future::pending()).await.unwrap()
    }

    fn relay(&self) -> Relay<MemoryStore> {
        Relay::new(self.store.clone()).retention(None).seed(1)
    }
}

fn subscription() -> NewSubscription {
    NewSubscription::new("s").retry(RetryPolicy::fixed(SECOND).attempts_max(3)).timeout(SECOND * 10)
}

/// Counts how many run at a time, and the most that ever did.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    async fn measure(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(SECOND / 10).await; // tidy: sleep because time is simulated
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

fn measured(gauge: &Arc<Gauge>, subscription: NewSubscription) -> Worker<postrider_runtime::InTasks> {
    let gauge = Arc::clone(gauge);
    Worker::new(subscription).each(move |_: Delivery| {
        let gauge = Arc::clone(&gauge);
        async move {
            gauge.measure().await;
            Ok::<(), Failure>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_subscription_runs_no_more_handlers_than_its_concurrency() {
    let scene = Scene::new(&[""; 40]).await;
    let gauge = Arc::new(Gauge::default());
    let summary =
        scene.until_idle(scene.relay().worker(measured(&gauge, subscription().concurrency(3)))).await;
    assert_eq!((summary.delivered, gauge.most.load(Ordering::Relaxed)), (40, 3));
}

#[tokio::test(start_paused = true)]
async fn all_workers_together_run_no_more_handlers_than_the_relay_allows() {
    let scene = Scene::new(&[""; 40]).await;
    let gauge = Arc::new(Gauge::default());
    let other = NewSubscription::new("other").concurrency(8);
    let relay = scene.relay().concurrency(4);
    let relay = relay.worker(measured(&gauge, subscription().concurrency(8))).worker(measured(&gauge, other));
    let summary = scene.until_idle(relay).await;
    assert_eq!((summary.delivered, gauge.most.load(Ordering::Relaxed)), (80, 4));
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_holds_back_its_own_key_only_and_not_the_mark() {
    let scene = Scene::new(&["slow", "a", "slow", "b"]).await;
    let (release, released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (seen, gate) = (Arc::clone(&scene.seen), Arc::clone(&release));
    let worker = Worker::new(subscription().timeout(SECOND * 100)).each(move |delivery: Delivery| {
        let (seen, gate) = (Arc::clone(&seen), Arc::clone(&gate));
        async move {
            if delivery.id == EventId(1) {
                gate.notified().await;
            }
            seen.lock().unwrap().push(delivery.id.0);
            Ok::<(), Failure>(())
        }
    });
    let stop = Arc::clone(&released);
    let relay = tokio::spawn(scene.relay().worker(worker).run(async move { stop.notified().await }));
    tokio::time::sleep(SECOND * 5).await; // tidy: sleep because time is simulated
    assert_eq!(scene.seen(), [2, 4]);
    let report = scene.store.subscription_report("s").await.unwrap();
    assert_eq!(
        (report.lag_events, report.leased, report.pending),
        (0, 1, 1),
        "the mark has passed the slow one"
    );
    release.notify_one();
    tokio::time::sleep(SECOND * 5).await; // tidy: sleep because time is simulated
    assert_eq!(scene.seen(), [2, 4, 1, 3]);
    released.notify_one();
    assert_eq!(relay.await.unwrap().unwrap().delivered, 4);
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_waits_alone_until_its_event_dies() {
    let scene = Scene::new(&["bad", "good", "bad", "good"]).await;
    let fails =
        |delivery: &Delivery| if delivery.id == EventId(1) { Err(Failure::retry("no")) } else { Ok(()) };
    let worker = Worker::new(subscription()).each(scene.handler(fails));
    let stop = tokio::time::sleep(SECOND * 10); // tidy: sleep because time is simulated
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!(scene.seen(), [1, 2, 4, 1, 1, 3], "three attempts, and the key goes on without it");
    assert_eq!((summary.delivered, summary.failed, summary.dead), (3, 3, 1));
    let letters =
        scene.store.dead_letter_list(DeadLetterQuery { limit: 9, ..Default::default() }).await.unwrap();
    let letter = scene.store.dead_letter_get(&letters[0].letter).await.unwrap();
    assert_eq!(letter.history.iter().map(|attempt| attempt.error.as_str()).collect::<Vec<_>>(), ["no"; 3]);
}

#[tokio::test(start_paused = true)]
async fn without_order_no_event_waits_for_another_of_its_key() {
    let scene = Scene::new(&["k", "k", "k"]).await;
    let fails =
        |delivery: &Delivery| if delivery.id == EventId(1) { Err(Failure::retry("no")) } else { Ok(()) };
    let worker = Worker::new(subscription().order(Order::None)).each(scene.handler(fails));
    let summary = scene.until_idle(scene.relay().worker(worker)).await;
    assert_eq!((scene.seen(), summary.delivered), (vec![1, 2, 3], 2));
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_a_time_out_are_attempts_that_failed() {
    let scene = Scene::new(&["a", "b"]).await;
    let worker = Worker::new(subscription()).each(|delivery: Delivery| async move {
        match (delivery.id.0, delivery.attempt) {
            (1, 1) => std::panic::resume_unwind(Box::new("boom")),
            (2, 1) => std::future::pending().await,
            _ => Ok::<(), Failure>(()),
        }
    });
    let stop = tokio::time::sleep(SECOND * 60); // tidy: sleep because time is simulated
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!((summary.delivered, summary.failed, summary.dead), (2, 2, 0));
    let errors =
        |deliveries: Vec<postrider_core::store::DeliveryReport>| deliveries[0].history[0].error.clone();
    assert_eq!(errors(scene.store.event_deliveries(EventId(1)).await.unwrap()), "the handler panicked: boom");
    assert_eq!(errors(scene.store.event_deliveries(EventId(2)).await.unwrap()), "timed out after 10000 ms");
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_no_key_twice_and_an_omitted_outcome_counts_as_failed() {
    let scene = Scene::new(&["a", "a", "b", ""]).await;
    let batches: Arc<Mutex<Vec<Vec<i64>>>> = Arc::default();
    let seen = Arc::clone(&batches);
    let worker = Worker::new(subscription()).batch(move |batch: Vec<Delivery>| {
        seen.lock().unwrap().push(batch.iter().map(|delivery| delivery.id.0).collect());
        // The outcome of the last event is left out, the first time.
        let omitted =
            usize::from(batch.last().is_some_and(|last| last.id == EventId(4) && last.attempt == 1));
        std::future::ready(vec![Outcome::Ack; batch.len() - omitted])
    });
    let stop = tokio::time::sleep(SECOND * 60); // tidy: sleep because time is simulated
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!(batches.lock().unwrap()[0], [1, 3, 4]);
    assert_eq!((summary.delivered, summary.failed, summary.dead), (4, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_attempt_and_few_calls() {
    let scene = Scene::new(&["a", "b", "c", "d", "e"]).await;
    let back_at = tokio::time::Instant::now() + SECOND * 120;
    let down = move |_: &Delivery| {
        if tokio::time::Instant::now() < back_at { Err(Failure::unavailable("down")) } else { Ok(()) }
    };
    let worker = Worker::new(subscription()).each(scene.handler(down));
    let stop = tokio::time::sleep(SECOND * 300); // tidy: sleep because time is simulated
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!((summary.delivered, summary.failed, summary.dead), (5, 0, 0));
    assert!(scene.seen().len() < 30, "{} calls in two minutes of outage", scene.seen().len());
}

#[tokio::test(start_paused = true)]
async fn a_snooze_costs_no_attempt_and_keeps_its_key_waiting() {
    let scene = Scene::new(&["a", "a", "b"]).await;
    let ready_at = tokio::time::Instant::now() + SECOND * 60;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let sleepy = move |delivery: &Delivery| {
        seen.lock().unwrap().push((delivery.id.0, delivery.attempt));
        let early = delivery.id == EventId(1) && tokio::time::Instant::now() < ready_at;
        if early { Err(Failure::snooze(SECOND * 10)) } else { Ok(()) }
    };
    let worker = Worker::new(subscription()).each(scene.handler(sleepy));
    let stop = tokio::time::sleep(SECOND * 90); // tidy: sleep because time is simulated
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!((summary.delivered, summary.failed, summary.dead), (3, 0, 0));
    let attempts = attempts.lock().unwrap().clone();
    assert!((8..=10).contains(&attempts.len()) && attempts.last() == Some(&(2, 1)), "{attempts:?}");
    assert!(attempts.iter().all(|(_, attempt)| *attempt == 1));
    let deliveries = scene.store.event_deliveries(EventId(1)).await.unwrap();
    assert!(deliveries[0].history.is_empty(), "it leaves no trace");
}

#[tokio::test(start_paused = true)]
async fn a_transactional_handler_may_snooze() {
    let scene = Scene::new(&["a"]).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let worker = Worker::new(subscription()).transactional(move |delivery: Delivery| -> MemoryWork {
        let early = count.fetch_add(1, Ordering::Relaxed) < 5;
        Box::new(move |tx: &mut MemoryTx| {
            tx.note(delivery.id, "written");
            if early { Err(Failure::snooze(SECOND)) } else { Ok(()) }
        })
    });
    let stop = tokio::time::sleep(SECOND * 30); // tidy: sleep because time is simulated
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!((summary.delivered, summary.failed, summary.dead), (1, 0, 0));
    assert_eq!((calls.load(Ordering::Relaxed), scene.store.effects().len()), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn a_paused_subscription_hands_out_nothing_until_it_is_resumed() {
    let scene = Scene::new(&["a"]).await;
    let worker = || Worker::new(subscription()).each(scene.handler(|_| Ok(())));
    scene.store.subscription_create(subscription()).await.unwrap();
    scene.store.subscription_pause("s").await.unwrap();
    assert_eq!(scene.until_idle(scene.relay().worker(worker())).await.delivered, 0);
    let (store, stop) = (scene.store.clone(), Arc::new(Notify::new()));
    let stopped = Arc::clone(&stop);
    let relay = tokio::spawn(scene.relay().worker(worker()).run(async move { stopped.notified().await }));
    tokio::time::sleep(SECOND * 5).await; // tidy: sleep because time is simulated
    assert!(scene.seen().is_empty());
    store.subscription_resume("s").await.unwrap();
    tokio::time::sleep(SECOND).await; // tidy: sleep because time is simulated
    assert_eq!(scene.seen(), [1]);
    stop.notify_one();
    relay.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_what_runs_and_begins_nothing() {
    let scene = Scene::new(&[""; 10]).await;
    let gauge = Arc::new(Gauge::default());
    // Two at a time for a tenth of a second each: the shutdown comes while the second pair runs.
    let stop = tokio::time::sleep(Duration::from_millis(150)); // tidy: sleep because time is simulated
    let worker = measured(&gauge, subscription().concurrency(2));
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!((summary.delivered, summary.cut_off, gauge.now.load(Ordering::Relaxed)), (4, 0, 0));
    let rest = scene.until_idle(scene.relay().worker(measured(&gauge, subscription().concurrency(2)))).await;
    assert_eq!(rest.delivered, 6, "nothing was lost and nothing came twice");
}

#[tokio::test(start_paused = true)]
async fn what_a_drain_cuts_off_costs_no_attempt() {
    let scene = Scene::new(&["a", "b"]).await;
    let hangs = Worker::new(subscription()).each(|delivery: Delivery| async move {
        if delivery.id == EventId(1) {
            std::future::pending::<()>().await;
        }
        Ok::<(), Failure>(())
    });
    let stop = tokio::time::sleep(SECOND / 2); // tidy: sleep because time is simulated
    let summary = scene.relay().drain_within(SECOND).worker(hangs).run(stop).await.unwrap();
    assert_eq!((summary.delivered, summary.cut_off), (1, 1));
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let worker = Worker::new(subscription()).each(move |delivery: Delivery| {
        seen.lock().unwrap().push((delivery.id.0, delivery.attempt));
        std::future::ready(Ok::<(), Failure>(()))
    });
    scene.until_idle(scene.relay().worker(worker)).await;
    assert_eq!(*attempts.lock().unwrap(), [(1, 1)], "b was settled, a is attempted for the first time again");
}

#[tokio::test(start_paused = true)]
async fn a_transactional_handlers_writes_and_its_ack_commit_together() {
    let scene = Scene::new(&["a", "a", "b"]).await;
    let worker = Worker::new(subscription()).transactional(|delivery: Delivery| -> MemoryWork {
        Box::new(move |tx: &mut MemoryTx| {
            tx.note(delivery.id, "written");
            // The write of a failed attempt is rolled back with it.
            if delivery.attempt == 1 { Err(Failure::retry("not yet")) } else { Ok(()) }
        })
    });
    let stop = tokio::time::sleep(SECOND * 30); // tidy: sleep because time is simulated
    let summary = scene.relay().worker(worker).run(stop).await.unwrap();
    assert_eq!((summary.delivered, summary.failed), (3, 3));
    let mut effects: Vec<i64> = scene.store.effects().iter().map(|(id, _)| id.0).collect();
    effects.sort_unstable();
    assert_eq!(effects, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_subscription_disturbs_no_other_and_is_served_again_when_it_is_created_again() {
    let scene = Scene::new(&["a"]).await;
    let other = Worker::new(NewSubscription::new("other")).each(scene.handler(|_| Ok(())));
    let anew = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&anew);
    let doomed = Worker::new(subscription()).each(move |delivery: Delivery| {
        noted.lock().unwrap().push(delivery.id.0);
        std::future::ready(Ok::<(), Failure>(()))
    });
    let (store, stop) = (scene.store.clone(), Arc::new(Notify::new()));
    let stopped = Arc::clone(&stop);
    let relay = scene.relay().worker(doomed).worker(other).run(async move { stopped.notified().await });
    let relay = tokio::spawn(relay);
    tokio::time::sleep(SECOND).await; // tidy: sleep because time is simulated
    store.subscription_delete("s", "tester").await.unwrap();
    store.event_emit(vec![Event::new("t")]).await.unwrap();
    tokio::time::sleep(SECOND).await; // tidy: sleep because time is simulated
    assert_eq!(scene.seen(), [1, 2]);
    tokio::time::sleep(SECOND * 100).await; // tidy: sleep because time is simulated
    assert_eq!(*anew.lock().unwrap(), [1], "nobody has created it again");
    store.subscription_create(subscription()).await.unwrap();
    tokio::time::sleep(SECOND * 10).await; // tidy: sleep because time is simulated
    assert_eq!(*anew.lock().unwrap(), [1, 1, 2], "it begins at the start, as it was created");
    // At once, so the relay has not seen that it was gone.
    store.subscription_delete("s", "tester").await.unwrap();
    store.subscription_create(subscription()).await.unwrap();
    tokio::time::sleep(SECOND * 10).await; // tidy: sleep because time is simulated
    assert_eq!(*anew.lock().unwrap(), [1, 1, 2, 1, 2]);
    stop.notify_one();
    relay.await.unwrap().unwrap();
}

/// A receiver that answers for single events is not down, however many of them it refuses.
#[tokio::test(start_paused = true)]
async fn a_healthy_key_flows_beside_a_thousand_that_fail() {
    for hangs in [false, true] {
        // Those that hang take so long for their first attempts that fewer will do.
        let (count, time) = if hangs { (100, SECOND * 300) } else { (1000, SECOND * 3) };
        let keys: Vec<String> = (0..count).map(|n| format!("failing{n}")).collect();
        let scene = Scene::new(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let seen = Arc::clone(&scene.seen);
        let new = NewSubscription::new("s")
            .retry(RetryPolicy::fixed(SECOND).attempts_max(1000))
            .timeout(SECOND * 5);
        let worker = Worker::new(new.concurrency(8)).each(move |delivery: Delivery| {
            let seen = Arc::clone(&seen);
            async move {
                if delivery.key.as_ref().is_some_and(|key| key.as_str().starts_with("failing")) {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    return Err(Failure::retry("no"));
                }
                seen.lock().unwrap().push(delivery.id.0);
                Ok(())
            }
        });
        let (store, stop) = (scene.store.clone(), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let relay = tokio::spawn(scene.relay().worker(worker).run(async move { stopped.notified().await }));
        // Each has failed at least once, and those that hang have all places that they may.
        tokio::time::sleep(time).await; // tidy: sleep because time is simulated
        for n in 0..20 {
            store.event_emit(vec![Event::new("t").key(format!("healthy{n}"))]).await.unwrap();
            tokio::time::sleep(SECOND / 2).await; // tidy: sleep because time is simulated
            assert_eq!(scene.seen().len(), n + 1, "hangs: {hangs}");
        }
        stop.notify_one();
        relay.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_without_workers_keeps_house_until_it_is_told_to_end() {
    let scene = Scene::new(&["a"]).await;
    let pulse = Pulse::default();
    assert!(!pulse.has_beaten() && !pulse.is_alive());
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let relay = scene.relay().pulse(pulse.clone()).run(async move { stopped.notified().await });
    let relay = tokio::spawn(relay);
    tokio::time::sleep(SECOND / 100).await; // tidy: sleep because time is simulated
    assert!(pulse.has_beaten() && pulse.is_alive(), "the first beat is sent at once");
    tokio::time::sleep(SECOND * 600).await; // tidy: sleep because time is simulated
    assert!(!relay.is_finished() && pulse.is_alive());
    assert_eq!(scene.store.stats().await.unwrap().members.len(), 1);
    stop.notify_one();
    assert_eq!(relay.await.unwrap().unwrap(), Summary::default());
    assert_eq!(scene.store.stats().await.unwrap().members.len(), 0);
    tokio::time::sleep(SECOND * 600).await; // tidy: sleep because time is simulated
    assert!(pulse.has_beaten() && !pulse.is_alive(), "a relay that has ended has no pulse");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_tells_the_epoch_of_its_shard_which_grows_with_each_owner() {
    let keys = ["a", "b", "", "c"];
    let scene = Scene::new(&keys).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..3 {
        let noted = Arc::clone(&told);
        let worker = Worker::new(subscription()).each(move |delivery: Delivery| {
            noted.lock().unwrap().push((delivery.key.clone(), delivery.epoch.map(|epoch| epoch.0)));
            std::future::ready(Ok::<(), Failure>(()))
        });
        scene.until_idle(scene.relay().worker(worker)).await;
        let again = |key: &&str| if key.is_empty() { Event::new("t") } else { Event::new("t").key(key) };
        scene.store.event_emit(keys.iter().map(again).collect()).await.unwrap();
    }
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 3 * keys.len());
    for key in ["a", "b", "c"] {
        let of_key = told.iter().filter(|(of, _)| of.as_ref().is_some_and(|of| of.as_str() == key));
        let epochs: Vec<i64> = of_key.map(|(_, epoch)| epoch.expect("an owner knows it")).collect();
        assert!(epochs.is_sorted_by(|one, next| one < next), "{key}: {epochs:?}");
    }
    assert!(told.iter().all(|(_, epoch)| epoch.is_some()));
}

/// A relay at work on an event that never ends.
fn stuck(scene: &Scene) -> tokio::task::JoinHandle<()> {
    let hangs = Worker::new(subscription()).each(|_: Delivery| std::future::pending::<Result<(), Failure>>());
    let running = scene.relay().worker(hangs).run(std::future::pending());
    tokio::spawn(async move { drop(running.await) })
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_when_all_is_done_waits_for_what_a_killed_one_held() {
    let scene = Scene::new(&["a", "b"]).await;
    let killed = stuck(&scene);
    tokio::time::sleep(SECOND * 3).await; // tidy: sleep because time is simulated
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());
    let summary = scene
        .until_idle(scene.relay().worker(Worker::new(subscription()).each(scene.handler(|_| Ok(())))))
        .await;
    assert_eq!((summary.delivered, scene.seen()), (2, vec![1, 2]));
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_when_all_is_done_leaves_to_the_living_what_they_hold() {
    let scene = Scene::new(&["a", "b"]).await;
    let living = stuck(&scene);
    tokio::time::sleep(SECOND * 3).await; // tidy: sleep because time is simulated
    let (began, lease) = (tokio::time::Instant::now(), scene.store.pace().lease);
    let worker = Worker::new(subscription()).each(scene.handler(|_| Ok(())));
    let summary = scene.until_idle(scene.relay().worker(worker)).await;
    assert_eq!((summary.delivered, scene.seen()), (0, vec![]));
    // Time is simulated: it waits until the other one has beaten, and no longer.
    assert!(began.elapsed() < lease / 2, "{:?} of {lease:?}", began.elapsed());
    living.abort();
}
