//! The statement as a query of diesel, for its blocking connections and its asynchronous ones.

use std::borrow::Cow;

use diesel::QueryableByName;
use diesel::pg::Pg;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Integer};
use postrider_core::Result;

use super::{ACK, Acking, WHAT};
use crate::emit::from_diesel;
use crate::server::statement::Schema;

/// Whether it was ours.
#[derive(QueryableByName)]
pub(super) struct Acked {
    #[diesel(sql_type = Bool)]
    ack: bool,
}

impl Acking {
    pub(super) fn query(&self, schema: &Schema) -> BoxedSqlQuery<'static, Pg, SqlQuery> {
        let text: Cow<'static, str> = ACK.text(schema);
        diesel::sql_query(text.into_owned())
            .into_boxed()
            .bind::<BigInt, _>(self.subscription)
            .bind::<BigInt, _>(self.event)
            .bind::<BigInt, _>(self.token)
            .bind::<Integer, _>(self.bucket)
    }

    pub(super) fn said(&self, acked: QueryResult<Acked>) -> Result<()> {
        self.was(acked.map_err(|error| from_diesel(error, WHAT))?.ack)
    }
}
