//! Is the file fit for use? Every doubt is raised before anything is written.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use postrider_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::Doing;
use crate::file::busy::wait_within;
use crate::file::migrate;
use crate::options::SqliteOptions;

/// Older ones may lose committed writes when two connections checkpoint at the same time, which is what
/// a producer and a relay do all day.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Tries to switch a file to WAL mode while others do the same.
const WAL_TRIES_MAX: usize = 20;

/// Statements kept prepared on each of the store's connections: more than there are.
const STATEMENTS_MAX: usize = 128;

/// Opens the file for writing, checks it, and brings its schema up to date.
pub(crate) fn open_writer(options: &SqliteOptions) -> Result<Connection> {
    version_check(rusqlite::version_number())?;
    let path = path_check(options)?;
    if options.create && !path.exists() {
        create_private(&path);
    }
    let mut conn = connect(&path, options)?;
    let version = migrate::schema_found(&conn).map_err(|error| unfit(&path, error))?;
    migrate::schema_fit(&path, version.as_ref())?;
    if conn.is_readonly("main").doing("ask whether the file may be written")? {
        return Err(read_only(&path));
    }
    if options.check {
        damage_check(&conn, &path)?;
    }
    wal_switch(&conn, &path)?;
    conn.pragma_update(None, "synchronous", "full").doing("set when commits are flushed")?;
    migrate::migrate(&mut conn, &path)?;
    Ok(conn)
}

/// Makes an empty file that only its owner may read and write; SQLite gives its WAL the same mode. It is made
/// beside its place and linked there, so that no process has it open before that, and no descriptor of it is
/// closed while SQLite may hold locks. Where that fails, SQLite makes the file, and says what is wrong if it
/// cannot either.
fn create_private(path: &Path) {
    let beside = path.with_added_extension(format!("new-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
    if made.is_ok() {
        // Another process may have been faster.
        drop(std::fs::hard_link(&beside, path));
        drop(std::fs::remove_file(&beside));
    }
}

/// Opens the file for reading only, after [`open_writer`] has found it fit.
pub(crate) fn open_reader(options: &SqliteOptions) -> Result<Connection> {
    let conn = connect(&path_absolute(&options.path)?, options)?;
    conn.pragma_update(None, "query_only", true).doing("make a connection read-only")?;
    Ok(conn)
}

/// Where the WAL of an open database is. SQLite follows links before it names the file.
pub(crate) fn wal_path(options: &SqliteOptions) -> Result<PathBuf> {
    let file = std::fs::canonicalize(&options.path).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot find `{}` any more", options.path.display()))
            .with_source(error)
    })?;
    let mut wal = file.into_os_string();
    wal.push("-wal");
    Ok(wal.into())
}

/// What the database and its WAL take on disk.
pub(crate) fn bytes_on_disk(conn: &Connection, wal: &Path) -> Result<u64> {
    let pragma = |name| conn.pragma_query_value::<i64, _>(None, name, |row| row.get(0));
    let pages = pragma("page_count").doing("measure the file")?;
    let page_bytes = pragma("page_size").doing("measure the file")?;
    let wal_bytes = std::fs::metadata(wal).map_or(0, |wal| wal.len());
    Ok((pages * page_bytes) as u64 + wal_bytes)
}

fn connect(path: &Path, options: &SqliteOptions) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let mut conn = Connection::open_with_flags(path, flags).map_err(|error| unfit(path, error))?;
    conn.busy_handler(Some(wait_within(options.busy_timeout))).doing("say how locks are waited for")?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Four MiB: the log is read once from front to back, so a larger cache would hold nothing of use.
    conn.pragma_update(None, "cache_size", -4096).doing("set the cache size")?;
    conn.pragma_update(None, "temp_store", "memory").doing("keep temporary tables in memory")?;
    Ok(conn)
}

fn version_check(linked: i32) -> Result<()> {
    if linked >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    let words =
        |version: i32| format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000);
    Err(Error::new(
        ErrorKind::Incompatible,
        format!(
            "this program is linked with SQLite {}, which can lose committed writes in WAL mode: build it with \
             SQLite {} or newer",
            words(linked),
            words(SQLITE_VERSION_MIN)
        ),
    ))
}

