//! Writing down what became of leased rows.

use std::collections::{HashMap, HashSet};

use postrider_core::queue::{
    Again, Count, Fate, QueueSettle, QueueSettled, Remnant, SettledRow, Spans, Token,
};
use postrider_core::refusal::subscription_missing;
use postrider_core::settle::{Lane, MemberId};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, OnDead, Order, Result, Shard, Subscription};
use tokio_postgres::Row;

use super::floors::Rest;
use super::hints::Ready;
use super::lanes::{lanes_replace, ready_read};
use super::progress::progress_put;
use super::rows::spans_of;
use super::sweep::{Expired, rows_free};
use crate::error::Doing;
use crate::server::session::Tx;
use crate::server::values::For;
use crate::settle::attempts_put;
use crate::settle::position::SHARDS;

const WHAT: &str = "settle";

/// What a settle has done.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) settled: QueueSettled,
    /// What can be claimed by it.
    pub(super) ready: Vec<Ready>,
    /// Whether handlers have acked in transactions of their own, which may have made others ready.
    pub(super) acked: bool,
}

/// Applies a settle.
pub(super) async fn settle_apply(
    tx: &Tx<'_>,
    subscription: &Subscription,
    member: MemberId,
    settle: &QueueSettle,
) -> Result<Applied> {
    let id = subscription.id;
    let is_acked = |row: &&SettledRow| matches!(row.fate, Fate::Acked(_));
    let is_done = |row: &&SettledRow| row.fate == Fate::Done;
    let (acked, rest): (Vec<&SettledRow>, Vec<&SettledRow>) = settle.rows.iter().partition(is_acked);
    let (done, others): (Vec<&SettledRow>, Vec<&SettledRow>) = rest.iter().copied().partition(is_done);
    let mut ours: HashSet<EventId> = HashSet::new();
    let mut freed: Vec<Rest> = Vec::new();
    let mut applied = Applied::default();
    if !(settle.attempts.is_empty() && settle.results.is_empty() && settle.progress.is_empty()) {
        // Before they are gone: what is written of them must be of leases that last.
        for row in rows_ours(tx, id, &rest).await? {
            ours.extend(row.spans.iter());
        }
    }
    let mut found = rows_done(tx, id, &done, &mut freed).await?;
    if !others.is_empty() {
        let rows = rows_ours(tx, id, &others).await?;
        found.extend(rows.iter().map(|row| row.id));
        let change = Changes::of(&rows, &others);
        change.apply(tx, subscription, &mut applied.ready, &mut freed).await?;
    }
    found.extend(rows_acked(tx, subscription, &acked, &mut applied.ready).await?);
    let acked: Vec<&SettledRow> = settle
        .rows
        .iter()
        .filter(|row| found.contains(&row.id) && row.fate.acked().next().is_some())
        .collect();
    if !acked.is_empty() {
        applied.acked = true;
        ours.extend(acked.iter().flat_map(|row| row.fate.acked()));
    }
    if found.len() < settle.rows.len() {
        subscription_check(tx, subscription).await?;
        let fenced = settle.rows.iter().map(|row| row.id).filter(|id| !found.contains(id));
        applied.settled.fenced = fenced.collect();
    }
    applied.ready.extend(lanes_replace(tx, subscription, &freed).await?);
    notes_put(tx, id, member, settle, &ours).await?;
    Ok(applied)
}

/// Removes what is done; which of it was ours.
async fn rows_done(
    tx: &Tx<'_>,
    id: SubscriptionId,
    rows: &[&SettledRow],
    freed: &mut Vec<Rest>,
) -> Result<HashSet<EventId>> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    let (ids, tokens) = names(rows);
    let gone = if tokens.iter().all(|token| *token == tokens[0]) {
        tx.query(sql!("queue/settle/queued_done_one"), &[&id.0, &ids, &tokens[0]], WHAT).await?
    } else {
        tx.query(sql!("queue/settle/queued_done"), &[&id.0, &ids, &tokens], WHAT).await?
    };
    let mut found = HashSet::with_capacity(gone.len());
    for row in &gone {
        found.insert(EventId(row.try_get(0).doing(WHAT)?));
        freed.extend(rest_at(row, 1).doing(WHAT)?);
    }
    Ok(found)
}

