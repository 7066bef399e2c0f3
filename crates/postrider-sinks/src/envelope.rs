//! What an event looks like to a receiver.
//!
//! | envelope | body | told beside it |
//! |---|---|---|
//! | `raw` | the payload | topic, type and key |
//! | `json` | [the object](line) that files and standard output get | |
//! | `cloudevents` | the payload | the attributes of CloudEvents 1.0, [binary mode](cloudevents) |
//! | `cloudevents-structured` | one JSON object of CloudEvents 1.0 | |
//! | `debezium` | the payload | `id` and `eventType`, as Debezium's outbox event router does |
//!
//! The `id` of `debezium` is the event's header `id`, which an event of an outbox table has from its row; an
//! event without one gets the deduplication id.
//!
//! Beside any of them travel the event's own headers, `traceparent` among them, and what [`names`] lists: the
//! deduplication id, the event's own id, the attempt, and the epoch, which every relay knows. [`Binding`]
//! says how a protocol carries all that. A payload that is the body is shared, never copied and never
//! rewritten.

mod binding;
pub mod cloudevents;
pub mod line;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use postrider_core::{Delivery, Error, Failure, Result};
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

#[cfg(feature = "http")]
pub(crate) use binding::uri_piece;
pub use binding::{BODY_FIELD, Binding, CONTENT_TYPE, MOVED, decode, decode_all, names};

use crate::Template;

/// How events are wrapped for a receiver.
///
/// In config it is a word, or a table with more to say:
///
/// ```
/// use postrider_sinks::Envelope;
/// let word: Envelope = serde_json::from_str(r#""cloudevents""#).unwrap();
/// let table: Envelope =
///     serde_json::from_str(r#"{"format": "cloudevents", "source": "/shop/{topic}"}"#).unwrap();
/// assert_eq!(word.format, table.format);
/// assert_eq!(word.source.to_string(), "postrider/{store_id}");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Which shape.
    pub format: Format,
    /// The attribute `source` of CloudEvents.
    pub source: Template,
    /// The content type of payloads whose event has no header `content-type`. Without it payloads are looked at:
    /// `application/json` if they are JSON, and else `application/octet-stream`.
    pub content_type: Option<String>,
}

/// The shapes that an envelope may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Format {
    /// The payload as it is.
    #[default]
    Raw,
    /// One JSON object, as files and standard output get it.
    Json,
    /// CloudEvents 1.0 in binary mode: the payload as it is, attributes beside it.
    #[serde(rename = "cloudevents")]
    CloudEvents,
    /// CloudEvents 1.0 in structured mode: one JSON object.
    #[serde(rename = "cloudevents-structured")]
    CloudEventsStructured,
    /// The payload as it is, with the headers of Debezium's outbox event router.
    Debezium,
}

/// What a sink sends for one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// The body.
    pub body: Bytes,
    /// What kind of bytes the body holds. Not among the headers: AMQP has a property for it, see [`Message::pairs`].
    pub content_type: Option<Cow<'a, str>>,
    /// Names and values, each such that the protocol can carry it.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Names of headers whose values had to be encoded, with commas between.
    encoded: String,
}

/// The ids of one delivery.
pub(crate) struct Ids {
    text: String,
    event_bytes: usize,
}

impl Ids {
    pub(crate) fn of(delivery: &Delivery) -> Self {
        let (text, event_bytes) = delivery.dedup_id_parts();
        Self { text, event_bytes }
    }

    pub(crate) fn dedup_id(&self) -> &str {
        &self.text
    }

    /// The event's own, with which the other begins.
    pub(crate) fn event_id(&self) -> &str {
        &self.text[..self.event_bytes]
    }
}

impl<'a> Message<'a> {
    /// A header, encoded if the protocol could not carry it, and then noted as such.
    fn add(&mut self, name: impl Into<Cow<'a, str>>, value: Cow<'a, str>, binding: Binding) {
        let name = name.into();
        if binding.must_encode(&value) {
            self.encoded.extend([if self.encoded.is_empty() { "" } else { ", " }, &name]);
        }
        self.headers.push((name, binding.value(value)));
    }

