//! Who destroyed or skipped what. Written in the transaction that does it.

use std::collections::HashMap;

use postrider_core::store::{ActionReport, DeliveryAction};
use postrider_core::{Event, EventId, Result, Subscription, limits};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::server::session::Tx;
use crate::server::values::At;

/// What one action did to one subscription or several of its events. It never contains a payload.
pub(crate) struct Entry<'a> {
    pub(crate) actor: &'a str,
    pub(crate) action: &'static str,
    pub(crate) detail: Option<&'a str>,
}

impl Entry<'_> {
    /// Writes a line for a subscription as a whole.
    pub(crate) async fn write(&self, tx: &Tx<'_>, subscription: &str) -> Result<()> {
        self.write_each(tx, &[(subscription, None)]).await
    }

    /// Writes a line for each event.
    pub(crate) async fn write_each(&self, tx: &Tx<'_>, what: &[(&str, Option<EventId>)]) -> Result<()> {
        let (subscriptions, events) =
            what.iter().map(|(subscription, event)| (Some(*subscription), event.map(|id| id.0))).unzip();
        self.put(tx, subscriptions, events).await
    }

    /// Writes a line for the store as a whole.
    pub(crate) async fn write_of_store(&self, tx: &Tx<'_>) -> Result<()> {
        self.put(tx, vec![None], vec![None]).await
    }

    async fn put(
        &self,
        tx: &Tx<'_>,
        subscriptions: Vec<Option<&str>>,
        events: Vec<Option<i64>>,
    ) -> Result<()> {
        tx.execute(
            sql!("admin/audit/audit_put"),
            &[&self.actor, &self.action, &subscriptions, &events, &self.detail],
            "write the audit table",
        )
        .await
        .map(drop)
    }
}

/// What people did to the deliveries of an event, by the names of the subscriptions, oldest first; none if
/// this role may not read the audit. What was done under a subscription's name before it was created was done
/// to another one.
pub(crate) async fn action_list(
    tx: &Tx<'_>,
    event: &Event,
    subscriptions: impl Iterator<Item = &Subscription>,
) -> Result<Option<HashMap<String, Vec<ActionReport>>>> {
    let what = "read the audit table";
    let may_read: bool =
        tx.query_one(sql!("admin/audit/audit_right"), &[], what).await?.try_get(0).doing(what)?;
    if !may_read {
        return Ok(None);
    }
    let (names, since): (Vec<&str>, Vec<At>) = subscriptions
        .map(|subscription| (subscription.name.as_str(), At(subscription.created_at.max(event.created_at))))
        .unzip();
    let most = i64::from(limits::DELIVERY_ACTIONS_MAX);
    let rows = tx.query(sql!("admin/audit/audit_list"), &[&names, &since, &event.id.0, &most], what).await?;
    let mut found: HashMap<String, Vec<ActionReport>> = HashMap::new();
    for row in rows.iter().rev() {
        if let (name, Some(action)) = action_read(row, event.id).doing(what)? {
            found.entry(name).or_default().push(action);
        }
    }
    Ok(Some(found))
}

fn action_read(row: &Row, event: EventId) -> Result<(String, Option<ActionReport>), tokio_postgres::Error> {
    let (action, detail): (&str, Option<&str>) = (row.try_get(3)?, row.try_get(4)?);
    let (at, actor) = (row.try_get::<_, At>(1)?.0, row.try_get(2)?);
    let action = DeliveryAction::read(action, detail, event);
    Ok((row.try_get(0)?, action.map(|action| ActionReport { action, at, actor })))
}
