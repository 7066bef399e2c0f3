//! How an event gets into the caller's transaction.
//!
//! [`emit`](postrider_core::emit()) takes a reference to a transaction and writes one row through it. It
//! opens nothing and commits nothing: the event exists if and only if the caller's transaction commits, and a
//! savepoint that is rolled back takes its events with it.
//!
//! ```no_run
//! # async fn order(db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::{Event, emit};
//! use postrider_postgres::tokio_postgres;
//!
//! let tx = db.transaction().await?;
//! tx.execute("insert into orders (id) values (42)", &[]).await?;
//! emit(&tx, Event::new("order").kind("order.created").key(42).json_text("{}")).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! A pool's transaction lends its own: `emit(&*tx, event)` with deadpool-postgres.
//!
//! # Which client library
//!
//! | client library | feature | a transaction is | `emit` returns |
//! |---|---|---|---|
//! | tokio-postgres 0.7 | none | `&Transaction` | a future |
//! | sqlx 0.9 | `sqlx-0_9` | `&mut Transaction`, `&mut PgConnection` | a future |
//! | diesel 2 | `diesel-2` | `&mut PgConnection` | the id: it blocks, as diesel does |
//! | diesel-async 0.9 | `diesel-async-0_9` | `&mut AsyncPgConnection` | a future |
//! | sea-orm 2 | `sea-orm-2` | `&DatabaseTransaction`; any `ConnectionTrait` by [`Schema::on`] | a future |
//!
//! The folder `examples` has a small program for each of the last three, and `docs/orm.md` says in which
//! order to emit and to write with libraries that decide themselves when to write.
//!
//! An event that breaks a limit is refused before anything is sent, and the transaction goes on. After any
//! other error PostgreSQL ends the transaction: roll it back. (It also answers `COMMIT` to such a one with
//! success and rolls back.)
//!
//! # Which way
//!
//! | way | for | cost |
//! |---|---|---|
//! | `emit(&tx, …)` | anything; works behind a pooler in transaction mode | one round trip; the server parses and plans each time |
//! | `emit(prepared.on(&tx), …)` | connections that stay: [`Prepared`] | one round trip, little more work for the server than a bare prepared insert; sqlx and diesel prepare by themselves |
//! | [`emit_all`] | some events at once, ids wanted | one round trip for a thousand |
//! | [`copy()`] | loads of events, no ids | the server reads them as fast as from a bare `COPY` |
//! | plain SQL | other languages | see the crate's front page |
//!
//! tokio-postgres keeps no prepared statements and gives a connection no name by which we could keep them, so
//! the caller does. What that is worth, in the server's instructions for one insert (PostgreSQL 15,
//! callgrind): a bare prepared insert into a plain table 124k, ours prepared 162k, ours parsed and planned
//! each time 264k. Of the 38k the check on the payload's length takes 19k and the way to the leaf 14k. In
//! transactions of one event, flushed, 8 connections on two busy cores, in turns with the bare insert:
//! prepared 0.96 of its rate on PostgreSQL 15 and 0.93 on 18, the plain way 0.7 to 0.8; a quarter of the
//! rounds is 0.1 away from that.

mod batch;
mod copy;
#[cfg(feature = "diesel-2")]
mod diesel_2;
#[cfg(feature = "diesel-async-0_9")]
mod diesel_async_0_9;
#[cfg(any(feature = "diesel-2", feature = "diesel-async-0_9"))]
mod diesel_query;
mod prepared;
#[cfg(feature = "sea-orm-2")]
mod sea_orm_2;
#[cfg(feature = "sqlx-0_9")]
mod sqlx_0_9;
mod values;

use std::sync::LazyLock;

use futures_util::future::BoxFuture;
use postrider_core::{Emit, Error, ErrorKind, EventId, NewEvent, Result};
use tokio_postgres::{Row, Transaction};

pub use copy::{copy, copy_stream};
#[cfg(feature = "diesel-2")]
pub use diesel_2::Diesel;
#[cfg(feature = "diesel-async-0_9")]
pub use diesel_async_0_9::DieselAsync;
pub use prepared::{Prepared, PreparedOn};
#[cfg(feature = "sea-orm-2")]
pub use sea_orm_2::SeaOrm;
#[cfg(feature = "sqlx-0_9")]
pub use sqlx_0_9::Sqlx;

#[cfg(any(feature = "diesel-2", feature = "diesel-async-0_9"))]
pub(crate) use diesel_query::from_diesel;
#[cfg(feature = "sea-orm-2")]
pub(crate) use sea_orm_2::from_sea_orm;
#[cfg(feature = "sqlx-0_9")]
pub(crate) use sqlx_0_9::from_sqlx;

use batch::{Batch, batches};
use values::Values;

use crate::error::Doing;
use crate::server::session::Tx;
use crate::server::statement::{Schema, Sql};

/// What an error says that we were doing.
const WHAT: &str = "emit an event";
const INSERT: Sql = sql!("emit/event_insert");
const INSERT_AFTER: Sql = sql!("emit/event_insert_after");
const INSERT_ALL: Sql = sql!("emit/event_insert_all");
/// The same for events with an idempotency key.
const EMIT: Sql = sql!("emit/event_emit");
const EMIT_ALL: Sql = sql!("emit/event_emit_all");
/// Both for client libraries that can send little but text.
#[cfg(feature = "sea-orm-2")]
const INSERT_JSON: Sql = sql!("emit/event_insert_json");
#[cfg(feature = "sea-orm-2")]
const EMIT_JSON: Sql = sql!("emit/event_emit_json");
const COPY: Sql = sql!("emit/event_copy");
const CLOCK: Sql = sql!("emit/clock_read");

