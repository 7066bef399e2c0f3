//! Rooms of a crate import each other in one direction.
//!
//! A room is a module at a crate's root with all that is below it. An import is a path that begins with
//! `crate::ROOM`, in a `use` or elsewhere, outside of tests. Names that the root exports again are not
//! followed.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_source::{RustSource, TokenKind};
use super::tree::{TextFile, Tree, Violation};

/// Cycles that are still there. They may shrink and must then shrink here too; none may grow.
const KNOWN: &[(&str, &[&str])] = &[
    (
        "crates/postrider-cli/src",
        &[
            "args",
            "commands",
            "config",
            "confirm",
            "exit",
            "jsonl",
            "log",
            "output",
            "progress",
            "shard_map",
            "signal",
            "store_url",
            "why",
        ],
    ),
    (
        "crates/postrider-postgres/src",
        &["admin", "log", "ownership", "queue", "retention", "settle", "store", "wake", "wal"],
    ),
    ("crates/postrider-postgres/src", &["options", "replication", "server"]),
    ("crates/postrider-sinks/src", &["bare", "http", "kafka", "nats", "redis"]),
];

/// Rooms, each with the rooms that it imports.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(crate) fn cycles(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (source, imports) in crates(tree) {
        let Some(root) = ["lib.rs", "main.rs"].iter().find_map(|name| tree.get(&format!("{source}/{name}")))
        else {
            continue;
        };
        let known = KNOWN.iter().filter(|(known, _)| *known == source).map(|(_, rooms)| *rooms);
        violations.extend(compare(root, &cycles_of(&imports), known));
    }
    violations
}

fn compare<'a>(
    root: &TextFile,
    found: &[BTreeSet<&str>],
    known: impl Iterator<Item = &'a [&'a str]>,
) -> Vec<Violation> {
    let known: Vec<BTreeSet<&str>> = known.map(|rooms| rooms.iter().copied().collect()).collect();
    let mut violations = Vec::new();
    for cycle in found.iter().filter(|cycle| !known.iter().any(|rooms| cycle.is_subset(rooms))) {
        let rooms = cycle.iter().copied().collect::<Vec<_>>().join(", ");
        let advice = format!("rooms import each other: {rooms}; move what they share to a room below them");
        violations.push(root.violation(1, "doors", advice));
    }
    for rooms in known.iter().filter(|rooms| !found.contains(rooms)) {
        let rooms = rooms.iter().copied().collect::<Vec<_>>().join(", ");
        let advice = format!("this cycle has shrunk or grown: write it down as it is in xtask: {rooms}");
        violations.push(root.violation(1, "doors", advice));
    }
    violations
}

/// The `src` folder of each crate, with its rooms and their imports.
fn crates(tree: &Tree) -> BTreeMap<&str, Imports<'_>> {
    let mut crates: BTreeMap<&str, Imports<'_>> = BTreeMap::new();
    for (file, _) in tree.rust() {
        if let Some((source, room)) = room_of(file) {
            crates.entry(source).or_default().entry(room).or_default();
        }
    }
    for (file, rust) in tree.rust() {
        let Some((source, room)) = room_of(file) else { continue };
        let Some(imports) = crates.get_mut(source) else { continue };
        let rooms: BTreeSet<&str> = imports.keys().copied().collect();
        let named = named_rooms(rust).into_iter().filter_map(|name| rooms.get(name).copied());
        imports.entry(room).or_default().extend(named.filter(|other| *other != room));
    }
    crates
}

/// The `src` folder that a file is in, and its room; none for the root.
fn room_of(file: &TextFile) -> Option<(&str, &str)> {
    let (source, inside) = file.path.split_at(file.path.find("/src/")? + "/src".len());
    let room = inside[1..].split('/').next()?;
    let room = room.strip_suffix(".rs").unwrap_or(room);
    (source.starts_with("crates/") && !["lib", "main", "bin"].contains(&room)).then_some((source, room))
}

