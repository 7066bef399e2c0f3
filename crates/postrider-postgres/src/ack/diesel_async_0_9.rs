//! Acking through diesel-async 0.9.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures_util::future::BoxFuture;
use postrider_core::{Ack, Delivery, Result};

use super::Acking;
use crate::emit::{DieselAsync, On, POSTRIDER};
use crate::server::statement::Schema;

impl<'a> Ack<DieselAsync> for &'a mut AsyncPgConnection {
    type Output = BoxFuture<'a, Result<()>>;

    fn ack(self, delivery: Delivery) -> Self::Output {
        Box::pin(delivery_ack(self, &POSTRIDER, delivery))
    }
}

impl<'a> Ack<DieselAsync> for On<'a, &'a mut AsyncPgConnection> {
    type Output = BoxFuture<'a, Result<()>>;

    fn ack(self, delivery: Delivery) -> Self::Output {
        Box::pin(delivery_ack(self.tx, self.schema, delivery))
    }
}

async fn delivery_ack(conn: &mut AsyncPgConnection, schema: &Schema, delivery: Delivery) -> Result<()> {
    let acking = Acking::of(&delivery)?;
    let query = acking.query(schema);
    acking.said(query.get_result(conn).await)
}
