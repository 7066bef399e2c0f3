//! Events as rows of a table. A row that came by plain SQL, past the checks of the schema, may hold anything.
//! The [`Event`] leaves out what breaks a limit, and its [`Flaw`] says so. An event with a flaw is never
//! handed out. It takes its turn like any other, and becomes a dead letter with the flaw as the
//! reason.
//!
//! A key that is too long counts as none: it enters no lane, no index and no shard's hash, and all events
//! that have it are dead letters, so there is no order among them to keep. With any other flaw the
//! key stays, and with it the event's place.

use std::fmt;

use bytes::Bytes;

use super::{Event, EventId, Headers, Key, Kind, Topic};
use crate::limits;
use crate::time::Timestamp;

/// Why a stored event cannot be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Whether the payload is all that is wrong, so that another one mends it.
    of_payload: bool,
    reason: String,
}

impl Flaw {
    /// Something else than the payload, in words.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { of_payload: false, reason: reason.into() }
    }

    /// What is wrong, for a person: `key has 2,880 bytes, the limit is 1,024`.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// What a store has read of an event's row.
#[derive(Clone)]
pub struct StoredEvent<'a> {
    /// Its number.
    pub id: EventId,
    /// Its topic; at least the first [`NAME_BYTES_MAX`](limits::NAME_BYTES_MAX) bytes of it.
    pub topic: &'a str,
    /// Its type, in the same way.
    pub kind: &'a str,
    /// Its key.
    pub key: Option<&'a str>,
    /// Its headers as JSON.
    pub headers: Option<&'a str>,
    /// Its payload.
    pub payload: Bytes,
    /// When it was emitted.
    pub created_at: Timestamp,
    /// When it may be delivered, if it was delayed.
    pub due_at: Option<Timestamp>,
    /// How long the columns are of which the store has left something out; none in the usual case that it has read all.
    pub lengths: Option<Lengths>,
}

/// The bytes of columns that a store has not read in full; 0 for those that it has, and for those that are null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Of the topic.
    pub topic: u64,
    /// Of the type.
    pub kind: u64,
    /// Of the key.
    pub key: u64,
    /// Of the headers as JSON.
    pub headers: u64,
    /// Of the payload.
    pub payload: u64,
    /// Not bytes, but the number of payloads, where a row can have two; 0 if the store does not count them.
    pub payloads: u64,
}

impl StoredEvent<'_> {
    /// The event, without what breaks a limit.
    pub fn into_event(self) -> Event {
        let cut = self.lengths.unwrap_or_default();
        let mut flaw = None;
        let mut fits = |what: &str, bytes: usize, cut: u64, bytes_max: usize| {
            let bytes = cut.max(bytes as u64);
            if bytes <= bytes_max as u64 {
                return true;
            }
            flaw.get_or_insert_with(|| {
                let (bytes, most) = (Grouped(bytes), Grouped(bytes_max as u64));
                Flaw::new(format!("{what} {bytes} bytes, the limit is {most}"))
            });
            false
        };
        let name_max = limits::NAME_BYTES_MAX;
        fits("topic has", self.topic.len(), cut.topic, name_max);
        fits("type has", self.kind.len(), cut.kind, name_max);
        let key = self.key.filter(|key| fits("key has", key.len(), cut.key, limits::KEY_BYTES_MAX));
        if self.key.is_none() {
            fits("key has", 0, cut.key, limits::KEY_BYTES_MAX);
        }
        let json = self.headers.unwrap_or_default();
        let json_max = limits::HEADERS_JSON_BYTES_MAX;
        let whole = fits("the headers have", json.len(), cut.headers, json_max);
        let mut headers = Headers::default();
        if whole && let Some(json) = self.headers {
            match Headers::read(json) {
                Ok(read) => headers = read,
                Err(reason) => flaw = flaw.or(Some(Flaw::new(reason))),
            }
        }
        for (what, at) in [("created_at", Some(self.created_at)), ("due_at", self.due_at)] {
            if at.is_some_and(|at| !at.is_datable()) {
                flaw.get_or_insert_with(|| Flaw::new(format!("{what} is not in the years 1 to 9999")));
            }
        }
        let mut event = Event {
            id: self.id,
            topic: Topic::new(beginning(self.topic)),
            kind: Kind::new(beginning(self.kind)),
            key: key.map(Key::new),
            payload: self.payload,
            headers,
            created_at: self.created_at,
            due_at: self.due_at,
            flaw: flaw.map(Box::new),
        };
        event.judge_payload(cut.payload);
        if cut.payloads > 1 {
            event.payload = Bytes::new();
            event.flaw.get_or_insert_with(|| {
                let reason = "an event has a payload or payload_bytes, not both".to_owned();
                Box::new(Flaw { of_payload: true, reason })
            });
        }
        if event.flaw.is_some() {
            // It is a dead letter at once, so there is nothing to wait for.
            event.due_at = None;
            event.created_at = event.created_at.clamp_to_datable();
        }
        event
    }
}

impl Event {
    /// An event of whose row nothing but these can be read.
    pub fn unreadable(id: EventId, topic: &str, kind: &str, reason: impl Into<String>) -> Self {
        let stored = StoredEvent {
            id,
            topic,
            kind,
            key: None,
            headers: None,
            payload: Bytes::new(),
            created_at: Timestamp::from_micros(0),
            due_at: None,
            lengths: None,
        };
        Self { flaw: Some(Box::new(Flaw::new(reason))), ..stored.into_event() }
    }

