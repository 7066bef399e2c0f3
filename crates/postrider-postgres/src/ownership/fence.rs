//! Does the caller still own what it thinks it owns?
//!
//! A subscription's `fence` grows with every change of owner, pause or resume. An owner that finds it as it knew
//! it needs to look no further; otherwise it looks at every shard that it holds.

use postrider_core::settle::Hold;
use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::server::session::{Session, Tx};

const WHAT: &str = "check who owns the subscription";

/// What an owner learns about its subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) fence: i64,
    pub(crate) paused: bool,
}

/// The standing in two columns; none if the subscription is gone.
pub(crate) fn standing_read(row: &Row, first: usize) -> Result<Option<Standing>, tokio_postgres::Error> {
    let Some(fence) = row.try_get(first)? else { return Ok(None) };
    Ok(Some(Standing { fence, paused: row.try_get(first + 1)? }))
}

/// The standing of a subscription as one statement sees it.
pub(crate) async fn standing(session: &Session, hold: &Hold) -> Result<Option<Standing>> {
    let rows = session.query(sql!("ownership/fence/fence"), &[&hold.subscription.id.0], WHAT).await?;
    rows.first().map_or(Ok(None), |row| standing_read(row, 0)).doing(WHAT)
}

/// Looks at every shard of a hold whose fence has moved.
pub(crate) async fn look_again(session: &Session, hold: &Hold) -> Result<Standing> {
    judge(hold, &session.query(sql!("ownership/fence/fence_shards"), &[&hold.subscription.id.0], WHAT).await?)
}

/// Refuses an owner that has lost a shard since. The subscription's lock is held, so no other member
/// can take over before the transaction ends.
pub(crate) async fn fence(tx: &Tx<'_>, hold: &Hold, known: i64) -> Result<Standing> {
    let row = tx.query_opt(sql!("ownership/fence/fence"), &[&hold.subscription.id.0], WHAT).await?;
    match row.as_ref().map_or(Ok(None), |row| standing_read(row, 0)).doing(WHAT)? {
        Some(standing) if standing.fence == known => Ok(standing),
        _ => judge(
            hold,
            &tx.query(sql!("ownership/fence/fence_shards"), &[&hold.subscription.id.0], WHAT).await?,
        ),
    }
}

fn judge(hold: &Hold, rows: &[Row]) -> Result<Standing> {
    let mut matching = 0;
    let mut standing = None;
    for row in rows {
        let shard = row.try_get::<_, i16>(0).doing(WHAT)? as u16;
        let member: Option<i64> = row.try_get(1).doing(WHAT)?;
        let epoch: i64 = row.try_get(2).doing(WHAT)?;
        standing = standing_read(row, 3).doing(WHAT)?;
        let held = hold.shards.iter().find(|held| held.shard.0 == shard);
        if held.is_some_and(|held| member == Some(hold.member.0) && epoch == held.epoch.0) {
            matching += 1;
        }
    }
    match standing {
        Some(standing) if matching == hold.shards.len() && matching > 0 => Ok(standing),
        _ => Err(lost(hold)),
    }
}

/// The error of an owner that is none any more.
pub(crate) fn lost(hold: &Hold) -> Error {
    Error::new(
        ErrorKind::Fenced,
        format!(
            "subscription `{}` is no longer held by this member: it was taken over, moved or deleted, or the \
             connection under which it was taken is gone",
            hold.subscription.name
        ),
    )
}
