//! What can happen to one event for one subscription.
//!
//! ```text
//!               lease                ack
//!   pending ─────────────► leased ─────────► done
//!      ▲  ▲   retry, reap     │                ▲
//!      │  └───────────────────┤                │ discard
//!      │        replay        ▼ dead           │
//!      └──────────────────── dead ─────────────┘
//! ```
//!
//! In mode `log` most deliveries never have a row: an event above the position is pending, an event
//! below it without a row is done.

pub mod ack;
pub(crate) mod progress;
pub mod retry;
pub(crate) mod ticket;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::ticket::Ticket;
use crate::event::{Event, GLOBAL_ID_BYTES};
use crate::limits;
use crate::position::Epoch;
use crate::time::format_duration;

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// Waits for its turn or its due time.
    Pending,
    /// Handed out; a member works on it.
    Leased,
    /// Delivered, or discarded by an audited action.
    Done,
    /// A dead letter: not attempted again unless replayed.
    Dead,
}

/// What moves a delivery from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A member takes it.
    Lease,
    /// The handler or sink confirmed it.
    Ack,
    /// The attempt failed and another will be made.
    Retry,
    /// The attempt failed and none will be made.
    Dead,
    /// Its member is gone or gave it back.
    Reap,
    /// An operator sends a dead letter round again.
    Replay,
    /// An operator gives a dead letter up.
    Discard,
}

impl DeliveryState {
    /// The state machine: the next state, or none if `cause` cannot happen in this one.
    pub fn after(self, cause: Cause) -> Option<Self> {
        use Cause::{Ack, Dead, Discard, Lease, Reap, Replay, Retry};
        match (self, cause) {
            (Self::Pending, Lease) => Some(Self::Leased),
            (Self::Leased, Ack) => Some(Self::Done),
            (Self::Leased, Retry | Reap) => Some(Self::Pending),
            (Self::Leased, Dead) => Some(Self::Dead),
            (Self::Dead, Replay) => Some(Self::Pending),
            (Self::Dead, Discard) => Some(Self::Done),
            _ => None,
        }
    }

    /// The word for it, the same in SQL, JSON and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    /// Reads the word back.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pending, Self::Leased, Self::Done, Self::Dead].into_iter().find(|state| state.as_str() == word)
    }
}

/// An event handed to a handler or sink. Dereferences to the [`Event`].
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The event itself.
    pub event: Arc<Event>,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
    /// What all deliveries of the subscription share.
    pub origin: Arc<Origin>,
    /// What the handler holds of its lease; none in mode `log`, where the member holds all that there is to hold.
    pub ticket: Option<Ticket>,
    /// Under which right it is handed out: the epoch of the event's shard, in mode `queue` the token of its
    /// claim; none where that is not known. A receiver that has seen a higher one for the same event knows
    /// that this comes from a former owner.
    pub epoch: Option<Epoch>,
}

/// Where a delivery comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The subscription's name.
    pub subscription: String,
    /// The store's identity, part of the deduplication id.
    pub store_id: String,
}

impl Delivery {
    /// A delivery without a ticket or an epoch.
    pub fn new(event: Arc<Event>, attempt: u32, origin: Arc<Origin>) -> Self {
        Self { event, attempt, origin, ticket: None, epoch: None }
    }

