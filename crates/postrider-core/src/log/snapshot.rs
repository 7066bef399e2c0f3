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
    use super::*;

    #[test]
    fn a_snapshot_sees_what_had_committed() {
        let snapshot: Snapshot = "10:20:12,15".parse().unwrap();
        let seen: Vec<u64> = (8..22).filter(|xid| snapshot.sees(Xid(*xid))).collect();
        assert_eq!(seen, [8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert!(!Snapshot::empty().sees(Xid::FIRST));
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
