//! Ticks are emitted on time and once, whichever of several relays is faster, slower or killed.
//!
//! Time is paused and jumps from timer to timer, so that nothing here waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::schedule::TICK_HEADER;
use postrider_core::store::EventQuery;
use postrider_core::{Event, Missed, NewSchedule, ScheduleStore, Store, Timestamp};
use postrider_runtime::{Relay, Summary, Worker};
use postrider_testkit::MemoryStore;
use postrider_testkit::interference::{
    Interference, Moment, Odds, Passage, SeededInterference, When, unavailable,
};
use postrider_testkit::simulation::SimClock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

fn every_second(missed: Missed) -> NewSchedule {
    NewSchedule::new("second", "* * * * * *", Event::new("t")).missed(missed)
}

/// Runs until it is aborted, which is what a crash is.
fn relay(store: &MemoryStore) -> JoinHandle<postrider_core::Result<Summary>> {
    let relay = Relay::new(store.clone()).retention(None).seed(1).worker(idle());
    tokio::spawn(relay.run(std::future::pending()))
}

/// The store as a process sees it that suffers an interference.
fn suffering(store: &MemoryStore, interference: &Arc<impl Interference>) -> MemoryStore {
    let interference = Arc::clone(interference);
    store.clone().with_interference(interference)
}

/// A worker that wants nothing of what is emitted here.
fn idle() -> Worker<postrider_runtime::InTasks> {
    let nothing = postrider_core::NewSubscription::new("s").topic("nothing").unwrap();
    Worker::new(nothing).each(|_| std::future::ready(Ok::<(), postrider_core::Failure>(())))
}

/// The ticks of all events, oldest first, and how late each was emitted.
async fn ticks(store: &MemoryStore) -> Vec<(Timestamp, Duration)> {
    let query = EventQuery { limit: 1_000, ..EventQuery::default() };
    let mut events = store.event_list(query).await.unwrap();
    events.reverse();
    let tick = |event: &Event| event.headers.get(TICK_HEADER).unwrap().parse::<Timestamp>().unwrap();
    events.iter().map(|event| (tick(event), event.created_at.since(tick(event)))).collect()
}

/// Every second from the first tick on has one event.
async fn assert_no_gap_and_no_repeat(store: &MemoryStore, at_least: usize) {
    let ticks = ticks(store).await;
    assert!(ticks.len() >= at_least, "{ticks:?}");
    for (n, (tick, _)) in ticks.iter().enumerate() {
        assert_eq!(*tick, ticks[0].0.after(SECOND * n as u32), "{ticks:?}");
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await; // tidy: sleep because time is simulated
}

/// Stops a caller at one moment, for good, and says so.
struct StopAt {
    call: &'static str,
    when: When,
    /// How many such moments pass before it.
    after: AtomicUsize,
    stopped: Notify,
}

impl StopAt {
    fn new(call: &'static str, when: When, after: usize) -> Arc<Self> {
        Arc::new(Self { call, when, after: AtomicUsize::new(after), stopped: Notify::new() })
    }
}

impl Interference for StopAt {
    fn at(&self, moment: Moment) -> Passage {
        let here = moment.call == self.call && moment.when == self.when;
        let spared =
            here.then(|| self.after.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)));
        match spared {
            Some(Err(_)) => {
                self.stopped.notify_one();
                Box::pin(std::future::pending())
            }
            _ => Box::pin(std::future::ready(Ok(()))),
        }
    }
}

/// Fails every call of schedules while it is switched on.
#[derive(Default)]
struct Outage {
    on: AtomicBool,
}

