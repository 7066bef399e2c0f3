//! Who owns a subscription's shards.

use postrider_core::Result;
use postrider_core::settle::MemberId;
use postrider_core::subscription::SubscriptionId;

use crate::session::Tx;

/// Takes shards from their owner, or from one of them. The subscription's lock is held.
pub(crate) async fn shards_free(tx: &Tx<'_>, id: SubscriptionId, from: Option<MemberId>) -> Result<()> {
    let from = from.map(|member| member.0);
    let what = "free a subscription's shards";
    tx.execute(sql!("shard_free"), &[&id.0, &from], what).await?;
    tx.query_one(sql!("subscription_fence"), &[&id.0], what).await?;
    tx.execute(sql!("delivery_reap"), &[&id.0], what).await.map(drop)
}
