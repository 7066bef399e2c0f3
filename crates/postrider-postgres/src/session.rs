//! One connection, and transactions on it.
//!
//! Every call has a bound in time; one that exceeds it gives the connection up, since nobody knows what it
//! still does. A transaction that is dropped is rolled back before anything else runs on its connection.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_core::store::Payloads;
use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Row, RowStream, Statement, Transaction};
use tracing::debug;

use crate::connect::connect;
use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::statement::{Schema, Sql};

/// The oldest server that has what the protocol needs.
const SERVER_MIN: i32 = 140_000;

/// What a connection is for. People see it as `application_name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Reads the log. Never writes.
    Reader,
    /// Settles. Its commits are not waited for: losing one costs a duplicate, never an event.
    Writer,
    /// Beats, on a connection of its own so that nothing makes it late.
    Keeper,
    /// Runs transactional handlers.
    Worker,
    /// Does what people ask for.
    Operator,
    /// Removes old events, on a connection of its own so that nobody waits while a large leaf is looked through.
    Retention,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Reader => "postrider/reader",
            Self::Writer => "postrider/writer",
            Self::Keeper => "postrider/keeper",
            Self::Worker => "postrider/worker",
            Self::Operator => "postrider/operator",
            Self::Retention => "postrider/retention",
        }
    }

    /// How long one call may take where people have set `call_timeout`. A leaf may hold millions of events, and the
    /// larger it has grown, the more it has to be possible to empty it.
    fn timeout(self, call_timeout: Duration) -> Duration {
        match self {
            Self::Retention => call_timeout.max(Duration::from_secs(600)),
            _ => call_timeout,
        }
    }

    /// What the session is told first. Isolation is set, since under a database's default of `serializable`
    /// our reads could make producers fail; plans of those who read the log are forced to the index, since the planner
    /// knows neither how selective a snapshot is nor, in a leaf that was never analysed, how many rows there are.
    /// What people do is flushed when it is done, whatever the database's default; one that asks for more stays.
    fn settings(self) -> &'static str {
        match self {
            Self::Reader => {
                "set session characteristics as transaction isolation level read committed, read only;
                 set enable_seqscan = off; set enable_sort = off; set enable_bitmapscan = off; set jit = off;
                 set statement_timeout = '60s'"
            }
            Self::Writer | Self::Keeper => {
                "set session characteristics as transaction isolation level read committed, read write;
                 set synchronous_commit = off; set lock_timeout = '5s'; set jit = off;
                 set idle_in_transaction_session_timeout = '60s'; set statement_timeout = '60s'"
            }
            Self::Worker => {
                "set session characteristics as transaction isolation level read committed, read write;
                 set lock_timeout = '5s'"
            }
            Self::Operator => {
                "set session characteristics as transaction isolation level read committed, read write;
                 set enable_seqscan = off; set enable_bitmapscan = off; set jit = off;
                 set lock_timeout = '5s'; set idle_in_transaction_session_timeout = '60s';
                 select set_config('synchronous_commit', 'on', false)
                 where current_setting('synchronous_commit') = 'off'"
            }
            // It reads whole leaves, so that it may take the shortest way through them.
            Self::Retention => {
                "set session characteristics as transaction isolation level read committed, read write;
                 set jit = off; set lock_timeout = '5s'; set idle_in_transaction_session_timeout = '60s';
                 set statement_timeout = '10min'"
            }
        }
    }
}

/// Numbers sessions in the order in which they were made.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A connection that is ready for use.
pub(crate) struct Session {
    client: Client,
    state: State,
}

struct State {
    id: u64,
    schema: Schema,
    payloads: Payloads,
    timeout: Duration,
    broken: AtomicBool,
    statements: Mutex<HashMap<Sql, Statement>>,
}

pub(crate) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