impl Interference for Outage {
    fn at(&self, moment: Moment) -> Passage {
        let fails = self.on.load(Ordering::Relaxed) && moment.call.starts_with("schedule");
        Box::pin(std::future::ready(if fails { Err(unavailable(moment)) } else { Ok(()) }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_emitted_at_its_instant() {
    let store = MemoryStore::new(SimClock::new());
    let quarters = NewSchedule::new("quarters", "*/15 * * * *", Event::new("t"));
    store.schedule_put(quarters, "test").await.unwrap();
    let relay = relay(&store);
    pass(SECOND * 3600 * 3 + SECOND).await;
    relay.abort();
    let ticks = ticks(&store).await;
    assert_eq!(ticks.len(), 12);
    assert!(ticks.iter().all(|(_, late)| *late < SECOND / 100), "{ticks:?}");
}

#[tokio::test(start_paused = true)]
async fn several_relays_emit_each_tick_once() {
    let store = MemoryStore::new(SimClock::new());
    store.schedule_put(every_second(Missed::All), "test").await.unwrap();
    let relays = [relay(&store), relay(&store), relay(&store)];
    pass(SECOND * 60).await;
    relays.iter().for_each(JoinHandle::abort);
    assert_no_gap_and_no_repeat(&store, 59).await;
}

/// Fault 73: a schedule fires twice, or not at all, when the relay that was about to fire it is killed.
#[tokio::test(start_paused = true)]
async fn a_relay_that_is_killed_at_a_tick_neither_repeats_nor_loses_it() {
    for when in [When::Before, When::After] {
        for call in ["schedules_due", "schedule_fire"] {
            let store = MemoryStore::new(SimClock::new());
            store.schedule_put(every_second(Missed::Once), "test").await.unwrap();
            let stop = StopAt::new(call, when, 7);
            let doomed = relay(&suffering(&store, &stop));
            stop.stopped.notified().await;
            doomed.abort();
            let survivor = relay(&store);
            pass(SECOND * 10).await;
            survivor.abort();
            assert_no_gap_and_no_repeat(&store, 10).await;
        }
    }
}

/// The same with one that is merely slow: it comes back when others have gone on.
#[tokio::test(start_paused = true)]
async fn a_relay_that_slept_through_a_tick_does_not_repeat_it() {
    let store = MemoryStore::new(SimClock::new());
    store.schedule_put(every_second(Missed::Once), "test").await.unwrap();
    let slow = Arc::new(Slow(AtomicBool::new(true)));
    let relays = [relay(&suffering(&store, &slow)), relay(&store)];
    pass(SECOND * 30).await;
    assert!(!slow.0.load(Ordering::Relaxed), "it was about to fire");
    relays.iter().for_each(JoinHandle::abort);
    assert_no_gap_and_no_repeat(&store, 29).await;
}

/// Holds the first fire up for ten seconds.
struct Slow(AtomicBool);

impl Interference for Slow {
    fn at(&self, moment: Moment) -> Passage {
        let here = moment.call == "schedule_fire" && moment.when == When::Before;
        if here && self.0.swap(false, Ordering::Relaxed) {
            return Box::pin(async {
                pass(SECOND * 10).await;
                Ok(())
            });
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_schedule_is_noticed_within_seconds() {
    let store = MemoryStore::new(SimClock::new());
    let relay = relay(&store);
    pass(SECOND * 60).await;
    assert_eq!(ticks(&store).await, []);
    store.schedule_put(every_second(Missed::Once), "test").await.unwrap();
    pass(SECOND * 5).await;
    relay.abort();
    assert!(ticks(&store).await.len() >= 2);
}

#[tokio::test(start_paused = true)]
async fn ticks_of_an_outage_are_made_up_for_when_it_ends() {
    let store = MemoryStore::new(SimClock::new());
    store.schedule_put(every_second(Missed::All), "test").await.unwrap();
    let outage = Arc::new(Outage::default());
    let relay = relay(&suffering(&store, &outage));
    pass(SECOND * 5).await;
    outage.on.store(true, Ordering::Relaxed);
    pass(SECOND * 300).await;
    let before = ticks(&store).await.len();
    assert!(before <= 6, "{before}");
    outage.on.store(false, Ordering::Relaxed);
    pass(SECOND * 5).await;
    relay.abort();
    assert_no_gap_and_no_repeat(&store, 305).await;
}

/// Chance, for calls of schedules alone.
struct Trouble(SeededInterference);

impl Interference for Trouble {
    fn at(&self, moment: Moment) -> Passage {
        if moment.call.starts_with("schedule") {
            self.0.at(moment)
        } else {
            Box::pin(std::future::ready(Ok(())))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_before_or_after_their_effect_neither_repeat_nor_lose_a_tick() {
    for seed in 0..200_u64 {
        println!("seed {seed}");
        let store = MemoryStore::new(SimClock::new());
        store.schedule_put(every_second(Missed::All), "test").await.unwrap();
        let odds = Odds { yields_max: 3, fail_before: 0.2, fail_after: 0.2, lose_wake: 0.0 };
        let troubled = |n: u64| Arc::new(Trouble(SeededInterference::new(seed * 3 + n, odds)));
        let relays: Vec<_> = (0..3).map(|n| relay(&suffering(&store, &troubled(n)))).collect();
        pass(SECOND * 30).await;
        relays[0].abort();
        pass(SECOND * 30).await;
        relays.iter().for_each(JoinHandle::abort);
        assert_no_gap_and_no_repeat(&store, 55).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_runs_until_idle_waits_for_no_tick() {
    let store = MemoryStore::new(SimClock::new());
    store.schedule_put(every_second(Missed::All), "test").await.unwrap();
    pass(SECOND * 5).await;
    let relay = Relay::new(store.clone()).retention(None).seed(1).worker(idle());
    relay.run_until_idle(std::future::pending()).await.unwrap();
    assert_eq!(ticks(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_leaves_the_house_to_others_fires_nothing() {
    let store = MemoryStore::new(SimClock::new());
    store.schedule_put(every_second(Missed::Skip), "tester").await.unwrap();
    let relay = Relay::new(store.clone()).without_housekeeping().seed(1).worker(idle());
    let relay = tokio::spawn(relay.run(std::future::pending()));
    pass(SECOND * 10).await;
    assert_eq!(ticks(&store).await, []);
    let keeper = tokio::spawn(Relay::new(store.clone()).retention(None).run(std::future::pending()));
    pass(SECOND * 10).await;
    assert!(ticks(&store).await.len() >= 5, "one without workers fires them");
    relay.abort();
    keeper.abort();
}
