//! What every sink must do, asked at its receiver.
//!
//! A sink's test opens the real receiver, opens the sink with the envelope `raw`, and calls [`check_sink`]
//! with a closure that reads back what the receiver holds. Each promise panics with its name and with what
//! was found instead.
//!
//! ```
//! # use postrider_testkit::receiver::{Received, check_sink};
//! # async fn test<S: postrider_core::Sink>(sink: S) {
//! check_sink(&sink, 1024 * 1024, async |count| {
//!     let mut received = Vec::new();
//!     while received.len() < count {
//!         // Wait for the next one, with a bound, and put it in these words.
//! #       let next = Received { payload: vec![], headers: vec![], dedup_id: String::new() };
//!         received.push(next);
//!     }
//!     received
//! })
//! .await;
//! # }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use postrider_core::delivery::Origin;
use postrider_core::{Delivery, Event, EventId, Headers, Key, Kind, Outcome, Sink, Timestamp, Topic};

/// One event as its receiver holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The body.
    pub payload: Vec<u8>,
    /// All headers, names and values decoded as the protocol's envelope says.
    pub headers: Vec<(String, String)>,
    /// The deduplication id, from the protocol's own place for it.
    pub dedup_id: String,
}

/// Topic of the events that [`check_sink`] sends, for routes that use it.
pub const TOPIC: &str = "order";
/// Type of these events.
pub const TYPE: &str = "order.created";

/// Checks every promise, one after the other, on one sink.
///
/// `payload_bytes_max` is the largest payload that this receiver is set up to take, and is sent. `read_back` is
/// asked for so many events after each send, and gives those that arrived since it was asked last, in the order in
/// which the receiver holds those of one key.
pub async fn check_sink<S: Sink>(
    sink: &S,
    payload_bytes_max: usize,
    mut read_back: impl AsyncFnMut(usize) -> Vec<Received>,
) {
    let mut stage = Stage::new();
    stage.payloads_arrive_byte_for_byte(sink, payload_bytes_max, &mut read_back).await;
    stage.headers_arrive_whatever_they_hold(sink, &mut read_back).await;
    stage.events_of_a_key_arrive_in_order(sink, &mut read_back).await;
    stage.a_batch_has_one_outcome_per_delivery(sink, &mut read_back).await;
}

/// Where the events of one check come from. Receivers that deduplicate must not know them from another check.
struct Stage {
    origin: Arc<Origin>,
    last_id: i64,
}

impl Stage {
    fn new() -> Self {
        static STAGES: AtomicU64 = AtomicU64::new(0);
        let stage = STAGES.fetch_add(1, Ordering::Relaxed);
        let store_id = format!("check-{}-{stage}", std::process::id());
        Self { origin: Arc::new(Origin { subscription: "check".to_owned(), store_id }), last_id: 0 }
    }

    fn delivery(&mut self, key: Option<&str>, payload: Vec<u8>, headers: &[(&str, &str)]) -> Delivery {
        self.last_id += 1;
        let mut own = Headers::default();
        for (name, value) in headers {
            own.set(name, *value);
        }
        let event = Event {
            id: EventId(self.last_id),
            topic: Topic::new(TOPIC),
            kind: Kind::new(TYPE),
            key: key.map(Key::new),
            payload: Bytes::from(payload),
            headers: own,
            created_at: Timestamp::from_micros(1_800_000_000_000_000 + self.last_id),
            due_at: None,
            flaw: None,
        };
        Delivery::new(Arc::new(event), 1, Arc::clone(&self.origin))
    }

    async fn payloads_arrive_byte_for_byte<S: Sink>(
        &mut self,
        sink: &S,
        payload_bytes_max: usize,
        read_back: &mut impl AsyncFnMut(usize) -> Vec<Received>,
    ) {
        let payloads = [
            Vec::new(),
            (0..=255).collect(),
            b"{\"total\": 9.50,\r\n \"total\": \"\xc3\xbc\"}\n".to_vec(),
            b"\xff\xfe\0".to_vec(),
            (0..payload_bytes_max).map(|at| (at % 251) as u8).collect(),
        ];
        for payload in payloads {
            let sent = self.delivery(Some("payloads"), payload, &[]);
            let received = send_all(sink, vec![sent.clone()], read_back).await;
            let (expected, found) = (&sent.payload[..], &received[0].payload[..]);
            let differs = expected.iter().zip(found).position(|(one, other)| one != other);
            assert!(
                expected == found,
                "payloads arrive byte for byte: {} bytes were sent and {} arrived; the first that differs: {differs:?}",
                expected.len(),
                found.len(),
            );
        }
    }

    async fn headers_arrive_whatever_they_hold<S: Sink>(
        &mut self,
        sink: &S,
        read_back: &mut impl AsyncFnMut(usize) -> Vec<Received>,
    ) {
        let own = [
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("city", "Zürich 漢字 😀"),
            ("quoted", "a \"b\" c"),
            ("percent", "100 % %41"),
            ("baggage", "user=Zo%C3%AB"),
            ("both", "ü %41"),
            ("edges", " a "),
            ("empty", ""),
            ("name/with:all._-", "1"),
            ("name ü", "2"),
            ("long", &"x".repeat(2000)),
        ];
        let sent = self.delivery(None, b"{}".to_vec(), &own);
        let received = send_all(sink, vec![sent], read_back).await;
        for (name, value) in own {
            let found: Vec<_> =
                received[0].headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect();
            assert_eq!(
                found,
                [value],
                "headers arrive whatever they hold: `{name}` in {:?}",
                received[0].headers
            );
        }
    }

