//! Who owns a subscription's shards, and who stands for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use postrider_core::balance::Survey;
use postrider_core::settle::{HeldShard, Hold, MemberId};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Epoch, EventId, Position, Result, Shard, ShardSet, Timestamp};
use rusqlite::{Connection, Row, Transaction};

use crate::error::Doing;
use crate::ownership::fence::fence;
use crate::ownership::liveness::{Observer, Signs, signs_read};
use crate::ownership::member::{member_check, member_forget};
use crate::subscription::subscription_get;

/// Shards of a subscription. Part of the stored format.
pub const SHARDS: u16 = 16;

/// Who stands for a subscription and lives, and who holds its shards.
pub(crate) fn survey(conn: &Connection, name: &str, member: MemberId, observer: &Observer) -> Result<Survey> {
    let subscription = subscription_get(conn, name)?;
    member_check(conn, member)?;
    let standing: Vec<(MemberId, Option<Signs>)> = conn
        .prepare_cached(sql!("ownership/standing_list"))
        .and_then(|mut list| {
            list.query_map([subscription.id.0], |row| Ok((MemberId(row.get(0)?), signs_read(row, 1)?)))?
                .collect()
        })
        .doing("find who stands for the subscription")?;
    let lives = |signs: &Option<Signs>| signs.as_ref().is_some_and(|signs| !observer.is_dead(signs));
    let members = standing.into_iter().filter(|(_, signs)| lives(signs)).map(|(member, _)| member).collect();
    let owners = owners(conn, subscription.id)?;
    let owners = owners.into_iter().map(|owner| owner.member.filter(|_| lives(&owner.signs))).collect();
    Ok(Survey { members, owners, silent: ShardSet::default() })
}

/// Says that a member wants a part of a subscription's shards.
pub(crate) fn stand(tx: &Transaction<'_>, name: &str, member: MemberId) -> Result<()> {
    let subscription = subscription_get(tx, name)?;
    member_check(tx, member)?;
    tx.prepare_cached(sql!("ownership/standing_put"))
        .and_then(|mut put| put.execute((subscription.id.0, member.0)))
        .map(drop)
        .doing("stand for the subscription")
}

/// Takes those of the `wanted` shards for `member` that no other living member holds.
pub(crate) fn shards_take(
    tx: &Transaction<'_>,
    name: &str,
    member: MemberId,
    wanted: ShardSet,
    observer: &Observer,
    now: Timestamp,
) -> Result<Option<Hold>> {
    let subscription = subscription_get(tx, name)?;
    member_check(tx, member)?;
    let is_free = |owner: &Owner| {
        owner.member.is_none_or(|owner| owner == member)
            || owner.signs.as_ref().is_none_or(|signs| observer.is_dead(signs))
    };
    let owners = owners(tx, subscription.id)?;
    let free = owners.iter().filter(|owner| wanted.contains(owner.shard) && is_free(owner));
    let free = ShardSet::of(free.map(|owner| owner.shard));
    if free.is_empty() {
        return Ok(None);
    }
    // A member that loses shards is forgotten: it cannot beat again and trust in a lease that did not protect them.
    let losers = owners.iter().filter(|owner| free.contains(owner.shard)).filter_map(|owner| owner.member);
    for loser in losers.filter(|owner| *owner != member).collect::<BTreeSet<_>>() {
        member_forget(tx, loser)?;
    }
    let mut shards: Vec<HeldShard> = tx
        .prepare_cached(sql!("ownership/shard_take"))
        .and_then(|mut take| {
            take.query_map((subscription.id.0, member.0, free.0 as i64), held_read)?.collect()
        })
        .doing("take a subscription's shards")?;
    shards.sort_unstable_by_key(|held| held.shard);
    // Ownership has changed: no other member changes what is read from here on.
    reap(tx, subscription.id, free, now)?;
    let subscription = Arc::new(subscription);
    Ok(Some(Hold { subscription, member, shards: shards.into(), shard_count: SHARDS }))
}

/// Gives back what `hold` holds.
pub(crate) fn shards_release(tx: &Transaction<'_>, hold: &Hold, now: Timestamp) -> Result<()> {
    fence(tx, hold)?;
    shards_free(tx, hold.subscription.id, hold.set(), now)
}

/// Takes shards from their owners, if they have any.
pub(crate) fn shards_free(
    tx: &Transaction<'_>,
    subscription: SubscriptionId,
    shards: ShardSet,
    now: Timestamp,
) -> Result<()> {
    tx.prepare_cached(sql!("ownership/shard_free"))
        .and_then(|mut free| free.execute((subscription.0, shards.0 as i64)))
        .doing("free a subscription's shards")?;
    reap(tx, subscription, shards, now)
}

/// Makes what was handed out pending again.
fn reap(tx: &Transaction<'_>, subscription: SubscriptionId, shards: ShardSet, now: Timestamp) -> Result<()> {
    tx.prepare_cached(sql!("ownership/delivery_reap"))
        .and_then(|mut reap| reap.execute((subscription.0, shards.0 as i64, now.as_micros())))
        .map(drop)
        .doing("take back what was handed out")
}

/// Whose a shard is.
struct Owner {
    shard: Shard,
    member: Option<MemberId>,
    /// None if it has been forgotten.
    signs: Option<Signs>,
}

fn owners(conn: &Connection, subscription: SubscriptionId) -> Result<Vec<Owner>> {
    let read = |row: &Row<'_>| {
        let member = row.get::<_, Option<i64>>(1)?.map(MemberId);
        Ok(Owner { shard: Shard(row.get(0)?), member, signs: signs_read(row, 2)? })
    };
    conn.prepare_cached(sql!("ownership/shard_owners"))
        .and_then(|mut owners| owners.query_map([subscription.0], read)?.collect())
        .doing("find who owns the subscription")
}

fn held_read(row: &Row<'_>) -> rusqlite::Result<HeldShard> {
    Ok(HeldShard {
        shard: Shard(row.get(0)?),
        epoch: Epoch(row.get(1)?),
        position: Position::START.at(EventId(row.get(2)?)),
    })
}