/// Sees to rows that handlers have acked themselves. What is still there was not committed, and is freed
/// unless such a transaction has it in hand. Says which of them were of claims that last, and takes them out
/// of these by name, so that a settle which is sent again counts nothing twice.
async fn rows_acked(
    tx: &Tx<'_>,
    subscription: &Subscription,
    rows: &[&SettledRow],
    ready: &mut Vec<Ready>,
) -> Result<HashSet<EventId>> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    let (ids, tokens) = names(rows);
    let mut found = HashSet::new();
    for row in &tx.query(sql!("queue/settle/claim_cancelled"), &[&tokens], WHAT).await? {
        let token = Token(row.try_get(0).doing(WHAT)?);
        let cancelled: Option<Vec<i64>> = row.try_get(1).doing(WHAT)?;
        let ours: Vec<EventId> = rows.iter().filter(|row| row.token == token).map(|row| row.id).collect();
        let left = Expired {
            token,
            rows: ours.iter().map(|row| row.0).collect(),
            cancelled: cancelled.unwrap_or_default().into_iter().map(EventId).collect(),
        };
        rows_free(tx, subscription, &left, ready).await?;
        found.extend(ours);
    }
    let events: Vec<i32> = rows.iter().map(|row| row.fate.acked().count() as i32).collect();
    tx.execute(sql!("queue/settle/claim_acked"), &[&subscription.id.0, &tokens, &ids, &events], WHAT).await?;
    tx.execute(sql!("queue/settle/claim_close_empty"), &[&tokens], WHAT).await?;
    Ok(found)
}

fn names(rows: &[&SettledRow]) -> (Vec<i64>, Vec<i64>) {
    rows.iter().map(|row| (row.id.0, row.token.0)).unzip()
}

/// What a row leaves of its lane when it goes: from the columns key, late and turn, which follow each other.
fn rest_at(row: &Row, at: usize) -> Result<Option<Rest>, tokio_postgres::Error> {
    let Some(key) = row.try_get::<_, Option<&str>>(at)?.map(Key::new) else { return Ok(None) };
    Ok(Some(Rest::behind(Lane { key, late: row.try_get(at + 1)? }, row.try_get(at + 2)?)))
}

async fn subscription_check(tx: &Tx<'_>, subscription: &Subscription) -> Result<()> {
    let row = tx.query_opt(sql!("ownership/fence/fence"), &[&subscription.id.0], WHAT).await?;
    row.map(drop).ok_or_else(|| subscription_missing(&subscription.name))
}

/// A row that is leased under the token that was named, and is locked.
pub(super) struct Ours {
    pub(super) id: EventId,
    pub(super) token: Token,
    /// What it leaves of its lane when it goes.
    pub(super) rest: Option<Rest>,
    pub(super) spans: Spans,
    pub(super) cancelled: HashSet<EventId>,
}

impl Ours {
    fn is_block(&self) -> bool {
        self.spans != Spans::one(self.id)
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.contains(&self.id)
    }

    fn all(&self, remnant: Remnant) -> Vec<(EventId, Remnant)> {
        self.spans.iter().map(|event| (event, remnant)).collect()
    }
}

async fn rows_ours<R: std::borrow::Borrow<SettledRow>>(
    tx: &Tx<'_>,
    id: SubscriptionId,
    rows: &[R],
) -> Result<Vec<Ours>> {
    let (ids, tokens): (Vec<i64>, Vec<i64>) =
        rows.iter().map(|row| (row.borrow().id.0, row.borrow().token.0)).unzip();
    let found = tx.query(sql!("queue/settle/queued_ours"), &[&id.0, &ids, &tokens], WHAT).await?;
    let read = |row: &Row| {
        let id = EventId(row.try_get(0).doing(WHAT)?);
        let parks: bool = row.try_get(5).doing(WHAT)?;
        let cancelled: Option<Vec<i64>> = row.try_get(8).doing(WHAT)?;
        Ok(Ours {
            id,
            token: Token(row.try_get(1).doing(WHAT)?),
            rest: rest_at(row, 2).doing(WHAT)?.filter(|_| parks),
            spans: spans_of(id, row.try_get(7).doing(WHAT)?)?,
            cancelled: cancelled.unwrap_or_default().into_iter().map(EventId).collect(),
        })
    };
    found.iter().map(read).collect()
}

