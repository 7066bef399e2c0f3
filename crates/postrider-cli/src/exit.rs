//! Every exit code, by name.
//!
//! Scripts branch on these numbers, so they never change their meaning.

use postrider_core::ErrorKind;

use crate::config::Problems;
use crate::text;

/// Done.
pub(crate) const OK: u8 = 0;
/// Something unforeseen: a bug, or an unexpected answer of the database.
pub(crate) const UNEXPECTED: u8 = 1;
/// The command line or the input breaks a rule; nothing was written. The argument parser uses it too.
pub(crate) const USAGE: u8 = 2;
/// The named thing does not exist.
pub(crate) const NOT_FOUND: u8 = 3;
/// The named thing exists already: in another shape, or for another process.
pub(crate) const CONFLICT: u8 = 4;
/// The store cannot be reached or is locked; trying again may help.
pub(crate) const UNAVAILABLE: u8 = 5;
/// The store's content is damaged.
pub(crate) const CORRUPT: u8 = 6;
/// The store, or the server it is on, is of a version that this one cannot work with.
pub(crate) const INCOMPATIBLE: u8 = 7;
/// The store may not be written.
pub(crate) const READ_ONLY: u8 = 8;
/// A drain was cut off; what was not settled will be delivered again.
pub(crate) const CUT_OFF: u8 = 9;
/// A check ran well and found problems.
pub(crate) const FINDINGS: u8 = 10;
/// The store was restored or copied from elsewhere and has not been adopted.
pub(crate) const MOVED: u8 = 11;

/// The table that `--help` ends with.
pub(crate) const HELP: &str = "\
Exit codes:
   0  done
   1  unexpected error
   2  the command line or the input breaks a rule; nothing was written
   3  the named thing does not exist
   4  the named thing exists already: in another shape, or for another process
   5  the store cannot be reached or is locked; trying again may help
   6  the store is damaged
   7  the store or its server is of a version that this postrider cannot work with
   8  the store may not be written
   9  a drain was cut off by a second signal or by --drain-within; the rest is delivered again
  10  a check found problems
  11  the store was restored or copied from elsewhere: see `postrider store adopt`";

/// The code for an error: the one place where kinds become numbers.
pub(crate) fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid => USAGE,
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::Conflict => CONFLICT,
        // Another member has it for now.
        ErrorKind::Busy | ErrorKind::Fenced | ErrorKind::Unavailable => UNAVAILABLE,
        ErrorKind::Corrupt => CORRUPT,
        ErrorKind::Incompatible => INCOMPATIBLE,
        ErrorKind::Moved => MOVED,
        ErrorKind::ReadOnly => READ_ONLY,
        // Kinds that a later core adds are unexpected until they get a number of their own.
        _ => UNEXPECTED,
    }
}

/// The word for a kind in `--json` errors.
pub(crate) fn word_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "invalid",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Fenced => "fenced",
        ErrorKind::Busy => "busy",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::ReadOnly => "read_only",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Incompatible => "incompatible",
        ErrorKind::Moved => "moved",
        _ => "internal",
    }
}

/// An error as `--json` tells it: one line for stderr.
pub(crate) fn error_json(kind: &str, code: u8, message: &str) -> String {
    let body = serde_json::json!({ "error": { "kind": kind, "message": message, "exit_code": code } });
    text::escape_json(&body.to_string()) + "\n"
}

/// The mistakes of a config as `--json` tells them: one line for stderr.
pub(crate) fn problems_json(message: &str, problems: &Problems) -> String {
    let kind = word_of(ErrorKind::Invalid);
    let body = serde_json::json!({
        "error": {
            "kind": kind,
            "message": message,
            "exit_code": USAGE,
            "problems": problems.told,
            "problems_may_go_on": problems.more,
        }
    });
    text::escape_json(&body.to_string()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_documented_code() {
        for (kind, code) in [
            (ErrorKind::Invalid, 2),
            (ErrorKind::NotFound, 3),
            (ErrorKind::Conflict, 4),
            (ErrorKind::Fenced, 5),
            (ErrorKind::Busy, 5),
            (ErrorKind::Unavailable, 5),
            (ErrorKind::Corrupt, 6),
            (ErrorKind::Incompatible, 7),
            (ErrorKind::Moved, 11),
            (ErrorKind::ReadOnly, 8),
            (ErrorKind::Internal, 1),
        ] {
            assert_eq!(code_of(kind), code, "{kind:?}");
        }
    }

    #[test]
    fn the_help_lists_every_code() {
        for code in [
            OK,
            UNEXPECTED,
            USAGE,
            NOT_FOUND,
            CONFLICT,
            UNAVAILABLE,
            CORRUPT,
            INCOMPATIBLE,
            READ_ONLY,
            CUT_OFF,
            FINDINGS,
            MOVED,
        ] {
            assert!(HELP.lines().any(|line| line.starts_with(&format!("{code:>4}  "))), "{code}");
        }
    }
}
