//! Acking through sea-orm 2.

use futures_util::future::BoxFuture;
use postrider_core::{Ack, Delivery, Result};
use sea_orm::sea_query::Value;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, Statement};

use super::{ACK, Acking, WHAT};
use crate::emit::{On, POSTRIDER, SeaOrm, from_sea_orm};
use crate::server::statement::Schema;

impl<'a> Ack<SeaOrm> for &'a DatabaseTransaction {
    type Output = BoxFuture<'a, Result<()>>;

    fn ack(self, delivery: Delivery) -> Self::Output {
        Box::pin(delivery_ack(self, &POSTRIDER, delivery))
    }
}

impl<'a, C: ConnectionTrait> Ack<SeaOrm> for On<'a, &'a C> {
    type Output = BoxFuture<'a, Result<()>>;

    fn ack(self, delivery: Delivery) -> Self::Output {
        Box::pin(delivery_ack(self.tx, self.schema, delivery))
    }
}

async fn delivery_ack(conn: &impl ConnectionTrait, schema: &Schema, delivery: Delivery) -> Result<()> {
    let acking = Acking::of(&delivery)?;
    let values: [Value; 4] =
        [acking.subscription.into(), acking.event.into(), acking.token.into(), acking.bucket.into()];
    let text = ACK.text(schema).into_owned();
    let statement = Statement::from_sql_and_values(DbBackend::Postgres, text, values);
    let row = conn.query_one_raw(statement).await.map_err(|error| from_sea_orm(error, WHAT))?;
    let ours = row.map(|row| row.try_get_by_index(0)).transpose();
    acking.was(ours.map_err(|error| from_sea_orm(error, WHAT))?.unwrap_or(false))
}
