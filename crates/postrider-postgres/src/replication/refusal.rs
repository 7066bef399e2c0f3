//! Why the server says no, in the words that callers tell apart.
//!
//! Where its words would have to be read, which are in the server's language, its catalog was asked before.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use bytes::Bytes;
use postrider_core::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

use super::cursor::Cursor;
use crate::error::from_code;

/// What the server has refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another connection reads from the slot, or did until just now.
    SlotInUse,
    /// There is no such slot.
    SlotMissing,
    /// There is one of that name already.
    SlotExists,
    /// It is of another database, or of another plugin than ours.
    SlotForeign,
    /// It was invalidated, or what it should have kept is gone: what was not read can no longer be read through it.
    SlotLost,
    /// There is no such publication, or there was none yet when what is read now was written.
    PublicationMissing,
    /// The role may not replicate, or not from here.
    NotPermitted,
    /// The server runs with another `wal_level` than `logical`.
    WalLevelTooLow,
    /// A pooler answers, which does not know what replication is.
    Pooled,
    /// No slot (`max_replication_slots`) or no sender (`max_wal_senders`) is free.
    Exhausted,
}

/// Why the server said no, if it did and it is one of these.
pub(crate) fn refusal(error: &Error) -> Option<Refusal> {
    refused(error)?.refusal
}

/// The code with which the server said no, if it did.
#[cfg(test)]
pub(crate) fn sqlstate(error: &Error) -> Option<&str> {
    refused(error)?.code.as_ref().map(SqlState::code)
}

/// When it was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum During {
    /// While connecting.
    Login,
    /// In answer to a question.
    Other,
    /// In answer to `CREATE_REPLICATION_SLOT` or `START_REPLICATION`, of a server with this `wal_level`.
    Slot { is_logical: bool },
    /// In the stream.
    Stream,
}

/// What a server says that fails, or that warns.
pub(super) struct ServerSaid {
    pub(super) code: SqlState,
    text: String,
}

impl ServerSaid {
    /// Reads the fields of an `ErrorResponse` or `NoticeResponse`. Its detail, which may hold values of rows,
    /// is left out.
    pub(super) fn read(body: Bytes) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        let (mut code, mut text) = (None, None);
        loop {
            match cursor.u8()? {
                0 => break,
                b'C' => code = Some(cursor.text()?),
                b'M' => text = Some(cursor.text()?),
                _ => drop(cursor.text()?),
            }
        }
        Some(Self { code: SqlState::from_code(&code?), text: text? })
    }

    /// With something to add to it.
    pub(super) fn advised(mut self, advice: &str) -> Self {
        self.text = format!("{} ({advice})", self.text);
        self
    }

    pub(super) fn into_error(self, what: &str, during: During) -> Error {
        let Self { code, text } = self;
        let refusal = classify(&code, during);
        let error = match refusal {
            Some(refusal) => explained(refusal, what, &text),
            None => from_code(&code, &text, what),
        };
        error.with_source(Refused { refusal, code: Some(code) })
    }
}

/// A refusal that was found out by asking.
pub(super) fn refuse(refusal: Refusal, what: &str, told: &str) -> Error {
    explained(refusal, what, told).with_source(Refused { refusal: Some(refusal), code: None })
}

/// The connection is of no use any more.
pub(super) fn lost(error: io::Error, what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what}: {error}")).with_source(error)
}

/// The server sent something that it must not send.
pub(super) fn nonsense(what: &str, told: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot {what}: the server has sent {told}"))
}

#[derive(Debug)]
struct Refused {
    refusal: Option<Refusal>,
    code: Option<SqlState>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(code) => write!(f, "SQLSTATE {}", code.code()),
            None => f.write_str("found in the server's catalog"),
        }
    }
}

impl StdError for Refused {}

fn refused(error: &Error) -> Option<&Refused> {
    error.source()?.downcast_ref()
}

