//! Some events, as runs of consecutive ids: what a block stands for.

use smallvec::SmallVec;

use crate::event::EventId;

/// Events in ascending order, as runs of consecutive ids. At least one.
///
/// Stored as pairs of a first id and a length; a block of neighbours is one pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans(SmallVec<[(i64, i64); 1]>);

impl Spans {
    /// One event.
    pub fn one(id: EventId) -> Self {
        Self(SmallVec::from_elem((id.0, 1), 1))
    }

    /// Adds an event behind the last one; false if it does not lie behind it.
    pub fn push(&mut self, id: EventId) -> bool {
        let (first, length) = self.0.last_mut().expect("there is at least one");
        let next = *first + *length;
        if id.0 < next {
            return false;
        }
        if id.0 == next {
            *length += 1;
        } else {
            self.0.push((id.0, 1));
        }
        true
    }

    /// The first event, by which a row is named.
    pub fn first(&self) -> EventId {
        EventId(self.0[0].0)
    }

    /// The last event.
    pub fn last(&self) -> EventId {
        let (first, length) = self.0[self.0.len() - 1];
        EventId(first + length - 1)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, length)| *length as usize).sum()
    }

    /// Whether an event is one of them.
    pub fn contains(&self, id: EventId) -> bool {
        self.0.iter().any(|(first, length)| (*first..first + length).contains(&id.0))
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = EventId> + '_ {
        self.0.iter().flat_map(|(first, length)| (*first..first + length).map(EventId))
    }

    /// Those that lie before `id`; none if there are none.
    #[must_use]
    pub fn before(&self, id: EventId) -> Option<Self> {
        let cut = |(first, length): &(i64, i64)| {
            let length = (*length).min(id.0 - first);
            (length > 0).then_some((*first, length))
        };
        let runs: SmallVec<_> = self.0.iter().filter_map(cut).collect();
        (!runs.is_empty()).then_some(Self(runs))
    }

    /// The stored form: a first id and a length, and so on.
    pub fn to_pairs(&self) -> Vec<i64> {
        self.0.iter().flat_map(|(first, length)| [*first, *length]).collect()
    }

    /// Reads the stored form; none if it was damaged.
    pub fn from_pairs(pairs: &[i64]) -> Option<Self> {
        let (runs, rest) = pairs.as_chunks::<2>();
        let mut end = i64::MIN;
        for [first, length] in runs {
            if *length < 1 || *first < end {
                return None;
            }
            end = first.checked_add(*length)?;
        }
        (rest.is_empty() && !runs.is_empty())
            .then(|| Self(runs.iter().map(|[first, length]| (*first, *length)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans(ids: &[i64]) -> Option<Spans> {
        let mut spans = Spans::one(EventId(*ids.first()?));
        ids[1..].iter().all(|id| spans.push(EventId(*id))).then_some(spans)
    }

    #[test]
    fn neighbours_are_one_run() {
        let found = spans(&[4, 5, 6, 9]).unwrap();
        assert_eq!(found.to_pairs(), [4, 3, 9, 1]);
        assert_eq!((found.first(), found.last(), found.count()), (EventId(4), EventId(9), 4));
        assert!(spans(&[4, 4]).is_none() && spans(&[4, 3]).is_none());
    }

    #[test]
    fn what_was_damaged_is_not_understood() {
        for pairs in [&[][..], &[1], &[1, 0], &[1, 2, 2, 1], &[1, -1], &[i64::MAX, 2]] {
            assert!(Spans::from_pairs(pairs).is_none(), "{pairs:?}");
        }
    }

    proptest! {
        #[test]
        fn spans_hold_what_was_put_in(ids in proptest::collection::btree_set(0_i64..200, 1..50), cut in 0_i64..200) {
            let ids: Vec<i64> = ids.into_iter().collect();
            let found = spans(&ids).unwrap();
            prop_assert_eq!(Spans::from_pairs(&found.to_pairs()).unwrap(), found.clone());
            prop_assert_eq!(found.iter().map(|id| id.0).collect::<Vec<_>>(), ids.clone());
            prop_assert_eq!(found.count(), ids.len());
            for id in 0..200 {
                prop_assert_eq!(found.contains(EventId(id)), ids.contains(&id));
            }
            let before: Vec<i64> = found.before(EventId(cut)).iter().flat_map(Spans::iter).map(|id| id.0).collect();
            prop_assert_eq!(before, ids.iter().copied().filter(|id| *id < cut).collect::<Vec<_>>());
        }
    }
}
