//! A config as it is written: a tree that knows where each of its parts stands, and all that is wrong with
//! it.
//!
//! Tables become structs one at a time. A deserializer stops at its first complaint, so what that is about is
//! taken out and the rest is read again, until there is nothing left to complain about: people get all
//! mistakes at once.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::{self, Variable};
use super::problem::{Place, Problem, Problems, in_plain_words};

/// A table, with the place of its heading.
pub(super) type Table<'t> = Spanned<DeTable<'t>>;

/// The file's text as a tree, with the keys of variables put in.
#[derive(Debug)]
pub(super) struct Document<'t> {
    file: String,
    text: &'t str,
    /// Variables have places behind the end of the text: their numbers, counted from there.
    variables: &'t [Variable],
    root: DeTable<'t>,
    problems: Vec<Problem>,
}

impl<'t> Document<'t> {
    /// Reads a text; its syntax is told first, since nothing else can be known before that is right.
    pub(super) fn parse(file: &str, text: &'t str) -> Result<Self, Problems> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let root = root.into_inner();
        let mut document = Self { file: file.to_owned(), text, variables: &[], root, problems: Vec::new() };
        for error in errors.into_iter().take(Problems::TOLD_MAX) {
            document.problem(error.span().unwrap_or(0..0), error.message().to_owned(), None);
        }
        document.is_sound()?;
        Ok(document)
    }

    /// Puts the keys of environment variables in.
    pub(super) fn put_variables(&mut self, variables: &'t [Variable]) {
        self.variables = variables;
        for (index, variable) in variables.iter().enumerate() {
            let at = self.text.len() + 1 + index;
            let value = environment::relocate(environment::value_of(&variable.value), &(at..at));
            if let Err(reason) = environment::put(&mut self.root, &variable.path, value) {
                self.problem(at..at, reason, Some("rename one of them".to_owned()));
            }
        }
    }

    /// The file as a whole.
    pub(super) fn top(&self) -> Table<'t> {
        Spanned::new(0..0, self.root.clone())
    }

    /// The tables of a section, by name, in the order of the file.
    pub(super) fn section(&mut self, section: &str) -> Vec<(Spanned<String>, Table<'t>)> {
        let Some(value) = self.root.get(section).cloned() else { return Vec::new() };
        let span = value.span();
        let DeValue::Table(tables) = value.into_inner() else {
            let hint = format!("write [{section}.NAME] and its keys below that");
            self.problem(span, format!("`{section}` is a table of tables"), Some(hint));
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, value) in tables {
            let (span, name) = (value.span(), Spanned::new(name.span(), name.into_inner().into_owned()));
            if let DeValue::Table(table) = value.into_inner() {
                found.push((name, Spanned::new(span, table)));
            } else {
                let hint = format!("write [{section}.{}] and its keys below that", name.get_ref());
                self.problem(name.span(), format!("`{section}.{}` is a table", name.get_ref()), Some(hint));
            }
        }
        found.sort_by_key(|(name, _)| name.span().start);
        found
    }

    /// Reads a table as `T`, with all complaints noted; none if something is missing that it needs.
    pub(super) fn read<T: DeserializeOwned>(&mut self, table: &Table<'t>) -> Option<T> {
        let span = table.span();
        self.read_as(table, |rest| {
            T::deserialize(toml::de::Deserializer::from(Spanned::new(span.clone(), rest)))
        })
    }

    /// Reads a table by a reader of one's own.
    pub(super) fn read_as<T>(
        &mut self,
        table: &Table<'t>,
        reader: impl Fn(DeTable<'t>) -> Result<T, toml::de::Error>,
    ) -> Option<T> {
        let span = table.span();
        let mut rest = table.get_ref().clone();
        let mut taken_out: Vec<String> = Vec::new();
        loop {
            let error = match reader(rest.clone()) {
                Ok(value) => return Some(value),
                Err(error) => error,
            };
            let at = error.span().unwrap_or(span.clone());
            let Some(key) = entry_at(&rest, &at) else {
                let is_consequence =
                    taken_out.iter().any(|key| error.message().ends_with(&format!("field `{key}`")));
                if !is_consequence {
                    let (message, hint) = in_plain_words(error.message());
                    self.problem(at, message, hint);
                }
                return None;
            };
            if let Some(value) = rest.get_mut(key.as_str())
                && let Some(text) = self.text_of_variable(value)
            {
                // What looks like a number in a variable may be meant as a text.
                *value = Spanned::new(value.span(), DeValue::String(text.into()));
                continue;
            }
            let (message, hint) = in_plain_words(error.message());
            self.problem(at, message, hint);
            rest.remove(key.as_str());
            taken_out.push(key);
        }
    }

    /// Notes a mistake.
    pub(super) fn problem(&mut self, at: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        if self.is_full() {
            return;
        }
        let place = self.place(at.start);
        self.problems.push(Problem { place, message: message.into(), hint });
    }

    /// Fails with all mistakes that were noted, if there are any.
    pub(super) fn is_sound(&self) -> Result<(), Problems> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let mut told = self.problems.clone();
        told.sort();
        told.dedup();
        Err(Problems { told, more: self.is_full(), log_format: None })
    }

    /// Whether so many mistakes were noted that further ones are not reported.
    pub(super) fn is_full(&self) -> bool {
        self.problems.len() >= Problems::TOLD_MAX
    }

    /// Where something stands.
    fn place(&self, at: usize) -> Place {
        if let Some(variable) = self.variable_at(at) {
            return Place::Variable { variable: variable.name.clone() };
        }
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Place::File {
            file: self.file.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    fn variable_at(&self, at: usize) -> Option<&'t Variable> {
        at.checked_sub(self.text.len() + 1).and_then(|index| self.variables.get(index))
    }

    /// The text of a variable whose value was taken for something else than a text.
    fn text_of_variable(&self, value: &Spanned<DeValue<'t>>) -> Option<String> {
        let is_plain = !value.get_ref().is_str() && !value.get_ref().is_table();
        let variable = self.variable_at(value.span().start).filter(|_| is_plain)?;
        Some(variable.value.clone())
    }
}

