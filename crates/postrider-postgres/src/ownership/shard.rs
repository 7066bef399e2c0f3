//! Who owns a subscription's shards, and who stands for them.

use std::sync::Arc;

use postrider_core::balance::Survey;
use postrider_core::settle::{Hold, Lane, MemberId, Taken};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Epoch, Error, ErrorKind, Result, Shard, ShardSet};
use tokio_postgres::types::ToSql;

use crate::admin::check::beyond;
use crate::admin::event::log_end;
use crate::admin::subscription::subscription_get;
use crate::error::Doing;
use crate::log::holding::{Holding, Sessions};
use crate::ownership::fence::{Standing, fence, standing_read};
use crate::ownership::lock::lock_members;
use crate::ownership::member::member_check;
use crate::server::session::Tx;
use crate::settle::lane::lanes_parked;
use crate::settle::position::{SHARDS, position_newest};

const WHAT: &str = "take a subscription's shards";

/// Who stands for a subscription and lives, and who holds its shards.
pub(crate) async fn survey(tx: &Tx<'_>, name: &str, member: MemberId, stands: bool) -> Result<Survey> {
    let what = "find who holds the shards";
    let id = subscription_get(tx, name).await?.id;
    if stands {
        tx.execute(sql!("ownership/shard/standing_put"), &[&id.0, &member.0], what).await?;
    }
    // Afterwards: one that was forgotten meanwhile does not stand.
    member_check(tx, member).await?;
    let row = tx.query_one(sql!("ownership/shard/shard_survey"), &[&id.0, &member.0], what).await?;
    let members: Vec<i64> = row.try_get(0).doing(what)?;
    let owners: Vec<Option<i64>> = row.try_get(1).doing(what)?;
    let silent: Vec<i16> = row.try_get(2).doing(what)?;
    Ok(Survey {
        members: members.into_iter().map(MemberId).collect(),
        owners: owners.into_iter().map(|owner| owner.map(MemberId)).collect(),
        silent: ShardSet::of(silent.into_iter().map(|shard| Shard(shard as u16))),
    })
}

/// Takes those of the `wanted` shards for `member` that no other living member holds. Refused where a position is ahead
/// of the server: events yet to come would look as if they had been delivered.
pub(crate) async fn shards_take(
    tx: &Tx<'_>,
    name: &str,
    member: MemberId,
    wanted: ShardSet,
    sessions: Sessions,
) -> Result<Option<(Taken, Holding)>> {
    let id = subscription_get(tx, name).await?.id;
    let before = Free::look(tx, id, member, wanted).await?;
    if before.shards.is_empty() {
        return Ok(None);
    }
    let gone: Vec<i64> =
        before.owners.iter().filter(|owner| **owner != member).map(|owner| owner.0).collect();
    tx.query(sql!("ownership/shard/session_end_stale"), &[&id.0, &gone], "end what an owner has left open")
        .await?;
    lock_members(tx, id, &before.owners).await?;
    // A member that loses shards is forgotten, or spared if it has beaten just now: it cannot beat again and trust in
    // a lease that did not protect them.
    tx.execute(sql!("ownership/shard/member_forget"), &[&gone, &member.0], WHAT).await?;
    // Read again: it may have been changed while the locks were waited for. Of owners that came in between no lock is
    // held, so that their shards are left to them.
    let subscription = subscription_get(tx, name).await?;
    member_check(tx, member).await?;
    let free = Free::look(tx, id, member, wanted).await?;
    let owners: Vec<i64> =
        free.owners.iter().filter(|owner| before.owners.contains(owner)).map(|owner| owner.0).collect();
    let mut shards: Vec<(Shard, Epoch)> = Vec::with_capacity(usize::from(SHARDS));
    let parameters: [&(dyn ToSql + Sync); 4] = [&id.0, &member.0, &(free.shards.0 as i64), &owners];
    for row in tx.query(sql!("ownership/shard/shard_take"), &parameters, WHAT).await? {
        let shard = Shard(row.try_get::<_, i16>(0).doing(WHAT)? as u16);
        shards.push((shard, Epoch(row.try_get(1).doing(WHAT)?)));
    }
    if shards.is_empty() {
        return Ok(None);
    }
    shards.sort_unstable_by_key(|(shard, _)| *shard);
    let taken = ShardSet::of(shards.iter().map(|(shard, _)| *shard));
    let standing = fence_move(tx, id).await?;
    // Ownership has changed: no other member changes the rows that are read from here on.
    reap(tx, id, taken).await?;
    let parked: Vec<Lane> = lanes_parked(tx, id, taken).await?;
    let places = position_newest(tx, id, SHARDS).await?;
    // After the positions were read, so that none of them can be ahead of it by right.
    let end = log_end(tx).await?;
    if let Some(damage) = places.iter().find_map(|place| beyond(&subscription, place, &end)) {
        return Err(Error::new(ErrorKind::Corrupt, damage));
    }
    let (holding, start) = Holding::new(&shards, &places, sessions, standing);
    let hold =
        Hold { subscription: Arc::new(subscription), member, shards: holding.shards(), shard_count: SHARDS };
    Ok(Some((Taken { hold, start, parked }, holding)))
}

