//! The rules that the repository keeps about itself.
//!
//! A rule is a function from the tree to its violations, one file a theme. An exception is written where
//! it is made, with its reason: a comment `tidy: <word> because <reason>` on the line or directly above it.
//!
//! | file | rules | exception |
//! |---|---|---|
//! | `dead_files` | every module and every statement is used | none |
//! | `doors` | rooms of a crate do not import each other in a circle | the list of known ones, which only shrinks |
//! | `lengths` | functions of at most 70 lines, files of at most 600 | `long`; `//! tidy: long file: …` |
//! | `words` | glossary words only | `foreign` |
//! | `manifests` | dependencies point one way, each has a reason | none |
//! | `statements` | one statement a `.sql` file, with purpose, index and locks | none |
//! | `names` | no `mod.rs`, no bucket for leftovers | none |
//! | `sql_outside_stores` | no SQL in runtime, server and CLI | `sql` |
//! | `leftovers` | nothing ignored, unfinished or slept over | `sleep` |
//! | `documents` | the changelog has a place for the next change | none |
//! | `text` | clean line ends, prose of at most 120 columns, no paths of one machine | `path` |

mod dead_files;
mod documents;
mod doors;
mod leftovers;
mod lengths;
mod manifests;
mod names;
mod rust_source;
mod sql_outside_stores;
mod statements;
mod text;
mod tree;
mod words;

use std::path::Path;

use anyhow::{Result, bail};

use self::tree::{Tree, Violation};

type Rule = fn(&Tree) -> Vec<Violation>;

const RULES: &[Rule] = &[
    dead_files::modules,
    dead_files::statements,
    doors::cycles,
    lengths::functions,
    lengths::files,
    words::check,
    manifests::direction,
    manifests::reasons,
    statements::check,
    names::check,
    sql_outside_stores::check,
    leftovers::unfinished,
    leftovers::sleeps,
    documents::changelog,
    text::line_ends,
    text::widths,
    text::machine_paths,
];

/// Prints every violation and fails if there is one.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let mut violations: Vec<Violation> = tree.unreadable();
    violations.extend(RULES.iter().flat_map(|rule| rule(&tree)));
    violations.sort();
    violations.dedup();
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        eprintln!("{} files keep all rules", tree.files.len());
        return Ok(());
    }
    bail!("{} violations of the repository's rules", violations.len())
}

/// For the tests of the rules: these files break `rule` at exactly these places, `path:line`.
#[cfg(test)]
fn check(rule: Rule, files: &[(&str, &str)], places: &[&str]) {
    let tree = Tree::of(files);
    assert!(tree.unreadable().is_empty(), "{:?}", tree.unreadable());
    let mut found: Vec<String> = rule(&tree).iter().map(|v| format!("{}:{}", v.path, v.line)).collect();
    found.sort();
    assert_eq!(found, places, "{:#?}", rule(&tree));
}
