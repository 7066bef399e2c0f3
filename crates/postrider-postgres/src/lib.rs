//! Postrider on PostgreSQL.

/// One statement of the folder `sql`.
macro_rules! sql {
    ($name:literal) => {
        const { crate::statement::Sql::new(include_str!(concat!("../sql/", $name, ".sql"))) }
    };
}

#[cfg(feature = "bench")]
pub mod bare;
pub mod emit;
mod error;
mod event_row;
mod grants;
mod link;
mod lock;
mod migrate;
mod options;
mod position;
mod probe;
mod session;
mod statement;
mod store;
mod types;

pub use tokio_postgres;

pub use emit::{EmitAll, Prepared, copy, copy_stream, emit_all};
pub use grants::producer_grants;
pub use migrate::{Migration, SCHEMA_VERSION, migrations, schema_sql};
pub use options::{Durability, PostgresOptions};
pub use statement::Schema;
pub use store::PostgresStore;
