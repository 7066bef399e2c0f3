//! Emitting through sea-orm 2.
//!
//! ```no_run
//! # async fn order(db: &sea_orm::DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::{Event, emit};
//! use sea_orm::{ConnectionTrait, TransactionTrait};
//!
//! let tx = db.begin().await?;
//! tx.execute_unprepared("insert into orders (id) values (42)").await?;
//! emit(&tx, Event::new("order").kind("order.created").key(42)).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! A function that takes any `C: ConnectionTrait` emits by `emit(Schema::default().on(&conn), event)`: Rust does
//! not allow us to implement a trait for references to all types of another crate's trait. On a connection that is no
//! transaction, each event is a separate transaction.
//!
//! sea-orm hides the connection within its transaction. None of its values can be an instant, a JSON text as it is
//! written or an array with gaps, unless the application has chosen the same optional crates as we have. So events
//! travel as one JSON text and an array of payloads, which the server takes apart.

use futures_util::future::BoxFuture;
use postrider_core::{Emit, Error, ErrorKind, EventId, Headers, NewEvent, Result};
use sea_orm::sea_query::{ArrayType, Value};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, RuntimeErr, Statement};
use serde::Serialize;
use tokio_postgres::error::SqlState;

use super::batch::{Batch, batches};
use super::values::HeadersJson;
use super::{EMIT_JSON, EmitAll, INSERT_JSON, On, POSTRIDER, WHAT, id_is_missing};
use crate::error::from_code;
use crate::server::statement::Schema;
use crate::server::values::{At, For};

/// Marks events emitted through sea-orm. Callers need not name it.
#[derive(Debug, Clone, Copy)]
pub struct SeaOrm;

impl<'a> Emit<SeaOrm> for &'a DatabaseTransaction {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self, &POSTRIDER, event))
    }
}

impl<'a, C: ConnectionTrait> Emit<SeaOrm> for On<'a, &'a C> {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(event_insert(self.tx, self.schema, event))
    }
}

impl<'a> EmitAll for &'a DatabaseTransaction {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self, &POSTRIDER, events))
    }
}

impl<'a> EmitAll for On<'a, &'a DatabaseTransaction> {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self.tx, self.schema, events))
    }
}

async fn event_insert(conn: &impl ConnectionTrait, schema: &Schema, event: NewEvent) -> Result<EventId> {
    let ids = event_insert_all(conn, schema, vec![event]).await?;
    ids.first().copied().ok_or_else(id_is_missing)
}

async fn event_insert_all(
    conn: &impl ConnectionTrait,
    schema: &Schema,
    events: Vec<NewEvent>,
) -> Result<Vec<EventId>> {
    if conn.get_database_backend() != DbBackend::Postgres {
        let message = format!("cannot {WHAT}: this connection is not one to PostgreSQL");
        return Err(Error::invalid(message));
    }
    events.iter().try_for_each(NewEvent::check)?;
    let mut ids = Vec::with_capacity(events.len());
    for batch in batches(&events) {
        let sql = if batch.has_idempotency_keys() { EMIT_JSON } else { INSERT_JSON };
        let text = sql.text(schema).into_owned();
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, text, values_of(&batch)?);
        let rows = conn.query_all_raw(statement).await.map_err(|error| from_sea_orm(error, WHAT))?;
        if rows.len() != batch.len() {
            return Err(id_is_missing());
        }
        for row in rows {
            ids.push(EventId(row.try_get_by_index(0).map_err(|error| from_sea_orm(error, WHAT))?));
        }
    }
    Ok(ids)
}

/// One event as the statements read it.
#[derive(Serialize)]
struct EventJson<'a> {
    topic: &'a str,
    r#type: &'a str,
    key: Option<&'a str>,
    headers: Option<&'a Headers>,
    due_at: Option<String>,
    due_in: Option<String>,
    idempotency_key: Option<&'a str>,
    unique_for: Option<String>,
    replace: bool,
    is_json: bool,
}

fn values_of(batch: &Batch<'_>) -> Result<[Value; 2]> {
    let events: Vec<EventJson<'_>> = (0..batch.len()).map(|n| event_json(batch, n)).collect();
    let events = serde_json::to_string(&events).map_err(|error| {
        Error::new(ErrorKind::Internal, format!("cannot {WHAT}: {error}")).with_source(error)
    })?;
    let payload = |n: usize| match batch.payloads[n] {
        Some(json) => json.0,
        None => batch.payloads_bytes[n].unwrap_or_default(),
    };
    let payloads = (0..batch.len()).map(|n| Value::Bytes(Some(payload(n).to_vec()))).collect();
    Ok([Value::String(Some(events)), Value::Array(ArrayType::Bytes, Some(Box::new(payloads)))])
}

fn event_json<'a>(batch: &'a Batch<'_>, n: usize) -> EventJson<'a> {
    EventJson {
        topic: batch.topics[n],
        r#type: batch.kinds[n],
        key: batch.keys[n],
        headers: batch.headers[n].map(|HeadersJson(headers)| headers),
        due_at: batch.due_at[n].map(|At(at)| at.to_string()),
        due_in: batch.due_in[n].map(|For(delay)| seconds(delay)),
        idempotency_key: batch.idempotency_keys[n].as_deref(),
        unique_for: batch.unique_for[n].map(|For(period)| seconds(period)),
        replace: batch.replaces[n],
        is_json: batch.payloads[n].is_some(),
    }
}

/// An interval as the server reads it, to the microsecond.
fn seconds(delay: std::time::Duration) -> String {
    format!("{}.{:06} seconds", delay.as_secs(), delay.subsec_micros())
}

/// What sea-orm has to say; `what` completes the sentence "cannot …".
pub(crate) fn from_sea_orm(error: DbErr, what: &str) -> Error {
    let failed = match &error {
        DbErr::Conn(failed) | DbErr::Exec(failed) | DbErr::Query(failed) => Some(failed),
        _ => None,
    };
    if let Some(RuntimeErr::SqlxError(failed)) = failed
        && let sea_orm::sqlx::Error::Database(said) = &**failed
    {
        let code = said.code().unwrap_or_default();
        return from_code(&SqlState::from_code(&code), said.message(), what);
    }
    let is_connection = matches!(error, DbErr::Conn(_) | DbErr::ConnectionAcquire(_));
    let kind = if is_connection { ErrorKind::Unavailable } else { ErrorKind::Internal };
    Error::new(kind, format!("cannot {what}: {error}")).with_source(error)
}