    fn tell_encoded(&mut self) {
        if !self.encoded.is_empty() {
            let encoded = std::mem::take(&mut self.encoded);
            self.headers.push((Cow::Borrowed(names::ENCODED), Cow::Owned(encoded)));
        }
    }
}

impl Message<'_> {
    /// The headers with the content type among them, for the protocols in which it is one.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let content_type = self.content_type.as_deref().map(|value| (CONTENT_TYPE, value));
        content_type.into_iter().chain(self.headers.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// How many bytes it has for a receiver that counts them, without what the protocol itself adds.
    pub fn bytes(&self) -> usize {
        self.body.len() + self.pairs().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

impl Envelope {
    /// An envelope of this shape, the rest as by default.
    pub fn new(format: Format) -> Self {
        let source = "postrider/{store_id}".parse().expect("the default source is a template");
        Self { format, source, content_type: None }
    }

    /// Wraps one delivery for a protocol.
    ///
    /// Fails for good if the template of `source` asks for what the event lacks, or if a header's name is longer
    /// than AMQP can carry.
    pub fn wrap<'a>(&'a self, delivery: &'a Delivery, binding: Binding) -> Result<Message<'a>, Failure> {
        let mut message = Message {
            body: delivery.payload.clone(),
            content_type: None,
            encoded: String::new(),
            headers: Vec::with_capacity(8 + delivery.headers.iter().count()),
        };
        let ids = Ids::of(delivery);
        match self.format {
            Format::Raw => {
                message.content_type = self.content_type_if_wanted(delivery, binding);
                raw_headers(&mut message, delivery, binding);
            }
            Format::Json => {
                let mut body = Vec::with_capacity(delivery.payload.len() + 256);
                line::write_object(&mut body, delivery);
                message.body = body.into();
                message.content_type = Some(Cow::Borrowed(JSON));
            }
            Format::CloudEvents => {
                let content_type = self.content_type_of(delivery);
                let attributes = cloudevents::Attributes::of(self, delivery, &ids)?;
                attributes.add_headers(&mut message, binding, &content_type);
                message.content_type = Some(content_type);
            }
            Format::CloudEventsStructured => {
                let content_type = self.content_type_of(delivery);
                let attributes = cloudevents::Attributes::of(self, delivery, &ids)?.with_headers(delivery);
                message.body = attributes.to_json(&content_type, &delivery.payload).into();
                message.content_type = Some(Cow::Borrowed(cloudevents::STRUCTURED));
            }
            Format::Debezium => {
                message.content_type = self.content_type_if_wanted(delivery, binding);
                let own = delivery.headers.get("id").filter(|own| !own.is_empty());
                let id = own.map_or_else(|| Cow::Owned(ids.dedup_id().to_owned()), Cow::Borrowed);
                message.add("id", id, binding);
                message.add("eventType", Cow::Borrowed(delivery.kind.as_str()), binding);
            }
        }
        message.content_type = message.content_type.map(|value| binding.value(value));
        message.add(names::EVENT_ID, Cow::Owned(ids.event_id().to_owned()), binding);
        message.add(names::DEDUP_ID, Cow::Owned(ids.text), binding);
        let attempt = match delivery.attempt {
            1 => Cow::Borrowed("1"),
            attempt => Cow::Owned(attempt.to_string()),
        };
        message.headers.push((Cow::Borrowed(names::ATTEMPT), attempt));
        if let Some(epoch) = delivery.epoch {
            message.headers.push((Cow::Borrowed(names::EPOCH), Cow::Owned(epoch.0.to_string())));
        }
        self.own_headers(&mut message, delivery, binding)?;
        message.tell_encoded();
        Ok(message)
    }

    /// The event's own headers. One that says the content type has become that of the message, where the message
    /// has the payload's.
    fn own_headers<'a>(
        &self,
        message: &mut Message<'a>,
        delivery: &'a Delivery,
        binding: Binding,
    ) -> Result<(), Failure> {
        let body_is_payload = !matches!(self.format, Format::Json | Format::CloudEventsStructured);
        let is_cloudevent = matches!(self.format, Format::CloudEvents | Format::CloudEventsStructured);
        for (name, value) in delivery.headers.iter() {
            if body_is_payload && name.eq_ignore_ascii_case(CONTENT_TYPE) {
                continue;
            }
            // It has become an attribute.
            if is_cloudevent && cloudevents::attribute_named(name).is_some() && !value.is_empty() {
                continue;
            }
            let name = match (self.format, name) {
                (Format::Debezium, "id") if !value.is_empty() => continue,
                (Format::Debezium, "id" | "eventType") => Cow::Owned(format!("{MOVED}{name}")),
                _ => binding.own_name(name),
            };
            if matches!(binding, Binding::Amqp | Binding::AmqpCe) && name.len() > binding::AMQP_NAME_BYTES_MAX
            {
                return Err(Failure::permanent(format!(
                    "the name of a header has {} bytes, AMQP carries {}: emit the event with a shorter one",
                    name.len(),
                    binding::AMQP_NAME_BYTES_MAX
                )));
            }
            message.add(name, Cow::Borrowed(value), binding);
        }
        Ok(())
    }

    /// The content type of the payload: as the event says, as config says, or as the payload looks.
    fn content_type_of<'a>(&'a self, delivery: &'a Delivery) -> Cow<'a, str> {
        Cow::Borrowed(self.declared_content_type(delivery).unwrap_or_else(|| {
            let is_json = serde_json::from_slice::<&RawValue>(&delivery.payload).is_ok();
            if is_json { JSON } else { BYTES }
        }))
    }

    /// The same, without a look at payloads for protocols whose receivers do not go by it.
    fn content_type_if_wanted<'a>(
        &'a self,
        delivery: &'a Delivery,
        binding: Binding,
    ) -> Option<Cow<'a, str>> {
        if binding.wants_content_type() {
            return Some(self.content_type_of(delivery));
        }
        self.declared_content_type(delivery).map(Cow::Borrowed)
    }

    fn declared_content_type<'a>(&'a self, delivery: &'a Delivery) -> Option<&'a str> {
        let mut headers = delivery.headers.iter();
        let own = headers.find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE)).map(|(_, value)| value);
        own.or(self.content_type.as_deref())
    }
}

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

