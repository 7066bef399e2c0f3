//! Several workers, limits over all of them, pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::subscription::Rate;
use postrider_core::{Delivery, Event, Failure, QueueStore, RetryPolicy, Store};
use tokio_util::sync::CancellationToken;

use crate::scene::{SECOND, Scene, at_once, done, one_by_one, pass, range, subscription, unordered};

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
