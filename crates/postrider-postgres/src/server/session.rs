//! One connection, and transactions on it.
//!
//! Every call has a bound in time. A call that exceeds it gives the connection up, because we cannot know what
//! it still does. A transaction that is dropped is rolled back before anything else runs on its connection.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::store::Payloads;
use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Row, RowStream, SimpleQueryMessage, Statement, Transaction};
use tracing::warn;

use crate::error::{Doing, from_postgres};
use crate::options::PostgresOptions;
use crate::server::flight::fly;
use crate::server::pooler::{Form, Pooled, Route, Way};
use crate::server::reach::reach;
use crate::server::settings::PATH_LOCAL;
use crate::server::statement::{Schema, Sql, WalPlace};

/// By name, so that nothing else is taken for it.
const WAL_QUESTION: &str =
    "select pg_catalog.pg_current_wal_insert_lsn(), pg_catalog.pg_current_wal_flush_lsn()";

/// What a connection is for. People see it as `application_name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Reads the log. Never writes.
    Reader,
    /// Settles. Its commits are not waited for: losing one costs a duplicate, never an event.
    Writer,
    /// Beats, on a connection of its own so that nothing makes it late.
    Keeper,
    /// Settles and sweeps queues, beside the feeder. Its commits are not waited for either.
    Settler,
    /// Claims events of queues. Its commits are waited for: a forgotten token could be given to another worker.
    Claimer,
    /// Runs transactional handlers.
    Worker,
    /// Does what people ask for.
    Operator,
    /// Removes old events, on a separate connection so that no other work waits while it looks through a large leaf.
    Retention,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reader => "postrider/reader",
            Self::Writer => "postrider/writer",
            Self::Keeper => "postrider/keeper",
            Self::Settler => "postrider/settler",
            Self::Claimer => "postrider/claimer",
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
    wal_place: WalPlace,
    timeout: Duration,
    broken: AtomicBool,
    way: Arc<Way>,
    route: Route,
    statements: Mutex<HashMap<Sql, Statement>>,
}

pub(crate) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

/// A statement that is ready to be sent.
pub(crate) enum Ready {
    /// The server knows it by name.
    Named(Statement),
    /// It travels with its text.
    Typed(Arc<Form>),
}

impl Session {
    /// Connects, and refuses a server that cannot be used.
    pub(crate) async fn connect(options: &PostgresOptions, way: &Arc<Way>, role: Role) -> Result<Self> {
        let what = format!("connect to {options}");
        let reaching = tokio::time::timeout(options.call_timeout, reach(options, way, role));
        let (client, route) = reaching.await.unwrap_or_else(|_| Err(late(&what, options.call_timeout)))?;
        let state = State {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            schema: options.schema.clone(),
            payloads: Payloads::Shown,
            wal_place: WalPlace::Told,
            timeout: role.timeout(options.call_timeout),
            broken: AtomicBool::new(false),
            way: Arc::clone(way),
            route,
            statements: Mutex::default(),
        };
        let mut session = Self { client, state };
        if role == Role::Operator {
            session.state.payloads = session.payloads_look().await?;
        }
        if matches!(role, Role::Operator | Role::Reader) {
            session.state.wal_place = session.wal_place_look().await?;
        }
        Ok(session)
    }

    /// Asks whether the server tells how far its write-ahead log has come. Asked on every connection, since a
    /// parameter that decides it takes a restart.
    async fn wal_place_look(&self) -> Result<WalPlace> {
        let what = "ask how far the write-ahead log has come";
        let asked = self.state.within(what, self.client.batch_execute(WAL_QUESTION)).await?;
        match asked {
            Ok(()) => Ok(WalPlace::Told),
            Err(error) if error.as_db_error().is_some() && !self.client.is_closed() => Ok(WalPlace::Withheld),
            Err(error) => Err(error).doing(what),
        }
    }

    /// Asks whether this role may read payloads. A database without the schema has none to withhold.
    async fn payloads_look(&self) -> Result<Payloads> {
        let what = "ask whether payloads may be read";
        let rows = self.query(sql!("server/payload_right"), &[&self.state.schema.name()], what).await?;
        let may: Option<bool> = rows[0].try_get(0).doing(what)?;
        Ok(if may == Some(false) { Payloads::Withheld } else { Payloads::Shown })
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

    /// Whether the server tells readers and people how far its write-ahead log has come.
    pub(crate) fn wal_place(&self) -> WalPlace {
        self.state.wal_place
    }

    /// Begins a transaction; dropping it rolls it back.
    pub(crate) async fn begin(&mut self) -> Result<Tx<'_>> {
        let Self { client, state } = self;
        let what = "begin a transaction";
        let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let tx = match &state.route {
            Route::Direct => state.bounded(what, begin.start()).await?,
            Route::Pooled(pooled) => {
                let tx = state.bounded(what, begin.read_only(false).start()).await?;
                let answer = state.bounded(what, tx.simple_query(&pooled.prologue)).await?;
                state.check_era(pooled, &answer, what)?;
                tx
            }
        };
        Ok(Tx { tx, state })
    }