fn classify(code: &SqlState, during: During) -> Option<Refusal> {
    let is_slot = matches!(during, During::Slot { .. });
    Some(match *code {
        SqlState::OBJECT_IN_USE => Refusal::SlotInUse,
        SqlState::INSUFFICIENT_PRIVILEGE | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            Refusal::NotPermitted
        }
        SqlState::TOO_MANY_CONNECTIONS | SqlState::CONFIGURATION_LIMIT_EXCEEDED => Refusal::Exhausted,
        SqlState::PROTOCOL_VIOLATION if during == During::Login => Refusal::Pooled,
        SqlState::UNDEFINED_OBJECT if is_slot => Refusal::SlotMissing,
        SqlState::UNDEFINED_OBJECT if during == During::Stream => Refusal::PublicationMissing,
        SqlState::DUPLICATE_OBJECT if is_slot => Refusal::SlotExists,
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE if during == (During::Slot { is_logical: false }) => {
            Refusal::WalLevelTooLow
        }
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE | SqlState::UNDEFINED_FILE
            if is_slot || during == During::Stream =>
        {
            Refusal::SlotLost
        }
        _ => return None,
    })
}

fn explained(refusal: Refusal, what: &str, told: &str) -> Error {
    let (kind, advice) = match refusal {
        Refusal::SlotInUse => (
            ErrorKind::Busy,
            "another relay reads from it, or one that has died and that the server has not given up yet \
             (wal_sender_timeout)",
        ),
        Refusal::SlotMissing => (ErrorKind::NotFound, "somebody has dropped it, or it has not been made yet"),
        Refusal::SlotExists => (ErrorKind::Conflict, "use it, or choose another name"),
        Refusal::SlotForeign => {
            (ErrorKind::Conflict, "it was made for something else: choose another name, or drop it")
        }
        Refusal::SlotLost => (
            ErrorKind::NotFound,
            "what it kept has been removed (max_slot_wal_keep_size): drop the slot and make a new one",
        ),
        Refusal::PublicationMissing => {
            (ErrorKind::NotFound, "create the publication before the slot, and the slot anew")
        }
        Refusal::NotPermitted => (
            ErrorKind::ReadOnly,
            "this role needs the attribute REPLICATION (alter role … replication), and a line in pg_hba.conf",
        ),
        Refusal::Pooled => {
            (ErrorKind::Invalid, "replication does not go through a pooler; name the server itself")
        }
        Refusal::WalLevelTooLow => (ErrorKind::Invalid, "set wal_level = logical and restart the server"),
        Refusal::Exhausted => {
            (ErrorKind::Unavailable, "raise max_replication_slots or max_wal_senders, or drop unused slots")
        }
    };
    Error::new(kind, format!("cannot {what}: {told}: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str, during: During) -> Error {
        let body = format!("SERROR\0VERROR\0C{code}\0Mno\0Dsecret\0\0");
        ServerSaid::read(body.into()).unwrap().into_error("read", during)
    }

    #[test]
    fn codes_become_refusals_by_what_was_asked() {
        let (slot, low) = (During::Slot { is_logical: true }, During::Slot { is_logical: false });
        for (code, during, expected) in [
            ("55006", slot, Some(Refusal::SlotInUse)),
            ("42704", slot, Some(Refusal::SlotMissing)),
            ("42704", During::Stream, Some(Refusal::PublicationMissing)),
            ("42710", slot, Some(Refusal::SlotExists)),
            ("55000", slot, Some(Refusal::SlotLost)),
            ("55000", During::Stream, Some(Refusal::SlotLost)),
            ("55000", low, Some(Refusal::WalLevelTooLow)),
            ("58P01", During::Stream, Some(Refusal::SlotLost)),
            ("08P01", During::Login, Some(Refusal::Pooled)),
            ("42501", During::Login, Some(Refusal::NotPermitted)),
            ("53300", During::Login, Some(Refusal::Exhausted)),
            ("53400", slot, Some(Refusal::Exhausted)),
            ("57P01", During::Stream, None),
            ("42704", During::Other, None),
        ] {
            let error = said(code, during);
            assert_eq!((refusal(&error), sqlstate(&error)), (expected, Some(code)), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(said("57P01", During::Stream).is_retryable());
        assert!(said("55006", slot).is_retryable());
        assert_eq!(refusal(&Error::invalid("something else")), None);
    }

    #[test]
    fn what_is_no_error_response_is_none() {
        for bad in [&b""[..], b"C", b"C55000", b"C55000\0", b"C55000\0\0", b"Mno\0\0"] {
            assert!(ServerSaid::read(Bytes::copy_from_slice(bad)).is_none());
        }
    }
}
