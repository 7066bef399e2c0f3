//! What an application emits, and what is stored.

pub mod emit;
mod listed;
mod stored;
pub mod unique;

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::error::{Error, Result};
use crate::event::unique::{REPLACES_HEADER, Unique};
use crate::limits;
use crate::time::Timestamp;

pub use listed::Listed;
pub(crate) use stored::Grouped;
pub use stored::{Flaw, Lengths, StoredEvent, beginning};

/// The number of an event in its store. Ids grow in the order in which a key's owner emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventId(pub i64);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(SmolStr);

        impl $name {
            /// Takes the text as it is: rows that came by plain SQL are delivered whatever they say, within the limits.
            /// What is emitted through this library is checked by [`NewEvent::check`].
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(SmolStr::new(text))
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name! {
    /// The stream an event belongs to, usually the kind of aggregate: `order`.
    Topic
}
name! {
    /// What happened: `order.created`. Called *type* everywhere but in Rust, where that is a keyword.
    Kind
}
name! {
    /// The ordering key, usually the aggregate's id. Events of one key are delivered in order.
    Key
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Without the key itself, which may name a person.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// String pairs that travel with an event, in the order in which they were added.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(SmolStr, String)>);

/// How many there are, not what they say.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Headers({} of {} bytes)", self.0.len(), self.bytes())
    }
}

impl Headers {
    /// The value of the first header called `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none, which is the usual case.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes they are, names and values together.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Adds a pair, replacing an earlier one of the same name.
    pub fn set(&mut self, name: impl AsRef<str>, value: impl Into<String>) {
        let name = SmolStr::new(name);
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some(pair) => pair.1 = value.into(),
            None => self.0.push((name, value.into())),
        }
    }

    /// The stored form: a JSON object, or nothing when there are no headers.
    pub fn to_json(&self) -> Option<String> {
        (!self.is_empty()).then(|| serde_json::to_string(self).expect("strings always serialize"))
    }

    /// Reads the stored form. A row written by hand may hold anything: `null`, which some clients write for
    /// none, is no headers, and a header that is `null` is left out. Values that are not strings are kept as
    /// their JSON text, and what is no object at all becomes the single header `malformed`, since a bad
    /// header must never lose an event. What is more than an event may have is left out.
    pub fn from_json(text: &str) -> Self {
        Self::read(text).unwrap_or_default()
    }

    /// The same, or in words which limit is broken. However many there are, no more than a limit's worth is looked at.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.trim_ascii() == "null" {
            return Ok(Self::default());
        }
        let mut many = false;
        let mut json = serde_json::Deserializer::from_str(text);
        let read = serde::Deserializer::deserialize_map(&mut json, Pairs { many: &mut many });
        let headers = match read.and_then(|headers| json.end().map(|()| headers)) {
            Ok(headers) => headers,
            Err(_) if many => return Err(format!("there are more than {} headers", limits::HEADERS_MAX)),
            Err(_) => Self(vec![(SmolStr::new_static("malformed"), text.to_owned())]),
        };
        let bytes = headers.bytes();
        if bytes > limits::HEADERS_BYTES_MAX {
            let (bytes, most) = (Grouped(bytes as u64), Grouped(limits::HEADERS_BYTES_MAX as u64));
            return Err(format!("the headers have {bytes} bytes, the limit is {most}"));
        }
        Ok(headers)
    }
}

/// Pairs in the order in which they stand, which a map of serde_json would not keep. At most
/// [`limits::HEADERS_MAX`], so that looking for a name among them costs next to nothing.
struct Pairs<'m> {
    /// Becomes true if there are more.
    many: &'m mut bool,
}

impl<'de> serde::de::Visitor<'de> for Pairs<'_> {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of headers")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Headers::default();
        for _ in 0..=limits::HEADERS_MAX {
            let Some((name, value)) = map.next_entry::<SmolStr, serde_json::Value>()? else {
                return Ok(headers);
            };
            match value {
                serde_json::Value::String(value) => headers.set(name, value),
                serde_json::Value::Null => {}
                other => headers.set(name, other.to_string()),
            }
        }
        *self.many = true;
        Err(serde::de::Error::custom(format_args!("more than {} headers", limits::HEADERS_MAX)))
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs { many: &mut false })
    }
}

