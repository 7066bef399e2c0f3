//! Writing an event in the caller's own transaction.

use std::sync::OnceLock;

use crate::event::NewEvent;
use crate::limits;

/// A transaction of the caller's that an event can be written through.
///
/// Implemented by the store crates on references to each client library's transaction. An
/// implementation uses what it is given and nothing else: it never opens a connection, never begins or
/// ends a transaction, and checks the event ([`NewEvent::check`]) before it writes. The event exists if
/// and only if the caller's transaction commits.
///
/// `Output` is what the client library makes natural: a `Result<EventId>` for a synchronous one such as
/// rusqlite, a future of it for an asynchronous one, usually boxed since a trait has to name it. Such a
/// future writes nothing before it is polled; one that is dropped half-way leaves the caller's transaction
/// with the event or without it, so that the caller should roll back. The trait is open: a client library
/// that is not covered takes about ten lines.
///
/// `Driver` is any type of the implementing crate. Callers never name it: it is there because Rust lets a
/// crate implement this trait for a client library's type only if a type of its own takes part.
pub trait Emit<Driver = ()> {
    /// `Result<EventId>`, or a future of it.
    type Output;

    /// Writes `event` through this transaction.
    fn emit(self, event: NewEvent) -> Self::Output;
}

/// Emits `event` in the caller's transaction `tx`.
///
/// Emit after locking the aggregate's row, or with its version check: that is what makes the order of a
/// key's events well defined. A repeat with the same idempotency key returns the first event's id.
///
/// If there is a [trace source](set_trace_source), the event carries the caller's trace.
#[inline]
pub fn emit<Driver, T: Emit<Driver>>(tx: T, mut event: NewEvent) -> T::Output {
    trace(&mut event);
    tx.emit(event)
}

/// Says what the caller's trace is: a W3C `traceparent`, or nothing outside of one.
pub type TraceSource = fn() -> Option<String>;

static TRACE_SOURCE: OnceLock<TraceSource> = OnceLock::new();

/// Lets every event of this process carry the trace in which it is emitted, as the header `traceparent`.
///
/// Called once, where the process sets its telemetry up; returns whether it was the first call, since a
/// second one changes nothing. A function and no dependency: each version of OpenTelemetry has types of its
/// own. With tracing-opentelemetry it is
///
/// ```text
/// set_trace_source(|| {
///     let context = tracing::Span::current().context();
///     let span = context.span().span_context().clone();
///     let flags = span.trace_flags().to_u8();
///     span.is_valid().then(|| format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()))
/// });
/// ```
///
/// A header `traceparent` that the event has already stays as it is. What is no `traceparent`, or finds no
/// room within the limits of headers, is left out: telemetry never fails an emit.
///
/// ```
/// use postrider_core::emit::set_trace_source;
/// assert!(set_trace_source(|| Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned())));
/// assert!(!set_trace_source(|| None), "the first one stays");
/// ```
pub fn set_trace_source(source: TraceSource) -> bool {
    TRACE_SOURCE.set(source).is_ok()
}

/// Adds the caller's trace to an event. [`emit`] does it; whatever else emits has to call it, on the
/// caller's own task or thread.
#[inline]
pub fn trace(event: &mut NewEvent) {
    if let Some(source) = TRACE_SOURCE.get() {
        trace_from(*source, event);
    }
}

fn trace_from(source: TraceSource, event: &mut NewEvent) {
    const NAME: &str = "traceparent";
    let headers = &mut event.headers;
    if headers.get(NAME).is_some() {
        return;
    }
    let Some(value) = source().filter(|value| is_traceparent(value)) else { return };
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let has_room = headers.iter().count() < limits::HEADERS_MAX
        && bytes + NAME.len() + value.len() <= limits::HEADERS_BYTES_MAX;
    if has_room {
        headers.set(NAME, value);
    }
}

/// Whether this is version 0 of the format, with a trace and a span that exist: the others are not defined.
fn is_traceparent(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut is_hex = |digits: usize| {
        let part = parts.next().unwrap_or_default();
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (part.len() == digits && part.bytes().all(is_digit)).then_some(part)
    };
    let is_some_id = |part: Option<&str>| part.is_some_and(|part| part.bytes().any(|byte| byte != b'0'));
    is_hex(2) == Some("00")
        && is_some_id(is_hex(32))
        && is_some_id(is_hex(16))
        && is_hex(2).is_some()
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// A transaction that keeps what is emitted.
    struct Kept<'a>(&'a mut Vec<NewEvent>);

    impl Emit for Kept<'_> {
        type Output = ();

        fn emit(self, event: NewEvent) {
            self.0.push(event);
        }
    }

    fn traced(source: TraceSource, mut event: NewEvent) -> Option<String> {
        trace_from(source, &mut event);
        event.check().unwrap();
        event.headers().get("traceparent").map(str::to_owned)
    }

    #[test]
    fn an_event_carries_the_trace_in_which_it_is_emitted() {
        set_trace_source(|| Some(TRACE.to_owned()));
        let mut kept = Vec::new();
        emit(Kept(&mut kept), Event::new("order"));
        assert_eq!(kept[0].headers().get("traceparent"), Some(TRACE));
    }

    #[test]
    fn a_trace_that_the_event_has_already_stays() {
        let event = Event::new("order").header("traceparent", "mine");
        assert_eq!(traced(|| Some(TRACE.to_owned()), event).as_deref(), Some("mine"));
    }

    #[test]
    fn telemetry_never_fails_an_emit() {
        assert_eq!(traced(|| None, Event::new("order")), None);
        assert_eq!(traced(|| Some("a\r\nb".to_owned()), Event::new("order")), None);
        let full =
            (0..limits::HEADERS_MAX).fold(Event::new("order"), |event, n| event.header(n.to_string(), ""));
        assert_eq!(traced(|| Some(TRACE.to_owned()), full), None);
        let large = Event::new("order").header("h", "v".repeat(limits::HEADERS_BYTES_MAX - 1));
        assert_eq!(traced(|| Some(TRACE.to_owned()), large), None);
    }

    #[test]
    fn what_is_no_traceparent_is_told_apart() {
        assert!(is_traceparent(TRACE));
        let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for bad in
            ["", "00", zeros, &TRACE.to_uppercase(), &TRACE.replace("00-", "01-"), &format!("{TRACE}-")]
        {
            assert!(!is_traceparent(bad), "{bad}");
        }
    }
}
