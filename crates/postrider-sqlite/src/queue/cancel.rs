//! Ending a delivery that is not wanted any more.

use postrider_core::Result;
use postrider_core::queue::Token;
use postrider_core::store::{Cancelled, LetterId};
use rusqlite::Transaction;

use crate::audit::{Auditor, Entry};
use crate::error::Doing;
use crate::queue::lane::queue_advance;
use crate::queue::row::{QueuedState, queued_of, queued_take};
use crate::subscription::subscription_get;

/// Takes an event out of the queue, or has its worker told.
pub(crate) fn delivery_cancel(
    tx: &Transaction<'_>,
    letter: &LetterId,
    auditor: &Auditor,
) -> Result<Option<Cancelled>> {
    let id = subscription_get(tx, &letter.subscription)?.id;
    let Some(row) = queued_of(tx, id, letter.event_id)? else { return Ok(None) };
    let cancelled = if row.state == QueuedState::Leased {
        tell(tx, row.token, letter)?;
        Cancelled::Told
    } else {
        queued_take(tx, id, row.id)?;
        if let Some(left) = row.only(|event| *event != letter.event_id) {
            left.put(tx, id)?;
        }
        row.lane.as_ref().map_or(Ok(()), |lane| queue_advance(tx, id, lane))?;
        Cancelled::Gone
    };
    let entry = Entry {
        action: "delivery_cancel",
        subscription: Some(&letter.subscription),
        event_id: Some(letter.event_id),
        detail: None,
    };
    auditor.write(tx, &entry)?;
    Ok(Some(cancelled))
}

fn tell(tx: &Transaction<'_>, token: Token, letter: &LetterId) -> Result<()> {
    tx.prepare_cached(sql!("queue/cancel/cancelled_put"))
        .and_then(|mut put| put.execute((token.0, letter.event_id.0)))
        .map(drop)
        .doing("cancel a delivery")
}
