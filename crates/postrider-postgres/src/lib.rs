//! Postrider on PostgreSQL.

/// One statement of the folder `sql`.
macro_rules! sql {
    ($name:literal) => {
        const { crate::statement::Sql::new(include_str!(concat!("../sql/", $name, ".sql"))) }
    };
}

mod attempt;
mod audit;
mod check;
mod dead_letter;
mod delivery;
mod emit;
mod error;
mod event;
mod event_row;
mod lag;
mod lane;
mod link;
mod lock;
mod migrate;
mod options;
mod place;
mod position;
mod probe;
mod report;
mod seek;
mod session;
mod shard;
mod statement;
mod store;
mod subscription;
mod turn;
mod types;

pub use tokio_postgres;

pub use migrate::{Migration, SCHEMA_VERSION, migrations, schema_sql};
pub use options::{Durability, PostgresOptions};
pub use position::SHARDS;
pub use store::PostgresStore;
