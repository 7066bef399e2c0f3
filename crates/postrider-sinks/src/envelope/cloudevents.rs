//! An event in the words of CloudEvents 1.0.
//!
//! | attribute | of the event |
//! |---|---|
//! | `id` | the deduplication id |
//! | `source` | a template, `postrider/{store_id}` by default, percent-encoded where a URI-reference asks for it |
//! | `type` | the type |
//! | `subject` | the key, if it has one |
//! | `time` | `created_at` |
//! | `datacontenttype` | the content type of the payload |
//! | `partitionkey` | the key, if it has one |
//! | `traceparent`, `tracestate` | the headers of these names |
//! | `postridereventid` | the event's own id, the same for every subscription |
//!
//! *Id.* CloudEvents lets receivers take two events with the same `source` and `id` for repeats, and one
//! occurrence may become several events. What two subscriptions deliver of one event are two events with one
//! `postridereventid`, so that a receiver of both loses neither.
//!
//! *Set by the event.* A header `ce-NAME` (or `ce_NAME`, `cloudEvents:NAME`) sets the attribute NAME: an
//! extension, `subject`, `dataschema`, or in place of the above `partitionkey`, `traceparent` and
//! `tracestate`. What says who sent the event and what it is, [`PROTECTED`], cannot be set so; such a header
//! travels as any other that means something to the envelope.
//!
//! *Other headers* travel beside the message under their own names. In structured mode, and so in a batch,
//! they are also in the object: those whose names are such as CloudEvents has, of up to 20 lower-case letters
//! and digits, as extensions, and all others in the extension `postriderheaders`, the text of a JSON object.
//! An attribute is never empty: a header without a value sets none.

use std::borrow::Cow;

use postrider_core::{Delivery, Failure, Key, Timestamp};
use serde_json::value::RawValue;

use super::binding::{after_cloudevents_prefix, uri_piece, uri_reference};
use super::line::Base64;
use super::{Binding, CONTENT_TYPE, Envelope, Ids, Message};

/// The content type of a body in structured mode. Lower case: some receivers compare it to the letter.
pub const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";
/// Attributes that an event's headers cannot set.
pub const PROTECTED: &[&str] =
    &["specversion", "id", "source", "type", "time", "datacontenttype", "data", EVENT_ID, HEADERS];

const EVENT_ID: &str = "postridereventid";
const HEADERS: &str = "postriderheaders";
/// CloudEvents recommends no more, and some of its libraries take no more.
const NAME_BYTES_MAX: usize = 20;

/// What an event says beside its data, each once.
#[derive(Debug)]
pub(super) struct Attributes<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// The attribute that a header of the event sets, by its name.
pub(super) fn attribute_named(header: &str) -> Option<Cow<'_, str>> {
    let name = after_cloudevents_prefix(header)?;
    let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    };
    (is_name(&name) && !PROTECTED.contains(&&*name)).then_some(name)
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

