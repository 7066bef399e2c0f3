//! Emitting through diesel-async 0.9.
//!
//! ```no_run
//! # async fn order(db: &mut diesel_async::AsyncPgConnection) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use diesel_async::{AsyncConnection, RunQueryDsl};
//! use postrider_core::{Event, emit};
//!
//! db.transaction(async |tx| {
//!     diesel::sql_query("insert into orders (id) values (42)").execute(tx).await?;
//!     emit(tx, Event::new("order").kind("order.created").key(42)).await?;
//!     Ok(())
//! })
//! .await
//! # }
//! ```
//!
//! A pool's connection lends its own: `emit(&mut *conn, event)`.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures_util::future::BoxFuture;
use postrider_core::{Emit, EventId, NewEvent, Result};

use super::batch::batches;
use super::diesel_query::{Statement, id_read, ids_read};
use super::values::Values;
use super::{EmitAll, On, POSTRIDER};
use crate::server::statement::Schema;

/// Marks events emitted through diesel-async. Callers need not name it.
#[derive(Debug, Clone, Copy)]
pub struct DieselAsync;

/// diesel passes this connection to the closure of a transaction. Outside of one, each event is a separate
/// transaction.
impl<'a> Emit<DieselAsync> for &'a mut AsyncPgConnection {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self, &POSTRIDER, event))
    }
}

impl<'a> Emit<DieselAsync> for On<'a, &'a mut AsyncPgConnection> {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self.tx, self.schema, event))
    }
}

impl<'a> EmitAll for &'a mut AsyncPgConnection {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self, &POSTRIDER, events))
    }
}

impl<'a> EmitAll for On<'a, &'a mut AsyncPgConnection> {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self.tx, self.schema, events))
    }
}

async fn event_insert(conn: &mut AsyncPgConnection, schema: &Schema, event: NewEvent) -> Result<EventId> {
    event.check()?;
    id_read(Statement::of(Values::of(&event), schema).load(conn).await)
}

async fn event_insert_all(
    conn: &mut AsyncPgConnection,
    schema: &Schema,
    events: Vec<NewEvent>,
) -> Result<Vec<EventId>> {
    events.iter().try_for_each(NewEvent::check)?;
    let mut ids = Vec::with_capacity(events.len());
    for batch in batches(&events) {
        let statement = Statement::of_all(batch, schema);
        let count = statement.len();
        ids.extend(ids_read(statement.load(conn).await, count)?);
    }
    Ok(ids)
}
