//! Where Postrider sends events.
//!
//! Each sink is one file that implements [`Sink`](postrider_core::Sink). A sink never sees the store: it
//! gets a batch of deliveries and says what became of each.
//!
//! | file | question it answers |
//! |---|---|
//! | [`spec`] | which sink does a text such as `file:events.jsonl`, or a table of config, name? How is one added? |
//! | [`options`] | what does every kind of sink say of itself before it is opened? |
//! | `connect` | how does a sink reach its receiver: [`url`], [`secret`], `login`, [`time_limit`], the shared connection? |
//! | `batch` | what becomes of each event of a batch: [`failed_keys`], [`sizes`], `per_key`, `said`, `append`? |
//! | [`template`] | to which subject, stream or URL does this event go? |
//! | [`envelope`] | what does an event look like to a receiver, and what can its protocol carry? |
//! | `bare` | how fast are the client libraries alone? (feature `bench`) |
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

#[cfg(feature = "bench")]
pub mod bare;
mod batch;
mod connect;
pub mod envelope;
#[cfg(feature = "exec")]
pub mod exec;
pub mod file;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "inbox")]
pub mod inbox;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
pub mod null;
pub mod options;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(test)]
mod sample;
pub mod spec;
pub mod stdout;
pub mod template;

// `redis` is also the name of the client's crate.
#[cfg(feature = "redis")]
pub use self::redis::RedisSink;
pub use batch::failed_keys::FailedKeys;
pub use batch::{failed_keys, sizes};
pub use connect::secret::Secret;
pub use connect::time_limit::TimeLimit;
pub use connect::url::SinkUrl;
pub use connect::{secret, time_limit, url};
pub use envelope::{Binding, Envelope, Message};
#[cfg(feature = "exec")]
pub use exec::ExecSink;
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
pub use spec::{AnySink, SinkSpec};
pub use stdout::StdoutSink;
pub use template::Template;
