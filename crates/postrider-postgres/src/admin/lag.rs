//! How much of the log lies ahead of a position.
//!
//! ```text
//!   ids    lowest ─────────── floor ────────────────────── end of the log
//!            late transactions  │  everything, or what the window has left
//! ```
//!
//! Above the floor (the last id of the position's moment, or the last that was read of its window) next to
//! all events are ahead. Below it only those of transactions that were late; the bounds say how far down
//! they can lie. The events are counted one by one as far as that is cheap, which is where an idle
//! subscription or one that keeps up ends; beyond that, their ids are subtracted, turn by turn, since ids
//! jump where the ring turns. What a filter passes over does not count; beyond what was looked at, the share
//! counts that it wanted there.

use postrider_core::log::ShardPosition;
use postrider_core::{EventId, Filter, Result, Timestamp};
use tokio_postgres::Row;

use crate::admin::event::{LogEnd, event_newest, event_oldest};
use crate::error::Doing;
use crate::log::turn::{Stretch, stretches};
use crate::server::session::Tx;
use crate::server::values::{At, SnapshotValue};

/// Events that are looked at one by one.
pub(crate) const COUNT_MAX: i64 = 100_000;

/// What lies ahead of a position.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) events: u64,
    /// When the oldest of them was emitted.
    pub(crate) oldest_at: Option<Timestamp>,
}

/// The position that covers the least. Positions of one subscription lie close together, so that it does not matter
/// much that late transactions make two of them cover what the other does not.
pub(crate) fn least_advanced<'a>(
    positions: impl IntoIterator<Item = &'a ShardPosition>,
) -> Option<&'a ShardPosition> {
    positions.into_iter().min_by_key(|position| {
        let to = &position.window.to;
        (floor(position), to.bound.next_xid, to.snapshot.xmin())
    })
}

/// What is counted of a log.
pub(crate) struct Counted<'a> {
    pub(crate) end: &'a LogEnd,
    /// Ids below this.
    pub(crate) before: EventId,
    /// What this wants; all if there is none.
    pub(crate) filter: Option<&'a Filter>,
}

/// Counts what `position` does not cover.
pub(crate) async fn events_ahead(
    tx: &Tx<'_>,
    position: &ShardPosition,
    counted: Counted<'_>,
) -> Result<Ahead> {
    let Counted { end, before, filter } = counted;
    let floor = floor(position);
    let lowest = floor.min(position.window.to.lowest(&end.snapshot));
    let up_to = before.0.saturating_sub(1);
    let mut ahead = Ahead::default();
    let mut unfiltered = 0;
    let mut left = COUNT_MAX;
    let mut cut_at = None;
    for stretch in stretches(lowest, up_to, end.issued) {
        let looked = look(tx, position, stretch, left, filter).await?;
        unfiltered += looked.unfiltered;
        ahead.add(looked.events, looked.oldest_at);
        left -= looked.count;
        if left <= 0 {
            cut_at = looked.reached;
            break;
        }
    }
    if let Some(cut_at) = cut_at {
        let share = filter.map_or((1, 1), |_| (ahead.events.max(1), unfiltered.max(1)));
        for stretch in stretches(cut_at.max(floor), up_to, end.issued) {
            estimate(tx, stretch, share, &mut ahead).await?;
        }
    }
    Ok(ahead)
}

/// Above this next to all events are ahead.
fn floor(position: &ShardPosition) -> i64 {
    if is_within_window(position) { position.last_id.0 } else { position.window.to.seq() }
}

fn is_within_window(position: &ShardPosition) -> bool {
    !position.window.ends_at(position.last_id)
}

impl Ahead {
    fn add(&mut self, events: u64, oldest_at: Option<Timestamp>) {
        self.events = self.events.saturating_add(events);
        self.oldest_at = self.oldest_at.into_iter().chain(oldest_at).min();
    }
}

/// What was seen of a stretch.
#[derive(Default)]
struct Looked {
    count: i64,
    reached: Option<i64>,
    /// Those ahead, wanted or not.
    unfiltered: u64,
    events: u64,
    oldest_at: Option<Timestamp>,
}

async fn look(
    tx: &Tx<'_>,
    position: &ShardPosition,
    stretch: Stretch,
    most: i64,
    filter: Option<&Filter>,
) -> Result<Looked> {
    let what = "count events";
    let window = &position.window;
    let from = is_within_window(position).then(|| SnapshotValue(window.from.snapshot.clone()));
    let rows = tx
        .query(
            sql!("admin/lag/event_uncovered").on_leaf(stretch.turn.leaf()),
            &[
                &stretch.above,
                &stretch.up_to,
                &most,
                &SnapshotValue(window.to.snapshot.clone()),
                &from,
                &position.last_id.0,
            ],
            what,
        )
        .await?;
    let mut looked = Looked::default();
    rows.iter().try_for_each(|row| looked.add(row, filter)).doing(what)?;
    Ok(looked)
}

impl Looked {
    /// Adds the events of one topic and type.
    fn add(&mut self, row: &Row, filter: Option<&Filter>) -> Result<(), tokio_postgres::Error> {
        let (topic, kind): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        let events = row.try_get::<_, i64>(4)? as u64;
        self.count += row.try_get::<_, i64>(2)?;
        self.reached = self.reached.max(row.try_get(3)?);
        self.unfiltered += events;
        if filter.is_none_or(|filter| filter.matches(topic, kind)) {
            self.events += events;
            let oldest_at = row.try_get::<_, Option<At>>(5)?.map(|at| at.0);
            self.oldest_at = self.oldest_at.into_iter().chain(oldest_at).min();
        }
        Ok(())
    }
}

/// Takes all ids of a stretch for events, from its first to its last, and counts a share of them.
async fn estimate(tx: &Tx<'_>, stretch: Stretch, share: (u64, u64), ahead: &mut Ahead) -> Result<()> {
    let Some((newest, _)) = event_newest(tx, stretch).await? else { return Ok(()) };
    let Some((oldest, oldest_at)) = event_oldest(tx, stretch).await? else { return Ok(()) };
    let events = (newest.0 - oldest.0 + 1) as u128 * u128::from(share.0) / u128::from(share.1);
    ahead.add(u64::try_from(events).unwrap_or(u64::MAX).max(1), Some(oldest_at));
    Ok(())
}
