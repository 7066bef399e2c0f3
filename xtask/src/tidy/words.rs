//! One word, one meaning: names, strings and SQL of the crates use the glossary's words.

use std::collections::BTreeSet;

use super::rust_source::TokenKind;
use super::statements::without_comments;
use super::tree::{TextFile, Tree, Violation};

/// Words that mean something the glossary has another word for. A single word is a stem, so that `enqueu`
/// covers `enqueue_all`, `Enqueued` and "enqueuing"; a row of words is taken as it is, or in the plural.
/// Only what has no honest second use is here: an error may have a message, but an event is none.
const NEVER: &[(&[&str], &str)] = &[
    (&["enqueu"], "emit"),
    (&["dequeu"], "fetch or lease"),
    (&["requeu"], "retry, reap or replay"),
    (&["redriv"], "replay"),
    (&["nack"], "retry"),
    (&["dlq"], "dead letter"),
    (&["deadletterqueu"], "dead letter"),
    (&["dead", "letter", "queue"], "dead letter"),
    (&["consumer"], "subscription, handler or member"),
    (&["checkpoint"], "position"),
    (&["watermark"], "position"),
    (&["visibility", "timeout"], "lease"),
    (&["job"], "event or delivery"),
    (&["message", "id"], "event id"),
    (&["message", "type"], "event type"),
    (&["message", "key"], "event key"),
    (&["message", "queue"], "store or log"),
    (&["exactly", "once", "delivery"], "at least once"),
];

/// Terms of others that contain such a word.
const FOREIGN: &[&[&str]] = &[
    &["wal", "checkpoint"],    // SQLite: copying its log into the database
    &["sqlite", "checkpoint"], // the constants for it
];

/// Looks at names and strings of Rust and at SQL, not at comments: prose may compare us with others.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let ours = |file: &&TextFile| file.path.starts_with("crates/");
    for file in tree.files.iter().filter(ours) {
        let mut found: BTreeSet<(usize, String, &str)> = BTreeSet::new();
        for (line, text) in spoken(file) {
            let words = words_of(&text);
            found.extend(
                NEVER
                    .iter()
                    .filter(|(row, _)| says(&words, row))
                    .map(|(row, right)| (line, row.join(" "), *right)),
            );
        }
        for (line, wrong, right) in found {
            if !file.excuses(line, "foreign") {
                let advice = format!(
                    "`{wrong}` is not a word of ours: say {right}, or write `tidy: foreign because …` if it names another's concept"
                );
                violations.push(file.violation(line, "word", advice));
            }
        }
    }
    violations
}

/// What a file says apart from comments, with lines.
fn spoken(file: &TextFile) -> Vec<(usize, String)> {
    if file.extension() == "sql" {
        let text = without_comments(&file.text);
        return text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect();
    }
    let tokens = file.rust().into_iter().flat_map(|source| &source.tokens);
    tokens
        .flat_map(|token| match &token.kind {
            TokenKind::Name(name) => vec![(token.line, name.clone())],
            // A long string is told line by line, so that the place and its excuse are exact.
            TokenKind::Text(text) if token.line_end > token.line => {
                text.lines().enumerate().map(|(index, line)| (token.line + index, line.to_owned())).collect()
            }
            TokenKind::Text(text) => vec![(token.line, text.clone())],
            TokenKind::Mark(_) | TokenKind::Other => Vec::new(),
        })
        .collect()
}

/// Whether `words` contain the row somewhere outside a foreign term.
fn says(words: &[String], row: &[&str]) -> bool {
    let said_at = |at: usize| {
        let (last, first) = row.split_last().expect("no row is empty");
        let Some(slice) = words.get(at..at + row.len()) else { return false };
        let rest = slice[first.len()].strip_prefix(last);
        let ends = rest.is_some_and(|rest| first.is_empty() || rest.is_empty() || rest == "s");
        ends && slice.iter().zip(first).all(|(word, wanted)| word == wanted)
    };
    let foreign_at = |at: usize| {
        let covers = |term: &&&[&str]| {
            (at.saturating_sub(term.len() - 1)..=at).any(|begin| {
                words
                    .get(begin..begin + term.len())
                    .is_some_and(|slice| slice.iter().zip(**term).all(|(w, t)| w == t))
            })
        };
        FOREIGN.iter().find(covers).is_some()
    };
    (0..words.len()).any(|at| said_at(at) && !foreign_at(at))
}

/// `snake_case`, `CamelCase`, `DLQEntry` and prose as lowercase words.
fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let characters: Vec<char> = text.chars().collect();
    for (index, &c) in characters.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| characters[index]);
        let after = characters.get(index + 1);
        let begins = c.is_uppercase()
            && (before.is_some_and(char::is_lowercase)
                || before.is_some_and(char::is_uppercase) && after.is_some_and(|c| c.is_lowercase()));
        if (begins || !c.is_alphabetic()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphabetic() {
            word.extend(c.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::check as check_rule;
    use super::*;

    fn rust(code: &str, places: &[&str]) {
        check_rule(check, &[("crates/a/src/lib.rs", code)], places);
    }

    #[test]
    fn text_is_split_as_people_read_it() {
        assert_eq!(
            words_of("DLQEntry wal_checkpoint2 fooBar"),
            ["dlq", "entry", "wal", "checkpoint", "foo", "bar"]
        );
    }

    #[test]
    fn wrong_words_are_found_in_names_strings_and_sql() {
        rust("fn enqueue_all() {}", &["crates/a/src/lib.rs:1"]);
        rust(
            "struct VisibilityTimeout;\nstruct DLQEntry;",
            &["crates/a/src/lib.rs:1", "crates/a/src/lib.rs:2"],
        );
        rust("fn a() {\n    b(\"moved to the dead-letter queue\");\n}", &["crates/a/src/lib.rs:2"]);
        check_rule(
            check,
            &[("crates/a/sql/x.sql", "-- a job\nselect job from t")],
            &["crates/a/sql/x.sql:2"],
        );
    }

    #[test]
    fn right_words_comments_and_foreign_terms_pass() {
        rust("// Kafka calls it a consumer group.\n/// A job.\nfn message() { join(\"snack\"); }", &[]);
        rust("const A: &str = \"the message identifies nobody\";", &[]);
        rust("const A: &str = \"pragma wal_checkpoint(truncate)\";", &[]);
        rust("use x::SQLITE_CHECKPOINT_FULL;", &[]);
        rust("// tidy: foreign because rdkafka names it so\nuse rdkafka::StreamConsumer;", &[]);
        rust("// tidy: foreign because rdkafka names it so\n\nstruct Consumer;", &["crates/a/src/lib.rs:3"]);
    }

    #[test]
    fn only_the_crates_are_ours() {
        check_rule(check, &[("bench/peer.rs", "fn enqueue() {}")], &[]);
    }
}
