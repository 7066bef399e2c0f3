//! Subscriptions as people manage them.

use postrider_core::subscription::{StoredSubscription, SubscriptionTexts};
use postrider_core::{NewSubscription, Result, ShardSet, Subscription, Timestamp, Tuning, refusal};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::admin::audit::{Auditor, Entry};
use crate::admin::seek::position_of;
use crate::error::Doing;
use crate::ownership::shard::{SHARDS, shards_free};
use crate::queue::lane::queue_retune;

/// Creates a subscription with its shards.
pub(crate) fn subscription_create(
    tx: &Transaction<'_>,
    new: &NewSubscription,
    now: Timestamp,
) -> Result<Subscription> {
    new.check()?;
    if subscription_find(tx, &new.name)?.is_some() {
        return Err(refusal::subscription_exists(&new.name));
    }
    let start = position_of(tx, new.start)?;
    let (texts, what) = (new.texts(), "create a subscription");
    let id = tx
        .prepare_cached(sql!("admin/subscription/subscription_create"))
        .and_then(|mut create| {
            create.insert((
                &new.name,
                texts.filter,
                texts.mode,
                texts.order,
                texts.on_dead,
                texts.tuning,
                now.as_micros(),
            ))
        })
        .doing(what)?;
    let mut create = tx.prepare_cached(sql!("admin/subscription/shard_create")).doing(what)?;
    for shard in 0..SHARDS {
        create.execute((id, shard, start.last_id.0)).doing(what)?;
    }
    subscription_get(tx, &new.name)
}

/// One subscription by name, or `NotFound`.
pub(crate) fn subscription_get(conn: &Connection, name: &str) -> Result<Subscription> {
    subscription_find(conn, name)?.ok_or_else(|| refusal::subscription_missing(name))
}

/// A subscription as it is stored now; `NotFound` if it is gone, even if another one has its name by now.
pub(crate) fn subscription_same(conn: &Connection, known: &Subscription) -> Result<Subscription> {
    let found = subscription_find(conn, &known.name)?.filter(|found| found.id == known.id);
    found.ok_or_else(|| refusal::subscription_missing(&known.name))
}

fn subscription_find(conn: &Connection, name: &str) -> Result<Option<Subscription>> {
    let stored = conn
        .prepare_cached(sql!("admin/subscription/subscription_get"))
        .and_then(|mut get| get.query_row([name], stored_read).optional())
        .doing("read a subscription")?;
    stored.map(StoredSubscription::parse).transpose()
}

/// All subscriptions by name.
pub(crate) fn subscription_list(conn: &Connection) -> Result<Vec<Subscription>> {
    let stored: Vec<StoredSubscription> = conn
        .prepare_cached(sql!("admin/subscription/subscription_list"))
        .and_then(|mut list| list.query_map([], stored_read)?.collect())
        .doing("list the subscriptions")?;
    stored.into_iter().map(StoredSubscription::parse).collect()
}

/// What may change about a subscription at any time.
pub(crate) enum Change {
    Tune(Tuning),
    Pause,
    Resume,
}

/// Applies one change; applying it twice is the same as once.
pub(crate) fn subscription_change(
    tx: &Transaction<'_>,
    name: &str,
    change: &Change,
    now: Timestamp,
) -> Result<Subscription> {
    let before = subscription_get(tx, name)?;
    let id = before.id.0;
    match change {
        Change::Tune(tuning) => {
            tuning.check_for(before.mode, before.order)?;
            tx.prepare_cached(sql!("admin/subscription/subscription_tune"))
                .and_then(|mut tune| tune.execute((id, tuning.to_text())))
        }
        Change::Pause => tx
            .prepare_cached(sql!("admin/subscription/subscription_pause"))
            .and_then(|mut pause| pause.execute((id, now.as_micros()))),
        Change::Resume => tx
            .prepare_cached(sql!("admin/subscription/subscription_resume"))
            .and_then(|mut resume| resume.execute([id])),
    }
    .doing("change a subscription")?;
    let changed = subscription_get(tx, name)?;
    let limits = [&before, &changed].map(|subscription| subscription.tuning.queue.per_key);
    if limits[0] != limits[1] {
        queue_retune(tx, &changed)?;
    }
    if limits[0].is_some() != limits[1].is_some() {
        // Whoever feeds has to know whether keys have a limit.
        shards_free(tx, changed.id, ShardSet::ALL, now)?;
    }
    Ok(changed)
}

/// Removes a subscription with all its state. Its owner is fenced, since its shards are gone.
pub(crate) fn subscription_delete(tx: &Transaction<'_>, name: &str, auditor: &Auditor) -> Result<()> {
    let id = subscription_get(tx, name)?.id.0;
    let delete = || {
        tx.execute(sql!("admin/seek/delivery_delete_above"), (id, i64::MIN))?;
        tx.execute(sql!("admin/subscription/attempt_delete"), [id])?;
        tx.execute(sql!("admin/seek/queued_delete_above"), (id, i64::MIN))?;
        tx.execute(sql!("queue/claim/claim_forget"), (id, i64::MIN, i64::MAX))?;
        tx.execute(sql!("queue/claim/cancelled_forget"), (i64::MIN, i64::MAX))?;
        tx.execute(sql!("admin/subscription/allowance_delete"), [id])?;
        tx.execute(sql!("admin/subscription/result_delete"), [id])?;
        tx.execute(sql!("admin/subscription/shard_delete"), [id])?;
        tx.execute(sql!("ownership/standing_delete"), (Some(id), None::<i64>))?;
        tx.execute(sql!("admin/subscription/subscription_delete"), [id])
    };
    delete().doing("delete a subscription")?;
    let entry =
        Entry { action: "subscription_delete", subscription: Some(name), event_id: None, detail: None };
    auditor.write(tx, &entry)
}

fn stored_read(row: &Row<'_>) -> rusqlite::Result<StoredSubscription> {
    Ok(StoredSubscription {
        id: row.get(0)?,
        name: row.get(1)?,
        texts: SubscriptionTexts {
            filter: row.get(2)?,
            mode: row.get(3)?,
            order: row.get(4)?,
            on_dead: row.get(5)?,
            tuning: row.get(6)?,
        },
        created_at: Timestamp::from_micros(row.get(7)?),
        paused_at: row.get::<_, Option<i64>>(8)?.map(Timestamp::from_micros),
    })
}
