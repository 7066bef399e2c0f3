//! What happened at each attempt.

use std::collections::HashMap;

use postrider_core::store::AttemptReport;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Result};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::server::session::Tx;
use crate::server::values::{At, For};

/// One delivery.
pub(crate) type DeliveryId = (SubscriptionId, EventId);

/// The last `most` attempts of each delivery, oldest first. One without any is left out.
pub(crate) async fn attempt_list(
    tx: &Tx<'_>,
    wanted: impl IntoIterator<Item = DeliveryId>,
    most: u32,
) -> Result<HashMap<DeliveryId, Vec<AttemptReport>>> {
    let what = "read attempts";
    let (subscriptions, events): (Vec<i64>, Vec<i64>) =
        wanted.into_iter().map(|(subscription, event)| (subscription.0, event.0)).unzip();
    let mut found: HashMap<DeliveryId, Vec<AttemptReport>> = HashMap::new();
    for row in tx
        .query(sql!("settle/attempt/attempt_list"), &[&subscriptions, &events, &i64::from(most)], what)
        .await?
    {
        let (delivery, attempt) = attempt_read(&row).doing(what)?;
        found.entry(delivery).or_default().push(attempt);
    }
    for history in found.values_mut() {
        history.reverse();
    }
    Ok(found)
}

fn attempt_read(row: &Row) -> Result<(DeliveryId, AttemptReport), tokio_postgres::Error> {
    let delivery = (SubscriptionId(row.try_get(0)?), EventId(row.try_get(1)?));
    let attempt = AttemptReport {
        attempt: row.try_get::<_, i32>(2)? as u32,
        started_at: row.try_get::<_, At>(3)?.0,
        took: row.try_get::<_, For>(4)?.0,
        member: row.try_get(5)?,
        error: row.try_get(6)?,
    };
    Ok((delivery, attempt))
}
