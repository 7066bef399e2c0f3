//! Which subscriptions are there?

use postrider_core::subscription::{StoredSubscription, SubscriptionTexts};
use postrider_core::{Result, Subscription, Timestamp, refusal};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::Doing;

/// One subscription by name, or `NotFound`.
pub(crate) fn subscription_get(conn: &Connection, name: &str) -> Result<Subscription> {
    subscription_find(conn, name)?.ok_or_else(|| refusal::subscription_missing(name))
}

/// A subscription as it is stored now; `NotFound` if it is gone, even if another one has its name by now.
pub(crate) fn subscription_same(conn: &Connection, known: &Subscription) -> Result<Subscription> {
    let found = subscription_find(conn, &known.name)?.filter(|found| found.id == known.id);
    found.ok_or_else(|| refusal::subscription_missing(&known.name))
}

/// One subscription by name, if it is there.
pub(crate) fn subscription_find(conn: &Connection, name: &str) -> Result<Option<Subscription>> {
    let stored = conn
        .prepare_cached(sql!("subscription/subscription_get"))
        .and_then(|mut get| get.query_row([name], stored_read).optional())
        .doing("read a subscription")?;
    stored.map(StoredSubscription::parse).transpose()
}

/// All subscriptions by name.
pub(crate) fn subscription_list(conn: &Connection) -> Result<Vec<Subscription>> {
    let stored: Vec<StoredSubscription> = conn
        .prepare_cached(sql!("subscription/subscription_list"))
        .and_then(|mut list| list.query_map([], stored_read)?.collect())
        .doing("list the subscriptions")?;
    stored.into_iter().map(StoredSubscription::parse).collect()
}

fn stored_read(row: &Row<'_>) -> rusqlite::Result<StoredSubscription> {
    Ok(StoredSubscription {
        id: row.get(0)?,
        name: row.get(1)?,
        texts: SubscriptionTexts {
            filter: row.get(2)?,
            mode: row.get(3)?,
            order: row.get(4)?,
            on_dead: row.get(5)?,
            tuning: row.get(6)?,
        },
        created_at: Timestamp::from_micros(row.get(7)?),
        paused_at: row.get::<_, Option<i64>>(8)?.map(Timestamp::from_micros),
    })
}
