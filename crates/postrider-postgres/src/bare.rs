//! The bare loops that benchmarks compare with: what tokio-postgres does without Postrider, in the same process and
//! on the same server.

pub mod pgmq;
pub mod wal;

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use postrider_core::{NewEvent, Result, emit};
use tokio::sync::mpsc;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{PgLsn, Type};
use tokio_postgres::{AsyncMessage, Client, Row, Statement};

use crate::emit::{Prepared, copy};
use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::server::connect;
use crate::server::statement::{Schema, Sql};
use crate::server::values::{At, JsonText};

const WHAT: &str = "run a benchmark";
/// Not one of a store's connections, which are looked for by their names.
const NAME: &str = "bench";
/// What is heard of words that relays send each other.
const OTHER: u64 = u64::MAX;
const TOPIC: &str = "order";
const TYPE: &str = "order.created";

/// The application's side of a benchmark: one connection that emits, or writes bare rows. Each call is one
/// transaction and returns how long it took, from its beginning to its commit.
pub struct Producer {
    client: Client,
    bare: Statement,
    notify: Statement,
    prepared: Prepared,
}

impl Producer {
    /// Connects to the database of a store in the schema `postrider`, and makes the bare table beside
    /// Postrider's, in a schema of its own.
    pub async fn connect(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        make_table(&client).await?;
        let bare = client.prepare(&text(sql!("bench/bare_insert"))).await.doing(WHAT)?;
        let notify = client.prepare(&text(sql!("bench/bare_notify"))).await.doing(WHAT)?;
        let prepared = Prepared::new(&client).await?;
        Ok(Self { client, bare, notify, prepared })
    }

    /// Emits one event through a prepared statement.
    pub async fn emit(&mut self, event: NewEvent) -> Result<Duration> {
        let began = Instant::now();
        let tx = self.client.transaction().await.doing(WHAT)?;
        emit(self.prepared.on(&tx), event).await?;
        tx.commit().await.doing(WHAT)?;
        Ok(began.elapsed())
    }

    /// Emits one event the plain way.
    pub async fn emit_plain(&mut self, event: NewEvent) -> Result<Duration> {
        let began = Instant::now();
        let tx = self.client.transaction().await.doing(WHAT)?;
        emit(&tx, event).await?;
        tx.commit().await.doing(WHAT)?;
        Ok(began.elapsed())
    }

    /// Emits one event; `stamp` is called when the COMMIT is.
    pub async fn emit_stamped(&mut self, event: NewEvent, stamp: impl FnOnce()) -> Result<()> {
        let tx = self.client.transaction().await.doing(WHAT)?;
        emit(self.prepared.on(&tx), event).await?;
        stamp();
        tx.commit().await.doing(WHAT)
    }

    /// Inserts one bare row and tells listeners its number; `stamp` is called when the COMMIT is.
    pub async fn notify_stamped(&mut self, number: u64, payload: &[u8], stamp: impl FnOnce()) -> Result<()> {
        let tx = self.client.transaction().await.doing(WHAT)?;
        let (key, json, headers, due_at) = ("k", None::<JsonText<'_>>, None::<JsonText<'_>>, None::<At>);
        tx.query_one(&self.bare, &[&TOPIC, &TYPE, &key, &json, &payload, &headers, &due_at])
            .await
            .doing(WHAT)?;
        tx.query(&self.notify, &[&number.to_string()]).await.doing(WHAT)?;
        stamp();
        tx.commit().await.doing(WHAT)
    }

    /// Inserts one bare row; `stamp` is called when the COMMIT is.
    pub async fn insert_stamped(&mut self, payload: &[u8], stamp: impl FnOnce()) -> Result<()> {
        let tx = self.client.transaction().await.doing(WHAT)?;
        let (key, json, headers, due_at) = ("k", None::<JsonText<'_>>, None::<JsonText<'_>>, None::<At>);
        tx.query_one(&self.bare, &[&TOPIC, &TYPE, &key, &json, &payload, &headers, &due_at])
            .await
            .doing(WHAT)?;
        stamp();
        tx.commit().await.doing(WHAT)
    }

