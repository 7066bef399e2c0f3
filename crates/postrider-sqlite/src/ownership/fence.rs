//! Does the caller still own what it thinks it owns?

use postrider_core::settle::Hold;
use postrider_core::{Error, ErrorKind, Result};
use rusqlite::Connection;

use crate::error::Doing;

/// What an owner learns at the beginning of each call.
pub(crate) struct Standing {
    /// Whether the subscription is paused.
    pub(crate) paused: bool,
}

/// Refuses a member that has lost a shard since. In a read transaction that makes the snapshot the last
/// moment of its ownership; in a write transaction no member can take over before the commit.
pub(crate) fn fence(conn: &Connection, hold: &Hold) -> Result<Standing> {
    let mut matching = 0;
    let mut paused = false;
    let mut look = || {
        let mut shards = conn.prepare_cached(sql!("ownership/fence"))?;
        let mut rows = shards.query([hold.subscription.id.0])?;
        while let Some(row) = rows.next()? {
            let (shard, member): (u16, Option<i64>) = (row.get(0)?, row.get(1)?);
            let epoch: i64 = row.get(2)?;
            paused = row.get(3)?;
            let held = hold.shards.iter().find(|held| held.shard.0 == shard);
            if held.is_some_and(|held| member == Some(hold.member.0) && epoch == held.epoch.0) {
                matching += 1;
            }
        }
        Ok(())
    };
    look().doing("check who owns the subscription")?;
    if matching == hold.shards.len() && matching > 0 {
        return Ok(Standing { paused });
    }
    Err(Error::new(
        ErrorKind::Fenced,
        format!(
            "subscription `{}` is no longer held by this member: it was taken over, moved or deleted",
            hold.subscription.name
        ),
    ))
}
