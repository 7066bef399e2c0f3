//! Events as lines of JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use postrider_core::event::NewEvent;
use postrider_core::time::parse_duration;
use postrider_core::unique::Unique;
use postrider_core::{Error, ErrorKind, Event, Result, Timestamp, limits};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::args::ScopeArg;
use crate::text;

/// Lines, or rather events, that go into one transaction.
pub(crate) const BATCH_EVENTS_MAX: usize = 1_000;
/// Bytes of payload that go into one transaction, give or take the last event.
pub(crate) const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes that are read ahead.
const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes of one line: a payload at its limit with every byte escaped fits, an endless line does not.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A file, or stdin, that holds one event a line.
pub(crate) struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    name: String,
    number: u64,
}

/// Events that are written together or not at all.
pub(crate) struct Batch {
    /// In the order of their lines.
    pub(crate) events: Vec<NewEvent>,
    /// The number of the last line that was read for it.
    pub(crate) last_line: u64,
}

/// What may stand on a line. The payload is kept byte for byte.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with topic, type, key, payload, headers, due_at, idempotency_key, scope, unique_for, replace"
)]
struct Line<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: Option<String>,
    key: Option<String>,
    #[serde(default, borrow, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    headers: Option<BTreeMap<String, String>>,
    due_at: Option<Timestamp>,
    idempotency_key: Option<String>,
    scope: Option<ScopeArg>,
    unique_for: Option<String>,
    #[serde(default)]
    replace: bool,
}

/// `"payload": null` is the JSON value null, not an absent payload.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Lines {
    /// Opens a file; `-` is stdin.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        if name == "-" {
            return Ok(Self::new(io::stdin(), "stdin"));
        }
        match File::open(path) {
            Ok(file) => Ok(Self::new(file, &name)),
            Err(error) => {
                Err(Error::new(ErrorKind::NotFound, format!("cannot open `{name}`")).with_source(error))
            }
        }
    }

    fn new(reader: impl Read + Send + 'static, name: &str) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, Box::new(reader) as Box<dyn Read + Send>);
        Self { reader, name: name.to_owned(), number: 0 }
    }

    /// The next events, checked one by one; none at the end. Blank lines are passed over.
    ///
    /// A batch ends early when all that has been read is used up: the next line of a live pipe may be long
    /// in coming, and what is here should not wait for it. While a batch is written the pipe fills up, so
    /// batches grow with the load by themselves.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Batch>> {
        let mut events = Vec::new();
        let (mut lines, mut bytes) = (0, 0);
        while lines < BATCH_EVENTS_MAX && bytes < BATCH_BYTES_MAX {
            if lines > 0 && self.reader.buffer().is_empty() {
                break;
            }
            let Some(line) = self.next_line()? else { break };
            lines += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let event = parse(&line).map_err(|problem| self.at_line(&problem))?;
            bytes += event.payload_bytes().len();
            events.push(event);
        }
        Ok((lines > 0).then_some(Batch { events, last_line: self.number }))
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 1);
        bounded.read_until(b'\n', &mut line).map_err(|error| {
            Error::invalid(format!("cannot read line {} of {}", self.number + 1, self.name))
                .with_source(error)
        })?;
        if line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if line.len() > LINE_BYTES_MAX {
            let limit = text::bytes(LINE_BYTES_MAX as u64);
            return Err(self.at_line(&format!("it is longer than {limit}; is this one object a line?")));
        }
        Ok(Some(line))
    }

    fn at_line(&self, problem: &str) -> Error {
        Error::invalid(format!("line {} of {}: {problem}", self.number, self.name))
    }
}

fn parse(line: &[u8]) -> Result<NewEvent, String> {
    let line = std::str::from_utf8(line)
        .map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))?;
    let line: Line<'_> = serde_json::from_str(line).map_err(|error| {
        // The parser counts lines of its own; the file's line is already told.
        let own = format!(" at line {} column {}", error.line(), error.column());
        let problem = error.to_string();
        format!("{} at column {}", problem.trim_end_matches(&own), error.column())
    })?;
    let event = line.into_event()?;
    event.check().map_err(|error| error.to_string())?;
    Ok(event)
}

impl Line<'_> {
    fn into_event(self) -> Result<NewEvent, String> {
        let mut event = Event::new(self.topic);
        if let Some(kind) = self.kind {
            event = event.kind(kind);
        }
        if let Some(key) = self.key {
            event = event.key(key);
        }
        if let Some(payload) = self.payload {
            event = event.json_text(payload.get());
        }
        for (name, value) in self.headers.unwrap_or_default() {
            event = event.header(name, value);
        }
        if let Some(at) = self.due_at {
            event = event.due_at(at);
        }
        let period = self.unique_for.as_deref().map(parse_duration).transpose();
        let period = period.map_err(|error| format!("unique_for: {error}"))?;
        match self.idempotency_key {
            Some(key) => {
                let unique = Unique::new(key).scope(self.scope.unwrap_or_default().into());
                let unique = period.into_iter().fold(unique, Unique::within);
                event = event.unique(if self.replace { unique.replace() } else { unique });
            }
            None if self.scope.is_some() || period.is_some() || self.replace => {
                return Err("scope, unique_for and replace need an idempotency_key".to_owned());
            }
            None => {}
        }
        Ok(event)
    }
}

