//! Leasing rows, and keeping the lease.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postrider_core::queue::{Ask, Claimed, Extended, LeasedRow, Spans, Token};
use postrider_core::refusal::subscription_missing;
use postrider_core::settle::MemberId;
use postrider_core::subscription::{Rate, SubscriptionId};
use postrider_core::unique::is_replaceable;
use postrider_core::{Event, EventId, Result, Subscription, Timestamp, limits};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::hints::{Flight, Hints, Hit, Ready};
use super::lanes::ready_read;
use super::rows::{events_of, spans_of};
use crate::error::Doing;
use crate::server::event_row::payload_read;
use crate::server::session::{Session, Tx};
use crate::server::values::{At, For};
use crate::store::Inner;

const WHAT: &str = "claim events of a queue";

/// Claims, then reads the events.
pub(super) async fn claim(
    store: &Inner,
    subscription: &Subscription,
    member: MemberId,
    ask: Ask,
) -> Result<Claimed> {
    let id = subscription.id;
    if ask.all {
        store.hints.look_at_all(id);
    }
    let mut session = store.claimer.session().await?;
    front_look(&mut session, id, &store.hints).await?;
    let limit = Limit::of(subscription);
    let (claim, rows) = if limit.is_none() {
        let claim = NewClaim::new(id, member, ask, ask.events, store.hints.fly(id, ask.again > 0));
        let rows = session.change(sql!("queue/feed/queued_claim"), &claim.parameters(), WHAT).await?;
        (claim, rows)
    } else {
        let tx = session.begin().await?;
        let events = limit.events_left(&tx, id, ask.events).await?;
        let claim = NewClaim::new(id, member, ask, events, store.hints.fly(id, ask.again > 0));
        let rows = tx.query(sql!("queue/feed/queued_claim"), &claim.parameters(), WHAT).await?;
        limit.spend(&tx, id, events_of_rows(&rows)?).await?;
        tx.commit(WHAT).await?;
        (claim, rows)
    };
    // No call may wait for a session while it holds another, because a pooler may have only one.
    drop(session);
    claimed(store, subscription, &claim, &rows, HashMap::new()).await
}

/// A claim as it is made.
pub(super) struct NewClaim {
    subscription: i64,
    rows: i64,
    events: i64,
    bytes: i64,
    again: i64,
    flight: Flight,
    member: i64,
    lease: For,
}

impl NewClaim {
    /// Of `events` events at the most.
    pub(super) fn new(id: SubscriptionId, member: MemberId, ask: Ask, events: usize, flight: Flight) -> Self {
        Self {
            subscription: id.0,
            rows: if events == 0 { 0 } else { ask.rows.min(limits::CLAIM_ROWS_MAX) as i64 },
            events: events.min(i64::MAX as usize) as i64,
            bytes: ask.bytes.min(i64::MAX as usize) as i64,
            again: if events == 0 { 0 } else { ask.again.min(ask.rows).min(limits::CLAIM_ROWS_MAX) as i64 },
            flight,
            member: member.0,
            lease: For(ask.lease),
        }
    }

    /// For `queued_claim`.
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 10] {
        [
            &self.subscription,
            &self.rows,
            &self.events,
            &self.bytes,
            &self.flight.scan.ranks,
            &self.flight.scan.lows,
            &self.member,
            &self.lease,
            &self.again,
            &self.flight.scan.again,
        ]
    }
}

