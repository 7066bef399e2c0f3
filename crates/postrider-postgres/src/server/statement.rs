//! The texts of statements: one file each in the folder `sql`, made to fit the store's schema.

use std::borrow::Cow;

use postrider_core::statement::without_header;
use postrider_core::{Error, Result};

/// The name that the files of the folder `sql` use.
const WRITTEN: &str = "postrider.";
/// What stands for the leaf that a statement reads.
const LEAF: &str = "event_leaf";
/// What stands for the events of that leaf, and for those that were kept, without what breaks a limit.
const EVENT_CUT: &str = "postrider.event_cut";
const KEPT_CUT: &str = "postrider.kept_cut";
/// What stands for the table of positions that is emptied, and for the one that is written.
const OLD: &str = "position_old";
const NEW: &str = "position_new";
/// What managed servers may refuse to tell, and what stands in their place there.
const WAL_FUNCTIONS: [&str; 2] = ["pg_current_wal_insert_lsn()", "pg_current_wal_flush_lsn()"];
const NO_LSN: &str = "null::pg_lsn";

/// One statement. Its header is cut off by the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sql {
    text: &'static str,
    /// The leaf that it reads, if it reads one.
    leaf: Option<u8>,
    /// The table of positions that it empties, if it does.
    old: Option<PositionTable>,
    /// Whether it asks how far the write-ahead log has come.
    wal: WalPlace,
}

/// Whether a server tells how far its write-ahead log has come. Aurora does not, unless
/// `rds.logical_replication` is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum WalPlace {
    #[default]
    Told,
    Withheld,
}

/// One of the two tables that positions are written to in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PositionTable {
    A,
    B,
}

impl PositionTable {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::A => "position_a",
            Self::B => "position_b",
        }
    }
}

impl Sql {
    pub(crate) const fn new(file: &'static str) -> Self {
        Self { text: without_header(file), leaf: None, old: None, wal: WalPlace::Told }
    }

    /// The same on one leaf of the log.
    pub(crate) fn on_leaf(self, leaf: u8) -> Self {
        Self { leaf: Some(leaf), ..self }
    }

    /// The same from one table of positions to the other.
    pub(crate) fn emptying(self, old: PositionTable) -> Self {
        Self { old: Some(old), ..self }
    }

    /// The same for a server that tells how far its write-ahead log has come, or does not.
    pub(crate) fn where_wal_is(self, wal: WalPlace) -> Self {
        Self { wal, ..self }
    }

    pub(crate) fn text(self, schema: &Schema) -> Cow<'static, str> {
        let whole = if self.text.contains(KEPT_CUT) || self.text.contains(EVENT_CUT) {
            let part = |sql: Self| format!("({})", sql.text);
            let text = self.text.replace(EVENT_CUT, &part(sql!("server/event_cut")));
            Cow::Owned(text.replace(KEPT_CUT, &part(sql!("server/kept_cut"))))
        } else {
            Cow::Borrowed(self.text)
        };
        let mut text: Cow<'static, str> = match whole {
            Cow::Borrowed(text) => schema.fit(text),
            Cow::Owned(text) => schema.fit(&text).into_owned().into(),
        };
        if self.wal == WalPlace::Withheld {
            text = WAL_FUNCTIONS.iter().fold(text, |text, call| text.replace(call, NO_LSN).into());
        }
        match (self.leaf, self.old) {
            (Some(leaf), _) => text.replace(LEAF, &format!("event_{leaf}")).into(),
            (None, Some(old)) => text.replace(OLD, old.name()).replace(NEW, old.other().name()).into(),
            (None, None) => text,
        }
    }
}

/// The schema that holds Postrider's tables: `postrider` unless another was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    name: String,
    prefix: String,
}

impl Schema {
    /// A name that needs no quotes: anything else is more likely a mistake than a wish.
    pub fn new(name: &str) -> Result<Self> {
        let first = |c: char| c.is_ascii_lowercase() || c == '_';
        let rest = |c: char| first(c) || c.is_ascii_digit();
        let is_plain = name.starts_with(first) && name.chars().all(rest) && name.len() <= 63;
        if !is_plain || name.starts_with("pg_") {
            return Err(Error::invalid(format!(
                "`{}` cannot name the schema: use lower-case letters, digits and `_`, beginning with a letter",
                name.escape_default()
            )));
        }
        // A keyword such as `order` would need the quotes.
        Ok(Self { name: name.to_owned(), prefix: format!("\"{name}\".") })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A text of the folder `sql`, for this schema.
    pub(crate) fn fit<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.name == "postrider" {
            Cow::Borrowed(text)
        } else {
            text.replace(WRITTEN, &self.prefix).into()
        }
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self::new("postrider").expect("the usual name is a good one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_fits_its_schema_and_leaf() {
        let sql = Sql::new("-- Head.\nselect 1 from postrider.event_leaf").on_leaf(7);
        assert_eq!(sql.text(&Schema::new("postrider").unwrap()), "select 1 from postrider.event_7");
        assert_eq!(sql.text(&Schema::new("shop").unwrap()), "select 1 from \"shop\".event_7");
        let read = Sql::new("select id from postrider.event_cut as event where id = 1").on_leaf(7);
        let text = read.text(&Schema::new("shop").unwrap());
        assert!(
            text.starts_with("select id from (select") && text.contains("from \"shop\".event_7"),
            "{text}"
        );
        let sql = Sql::new("insert into postrider.position_new from postrider.position_old");
        assert_eq!(
            sql.emptying(PositionTable::B).text(&Schema::new("postrider").unwrap()),
            "insert into postrider.position_a from postrider.position_b"
        );
    }

    #[test]
    fn a_server_that_keeps_its_log_to_itself_is_not_asked() {
        let schema = Schema::default();
        for sql in [sql!("log/probe"), sql!("log/event_look").on_leaf(3), sql!("wal/slot_use")] {
            assert!(sql.text(&schema).contains("pg_current_wal"));
            assert!(!sql.where_wal_is(WalPlace::Withheld).text(&schema).contains("pg_current_wal"));
        }
    }

    #[test]
    fn names_that_need_quotes_are_refused() {
        for good in ["postrider", "a", "_x9", "order"] {
            assert!(Schema::new(good).is_ok(), "{good}");
        }
        for bad in ["", "9a", "A", "a-b", "a.b", "a\"b", "pg_x", "ü", &"x".repeat(64)] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
    }
}
