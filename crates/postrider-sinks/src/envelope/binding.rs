//! What a protocol can carry beside a body, and how the rest gets through.
//!
//! Header names and values of an event are any text, since rows may come by plain SQL. Kafka, AMQP and Redis
//! carry any UTF-8. HTTP and NATS carry printable ASCII. A value that is such text travels as it was emitted,
//! `%41` and all, so that `traceparent`, `baggage` and their like are what everybody expects. Any other value
//! is percent-encoded as CloudEvents' bindings do, and the header [`names::ENCODED`] lists the names of
//! those: [`decode`] gives them back. A name that does not fit is always encoded, a `%` in it too.
//!
//! An event's header must never change what the protocol does: `content-length` would cut a request in two,
//! `Nats-Rollup` would delete a stream, `CC` would route elsewhere. A name that means something to the
//! protocol or to the envelope is carried with the prefix [`MOVED`].

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
    /// The same with CloudEvents attributes as `ce-…`, where receivers of RabbitMQ expect these.
    AmqpCe,
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
    /// [`Event::global_id`](postrider_core::Event::global_id): the event itself, the same for every subscription.
    pub const EVENT_ID: &str = "postrider-event-id";
    /// Which attempt this is, counted from 1.
    pub const ATTEMPT: &str = "postrider-attempt";
    /// The epoch of the shard, in mode `queue` the token of the claim, under which it was sent: of one event,
    /// or in mode `log` of one key, a lower one than seen before comes from a former owner.
    pub const EPOCH: &str = "postrider-epoch";
    /// The event's topic, where no other part of the message tells it.
    pub const TOPIC: &str = "postrider-topic";
    /// The event's type, where no other part of the message tells it.
    pub const TYPE: &str = "postrider-type";
    /// The event's key, where no other part of the message tells it.
    pub const KEY: &str = "postrider-key";
    /// Which headers have percent-encoded values, with commas between; there only if some have, and over HTTP and NATS.
    pub const ENCODED: &str = "postrider-encoded";
    /// All of them.
    pub const ALL: [&str; 8] = [DEDUP_ID, EVENT_ID, ATTEMPT, EPOCH, TOPIC, TYPE, KEY, ENCODED];
}

/// Bytes of a name in a table of AMQP 0-9-1, a short string.
pub(super) const AMQP_NAME_BYTES_MAX: usize = 255;

/// Names of HTTP that decide how a request is read, who sends it, or where it goes; here and below with `-`
/// for `_`, since receivers behind CGI cannot tell the two apart.
const HTTP_RESERVED: &[&str] = &[
    "accept",
    "accept-encoding",
    "api-key",
    "authorization",
    "client-ip",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "cookie",
    "date",
    "expect",
    "fastly-client-ip",
    "forwarded",
    "from",
    "host",
    "idempotency-key",
    "keep-alive",
    "max-forwards",
    "origin",
    "range",
    "referer",
    "remote-user",
    "signature",
    "signature-input",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "user-agent",
    "via",
    "x-api-key",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-csrf-token",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
    "x-rewrite-url",
];
const HTTP_RESERVED_PREFIXES: &[&str] = &[
    "access-control-",
    "cf-",
    "if-",
    "proxy-",
    "sec-",
    "svix-",
    "webhook-",
    "x-auth-",
    "x-authenticated-",
    "x-forwarded-",
    "x-hub-signature",
    "x-original-",
    "x-remote-",
];
/// Before the attributes of CloudEvents in one protocol or another. A header of this kind makes a CloudEvent
/// of any message, so that none passes under its own name.
const CLOUDEVENTS_PREFIXES: &[&str] = &["ce-", "cloudevents:", "cloudevents-"];

