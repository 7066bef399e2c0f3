//! The runtime, the server and the CLI change state through the store's methods: they contain no SQL.

use super::tree::{Tree, Violation};

const CRATES: &[&str] =
    &["crates/postrider-runtime/src/", "crates/postrider-server/src/", "crates/postrider-cli/src/"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let inside = |path: &str| CRATES.iter().any(|folder| path.starts_with(folder));
    for (file, source) in tree.rust().filter(|(file, _)| inside(&file.path)) {
        for (line, text) in source.texts() {
            if is_sql(text) && !source.is_test(line) && !file.excuses(line, "sql") {
                let advice = "SQL belongs into a store crate: call a method of `Store` or `LogStore`";
                violations.push(file.violation(line, "sql-outside-store", advice));
            }
        }
    }
    violations
}

/// Whether a string begins as a statement does. Help such as "Delete a subscription" is none.
fn is_sql(text: &str) -> bool {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
        .filter(|w| !w.is_empty())
        .collect();
    let has = |word: &str| words.contains(&word);
    match words.as_slice() {
        ["select", what, ..] => has("from") || what.chars().all(char::is_numeric),
        ["insert", "into" | "or", ..] | ["delete", "from", ..] => true,
        ["update", _, "set", ..] => true,
        ["with", _, "as", ..] => has("select"),
        ["create" | "alter" | "drop", "table" | "index" | "trigger" | "view" | "schema", ..] => true,
        ["pragma", _, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check as check_rule;
    use super::*;

    const CLI: &str = "crates/postrider-cli/src/main.rs";

    #[test]
    fn statements_are_told_from_prose() {
        for sql in [
            "select id from event",
            "INSERT INTO event (a)",
            "\n  update event\n set a = 1",
            "delete from t",
            "with a as (select 1) select 2",
            "create table x ()",
            "pragma user_version",
            "select 1",
        ] {
            assert!(is_sql(sql), "{sql}");
        }
        for prose in [
            "Delete a subscription",
            "Create a subscription",
            "update the settings",
            "Select what to show",
            "select all",
            "with --json",
            "",
        ] {
            assert!(!is_sql(prose), "{prose}");
        }
    }

    #[test]
    fn sql_outside_the_stores_is_reported_but_not_in_tests() {
        let bad = "fn a() {\n    run(\"select id from event\");\n}";
        check_rule(check, &[(CLI, bad)], &["crates/postrider-cli/src/main.rs:2"]);
        check_rule(check, &[("crates/postrider-sqlite/src/lib.rs", bad)], &[]);
        check_rule(check, &[(CLI, &format!("#[cfg(test)]\nmod tests {{\n{bad}\n}}"))], &[]);
        check_rule(
            check,
            &[(
                CLI,
                "fn a() {\n    // tidy: sql because it is printed for people\n    run(\"select 1\");\n}",
            )],
            &[],
        );
    }
}
