//! Where the rows of a late transaction can lie.

use super::snapshot::{Snapshot, Xid};

/// A fact that never expires: every row of an xid at or above `next_xid` has an id above `seq`.
///
/// True of what a probe reads because it reads the sequence first and the next xid second, and because a
/// producer's row gets its xid first and its id second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XidBound {
    /// The next xid that the server was to issue.
    pub next_xid: Xid,
    /// The last id that the sequence had issued.
    pub seq: i64,
}

/// Most bounds that one list holds. A list that would grow beyond is thinned, which only makes the scan for a
/// late transaction's rows longer.
pub const XID_BOUNDS_MAX: usize = 128;

/// The bounds that matter to a tick, rising in both members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct XidBounds {
    bounds: Vec<XidBound>,
}

impl XidBounds {
    /// A list from stored bounds. Only bounds that rise are kept, because each is true by itself and leaving one
    /// out is always right.
    pub fn new(bounds: impl IntoIterator<Item = XidBound>) -> Self {
        let mut xid_bounds = Self::default();
        for bound in bounds {
            xid_bounds.push(bound);
        }
        xid_bounds
    }

    /// The bounds, lowest first.
    pub fn bounds(&self) -> &[XidBound] {
        &self.bounds
    }

    /// Every row of `xid` has an id above this.
    pub fn floor(&self, xid: Xid) -> i64 {
        let above = self.bounds.partition_point(|bound| bound.next_xid <= xid);
        above.checked_sub(1).map_or(0, |index| self.bounds[index].seq)
    }

    /// The list of a later tick: with its bound, and without those that no transaction can need any more
    /// that `snapshot` does not see.
    #[must_use]
    pub fn climb(&self, bound: XidBound, snapshot: &Snapshot) -> Self {
        let mut xid_bounds = self.clone();
        xid_bounds.push(bound);
        xid_bounds.prune(snapshot);
        xid_bounds.thin();
        xid_bounds
    }

    /// A bound that is not above the last one in both members says nothing new.
    fn push(&mut self, bound: XidBound) {
        match self.bounds.last_mut() {
            Some(last) if bound.next_xid < last.next_xid || bound.seq <= last.seq => {}
            Some(last) if bound.next_xid == last.next_xid => last.seq = bound.seq,
            _ => self.bounds.push(bound),
        }
    }

    /// Keeps, for each transaction that may still become visible, the greatest bound at or below it. Those
    /// are the running ones, and all from `xmax` on.
    fn prune(&mut self, snapshot: &Snapshot) {
        let bounds = &self.bounds;
        let greatest = |xid: Xid| bounds.partition_point(|bound| bound.next_xid <= xid).checked_sub(1);
        let mut needed: Vec<usize> = snapshot.running().iter().filter_map(|xid| greatest(*xid)).collect();
        needed.extend(greatest(snapshot.xmax()).unwrap_or(0)..bounds.len());
        needed.dedup();
        let mut kept = needed.into_iter();
        let mut next = kept.next();
        let mut index = 0;
        self.bounds.retain(|_| {
            let keep = next == Some(index);
            while next.is_some_and(|needed| needed <= index) {
                next = kept.next();
            }
            index += 1;
            keep
        });
    }

    /// Leaves out every other bound but the lowest and the newest half.
    fn thin(&mut self) {
        if self.bounds.len() <= XID_BOUNDS_MAX {
            return;
        }
        let recent = self.bounds.len() / 2;
        let mut index = 0;
        self.bounds.retain(|_| {
            index += 1;
            index > recent || index % 2 == 1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(next_xid: u64, seq: i64) -> XidBound {
        XidBound { next_xid: Xid(next_xid), seq }
    }

    fn snapshot(text: &str) -> Snapshot {
        text.parse().unwrap()
    }

    #[test]
    fn the_floor_is_the_greatest_bound_at_or_below() {
        let xid_bounds = XidBounds::new([bound(10, 100), bound(20, 200)]);
        let floors: Vec<i64> = [3, 9, 10, 19, 20, 99].map(|xid| xid_bounds.floor(Xid(xid))).to_vec();
        assert_eq!(floors, [0, 0, 100, 100, 200, 200]);
    }

    #[test]
    fn a_bound_that_says_nothing_new_is_left_out() {
        let xid_bounds = XidBounds::new([bound(10, 100), bound(20, 100), bound(20, 150), bound(15, 300)]);
        assert_eq!(xid_bounds.bounds(), [bound(10, 100), bound(20, 150)]);
    }

    #[test]
    fn what_no_transaction_needs_is_pruned() {
        let xid_bounds = XidBounds::new((1..=9).map(|n| bound(n * 10, n as i64)));
        // 35 still runs and needs bound 30; everything else was seen up to 82.
        let climbed = xid_bounds.climb(bound(100, 10), &snapshot("35:82:35"));
        assert_eq!(climbed.bounds(), [bound(30, 3), bound(80, 8), bound(90, 9), bound(100, 10)]);
    }

    #[test]
    fn a_list_of_bounds_is_limited_and_never_promises_more_than_it_did() {
        let all: Vec<XidBound> = (1..2_000).map(|n| bound(n * 10, n as i64)).collect();
        let mut xid_bounds = XidBounds::default();
        for bound in &all {
            xid_bounds = xid_bounds.climb(*bound, &Snapshot::empty());
            assert!(xid_bounds.bounds().len() <= XID_BOUNDS_MAX);
        }
        let exact = XidBounds::new(all);
        for xid in (3..21_000).step_by(7) {
            assert!(xid_bounds.floor(Xid(xid)) <= exact.floor(Xid(xid)));
        }
        assert_eq!(xid_bounds.floor(Xid(21_000)), 1_999);
    }
}
