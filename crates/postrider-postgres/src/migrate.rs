//! Bringing a database to the schema that this version knows.

use std::fmt::Write;

use postrider_core::{Error, ErrorKind, Result};

use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::session::{Session, Tx};
use crate::statement::Schema;

/// The version of the schema that this version of the crate works with.
pub const SCHEMA_VERSION: u32 = 1;

/// One step from a schema version to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// The version that it leads to.
    pub version: u32,
    /// What it is about.
    pub name: &'static str,
    /// Its statements, for the schema `postrider`. They run as one transaction and record the version themselves.
    pub sql: &'static str,
}

const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "init", sql: include_str!("../sql/migrations/001_init.sql") }];

/// All steps, from an empty database to [`SCHEMA_VERSION`].
pub fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// The whole schema as a script, for those who run their migrations themselves. A store that finds the
/// result has nothing left to do.
pub fn schema_sql(schema: &str) -> Result<String> {
    let schema = Schema::new(schema)?;
    let mut script = format!(
        "begin;\n\nset local lock_timeout = '3s';\n\ncreate schema if not exists \"{}\";\n",
        schema.name()
    );
    for migration in MIGRATIONS {
        // Writing to a string cannot fail.
        let _ = write!(script, "\n{}", schema.fit(migration.sql));
    }
    script.push_str("\ncommit;\n");
    Ok(script)
}

/// Brings the schema up to date, if that is wanted. Of several processes that try at once one does it, and the others
/// find it done: the version is read again under the lock.
pub(crate) async fn migrate(session: &mut Session, options: &PostgresOptions) -> Result<()> {
    let tx = session.begin().await?;
    let found = schema_version(&tx).await?;
    if schema_check(options, found.as_deref())? < SCHEMA_VERSION {
        if !options.migrate {
            let missing = format!("{options} has no Postrider schema of version {SCHEMA_VERSION}");
            let advice = "run `postrider store migrate` first";
            return Err(Error::new(ErrorKind::NotFound, format!("{missing}: {advice}")));
        }
        bring_up(&tx, options).await?;
    }
    tx.commit("commit a migration").await
}

async fn bring_up(tx: &Tx<'_>, options: &PostgresOptions) -> Result<()> {
    // A migration that waits for a lock makes everybody wait who comes after it; it rather fails.
    tx.run("set local lock_timeout = '3s'", "begin a migration").await?;
    tx.query(sql!("migration_lock"), &[&options.schema.name()], "wait for another migration").await?;
    let version = schema_check(options, schema_version(tx).await?.as_deref())?;
    if version == 0 && !schema_exists(tx).await? {
        let create = format!("create schema \"{}\"", options.schema.name());
        tx.run(&create, "create the schema").await?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
        let what = format!("migrate the schema to version {} ({})", migration.version, migration.name);
        tx.run(&options.schema.fit(migration.sql), &what).await?;
    }
    Ok(())
}

async fn schema_exists(tx: &Tx<'_>) -> Result<bool> {
    let what = "look for the schema";
    let row = tx.query_one(sql!("schema_exists"), &[&tx.schema().name()], what).await?;
    row.try_get(0).doing(what)
}

/// Which schema the database has; none if it has no Postrider tables yet.
async fn schema_version(tx: &Tx<'_>) -> Result<Option<String>> {
    let what = "read the schema version";
    let exists = tx.query_one(sql!("meta_exists"), &[&tx.schema().name()], what).await?;
    if !exists.try_get::<_, bool>(0).doing(what)? {
        return Ok(None);
    }
    let version = tx.query_one(sql!("meta_get"), &[&"schema_version"], what).await?;
    version.try_get(0).map(Some).doing(what)
}

/// Refuses a schema that this version does not know. Called before anything is written.
fn schema_check(options: &PostgresOptions, found: Option<&str>) -> Result<u32> {
    let Some(found) = found else { return Ok(0) };
    match found.parse::<u32>() {
        Ok(version) if version <= SCHEMA_VERSION => Ok(version),
        _ => Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "{options} has schema version {found}, this version of Postrider knows {SCHEMA_VERSION}: use a \
                 newer Postrider; nothing was changed"
            ),
        )),
    }
}
