//! Clean line ends, lines that fit a screen, and nothing that is true on one machine only.

use super::tree::{Tree, Violation};

/// Folders of one person or one machine. Written in two halves, so that this file does not contain them.
const PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// The most columns of a line of prose.
const WIDTH_MAX: usize = 120;

pub(crate) fn line_ends(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in &tree.files {
        let lines = file.text.split('\n').enumerate().map(|(index, line)| (index + 1, line));
        for (number, _) in lines.filter(|(_, line)| line.ends_with([' ', '\t', '\r'])) {
            violations.push(file.violation(number, "whitespace", "remove the white space at the line's end"));
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            violations.push(file.violation(
                file.text.lines().count(),
                "whitespace",
                "end the file with a newline",
            ));
        }
    }
    violations
}

pub(crate) fn machine_paths(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            let Some(path) = PATHS.iter().find(|path| begins_in(line, path)) else { continue };
            if !file.excuses(index + 1, "path") {
                let advice = format!("`{path}…` exists on one machine only: use a relative path");
                violations.push(file.violation(index + 1, "machine-path", advice));
            }
        }
    }
    violations
}

/// Comments and prose that a reader need not scroll sideways for. Tables and code cannot be wrapped.
pub(crate) fn widths(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in &tree.files {
        let mut is_code = false;
        for (index, line) in file.text.lines().enumerate() {
            let Some(prose) = prose(file.extension(), line) else {
                is_code = false;
                continue;
            };
            if prose.starts_with("```") {
                is_code = !is_code;
            }
            if !is_code && !prose.starts_with('|') && line.chars().count() > WIDTH_MAX {
                let advice = format!("wrap it: at most {WIDTH_MAX} columns");
                violations.push(file.violation(index + 1, "width", advice));
            }
        }
    }
    violations
}

/// What a line says to a reader; none if it is not written for one.
fn prose<'a>(extension: &str, line: &'a str) -> Option<&'a str> {
    let line = line.trim_start();
    let said = match extension {
        "md" => line,
        "rs" => line.strip_prefix("//")?.trim_start_matches(['/', '!']),
        "sql" => line.strip_prefix("--")?,
        _ => return None,
    };
    Some(said.trim_start())
}

/// Whether an absolute path that begins with `path` is in the line; a part of a longer path is none.
fn begins_in(line: &str, path: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || "._-*}~".contains(c);
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(is_inside))
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn line_ends_are_clean() {
        check(line_ends, &[("a.md", "a\n\nb\n"), ("empty", "")], &[]);
        check(line_ends, &[("a.md", "a \nb\r\nc"), ("b.md", "b")], &["a.md:1", "a.md:2", "a.md:3", "b.md:1"]);
    }

    #[test]
    fn prose_is_wrapped_and_code_and_tables_are_not() {
        let long = "x ".repeat(80);
        let long = long.trim_end();
        for (path, text, places) in [
            ("a.md", format!("{long}\n| {long} |\n```\n{long}\n```\n{long}\n"), &["a.md:1", "a.md:6"][..]),
            (
                "a.rs",
                format!("/// {long}\n/// ```\n/// {long}\nfn a() {{}}\n// {long}\n"),
                &["a.rs:1", "a.rs:5"],
            ),
            ("a.sql", format!("-- {long}\nselect '{long}'\n"), &["a.sql:1"]),
            ("a.toml", format!("# {long}\n"), &[]),
        ] {
            check(widths, &[(path, &text)], places);
        }
    }

    #[test]
    fn paths_of_one_machine_are_reported() {
        for path in PATHS {
            check(machine_paths, &[("a.md", &format!("see `{path}x`\n"))], &["a.md:1"]);
            check(machine_paths, &[("a.md", &format!("https://example.org{path}x and src{path}\n"))], &[]);
            check(machine_paths, &[("a.md", &format!("<!-- tidy: path because told -->\n{path}x\n"))], &[]);
        }
    }
}
