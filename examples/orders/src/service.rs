//! The order service: business rows and their events, in one transaction.

use anyhow::{Result, ensure};
use postrider::sqlite::rusqlite::{Connection, TransactionBehavior, params};
use postrider::{Event, emit};
use serde::{Deserialize, Serialize};

/// What `order.created` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderCreated {
    /// The order.
    pub(crate) order_id: String,
    /// Who placed it.
    pub(crate) customer_id: String,
    /// Its total, in cents.
    pub(crate) total_cents: i64,
}

/// What `order.confirmed` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderConfirmed {
    /// The order.
    pub(crate) order_id: String,
}

/// Makes and confirms orders in the application's own database.
pub(crate) struct OrderService {
    db: Connection,
}

impl OrderService {
    /// Makes the business table if it is not there.
    pub(crate) fn new(db: Connection) -> Result<Self> {
        db.execute_batch(
            "create table if not exists orders (
                id text primary key,
                customer_id text not null,
                total_cents integer not null,
                status text not null
             ) strict",
        )?;
        Ok(Self { db })
    }

    /// Creates an order. The row and the event are committed together; if either fails, neither exists.
    pub(crate) fn create(&mut self, order: &OrderCreated) -> Result<()> {
        // Immediate: a transaction that reads first and writes later could fail with SQLITE_BUSY.
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute(
            "insert into orders (id, customer_id, total_cents, status) values (?1, ?2, ?3, 'created')",
            params![order.order_id, order.customer_id, order.total_cents],
        )?;
        emit(&tx, Event::new("order").kind("order.created").key(&order.order_id).json(order)?)?;
        tx.commit()?;
        Ok(())
    }

    /// Confirms an order that was created and not confirmed yet.
    pub(crate) fn confirm(&mut self, order_id: &str) -> Result<()> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let changed = tx.execute(
            "update orders set status = 'confirmed' where id = ?1 and status = 'created'",
            [order_id],
        )?;
        ensure!(changed == 1, "order {order_id} does not exist or is confirmed already");
        let confirmed = OrderConfirmed { order_id: order_id.to_owned() };
        emit(&tx, Event::new("order").kind("order.confirmed").key(order_id).json(&confirmed)?)?;
        tx.commit()?;
        Ok(())
    }
}
