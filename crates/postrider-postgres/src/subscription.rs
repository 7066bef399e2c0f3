//! Subscriptions as people manage them.

use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, Mode, NewSubscription, OnDead, Order, Result, Subscription, Tuning};
use tokio_postgres::Row;

use crate::audit::Entry;
use crate::error::Doing;
use crate::link::SharedLink;
use crate::lock::{lock_retention, lock_subscription};
use crate::place::place_of;
use crate::position::{SHARDS, ShardSet, position_put};
use crate::session::Tx;
use crate::values::{At, JsonText};

/// Creates a subscription with its shards and its position.
pub(crate) async fn subscription_create(
    tx: &Tx<'_>,
    reader: &SharedLink,
    new: &NewSubscription,
) -> Result<Subscription> {
    new.check()?;
    // From here on retention removes nothing, and nobody else creates a subscription of this name.
    lock_retention(tx).await?;
    if subscription_find(tx, &new.name).await?.is_some() {
        return Err(Error::new(
            ErrorKind::Conflict,
            format!("subscription `{}` exists already: use another name, or delete it first", new.name),
        ));
    }
    let place = place_of(tx, reader, new.start).await?;
    let what = "create a subscription";
    let (filter, tuning) = (json(&new.filter), json(&new.tuning));
    let row = tx
        .query_one(
            sql!("subscription_create"),
            &[
                &new.name,
                &JsonText(&filter),
                &mode_word(new.mode),
                &order_word(new.order),
                &on_dead_word(new.on_dead),
                &JsonText(&tuning),
                &(SHARDS as i16),
            ],
            what,
        )
        .await?;
    let created = Stored::read(&row).doing(what)?.parse()?;
    tx.execute(sql!("shard_create"), &[&created.id.0, &i32::from(SHARDS)], what).await?;
    position_put(tx, created.id, ShardSet::ALL, &place.window, place.last_id).await?;
    Ok(created)
}

/// One subscription by name, or `NotFound`.
pub(crate) async fn subscription_get(tx: &Tx<'_>, name: &str) -> Result<Subscription> {
    subscription_find(tx, name).await?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!(
                "there is no subscription `{}`: see `postrider subscription list`",
                name.escape_default()
            ),
        )
    })
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
    let row = tx.query_opt(sql!("subscription_get"), &[&name], what).await?;
    let stored = row.as_ref().map(Stored::read).transpose().doing(what)?;
    stored.map(Stored::parse).transpose()
}

/// All subscriptions by name.
pub(crate) async fn subscription_list(tx: &Tx<'_>) -> Result<Vec<Subscription>> {
    let what = "list the subscriptions";
    let rows = tx.query(sql!("subscription_list"), &[], what).await?;
    rows.iter().map(|row| Stored::read(row).doing(what)?.parse()).collect()
}

/// What may change about a subscription at any time.
pub(crate) enum Change {
    Tune(Tuning),
    Pause,
    Resume,
}

/// Applies one change; applying it twice is the same as once.
pub(crate) async fn subscription_change(tx: &Tx<'_>, name: &str, change: &Change) -> Result<Subscription> {
    if let Change::Tune(tuning) = change {
        tuning.check()?;
    }
    let id = subscription_lock(tx, name).await?.id.0;
    let what = "change a subscription";
    match change {
        Change::Tune(tuning) => {
            let tuning = json(tuning);
            tx.execute(sql!("subscription_tune"), &[&id, &JsonText(&tuning)], what).await?
        }
        Change::Pause => tx.execute(sql!("subscription_pause"), &[&id], what).await?,
        Change::Resume => tx.execute(sql!("subscription_resume"), &[&id], what).await?,
    };
    subscription_get(tx, name).await
}

/// Removes a subscription with all its state. Its owner is fenced, since its shards are gone.
pub(crate) async fn subscription_delete(tx: &Tx<'_>, name: &str, actor: &str) -> Result<()> {
    lock_retention(tx).await?;
    let id = subscription_lock(tx, name).await?.id;
    let what = "delete a subscription";
    tx.execute(sql!("position_delete"), &[&id.0], what).await?;
    tx.execute(sql!("subscription_delete"), &[&id.0], what).await?;
    Entry { actor, action: "subscription_delete", detail: None }.write(tx, name).await
}

/// A subscription as its row says, before it is understood.
struct Stored {
    id: i64,
    name: String,
    filter: String,
    mode: String,
    order: String,
    on_dead: String,
    tuning: String,
    created_at: At,
    paused_at: Option<At>,
}

impl Stored {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            filter: row.try_get::<_, JsonText<'_>>(2)?.0.to_owned(),
            mode: row.try_get(3)?,
            order: row.try_get(4)?,
            on_dead: row.try_get(5)?,
            tuning: row.try_get::<_, JsonText<'_>>(6)?.0.to_owned(),
            created_at: row.try_get(7)?,
            paused_at: row.try_get(8)?,
        })
    }

    fn parse(self) -> Result<Subscription> {
        let unknown = |what: &str| {
            Error::new(
                ErrorKind::Incompatible,
                format!("subscription `{}` has a {what} that this version does not know", self.name),
            )
        };
        Ok(Subscription {
            id: SubscriptionId(self.id),
            filter: serde_json::from_str(&self.filter)
                .map_err(|error| unknown("filter").with_source(error))?,
            mode: [Mode::Log]
                .into_iter()
                .find(|mode| mode_word(*mode) == self.mode)
                .ok_or_else(|| unknown("mode"))?,
            order: [Order::Key, Order::None]
                .into_iter()
                .find(|order| order_word(*order) == self.order)
                .ok_or_else(|| unknown("order"))?,
            on_dead: [OnDead::Skip, OnDead::Hold]
                .into_iter()
                .find(|on_dead| on_dead_word(*on_dead) == self.on_dead)
                .ok_or_else(|| unknown("rule for dead letters"))?,
            tuning: serde_json::from_str(&self.tuning)
                .map_err(|error| unknown("tuning").with_source(error))?,
            created_at: self.created_at.0,
            paused_at: self.paused_at.map(|at| at.0),
            name: self.name,
        })
    }
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Log => "log",
    }
}

fn order_word(order: Order) -> &'static str {
    match order {
        Order::Key => "key",
        Order::None => "none",
    }
}

fn on_dead_word(on_dead: OnDead) -> &'static str {
    match on_dead {
        OnDead::Skip => "skip",
        OnDead::Hold => "hold",
    }
}

fn json(settings: &impl serde::Serialize) -> String {
    serde_json::to_string(settings).expect("settings always serialize")
}