impl Session {
    /// Connects, and refuses a server that cannot be used.
    pub(crate) async fn connect(options: &PostgresOptions, role: Role) -> Result<Self> {
        let what = format!("connect to {options}");
        let connecting = async {
            let (client, connection) = connect(options, role.name()).await?;
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    debug!(%error, role = role.name(), "a connection was lost");
                }
            });
            client.batch_execute(role.settings()).await.doing(&what)?;
            fit(&client, role).await?;
            let payloads = match role {
                Role::Operator => payloads_look(&client, &options.schema).await?,
                _ => Payloads::Shown,
            };
            Ok((client, payloads))
        };
        let (client, payloads) = match tokio::time::timeout(options.call_timeout, connecting).await {
            Ok(connected) => connected?,
            Err(_) => return Err(late(&what, options.call_timeout)),
        };
        let state = State {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            schema: options.schema.clone(),
            payloads,
            timeout: role.timeout(options.call_timeout),
            broken: AtomicBool::new(false),
            statements: Mutex::default(),
        };
        Ok(Self { client, state })
    }

    pub(crate) fn id(&self) -> u64 {
        self.state.id
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.state.broken.load(Ordering::Relaxed)
    }

    /// Whether this role may read payloads and headers. Asked for what people look at; a relay has to.
    pub(crate) fn payloads(&self) -> Payloads {
        self.state.payloads
    }

    /// Begins a transaction; dropping it rolls it back.
    pub(crate) async fn begin(&mut self) -> Result<Tx<'_>> {
        let Self { client, state } = self;
        let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start();
        let tx = state.bounded("begin a transaction", begin).await?;
        Ok(Tx { tx, state })
    }

    /// Runs one statement in a transaction of its own.
    pub(crate) async fn query(&self, sql: Sql, parameters: &Parameters<'_>, what: &str) -> Result<Vec<Row>> {
        let statement = self.prepare(sql, what).await?;
        self.state.bounded(what, self.client.query(&statement, parameters)).await
    }

    /// The same, row by row. The statement that was prepared for it must be awaited first, so that calls of
    /// several tasks go out in one piece each.
    pub(crate) async fn stream(
        &self,
        sql: Sql,
        parameters: &Parameters<'_>,
        what: &str,
    ) -> Result<RowStream> {
        let statement = self.prepare(sql, what).await?;
        let rows = self.client.query_raw(&statement, parameters.iter().copied());
        self.state.bounded(what, rows).await
    }

    /// Bounds a wait for rows of this session.
    pub(crate) async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        self.state.bounded(what, call).await
    }

    /// Runs a script of several statements.
    pub(crate) async fn run(&self, script: &str, what: &str) -> Result<()> {
        self.state.bounded(what, self.client.batch_execute(script)).await
    }

    /// Prepares a statement, unless it is. A statement that is prepared goes out when its call is first polled, so
    /// that calls which are begun one after the other run in that order.
    pub(crate) async fn prepare(&self, sql: Sql, what: &str) -> Result<Statement> {
        if let Some(statement) = self.state.prepared(sql) {
            return Ok(statement);
        }
        let text = sql.text(&self.state.schema);
        let statement = self.state.bounded(what, self.client.prepare(&text)).await?;
        Ok(self.state.keep(sql, statement))
    }
}

/// A transaction.
pub(crate) struct Tx<'a> {
    tx: Transaction<'a>,
    state: &'a State,
}

impl<'a> Tx<'a> {
    /// All rows of a statement.
    pub(crate) async fn query(&self, sql: Sql, parameters: &Parameters<'_>, what: &str) -> Result<Vec<Row>> {
        let statement = self.prepare(sql, what).await?;
        self.state.bounded(what, self.tx.query(&statement, parameters)).await
    }

    /// The first row of a statement, if it has one.
    pub(crate) async fn query_opt(
        &self,
        sql: Sql,
        parameters: &Parameters<'_>,
        what: &str,
    ) -> Result<Option<Row>> {
        Ok(self.query(sql, parameters, what).await?.into_iter().next())
    }

