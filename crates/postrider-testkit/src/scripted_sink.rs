//! A receiver that does as it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::{Delivery, EventId, Failure, Outcome, Sink};
use tokio::sync::Notify;

use crate::history::{History, Incarnation};
use crate::interference::yields;

/// What the sink does with one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ends with this outcome.
    End(Outcome),
    /// Ends with this outcome after letting other tasks run so many times.
    EndAfter(Outcome, u32),
    /// Works on it until it is released, then acks.
    Hang,
    /// Panics.
    Panic,
}

type Rule = Box<dyn Fn(&Delivery) -> Step + Send + Sync>;

/// A [`Sink`] whose outcomes are scripted per event and attempt, or given by a rule. It records what it
/// sees into a [`History`]. All clones are the same sink.
///
/// ```
/// use postrider_core::{EventId, Failure, Outcome};
/// use postrider_testkit::{History, Incarnation, ManualClock, ScriptedSink, Step};
/// let sink = ScriptedSink::new(History::new(ManualClock::new()), Incarnation(1));
/// sink.on(EventId(1), 1, Step::End(Outcome::Retry(Failure::retry("busy"))));
/// sink.on(EventId(2), 1, Step::Hang);
/// ```
#[derive(Clone)]
pub struct ScriptedSink {
    history: History,
    incarnation: Incarnation,
    shared: Arc<Shared>,
    keeps_order: bool,
}

struct Shared {
    script: Mutex<Script>,
    /// Rings whenever something begins or ceases to hang.
    changed: Notify,
}

struct Script {
    steps: BTreeMap<(EventId, u32), Step>,
    rule: Rule,
    hanging: BTreeSet<EventId>,
    released: BTreeSet<EventId>,
}

impl ScriptedSink {
    /// Acks everything until told otherwise.
    pub fn new(history: History, incarnation: Incarnation) -> Self {
        let script = Script {
            steps: BTreeMap::new(),
            rule: Box::new(|_| Step::End(Outcome::Ack)),
            hanging: BTreeSet::new(),
            released: BTreeSet::new(),
        };
        let shared = Arc::new(Shared { script: Mutex::new(script), changed: Notify::new() });
        Self { history, incarnation, shared, keeps_order: false }
    }

    /// The same receiver as reached from another life of a member.
    #[must_use]
    pub fn for_incarnation(mut self, incarnation: Incarnation) -> Self {
        self.incarnation = incarnation;
        self
    }

    /// Accepts several events of one key in a batch, one after the other.
    #[must_use]
    pub fn keeping_order(mut self) -> Self {
        self.keeps_order = true;
        self
    }

    /// Scripts one attempt of one event.
    pub fn on(&self, event: EventId, attempt: u32, step: Step) {
        self.lock().steps.insert((event, attempt), step);
    }

    /// Decides all attempts that are not scripted.
    pub fn otherwise(&self, rule: impl Fn(&Delivery) -> Step + Send + Sync + 'static) {
        self.lock().rule = Box::new(rule);
    }

    /// Fails attempts by chance. The same event and attempt meet the same fate under the same seed,
    /// whatever happens in between, so that a shrunk run stays comparable.
    pub fn otherwise_by_chance(&self, seed: u64, chance: Chance) {
        self.otherwise(move |delivery| {
            let mixed =
                seed ^ (delivery.id.0 as u64).rotate_left(20) ^ u64::from(delivery.attempt).rotate_left(50);
            let mut rng = fastrand::Rng::with_seed(mixed);
            let pauses = rng.u32(0..=chance.yields_max);
            let roll = rng.f64();
            if roll < chance.panic {
                Step::Panic
            } else if roll < chance.panic + chance.dead {
                Step::EndAfter(Outcome::Dead(Failure::permanent("refused by chance")), pauses)
            } else if roll < chance.panic + chance.dead + chance.retry {
                Step::EndAfter(Outcome::Retry(Failure::retry("failed by chance")), pauses)
            } else {
                Step::EndAfter(Outcome::Ack, pauses)
            }
        });
    }

