//! Mistakes in a config: where each is, what is wrong, and what to do about it.

use std::error::Error as StdError;
use std::fmt;

use serde::Serialize;

use crate::args::LogFormatArg;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Problem {
    #[serde(flatten)]
    pub(crate) place: Place,
    pub(crate) message: String,
    /// What to do, if there is more to say than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub(crate) enum Place {
    /// In a file; both count from 1, columns in characters.
    File { file: String, line: usize, column: usize },
    /// In an environment variable.
    Variable { variable: String },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Variable { variable } => f.write_str(variable),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Problem {
    /// What a line of a JSON log says of it beside the message.
    pub(crate) fn fields(&self) -> Vec<(&'static str, serde_json::Value)> {
        let mut fields = match &self.place {
            Place::File { file, line, column } => {
                vec![("file", file.as_str().into()), ("line", (*line).into()), ("column", (*column).into())]
            }
            Place::Variable { variable } => vec![("variable", variable.as_str().into())],
        };
        fields.push(("exit_code", crate::exit::USAGE.into()));
        fields
    }
}

/// The mistakes of a config, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problems {
    /// At most [`TOLD_MAX`](Self::TOLD_MAX).
    pub(crate) told: Vec<Problem>,
    /// Whether there may be others: with so many the rest was not looked at.
    pub(crate) more: bool,
    /// The form of the log that the file asks for, as far as that could be read.
    pub(crate) log_format: Option<LogFormatArg>,
}

impl Problems {
    /// More than anybody corrects before looking again.
    pub(crate) const TOLD_MAX: usize = 100;
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.told.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        if self.more {
            f.write_str("\nthere may be more")?;
        }
        Ok(())
    }
}

impl StdError for Problems {}

/// The known word that was most likely meant.
pub(crate) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const LIKE_ENOUGH: f64 = 0.75;
    let like = |word: &'a str| (strsim::jaro_winkler(&written.to_lowercase(), &word.to_lowercase()), word);
    let nearest = known.into_iter().map(like).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (nearest.0 >= LIKE_ENOUGH).then(|| format!("did you mean `{}`?", nearest.1))
}

/// A deserializer's complaint in plain words, and what to do. The value that it is about is left out: it may
/// be a secret.
pub(super) fn in_plain_words(complaint: &str) -> (String, Option<String>) {
    if let Some(rest) = complaint.strip_prefix("unknown field ") {
        return unknown("key", rest);
    }
    if let Some(rest) = complaint.strip_prefix("unknown variant ") {
        return unknown("value", rest);
    }
    if let Some(rest) = complaint.strip_prefix("missing field ") {
        return (format!("the key {rest} is missing"), None);
    }
    for prefix in ["invalid type: ", "invalid value: "] {
        let Some((found, expected)) =
            complaint.strip_prefix(prefix).and_then(|rest| rest.rsplit_once(", expected "))
        else {
            continue;
        };
        let found = found.split(['`', '"']).next().unwrap_or_default().trim();
        return (format!("it is {}, and should be {}", kind_word(found), expected_words(expected)), None);
    }
    (complaint.to_owned(), None)
}

/// Of a name and those that exist: `` `x`, expected one of `a`, `b` ``.
fn unknown(what: &str, rest: &str) -> (String, Option<String>) {
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let written = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let hint = did_you_mean(written, known.iter().copied()).or_else(|| match known.as_slice() {
        [] => None,
        known => Some(format!("use {}", known.join(", "))),
    });
    (format!("unknown {what} `{written}`"), hint)
}

fn kind_word(found: &str) -> &str {
    match found {
        "integer" => "a whole number",
        "floating point" => "a number with a fraction",
        "string" => "a text",
        "boolean" => "true or false",
        "sequence" => "a list",
        "map" => "a table",
        "" => "of another kind",
        other => other,
    }
}

fn expected_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" | "i32" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(complaint: &str, message: &str, hint: Option<&str>) {
        assert_eq!(in_plain_words(complaint), (message.to_owned(), hint.map(str::to_owned)), "{complaint}");
    }

    #[test]
    fn complaints_are_told_in_plain_words_with_a_hint() {
        check(
            "unknown field `concurency`, expected one of `concurrency`, `retry`",
            "unknown key `concurency`",
            Some("did you mean `concurrency`?"),
        );
        check(
            "unknown field `zzz`, expected one of `path`, `url`",
            "unknown key `zzz`",
            Some("use path, url"),
        );
        check("unknown field `zzz`, there are no fields", "unknown key `zzz`", None);
        check(
            "unknown variant `qeue`, expected `log` or `queue`",
            "unknown value `qeue`",
            Some("did you mean `queue`?"),
        );
        check("missing field `path`", "the key `path` is missing", None);
        check("a pattern has no blanks", "a pattern has no blanks", None);
    }

    #[test]
    fn the_value_of_a_wrong_kind_is_not_repeated() {
        check(
            r#"invalid type: string "hunter2, expected `x`", expected u32"#,
            "it is a text, and should be a whole number",
            None,
        );
        check(
            "invalid type: integer `31337`, expected a string",
            "it is a whole number, and should be a text in quotes",
            None,
        );
        check(
            "invalid value: integer `-3`, expected u32",
            "it is a whole number, and should be a whole number",
            None,
        );
        check("invalid type: map, expected a string", "it is a table, and should be a text in quotes", None);
    }

    #[test]
    fn a_hint_is_given_only_if_it_is_near() {
        assert_eq!(did_you_mean("kafak", ["nats", "kafka"]), Some("did you mean `kafka`?".to_owned()));
        assert_eq!(did_you_mean("x", ["nats", "kafka"]), None);
        assert_eq!(did_you_mean("x", []), None);
    }
}