/// The key of the entry in which something stands.
fn entry_at(table: &DeTable<'_>, at: &Range<usize>) -> Option<String> {
    let holds = |span: Range<usize>| span.start <= at.start && at.end <= span.end;
    let entry = table.iter().find(|(key, value)| holds(key.span()) || holds(value.span()))?;
    Some(entry.0.get_ref().to_string())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        name: Option<String>,
        count: Option<u32>,
        words: Option<Vec<String>>,
        must: String,
    }

    fn told(document: &Document<'_>) -> Vec<String> {
        document
            .is_sound()
            .err()
            .map_or_else(Vec::new, |all| all.told.iter().map(ToString::to_string).collect())
    }

    fn read(text: &str, environment: &[(&str, &str)]) -> (Option<Keys>, Vec<String>) {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables = environment::variables(environment, &["count"]);
        let mut document = Document::parse("p.toml", text).unwrap();
        document.put_variables(&variables);
        let (_, table) = document.section("sinks").remove(0);
        let keys = document.read(&table);
        (keys, told(&document))
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_line_and_column() {
        let text = "[sinks.a]\nnam = 'x'\n  count = 'hunter2'\nwords = ['a', 5]\nmust = 'y'\n";
        let (keys, told) = read(text, &[]);
        assert_eq!(keys, Some(Keys { must: "y".into(), ..Keys::default() }));
        assert_eq!(
            told,
            [
                "p.toml:2:1: unknown key `nam`; did you mean `name`?",
                "p.toml:3:11: it is a text, and should be a whole number",
                "p.toml:4:15: it is a whole number, and should be a text in quotes",
            ]
        );
    }

    #[test]
    fn what_is_missing_is_told_at_the_heading_and_only_once() {
        let (keys, told) = read("\n[sinks.a]\nname = 'x'\n", &[]);
        assert_eq!((keys, told), (None, vec!["p.toml:2:1: the key `must` is missing".to_owned()]));
        let (keys, told) = read("[sinks.a]\nmust = 5\n", &[]);
        let expected = "p.toml:2:8: it is a whole number, and should be a text in quotes".to_owned();
        assert_eq!((keys, told), (None, vec![expected]));
    }

    #[test]
    fn syntax_is_told_first_and_without_the_text() {
        let text = "[sinks.a]\nmust = hunter2\nname = 'x' hunter3\n";
        let told = Document::parse("p.toml", text).unwrap_err().to_string();
        assert!(told.starts_with("p.toml:2:8: ") && told.contains("\np.toml:3:12: "), "{told}");
        assert!(!told.contains("hunter"), "{told}");
    }

    #[test]
    fn columns_count_characters() {
        let told = Document::parse("p.toml", "a = 'ü' x\n").unwrap_err().to_string();
        assert!(told.starts_with("p.toml:1:9: "), "{told}");
    }

    #[test]
    fn variables_win_over_the_file_and_are_named_when_they_are_wrong() {
        let text = "[sinks.my-out]\nmust = 'file'\nname = 'n'\n";
        let variables = [
            ("POSTRIDER_SINKS__MY_OUT__MUST", "12345"),
            ("POSTRIDER_SINKS__MY_OUT__COUNT", "7"),
            ("POSTRIDER_SINKS__MY_OUT__WORDS", "['a', 'b']"),
        ];
        let (keys, told) = read(text, &variables);
        let words = Some(vec!["a".to_owned(), "b".to_owned()]);
        let expected = Keys { must: "12345".into(), name: Some("n".into()), count: Some(7), words };
        assert_eq!((keys, told), (Some(expected), vec![]));
        let (_, told) = read(text, &[("POSTRIDER_SINKS__MY_OUT__COUNT", "many")]);
        assert_eq!(told, ["POSTRIDER_SINKS__MY_OUT__COUNT: it is a text, and should be a whole number"]);
        let (_, told) = read(text, &[("POSTRIDER_SINKS__MY_OUT__COUN", "7")]);
        assert_eq!(told, ["POSTRIDER_SINKS__MY_OUT__COUN: unknown key `coun`; did you mean `count`?"]);
    }

    #[test]
    fn a_variable_that_may_be_for_two_is_a_mistake() {
        let text = "[sinks.a-b]\nmust = 'x'\n[sinks.'a.b']\nmust = 'x'\n";
        let (_, told) = read(text, &[("POSTRIDER_SINKS__A_B__MUST", "7")]);
        let expected = "POSTRIDER_SINKS__A_B__MUST: it may stand for a-b or a.b: their names are the same in a variable; \
                        rename one of them";
        assert_eq!(told, [expected]);
    }

    #[test]
    fn a_section_holds_tables() {
        let mut document = Document::parse("p.toml", "sinks = 5\n[stores]\na = 5\n").unwrap();
        assert!(document.section("sinks").is_empty() && document.section("stores").is_empty());
        assert_eq!(
            told(&document),
            [
                "p.toml:1:9: `sinks` is a table of tables; write [sinks.NAME] and its keys below that",
                "p.toml:3:1: `stores.a` is a table; write [stores.a] and its keys below that",
            ]
        );
    }
}