impl Serialize for Headers {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// An immutable fact, as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number in the store.
    pub id: EventId,
    /// The stream it belongs to.
    pub topic: Topic,
    /// What happened.
    pub kind: Kind,
    /// Its ordering key, if it has one.
    pub key: Option<Key>,
    /// JSON as it was written, or other bytes; Postrider never parses them on the way.
    pub payload: Bytes,
    /// Pairs that travel with it.
    pub headers: Headers,
    /// When it was emitted, on the database's clock.
    pub created_at: Timestamp,
    /// When it may be delivered, if it was delayed.
    pub due_at: Option<Timestamp>,
    /// Why it cannot be handed out, if it breaks a limit; then it lacks what does. Handlers and sinks never see one.
    pub flaw: Option<Box<Flaw>>,
}

/// What it is and how large, never what it says: an event in a log must not be a leak.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id.0)
            .field("topic", &self.topic)
            .field("type", &self.kind)
            .field("key", &self.key)
            .field("payload_bytes", &self.payload.len())
            .field("headers", &self.headers)
            .field("created_at", &self.created_at)
            .field("due_at", &self.due_at)
            .field("flaw", &self.flaw)
            .finish()
    }
}

impl Event {
    /// Starts an event to be emitted on `topic`.
    ///
    /// ```
    /// use postrider_core::Event;
    /// # #[derive(serde::Serialize)] struct Order { id: u32 }
    /// # let order = Order { id: 42 };
    /// let event = Event::new("order").kind("order.created").key(42).json(&order)?;
    /// # Ok::<(), postrider_core::Error>(())
    /// ```
    #[expect(clippy::new_ret_no_self, reason = "an event exists once it is stored; this is how one begins")]
    pub fn new(topic: impl AsRef<str>) -> NewEvent {
        NewEvent::new(topic)
    }

    /// Reads the payload as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.payload).map_err(|error| {
            // serde_json's messages name positions and types, never the content.
            Error::invalid(format!("payload of event {} is not the expected JSON", self.id))
                .with_source(error)
        })
    }

    /// How much memory its content takes: what bounds on bytes count.
    pub fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, |key| key.as_str().len());
        self.payload.len() + self.headers.bytes() + key + self.topic.as_str().len() + self.kind.as_str().len()
    }

    /// The event's own id among all stores, the same for every subscription: a bare event id would be handed
    /// out a second time after a point-in-time restore. Receivers recognise repeats by
    /// [`Delivery::dedup_id`](crate::Delivery::dedup_id), which begins with it.
    pub fn global_id(&self, store_id: &str) -> String {
        let mut text = String::with_capacity(store_id.len() + GLOBAL_ID_BYTES);
        self.write_global_id(&mut text, store_id);
        text
    }

    pub(crate) fn write_global_id(&self, text: &mut String, store_id: &str) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{store_id}-{}-{}", self.id.0, self.created_at.as_micros());
    }
}

/// Room for two numbers of twenty digits, so that an id is made at once: every event that leaves for a broker gets one.
pub(crate) const GLOBAL_ID_BYTES: usize = 42;

/// An event on its way into a transaction. Made by [`Event::new`].
#[derive(Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub(crate) topic: Topic,
    pub(crate) kind: Option<Kind>,
    pub(crate) key: Option<Key>,
    pub(crate) payload: Payload,
    pub(crate) headers: Headers,
    pub(crate) due: Option<Due>,
    pub(crate) unique: Option<Unique>,
}

/// As of an [`Event`].
impl fmt::Debug for NewEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewEvent")
            .field("topic", &self.topic)
            .field("type", &self.kind)
            .field("key", &self.key)
            .field("payload_bytes", &self.payload_bytes().len())
            .field("headers", &self.headers)
            .field("due", &self.due)
            .field("unique", &self.unique.is_some())
            .finish_non_exhaustive()
    }
}

