//! Carries events to a sink as a relay does, and keeps the ledger.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use postrider_core::delivery::Origin;
use postrider_core::{
    Delivery, Event, EventId, Failure, Headers, Key, Kind, Outcome, Sink, Timestamp, Topic,
};

/// Events that wait, and what has become of the others.
#[derive(Clone)]
pub(crate) struct Carrier {
    origin: Arc<Origin>,
    last_id: i64,
    keys: HashMap<String, Key>,
    pub(crate) waiting: Vec<Delivery>,
    pub(crate) acked: Vec<String>,
    pub(crate) dead: Vec<(String, Failure)>,
}

impl Carrier {
    pub(crate) fn new() -> Self {
        static CARRIERS: AtomicU64 = AtomicU64::new(0);
        let number = CARRIERS.fetch_add(1, Ordering::Relaxed);
        let store_id = format!("carrier-{}-{number}", std::process::id());
        let origin = Arc::new(Origin { subscription: "carry".to_owned(), store_id });
        Self {
            origin,
            last_id: 0,
            keys: HashMap::new(),
            waiting: Vec::new(),
            acked: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// The same events for another subscription, of which none has been sent.
    #[allow(dead_code, reason = "not every sink's tests have two")]
    pub(crate) fn of_subscription(&self, name: &str) -> Self {
        let origin = Origin { subscription: name.to_owned(), store_id: self.origin.store_id.clone() };
        let mut other = Self { origin: Arc::new(origin), ..self.clone() };
        for delivery in &mut other.waiting {
            delivery.origin = Arc::clone(&other.origin);
        }
        other.keys = other
            .waiting
            .iter()
            .filter_map(|delivery| Some((delivery.dedup_id(), delivery.key.clone()?)))
            .collect();
        other
    }

    /// So many events for each key, those of different keys in turn.
    pub(crate) fn with_keys(keys: usize, per_key: usize) -> Self {
        let mut carrier = Self::new();
        for _ in 0..per_key {
            for key in 0..keys {
                carrier.emit(Some(&format!("key-{key}")), b"{\"total\":1}");
            }
        }
        carrier
    }

    pub(crate) fn emit(&mut self, key: Option<&str>, payload: &[u8]) {
        self.emit_with(key, payload, Headers::default());
    }

    /// With a header `to`, for templates.
    #[allow(dead_code, reason = "not every sink's tests route")]
    pub(crate) fn emit_to(&mut self, key: Option<&str>, payload: &[u8], to: &str) {
        let mut headers = Headers::default();
        headers.set("to", to);
        self.emit_with(key, payload, headers);
    }

    fn emit_with(&mut self, key: Option<&str>, payload: &[u8], headers: Headers) {
        self.last_id += 1;
        let event = Event {
            id: EventId(self.last_id),
            topic: Topic::new("order"),
            kind: Kind::new("order.created"),
            key: key.map(Key::new),
            payload: Bytes::copy_from_slice(payload),
            headers,
            created_at: Timestamp::from_micros(1_800_000_000_000_000 + self.last_id),
            due_at: None,
            flaw: None,
        };
        let delivery = Delivery::new(Arc::new(event), 1, Arc::clone(&self.origin));
        self.keys.extend(delivery.key.clone().map(|key| (delivery.dedup_id(), key)));
        self.waiting.push(delivery);
    }

    /// Sends the first events that wait, and keeps those that must go again.
    pub(crate) async fn send<S: Sink>(&mut self, sink: &S, batch_max: usize) -> Vec<Outcome> {
        let batch: Vec<_> = self.waiting.iter().take(batch_max).cloned().collect();
        let outcomes = sink.send(batch.clone()).await;
        assert_eq!(outcomes.len(), batch.len());
        let mut failed_keys = HashSet::new();
        let mut settled = HashSet::new();
        for (delivery, outcome) in batch.iter().zip(&outcomes) {
            let key = delivery.key.clone();
            match outcome {
                Outcome::Ack => {
                    assert!(
                        !key.as_ref().is_some_and(|key| failed_keys.contains(key)),
                        "acked after its key failed"
                    );
                    self.acked.push(delivery.dedup_id());
                    settled.insert(delivery.id);
                    continue;
                }
                Outcome::Dead(failure) => {
                    self.dead.push((delivery.dedup_id(), failure.clone()));
                    settled.insert(delivery.id);
                }
                Outcome::Retry(_) | Outcome::Untried => {}
            }
            failed_keys.extend(key);
        }
        self.waiting.retain(|delivery| !settled.contains(&delivery.id));
        outcomes
    }

    /// Sends until nothing waits.
    pub(crate) async fn send_all<S: Sink>(&mut self, sink: &S, batch_max: usize) {
        let mut rounds = 0;
        while !self.waiting.is_empty() {
            let outcomes = self.send(sink, batch_max).await;
            rounds += 1;
            assert!(rounds < 1000, "{} wait, the last outcomes: {outcomes:?}", self.waiting.len());
        }
    }

    /// What the receiver holds, in its order: everything that was acked, nothing before what its key had before.
    /// Gives the number of repeats.
    #[track_caller]
    pub(crate) fn compare(&self, held: &[String]) -> usize {
        let mut place_of: HashMap<&str, usize> = HashMap::new();
        for (place, id) in held.iter().enumerate() {
            place_of.entry(id).or_insert(place);
        }
        let lost: Vec<_> = self.acked.iter().filter(|id| !place_of.contains_key(id.as_str())).collect();
        assert!(lost.is_empty(), "acked and not held: {lost:?}");
        let mut place_of_key: HashMap<&Key, usize> = HashMap::new();
        let mut by_id: Vec<_> = self.acked.iter().collect();
        by_id.sort_by_key(|id| number(id));
        for id in by_id {
            let Some(key) = self.keys.get(id) else { continue };
            let place = place_of[id.as_str()];
            let before = place_of_key.insert(key, place);
            assert!(before.is_none_or(|before| before < place), "{id} stands before its predecessor");
        }
        held.len() - place_of.len()
    }
}

/// The id within a deduplication id, `{store_id}-{id}-{created_at}-{subscription}`.
fn number(dedup_id: &str) -> i64 {
    dedup_id.rsplit('-').nth(2).and_then(|id| id.parse().ok()).expect("a deduplication id")
}
