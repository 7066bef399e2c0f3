//! Postrider on SQLite.
//!
//! A producer emits through its own rusqlite transaction, or by plain SQL from any language; see [`emit`].
//! Workers and people use a [`SqliteStore`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> postrider_core::Result<()> {
//! use postrider_core::{Event, Store, emit};
//! use postrider_sqlite::{SqliteOptions, SqliteStore, rusqlite};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("app.db");
//! let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
//!
//! let mut app = rusqlite::Connection::open(&path).unwrap();
//! let tx = app.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
//! let id = emit(&tx, Event::new("order").kind("order.created").key(42).json_text("{}"))?;
//! tx.commit().unwrap();
//!
//! assert_eq!(store.event_get(id).await?.unwrap().kind.as_str(), "order.created");
//! # Ok(()) }
//! ```
//!
//! | room | question it answers |
//! |---|---|
//! | [`emit`], [`queue_ack`] | how does an event, or an ack, get into the caller's transaction? |
//! | `options` | which file, and how is it used? |
//! | `file` | how does Postrider talk to the file? Two threads, one connection each. |
//! | `store` | which call runs on which connection? The way in to all below. |
//! | `log` | what is there to read, and is it on disk? |
//! | `settle` | what has been delivered, and what waits? |
//! | `ownership` | who owns which shard, and whose lease lasts? |
//! | `queue` | mode `queue`: what is fed, claimed, settled and swept? |
//! | `retention` | what may go? |
//! | `admin` | what do people change and look at? |
//! | `schedule` | what is emitted at which times? |
//! | `subscription` | which subscriptions are there? |
//! | `audit` | who destroyed or skipped what? |
//! | [`inbox`] | how does a receiver handle each event once, and how is one delivered into its database? |
//!
//! # What to know about SQLite
//!
//! *One writer.* Ids become visible in the order in which they were given, so a position is just the last
//! id. Writers wait for each other. So keep transactions short, and begin those that write with
//! `BEGIN IMMEDIATE`, because a transaction that begins by reading fails at once when another has written in
//! between.
//!
//! *One file.* Postrider's tables must be in the file of the application's tables: in WAL mode a commit
//! over attached files is not atomic.
//!
//! *One machine.* WAL mode needs memory shared between processes; a network file system has none.
//!
//! *One library in a process.* Two copies of SQLite in one process break each other's file locks; emit
//! through the re-exported [`rusqlite`].
//!
//! *A safe library.* SQLite before 3.51.3 can lose committed writes when two connections checkpoint at
//! once. This crate refuses to run on such a version; producers in other languages should use a newer one
//! too.

/// The text of one statement, from the folder `sql`. Its header is cut off by the compiler: prepared
/// statements are looked up by their text, and emit looks one up for every event.
macro_rules! sql {
    ($name:literal) => {
        const {
            postrider_core::statement::without_header(include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/sql/",
                $name,
                ".sql"
            )))
        }
    };
}

mod admin;
mod audit;
#[cfg(feature = "bench")]
pub mod bare;
pub mod emit;
mod error;
mod file;
pub mod inbox;
mod log;
mod options;
mod ownership;
mod queue;
pub mod queue_ack;
mod retention;
mod schedule;
mod settle;
mod store;
mod subscription;

pub use rusqlite;

pub use admin::event::events_seen_by;
pub use file::migrate::{Migration, SCHEMA_VERSION, migrations, schema_sql, schema_transaction_sql};
pub use options::clock::SystemClock;
pub use options::{Durability, SqliteOptions};
pub use ownership::shard::SHARDS;
pub use settle::work::{Work, in_transaction};
pub use store::SqliteStore;