    /// Inserts one bare row through a prepared statement.
    pub async fn insert(&mut self, key: usize, payload: &str) -> Result<Duration> {
        let began = Instant::now();
        let tx = self.client.transaction().await.doing(WHAT)?;
        let (key, payload, bytes) = (key.to_string(), JsonText(payload), None::<&[u8]>);
        let (headers, due_at) = (None::<JsonText<'_>>, None::<At>);
        tx.query_one(&self.bare, &[&TOPIC, &TYPE, &key, &payload, &bytes, &headers, &due_at])
            .await
            .doing(WHAT)?;
        tx.commit().await.doing(WHAT)?;
        Ok(began.elapsed())
    }

    /// Copies events.
    pub async fn copy(&mut self, events: impl IntoIterator<Item = NewEvent>) -> Result<Duration> {
        let began = Instant::now();
        let tx = self.client.transaction().await.doing(WHAT)?;
        copy(&tx, events).await?;
        tx.commit().await.doing(WHAT)?;
        Ok(began.elapsed())
    }

    /// Copies bare rows, with the client library's own writer.
    pub async fn copy_bare(
        &mut self,
        keys: impl IntoIterator<Item = usize>,
        payload: &str,
    ) -> Result<Duration> {
        const TYPES: [Type; 7] =
            [Type::TEXT, Type::TEXT, Type::TEXT, Type::JSON, Type::BYTEA, Type::JSON, Type::TIMESTAMPTZ];
        let began = Instant::now();
        let tx = self.client.transaction().await.doing(WHAT)?;
        let sink = tx.copy_in(&*text(sql!("bench/bare_copy"))).await.doing(WHAT)?;
        let mut rows = pin!(BinaryCopyInWriter::new(sink, &TYPES));
        for key in keys {
            let (key, payload, bytes) = (key.to_string(), JsonText(payload), None::<&[u8]>);
            let (headers, due_at) = (None::<JsonText<'_>>, None::<At>);
            rows.as_mut()
                .write(&[&TOPIC, &TYPE, &key, &payload, &bytes, &headers, &due_at])
                .await
                .doing(WHAT)?;
        }
        rows.finish().await.doing(WHAT)?;
        tx.commit().await.doing(WHAT)?;
        Ok(began.elapsed())
    }

    /// Which of the server's processes works for this connection.
    pub async fn backend(&self) -> Result<i32> {
        let row = self.client.query_one("select pg_backend_pid()", &[]).await.doing(WHAT)?;
        row.try_get(0).doing(WHAT)
    }
}

/// Empties the bare table.
pub async fn truncate(url: &str) -> Result<()> {
    let client = connect(url).await?;
    make_table(&client).await?;
    client.batch_execute(&text(sql!("bench/bare_truncate"))).await.doing(WHAT)
}

/// Reads the whole bare table in chunks of 4,000 rows into owned values; returns how many and how long it took.
pub async fn select(url: &str) -> Result<(usize, Duration)> {
    let client = connect(url).await?;
    let began = Instant::now();
    let statement = client.prepare(&text(sql!("bench/bare_select"))).await.doing(WHAT)?;
    let (mut after, mut count) = (0_i64, 0);
    loop {
        let rows = client.query(&statement, &[&after]).await.doing(WHAT)?;
        let chunk: Vec<OwnedRow> = rows.iter().map(OwnedRow::read).collect::<Result<_, _>>().doing(WHAT)?;
        let Some(last) = chunk.last() else { return Ok((count, began.elapsed())) };
        after = last.id;
        count += chunk.len();
        std::hint::black_box(&chunk);
    }
}

/// A row as any application would read it.
#[expect(dead_code, reason = "reading it is the point")]
struct OwnedRow {
    id: i64,
    topic: String,
    kind: String,
    key: Option<String>,
    payload: Option<String>,
    payload_bytes: Option<Vec<u8>>,
    headers: Option<String>,
    created_at: i64,
    due_at: Option<i64>,
}

impl OwnedRow {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            topic: row.try_get(1)?,
            kind: row.try_get(2)?,
            key: row.try_get(3)?,
            payload: row.try_get::<_, Option<JsonText<'_>>>(4)?.map(|json| json.0.to_owned()),
            payload_bytes: row.try_get(5)?,
            headers: row.try_get::<_, Option<JsonText<'_>>>(6)?.map(|json| json.0.to_owned()),
            created_at: row.try_get::<_, At>(7)?.0.as_micros(),
            due_at: row.try_get::<_, Option<At>>(8)?.map(|at| at.0.as_micros()),
        })
    }
}

