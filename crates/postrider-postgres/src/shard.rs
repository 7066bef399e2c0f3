//! Who owns a subscription's shards.

use std::sync::Arc;

use postrider_core::settle::{Hold, Lane, MemberId, Taken};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Epoch, Error, ErrorKind, Result, Shard};

use crate::check::beyond;
use crate::error::Doing;
use crate::fence::{Standing, fence, standing_read};
use crate::holding::{Holding, Sessions};
use crate::lane::lanes_parked;
use crate::lock::lock_subscription;
use crate::member::member_check;
use crate::position::{SHARDS, position_newest};
use crate::probe::probe;
use crate::session::{Session, Tx};
use crate::subscription::subscription_get;

const WHAT: &str = "take a subscription's shards";

/// Takes all shards for `member`, unless another member that lives holds one. Refused where a position is ahead of the
/// server: events yet to come would look as if they had been delivered.
pub(crate) async fn shards_take(
    tx: &Tx<'_>,
    name: &str,
    member: MemberId,
    sessions: Sessions,
    reader: &Session,
) -> Result<Option<(Taken, Holding)>> {
    let id = subscription_get(tx, name).await?.id;
    if is_owned(tx, id, member).await? {
        return Ok(None);
    }
    // Nobody who lives would be interrupted by this.
    tx.query(sql!("session_end_stale"), &[&id.0], "end what an owner has left open").await?;
    lock_subscription(tx, id).await?;
    // Read again: it may have been changed while the lock was waited for.
    let subscription = subscription_get(tx, name).await?;
    member_check(tx, member).await?;
    if is_owned(tx, id, member).await? {
        return Ok(None);
    }
    let mut shards: Vec<(Shard, Epoch)> = Vec::with_capacity(usize::from(SHARDS));
    for row in tx.query(sql!("shard_take"), &[&id.0, &member.0], WHAT).await? {
        let shard = Shard(row.try_get::<_, i16>(0).doing(WHAT)? as u16);
        shards.push((shard, Epoch(row.try_get(1).doing(WHAT)?)));
    }
    shards.sort_unstable_by_key(|(shard, _)| *shard);
    let standing = fence_move(tx, id).await?;
    // Ownership has changed: what is read from here on, nobody else changes.
    reap(tx, id).await?;
    let parked: Vec<Lane> = lanes_parked(tx, id).await?;
    let places = position_newest(tx, id, SHARDS).await?;
    // After the positions were read, so that none of them can be ahead of it by right.
    let end = probe(reader).await?;
    if let Some(damage) = places.iter().find_map(|place| beyond(&subscription, place, &end)) {
        return Err(Error::new(ErrorKind::Corrupt, damage));
    }
    let (holding, start) = Holding::new(&shards, &places, sessions, standing);
    let hold =
        Hold { subscription: Arc::new(subscription), member, shards: holding.shards(), shard_count: SHARDS };
    Ok(Some((Taken { hold, start, parked }, holding)))
}

/// Whether another member that lives holds a shard.
async fn is_owned(tx: &Tx<'_>, id: SubscriptionId, member: MemberId) -> Result<bool> {
    tx.query_one(sql!("shard_owned"), &[&id.0, &member.0], WHAT).await?.try_get(0).doing(WHAT)
}

/// Gives back what `hold` holds.
pub(crate) async fn shards_release(tx: &Tx<'_>, hold: &Hold) -> Result<()> {
    let id = hold.subscription.id;
    lock_subscription(tx, id).await?;
    fence(tx, hold, i64::MIN).await?;
    shards_free(tx, id, Some(hold.member)).await
}

/// Takes shards from their owner, or from one of them. The subscription's lock is held.
pub(crate) async fn shards_free(tx: &Tx<'_>, id: SubscriptionId, from: Option<MemberId>) -> Result<()> {
    let from = from.map(|member| member.0);
    tx.execute(sql!("shard_free"), &[&id.0, &from], "free a subscription's shards").await?;
    fence_move(tx, id).await?;
    reap(tx, id).await
}

/// Makes every owner look again.
pub(crate) async fn fence_move(tx: &Tx<'_>, id: SubscriptionId) -> Result<Standing> {
    let row = tx.query_one(sql!("subscription_fence"), &[&id.0], WHAT).await?;
    let standing = standing_read(&row, 0).doing(WHAT)?;
    Ok(standing.expect("the fence of a subscription is never null"))
}

/// Makes what was handed out pending again.
async fn reap(tx: &Tx<'_>, id: SubscriptionId) -> Result<()> {
    tx.execute(sql!("delivery_reap"), &[&id.0], "take back what was handed out").await.map(drop)
}