impl<'a> Attributes<'a> {
    pub(super) fn of(envelope: &'a Envelope, delivery: &'a Delivery, ids: &Ids) -> Result<Self, Failure> {
        let mut attributes = Self(Vec::with_capacity(12));
        attributes.set("specversion", Cow::Borrowed("1.0"));
        attributes.set("id", Cow::Owned(ids.dedup_id().to_owned()));
        attributes.set("source", source(envelope, delivery)?);
        attributes.set("type", Cow::Borrowed(delivery.kind.as_str()));
        let own: Vec<_> = delivery
            .headers
            .iter()
            .filter_map(|(name, value)| Some((attribute_named(name)?, value)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let key = delivery.key.as_ref().map(Key::as_str);
        let told = [
            ("subject", key.map(Cow::Borrowed)),
            ("time", time(delivery.created_at).map(Cow::Owned)),
            ("dataschema", None),
            ("partitionkey", key.map(Cow::Borrowed)),
            ("traceparent", delivery.headers.get("traceparent").map(Cow::Borrowed)),
            ("tracestate", delivery.headers.get("tracestate").map(Cow::Borrowed)),
        ];
        for (name, value) in told {
            let set = own.iter().find(|(own, _)| own == name).map(|(_, value)| match name {
                "dataschema" => uri_reference(value),
                _ => Cow::Borrowed(*value),
            });
            if let Some(value) = set.or(value) {
                attributes.set(name, value);
            }
        }
        attributes.set(EVENT_ID, Cow::Owned(ids.event_id().to_owned()));
        for (name, value) in own {
            attributes.set(name, Cow::Borrowed(value));
        }
        Ok(attributes)
    }

    /// The first value counts. An empty attribute is not allowed; a row written by plain SQL may have an empty key.
    fn set(&mut self, name: impl Into<Cow<'a, str>>, value: Cow<'a, str>) {
        let name = name.into();
        if !value.is_empty() && self.0.iter().all(|(there, _)| *there != name) {
            self.0.push((name, value));
        }
    }

    /// Adds the event's other headers, for a body that has to say everything itself.
    pub(super) fn with_headers(mut self, delivery: &'a Delivery) -> Self {
        let mut rest = postrider_core::Headers::default();
        for (name, value) in delivery.headers.iter() {
            let is_told = name.eq_ignore_ascii_case(CONTENT_TYPE)
                || attribute_named(name).is_some()
                || ["traceparent", "tracestate"].contains(&name);
            if is_told || value.is_empty() {
                continue;
            }
            let is_taken = self.0.iter().any(|(there, _)| there == name);
            if is_name(name) && !is_taken && !PROTECTED.contains(&name) {
                self.set(name, Cow::Borrowed(value));
            } else {
                rest.set(name, value);
            }
        }
        if let Some(rest) = rest.to_json() {
            self.set(HEADERS, Cow::Owned(rest));
        }
        self
    }

    /// Binary mode: each attribute is a header; the data's content type is the message's.
    pub(super) fn add_headers(self, message: &mut Message<'a>, binding: Binding, content_type: &str) {
        let prefix = binding.cloudevents_prefix();
        // Only here does the binding ask for it beside the content type.
        let datacontenttype = (binding == Binding::Nats)
            .then(|| (Cow::Borrowed("datacontenttype"), Cow::Owned(content_type.to_owned())));
        for (name, value) in self.0.into_iter().chain(datacontenttype) {
            message.headers.push((Cow::Owned(format!("{prefix}{name}")), binding.attribute(value)));
        }
    }

    /// Structured mode: all of it as one JSON object. A payload that is JSON and says so stands in it as it was
    /// emitted, any other as base64; an empty one is no data at all.
    pub(super) fn to_json(&self, content_type: &str, payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(payload.len() + 512);
        let mut mark = b'{';
        let datacontenttype = [("datacontenttype", content_type)];
        let attributes = self.0.iter().map(|(name, value)| (&**name, &**value));
        for (name, value) in attributes.chain(datacontenttype) {
            body.push(mark);
            mark = b',';
            write_json(&mut body, name);
            body.push(b':');
            write_json(&mut body, value);
        }
        let json = is_json(content_type).then(|| serde_json::from_slice::<&RawValue>(payload).ok()).flatten();
        if let Some(json) = json {
            body.extend_from_slice(b",\"data\":");
            body.extend_from_slice(json.get().as_bytes());
        } else if !payload.is_empty() {
            body.extend_from_slice(b",\"data_base64\":");
            write_json(&mut body, &Base64(payload));
        }
        body.push(b'}');
        body
    }
}

fn write_json(body: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(body, value).expect("strings always serialize");
}

/// What comes from the event stays one piece of it.
fn source<'a>(envelope: &'a Envelope, delivery: &'a Delivery) -> Result<Cow<'a, str>, Failure> {
    let text = envelope.source.render_escaped(delivery, |_, value| uri_piece(value))?;
    if text.is_empty() {
        return Err(Failure::permanent(
            "the `source` of the envelope is empty for this event: CloudEvents wants one, so give a default in the template",
        ));
    }
    Ok(Cow::Owned(uri_reference(&text).into_owned()))
}

/// Whether a content type says JSON, as CloudEvents' JSON format decides it: `…/json` or `…+json`.
fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim_end();
    let subtype = media_type.rsplit_once('/').map_or("", |(_, subtype)| subtype);
    let ending = subtype.rsplit('+').next().unwrap_or_default();
    ending.eq_ignore_ascii_case("json")
}

/// RFC 3339 knows years of four digits; only a row written by hand has another one, and then no time at all.
fn time(instant: Timestamp) -> Option<String> {
    let text = instant.to_string();
    (text.as_bytes().get(4) == Some(&b'-') && text.ends_with('Z')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_that_say_json() {
        for yes in
            ["application/json", "Application/JSON; charset=utf-8", "application/vnd.order+json", "text/json"]
        {
            assert!(is_json(yes), "{yes}");
        }
        for no in ["", "json", "application/octet-stream", "application/jsonp", "application/json+xml"] {
            assert!(!is_json(no), "{no}");
        }
    }

    #[test]
    fn only_years_that_rfc_3339_knows_are_told() {
        assert_eq!(time(Timestamp::from_micros(0)).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert!(time(Timestamp::from_micros(-62_167_219_200_000_000)).unwrap().starts_with("0000-01-01T"));
        assert_eq!(time(Timestamp::from_micros(-62_167_219_200_000_001)), None);
        assert_eq!(time(Timestamp::from_micros(i64::MAX)), None);
    }
}