/// What an event says, on its way into a store. A store keeps both to the letter; where it has a type for
/// JSON it uses it, so that people can read and query what they emitted.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    /// JSON that a serializer wrote.
    Json(Bytes),
    /// A text that is said to be JSON. It is checked before it is written.
    JsonText(Bytes),
    /// Bytes that may be anything; there may be none.
    Bytes(Bytes),
}

/// When a delayed event may be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// This long after the emit, on the database's clock.
    After(Duration),
    /// At this instant of the database's clock.
    At(Timestamp),
}

impl NewEvent {
    #[inline]
    fn new(topic: impl AsRef<str>) -> Self {
        Self {
            topic: Topic::new(topic),
            kind: None,
            key: None,
            payload: Payload::Bytes(Bytes::new()),
            headers: Headers::default(),
            due: None,
            unique: None,
        }
    }

    /// What happened, e.g. `order.created`. Without it the type is the topic.
    #[must_use]
    #[inline]
    pub fn kind(mut self, kind: impl AsRef<str>) -> Self {
        self.kind = Some(Kind::new(kind));
        self
    }

    /// The ordering key: events of one key are delivered in the order in which they were emitted.
    #[must_use]
    #[inline]
    pub fn key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(Key(smol_str::format_smolstr!("{key}")));
        self
    }

    /// The payload as bytes that are no JSON: protobuf, Avro, an image. JSON goes by [`json`](Self::json) or
    /// [`json_text`](Self::json_text); given here it is delivered to the letter as well, but PostgreSQL keeps
    /// it in the column `payload_bytes`, where people cannot read it.
    #[must_use]
    #[inline]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Payload::Bytes(payload.into());
        self
    }

    /// The payload as JSON that is a text already. It is kept to the letter: spaces, the order of keys, every
    /// digit. A text that is no JSON is refused when the event is emitted.
    ///
    /// ```
    /// use postrider_core::Event;
    /// let event = Event::new("order").json_text(r#"{"total": 12}"#);
    /// assert!(event.check().is_ok());
    /// assert!(Event::new("order").json_text("total: 12").check().is_err());
    /// ```
    #[must_use]
    #[inline]
    pub fn json_text(mut self, json: impl Into<String>) -> Self {
        self.payload = Payload::JsonText(Bytes::from(json.into()));
        self
    }

    /// The payload as JSON if it is that, else as bytes: for content that comes from elsewhere.
    #[must_use]
    pub fn json_or_bytes(mut self, payload: impl Into<Bytes>) -> Self {
        let payload = payload.into();
        self.payload = if is_json(&payload) { Payload::Json(payload) } else { Payload::Bytes(payload) };
        self
    }

    /// The payload as JSON.
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self> {
        let json = serde_json::to_vec(value).map_err(|error| {
            Error::invalid("the payload cannot be written as JSON: map keys must be strings")
                .with_source(error)
        })?;
        self.payload = Payload::Json(json.into());
        Ok(self)
    }

    /// A header that travels with the event; a second one of the same name replaces the first.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<str>, value: impl Into<String>) -> Self {
        self.headers.set(name, value);
        self
    }

    /// Delays the delivery. A delayed event leaves its key's order.
    #[must_use]
    pub fn due_after(mut self, delay: Duration) -> Self {
        self.due = Some(Due::After(delay));
        self
    }

    /// Delays the delivery until an instant of the database's clock.
    #[must_use]
    pub fn due_at(mut self, at: Timestamp) -> Self {
        self.due = Some(Due::At(at));
        self
    }

    /// Makes a repeated emit harmless: the second one returns the first one's id and writes nothing.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.unique(Unique::new(key))
    }

    /// The same with a scope, with a period, or so that the newer event takes the place of the older: see [`Unique`].
    #[must_use]
    pub fn unique(mut self, unique: Unique) -> Self {
        if unique.replaces() {
            self.headers.set(REPLACES_HEADER, "true");
        }
        self.unique = Some(unique);
        self
    }

    /// Checks every limit. Called by each emit before anything is written.
    pub fn check(&self) -> Result<()> {
        check_name("topic", self.topic.as_str())?;
        if let Some(kind) = &self.kind {
            check_name("type", kind.as_str())?;
        }
        if let Some(key) = &self.key {
            check_text("key", key.as_str(), limits::KEY_BYTES_MAX)?;
        }
        if let Some(unique) = &self.unique {
            check_text("idempotency key", unique.key(), limits::IDEMPOTENCY_KEY_BYTES_MAX)?;
            unique.check_period()?;
        }
        check_headers(&self.headers)?;
        check_due(self.due)?;
        if self.payload_bytes().len() > limits::PAYLOAD_BYTES_MAX {
            return Err(Error::invalid(format!(
                "payload is {} bytes, the limit is {}: store the content elsewhere and emit a reference to it",
                self.payload_bytes().len(),
                limits::PAYLOAD_BYTES_MAX
            )));
        }
        match &self.payload {
            Payload::JsonText(text) => check_json(text),
            Payload::Json(_) | Payload::Bytes(_) => Ok(()),
        }
    }

    /// The topic it is emitted on.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Its type; the topic when none was given.
    pub fn kind_or_topic(&self) -> &str {
        self.kind.as_ref().map_or(self.topic.as_str(), Kind::as_str)
    }

    /// Its ordering key.
    pub fn ordering_key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Its payload, whatever it is.
    pub fn payload_bytes(&self) -> &Bytes {
        match &self.payload {
            Payload::Json(bytes) | Payload::JsonText(bytes) | Payload::Bytes(bytes) => bytes,
        }
    }

    /// Whether its payload is JSON, and therefore UTF-8 as well.
    pub fn is_json(&self) -> bool {
        !matches!(self.payload, Payload::Bytes(_))
    }

    /// Its headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// How it is delayed, if it is.
    pub fn due(&self) -> Option<Due> {
        self.due
    }

    /// When it may be delivered, given the database's time of the emit.
    pub fn due_from(&self, now: Timestamp) -> Option<Timestamp> {
        self.due.map(|due| match due {
            Due::After(delay) => now.after(delay),
            Due::At(at) => at,
        })
    }

    /// What makes a repeat of this emit harmless: the idempotency key as it is stored.
    pub fn idempotency(&self) -> Option<Cow<'_, str>> {
        self.unique.as_ref().map(|unique| unique.stored_key(self))
    }

    /// For how long it takes its idempotency key, if not for as long as it is kept.
    pub fn unique_for(&self) -> Option<Duration> {
        self.unique.as_ref().and_then(Unique::period)
    }

    /// Whether it takes its idempotency key over from an older event.
    pub fn replaces(&self) -> bool {
        self.unique.as_ref().is_some_and(Unique::replaces)
    }
}

