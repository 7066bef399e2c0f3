//! A new beginning for a log whose transactions were another server's.
//!
//! After a dump and restore the rows carry xids of a server that is gone. They say nothing about this one,
//! and its own transactions will get the same numbers again. But together with the positions, which came
//! along, they still say which rows each position covers. That is kept, and all else is forgotten:
//!
//! 1. Rows that are covered by the same positions are a *class*.
//! 2. Every class gets a different xid, from the first that there is: below all that this server has yet to
//!    issue, and visible to every snapshot that it will ever take, as restored rows must be.
//! 3. Every position becomes a tick whose snapshot sees the classes that it covered, and says of the others
//!    that they run.
//!
//! A position then covers exactly what it covered before, by the same rule as ever. Classes that more
//! positions cover get lower xids. So the classes that a subscription has yet to read are as a rule those
//! from its snapshot's end on, and their rows are read in one go, as a backlog. Classes in between are
//! stragglers, and the bounds say where they lie: they are true because every class from a number on
//! lies above the least id of them, and every row that is yet to come lies above the last id that was issued.

use super::snapshot::{Snapshot, Xid};
use super::tick::Tick;
use super::xid_bounds::{XidBound, XidBounds};
use crate::error::{Error, ErrorKind, Result};

/// Rows that are covered by the same positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// By position: whether it covers them.
    pub covered_by: Vec<bool>,
    /// The least of their ids.
    pub lowest: i64,
}

/// Classes with their new xids, and positions as new ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restamped {
    /// Each class with the xid that its rows get.
    pub classes: Vec<(Class, Xid)>,
    /// By position, where it stands.
    pub ticks: Vec<Tick>,
}

/// Makes xids and ticks for rows and positions of another server. `last_id` is the last id that was issued;
/// the caller sees to it that no event is written meanwhile.
pub fn restamp(mut classes: Vec<Class>, positions: usize, last_id: i64) -> Result<Restamped> {
    classes.sort_by_key(|class| (class.covered_by.iter().filter(|covers| !**covers).count(), class.lowest));
    let mut lowest_from = vec![last_id + 1; classes.len() + 1];
    for (index, class) in classes.iter().enumerate().rev() {
        lowest_from[index] = lowest_from[index + 1].min(class.lowest);
    }
    let xid = |index: usize| Xid(Xid::FIRST.0 + index as u64);
    let bound = |index: usize| XidBound { next_xid: xid(index), seq: lowest_from[index] - 1 };
    let tick = |position: usize| {
        let covers = |class: &Class| class.covered_by.get(position) == Some(&true);
        let end = classes.iter().rposition(covers).map_or(0, |last| last + 1);
        let open: Vec<usize> = (0..end).filter(|index| !covers(&classes[*index])).collect();
        let xmin = xid(open.first().copied().unwrap_or(end));
        let snapshot = Snapshot::new(xmin, xid(end), open.iter().map(|index| xid(*index)).collect())?;
        let xid_bounds = XidBounds::new(open.iter().map(|index| bound(*index)).chain([bound(end)]));
        Some(Tick { snapshot, bound: bound(end), xid_bounds })
    };
    let ticks: Option<Vec<Tick>> = (0..positions).map(tick).collect();
    let ticks = ticks.ok_or_else(|| Error::new(ErrorKind::Internal, "a snapshot contradicts itself"))?;
    let classes = classes.into_iter().enumerate().map(|(index, class)| (class, xid(index))).collect();
    Ok(Restamped { classes, ticks })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::EventId;
    use crate::log::{Lsn, Probe, Window};

    /// Rows by id, each with who covers it, as classes.
    fn classes(rows: &[Vec<bool>]) -> Vec<Class> {
        let mut classes: Vec<Class> = Vec::new();
        for (id, covered_by) in (1..).zip(rows) {
            if !classes.iter().any(|class| class.covered_by == *covered_by) {
                classes.push(Class { covered_by: covered_by.clone(), lowest: id });
            }
        }
        classes
    }

    fn xid_of(restamped: &Restamped, row: &[bool]) -> Xid {
        restamped.classes.iter().find(|(class, _)| class.covered_by == row).expect("every row has a class").1
    }

    fn rows() -> impl Strategy<Value = Vec<Vec<bool>>> {
        proptest::collection::vec(proptest::collection::vec(any::<bool>(), 4), 0..40)
    }

    proptest! {
        #[test]
        fn every_position_covers_what_it_covered_and_finds_the_rest(rows in rows()) {
            let last_id = rows.len() as i64;
            let restamped = restamp(classes(&rows), 4, last_id).unwrap();
            // A server that has issued a thousand xids, of which none is among the new ones.
            let now = "1000:1000:".parse().unwrap();
            let (inserted, flushed) = (Lsn::default(), Lsn::default());
            let later = Probe { snapshot: now, seq: last_id, next_xid: Xid(1000), inserted, flushed };
            for (position, tick) in restamped.ticks.iter().enumerate() {
                let window = Window { from: tick.clone().into(), to: tick.next(&later).into() };
                for (id, row) in (1..).zip(&rows) {
                    let xid = xid_of(&restamped, row);
                    prop_assert_eq!(tick.snapshot.sees(xid), row[position]);
                    prop_assert_eq!(window.covers(xid, EventId(id), EventId(0)), row[position]);
                    prop_assert_eq!(window.holds(xid), !row[position]);
                    // What it has yet to read lies above where it looks for it.
                    prop_assert!(row[position] || id > window.lowest());
                    for bound in tick.xid_bounds.bounds().iter().chain([&tick.bound]) {
                        prop_assert!(xid < bound.next_xid || id > bound.seq);
                    }
                }
                prop_assert!(tick.bound.seq <= last_id);
            }
        }
    }

    #[test]
    fn a_backlog_is_read_in_one_go() {
        let rows: Vec<Vec<bool>> = (0..100).map(|id| vec![id < 50, id < 80]).collect();
        let restamped = restamp(classes(&rows), 2, 100).unwrap();
        let texts: Vec<String> = restamped.ticks.iter().map(|tick| tick.snapshot.to_string()).collect();
        assert_eq!(texts, ["4:4:", "5:5:"], "nothing is said to run");
        assert_eq!(restamped.ticks[0].bound, XidBound { next_xid: Xid(4), seq: 50 });
        assert_eq!(restamped.ticks[1].bound, XidBound { next_xid: Xid(5), seq: 80 });
    }

    #[test]
    fn an_empty_log_begins_behind_its_last_id() {
        let restamped = restamp(Vec::new(), 1, 7).unwrap();
        assert_eq!(restamped.ticks[0].bound, XidBound { next_xid: Xid::FIRST, seq: 7 });
    }
}
