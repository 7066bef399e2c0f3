//! Subscriptions as people manage them.

use postrider_core::subscription::SubscriptionId;
use postrider_core::{
    Error, ErrorKind, Mode, NewSubscription, OnDead, Order, Result, Subscription, Timestamp, Tuning,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::audit::{Auditor, Entry};
use crate::error::Doing;
use crate::seek::position_of;
use crate::shard::SHARDS;

/// Creates a subscription with its shards.
pub(crate) fn subscription_create(
    tx: &Transaction<'_>,
    new: &NewSubscription,
    now: Timestamp,
) -> Result<Subscription> {
    new.check()?;
    if subscription_find(tx, &new.name)?.is_some() {
        return Err(Error::new(
            ErrorKind::Conflict,
            format!("subscription `{}` exists already: use another name, or delete it first", new.name),
        ));
    }
    let start = position_of(tx, new.start)?;
    let what = "create a subscription";
    let id = tx
        .prepare_cached(sql!("subscription_create"))
        .and_then(|mut create| {
            create.insert((
                &new.name,
                json(&new.filter),
                mode_word(new.mode),
                order_word(new.order),
                on_dead_word(new.on_dead),
                json(&new.tuning),
                now.as_micros(),
            ))
        })
        .doing(what)?;
    let mut create = tx.prepare_cached(sql!("shard_create")).doing(what)?;
    for shard in 0..SHARDS {
        create.execute((id, shard, start.last_id.0)).doing(what)?;
    }
    subscription_get(tx, &new.name)
}

/// One subscription by name, or `NotFound`.
pub(crate) fn subscription_get(conn: &Connection, name: &str) -> Result<Subscription> {
    subscription_find(conn, name)?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!(
                "there is no subscription `{}`: see `postrider subscription list`",
                name.escape_default()
            ),
        )
    })
}

fn subscription_find(conn: &Connection, name: &str) -> Result<Option<Subscription>> {
    let stored = conn
        .prepare_cached(sql!("subscription_get"))
        .and_then(|mut get| get.query_row([name], Stored::read).optional())
        .doing("read a subscription")?;
    stored.map(Stored::parse).transpose()
}

/// All subscriptions by name.
pub(crate) fn subscription_list(conn: &Connection) -> Result<Vec<Subscription>> {
    let stored: Vec<Stored> = conn
        .prepare_cached(sql!("subscription_list"))
        .and_then(|mut list| list.query_map([], Stored::read)?.collect())
        .doing("list the subscriptions")?;
    stored.into_iter().map(Stored::parse).collect()
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
    let id = subscription_get(tx, name)?.id.0;
    match change {
        Change::Tune(tuning) => {
            tuning.check()?;
            tx.prepare_cached(sql!("subscription_tune")).and_then(|mut tune| tune.execute((id, json(tuning))))
        }
        Change::Pause => tx
            .prepare_cached(sql!("subscription_pause"))
            .and_then(|mut pause| pause.execute((id, now.as_micros()))),
        Change::Resume => {
            tx.prepare_cached(sql!("subscription_resume")).and_then(|mut resume| resume.execute([id]))
        }
    }
    .doing("change a subscription")?;
    subscription_get(tx, name)
}

/// Removes a subscription with all its state. Its owner is fenced, since its shards are gone.
pub(crate) fn subscription_delete(tx: &Transaction<'_>, name: &str, auditor: &Auditor) -> Result<()> {
    let id = subscription_get(tx, name)?.id.0;
    let delete = || {
        tx.execute(sql!("delivery_delete_above"), (id, i64::MIN))?;
        tx.execute(sql!("attempt_delete"), [id])?;
        tx.execute(sql!("shard_delete"), [id])?;
        tx.execute(sql!("subscription_delete"), [id])
    };
    delete().doing("delete a subscription")?;
    let entry = Entry { action: "subscription_delete", subscription: name, event_id: None, detail: None };
    auditor.write(tx, &entry)
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
    created_at: i64,
    paused_at: Option<i64>,
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            filter: row.get(2)?,
            mode: row.get(3)?,
            order: row.get(4)?,
            on_dead: row.get(5)?,
            tuning: row.get(6)?,
            created_at: row.get(7)?,
            paused_at: row.get(8)?,
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
            created_at: Timestamp::from_micros(self.created_at),
            paused_at: self.paused_at.map(Timestamp::from_micros),
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
