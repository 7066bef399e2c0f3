//! What is typed about slots and outbox tables.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use postrider_core::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;

/// Where a relay reads events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SourceArg {
    /// In their table
    #[default]
    Poll,
    /// In PostgreSQL's write-ahead log, through a replication slot; in the table whenever that cannot be
    Wal,
}

/// What to do about a slot that is over its budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OverBudgetArg {
    /// Say so, and go on
    #[default]
    Alarm,
    /// Read the table, and leave the slot alone until somebody drops it
    Leave,
    /// Read the table, drop the slot, and make it anew
    Drop,
}

/// How a relay reads events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ClapArgs)]
pub(crate) struct SourceArgs {
    /// Where events are read: in their table, or in the server's write-ahead log, and in the table whenever
    /// that cannot be
    #[arg(long, value_enum, default_value = "poll")]
    pub(crate) source: SourceArg,
    /// How much of its write-ahead log the server may keep for a slot: 512MB, 10GB
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "10GB")]
    pub(crate) wal_budget: u64,
    /// What to do if it keeps more
    #[arg(long, value_enum, default_value = "alarm")]
    pub(crate) over_budget: OverBudgetArg,
    /// Let the server tell of large transactions while they are open, instead of keeping them on its disk
    /// until they commit
    #[arg(long)]
    pub(crate) wal_streaming: bool,
}

/// What the server may keep for a slot unless something else is said.
const WAL_BUDGET_DEFAULT: u64 = 10 << 30;

impl From<SourceArg> for SourceArgs {
    fn from(source: SourceArg) -> Self {
        Self {
            source,
            wal_budget: WAL_BUDGET_DEFAULT,
            over_budget: OverBudgetArg::default(),
            wal_streaming: false,
        }
    }
}

impl Default for SourceArgs {
    fn default() -> Self {
        SourceArg::default().into()
    }
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SourceCommand {
    /// Remove the replication slot and the publication of the store. Stop the relays that follow them first
    Drop,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Make events of the rows that are inserted into a table, in the transactions that insert them, by a trigger
    Attach(OutboxArgs),
    /// Leave a table alone
    Detach {
        /// The table, with its schema if need be
        table: String,
    },
    /// Show the tables that are attached
    List,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct OutboxArgs {
    /// The table, with its schema if need be
    pub(crate) table: String,
    /// Column that becomes the header `id`
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    pub(crate) id: String,
    /// Column that becomes the topic
    #[arg(long, value_name = "COLUMN", default_value = "aggregatetype")]
    pub(crate) topic: String,
    /// What stands before it
    #[arg(long, value_name = "TEXT", default_value = "outbox.event.")]
    pub(crate) topic_prefix: String,
    /// Column that becomes the key
    #[arg(long, value_name = "COLUMN", default_value = "aggregateid")]
    pub(crate) key: String,
    /// Column that becomes the type
    #[arg(long = "type", value_name = "COLUMN", default_value = "type")]
    pub(crate) kind: String,
    /// Column that becomes the payload
    #[arg(long, value_name = "COLUMN", default_value = "payload")]
    pub(crate) payload: String,
    /// Another column that becomes a header of its name; may be repeated
    #[arg(long = "header", value_name = "COLUMN")]
    pub(crate) headers: Vec<String>,
    /// Make events of the rows that are in the table already, too
    #[arg(long)]
    pub(crate) existing: bool,
}

pub(crate) fn size(text: &str) -> Result<u64> {
    let units = [("KB", 10_u32), ("MB", 20), ("GB", 30), ("TB", 40), ("", 0)];
    let read = |(unit, shift): &(&str, u32)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(1 << shift)
    };
    let found = units.iter().find_map(read);
    found.ok_or_else(|| Error::invalid("write a size as a whole number and a unit: 512MB, 10GB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("10GB").unwrap(), SourceArgs::default().wal_budget);
        assert_eq!(size("10GB").unwrap(), 10 << 30);
        assert_eq!((size("512MB").unwrap(), size("7").unwrap()), (512 << 20, 7));
        for bad in ["", "GB", "-1GB", "1.5GB", "99999999999TB", "1 GB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
