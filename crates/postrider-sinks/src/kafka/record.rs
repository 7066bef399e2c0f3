//! What is sent for one event.

use std::borrow::Cow;

use postrider_core::{Delivery, Failure, Key};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;

use super::KafkaOptions;
use crate::batch::sizes;
use crate::envelope::{Binding, Message};

const TOPIC_BYTES_MAX: usize = 249;
/// What the protocol adds at most: the head of a batch, and the lengths, timestamp and offset of a record.
const RECORD_OVERHEAD_BYTES: usize = 61 + 31;
/// The two lengths of a header.
const HEADER_OVERHEAD_BYTES: usize = 10;

/// An event that is ready for Kafka.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) topic: Cow<'a, str>,
    pub(super) key: Option<Cow<'a, str>>,
    message: Message<'a>,
    is_tombstone: bool,
}

impl<'a> Record<'a> {
    /// Fails for good: no later attempt finds another event.
    pub(super) fn of(delivery: &'a Delivery, options: &'a KafkaOptions) -> Result<Self, Failure> {
        let topic = options.topic.render(delivery)?;
        if let Some(reason) = why_no_topic(&topic) {
            // Without the name, which may hold the event's key.
            return Err(Failure::permanent(format!(
                "the template `{}` makes no topic of Kafka of this event: {reason}",
                options.topic
            )));
        }
        let key = match &options.key {
            Some(template) => Some(template.render(delivery)?).filter(|key| !key.is_empty()),
            None => delivery.key.as_ref().map(Key::as_str).map(Cow::Borrowed),
        };
        let mut message = options.envelope.wrap(delivery, Binding::Kafka)?;
        for (name, value) in &options.headers {
            message.headers.push((Cow::Borrowed(name), value.render(delivery)?));
        }
        let is_tombstone = options.tombstones && message.body.is_empty();
        let record = Self { topic, key, message, is_tombstone };
        sizes::check(
            record.bytes(),
            options.message_bytes_max.get() as usize,
            "the sink (`message_bytes_max`)",
        )?;
        Ok(record)
    }

    /// How many bytes it has as the only one in its request, and not one less.
    pub(super) fn bytes(&self) -> usize {
        let headers = self.message.pairs().count() * HEADER_OVERHEAD_BYTES;
        self.message.bytes() + self.key.as_ref().map_or(0, |key| key.len()) + headers + RECORD_OVERHEAD_BYTES
    }

    /// In the words of the client, which copies it and will report it by its number.
    pub(super) fn to_send(&self, number: usize) -> BaseRecord<'_, str, [u8], usize> {
        let mut headers = OwnedHeaders::new_with_capacity(self.message.headers.len() + 1);
        for (name, value) in self.message.pairs() {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        let mut record = BaseRecord::with_opaque_to(&self.topic, number).headers(headers);
        if let Some(key) = &self.key {
            record = record.key(&**key);
        }
        if self.is_tombstone { record } else { record.payload(&self.message.body[..]) }
    }
}

/// What is wrong with the name of a topic.
pub(super) fn why_no_topic(name: &str) -> Option<&'static str> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > TOPIC_BYTES_MAX {
        Some("it has more than 249 characters")
    } else if name == "." || name == ".." {
        Some("it names a folder")
    } else if !name.bytes().all(is_legal) {
        Some("it has characters other than letters, digits, `.`, `_` and `-`")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::FailureClass;

    use super::*;
    use crate::sample::delivery;

    fn options(json: &str) -> KafkaOptions {
        serde_json::from_str(&format!(r#"{{"brokers": ["h"], {json}}}"#)).unwrap()
    }

    #[test]
    fn keys_come_from_the_event_or_the_template() {
        let mut event = delivery(7, b"x");
        let key = |json: &str, event: &Delivery| {
            Record::of(event, &options(json)).unwrap().key.map(Cow::into_owned)
        };
        assert_eq!(key(r#""topic": "t""#, &event).as_deref(), Some("42"));
        assert_eq!(key(r#""topic": "t", "key": "{type}""#, &event).as_deref(), Some("order.created"));
        Arc::make_mut(&mut event.event).key = None;
        assert_eq!(key(r#""topic": "t""#, &event), None);
        assert_eq!(key(r#""topic": "t", "key": "{key|}""#, &event), None);
    }

    #[test]
    fn what_can_never_be_sent_is_refused_with_the_reason_and_without_the_key() {
        let mut event = delivery(7, &[b'x'; 100]);
        Arc::make_mut(&mut event.event).key = Some(Key::new("canary/"));
        for (json, reason) in [
            (r#""topic": "t.{key}""#, "makes no topic of Kafka of this event"),
            (r#""topic": "{header.none}""#, "no header `none`"),
            (r#""topic": "t", "message_bytes_max": 100"#, "takes 100"),
            (r#""topic": "t", "headers": {"a": "{header.none}"}"#, "no header `none`"),
        ] {
            let failure = Record::of(&event, &options(json)).unwrap_err();
            assert_eq!(failure.class(), FailureClass::Permanent);
            assert!(failure.message().contains(reason) && !failure.message().contains("canary"), "{failure}");
        }
    }

    #[test]
    fn an_empty_body_is_a_tombstone_only_where_that_is_wished() {
        let event = delivery(7, b"");
        for (json, expected) in [(r#""topic": "t""#, false), (r#""topic": "t", "tombstones": true"#, true)] {
            let options = options(json);
            let record = Record::of(&event, &options).unwrap();
            assert_eq!(record.to_send(0).payload.is_none(), expected);
        }
        let (full, options) = (delivery(7, b"x"), options(r#""topic": "t", "tombstones": true"#));
        assert!(Record::of(&full, &options).unwrap().to_send(0).payload.is_some());
    }
}
