//! Subscriptions as people manage them.

use postrider_core::subscription::{StoredSubscription, SubscriptionTexts};
use postrider_core::{NewSubscription, Result, ShardSet, Subscription, Tuning, refusal};
use tokio_postgres::Row;

use crate::admin::audit::Entry;
use crate::admin::place::place_of;
use crate::error::Doing;
use crate::ownership::lock::{lock_retention, lock_subscription};
use crate::ownership::shard::shards_free;
use crate::queue::lanes::lanes_retune;
use crate::server::session::Tx;
use crate::server::values::{At, JsonText};
use crate::settle::position::{SHARDS, position_put};

/// Creates a subscription with its shards and its position.
pub(crate) async fn subscription_create(tx: &Tx<'_>, new: &NewSubscription) -> Result<Subscription> {
    new.check()?;
    // From here on retention removes nothing, and no other transaction creates a subscription of this name.
    lock_retention(tx).await?;
    if subscription_find(tx, &new.name).await?.is_some() {
        return Err(refusal::subscription_exists(&new.name));
    }
    let place = place_of(tx, new.start).await?;
    let what = "create a subscription";
    let texts = new.texts();
    let row = tx
        .query_one(
            sql!("admin/subscription/subscription_create"),
            &[
                &new.name,
                &JsonText(&texts.filter),
                &texts.mode,
                &texts.order,
                &texts.on_dead,
                &JsonText(&texts.tuning),
                &(SHARDS as i16),
            ],
            what,
        )
        .await?;
    let created = stored_read(&row).doing(what)?.parse()?;
    tx.execute(sql!("admin/subscription/shard_create"), &[&created.id.0, &i32::from(SHARDS)], what).await?;
    position_put(tx, created.id, &place.of_all()).await?;
    Ok(created)
}

/// One subscription by name, or `NotFound`.
pub(crate) async fn subscription_get(tx: &Tx<'_>, name: &str) -> Result<Subscription> {
    subscription_find(tx, name).await?.ok_or_else(|| refusal::subscription_missing(name))
}

/// The same for one who is going to change it: alone from here on.
pub(crate) async fn subscription_lock(tx: &Tx<'_>, name: &str) -> Result<Subscription> {
    loop {
        let id = subscription_get(tx, name).await?.id;
        lock_subscription(tx, id).await?;
        // Read again: it may have been changed, or deleted, while the lock was waited for.
        let subscription = subscription_get(tx, name).await?;
        if subscription.id == id {
            return Ok(subscription);
        }
    }
}

async fn subscription_find(tx: &Tx<'_>, name: &str) -> Result<Option<Subscription>> {
    let what = "read a subscription";
    let row = tx.query_opt(sql!("admin/subscription/subscription_get"), &[&name], what).await?;
    let stored = row.as_ref().map(stored_read).transpose().doing(what)?;
    stored.map(StoredSubscription::parse).transpose()
}

/// All subscriptions by name.
pub(crate) async fn subscription_list(tx: &Tx<'_>) -> Result<Vec<Subscription>> {
    let what = "list the subscriptions";
    let rows = tx.query(sql!("admin/subscription/subscription_list"), &[], what).await?;
    rows.iter().map(|row| stored_read(row).doing(what)?.parse()).collect()
}

/// What may change about a subscription at any time.
pub(crate) enum Change {
    Tune(Tuning),
    Pause,
    Resume,
}

/// Applies one change; applying it twice is the same as once.
pub(crate) async fn subscription_change(tx: &Tx<'_>, name: &str, change: &Change) -> Result<Subscription> {
    let before = subscription_lock(tx, name).await?;
    if let Change::Tune(tuning) = change {
        tuning.check_for(before.mode, before.order)?;
    }
    let id = before.id.0;
    let what = "change a subscription";
    match change {
        Change::Tune(tuning) => {
            let tuning = tuning.to_text();
            tx.execute(sql!("admin/subscription/subscription_tune"), &[&id, &JsonText(&tuning)], what).await?
        }
        Change::Pause => tx.execute(sql!("admin/subscription/subscription_pause"), &[&id], what).await?,
        Change::Resume => tx.execute(sql!("admin/subscription/subscription_resume"), &[&id], what).await?,
    };
    let changed = subscription_get(tx, name).await?;
    let limits = [&before, &changed].map(|subscription| subscription.tuning.queue.per_key);
    if limits[0] != limits[1] {
        lanes_retune(tx, &changed).await?;
    }
    if limits[0].is_some() != limits[1].is_some() {
        // The feeder has to know whether keys have a limit.
        shards_free(tx, changed.id, None, ShardSet::ALL).await?;
    }
    Ok(changed)
}

/// Removes a subscription with all its state. Its owner is fenced, since its shards are gone.
pub(crate) async fn subscription_delete(tx: &Tx<'_>, name: &str, actor: &str) -> Result<()> {
    lock_retention(tx).await?;
    let id = subscription_lock(tx, name).await?.id;
    let what = "delete a subscription";
    tx.execute(sql!("admin/subscription/position_delete"), &[&id.0], what).await?;
    tx.execute(sql!("admin/subscription/queue_delete"), &[&id.0], what).await?;
    tx.execute(sql!("admin/subscription/subscription_delete"), &[&id.0], what).await?;
    Entry { actor, action: "subscription_delete", detail: None }.write(tx, name).await
}

fn stored_read(row: &Row) -> Result<StoredSubscription, tokio_postgres::Error> {
    let json = |column| row.try_get::<_, JsonText<'_>>(column).map(|json| json.0.to_owned());
    Ok(StoredSubscription {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        texts: SubscriptionTexts {
            filter: json(2)?,
            mode: row.try_get(3)?,
            order: row.try_get(4)?,
            on_dead: row.try_get(5)?,
            tuning: json(6)?,
        },
        created_at: row.try_get::<_, At>(7)?.0,
        paused_at: row.try_get::<_, Option<At>>(8)?.map(|at| at.0),
    })
}
