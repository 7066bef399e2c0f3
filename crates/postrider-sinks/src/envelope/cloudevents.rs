//! An event in the words of CloudEvents 1.0.
//!
//! | attribute | of the event |
//! |---|---|
//! | `id` | the deduplication id |
//! | `source` | a template, `postrider/{store_id}` by default |
//! | `type` | the type |
//! | `subject`, `partitionkey` | the key, if it has one |
//! | `time` | `created_at` |
//! | `datacontenttype` | the content type of the payload |
//! | `traceparent`, `tracestate` | the headers of these names |
//!
//! Further headers of the event travel under their own names beside the message: an attribute's name may hold
//! only lower-case letters and digits, and theirs may hold anything.

use std::borrow::Cow;

use postrider_core::{Delivery, Failure, Key, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::line::Base64;
use super::{Binding, Envelope, Message};

/// The content type of a body in structured mode.
pub const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";

/// What an event says beside its data.
#[derive(Debug, Serialize)]
pub(super) struct Attributes<'a> {
    specversion: &'static str,
    id: String,
    source: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitionkey: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
}

/// The whole event in structured mode.
#[derive(Serialize)]
struct Structured<'a> {
    #[serde(flatten)]
    attributes: &'a Attributes<'a>,
    datacontenttype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<Base64<'a>>,
}

impl<'a> Attributes<'a> {
    pub(super) fn of(
        envelope: &'a Envelope,
        delivery: &'a Delivery,
        dedup_id: &str,
    ) -> Result<Attributes<'a>, Failure> {
        // An empty attribute is not allowed; a row written by plain SQL may have an empty key.
        let key = delivery.key.as_ref().map(Key::as_str).filter(|key| !key.is_empty());
        Ok(Self {
            specversion: "1.0",
            id: dedup_id.to_owned(),
            source: envelope.source.render(delivery)?,
            kind: delivery.kind.as_str(),
            subject: key,
            time: time(delivery.created_at),
            partitionkey: key,
            traceparent: delivery.headers.get("traceparent"),
            tracestate: delivery.headers.get("tracestate"),
        })
    }

    /// Binary mode: each attribute is a header; the data's content type is the message's.
    pub(super) fn add_headers(self, message: &mut Message<'a>, binding: Binding, content_type: &str) {
        let prefix = binding.cloudevents_prefix();
        // Only here does the binding ask for it beside the content type.
        let datacontenttype = (binding == Binding::Nats).then(|| Cow::Owned(content_type.to_owned()));
        let attributes = [
            ("specversion", Some(Cow::Borrowed(self.specversion))),
            ("id", Some(Cow::Owned(self.id))),
            ("source", Some(self.source)),
            ("type", Some(Cow::Borrowed(self.kind))),
            ("subject", self.subject.map(Cow::Borrowed)),
            ("time", self.time.map(Cow::Owned)),
            ("datacontenttype", datacontenttype),
            ("partitionkey", self.partitionkey.map(Cow::Borrowed)),
            ("traceparent", self.traceparent.map(Cow::Borrowed)),
            ("tracestate", self.tracestate.map(Cow::Borrowed)),
        ];
        for (name, value) in attributes {
            if let Some(value) = value {
                message.headers.push((Cow::Owned(format!("{prefix}{name}")), binding.attribute(value)));
            }
        }
    }

    /// Structured mode: all of it as one JSON object. A payload that is JSON and says so stands in it as it was
    /// emitted, any other as base64; an empty one is no data at all.
    pub(super) fn to_json(&self, content_type: &str, payload: &[u8]) -> Vec<u8> {
        let json = is_json(content_type).then(|| serde_json::from_slice::<&RawValue>(payload).ok()).flatten();
        let data_base64 = (json.is_none() && !payload.is_empty()).then_some(Base64(payload));
        let structured = Structured { attributes: self, datacontenttype: content_type, data_base64 };
        let mut body = Vec::with_capacity(payload.len() + 512);
        serde_json::to_writer(&mut body, &structured).expect("strings always serialize");
        if let Some(json) = json {
            // Behind a flattened struct, serde would copy a raw value; here it is appended as it is.
            body.pop();
            body.extend_from_slice(b",\"data\":");
            body.extend_from_slice(json.get().as_bytes());
            body.push(b'}');
        }
        body
    }
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
