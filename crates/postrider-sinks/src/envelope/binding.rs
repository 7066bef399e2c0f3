//! What a protocol can carry beside a body, and how the rest gets through.
//!
//! Header names and values of an event are any text, since rows may come by plain SQL. Kafka, AMQP and Redis carry
//! any UTF-8. HTTP and NATS carry printable ASCII: there a name or value that does not fit is percent-encoded as
//! CloudEvents' bindings do, and [`decode`] of whatever arrives gives back what was emitted. A value that
//! fits and contains no `%41` stays as it is, so that `traceparent` and its like are what everybody expects.
//!
//! An event's header must never change what the protocol does: `content-length` would cut a request in two,
//! `Nats-Rollup` would delete a stream, `CC` would route elsewhere. A name that means something to the protocol or to the
//! envelope is carried with the prefix [`MOVED`].

use std::borrow::Cow;

/// Which protocol a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// Record headers; CloudEvents attributes as `ce_…`.
    Kafka,
    /// Headers of a publish; CloudEvents attributes as `ce-…`.
    Nats,
    /// Headers of a request; CloudEvents attributes as `ce-…`.
    Http,
    /// Headers in the basic properties; CloudEvents attributes as `cloudEvents:…`; the content type is a property.
    Amqp,
    /// Fields of a stream's entry beside the field [`BODY_FIELD`]; CloudEvents attributes as `ce_…`.
    Redis,
}

/// The field of a Redis stream's entry that holds the body.
pub const BODY_FIELD: &str = "payload";
/// The name of the content type where it is a header or field.
pub const CONTENT_TYPE: &str = "content-type";
/// Before the name of an event's header that would mean something else to the protocol or envelope.
pub const MOVED: &str = "postrider-header-";

/// Names that Postrider gives.
pub mod names {
    /// [`Delivery::dedup_id`](postrider_core::Delivery::dedup_id): by it a receiver recognises a repeated delivery.
    pub const DEDUP_ID: &str = "postrider-dedup-id";
    /// Which attempt this is, counted from 1.
    pub const ATTEMPT: &str = "postrider-attempt";
    /// The epoch of the shard, in mode `queue` the token of the claim, under which it was sent: of one event, or in mode `log` of one
    /// key, a lower one than seen before comes from a former owner.
    pub const EPOCH: &str = "postrider-epoch";
    /// The event's topic, where no other part of the message tells it.
    pub const TOPIC: &str = "postrider-topic";
    /// The event's type, where no other part of the message tells it.
    pub const TYPE: &str = "postrider-type";
    /// The event's key, where no other part of the message tells it.
    pub const KEY: &str = "postrider-key";
    /// All of them.
    pub const ALL: [&str; 6] = [DEDUP_ID, ATTEMPT, EPOCH, TOPIC, TYPE, KEY];
}

/// Bytes of a name in a table of AMQP 0-9-1, a short string.
pub(super) const AMQP_NAME_BYTES_MAX: usize = 255;

