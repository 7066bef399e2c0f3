//! Places in the log that people name, as windows.
//!
//! | place | window | read next |
//! |---|---|---|
//! | oldest | stands before the first event | everything |
//! | now | stands at the present moment | what becomes visible later, whatever its id |
//! | id, time | from the first event to the present moment, read up to the id before | what is visible now with a larger id, and what becomes visible later |
//!
//! A subscription that is *moved* to an id or a time may have its window end earlier, where its old one did,
//! so that it loses nothing that it has not read: see [`ShardPosition::moved`].

use std::sync::Arc;

use postrider_core::log::{Probe, ShardPosition, Tick, Window, XidBound, XidBounds};
use postrider_core::{Error, EventId, Position, Result, ShardSet, Start, Timestamp};
use tokio_postgres::Row;

use crate::admin::event::{event_newest, event_oldest};
use crate::error::Doing;
use crate::log::probe::probe;
use crate::log::turn::{Stretch, stretches};
use crate::server::session::Tx;
use crate::server::values::XidValue;

/// Subscriptions that are asked what they know about late transactions.
const TEACHERS_MAX: i64 = 32;

/// Where a subscription begins, or is moved to.
pub(crate) struct Place {
    pub(crate) window: Window,
    pub(crate) last_id: EventId,
}

impl Place {
    /// The same of all shards of a subscription.
    pub(crate) fn of_all(&self) -> ShardPosition {
        ShardPosition { shards: ShardSet::ALL, window: self.window.clone(), last_id: self.last_id }
    }

    /// The same for shards that stood somewhere before.
    pub(crate) fn of_moved(&self, start: Start, stood: &[ShardPosition]) -> Vec<ShardPosition> {
        if matches!(start, Start::Oldest | Start::Now) {
            return vec![self.of_all()];
        }
        let mut places: Vec<ShardPosition> = Vec::new();
        for moved in stood.iter().map(|stood| stood.moved(self.last_id, &self.window.to)) {
            // Shards whose windows end at one moment stand at one place from now on.
            match places.iter_mut().find(|place| place.window.to == moved.window.to) {
                Some(place) => place.shards = place.shards.union(moved.shards),
                None => places.push(moved),
            }
        }
        places
    }

    /// The place as people see it.
    pub(crate) fn position(&self) -> Position {
        Position::START.at(self.last_id)
    }
}

/// The place from which `start` comes next. To be called under the locks that keep it true, and before the
/// transaction has written anything or called this: a transaction that stores a snapshot needs an xid younger than it,
/// and only a transaction that has neither an xid nor looked before finds the next one.
pub(crate) async fn place_of(tx: &Tx<'_>, start: Start) -> Result<Place> {
    if start == Start::Oldest {
        return Ok(Place { window: Window::at(&Arc::new(Tick::start())), last_id: EventId(0) });
    }
    let probe = probe(tx).await?;
    let issued = EventId(probe.seq);
    let first = match start {
        Start::Oldest | Start::Now => None,
        Start::Time(at) => first_since(tx, at, issued).await?,
        Start::Id(id) if id.0 > issued.0.saturating_add(1) => {
            return Err(Error::invalid(format!(
                "event {id} does not exist yet, the newest is {issued}: use `now` to begin with the next one"
            )));
        }
        Start::Id(id) => Some(id),
    };
    let now = Arc::new(present(tx, &probe).await?);
    Ok(match first {
        Some(first) if first <= issued => Place {
            window: Window { from: Arc::new(Tick::start()), to: now },
            last_id: EventId(first.0.saturating_sub(1).max(0)),
        },
        _ => Place { window: Window::at(&now), last_id: issued },
    })
}

/// The moment of a probe, with what other subscriptions know about transactions that run now. Without it their rows
/// would be looked for from the beginning of the log. Each bound is true by itself; one from beyond the probe would
/// be of another history, from before a restore.
async fn present(tx: &Tx<'_>, probe: &Probe) -> Result<Tick> {
    let what = "look at the end of the log";
    let mut known: Vec<XidBound> = Vec::new();
    for row in tx.query(sql!("admin/place/position_bounds"), &[&TEACHERS_MAX], what).await? {
        known.extend(bounds_read(&row).doing(what)?);
    }
    known.retain(|bound| bound.next_xid <= probe.next_xid && bound.seq <= probe.seq);
    known.sort_unstable_by_key(|bound| (bound.next_xid, bound.seq));
    let xid_bounds = XidBounds::new(known).climb(probe.bound(), &probe.snapshot);
    Ok(Tick { xid_bounds, ..Tick::fresh(probe) })
}

fn bounds_read(row: &Row) -> Result<Vec<XidBound>, tokio_postgres::Error> {
    let (xids, seqs): (Vec<XidValue>, Vec<i64>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(xids.iter().zip(seqs).map(|(xid, seq)| XidBound { next_xid: xid.0, seq }).collect())
}

/// The first event emitted at or after `at`. There is no index on time, since producers would pay for it; but ids
/// grow with time, as far as the clock goes forward, so that a binary search finds the place.
async fn first_since(tx: &Tx<'_>, at: Timestamp, issued: EventId) -> Result<Option<EventId>> {
    for stretch in stretches(0, issued.0, issued) {
        match event_newest(tx, stretch).await? {
            Some((newest, created_at)) if created_at >= at => {
                return bisect(tx, Stretch { up_to: newest.0, ..stretch }, at).await.map(Some);
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The same within a stretch whose last event is not before `at`.
async fn bisect(tx: &Tx<'_>, stretch: Stretch, at: Timestamp) -> Result<EventId> {
    let Some((oldest, _)) = event_oldest(tx, stretch).await? else { return Ok(EventId(stretch.up_to)) };
    // The answer lies in low..=high.
    let (mut low, mut high) = (oldest.0, stretch.up_to);
    while low < high {
        let middle = low + (high - low) / 2;
        match event_oldest(tx, Stretch { above: middle - 1, ..stretch }).await? {
            Some((id, created_at)) if created_at < at => low = id.0 + 1,
            _ => high = middle,
        }
    }
    Ok(EventId(low))
}
