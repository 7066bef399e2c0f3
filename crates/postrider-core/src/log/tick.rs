//! Moments of the log, and what became visible between two of them.

use std::sync::Arc;

use super::snapshot::{Snapshot, Xid};
use super::xid_bounds::{XidBound, XidBounds};
use crate::event::EventId;

/// A place in the server's write-ahead log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Behind all that will ever be written: what is not known to be flushed is not.
    pub const BEYOND: Self = Self(u64::MAX);
}

/// What one look at the server read, in this order: the order is what makes it true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What was visible.
    pub snapshot: Snapshot,
    /// The last id that the sequence had issued; 0 before the first.
    pub seq: i64,
    /// The next xid that the server was to issue. Read after `seq`.
    pub next_xid: Xid,
    /// How far the write-ahead log had been written when the snapshot had been taken.
    pub inserted: Lsn,
    /// How far it was flushed.
    pub flushed: Lsn,
}

/// A moment of the log: what was visible, and how to find what becomes visible later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tick {
    /// What was visible.
    pub snapshot: Snapshot,
    /// This moment's own bound.
    pub bound: XidBound,
    /// The bounds below transactions that may still become visible, this moment's own included if a probe has found it.
    pub xid_bounds: XidBounds,
}

impl Tick {
    /// Before the first event.
    pub fn start() -> Self {
        Self::after_nothing(Snapshot::empty(), XidBound { next_xid: Xid::FIRST, seq: 0 })
    }

    /// The moment of a probe, without the memory of earlier ones: rows of a transaction that runs now are
    /// looked for from the beginning.
    pub fn fresh(probe: &Probe) -> Self {
        Self::after_nothing(probe.snapshot.clone(), probe.bound())
    }

    fn after_nothing(snapshot: Snapshot, bound: XidBound) -> Self {
        Self { snapshot, bound, xid_bounds: XidBounds::new([bound]) }
    }

    /// The moment of a probe that was made after this one. What was decoded before it became visible stays seen.
    #[must_use]
    pub fn next(&self, probe: &Probe) -> Self {
        let snapshot = if probe.snapshot.covers(&self.snapshot) {
            probe.snapshot.clone()
        } else {
            probe.snapshot.union(&self.snapshot)
        };
        let xid_bounds = self.xid_bounds.climb(probe.bound(), &snapshot);
        let bound = if self.seq() <= probe.seq { probe.bound() } else { nothing_later_than(self.seq()) };
        Self { snapshot, bound, xid_bounds }
    }

    /// The moment at which these transactions, too, are known to have committed, of which none has an id
    /// above `last_id`: they were decoded from the write-ahead log. See `log.rs`.
    #[must_use]
    pub fn decoded(&self, xids: &[Xid], last_id: EventId) -> Self {
        let bound = if last_id.0 <= self.seq() { self.bound } else { nothing_later_than(last_id.0) };
        Self { snapshot: self.snapshot.with(xids), bound, xid_bounds: self.xid_bounds.clone() }
    }

