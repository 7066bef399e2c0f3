//! Gives back rows that no worker works on any more, and makes rows ready whose time has come.

use std::collections::HashSet;
use std::time::Duration;

use postrider_core::queue::{Spans, Swept, Token};
use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Subscription, Timestamp, limits};
use tokio_postgres::Row;

use super::floors::Rest;
use super::hints::Ready;
use super::lanes::{lanes_mend, lanes_next, lanes_replace, lanes_take, ready_read};
use super::rows::spans_of;
use crate::error::Doing;
use crate::server::session::Tx;
use crate::server::values::{At, For};

const WHAT: &str = "sweep a queue";

/// Claims that one sweep reaps.
const CLAIMS_MAX: i64 = 100;

/// What a sweep has done.
pub(super) struct Cleaned {
    pub(super) swept: Swept,
    /// What is ready by it.
    pub(super) ready: Vec<Ready>,
    /// Lanes that have to be looked at once more.
    pub(super) left: Vec<Lane>,
    /// From which due time on the next sweep has to look.
    pub(super) due_from: Option<Timestamp>,
}

/// Sweeps a queue, and looks again at lanes in which rows may wait without a head. Looks for due rows from `due_from`
/// on.
pub(super) async fn sweep(
    tx: &Tx<'_>,
    subscription: &Subscription,
    unsure: Vec<Rest>,
    due_from: Option<Timestamp>,
) -> Result<Cleaned> {
    let id = subscription.id;
    let mut swept = Swept::default();
    let mut ready = Vec::new();
    let expired = tx.query(sql!("queue/sweep/claim_expired"), &[&id.0, &CLAIMS_MAX], WHAT).await?;
    for row in &expired {
        swept.reaped +=
            u64::from(reap(tx, subscription, &Expired::read(row).doing(WHAT)?, &mut ready).await?);
    }
    // From here on buckets are held alone, and the sweep waits for no other transaction.
    let mended = lanes_mend(tx, subscription, unsure).await?;
    ready.extend(mended.ready);
    swept.unsure = mended.left.len() as u64;
    let (due, due_from) = come_due(tx, subscription, due_from, &mut ready).await?;
    swept.due = due;
    if let Some(row) =
        tx.query_opt(sql!("queue/sweep/queued_next_due"), &[&id.0, &due_from.map(At)], WHAT).await?
    {
        let seconds: f64 = row.try_get(0).doing(WHAT)?;
        swept.next_due_in = Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO));
    }
    Ok(Cleaned { swept, ready, left: mended.left, due_from })
}

/// A claim whose lease has run out, which is locked; or rows of a claim that no worker works on any more.
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

/// Frees the rows of a claim, under the token that was read; those that its worker is settling just now are
/// left, and with them the claim.
async fn reap(
    tx: &Tx<'_>,
    subscription: &Subscription,
    claim: &Expired,
    ready: &mut Vec<Ready>,
) -> Result<bool> {
    rows_free(tx, subscription, claim, ready).await?;
    let counted = tx
        .query_one(
            sql!("queue/sweep/queued_leased_count"),
            &[&subscription.id.0, &claim.rows, &claim.token.0],
            WHAT,
        )
        .await?;
    let left: i64 = counted.try_get(0).doing(WHAT)?;
    if left == 0 {
        tx.execute(sql!("queue/sweep/claim_forget"), &[&vec![claim.token.0]], WHAT).await?;
    }
    Ok(left == 0)
}

/// Frees rows of a claim that no handler has in hand just now.
pub(super) async fn rows_free(
    tx: &Tx<'_>,
    subscription: &Subscription,
    claim: &Expired,
    ready: &mut Vec<Ready>,
) -> Result<()> {
    let id = subscription.id;
    let (mut free, mut gone, mut freed) = (Vec::new(), Vec::new(), Vec::new());
    let mut blocks: Vec<(EventId, Spans)> = Vec::new();
    for row in
        &tx.query(sql!("queue/sweep/queued_leased"), &[&id.0, &claim.rows, &claim.token.0], WHAT).await?
    {
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
        let rows = tx.query(sql!("queue/sweep/queued_free"), &[&id.0, &free], WHAT).await?;
        ready.extend(rows.iter().map(ready_read).collect::<Result<Vec<_>, _>>().doing(WHAT)?);
    }
    for (block, spans) in &blocks {
        let left: Vec<EventId> = spans.iter().filter(|event| !claim.cancelled.contains(event)).collect();
        ready.extend(block_apart(tx, id, *block, &left).await?);
    }
    if !gone.is_empty() {
        tx.execute(sql!("queue/sweep/queued_drop"), &[&id.0, &gone], WHAT).await?;
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
        .query(
            sql!("queue/sweep/queued_split"),
            &[&id.0, &block.0, &ids, &fates, &after, &begun, &finished],
            WHAT,
        )
        .await?;
    rows.iter().map(ready_read).collect::<Result<_, _>>().doing(WHAT)
}

/// A row whose time has come.
struct Due {
    event: i64,
    at: Timestamp,
    /// The lane that it has to enter, if it is in none.
    enters: Option<Lane>,
}

impl Due {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let (late, parks): (bool, bool) = (row.try_get(2)?, row.try_get(3)?);
        let key = row.try_get::<_, Option<&str>>(1)?.filter(|_| !parks);
        let enters = key.map(|key| Lane { key: Key::new(key), late });
        Ok(Self { event: row.try_get(0)?, at: row.try_get::<_, At>(4)?.0, enters })
    }
}

/// Makes rows ready whose time has come. Rows that are not in their lanes enter them, unless a head is just
/// leaving the lane. Returns how many they are, and where the next look begins: at the first row that was
/// left, or else where this look has ended.
async fn come_due(
    tx: &Tx<'_>,
    subscription: &Subscription,
    from: Option<Timestamp>,
    ready: &mut Vec<Ready>,
) -> Result<(u64, Option<Timestamp>)> {
    let id = subscription.id;
    let most = limits::SWEEP_ROWS_MAX as i64;
    let rows = tx.query(sql!("queue/sweep/queued_come_due"), &[&id.0, &most, &from.map(At)], WHAT).await?;
    let rows: Vec<Due> = rows.iter().map(Due::read).collect::<Result<_, _>>().doing(WHAT)?;
    let lanes: HashSet<&Lane> = rows.iter().filter_map(|row| row.enters.as_ref()).collect();
    let (free, _) = lanes_take(tx, id, lanes.into_iter().cloned().map(Rest::all).collect()).await?;
    let entered: HashSet<&Lane> = free.iter().map(|rest| &rest.lane).collect();
    let (taken, left): (Vec<&Due>, Vec<&Due>) =
        rows.iter().partition(|row| row.enters.as_ref().is_none_or(|lane| entered.contains(lane)));
    let next = left.first().or(taken.last()).map(|row| row.at).or(from);
    if taken.is_empty() {
        return Ok((0, next));
    }
    let due: Vec<i64> = taken.iter().map(|row| row.event).collect();
    let waiting: Vec<i64> = taken.iter().filter(|row| row.enters.is_some()).map(|row| row.event).collect();
    let made = tx.query(sql!("queue/sweep/queued_make_ready"), &[&id.0, &due, &waiting], WHAT).await?;
    ready.extend(made.iter().map(ready_read).collect::<Result<Vec<_>, _>>().doing(WHAT)?);
    ready.extend(lanes_next(tx, subscription, &free).await?);
    Ok((due.len() as u64, next))
}
