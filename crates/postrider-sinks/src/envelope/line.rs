//! An event as one JSON object on one line.
//!
//! ```json
//! {"id":7,"dedup_id":"5f2c-7-1794731400000000-audit","event_id":"5f2c-7-1794731400000000","topic":"order","type":"order.created","key":"42","payload":{"total":9.50},"headers":{},"created_at":"2026-11-15T08:30:00Z","subscription":"audit","attempt":1}
//! ```
//!
//! By `dedup_id` a receiver recognises a repeat; `event_id` is the same for every subscription.
//!
//! A payload that is JSON stands in the line as it was emitted: digits, key order, repeated keys and
//! escapes are the producer's, and nesting of any depth costs no stack, since it is checked but never
//! built. Any other payload is `payload_base64`, so that bytes survive exactly. A receiver tells the two
//! apart by which field is there.

use std::borrow::Cow;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Delivery, EventId, Headers, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::Ids;

/// Appends one delivery as a line, its newline included.
pub fn write_line(line: &mut Vec<u8>, delivery: &Delivery) {
    write_object(line, delivery);
    line.push(b'\n');
}

/// The same without the newline.
pub(super) fn write_object(line: &mut Vec<u8>, delivery: &Delivery) {
    let one_line = without_line_breaks(&delivery.payload);
    let json = serde_json::from_slice::<&RawValue>(&one_line).ok();
    let ids = Ids::of(delivery);
    let object = Object::of(delivery, &ids, json);
    serde_json::to_writer(line, &object).expect("strings and checked JSON always serialize");
}

/// An event for readers of JSON.
#[derive(Serialize)]
pub(crate) struct Object<'a> {
    id: EventId,
    dedup_id: &'a str,
    event_id: &'a str,
    topic: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<Base64<'a>>,
    headers: &'a Headers,
    created_at: Timestamp,
    subscription: &'a str,
    attempt: u32,
}

impl<'a> Object<'a> {
    /// Of a payload that is JSON, with that as it is to stand there; of any other with none.
    pub(crate) fn of(delivery: &'a Delivery, ids: &'a Ids, json: Option<&'a RawValue>) -> Self {
        Self {
            id: delivery.id,
            dedup_id: ids.dedup_id(),
            event_id: ids.event_id(),
            topic: delivery.topic.as_str(),
            kind: delivery.kind.as_str(),
            key: delivery.key.as_ref().map(postrider_core::Key::as_str),
            payload: json,
            payload_base64: json.is_none().then_some(Base64(&delivery.payload)),
            headers: &delivery.headers,
            created_at: delivery.created_at,
            subscription: &delivery.origin.subscription,
            attempt: delivery.attempt,
        }
    }
}

/// Bytes that stand in JSON as a string.
pub(crate) struct Base64<'a>(pub(crate) &'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

/// The payload without the white space between its tokens if it contains a line break, and else as it is.
///
/// JSON allows line breaks only between tokens, never inside a string, so on one line it means the same.
/// What is not JSON may come out as anything, even as JSON (`1\n2`): it was read as JSON only if it is
/// JSON as emitted, which is checked first in that rare case.
fn without_line_breaks(payload: &[u8]) -> Cow<'_, [u8]> {
    let breaks = payload.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    if !breaks || serde_json::from_slice::<&RawValue>(payload).is_err() {
        return Cow::Borrowed(payload);
    }
    let mut kept = Vec::with_capacity(payload.len());
    let mut in_string = false;
    let mut escaped = false;
    for &byte in payload {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            continue;
        } else {
            in_string = byte == b'"';
        }
        kept.push(byte);
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sample::delivery;

    fn line(delivery: &Delivery) -> String {
        let mut line = Vec::new();
        write_line(&mut line, delivery);
        String::from_utf8(line).unwrap()
    }

    /// The line of an event with this payload has this text in the payload's place.
    fn check(payload: &[u8], expected: &str) {
        let expected = format!(
            concat!(
                r#"{{"id":7,"dedup_id":"s-7-1800000000000000-audit","event_id":"s-7-1800000000000000","topic":"order","type":"order.created","key":"42",{},"headers":{{}},"#,
                r#""created_at":"2027-01-15T08:00:00Z","subscription":"audit","attempt":1}}"#,
                "\n"
            ),
            expected
        );
        assert_eq!(line(&delivery(7, payload)), expected, "{payload:?}");
    }

    #[test]
    fn a_json_payload_stands_in_the_line_as_it_was_emitted() {
        check(br#"{"b":1.50,"a":[true,null],"b":2}"#, r#""payload":{"b":1.50,"a":[true,null],"b":2}"#);
        check(br#"{ "spaced" : 1 }"#, r#""payload":{ "spaced" : 1 }"#);
        check(b"123456789012345678901234567890", r#""payload":123456789012345678901234567890"#);
        check(br#""\u00e4\ud83d""#, r#""payload":"\u00e4\ud83d""#);
        check(b"null", r#""payload":null"#);
    }

    #[test]
    fn a_payload_that_is_not_json_is_base64() {
        check(b"", r#""payload_base64":"""#);
        check(b"plain", r#""payload_base64":"cGxhaW4=""#);
        check(b"{\"a\":1} trailing", r#""payload_base64":"eyJhIjoxfSB0cmFpbGluZw==""#);
        check(&[0, 255, b'\n'], r#""payload_base64":"AP8K""#);
        check(b"1\n2", r#""payload_base64":"MQoy""#);
        check(b"\"line\nbreak\"", r#""payload_base64":"ImxpbmUKYnJlYWsi""#);
    }

    #[test]
    fn invalid_utf8_inside_json_is_base64() {
        check(b"{\"a\":\"\xff\"}", r#""payload_base64":"eyJhIjoi/yJ9""#);
    }

    #[test]
    fn line_breaks_between_tokens_go_and_strings_stay() {
        check(
            b"{\r\n  \"a b\" : \"x \\\" \\\\\",\n\t\"c\": [ 1,\n 2 ]\n}\n",
            r#""payload":{"a b":"x \" \\","c":[1,2]}"#,
        );
    }

    #[test]
    fn deep_json_costs_no_stack() {
        let depth = postrider_core::limits::PAYLOAD_BYTES_MAX / 2;
        let mut payload = vec![b'['; depth];
        payload.resize(depth * 2, b']');
        let text = line(&delivery(7, &payload));
        assert!(text.contains(r#""payload":[[[["#), "it is JSON whatever its depth");
        payload.push(b'\n');
        assert_eq!(line(&delivery(7, &payload)), text);
    }

    #[test]
    fn an_absent_key_is_null_and_headers_are_an_object() {
        let mut delivery = delivery(7, b"1");
        let event = Arc::make_mut(&mut delivery.event);
        event.key = None;
        event.headers.set("trace", "a\nb");
        delivery.attempt = 3;
        let text = line(&delivery);
        assert!(text.contains(r#""key":null,"payload":1,"headers":{"trace":"a\nb"},"#), "{text}");
        assert!(text.ends_with("\"attempt\":3}\n"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
