//! Retention: emptying leaves of the ring, whole or not at all.
//!
//! What goes is decided under three locks, in this order:
//!
//! 1. Retention's own: no subscription appears or moves back meanwhile. Whoever creates one waits, and then
//!    sees the emptied log; whoever was first has a position that counts here.
//! 2. The leaf, alone. Nobody who has written to it is still at work then, so that all its rows are visible.
//!    It is waited for a moment only: behind us wait those who want this leaf, whom nobody should notice.
//!    Producers write elsewhere.
//! 3. Then *every* row must be old and covered by every position, whatever its id: a transaction may have
//!    drawn its id turns ago and come here late. One that has drawn its id and not come yet finds an empty
//!    leaf, and is read from it.
//!
//! Settles go on beside it. A position that is visible was committed with the exceptions that it leaves
//! behind, so that they are seen too when it is; positions move back only under the first lock. An event that
//! an exception needs is copied before its leaf goes, so that one that is due in a month does not keep a
//! month of others.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::log::ShardPosition;
use postrider_core::store::Pruned;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{ErrorKind, EventId, Result, Timestamp, limits};
use tracing::{debug, warn};

use crate::admin::event::{LogEnd, log_end};
use crate::admin::subscription::subscription_list;
use crate::error::Doing;
use crate::log::turn::Turn;
use crate::ownership::lock::{LOCK_TIMEOUT, lock_retention};
use crate::queue::letters::block_open;
use crate::retention::ring::{Rotation, leaf_is_empty, ring_rotate};
use crate::server::link::Link;
use crate::server::session::Tx;
use crate::server::values::{At, SnapshotValue};
use crate::settle::position::{SHARDS, position_newest};
use crate::settle::position_swap::position_swap;

/// Rows of queues whose events are copied out of a leaf; more of them keep it.
const QUEUED_KEPT_MAX: i64 = 10_000;

const WHAT: &str = "empty a leaf";

/// One bite of retention: turns the ring if it is time to, empties one leaf at the most, and removes some of what was
/// kept of others.
pub(crate) async fn prune(link: &Link, retention: Duration) -> Result<Pruned> {
    position_swap(link).await?;
    let rotation = ring_rotate(link, retention).await?;
    let emptied = ring_empty(link, retention).await?;
    if rotation == Rotation::Full && !emptied.any {
        let subscription = emptied.pinned_by.as_deref().unwrap_or("(none)");
        warn!(
            subscription,
            "every leaf of the log is in use, so that the current one grows: the oldest is pinned by this subscription, \
             or by a transaction that is open, or is younger than the retention"
        );
    }
    let kept = kept_event_prune(link, retention).await?;
    Ok(Pruned {
        removed: emptied.removed + kept,
        more: emptied.any || kept == limits::PRUNE_ROWS_MAX as u64,
        pinned_by: emptied.pinned_by,
    })
}

/// What a look at all leaves has come to.
#[derive(Default)]
struct Emptied {
    /// Whether a leaf was emptied, even if all of its events were kept.
    any: bool,
    removed: u64,
    pinned_by: Option<String>,
}

/// What keeps a leaf from being emptied.
enum Verdict {
    Emptied { removed: u64 },
    Pinned { by: String },
    TooYoung,
    Busy,
}

/// Empties the first leaf that can be, in the order of their use, but for the current one. One that cannot is passed
/// over: it may hold a single late row, and the others should not wait for that.
async fn ring_empty(link: &Link, retention: Duration) -> Result<Emptied> {
    let mut emptied = Emptied::default();
    for leaf in leaves_in_use(link).await? {
        match leaf_empty(link, leaf, retention).await? {
            Verdict::Emptied { removed } => {
                return Ok(Emptied { any: true, removed, ..emptied });
            }
            Verdict::Pinned { by } => {
                emptied.pinned_by.get_or_insert(by);
            }
            Verdict::TooYoung => {}
            Verdict::Busy => debug!(leaf, "somebody uses an old leaf; it is emptied another time"),
        }
    }
    Ok(emptied)
}

/// The leaves that hold something, oldest first, without the current one.
async fn leaves_in_use(link: &Link) -> Result<Vec<u8>> {
    let mut session = link.session().await?;
    let tx = session.begin().await?;
    let current = Turn::of(log_end(&tx).await?.issued);
    let mut leaves = Vec::new();
    for leaf in current.other_leaves() {
        if !leaf_is_empty(&tx, leaf).await? {
            leaves.push(leaf);
        }
    }
    Ok(leaves)
}

