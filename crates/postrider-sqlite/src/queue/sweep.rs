//! Rows that no worker comes back for, and rows that have waited for their time.
//!
//! A sweep that finds nothing writes nothing. A sweep that finds many rows frees only some of them, because
//! producers wait for the same lock, and asks to be called again. So a claim may be reaped in several sweeps.
//! The rest of it is still leased, so its worker, should it live after all, is fenced row by row.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::queue::{Swept, Token};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Result, Subscription, Timestamp, limits};
use rusqlite::{Connection, Transaction};

use crate::error::Doing;
use crate::queue::claim::{Claims, cancelled, forget};
use crate::queue::lane::{queue_advance, queue_enter};
use crate::queue::row::{Queued, QueuedState, queued_take, queued_take_leased};
use crate::subscription::subscription_same;

/// The time of a sweep: leases go by the uptime, due times by the time of day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SweepTime {
    pub(crate) now: Timestamp,
    pub(crate) uptime_us: i64,
}

/// What there is to sweep.
pub(crate) struct Sweepings {
    expired: Vec<Token>,
    due: Vec<EventId>,
    next_due_in: Option<Duration>,
}

impl Sweepings {
    /// Looks for it.
    pub(crate) fn look(conn: &Connection, subscription: &Subscription, time: SweepTime) -> Result<Self> {
        let id = subscription_same(conn, subscription)?.id;
        let expired = conn
            .prepare_cached(sql!("queue/sweep/claim_expired"))
            .and_then(|mut expired| {
                expired.query_map((id.0, time.uptime_us), |row| row.get(0).map(Token))?.collect()
            })
            .doing("look for expired leases")?;
        let (due, next_due_in) = due(conn, id, time.now).doing("look for what is due")?;
        Ok(Self { expired, due, next_due_in })
    }

    /// What a sweep has to say that found nothing to do; none if there is something.
    pub(crate) fn nothing(&self) -> Option<Swept> {
        let nothing = self.expired.is_empty() && self.due.is_empty();
        nothing.then(|| Swept { next_due_in: self.next_due_in, ..Swept::default() })
    }
}

/// Reaps what has expired and makes ready what is due.
pub(crate) fn sweep(tx: &Transaction<'_>, subscription: &Subscription, time: SweepTime) -> Result<Swept> {
    let found = Sweepings::look(tx, subscription, time)?;
    let id = subscription.id;
    let mut swept = Swept::default();
    let mut room = limits::SWEEP_ROWS_MAX;
    for token in found.expired {
        if reap(tx, id, token, &mut room)? {
            swept.reaped += 1;
        }
        if room == 0 {
            break;
        }
    }
    for event in found.due {
        if let Some(row) = queued_take(tx, id, event)? {
            make_ready(tx, id, row)?;
            swept.due += 1;
        }
    }
    let (_, next_due_in) = due(tx, id, time.now).doing("look for what is due")?;
    // What is left over should not wait.
    swept.next_due_in = if room == 0 { Some(Duration::ZERO) } else { next_due_in };
    Ok(swept)
}

/// Rows that are due, as many as one sweep takes, and how long until the next one is.
fn due(
    conn: &Connection,
    subscription: SubscriptionId,
    now: Timestamp,
) -> rusqlite::Result<(Vec<EventId>, Option<Duration>)> {
    let mut found = Vec::new();
    let mut due = conn.prepare_cached(sql!("queue/sweep/queued_due"))?;
    let mut rows = due.query((subscription.0, limits::SWEEP_ROWS_MAX as i64 + 1))?;
    while let Some(row) = rows.next()? {
        let (event, due_at) = (EventId(row.get(0)?), Timestamp::from_micros(row.get(1)?));
        if due_at > now || found.len() == limits::SWEEP_ROWS_MAX {
            return Ok((found, Some(due_at.since(now))));
        }
        found.push(event);
    }
    Ok((found, None))
}

/// A row whose time has come: a retry is the head of its lane already, a delayed event enters its lane now.
fn make_ready(tx: &Transaction<'_>, subscription: SubscriptionId, mut row: Queued) -> Result<()> {
    row.state = QueuedState::Ready;
    if row.parks { row.put(tx, subscription) } else { queue_enter(tx, subscription, row) }
}

/// Frees rows of a claim, as many as there is room for. Says whether none is left.
fn reap(tx: &Transaction<'_>, subscription: SubscriptionId, token: Token, room: &mut usize) -> Result<bool> {
    let gone: BTreeSet<EventId> = cancelled(tx, token)?.into_iter().collect();
    let rows: Vec<EventId> = tx
        .prepare_cached(sql!("queue/sweep/queued_of_claim"))
        .and_then(|mut rows| {
            let bounds = (subscription.0, token.0, limits::SWEEP_ROWS_MAX as i64);
            rows.query_map(bounds, |row| row.get(0).map(EventId))?.collect()
        })
        .doing("read what a claim has")?;
    for event in rows {
        if *room == 0 {
            return Ok(false);
        }
        if let Some(row) = queued_take_leased(tx, subscription, event, token)? {
            *room = room.saturating_sub(row.events.count());
            free(tx, subscription, &row, &gone)?;
        }
    }
    Ok(forget(tx, subscription, Claims::One(token))? > 0)
}

/// Makes a row ready whose worker has ended. Of a block any event may have ended it, so each comes back
/// alone; that it was begun is not known of any of them.
pub(crate) fn free(
    tx: &Transaction<'_>,
    subscription: SubscriptionId,
    row: &Queued,
    gone: &BTreeSet<EventId>,
) -> Result<()> {
    let started = if row.is_block() { 0 } else { row.started };
    for event in row.events.iter().filter(|event| !gone.contains(event)) {
        let part = Queued { state: QueuedState::Ready, started, ..row.part(event) };
        part.put(tx, subscription)?;
    }
    row.lane.as_ref().map_or(Ok(()), |lane| queue_advance(tx, subscription, lane))
}
