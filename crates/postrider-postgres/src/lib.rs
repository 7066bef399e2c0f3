//! Postrider on PostgreSQL.

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