impl Binding {
    /// Before the name of a CloudEvents attribute.
    pub fn cloudevents_prefix(self) -> &'static str {
        match self {
            Self::Kafka | Self::Redis => "ce_",
            Self::Nats | Self::Http | Self::AmqpCe => "ce-",
            Self::Amqp => "cloudEvents:",
        }
    }

    /// Whether receivers of the protocol go by a content type even of raw bytes, so that it is worth a look at them.
    pub(super) fn wants_content_type(self) -> bool {
        matches!(self, Self::Http | Self::Amqp | Self::AmqpCe)
    }

    /// Whether only printable ASCII gets through.
    pub fn is_ascii(self) -> bool {
        matches!(self, Self::Http | Self::Nats)
    }

    /// Whether a value has to be encoded to get through.
    pub(super) fn must_encode(self, value: &str) -> bool {
        self.is_ascii() && !fits(value)
    }

    /// The name under which a header of the event travels.
    pub(super) fn own_name(self, name: &str) -> Cow<'_, str> {
        let name =
            if self.is_reserved(name) { Cow::Owned(format!("{MOVED}{name}")) } else { Cow::Borrowed(name) };
        if self.is_ascii() { encode_name(name) } else { name }
    }

    /// A value as the protocol can carry it.
    pub(super) fn value(self, value: Cow<'_, str>) -> Cow<'_, str> {
        if self.must_encode(&value) { Cow::Owned(encode(&value)) } else { value }
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
        let is = |reserved: &str| name.len() == reserved.len() && begins_folded(name, reserved);
        let begins = |prefix: &str| begins_folded(name, prefix);
        if is(CONTENT_TYPE)
            || begins(MOVED)
            || names::ALL.iter().any(|own| is(own))
            || CLOUDEVENTS_PREFIXES.iter().any(|prefix| begins(prefix))
        {
            return true;
        }
        match self {
            Self::Kafka => false,
            Self::Redis => is(BODY_FIELD),
            Self::Nats => begins("nats-"),
            Self::Http => {
                HTTP_RESERVED.iter().any(|own| is(own))
                    || HTTP_RESERVED_PREFIXES.iter().any(|own| begins(own))
            }
            Self::Amqp | Self::AmqpCe => begins("x-") || is("cc") || is("bcc"),
        }
    }
}

/// What follows the prefix of a CloudEvents attribute in the name of an event's header, whichever protocol's
/// prefix it is.
pub(super) fn after_cloudevents_prefix(name: &str) -> Option<&str> {
    let prefix = CLOUDEVENTS_PREFIXES.iter().find(|prefix| begins_folded(name, prefix))?;
    name.get(prefix.len()..)
}

/// Whether a name begins so, whatever its case, and with `_` for `-` as well.
fn begins_folded(name: &str, prefix: &str) -> bool {
    let fold = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.as_bytes()
        .get(..prefix.len())
        .is_some_and(|head| head.iter().map(fold).eq(prefix.as_bytes().iter().copied()))
}

/// Gives back all headers that HTTP or NATS carried as they were emitted: names, and the values that
/// [`names::ENCODED`] lists.
///
/// ```
/// use postrider_sinks::envelope::decode_all;
/// let carried = [("postrider-encoded", "city"), ("city", "Z%C3%BCrich"), ("baggage", "user=Zo%C3%AB")];
/// let emitted = decode_all(carried);
/// assert_eq!(emitted[1..], [("city".to_owned(), "Zürich".to_owned()), ("baggage".to_owned(), "user=Zo%C3%AB".to_owned())]);
/// ```
pub fn decode_all<'a>(carried: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    let carried: Vec<_> = carried.into_iter().collect();
    let is_list = |name: &str| name.eq_ignore_ascii_case(names::ENCODED);
    let encoded: Vec<_> = carried
        .iter()
        .filter(|(name, _)| is_list(name))
        .flat_map(|(_, list)| list.split(','))
        .map(str::trim)
        .collect();
    let is_encoded = |name: &str| encoded.iter().any(|one| one.eq_ignore_ascii_case(name));
    let value = |name: &str, text| if is_encoded(name) { decode(text) } else { Cow::Borrowed(text) };
    let pairs =
        carried.iter().map(|(name, text)| (decode(name).into_owned(), value(name, text).into_owned()));
    pairs.collect()
}