    /// The event with another payload in the place of its own, as edited for a dead letter.
    #[must_use]
    pub fn with_payload(mut self, payload: Bytes) -> Self {
        self.payload = payload;
        self.flaw = self.flaw.filter(|flaw| !flaw.of_payload);
        self.judge_payload(0);
        self
    }

    /// The last of all limits, so that a flaw of the payload is the only one.
    fn judge_payload(&mut self, cut: u64) {
        let bytes = cut.max(self.payload.len() as u64);
        if bytes <= limits::PAYLOAD_BYTES_MAX as u64 {
            return;
        }
        self.payload = Bytes::new();
        if self.flaw.is_none() {
            let (bytes, most) = (Grouped(bytes), Grouped(limits::PAYLOAD_BYTES_MAX as u64));
            let reason = format!("payload has {bytes} bytes, the limit is {most}");
            self.flaw = Some(Box::new(Flaw { of_payload: true, reason }));
        }
    }
}

/// What filters look at of a topic or type, and what is kept of one that is too long: its first bytes, less
/// what is left of a character that does not fit.
pub fn beginning(name: &str) -> &str {
    &name[..name.floor_char_boundary(limits::NAME_BYTES_MAX)]
}

/// A number as people read it: `1,048,576`.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.char_indices() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored<'a>() -> StoredEvent<'a> {
        StoredEvent {
            id: EventId(1),
            topic: "order",
            kind: "order.created",
            key: Some("42"),
            headers: None,
            payload: Bytes::from_static(b"{}"),
            created_at: Timestamp::from_micros(1),
            due_at: None,
            lengths: None,
        }
    }

    fn flaw(stored: StoredEvent<'_>) -> String {
        stored.into_event().flaw.map(|flaw| flaw.reason().to_owned()).unwrap_or_default()
    }

    #[test]
    fn an_event_at_its_limits_has_no_flaw_and_one_byte_more_is_named() {
        assert_eq!(flaw(stored()), "");
        let (name, key) = ("n".repeat(limits::NAME_BYTES_MAX), "k".repeat(limits::KEY_BYTES_MAX));
        let payload = Bytes::from(vec![0; limits::PAYLOAD_BYTES_MAX + 1]);
        let at_limits = StoredEvent {
            topic: &name,
            kind: &name,
            key: Some(&key),
            payload: payload.slice(1..),
            ..stored()
        };
        assert_eq!(flaw(at_limits.clone()), "");
        let (name, key) = (name.clone() + "n", key.clone() + "k");
        let over = StoredEvent { topic: &name, ..at_limits.clone() };
        assert_eq!(flaw(over), "topic has 256 bytes, the limit is 255");
        let over = StoredEvent { kind: &name, ..at_limits.clone() };
        assert_eq!(flaw(over), "type has 256 bytes, the limit is 255");
        let over = StoredEvent { key: Some(&key), ..at_limits.clone() };
        assert_eq!(flaw(over.clone()), "key has 1,025 bytes, the limit is 1,024");
        assert_eq!(over.into_event().key, None);
        let over = StoredEvent { payload, ..at_limits }.into_event();
        assert_eq!(
            over.flaw.as_ref().unwrap().reason(),
            "payload has 1,048,577 bytes, the limit is 1,048,576"
        );
        assert!(over.payload.is_empty() && over.key.is_some());
        assert_eq!(over.with_payload(Bytes::from_static(b"{}")).flaw, None);
    }

    #[test]
    fn what_was_cut_in_the_store_counts_in_full() {
        let lengths = |lengths| flaw(StoredEvent { key: None, lengths: Some(lengths), ..stored() });
        let cut = Lengths::default();
        assert_eq!(lengths(Lengths { key: 2_880, ..cut }), "key has 2,880 bytes, the limit is 1,024");
        assert_eq!(
            lengths(Lengths { headers: 10_485_760, ..cut }),
            "the headers have 10,485,760 bytes, the limit is 131,072"
        );
        let both = StoredEvent { lengths: Some(Lengths { key: 2_880, payload: 1 << 30, ..cut }), ..stored() };
        let mended = both.into_event().with_payload(Bytes::new());
        assert!(mended.flaw.is_some(), "another payload does not mend a key");
    }

    #[test]
    fn times_that_are_no_dates_are_a_flaw_and_delay_nothing() {
        let infinite =
            StoredEvent { due_at: Some(Timestamp::from_micros(i64::MAX)), ..stored() }.into_event();
        assert_eq!(infinite.flaw.unwrap().reason(), "due_at is not in the years 1 to 9999");
        assert_eq!(infinite.due_at, None);
        let ancient = StoredEvent { created_at: Timestamp::from_micros(i64::MIN), ..stored() };
        assert_eq!(flaw(ancient), "created_at is not in the years 1 to 9999");
    }

    #[test]
    fn a_name_is_cut_at_a_character() {
        let long = "ä".repeat(200);
        let event = StoredEvent { topic: &long, ..stored() }.into_event();
        assert_eq!(event.topic.as_str().len(), 254);
    }
}
