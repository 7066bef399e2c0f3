//! Workers that crash, stall, are slow, drain, or meet an event that ends them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Delivery, Event, EventId, Failure, NewSubscription, RetryPolicy, Store};
use postrider_runtime::Relay;
use postrider_testkit::interference::Passage;
use postrider_testkit::{Interference, Moment};
use tokio_util::sync::CancellationToken;

use crate::scene::{LEASE, SECOND, Scene, done, one_by_one, pass, range, subscription, unordered};

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
async fn what_takes_long_is_nobody_elses_while_its_worker_lives() {
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
async fn a_queue_that_is_deleted_and_created_again_is_served() {
    for pause in [Duration::ZERO, SECOND * 100] {
        let scene = Scene::new(&["a"]).await;
        let running = scene.start(scene.worker(subscription(), done));
        pass(SECOND).await;
        scene.store.subscription_delete("q", "tester").await.unwrap();
        pass(pause).await;
        scene.store.subscription_create(subscription()).await.unwrap();
        scene.store.event_emit(vec![Event::new("t"), Event::new("t").key("a")]).await.unwrap();
        pass(SECOND * 20).await;
        assert_eq!(scene.sorted(), [1, 1, 2, 3], "after {pause:?}");
        assert_eq!(scene.left().await, (0, 0, 0, 0));
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_event_flows_beside_a_thousand_that_fail() {
    for hangs in [false, true] {
        // Those that hang take so long for their first attempts that fewer will do.
        let (count, time) = if hangs { (100, SECOND * 300) } else { (1000, SECOND * 3) };
        let failing = (0..count).map(|n| Event::new("failing").key(format!("k{n}")));
        let scene = Scene::with(failing.collect()).await;
        let subscription = subscription()
            .retry(RetryPolicy::fixed(SECOND).attempts_max(1000))
            .timeout(SECOND * 5)
            .concurrency(8);
        let running = scene.start(scene.worker(subscription, move |delivery| async move {
            match delivery.topic.as_str() {
                "failing" if hangs => std::future::pending().await,
                "failing" => Err(Failure::retry("no")),
                _ => Ok(()),
            }
        }));
        // Each has failed at least once, and those that hang have all places that they may.
        pass(time).await;
        for n in 1..=20 {
            scene.store.event_emit(vec![Event::new("t").key(format!("h{n}"))]).await.unwrap();
            pass(SECOND / 2).await;
            assert_eq!(scene.times(count + n).len(), 1, "hangs: {hangs}");
        }
        running.stop().await;
    }
}
