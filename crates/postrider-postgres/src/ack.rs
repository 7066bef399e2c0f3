//! Acking a delivery in the handler's own transaction.
//!
//! ```no_run
//! # async fn charge(delivery: &postrider_core::Delivery, db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use postrider_core::ack_in;
//! use postrider_postgres::tokio_postgres;
//!
//! let tx = db.transaction().await?;
//! tx.execute("insert into charges (order_id) values ($1)", &[&delivery.key.as_ref().map(|key| key.as_str())]).await?;
//! ack_in(&tx, delivery).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! The client libraries, and what a transaction is in each, are those of [`emit`](crate::emit). The
//! transaction must be of the store's database, and at isolation level `read committed` if the event has a
//! key whose order is kept. Its role needs the right to execute the function `ack`, which a relay has.

#[cfg(feature = "diesel-2")]
mod diesel_2;
#[cfg(feature = "diesel-async-0_9")]
mod diesel_async_0_9;
#[cfg(any(feature = "diesel-2", feature = "diesel-async-0_9"))]
mod diesel_query;
#[cfg(feature = "sea-orm-2")]
mod sea_orm_2;
#[cfg(feature = "sqlx-0_9")]
mod sqlx_0_9;

use futures_util::future::BoxFuture;
use postrider_core::queue::Ticket;
use postrider_core::refusal::lease_is_lost;
use postrider_core::{Ack, Delivery, EventId, Result};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use crate::emit::{On, POSTRIDER, TokioPostgres};
use crate::error::Doing;
use crate::queue::lanes::bucket_of;
use crate::server::statement::{Schema, Sql};

/// What an error says that we were doing.
const WHAT: &str = "ack an event";
const ACK: Sql = sql!("emit/delivery_ack");

/// What the statement is told.
struct Acking {
    subscription: i64,
    event: i64,
    token: i64,
    bucket: i32,
    ticket: Ticket,
}

impl Acking {
    fn of(delivery: &Delivery) -> Result<Self> {
        let ticket = delivery.lease()?;
        Ok(Self {
            subscription: ticket.subscription().0,
            event: delivery.event.id.0,
            token: ticket.token().0,
            bucket: delivery.event.key.as_ref().map_or(0, bucket_of),
            ticket: ticket.clone(),
        })
    }

    /// Takes in whether it was ours.
    fn was(&self, ours: bool) -> Result<()> {
        if !ours {
            return Err(lease_is_lost(EventId(self.event)));
        }
        self.ticket.note_acked();
        Ok(())
    }
}

macro_rules! ack_through {
    ($connection:ty, $self:ident => $tx:expr, $schema:expr) => {
        impl<'a> Ack<TokioPostgres> for $connection {
            type Output = BoxFuture<'a, Result<()>>;

            fn ack($self, delivery: Delivery) -> Self::Output {
                Box::pin(delivery_ack($tx, $schema, delivery))
            }
        }
    };
}

ack_through!(&'a Transaction<'_>, self => self, &POSTRIDER);
ack_through!(&'a mut Transaction<'_>, self => self, &POSTRIDER);
ack_through!(On<'a, &'a Transaction<'_>>, self => self.tx, self.schema);

async fn delivery_ack(tx: &Transaction<'_>, schema: &Schema, delivery: Delivery) -> Result<()> {
    let acking = Acking::of(&delivery)?;
    let row = tx
        .query_typed(
            &ACK.text(schema),
            &[
                (&acking.subscription, Type::INT8),
                (&acking.event, Type::INT8),
                (&acking.token, Type::INT8),
                (&acking.bucket, Type::INT4),
            ],
        )
        .await
        .doing(WHAT)?;
    let ours = row.first().map(|row| row.try_get(0)).transpose().doing(WHAT)?;
    acking.was(ours.unwrap_or(false))
}
