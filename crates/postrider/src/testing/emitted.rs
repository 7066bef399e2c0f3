//! What was emitted, and what was not.

use std::fmt::{self, Write};

use postrider_core::store::EventQuery;
use postrider_core::{Event, Key, Result, Store, limits};

/// Events that a failure lists.
const LISTED_MAX: usize = 20;
/// Bytes of a payload that it shows.
const SHOWN_BYTES_MAX: usize = 80;

/// The events of a store, in the order of their ids, with assertions that say what was there instead.
///
/// ```
/// use postrider::testing::{Emitted, Scratch, wanted};
/// use postrider::{Event, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> postrider::Result<()> {
/// let scratch = Scratch::new().await?;
/// let created = Event::new("order").kind("order.created").key(42).payload(r#"{"total": 12}"#);
/// scratch.store().event_emit(vec![created]).await?;
///
/// let emitted = Emitted::of(&scratch.store()).await?;
/// let event = emitted.one(&wanted("order").kind("order.created").key(42));
/// assert_eq!(&event.payload[..], br#"{"total": 12}"#);
/// emitted.none(&wanted("order").kind("order.cancelled"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Emitted {
    events: Vec<Event>,
}

/// Which events are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    topic: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    headers: Vec<(String, String)>,
}

/// Events of a topic.
pub fn wanted(topic: impl Into<String>) -> Wanted {
    Wanted { topic: Some(topic.into()), ..Wanted::default() }
}

impl Wanted {
    /// Events of any topic.
    pub fn any() -> Self {
        Self::default()
    }

    /// Only those of a type.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Only those of a key.
    #[must_use]
    pub fn key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// Only those with a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    fn matches(&self, event: &Event) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        is(&self.topic, Some(event.topic.as_str()))
            && is(&self.kind, Some(event.kind.as_str()))
            && is(&self.key, event.key.as_ref().map(Key::as_str))
            && self.headers.iter().all(|(name, value)| event.headers.get(name) == Some(value))
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("topic", &self.topic), ("type", &self.kind), ("key", &self.key)];
        let mut parts: Vec<String> = Vec::new();
        for (name, value) in named {
            parts.extend(value.as_ref().map(|value| format!("{name} `{value}`")));
        }
        parts.extend(self.headers.iter().map(|(name, value)| format!("header `{name}: {value}`")));
        f.write_str(if parts.is_empty() { "anything at all" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

impl Emitted {
    /// Everything that is in a store.
    pub async fn of(store: &impl Store) -> Result<Self> {
        let (mut events, mut before, limit) = (Vec::new(), None, limits::PAGE_ROWS_MAX);
        loop {
            let page = store.event_list(EventQuery { before, limit, ..EventQuery::default() }).await?;
            let is_last = page.len() < limit;
            before = page.last().map(|event| event.id);
            for listed in page {
                // A listing shows the beginning of what is large.
                let is_whole = !listed.is_payload_cut() && !listed.headers_cut;
                let whole = if is_whole { None } else { store.event_get(listed.id).await? };
                events.push(whole.unwrap_or(listed.event));
            }
            if is_last {
                events.reverse();
                return Ok(Self { events });
            }
        }
    }

    /// What a connection sees, also within a transaction that has not been committed yet.
    ///
    /// ```
    /// use postrider::testing::{Emitted, Scratch, wanted};
    /// use postrider::{Event, emit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let scratch = Scratch::new().await?;
    /// let mut db = scratch.connect()?;
    /// let tx = db.transaction()?;
    /// emit(&tx, Event::new("order"))?;
    /// Emitted::seen_by(&tx)?.one(&wanted("order"));
    /// scratch.emitted().await?.nothing();
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "sqlite")]
    pub fn seen_by(connection: &postrider_sqlite::rusqlite::Connection) -> Result<Self> {
        postrider_sqlite::events_seen_by(connection).map(|events| Self { events })
    }

    /// All of them.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Those that are meant.
    pub fn matching<'a>(&'a self, wanted: &'a Wanted) -> impl Iterator<Item = &'a Event> {
        self.events.iter().filter(|event| wanted.matches(event))
    }

    /// Exactly one event is meant: this one.
    #[track_caller]
    pub fn one(&self, wanted: &Wanted) -> &Event {
        self.times(wanted, 1)[0]
    }

    /// Exactly so many events are meant: these.
    #[track_caller]
    pub fn times(&self, wanted: &Wanted, count: usize) -> Vec<&Event> {
        let found: Vec<&Event> = self.events.iter().filter(|event| wanted.matches(event)).collect();
        assert!(found.len() == count, "{}", self.complaint(wanted, count, found.len()));
        found
    }

    /// No event is meant.
    #[track_caller]
    pub fn none(&self, wanted: &Wanted) {
        self.times(wanted, 0);
    }

    /// Nothing at all was emitted.
    #[track_caller]
    pub fn nothing(&self) {
        self.none(&Wanted::any());
    }

    fn complaint(&self, wanted: &Wanted, expected: usize, found: usize) -> String {
        let mut text = format!("{expected} events were expected of {wanted}; found {found}. ");
        if self.events.is_empty() {
            text.push_str("Nothing was emitted.");
            return text;
        }
        text.push_str("Emitted were:");
        for event in self.events.iter().take(LISTED_MAX) {
            let key = event.key.as_ref().map_or("-", Key::as_str);
            let _ =
                write!(text, "\n  {} {} {} key {key}: {}", event.id, event.topic, event.kind, shown(event));
        }
        if let Some(more) = self.events.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
            let _ = write!(text, "\n  … and {more} more");
        }
        text
    }
}

/// The beginning of a payload.
fn shown(event: &Event) -> String {
    let payload = &event.payload;
    let beginning = String::from_utf8_lossy(&payload[..payload.len().min(SHOWN_BYTES_MAX)]);
    let beginning = beginning.escape_debug();
    if payload.len() > SHOWN_BYTES_MAX {
        format!("{beginning}… ({} bytes)", payload.len())
    } else {
        beginning.to_string()
    }
}