/// What follows `crate::` outside of tests: one name, or the first ones in braces.
fn named_rooms(rust: &RustSource) -> Vec<&str> {
    let mut names = Vec::new();
    for (index, token) in rust.tokens.iter().enumerate() {
        let is_crate = matches!(&token.kind, TokenKind::Name(name) if name == "crate");
        if is_crate && !rust.is_test(token.line) {
            names.extend(names_behind(rust, index + 1));
        }
    }
    names
}

fn names_behind(rust: &RustSource, at: usize) -> Vec<&str> {
    let kinds = || rust.tokens[at..].iter().map(|token| &token.kind);
    if !kinds().take(2).all(|kind| *kind == TokenKind::Mark(':')) {
        return Vec::new();
    }
    let mut kinds = kinds().skip(2);
    match kinds.next() {
        Some(TokenKind::Name(name)) => return vec![name],
        Some(TokenKind::Mark('{')) => {}
        _ => return Vec::new(),
    }
    let (mut names, mut depth, mut begins) = (Vec::new(), 1, true);
    for kind in kinds {
        match kind {
            TokenKind::Mark('{') => depth += 1,
            TokenKind::Mark('}') => depth -= 1,
            TokenKind::Name(name) if depth == 1 && begins => names.push(name.as_str()),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        begins = depth == 1 && *kind == TokenKind::Mark(',');
    }
    names
}

/// Sets of rooms of which each reaches all others.
fn cycles_of<'a>(imports: &Imports<'a>) -> Vec<BTreeSet<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|room| (*room, reach(imports, room))).collect();
    let mut cycles: Vec<BTreeSet<&'a str>> = Vec::new();
    for (room, _) in imports.iter().filter(|(room, _)| reached[**room].contains(**room)) {
        let cycle: BTreeSet<&'a str> = imports
            .keys()
            .copied()
            .filter(|other| reached[room].contains(other) && reached[other].contains(room))
            .collect();
        if !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reach<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ahead: Vec<&str> = imports[from].iter().copied().collect();
    while let Some(room) = ahead.pop() {
        if let Some((room, next)) = imports.get_key_value(room)
            && reached.insert(*room)
        {
            ahead.extend(next.iter().copied());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn imports_in_one_direction_pass() {
        let files = [
            ("crates/a/src/lib.rs", "mod low; mod high; use crate::high::X;"),
            ("crates/a/src/low.rs", "#[cfg(test)] mod tests { use crate::high::X; }"),
            ("crates/a/src/high.rs", "use crate::{low::Y, Z}; mod inside;"),
            ("crates/a/src/high/inside.rs", "use crate::high::X; fn f() { crate::low::g() }"),
        ];
        check(cycles, &files, &[]);
    }

    #[test]
    fn rooms_that_import_each_other_are_found_wherever_they_name_each_other() {
        let files = [
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/one/deep.rs", "use crate::{other::{X, Y}, two::Z};"),
            ("crates/a/src/two.rs", "fn f() -> u8 { crate::three::g() }"),
            ("crates/a/src/three.rs", "use crate::one::deep::W;"),
            ("crates/a/src/other.rs", ""),
        ];
        check(cycles, &files, &["crates/a/src/lib.rs:1"]);
        let tree = Tree::of(&files);
        assert!(cycles(&tree)[0].advice.contains("one, three, two;"), "{:?}", cycles(&tree));
    }

    #[test]
    fn a_known_cycle_must_be_written_down_as_it_is() {
        let tree = Tree::of(&[("crates/a/src/lib.rs", "")]);
        let (root, both) = (tree.get("crates/a/src/lib.rs").unwrap(), ["a", "b"]);
        let found = [BTreeSet::from(both)];
        assert_eq!(compare(root, &found, [&both[..]].into_iter()), []);
        assert_eq!(compare(root, &found, [&["a", "b", "c"][..]].into_iter()).len(), 1, "it has shrunk");
        assert_eq!(compare(root, &found, [&["b", "c"][..]].into_iter()).len(), 2, "it is another one");
    }
}
