//! Every module and every statement is used.

use std::collections::HashSet;

use super::rust_source::{Module, TokenKind};
use super::tree::{TextFile, Tree, Violation};

/// Folders of a package in which cargo looks for targets.
const TARGET_FOLDERS: &[&str] = &["src", "src/bin", "tests", "benches", "examples"];

/// A file that no module declares is not compiled, and rots.
pub(crate) fn modules(tree: &Tree) -> Vec<Violation> {
    let packages = packages(tree);
    let mut reached: HashSet<&str> = HashSet::new();
    let mut next: Vec<(&TextFile, bool)> = tree
        .rust()
        .map(|(file, _)| file)
        .filter(|file| is_root(tree, &packages, file))
        .map(|f| (f, true))
        .collect();
    while let Some((file, root)) = next.pop() {
        if !reached.insert(&file.path) {
            continue;
        }
        let declared = file.rust().into_iter().flat_map(|source| &source.modules);
        for module in declared.filter(|module| module.elsewhere) {
            next.extend(
                candidates(file, root, module).iter().filter_map(|path| tree.get(path)).map(|f| (f, false)),
            );
        }
    }
    let compiled = |file: &TextFile| {
        inside(&packages, &file.path)
            .is_some_and(|below| TARGET_FOLDERS.iter().any(|folder| below.starts_with(&format!("{folder}/"))))
    };
    tree.rust()
        .map(|(file, _)| file)
        .filter(|file| compiled(file) && !reached.contains(file.path.as_str()))
        .map(|file| file.violation(1, "dead-file", "no module declares this file: declare it or delete it"))
        .collect()
}

/// The folders that hold a package, each with a `/` at its end.
fn packages(tree: &Tree) -> Vec<String> {
    let manifests = tree.files.iter().filter(|file| file.name() == "Cargo.toml");
    let packages = manifests.filter(|file| file.text.lines().any(|line| line.trim() == "[package]"));
    packages.map(|file| format!("{}/", file.folder())).collect()
}

/// The path inside the innermost package.
fn inside<'a>(packages: &[String], path: &'a str) -> Option<&'a str> {
    let package =
        packages.iter().filter(|package| path.starts_with(package.as_str())).max_by_key(|p| p.len())?;
    path.strip_prefix(package.as_str())
}

/// Whether cargo compiles the file as a target of its own.
fn is_root(tree: &Tree, packages: &[String], file: &TextFile) -> bool {
    let Some(below) = inside(packages, &file.path) else { return false };
    let package = &file.path[..file.path.len() - below.len()];
    let named = tree.get(&format!("{package}Cargo.toml")).is_some_and(|manifest| {
        let path =
            |line: &str| line.trim().strip_prefix("path = ").map(|path| path.trim_matches('"').to_owned());
        manifest.text.lines().filter_map(path).any(|path| path == below)
    });
    let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
    let by_place = match folder {
        "" => name == "build.rs",
        "src" => name == "lib.rs" || name == "main.rs",
        _ if TARGET_FOLDERS.contains(&folder) => true,
        _ => {
            name == "main.rs"
                && folder.rsplit_once('/').is_some_and(|(f, _)| TARGET_FOLDERS[1..].contains(&f))
        }
    };
    named || by_place
}

/// Where the content of a module that `file` declares may be.
fn candidates(file: &TextFile, root: bool, module: &Module) -> Vec<String> {
    let folder = file.folder();
    if let Some(path) = &module.path {
        return vec![resolve(&format!("{folder}/{path}"))];
    }
    let mut below =
        if root || file.name() == "mod.rs" { folder.to_owned() } else { format!("{folder}/{}", file.stem()) };
    for outer in &module.inside {
        below = format!("{below}/{outer}");
    }
    vec![format!("{below}/{}.rs", module.name), format!("{below}/{}/mod.rs", module.name)]
}

