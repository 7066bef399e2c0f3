//! Giving back what nobody works on any more, and making ready whose time has come.

use std::collections::HashSet;
use std::time::Duration;

use postrider_core::queue::{Spans, Swept, Token};
use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Subscription, limits};
use tokio_postgres::Row;

use super::floors::Rest;
use super::hints::Ready;
use super::lanes::{lanes_mend, lanes_next, lanes_replace, lanes_take, ready_read};
use super::rows::spans_of;
use crate::error::Doing;
use crate::session::Tx;
use crate::values::For;

const WHAT: &str = "sweep a queue";

/// Claims that one sweep reaps.
const CLAIMS_MAX: i64 = 100;

/// Sweeps a queue, and looks at lanes again in which rows may wait for nobody. Returns what is ready by it, and lanes that
/// have to be looked at once more.
pub(super) async fn sweep(
    tx: &Tx<'_>,
    subscription: &Subscription,
    unsure: Vec<Rest>,
) -> Result<(Swept, Vec<Ready>, Vec<Lane>)> {
    let id = subscription.id;
    let mut swept = Swept::default();
    let mut ready = Vec::new();
    let expired = tx.query(sql!("claim_expired"), &[&id.0, &CLAIMS_MAX], WHAT).await?;
    for row in &expired {
        swept.reaped +=
            u64::from(reap(tx, subscription, &Expired::read(row).doing(WHAT)?, &mut ready).await?);
    }
    // From here on buckets are held alone, and nobody is waited for any more.
    let mended = lanes_mend(tx, subscription, unsure).await?;
    ready.extend(mended.ready);
    swept.due = come_due(tx, subscription, &mut ready).await?;
    if let Some(row) = tx.query_opt(sql!("queued_next_due"), &[&id.0], WHAT).await? {
        let seconds: f64 = row.try_get(0).doing(WHAT)?;
        swept.next_due_in = Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO));
    }
    Ok((swept, ready, mended.left))
}

/// A claim whose lease has run out, which is locked; or rows of one that nobody works on any more.
pub(super) struct Expired {
    pub(super) token: Token,
    pub(super) rows: Vec<i64>,
    pub(super) cancelled: HashSet<EventId>,
}

impl Expired {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let cancelled: Option<Vec<i64>> = row.try_get(2)?;
        Ok(Self {
            token: Token(row.try_get(0)?),
            rows: row.try_get(1)?,
            cancelled: cancelled.unwrap_or_default().into_iter().map(EventId).collect(),
        })
    }
}

/// Frees the rows of a claim, under the token that was read; those that its worker is settling just now are left, and with
/// them the claim.
async fn reap(
    tx: &Tx<'_>,
    subscription: &Subscription,
    claim: &Expired,
    ready: &mut Vec<Ready>,
) -> Result<bool> {
    rows_free(tx, subscription, claim, ready).await?;
    let counted = tx
        .query_one(sql!("queued_leased_count"), &[&subscription.id.0, &claim.rows, &claim.token.0], WHAT)
        .await?;
    let left: i64 = counted.try_get(0).doing(WHAT)?;
    if left == 0 {
        tx.execute(sql!("claim_forget"), &[&vec![claim.token.0]], WHAT).await?;
    }
    Ok(left == 0)
}

