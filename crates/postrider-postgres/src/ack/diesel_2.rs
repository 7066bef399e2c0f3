//! Acking through diesel 2.

use diesel::{PgConnection, RunQueryDsl};
use postrider_core::{Ack, Delivery, Result};

use super::Acking;
use crate::emit::{Diesel, On, POSTRIDER};
use crate::server::statement::Schema;

impl Ack<Diesel> for &mut PgConnection {
    type Output = Result<()>;

    fn ack(self, delivery: Delivery) -> Self::Output {
        delivery_ack(self, &POSTRIDER, &delivery)
    }
}

impl Ack<Diesel> for On<'_, &mut PgConnection> {
    type Output = Result<()>;

    fn ack(self, delivery: Delivery) -> Self::Output {
        delivery_ack(self.tx, self.schema, &delivery)
    }
}

fn delivery_ack(conn: &mut PgConnection, schema: &Schema, delivery: &Delivery) -> Result<()> {
    let acking = Acking::of(delivery)?;
    acking.said(acking.query(schema).get_result(conn))
}