/// A connection that waits for notifications: the shortest way from a commit to another process.
pub struct Listener {
    client: Client,
    numbers: mpsc::UnboundedReceiver<u64>,
}

impl Listener {
    /// Connects and listens to bare producers.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::on(url, &text(sql!("bench/bare_listen"))).await
    }

    /// Connects and listens for wakes of the store.
    pub async fn of_wakes(url: &str) -> Result<Self> {
        let channel =
            connect(url).await?.query_one(&*text(sql!("wake/wake_channel")), &[]).await.doing(WHAT)?;
        Self::on(url, &format!("listen {}", channel.try_get::<_, &str>(0).doing(WHAT)?)).await
    }

    async fn on(url: &str, listen: &str) -> Result<Self> {
        let options = PostgresOptions::from_url(url)?;
        let (client, mut connection) = connect::connect(&options, NAME).await?;
        // Bounded by what the benchmark sends.
        let (sender, numbers) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut told = poll_fn(|context| connection.poll_message(context));
            while let Some(Ok(message)) = told.next().await {
                if let AsyncMessage::Notification(told) = message {
                    let word = if told.payload().is_empty() { 0 } else { OTHER };
                    let _ = sender.send(told.payload().parse().unwrap_or(word));
                }
            }
        });
        client.batch_execute(listen).await.doing(WHAT)?;
        Ok(Self { client, numbers })
    }

    /// The number in the next notification; none when the connection is lost.
    pub async fn next(&mut self) -> Option<u64> {
        self.numbers.recv().await
    }

    /// How many notifications of producers have come since the last look.
    pub fn count(&mut self) -> u64 {
        let heard = std::iter::from_fn(|| self.numbers.try_recv().ok());
        heard.filter(|number| *number != OTHER).count() as u64
    }
}

/// The shortest way from a commit to the row in another process: a trigger that notifies whatever happens, a listener,
/// and a select.
pub struct BareReader {
    listener: Listener,
    select: Statement,
    last_id: i64,
}

impl BareReader {
    /// Makes the trigger, connects and listens.
    pub async fn connect(url: &str) -> Result<Self> {
        let listener = Listener::connect(url).await?;
        let client = &listener.client;
        make_table(client).await?;
        for script in
            [sql!("bench/bare_truncate"), sql!("bench/bare_wake_function"), sql!("bench/bare_wake_create")]
        {
            client.batch_execute(&text(script)).await.doing(WHAT)?;
        }
        let select = client.prepare(&text(sql!("bench/bare_select"))).await.doing(WHAT)?;
        Ok(Self { listener, select, last_id: 0 })
    }

    /// Waits for the next row and reads it; false when the connection is lost.
    pub async fn next(&mut self) -> Result<bool> {
        if self.listener.next().await.is_none() {
            return Ok(false);
        }
        let rows = self.listener.client.query(&self.select, &[&self.last_id]).await.doing(WHAT)?;
        for row in &rows {
            self.last_id = std::hint::black_box(OwnedRow::read(row)).doing(WHAT)?.id;
        }
        Ok(!rows.is_empty())
    }

    /// Removes the trigger.
    pub async fn remove(self) -> Result<()> {
        self.listener.client.batch_execute(&text(sql!("bench/bare_wake_drop"))).await.doing(WHAT)
    }
}

/// A database for a benchmark, on the server of another one.
pub struct Scratch {
    client: Client,
    name: String,
    url: String,
    /// The role that owns it, if that is not the login that created it.
    role: Option<String>,
}

impl Scratch {
    /// Makes it.
    pub async fn create(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let name = format!("postrider_bench_{}", std::process::id());
        client.batch_execute(&format!("create database {name}")).await.doing(WHAT)?;
        Ok(Self { client, url: in_database(url, &name), name, role: None })
    }

    /// Makes one for a role of its own, whom the server does not tell how far its log has come, as some
    /// managed servers do.
    pub async fn create_managed(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let name = format!("postrider_bench_{}_managed", std::process::id());
        let password: String = client
            .query_one("select gen_random_uuid()::text", &[])
            .await
            .doing(WHAT)?
            .try_get(0)
            .doing(WHAT)?;
        client.batch_execute(&format!("create role {name} login password '{password}'")).await.doing(WHAT)?;
        client.batch_execute(&format!("create database {name} owner {name}")).await.doing(WHAT)?;
        let withhold = "revoke execute on function pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn(),
            pg_current_wal_lsn(), pg_walfile_name(pg_lsn), pg_control_system() from public";
        connect(&in_database(url, &name)).await?.batch_execute(withhold).await.doing(WHAT)?;
        let url = as_role(&in_database(url, &name), &name, &password);
        Ok(Self { client, url, role: Some(name.clone()), name })
    }

