//! Subscriptions as people manage them.

use postrider_core::{NewSubscription, Result, ShardSet, Subscription, Timestamp, Tuning, refusal};
use rusqlite::Transaction;

use crate::admin::seek::position_of;
use crate::audit::{Auditor, Entry};
use crate::error::Doing;
use crate::ownership::shard::{SHARDS, shards_free};
use crate::queue::lane::queue_retune;
use crate::subscription::{subscription_find, subscription_get};

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
        // The feeder has to know whether keys have a limit.
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