    /// Runs one statement in a transaction of its own.
    pub(crate) async fn query(&self, sql: Sql, parameters: &Parameters<'_>, what: &str) -> Result<Vec<Row>> {
        match self.ready(sql, what).await? {
            Ready::Named(statement) => {
                self.state.bounded(what, self.client.query(&statement, parameters)).await
            }
            Ready::Typed(form) => {
                let parameters = form.typed(parameters);
                self.alone(what, Box::pin(self.client.query_typed(&form.text, &parameters))).await
            }
        }
    }

    /// Runs one statement that changes something, in a transaction of its own. Committed on return, as the role's are.
    pub(crate) async fn change(
        &mut self,
        sql: Sql,
        parameters: &Parameters<'_>,
        what: &str,
    ) -> Result<Vec<Row>> {
        match &self.state.route {
            Route::Direct => self.query(sql, parameters, what).await,
            Route::Pooled(_) => {
                let tx = self.begin().await?;
                let mut answers = tx.fly(&[(sql, parameters)], what).await?;
                Ok(answers.pop().unwrap_or_default())
            }
        }
    }

    /// The same, row by row. The statement that was prepared for it must be awaited first, so that calls of
    /// several tasks go out in one piece each.
    pub(crate) async fn stream(
        &self,
        sql: Sql,
        parameters: &Parameters<'_>,
        what: &str,
    ) -> Result<RowStream> {
        match self.ready(sql, what).await? {
            Ready::Named(statement) => {
                let rows = self.client.query_raw(&statement, parameters.iter().copied());
                self.state.bounded(what, rows).await
            }
            Ready::Typed(form) => {
                let rows = self.client.query_typed_raw(&form.text, form.typed(parameters));
                self.alone(what, Box::pin(rows)).await
            }
        }
    }

    /// Fails unless the connection lives, and through a pooler unless the server has lived on since it was made.
    pub(crate) async fn check_life(&self) -> Result<()> {
        let what = "ask whether the connection lives";
        self.alone(what, self.client.batch_execute("select")).await
    }