/// What becomes of rows that are ours and not simply done.
#[derive(Default)]
struct Changes<'a> {
    again: Vec<(EventId, Again, Option<&'a Rest>)>,
    dead: Vec<(EventId, Option<&'a Rest>)>,
    /// Cancelled: they go.
    dropped: Vec<(EventId, Option<&'a Rest>)>,
    split: Vec<Split<'a>>,
    /// Rows and events that claims have less.
    closed: HashMap<Token, (i32, i32)>,
    /// Rows that claims have got.
    opened: Vec<i64>,
}

struct Split<'a> {
    block: &'a Ours,
    parts: Vec<(EventId, Remnant)>,
}

impl<'a> Changes<'a> {
    fn of(rows: &'a [Ours], said: &[&SettledRow]) -> Self {
        let fates: HashMap<EventId, &Fate> = said.iter().map(|row| (row.id, &row.fate)).collect();
        let mut changes = Self::default();
        for row in rows {
            let (mut rows_less, mut events_less) = (1, row.spans.count() as i32);
            let parts = match fates[&row.id] {
                Fate::Split(parts) => Some(parts.clone()),
                // What is said of a block as a whole holds for each of its events.
                Fate::Again(again) if row.is_block() => Some(row.all(Remnant::Again(*again))),
                Fate::Dead if row.is_block() => Some(row.all(Remnant::Dead)),
                _ => None,
            };
            match (parts, fates[&row.id]) {
                (Some(mut parts), _) => {
                    // What its handlers have taken out already is counted with the block.
                    events_less +=
                        fates[&row.id].acked().filter(|event| !row.spans.contains(*event)).count() as i32;
                    parts.retain(|(event, _)| row.spans.contains(*event) && !row.cancelled.contains(event));
                    for (event, _) in parts.iter().filter(|(_, remnant)| *remnant == Remnant::Running) {
                        changes.opened.push(event.0);
                        rows_less -= 1;
                        events_less -= 1;
                    }
                    changes.split.push(Split { block: row, parts });
                }
                (None, Fate::Again(again)) if !row.is_cancelled() => {
                    changes.again.push((row.id, *again, row.rest.as_ref()));
                }
                (None, Fate::Dead) if !row.is_cancelled() => changes.dead.push((row.id, row.rest.as_ref())),
                _ => changes.dropped.push((row.id, row.rest.as_ref())),
            }
            let less = changes.closed.entry(row.token).or_default();
            *less = (less.0 + rows_less, less.1 + events_less);
        }
        changes
    }

    async fn apply(
        self,
        tx: &Tx<'_>,
        subscription: &Subscription,
        ready: &mut Vec<Ready>,
        freed: &mut Vec<Rest>,
    ) -> Result<()> {
        let id = subscription.id;
        if !self.again.is_empty() {
            ready.extend(rows_again(tx, subscription, &self.again).await?);
            let leaves = |again: &Again| subscription.order == Order::None && !again.after.is_zero();
            let left = self.again.iter().filter(|(_, again, _)| leaves(again));
            freed.extend(left.filter_map(|(_, _, rest)| rest.cloned()));
        }
        for split in &self.split {
            ready.extend(block_split(tx, id, split).await?);
        }
        let mut dead = self.dead.clone();
        let buried = |split: &Split<'a>| {
            let parts = split.parts.iter().filter(|(_, remnant)| *remnant == Remnant::Dead);
            parts.map(|(event, _)| (*event, None)).collect::<Vec<_>>()
        };
        dead.extend(self.split.iter().flat_map(buried));
        if !dead.is_empty() {
            rows_bury(tx, subscription, &dead).await?;
            if !holds(subscription) {
                freed.extend(dead.iter().filter_map(|(_, rest)| rest.cloned()));
            }
        }
        if !self.dropped.is_empty() {
            let ids: Vec<i64> = self.dropped.iter().map(|(id, _)| id.0).collect();
            tx.execute(sql!("queue/sweep/queued_drop"), &[&id.0, &ids], WHAT).await?;
            freed.extend(self.dropped.iter().filter_map(|(_, rest)| rest.cloned()));
        }
        let tokens: Vec<i64> = self.closed.keys().map(|token| token.0).collect();
        let (rows, events): (Vec<i32>, Vec<i32>) = self.closed.values().copied().unzip();
        tx.execute(sql!("queue/letters/claim_close"), &[&tokens, &rows, &events, &self.opened], WHAT)
            .await
            .map(drop)
    }
}

