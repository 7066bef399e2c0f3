//! The changelog has a place for the next change.

use super::tree::{Tree, Violation};

pub(crate) fn changelog(tree: &Tree) -> Vec<Violation> {
    let has_place = |text: &str| text.lines().any(|line| line.trim_end() == "## [Unreleased]");
    match tree.get("CHANGELOG.md") {
        Some(file) if has_place(&file.text) => Vec::new(),
        _ => vec![Violation {
            path: "CHANGELOG.md".to_owned(),
            line: 1,
            rule: "changelog",
            advice: "add a section `## [Unreleased]`".to_owned(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn the_section_must_be_there() {
        check(changelog, &[("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")], &[]);
        check(changelog, &[("CHANGELOG.md", "# Changelog\n\n## [0.1.0]\n")], &["CHANGELOG.md:1"]);
        check(changelog, &[], &["CHANGELOG.md:1"]);
    }
}
