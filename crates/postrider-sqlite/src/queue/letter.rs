//! Dead letters of a queue. No process has the rest of their lanes in memory, so a decision about them takes
//! effect at once.

use bytes::Bytes;
use postrider_core::queue::{Priority, Spans, Token};
use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Timestamp};
use rusqlite::{OptionalExtension, Row, Transaction};

use crate::error::Doing;
use crate::log::event::event_get;
use crate::queue::feed::{queue_front, queue_newest};
use crate::queue::lane::{queue_advance, queue_enter};
use crate::queue::row::{Queued, QueuedState};
use crate::settle::due::edited;

/// Where a replayed letter enters its lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behind {
    /// Behind all that was emitted.
    pub(crate) issued: EventId,
    /// Behind all that has come due.
    pub(crate) now: Timestamp,
}

/// Queues the event of a dead letter again, with its attempts counted from zero. One that held its lane is its
/// head again; any other comes behind what waits there. Among the rows that are ready it comes as if it had
/// been fed now.
pub(crate) fn letter_replay(
    tx: &Transaction<'_>,
    subscription: SubscriptionId,
    id: EventId,
    behind: Behind,
) -> Result<usize> {
    let Some(letter) = Letter::take(tx, subscription, id)? else { return Ok(0) };
    let event = event_get(tx, id)?;
    let virtual_time = match queue_front(tx, subscription)? {
        Some(front) => front,
        None => queue_newest(tx, subscription)?.unwrap_or_default(),
    };
    let turn = match &letter.lane {
        _ if letter.held => letter.turn,
        Some(Lane { late: true, .. }) => behind.now.as_micros(),
        _ => behind.issued.0 + 1,
    };
    let row = Queued {
        id,
        events: Spans::one(id),
        bytes: event.as_ref().map_or(0, |event| event.bytes().min(u32::MAX as usize) as u32),
        priority: event.as_ref().map(Priority::of).unwrap_or_default(),
        virtual_time,
        tenant: None,
        lane: letter.lane,
        turn,
        parks: false,
        state: QueuedState::Ready,
        token: Token(0),
        started: 0,
        finished: 0,
        edited_payload: letter.edited_payload,
    };
    queue_enter(tx, subscription, row)?;
    Ok(1)
}

/// Gives a dead letter up; a lane that it held goes on.
pub(crate) fn letter_discard(
    tx: &Transaction<'_>,
    subscription: SubscriptionId,
    id: EventId,
) -> Result<usize> {
    let Some(letter) = Letter::take(tx, subscription, id)? else { return Ok(0) };
    if let Some(lane) = &letter.lane {
        queue_advance(tx, subscription, lane)?;
    }
    Ok(1)
}

/// A dead letter that was taken out.
struct Letter {
    lane: Option<Lane>,
    turn: i64,
    held: bool,
    edited_payload: Option<Bytes>,
}

impl Letter {
    fn take(tx: &Transaction<'_>, subscription: SubscriptionId, id: EventId) -> Result<Option<Self>> {
        tx.prepare_cached(sql!("queue/letter/dead_letter_take"))
            .and_then(|mut take| take.query_row((subscription.0, id.0), Self::read).optional())
            .doing("take a dead letter")
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (key, late): (Option<String>, bool) = (row.get(0)?, row.get(1)?);
        Ok(Self {
            lane: key.map(|key| Lane { key: Key::new(key), late }),
            turn: row.get(2)?,
            held: row.get(3)?,
            edited_payload: edited(row, 4)?,
        })
    }
}