/// What a claim that is committed has brought. Events that are not among those which are `known` are read.
pub(super) async fn claimed(
    store: &Inner,
    subscription: &Subscription,
    claim: &NewClaim,
    rows: &[Row],
    mut known: HashMap<EventId, Arc<Event>>,
) -> Result<Claimed> {
    let Some(first) = rows.first() else { return Err(subscription_missing(&subscription.name)) };
    let paused = first.try_get(0).doing(WHAT)?;
    let at: Timestamp = first.try_get::<_, At>(1).doing(WHAT)?.0;
    let mut found = found_read(rows)?;
    found.sort_by_key(|row| (row.ready, row.id));
    let hits: Vec<Hit> = found.iter().map(|row| Hit { ready: row.ready, again: row.finished > 0 }).collect();
    // One that has found something may have stopped before it came to other ranks.
    let more = !found.is_empty() || claim.rows == 0 || paused;
    claim.flight.found(&hits, more);
    let unknown =
        found.iter().map(|row| &row.spans).filter(|spans| spans.iter().any(|id| !known.contains_key(&id)));
    if unknown.clone().next().is_some() {
        let reader = store.reader.session().await?;
        known.extend(events_of(&reader, unknown).await?);
    }
    let replaceable: Vec<i64> = found
        .iter()
        .flat_map(|row| row.spans.iter())
        .filter(|id| known.get(id).is_some_and(|event| is_replaceable(event)))
        .map(|id| id.0)
        .collect();
    for id in superseded(store, &replaceable).await? {
        known.remove(&id);
    }
    let token = found.first().map_or(Token(0), |row| row.token);
    let rows = found.into_iter().map(|row| row.leased(&mut known)).collect();
    Ok(Claimed { token, at, rows, paused })
}

/// Which of some events a newer one has taken the place of. Asked after the claim is committed: what is
/// superseded later has begun.
async fn superseded(store: &Inner, replaceable: &[i64]) -> Result<Vec<EventId>> {
    if replaceable.is_empty() {
        return Ok(Vec::new());
    }
    let reader = store.reader.session().await?;
    let rows = reader.query(sql!("queue/claim/superseded_list"), &[&replaceable], WHAT).await?;
    rows.iter().map(|row| row.try_get(0).map(EventId).doing(WHAT)).collect()
}

fn found_read(rows: &[Row]) -> Result<Vec<Found>> {
    rows.iter().filter_map(|row| Found::read(row).transpose()).collect()
}

fn events_of_rows(rows: &[Row]) -> Result<usize> {
    Ok(found_read(rows)?.iter().map(|row| row.spans.count()).sum())
}

/// Says how far we have come and learns how far all have, if it is time to.
async fn front_look(session: &mut Session, id: SubscriptionId, hints: &Hints) -> Result<()> {
    let now = Instant::now();
    let Some(scan) = hints.front_due(id, now) else { return Ok(()) };
    let rows =
        session.change(sql!("queue/claim/queue_front_move"), &[&id.0, &scan.ranks, &scan.lows], WHAT).await?;
    let fronts: BTreeMap<i16, i64> = rows.iter().map(ready_read).collect::<Result<_, _>>().doing(WHAT)?;
    hints.front_found(id, fronts, now);
    Ok(())
}

/// What is allowed to all members together.
#[derive(Clone, Copy)]
struct Limit {
    total: Option<u32>,
    rate: Option<Rate>,
}

impl Limit {
    fn of(subscription: &Subscription) -> Self {
        let queue = &subscription.tuning.queue;
        Self { total: queue.total, rate: queue.rate }
    }

    fn is_none(self) -> bool {
        self.total.is_none() && self.rate.is_none()
    }

    /// How many of so many events may be claimed. Those who claim do it one after the other from here on.
    async fn events_left(self, tx: &Tx<'_>, id: SubscriptionId, asked: usize) -> Result<usize> {
        let mut left = asked.min(i64::MAX as usize);
        if self.is_none() {
            return Ok(left);
        }
        tx.query(sql!("queue/claim/queue_claim_lock"), &[&id.0], WHAT).await?;
        if let Some(total) = self.total {
            let row = tx.query_one(sql!("queue/claim/claim_leased"), &[&id.0], WHAT).await?;
            let leased: i64 = row.try_get(0).doing(WHAT)?;
            left = left.min((total as usize).saturating_sub(leased.max(0) as usize));
        }
        if let Some(rate) = self.rate {
            left = left.min(rate_left(tx, id, rate).await?);
        }
        Ok(left)
    }