/// Whether a dead letter keeps its key waiting.
fn holds(subscription: &Subscription) -> bool {
    (subscription.on_dead, subscription.order) == (OnDead::Hold, Order::Key)
}

async fn rows_again(
    tx: &Tx<'_>,
    subscription: &Subscription,
    rows: &[(EventId, Again, Option<&Rest>)],
) -> Result<Vec<Ready>> {
    let ids: Vec<i64> = rows.iter().map(|(event, _, _)| event.0).collect();
    let after: Vec<For> = rows.iter().map(|(_, again, _)| For(again.after)).collect();
    let failed: Vec<bool> = rows.iter().map(|(_, again, _)| again.count == Count::Failed).collect();
    let leaves = subscription.order == Order::None;
    let rows = tx
        .query(sql!("queue/settle/queued_again"), &[&subscription.id.0, &ids, &after, &failed, &leaves], WHAT)
        .await?;
    rows.iter().map(ready_read).collect::<Result<_, _>>().doing(WHAT)
}

/// Takes a block apart; what is dead of it is buried afterwards.
async fn block_split(tx: &Tx<'_>, id: SubscriptionId, split: &Split<'_>) -> Result<Vec<Ready>> {
    let (mut ids, mut fates, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let (mut begun, mut finished) = (Vec::new(), Vec::new());
    for (event, remnant) in &split.parts {
        let (fate, delay, was_begun, failures) = match remnant {
            Remnant::Running | Remnant::Dead => ("l", None, true, 0),
            // It was not committed.
            Remnant::Acked => ("r", None, true, 0),
            Remnant::Again(Again { after, count }) => {
                let failed = *count == Count::Failed;
                let delay = (!after.is_zero()).then_some(For(*after));
                (if delay.is_some() { "d" } else { "r" }, delay, failed, i32::from(failed))
            }
        };
        ids.push(event.0);
        fates.push(fate);
        after.push(delay);
        begun.push(was_begun);
        finished.push(failures);
    }
    let block = split.block.id.0;
    let rows = tx
        .query(
            sql!("queue/sweep/queued_split"),
            &[&id.0, &block, &ids, &fates, &after, &begun, &finished],
            WHAT,
        )
        .await?;
    rows.iter().map(ready_read).collect::<Result<_, _>>().doing(WHAT)
}

async fn rows_bury(
    tx: &Tx<'_>,
    subscription: &Subscription,
    dead: &[(EventId, Option<&Rest>)],
) -> Result<()> {
    let ids: Vec<i64> = dead.iter().map(|(event, _)| event.0).collect();
    let shard = |(event, rest): &(EventId, Option<&Rest>)| {
        Shard::of(rest.map(|rest| &rest.lane.key), *event, SHARDS).0 as i16
    };
    let shards: Vec<i16> = dead.iter().map(shard).collect();
    tx.execute(
        sql!("queue/settle/queued_bury"),
        &[&subscription.id.0, &ids, &shards, &holds(subscription)],
        WHAT,
    )
    .await
    .map(drop)
}

/// Records attempts, results and progress of events that were ours.
async fn notes_put(
    tx: &Tx<'_>,
    id: SubscriptionId,
    member: MemberId,
    settle: &QueueSettle,
    ours: &HashSet<EventId>,
) -> Result<()> {
    let attempts: Vec<_> =
        settle.attempts.iter().filter(|attempt| ours.contains(&attempt.event_id)).cloned().collect();
    if !attempts.is_empty() {
        attempts_put(tx, id, member, &attempts).await?;
    }
    let results: HashMap<EventId, &str> = settle
        .results
        .iter()
        .filter(|result| ours.contains(&result.event_id))
        .map(|result| (result.event_id, result.result.as_str()))
        .collect();
    let progress = settle.progress.iter().filter(|noted| ours.contains(&noted.event_id));
    progress_put(tx, progress).await?;
    if results.is_empty() {
        return Ok(());
    }
    let (ids, texts): (Vec<i64>, Vec<String>) =
        results.into_iter().map(|(event, text)| (event.0, text.replace('\0', "\u{fffd}"))).unzip();
    tx.execute(sql!("queue/settle/result_put"), &[&id.0, &ids, &texts], WHAT).await.map(drop)
}
