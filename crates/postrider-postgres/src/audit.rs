//! Who destroyed or skipped what. Written in the transaction that does it.

use postrider_core::{EventId, Result};

use crate::session::Tx;

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
            sql!("audit_put"),
            &[&self.actor, &self.action, &subscriptions, &events, &self.detail],
            "write the audit table",
        )
        .await
        .map(drop)
    }
}
