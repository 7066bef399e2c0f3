//! Dependencies point one way, and each has a reason.
//!
//! ```text
//!   core ◄ {postgres, sqlite, runtime} ◄ server ◄ cli        facade: all libraries
//!   {core, postgres, sqlite} ◄ sinks ◄ server                an inbox is a table, and tables are the stores' affair
//!   testkit: core and runtime; everywhere else it is a dev-dependency
//! ```

use super::tree::{TextFile, Tree, Violation};

/// Each crate, and which of ours it may depend on. Dev-dependencies are free: tests may look around.
const ALLOWED: &[(&str, &[&str])] = &[
    ("postrider-core", &[]),
    ("postrider-postgres", &["postrider-core"]),
    ("postrider-sqlite", &["postrider-core"]),
    ("postrider-sinks", &["postrider-core", "postrider-postgres", "postrider-sqlite"]),
    ("postrider-runtime", &["postrider-core"]),
    ("postrider-testkit", &["postrider-core", "postrider-runtime"]),
    ("postrider-server", LIBRARIES),
    ("postrider", FACADE),
    ("postrider-cli", CLI),
];

const LIBRARIES: &[&str] =
    &["postrider-core", "postrider-postgres", "postrider-sqlite", "postrider-sinks", "postrider-runtime"];
const FACADE: &[&str] = &[
    "postrider-core",
    "postrider-postgres",
    "postrider-sqlite",
    "postrider-sinks",
    "postrider-runtime",
    "postrider-server",
];
const CLI: &[&str] = &[
    "postrider",
    "postrider-core",
    "postrider-postgres",
    "postrider-sqlite",
    "postrider-sinks",
    "postrider-runtime",
    "postrider-server",
];

struct Dependency {
    line: usize,
    name: String,
    dev: bool,
    reason: bool,
}

/// A crate depends only on crates below it.
pub(crate) fn direction(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in manifests(tree).filter(|file| file.path.starts_with("crates/")) {
        let crate_name = file.folder().rsplit('/').next().unwrap_or_default();
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == crate_name) else {
            let advice = format!("`{crate_name}` has no place in the order of crates: give it one in xtask");
            violations.push(file.violation(1, "dependency-direction", advice));
            continue;
        };
        for dependency in dependencies(file) {
            let ours = dependency.name == "postrider" || dependency.name.starts_with("postrider-");
            if ours && !dependency.dev && !allowed.contains(&dependency.name.as_str()) {
                let advice =
                    format!("`{crate_name}` must not depend on `{}`: see ARCHITECTURE.md", dependency.name);
                violations.push(file.violation(dependency.line, "dependency-direction", advice));
            }
        }
    }
    violations
}

/// Each dependency says in a comment on its line what it is for.
pub(crate) fn reasons(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in manifests(tree) {
        for dependency in dependencies(file).into_iter().filter(|dependency| !dependency.reason) {
            let advice = format!("say what `{}` is for: `# reason` at the end of its line", dependency.name);
            violations.push(file.violation(dependency.line, "dependency-reason", advice));
        }
    }
    violations
}

/// The manifests of the workspace's members.
fn manifests(tree: &Tree) -> impl Iterator<Item = &TextFile> {
    tree.files.iter().filter(|file| file.name() == "Cargo.toml" && !file.folder().is_empty())
}

