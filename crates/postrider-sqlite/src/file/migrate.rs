//! Bringing a database file to the schema that this version knows.

use std::path::Path;

use postrider_core::Result;
use postrider_core::handshake::{Fit, fit};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::error::Doing;

/// The version of the schema that this version of the crate works with.
pub const SCHEMA_VERSION: u32 = 1;

/// One step from a schema version to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// The version that it leads to.
    pub version: u32,
    /// What it is about.
    pub name: &'static str,
    /// Its statements. They run as one transaction and record the version themselves.
    pub sql: &'static str,
}

const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "init", sql: include_str!("../../sql/migrations/001_init.sql") }];

/// All steps, from an empty file to [`SCHEMA_VERSION`].
pub fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// The whole schema as a script, for those who run their migrations themselves, in a transaction of their
/// tool. A store that finds the result has nothing left to do.
pub fn schema_sql() -> String {
    MIGRATIONS.iter().map(|migration| migration.sql).collect::<Vec<_>>().join("\n")
}

/// The same with a transaction of its own around it, for those who have no tool.
pub fn schema_transaction_sql() -> String {
    format!("begin immediate;\n\n{}\ncommit;\n", schema_sql())
}

/// What the file says of its schema.
pub(crate) struct Found {
    version: String,
    oldest: String,
}

/// Which schema the file has; none if it has no Postrider tables yet.
pub(crate) fn schema_found(conn: &Connection) -> rusqlite::Result<Option<Found>> {
    let exists: bool = conn.query_row(sql!("file/meta_exists"), [], |row| row.get(0))?;
    if !exists {
        return Ok(None);
    }
    let get = |name: &str| conn.query_row(sql!("file/meta_get"), [name], |row| row.get(0)).optional();
    let Some(version) = get("schema_version")? else { return Ok(None) };
    Ok(Some(Found { version, oldest: get("oldest_version")?.unwrap_or_default() }))
}

/// Refuses a schema that this version does not know. Called before anything is written.
pub(crate) fn schema_fit(path: &Path, found: Option<&Found>) -> Result<Fit> {
    let found = found.map(|found| (found.version.as_str(), found.oldest.as_str()));
    fit(&format!("`{}`", path.display()), found, SCHEMA_VERSION)
}

/// Brings the file up to date. Of several processes that try at once one does it, and the others find it
/// done: the version is read again once the writer lock is held.
pub(crate) fn migrate(conn: &mut Connection, path: &Path) -> Result<()> {
    let found = schema_found(conn).doing("read the schema version")?;
    if schema_fit(path, found.as_ref())? == Fit::Works {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).doing("begin a migration")?;
    let found = schema_found(&tx).doing("read the schema version")?;
    if let Fit::Older(version) = schema_fit(path, found.as_ref())? {
        for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
            apply(&tx, migration)?;
        }
    }
    tx.commit().doing("commit a migration")
}

fn apply(tx: &Transaction<'_>, migration: &Migration) -> Result<()> {
    let Migration { version, name, sql } = migration;
    tx.execute_batch(sql).doing(&format!("migrate the schema to version {version} ({name})"))
}

/// The store's identity.
pub(crate) fn store_id(conn: &Connection) -> Result<String> {
    conn.query_row(sql!("file/meta_get"), ["store_id"], |row| row.get(0)).doing("read the store's identity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_makes_what_the_migrations_make() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&schema_sql()).unwrap();
        let found = schema_found(&conn).unwrap().unwrap();
        assert_eq!((found.version.as_str(), found.oldest.as_str()), ("1", "1"));
        assert_eq!(migrations().last().unwrap().version, SCHEMA_VERSION);
    }
}
