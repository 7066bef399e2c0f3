//! Claims: rows that a worker has under one lease, and how long it has them.
//!
//! Claims wait for each other at the writer lock, so no two of them can take the same row. Because
//! producers wait for that lock too, a claim looks first whether there is anything to take, and reads the
//! events after it has released the lock.
//!
//! *Time.* Leases are measured by the time since the machine started, which no clock setting moves. When the
//! machine is restarted it begins at zero: a lease that would begin in the future is as good as none, see
//! `claim_expired.sql`; the slack of one lease is for a clock that was read before another process wrote.
//!
//! *Durability.* A claim is flushed when it returns. Otherwise a power cut could take back the token, and
//! another claim would get it.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::queue::{Ask, Extended, LeasedRow, Spans, Token};
use postrider_core::settle::MemberId;
use postrider_core::subscription::{Rate, SubscriptionId};
use postrider_core::time::Clock;
use postrider_core::unique::is_replaceable;
use postrider_core::{Event, EventId, Result, Subscription, Timestamp, limits};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Doing;
use crate::file::event_row;
use crate::queue::row::{Queued, rank};
use crate::subscription::subscription_same;

/// A claim that is asked for.
pub(crate) struct Claim {
    pub(crate) subscription: Subscription,
    pub(crate) member: MemberId,
    pub(crate) ask: Ask,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What a claim may take.
pub(crate) struct Claimable {
    pub(crate) paused: bool,
    /// Events, give or take the last row; 0 if there is nothing to take.
    pub(crate) events: usize,
    /// What the rate allows, if there is one.
    allowance: Option<f64>,
}

/// What a claim has taken; the events are still to be read.
pub(crate) struct Lease {
    pub(crate) token: Token,
    pub(crate) at: Timestamp,
    pub(crate) paused: bool,
    pub(crate) rows: Vec<Queued>,
}

impl Claim {
    /// How much there is to take, at the moment.
    pub(crate) fn look(&self, conn: &Connection) -> Result<Claimable> {
        let stored = subscription_same(conn, &self.subscription)?;
        let mut look = Claimable { paused: stored.paused_at.is_some(), events: 0, allowance: None };
        let asks = self.ask.rows > 0 && self.ask.events > 0 && self.ask.bytes > 0;
        if look.paused
            || !asks
            || !is_ready(conn, stored.id, self.ask.again > 0).doing("look for queued events")?
        {
            return Ok(look);
        }
        look.events = self.ask.events;
        if let Some(total) = stored.tuning.queue.total {
            let leased = leased(conn, stored.id).doing("count leased events")?;
            look.events = look.events.min((total as usize).saturating_sub(leased));
        }
        if let Some(rate) = stored.tuning.queue.rate {
            let allowance = allowance(conn, stored.id, rate, uptime_us(self.clock.as_ref()))
                .doing("look at the rate of a queue")?;
            look.events = look.events.min(allowance.max(0.0) as usize);
            look.allowance = Some(allowance);
        }
        Ok(look)
    }

    /// Leases what there is.
    pub(crate) fn take(&self, tx: &Transaction<'_>) -> Result<Lease> {
        let look = self.look(tx)?;
        let at = self.clock.now();
        let mut lease = Lease { token: Token(0), at, paused: look.paused, rows: Vec::new() };
        if look.events > 0 {
            lease.rows = self.pick(tx, look.events).doing("look for queued events")?;
        }
        if !lease.rows.is_empty() {
            self.write(tx, &mut lease, look.allowance).doing("lease queued events")?;
        }
        Ok(lease)
    }

    /// The rows that come next, as far as they fit: those that have not failed, and some of those that have,
    /// in one order.
    fn pick(&self, conn: &Connection, events_max: usize) -> rusqlite::Result<Vec<Queued>> {
        let rows_max = self.ask.rows.min(limits::CLAIM_ROWS_MAX);
        let (mut events, mut bytes, mut again_left) = (0, 0, self.ask.again);
        let mut picked: Vec<Queued> = Vec::new();
        let (mut fresh, mut again) = (
            conn.prepare_cached(sql!("queue/claim/queued_ready"))?,
            conn.prepare_cached(sql!("queue/claim/queued_again"))?,
        );
        let (mut fresh, mut again) =
            (fresh.query([self.subscription.id.0])?, again.query([self.subscription.id.0])?);
        let (mut next_fresh, mut next_again) = (None, None);
        while picked.len() < rows_max && events < events_max && bytes < self.ask.bytes {
            if next_fresh.is_none() {
                next_fresh = fresh.next()?.map(Queued::read).transpose()?;
            }
            if next_again.is_none() && again_left > 0 {
                next_again = again.next()?.map(Queued::read).transpose()?;
            }
            let place = |row: &Queued| (rank(row.priority), row.virtual_time, row.id);
            let failed_first = match (&next_fresh, &next_again) {
                (Some(fresh), Some(again)) => place(again) < place(fresh),
                (_, again) => again.is_some(),
            };
            let row = if failed_first { next_again.take() } else { next_fresh.take() };
            let Some(row) = row else { break };
            again_left -= usize::from(failed_first);
            events += row.events.count();
            bytes += row.bytes as usize;
            picked.push(row);
        }
        Ok(picked)
    }

