//! Postrider on PostgreSQL, 14 to 18.
//!
//! A producer emits through its own transaction, or by plain SQL from any language; see [`emit`].
//! [`PostgresStore`] is what workers and people use.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider_core::{Event, Store, emit};
//! use postrider_postgres::{PostgresOptions, PostgresStore, tokio_postgres};
//!
//! let url = "postgres://app@localhost/shop";
//! let store = PostgresStore::open(PostgresOptions::from_url(url)?).await?;
//!
//! let (mut app, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
//! # tokio::spawn(connection);
//! let tx = app.transaction().await?;
//! tx.execute("insert into orders (id) values (42)", &[]).await?;
//! let id = emit(&tx, Event::new("order").kind("order.created").key(42).json_text("{}")).await?;
//! tx.commit().await?;
//!
//! assert!(store.event_get(id).await?.is_some());
//! # Ok(()) }
//! ```
//!
//! | room | question it answers |
//! |---|---|
//! | [`emit`], [`ack`] | how does an event, or an ack, get into the caller's transaction? |
//! | `options` | which database, and how is it used? |
//! | `server` | how does Postrider talk to the server? |
//! | `store` | which call runs on which connection? The way in to all below. |
//! | `log` | what is there to read, and can it still vanish? |
//! | `settle` | what has been delivered, and what waits? |
//! | `ownership` | who owns which shard, and who waits for whom? |
//! | `queue` | mode `queue`: what is fed, claimed, settled and swept? |
//! | `retention` | what may go, and where does the log go on? |
//! | `wake` | who wakes a relay at rest, and why is nothing slept through? |
//! | `wal`, `replication` | what does the server tell of its write-ahead log? |
//! | `admin` | what do people change and look at? |
//! | `schedule` | what is emitted at which times? |
//! | [`inbox`] | how does a receiver handle each event once, and how is one delivered into its database? |
//!
//! # Emitting from other languages
//!
//! An event is a row. Leave `xid`, `id` and `created_at` out. The payload is JSON, which is kept to the
//! letter; bytes that are no JSON go into `payload_bytes` instead. Without a type the type is the topic.
//!
//! ```sql
//! insert into postrider.event (topic, type, key, payload)
//! values ('order', 'order.created', 42, '{"total": 12}')
//! returning id;
//! ```
//!
//! The function `postrider.emit` takes a payload of any type that JSON can have (`json`, `jsonb`, text, a
//! parameter without a type), and `postrider.emit_bytes` takes bytes that are no JSON. Both take a delay and
//! an idempotency key too, with a period (`unique_for`) and whether to take it over from an older event
//! (`replace`); a key that counts within a topic is written `topic TOPIC KEY`. A producer that emits with a
//! key in use waits until the other transaction has ended: the only wait between producers.
//! [`producer_grants`] gives the statements that let a role emit and nothing else.
//!
//! The protocol by which the log is read, and why it loses nothing, is at the head of
//! [`postrider_core::log`].
//!
//! # What to know about PostgreSQL
//!
//! *Emit after locking the aggregate.* Events of a key are delivered in the order of their ids within what
//! became visible together. A producer that holds the key's lock while it emits defines that order.
//!
//! *Leave `xid` and `id` alone.* Grant producers the other columns only; [`producer_grants`] prints how.
//!
//! *A transaction that stays open for long* delays its own events only. When it commits, its rows are looked
//! for among all that were written since it began, which delays others by about a second for every eight
//! million of them. Beyond [a budget](PostgresOptions::straggler_budget) the log and `postrider store check`
//! say so, and which index makes it short: the reader uses one on `(xid, id)` of a leaf if it is there.
//!
//! *A pooler in transaction mode* is noticed, or named by [`Pooler`]: nothing of ours then outlives a
//! transaction, and one session in its pool is enough. `docs/pooler.md` says what is different.
//!
//! *A relay at rest asks ten times a second*, unless [producers wake it](PostgresStore::wake_set), which is
//! not for those that prepare transactions, nor for relays behind a pooler by transactions.
//!
//! *A hand-out waits for the disk.* Events of producers that commit asynchronously are delivered once they
//! are flushed.

/// One statement of the folder `sql`.
macro_rules! sql {
    ($name:literal) => {
        const {
            crate::server::statement::Sql::new(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/sql/",
                $name,
                ".sql"
            )))
        }
    };
}

pub mod ack;
mod admin;
#[cfg(feature = "bench")]
pub mod bare;
pub mod emit;
mod error;
pub mod inbox;
mod log;
mod options;
mod ownership;
mod queue;
mod replication;
mod retention;
mod schedule;
mod server;
mod settle;
mod store;
mod wake;
mod wal;

pub use tokio_postgres;

pub use admin::adopt::{AdoptProgress, Adopted};
pub use admin::outbox::Outbox;
pub use admin::roles::{RoleKind, Roles, producer_grants};
pub use emit::{EmitAll, Prepared, copy, copy_stream, emit_all};
pub use options::{Durability, OverBudget, PostgresOptions, Source, TwoPhase};
pub use server::migrate::{Migration, SCHEMA_VERSION, migrations, schema_sql, schema_transaction_sql};
pub use server::pooler::Pooler;
pub use server::statement::Schema;
pub use settle::position::SHARDS;
pub use settle::work::{Handling, Work, Working, in_transaction};
pub use store::PostgresStore;
pub use wal::Reading;
