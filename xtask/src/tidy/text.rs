//! Clean line ends, and nothing that is true on one machine only.

use super::tree::{Tree, Violation};

/// Folders of one person or one machine. Written in two halves, so that this file does not contain them.
const PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

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
    fn paths_of_one_machine_are_reported() {
        for path in PATHS {
            check(machine_paths, &[("a.md", &format!("see `{path}x`\n"))], &["a.md:1"]);
            check(machine_paths, &[("a.md", &format!("https://example.org{path}x and src{path}\n"))], &[]);
            check(machine_paths, &[("a.md", &format!("<!-- tidy: path because told -->\n{path}x\n"))], &[]);
        }
    }
}