    fn write(&self, tx: &Transaction<'_>, lease: &mut Lease, allowance: Option<f64>) -> rusqlite::Result<()> {
        let (id, uptime_us) = (self.subscription.id.0, uptime_us(self.clock.as_ref()));
        let lease_us = self.ask.lease.min(limits::LEASE_MAX).as_micros() as i64;
        let mut put = tx.prepare_cached(sql!("queue/claim/claim_put"))?;
        lease.token = Token(put.insert((id, self.member.0, lease_us, uptime_us + lease_us))?);
        let mut update = tx.prepare_cached(sql!("queue/claim/queued_lease"))?;
        for row in &mut lease.rows {
            update.execute((id, row.id.0, lease.token.0))?;
            row.started += 1;
        }
        if let Some(allowance) = allowance {
            let spent: usize = lease.rows.iter().map(|row| row.events.count()).sum();
            let left = allowance - spent as f64;
            tx.prepare_cached(sql!("queue/claim/allowance_put"))?.execute((id, left, uptime_us))?;
        }
        Ok(())
    }
}

/// Reads the events of leased rows. Retention keeps them while the rows are there.
pub(crate) fn load(conn: &Connection, rows: Vec<Queued>) -> Result<Vec<LeasedRow>> {
    let load = |row: Queued| {
        Ok(LeasedRow {
            id: row.id,
            events: events_of(conn, &row.events, row.edited_payload.as_ref())?,
            is_block: row.is_block(),
            started: row.started,
            finished: row.finished,
        })
    };
    rows.into_iter().map(load).collect::<rusqlite::Result<_>>().doing("read leased events")
}

/// Makes the leases of some claims last from now on; those that are still there.
pub(crate) fn extend(tx: &Transaction<'_>, tokens: &[Token], clock: &dyn Clock) -> Result<Vec<Extended>> {
    let mut extended = Vec::new();
    for token in tokens {
        let known = tx
            .prepare_cached(sql!("queue/claim/claim_extend"))
            .and_then(|mut extend| extend.execute((token.0, uptime_us(clock))))
            .doing("extend a lease")?;
        if known > 0 {
            extended.push(Extended { token: *token, cancelled: cancelled(tx, *token)? });
        }
    }
    Ok(extended)
}

/// The events of a claim that were cancelled.
pub(crate) fn cancelled(conn: &Connection, token: Token) -> Result<Vec<EventId>> {
    conn.prepare_cached(sql!("queue/claim/cancelled_list"))
        .and_then(|mut list| list.query_map([token.0], |row| row.get(0).map(EventId))?.collect())
        .doing("read what was cancelled")
}

/// Whether a claim is there.
pub(crate) fn is_held(conn: &Connection, token: Token) -> Result<bool> {
    conn.prepare_cached(sql!("queue/claim/claim_exists"))
        .and_then(|mut exists| exists.exists([token.0]))
        .doing("look for a claim")
}

/// Which claims to look at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Claims {
    One(Token),
    All,
}

/// Forgets claims of which no row is left; says how many.
pub(crate) fn forget(tx: &Transaction<'_>, subscription: SubscriptionId, claims: Claims) -> Result<usize> {
    let (from, to) = match claims {
        Claims::One(token) => (token.0, token.0),
        Claims::All => (i64::MIN, i64::MAX),
    };
    let forget = || {
        let forgotten =
            tx.prepare_cached(sql!("queue/claim/claim_forget"))?.execute((subscription.0, from, to))?;
        if forgotten > 0 {
            tx.prepare_cached(sql!("queue/claim/cancelled_forget"))?.execute((from, to))?;
        }
        Ok(forgotten)
    };
    forget().doing("forget a claim")
}

/// Read while the writer lock is held: a claim that waits for it must not lose the time of its lease.
fn uptime_us(clock: &dyn Clock) -> i64 {
    clock.uptime().as_micros() as i64
}

fn is_ready(conn: &Connection, subscription: SubscriptionId, again: bool) -> rusqlite::Result<bool> {
    conn.prepare_cached(sql!("queue/claim/queued_is_ready"))?.exists((subscription.0, again))
}

fn leased(conn: &Connection, subscription: SubscriptionId) -> rusqlite::Result<usize> {
    let sum: i64 = conn
        .prepare_cached(sql!("queue/claim/queued_leased"))?
        .query_row([subscription.0], |row| row.get(0))?;
    Ok(sum.max(0) as usize)
}

/// How many events may begin now. It is written down only when some do, so that looking costs no write.
fn allowance(
    conn: &Connection,
    subscription: SubscriptionId,
    rate: Rate,
    uptime_us: i64,
) -> rusqlite::Result<f64> {
    let burst = f64::from(rate.burst);
    let known: Option<(f64, i64)> = conn
        .prepare_cached(sql!("queue/claim/allowance_get"))?
        .query_row([subscription.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match known {
        Some((left, since_us)) if since_us <= uptime_us => {
            let gained = (uptime_us - since_us) as f64 / 1e6 * f64::from(rate.per_second);
            (left + gained).min(burst)
        }
        // Nothing has begun yet, or not since the machine was started.
        _ => burst,
    })
}

fn events_of(conn: &Connection, spans: &Spans, edited: Option<&Bytes>) -> rusqlite::Result<Vec<Arc<Event>>> {
    let mut events = Vec::with_capacity(spans.count());
    let mut read = conn.prepare_cached(sql!("queue/claim/event_span"))?;
    for [first, length] in spans.to_pairs().as_chunks::<2>().0 {
        let mut rows = read.query((first, first.saturating_add(*length)))?;
        while let Some(row) = rows.next()? {
            let mut event = event_row::event_read(row)?;
            if let Some(edited) = edited {
                event = event.with_payload(edited.clone());
            }
            if !is_superseded(conn, &event)? {
                events.push(Arc::new(event));
            }
        }
    }
    Ok(events)
}

/// Whether a newer event has taken this one's place. Only those that say so themselves are looked up.
fn is_superseded(conn: &Connection, event: &Event) -> rusqlite::Result<bool> {
    Ok(is_replaceable(event)
        && conn.prepare_cached(sql!("queue/claim/superseded_get"))?.exists([event.id.0])?)
}