    /// The moment at which everything is seen that one of two moments sees. Bounds are facts, no matter
    /// which reader found them, so that those of the later one serve for both: of whatever neither sees, it
    /// has kept what it needs.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let later = if self.seq() >= other.seq() { self } else { other };
        Self {
            snapshot: self.snapshot.union(&other.snapshot),
            bound: later.bound,
            xid_bounds: later.xid_bounds.clone(),
        }
    }

    /// The last id that had been issued: every row that was visible is at or below it.
    pub fn seq(&self) -> i64 {
        self.bound.seq
    }

    /// What became visible since this moment and is seen by `later` has ids above this.
    ///
    /// Candidates are the transactions that had an xid and were not visible: the running ones, and those
    /// from xmax up to the next xid. Of the latter the first that `later` sees decides, since floors rise.
    pub fn lowest(&self, later: &Snapshot) -> i64 {
        let resolved = |xid: Xid| later.sees(xid);
        let running = self.snapshot.running().iter().copied().find(|xid| resolved(*xid));
        // Ends at the latest behind the transactions that `later` says are running.
        let unknown = (self.snapshot.xmax().0..self.bound.next_xid.0.min(later.xmax().0))
            .map(Xid)
            .find(|xid| resolved(*xid));
        let floors = running.into_iter().chain(unknown).map(|xid| self.xid_bounds.floor(xid));
        floors.fold(self.seq(), i64::min)
    }

    /// Whether anything may have become visible since.
    pub fn is_outdated_by(&self, probe: &Probe) -> bool {
        probe.seq > self.seq() || self.lowest(&probe.snapshot) < self.seq()
    }

    /// Where to begin reading so that all late transactions but those of long ago are met: at most `reach`
    /// ids below the last one.
    pub fn eager_lowest(&self, reach: i64) -> i64 {
        let floors = self.snapshot.running().iter().map(|xid| self.xid_bounds.floor(*xid));
        let unknown = self.xid_bounds.floor(self.snapshot.xmax());
        let near = |floor: &i64| *floor >= self.seq().saturating_sub(reach);
        floors.chain([unknown]).filter(near).fold(self.seq(), i64::min)
    }
}

impl Probe {
    /// The fact that this probe found.
    pub fn bound(&self) -> XidBound {
        XidBound { next_xid: self.next_xid, seq: self.seq }
    }

    /// Whether everything that was visible had reached the disk.
    pub fn is_flushed(&self) -> bool {
        self.flushed >= self.inserted
    }
}

/// The bound of a moment that no probe has found: true, since no xid is that large, and of no use to others.
/// Only how far its ids go is known.
fn nothing_later_than(seq: i64) -> XidBound {
    XidBound { next_xid: Xid(i64::MAX as u64), seq }
}

/// What became visible between two ticks, the first of which is the earlier.
#[derive(Debug, Clone)]
pub struct Window {
    /// Before it.
    pub from: Arc<Tick>,
    /// At its end.
    pub to: Arc<Tick>,
}

impl Window {
    /// The window that holds nothing and stands at `tick`.
    pub fn at(tick: &Arc<Tick>) -> Self {
        Self { from: Arc::clone(tick), to: Arc::clone(tick) }
    }

    /// Its rows have ids above this.
    pub fn lowest(&self) -> i64 {
        self.from.lowest(&self.to.snapshot)
    }

    /// Whether a row of this xid belongs to it.
    pub fn holds(&self, xid: Xid) -> bool {
        self.to.snapshot.sees(xid) && !self.from.snapshot.sees(xid)
    }

    /// The transactions whose rows in it may lie at or below the last id of the moment before it: those that ran or
    /// had begun then, and are visible at its end. None if there are more than `max`.
    pub fn stragglers(&self, max: usize) -> Option<Vec<Xid>> {
        let (from, to) = (&self.from, &self.to.snapshot);
        let unknown = from.snapshot.xmax().0..from.bound.next_xid.0.min(to.xmax().0);
        let begun = from.snapshot.running().iter().copied().chain(unknown.map(Xid));
        // Bounds what is looked at too: subtransactions may have taken a million xids.
        let found: Vec<Xid> = begun.filter(|xid| to.sees(*xid)).take(max.saturating_add(1)).collect();
        (found.len() <= max).then_some(found)
    }

    /// Whether reading it up to `last_id` has read all of it.
    pub fn ends_at(&self, last_id: EventId) -> bool {
        last_id.0 >= self.to.seq()
    }

    /// Whether a row lies behind the position that has read this window up to `last_id`. The one rule
    /// behind resuming, shards that stand at different places, and readers that share their memory.
    pub fn covers(&self, xid: Xid, id: EventId, last_id: EventId) -> bool {
        self.from.snapshot.sees(xid) || (self.to.snapshot.sees(xid) && id <= last_id)
    }
}
