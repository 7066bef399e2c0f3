//! What is published for one event.

use std::borrow::Cow;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use postrider_core::{Delivery, Failure};

use super::RabbitMqOptions;
use crate::batch::sizes;
use crate::envelope::Message;

const PERSISTENT: u8 = 2;
/// Properties travel in one frame, for which RabbitMQ's usual limit is 128 KiB; a larger one would cost the connection.
const PROPERTIES_BYTES_MAX: usize = 120 * 1024;
/// What a table adds to a name and a value.
const HEADER_OVERHEAD_BYTES: usize = 6;

/// An event that is ready for RabbitMQ.
#[derive(Debug)]
pub(super) struct Publication<'a> {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) dedup_id: ShortString,
    message: Message<'a>,
    content_type: Option<ShortString>,
    created_at_s: u64,
}

impl<'a> Publication<'a> {
    /// Fails for good: no later attempt finds another event.
    pub(super) fn of(delivery: &'a Delivery, options: &'a RabbitMqOptions) -> Result<Self, Failure> {
        let mut message = options.envelope.wrap(delivery, options.cloudevents_prefix.binding())?;
        for (name, value) in &options.headers {
            message.headers.push((Cow::Borrowed(name), value.render(delivery)?));
        }
        let limit = options.message_bytes_max.get() as usize;
        sizes::check(message.body.len(), limit, "the sink (`message_bytes_max`)")?;
        let properties =
            message.headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD_BYTES);
        sizes::check(properties.sum(), PROPERTIES_BYTES_MAX, "for its headers RabbitMQ")?;
        for (name, _) in &message.headers {
            short(Cow::Borrowed(name), "the name of a header")?;
        }
        let content_type =
            message.content_type.clone().map(|text| short(text, "the content type")).transpose()?;
        Ok(Self {
            exchange: short(options.exchange.render(delivery)?, "the exchange")?,
            routing_key: short(options.routing_key.render_words(delivery, "*#")?.into(), "the routing key")?,
            dedup_id: short(Cow::Owned(delivery.dedup_id()), "the deduplication id")?,
            message,
            content_type,
            created_at_s: u64::try_from(delivery.created_at.as_micros() / 1_000_000).unwrap_or(0),
        })
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.message.body
    }

    pub(super) fn properties(&self) -> BasicProperties {
        let mut headers = FieldTable::default();
        for (name, value) in &self.message.headers {
            // Their length was looked at.
            headers.insert(ShortString::from(&**name), AMQPValue::LongString(LongString::from(&**value)));
        }
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_message_id(self.dedup_id.clone()) // tidy: foreign because AMQP names it so
            .with_timestamp(self.created_at_s)
            .with_headers(headers);
        if let Some(content_type) = &self.content_type {
            properties = properties.with_content_type(content_type.clone());
        }
        properties
    }
}

fn short(text: Cow<'_, str>, what: &str) -> Result<ShortString, Failure> {
    let bytes = text.len();
    ShortString::try_new(text).map_err(|_| {
        Failure::permanent(format!(
            "{what} has {bytes} bytes, AMQP carries 255: shorten it, or change the template"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::{FailureClass, Key};

    use super::*;
    use crate::options::SinkOptions;
    use crate::sample::delivery;

    #[test]
    fn the_properties_carry_what_a_receiver_needs() {
        let options = RabbitMqOptions::from_text("amqp://h/e.{topic}?routing_key={type}.{key}").unwrap();
        let event = delivery(7, b"{}");
        let publication = Publication::of(&event, &options).unwrap();
        let found = (publication.exchange.as_str(), publication.routing_key.as_str());
        assert_eq!(found, ("e.order", "order.created.42"));
        let properties = publication.properties();
        // tidy: foreign because AMQP names it so
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), event.dedup_id());
        assert_eq!(properties.delivery_mode(), &Some(PERSISTENT));
        assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
        assert_eq!(properties.timestamp(), &Some(1_800_000_000));
    }

    #[test]
    fn what_can_never_be_published_is_refused_with_the_reason() {
        let long = "k".repeat(300);
        let mut event = delivery(7, &[b'x'; 100]);
        Arc::make_mut(&mut event.event).key = Some(Key::new(&long));
        Arc::make_mut(&mut event.event).headers.set("big", "x".repeat(130_000));
        for (json, reason) in [
            (r#""exchange": "", "message_bytes_max": 99"#, "takes 99"),
            (r#""exchange": """#, "for its headers RabbitMQ"),
        ] {
            check(&event, json, reason);
        }
        Arc::make_mut(&mut event.event).headers.set("big", "");
        check(&event, r#""exchange": "", "routing_key": "{key}""#, "the routing key has 300 bytes");
        check(&event, r#""exchange": "{header.none}""#, "no header `none`");
    }

    fn check(event: &Delivery, json: &str, reason: &str) {
        let options: RabbitMqOptions =
            serde_json::from_str(&format!(r#"{{"brokers": ["h"], {json}}}"#)).unwrap();
        let failure = Publication::of(event, &options).unwrap_err();
        assert_eq!(failure.class(), FailureClass::Permanent);
        assert!(failure.message().contains(reason), "{failure}");
    }
}
