//! Where Postrider sends events.
//!
//! Each sink is one file that implements [`Sink`](postrider_core::Sink). A sink never sees the store: it
//! gets a batch of deliveries and says what became of each.
//!
//! | file | question it answers |
//! |---|---|
//! | [`spec`] | which sink does a text such as `file:events.jsonl`, or a table of config, name? How is one added? |
//! | [`options`] | what does every kind of sink say of itself before it is opened? |
//! | [`url`] | what does the URL of a broker say? |
//! | [`secret`] | where does a password come from, and where does it never go? |
//! | `login` | where may a login travel without encryption? |
//! | [`template`] | to which subject, stream or URL does this event go? |
//! | [`envelope`] | what does an event look like to a receiver, and what can its protocol carry? |
//! | [`sizes`] | what is too large, and what does an error say about another attempt? |
//! | [`failed_keys`] | which events of a batch must wait since an earlier one of their key failed? |
//! | `said` | how is kept or shown what others wrote? |
//! | `append` | how does a batch of lines reach a device whole, in order, and before the ack? |
//! | `connection_slot` | who makes the connection that all share? |
//! | `per_key` | how is a batch in flight at once and the events of a key one after the other? |
//! | `bare` | how fast are the client libraries alone? (feature `bench`) |
//! | [`time_limit`] | how long does a sink wait? |
//! | [`stdout`], [`mod@file`], [`null`] | the sinks themselves |
//! | `nats`, `redis`, `http`, `exec` | NATS JetStream, Redis Streams, webhooks and programs, with the features of these names |
//! | `inbox` | a table of another database, with the features `inbox-postgres` and `inbox-sqlite` |
//! | `kafka`, `rabbitmq` | the brokers of these names, if the features of these names are on |
//!
//! ```
//! # async fn run() -> postrider_core::Result<()> {
//! use postrider_sinks::SinkSpec;
//! let spec: SinkSpec = "null".parse()?;
//! let sink = spec.open().await?;
//! # Ok(()) }
//! ```

mod append;
#[cfg(feature = "bench")]
pub mod bare;
#[cfg(any(feature = "nats", feature = "redis", feature = "inbox"))]
mod connection_slot;
pub mod envelope;
#[cfg(feature = "exec")]
pub mod exec;
pub mod failed_keys;
pub mod file;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "inbox")]
pub mod inbox;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod login;
#[cfg(feature = "nats")]
pub mod nats;
pub mod null;
pub mod options;
#[cfg(any(feature = "nats", feature = "http", feature = "exec"))]
mod per_key;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
mod said;
#[cfg(test)]
mod sample;
pub mod secret;
pub mod sizes;
pub mod spec;
pub mod stdout;
pub mod template;
pub mod time_limit;
pub mod url;

// `redis` is also the name of the client's crate.
#[cfg(feature = "redis")]
pub use self::redis::RedisSink;
pub use envelope::{Binding, Envelope, Message};
#[cfg(feature = "exec")]
pub use exec::ExecSink;
pub use failed_keys::FailedKeys;
pub use file::FileSink;
#[cfg(feature = "http")]
pub use http::HttpSink;
#[cfg(feature = "inbox")]
pub use inbox::InboxSink;
#[cfg(feature = "kafka")]
pub use kafka::KafkaSink;
#[cfg(feature = "nats")]
pub use nats::NatsSink;
pub use null::NullSink;
pub use options::SinkOptions;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMqSink;
pub use secret::Secret;
pub use spec::{AnySink, SinkSpec};
pub use stdout::StdoutSink;
pub use template::Template;
pub use time_limit::TimeLimit;
pub use url::SinkUrl;
