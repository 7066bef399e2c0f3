//! The processes that work on a store.

use std::time::Duration;

use postrider_core::refusal::member_is_forgotten;
use postrider_core::settle::MemberId;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, Result, ShardSet};

use crate::error::Doing;
use crate::ownership::lock::lock_members;
use crate::ownership::shard::shards_free;
use crate::server::migrate::SCHEMA_VERSION;
use crate::server::session::Tx;
use crate::server::values::For;

/// Registers this process, and forgets members whose lease has run out. A member that is forgotten by mistake
/// learns it from its next beat.
pub(crate) async fn member_join(tx: &Tx<'_>, name: &str, lease: Duration) -> Result<MemberId> {
    let what = "register this process";
    tx.query(sql!("ownership/member/migration_wait"), &[&tx.schema().name()], what).await?;
    tx.execute(sql!("ownership/member/member_forget_dead"), &[], what).await?;
    let version = SCHEMA_VERSION as i32;
    match tx.query_opt(sql!("ownership/member/member_join"), &[&name, &For(lease), &version], what).await? {
        Some(row) => row.try_get(0).map(MemberId).doing(what),
        None => Err(Error::new(
            ErrorKind::Incompatible,
            "the schema was migrated for newer versions of Postrider since this process has started: use one",
        )),
    }
}

/// Says that a member lives.
pub(crate) async fn member_beat(tx: &Tx<'_>, member: MemberId) -> Result<()> {
    match tx.execute(sql!("ownership/member/member_beat"), &[&member.0], "renew the lease").await? {
        0 => Err(member_is_forgotten(member)),
        _ => Ok(()),
    }
}

/// Forgets a member and frees what it holds.
pub(crate) async fn member_leave(tx: &Tx<'_>, member: MemberId) -> Result<()> {
    let what = "find what this member holds";
    for row in tx.query(sql!("ownership/member/shard_held_by"), &[&member.0], what).await? {
        let id = SubscriptionId(row.try_get(0).doing(what)?);
        lock_members(tx, id, &[member]).await?;
        shards_free(tx, id, Some(member), ShardSet::ALL).await?;
    }
    tx.execute(sql!("ownership/member/member_leave"), &[&member.0], "forget a member").await.map(drop)
}

/// Refuses a member that has been forgotten: whatever it takes would be free for all at once.
pub(crate) async fn member_check(tx: &Tx<'_>, member: MemberId) -> Result<()> {
    let what = "look this member up";
    let known = tx.query_one(sql!("ownership/member/member_exists"), &[&member.0], what).await?;
    if known.try_get(0).doing(what)? { Ok(()) } else { Err(member_is_forgotten(member)) }
}
