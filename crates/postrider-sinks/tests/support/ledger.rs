//! What was emitted and what became of it, to compare with what a broker holds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postrider_core::delivery::Origin;
use postrider_core::{Delivery, Event, EventId, Headers, Key, Kind, Outcome, Sink, Timestamp, Topic};

/// Longer than any broker takes to come back on a busy machine.
const DELIVER_MAX: Duration = Duration::from_secs(150);

/// Emits events and delivers them as a worker does.
#[derive(Debug)]
pub(crate) struct Ledger {
    origin: Arc<Origin>,
    emitted: Vec<Delivery>,
    acked: HashSet<String>,
    /// Sent, and not acked then: these may arrive more than once.
    uncertain: HashSet<String>,
}

/// An event as the broker holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) key: Option<String>,
    pub(crate) dedup_id: String,
}

impl Ledger {
    /// Of a store of this name.
    pub(crate) fn new(store: &str) -> Self {
        let origin = Origin { subscription: "ledger".to_owned(), store_id: store.to_owned() };
        let (acked, uncertain) = Default::default();
        Self { origin: Arc::new(origin), emitted: Vec::new(), acked, uncertain }
    }

    pub(crate) fn emit(&mut self, key: Option<&str>, payload: impl Into<Bytes>) -> Delivery {
        self.emit_of("order.created", key, payload)
    }

    pub(crate) fn emit_of(&mut self, kind: &str, key: Option<&str>, payload: impl Into<Bytes>) -> Delivery {
        let id = self.emitted.len() as i64 + 1;
        let event = Event {
            id: EventId(id),
            topic: Topic::new("order"),
            kind: Kind::new(kind),
            key: key.map(Key::new),
            payload: payload.into(),
            headers: Headers::default(),
            created_at: Timestamp::from_micros(1_800_000_000_000_000 + id),
            due_at: None,
            flaw: None,
        };
        let delivery = Delivery::new(Arc::new(event), 1, Arc::clone(&self.origin));
        self.emitted.push(delivery.clone());
        delivery
    }

    /// So many events of each key, the keys taking turns.
    pub(crate) fn emit_turns(&mut self, keys: usize, turns: usize) -> Vec<Delivery> {
        let mut batch = Vec::new();
        for _ in 0..turns {
            for key in 0..keys {
                let payload = format!("{key}/{}", self.emitted.len());
                batch.push(self.emit(Some(&format!("key-{key}")), payload));
            }
        }
        batch
    }

    /// Sends once, and notes what became of each.
    pub(crate) async fn attempt<S: Sink>(&mut self, sink: &S, batch: &[Delivery]) -> Vec<Outcome> {
        let outcomes = sink.send(batch.to_vec()).await;
        assert_eq!(outcomes.len(), batch.len());
        for (delivery, outcome) in batch.iter().zip(&outcomes) {
            let noted = if *outcome == Outcome::Ack { &mut self.acked } else { &mut self.uncertain };
            noted.insert(delivery.dedup_id());
        }
        outcomes
    }

    /// Notes that a batch was sent and its caller did not wait for the outcomes.
    pub(crate) fn note_abandoned(&mut self, batch: &[Delivery]) {
        self.uncertain.extend(batch.iter().map(Delivery::dedup_id));
    }

    /// Sends what is left again and again, in order, until all is acked.
    pub(crate) async fn deliver<S: Sink>(&mut self, sink: &S, batch: Vec<Delivery>) {
        let started = Instant::now();
        let mut left = batch;
        while !left.is_empty() {
            assert!(started.elapsed() < DELIVER_MAX, "{} events are left", left.len());
            let now = if sink.keeps_order() { left.clone() } else { first_of_each_key(&left) };
            let outcomes = self.attempt(sink, &now).await;
            let done: HashSet<EventId> = now
                .iter()
                .zip(&outcomes)
                .filter(|(_, outcome)| **outcome == Outcome::Ack)
                .map(|(delivery, _)| delivery.id)
                .collect();
            let dead = outcomes.iter().find(|outcome| matches!(outcome, Outcome::Dead(_)));
            assert_eq!(dead, None, "nothing here can never be delivered");
            left.retain(|delivery| !done.contains(&delivery.id));
        }
    }

    /// Nothing that was acked is missing, events of a key come for the first time in their order, and what is
    /// there twice was not acked at first. `held` is in the broker's order, at least for each key.
    pub(crate) fn compare(&self, held: &[Held]) {
        let places: HashMap<String, usize> =
            self.emitted.iter().enumerate().map(|(place, delivery)| (delivery.dedup_id(), place)).collect();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut last: HashMap<&str, usize> = HashMap::new();
        for event in held {
            let place = *places.get(&event.dedup_id).unwrap_or_else(|| panic!("never emitted: {event:?}"));
            let emitted = self.emitted[place].key.as_ref().map(Key::as_str);
            assert_eq!(event.key.as_deref(), emitted, "an event keeps its key");
            if !seen.insert(&event.dedup_id) {
                assert!(self.uncertain.contains(&event.dedup_id), "twice, though acked at first: {event:?}");
                continue;
            }
            if let Some(key) = &event.key {
                let before = last.insert(key, place);
                assert!(before < Some(place), "{event:?} comes after a later event of its key");
            }
        }
        let lost: Vec<_> = self.acked.iter().filter(|id| !seen.contains(id.as_str())).collect();
        assert_eq!(lost, Vec::<&String>::new(), "acked and not held");
    }
}

fn first_of_each_key(batch: &[Delivery]) -> Vec<Delivery> {
    let mut keys = HashSet::new();
    batch
        .iter()
        .filter(|delivery| delivery.key.as_ref().is_none_or(|key| keys.insert(key.clone())))
        .cloned()
        .collect()
}
