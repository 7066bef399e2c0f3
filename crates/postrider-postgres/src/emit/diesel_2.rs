//! Emitting through diesel 2.
//!
//! ```no_run
//! # fn order(db: &mut diesel::PgConnection) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use diesel::{Connection, RunQueryDsl};
//! use postrider_core::{Event, emit};
//!
//! db.transaction(|tx| {
//!     diesel::sql_query("insert into orders (id) values (42)").execute(tx)?;
//!     emit(tx, Event::new("order").kind("order.created").key(42))?;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Diesel blocks, and so does this: what `emit` returns is the id and not a future of it.

use diesel::{PgConnection, RunQueryDsl};
use postrider_core::{Emit, EventId, NewEvent, Result};

use super::batch::batches;
use super::diesel_query::{Statement, id_read, ids_read};
use super::values::Values;
use super::{EmitAll, On, POSTRIDER};
use crate::server::statement::Schema;

/// Marks events emitted through diesel. Callers need not name it.
#[derive(Debug, Clone, Copy)]
pub struct Diesel;

/// diesel passes this connection to the closure of a transaction. Outside of one, each event is a separate
/// transaction.
impl Emit<Diesel> for &mut PgConnection {
    type Output = Result<EventId>;

    fn emit(self, event: NewEvent) -> Self::Output {
        event_insert(self, &POSTRIDER, &event)
    }
}

impl Emit<Diesel> for On<'_, &mut PgConnection> {
    type Output = Result<EventId>;

    fn emit(self, event: NewEvent) -> Self::Output {
        event_insert(self.tx, self.schema, &event)
    }
}

impl EmitAll for &mut PgConnection {
    type Output = Result<Vec<EventId>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        event_insert_all(self, &POSTRIDER, &events)
    }
}

impl EmitAll for On<'_, &mut PgConnection> {
    type Output = Result<Vec<EventId>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        event_insert_all(self.tx, self.schema, &events)
    }
}

fn event_insert(conn: &mut PgConnection, schema: &Schema, event: &NewEvent) -> Result<EventId> {
    event.check()?;
    id_read(Statement::of(Values::of(event), schema).load(conn))
}

fn event_insert_all(conn: &mut PgConnection, schema: &Schema, events: &[NewEvent]) -> Result<Vec<EventId>> {
    events.iter().try_for_each(NewEvent::check)?;
    let mut ids = Vec::with_capacity(events.len());
    for batch in batches(events) {
        let statement = Statement::of_all(batch, schema);
        let count = statement.len();
        ids.extend(ids_read(statement.load(conn), count)?);
    }
    Ok(ids)
}