/// Reads the few shapes that manifests have: `name = …`, `name.workspace = true`, `[dependencies.name]`.
fn dependencies(file: &TextFile) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut section = Section::Other;
    let mut depth = 0;
    for (index, line) in file.text.lines().enumerate() {
        let (code, comment) = split_comment(line);
        let reason = comment.is_some_and(|comment| !comment.trim().is_empty());
        if depth > 0 {
            // A list that goes on over several lines may have its reason on any of them.
            found.last_mut().into_iter().for_each(|dependency| dependency.reason |= reason);
        } else if let Some(header) = code.trim().strip_prefix('[') {
            section = Section::of(header.trim_end_matches(']'));
            if let Section::One { name, dev } = &section {
                found.push(Dependency { line: index + 1, name: name.clone(), dev: *dev, reason });
            }
        } else if let (Section::List { dev }, Some((key, _))) = (&section, code.split_once('=')) {
            let name = key.trim().split('.').next().unwrap_or_default().trim_matches('"').to_owned();
            found.push(Dependency { line: index + 1, name, dev: *dev, reason });
        }
        if let Section::One { .. } = section {
            found.last_mut().into_iter().for_each(|dependency| dependency.reason |= reason);
        } else if let Section::List { .. } = section {
            depth += brackets(code);
        }
    }
    found
}

enum Section {
    List { dev: bool },
    One { name: String, dev: bool },
    Other,
}

impl Section {
    fn of(header: &str) -> Self {
        let (table, name) = match header.rsplit_once("dependencies.") {
            Some((table, name)) => (format!("{table}dependencies"), Some(name.trim_matches('"'))),
            None => (header.to_owned(), None),
        };
        let kind = table.rsplit('.').next().unwrap_or_default();
        let dev = kind == "dev-dependencies";
        if !(dev || kind == "dependencies" || kind == "build-dependencies") || table.starts_with("workspace")
        {
            return Self::Other;
        }
        name.map_or(Self::List { dev }, |name| Self::One { name: name.to_owned(), dev })
    }
}

/// The line before its comment, and the comment. A `#` inside quotes is no comment.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return (&line[..at], Some(&line[at + 1..])),
            _ => {}
        }
    }
    (line, None)
}

fn brackets(code: &str) -> i32 {
    let count = |wanted: &[char]| code.chars().filter(|c| wanted.contains(c)).count() as i32;
    count(&['[', '{']) - count(&[']', '}'])
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn manifest(name: &str, text: &str) -> (String, String) {
        (format!("crates/{name}/Cargo.toml"), format!("[package]\n{text}"))
    }

    fn check_manifest(rule: super::super::Rule, name: &str, text: &str, lines: &[usize]) {
        let (path, text) = manifest(name, text);
        let places: Vec<String> = lines.iter().map(|line| format!("{path}:{line}")).collect();
        check(rule, &[(&path, &text)], &places.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn dependencies_that_point_down_pass() {
        check_manifest(direction, "postrider-server", "[dependencies]\npostrider-core.workspace = true", &[]);
        check_manifest(
            direction,
            "postrider-sqlite",
            "[dev-dependencies]\npostrider-testkit.workspace = true",
            &[],
        );
        check_manifest(direction, "postrider-core", "[features]\npostrider-cli = []", &[]);
    }

    #[test]
    fn dependencies_that_point_up_or_sideways_do_not() {
        check_manifest(
            direction,
            "postrider-core",
            "[dependencies]\npostrider-runtime.workspace = true",
            &[3],
        );
        check_manifest(
            direction,
            "postrider-runtime",
            "[dependencies.postrider-sqlite]\nworkspace = true",
            &[2],
        );
        check_manifest(
            direction,
            "postrider-cli",
            "[target.'cfg(unix)'.dependencies]\npostrider-testkit = { path = \"x\" }",
            &[3],
        );
        check_manifest(direction, "postrider-new", "", &[1]);
    }

    #[test]
    fn a_dependency_without_a_reason_is_reported() {
        check_manifest(reasons, "a", "[dependencies]\nserde = \"1\" # config\n", &[]);
        check_manifest(reasons, "a", "[dependencies]\nserde = \"1\"\nx.workspace = true #\n", &[3, 4]);
        check_manifest(
            reasons,
            "a",
            "[dependencies]\nx = { version = \"1\", features = [\n \"a\",\n] } # why\n",
            &[],
        );
        check_manifest(reasons, "a", "[dependencies.x]\nversion = \"#1\"\n", &[2]);
        check_manifest(reasons, "a", "[dependencies.x]\nfeatures = [] # why\n", &[]);
    }
}