    /// Bounds a wait for rows of this session.
    pub(crate) async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        self.state.bounded(what, call).await
    }

    /// Makes a call that sends one request and changes nothing; through a pooler, in a transaction of its own.
    async fn alone<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match &self.state.route {
            Route::Direct => self.state.bounded(what, call).await,
            Route::Pooled(pooled) => {
                // Boxed, because calls that go directly should not carry the room for it.
                let alone = Box::pin(pooled.alone(&self.client, call));
                let (began, answer) = self.state.bounded(what, alone).await?;
                self.state.check_era(pooled, &began, what)?;
                Ok(answer)
            }
        }
    }

    /// Makes a statement ready, unless it is. One that is ready goes out when its call is first polled, so
    /// that calls which are begun one after the other run in that order.
    async fn ready(&self, sql: Sql, what: &str) -> Result<Ready> {
        if let Some(ready) = self.state.ready(sql) {
            return Ok(ready);
        }
        let text = sql.text(&self.state.schema);
        match &self.state.route {
            Route::Direct => {
                let statement = self.state.bounded(what, self.client.prepare(&text)).await?;
                Ok(self.state.keep(sql, statement))
            }
            Route::Pooled(_) => {
                let answer = match Form::question(&text) {
                    Some(question) => {
                        // Sent at once, they are one transaction.
                        let question = format!("{PATH_LOCAL}{question}");
                        let asking = Box::pin(self.client.simple_query(&question));
                        self.state.bounded(what, asking).await?
                    }
                    None => Vec::new(),
                };
                self.state.learn(sql, text.into_owned(), &answer)
            }
        }
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
        match self.ready(sql, what).await? {
            Ready::Named(statement) => self.state.bounded(what, self.tx.query(&statement, parameters)).await,
            Ready::Typed(form) => {
                let parameters = form.typed(parameters);
                self.state.bounded(what, self.tx.query_typed(&form.text, &parameters)).await
            }
        }
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
        match self.ready(sql, what).await? {
            Ready::Named(statement) => {
                self.state.bounded(what, self.tx.execute(&statement, parameters)).await
            }
            Ready::Typed(form) => {
                let parameters = form.typed(parameters);
                self.state.bounded(what, self.tx.execute_typed(&form.text, &parameters)).await
            }
        }
    }

    /// Runs a script of several statements.
    pub(crate) async fn run(&self, script: &str, what: &str) -> Result<()> {
        self.state.bounded(what, self.tx.batch_execute(script)).await
    }

    /// Runs statements and commits, all in one flight: see `flight.rs`. If one fails, nothing is done.
    pub(crate) async fn fly(self, steps: &[(Sql, &Parameters<'_>)], what: &str) -> Result<Vec<Vec<Row>>> {
        let mut ready = Vec::with_capacity(steps.len());
        for (sql, parameters) in steps {
            ready.push((self.ready(*sql, what).await?, *parameters));
        }
        self.state.bounded(what, fly(self.tx, ready)).await
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

    /// As [`Session::wal_place`].
    pub(crate) fn wal_place(&self) -> WalPlace {
        self.state.wal_place
    }

    /// The client library's own transaction.
    pub(crate) fn inner(&mut self) -> &mut Transaction<'a> {
        &mut self.tx
    }

    /// As [`Session::ready`].
    async fn ready(&self, sql: Sql, what: &str) -> Result<Ready> {
        if let Some(ready) = self.state.ready(sql) {
            return Ok(ready);
        }
        let text = sql.text(&self.state.schema);
        match &self.state.route {
            Route::Direct => {
                let statement = self.state.bounded(what, self.tx.prepare(&text)).await?;
                Ok(self.state.keep(sql, statement))
            }
            Route::Pooled(_) => {
                let answer = match Form::question(&text) {
                    Some(question) => {
                        let asking = Box::pin(self.tx.simple_query(&question));
                        self.state.bounded(what, asking).await?
                    }
                    None => Vec::new(),
                };
                self.state.learn(sql, text.into_owned(), &answer)
            }
        }
    }
}

/// Who can be asked: a session, which runs each statement in a transaction of its own, or a transaction.
pub(crate) trait Ask {
    /// All rows of a statement.
    fn ask(
        &self,
        sql: Sql,
        parameters: &Parameters<'_>,
        what: &str,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send;

    /// As [`Session::wal_place`].
    fn wal_place(&self) -> WalPlace;
}

impl Ask for Session {
    fn wal_place(&self) -> WalPlace {
        self.state.wal_place
    }

    async fn ask(&self, sql: Sql, parameters: &Parameters<'_>, what: &str) -> Result<Vec<Row>> {
        self.query(sql, parameters, what).await
    }
}

impl Ask for Tx<'_> {
    fn wal_place(&self) -> WalPlace {
        self.state.wal_place
    }

    async fn ask(&self, sql: Sql, parameters: &Parameters<'_>, what: &str) -> Result<Vec<Row>> {
        self.query(sql, parameters, what).await
    }
}

impl State {
    /// What a call says, if it says it in time.
    async fn within<T>(&self, what: &str, call: impl Future<Output = T>) -> Result<T> {
        tokio::time::timeout(self.timeout, call).await.map_err(|_| {
            self.broken.store(true, Ordering::Relaxed);
            late(what, self.timeout)
        })
    }

    async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match self.within(what, call).await? {
            Err(error) if self.is_lent(&error) => {
                self.broken.store(true, Ordering::Relaxed);
                self.way.meet_pooler()?;
                warn!(
                    "a session of this process is lent to others: from now on it is used as through a pooler"
                );
                Err(Error::new(ErrorKind::Unavailable, from_postgres(error, what).to_string()))
            }
            answer => answer.doing(what),
        }
    }

    /// Whether an error says that a session which was ours at first has been lent to others: what it had
    /// prepared is gone, or there is something that it has not prepared.
    fn is_lent(&self, error: &tokio_postgres::Error) -> bool {
        let codes = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
        matches!(self.route, Route::Direct) && error.code().is_some_and(|code| codes.contains(code))
    }

    /// Gives the connection up if its era has ended.
    fn check_era(&self, pooled: &Pooled, answer: &[SimpleQueryMessage], what: &str) -> Result<()> {
        if pooled.is_of_this_era(answer) {
            return Ok(());
        }
        self.broken.store(true, Ordering::Relaxed);
        let message =
            format!("cannot {what}: the server behind the pooler was started again, or is another one");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn ready(&self, sql: Sql) -> Option<Ready> {
        match self.route {
            Route::Direct => self.statements().get(&sql).cloned().map(Ready::Named),
            Route::Pooled(_) => self.way.form(sql).map(Ready::Typed),
        }
    }

    fn keep(&self, sql: Sql, statement: Statement) -> Ready {
        Ready::Named(self.statements().entry(sql).or_insert(statement).clone())
    }

    fn learn(&self, sql: Sql, text: String, answer: &[SimpleQueryMessage]) -> Result<Ready> {
        Ok(Ready::Typed(self.way.keep(sql, Form::read(text, answer)?)))
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<Sql, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn late(what: &str, timeout: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what}: the server has not answered for {timeout:?}"))
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
            let way = Way::new(options.pooler);
            let session = Session::connect(&options, &way, Role::Operator).await.unwrap();
            let row = session.client.query_one("show synchronous_commit", &[]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), held);
        }
    }
}