    /// Waits until the work is no longer wanted, which in mode `log` never happens. Cancel safe.
    ///
    /// ```
    /// # use postrider_core::{Delivery, Failure};
    /// # async fn render(_: &Delivery) {}
    /// async fn handle(delivery: Delivery) -> Result<(), Failure> {
    ///     // With an async runtime this would be a `select!` with the work itself.
    ///     if delivery.is_cancelled() {
    ///         return Ok(());
    ///     }
    ///     render(&delivery).await;
    ///     Ok(())
    /// }
    /// # let _ = handle;
    /// ```
    pub async fn cancelled(&self) {
        match &self.ticket {
            Some(ticket) => ticket.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the work is no longer wanted: see [`Ticket::is_cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::is_cancelled)
    }

    /// The id by which a receiver recognises a repeat: of this event, for this subscription.
    ///
    /// It is `{store_id}-{id}-{created_at in µs}-{subscription}`, with `~` for each dot of the name. Two
    /// subscriptions that deliver one event into one receiver deliver two things, and neither may be taken
    /// for a repeat of the other. The name counts and not when the subscription was made: whatever brings the
    /// event again under that name, an attempt, a replay, a seek, a subscription that was deleted and created
    /// again, has the same id.
    ///
    /// ```
    /// # use postrider_core::{Delivery, Event, EventId, Headers, Kind, Timestamp, Topic, delivery::Origin};
    /// # let event = Event {
    /// #     id: EventId(7), topic: Topic::new("order"), kind: Kind::new("order"), key: None, payload: Default::default(),
    /// #     headers: Headers::default(), created_at: Timestamp::from_micros(1_800_000_000_000_000), due_at: None, flaw: None,
    /// # };
    /// # let origin = Origin { subscription: "mail.eu".to_owned(), store_id: "5f2c".to_owned() };
    /// let delivery = Delivery::new(event.into(), 1, origin.into());
    /// assert_eq!(delivery.dedup_id(), "5f2c-7-1800000000000000-mail~eu");
    /// assert_eq!(delivery.global_id(&delivery.origin.store_id), "5f2c-7-1800000000000000");
    /// ```
    pub fn dedup_id(&self) -> String {
        self.dedup_id_parts().0
    }

    /// The deduplication id, and how many of its bytes are the event's own [`global_id`](Event::global_id).
    pub fn dedup_id_parts(&self) -> (String, usize) {
        let Origin { subscription, store_id } = &*self.origin;
        let mut text = String::with_capacity(store_id.len() + GLOBAL_ID_BYTES + 1 + subscription.len());
        self.event.write_global_id(&mut text, store_id);
        let global_bytes = text.len();
        text.push('-');
        // A dot parts the id from the rest in the signature of a webhook, so that an id must not have one.
        for byte in subscription.bytes() {
            match byte {
                b'.' => text.push('~'),
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => text.push(char::from(byte)),
                // No subscription that was made through this library has such a name.
                _ => {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "~{byte:02X}~");
                }
            }
        }
        (text, global_bytes)
    }
}

impl Deref for Delivery {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Confirmed: what the receiver had to make durable is durable.
    Ack,
    /// Failed; the retry policy decides what comes next.
    Retry(Failure),
    /// Failed for good: it becomes a dead letter at once.
    Dead(Failure),
    /// Not attempted at all, e.g. because an earlier event of its key failed in the same batch. Costs
    /// no attempt.
    Untried,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    class: FailureClass,
    message: String,
    detail: Option<String>,
    retry_after: Option<Duration>,
    label: Option<Cow<'static, str>>,
}

/// What a failure says about the chances of another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Another attempt may succeed: time-outs, resets, server errors, and anything unknown.
    Retryable,
    /// The event itself is refused; no attempt will ever succeed.
    Permanent,
    /// The receiver is down, whatever the event. Costs no attempt and opens the circuit breaker.
    Unavailable,
    /// Not a failure at all: the event is to be left alone for a while. Costs no attempt.
    Snoozed,
}

impl Failure {
    /// Another attempt may succeed.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Retryable, message)
    }

    /// No attempt will succeed.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Permanent, message)
    }

    /// The receiver is down.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Unavailable, message)
    }

    /// Leave the event alone for this long: what it needs is not there yet. It costs no attempt and leaves no trace.
    ///
    /// ```
    /// use std::time::Duration;
    /// use postrider_core::Failure;
    /// # fn is_ready() -> bool { false }
    /// # fn handle() -> Result<(), Failure> {
    /// if !is_ready() {
    ///     return Err(Failure::snooze(Duration::from_secs(60)));
    /// }
    /// # Ok(())
    /// # }
    /// # assert!(handle().is_err());
    /// ```
    pub fn snooze(delay: Duration) -> Self {
        Self::new(FailureClass::Snoozed, format!("snoozed for {}", format_duration(delay))).after(delay)
    }

    fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: bounded(message.into()), detail: None, retry_after: None, label: None }
    }

    /// By the conventions of HTTP: server errors and time-outs are worth another attempt, and so is what a
    /// corrected configuration would change (401, 403, 404); 503 says that the receiver as a whole is down;
    /// any other client error refuses this request for good.
    ///
    /// ```
    /// use postrider_core::{Failure, FailureClass};
    /// assert_eq!(Failure::from_http_status(502, "bad gateway").class(), FailureClass::Retryable);
    /// assert_eq!(Failure::from_http_status(422, "no such field").class(), FailureClass::Permanent);
    /// ```
    pub fn from_http_status(status: u16, message: impl Into<String>) -> Self {
        let class = match status {
            503 => FailureClass::Unavailable,
            401 | 403 | 404 | 408 | 425 | 429 | 500..=599 => FailureClass::Retryable,
            _ => FailureClass::Permanent,
        };
        Self::new(class, format!("HTTP status {status}: {}", message.into()))
            .labelled(format!("HTTP status {status}"))
    }

    /// From any error a handler returns. A [`Failure`] anywhere in its chain keeps its class; all else
    /// is worth another attempt.
    pub fn from_error(error: &(dyn StdError + 'static)) -> Self {
        let mut message = String::new();
        let mut found = None;
        let mut next = Some(error);
        while let Some(error) = next {
            if !message.is_empty() {
                message.push_str(": ");
            }
            message.push_str(&error.to_string());
            found = found.or_else(|| error.downcast_ref::<Self>());
            next = error.source();
        }
        Self {
            class: found.map_or(FailureClass::Retryable, Self::class),
            retry_after: found.and_then(Self::retry_after),
            detail: found.and_then(|found| found.detail.clone()),
            label: found.and_then(|failure| failure.label.clone()),
            message: bounded(message),
        }
    }

    /// Adds what the receiver itself had to say. It is kept with the attempt and is for people who may read
    /// events; it reaches no log, since a receiver may repeat what it was sent.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into()).filter(|detail| !detail.is_empty());
        self
    }

    /// Asks for this delay before the next attempt, as `Retry-After` does.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Gives it a few words for the log, such as `HTTP status 500` or `connection refused`. Unlike the
    /// message, which stays in the store, they are shown to every reader of the log: they must hold nothing of
    /// the event, and nothing that a receiver may have taken from it. At most [`limits::LABEL_BYTES_MAX`]
    /// bytes.
    ///
    /// ```
    /// use postrider_core::Failure;
    /// let failure = Failure::retry("card 4929… was refused: limit of Zoë").labelled("refused by the bank");
    /// assert_eq!(failure.label(), Some("refused by the bank"));
    /// ```
    #[must_use]
    pub fn labelled(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        let mut label = label.into();
        if label.len() > limits::LABEL_BYTES_MAX {
            let cut = label.floor_char_boundary(limits::LABEL_BYTES_MAX);
            label = Cow::Owned(label[..cut].to_owned());
        }
        self.label = Some(label);
        self
    }

    /// A few words for the log.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// What it says about another attempt.
    pub fn class(&self) -> FailureClass {
        self.class
    }

    /// The delay that the receiver asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// What went wrong, for a person and for logs; at most [`limits::ERROR_BYTES_MAX`] bytes.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The message with what the receiver had to say, as it is kept with the attempt; within the same bound.
    pub fn record(&self) -> String {
        match &self.detail {
            None => self.message.clone(),
            Some(detail) => bounded(format!("{}: {detail}", self.message)),
        }
    }
}

