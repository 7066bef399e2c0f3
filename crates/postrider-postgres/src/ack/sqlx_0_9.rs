//! Acking through sqlx 0.9.

use futures_util::future::BoxFuture;
use postrider_core::{Ack, Delivery, Result};
use sqlx::{AssertSqlSafe, PgConnection, Postgres};

use super::{ACK, Acking, WHAT};
use crate::emit::{On, POSTRIDER, Sqlx, from_sqlx};
use crate::server::statement::Schema;

macro_rules! ack_through {
    ($connection:ty, $self:ident => $conn:expr, $schema:expr) => {
        impl<'a> Ack<Sqlx> for $connection {
            type Output = BoxFuture<'a, Result<()>>;

            fn ack($self, delivery: Delivery) -> Self::Output {
                Box::pin(delivery_ack($conn, $schema, delivery))
            }
        }
    };
}

ack_through!(&'a mut PgConnection, self => self, &POSTRIDER);
ack_through!(&'a mut sqlx::Transaction<'_, Postgres>, self => self, &POSTRIDER);
ack_through!(On<'a, &'a mut PgConnection>, self => self.tx, self.schema);
ack_through!(On<'a, &'a mut sqlx::Transaction<'_, Postgres>>, self => self.tx, self.schema);

async fn delivery_ack(conn: &mut PgConnection, schema: &Schema, delivery: Delivery) -> Result<()> {
    let acking = Acking::of(&delivery)?;
    // Our own text, with the name of a schema that was checked.
    let ours = sqlx::query_scalar::<_, bool>(AssertSqlSafe(ACK.text(schema).into_owned()))
        .bind(acking.subscription)
        .bind(acking.event)
        .bind(acking.token)
        .bind(acking.bucket)
        .fetch_one(conn)
        .await;
    acking.was(ours.map_err(|error| from_sqlx(error, WHAT))?)
}
