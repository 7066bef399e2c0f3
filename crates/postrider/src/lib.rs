//! Postrider carries events out of your database: emit an event in your own transaction, and it is
//! delivered, in order per key and at least once.
//!
//! ```
//! use postrider::sqlite::{SqliteOptions, SqliteStore, rusqlite};
//! use postrider::{Delivery, Event, NewSubscription, Relay, Worker, emit};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop.db");
//! let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
//!
//! // Your transaction: the order and its event exist together or not at all.
//! let mut db = rusqlite::Connection::open(&path)?;
//! db.execute("create table orders (id integer primary key, total integer)", [])?;
//! let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! tx.execute("insert into orders values (42, 1999)", [])?;
//! emit(&tx, Event::new("order").kind("order.created").key(42).json_text(r#"{"total":1999}"#))?;
//! tx.commit()?;
//!
//! // Your handler: called for each event, again if it fails, never two at a time for one key.
//! let confirmations = NewSubscription::new("confirmations").topic("order")?;
//! let worker = Worker::new(confirmations).each(|delivery: Delivery| async move {
//!     println!("confirming order {}", delivery.key.as_ref().expect("orders have a key"));
//!     Ok::<(), std::io::Error>(())
//! });
//! let summary = Relay::new(store).worker(worker).run_until_idle(std::future::pending()).await?;
//! assert_eq!(summary.delivered, 1);
//! # Ok(())
//! # }
//! ```
//!
//! A service runs [`Relay::run`] instead, with a future that ends when it is time to stop.
//!
//! # What lives where
//!
//! - [`Event`], [`emit()`]: what producers need. Any language can also emit with a plain `insert`.
//! - [`NewSubscription`], [`Worker`], [`Relay`]: who wants which events, what is done with them, and the
//!   process that does it. Handlers take one event ([`Worker::each`]),
//!   a batch, or run inside the store's own transaction.
//! - [`NewSchedule`], [`ScheduleStore::schedule_put`]: what is emitted at set times; any relay that runs sees
//!   to it.
//! - [`ack_in`]: for handlers of a queue that ack in a transaction of their own.
//! - [`RetryPolicy`], [`Failure`], [`Outcome`]: what happens when a handler fails.
//! - [`Store`], [`LogStore`], [`Sink`]: the contracts, for those who bring their own.
//!
//! # What is promised
//!
//! An event exists if and only if its transaction committed. It reaches every matching subscription at least
//! once, or becomes a dead letter. Events of one key are delivered in the order in which they were emitted; a
//! failing key waits alone. docs/guarantees.md lists the windows in which an event may be delivered twice;
//! [`Delivery::dedup_id`] is the same each time.
//!
//! # Features
//!
//! - `sqlite` (default): the embedded store.
//! - `postgres`: the store of a PostgreSQL server, and emit in transactions of tokio-postgres.
//! - `sqlx-0_9`, `diesel-2`, `diesel-async-0_9`, `sea-orm-2`: emit in transactions of these. `diesel-2` links
//!   the system's libpq.
//! - `sinks`: ready-made sinks.
//! - `testing`: helpers for the tests of your program, see
//!   [`testing`](https://docs.rs/postrider/latest/postrider/testing).

#[cfg(feature = "testing")]
pub mod testing;

pub use postrider_core::queue::{Priority, Progress, Ticket};
pub use postrider_core::unique::Scope;
pub use postrider_core::{
    Ack, Delivery, DeliveryState, Emit, Epoch, Error, ErrorKind, Event, EventId, Failure, FailureClass, Fair,
    Filter, Headers, Key, Kind, LeaseBy, LogStore, Members, Missed, Mode, NewEvent, NewSchedule,
    NewSubscription, OnDead, Order, Outcome, Pattern, Position, QueueStore, QueueTuning, Rate, Result,
    RetryPolicy, Schedule, ScheduleStore, Shard, ShardSet, Sink, Start, Store, Subscription, Timestamp,
    Topic, Tuning, Unique, ack_in, emit,
};
// What the contracts speak of, for those who bring their own.
pub use postrider_core::{
    balance, delivery, event, filter, inbox, limits, position, queue, retry, schedule, settle, sink, store,
    subscription, time, unique,
};
#[cfg(feature = "postgres")]
pub use postrider_postgres as postgres;
pub use postrider_runtime::{InTasks, InTransaction, Pulse, Relay, RunsOn, Summary, Worker};
#[cfg(feature = "sinks")]
pub use postrider_sinks as sinks;
#[cfg(feature = "sqlite")]
pub use postrider_sqlite as sqlite;

/// The README's example is compiled like every other.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
