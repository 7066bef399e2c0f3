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
//! | file | question it answers |
//! |---|---|
//! | [`emit`] | how does an event get into the caller's transaction? |
//! | [`ack`] | how does a handler ack in its own transaction? |
//! | `options`, `url`, `passfile`, `migrate`, `self_test` | which database, and is the server fit for use? |
//! | `connect`, `tls` | is it the server it claims to be, and can others listen? |
//! | `roles` | who may do what? |
//! | `store`, `log_store` | which call does what? The way in to all below. |
//! | `session`, `flight`, `link`, `statement`, `values` | who talks to the server, and how? |
//! | `reach`, `settings`, `pooler` | by which way, and what does that change? |
//! | `fetch`, `log_rows`, `straggler`, `probe`, `holding`, `due` | what is there to deliver, and can it still vanish? |
//! | `replication` | what does the server tell of its write-ahead log? |
//! | `wake`, `sentry` | who tells a relay that sleeps, and why is nothing slept through? |
//! | `position`, `position_swap` | how far has a shard come, and where is that written? |
//! | `settle`, `lane`, `work` | what has been delivered, what waits for what? |
//! | `shard`, `member`, `fence`, `lock` | whose turn is it, and who waits for whom? |
//! | `turn`, `ring`, `prune` | where does the log lie, and what may go? |
//! | `subscription`, `place`, `seek`, `dead_letter`, `audit` | what do people change? |
//! | `schedule` | what is emitted at which times? |
//! | [`inbox`] | how does a receiver handle each event once, and how is one delivered into its database? |
//! | `event`, `delivery`, `attempt`, `lag`, `report`, `check` | what do people look at? |
//!
//! # Emitting from other languages
//!
//! An event is a row. Leave `xid`, `id` and `created_at` out. The payload is JSON, which is kept to the letter; bytes that are no
//! JSON go into `payload_bytes` instead. Without a type the type is the topic.
//!
//! ```sql
//! insert into postrider.event (topic, type, key, payload)
//! values ('order', 'order.created', 42, '{"total": 12}')
//! returning id;
//! ```
//!
//! The function `postrider.emit` takes a payload of any type that JSON can have (`json`, `jsonb`, text, a parameter without a type),
//! and `postrider.emit_bytes` one that is none. Both take a delay and an idempotency key too, with a period (`unique_for`) and whether to take it
//! over from an older event (`replace`); a key that counts within a topic is written `topic TOPIC KEY`. Whoever emits with a key that is in use waits until
//! the other transaction has ended: the only wait between producers. [`producer_grants`] gives the statements that let
//! a role emit and nothing else.
//!
//! The protocol by which the log is read, and why it loses nothing, is at the head of [`postrider_core::log`].
//!
//! # What to know about PostgreSQL
//!
//! *Emit after locking the aggregate.* Events of a key are delivered in the order of their ids within what became visible
//! together; whoever holds the key's lock while it emits defines that order.
//!
//! *Leave `xid` and `id` alone.* Grant producers the other columns only; [`producer_grants`] prints how.
//!
//! *A transaction that stays open for long* delays its own events only. When it commits, its rows are looked for among all
//! that were written since it began, which delays others by about a second for every eight million of them. Beyond
//! [a budget](PostgresOptions::straggler_budget) the log and `postrider store check` say so, and which index makes it
//! short: the reader uses one on `(xid, id)` of a leaf if it is there.
//!
//! *A pooler in transaction mode* is noticed, or named by [`Pooler`]: nothing of ours then outlives a transaction, and one
//! session in its pool is enough. `docs/pooler.md` says what is different.
//!
//! *A relay at rest asks ten times a second*, unless [producers wake it](PostgresStore::wake_set), which is not for those
//! that prepare transactions, nor for relays behind a pooler by transactions.
//!
//! *A hand-out waits for the disk.* Events of producers that commit asynchronously are delivered once they are flushed.

/// One statement of the folder `sql`.
macro_rules! sql {
    ($name:literal) => {
        const {
            crate::statement::Sql::new(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/sql/",
                $name,
                ".sql"
            )))
        }
    };
}

pub mod ack;
mod adopt;
mod attempt;
mod audit;
#[cfg(feature = "bench")]
pub mod bare;
mod check;
mod connect;
mod dead_letter;
mod delivery;
mod due;
pub mod emit;
mod error;
mod event;
mod event_row;
mod fence;
mod fetch;
mod flight;
mod holding;
mod identity;
pub mod inbox;
mod lag;
mod lane;
mod link;
mod lock;
mod log_rows;
mod log_store;
mod login_ways;
mod member;
mod migrate;
mod options;
mod outbox;
mod passfile;
mod place;
mod pooler;
mod position;
mod position_swap;
mod probe;
mod prune;
mod queue;
mod reach;
mod replication;
mod report;
mod ring;
mod roles;
mod schedule;
mod seek;
mod self_test;
mod sentry;
mod session;
mod settings;
mod settle;
mod shard;
mod statement;
mod store;
mod straggler;
mod subscription;
mod tls;
mod turn;
mod url;
mod values;
mod wake;
mod wal;
mod work;

pub use tokio_postgres;

pub use adopt::{AdoptProgress, Adopted};
pub use emit::{EmitAll, Prepared, copy, copy_stream, emit_all};
pub use migrate::{Migration, SCHEMA_VERSION, migrations, schema_sql, schema_transaction_sql};
pub use options::{Durability, PostgresOptions};
pub use outbox::Outbox;
pub use pooler::Pooler;
pub use position::SHARDS;
pub use roles::{RoleKind, Roles, producer_grants};
pub use statement::Schema;
pub use store::PostgresStore;
pub use wake::TwoPhase;
pub use wal::{OverBudget, Reading, Source};
pub use work::{Handling, Work, Working, in_transaction};
