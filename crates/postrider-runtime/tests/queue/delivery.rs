//! Order, blocks, retries, snoozes, expiry, cancellation, results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::store::{DeadLetterQuery, LetterId};
use postrider_core::{
    Delivery, Event, EventId, Failure, Outcome, QueueStore, Store, Timestamp, Unique, queue,
};
use postrider_runtime::Worker;
use postrider_testkit::{MemoryTx, MemoryWork};
use tokio::time::Instant;

use crate::scene::{SECOND, Scene, at_once, done, one_by_one, pass, range, subscription, unordered};

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
async fn of_events_that_replace_each_other_only_the_newest_is_handed_out() {
    for (new, key) in [(unordered(), None), (one_by_one(), None), (subscription(), Some("a"))] {
        let event = |n: i64| {
            let event = Event::new("t").unique(Unique::new(format!("{}", n % 3)).replace());
            key.map_or(event.clone(), |key| event.key(key))
        };
        let scene = Scene::with((1..=500).map(event).collect()).await;
        let summary = scene.until_idle(scene.worker(new, done)).await;
        assert_eq!((summary.delivered, summary.dead, scene.ids()), (3, 0, vec![498, 499, 500]));
        assert_eq!(scene.left().await, (0, 0, 0, 0), "the others are done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_put_off_again_and_again_comes_when_it_is_quiet() {
    let change = || Event::new("t").unique(Unique::new("index").replace()).due_after(SECOND * 5);
    let scene = Scene::with(vec![change()]).await;
    let running = scene.start(scene.worker(subscription(), done));
    for _ in 0..9 {
        pass(SECOND * 3).await;
        scene.store.event_emit(vec![change()]).await.unwrap();
    }
    pass(SECOND * 30).await;
    running.stop().await;
    assert_eq!((scene.ids(), scene.left().await), (vec![10], (0, 0, 0, 0)));
    assert!(scene.times(10)[0] >= SECOND * 32);
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
            if delivery.is_cancelled() { Err(Failure::retry("cancelled")) } else { Ok(()) }
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

#[tokio::test(start_paused = true)]
async fn how_far_a_handler_has_come_is_seen_while_it_runs_and_when_it_has_ended() {
    let scene = Scene::new(&[""]).await;
    let slow = |delivery: Delivery| async move {
        let ticket = delivery.ticket.unwrap();
        for page in 1..=100 {
            ticket.set_progress((page, format!("page {page}"))).unwrap();
            pass(SECOND / 10).await;
        }
        Ok(())
    };
    let running = scene.start(scene.worker(one_by_one(), slow));
    let progress = async || {
        let report = scene.store.event_deliveries(EventId(1)).await.unwrap().remove(0);
        report.progress.and_then(|progress| progress.percent).unwrap_or_default()
    };
    pass(SECOND).await;
    assert_eq!(progress().await, 0, "it is written when the lease is extended, not each time");
    pass(SECOND * 2).await;
    assert!((15..=30).contains(&progress().await), "{}", progress().await);
    pass(SECOND * 9).await;
    assert_eq!((progress().await, scene.left().await), (100, (0, 0, 0, 0)));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_tells_the_token_of_its_claim_as_its_epoch() {
    let scene = Scene::new(&["a", ""]).await;
    let told = Arc::new(Mutex::new(BTreeMap::<i64, Vec<i64>>::new()));
    let noted = Arc::clone(&told);
    let failing_once = at_once(move |delivery| {
        let epoch = delivery.epoch.expect("whoever claims knows it").0;
        noted.lock().unwrap().entry(delivery.id.0).or_default().push(epoch);
        if delivery.attempt == 1 { Err(Failure::retry("once")) } else { Ok(()) }
    });
    scene.run_for(scene.worker(subscription(), failing_once), SECOND * 10).await;
    for (id, epochs) in &*told.lock().unwrap() {
        assert!(epochs.len() == 2 && epochs[0] < epochs[1], "{id}: {epochs:?}");
    }
    assert_eq!(told.lock().unwrap().len(), 2);
}
