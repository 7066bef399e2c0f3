//! Turning the ring: when the log goes on in the next leaf.
//!
//! ```text
//!          last turn's end ┐     ┌ current: producers write here
//!    …  [ 3 ] [ 4 ] [ 5 ] [ 6 ] [ 7 ] [ 8 ] [ 9 ]  …      16 leaves, a circle
//!      emptied when old, oldest first   └ next: must be empty
//! ```
//!
//! Any relay may turn it, one at a time. Producers notice nothing: their next id lies further on. If no
//! relay turns it, for a week or because a subscription pins the next leaf, the current one grows, and nothing
//! else happens.

use std::time::Duration;

use postrider_core::Result;
use tracing::debug;

use crate::admin::event::log_end;
use crate::error::Doing;
use crate::log::turn::Turn;
use crate::ownership::lock::lock_retention;
use crate::server::link::Link;
use crate::server::session::Tx;
use crate::server::values::At;

/// Turns of a retention: with some leaves to spare, an old one is always empty before its turn comes again.
const TURNS_OF_RETENTION: u32 = 14;

/// What a leaf may take on disk with its index before it is turned whatever its age.
const LEAF_BYTES_MAX: i64 = 8 << 30;

/// What became of a look at the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    /// It is not time yet.
    NotDue,
    /// The log goes on in the next leaf.
    Turned,
    /// It is time, but the next leaf is not empty.
    Full,
}

/// Turns the ring if it is time to.
pub(crate) async fn ring_rotate(link: &Link, retention: Duration) -> Result<Rotation> {
    let mut session = link.session().await?;
    let tx = session.begin().await?;
    lock_retention(&tx).await?;
    let end = log_end(&tx).await?;
    let turn = Turn::of(end.issued);
    let what = "look at the current leaf";
    let row = tx.query_one(sql!("retention/ring_look").on_leaf(turn.leaf()), &[], what).await?;
    let filled_since = row.try_get::<_, Option<At>>(0).doing(what)?;
    let bytes: i64 = row.try_get(1).doing(what)?;
    let Some(At(filled_since)) = filled_since else { return Ok(Rotation::NotDue) };
    let is_old = end.now >= filled_since.after(retention / TURNS_OF_RETENTION);
    if !is_old && bytes < LEAF_BYTES_MAX {
        return Ok(Rotation::NotDue);
    }
    if !leaf_is_empty(&tx, turn.next().leaf()).await? {
        return Ok(Rotation::Full);
    }
    let what = "turn the ring";
    let turned = tx.query_one(sql!("retention/ring_rotate"), &[&turn.number()], what).await?;
    let is_turned: bool = turned.try_get(0).doing(what)?;
    tx.commit(what).await?;
    if !is_turned {
        return Ok(Rotation::NotDue);
    }
    debug!(turn = turn.next().number(), leaf = turn.next().leaf(), "the log goes on in the next leaf");
    Ok(Rotation::Turned)
}

/// Whether a leaf holds nothing that is visible. A row that is not visible yet does no harm in a leaf that is used
/// again: readers ask for ids, and a leaf is emptied only when all of its rows may go, of whatever turn.
pub(crate) async fn leaf_is_empty(tx: &Tx<'_>, leaf: u8) -> Result<bool> {
    let what = "look at a leaf";
    tx.query_one(sql!("retention/leaf_is_empty").on_leaf(leaf), &[], what).await?.try_get(0).doing(what)
}
