//! Who waits for whom. Always taken in this order: retention, then subscription, then its members, then rows.
//!
//! Advisory locks, not row locks: a settle that locked its 64 shard rows would write 64 row marks and their
//! WAL, ten times a second. They end with the transaction, so they need no session of their own.
//!
//! Every role that may connect can take an advisory lock, and so keep relays from settling: nothing is lost
//! by that, but all of them wait. A lock on a table that only our roles may lock could not be taken by
//! others, and its 9 µs a settle instead of 2 µs would do. But there are as many locks as members in
//! subscriptions and buckets of lanes, each would have to be a table, made by DDL while producers work, and
//! lanes try locks, which `lock table` can only do by an exception. A role that may connect has other ways to
//! stop a database, by its memory or its connections. So people are told who holds the lock ([`blamed`]), and
//! `check` tells of holders that have no role of the store.

use std::fmt;

use postrider_core::settle::MemberId;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::server::link::Link;
use crate::server::session::{Ask, Tx};

/// How long a table is waited for. Statements that want the table next wait behind this one.
pub(crate) const LOCK_TIMEOUT: &str = "set local lock_timeout = '200ms'";

/// Keeps positions from appearing below what retention is about to remove. Retention takes it, and so does
/// every transaction that creates a subscription or moves one back.
pub(crate) async fn lock_retention(tx: &Tx<'_>) -> Result<()> {
    tx.query(sql!("ownership/lock/lock_retention"), &[], "wait for retention").await.map(drop)
}

/// Exclusive, for transactions that move a subscription or change rows that another member owns.
pub(crate) async fn lock_subscription(tx: &Tx<'_>, id: SubscriptionId) -> Result<()> {
    tx.query(sql!("ownership/lock/lock_subscription"), &[&id.0], "wait for the subscription").await.map(drop)
}

/// For an owner's settle: beside the settles of other owners, but never beside a change of the owner of its shards.
/// A member that takes them over waits for the settle and reads what it wrote.
pub(crate) async fn lock_settle(tx: &Tx<'_>, id: SubscriptionId, member: MemberId) -> Result<()> {
    tx.query(sql!("ownership/lock/lock_settle"), &[&id.0, &member.0], "wait for the subscription")
        .await
        .map(drop)
}

/// For those who change who owns shards: alone with their owners, so that other members are not disturbed.
pub(crate) async fn lock_members(tx: &Tx<'_>, id: SubscriptionId, members: &[MemberId]) -> Result<()> {
    let members: Vec<i64> = members.iter().map(|member| member.0).collect();
    tx.query(sql!("ownership/lock/lock_members"), &[&id.0, &members], "wait for the owners of shards")
        .await
        .map(drop)
}

/// A session that holds advisory locks of the store.
pub(crate) struct Holder {
    pid: i32,
    role: String,
    application: String,
    /// Whether it has none of the store's roles.
    pub(crate) is_foreign: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client chooses both names.
        let [role, application] = [&self.role, &self.application].map(|name| name.escape_debug());
        write!(f, "pid {} of role `{role}`, application `{application}`", self.pid)
    }
}

/// Sessions that block others on a lock of the store, or have no business with one; a few at the most.
pub(crate) async fn holders(ask: &impl Ask) -> Result<Vec<Holder>> {
    let what = "ask who holds locks";
    let rows = ask.ask(sql!("ownership/lock/lock_holders"), &[], what).await?;
    let holder = |row: &Row| {
        Ok(Holder {
            pid: row.try_get(0)?,
            role: row.try_get(1)?,
            application: row.try_get(2)?,
            is_foreign: row.try_get(3)?,
        })
    };
    rows.iter().map(holder).collect::<Result<_, tokio_postgres::Error>>().doing(what)
}

/// Names the holders of locks in an error that comes from waiting too long for one. Asks on another
/// connection, because no other work may wait for this.
pub(crate) async fn blamed<T>(done: Result<T>, link: &Link) -> Result<T> {
    let Err(error) = done else { return done };
    if error.kind() != ErrorKind::Busy {
        return Err(error);
    }
    let found = async { holders(&*link.session().await?).await };
    match found.await {
        Ok(found) if !found.is_empty() => {
            let names: Vec<String> = found.iter().map(ToString::to_string).collect();
            let message = format!("{error}; locks of this store are held by {}", names.join("; "));
            Err(Error::new(ErrorKind::Busy, message).with_source(error))
        }
        _ => Err(error),
    }
}
