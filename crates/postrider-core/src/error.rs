//! One opaque error with a kind.
//!
//! The kind decides what a caller does next; the message tells a person what is wrong, where, and what
//! to do. Messages never contain payloads or secrets.

use std::error::Error as StdError;
use std::fmt;

/// What went wrong, in the one vocabulary that all crates share.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A result with Postrider's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The classes of failure that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's input breaks a rule; nothing was written.
    Invalid,
    /// The named thing does not exist.
    NotFound,
    /// The named thing exists already, in another shape.
    Conflict,
    /// Ownership has passed to another member; nothing was written, and memory must be discarded.
    Fenced,
    /// Another connection has locked the store for longer than the caller was ready to wait.
    Busy,
    /// The store or sink cannot be reached, or refuses service for now.
    Unavailable,
    /// The store may not be written.
    ReadOnly,
    /// The store's content is damaged.
    Corrupt,
    /// The store was made by a version that this one does not understand.
    Incompatible,
    /// The store was restored or copied from elsewhere, and an operator has to say that it goes on here.
    Moved,
    /// Anything else; a bug or an unforeseen answer of the database.
    Internal,
}

impl Error {
    /// An error of `kind` with a sentence for a person.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Shorthand for the most frequent kind: input that breaks a rule.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Attaches the underlying cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Which class of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without anybody changing anything.
    ///
    /// This is the whole retry policy for store calls: one match, in one place.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            ErrorKind::Busy | ErrorKind::Unavailable => true,
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Fenced
            | ErrorKind::ReadOnly
            | ErrorKind::Corrupt
            | ErrorKind::Incompatible
            | ErrorKind::Moved
            | ErrorKind::Internal => false,
        }
    }

    /// Whether ownership was lost: the caller's memory of the subscription is worthless from here on.
    pub fn is_fenced(&self) -> bool {
        self.kind == ErrorKind::Fenced
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