/// Takes the `.` and `..` out of a path.
fn resolve(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A statement that no code includes is not tested against the schema, and rots.
pub(crate) fn statements(tree: &Tree) -> Vec<Violation> {
    let unused = |file: &&TextFile| file.path.starts_with("crates/") && !is_included(tree, file);
    tree.with_extension("sql")
        .filter(unused)
        .map(|file| file.violation(1, "dead-file", "no `include_str!` names this file: use it or delete it"))
        .collect()
}

/// Whether a Rust file of the same package names the `.sql` file: by its path, or by its stem if a macro of
/// the package adds the ending.
fn is_included(tree: &Tree, file: &TextFile) -> bool {
    let package = |path: &str| path.split('/').take(2).collect::<Vec<_>>().join("/");
    let of_package = || tree.rust().filter(|(source, _)| package(&source.path) == package(&file.path));
    let adds_ending = of_package()
        .any(|(source, _)| source.rust().is_some_and(|rust| rust.texts().any(|(_, text)| text == ".sql")));
    of_package().any(|(source, _)| names(source, file, adds_ending))
}

fn names(source: &TextFile, file: &TextFile, adds_ending: bool) -> bool {
    let Some(rust) = source.rust() else { return false };
    rust.tokens.iter().any(|token| match &token.kind {
        TokenKind::Text(text) if text.rsplit('/').next() == Some(file.name()) => {
            let named = text.trim_start_matches(['.', '/']);
            file.path == named || file.path.ends_with(&format!("/{named}"))
        }
        TokenKind::Text(text) | TokenKind::Name(text) => {
            adds_ending && (text == file.stem() || text.ends_with(&format!("/{}", file.stem())))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    const PACKAGE: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");

    #[test]
    fn declared_files_are_alive_however_deep() {
        let files = [
            PACKAGE,
            ("crates/a/src/lib.rs", "mod b; mod inline { mod d; }\n#[path = \"odd/place.rs\"] mod e;"),
            ("crates/a/src/b.rs", "#[cfg(test)] mod c;"),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/inline/d.rs", ""),
            ("crates/a/src/odd/place.rs", ""),
            ("crates/a/tests/main.rs", "mod cases { mod one; }"),
            ("crates/a/tests/cases/one.rs", ""),
            ("crates/a/src/bin/tool/main.rs", ""),
            ("crates/a/build.rs", ""),
        ];
        check(modules, &files, &[]);
    }

    #[test]
    fn a_file_that_nobody_declares_is_dead() {
        let files = [
            PACKAGE,
            ("crates/a/src/lib.rs", "// mod b;\nmod c {}"),
            ("crates/a/src/b.rs", "mod d;"),
            ("crates/a/src/b/d.rs", ""),
        ];
        check(modules, &files, &["crates/a/src/b.rs:1", "crates/a/src/b/d.rs:1"]);
    }

    #[test]
    fn statements_are_alive_when_included_by_path_or_by_macro() {
        let files = [
            ("crates/a/src/lib.rs", "const A: &str = include_str!(\"../sql/event_list.sql\");"),
            ("crates/a/sql/event_list.sql", ""),
            ("crates/b/src/lib.rs", "mod c; fn f() { concat!(\"../sql/\", \"x\", \".sql\"); sql!(fetch); }"),
            ("crates/b/src/c.rs", "fn g() { sql!(\"settle\"); }"),
            ("crates/b/sql/fetch.sql", ""),
            ("crates/b/sql/settle.sql", ""),
        ];
        check(statements, &files, &[]);
    }

    #[test]
    fn a_statement_that_nobody_includes_is_dead() {
        let files = [
            ("crates/a/src/lib.rs", "const A: &str = include_str!(\"../sql/other_list.sql\");"),
            ("crates/a/sql/list.sql", ""),
            ("crates/a/sql/other_list.sql", ""),
        ];
        check(statements, &files, &["crates/a/sql/list.sql:1"]);
    }
}
