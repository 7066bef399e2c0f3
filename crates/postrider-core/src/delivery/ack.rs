//! Acking a delivery of a queue in the handler's own transaction.
//!
//! ```text
//!   handler                        its database                    Postrider
//!   begin ───────────────────────► writes
//!   ack_in(tx, &delivery) ───────► the queued row goes
//!   commit ──────────────────────► both are there, or neither
//!   Ok ──────────────────────────────────────────────────────────► the claim has one row less
//! ```

use crate::delivery::Delivery;
use crate::delivery::ticket::Ticket;
use crate::error::{Error, Result};

/// A transaction of a handler's in which a delivery of mode `queue` can be acked.
///
/// Implemented by the store crates on references to each client library's transaction, in the database of the
/// store. An implementation uses what it is given and nothing else: it never opens a connection, never begins
/// or ends a transaction. Under the token of the delivery's [`Ticket`] it takes the event out of the queue
/// and makes the next one of its key ready, notes that on the ticket ([`Ticket::note_acked`]), and leaves the
/// claim alone: who extends the lease must not wait for a handler's transaction. If the event is not leased
/// under that token any more, it changes nothing and says [`Fenced`](crate::ErrorKind::Fenced).
///
/// `Output` and `Driver` are what they are in [`Emit`](crate::Emit). The trait is open.
pub trait Ack<Driver = ()> {
    /// `Result<()>`, or a future of it.
    type Output;

    /// Acks `delivery` through this transaction.
    fn ack(self, delivery: Delivery) -> Self::Output;
}

/// Acks `delivery` in the handler's own transaction `tx`, so that the handler's writes and the ack commit
/// together: the effect happens once, however often the event is handed out. For mode `queue`; in mode `log`
/// a transactional worker does the same.
///
/// Commit after it, and return `Ok` once that has succeeded. After an error roll back and return the error:
/// of kind [`Fenced`](crate::ErrorKind::Fenced) if the lease was lost, so that others have the event now. A
/// handler that rolls back and returns `Ok` is handed the event again.
#[inline]
pub fn ack_in<Driver, T: Ack<Driver>>(tx: T, delivery: &Delivery) -> T::Output {
    tx.ack(delivery.clone())
}

impl Delivery {
    /// The lease under which it can be acked. Refused in mode `log`, where there is none.
    pub fn lease(&self) -> Result<&Ticket> {
        self.ticket.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "event {} is delivered in mode `log`, where a handler cannot ack it: use a transactional worker, or mode \
                 `queue`",
                self.event.id
            ))
        })
    }
}
