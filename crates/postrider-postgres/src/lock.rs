//! Who waits for whom. Always taken in this order: retention, then subscription, then its members, then rows.
//!
//! Advisory locks, not row locks: a settle that locked its 64 shard rows would write 64 row marks and their WAL,
//! ten times a second. They end with the transaction, so they need no session of their own.

use postrider_core::Result;
use postrider_core::settle::MemberId;
use postrider_core::subscription::SubscriptionId;

use crate::session::Tx;

/// Keeps positions from appearing below what retention is about to remove: taken by retention, and by whoever
/// creates a subscription or moves it back.
pub(crate) async fn lock_retention(tx: &Tx<'_>) -> Result<()> {
    tx.query(sql!("lock_retention"), &[], "wait for retention").await.map(drop)
}

/// For those who move a subscription, or change rows that are not theirs: alone.
pub(crate) async fn lock_subscription(tx: &Tx<'_>, id: SubscriptionId) -> Result<()> {
    tx.query(sql!("lock_subscription"), &[&id.0], "wait for the subscription").await.map(drop)
}

/// For an owner's settle: beside the settles of other owners, but never beside a change of the owner of its shards.
/// Whoever takes them over waits for it and reads what it wrote.
pub(crate) async fn lock_settle(tx: &Tx<'_>, id: SubscriptionId, member: MemberId) -> Result<()> {
    tx.query(sql!("lock_settle"), &[&id.0, &member.0], "wait for the subscription").await.map(drop)
}

/// For those who change who owns shards: alone with their owners, so that other members are not disturbed.
pub(crate) async fn lock_members(tx: &Tx<'_>, id: SubscriptionId, members: &[MemberId]) -> Result<()> {
    let members: Vec<i64> = members.iter().map(|member| member.0).collect();
    tx.query(sql!("lock_members"), &[&id.0, &members], "wait for the owners of shards").await.map(drop)
}
