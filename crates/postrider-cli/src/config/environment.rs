//! Keys of a config that come from environment variables.
//!
//! `POSTRIDER_RETENTION` is the key `retention`; `POSTRIDER_SUBSCRIPTIONS__AUDIT__CONCURRENCY` is
//! `concurrency` in the table `[subscriptions.audit]`: two underscores stand between tables and keys. A
//! table's name is compared in capitals, with `_` for whatever a variable's name cannot hold; one that the
//! file does not have is added in small letters.
//!
//! Other variables that begin with `POSTRIDER_` are ignored, because orchestrators make some up, such as
//! `POSTRIDER_PORT`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

const PREFIX: &str = "POSTRIDER_";
/// Tables that hold tables, one for each name.
pub(super) const SECTIONS: [&str; 3] = ["stores", "sinks", "subscriptions"];

/// A variable that is a key: the path to it in small letters, its name and value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) path: Vec<String>,
    pub(super) name: String,
    pub(super) value: String,
}

/// Those of the `environment` that are keys, sorted by name. `top` are the keys outside of tables.
pub(super) fn variables(
    environment: impl IntoIterator<Item = (String, String)>,
    top: &[&str],
) -> Vec<Variable> {
    let mut found: Vec<Variable> = environment
        .into_iter()
        .filter_map(|(name, value)| {
            let path: Vec<String> =
                name.strip_prefix(PREFIX)?.split("__").map(str::to_ascii_lowercase).collect();
            let known = match path.as_slice() {
                [key] => top.contains(&key.as_str()),
                [section, rest @ ..] => {
                    SECTIONS.contains(&section.as_str()) && rest.iter().all(|part| !part.is_empty())
                }
                [] => false,
            };
            known.then_some(Variable { path, name, value })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Puts a value where a variable's path leads, over what is there. Fails if that may be one of several places.
pub(super) fn put<'t>(
    root: &mut DeTable<'t>,
    path: &[String],
    value: Spanned<DeValue<'t>>,
) -> Result<(), String> {
    let span = value.span();
    let [parents @ .., key] = path else { return Ok(()) };
    let mut table = root;
    for part in parents {
        let name = existing(table, part)?.unwrap_or_else(|| part.clone());
        let entry = table.entry(Spanned::new(span.clone(), name.into()));
        let below = entry.or_insert(Spanned::new(span.clone(), DeValue::Table(DeTable::new())));
        if !below.get_ref().is_table() {
            // The file has something else there; the variable's table takes its place, and what it lacks is told.
            *below = Spanned::new(span.clone(), DeValue::Table(DeTable::new()));
        }
        let DeValue::Table(next) = below.get_mut() else { return Ok(()) };
        table = next;
    }
    let name = existing(table, key)?.unwrap_or_else(|| key.clone());
    table.remove(name.as_str());
    table.insert(Spanned::new(span, name.into()), value);
    Ok(())
}

/// The name in a table that a variable's part stands for, if there is one.
fn existing(table: &DeTable<'_>, part: &str) -> Result<Option<String>, String> {
    let names = || table.keys().map(|name| name.get_ref().as_ref());
    if names().any(|name| name == part) {
        return Ok(Some(part.to_owned()));
    }
    let alike: Vec<&str> = names().filter(|name| in_variable(name) == part).collect();
    match alike.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).to_owned())),
        several => {
            Err(format!("it may stand for {}: their names are the same in a variable", several.join(" or ")))
        }
    }
}

fn in_variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// What a variable's text means: a number, a list and so on if it is written like one, else the text itself.
/// A reader that wants a text gets it as it is.
pub(super) fn value_of(text: &str) -> DeValue<'_> {
    match DeValue::parse(text) {
        Ok(parsed) if !parsed.get_ref().is_str() => parsed.into_inner(),
        _ => DeValue::String(text.into()),
    }
}

/// Moves every place within a value to that of its variable.
pub(super) fn relocate<'t>(value: DeValue<'t>, span: &Range<usize>) -> Spanned<DeValue<'t>> {
    let value = match value {
        DeValue::Array(items) => {
            DeValue::Array(items.into_iter().map(|item| relocate(item.into_inner(), span)).collect())
        }
        DeValue::Table(entries) => DeValue::Table(
            entries
                .into_iter()
                .map(|(key, value)| {
                    (Spanned::new(span.clone(), key.into_inner()), relocate(value.into_inner(), span))
                })
                .collect(),
        ),
        other => other,
    };
    Spanned::new(span.clone(), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_are_taken_from_the_environment() {
        let environment = [
            ("POSTRIDER_STORE", "x"),
            ("POSTRIDER_PORT", "tcp://10.0.0.1"),
            ("POSTRIDER_SINKS__OUT__PATH", "y"),
            ("POSTRIDER_SINKS____PATH", "y"),
            ("HOME", "z"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = variables(environment, &["store"]);
        let paths: Vec<String> = found.iter().map(|variable| variable.path.join(".")).collect();
        assert_eq!(paths, ["sinks.out.path", "store"]);
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        assert!(value_of("16").is_integer());
        assert!(value_of("true").is_bool());
        assert!(value_of("[\"a\", \"b\"]").is_array());
        for text in ["", "10s", "order.*", "\"quoted\"", "[a", "env:X"] {
            assert_eq!(value_of(text).as_str(), Some(text), "{text}");
        }
    }
}