/// Names are what routes, brokers and people refer to: letters, digits and `. _ - : /`, so that they
/// never need quoting and never look like a pattern.
fn check_name(what: &str, name: &str) -> Result<()> {
    if name.bytes().all(|byte| IN_NAMES[usize::from(byte)]) {
        return check_length(what, name, limits::NAME_BYTES_MAX);
    }
    check_text(what, name, limits::NAME_BYTES_MAX)?;
    let stranger =
        name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-:/".contains(*c))).unwrap_or_default();
    Err(Error::invalid(format!(
        "{what} `{}` contains {stranger:?}: use letters, digits and . _ - : /",
        name.escape_default()
    )))
}

/// Which bytes a name may hold. A table, since every emit looks at every byte.
const IN_NAMES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'/');
        byte += 1;
    }
    table
};

/// Whether these bytes are JSON: then they may be given to [`NewEvent::json_text`] as they are. It looks at
/// the grammar alone, so that numbers of any length and escapes of any kind pass, however deep they are
/// nested.
pub fn is_json(bytes: &[u8]) -> bool {
    check_json(bytes).is_ok()
}

fn check_json(bytes: &[u8]) -> Result<()> {
    let read = std::str::from_utf8(bytes)
        .map_err(|error| Error::invalid("payload is no JSON: it is not UTF-8").with_source(error))
        .map(serde_json::from_str::<serde::de::IgnoredAny>)?;
    // serde_json's messages name positions, never the content.
    read.map(drop).map_err(|error| {
        Error::invalid(format!("payload is no JSON ({error}): give it as bytes, or write a text as JSON"))
            .with_source(error)
    })
}

