//! A table of another database into which events are delivered, each once.
//!
//! ```text
//!   batch  e1 e2 e3          in one transaction                  a receiver, in its own
//!                            ids not seen yet  ──► NAME_seen
//!                            their events      ──► NAME          reads by `arrival`, works, deletes
//! ```
//!
//! What every such table promises, whichever database it is in:
//! - *Once.* An event whose deduplication id was seen before is left out, whether its row is still there or
//!   was taken. Ids are forgotten when they are older than the sink remembers, some with each batch.
//! - *Whole.* A batch is there as a whole or not at all, and durable before its delivery is reported.
//! - *Order.* Rows have the order of the batch in the column `arrival`, and become visible in that order,
//!   also with several relays: a receiver that has read up to an `arrival` has missed nothing before it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};

/// So that names of ours that begin with it are within the 63 bytes of PostgreSQL.
const NAME_BYTES_MAX: usize = 50;

/// Names the table, and the one beside it that remembers which ids were seen.
///
/// ```
/// use postrider_core::inbox::TableName;
/// let name: TableName = "shop.inbox".parse()?;
/// assert_eq!((name.schema(), name.table(), name.seen().as_str()), (Some("shop"), "inbox", "inbox_seen"));
/// assert_eq!(TableName::default().to_string(), "postrider_inbox_event");
/// assert!("drop table x".parse::<TableName>().is_err());
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    schema: Option<String>,
    table: String,
}

impl TableName {
    /// The schema that was named, if one was.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The table of events.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The table of ids beside it.
    pub fn seen(&self) -> String {
        format!("{}_seen", self.table)
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, table: "postrider_inbox_event".to_owned() }
    }
}

impl FromStr for TableName {
    type Err = Error;

    /// Names that need no quotes: anything else is more likely a mistake than a wish.
    fn from_str(text: &str) -> Result<Self> {
        let first = |c: char| c.is_ascii_lowercase() || c == '_';
        let rest = |c: char| first(c) || c.is_ascii_digit();
        let is_plain =
            |name: &str| name.starts_with(first) && name.chars().all(rest) && name.len() <= NAME_BYTES_MAX;
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, text),
        };
        if !is_plain(table) || schema.is_some_and(|schema| !is_plain(schema)) {
            return Err(Error::invalid(format!(
                "`{}` cannot name the table of an inbox: use up to {NAME_BYTES_MAX} lower-case letters, digits and `_`, beginning \
                 with a letter; on PostgreSQL also SCHEMA.TABLE",
                text.escape_debug()
            )));
        }
        Ok(Self { schema: schema.map(str::to_owned), table: table.to_owned() })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.table),
            None => f.write_str(&self.table),
        }
    }
}

impl<'de> Deserialize<'de> for TableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a batch was not taken. Nothing of it was.
#[derive(Debug)]
pub enum Refused {
    /// Some event of it never will be; which one, only a batch of one tells.
    Content(Error),
    /// Nothing can be delivered for now, whatever the event.
    Table(Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_quotes_are_refused() {
        for good in ["a", "_x9", "shop.inbox", "order", &"x".repeat(50)] {
            assert_eq!(good.parse::<TableName>().unwrap().to_string(), good);
        }
        for bad in ["", ".", "a.", ".a", "a.b.c", "9a", "A", "a-b", "a\"b", "a;b", "ü", &"x".repeat(51)] {
            assert!(bad.parse::<TableName>().is_err(), "{bad}");
        }
    }
}
