//! Postrider on PostgreSQL.
//!
//! A producer emits through its own transaction, of tokio-postgres or sqlx; see [`emit`]. [`PostgresStore`] is what
//! workers and people use.
//!
//! # Emitting from other languages
//!
//! An event is a row. Leave `xid`, `id` and `created_at` out, and write the payload as bytes: a literal is read as
//! PostgreSQL reads `bytea`, where a backslash has a meaning.
//!
//! ```sql
//! insert into postrider.event (topic, type, key, payload)
//! values ('order', 'order.created', '42', convert_to('{"total": 12}', 'UTF8'))
//! returning id;
//! ```
//!
//! The function takes a delay and an idempotency key too. Whoever emits with a key that is in use waits until the
//! other transaction has ended: the only wait between producers.
//!
//! ```sql
//! select postrider.emit('order', 'order.reminded', '42', due_in => '3 days', idempotency_key => 'reminder-42');
//! ```
//!
//! # Producers' rights
//!
//! Applications need not own the schema. [`producer_grants`] gives the statements that let a role emit and nothing
//! else:
//!
//! ```sql
//! grant usage on schema postrider to shop;
//! grant insert (topic, type, key, payload, headers, due_at), select (id) on postrider.event to shop;
//! grant execute on function postrider.emit to shop;
//! ```

/// One statement of the folder `sql`.
macro_rules! sql {
    ($name:literal) => {
        const { crate::statement::Sql::new(include_str!(concat!("../sql/", $name, ".sql"))) }
    };
}

mod attempt;
mod audit;
#[cfg(feature = "bench")]
pub mod bare;
mod check;
mod dead_letter;
mod delivery;
mod due;
pub mod emit;
mod error;
mod event;
mod event_row;
mod fence;
mod fetch;
mod grants;
mod holding;
mod lag;
mod lane;
mod link;
mod lock;
mod log_rows;
mod log_store;
mod member;
mod migrate;
mod options;
mod place;
mod position;
mod position_swap;
mod probe;
mod prune;
mod report;
mod ring;
mod seek;
mod self_test;
mod session;
mod settle;
mod shard;
mod statement;
mod store;
mod subscription;
mod turn;
mod values;
mod work;

pub use tokio_postgres;

pub use emit::{EmitAll, Prepared, copy, copy_stream, emit_all};
pub use grants::producer_grants;
pub use migrate::{Migration, SCHEMA_VERSION, migrations, schema_sql};
pub use options::{Durability, PostgresOptions};
pub use position::SHARDS;
pub use statement::Schema;
pub use store::PostgresStore;
pub use work::{Handling, Work, Working, in_transaction};
