//! A file is named for its concept: no `mod.rs`, no bucket for leftovers.

use super::tree::{Tree, Violation};

const BUCKETS: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "types"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust() {
        if file.name() == "mod.rs" {
            let advice = format!("move it to `{}.rs`", file.folder());
            violations.push(file.violation(1, "file-name", advice));
        }
        let bucket =
            file.path.split('/').map(|part| part.trim_end_matches(".rs")).find(|part| BUCKETS.contains(part));
        if let Some(bucket) = bucket {
            violations.push(file.violation(1, "file-name", advice(bucket)));
        }
        let inline = source.modules.iter().filter(|module| !module.elsewhere);
        for module in inline.filter(|module| BUCKETS.contains(&module.name.as_str())) {
            violations.push(file.violation(module.line, "file-name", advice(&module.name)));
        }
    }
    violations
}

fn advice(bucket: &str) -> String {
    format!("`{bucket}` names no concept: call it after what it holds")
}

#[cfg(test)]
mod tests {
    use super::super::check as check_rule;
    use super::*;

    #[test]
    fn concepts_pass() {
        check_rule(
            check,
            &[("crates/a/src/lib.rs", "mod retry; mod inline {}"), ("crates/a/src/retry.rs", "")],
            &[],
        );
    }

    #[test]
    fn buckets_and_mod_files_do_not() {
        let files = [
            ("crates/a/src/b/mod.rs", ""),
            ("crates/a/src/utils.rs", ""),
            ("crates/a/src/common/retry.rs", ""),
            ("crates/a/src/c.rs", "\nmod helpers {}"),
        ];
        let places = [
            "crates/a/src/b/mod.rs:1",
            "crates/a/src/c.rs:2",
            "crates/a/src/common/retry.rs:1",
            "crates/a/src/utils.rs:1",
        ];
        check_rule(check, &files, &places);
    }
}
