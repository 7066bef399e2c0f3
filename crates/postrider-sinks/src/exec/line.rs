//! What passes between us and the program, one JSON object a line.

use postrider_core::{Delivery, Failure, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::envelope::Ids;
use crate::envelope::line::Object;

/// An event. A payload that is JSON on one line stands in it as it was emitted; any other is
/// `payload_base64`, so that bytes survive exactly.
pub(super) fn write(delivery: &Delivery, ids: &Ids) -> Vec<u8> {
    let breaks = delivery.payload.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    let json = serde_json::from_slice::<&RawValue>(&delivery.payload).ok().filter(|json| {
        // White space around it is not part of what is carried on.
        !breaks && json.get().len() == delivery.payload.len()
    });
    let line = Object::of(delivery, ids, json);
    let mut text = Vec::with_capacity(delivery.payload.len() + 256);
    serde_json::to_writer(&mut text, &line).expect("strings and checked JSON always serialize");
    text.push(b'\n');
    text
}

/// An answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    /// The event's `dedup_id`.
    pub(super) id: String,
    outcome: Word,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Ack,
    Retry,
    Dead,
}

impl Answer {
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    pub(super) fn outcome(self) -> Outcome {
        let error = self.error.unwrap_or_else(|| "the program gave no reason".to_owned());
        match self.outcome {
            Word::Ack => Outcome::Ack,
            Word::Retry => Outcome::Retry(Failure::retry(error)),
            Word::Dead => Outcome::Dead(Failure::permanent(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;

    fn written_line(payload: &[u8]) -> Vec<u8> {
        let delivery = delivery(7, payload);
        write(&delivery, &Ids::of(&delivery))
    }

    #[test]
    fn a_line_holds_the_event_and_no_other_line_break() {
        let written = |payload: &[u8]| String::from_utf8(written_line(payload)).unwrap();
        assert!(written(b"{\"a\": 1.50}").starts_with(
            r#"{"id":7,"dedup_id":"s-7-1800000000000000-audit","event_id":"s-7-1800000000000000","topic":"#
        ));
        assert!(written(b"{\"a\": 1.50}").contains(r#""payload":{"a": 1.50},"#));
        for payload in [&b"{\n}"[..], b"", b"\xff", b" 1", b"1\r"] {
            let line = written(payload);
            assert!(line.contains("\"payload_base64\"") && line.find('\n') == Some(line.len() - 1), "{line}");
        }
    }

    #[test]
    fn answers_are_read_and_anything_else_is_none() {
        let read =
            |line: &str| Answer::read(line.as_bytes()).map(|answer| (answer.id.clone(), answer.outcome()));
        assert_eq!(read(r#"{"id":"a","outcome":"ack"}"#), Some(("a".to_owned(), Outcome::Ack)));
        let retry = read(r#"{"id":"a","outcome":"retry","error":"later"}"#).unwrap().1;
        assert_eq!(retry, Outcome::Retry(Failure::retry("later")));
        let dead = read(r#"{"outcome":"dead","id":"a"}"#).unwrap().1;
        assert_eq!(dead, Outcome::Dead(Failure::permanent("the program gave no reason")));
        for bad in
            ["", "ok", "{}", r#"{"id":"a"}"#, r#"{"id":"a","outcome":"done"}"#, r#"{"id":1,"outcome":"ack"}"#]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
