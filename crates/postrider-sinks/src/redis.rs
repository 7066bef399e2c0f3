//! Redis and Valkey Streams: each event is an entry of a stream.
//!
//! *Ack.* Redis has executed the `XADD`. Whether the entry survives a crash is the server's affair:
//! `appendonly yes` with `appendfsync always` makes it durable before the answer, `everysec` may lose a
//! second, and a failover loses what the replica had not got. `min-replicas-to-write` narrows that.
//!
//! *Order.* A batch is one transaction, `MULTI`, an `XADD` for each event, `EXEC`, in one write and one
//! answer. What Redis refuses beforehand (no memory, read-only, loading) refuses the whole batch, so that no
//! later event of a key can take effect without an earlier one. What it refuses while it executes concerns a
//! stream as a whole; where events of one key go to several streams, the batch is cut into several
//! transactions.
//!
//! *Repeats.* Redis knows no deduplication id: an event whose answer was lost is in the stream twice, both
//! times with the same `postrider-dedup-id`.

#[cfg(feature = "bench")]
pub(crate) mod bare;
mod failures;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use postrider_core::{Delivery, Error, Failure, Key, Outcome, Result, Sink};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisConnectionInfo,
    TlsCertificates, Value,
};
use serde::Deserialize;

use crate::batch::sizes;
use crate::connect::connection_slot::ConnectionSlot;
use crate::connect::login::Login;
use crate::envelope::BODY_FIELD;
use crate::options::SinkOptions;
use crate::{Binding, Envelope, FailedKeys, Secret, SinkUrl, Template, TimeLimit};

/// What Redis takes as one value, unless told otherwise (`proto-max-bulk-len`).
const ENTRY_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Bytes of a stream's name: any are possible, so many are a mistake.
const STREAM_BYTES_MAX: usize = 1024;
const USUAL_PORT: u16 = 6379;

/// Where and how to add to Redis Streams.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RedisOptions {
    /// The server, as `HOST` or `HOST:PORT`.
    pub server: String,
    /// The stream of each event, which is the name of a key in Redis.
    pub stream: Template,
    /// Trims each stream to about so many entries (`MAXLEN ~`). What was not read by then is gone.
    #[serde(default)]
    pub maxlen: Option<NonZeroU64>,
    /// The number of the database.
    #[serde(default)]
    pub db: u32,
    /// Who logs in.
    #[serde(default)]
    pub user: Option<String>,
    /// The password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Whether the connection is encrypted.
    #[serde(default)]
    pub tls: bool,
    /// Whether to log in without encryption at a server that is not this machine.
    #[serde(default)]
    pub login_in_clear: bool,
    /// A file with the certificates to trust instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How events are wrapped.
    #[serde(default)]
    pub envelope: Envelope,
    /// How long to wait for a connection, and for the answer to a batch.
    #[serde(default = "time_limit")]
    pub time_limit: TimeLimit,
}

fn time_limit() -> TimeLimit {
    TimeLimit::seconds(10)
}

