//! Which transactions are visible at a moment.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// The number of a transaction, in 64 bits: it never wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Xid(pub u64);

impl Xid {
    /// The first xid that a transaction can have.
    pub const FIRST: Self = Self(3);

    /// The 64-bit form of an xid of which only the low half is known, and that it is not below `floor` nor
    /// 2³² or more above it.
    ///
    /// ```
    /// # use postrider_core::log::Xid;
    /// assert_eq!(Xid::widen(5, Xid((1 << 32) - 2)), Xid((1 << 32) + 5));
    /// ```
    #[must_use]
    pub fn widen(low: u32, floor: Self) -> Self {
        Self(floor.0 + u64::from(low.wrapping_sub(floor.0 as u32)))
    }
}

/// The transactions that are visible at a moment: all below `xmin`, none from `xmax` on, and those in
/// between that are not running. PostgreSQL's `pg_snapshot`, with its text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    xmin: Xid,
    xmax: Xid,
    /// Sorted.
    running: Arc<[Xid]>,
}

impl Snapshot {
    /// Sees nothing.
    pub fn empty() -> Self {
        Self { xmin: Xid::FIRST, xmax: Xid::FIRST, running: Arc::new([]) }
    }

    /// A snapshot from its parts; `running` in any order. None if they contradict each other.
    pub fn new(xmin: Xid, xmax: Xid, mut running: Vec<Xid>) -> Option<Self> {
        running.sort_unstable();
        running.dedup();
        let in_between = running.iter().all(|xid| xmin <= *xid && *xid < xmax);
        (xmin <= xmax && in_between).then(|| Self { xmin, xmax, running: running.into() })
    }

    /// Below this every transaction is visible or was undone.
    pub fn xmin(&self) -> Xid {
        self.xmin
    }

    /// From here on none is visible.
    pub fn xmax(&self) -> Xid {
        self.xmax
    }

    /// Those in between that are not visible, sorted.
    pub fn running(&self) -> &[Xid] {
        &self.running
    }

    /// Whether the snapshot sees the transaction, provided that it was committed.
    pub fn sees(&self, xid: Xid) -> bool {
        xid < self.xmin || (xid < self.xmax && self.running.binary_search(&xid).is_err())
    }

    /// Whether it sees all that `other` sees.
    pub fn covers(&self, other: &Self) -> bool {
        let unseen = self.running.iter().copied().chain((self.xmax.0..other.xmax.0).map(Xid));
        !unseen.into_iter().any(|xid| other.sees(xid))
    }

    /// What either of the two sees.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (wide, narrow) = if self.xmax >= other.xmax { (self, other) } else { (other, self) };
        let unseen = wide.running.iter().copied().filter(|xid| !narrow.sees(*xid));
        Self::without(wide.xmax, unseen.collect())
    }

    /// What this one sees, and these transactions.
    #[must_use]
    pub fn with(&self, xids: &[Xid]) -> Self {
        let mut xids = xids.to_vec();
        xids.sort_unstable();
        let xmax = xids.last().map_or(self.xmax, |last| self.xmax.max(Xid(last.0 + 1)));
        let unseen = self.running.iter().copied().chain((self.xmax.0..xmax.0).map(Xid));
        Self::without(xmax, unseen.filter(|xid| xids.binary_search(xid).is_err()).collect())
    }

    /// Sees everything below `xmax` but these, which are sorted.
    fn without(xmax: Xid, running: Arc<[Xid]>) -> Self {
        Self { xmin: running.first().copied().unwrap_or(xmax), xmax, running }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin.0, self.xmax.0)?;
        for (index, xid) in self.running.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { "," }, xid.0)?;
        }
        Ok(())
    }
}

impl FromStr for Snapshot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let mut parts = text.split(':');
            let (xmin, xmax, running) = (parts.next()?, parts.next()?, parts.next()?);
            let xid = |text: &str| text.parse().ok().map(Xid);
            let running: Option<Vec<Xid>> =
                running.split(',').filter(|text| !text.is_empty()).map(xid).collect();
            Self::new(xid(xmin)?, xid(xmax)?, running?).filter(|_| parts.next().is_none())
        };
        parse().ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("`{text}` is not a snapshot")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_snapshot_sees_what_had_committed() {
        let snapshot: Snapshot = "10:20:12,15".parse().unwrap();
        let seen: Vec<u64> = (8..22).filter(|xid| snapshot.sees(Xid(*xid))).collect();
        assert_eq!(seen, [8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert!(!Snapshot::empty().sees(Xid::FIRST));
    }

    fn snapshot() -> impl Strategy<Value = Snapshot> {
        (3u64..20, 0u64..9, prop::collection::vec(0u64..9, 0..9)).prop_map(|(xmin, span, running)| {
            let running = running.into_iter().filter(|x| *x < span).map(|x| Xid(xmin + x)).collect();
            Snapshot::new(Xid(xmin), Xid(xmin + span), running).unwrap()
        })
    }

    proptest! {
        #[test]
        fn what_is_seen_together(a in snapshot(), b in snapshot(), xids in prop::collection::vec(3u64..40, 0..9)) {
            let xids: Vec<Xid> = xids.into_iter().map(Xid).collect();
            let (both, with) = (a.union(&b), a.with(&xids));
            for xid in (3..60).map(Xid) {
                prop_assert_eq!(both.sees(xid), a.sees(xid) || b.sees(xid), "{:?}", xid);
                prop_assert_eq!(with.sees(xid), a.sees(xid) || xids.contains(&xid), "{:?}", xid);
            }
            prop_assert_eq!(a.covers(&b), (3..60).map(Xid).all(|xid| a.sees(xid) || !b.sees(xid)));
            prop_assert!(both.covers(&a) && both.covers(&b) && with.covers(&a));
            let again: Snapshot = with.to_string().parse().unwrap();
            prop_assert_eq!(again, with);
        }
    }

    #[test]
    fn its_text_is_that_of_postgresql() {
        for text in ["3:3:", "10:20:12,15", "4294967290:4294967300:4294967290"] {
            assert_eq!(text.parse::<Snapshot>().unwrap().to_string(), text);
        }
        for bad in ["", "3", "3:4", "9:3:", "3:9:9", "3:9:2", "3:9:x", "3:9::"] {
            assert!(bad.parse::<Snapshot>().is_err(), "{bad}");
        }
    }

    #[test]
    fn xids_are_widened_across_the_end_of_an_epoch() {
        let epoch = 1u64 << 32;
        for floor in epoch - 10..epoch + 10 {
            for ahead in [0, 1, 9, 1 << 20] {
                let xid = floor + ahead;
                assert_eq!(Xid::widen(xid as u32, Xid(floor)), Xid(xid));
            }
        }
    }
}