    /// How to connect to it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How to connect to it by the way that another URL names.
    pub fn url_through(&self, url: &str) -> String {
        in_database(url, &self.name)
    }

    /// Removes it with whatever is still connected.
    pub async fn remove(self) -> Result<()> {
        self.client.batch_execute(&format!("drop database {} with (force)", self.name)).await.doing(WHAT)?;
        match &self.role {
            Some(role) => self.client.batch_execute(&format!("drop role {role}")).await.doing(WHAT),
            None => Ok(()),
        }
    }

    /// Bytes of write-ahead log that the server has written so far.
    pub async fn wal(&self) -> Result<u64> {
        let row = self.client.query_one("select pg_current_wal_insert_lsn()", &[]).await.doing(WHAT)?;
        Ok(row.try_get::<_, PgLsn>(0).doing(WHAT)?.into())
    }
}

/// The same URL for another database of its server.
fn in_database(url: &str, name: &str) -> String {
    let (base, parameters) = url.split_once('?').map_or((url, None), |(base, rest)| (base, Some(rest)));
    let server = base.rsplit_once('/').map_or(base, |(server, _)| server);
    let query = parameters.map(|rest| format!("?{rest}")).unwrap_or_default();
    format!("{server}/{name}{query}")
}

/// The same URL as another role.
fn as_role(url: &str, role: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
    format!("{scheme}://{role}:{password}@{server}/{path}")
}

/// A look at the benchmark's database from outside, and transactions that stay open in it.
pub struct Observer {
    client: Client,
}

impl Observer {
    /// Connects.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self { client: connect(url).await? })
    }

    /// Holds a snapshot until this observer is dropped.
    pub async fn hold_snapshot(&self) -> Result<()> {
        let hold = "begin isolation level repeatable read; select count(*) from postrider.meta";
        self.client.batch_execute(hold).await.doing(WHAT)
    }

    /// Holds a transaction open that has emitted, until this observer is dropped.
    pub async fn hold_writer(&self) -> Result<()> {
        let hold = "begin; insert into postrider.event (topic, type) values ('open', 'open')";
        self.client.batch_execute(hold).await.doing(WHAT)
    }

    /// Dead rows in the log and in the tables of positions.
    pub async fn dead_rows(&self) -> Result<(i64, i64)> {
        let row = self.client.query_one(&*text(sql!("bench/bare_dead_rows")), &[]).await.doing(WHAT)?;
        Ok((row.try_get(0).doing(WHAT)?, row.try_get(1).doing(WHAT)?))
    }

    /// Pages that were looked at for the rows of queues, and the bytes that these take with their indexes.
    pub async fn queue_pages(&self) -> Result<(i64, i64)> {
        let row = self.client.query_one(&*text(sql!("bench/bare_buffers")), &[]).await.doing(WHAT)?;
        Ok((row.try_get(0).doing(WHAT)?, row.try_get(1).doing(WHAT)?))
    }

    /// Whether a relay stands sentry, ready to be woken.
    pub async fn is_guarded(&self) -> Result<bool> {
        let row = self.client.query_one(&*text(sql!("bench/bare_sentries")), &[]).await.doing(WHAT)?;
        Ok(row.try_get::<_, i64>(0).doing(WHAT)? > 0)
    }

    /// The server's processes that work for stores.
    pub async fn backends(&self) -> Result<Vec<i32>> {
        let rows = self.client.query(&*text(sql!("bench/bare_backends")), &[]).await.doing(WHAT)?;
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().doing(WHAT)
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = connect::connect(&PostgresOptions::from_url(url)?, NAME).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn make_table(client: &Client) -> Result<()> {
    client.batch_execute(&text(sql!("bench/bare_schema"))).await.doing(WHAT)?;
    client.batch_execute(&text(sql!("bench/bare_table"))).await.doing(WHAT)
}

/// These have a schema of their own, whatever the store's is called.
fn text(sql: Sql) -> std::borrow::Cow<'static, str> {
    sql.text(&Schema::default())
}
