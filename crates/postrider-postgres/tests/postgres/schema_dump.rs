//! The schema as a whole, to be read in one place, and so that no migration changes more than it says.
//!
//! The file is what `pg_dump` of Debian's release 15 writes after all migrations. The package of release 18
//! has no `pg_dump`, and that of 15 refuses newer servers: there the catalogue is asked whether the file
//! makes the same schema as the migrations.

use std::fs;
use std::path::{Path, PathBuf};

use postrider_core::Store;
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::{Database, Version, shared};

/// Set to anything, it makes the test write the file again.
const RENEW: &str = "POSTRIDER_RENEW_SCHEMA";
const FILE: &str = "sql/migrations/schema.sql";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE)
}

/// A fresh database with the schema that the migrations make.
async fn migrated(version: Version) -> Database {
    let database = shared(version).create_database();
    let store = PostgresStore::open(PostgresOptions::from_url(&database.url).unwrap()).await.unwrap();
    assert!(!store.id().is_empty());
    database
}

/// What `pg_dump` says, without what differs from one run or one of its minor releases to the next: comments, settings
/// of the session, and the random words by which it keeps psql from other commands.
fn dump(database: &Database) -> String {
    let mut command = shared(Version::V15).command("pg_dump");
    command.args(["--schema-only", "--no-owner", "--dbname", &database.name]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let is_noise = |line: &&str| {
        ["--", "SET ", "SELECT pg_catalog.set_config", "\\restrict", "\\unrestrict"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut normal = String::new();
    for line in text.lines().filter(|line| !is_noise(line)) {
        if !line.is_empty() || !(normal.is_empty() || normal.ends_with("\n\n")) {
            normal.push_str(line);
            normal.push('\n');
        }
    }
    normal.truncate(normal.trim_end().len());
    normal.push('\n');
    normal
}

/// The first line in which two texts differ.
fn first_difference(found: &str, wanted: &str) -> String {
    let pairs = found.lines().zip(wanted.lines());
    let same = pairs.take_while(|(found, wanted)| found == wanted).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(its end)").to_owned();
    format!("line {}: the migrations make `{}`, the file has `{}`", same + 1, line(found), line(wanted))
}

#[tokio::test]
async fn the_migrations_make_the_schema_that_is_written_down() {
    let found = dump(&migrated(Version::V15).await);
    assert!(found.contains("CREATE TABLE postrider.event ("), "{found}");
    if std::env::var_os(RENEW).is_some() {
        fs::write(file(), &found).unwrap();
    }
    let wanted = fs::read_to_string(file()).unwrap();
    assert!(
        found == wanted,
        "{FILE} is not what the migrations make; {}.\nIf that is what the change is for, renew the file and commit it:\n\
         {RENEW}=1 cargo test -p postrider-postgres --test postgres schema_dump",
        first_difference(&found, &wanted)
    );
}

/// Everything in the schema `postrider`, as the server itself would say it. Names of not-null constraints,
/// which release 18 has and a dump of 15 cannot give, are left out.
const CATALOGUE: &str = "
    select 'table ' || c.relname || ' ' || c.relkind::text || ' ' || coalesce(c.reloptions::text, '') || ' ' ||
        coalesce(pg_get_partkeydef(c.oid), '') || ' ' || coalesce(pg_get_expr(c.relpartbound, c.oid), '') ||
        ' ' || coalesce(c.relacl::text, '')
    from pg_class c
    where c.relnamespace = 'postrider'::regnamespace
    union all
    select 'column ' || c.relname || ' ' || a.attnum || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) ||
        ' ' || a.attnotnull::text || ' ' || a.attidentity::text || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    where c.relnamespace = 'postrider'::regnamespace
        and c.relkind in ('r', 'p')
    union all
    select 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
    from pg_constraint
    where connamespace = 'postrider'::regnamespace
        and contype <> 'n'
    union all
    select 'index ' || indexdef
    from pg_indexes
    where schemaname = 'postrider'
    union all
    select 'function ' || pg_get_functiondef(oid) || ' ' || coalesce(proacl::text, '')
    from pg_proc
    where pronamespace = 'postrider'::regnamespace
    union all
    select 'sequence ' || sequencename || ' ' || data_type || ' ' || start_value || ' ' || min_value || ' ' ||
        max_value || ' ' || increment_by || ' ' || cycle || ' ' || cache_size
    from pg_sequences
    where schemaname = 'postrider'
    union all
    select 'trigger ' || pg_get_triggerdef(oid)
    from pg_trigger
    where tgrelid in (select oid from pg_class where relnamespace = 'postrider'::regnamespace)
        and not tgisinternal
    order by 1";

fn catalogue(database: &Database) -> Vec<String> {
    let rows = database.query(CATALOGUE);
    rows.into_iter().map(|mut row| row.remove(0).expect("no part of a line is null")).collect()
}

#[tokio::test]
async fn what_is_written_down_is_the_schema_on_every_version() {
    for version in Version::ALL {
        let written = shared(version).create_database();
        written.query(&fs::read_to_string(file()).unwrap());
        let (written, migrated) = (catalogue(&written), catalogue(&migrated(version).await));
        assert!(migrated.len() > 200, "{} lines", migrated.len());
        for (written, migrated) in written.iter().zip(&migrated) {
            assert_eq!(written, migrated, "{FILE} on {version:?}");
        }
        assert_eq!(written.len(), migrated.len(), "{FILE} on {version:?}");
    }
}
