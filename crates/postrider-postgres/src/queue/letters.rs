//! Dead letters of queues, and what a seek leaves of a queue.

use std::collections::HashMap;

use postrider_core::queue::Spans;
use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Subscription};
use tokio_postgres::Row;

use super::floors::Rest;
use super::lanes::{lanes_alone, lanes_headless, lanes_next, lanes_share};
use super::rows::spans_of;
use super::sweep::block_apart;
use crate::error::Doing;
use crate::server::session::Tx;

/// Subscriptions of mode `queue`.
pub(crate) type Queues = HashMap<SubscriptionId, Subscription>;

/// Sends dead letters of queues round again; which of them.
pub(crate) async fn queue_replay(
    tx: &Tx<'_>,
    queues: &Queues,
    (subscriptions, events): (&[i64], &[i64]),
    behind_all: i64,
) -> Result<Vec<Row>> {
    let what = "replay dead letters";
    let rows =
        tx.query(sql!("queue/letters/queued_replay"), &[&subscriptions, &events, &behind_all], what).await?;
    lanes_go_on(tx, queues, &rows, what).await?;
    Ok(rows)
}

/// Gives dead letters of queues up; which of them.
pub(crate) async fn queue_discard(
    tx: &Tx<'_>,
    queues: &Queues,
    (subscriptions, events): (&[i64], &[i64]),
) -> Result<Vec<Row>> {
    let what = "discard dead letters";
    let rows = tx.query(sql!("queue/letters/queued_discard"), &[&subscriptions, &events], what).await?;
    lanes_go_on(tx, queues, &rows, what).await?;
    Ok(rows)
}

/// Gives the lanes in columns two and three a head.
async fn lanes_go_on(tx: &Tx<'_>, queues: &Queues, rows: &[Row], what: &str) -> Result<()> {
    let mut lanes: HashMap<i64, Vec<Lane>> = HashMap::new();
    for row in rows {
        if let Some(key) = row.try_get::<_, Option<&str>>(2).doing(what)?.map(Key::new) {
            let late = row.try_get(3).doing(what)?;
            lanes.entry(row.try_get(0).doing(what)?).or_default().push(Lane { key, late });
        }
    }
    for (id, lanes) in lanes {
        let Some(queue) = queues.get(&SubscriptionId(id)) else { continue };
        lanes_alone(tx, queue.id, &lanes).await?;
        let lanes: Vec<Rest> = lanes.into_iter().map(Rest::all).collect();
        lanes_next(tx, queue, &lanes).await?;
    }
    Ok(())
}

/// Splits a block into one row for each of its events, unless a worker has it in hand.
pub(crate) async fn block_open(
    tx: &Tx<'_>,
    id: SubscriptionId,
    block: EventId,
    pairs: Option<Vec<i64>>,
) -> Result<bool> {
    if tx
        .query_opt(sql!("queue/letters/queued_unleased"), &[&id.0, &block.0], "open a block")
        .await?
        .is_none()
    {
        return Ok(false);
    }
    let events: Vec<EventId> = spans_of(block, pairs)?.iter().collect();
    block_apart(tx, id, block, &events).await.map(|_| true)
}

/// Removes from a queue what lies above a position, since it will be fed again.
pub(crate) async fn queue_cut(tx: &Tx<'_>, subscription: &Subscription, last_id: EventId) -> Result<()> {
    let id = subscription.id;
    let what = "move a subscription";
    let rows = tx.query(sql!("queue/letters/queued_above"), &[&id.0, &last_id.0], what).await?;
    let mut gone: Vec<i64> = Vec::new();
    let mut closed: HashMap<i64, (i32, i32)> = HashMap::new();
    for row in &rows {
        let event = EventId(row.try_get(0).doing(what)?);
        let (token, leased): (i64, bool) = (row.try_get(1).doing(what)?, row.try_get(2).doing(what)?);
        let spans = spans_of(event, row.try_get(4).doing(what)?)?;
        let left = spans.before(EventId(last_id.0.saturating_add(1)));
        let less = spans.count() - left.as_ref().map_or(0, Spans::count);
        if leased {
            let less_of = closed.entry(token).or_default();
            *less_of = (less_of.0 + i32::from(left.is_none()), less_of.1 + less as i32);
        }
        match left {
            None => gone.push(event.0),
            Some(left) => {
                let pairs = (left.count() > 1).then(|| left.to_pairs());
                let (last, count) = (left.last().0, left.count() as i16);
                tx.execute(
                    sql!("queue/letters/queued_shorten"),
                    &[&id.0, &event.0, &last, &count, &pairs],
                    what,
                )
                .await?;
            }
        }
    }
    tx.execute(sql!("queue/sweep/queued_drop"), &[&id.0, &gone], what).await?;
    let tokens: Vec<i64> = closed.keys().copied().collect();
    let (rows, events): (Vec<i32>, Vec<i32>) = closed.values().copied().unzip();
    let none: Vec<i64> = Vec::new();
    tx.execute(sql!("queue/letters/claim_close"), &[&tokens, &rows, &events, &none], what).await?;
    let lanes: Vec<Rest> = lanes_headless(tx, id).await?.into_iter().map(Rest::all).collect();
    // Not alone: a transaction that has the bucket may wait for a row that is gone. The next feeder looks at all lanes.
    lanes_share(tx, id, &lanes).await?;
    lanes_next(tx, subscription, &lanes).await.map(drop)
}
