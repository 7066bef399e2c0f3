//! Payloads, on their way in from the command line and out to people and machines.

use std::fs::File;
use std::io::{self, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use postrider_core::{Error, ErrorKind, Result, limits};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::text;

/// Reads a payload as `--payload` names it: the text itself, `@FILE`, or `-` for stdin. Unless it is
/// `raw` it must be JSON. The bytes are taken as they are; JSON is checked, never rewritten.
pub(crate) fn read(source: &str, raw: bool) -> Result<Bytes> {
    let bytes = match source.strip_prefix('@') {
        _ if source == "-" => read_bounded(io::stdin().lock(), "stdin")?,
        Some(path) => {
            let file = File::open(path).map_err(|error| {
                Error::new(ErrorKind::NotFound, format!("cannot open the payload file `{path}`"))
                    .with_source(error)
            })?;
            read_bounded(file, path)?
        }
        None => Bytes::copy_from_slice(source.as_bytes()),
    };
    if !raw {
        check_json(&bytes)?;
    }
    Ok(bytes)
}

/// Stops one byte past the limit, so that a mistaken `@/dev/zero` ends in a sentence.
fn read_bounded(reader: impl Read, name: &str) -> Result<Bytes> {
    let limit = limits::PAYLOAD_BYTES_MAX;
    let mut bytes = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(|error| {
        Error::invalid(format!("cannot read the payload from `{name}`")).with_source(error)
    })?;
    if bytes.len() > limit {
        return Err(Error::invalid(format!(
            "the payload in `{name}` is more than {} bytes: store the content elsewhere and emit a reference to it",
            text::count(limit as u64)
        )));
    }
    Ok(bytes.into())
}

fn check_json(bytes: &[u8]) -> Result<()> {
    let not_json = |problem: String| {
        Error::invalid(format!(
            "the payload is not JSON: {problem}; correct it, or send it as it is with --raw"
        ))
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| not_json(format!("it is not UTF-8 from byte {} on", error.valid_up_to())))?;
    serde_json::from_str::<&RawValue>(text).map(|_| ()).map_err(|error| not_json(error.to_string()))
}

/// A payload in `--json`: the JSON value itself if it is one, else base64, as the sinks write it.
#[derive(Debug, Serialize)]
pub(crate) struct PayloadView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_withheld: Option<bool>,
    /// Of one that is cut: the first of it, if it is text, and how long it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_beginning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_cut: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_bytes: Option<u64>,
}

impl<'a> PayloadView<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        match serde_json::from_slice(payload) {
            Ok(json) => Self { payload: Some(json), ..Self::none() },
            Err(_) => Self { payload_base64: Some(STANDARD.encode(payload)), ..Self::none() },
        }
    }

    /// One of which there may be the beginning only.
    pub(crate) fn of_length(payload: &'a [u8], bytes: u64) -> Self {
        if payload.len() as u64 >= bytes {
            return Self::new(payload);
        }
        let text = text_at_beginning(payload);
        let base64 = if text.is_none() { Some(STANDARD.encode(payload)) } else { None };
        Self {
            payload_beginning: text,
            payload_base64: base64,
            payload_cut: Some(true),
            payload_bytes: Some(bytes),
            ..Self::none()
        }
    }

    /// One that may not be read.
    pub(crate) fn withheld() -> Self {
        Self { payload_withheld: Some(true), ..Self::none() }
    }

    fn none() -> Self {
        Self {
            payload: None,
            payload_base64: None,
            payload_withheld: None,
            payload_beginning: None,
            payload_cut: None,
            payload_bytes: None,
        }
    }
}

/// The text that a payload begins with; none if it is not text. Where it was cut, a character may have lost its end.
fn text_at_beginning(payload: &[u8]) -> Option<&str> {
    match std::str::from_utf8(payload) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&payload[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// What people read instead of a payload that may not be.
pub(crate) const WITHHELD: &str = "(withheld: this role may not read it)";

/// A payload on one line of a table, of which there may be the beginning only.
pub(crate) fn preview(payload: &[u8], bytes: u64) -> String {
    let is_cut = bytes > payload.len() as u64;
    let text = if is_cut { text_at_beginning(payload) } else { std::str::from_utf8(payload).ok() };
    match text {
        Some("") if bytes == 0 => "(empty)".to_owned(),
        Some("") | None => {
            format!("({}{})", text::bytes(bytes), if text.is_none() { ", not text" } else { "" })
        }
        Some(text) => text.to_owned(),
    }
}

/// A payload in full, for people.
pub(crate) fn block(payload: &[u8]) -> String {
    match std::str::from_utf8(payload) {
        Ok("") => "(empty)\n".to_owned(),
        Ok(text) => text::escape_lines(text) + "\n",
        Err(_) => {
            format!("({}, not text: --json prints them in base64)\n", text::bytes(payload.len() as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_taken_byte_for_byte() {
        for json in ["{\"a\": 1.0e2 }", " [1]\n", "12345678901234567890123", "\"ü\"", "null"] {
            assert_eq!(read(json, false).unwrap(), json.as_bytes());
        }
        assert_eq!(read("no json", true).unwrap(), "no json");
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place_and_a_remedy() {
        for bad in ["", "{", "{\"a\":}", "nul", "1 2", "{'a':1}", "\"\x01\""] {
            let message = read(bad, false).unwrap_err().to_string();
            assert!(message.contains("line 1 column") && message.contains("--raw"), "{bad}: {message}");
        }
        assert!(check_json(b"\"\xff\"").unwrap_err().to_string().contains("from byte 1 on"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read("@/no/such/file", false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such/file"));
    }

    #[test]
    fn reading_stops_past_the_limit() {
        let exact = read_bounded(io::repeat(b'1').take(limits::PAYLOAD_BYTES_MAX as u64), "x").unwrap();
        assert_eq!(exact.len(), limits::PAYLOAD_BYTES_MAX);
        assert!(read_bounded(io::repeat(b'1'), "x").unwrap_err().to_string().contains("1,048,576"));
    }

    #[test]
    fn machines_get_json_as_it_is_and_bytes_in_base64() {
        let view = |payload: &[u8]| serde_json::to_string(&PayloadView::new(payload)).unwrap();
        assert_eq!(view(b"{\"n\":1.10}"), r#"{"payload":{"n":1.10}}"#);
        assert_eq!(view(b"\xff\x00"), r#"{"payload_base64":"/wA="}"#);
        assert_eq!(view(b""), r#"{"payload_base64":""}"#);
        let withheld = serde_json::to_string(&PayloadView::withheld()).unwrap();
        assert_eq!(withheld, r#"{"payload_withheld":true}"#);
    }

    #[test]
    fn people_get_text_or_a_size() {
        assert_eq!(preview(b"\xff\x00", 2), "(2 bytes, not text)");
        assert_eq!(block(b"a\x1b\nb"), "a\\u{1b}\nb\n");
        assert_eq!(preview(b"", 0), "(empty)");
    }
}