    async fn events_of_a_key_arrive_in_order<S: Sink>(
        &mut self,
        sink: &S,
        read_back: &mut impl AsyncFnMut(usize) -> Vec<Received>,
    ) {
        const KEYS: [&str; 3] = ["a", "b", "ü"];
        const ROUNDS: u32 = 30;
        let mut batches: Vec<Vec<Delivery>> = Vec::new();
        for round in 0..ROUNDS {
            let batch =
                KEYS.map(|key| self.delivery(Some(key), format!("{key}{round}").into_bytes(), &[])).to_vec();
            // Only a sink that keeps order is ever given several events of one key.
            match batches.last_mut().filter(|_| sink.keeps_order()) {
                Some(last) => last.extend(batch),
                None => batches.push(batch),
            }
        }
        let mut received = Vec::new();
        for batch in batches {
            received.extend(send_all(sink, batch, read_back).await);
        }
        for key in KEYS {
            let found: Vec<_> = received
                .iter()
                .filter_map(|event| {
                    str::from_utf8(&event.payload).ok()?.strip_prefix(key)?.parse::<u32>().ok()
                })
                .collect();
            assert_eq!(
                found,
                (0..ROUNDS).collect::<Vec<_>>(),
                "events of a key arrive in order: key `{key}`"
            );
        }
    }

    async fn a_batch_has_one_outcome_per_delivery<S: Sink>(
        &mut self,
        sink: &S,
        read_back: &mut impl AsyncFnMut(usize) -> Vec<Received>,
    ) {
        assert_eq!(
            sink.send(Vec::new()).await,
            [],
            "a batch has one outcome per delivery: an empty one has none"
        );
        let batch: Vec<_> = (0..500).map(|_| self.delivery(None, b"1".to_vec(), &[])).collect();
        send_all(sink, batch, read_back).await;
    }
}

/// Sends a batch that must be acked whole, and reads back exactly its events.
async fn send_all<S: Sink>(
    sink: &S,
    batch: Vec<Delivery>,
    read_back: &mut impl AsyncFnMut(usize) -> Vec<Received>,
) -> Vec<Received> {
    let mut expected: Vec<_> = batch.iter().map(Delivery::dedup_id).collect();
    let outcomes = sink.send(batch).await;
    assert_eq!(outcomes.len(), expected.len(), "a batch has one outcome per delivery");
    let failed = outcomes.iter().find(|outcome| **outcome != Outcome::Ack);
    assert_eq!(failed, None, "a healthy receiver takes what it can hold");
    let received = read_back(expected.len()).await;
    let mut found: Vec<_> = received.iter().map(|event| event.dedup_id.clone()).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "each event arrives once, with its deduplication id");
    received
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A receiver in memory, with one thing wrong.
    struct Memory {
        flaw: Flaw,
        held: Mutex<Vec<Received>>,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Flaw {
        None,
        CutsPayloads,
        ReversesBatches,
        LosesUnicode,
        LosesOne,
        RepeatsOne,
        ForgetsAnOutcome,
        InventsAnOutcome,
        AnotherId,
    }

    impl Sink for Memory {
        async fn send(&self, mut batch: Vec<Delivery>) -> Vec<Outcome> {
            let mut outcomes = vec![Outcome::Ack; batch.len()];
            match self.flaw {
                Flaw::ReversesBatches => batch.reverse(),
                Flaw::LosesOne if batch.len() > 100 => drop(batch.pop()),
                Flaw::RepeatsOne if batch.len() > 100 => batch.push(batch[0].clone()),
                Flaw::ForgetsAnOutcome => drop(outcomes.pop()),
                Flaw::InventsAnOutcome => outcomes.push(Outcome::Ack),
                _ => {}
            }
            let received = batch.iter().map(|delivery| self.receive(delivery));
            self.held.lock().unwrap().extend(received);
            outcomes
        }

        fn keeps_order(&self) -> bool {
            true
        }
    }

    impl Memory {
        fn receive(&self, delivery: &Delivery) -> Received {
            let payload = match self.flaw {
                Flaw::CutsPayloads => &delivery.payload[..delivery.payload.len().min(1000)],
                _ => &delivery.payload[..],
            };
            let value = |value: &str| match self.flaw {
                Flaw::LosesUnicode => value.replace(|c: char| !c.is_ascii(), "?"),
                _ => value.to_owned(),
            };
            let id = if self.flaw == Flaw::AnotherId { delivery.id.to_string() } else { delivery.dedup_id() };
            let headers = delivery.headers.iter().map(|(name, text)| (name.to_owned(), value(text)));
            Received { payload: payload.to_vec(), headers: headers.collect(), dedup_id: id }
        }
    }

    fn check(flaw: Flaw) -> Result<(), String> {
        let run = || {
            let sink = Memory { flaw, held: Mutex::default() };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(check_sink(&sink, 10_000, async |_| {
                std::mem::take(&mut *sink.held.lock().unwrap())
            }));
        };
        std::panic::catch_unwind(run)
            .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
    }

    #[test]
    fn a_good_sink_passes_and_each_flaw_is_named() {
        assert_eq!(check(Flaw::None), Ok(()));
        for (flaw, promise) in [
            (Flaw::CutsPayloads, "payloads arrive byte for byte: 10000 bytes were sent and 1000 arrived"),
            (Flaw::ReversesBatches, "events of a key arrive in order"),
            (Flaw::LosesUnicode, "headers arrive whatever they hold"),
            (Flaw::LosesOne, "each event arrives once"),
            (Flaw::RepeatsOne, "each event arrives once"),
            (Flaw::ForgetsAnOutcome, "one outcome per delivery"),
            (Flaw::InventsAnOutcome, "one outcome per delivery"),
            (Flaw::AnotherId, "with its deduplication id"),
        ] {
            let told = check(flaw).unwrap_err();
            assert!(told.contains(promise), "{flaw:?}: {told}");
        }
    }
}
