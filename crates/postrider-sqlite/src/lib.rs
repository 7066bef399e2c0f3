//! Postrider on SQLite.
//!
//! A producer emits through its own rusqlite transaction, or by plain SQL from any language; see [`emit`].
//! [`SqliteStore`] is what workers and people use.
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
//! | file | question it answers |
//! |---|---|
//! | [`emit`] | how does an event get into the caller's transaction? |
//! | `options`, `open`, `migrate` | which file, and is it fit for use? |
//! | `store` | which call does what? The way in to all below. |
//! | `connection`, `busy` | who touches the database, and who waits for whom? Two threads, one connection each. |
//! | `fetch`, `durability`, `due` | what is there to deliver, and can it still vanish? |
//! | `settle`, `lane`, `work` | what has been delivered, what waits for what? |
//! | `queue_feed`, `queue_row`, `queue_lane` | mode `queue`: what is queued, and what waits for what? |
//! | `queue_claim`, `queue_settle`, `queue_sweep` | who works on it, until when, and what became of it? |
//! | [`queue_ack`] | how does a handler ack in its own transaction? |
//! | `shard`, `member`, `liveness`, `fence` | whose turn is it, and who is dead? |
//! | `subscription`, `seek`, `dead_letter`, `queue_letter`, `queue_cancel`, `audit` | what do people change? |
//! | `schedule` | what is emitted at which times? |
//! | [`inbox`] | how does a receiver handle each event once, and how is one delivered into its database? |
//! | `event`, `report`, `check`, `queue_check` | what do people look at? |
//! | `prune` | what may go? |
//! | `clock`, `error` | instants, failures |
//!
//! # What to know about SQLite
//!
//! *One writer.* Ids become visible in the order in which they were given, so a position is just the last
//! id. Writers wait for each other: keep transactions short, and begin those that write with
//! `BEGIN IMMEDIATE`, since one that begins by reading fails at once when another has written in between.
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
//! once. This crate refuses to run on one; producers in other languages should have a newer one too.

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

mod audit;
#[cfg(feature = "bench")]
pub mod bare;
mod busy;
mod check;
mod clock;
mod connection;
mod dead_letter;
mod due;
mod durability;
pub mod emit;
mod error;
mod event;
mod event_row;
mod fence;
mod fetch;
pub mod inbox;
mod lane;
mod liveness;
mod member;
mod migrate;
mod open;
mod options;
mod prune;
pub mod queue_ack;
mod queue_cancel;
mod queue_check;
mod queue_claim;
mod queue_feed;
mod queue_lane;
mod queue_letter;
mod queue_progress;
mod queue_row;
mod queue_settle;
mod queue_sweep;
mod report;
mod schedule;
mod seek;
mod settle;
mod shard;
mod store;
mod subscription;
mod work;

pub use rusqlite;

pub use clock::SystemClock;
pub use event::events_seen_by;
pub use migrate::{Migration, SCHEMA_VERSION, migrations, schema_sql, schema_transaction_sql};
pub use options::{Durability, SqliteOptions};
pub use shard::SHARDS;
pub use store::SqliteStore;
pub use work::{Work, in_transaction};