fn check_length(what: &str, text: &str, bytes_max: usize) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{what} is empty: leave it out or give it a value")));
    }
    if text.len() > bytes_max {
        return Err(Error::invalid(format!("{what} is {} bytes, the limit is {bytes_max}", text.len())));
    }
    Ok(())
}

fn check_text(what: &str, text: &str, bytes_max: usize) -> Result<()> {
    check_length(what, text, bytes_max)?;
    if text.contains('\0') {
        return Err(Error::invalid(format!(
            "{what} contains a NUL character, which databases cut or refuse"
        )));
    }
    Ok(())
}

fn check_headers(headers: &Headers) -> Result<()> {
    if headers.is_empty() {
        return Ok(());
    }
    let count = headers.iter().count();
    if count > limits::HEADERS_MAX {
        return Err(Error::invalid(format!("{count} headers, the limit is {}", limits::HEADERS_MAX)));
    }
    let mut bytes = 0;
    for (name, value) in headers.iter() {
        check_name("header name", name)?;
        // A line break in a header would let a value start a header of its own at an HTTP sink.
        if value.contains(['\0', '\r', '\n']) {
            return Err(Error::invalid(format!("header `{name}` contains a line break or NUL character")));
        }
        bytes += name.len() + value.len();
    }
    if bytes > limits::HEADERS_BYTES_MAX {
        return Err(Error::invalid(format!(
            "headers are {bytes} bytes, the limit is {}",
            limits::HEADERS_BYTES_MAX
        )));
    }
    Ok(())
}

