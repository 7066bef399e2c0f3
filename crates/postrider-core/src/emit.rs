//! Writing an event in the caller's own transaction.

use crate::event::NewEvent;

/// A transaction of the caller's that an event can be written through.
///
/// Implemented by the store crates on references to each client library's transaction. An
/// implementation uses what it is given and nothing else: it never opens a connection, never begins or
/// ends a transaction, and checks the event ([`NewEvent::check`]) before it writes. The event exists if
/// and only if the caller's transaction commits.
///
/// `Output` is what the client library makes natural: a `Result<EventId>` for a synchronous one such as
/// rusqlite, a future of it for an asynchronous one. The trait is open: a client library that is not
/// covered takes about ten lines.
///
/// `Driver` is any type of the implementing crate. Callers never name it: it is there because Rust lets a
/// crate implement this trait for a client library's type only if a type of its own takes part.
pub trait Emit<Driver = ()> {
    /// `Result<EventId>`, or a future of it.
    type Output;

    /// Writes `event` through this transaction.
    fn emit(self, event: NewEvent) -> Self::Output;
}

/// Emits `event` in the caller's transaction `tx`.
///
/// Emit after locking the aggregate's row, or with its version check: that is what makes the order of a
/// key's events well defined. A repeat with the same idempotency key returns the first event's id.
#[inline]
pub fn emit<Driver, T: Emit<Driver>>(tx: T, event: NewEvent) -> T::Output {
    tx.emit(event)
}