/// Looks at the path from outside. The file itself is never opened but by SQLite: closing it would drop
/// the locks that SQLite holds on it in this process.
fn path_check(options: &SqliteOptions) -> Result<PathBuf> {
    if options.path.as_os_str() == ":memory:" {
        return Err(Error::invalid(
            "a store needs a file, since its connections cannot share a database in memory",
        ));
    }
    let path = path_absolute(&options.path)?;
    let shown = path.display();
    if path.is_dir() {
        return Err(Error::invalid(format!("`{shown}` is a directory: name a file in it")));
    }
    if path.exists() {
        return Ok(path);
    }
    match path.parent() {
        Some(parent) if !parent.exists() => Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "the directory `{}` does not exist: create it, or correct the store's path",
                parent.display()
            ),
        )),
        _ if !options.create => Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "there is no database at `{shown}`: correct the path, or create it with `postrider store migrate`"
            ),
        )),
        _ => Ok(path),
    }
}

/// Absolute, so that SQLite never takes a name such as `file:x` for something else.
fn path_absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Error::invalid("the store's path cannot be made absolute").with_source(error))
}

/// What SQLite's first look at a file can find.
fn unfit(path: &Path, error: rusqlite::Error) -> Error {
    let shown = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::new(
            ErrorKind::Corrupt,
            format!(
                "`{shown}` is not an SQLite database, or its beginning is overwritten: correct the path, or \
                 restore the file from a backup"
            ),
        )
        .with_source(error),
        Some(ErrorCode::DatabaseCorrupt) => damaged(path, "its schema cannot be read").with_source(error),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            read_only(path).with_source(error)
        }
        _ => match Err::<(), _>(error).doing(&format!("open `{shown}`")) {
            Err(error) => error,
            Ok(()) => unreachable!("an error stays one"),
        },
    }
}

fn read_only(path: &Path) -> Error {
    Error::new(
        ErrorKind::ReadOnly,
        format!(
            "this process may not read and write `{}`: give it that right for the file and for its directory, \
             where SQLite keeps two more files beside it",
            path.display()
        ),
    )
}

/// Checks a file without its constraints: a row that breaks one is that event's dead letter and no damage.
pub(crate) fn intact<T>(
    conn: &Connection,
    check: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    conn.pragma_update(None, "ignore_check_constraints", true)?;
    let found = check();
    conn.pragma_update(None, "ignore_check_constraints", false)?;
    found
}

fn damaged(path: &Path, how: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "the database `{}` is damaged ({how}): restore it from a backup, or save what can be read with \
             the `.recover` command of sqlite3",
            path.display()
        ),
    )
}

/// Reads the whole file through. A damaged one would lose events without a word.
fn damage_check(conn: &Connection, path: &Path) -> Result<()> {
    match intact(conn, || conn.query_row("pragma quick_check(1)", [], |row| row.get::<_, String>(0))) {
        Ok(found) if found == "ok" => Ok(()),
        Ok(found) => Err(damaged(path, &found)),
        Err(error) => Err(unfit(path, error)),
    }
}

/// Switching takes the file for itself, for which SQLite does not wait when another connection does the
/// same. Taking the writer lock does wait; so that is how the next try is timed.
fn wal_switch(conn: &Connection, path: &Path) -> Result<()> {
    let mut tries = 0;
    let mode = loop {
        tries += 1;
        match conn.query_row("pragma journal_mode = wal", [], |row| row.get::<_, String>(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && tries < WAL_TRIES_MAX =>
            {
                conn.execute_batch("begin immediate; rollback").doing("wait for another connection")?;
            }
            answer => break answer.doing("switch the file to WAL mode")?,
        }
    };
    if mode == "wal" {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Invalid,
        format!(
            "`{}` cannot be used in WAL mode (it stays in mode {mode}): put it on a local disk",
            path.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_loses_writes_is_refused_in_words() {
        version_check(3_051_003).unwrap();
        let error = version_check(3_050_004).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.to_string().contains("3.50.4") && error.to_string().contains("3.51.3"), "{error}");
    }
}
