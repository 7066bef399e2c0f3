//! A table into which events are delivered: what [`postrider_core::inbox`] promises, on PostgreSQL.
//!
//! A batch is one statement and so one transaction, without anything that has to outlive it: it works through
//! a pooler, and a call that is given up half way has its effect as a whole or none. Either way the next one
//! leaves out what is there.

use std::time::Duration;

use postrider_core::inbox::{Refused, TableName};
use postrider_core::{Delivery, Key, Result};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tracing::debug;

use super::SECONDS_MAX;
use crate::emit::POSTRIDER;
use crate::error::{Doing, from_postgres};
use crate::options::PostgresOptions;
use crate::server::connect::connect;
use crate::server::statement::Sql;
use crate::server::values::At;

const LOOK: Sql = sql!("inbox/inbox_look");
const LOCK: Sql = sql!("inbox/inbox_make_lock");
const MAKE: [Sql; 3] =
    [sql!("inbox/inbox_event_make"), sql!("inbox/inbox_seen_make"), sql!("inbox/inbox_seen_index")];
const DELIVER: Sql = sql!("inbox/inbox_deliver");
/// What stands in these statements for the two tables.
const EVENT: &str = "inbox_event";
const SEEN: &str = "inbox_seen";
/// For each event of a batch so many old ids are forgotten, so that they become fewer whenever they can.
const FORGET_RATIO: usize = 2;

/// A connection to the database of an inbox. People see it as `postrider/inbox`.
pub struct InboxTable {
    client: Client,
    name: TableName,
    deliver: String,
}

impl InboxTable {
    /// Connects; touches no table.
    pub async fn connect(options: &PostgresOptions, name: &TableName) -> Result<Self> {
        let (client, connection) = connect(options, "postrider/inbox").await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Calls on the connection fail as well.
                debug!(%error, "the connection to an inbox has ended");
            }
        });
        Ok(Self { client, deliver: fit(DELIVER, name), name: name.clone() })
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether both tables are there.
    pub async fn is_there(&self) -> Result<bool> {
        let what = "look for the tables of the inbox";
        let rows = self.client.query_typed(&fit(LOOK, &self.name), &[]).await.doing(what)?;
        let found = |column| rows[0].try_get::<_, bool>(column).doing(what);
        Ok(found(0)? && found(1)?)
    }

    /// Makes both tables, unless another process was quicker.
    pub async fn make(&mut self) -> Result<()> {
        let what = "make the tables of the inbox";
        let tx = self.client.transaction().await.doing(what)?;
        tx.query_typed(LOCK.text(&POSTRIDER).as_ref(), &[]).await.doing(what)?;
        let rows = tx.query_typed(&fit(LOOK, &self.name), &[]).await.doing(what)?;
        let [has_event, has_seen] =
            [0, 1].map(|column| rows[0].try_get::<_, bool>(column).unwrap_or_default());
        let [event, seen, index] = MAKE;
        let missing = [(event, !has_event), (seen, !has_seen), (index, !has_seen)];
        for (statement, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
            tx.batch_execute(&fit(statement, &self.name)).await.doing(what)?;
        }
        tx.commit().await.doing(what)
    }

    /// Delivers a batch, and says how many of it were new. Durable on return. Some ids that were seen longer
    /// ago than `remember` are forgotten.
    ///
    /// Cancel safe: what was begun may still take effect, and is left out when it comes again.
    pub async fn deliver(&self, batch: &[Delivery], remember: Duration) -> Result<u64, Refused> {
        let columns = Columns::of(batch);
        let seconds = remember.as_secs_f64().min(SECONDS_MAX);
        let forget_max = (batch.len() * FORGET_RATIO) as i64;
        let delivered =
            self.client.execute_typed(&self.deliver, &columns.parameters(&seconds, &forget_max)).await;
        delivered.map_err(|error| {
            let is_content = is_content(&error);
            let error = from_postgres(error, &format!("deliver into the inbox `{}`", self.name));
            if is_content { Refused::Content(error) } else { Refused::Table(error) }
        })
    }
}

/// A batch, column by column.
#[derive(Default)]
struct Columns<'a> {
    dedup_ids: Vec<String>,
    ids: Vec<i64>,
    topics: Vec<&'a str>,
    types: Vec<&'a str>,
    keys: Vec<Option<&'a str>>,
    payloads: Vec<&'a [u8]>,
    headers: Vec<String>,
    created_at: Vec<At>,
    subscriptions: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a [Delivery]) -> Self {
        let mut columns = Self::default();
        for delivery in batch {
            columns.dedup_ids.push(delivery.dedup_id());
            columns.ids.push(delivery.id.0);
            columns.topics.push(delivery.topic.as_str());
            columns.types.push(delivery.kind.as_str());
            columns.keys.push(delivery.key.as_ref().map(Key::as_str));
            columns.payloads.push(&delivery.payload);
            columns.headers.push(delivery.headers.to_json().unwrap_or_else(|| "{}".to_owned()));
            columns.created_at.push(At(delivery.created_at));
            columns.subscriptions.push(&delivery.origin.subscription);
        }
        columns
    }

    fn parameters<'p>(
        &'p self,
        seconds: &'p f64,
        forget_max: &'p i64,
    ) -> [(&'p (dyn ToSql + Sync), Type); 11] {
        [
            (&self.dedup_ids, Type::TEXT_ARRAY),
            (&self.ids, Type::INT8_ARRAY),
            (&self.topics, Type::TEXT_ARRAY),
            (&self.types, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.created_at, Type::TIMESTAMPTZ_ARRAY),
            (&self.subscriptions, Type::TEXT_ARRAY),
            (seconds, Type::FLOAT8),
            (forget_max, Type::INT8),
        ]
    }
}

/// A statement for the tables of this name.
fn fit(statement: Sql, name: &TableName) -> String {
    let quoted = |table: &str| match name.schema() {
        Some(schema) => format!("\"{schema}\".\"{table}\""),
        None => format!("\"{table}\""),
    };
    // The one name may hold what stands for the other, so neither is put in before both places are known.
    let text = statement.text(&POSTRIDER).replace(SEEN, "\0").replace(EVENT, &quoted(name.table()));
    text.replace('\0', &quoted(&name.seen()))
}

/// Whether the server objects to a value and not to the state of things: what it cannot hold (22), what a
/// constraint or a trigger of the receiver's forbids (23, P0), what is too large (54).
fn is_content(error: &tokio_postgres::Error) -> bool {
    let class = error.code().map(SqlState::code).and_then(|code| code.get(..2));
    matches!(class, Some("22" | "23" | "54" | "P0"))
}