/// Gives back a name that HTTP or NATS carried, or a value that [`names::ENCODED`] lists.
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

/// Whether a value can be carried as it is.
fn fits(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !value.starts_with(' ') && !value.ends_with(' ')
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

/// As one piece of a URI: whatever the text is, it brings no part of its own.
pub(crate) fn uri_piece(text: &str) -> String {
    percent_encoded(text, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

/// As a URI-reference: what may stand nowhere in one is encoded, the rest is what it was.
pub(super) fn uri_reference(text: &str) -> Cow<'_, str> {
    let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=".contains(&byte);
    let bytes = text.as_bytes();
    let stays = |at: usize| may_stand(bytes[at]) || escape_at(bytes, at).is_some();
    if (0..bytes.len()).all(stays) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    for (at, byte) in bytes.iter().enumerate() {
        if stays(at) { encoded.push(char::from(*byte)) } else { push_escape(&mut encoded, *byte) }
    }
    Cow::Owned(encoded)
}

fn percent_encoded(text: &str, stays: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if stays(byte) {
            encoded.push(char::from(byte));
        } else {
            push_escape(&mut encoded, byte);
        }
    }
    encoded
}

fn push_escape(encoded: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    encoded.push('%');
    encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
    encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
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

    const ALL: [Binding; 6] =
        [Binding::Kafka, Binding::Nats, Binding::Http, Binding::Amqp, Binding::AmqpCe, Binding::Redis];

    #[test]
    fn attributes_are_encoded_as_cloudevents_says() {
        let euro = || Cow::Borrowed("Euro € 😀");
        assert_eq!(Binding::Http.attribute(euro()), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(Binding::Nats.attribute(Cow::Borrowed("a\"b%")), "a%22b%25");
        assert_eq!(Binding::Kafka.attribute(euro()), "Euro € 😀");
    }

    #[test]
    fn usual_values_travel_as_they_are() {
        for value in [
            "",
            "%",
            "a b",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "k=\"v\"; q=0.5",
            "100 %",
            "user=Zo%C3%AB,x=%41",
        ] {
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
            (Binding::Http, "Webhook_Id"),
            (Binding::Http, "x_http_method_override"),
            (Binding::Http, "X-Original-URL"),
            (Binding::Http, "x-real-ip"),
            (Binding::Http, "origin"),
            (Binding::Http, "postrider_dedup_id"),
            (Binding::Nats, "nats_rollup"),
            (Binding::Amqp, "ce-id"),
            (Binding::AmqpCe, "cloudEvents:id"),
            (Binding::Http, "ce_id"),
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

    #[test]
    fn references_are_made_valid_and_stay_what_they_were() {
        for same in ["", "/shop/order", "https://h/a%20b?x=1#y", "urn:x:1", "//[::1]/"] {
            assert!(matches!(uri_reference(same), Cow::Borrowed(text) if text == same), "{same}");
        }
        assert_eq!(uri_reference("/Zürich {x}/100%"), "/Z%C3%BCrich%20%7Bx%7D/100%25");
        assert_eq!(uri_piece("Zürich/a?b"), "Z%C3%BCrich%2Fa%3Fb");
    }

    proptest! {
        #[test]
        fn any_name_and_value_fits_and_comes_back(text in "(\\PC|[%0-9A-F\r\n\t \"]){0,20}") {
            for binding in ALL {
                let value = binding.value(Cow::Borrowed(&text));
                let attribute = binding.attribute(Cow::Borrowed(&text));
                let name = binding.own_name(&text);
                if binding.is_ascii() {
                    assert_eq!(if binding.must_encode(&text) { decode(&value) } else { value.clone() }, text);
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
