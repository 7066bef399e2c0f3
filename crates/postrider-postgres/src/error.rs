//! From PostgreSQL's error codes to the kinds of error that callers tell apart. The only place that does so.

use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::error::SqlState;

/// Says what was being done when PostgreSQL failed.
pub(crate) trait Doing<T> {
    /// Turns PostgreSQL's error into ours; `what` completes the sentence "cannot …".
    fn doing(self, what: &str) -> Result<T>;
}

impl<T> Doing<T> for Result<T, tokio_postgres::Error> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|error| from_postgres(error, what))
    }
}

/// Turns PostgreSQL's error into ours. Its message names tables and constraints; its detail, which may hold
/// values of rows, is left out.
pub(crate) fn from_postgres(error: tokio_postgres::Error, what: &str) -> Error {
    let Some(said) = error.as_db_error() else {
        // Errors of the connection, or a value that cannot be read.
        let kind =
            if error.is_closed() || is_io(&error) { ErrorKind::Unavailable } else { ErrorKind::Internal };
        let message = format!("cannot {what}: {}", without_source(&error));
        return Error::new(kind, message).with_source(error);
    };
    // The source is not attached: its text would repeat the detail.
    from_code(said.code(), said.message(), what)
}

/// Turns what the server said into an error of ours.
pub(crate) fn from_code(code: &SqlState, said: &str, what: &str) -> Error {
    let (kind, advice) = explain(code);
    Error::new(kind, format!("cannot {what}: {said}{advice}"))
}

/// The connection's errors say little by themselves, but their cause does.
fn without_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.and_then(|source| source.downcast_ref::<std::io::Error>()).is_some()
}

/// The kind, and what to do about it.
fn explain(code: &SqlState) -> (ErrorKind, &'static str) {
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => (ErrorKind::Busy, ""),
        SqlState::LOCK_NOT_AVAILABLE => {
            (ErrorKind::Busy, ": another transaction holds a lock; see pg_locks for who it is")
        }
        SqlState::QUERY_CANCELED | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => {
            (ErrorKind::Unavailable, "")
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            (ErrorKind::ReadOnly, ": this server may not be written; connect to the primary")
        }
        SqlState::INSUFFICIENT_PRIVILEGE => (ErrorKind::ReadOnly, ": this role lacks the right"),
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            (ErrorKind::Invalid, ": check user and password in the store's URL")
        }
        SqlState::UNDEFINED_DATABASE => (ErrorKind::NotFound, ": create it first"),
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_FUNCTION
        | SqlState::UNDEFINED_OBJECT
        | SqlState::INVALID_SCHEMA_NAME => {
            (ErrorKind::NotFound, ": run `postrider store migrate` on this database")
        }
        SqlState::INVALID_SQL_STATEMENT_NAME => {
            (ErrorKind::Invalid, ": it was prepared on another connection, or a pooler stands between")
        }
        SqlState::STATEMENT_TOO_COMPLEX => {
            (ErrorKind::Invalid, ": JSON is nested too deep for this server (its setting max_stack_depth)")
        }
        // Raised by `postrider.hold_check`.
        ref code if code.code() == "PR001" => (ErrorKind::Fenced, ""),
        SqlState::UNIQUE_VIOLATION => (ErrorKind::Conflict, ""),
        SqlState::CHECK_VIOLATION
        | SqlState::NOT_NULL_VIOLATION
        | SqlState::CHARACTER_NOT_IN_REPERTOIRE
        | SqlState::UNTRANSLATABLE_CHARACTER
        | SqlState::INVALID_TEXT_REPRESENTATION => (ErrorKind::Invalid, ""),
        _ => (by_class(code), ""),
    }
}

fn by_class(code: &SqlState) -> ErrorKind {
    match code.code().get(..2) {
        // Connection lost, resources gone, shutting down, disk trouble.
        Some("08" | "53" | "57" | "58") => ErrorKind::Unavailable,
        Some("XX") => ErrorKind::Corrupt,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds() {
        for (code, kind) in [
            ("40001", ErrorKind::Busy),
            ("40P01", ErrorKind::Busy),
            ("55P03", ErrorKind::Busy),
            ("25006", ErrorKind::ReadOnly),
            ("42P01", ErrorKind::NotFound),
            ("23514", ErrorKind::Invalid),
            ("54001", ErrorKind::Invalid),
            ("57P01", ErrorKind::Unavailable),
            ("53300", ErrorKind::Unavailable),
            ("XX001", ErrorKind::Corrupt),
            ("42601", ErrorKind::Internal),
        ] {
            assert_eq!(explain(&SqlState::from_code(code)).0, kind, "{code}");
        }
    }
}