impl SinkOptions for RedisOptions {
    type Sink = RedisSink;
    const SCHEMES: &'static [&'static str] = &["redis", "rediss"];

    /// `redis://:PASSWORD@HOST/STREAM?maxlen=N&db=N&envelope=WORD`, `rediss://…` for an encrypted connection.
    fn from_text(text: &str) -> Result<Self> {
        let mut url = SinkUrl::parse(text)?;
        if url.path.is_empty() {
            return Err(Error::invalid("sink `redis:…` needs a stream: write redis://HOST/STREAM"));
        }
        let [server] = &url.addresses(USUAL_PORT)[..] else {
            return Err(Error::invalid("sink `redis:…` speaks to one server: name one host"));
        };
        let server = server.clone();
        let number = |name: &str, value: Option<String>| {
            let wrong = |_| Error::invalid(format!("the option `{name}` of sink `redis:…` is not a number"));
            value.map(|value| value.parse::<u64>().map_err(wrong)).transpose()
        };
        let maxlen = number("maxlen", url.take_option("maxlen"))?;
        let db = number("db", url.take_option("db"))?.unwrap_or(0);
        let envelope = url.take_option("envelope").map(|word| word.parse()).transpose()?.unwrap_or_default();
        let login_in_clear = url.take_flag("login_in_clear")?;
        url.no_more_options("maxlen, db, envelope or login_in_clear")?;
        let maxlen = maxlen.map(|count| {
            NonZeroU64::new(count).ok_or_else(|| {
                Error::invalid("a `maxlen` of 0 would keep no event: leave it out, or raise it")
            })
        });
        Ok(Self {
            server,
            stream: url.path.parse()?,
            maxlen: maxlen.transpose()?,
            db: u32::try_from(db)
                .map_err(|_| Error::invalid("the option `db` of sink `redis:…` is too large"))?,
            user: url.user,
            password: url.password,
            tls: url.scheme == "rediss",
            login_in_clear,
            ca_file: None,
            envelope,
            time_limit: time_limit(),
        })
    }

    /// Connects to nothing yet, so that a server that is down delays its own events alone.
    async fn open(&self) -> Result<RedisSink> {
        self.client()?;
        if let Some(stream) = self.stream.as_constant() {
            check_stream(stream).map_err(|failure| Error::invalid(failure.message()))?;
        }
        Ok(RedisSink {
            shared: Arc::new(Shared { options: self.clone(), connection: ConnectionSlot::default() }),
        })
    }

    async fn check(&self) -> Result<Vec<String>> {
        let sink = self.open().await?;
        let mut connection = sink.connection().await.map_err(failures::as_error)?;
        let mut found = vec![format!("reaches Redis at {}", self.server)];
        let Some(stream) = self.stream.as_constant() else {
            found.push(format!("creates streams as events need them, named `{}`", self.stream));
            return Ok(found);
        };
        let kind = redis::cmd("TYPE").arg(stream).query_async::<String>(&mut connection).await;
        found.push(
            match kind.map_err(|error| failures::as_error(failures::of_error(&error, self)))?.as_str() {
                "none" => format!("would create the stream `{stream}`"),
                "stream" => format!("appends to the stream `{stream}`"),
                other => return Err(Error::invalid(failures::no_stream(stream, other))),
            },
        );
        Ok(found)
    }
}

impl RedisOptions {
    /// Reads the secrets.
    fn client(&self) -> Result<Client> {
        let wrong = || Error::invalid("the `server` of sink `redis` is no address: write HOST or HOST:PORT");
        if self.server.contains(['@', '/', ',']) {
            return Err(wrong());
        }
        let url = SinkUrl::parse(&format!("redis://{}", self.server)).map_err(|_| wrong())?;
        Login {
            sink: "redis",
            servers: std::slice::from_ref(&self.server),
            is_given: self.user.is_some() || self.password.is_some(),
            tls: self.tls,
            may_be_clear: self.login_in_clear,
        }
        .check()?;
        let (host, port) = url.hosts[0].clone();
        let port = port.unwrap_or(USUAL_PORT);
        let address = if self.tls {
            // For the whole process, which may have chosen already; no other provider is built in.
            let _ = rustls::crypto::ring::default_provider().install_default();
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let mut login =
            RedisConnectionInfo::default().set_db(i64::from(self.db)).set_lib_name("postrider", VERSION);
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password.read()?.expose());
        }
        let told = |error: redis::RedisError| Error::invalid(format!("sink `redis`: {error}"));
        let info = address.into_connection_info().map_err(told)?.set_redis_settings(login);
        let Some(path) = self.ca_file.as_ref().filter(|_| self.tls) else {
            return Client::open(info).map_err(told);
        };
        let root_cert = std::fs::read(path).map_err(|error| {
            Error::invalid(format!(
                "the `ca_file` of sink `redis`, `{}`, cannot be read: {error}",
                path.display()
            ))
        })?;
        Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
            .map_err(told)
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl fmt::Display for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        write!(f, "{scheme}://{}/{}", self.server, self.stream)?;
        let maxlen = self.maxlen.map(|maxlen| format!("maxlen={maxlen}"));
        let db = Some(format!("db={}", self.db)).filter(|_| self.db != 0);
        let options: Vec<_> = maxlen.into_iter().chain(db).collect();
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

/// Adds deliveries to Redis Streams. Clones share one connection.
#[derive(Debug, Clone)]
pub struct RedisSink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: RedisOptions,
    connection: ConnectionSlot<MultiplexedConnection>,
}