pub(crate) static POSTRIDER: LazyLock<Schema> = LazyLock::new(Schema::default);

/// Marks events emitted through tokio-postgres. Callers need not name it.
#[derive(Debug, Clone, Copy)]
pub struct TokioPostgres;

/// A transaction, and the schema to emit to. Made by [`Schema::on`].
#[derive(Debug, Clone, Copy)]
pub struct On<'a, T> {
    pub(crate) schema: &'a Schema,
    pub(crate) tx: T,
}

impl Schema {
    /// A transaction that emits to this schema and not to `postrider`.
    ///
    /// ```no_run
    /// # async fn order(tx: tokio_postgres::Transaction<'_>) -> postrider_core::Result<()> {
    /// use postrider_core::{Event, emit};
    /// use postrider_postgres::{Schema, tokio_postgres};
    ///
    /// let shop = Schema::new("shop")?;
    /// emit(shop.on(&tx), Event::new("order")).await?;
    /// # Ok(()) }
    /// ```
    pub fn on<T>(&self, tx: T) -> On<'_, T> {
        On { schema: self, tx }
    }
}

impl<T> From<T> for On<'_, T> {
    fn from(tx: T) -> Self {
        On { schema: &POSTRIDER, tx }
    }
}

impl<'a> Emit<TokioPostgres> for &'a Transaction<'_> {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self, &POSTRIDER, event))
    }
}

impl<'a> Emit<TokioPostgres> for &'a mut Transaction<'_> {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self, &POSTRIDER, event))
    }
}

impl<'a> Emit<TokioPostgres> for On<'a, &'a mut Transaction<'_>> {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self.tx, self.schema, event))
    }
}

impl<'a> Emit<TokioPostgres> for On<'a, &'a Transaction<'_>> {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self.tx, self.schema, event))
    }
}

/// A transaction of the caller's that many events can be written through at once: those that
/// [`Emit`] is implemented for.
pub trait EmitAll {
    /// `Result<Vec<EventId>>`, or a future of it.
    type Output;

    /// Writes `events` through this transaction; returns their ids in the same order.
    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output;
}

/// Emits `events` in the caller's transaction `tx`, with a statement for each thousand of them, and returns their
/// ids in the order of the events. A repeat with the same idempotency key, also within the batch, returns the
/// first event's id.
///
/// All are checked before the first is written.
///
/// ```no_run
/// # async fn order(tx: tokio_postgres::Transaction<'_>) -> postrider_core::Result<()> {
/// use postrider_core::Event;
/// use postrider_postgres::{emit_all, tokio_postgres};
///
/// let ids = emit_all(&tx, vec![Event::new("order").key(1), Event::new("order").key(2)]).await?;
/// assert!(ids[0] < ids[1]);
/// # Ok(()) }
/// ```
pub fn emit_all<T: EmitAll>(tx: T, mut events: Vec<NewEvent>) -> T::Output {
    events.iter_mut().for_each(postrider_core::emit::trace);
    tx.emit_all(events)
}

impl<'a> EmitAll for &'a Transaction<'_> {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self, &POSTRIDER, events))
    }
}

impl<'a> EmitAll for &'a mut Transaction<'_> {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self, &POSTRIDER, events))
    }
}

impl<'a> EmitAll for On<'a, &'a Transaction<'_>> {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self.tx, self.schema, events))
    }
}

/// Emits through the store's own connection: all or none, since it is one transaction.
pub(crate) async fn event_emit(tx: &Tx<'_>, mut events: Vec<NewEvent>) -> Result<Vec<EventId>> {
    let mut ids = Vec::with_capacity(events.len());
    events.iter_mut().for_each(postrider_core::emit::trace);
    events.iter().try_for_each(NewEvent::check)?;
    for batch in batches(&events) {
        let parameters: Vec<_> = batch.parameters().into_iter().map(|(value, _)| value).collect();
        let rows = tx.query(batch.sql(), &parameters, WHAT).await?;
        ids.extend(ids_read(&rows, &batch)?);
    }
    Ok(ids)
}

async fn event_insert(tx: &Transaction<'_>, schema: &Schema, event: NewEvent) -> Result<EventId> {
    event.check()?;
    let values = Values::of(&event);
    let sql = values.form().sql().text(schema);
    let rows = tx.query_typed(&sql, &values.parameters()).await.doing(WHAT)?;
    id_read(&rows)
}

async fn event_insert_all(
    tx: &Transaction<'_>,
    schema: &Schema,
    events: Vec<NewEvent>,
) -> Result<Vec<EventId>> {
    events.iter().try_for_each(NewEvent::check)?;
    let mut ids = Vec::with_capacity(events.len());
    for batch in batches(&events) {
        let rows = tx.query_typed(&batch.sql().text(schema), &batch.parameters()).await.doing(WHAT)?;
        ids.extend(ids_read(&rows, &batch)?);
    }
    Ok(ids)
}

fn id_read(rows: &[Row]) -> Result<EventId> {
    let [row] = rows else { return Err(id_is_missing()) };
    row.try_get(0).map(EventId).doing(WHAT)
}

/// The ids of a batch, in its order.
fn ids_read(rows: &[Row], batch: &Batch<'_>) -> Result<Vec<EventId>> {
    if rows.len() != batch.len() {
        return Err(id_is_missing());
    }
    rows.iter().map(|row| row.try_get(0).map(EventId).doing(WHAT)).collect()
}

/// A trigger or rule that was added to the log swallows rows.
fn id_is_missing() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "cannot emit an event: an id did not come back: remove triggers and rules from the table of events",
    )
}