    /// Lets a hanging delivery of this event end, or the next one that would hang.
    pub fn release(&self, event: EventId) {
        self.lock().released.insert(event);
        self.shared.changed.notify_waiters();
    }

    /// The events that hang right now.
    pub fn hanging(&self) -> Vec<EventId> {
        self.lock().hanging.iter().copied().collect()
    }

    /// Resolves once a delivery of this event hangs: a moment to wait for instead of a sleep.
    pub async fn until_hanging(&self, event: EventId) {
        self.until(|script| script.hanging.contains(&event)).await;
    }

    async fn until(&self, reached: impl Fn(&mut Script) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            if reached(&mut self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, delivery: &Delivery) -> Outcome {
        let running = self.history.delivered(delivery, self.incarnation);
        let step = {
            let script = self.lock();
            let scripted = script.steps.get(&(delivery.id, delivery.attempt)).cloned();
            scripted.unwrap_or_else(|| (script.rule)(delivery))
        };
        let outcome = match step {
            Step::End(outcome) => outcome,
            Step::EndAfter(outcome, pauses) => {
                yields(pauses).await;
                outcome
            }
            Step::Hang => {
                self.hang(delivery.id).await;
                Outcome::Ack
            }
            Step::Panic => panic!("the sink was told to panic at event {}", delivery.id),
        };
        running.finish(&outcome);
        outcome
    }

    async fn hang(&self, event: EventId) {
        let _hanging = Hanging::begin(self, event);
        self.until(|script| script.released.remove(&event)).await;
    }
}

/// Takes an event off the list of those that hang, also when its future is dropped.
struct Hanging<'a> {
    sink: &'a ScriptedSink,
    event: EventId,
}

impl<'a> Hanging<'a> {
    fn begin(sink: &'a ScriptedSink, event: EventId) -> Self {
        sink.lock().hanging.insert(event);
        sink.shared.changed.notify_waiters();
        Self { sink, event }
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.sink.lock().hanging.remove(&self.event);
        self.sink.shared.changed.notify_waiters();
    }
}

/// How often a sink fails by chance. Probabilities are between 0 and 1 and together at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chance {
    /// Yields before an attempt ends, at the most.
    pub yields_max: u32,
    /// Probability of a panic.
    pub panic: f64,
    /// Probability of a permanent failure.
    pub dead: f64,
    /// Probability of a failure that is worth another attempt.
    pub retry: f64,
}

