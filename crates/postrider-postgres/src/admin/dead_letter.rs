//! Dead letters: deliveries that were given up, and what people do with them.
//!
//! Owners never touch a dead row and operators touch no other. A letter that holds its lane stays the lane's head
//! whatever is decided about it: only the owner moves lanes, since it has the rest of the lane in memory.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use postrider_core::event::Listed;
use postrider_core::refusal::letter_is_not_dead;
use postrider_core::store::{AttemptReport, DeadLetter, DeadLetterQuery, LetterId};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, EventId, Mode, Result, Timestamp, limits};
use tokio_postgres::Row;

use crate::admin::audit::Entry;
use crate::admin::event::{Found, by_right, event_get, event_preview, log_end};
use crate::admin::subscription::{subscription_get, subscription_list, subscription_lock};
use crate::error::Doing;
use crate::ownership::lock::lock_subscription;
use crate::queue::letters::{Queues, queue_discard, queue_replay};
use crate::server::event_row::{payload_columns, payload_read};
use crate::server::session::Tx;
use crate::server::values::At;
use crate::settle::attempt::{DeliveryId, attempt_list};

/// A page of dead letters, each with its last attempt.
pub(crate) async fn dead_letter_list(tx: &Tx<'_>, query: &DeadLetterQuery) -> Result<Vec<DeadLetter>> {
    let mut found = dead_letter_find(tx, query, limits::PREVIEW_BYTES_MAX).await?;
    // Characters were counted.
    let edited = found.iter_mut().filter_map(|dead| dead.edited_payload.as_mut());
    edited.for_each(|edited| edited.truncate(limits::PREVIEW_BYTES_MAX));
    let events = event_preview(tx, ids_of(&found)).await?;
    letters(tx, found, events, 1).await
}

/// One dead letter with all its attempts.
pub(crate) async fn dead_letter_get(tx: &Tx<'_>, id: &LetterId) -> Result<DeadLetter> {
    let query = DeadLetterQuery {
        subscription: Some(id.subscription.clone()),
        event_id: Some(id.event_id),
        after: None,
        limit: 1,
    };
    let found = dead_letter_find(tx, &query, limits::PAYLOAD_BYTES_MAX).await?;
    let events = event_get(tx, ids_of(&found)).await?;
    let events = events.into_iter().map(|(id, Found { event, .. })| (id, Listed::whole(event))).collect();
    let letters = letters(tx, found, events, limits::ATTEMPT_RECORDS_MAX).await?;
    letters.into_iter().next_back().ok_or_else(|| letter_is_not_dead(id))
}

fn ids_of(found: &[Dead]) -> BTreeSet<EventId> {
    found.iter().map(|dead| dead.letter.event_id).collect()
}

/// Sets the payload that a replay will deliver.
pub(crate) async fn dead_letter_edit(tx: &Tx<'_>, id: &LetterId, payload: &Bytes, actor: &str) -> Result<()> {
    if payload.len() > limits::PAYLOAD_BYTES_MAX {
        return Err(Error::invalid(format!(
            "payload is {} bytes, the limit is {}",
            payload.len(),
            limits::PAYLOAD_BYTES_MAX
        )));
    }
    let subscription = subscription_lock(tx, &id.subscription).await?;
    let what = "edit a dead letter";
    let (json, bytes) = payload_columns(payload);
    let edit = [&subscription.id.0 as _, &id.event_id.0 as _, &json as _, &bytes as _];
    if tx.execute(sql!("admin/dead_letter/dead_letter_edit"), &edit, what).await? == 0 {
        return Err(letter_is_not_dead(id));
    }
    let detail = format!("{} bytes", payload.len());
    Entry { actor, action: "dead_letter_edit", detail: Some(&detail) }
        .write_each(tx, &[(&id.subscription, Some(id.event_id))])
        .await
}

/// Sends dead letters round again.
pub(crate) async fn dead_letter_replay(tx: &Tx<'_>, which: &DeadLetterQuery, actor: &str) -> Result<u64> {
    let letters = Letters::lock(tx, which).await?;
    let behind_all = log_end(tx).await?.issued.0 + 1;
    let (subscriptions, events) = letters.columns(Mode::Log);
    let what = "replay dead letters";
    let mut rows = tx
        .query(sql!("admin/dead_letter/dead_letter_replay"), &[&subscriptions, &events, &behind_all], what)
        .await?;
    let (subscriptions, events) = letters.columns(Mode::Queue);
    rows.extend(queue_replay(tx, &letters.queues, (&subscriptions, &events), behind_all).await?);
    letters.audit(tx, &rows, &Entry { actor, action: "dead_letter_replay", detail: None }).await
}

/// Gives dead letters up for good.
pub(crate) async fn dead_letter_discard(tx: &Tx<'_>, which: &DeadLetterQuery, actor: &str) -> Result<u64> {
    let letters = Letters::lock(tx, which).await?;
    let (subscriptions, events) = letters.columns(Mode::Log);
    let mut rows = tx
        .query(
            sql!("admin/dead_letter/dead_letter_discard"),
            &[&subscriptions, &events],
            "discard dead letters",
        )
        .await?;
    let (subscriptions, events) = letters.columns(Mode::Queue);
    rows.extend(queue_discard(tx, &letters.queues, (&subscriptions, &events)).await?);
    letters.audit(tx, &rows, &Entry { actor, action: "dead_letter_discard", detail: None }).await
}

