//! Acking a delivery in the handler's own transaction.
//!
//! [`ack_in`](postrider_core::ack_in()) takes a reference to a rusqlite transaction or savepoint, or to a
//! connection that is within one. Begin it with `BEGIN IMMEDIATE`, as for [`emit`](crate::emit).
//!
//! ```
//! # fn charge(delivery: &postrider_core::Delivery, db: &mut rusqlite::Connection) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use postrider_core::ack_in;
//! use postrider_sqlite::rusqlite;
//!
//! let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! tx.execute("insert into charges (order_id) values (?1)", [delivery.key.as_ref().map(|key| key.as_str())])?;
//! ack_in(&tx, delivery)?;
//! tx.commit()?;
//! # Ok(()) }
//! ```

use postrider_core::refusal::lease_is_lost;
use postrider_core::{Ack, Delivery, Error, Result};
use rusqlite::{Connection, Savepoint, Transaction};

use crate::emit::Rusqlite;
use crate::queue::lane::queue_advance;
use crate::queue::row::{QueuedState, queued_of, queued_take_leased};

macro_rules! ack_through {
    ($($connection:ty),+) => {
        $(impl Ack<Rusqlite> for $connection {
            type Output = Result<()>;

            fn ack(self, delivery: Delivery) -> Result<()> {
                delivery_ack(self, &delivery)
            }
        })+
    };
}

ack_through!(
    &Connection,
    &mut Connection,
    &Transaction<'_>,
    &mut Transaction<'_>,
    &Savepoint<'_>,
    &mut Savepoint<'_>
);

/// Takes an event out of the queue, if it is leased under the token of its ticket. The claim stays: its
/// worker settles it.
fn delivery_ack(conn: &Connection, delivery: &Delivery) -> Result<()> {
    let ticket = delivery.lease()?;
    let (id, event, token) = (ticket.subscription(), delivery.event.id, ticket.token());
    if conn.is_autocommit() {
        return Err(Error::invalid(format!(
            "cannot ack event {event} outside of a transaction: begin one first"
        )));
    }
    let found = queued_of(conn, id, event)?;
    let ours = found.filter(|row| row.state == QueuedState::Leased && row.token == token);
    let Some(row) = ours else { return Err(lease_is_lost(event)) };
    queued_take_leased(conn, id, row.id, token)?;
    if let Some(left) = row.shrunk(|other| *other != event) {
        left.put(conn, id)?;
    }
    if let Some(lane) = &row.lane {
        queue_advance(conn, id, lane)?;
    }
    ticket.note_acked();
    Ok(())
}
