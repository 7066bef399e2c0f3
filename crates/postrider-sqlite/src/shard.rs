//! Who owns a subscription's shards.
//!
//! On SQLite one member owns all shards of a subscription: there is one machine and one writer, so a
//! second reader would gain nothing. Positions are kept for each shard all the same, as on PostgreSQL.

use std::sync::Arc;

use postrider_core::settle::{HeldShard, Hold, MemberId, Taken};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Epoch, EventId, Position, Result, Shard, Timestamp};
use rusqlite::{Row, Transaction};

use crate::error::Doing;
use crate::fence::fence;
use crate::lane::lanes_parked;
use crate::liveness::{Observer, Signs, signs_read};
use crate::member::member_check;
use crate::subscription::subscription_get;

/// Shards of a subscription. Part of the stored format.
pub const SHARDS: u16 = 16;

/// Takes all shards for `member`, unless another member that lives holds one.
pub(crate) fn shards_take(
    tx: &Transaction<'_>,
    name: &str,
    member: MemberId,
    observer: &Observer,
    now: Timestamp,
) -> Result<Option<Taken>> {
    let subscription = subscription_get(tx, name)?;
    member_check(tx, member)?;
    let others_live = owners(tx, subscription.id)?
        .iter()
        .filter(|(owner, _)| *owner != member)
        .any(|(_, signs)| signs.as_ref().is_some_and(|signs| !observer.is_dead(signs)));
    if others_live {
        return Ok(None);
    }
    let mut shards: Vec<HeldShard> = tx
        .prepare_cached(sql!("shard_take"))
        .and_then(|mut take| take.query_map((subscription.id.0, member.0), held_read)?.collect())
        .doing("take a subscription's shards")?;
    shards.sort_unstable_by_key(|held| held.shard);
    // Ownership has changed: what is read from here on, nobody else changes.
    reap(tx, subscription.id, now)?;
    let parked = lanes_parked(tx, subscription.id, now)?;
    let start = shards.iter().map(|held| held.position).min().unwrap_or(Position::START);
    let hold =
        Hold { subscription: Arc::new(subscription), member, shards: shards.into(), shard_count: SHARDS };
    Ok(Some(Taken { hold, start, parked }))
}

/// Gives back what `hold` holds.
pub(crate) fn shards_release(tx: &Transaction<'_>, hold: &Hold, now: Timestamp) -> Result<()> {
    fence(tx, hold)?;
    shards_free(tx, hold.subscription.id, now)
}

/// Takes the shards from their owner, whoever it is.
pub(crate) fn shards_free(tx: &Transaction<'_>, subscription: SubscriptionId, now: Timestamp) -> Result<()> {
    tx.prepare_cached(sql!("shard_free"))
        .and_then(|mut free| free.execute([subscription.0]))
        .doing("free a subscription's shards")?;
    reap(tx, subscription, now)
}

/// Makes what was handed out pending again.
fn reap(tx: &Transaction<'_>, subscription: SubscriptionId, now: Timestamp) -> Result<()> {
    tx.prepare_cached(sql!("delivery_reap"))
        .and_then(|mut reap| reap.execute((subscription.0, now.as_micros())))
        .map(drop)
        .doing("take back what was handed out")
}

type Owner = (MemberId, Option<Signs>);

fn owners(tx: &Transaction<'_>, subscription: SubscriptionId) -> Result<Vec<Owner>> {
    tx.prepare_cached(sql!("shard_owners"))
        .and_then(|mut owners| {
            owners
                .query_map([subscription.0], |row| Ok((MemberId(row.get(0)?), signs_read(row, 1)?)))?
                .collect()
        })
        .doing("find who owns the subscription")
}

fn held_read(row: &Row<'_>) -> rusqlite::Result<HeldShard> {
    Ok(HeldShard {
        shard: Shard(row.get(0)?),
        epoch: Epoch(row.get(1)?),
        position: Position::START.at(EventId(row.get(2)?)),
    })
}
