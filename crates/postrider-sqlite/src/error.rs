//! From SQLite's result codes to the kinds of error that callers tell apart. The only place that does so.

use postrider_core::{Error, ErrorKind, Result};
use rusqlite::ErrorCode;

/// `SQLITE_BUSY_SNAPSHOT`: another connection wrote after this transaction began to read.
const BUSY_SNAPSHOT: i32 = 517;

/// Says what was being done when SQLite failed.
pub(crate) trait Doing<T> {
    /// Turns SQLite's error into ours; `what` completes the sentence "cannot …".
    fn doing(self, what: &str) -> Result<T>;
}

impl<T> Doing<T> for rusqlite::Result<T> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|error| from_sqlite(error, what))
    }
}

/// SQLite's messages name tables, columns and constraints, never values, so they may be shown.
fn from_sqlite(error: rusqlite::Error, what: &str) -> Error {
    let (kind, why) = explain(&error);
    let message = match why {
        Some(why) => format!("cannot {what}: {why}"),
        None => format!("cannot {what}: {error}"),
    };
    Error::new(kind, message).with_source(error)
}

/// The kind, and a better explanation than SQLite's own where there is one.
fn explain(error: &rusqlite::Error) -> (ErrorKind, Option<String>) {
    use rusqlite::Error as E;
    match error {
        E::SqliteFailure(failure, message) => explain_code(*failure, message.as_deref()),
        E::SqlInputError { error, msg, .. } => explain_code(*error, Some(msg)),
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::Utf8Error(..)
        | E::InvalidColumnType(..) => {
            (ErrorKind::Corrupt, Some(format!("a Postrider table holds what it cannot hold ({error})")))
        }
        _ => (ErrorKind::Internal, None),
    }
}

fn explain_code(failure: rusqlite::ffi::Error, message: Option<&str>) -> (ErrorKind, Option<String>) {
    let said = message.unwrap_or("no details");
    match failure.code {
        ErrorCode::DatabaseBusy if failure.extended_code == BUSY_SNAPSHOT => (
            ErrorKind::Busy,
            Some(
                "the transaction began by reading, and another connection has written since: begin it with \
                 BEGIN IMMEDIATE, and run it again"
                    .to_owned(),
            ),
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            ErrorKind::Busy,
            Some(
                "another connection has kept the database locked for longer than the busy time-out: look for \
                 a transaction that stays open"
                    .to_owned(),
            ),
        ),
        ErrorCode::NotADatabase => (ErrorKind::Corrupt, Some("the file is not an SQLite database".to_owned())),
        ErrorCode::DatabaseCorrupt => (
            ErrorKind::Corrupt,
            Some(format!("the database is damaged ({said}): stop writing to it and restore it from a backup")),
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => (
            ErrorKind::ReadOnly,
            Some(
                "the database may not be written: this process needs the right to write the file and its \
                 directory"
                    .to_owned(),
            ),
        ),
        ErrorCode::DiskFull => {
            (ErrorKind::Unavailable, Some("the disk is full: free some space; nothing was changed".to_owned()))
        }
        ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::CannotOpen
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::SchemaChanged
        | ErrorCode::OperationInterrupted => (ErrorKind::Unavailable, None),
        ErrorCode::ConstraintViolation | ErrorCode::TooBig => (ErrorKind::Invalid, None),
        ErrorCode::Unknown if said.contains("no such table: postrider_") => (
            ErrorKind::NotFound,
            Some(format!("{said}: open the file once as a store, or run `postrider store migrate`")),
        ),
        _ => (ErrorKind::Internal, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_codes_become_kinds() {
        for (code, kind) in [
            (5, ErrorKind::Busy),
            (6, ErrorKind::Busy),
            (517, ErrorKind::Busy),
            (8, ErrorKind::ReadOnly),
            (10, ErrorKind::Unavailable),
            (11, ErrorKind::Corrupt),
            (13, ErrorKind::Unavailable),
            (19, ErrorKind::Invalid),
            (26, ErrorKind::Corrupt),
            (1, ErrorKind::Internal),
        ] {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            assert_eq!(from_sqlite(error, "test").kind(), kind, "{code}");
        }
    }
}
