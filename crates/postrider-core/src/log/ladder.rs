//! Where the rows of a late transaction can lie.

use super::snapshot::{Snapshot, Xid};

/// A fact that never expires: every row of an xid at or above `next_xid` has an id above `seq`.
///
/// True of what a probe reads because it reads the sequence first and the next xid second, and because a
/// producer's row gets its xid first and its id second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// The next xid that the server was to issue.
    pub next_xid: Xid,
    /// The last id that the sequence had issued.
    pub seq: i64,
}

/// Rungs that one ladder holds at the most. A ladder that would grow beyond is thinned, which only makes
/// the scan for a late transaction's rows longer.
pub const RUNGS_MAX: usize = 128;

/// The rungs that matter to a tick, rising in both members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ladder {
    rungs: Vec<Rung>,
}

impl Ladder {
    /// A ladder from stored rungs. Only rungs that rise are kept: each is true by itself, so that leaving
    /// one out is always right.
    pub fn new(rungs: impl IntoIterator<Item = Rung>) -> Self {
        let mut ladder = Self::default();
        for rung in rungs {
            ladder.push(rung);
        }
        ladder
    }

    /// The rungs, lowest first.
    pub fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// Every row of `xid` has an id above this.
    pub fn floor(&self, xid: Xid) -> i64 {
        let above = self.rungs.partition_point(|rung| rung.next_xid <= xid);
        above.checked_sub(1).map_or(0, |index| self.rungs[index].seq)
    }

    /// The ladder of a later tick: with its rung, and without those that no transaction can need any more
    /// that `snapshot` does not see.
    #[must_use]
    pub fn climb(&self, rung: Rung, snapshot: &Snapshot) -> Self {
        let mut ladder = self.clone();
        ladder.push(rung);
        ladder.prune(snapshot);
        ladder.thin();
        ladder
    }

    /// A rung that is not above the last one in both members says nothing new.
    fn push(&mut self, rung: Rung) {
        match self.rungs.last_mut() {
            Some(last) if rung.next_xid < last.next_xid || rung.seq <= last.seq => {}
            Some(last) if rung.next_xid == last.next_xid => last.seq = rung.seq,
            _ => self.rungs.push(rung),
        }
    }

    /// Keeps, for each transaction that may still become visible, the greatest rung at or below it. Those
    /// are the running ones, and all from `xmax` on.
    fn prune(&mut self, snapshot: &Snapshot) {
        let rungs = &self.rungs;
        let greatest = |xid: Xid| rungs.partition_point(|rung| rung.next_xid <= xid).checked_sub(1);
        let mut needed: Vec<usize> = snapshot.running().iter().filter_map(|xid| greatest(*xid)).collect();
        needed.extend(greatest(snapshot.xmax()).unwrap_or(0)..rungs.len());
        needed.dedup();
        let mut kept = needed.into_iter();
        let mut next = kept.next();
        let mut index = 0;
        self.rungs.retain(|_| {
            let keep = next == Some(index);
            while next.is_some_and(|needed| needed <= index) {
                next = kept.next();
            }
            index += 1;
            keep
        });
    }

    /// Leaves out every other rung but the lowest and the newest half.
    fn thin(&mut self) {
        if self.rungs.len() <= RUNGS_MAX {
            return;
        }
        let recent = self.rungs.len() / 2;
        let mut index = 0;
        self.rungs.retain(|_| {
            index += 1;
            index > recent || index % 2 == 1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(next_xid: u64, seq: i64) -> Rung {
        Rung { next_xid: Xid(next_xid), seq }
    }

    fn snapshot(text: &str) -> Snapshot {
        text.parse().unwrap()
    }

    #[test]
    fn the_floor_is_the_greatest_rung_at_or_below() {
        let ladder = Ladder::new([rung(10, 100), rung(20, 200)]);
        let floors: Vec<i64> = [3, 9, 10, 19, 20, 99].map(|xid| ladder.floor(Xid(xid))).to_vec();
        assert_eq!(floors, [0, 0, 100, 100, 200, 200]);
    }

    #[test]
    fn a_rung_that_says_nothing_new_is_left_out() {
        let ladder = Ladder::new([rung(10, 100), rung(20, 100), rung(20, 150), rung(15, 300)]);
        assert_eq!(ladder.rungs(), [rung(10, 100), rung(20, 150)]);
    }

    #[test]
    fn what_no_transaction_needs_is_pruned() {
        let ladder = Ladder::new((1..=9).map(|n| rung(n * 10, n as i64)));
        // 35 still runs and needs rung 30; everything else was seen up to 82.
        let climbed = ladder.climb(rung(100, 10), &snapshot("35:82:35"));
        assert_eq!(climbed.rungs(), [rung(30, 3), rung(80, 8), rung(90, 9), rung(100, 10)]);
    }

    #[test]
    fn a_ladder_is_bounded_and_never_promises_more_than_it_did() {
        let all: Vec<Rung> = (1..2_000).map(|n| rung(n * 10, n as i64)).collect();
        let mut ladder = Ladder::default();
        for rung in &all {
            ladder = ladder.climb(*rung, &Snapshot::empty());
            assert!(ladder.rungs().len() <= RUNGS_MAX);
        }
        let exact = Ladder::new(all);
        for xid in (3..21_000).step_by(7) {
            assert!(ladder.floor(Xid(xid)) <= exact.floor(Xid(xid)));
        }
        assert_eq!(ladder.floor(Xid(21_000)), 1_999);
    }
}