/// The events of a batch that one transaction adds, by their place in the batch.
#[derive(Debug, Default)]
struct Transaction {
    events: Vec<usize>,
    adds: Pipeline,
}

impl RedisSink {
    /// The connection, made when there is none.
    async fn connection(&self) -> Result<MultiplexedConnection, Failure> {
        self.shared.connection.get(|_| true, self.shared.connect()).await
    }

    /// Executes one transaction and says what became of each of its events. An error means that this is
    /// unknown, or that no event was added: the event at its place tells why, and the others are untried.
    async fn execute(&self, transaction: &Transaction) -> Result<Vec<Result<(), Failure>>, (usize, Failure)> {
        let options = &self.shared.options;
        let mut connection = self.connection().await.map_err(|failure| (0, failure))?;
        let count = transaction.events.len();
        // All answers, also those of MULTI and of what was queued: one of them tells why EXEC was refused.
        let answers = connection.req_packed_commands(&transaction.adds, 0, count + 2).await;
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                // Its answers might belong to other questions.
                self.shared.connection.forget().await;
                return Err((0, failures::of_error(&error, options)));
            }
        };
        let executed = answers.pop();
        let refused = answers.iter().enumerate().find_map(|(place, answer)| match answer {
            // The first answer is that of MULTI.
            Value::ServerError(error) => Some((place.saturating_sub(1), failures::of_answer(error, options))),
            _ => None,
        });
        match (executed, refused) {
            (_, Some((place, failure))) => Err((place.min(count - 1), failure)),
            (Some(Value::Array(entries)), None) if entries.len() == count => Ok(entries
                .iter()
                .map(|entry| match entry {
                    Value::ServerError(error) => Err(failures::of_answer(error, options)),
                    _ => Ok(()),
                })
                .collect()),
            (Some(Value::ServerError(error)), None) => Err((0, failures::of_answer(&error, options))),
            _ => {
                self.shared.connection.forget().await;
                Err((0, Failure::retry("Redis gave another answer to EXEC than one for each event")))
            }
        }
    }

    /// Adds the event to a transaction.
    fn add(
        &self,
        transaction: &mut Transaction,
        index: usize,
        delivery: &Delivery,
        stream: &str,
    ) -> Result<(), Failure> {
        let options = &self.shared.options;
        let message = options.envelope.wrap(delivery, Binding::Redis)?;
        sizes::check(message.bytes(), ENTRY_BYTES_MAX, "Redis")?;
        if transaction.events.is_empty() {
            transaction.adds.cmd("MULTI");
        }
        let add = transaction.adds.cmd("XADD").arg(stream);
        if let Some(maxlen) = options.maxlen {
            add.arg("MAXLEN").arg("~").arg(maxlen.get());
        }
        add.arg("*").arg(BODY_FIELD).arg(&message.body[..]);
        for (name, value) in message.pairs() {
            add.arg(name).arg(value);
        }
        transaction.events.push(index);
        Ok(())
    }
}

impl Shared {
    async fn connect(&self) -> Result<MultiplexedConnection, Failure> {
        let options = &self.options;
        // What is wrong with secrets now may be mended: they are read for each connection.
        let client = options.client().map_err(|error| Failure::unavailable(error.to_string()))?;
        let limit = Some(options.time_limit.get());
        let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
        let connect = client.get_multiplexed_async_connection_with_config(&config);
        connect.await.map_err(|error| failures::of_error(&error, options))
    }
}

/// A batch on its way, transaction by transaction.
struct Batch<'a> {
    sink: &'a RedisSink,
    deliveries: &'a [Delivery],
    outcomes: Vec<Outcome>,
    failed: FailedKeys,
    /// The receiver as a whole has failed: nothing more is sent.
    down: bool,
}