/// Names of HTTP that decide how a request is read, who sends it, or where it goes.
const HTTP_RESERVED: &[&str] = &[
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
const HTTP_RESERVED_PREFIXES: &[&str] = &["ce-", "proxy-", "webhook-", "sec-", "x-forwarded-"];

impl Binding {
    /// Before the name of a CloudEvents attribute.
    pub fn cloudevents_prefix(self) -> &'static str {
        match self {
            Self::Kafka | Self::Redis => "ce_",
            Self::Nats | Self::Http => "ce-",
            Self::Amqp => "cloudEvents:",
        }
    }

    /// Whether receivers of the protocol go by a content type even of raw bytes, so that it is worth a look at them.
    pub(super) fn wants_content_type(self) -> bool {
        matches!(self, Self::Http | Self::Amqp)
    }

    /// Whether only printable ASCII gets through.
    pub fn is_ascii(self) -> bool {
        matches!(self, Self::Http | Self::Nats)
    }

    /// The name under which a header of the event travels.
    pub(super) fn own_name(self, name: &str) -> Cow<'_, str> {
        let name =
            if self.is_reserved(name) { Cow::Owned(format!("{MOVED}{name}")) } else { Cow::Borrowed(name) };
        if self.is_ascii() { encode_name(name) } else { name }
    }

    /// A value as the protocol can carry it.
    pub(super) fn value(self, value: Cow<'_, str>) -> Cow<'_, str> {
        if self.is_ascii() && !fits(&value) { Cow::Owned(encode(&value)) } else { value }
    }

    /// The value of a CloudEvents attribute, of which the bindings say more exactly what is encoded.
    pub(super) fn attribute(self, value: Cow<'_, str>) -> Cow<'_, str> {
        if self.is_ascii() && value.bytes().any(|byte| !is_plain(byte)) {
            Cow::Owned(encode(&value))
        } else {
            value
        }
    }

    fn is_reserved(self, name: &str) -> bool {
        let is = |reserved: &str| name.eq_ignore_ascii_case(reserved);
        let begins = |prefix: &str| {
            name.as_bytes()
                .get(..prefix.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        if is(CONTENT_TYPE) || begins(MOVED) || names::ALL.iter().any(|own| is(own)) {
            return true;
        }
        match self {
            Self::Kafka => begins("ce_"),
            Self::Redis => begins("ce_") || is(BODY_FIELD),
            Self::Nats => begins("ce-") || begins("nats-"),
            Self::Http => {
                HTTP_RESERVED.iter().any(|own| is(own))
                    || HTTP_RESERVED_PREFIXES.iter().any(|own| begins(own))
            }
            Self::Amqp => {
                begins("cloudEvents:") || begins("cloudEvents_") || begins("x-") || is("cc") || is("bcc")
            }
        }
    }
}

/// Gives back a name or value that HTTP or NATS carried, and leaves alone what was not encoded.
///
/// ```
/// use postrider_sinks::envelope::decode;
/// assert_eq!(decode("Euro%20%E2%82%AC"), "Euro €");
/// assert_eq!(decode("100 %"), "100 %");
/// ```
pub fn decode(carried: &str) -> Cow<'_, str> {
    if carried == "%" {
        return Cow::Borrowed("");
    }
    if !has_escape(carried) {
        return Cow::Borrowed(carried);
    }
    let bytes = carried.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if let Some(byte) = escape_at(bytes, at) {
            plain.push(byte);
            at += 3;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    // What is no UTF-8 once decoded was not encoded by us.
    String::from_utf8(plain).map_or(Cow::Borrowed(carried), Cow::Owned)
}

/// Whether a value can be carried as it is, and is itself again after [`decode`].
fn fits(value: &str) -> bool {
    let edges = value.bytes().next().into_iter().chain(value.bytes().last());
    value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && edges.into_iter().all(|byte| byte != b' ')
        && value != "%"
        && !has_escape(value)
}

/// What CloudEvents leaves unencoded.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'%')
}

/// What may stand in a name, in HTTP's words a token; a `%` only as a part of an escape.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte)
}

fn encode(value: &str) -> String {
    percent_encoded(value, is_plain)
}

fn encode_name(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.is_empty() {
        // A lone `%` is no escape and stands for nothing else.
        Cow::Borrowed("%")
    } else if name.bytes().all(is_token) {
        name
    } else {
        Cow::Owned(percent_encoded(&name, is_token))
    }
}

fn percent_encoded(text: &str, stays: impl Fn(u8) -> bool) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if stays(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
            encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    encoded
}

fn has_escape(text: &str) -> bool {
    text.bytes().enumerate().any(|(at, byte)| byte == b'%' && escape_at(text.as_bytes(), at).is_some())
}

fn escape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let [b'%', high, low, ..] = bytes[at..] else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::*;

    const ALL: [Binding; 5] = [Binding::Kafka, Binding::Nats, Binding::Http, Binding::Amqp, Binding::Redis];

    #[test]
    fn attributes_are_encoded_as_cloudevents_says() {
        let euro = || Cow::Borrowed("Euro € 😀");
        assert_eq!(Binding::Http.attribute(euro()), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(Binding::Nats.attribute(Cow::Borrowed("a\"b%")), "a%22b%25");
        assert_eq!(Binding::Kafka.attribute(euro()), "Euro € 😀");
    }

    #[test]
    fn usual_values_travel_as_they_are() {
        for value in
            ["", "a b", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "k=\"v\"; q=0.5", "100 %"]
        {
            assert_eq!(Binding::Http.value(Cow::Borrowed(value)), value);
        }
        assert_eq!(Binding::Http.value(Cow::Borrowed("a\r\nHost: b")), "a%0D%0AHost:%20b");
    }

    #[test]
    fn names_that_mean_something_to_a_protocol_are_moved() {
        for (binding, name) in [
            (Binding::Http, "Content-Length"),
            (Binding::Http, "transfer-encoding"),
            (Binding::Http, "Host"),
            (Binding::Http, "webhook-id"),
            (Binding::Nats, "Nats-Rollup"),
            (Binding::Nats, "nats-msg-id"),
            (Binding::Amqp, "CC"),
            (Binding::Amqp, "BCC"),
            (Binding::Amqp, "x-delay"),
            (Binding::Redis, "payload"),
            (Binding::Kafka, "ce_id"),
            (Binding::Kafka, "postrider-dedup-id"),
            (Binding::Kafka, "content-type"),
            (Binding::Kafka, "postrider-header-x"),
        ] {
            assert_eq!(binding.own_name(name), format!("{MOVED}{name}"), "{binding:?}");
        }
        for binding in ALL {
            for name in ["traceparent", "tracestate", "tenant", "postrider-tick", "correlation-id"] {
                assert_eq!(binding.own_name(name), name, "{binding:?}");
            }
        }
        assert_eq!(Binding::Http.own_name("a/b:c ü"), "a%2Fb%3Ac%20%C3%BC");
    }

    proptest! {
        #[test]
        fn any_name_and_value_fits_and_comes_back(text in "(\\PC|[%0-9A-F\r\n\t \"]){0,20}") {
            for binding in ALL {
                let value = binding.value(Cow::Borrowed(&text));
                let attribute = binding.attribute(Cow::Borrowed(&text));
                let name = binding.own_name(&text);
                if binding.is_ascii() {
                    assert_eq!(decode(&value), text);
                    assert_eq!(decode(&attribute), text);
                    let decoded = decode(&name);
                    assert_eq!(decoded.strip_prefix(MOVED).unwrap_or(&decoded), text);
                    assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{value:?}");
                    assert!(!name.is_empty() && name.bytes().all(|byte| is_token(byte) || byte == b'%'));
                } else {
                    assert_eq!((value, attribute), (Cow::Borrowed(&*text), Cow::Borrowed(&*text)));
                }
            }
        }
    }
}
