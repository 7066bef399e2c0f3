//! Which leaf holds an event.
//!
//! The log is a ring of leaves, each of which serves one turn after the other: an id's upper bits say which turn it
//! is of, and the lowest four of those which leaf that is. When the ring turns, the sequence jumps to the first id of
//! the next turn, so that the difference of two ids of different turns says nothing about how many lie between.

use std::ops::RangeInclusive;

use postrider_core::EventId;

/// Ids of one turn: 2 to the power of this.
const TURN_BITS: u32 = 34;
/// Leaves of the ring.
pub(crate) const LEAVES: i64 = 16;

/// One use of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(i64);

impl Turn {
    /// The turn of an id.
    pub(crate) fn of(id: EventId) -> Self {
        Self(id.0 >> TURN_BITS)
    }

    /// The leaf that it uses.
    pub(crate) fn leaf(self) -> u8 {
        (self.0 & (LEAVES - 1)) as u8
    }

    /// The one after it.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// How many there were before it.
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    /// The leaves that it does not use, the one that was used longest ago first.
    pub(crate) fn other_leaves(self) -> impl Iterator<Item = u8> {
        (1..LEAVES).map(move |ahead| Self(self.0 + ahead).leaf())
    }

    /// Its ids.
    pub(crate) fn ids(self) -> RangeInclusive<i64> {
        self.0 << TURN_BITS..=((self.0 << TURN_BITS) | ((1 << TURN_BITS) - 1))
    }
}

/// A stretch of ids within one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) turn: Turn,
    /// Ids above this.
    pub(crate) above: i64,
    /// Up to this one.
    pub(crate) up_to: i64,
}

impl Stretch {
    /// Behind `above` up to `up_to`, or to the end of the turn in which the next id lies.
    pub(crate) fn behind(above: i64, up_to: i64) -> Self {
        let turn = Turn::of(EventId(above + 1));
        Self { turn, above, up_to: up_to.min(*turn.ids().end()) }
    }
}

/// The stretches of the log with ids above `above` and up to `up_to`, where `issued` is the last id there is. What
/// lies so far back that its leaf serves a later turn by now is left out.
pub(crate) fn stretches(
    above: i64,
    up_to: i64,
    issued: EventId,
) -> impl DoubleEndedIterator<Item = Stretch> + Clone {
    let up_to = up_to.min(issued.0);
    let oldest = (Turn::of(issued).0 - (LEAVES - 1)).max(0);
    let first = Turn::of(EventId(above.max(0))).0.max(oldest);
    let last = Turn::of(EventId(up_to)).0;
    (first..=last)
        .map(move |turn| {
            let turn = Turn(turn);
            let ids = turn.ids();
            Stretch { turn, above: above.max(ids.start() - 1), up_to: up_to.min(*ids.end()) }
        })
        .filter(|stretch| stretch.above < stretch.up_to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: i64 = 1 << TURN_BITS;

    fn found(above: i64, up_to: i64, issued: i64) -> Vec<(u8, i64, i64)> {
        let found = stretches(above, up_to, EventId(issued));
        found.map(|stretch| (stretch.turn.leaf(), stretch.above, stretch.up_to)).collect()
    }

    #[test]
    fn a_stretch_lies_within_one_turn() {
        assert_eq!(found(0, i64::MAX, 0), []);
        assert_eq!(found(0, i64::MAX, 9), [(0, 0, 9)]);
        assert_eq!(found(4, 7, 9), [(0, 4, 7)]);
        assert_eq!(found(9, i64::MAX, 9), []);
        assert_eq!(found(5, i64::MAX, TURN + 3), [(0, 5, TURN - 1), (1, TURN - 1, TURN + 3)]);
        assert_eq!(found(TURN + 1, i64::MAX, TURN + 3), [(1, TURN + 1, TURN + 3)]);
        assert_eq!(found(-1, 3, 9), [(0, -1, 3)]);
    }

    #[test]
    fn a_stretch_ends_with_its_turn() {
        assert_eq!(Stretch::behind(5, 9).up_to, 9);
        assert_eq!(Stretch::behind(TURN - 2, i64::MAX).up_to, TURN - 1);
        let next = Stretch::behind(TURN - 1, i64::MAX);
        assert_eq!((next.turn.leaf(), next.up_to), (1, 2 * TURN - 1), "the next id lies in the next leaf");
        assert_eq!(Turn::of(EventId(17 * TURN + 5)).leaf(), 1);
    }

    #[test]
    fn the_other_leaves_come_in_the_order_of_their_use() {
        let others: Vec<u8> = Turn(18).other_leaves().collect();
        assert_eq!(others, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1]);
        assert_eq!(Turn(18).next().leaf(), others[0]);
    }

    #[test]
    fn what_the_ring_has_overwritten_is_left_out() {
        let issued = 20 * TURN + 1;
        let found = found(0, i64::MAX, issued);
        assert_eq!(found.len(), 16);
        assert_eq!(found[0], (5, 5 * TURN - 1, 6 * TURN - 1));
        assert_eq!(found[15], (4, 20 * TURN - 1, issued));
    }
}