    /// The only row of a statement that always has one.
    pub(crate) async fn query_one(&self, sql: Sql, parameters: &Parameters<'_>, what: &str) -> Result<Row> {
        self.query_opt(sql, parameters, what)
            .await?
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("cannot {what}: no row came back")))
    }

    /// How many rows a statement changed.
    pub(crate) async fn execute(&self, sql: Sql, parameters: &Parameters<'_>, what: &str) -> Result<u64> {
        let statement = self.prepare(sql, what).await?;
        self.state.bounded(what, self.tx.execute(&statement, parameters)).await
    }

    /// Runs a script of several statements.
    pub(crate) async fn run(&self, script: &str, what: &str) -> Result<()> {
        self.state.bounded(what, self.tx.batch_execute(script)).await
    }

    pub(crate) async fn commit(self, what: &str) -> Result<()> {
        self.state.bounded(what, self.tx.commit()).await
    }

    pub(crate) async fn rollback(self, what: &str) -> Result<()> {
        self.state.bounded(what, self.tx.rollback()).await
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.state.schema
    }

    /// As [`Session::payloads`].
    pub(crate) fn payloads(&self) -> Payloads {
        self.state.payloads
    }

    /// The client library's own transaction.
    pub(crate) fn inner(&mut self) -> &mut Transaction<'a> {
        &mut self.tx
    }

    async fn prepare(&self, sql: Sql, what: &str) -> Result<Statement> {
        if let Some(statement) = self.state.prepared(sql) {
            return Ok(statement);
        }
        let text = sql.text(&self.state.schema);
        let statement = self.state.bounded(what, self.tx.prepare(&text)).await?;
        Ok(self.state.keep(sql, statement))
    }
}

impl State {
    async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        if let Ok(answer) = tokio::time::timeout(self.timeout, call).await {
            return answer.doing(what);
        }
        self.broken.store(true, Ordering::Relaxed);
        Err(late(what, self.timeout))
    }

    fn prepared(&self, sql: Sql) -> Option<Statement> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(&sql).cloned()
    }

    fn keep(&self, sql: Sql, statement: Statement) -> Statement {
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        statements.entry(sql).or_insert(statement).clone()
    }
}

fn late(what: &str, timeout: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what}: the server has not answered for {timeout:?}"))
}

/// Refuses a server that is too old, and one that is a standby: there snapshots come in another order.
async fn fit(client: &Client, role: Role) -> Result<()> {
    let what = "ask the server what it is";
    let row = client
        .query_one("select current_setting('server_version_num')::int, pg_is_in_recovery()", &[])
        .await
        .doing(what)?;
    let (version, standby): (i32, bool) = (row.try_get(0).doing(what)?, row.try_get(1).doing(what)?);
    if version < SERVER_MIN {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("this server is PostgreSQL {}: Postrider needs 14 or newer", version / 10_000),
        ));
    }
    if standby {
        let message = format!("this server is a standby ({}): connect to the primary", role.name());
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    Ok(())
}

/// Asks whether this role may read payloads. A database without the schema has none to withhold.
async fn payloads_look(client: &Client, schema: &Schema) -> Result<Payloads> {
    let what = "ask whether payloads may be read";
    let text = sql!("payload_right").text(schema);
    let row = client.query_one(&*text, &[&schema.name()]).await.doing(what)?;
    let may: Option<bool> = row.try_get(0).doing(what)?;
    Ok(if may == Some(false) { Payloads::Withheld } else { Payloads::Shown })
}

#[cfg(test)]
mod tests {
    use postrider_testkit::postgres::{Version, shared};

    use super::*;

    #[tokio::test]
    async fn what_people_do_is_flushed_whatever_the_databases_default() {
        for (default, held) in [("off", "on"), ("remote_apply", "remote_apply")] {
            let database = shared(Version::V15).create_database();
            database.query(&format!("alter database {} set synchronous_commit = {default}", database.name));
            let options = PostgresOptions::from_url(&database.url).unwrap();
            let session = Session::connect(&options, Role::Operator).await.unwrap();
            let row = session.client.query_one("show synchronous_commit", &[]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), held);
        }
    }
}