    /// Takes what was claimed off what a rate allows.
    async fn spend(self, tx: &Tx<'_>, id: SubscriptionId, events: usize) -> Result<()> {
        let Some(rate) = self.rate.filter(|_| events > 0) else { return Ok(()) };
        let saved = saved(tx, id).await?.min(interval(rate, rate.burst));
        let spent = interval(rate, u32::try_from(events).unwrap_or(u32::MAX));
        let (ahead, behind) = (spent.saturating_sub(saved), saved.saturating_sub(spent));
        tx.execute(sql!("queue/claim/queue_pace_put"), &[&id.0, &For(ahead), &For(behind)], WHAT)
            .await
            .map(drop)
    }
}

/// How long so many events take at a rate.
fn interval(rate: Rate, events: u32) -> Duration {
    Duration::from_secs_f64(f64::from(events) / f64::from(rate.per_second))
}

/// For how long nothing has begun that might have; all of it before the first.
async fn saved(tx: &Tx<'_>, id: SubscriptionId) -> Result<Duration> {
    let row = tx.query_opt(sql!("queue/claim/queue_pace_get"), &[&id.0], WHAT).await?;
    let Some(row) = row else { return Ok(Duration::MAX) };
    let seconds: f64 = row.try_get(0).doing(WHAT)?;
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
}

async fn rate_left(tx: &Tx<'_>, id: SubscriptionId, rate: Rate) -> Result<usize> {
    let saved = saved(tx, id).await?.min(interval(rate, rate.burst));
    // What was rounded away on the way must not cost an event.
    Ok((saved.as_secs_f64() * f64::from(rate.per_second) + 1e-6) as usize)
}

/// A row that was claimed.
struct Found {
    id: EventId,
    token: Token,
    ready: Ready,
    started: u32,
    finished: u32,
    spans: Spans,
    edited_payload: Option<Bytes>,
}

impl Found {
    /// None if nothing was claimed.
    fn read(row: &Row) -> Result<Option<Self>> {
        let Some(id) = row.try_get::<_, Option<i64>>(2).doing(WHAT)?.map(EventId) else { return Ok(None) };
        let number = |column| row.try_get::<_, i32>(column).map(|number| number as u32).doing(WHAT);
        Ok(Some(Self {
            id,
            token: Token(row.try_get(3).doing(WHAT)?),
            ready: (row.try_get(4).doing(WHAT)?, row.try_get(5).doing(WHAT)?),
            started: number(6)?,
            finished: number(7)?,
            spans: spans_of(id, row.try_get(8).doing(WHAT)?)?,
            edited_payload: payload_read(row, 9).doing(WHAT)?,
        }))
    }

    fn leased(self, events: &mut HashMap<EventId, Arc<Event>>) -> LeasedRow {
        let mut own: Vec<_> = self.spans.iter().filter_map(|id| events.remove(&id)).collect();
        if let (Some(payload), Some(event)) = (self.edited_payload, own.first_mut()) {
            *event = Arc::new(Event::clone(event).with_payload(payload));
        }
        LeasedRow {
            id: self.id,
            events: own,
            is_block: self.spans.count() > 1,
            started: self.started,
            finished: self.finished,
        }
    }
}

/// Makes leases last from now on.
pub(super) async fn extend(tx: &Tx<'_>, tokens: &[Token]) -> Result<Vec<Extended>> {
    let what = "extend leases";
    let tokens: Vec<i64> = tokens.iter().map(|token| token.0).collect();
    let rows = tx.query(sql!("queue/claim/claim_extend"), &[&tokens], what).await?;
    let read = |row: &Row| {
        let cancelled: Option<Vec<i64>> = row.try_get(1)?;
        let cancelled = cancelled.unwrap_or_default().into_iter().map(EventId).collect();
        Ok(Extended { token: Token(row.try_get(0)?), cancelled })
    };
    rows.iter().map(read).collect::<Result<_, _>>().doing(what)
}
