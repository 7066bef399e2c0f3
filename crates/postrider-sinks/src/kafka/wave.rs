//! Which events of a batch may be on their way at once.
//!
//! A batch is sent in waves; a wave is sent whole, and then all of its records are awaited. Most batches are
//! one wave, since their keys differ or the producer is [known](super::courses) where they go.
//!
//! ```text
//!   batch   a1 b1 a2 a3 c1 b2        a course is where a record goes: its topic and its key there
//!   wave 1  a1 b1       c1           the first of each key, alone of its key
//!   wave 2        a2 a3    b2        the rest, now that the broker knows this producer on these courses
//! ```
//!
//! An event whose course is another than that of the event before it waits for that one, since nothing orders
//! two partitions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;

use foldhash::fast::RandomState;

use super::courses::{Course, Courses};

/// What of a batch still has to be sent.
#[derive(Debug)]
pub(super) struct Waves {
    /// Places in the batch, ascending.
    waiting: Vec<usize>,
    /// Those of the last wave where the producer was not known.
    ahead: Vec<usize>,
}

/// What of a key may follow in this wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows<'a> {
    /// What goes the same, known way.
    On((&'a str, &'a str)),
    /// Nothing more: the rest waits for the next wave.
    Nothing,
}

impl Waves {
    pub(super) fn new(events: usize) -> Self {
        Self { waiting: (0..events).collect(), ahead: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The places of the next wave, ascending. `of` gives an event's key and course.
    pub(super) fn next<'a>(
        &mut self,
        courses: &Courses,
        of: impl Fn(usize) -> (Option<&'a str>, Course<'a>),
    ) -> Vec<usize> {
        let mut keys: HashMap<&'a str, Follows<'a>, RandomState> =
            HashMap::with_capacity_and_hasher(self.waiting.len(), RandomState::default());
        self.ahead.clear();
        let mut wave = Vec::with_capacity(self.waiting.len());
        self.waiting.retain(|place| {
            let (key, course) = of(*place);
            let goes = match key.map(|key| keys.entry(key)) {
                None => true,
                Some(Entry::Vacant(entry)) => {
                    let known = course.filter(|_| courses.knows(course));
                    if known.is_none() {
                        self.ahead.push(*place);
                    }
                    entry.insert(known.map_or(Follows::Nothing, Follows::On));
                    true
                }
                Some(Entry::Occupied(mut entry)) => {
                    let goes = course.is_some_and(|course| *entry.get() == Follows::On(course));
                    if !goes {
                        entry.insert(Follows::Nothing);
                    }
                    goes
                }
            };
            if goes {
                wave.push(*place);
            }
            !goes
        });
        wave
    }

    /// Of the last wave, the first events of keys where the producer was not known, as far as they were
    /// acked: there it is known now. Some may not even have been sent.
    pub(super) fn proof(&self, is_acked: impl Fn(usize) -> bool) -> impl Iterator<Item = usize> {
        self.ahead.iter().copied().filter(move |place| is_acked(*place))
    }

    /// The first of what waits, alone.
    pub(super) fn next_alone(&mut self) -> Vec<usize> {
        self.ahead.clear();
        let rest = self.waiting.split_off(self.waiting.len().min(1));
        mem::replace(&mut self.waiting, rest)
    }

    /// What was sent in vain goes again.
    pub(super) fn again(&mut self, places: &[usize]) {
        self.waiting.extend(places);
        self.waiting.sort_unstable();
    }

    /// What is left when nothing more can be sent.
    pub(super) fn give_up(&mut self) -> Vec<usize> {
        mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as `key@topic`, `-` for no key; gives the waves, each acked whole.
    fn waves(batch: &'static str) -> Vec<Vec<usize>> {
        let events: Vec<_> = batch.split(' ').map(|text| text.split_once('@').unwrap()).collect();
        let of = |place: usize| {
            let (key, topic) = events[place];
            let key = Some(key).filter(|key| *key != "-");
            (key, key.map(|key| (topic, key)))
        };
        let (mut waves, mut courses) = (Waves::new(events.len()), Courses::default());
        let mut found = Vec::new();
        while !waves.is_empty() {
            let wave = waves.next(&courses, of);
            assert!(!wave.is_empty(), "no wave is empty");
            waves.proof(|_| true).for_each(|place| courses.prove(of(place).1));
            found.push(wave);
        }
        found
    }

    #[test]
    fn events_of_different_keys_travel_together() {
        assert_eq!(waves("a@t b@t -@t -@t c@u"), [vec![0, 1, 2, 3, 4]]);
    }

    #[test]
    fn the_first_of_a_key_travels_ahead_and_the_rest_together() {
        assert_eq!(waves("a@t b@t a@t a@t c@t b@t a@t"), [vec![0, 1, 4], vec![2, 3, 5, 6]]);
    }

    #[test]
    fn an_event_on_another_course_waits_for_the_one_before_it() {
        assert_eq!(waves("a@t a@t a@u a@u a@t"), [vec![0], vec![1], vec![2], vec![3], vec![4]]);
        assert_eq!(waves("a@t a@u b@t b@t"), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn events_of_a_key_travel_together_where_the_producer_is_known() {
        let mut courses = Courses::default();
        courses.prove(Some(("t", "a")));
        let batch = [("a", "t"), ("a", "t"), ("b", "t"), ("b", "t"), ("a", "u"), ("a", "t")];
        let of = |place: usize| (Some(batch[place].0), Some((batch[place].1, batch[place].0)));
        let mut waves = Waves::new(batch.len());
        assert_eq!(waves.next(&courses, of), [0, 1, 2]);
        assert_eq!(waves.next(&courses, of), [3, 4]);
        assert_eq!(waves.next(&courses, of), [5]);
    }

    #[test]
    fn only_what_was_acked_proves_that_a_producer_is_known() {
        let of = |place: usize| [(Some("a"), Some(("t", "a"))), (Some("b"), Some(("u", "b")))][place];
        let mut waves = Waves::new(2);
        assert_eq!(waves.next(&Courses::default(), of), [0, 1]);
        assert_eq!(waves.proof(|place| place == 0).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn what_is_sent_again_keeps_its_place_and_is_proven_anew() {
        let of = |_| (Some("a"), Some(("t", "a")));
        let (mut waves, mut courses) = (Waves::new(3), Courses::default());
        assert_eq!(waves.next(&courses, of), [0]);
        courses.prove(Some(("t", "a")));
        assert_eq!(waves.next(&courses, of), [1, 2]);
        waves.again(&[1, 2]);
        assert_eq!(waves.next(&Courses::default(), of), [1]);
        assert_eq!(waves.next_alone(), [2]);
        assert!(waves.is_empty() && waves.next_alone().is_empty());
    }
}
