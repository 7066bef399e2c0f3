//! Dead letters: deliveries that were given up, and what people do with them.
//!
//! Owners never touch a dead row and operators touch no other, so the two need no fence between them. A
//! letter that holds its lane stays the lane's head whatever is decided about it: only the owner moves
//! lanes, since it has the rest of the lane in memory. In mode `queue` no process has, see `queue/letter.rs`.

use bytes::Bytes;
use postrider_core::event::Listed;
use postrider_core::refusal::letter_is_not_dead;
use postrider_core::store::{AttemptReport, DeadLetter, DeadLetterQuery, LetterId};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, EventId, Result, Timestamp, limits};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::admin::event::event_preview;
use crate::admin::report::attempt_list;
use crate::audit::{Auditor, Entry};
use crate::error::Doing;
use crate::log::event::{event_get, event_issued};
use crate::queue::letter::{Behind, letter_discard, letter_replay};
use crate::settle::due::edited;
use crate::subscription::subscription_get;

/// A page of dead letters, each with its last attempt. One whose event is gone is left out; `check` reports it.
pub(crate) fn dead_letter_list(conn: &Connection, query: &DeadLetterQuery) -> Result<Vec<DeadLetter>> {
    let found = dead_letter_find(conn, query)?;
    let letters = found.into_iter().filter_map(|dead| {
        let event = event_preview(conn, dead.letter.event_id).transpose()?;
        Some(event.and_then(|event| letter(conn, dead, event, 1)))
    });
    letters.collect()
}

/// One dead letter with all its attempts.
pub(crate) fn dead_letter_get(conn: &Connection, id: &LetterId) -> Result<DeadLetter> {
    let subscription = subscription_get(conn, &id.subscription)?;
    let dead = conn
        .prepare_cached(sql!("admin/dead_letter/dead_letter_get"))
        .and_then(|mut get| get.query_row((subscription.id.0, id.event_id.0), Dead::read).optional())
        .doing("read a dead letter")?;
    let missing = || letter_is_not_dead(id);
    let dead = dead.ok_or_else(missing)?;
    let event = event_get(conn, id.event_id)?.ok_or_else(missing)?;
    letter(conn, dead, Listed::whole(event), limits::ATTEMPT_RECORDS_MAX)
}

/// Sets the payload that a replay will deliver.
pub(crate) fn dead_letter_edit(
    tx: &Transaction<'_>,
    id: &LetterId,
    payload: &Bytes,
    auditor: &Auditor,
) -> Result<()> {
    if payload.len() > limits::PAYLOAD_BYTES_MAX {
        return Err(Error::invalid(format!(
            "payload is {} bytes, the limit is {}",
            payload.len(),
            limits::PAYLOAD_BYTES_MAX
        )));
    }
    let subscription = subscription_get(tx, &id.subscription)?;
    let edited = tx
        .prepare_cached(sql!("admin/dead_letter/dead_letter_edit"))
        .and_then(|mut edit| edit.execute((subscription.id.0, id.event_id.0, payload.as_ref())))
        .doing("edit a dead letter")?;
    if edited == 0 {
        return Err(letter_is_not_dead(id));
    }
    let detail = format!("{} bytes", payload.len());
    auditor.write(
        tx,
        &Entry {
            action: "dead_letter_edit",
            subscription: Some(&id.subscription),
            event_id: Some(id.event_id),
            detail: Some(&detail),
        },
    )
}

/// Sends dead letters round again.
pub(crate) fn dead_letter_replay(
    tx: &Transaction<'_>,
    which: &DeadLetterQuery,
    auditor: &Auditor,
) -> Result<u64> {
    let behind = Behind { issued: event_issued(tx)?, now: auditor.now };
    let replay = |dead: &Dead| {
        let (subscription, event) = (dead.subscription_id, dead.letter.event_id);
        if dead.is_queued {
            return letter_replay(tx, subscription, event, behind);
        }
        let values = (subscription.0, event.0, auditor.now.as_micros(), behind.issued.0 + 1);
        tx.prepare_cached(sql!("admin/dead_letter/dead_letter_replay"))
            .and_then(|mut replay| replay.execute(values))
            .doing("replay a dead letter")
    };
    for_each_dead(tx, which, auditor, "dead_letter_replay", replay)
}

