//! Who destroyed or skipped what. Written in the transaction that does it.

use postrider_core::{EventId, Result, Timestamp};
use rusqlite::Transaction;

use crate::error::Doing;

/// Under whose name, and when.
#[derive(Debug, Clone)]
pub(crate) struct Auditor {
    pub(crate) actor: String,
    pub(crate) now: Timestamp,
}

/// One line of the audit table. It never contains a payload.
pub(crate) struct Entry<'a> {
    pub(crate) action: &'static str,
    /// None if it concerns no subscription.
    pub(crate) subscription: Option<&'a str>,
    pub(crate) event_id: Option<EventId>,
    pub(crate) detail: Option<&'a str>,
}

impl Auditor {
    pub(crate) fn write(&self, tx: &Transaction<'_>, entry: &Entry<'_>) -> Result<()> {
        tx.prepare_cached(sql!("audit/audit_put"))
            .and_then(|mut put| {
                put.execute((
                    self.now.as_micros(),
                    &self.actor,
                    entry.action,
                    entry.subscription,
                    entry.event_id.map(|id| id.0),
                    entry.detail,
                ))
            })
            .map(drop)
            .doing("write the audit table")
    }
}
