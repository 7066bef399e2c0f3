//! Emitting through sqlx 0.9.
//!
//! ```no_run
//! # async fn order(db: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::{Event, emit};
//!
//! let mut tx = db.begin().await?;
//! sqlx::query("insert into orders (id) values (42)").execute(&mut *tx).await?;
//! emit(&mut tx, Event::new("order").kind("order.created").key(42)).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! sqlx keeps prepared statements for each connection, so that this way is the prepared one.

use futures_util::future::BoxFuture;
use postrider_core::{Emit, Error, ErrorKind, EventId, NewEvent, Result};
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgHasArrayType, PgTypeInfo};
use sqlx::{Arguments, AssertSqlSafe, PgConnection, Postgres};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::batch::{Batch, batches};
use super::values::{Form, HeadersJson, Values};
use super::{EmitAll, On, POSTRIDER, WHAT, id_is_missing};
use crate::error::from_code;
use crate::server::statement::{Schema, Sql};
use crate::server::values::{At, For, JsonBytes};

/// Marks events emitted through sqlx. Callers need not name it.
#[derive(Debug, Clone, Copy)]
pub struct Sqlx;

/// `&mut *tx` gives a `&mut PgConnection`, and functions that work within a transaction take one. Outside of a
/// transaction, each event is a separate transaction.
macro_rules! emit_through {
    ($connection:ty, $self:ident => $conn:expr, $schema:expr) => {
        impl<'a> Emit<Sqlx> for $connection {
            type Output = BoxFuture<'a, Result<EventId>>;

            fn emit($self, event: NewEvent) -> Self::Output {
                Box::pin(event_insert($conn, $schema, event))
            }
        }

        impl<'a> EmitAll for $connection {
            type Output = BoxFuture<'a, Result<Vec<EventId>>>;

            fn emit_all($self, events: Vec<NewEvent>) -> Self::Output {
                Box::pin(event_insert_all($conn, $schema, events))
            }
        }
    };
}

emit_through!(&'a mut PgConnection, self => self, &POSTRIDER);
emit_through!(&'a mut sqlx::Transaction<'_, Postgres>, self => self, &POSTRIDER);
emit_through!(On<'a, &'a mut PgConnection>, self => self.tx, self.schema);
emit_through!(On<'a, &'a mut sqlx::Transaction<'_, Postgres>>, self => self.tx, self.schema);

async fn event_insert(conn: &mut PgConnection, schema: &Schema, event: NewEvent) -> Result<EventId> {
    event.check()?;
    let values = Values::of(&event);
    let arguments = arguments_of(&values).map_err(cannot_encode)?;
    let ids = query(conn, values.form().sql(), schema, arguments).await?;
    ids.first().copied().ok_or_else(id_is_missing)
}

async fn event_insert_all(
    conn: &mut PgConnection,
    schema: &Schema,
    events: Vec<NewEvent>,
) -> Result<Vec<EventId>> {
    events.iter().try_for_each(NewEvent::check)?;
    let mut ids = Vec::with_capacity(events.len());
    for batch in batches(&events) {
        let arguments = arguments_of_all(&batch).map_err(cannot_encode)?;
        let given = query(conn, batch.sql(), schema, arguments).await?;
        if given.len() != batch.len() {
            return Err(id_is_missing());
        }
        ids.extend(given);
    }
    Ok(ids)
}

async fn query(
    conn: &mut PgConnection,
    sql: Sql,
    schema: &Schema,
    arguments: PgArguments,
) -> Result<Vec<EventId>> {
    // Our own text, with the name of a schema that was checked.
    let text = AssertSqlSafe(sql.text(schema).into_owned());
    let ids = sqlx::query_scalar_with::<_, i64, _>(text, arguments).fetch_all(conn).await;
    Ok(ids.map_err(|error| from_sqlx(error, WHAT))?.into_iter().map(EventId).collect())
}

fn arguments_of(values: &Values<'_>) -> Result<PgArguments, BoxDynError> {
    let mut arguments = PgArguments::default();
    arguments.add(values.topic)?;
    arguments.add(values.kind)?;
    arguments.add(values.key)?;
    arguments.add(values.payload)?;
    arguments.add(values.payload_bytes)?;
    arguments.add(values.headers)?;
    match values.form() {
        Form::Insert => arguments.add(values.due_at)?,
        Form::InsertAfter => arguments.add(values.due_in)?,
        Form::Emit => {
            arguments.add(values.due_at)?;
            arguments.add(values.due_in)?;
            arguments.add(&values.idempotency_key)?;
            arguments.add(values.unique_for)?;
            arguments.add(values.replaces)?;
        }
    }
    Ok(arguments)
}

fn arguments_of_all(batch: &Batch<'_>) -> Result<PgArguments, BoxDynError> {
    let mut arguments = PgArguments::default();
    arguments.add(&batch.topics)?;
    arguments.add(&batch.kinds)?;
    arguments.add(&batch.keys)?;
    arguments.add(&batch.payloads)?;
    arguments.add(&batch.payloads_bytes)?;
    arguments.add(&batch.headers)?;
    arguments.add(&batch.due_at)?;
    arguments.add(&batch.due_in)?;
    if batch.has_idempotency_keys() {
        arguments.add(&batch.idempotency_keys)?;
        arguments.add(&batch.unique_for)?;
        arguments.add(&batch.replaces)?;
    }
    Ok(arguments)
}

/// Lets sqlx send a value of ours.
macro_rules! sqlx_value {
    ($type:ty, $sql:expr, $array:expr, $self:ident, $buffer:ident => $encode:expr) => {
        impl sqlx::Type<Postgres> for $type {
            fn type_info() -> PgTypeInfo {
                PgTypeInfo::with_oid(Oid($sql.oid()))
            }
        }

        impl PgHasArrayType for $type {
            fn array_type_info() -> PgTypeInfo {
                PgTypeInfo::with_oid(Oid($array.oid()))
            }
        }

        impl Encode<'_, Postgres> for $type {
            fn encode_by_ref(&$self, $buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
                $encode;
                Ok(IsNull::No)
            }
        }
    };
}

sqlx_value!(At, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ_ARRAY, self, buffer => buffer.extend_from_slice(&self.to_bytes()));
sqlx_value!(For, Type::INTERVAL, Type::INTERVAL_ARRAY, self, buffer => buffer.extend_from_slice(&self.to_bytes()));
sqlx_value!(JsonBytes<'_>, Type::JSON, Type::JSON_ARRAY, self, buffer => buffer.extend_from_slice(self.0));
sqlx_value!(HeadersJson<'_>, Type::JSON, Type::JSON_ARRAY, self, buffer => serde_json::to_writer(&mut **buffer, self.0)?);

/// What sqlx has to say; `what` completes the sentence "cannot …".
pub(crate) fn from_sqlx(error: sqlx::Error, what: &str) -> Error {
    match &error {
        sqlx::Error::Database(said) => {
            let code = said.code().unwrap_or_default();
            from_code(&SqlState::from_code(&code), said.message(), what)
        }
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            Error::new(ErrorKind::Unavailable, format!("cannot {what}: {error}")).with_source(error)
        }
        _ => Error::new(ErrorKind::Internal, format!("cannot {what}: {error}")).with_source(error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn cannot_encode(error: BoxDynError) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot {WHAT}: {error}"))
}
