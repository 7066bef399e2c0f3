//! One statement a `.sql` file, which says what it is for, which index it uses and what it locks.
//!
//! ```sql
//! -- Reads on in the log behind a position.
//! -- Index: primary key of the event, a range from the position on. Locks: none.
//! select …
//! ```
//!
//! The head is the comment at the top: the purpose, then `Index:`, then `Locks:`, on as many lines as they
//! need. Migrations have many statements and tell their own story.

use super::tree::{TextFile, Tree, Violation};

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let ours = |file: &&TextFile| {
        let script = ["/migrations/", "/scripts/"].iter().any(|folder| file.path.contains(folder));
        file.path.starts_with("crates/") && !script
    };
    for file in tree.with_extension("sql").filter(ours) {
        if let Some(part) = missing_part(&file.text) {
            let advice =
                format!("the comment at the top lacks {part}: tell purpose, index and locks, in this order");
            violations.push(file.violation(1, "sql-file", advice));
        }
        let statements = count(&file.text);
        if statements != 1 {
            violations.push(file.violation(1, "sql-file", format!("{statements} statements: one a file")));
        }
    }
    violations
}

/// The first part of the head that is absent, empty or out of order.
fn missing_part(text: &str) -> Option<&'static str> {
    let lines = text.lines().map_while(|line| line.strip_prefix("--"));
    let head = lines.map(str::trim).collect::<Vec<_>>().join(" ").to_lowercase();
    let has_words = |part: &str| part.chars().any(char::is_alphanumeric);
    let (purpose, rest) = head.split_once("index:").unwrap_or((&head, ""));
    let (index, locks) = rest.split_once("locks:").unwrap_or((rest, ""));
    if !has_words(purpose.trim().trim_start_matches("purpose:")) {
        return Some("what it is for");
    }
    if !has_words(index) {
        return Some("`Index: …`");
    }
    (!has_words(locks)).then_some("`Locks: …`")
}

fn count(text: &str) -> usize {
    // Quoted text is blanked too, so that a `;` inside it ends nothing.
    blank(text, true).split(';').filter(|statement| !statement.trim().is_empty()).count()
}

/// The text with comments blanked, line by line the same.
pub(crate) fn without_comments(text: &str) -> String {
    blank(text, false)
}

/// Replaces comments, and quoted text if asked to, by characters that mean nothing.
fn blank(text: &str, quotes: bool) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (length, hide) = span(rest, c);
        let (piece, after) = rest.split_at(length);
        match hide {
            Hide::Comment => result.extend(piece.chars().map(|c| if c == '\n' { c } else { ' ' })),
            Hide::Quoted if quotes => result.extend(piece.chars().map(|c| if c == '\n' { c } else { '\'' })),
            Hide::Quoted | Hide::No => result.push_str(piece),
        }
        rest = after;
    }
    result
}

enum Hide {
    No,
    Comment,
    Quoted,
}

/// How long the piece at the start of `rest` is, and what it is.
fn span(rest: &str, first: char) -> (usize, Hide) {
    let until =
        |begin: usize, end: &str| rest[begin..].find(end).map_or(rest.len(), |at| begin + at + end.len());
    if rest.starts_with("--") {
        return (rest.find('\n').unwrap_or(rest.len()), Hide::Comment);
    }
    if rest.starts_with("/*") {
        return (until(2, "*/"), Hide::Comment);
    }
    match first {
        '\'' | '"' | '`' => (until(1, &first.to_string()), Hide::Quoted),
        '$' => match dollar_tag(rest) {
            Some(tag) => (until(tag.len(), tag), Hide::Quoted),
            None => (1, Hide::No),
        },
        _ => (first.len_utf8(), Hide::No),
    }
}

/// PostgreSQL quotes function bodies as `$$ … $$` or `$name$ … $name$`; `$1` is a parameter.
fn dollar_tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 2;
    let name = &rest[1..end - 1];
    let is_name = name.chars().all(|c| c.is_alphabetic() || c == '_');
    is_name.then_some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::super::check as check_rule;
    use super::*;

    const HEAD: &str = "-- Reads on and\n-- on. Index: primary key.\n-- Locks: none.\n";

    fn sql(text: &str, good: bool) {
        let places: &[&str] = if good { &[] } else { &["crates/a/sql/x.sql:1"] };
        check_rule(check, &[("crates/a/sql/x.sql", text)], places);
    }

    #[test]
    fn one_statement_with_its_head_passes() {
        sql(&format!("{HEAD}select ';' as a, \"b;\" -- no; end\nfrom t /* ; */ where x = $1;\n"), true);
        sql("-- purpose: a\n-- index: b\n-- locks: c\nselect 1", true);
        sql(&format!("{HEAD}create function f() as $body$ a; b; $body$"), true);
    }

    #[test]
    fn a_missing_or_misplaced_part_is_reported() {
        sql("select 1", false);
        sql("-- purpose: a\n-- locks: none\nselect 1", false);
        sql("-- purpose:\n-- index: a\n-- locks: b\nselect 1", false);
        sql("-- Locks: none. Index: none. Reads.\nselect 1", false);
        sql("-- Reads. Index: none. Locks:\nselect 1", false);
        sql("select 1\n-- Reads. Index: none. Locks: none.\n", false);
    }

    #[test]
    fn two_statements_or_none_are_reported() {
        sql(&format!("{HEAD}select 1; select 2;"), false);
        sql(HEAD, false);
    }

    #[test]
    fn migrations_and_scripts_are_free() {
        check_rule(check, &[("crates/a/sql/migrations/001_init.up.sql", "select 1; select 2;")], &[]);
        check_rule(check, &[("crates/a/sql/scripts/try.sql", "select 1; select 2;")], &[]);
    }

    #[test]
    fn lines_stay_where_they_are_without_comments() {
        assert_eq!(without_comments("a -- b\n'--c' /* d\n */ e"), "a     \n'--c'     \n    e");
    }
}