fn check_due(due: Option<Due>) -> Result<()> {
    match due {
        Some(Due::After(delay)) if delay > limits::DUE_AFTER_MAX => Err(Error::invalid(format!(
            "a delay of {} s is more than ten years: check its unit",
            delay.as_secs()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_at_its_limits_is_accepted_and_one_byte_more_is_refused() {
        let at_limit = |n: usize| {
            Event::new("t".repeat(limits::NAME_BYTES_MAX))
                .key("k".repeat(limits::KEY_BYTES_MAX))
                .payload(vec![0; limits::PAYLOAD_BYTES_MAX + n])
        };
        at_limit(0).check().unwrap();
        assert!(at_limit(1).check().unwrap_err().to_string().contains("the limit is 1048576"));
        assert!(Event::new("t".repeat(limits::NAME_BYTES_MAX + 1)).check().is_err());
        assert!(Event::new("t").key("k".repeat(limits::KEY_BYTES_MAX + 1)).check().is_err());
        assert!(Event::new("t").header("h", "v".repeat(limits::HEADERS_BYTES_MAX)).check().is_err());
    }

    #[test]
    fn a_text_that_is_no_json_is_refused_and_one_that_is_stays_to_the_letter() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let digits = "1234567890".repeat(6);
        for json in [
            "{ \"b\":1, \"a\" :1,\"a\":2}",
            r#""\u0000\ud800""#,
            "null",
            " 12 ",
            digits.as_str(),
            "1e999999",
            deep.as_str(),
        ] {
            let event = Event::new("t").json_text(json);
            event.check().unwrap();
            assert!(event.is_json() && is_json(json.as_bytes()));
            assert_eq!(event.payload_bytes().as_ref(), json.as_bytes());
        }
        for no_json in ["", "{", "{'a': 1}", "01", "\"a\nb\"", "nul", "1 2", "\0"] {
            let error = Event::new("t").json_text(no_json).check().unwrap_err();
            assert!(error.to_string().starts_with("payload is no JSON"), "{error}");
            Event::new("t").payload(no_json).check().unwrap();
        }
        assert!(!is_json(b"\"\xff\""), "JSON is UTF-8");
        assert!(!Event::new("t").payload("{}").is_json() && Event::new("t").json(&1).unwrap().is_json());
    }

    #[test]
    fn names_that_look_like_patterns_or_break_lines_are_refused() {
        for bad in ["", "a*", "a b", "a\nb", "ä", "a>b", "a\0"] {
            assert_eq!(Event::new(bad).check().unwrap_err().kind(), crate::ErrorKind::Invalid, "{bad:?}");
        }
        assert!(Event::new("a").header("x", "1\r\nInjected: 2").check().is_err());
        assert!(Event::new("a").key("").check().is_err());
        Event::new("a.b_c-d:e/f").key("any text, even ä").check().unwrap();
    }

    #[test]
    fn absurd_delays_are_refused() {
        assert!(Event::new("a").due_after(Duration::MAX).check().is_err());
    }

    #[test]
    fn headers_survive_their_stored_form_and_bad_ones_lose_nothing() {
        let mut headers = Headers::default();
        headers.set("b", "2");
        headers.set("a", "1 \"quoted\" ü");
        headers.set("b", "3");
        let stored = headers.to_json().unwrap();
        assert_eq!(Headers::from_json(&stored), headers, "in their order");
        assert_eq!(headers.get("b"), Some("3"));
        assert_eq!(Headers::from_json("{\"n\": 1}").get("n"), Some("1"));
        assert_eq!(Headers::from_json("no json").get("malformed"), Some("no json"));
        assert_eq!(Headers::from_json(" null "), Headers::default(), "as some clients write none");
        let left: Vec<(String, String)> = Headers::from_json(r#"{"x": null, "y": "null", "z": [null]}"#)
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(left, [("y".into(), "null".into()), ("z".into(), "[null]".into())]);
        assert_eq!(Headers::default().to_json(), None);
    }

    #[test]
    fn headers_above_their_limits_are_not_read_further() {
        let many = |n: usize| {
            let pairs: Vec<_> = (0..n).map(|n| format!("\"h{n}\":\"v\"")).collect();
            format!("{{{}}}", pairs.join(","))
        };
        assert_eq!(Headers::read(&many(limits::HEADERS_MAX)).unwrap().iter().count(), limits::HEADERS_MAX);
        assert_eq!(Headers::read(&many(400_000)).unwrap_err(), "there are more than 64 headers");
        let large = format!("{{\"h\": \"{}\"}}", "v".repeat(limits::HEADERS_BYTES_MAX));
        assert_eq!(Headers::read(&large).unwrap_err(), "the headers have 16,385 bytes, the limit is 16,384");
        let malformed = "x".repeat(limits::HEADERS_BYTES_MAX);
        assert!(Headers::read(&malformed).unwrap_err().starts_with("the headers have"));
        assert_eq!(Headers::read("{} trailing").unwrap().get("malformed"), Some("{} trailing"));
    }

    #[test]
    fn what_is_printed_for_debugging_holds_no_content() {
        let new = Event::new("order")
            .kind("order.created")
            .key("secret-key")
            .header("name", "secret-value")
            .payload("secret-payload")
            .idempotency_key("secret-idempotency");
        let stored = StoredEvent {
            id: EventId(7),
            topic: "order",
            kind: "order.created",
            key: Some("secret-key"),
            headers: Some("{\"name\": \"secret-value\"}"),
            payload: Bytes::from_static(b"secret-payload"),
            created_at: Timestamp::from_micros(1),
            due_at: None,
            lengths: None,
        };
        let event = std::sync::Arc::new(stored.into_event());
        let origin =
            crate::delivery::Origin { subscription: "mail".to_owned(), store_id: "store".to_owned() };
        let delivery = crate::Delivery::new(std::sync::Arc::clone(&event), 1, origin.into());
        let lane = crate::settle::Lane { key: Key::new("secret-key"), late: false };
        let schedule = crate::NewSchedule::new("nightly", "@daily", new.clone());
        for shown in [
            format!("{new:?}"),
            format!("{event:#?}"),
            format!("{delivery:?}"),
            format!("{lane:?}"),
            format!("{schedule:?}"),
        ] {
            assert!(!shown.contains("secret") && !shown.contains("115, 101, 99"), "{shown}");
        }
        let shown = format!("{event:?}");
        for part in ["id: 7", "\"order.created\"", "payload_bytes: 14", "Key(10 bytes)"] {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn the_type_is_the_topic_unless_given() {
        assert_eq!(Event::new("order").kind_or_topic(), "order");
        assert_eq!(Event::new("order").kind("order.created").kind_or_topic(), "order.created");
    }
}