/// Empties a leaf if it may go.
async fn leaf_empty(link: &Link, leaf: u8, retention: Duration) -> Result<Verdict> {
    let mut session = link.session().await?;
    let tx = session.begin().await?;
    lock_retention(&tx).await?;
    let end = log_end(&tx).await?;
    let cutoff = end.now.before(retention);
    if Turn::of(end.issued).leaf() == leaf {
        // Another relay has turned the ring since.
        return Ok(Verdict::Busy);
    }
    let pins = Pins::read(&tx).await?;
    // First what is cheap and takes no lock, and tells nearly always.
    if let Some(unread) = pins.ahead_in(&tx, leaf, &end).await? {
        return Ok(unread.verdict(cutoff));
    }
    let newest = tx.query_opt(sql!("retention/leaf_newest").on_leaf(leaf), &[], WHAT).await?;
    let newest = newest.map(|row| row.try_get::<_, At>(0)).transpose().doing(WHAT)?;
    if newest.is_none_or(|At(created_at)| created_at >= cutoff) {
        return Ok(Verdict::TooYoung);
    }
    tx.run(LOCK_TIMEOUT, WHAT).await?;
    match tx.execute(sql!("retention/leaf_lock").on_leaf(leaf), &[], WHAT).await {
        Err(error) if error.kind() == ErrorKind::Busy => return Ok(Verdict::Busy),
        locked => locked?,
    };
    // Now that nobody wants this leaf any more who was there before us, rows of other tables may be waited for.
    tx.run("set local lock_timeout = '5s'", WHAT).await?;
    let verdict = match leaf_go(&tx, leaf, cutoff).await {
        Err(error) if error.kind() == ErrorKind::Busy => return Ok(Verdict::Busy),
        verdict => verdict?,
    };
    if let Verdict::Emptied { removed } = verdict {
        tx.commit(WHAT).await?;
        debug!(leaf, removed, "a leaf of the log was emptied");
    }
    Ok(verdict)
}

/// Empties a leaf that is locked, unless a row of it must stay.
async fn leaf_go(tx: &Tx<'_>, leaf: u8, cutoff: Timestamp) -> Result<Verdict> {
    let row = tx.query_one(sql!("retention/leaf_count").on_leaf(leaf), &[], WHAT).await?;
    let rows = row.try_get::<_, i64>(0).doing(WHAT)? as u64;
    let youngest = row.try_get::<_, Option<At>>(1).doing(WHAT)?;
    if youngest.is_some_and(|At(created_at)| created_at >= cutoff) {
        return Ok(Verdict::TooYoung);
    }
    let pins = Pins::read(tx).await?;
    if let Some(unread) = pins.anywhere_in(tx, leaf).await? {
        return Ok(unread.verdict(cutoff));
    }
    if let Some(verdict) = queues_keep(tx, leaf).await? {
        return Ok(verdict);
    }
    let kept = tx.query_one(sql!("retention/leaf_keep").on_leaf(leaf), &[], WHAT).await?;
    let kept = kept.try_get::<_, i64>(0).doing(WHAT)? as u64;
    tx.execute(sql!("retention/leaf_forget").on_leaf(leaf), &[], WHAT).await?;
    tx.execute(sql!("retention/leaf_truncate").on_leaf(leaf), &[], WHAT).await?;
    Ok(Verdict::Emptied { removed: rows.saturating_sub(kept) })
}

/// Prepares queues for the end of a leaf: a few of its events are kept, each by a row of its own, and many
/// keep their leaf.
async fn queues_keep(tx: &Tx<'_>, leaf: u8) -> Result<Option<Verdict>> {
    let rows =
        tx.query(sql!("retention/queued_in_leaf").on_leaf(leaf), &[&(QUEUED_KEPT_MAX + 1)], WHAT).await?;
    if rows.len() as i64 > QUEUED_KEPT_MAX {
        return Ok(Some(Verdict::Pinned { by: rows[0].try_get(0).doing(WHAT)? }));
    }
    for row in &rows {
        let id = SubscriptionId(row.try_get(1).doing(WHAT)?);
        let event = EventId(row.try_get(2).doing(WHAT)?);
        let pairs: Option<Vec<i64>> = row.try_get(4).doing(WHAT)?;
        if pairs.is_some() && !block_open(tx, id, event, pairs).await? {
            return Ok(Some(Verdict::Busy));
        }
    }
    Ok(None)
}

