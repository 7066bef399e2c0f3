//! Which events of a batch may be on their way at once.
//!
//! A batch is sent in waves; a wave is sent whole, and then all of its records are awaited. Most batches are one wave,
//! since their keys differ.
//!
//! ```text
//!   batch   a1 b1 a2 a3 c1 b2        a course is where a record goes: its topic and its key there
//!   wave 1  a1 b1       c1           the first of each key, alone of its key
//!   wave 2        a2 a3    b2        the rest, now that the broker knows this producer on these courses
//! ```
//!
//! An event whose course is another than that of the event before it waits for that one, since nothing orders two partitions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;

/// Where a record goes, if anything orders it there: topic and key. Records without a key go to any partition.
pub(super) type Course<'a> = Option<(&'a str, &'a str)>;

/// What of a batch still has to be sent.
#[derive(Debug)]
pub(super) struct Waves<'a> {
    /// Places in the batch, ascending.
    waiting: Vec<usize>,
    /// On which course the last event of a key was acked.
    proven: HashMap<&'a str, Course<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// More of its proven course may follow in this wave.
    Open,
    /// The rest waits for the next wave.
    Closed,
}

impl<'a> Waves<'a> {
    pub(super) fn new(events: usize) -> Self {
        Self { waiting: (0..events).collect(), proven: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The places of the next wave, ascending. `of` gives an event's key and course.
    pub(super) fn next(&mut self, of: impl Fn(usize) -> (Option<&'a str>, Course<'a>)) -> Vec<usize> {
        let mut keys: HashMap<&'a str, Key> = HashMap::new();
        let mut wave = Vec::new();
        self.waiting = mem::take(&mut self.waiting)
            .into_iter()
            .filter(|place| {
                let (key, course) = of(*place);
                let Some(key) = key else {
                    wave.push(*place);
                    return false;
                };
                let is_proven = course.is_some() && self.proven.get(key) == Some(&course);
                let goes = match keys.entry(key) {
                    Entry::Vacant(entry) => {
                        entry.insert(if is_proven { Key::Open } else { Key::Closed });
                        true
                    }
                    Entry::Occupied(entry) if *entry.get() == Key::Open && is_proven => true,
                    Entry::Occupied(mut entry) => {
                        entry.insert(Key::Closed);
                        false
                    }
                };
                if goes {
                    wave.push(*place);
                }
                !goes
            })
            .collect();
        wave
    }

    /// The first of what waits, alone.
    pub(super) fn next_alone(&mut self) -> Vec<usize> {
        let rest = self.waiting.split_off(self.waiting.len().min(1));
        mem::replace(&mut self.waiting, rest)
    }

    /// An event of this key was acked on this course.
    pub(super) fn prove(&mut self, key: Option<&'a str>, course: Course<'a>) {
        if let Some(key) = key {
            self.proven.insert(key, course);
        }
    }

    /// What was sent in vain goes again. The next producer is a stranger to all brokers.
    pub(super) fn again(&mut self, places: &[usize]) {
        self.waiting.extend(places);
        self.waiting.sort_unstable();
        self.proven.clear();
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
        let mut waves = Waves::new(events.len());
        let mut found = Vec::new();
        while !waves.is_empty() {
            let wave = waves.next(of);
            assert!(!wave.is_empty(), "no wave is empty");
            for place in &wave {
                let (key, course) = of(*place);
                waves.prove(key, course);
            }
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
    fn what_is_sent_again_keeps_its_place_and_is_proven_anew() {
        let of = |_| (Some("a"), Some(("t", "a")));
        let mut waves = Waves::new(3);
        assert_eq!(waves.next(of), [0]);
        waves.prove(Some("a"), Some(("t", "a")));
        assert_eq!(waves.next(of), [1, 2]);
        waves.again(&[1, 2]);
        assert_eq!(waves.next(of), [1]);
        assert_eq!(waves.next_alone(), [2]);
        assert!(waves.is_empty() && waves.next_alone().is_empty());
    }
}