/// Shards that may be taken.
struct Free {
    shards: ShardSet,
    /// Who holds them and is dead, or asks itself.
    owners: Vec<MemberId>,
}

impl Free {
    async fn look(tx: &Tx<'_>, id: SubscriptionId, member: MemberId, wanted: ShardSet) -> Result<Self> {
        let mut free = Self { shards: ShardSet::default(), owners: Vec::new() };
        for row in tx.query(sql!("ownership/shard/shard_owners"), &[&id.0, &member.0], WHAT).await? {
            let shard = Shard(row.try_get::<_, i16>(0).doing(WHAT)? as u16);
            let owner = row.try_get::<_, Option<i64>>(1).doing(WHAT)?.map(MemberId);
            let lives: bool = row.try_get(2).doing(WHAT)?;
            if !wanted.contains(shard) || (lives && owner != Some(member)) {
                continue;
            }
            free.shards.insert(shard);
            if let Some(owner) = owner.filter(|owner| !free.owners.contains(owner)) {
                free.owners.push(owner);
            }
        }
        Ok(free)
    }
}

/// Gives back what `hold` holds.
pub(crate) async fn shards_release(tx: &Tx<'_>, hold: &Hold) -> Result<()> {
    let id = hold.subscription.id;
    lock_members(tx, id, &[hold.member]).await?;
    fence(tx, hold, i64::MIN).await?;
    shards_free(tx, id, Some(hold.member), hold.set()).await
}

/// Takes shards from their owners, or from one of them. Its lock is held, or the subscription's.
pub(crate) async fn shards_free(
    tx: &Tx<'_>,
    id: SubscriptionId,
    from: Option<MemberId>,
    shards: ShardSet,
) -> Result<()> {
    let (from, bits) = (from.map(|member| member.0), shards.0 as i64);
    tx.execute(sql!("ownership/shard/shard_free"), &[&id.0, &from, &bits], "free a subscription's shards")
        .await?;
    fence_move(tx, id).await?;
    reap(tx, id, shards).await
}

/// Makes every owner look again.
pub(crate) async fn fence_move(tx: &Tx<'_>, id: SubscriptionId) -> Result<Standing> {
    let row = tx.query_one(sql!("ownership/shard/subscription_fence"), &[&id.0], WHAT).await?;
    let standing = standing_read(&row, 0).doing(WHAT)?;
    Ok(standing.expect("the fence of a subscription is never null"))
}

/// Makes what was handed out pending again.
async fn reap(tx: &Tx<'_>, id: SubscriptionId, shards: ShardSet) -> Result<()> {
    let bits = shards.0 as i64;
    tx.execute(sql!("ownership/shard/delivery_reap"), &[&id.0, &bits], "take back what was handed out")
        .await
        .map(drop)
}
