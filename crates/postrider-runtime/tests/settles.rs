//! What is finished and not settled comes again after a crash: how much that can be while a store takes no settle.
//!
//! Time is paused and jumps from timer to timer, so that nothing here waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Delivery, Event, Failure, LogStore, NewSubscription, Store, limits};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::MemoryStore;
use postrider_testkit::interference::{Interference, Moment, Passage, When, unavailable};
use postrider_testkit::simulation::SimClock;
use tokio::sync::watch;

/// How long a handler takes.
const EACH: Duration = Duration::from_millis(1);
const EVENTS: usize = 2_000;
const CONCURRENCY: u32 = 4;

/// What becomes of settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settles {
    Pass,
    /// They do not come back until they may pass.
    Wait,
    /// The store cannot be reached.
    Fail,
}

struct Gate(watch::Receiver<Settles>);

impl Interference for Gate {
    fn at(&self, moment: Moment) -> Passage {
        let mut settles = self.0.clone();
        if moment.call != "settle" || moment.when != When::Before {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move {
            let now = *settles.wait_for(|settles| *settles != Settles::Wait).await.unwrap();
            if now == Settles::Fail { Err(unavailable(moment)) } else { Ok(()) }
        })
    }
}

/// Hands events out for a minute while settles do not pass, and then to the end. How many were handed out in
/// that minute; none is lost or repeated.
async fn handed_out_while(settles: Settles, key: Option<&str>) -> usize {
    let (say, gate) = watch::channel(Settles::Pass);
    let calm = MemoryStore::new(SimClock::new());
    let event = || key.map_or_else(|| Event::new("t"), |key| Event::new("t").key(key));
    calm.event_emit((0..EVENTS).map(|_| event()).collect()).await.unwrap();
    let seen: Arc<Mutex<Vec<i64>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let handler = move |delivery: Delivery| {
        noted.lock().unwrap().push(delivery.id.0);
        async {
            tokio::time::sleep(EACH).await; // tidy: sleep because time is simulated
            Ok::<(), Failure>(())
        }
    };
    let store = calm.clone().with_interference(Arc::new(Gate(gate)));
    let worker = Worker::new(NewSubscription::new("s").concurrency(CONCURRENCY)).each(handler);
    let relay = Relay::new(store).retention(None).seed(1).worker(worker);
    say.send(settles).unwrap();
    let running = tokio::spawn(relay.run_until_idle(std::future::pending()));
    tokio::time::sleep(Duration::from_secs(60)).await; // tidy: sleep because time is simulated
    let count = seen.lock().unwrap().len();
    say.send(Settles::Pass).unwrap();
    running.await.unwrap().unwrap();
    let mut all = seen.lock().unwrap().clone();
    all.sort_unstable();
    assert!(all.iter().copied().eq(1..=EVENTS as i64), "each once, {} in all", all.len());
    count
}

/// What can be handed out until an outcome has waited twice as long as settles are apart, and what is out
/// already then: a handler has events of one key several at a time.
fn most(at_a_time: usize, run: usize) -> usize {
    let settle_every = MemoryStore::new(SimClock::new()).pace().settle_every;
    let rounds = (settle_every * 2).as_millis() / EACH.as_millis();
    (rounds as usize + 2 * run) * at_a_time
}

#[tokio::test(start_paused = true)]
async fn hand_out_waits_for_a_settle_that_is_overdue() {
    for settles in [Settles::Wait, Settles::Fail] {
        for (key, at_a_time, run) in [(None, CONCURRENCY as usize, 1), (Some("k"), 1, limits::RUN_EVENTS_MAX)]
        {
            let count = handed_out_while(settles, key).await;
            assert!(count > 0 && count <= most(at_a_time, run), "{settles:?} {key:?}: {count} events");
        }
    }
}