impl Sink for ScriptedSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut failed_keys = BTreeSet::new();
        for delivery in &batch {
            if delivery.key.as_ref().is_some_and(|key| failed_keys.contains(key)) {
                outcomes.push(Outcome::Untried);
                continue;
            }
            let outcome = self.attempt(delivery).await;
            if outcome != Outcome::Ack {
                failed_keys.extend(delivery.key.clone());
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn keeps_order(&self) -> bool {
        self.keeps_order
    }
}

impl fmt::Debug for ScriptedSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedSink")
            .field("incarnation", &self.incarnation)
            .field("steps", &self.lock().steps)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::delivery::Origin;
    use postrider_core::{Event, Headers, Key, Kind, Timestamp, Topic};

    use super::*;
    use crate::ManualClock;
    use crate::conformance::run;
    use crate::history::Record;

    fn delivery(id: i64, key: &str, attempt: u32) -> Delivery {
        let event = Event {
            id: EventId(id),
            topic: Topic::new("order"),
            kind: Kind::new("order"),
            key: Some(Key::new(key)),
            payload: bytes::Bytes::new(),
            headers: Headers::default(),
            created_at: Timestamp::from_micros(0),
            due_at: None,
            flaw: None,
        };
        let origin = Origin { subscription: "orders".to_owned(), store_id: "s".to_owned() };
        Delivery::new(Arc::new(event), attempt, Arc::new(origin))
    }

    fn sink() -> ScriptedSink {
        ScriptedSink::new(History::new(ManualClock::new()), Incarnation(1))
    }

    fn last(sink: &ScriptedSink) -> Option<Record> {
        sink.history.entries().pop().map(|entry| entry.record)
    }

    #[test]
    fn outcomes_follow_the_script_and_then_the_rule() {
        let sink = sink();
        let busy = Outcome::Retry(Failure::retry("busy"));
        sink.on(EventId(1), 1, Step::End(busy.clone()));
        let batch = |attempt| vec![delivery(1, "a", attempt), delivery(2, "b", attempt)];
        run(async {
            assert_eq!(sink.send(batch(1)).await, [busy.clone(), Outcome::Ack]);
            assert_eq!(sink.send(batch(2)).await, [Outcome::Ack, Outcome::Ack]);
            Ok(())
        });
        assert_eq!(sink.history.entries().len(), 8);
    }

    #[test]
    fn later_events_of_a_failed_key_are_untried() {
        let sink = sink().keeping_order();
        let busy = Outcome::Retry(Failure::retry("busy"));
        sink.on(EventId(1), 1, Step::End(busy.clone()));
        let batch = vec![delivery(1, "a", 1), delivery(2, "a", 1), delivery(3, "b", 1)];
        let outcomes = run(async { Ok(sink.send(batch).await) });
        assert_eq!(outcomes, [busy, Outcome::Untried, Outcome::Ack]);
        assert!(sink.keeps_order());
    }

    #[test]
    fn a_hanging_delivery_ends_when_released() {
        let sink = sink();
        sink.on(EventId(1), 1, Step::Hang);
        run(async {
            let sends = tokio::spawn({
                let sink = sink.clone();
                async move { sink.send(vec![delivery(1, "a", 1)]).await }
            });
            sink.until_hanging(EventId(1)).await;
            assert_eq!(sink.hanging(), [EventId(1)]);
            sink.release(EventId(1));
            assert_eq!(sends.await.unwrap(), [Outcome::Ack]);
            assert_eq!(sink.hanging(), []);
            Ok(())
        });
    }

    #[test]
    fn a_dropped_delivery_is_recorded_as_abandoned() {
        let sink = sink();
        sink.on(EventId(1), 1, Step::Hang);
        run(async {
            let sends = tokio::spawn({
                let sink = sink.clone();
                async move { sink.send(vec![delivery(1, "a", 1)]).await }
            });
            sink.until_hanging(EventId(1)).await;
            sends.abort();
            assert!(sends.await.unwrap_err().is_cancelled());
            Ok(())
        });
        assert_eq!(sink.hanging(), []);
        assert!(matches!(last(&sink), Some(Record::Abandoned { attempt: 1, .. })));
    }

    #[test]
    fn a_panic_is_recorded_as_abandoned() {
        let sink = sink();
        sink.on(EventId(1), 1, Step::Panic);
        run(async {
            let sends = tokio::spawn({
                let sink = sink.clone();
                async move { sink.send(vec![delivery(1, "a", 1)]).await }
            });
            assert!(sends.await.unwrap_err().is_panic());
            Ok(())
        });
        assert!(matches!(last(&sink), Some(Record::Abandoned { .. })));
    }

    #[test]
    fn chance_is_fixed_by_the_seed() {
        let fates = |seed| {
            let sink = sink();
            sink.otherwise_by_chance(seed, Chance { yields_max: 2, panic: 0.0, dead: 0.2, retry: 0.4 });
            let batch = (0..50).map(|id| delivery(id, &id.to_string(), 1)).collect();
            run(async { Ok(sink.send(batch).await) })
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        assert!(fates(1).contains(&Outcome::Ack) && !fates(1).iter().all(|fate| *fate == Outcome::Ack));
    }
}
