//! Our statements as queries of diesel, for its blocking connections and its asynchronous ones.
//!
//! Not by `diesel::sql_query`, whose statements the server has to parse and plan each time: diesel keeps prepared
//! those that it has put together itself, so that it is given the text piece by piece, with a parameter between two.

use std::borrow::Cow;
use std::io::Write;

use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Interval, Json, Nullable, Text, Timestamptz};
use postrider_core::{Error, ErrorKind, EventId, Result};
use tokio_postgres::error::SqlState;

use super::batch::Batch;
use super::values::{Form, HeadersJson, Values};
use super::{WHAT, id_is_missing};
use crate::error::from_code;
use crate::server::statement::Schema;
use crate::server::values::{At, For, JsonBytes};

/// A statement that returns ids.
pub(super) struct Statement<T> {
    text: Cow<'static, str>,
    values: T,
}

impl<'a> Statement<Values<'a>> {
    pub(super) fn of(values: Values<'a>, schema: &Schema) -> Self {
        Self { text: values.form().sql().text(schema), values }
    }
}

impl<'a> Statement<Batch<'a>> {
    pub(super) fn of_all(batch: Batch<'a>, schema: &Schema) -> Self {
        Self { text: batch.sql().text(schema), values: batch }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

impl<T> Query for Statement<T> {
    type SqlType = BigInt;
}

/// Told apart by its text and the types of its parameters.
impl<T> QueryId for Statement<T> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Conn, T> diesel::RunQueryDsl<Conn> for Statement<T> {}

/// Gives diesel the text up to each parameter and then the parameter, and at last the rest.
macro_rules! walk {
    ($statement:ident, $out:ident, $($type:ty => $value:expr),+ $(; $if:expr => $($more:ty => $other:expr),+)*) => {{
        let mut rest: &str = &$statement.text;
        $($out.push_sql(next_piece(&mut rest)); $out.push_bind_param::<$type, _>($value)?;)+
        $(if $if {
            $($out.push_sql(next_piece(&mut rest)); $out.push_bind_param::<$more, _>($other)?;)+
        })*
        $out.push_sql(rest);
        Ok(())
    }};
}

impl QueryFragment<Pg> for Statement<Values<'_>> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let (values, form) = (&self.values, self.values.form());
        walk!(self, out,
            Text => values.topic,
            Text => values.kind,
            Nullable<Text> => &values.key,
            Nullable<Json> => &values.payload,
            Nullable<Binary> => &values.payload_bytes,
            Nullable<Json> => &values.headers;
            form != Form::InsertAfter => Nullable<Timestamptz> => &values.due_at;
            form != Form::Insert => Nullable<Interval> => &values.due_in;
            form == Form::Emit => Nullable<Text> => &values.idempotency_key,
                Nullable<Interval> => &values.unique_for,
                Bool => &values.replaces
        )
    }
}

impl QueryFragment<Pg> for Statement<Batch<'_>> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let batch = &self.values;
        walk!(self, out,
            Array<Text> => &batch.topics,
            Array<Text> => &batch.kinds,
            Array<Nullable<Text>> => &batch.keys,
            Array<Nullable<Json>> => &batch.payloads,
            Array<Nullable<Binary>> => &batch.payloads_bytes,
            Array<Nullable<Json>> => &batch.headers,
            Array<Nullable<Timestamptz>> => &batch.due_at,
            Array<Nullable<Interval>> => &batch.due_in;
            batch.has_idempotency_keys() => Array<Nullable<Text>> => &batch.idempotency_keys,
                Array<Nullable<Interval>> => &batch.unique_for,
                Array<Bool> => &batch.replaces
        )
    }
}

/// The text before the next parameter. Our statements name each parameter once and in order, as diesel numbers them.
fn next_piece<'a>(rest: &mut &'a str) -> &'a str {
    let (piece, after) =
        rest.split_once('$').expect("a statement has as many parameters as there are values");
    *rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    piece
}

/// Lets diesel send a value of ours.
macro_rules! diesel_value {
    ($type:ty, $sql:ty, $self:ident, $out:ident => $write:expr) => {
        impl ToSql<$sql, Pg> for $type {
            fn to_sql<'b>(&'b $self, $out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                $write;
                Ok(IsNull::No)
            }
        }
    };
}

diesel_value!(At, Timestamptz, self, out => out.write_all(&self.to_bytes())?);
diesel_value!(For, Interval, self, out => out.write_all(&self.to_bytes())?);
diesel_value!(JsonBytes<'_>, Json, self, out => out.write_all(self.0)?);
diesel_value!(HeadersJson<'_>, Json, self, out => serde_json::to_writer(out, self.0)?);

/// The one id that an event has.
pub(super) fn id_read(ids: QueryResult<Vec<i64>>) -> Result<EventId> {
    let [id] = ids_read(ids, 1)?[..] else { return Err(id_is_missing()) };
    Ok(id)
}

/// The ids of `count` events.
pub(super) fn ids_read(ids: QueryResult<Vec<i64>>, count: usize) -> Result<Vec<EventId>> {
    let ids = ids.map_err(|error| from_diesel(error, WHAT))?;
    if ids.len() == count { Ok(ids.into_iter().map(EventId).collect()) } else { Err(id_is_missing()) }
}

/// What diesel has to say; `what` completes the sentence "cannot …".
pub(crate) fn from_diesel(error: DieselError, what: &str) -> Error {
    let DieselError::DatabaseError(kind, said) = &error else {
        return Error::new(ErrorKind::Internal, format!("cannot {what}: {error}")).with_source(error);
    };
    match code(*kind, said.message()) {
        Some(code) => from_code(&code, said.message(), what),
        None => Error::new(ErrorKind::Internal, format!("cannot {what}: {}", said.message())),
    }
}

/// The code that the server gave, which diesel does not tell. Of what it calls unknown we know those that people
/// meet by their English texts; a server that speaks another language still has its own words in the error.
fn code(kind: DatabaseErrorKind, said: &str) -> Option<SqlState> {
    match kind {
        DatabaseErrorKind::UniqueViolation => Some(SqlState::UNIQUE_VIOLATION),
        DatabaseErrorKind::SerializationFailure => Some(SqlState::T_R_SERIALIZATION_FAILURE),
        DatabaseErrorKind::ReadOnlyTransaction => Some(SqlState::READ_ONLY_SQL_TRANSACTION),
        DatabaseErrorKind::NotNullViolation => Some(SqlState::NOT_NULL_VIOLATION),
        DatabaseErrorKind::CheckViolation => Some(SqlState::CHECK_VIOLATION),
        DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand => {
            Some(SqlState::CONNECTION_FAILURE)
        }
        _ if said.starts_with("permission denied") => Some(SqlState::INSUFFICIENT_PRIVILEGE),
        _ if said.ends_with("does not exist") => Some(SqlState::UNDEFINED_TABLE),
        _ if said.starts_with("stack depth limit exceeded") => Some(SqlState::STATEMENT_TOO_COMPLEX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EMIT, EMIT_ALL, INSERT, INSERT_AFTER, INSERT_ALL};
    use super::*;

    #[test]
    fn statements_name_each_parameter_once_and_in_order() {
        for (sql, count) in [(INSERT, 7), (INSERT_AFTER, 7), (EMIT, 11), (INSERT_ALL, 8), (EMIT_ALL, 11)] {
            let text = sql.text(&Schema::default());
            let mut rest: &str = &text;
            let mut pieces: Vec<String> =
                (1..=count).map(|n| format!("{}${n}", next_piece(&mut rest))).collect();
            pieces.push(rest.to_owned());
            assert_eq!(pieces.concat(), text);
        }
    }
}