/// A text that every store takes: of bounded length, and without NUL characters, which databases cut or refuse.
fn bounded(mut message: String) -> String {
    if message.contains('\0') {
        message = message.replace('\0', "\u{fffd}");
    }
    if message.len() > limits::ERROR_BYTES_MAX {
        let cut = message.floor_char_boundary(limits::ERROR_BYTES_MAX - 4);
        message.truncate(cut);
        message.push('…');
    }
    message
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_machine_allows_exactly_the_drawn_arrows() {
        use Cause::{Ack, Dead, Discard, Lease, Reap, Replay, Retry};
        use DeliveryState as S;
        let drawn = [
            (S::Pending, Lease, S::Leased),
            (S::Leased, Ack, S::Done),
            (S::Leased, Retry, S::Pending),
            (S::Leased, Reap, S::Pending),
            (S::Leased, Dead, S::Dead),
            (S::Dead, Replay, S::Pending),
            (S::Dead, Discard, S::Done),
        ];
        for from in [S::Pending, S::Leased, S::Done, S::Dead] {
            for cause in [Lease, Ack, Retry, Dead, Reap, Replay, Discard] {
                let expected = drawn.iter().find(|(f, c, _)| (*f, *c) == (from, cause)).map(|(_, _, to)| *to);
                assert_eq!(from.after(cause), expected, "{from:?} {cause:?}");
            }
            assert_eq!(DeliveryState::from_word(from.as_str()), Some(from));
        }
    }

    #[test]
    fn http_conventions() {
        let class = |status| Failure::from_http_status(status, "").class();
        for status in [401, 403, 404, 408, 425, 429, 500, 502, 504, 599] {
            assert_eq!(class(status), FailureClass::Retryable, "{status}");
        }
        for status in [301, 400, 405, 410, 413, 422] {
            assert_eq!(class(status), FailureClass::Permanent, "{status}");
        }
        assert_eq!(class(503), FailureClass::Unavailable);
    }

    #[test]
    fn a_failure_keeps_its_class_through_wrapping_and_the_whole_chain_is_told() {
        let inner = crate::Error::invalid("outer")
            .with_source(Failure::permanent("inner").after(Duration::from_secs(3)));
        let failure = Failure::from_error(&inner);
        assert_eq!(failure.class(), FailureClass::Permanent);
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(failure.message(), "outer: inner");
        assert_eq!(Failure::from_error(&fmt::Error).class(), FailureClass::Retryable);
    }

    #[test]
    fn what_a_receiver_said_is_recorded_and_not_part_of_the_message() {
        let failure = Failure::permanent("HTTP status 422").with_detail("no such field");
        assert_eq!(
            (failure.message(), &*failure.record()),
            ("HTTP status 422", "HTTP status 422: no such field")
        );
        assert_eq!(Failure::from_error(&failure), failure);
        let plain = Failure::retry("down").with_detail("");
        assert_eq!(plain.record(), plain.message());
    }

    #[test]
    fn a_giant_message_is_cut_at_a_character() {
        let failure = Failure::retry("ü".repeat(limits::ERROR_BYTES_MAX));
        assert!(failure.message().len() <= limits::ERROR_BYTES_MAX);
        assert!(failure.message().ends_with('…'));
        assert_eq!(Failure::retry("a\0b").message(), "a\u{fffd}b", "databases refuse a NUL");
    }
}
