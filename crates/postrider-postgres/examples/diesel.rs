//! An order and its event in one transaction of diesel.
//!
//! ```sh
//! export POSTRIDER_STORE=postgres://app@localhost/shop
//! cargo run --bin postrider -- store migrate
//! cargo run -p postrider-postgres --example diesel
//! ```

use diesel::prelude::*;
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

fn main() -> Result<()> {
    let url = std::env::var("POSTRIDER_STORE")
        .map_err(|_| "set POSTRIDER_STORE to postgres://USER@HOST/DATABASE")?;
    let mut db = PgConnection::establish(&url)?;
    diesel::sql_query("create table if not exists orders (id bigint primary key, total bigint not null)")
        .execute(&mut db)?;
    let event = order_raise(&mut db, 42, 100)?;
    println!("order 42 has changed: event {event}");
    Ok(())
}

/// The row first, which locks it, then the event: whoever is next with this order is next with its event, too.
fn order_raise(db: &mut PgConnection, id: i64, by: i64) -> Result<EventId> {
    db.transaction(|tx| {
        let total: i64 = diesel::insert_into(orders::table)
            .values((orders::id.eq(id), orders::total.eq(by)))
            .on_conflict(orders::id)
            .do_update()
            .set(orders::total.eq(orders::total + by))
            .returning(orders::total)
            .get_result(tx)?;
        let event =
            Event::new("order").kind("order.raised").key(id).json_text(format!(r#"{{"total":{total}}}"#));
        // Blocks, as everything does here. An error rolls the order back too.
        Ok(emit(tx, event)?)
    })
}
