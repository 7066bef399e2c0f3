//! Positions as they are stored: complete in themselves, appended, the newest of each shard counts.

use std::sync::Arc;

use postrider_core::log::{ShardPosition, Snapshot, Tick, Window, XidBound, XidBounds};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, EventId, Result, Shard, ShardSet};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::Doing;
use crate::server::session::Tx;
use crate::server::values::{SnapshotValue, XidValue};

/// Shards of a subscription. Part of the stored format.
pub const SHARDS: u16 = 64;

/// A position as it is written.
pub(crate) struct NewPosition {
    subscription: i64,
    shards: i64,
    from: Option<SnapshotValue>,
    to: SnapshotValue,
    next_xid: XidValue,
    seq: i64,
    bound_xids: Vec<XidValue>,
    bound_seqs: Vec<i64>,
    last_id: i64,
}

impl NewPosition {
    pub(crate) fn new(subscription: SubscriptionId, place: &ShardPosition) -> Self {
        let ShardPosition { shards, window, last_id } = place;
        let to = &window.to;
        let (bound_xids, bound_seqs) =
            to.xid_bounds.bounds().iter().map(|bound| (XidValue(bound.next_xid), bound.seq)).unzip();
        Self {
            subscription: subscription.0,
            shards: shards.0 as i64,
            from: (!window.ends_at(*last_id)).then(|| SnapshotValue(window.from.snapshot.clone())),
            to: SnapshotValue(to.snapshot.clone()),
            next_xid: XidValue(to.bound.next_xid),
            seq: to.seq(),
            bound_xids,
            bound_seqs,
            last_id: last_id.0,
        }
    }

    /// For `position_put`. The transaction must have no xid yet that is older than the window's end: it
    /// begins after the window was read, or takes its first xid there.
    pub(crate) fn parameters(&self) -> [&(dyn ToSql + Sync); 9] {
        [
            &self.subscription,
            &self.shards,
            &self.from,
            &self.to,
            &self.next_xid,
            &self.seq,
            &self.bound_xids,
            &self.bound_seqs,
            &self.last_id,
        ]
    }
}

/// Appends a position.
pub(crate) async fn position_put(
    tx: &Tx<'_>,
    subscription: SubscriptionId,
    place: &ShardPosition,
) -> Result<()> {
    let position = NewPosition::new(subscription, place);
    tx.execute(sql!("settle/position/position_put"), &position.parameters(), "write a position")
        .await
        .map(drop)
}

/// Where each of a subscription's shards stands. Shards that stand at one place share it.
pub(crate) async fn position_newest(
    tx: &Tx<'_>,
    subscription: SubscriptionId,
    shard_count: u16,
) -> Result<Vec<Arc<ShardPosition>>> {
    let what = "read the positions";
    let mut places: Vec<Option<Arc<ShardPosition>>> = vec![None; usize::from(shard_count)];
    let mut below = i64::MAX;
    while places.iter().any(Option::is_none) {
        let rows = tx.query(sql!("settle/position/position_list"), &[&subscription.0, &below], what).await?;
        let Some(last) = rows.last() else { break };
        below = last.try_get(0).doing(what)?;
        for row in &rows {
            let found = Arc::new(position_read(row).doing(what)?);
            for (index, place) in places.iter_mut().enumerate() {
                if place.is_none() && found.shards.contains(Shard(index as u16)) {
                    *place = Some(Arc::clone(&found));
                }
            }
        }
    }
    places.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "a shard has no position: was a table emptied by hand? Seek to one")
    })
}

/// Puts those of some shards together that stand at the same place.
pub(crate) fn positions_apart(
    places: &[Arc<ShardPosition>],
    shards: impl IntoIterator<Item = Shard>,
) -> Vec<ShardPosition> {
    let mut groups: Vec<(&Arc<ShardPosition>, ShardSet)> = Vec::new();
    for shard in shards {
        let Some(place) = places.get(usize::from(shard.0)) else { continue };
        match groups.iter_mut().find(|(at, _)| Arc::ptr_eq(at, place)) {
            Some((_, group)) => group.insert(shard),
            None => groups.push((place, ShardSet::of([shard]))),
        }
    }
    let place = |(at, shards): (&Arc<ShardPosition>, ShardSet)| ShardPosition {
        shards,
        window: at.window.clone(),
        last_id: at.last_id,
    };
    groups.into_iter().map(place).collect()
}

fn position_read(row: &Row) -> Result<ShardPosition, tokio_postgres::Error> {
    let from: Option<SnapshotValue> = row.try_get(2)?;
    let to: SnapshotValue = row.try_get(3)?;
    let bound = XidBound { next_xid: row.try_get::<_, XidValue>(4)?.0, seq: row.try_get(5)? };
    let xids: Vec<XidValue> = row.try_get(6)?;
    let seqs: Vec<i64> = row.try_get(7)?;
    let bounds = xids.iter().zip(seqs).map(|(xid, seq)| XidBound { next_xid: xid.0, seq });
    let to = Arc::new(Tick { snapshot: to.0, bound, xid_bounds: XidBounds::new(bounds) });
    Ok(ShardPosition {
        shards: ShardSet(row.try_get::<_, i64>(1)? as u64),
        window: match from {
            Some(from) => Window { from: Arc::new(seen(from.0)), to },
            None => Window::at(&to),
        },
        last_id: EventId(row.try_get(8)?),
    })
}

/// A moment reduced to its snapshot. Reading goes on behind the last id, so no reader asks where the window's
/// rows begin.
fn seen(snapshot: Snapshot) -> Tick {
    Tick { snapshot, ..Tick::start() }
}
