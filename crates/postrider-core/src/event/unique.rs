//! Emitting something once: an idempotency key, where it counts, for how long, and which event gives way.
//!
//! ```text
//!   emit A ───────── period ─────────┐
//!   key   │ taken by A               │ free: the next emit takes it
//!         └─ emit B, ignore: A's id  │
//!         └─ emit B, replace: B is emitted, has the key and begins a period of its own; A is superseded
//! ```
//!
//! The event that holds a key gives it back in one of three ways: its period is over, the event is removed
//! from the store, or the transaction that emitted it is rolled back. An event is **superseded** only while
//! it holds the key: events of an earlier period have nothing to do with events of a later one.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::event::{Event, NewEvent};
use crate::limits;

/// The header of events that may be superseded. A store looks for newer ones only where it finds it, so that
/// others cost nothing.
pub const REPLACES_HEADER: &str = "postrider-replaces";

/// Makes an emit unique.
///
/// ```
/// use std::time::Duration;
/// use postrider_core::Event;
/// use postrider_core::unique::{Scope, Unique};
///
/// // At most one reminder in ten minutes: a repeat returns the id of the first.
/// let reminder = Unique::new("reminder-42").scope(Scope::Topic).within(Duration::from_secs(600));
/// let event = Event::new("reminder").key(42).unique(reminder);
/// assert_eq!(event.idempotency().as_deref(), Some("topic reminder reminder-42"));
///
/// // Only the last of many changes is worth an index: each emit takes the place of the one before it.
/// let event = Event::new("reindex").unique(Unique::new("reindex-7").replace()).due_after(Duration::from_secs(5));
/// assert!(event.replaces());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Unique {
    key: String,
    scope: Scope,
    within: Option<Duration>,
    replaces: bool,
}

/// Without the key itself, which may be made of what the event says.
impl fmt::Debug for Unique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unique")
            .field("key_bytes", &self.key.len())
            .field("scope", &self.scope)
            .field("within", &self.within)
            .field("replaces", &self.replaces)
            .finish()
    }
}

/// Where an idempotency key counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// In the whole store. The key is stored as it is.
    #[default]
    Store,
    /// Among the events of one topic. Stored as `topic TOPIC KEY`.
    Topic,
    /// Among the events of one topic and type. Stored as `type TOPIC TYPE KEY`.
    Kind,
}

impl Unique {
    /// Under this idempotency key, in the whole store, for as long as the event is kept.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), scope: Scope::Store, within: None, replaces: false }
    }

    /// Lets the key count in a part of the store only.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Takes the key for so long, on the database's clock and from the emit that takes it; at the longest for
    /// as long as the event is kept.
    #[must_use]
    pub fn within(mut self, period: Duration) -> Self {
        self.within = Some(period);
        self
    }

    /// Emits although the key is taken, and takes it over. The older event is not handed out any more if it
    /// waits in a queue and was emitted like this too; one that has begun goes on, and in mode `log` both are
    /// delivered.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replaces = true;
        self
    }

    pub(crate) fn replaces(&self) -> bool {
        self.replaces
    }

    pub(crate) fn period(&self) -> Option<Duration> {
        self.within
    }

    /// The key as it is stored for this event. Names hold no spaces, so that no two scopes share a key;
    /// a producer that emits by SQL writes it like this.
    pub(crate) fn stored_key<'a>(&'a self, event: &NewEvent) -> Cow<'a, str> {
        let topic = event.topic().as_str();
        match self.scope {
            Scope::Store => Cow::Borrowed(&self.key),
            Scope::Topic => Cow::Owned(format!("topic {topic} {}", self.key)),
            Scope::Kind => Cow::Owned(format!("type {topic} {} {}", event.kind_or_topic(), self.key)),
        }
    }

    /// The key that the user gave; names are checked by themselves, so that the stored one has a bound too.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn check_period(&self) -> Result<()> {
        match self.within {
            Some(period) if period.as_micros() == 0 => Err(Error::invalid(
                "the period of an idempotency key must be longer than zero: omit it to keep the key for as long as the event",
            )),
            Some(period) if period > limits::UNIQUE_FOR_MAX => Err(Error::invalid(format!(
                "an idempotency key taken for {} s, which is more than ten years: check its unit",
                period.as_secs()
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether an event may be superseded: then the store looks for a newer one before it hands it out.
pub fn is_replaceable(event: &Event) -> bool {
    event.headers.get(REPLACES_HEADER).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_part_of_the_stored_key() {
        let stored = |unique: Unique| {
            // The names may come later than the key.
            let event = Event::new("order").unique(unique).kind("order.paid");
            event.check().unwrap();
            event.idempotency().unwrap().into_owned()
        };
        assert_eq!(stored(Unique::new("a")), "a");
        assert_eq!(stored(Unique::new("a").scope(Scope::Topic)), "topic order a");
        assert_eq!(stored(Unique::new("a").scope(Scope::Kind)), "type order order.paid a");
        assert_ne!(
            stored(Unique::new("order.paid a").scope(Scope::Topic)),
            stored(Unique::new("a").scope(Scope::Kind))
        );
    }

    #[test]
    fn a_period_has_a_length_and_a_bound() {
        let check = |period| Event::new("order").unique(Unique::new("a").within(period)).check();
        check(Duration::from_micros(1)).unwrap();
        check(limits::UNIQUE_FOR_MAX).unwrap();
        for bad in [Duration::ZERO, Duration::from_nanos(999), Duration::MAX] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_keep_to_their_limit_whatever_their_scope() {
        let long = "k".repeat(limits::IDEMPOTENCY_KEY_BYTES_MAX);
        for scope in [Scope::Store, Scope::Topic, Scope::Kind] {
            let with = |key: &str| Event::new("order").unique(Unique::new(key).scope(scope));
            with(&long).check().unwrap();
            for bad in ["", "a\0b", &format!("{long}k")] {
                assert!(with(bad).check().is_err(), "{scope:?}");
            }
        }
    }

    #[test]
    fn an_event_that_replaces_says_so_in_a_header() {
        let header = |event: NewEvent| event.headers().get(REPLACES_HEADER).map(str::to_owned);
        assert_eq!(header(Event::new("order").unique(Unique::new("a").replace())).as_deref(), Some("true"));
        assert_eq!(header(Event::new("order").unique(Unique::new("a"))), None);
    }
}