fn raw_headers<'a>(message: &mut Message<'a>, delivery: &'a Delivery, binding: Binding) {
    let key = delivery.key.as_ref().map(|key| (names::KEY, key.as_str()));
    let told = [(names::TOPIC, delivery.topic.as_str()), (names::TYPE, delivery.kind.as_str())];
    for (name, value) in told.into_iter().chain(key) {
        message.add(name, Cow::Borrowed(value), binding);
    }
}

impl Default for Envelope {
    fn default() -> Self {
        Self::new(Format::default())
    }
}

impl Format {
    const ALL: [Self; 5] =
        [Self::Raw, Self::Json, Self::CloudEvents, Self::CloudEventsStructured, Self::Debezium];

    /// The word for it in config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Json => "json",
            Self::CloudEvents => "cloudevents",
            Self::CloudEventsStructured => "cloudevents-structured",
            Self::Debezium => "debezium",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("there is no envelope `{}`: use one of {words}", word.escape_debug()))
        })
    }
}

impl FromStr for Envelope {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        word.parse().map(Self::new)
    }
}

/// An envelope as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Table {
    /// Which shape.
    format: Format,
    /// The attribute `source` of CloudEvents; `postrider/{store_id}` if nothing is given.
    source: Option<Template>,
    /// The content type of payloads; without it they are looked at.
    content_type: Option<String>,
}

impl<'de> Deserialize<'de> for Envelope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrTable;

        impl<'de> Visitor<'de> for WordOrTable {
            type Value = Envelope;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the word for an envelope, or a table with its `format`")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Envelope, E> {
                word.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Envelope, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                let plain = Envelope::new(table.format);
                Ok(Envelope {
                    source: table.source.unwrap_or(plain.source),
                    content_type: table.content_type,
                    ..plain
                })
            }
        }

        deserializer.deserialize_any(WordOrTable)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Envelope {
    fn schema_name() -> Cow<'static, str> {
        "Envelope".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let word = generator.subschema_for::<Format>();
        let table = generator.subschema_for::<Table>();
        schemars::json_schema!({"description": "How events are wrapped.", "anyOf": [word, table]})
    }
}
