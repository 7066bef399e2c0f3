//! An order and its event in one transaction of sea-orm.
//!
//! ```sh
//! export POSTRIDER_STORE=postgres://app@localhost/shop
//! cargo run --bin postrider -- store migrate
//! cargo run -p postrider-postgres --example sea_orm
//! ```

use postrider_core::{Event, EventId, emit};
// Lets `emit` take this library's transactions; `use postrider::emit` does so by itself.
use postrider_postgres as _;
use sea_orm::{
    ActiveModelTrait as _, ConnectionTrait as _, DatabaseConnection, EntityTrait as _, IntoActiveModel as _,
};
use sea_orm::{QuerySelect as _, Set, TransactionTrait as _};

/// The table of orders, as sea-orm wants to be told.
#[expect(unreachable_pub, reason = "sea-orm's macros want its items public")]
mod order {
    use sea_orm::entity::prelude::*;

    #[derive(Debug, Clone, DeriveEntityModel)]
    #[sea_orm(table_name = "orders")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: i64,
        pub total: i64,
    }

    #[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("POSTRIDER_STORE")
        .map_err(|_| "set POSTRIDER_STORE to postgres://USER@HOST/DATABASE")?;
    let db = sea_orm::Database::connect(url).await?;
    db.execute_unprepared(
        "create table if not exists orders (id bigint primary key, total bigint not null);
         insert into orders values (42, 0) on conflict do nothing",
    )
    .await?;
    let event = order_raise(&db, 42, 100).await?;
    println!("order 42 has changed: event {event}");
    Ok(())
}

/// The row is locked when it is read, then written, and the event comes last: whoever is next with this order is next
/// with its event, too.
async fn order_raise(db: &DatabaseConnection, id: i64, by: i64) -> Result<EventId> {
    let tx = db.begin().await?;
    let order = order::Entity::find_by_id(id).lock_exclusive().one(&tx).await?.ok_or("no such order")?;
    let total = order.total + by;
    let mut order = order.into_active_model();
    order.total = Set(total);
    order.update(&tx).await?;
    let event = Event::new("order").kind("order.raised").key(id).json_text(format!(r#"{{"total":{total}}}"#));
    let event = emit(&tx, event).await?;
    // Without this both are gone: a transaction that is dropped is rolled back.
    tx.commit().await?;
    Ok(event)
}