/// Dead letters that are about to be changed, with the locks of their subscriptions held. They were looked for
/// before the locks. Another transaction may have changed some of them meanwhile, so each change looks again.
struct Letters {
    letters: Vec<Dead>,
    queues: Queues,
}

impl Letters {
    async fn lock(tx: &Tx<'_>, which: &DeadLetterQuery) -> Result<Self> {
        let found = dead_letter_find(tx, which, limits::PREVIEW_BYTES_MAX).await?;
        // In one order for all transactions, so that no two of them wait for each other.
        let subscriptions: BTreeSet<SubscriptionId> = found.iter().map(|dead| dead.subscription_id).collect();
        for id in subscriptions {
            lock_subscription(tx, id).await?;
        }
        let all = subscription_list(tx).await?.into_iter();
        let queues =
            all.filter(|subscription| subscription.mode == Mode::Queue).map(|queue| (queue.id, queue));
        Ok(Self { letters: found, queues: queues.collect() })
    }

    /// Those of subscriptions of a mode.
    fn columns(&self, mode: Mode) -> (Vec<i64>, Vec<i64>) {
        let of_mode = self
            .letters
            .iter()
            .filter(|dead| (mode == Mode::Queue) == self.queues.contains_key(&dead.subscription_id));
        of_mode.map(|dead| (dead.subscription_id.0, dead.letter.event_id.0)).unzip()
    }

    /// Writes a line for each that was changed, and counts them.
    async fn audit(&self, tx: &Tx<'_>, changed: &[Row], entry: &Entry<'_>) -> Result<u64> {
        let read = |row: &Row| Ok((SubscriptionId(row.try_get(0)?), EventId(row.try_get(1)?)));
        let changed: HashSet<DeliveryId> =
            changed.iter().map(read).collect::<Result<_, _>>().doing("change dead letters")?;
        let lines: Vec<(&str, Option<EventId>)> = self
            .letters
            .iter()
            .filter(|dead| changed.contains(&dead.id()))
            .map(|dead| (dead.letter.subscription.as_str(), Some(dead.letter.event_id)))
            .collect();
        if !lines.is_empty() {
            entry.write_each(tx, &lines).await?;
        }
        Ok(changed.len() as u64)
    }
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
}

impl Dead {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            subscription_id: SubscriptionId(row.try_get(0)?),
            letter: LetterId { subscription: row.try_get(1)?, event_id: EventId(row.try_get(2)?) },
            holds: row.try_get(3)?,
            died_at: row.try_get::<_, At>(4)?.0,
            attempts: row.try_get::<_, i32>(5)? as u32,
            edited_payload: payload_read(row, 6)?,
            edited_bytes: row.try_get::<_, Option<i32>>(8)?.unwrap_or(0).max(0) as u64,
        })
    }

    fn id(&self) -> DeliveryId {
        (self.subscription_id, self.letter.event_id)
    }
}

async fn dead_letter_find(
    tx: &Tx<'_>,
    query: &DeadLetterQuery,
    edited_bytes_max: usize,
) -> Result<Vec<Dead>> {
    let what = "list dead letters";
    let (subscription_from, subscription_to) = match &query.subscription {
        Some(name) => {
            let id = subscription_get(tx, name).await?.id.0;
            (id, id)
        }
        None => (i64::MIN, i64::MAX),
    };
    let after = query.after.map_or(i64::MIN, |id| id.0.saturating_add(1));
    let (event_from, event_to) = match query.event_id {
        Some(id) => (id.0.max(after), id.0),
        None => (after, i64::MAX),
    };
    let limit = query.limit.min(limits::PAGE_ROWS_MAX) as i64;
    let sql = by_right(
        tx.payloads(),
        sql!("admin/dead_letter/dead_letter_list"),
        sql!("admin/dead_letter/dead_letter_list_withheld"),
    );
    let most = edited_bytes_max as i32;
    let range = [&subscription_from as _, &subscription_to as _, &event_from as _, &event_to as _];
    let rows = tx.query(sql, &[range[0], range[1], range[2], range[3], &limit, &most], what).await?;
    rows.iter().map(Dead::read).collect::<Result<_, _>>().doing(what)
}

/// The letters with their last `history_max` attempts. One whose event is gone is left out; `check` reports it.
async fn letters(
    tx: &Tx<'_>,
    found: Vec<Dead>,
    events: HashMap<EventId, Listed>,
    history_max: u32,
) -> Result<Vec<DeadLetter>> {
    let mut history: HashMap<DeliveryId, Vec<AttemptReport>> =
        attempt_list(tx, found.iter().map(Dead::id), history_max).await?;
    let letter = |dead: Dead| {
        let event = events.get(&dead.letter.event_id)?.clone();
        Some(DeadLetter {
            history: history.remove(&dead.id()).unwrap_or_default(),
            letter: dead.letter,
            event,
            edited_bytes: dead.edited_bytes,
            edited_payload: dead.edited_payload,
            holds: dead.holds,
            died_at: dead.died_at,
            attempts: dead.attempts,
        })
    };
    Ok(found.into_iter().filter_map(letter).collect())
}
