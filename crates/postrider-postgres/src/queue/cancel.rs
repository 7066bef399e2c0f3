//! Ends a delivery that is not wanted any more.

use postrider_core::store::{Cancelled, LetterId};
use postrider_core::{Error, ErrorKind, EventId, Result, Subscription};

use super::floors::Rest;
use super::lanes::{lanes_alone, lanes_next};
use super::look::{InQueue, queued_of_event};
use super::sweep::block_apart;
use crate::admin::audit::Entry;
use crate::admin::subscription::subscription_lock;
use crate::server::session::Tx;

const WHAT: &str = "cancel a delivery";

/// How often the delivery is looked for before the caller has to try again.
const LOOKS_MAX: u32 = 5;

/// Removes a delivery that waits, and marks one that a worker has in hand as cancelled.
pub(super) async fn delivery_cancel(
    tx: &Tx<'_>,
    letter: &LetterId,
    actor: &str,
) -> Result<Option<Cancelled>> {
    let subscription = subscription_lock(tx, &letter.subscription).await?;
    let id = subscription.id;
    for _ in 0..LOOKS_MAX {
        let Some(row) = queued_of_event(tx, letter.event_id, Some(id)).await?.remove(&id) else {
            return Ok(None);
        };
        let cancelled = if row.leased {
            let told = tx
                .execute(sql!("queue/cancel/claim_cancel"), &[&row.token, &letter.event_id.0], WHAT)
                .await?;
            (told > 0).then_some(Cancelled::Told)
        } else {
            remove(tx, &subscription, &row, letter.event_id).await?
        };
        if cancelled.is_some() {
            let line = (letter.subscription.as_str(), Some(letter.event_id));
            Entry { actor, action: "delivery_cancel", detail: None }.write_each(tx, &[line]).await?;
            return Ok(cancelled);
        }
        // It was claimed or given back between the look and the change.
    }
    let message = format!("event {} changes hands all the time: try again", letter.event_id);
    Err(Error::new(ErrorKind::Busy, message))
}

async fn remove(
    tx: &Tx<'_>,
    subscription: &Subscription,
    row: &InQueue,
    event: EventId,
) -> Result<Option<Cancelled>> {
    let id = subscription.id;
    // Before the row: a transaction that takes the head away may be about to make this row the next head.
    let lanes: Vec<_> = row.lane.clone().into_iter().collect();
    lanes_alone(tx, id, &lanes).await?;
    let locked = tx.query_opt(sql!("queue/letters/queued_unleased"), &[&id.0, &row.id.0], WHAT).await?;
    if locked.is_none() {
        return Ok(None);
    }
    if row.spans.count() > 1 {
        let left: Vec<EventId> = row.spans.iter().filter(|other| *other != event).collect();
        block_apart(tx, id, row.id, &left).await?;
    } else {
        tx.execute(sql!("queue/sweep/queued_drop"), &[&id.0, &vec![row.id.0]], WHAT).await?;
        let lanes: Vec<Rest> = lanes.into_iter().map(Rest::all).collect();
        lanes_next(tx, subscription, &lanes).await?;
    }
    Ok(Some(Cancelled::Gone))
}
