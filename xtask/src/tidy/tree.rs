//! The files of the repository, read once for all rules.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::rust_source::RustSource;

/// Folders that hold no source: built, fetched, or third-party.
const SKIPPED: &[&str] = &["target", "node_modules", "packages", "corpus"];
/// Hidden folders that hold source all the same.
const HIDDEN_SOURCE: &[&str] = &[".cargo", ".ci", ".config", ".github"];

pub(crate) struct Tree {
    pub(crate) files: Vec<TextFile>,
}

pub(crate) struct TextFile {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text as Rust, if it is, or why it cannot be read.
    rust: Option<Result<RustSource, String>>,
}

/// One broken rule. The order of the fields is the order of the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) advice: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

impl Tree {
    /// Reads every text file below `root`. The file system is asked, not git: the rules hold for a change
    /// that is not committed yet and for a copy without history.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        read_folder(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// A tree for the tests of the rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| TextFile::new((*path).to_owned(), (*text).to_owned()));
        Self { files: files.collect() }
    }

    pub(crate) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(move |file| file.extension() == extension)
    }

    /// All Rust files that can be read as such.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&TextFile, &RustSource)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?.as_ref().ok()?)))
    }

    /// Rust files that no rule can look into.
    pub(crate) fn unreadable(&self) -> Vec<Violation> {
        let broken = |file: &TextFile| match &file.rust {
            Some(Err(error)) => Some(file.violation(1, "unreadable", format!("not Rust: {error}"))),
            _ => None,
        };
        self.files.iter().filter_map(broken).collect()
    }

    pub(crate) fn get(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl TextFile {
    fn new(path: String, text: String) -> Self {
        let mut file = Self { path, text, rust: None };
        file.rust = (file.extension() == "rs").then(|| RustSource::parse(&file.path, &file.text));
        file
    }

    pub(crate) fn rust(&self) -> Option<&RustSource> {
        self.rust.as_ref()?.as_ref().ok()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(crate) fn stem(&self) -> &str {
        self.name().split_once('.').map_or(self.name(), |(stem, _)| stem)
    }

    pub(crate) fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// The folder it lies in; empty for the root.
    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    pub(crate) fn violation(&self, line: usize, rule: &'static str, advice: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line, rule, advice: advice.into() }
    }

    /// Whether `line` (counted from 1), or the comments and attributes directly above it, give a reason
    /// for an exception: `tidy: <word> because <reason>`.
    pub(crate) fn excuses(&self, line: usize, word: &str) -> bool {
        let marker = format!("tidy: {word} because ");
        let says =
            |line: &&str| line.split_once(&marker).is_some_and(|(_, reason)| !reason.trim().is_empty());
        let lines: Vec<&str> = self.text.lines().take(line).collect();
        let Some((own, above)) = lines.split_last() else { return false };
        let beside = |line: &&&str| {
            let line = line.trim_start();
            ["//", "--", "#", "<!--"].iter().any(|start| line.starts_with(start))
        };
        says(own) || above.iter().rev().take_while(beside).any(says)
    }
}

fn read_folder(root: &Path, below: &str, files: &mut Vec<TextFile>) -> Result<()> {
    let folder = root.join(below);
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let hidden = name.starts_with('.') && !HIDDEN_SOURCE.contains(&name.as_str());
            if !hidden && !SKIPPED.contains(&name.as_str()) {
                read_folder(root, &path, files)?;
            }
        } else if kind.is_file() && name != "Cargo.lock" && name != ".git" {
            let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
            // What is not text, an image or a database, has no lines to check.
            if let Ok(text) = String::from_utf8(bytes)
                && !text.contains('\0')
            {
                files.push(TextFile::new(path, text));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excuse_needs_the_word_a_reason_and_the_right_place() {
        let text =
            "// tidy: long because a table\n#[x]\nfn a() {}\n\nfn b() {} // tidy: long because \nfn c() {}";
        let file = TextFile::new("a.rs".to_owned(), text.to_owned());
        assert!(file.excuses(3, "long"));
        assert!(!file.excuses(3, "sleep"));
        assert!(!file.excuses(5, "long"), "no reason");
        assert!(!file.excuses(6, "long"), "the comment belongs to another line");
    }

    #[test]
    fn a_file_that_is_not_rust_is_reported() {
        assert_eq!(Tree::of(&[("a.rs", "fn (")]).unreadable().len(), 1);
    }
}