/// Where all shards of all subscriptions stand, paused ones included: what is not behind every one of these stays.
struct Pins(Vec<(String, Arc<ShardPosition>)>);

impl Pins {
    async fn read(tx: &Tx<'_>) -> Result<Self> {
        let mut pins: Vec<(String, Arc<ShardPosition>)> = Vec::new();
        for subscription in subscription_list(tx).await? {
            for position in position_newest(tx, subscription.id, SHARDS).await? {
                // Shards that stand at one place share it.
                if !pins.iter().any(|(_, known)| Arc::ptr_eq(known, &position)) {
                    pins.push((subscription.name.clone(), position));
                }
            }
        }
        Ok(Self(pins))
    }

    /// Which subscription has not read a row of the leaf yet. The bounds say where unread rows can lie, so that few
    /// rows are read even if a leaf is pinned for weeks.
    async fn ahead_in(&self, tx: &Tx<'_>, leaf: u8, end: &LogEnd) -> Result<Option<Unread>> {
        let floor = |position: &ShardPosition| {
            let floor = position.window.to.lowest(&end.snapshot);
            if position.window.ends_at(position.last_id) { floor } else { floor.min(position.last_id.0) }
        };
        self.first_in(tx, leaf, floor).await
    }

    /// Who has not read a row of the leaf yet, wherever it lies.
    async fn anywhere_in(&self, tx: &Tx<'_>, leaf: u8) -> Result<Option<Unread>> {
        self.first_in(tx, leaf, |_| i64::MIN).await
    }

    /// The oldest of the first rows that the positions do not cover, each above its floor.
    async fn first_in(
        &self,
        tx: &Tx<'_>,
        leaf: u8,
        floor: impl Fn(&ShardPosition) -> i64,
    ) -> Result<Option<Unread>> {
        let mut oldest: Option<Unread> = None;
        for (name, position) in &self.0 {
            let Some(created_at) = first_uncovered(tx, leaf, floor(position), position).await? else {
                continue;
            };
            if oldest.as_ref().is_none_or(|known| created_at < known.created_at) {
                oldest = Some(Unread { by: name.clone(), created_at });
            }
        }
        Ok(oldest)
    }
}

/// An event that a subscription has not read.
struct Unread {
    by: String,
    created_at: Timestamp,
}

impl Unread {
    /// It keeps its leaf from going; a young one would have stayed without it.
    fn verdict(self, cutoff: Timestamp) -> Verdict {
        if self.created_at < cutoff { Verdict::Pinned { by: self.by } } else { Verdict::TooYoung }
    }
}

/// When the first event of a leaf above `above` was emitted that a position does not cover.
async fn first_uncovered(
    tx: &Tx<'_>,
    leaf: u8,
    above: i64,
    position: &ShardPosition,
) -> Result<Option<Timestamp>> {
    let window = &position.window;
    let from = (!window.ends_at(position.last_id)).then(|| SnapshotValue(window.from.snapshot.clone()));
    let to = SnapshotValue(window.to.snapshot.clone());
    let sql = sql!("retention/leaf_uncovered").on_leaf(leaf);
    let row = tx.query_opt(sql, &[&above, &to, &from, &position.last_id.0], WHAT).await?;
    Ok(row.map(|row| row.try_get::<_, At>(0)).transpose().doing(WHAT)?.map(|At(created_at)| created_at))
}

/// Removes a bite of what was kept for exceptions that are gone.
async fn kept_event_prune(link: &Link, retention: Duration) -> Result<u64> {
    let what = "remove kept events";
    let mut session = link.session().await?;
    let tx = session.begin().await?;
    lock_retention(&tx).await?;
    let cutoff = At(log_end(&tx).await?.now.before(retention));
    let row = tx
        .query_one(sql!("retention/kept_event_prune"), &[&cutoff, &(limits::PRUNE_ROWS_MAX as i64)], what)
        .await?;
    let removed = row.try_get::<_, i64>(0).doing(what)? as u64;
    tx.commit(what).await?;
    Ok(removed)
}