impl Batch<'_> {
    fn fail(&mut self, index: usize, failure: Failure) {
        self.failed.note(&self.deliveries[index]);
        self.outcomes[index] = sizes::outcome(failure);
    }

    async fn run(&mut self) {
        let mut transaction = Transaction::default();
        let mut stream_of: HashMap<&Key, String> = HashMap::new();
        for (index, delivery) in self.deliveries.iter().enumerate() {
            let options = &self.sink.shared.options;
            let stream = match options
                .stream
                .render(delivery)
                .and_then(|stream| check_stream(&stream).map(|()| stream))
            {
                Ok(stream) => stream,
                Err(failure) => {
                    // Not before what stands before it in its key.
                    if !self.failed.blocks(delivery) {
                        self.fail(index, failure);
                    }
                    continue;
                }
            };
            let elsewhere =
                delivery.key.as_ref().and_then(|key| stream_of.get(key)).is_some_and(|last| *last != stream);
            if elsewhere {
                self.execute(std::mem::take(&mut transaction)).await;
                stream_of.clear();
            }
            if self.down || self.failed.blocks(delivery) {
                continue;
            }
            if let Err(failure) = self.sink.add(&mut transaction, index, delivery, &stream) {
                self.fail(index, failure);
            } else if !options.stream.is_constant()
                && let Some(key) = &delivery.key
            {
                stream_of.insert(key, stream.into_owned());
            }
        }
        self.execute(transaction).await;
    }

    async fn execute(&mut self, mut transaction: Transaction) {
        if self.down || transaction.events.is_empty() {
            return;
        }
        transaction.adds.cmd("EXEC");
        match self.sink.execute(&transaction).await {
            Ok(added) => {
                for (index, added) in transaction.events.into_iter().zip(added) {
                    match added {
                        Ok(()) => self.outcomes[index] = Outcome::Ack,
                        Err(failure) => self.fail(index, failure),
                    }
                }
            }
            Err((place, failure)) => {
                self.down = true;
                self.fail(transaction.events[place], failure);
            }
        }
    }
}

fn check_stream(stream: &str) -> Result<(), Failure> {
    if (1..=STREAM_BYTES_MAX).contains(&stream.len()) {
        return Ok(());
    }
    Err(Failure::permanent(format!(
        "the name of a Redis stream has {} bytes, and may have 1 to {STREAM_BYTES_MAX}: change the sink's `stream`, or emit \
         the event otherwise",
        stream.len()
    )))
}

impl Sink for RedisSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let outcomes = vec![Outcome::Untried; batch.len()];
        let mut batch =
            Batch { sink: self, deliveries: &batch, outcomes, failed: FailedKeys::default(), down: false };
        batch.run().await;
        batch.outcomes
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_options_and_show_no_password() {
        let read = |text: &str| RedisOptions::from_text(text).unwrap();
        let options = read("rediss://me:canary@host/orders:{type}?maxlen=1000&db=3&envelope=json");
        assert_eq!((&*options.server, options.db, options.tls), ("host:6379", 3, true));
        assert_eq!(options.to_string(), "rediss://host:6379/orders:{type}?maxlen=1000&db=3");
        assert!(!format!("{options} {options:?}").contains("canary"));
        assert_eq!(read("redis://h:1/s").to_string(), "redis://h:1/s");
        for bad in
            ["redis://h", "redis://a,b/s", "redis://h/s?maxlen=0", "redis://h/s?maxlen=x", "redis://h/s?x=1"]
        {
            assert!(RedisOptions::from_text(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn mistakes_are_refused_before_anything_is_connected() {
        for bad in [
            r#"{"server": "redis://u:canary@h", "stream": "s"}"#,
            r#"{"server": "a,b", "stream": "s"}"#,
            r#"{"server": "h", "stream": ""}"#,
            r#"{"server": "h", "stream": "s", "password": "env:POSTRIDER_TEST_NO_SUCH"}"#,
            r#"{"server": "h", "stream": "s", "tls": true, "ca_file": "/no/such"}"#,
        ] {
            let options: RedisOptions = serde_json::from_str(bad).unwrap();
            let error = options.open().await.unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
