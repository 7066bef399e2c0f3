//! An order and its event in one transaction of diesel-async.
//!
//! ```sh
//! export POSTRIDER_STORE=postgres://app@localhost/shop
//! cargo run --bin postrider -- store migrate
//! cargo run -p postrider-postgres --example diesel_async
//! ```

use diesel::ExpressionMethods as _;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _};
use postrider_core::{Event, EventId, emit};
// Lets `emit` take this library's transactions; `use postrider::emit` does so by itself.
use postrider_postgres as _;

diesel::table! {
    /// Orders.
    orders (id) {
        /// Which one.
        id -> BigInt,
        /// What it comes to, in cents.
        total -> BigInt,
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("POSTRIDER_STORE")
        .map_err(|_| "set POSTRIDER_STORE to postgres://USER@HOST/DATABASE")?;
    let mut db = AsyncPgConnection::establish(&url).await?;
    diesel::sql_query("create table if not exists orders (id bigint primary key, total bigint not null)")
        .execute(&mut db)
        .await?;
    let event = order_raise(&mut db, 42, 100).await?;
    println!("order 42 has changed: event {event}");
    Ok(())
}

/// The row first, which locks it, then the event: whoever is next with this order is next with its event, too.
async fn order_raise(db: &mut AsyncPgConnection, id: i64, by: i64) -> Result<EventId> {
    db.transaction(async |tx| {
        let total: i64 = diesel::insert_into(orders::table)
            .values((orders::id.eq(id), orders::total.eq(by)))
            .on_conflict(orders::id)
            .do_update()
            .set(orders::total.eq(orders::total + by))
            .returning(orders::total)
            .get_result(tx)
            .await?;
        let event =
            Event::new("order").kind("order.raised").key(id).json_text(format!(r#"{{"total":{total}}}"#));
        // An error rolls the order back too.
        Ok(emit(tx, event).await?)
    })
    .await
}