const _: () = assert!(LINE_BYTES_MAX > limits::PAYLOAD_BYTES_MAX * 6 + limits::HEADERS_BYTES_MAX * 6);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::unique::Scope;

    use super::*;

    fn lines(text: impl Into<Vec<u8>>) -> Lines {
        Lines::new(io::Cursor::new(text.into()), "test")
    }

    #[test]
    fn a_full_line_becomes_an_event_with_its_payload_byte_for_byte() {
        let line = r#"{"topic":"order","type":"order.created","key":"42","payload": {"n": 1.10} ,"headers":{"b":"2","a":"1"},"due_at":"2026-11-15T08:30:00Z","idempotency_key":"x","scope":"type","unique_for":"10m","replace":true}"#;
        let batch = lines(line).next_batch().unwrap().unwrap();
        let expected = Event::new("order")
            .kind("order.created")
            .key("42")
            .json_text(r#"{"n": 1.10}"#)
            .header("a", "1")
            .header("b", "2")
            .due_at("2026-11-15T08:30:00Z".parse().unwrap())
            .unique(Unique::new("x").scope(Scope::Kind).within(Duration::from_secs(600)).replace());
        assert_eq!(batch.events, [expected]);
    }

    #[test]
    fn null_is_a_payload_and_absence_is_not() {
        let mut lines = lines("{\"topic\":\"a\",\"payload\":null}\n\n  \n{\"topic\":\"a\"}");
        let batch = lines.next_batch().unwrap().unwrap();
        assert_eq!(batch.events[0].payload_bytes().as_ref(), b"null");
        assert_eq!(batch.events[1].payload_bytes().as_ref(), b"");
        assert_eq!(batch.last_line, 4);
        assert!(lines.next_batch().unwrap().is_none());
    }

    #[test]
    fn batches_are_bounded_by_lines_and_by_bytes() {
        let mut many = lines("{\"topic\":\"a\"}\n".repeat(2_500));
        let mut sizes = Vec::new();
        while let Some(batch) = many.next_batch().unwrap() {
            sizes.push((batch.events.len(), batch.last_line));
        }
        assert_eq!(sizes, [(1_000, 1_000), (1_000, 2_000), (500, 2_500)]);

        let large = format!("{{\"topic\":\"a\",\"payload\":\"{}\"}}\n", "x".repeat(1_000_000));
        let batch = lines(large.repeat(20)).next_batch().unwrap().unwrap();
        assert_eq!(batch.events.len(), 9);
    }

    /// A pipe whose writer sends one line at a time.
    struct Slowly(Vec<&'static str>);

    impl Read for Slowly {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(line) = self.0.pop() else { return Ok(0) };
            buffer[..line.len()].copy_from_slice(line.as_bytes());
            Ok(line.len())
        }
    }

    #[test]
    fn what_has_come_does_not_wait_for_what_may_come() {
        let mut lines =
            Lines::new(Slowly(vec!["{\"topic\":\"a\"}\n{\"topic\":\"a\"}\n", "{\"topic\":\"a\"}\n"]), "test");
        let mut sizes = Vec::new();
        while let Some(batch) = lines.next_batch().unwrap() {
            sizes.push(batch.events.len());
        }
        assert_eq!(sizes, [1, 2]);
    }

    #[test]
    fn a_bad_line_is_told_with_its_number() {
        let good = "{\"topic\":\"a\"}\n";
        for (bad, problem) in [
            ("{\"topic\":\"a\",\"colour\":1}", "unknown field `colour`, expected one of `topic`"),
            ("{\"type\":\"a\"}", "missing field `topic`"),
            ("{\"topic\":\"a\"", "EOF while parsing an object at column"),
            ("[]", "an object with topic"),
            ("{\"topic\":\"a\",\"key\":5}", "expected a string"),
            ("{\"topic\":\"a b\"}", "use letters, digits"),
            ("{\"topic\":\"a\",\"due_at\":\"soon\"}", "is not a time such as"),
            ("{\"topic\":\"a\",\"replace\":true}", "need an idempotency_key"),
            ("{\"topic\":\"a\",\"unique_for\":\"10m\"}", "need an idempotency_key"),
            ("{\"topic\":\"a\",\"scope\":\"topic\"}", "need an idempotency_key"),
            ("{\"topic\":\"a\",\"idempotency_key\":\"x\",\"scope\":\"here\"}", "unknown variant `here`"),
            ("{\"topic\":\"a\",\"idempotency_key\":\"x\",\"unique_for\":\"soon\"}", "unique_for: "),
            ("{\"topic\":\"a\",\"idempotency_key\":\"x\",\"unique_for\":\"0s\"}", "must be longer than zero"),
            ("{\"topic\":\"a\",\"topic\":\"b\"}", "duplicate field"),
            ("{\"topic\":\"a\"} x", "trailing characters"),
        ] {
            let error = lines(format!("{good}{good}{bad}\n{good}")).next_batch().err().unwrap();
            let message = error.to_string();
            assert!(message.starts_with("line 3 of test: ") && message.contains(problem), "{message}");
            assert!(!message.contains("line 1"), "{message}");
        }
        let message = lines(b"\xff\n".to_vec()).next_batch().err().unwrap().to_string();
        assert!(message.contains("not UTF-8"), "{message}");
    }

    #[test]
    fn an_endless_line_is_refused() {
        let endless = Lines::new(io::repeat(b'x'), "test").next_batch().err().unwrap();
        assert!(endless.to_string().contains("longer than 8.0 MiB"));
    }
}
