//! Where a producer is known.
//!
//! A broker that has never heard of a producer takes any request from it as the first, even the second. Once
//! it has acked one it keeps the producer's number and the number of its last request with the partition, for
//! its replicas too, and takes nothing out of turn. It forgets a producer that rests, after a day unless told
//! otherwise.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

/// Where a record goes, if anything orders it there: topic and key. Records without a key go to any
/// partition.
///
/// Partitions that are added to a topic move keys to where the producer may not be known; but then what came
/// before lies in another partition, and nothing orders the two.
pub(super) type Course<'a> = Option<(&'a str, &'a str)>;

/// How long after its last ack a producer is taken as known.
const KNOWN_FOR: Duration = Duration::from_secs(60);
const COURSES_MAX: usize = 10_000;

/// On which courses a producer was acked.
#[derive(Debug, Default)]
pub(super) struct Courses {
    keys_of_topic: HashMap<Box<str>, HashSet<Box<str>, RandomState>, RandomState>,
    count: usize,
    acked_at: Option<Instant>,
}

impl Courses {
    pub(super) fn knows(&self, course: Course<'_>) -> bool {
        let Some((topic, key)) = course else { return false };
        self.keys_of_topic.get(topic).is_some_and(|keys| keys.contains(key))
    }

    /// A record was acked there.
    pub(super) fn prove(&mut self, course: Course<'_>) {
        let Some((topic, key)) = course else { return };
        if self.knows(course) {
            return;
        }
        if self.count >= COURSES_MAX {
            self.clear();
        }
        let keys = match self.keys_of_topic.get_mut(topic) {
            Some(keys) => keys,
            None => self.keys_of_topic.entry(topic.into()).or_default(),
        };
        keys.insert(key.into());
        self.count += 1;
    }

    /// The producer has finished a batch: everything was acked.
    pub(super) fn rest(&mut self, now: Instant) {
        self.acked_at = Some(now);
    }

    /// The producer begins a batch.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.acked_at.is_some_and(|acked_at| now.saturating_duration_since(acked_at) > KNOWN_FOR) {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.keys_of_topic.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_is_known_where_it_was_acked_until_it_has_rested() {
        let (mut courses, began) = (Courses::default(), Instant::now());
        courses.prove(Some(("t", "a")));
        courses.prove(None);
        assert!(courses.knows(Some(("t", "a"))));
        assert!(!courses.knows(Some(("t", "b"))) && !courses.knows(Some(("u", "a"))) && !courses.knows(None));
        courses.rest(began);
        courses.wake(began + KNOWN_FOR);
        assert!(courses.knows(Some(("t", "a"))));
        courses.wake(began + KNOWN_FOR + Duration::from_millis(1));
        assert!(!courses.knows(Some(("t", "a"))));
    }

    #[test]
    fn courses_have_a_bound() {
        let mut courses = Courses::default();
        for key in 0..=COURSES_MAX {
            courses.prove(Some(("t", &key.to_string())));
            courses.prove(Some(("t", &key.to_string())));
        }
        assert_eq!(courses.count, 1);
        assert!(courses.knows(Some(("t", &COURSES_MAX.to_string()))) && !courses.knows(Some(("t", "0"))));
    }
}
