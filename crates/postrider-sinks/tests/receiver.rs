//! A message that was wrapped for any protocol gives back the event, as the check of all sinks asks it.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Mutex;

use postrider_core::{Delivery, Outcome, Sink};
use postrider_sinks::envelope::{self, Binding, Envelope, names};
use postrider_testkit::receiver::{Received, check_sink};

/// Holds messages as a protocol would carry them.
struct Carried {
    binding: Binding,
    held: Mutex<Vec<Received>>,
}

impl Sink for Carried {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let envelope = Envelope::default();
        let mut held = self.held.lock().unwrap();
        for delivery in &batch {
            let message = envelope.wrap(delivery, self.binding).unwrap();
            let headers = self.read(message.headers.iter().map(|(name, value)| (&**name, &**value)));
            let dedup_id = headers.iter().find(|(name, _)| name == names::DEDUP_ID).unwrap().1.clone();
            held.push(Received { payload: message.body.to_vec(), headers, dedup_id });
        }
        vec![Outcome::Ack; batch.len()]
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

impl Carried {
    fn read<'a>(&self, headers: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
        if !self.binding.is_ascii() {
            return headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        }
        let carried = headers.inspect(|(name, value)| {
            let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            assert!(is_plain(name) && is_plain(value), "{name:?}: {value:?}");
        });
        // What stands at an edge is lost on the way.
        envelope::decode_all(carried.map(|(name, value)| (name.trim(), value.trim())))
    }
}

#[tokio::test]
async fn every_binding_gives_back_what_was_sent() {
    for binding in [Binding::Kafka, Binding::Nats, Binding::Http, Binding::Amqp, Binding::Redis] {
        let sink = Carried { binding, held: Mutex::default() };
        check_sink(&sink, 1024 * 1024, async |_| std::mem::take(&mut *sink.held.lock().unwrap())).await;
    }
}
