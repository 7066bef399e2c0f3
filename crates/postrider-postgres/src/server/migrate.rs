//! Bringing a database to the schema that this version knows.

use std::fmt::Write;

use postrider_core::handshake::{Fit, fit};
use postrider_core::{Error, ErrorKind, Result};

use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::server::session::{Session, Tx};
use crate::server::statement::Schema;

/// The version of the schema that this version of the crate works with.
pub const SCHEMA_VERSION: u32 = 1;

/// One step from a schema version to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// The version that it leads to.
    pub version: u32,
    /// The oldest version of programs that can work with the result. One that expands keeps that of the step before.
    pub oldest: u32,
    /// What it is about.
    pub name: &'static str,
    /// Its statements, for the schema `postrider`. They run as one transaction and record both versions themselves.
    pub sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    oldest: 1,
    name: "init",
    sql: include_str!("../../sql/migrations/001_init.sql"),
}];

/// All steps, from an empty database to [`SCHEMA_VERSION`].
pub fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// The whole schema as a script, for those who run their migrations themselves: for a tool that puts it in a
/// transaction, which is that of its own bookkeeping. A store that finds the result has nothing left to do.
///
/// Statement by statement, without a transaction, it does nothing: it begins with one that fails there, and
/// makes the schema in that.
pub fn schema_sql(schema: &str) -> Result<String> {
    let schema = Schema::new(schema)?;
    let mut script = include_str!("../../sql/scripts/schema_begin.sql").replace("schema_name", schema.name());
    for migration in MIGRATIONS {
        // Writing to a string cannot fail.
        let _ = write!(script, "\n{}", schema.fit(migration.sql));
    }
    Ok(script)
}

/// The same with a transaction of its own around it, for those who have no tool.
pub fn schema_transaction_sql(schema: &str) -> Result<String> {
    Ok(format!("begin;\n\n{}\ncommit;\n", schema_sql(schema)?))
}

/// Brings the schema up to date, if that is wanted. Of several processes that try at once one does it, and the others
/// find it done: the version is read again under the lock.
pub(crate) async fn migrate(session: &mut Session, options: &PostgresOptions) -> Result<()> {
    let tx = session.begin().await?;
    if let Fit::Older(_) = schema_fit(&tx, options).await? {
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
    tx.query(sql!("server/migration_lock"), &[&options.schema.name()], "wait for another migration").await?;
    let Fit::Older(version) = schema_fit(tx, options).await? else { return Ok(()) };
    if version == 0 && !schema_exists(tx).await? {
        let create = format!("create schema \"{}\"", options.schema.name());
        tx.run(&create, "create the schema").await?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
        apply(tx, options, migration, version).await?;
    }
    Ok(())
}

/// Takes one step. It does not wait for older programs: a step that they cannot work with is refused while some run.
async fn apply(tx: &Tx<'_>, options: &PostgresOptions, migration: &Migration, from: u32) -> Result<()> {
    let what = format!("migrate the schema to version {} ({})", migration.version, migration.name);
    if from > 0 {
        let outdated = tx.query(sql!("server/member_outdated"), &[&(migration.oldest as i32)], &what).await?;
        let names: Vec<&str> =
            outdated.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().doing(&what)?;
        if !names.is_empty() {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "{options} is in use by older versions of Postrider, which could not work with schema version {}: \
                     stop {} first; nothing was changed",
                    migration.version,
                    names.join(", ")
                ),
            ));
        }
    }
    tx.run(&options.schema.fit(migration.sql), &what).await
}

async fn schema_exists(tx: &Tx<'_>) -> Result<bool> {
    let what = "look for the schema";
    let row = tx.query_one(sql!("server/schema_exists"), &[&tx.schema().name()], what).await?;
    row.try_get(0).doing(what)
}

/// How the database's schema fits; refused if it does not. Nothing was written by then.
async fn schema_fit(tx: &Tx<'_>, options: &PostgresOptions) -> Result<Fit> {
    let what = "read the schema version";
    let place = options.to_string();
    let exists = tx.query_one(sql!("server/meta_exists"), &[&tx.schema().name()], what).await?;
    if !exists.try_get::<_, bool>(0).doing(what)? {
        return fit(&place, None, SCHEMA_VERSION);
    }
    let version = tx.query_one(sql!("server/meta_get"), &[&"schema_version"], what).await?;
    let oldest = tx.query_opt(sql!("server/meta_get"), &[&"oldest_version"], what).await?;
    let oldest: &str = oldest.as_ref().map_or(Ok(""), |row| row.try_get(0)).doing(what)?;
    fit(&place, Some((version.try_get(0).doing(what)?, oldest)), SCHEMA_VERSION)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use postrider_core::LogStore;
    use postrider_testkit::postgres::{Database, Version, shared};

    use super::*;
    use crate::PostgresStore;
    use crate::server::pooler::Way;
    use crate::server::session::Role;

    const NEXT: Migration = Migration {
        version: SCHEMA_VERSION + 1,
        oldest: SCHEMA_VERSION + 1,
        name: "contract",
        sql: "drop table postrider.kept_event;
              update postrider.meta set value = '2' where name in ('schema_version', 'oldest_version')",
    };

    async fn take(step: &Migration, db: &Database) -> Result<()> {
        let options = PostgresOptions::from_url(&db.url)?;
        let mut session = Session::connect(&options, &Way::new(options.pooler), Role::Operator).await?;
        let tx = session.begin().await?;
        apply(&tx, &options, step, SCHEMA_VERSION).await?;
        tx.commit("commit a migration").await
    }

    async fn open(db: &Database) -> Result<PostgresStore> {
        PostgresStore::open(PostgresOptions::from_url(&db.url)?).await
    }

    #[tokio::test]
    async fn a_step_that_contracts_waits_until_older_programs_have_gone() {
        let db = shared(Version::V15).create_database();
        let store = open(&db).await.unwrap();
        let member = store.member_join("ada").await.unwrap();
        let refused = take(&NEXT, &db).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.to_string().contains("stop ada first"), "{refused}");
        let expands = Migration { oldest: SCHEMA_VERSION, sql: "create table postrider.more ()", ..NEXT };
        take(&expands, &db).await.unwrap();
        store.member_leave(member).await.unwrap();
        take(&NEXT, &db).await.unwrap();
        assert_eq!(store.member_join("ada").await.unwrap_err().kind(), ErrorKind::Incompatible);
        assert_eq!(open(&db).await.err().map(|error| error.kind()), Some(ErrorKind::Incompatible));
    }
}