/// Frees rows of a claim that nobody has in hand just now.
pub(super) async fn rows_free(
    tx: &Tx<'_>,
    subscription: &Subscription,
    claim: &Expired,
    ready: &mut Vec<Ready>,
) -> Result<()> {
    let id = subscription.id;
    let (mut free, mut gone, mut freed) = (Vec::new(), Vec::new(), Vec::new());
    let mut blocks: Vec<(EventId, Spans)> = Vec::new();
    for row in &tx.query(sql!("queued_leased"), &[&id.0, &claim.rows, &claim.token.0], WHAT).await? {
        let event = EventId(row.try_get(0).doing(WHAT)?);
        let spans = spans_of(event, row.try_get(5).doing(WHAT)?)?;
        if spans != Spans::one(event) {
            blocks.push((event, spans));
        } else if claim.cancelled.contains(&event) {
            gone.push(event.0);
            freed.extend(lane_of(row).doing(WHAT)?);
        } else {
            free.push(event.0);
        }
    }
    if !free.is_empty() {
        let rows = tx.query(sql!("queued_free"), &[&id.0, &free], WHAT).await?;
        ready.extend(rows.iter().map(ready_read).collect::<Result<Vec<_>, _>>().doing(WHAT)?);
    }
    for (block, spans) in &blocks {
        let left: Vec<EventId> = spans.iter().filter(|event| !claim.cancelled.contains(event)).collect();
        ready.extend(block_apart(tx, id, *block, &left).await?);
    }
    if !gone.is_empty() {
        tx.execute(sql!("queued_drop"), &[&id.0, &gone], WHAT).await?;
        ready.extend(lanes_replace(tx, subscription, &freed).await?);
    }
    Ok(())
}

fn lane_of(row: &Row) -> Result<Option<Rest>, tokio_postgres::Error> {
    let key = row.try_get::<_, Option<&str>>(1)?.map(Key::new);
    let (late, turn, parks): (bool, i64, bool) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    Ok(key.filter(|_| parks).map(|key| Rest::behind(Lane { key, late }, turn)))
}

/// Makes of a block one row for each of some of its events.
pub(super) async fn block_apart(
    tx: &Tx<'_>,
    id: SubscriptionId,
    block: EventId,
    events: &[EventId],
) -> Result<Vec<Ready>> {
    let ids: Vec<i64> = events.iter().map(|event| event.0).collect();
    let fates = vec!["r"; ids.len()];
    let after: Vec<Option<For>> = vec![None; ids.len()];
    let (begun, finished) = (vec![false; ids.len()], vec![0_i32; ids.len()]);
    let rows = tx
        .query(sql!("queued_split"), &[&id.0, &block.0, &ids, &fates, &after, &begun, &finished], WHAT)
        .await?;
    rows.iter().map(ready_read).collect::<Result<_, _>>().doing(WHAT)
}

/// Makes rows ready whose time has come; those that are not in their lanes enter them, unless somebody is just leaving these.
async fn come_due(tx: &Tx<'_>, subscription: &Subscription, ready: &mut Vec<Ready>) -> Result<u64> {
    let id = subscription.id;
    let most = limits::SWEEP_ROWS_MAX as i64;
    let rows = tx.query(sql!("queued_come_due"), &[&id.0, &most], WHAT).await?;
    let (mut due, mut entering): (Vec<i64>, Vec<(i64, Lane)>) = (Vec::new(), Vec::new());
    for row in &rows {
        let event: i64 = row.try_get(0).doing(WHAT)?;
        let key: Option<&str> = row.try_get(1).doing(WHAT)?;
        let (late, parks): (bool, bool) = (row.try_get(2).doing(WHAT)?, row.try_get(3).doing(WHAT)?);
        match key.filter(|_| !parks) {
            Some(key) => entering.push((event, Lane { key: Key::new(key), late })),
            None => due.push(event),
        }
    }
    let lanes: HashSet<Lane> = entering.iter().map(|(_, lane)| lane.clone()).collect();
    let (free, _) = lanes_take(tx, id, lanes.into_iter().map(Rest::all).collect()).await?;
    let entered: HashSet<&Lane> = free.iter().map(|rest| &rest.lane).collect();
    entering.retain(|(_, lane)| entered.contains(lane));
    let waiting: Vec<i64> = entering.iter().map(|(event, _)| *event).collect();
    due.extend(&waiting);
    if due.is_empty() {
        return Ok(0);
    }
    let made = tx.query(sql!("queued_make_ready"), &[&id.0, &due, &waiting], WHAT).await?;
    ready.extend(made.iter().map(ready_read).collect::<Result<Vec<_>, _>>().doing(WHAT)?);
    ready.extend(lanes_next(tx, subscription, &free).await?);
    Ok(due.len() as u64)
}
