//! Which events a subscription wants.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits;

/// A pattern over topics or types: exact (`order.created`), prefix (`order.*`) or any other text with
/// `*` for any number of characters (`*.created`).
///
/// ```
/// use postrider_core::Pattern;
/// let pattern: Pattern = "order.*".parse()?;
/// assert!(pattern.matches("order.created"));
/// assert!(!pattern.matches("invoice.created"));
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    shape: Shape,
}

/// The pattern, taken apart once so that matching an event is a comparison, not a parse.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    Any,
    Exact,
    /// The text before the only `*`, which is the last character.
    Prefix(usize),
    /// What stands before, between and after the stars.
    Parts(Vec<String>),
}

impl Pattern {
    /// Whether `text` has this shape.
    pub fn matches(&self, text: &str) -> bool {
        match &self.shape {
            Shape::Any => true,
            Shape::Exact => text == self.text,
            Shape::Prefix(length) => text.as_bytes().starts_with(&self.text.as_bytes()[..*length]),
            Shape::Parts(parts) => matches_parts(parts, text),
        }
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The first part must begin the text, the last must end it, and those between are taken at their first
/// occurrence: leftmost matches leave the most room for what follows, so no backtracking is needed and
/// the time is linear in practice whatever the pattern.
fn matches_parts(parts: &[String], text: &str) -> bool {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return text.is_empty() };
    let Some(rest) = text.strip_prefix(first.as_str()) else { return false };
    let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
    for part in &parts[1..parts.len() - 1] {
        match rest.find(part.as_str()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid("a pattern is empty: use * to match everything"));
        }
        if text.len() > limits::NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "pattern is {} bytes, the limit is {}",
                text.len(),
                limits::NAME_BYTES_MAX
            )));
        }
        if let Some(c) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-:/*".contains(*c))) {
            return Err(Error::invalid(format!(
                "pattern `{}` contains {c:?}: use letters, digits, . _ - : / and * for any text",
                text.escape_default()
            )));
        }
        let shape = match text.find('*') {
            None => Shape::Exact,
            Some(0) if text.len() == 1 => Shape::Any,
            Some(star) if star + 1 == text.len() => Shape::Prefix(star),
            Some(_) => Shape::Parts(text.split('*').map(str::to_owned).collect()),
        };
        Ok(Self { text: text.to_owned(), shape })
    }
}

impl TryFrom<String> for Pattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The events that a subscription wants: any of the topics and any of the types. An empty list wants all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Patterns over the topic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<Pattern>,
    /// Patterns over the type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Pattern>,
}

impl Filter {
    /// Whether an event of this topic and type is wanted.
    pub fn matches(&self, topic: &str, kind: &str) -> bool {
        let any =
            |patterns: &[Pattern], text| patterns.is_empty() || patterns.iter().any(|p| p.matches(text));
        any(&self.topics, topic) && any(&self.types, kind)
    }

    /// Checks the number of patterns.
    pub fn check(&self) -> Result<()> {
        let most = self.topics.len().max(self.types.len());
        if most > limits::FILTER_PATTERNS_MAX {
            return Err(Error::invalid(format!(
                "filter has {most} patterns, the limit is {}: use * or several subscriptions",
                limits::FILTER_PATTERNS_MAX
            )));
        }
        Ok(())
    }
}

/// For people: `topic order.*, type *.created`, or `everything`.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |patterns: &[Pattern]| patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join("|");
        match (self.topics.is_empty(), self.types.is_empty()) {
            (true, true) => f.write_str("everything"),
            (false, true) => write!(f, "topic {}", list(&self.topics)),
            (true, false) => write!(f, "type {}", list(&self.types)),
            (false, false) => write!(f, "topic {}, type {}", list(&self.topics), list(&self.types)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let parsed: Pattern = pattern.parse().unwrap();
        for text in yes {
            assert!(parsed.matches(text), "{pattern} should match {text}");
        }
        for text in no {
            assert!(!parsed.matches(text), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn exact_prefix_and_wildcard_patterns() {
        check("order", &["order"], &["orders", "orde", ""]);
        check("order.*", &["order.", "order.created"], &["order", "orders.x"]);
        check("*", &["", "anything"], &[]);
        check("*.created", &["order.created", ".created"], &["order.created2", "created"]);
        check("a*b*c", &["abc", "a-b-c", "abbc"], &["acb", "ab", "abcd"]);
        check("ab*ba", &["abba", "ab.ba"], &["aba"]);
        check("**", &["", "x"], &[]);
    }

    #[test]
    fn bad_patterns_are_refused() {
        for bad in ["", "a b", "a?", "ä"] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad}");
        }
    }

    /// The obvious exponential matcher, as the law to compare with.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_obvious_matcher(pattern in "[ab*]{1,8}", text in "[ab]{0,10}") {
            let parsed: Pattern = pattern.parse().unwrap();
            prop_assert_eq!(parsed.matches(&text), naive(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
