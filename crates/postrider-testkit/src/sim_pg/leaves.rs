//! The ring of leaves: ids say in which one a row lies, and old leaves are emptied whole.

use std::collections::BTreeSet;

use super::wal::Record;
use super::{Lost, Row, Session, SimPg};

/// Ids of one round of a leaf, as a power of two. A real leaf has 2³⁴.
const LEAF_BITS: u32 = 5;
/// Leaves of the ring.
const LEAVES: i64 = 4;

/// Mistakes that emptying leaves can make.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Care {
    /// Goes on to the next leaf although it is not empty, and empties a leaf when its oldest round is not
    /// needed any more.
    pub(super) rotates_into_full: bool,
    /// Keeps no copy of what deliveries refer to.
    pub(super) keeps_no_copy: bool,
}

impl SimPg {
    /// Lets the sequence go on in the next leaf, if that is empty.
    pub(super) fn leaf_rotate(&mut self, session: Session, care: Care) -> Result<bool, Lost> {
        let next = (self.sequence.last >> LEAF_BITS) + 1;
        let there = |id: i64| leaf_of(id) == next % LEAVES;
        let full = self.rows.keys().any(|id| there(*id)) || self.rows_in_flight().any(|row| there(row.id));
        if full && !care.rotates_into_full {
            return Ok(false);
        }
        let by = self.take_xid(session)?;
        let first = next << LEAF_BITS;
        (self.sequence.last, self.sequence.logged) = (first, first);
        self.wal.push(by, Record::Sequence { logged: first });
        Ok(true)
    }

    /// Empties the oldest leaf that is not written to any more, durably, if no subscription needs it. It
    /// checks every row in the leaf, not the ids of a round: a transaction that has drawn an id and not
    /// inserted yet holds no lock on the leaf, and its row may come after the sequence has gone all the way
    /// round.
    pub(super) fn leaf_truncate(&mut self, session: Session, care: Care) -> Result<usize, Lost> {
        self.alive(session)?;
        let current = self.sequence.last >> LEAF_BITS;
        let Some(oldest) = self.rows.keys().next().map(|id| id >> LEAF_BITS) else { return Ok(0) };
        let leaf = oldest % LEAVES;
        let locked = self.rows_in_flight().any(|row| leaf_of(row.id) == leaf);
        if oldest >= current || locked {
            return Ok(0);
        }
        let asked = |row: &&Row| {
            if care.rotates_into_full { row.id >> LEAF_BITS == oldest } else { leaf_of(row.id) == leaf }
        };
        let positions = || self.progress.values().filter_map(|progress| progress.position.as_ref());
        if !self.rows.values().filter(asked).all(|row| positions().all(|position| position.covers(row))) {
            return Ok(0);
        }
        let gone: Vec<i64> = self.rows.keys().copied().filter(|id| leaf_of(*id) == leaf).collect();
        let named: BTreeSet<i64> =
            self.progress.values().flat_map(|progress| progress.rows.keys().copied()).collect();
        let kept: Vec<i64> =
            gone.iter().copied().filter(|id| named.contains(id) && !care.keeps_no_copy).collect();
        let by = self.take_xid(session)?;
        self.remove(&gone, &kept);
        self.wal.push(by, Record::Truncate(gone.clone(), kept));
        self.wal.flush(self.wal.inserted());
        Ok(gone.len())
    }

    pub(super) fn remove(&mut self, gone: &[i64], kept: &[i64]) {
        for id in gone {
            if let Some(row) = self.rows.remove(id)
                && kept.contains(id)
            {
                self.kept.insert(*id, row);
            }
        }
    }
}

fn leaf_of(id: i64) -> i64 {
    (id >> LEAF_BITS) % LEAVES
}