/// Gives dead letters up for good.
pub(crate) fn dead_letter_discard(
    tx: &Transaction<'_>,
    which: &DeadLetterQuery,
    auditor: &Auditor,
) -> Result<u64> {
    let discard = |dead: &Dead| {
        let (subscription, event) = (dead.subscription_id, dead.letter.event_id);
        if dead.is_queued {
            return letter_discard(tx, subscription, event);
        }
        let discard = || {
            if dead.holds {
                let values = (subscription.0, event.0, auditor.now.as_micros());
                tx.prepare_cached(sql!("admin/dead_letter/dead_letter_discard_held"))?.execute(values)
            } else {
                tx.prepare_cached(sql!("admin/dead_letter/dead_letter_discard"))?
                    .execute((subscription.0, event.0))
            }
        };
        discard().doing("discard a dead letter")
    };
    for_each_dead(tx, which, auditor, "dead_letter_discard", discard)
}

fn for_each_dead(
    tx: &Transaction<'_>,
    which: &DeadLetterQuery,
    auditor: &Auditor,
    action: &'static str,
    change: impl Fn(&Dead) -> Result<usize>,
) -> Result<u64> {
    let mut changed = 0;
    for dead in dead_letter_find(tx, which)? {
        changed += change(&dead)? as u64;
        let LetterId { subscription, event_id } = &dead.letter;
        auditor.write(
            tx,
            &Entry { action, subscription: Some(subscription), event_id: Some(*event_id), detail: None },
        )?;
    }
    Ok(changed)
}

/// A dead row.
struct Dead {
    subscription_id: SubscriptionId,
    letter: LetterId,
    holds: bool,
    died_at: Timestamp,
    attempts: u32,
    edited_payload: Option<Bytes>,
    edited_bytes: u64,
    /// Whether its subscription is a queue.
    is_queued: bool,
}

impl Dead {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            subscription_id: SubscriptionId(row.get(0)?),
            letter: LetterId { subscription: row.get(1)?, event_id: EventId(row.get(2)?) },
            holds: row.get(3)?,
            died_at: Timestamp::from_micros(row.get(4)?),
            attempts: row.get(5)?,
            edited_payload: edited(row, 6)?,
            edited_bytes: row.get::<_, Option<i64>>(7)?.unwrap_or(0).max(0) as u64,
            is_queued: row.get_ref(8)?.as_str()? == "queue",
        })
    }
}

fn dead_letter_find(conn: &Connection, query: &DeadLetterQuery) -> Result<Vec<Dead>> {
    let (subscription_from, subscription_to) = match &query.subscription {
        Some(name) => {
            let id = subscription_get(conn, name)?.id.0;
            (id, id)
        }
        None => (i64::MIN, i64::MAX),
    };
    let (first, last) = query.range();
    let limit = query.limit.min(limits::PAGE_ROWS_MAX) as i64;
    conn.prepare_cached(sql!("admin/dead_letter/dead_letter_list"))
        .and_then(|mut list| {
            let range = (subscription_from, subscription_to, first.0, last.0, limit);
            list.query_map(range, Dead::read)?.collect()
        })
        .doing("list dead letters")
}

/// The letter with its last `history_max` attempts.
fn letter(conn: &Connection, dead: Dead, event: Listed, history_max: u32) -> Result<DeadLetter> {
    let history: Vec<AttemptReport> =
        attempt_list(conn, dead.subscription_id, dead.letter.event_id, history_max)?;
    Ok(DeadLetter {
        letter: dead.letter,
        event,
        edited_payload: dead.edited_payload,
        edited_bytes: dead.edited_bytes,
        holds: dead.holds,
        died_at: dead.died_at,
        attempts: dead.attempts,
        history,
    })
}
