//! Nothing is ignored, unfinished or slept over.

use super::rust_source::{RustSource, TokenKind};
use super::tree::{TextFile, Tree, Violation};

const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
/// Written in two halves, so that this file does not contain them.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// A test that is ignored, a macro that stands for missing code, a note to oneself.
pub(crate) fn unfinished(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust() {
        for window in source.tokens.windows(3) {
            let advice = match [&window[0].kind, &window[1].kind, &window[2].kind] {
                [TokenKind::Mark('#'), TokenKind::Mark('['), TokenKind::Name(name)] if name == "ignore" => {
                    "a test runs or does not exist: make it run or delete it".to_owned()
                }
                [TokenKind::Name(name), TokenKind::Mark('!'), TokenKind::Mark('(' | '[' | '{')]
                    if MACROS.contains(&name.as_str()) =>
                {
                    format!("`{name}!` stands for missing code: write it")
                }
                _ => continue,
            };
            violations.push(file.violation(window[0].line, "leftover", advice));
        }
    }
    for file in &tree.files {
        violations.extend(notes(file));
    }
    violations
}

fn notes(file: &TextFile) -> Vec<Violation> {
    let is_word = |text: &str, note: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == note)
    };
    let is_noted = |line: &str| NOTES.iter().any(|note| is_word(line, note));
    let in_text = |line: usize| file.rust().is_some_and(|source| source.is_in_text(line));
    let lines = file.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines
        .filter(|(number, line)| is_noted(line) && !in_text(*number))
        .map(|(number, _)| {
            file.violation(number, "leftover", "finish it now, or write down why it is as it is")
        })
        .collect()
}

/// A test waits for a named moment: a sleep is too short on a busy machine and too long on every other.
pub(crate) fn sleeps(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust() {
        for line in sleep_calls(source) {
            if source.is_test(line) && !file.excuses(line, "sleep") {
                let advice = "wait for a named moment, or write `// tidy: sleep because …`";
                violations.push(file.violation(line, "sleep-in-test", advice));
            }
        }
    }
    violations
}

/// The lines on which a function `sleep` or `sleep_until` is called; methods and declarations are not.
fn sleep_calls(source: &RustSource) -> impl Iterator<Item = usize> {
    source.tokens.windows(3).filter_map(|window| match [&window[0].kind, &window[1].kind, &window[2].kind] {
        [before, TokenKind::Name(name), TokenKind::Mark('(')]
            if matches!(name.as_str(), "sleep" | "sleep_until" | "sleep_ms")
                && *before != TokenKind::Mark('.')
                && *before != TokenKind::Name("fn".to_owned()) =>
        {
            Some(window[1].line)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn finished_code_passes() {
        check(unfinished, &[("a.rs", "#[test]\nfn a() { assert!(\"todo!()\" != todo); }")], &[]);
        check(unfinished, &[("a.md", "Nothing to do.")], &[]);
    }

    #[test]
    fn ignored_tests_and_missing_code_are_reported() {
        check(unfinished, &[("a.rs", "#[test]\n#[ignore]\nfn a() {\n    todo!()\n}")], &["a.rs:2", "a.rs:4"]);
        check(unfinished, &[("a.rs", "#[ignore = \"slow\"]\nfn a() { dbg!(1); }")], &["a.rs:1", "a.rs:2"]);
        let note = format!("fn a() {{}} // {}: later\n", NOTES[0]);
        check(
            unfinished,
            &[("a.rs", &note), ("b.sql", &format!("\n-- {}", NOTES[1]))],
            &["a.rs:1", "b.sql:2"],
        );
    }

    #[test]
    fn a_sleep_in_a_test_needs_a_reason() {
        let sleep = "fn a() {\n    std::thread::sleep(x);\n    clock.sleep(x);\n}\n";
        check(sleeps, &[("crates/a/tests/a.rs", sleep)], &["crates/a/tests/a.rs:2"]);
        check(sleeps, &[("crates/a/src/a.rs", sleep)], &[]);
        let excused = "async fn a() {\n    // tidy: sleep because the server has no signal\n    tokio::time::sleep(x).await;\n}";
        check(sleeps, &[("crates/a/tests/a.rs", excused)], &[]);
    }
}
