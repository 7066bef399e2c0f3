//! Where the lanes of a queue begin, so that what is gone need not be walked over.
//!
//! An event that is done leaves entries behind in the indexes of its lane, and while a transaction holds
//! a snapshot nothing removes them. A search for the head of a lane, or for the next one, would meet all of
//! them first. So it begins at the lane's **floor**: a turn before which the lane has no row and will
//! never have one.
//!
//! Why there is such a turn, where keys have an order and for events that are not delayed:
//!
//! 1. Turns are drawn from a sequence under the subscription's lock: by a feed, of which each lane has one at
//!    a time, or by a replay, which is alone. The next feed or replay draws when that transaction has ended.
//!    So a row that enters a lane has a larger turn than any row that is or ever was in it.
//! 2. The head has the least turn of its lane: when it leaves, the least of those that wait becomes the next
//!    one. A dead letter that holds its lane is its head; it has kept its turn, and has it again when it is
//!    replayed. Any other letter that is replayed draws a new one.
//! 3. So the turn of a head is a floor from the moment when a transaction has seen its row; and so is the
//!    turn of a row that enters an empty lane.
//!
//! Settles, and handlers that ack, take a head away: they have seen its turn, and need no memory. A feeder
//! remembers what it saw at the last feed; the bound on that is in lanes, and lanes that are fed often stay.
//!
//! What was seen is true for as long as the server does not crash: then feeds that were not flushed are
//! undone, and their turns are drawn again. So this memory is bound to the connections that it is used on, as
//! that of `holding.rs`: a crash ends them, and what was seen after a connection was made is true as long as
//! it lasts.
//!
//! Lanes of delayed events are in the order of their due times, and those of keys with a limit and no order
//! in that of ids, which come in any order: they have no floor, and are looked at as a whole.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;

/// The floor of a lane of which nothing is known.
pub(super) const ALL: i64 = i64::MIN;

/// Lanes of a queue that are remembered, twice: those that were fed lately, and those before them. Where more
/// keys than that take turns, few events of each have gone while a snapshot is held.
const LANES_MAX: usize = 32_768;

/// A lane, from its floor on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(super) lane: Lane,
    pub(super) floor: i64,
}

impl Rest {
    /// The whole lane.
    pub(crate) fn all(lane: Lane) -> Self {
        Self { lane, floor: ALL }
    }

    /// What a head leaves behind that was taken away.
    pub(super) fn behind(lane: Lane, turn: i64) -> Self {
        let floor = if lane.late { ALL } else { turn };
        Self { lane, floor }
    }
}

/// The floors that this process knows.
#[derive(Default)]
pub(crate) struct Floors {
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    sessions: Sessions,
    queues: HashMap<SubscriptionId, Generations>,
}

/// The connections on which floors are used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sessions {
    writer: Option<u64>,
    settler: Option<u64>,
}

/// What is used stays: it moves from the older generation to the younger.
#[derive(Default)]
struct Generations {
    young: HashMap<Lane, i64>,
    old: HashMap<Lane, i64>,
}

impl Generations {
    fn get(&self, lane: &Lane) -> i64 {
        self.young.get(lane).or_else(|| self.old.get(lane)).copied().unwrap_or(ALL)
    }

    fn put(&mut self, lane: &Lane, floor: i64) {
        let floor = floor.max(self.get(lane));
        if let Some(known) = self.young.get_mut(lane) {
            *known = floor;
            return;
        }
        if self.young.len() >= LANES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(lane.clone(), floor);
    }
}

impl Memory {
    /// Forgets everything if a connection is another one than before: what is known was seen before it was made.
    fn bind(&mut self, sessions: Sessions) {
        if self.sessions != sessions {
            *self = Self { sessions, queues: HashMap::new() };
        }
    }
}

impl Floors {
    /// The floors of lanes for a feed on this connection, and what has to be said when it is known how they stand then.
    pub(super) fn of_feed<'a>(
        &self,
        writer: u64,
        id: SubscriptionId,
        lanes: impl Iterator<Item = &'a Lane>,
    ) -> (Sessions, Vec<i64>) {
        let mut memory = self.lock();
        let sessions = Sessions { writer: Some(writer), ..memory.sessions };
        memory.bind(sessions);
        let known = memory.queues.get(&id);
        (sessions, lanes.map(|lane| known.map_or(ALL, |known| known.get(lane))).collect())
    }

    /// Takes in what a feed has seen, unless a connection was replaced meanwhile.
    pub(super) fn seen<'a>(
        &self,
        sessions: Sessions,
        id: SubscriptionId,
        seen: impl Iterator<Item = (&'a Lane, Option<i64>)>,
    ) {
        let mut memory = self.lock();
        if memory.sessions != sessions {
            return;
        }
        let known = memory.queues.entry(id).or_default();
        for (lane, floor) in seen {
            if let Some(floor) = floor {
                known.put(lane, floor);
            }
        }
    }

    /// Lanes from their floors on, for a sweep on this connection.
    pub(super) fn of_sweep(&self, settler: u64, id: SubscriptionId, lanes: &[Lane]) -> Vec<Rest> {
        let mut memory = self.lock();
        let sessions = Sessions { settler: Some(settler), ..memory.sessions };
        memory.bind(sessions);
        let known = memory.queues.get(&id);
        let rest = |lane: &Lane| Rest::behind(lane.clone(), known.map_or(ALL, |known| known.get(lane)));
        lanes.iter().map(rest).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Key;

    use super::*;

    const ID: SubscriptionId = SubscriptionId(1);

    fn lane(key: &str) -> Lane {
        Lane { key: Key::new(key), late: false }
    }

    fn floor(floors: &Floors, writer: u64) -> i64 {
        floors.of_feed(writer, ID, [lane("a")].iter()).1[0]
    }

    #[test]
    fn a_floor_never_sinks_and_what_is_not_seen_changes_nothing() {
        let (floors, a) = (Floors::default(), lane("a"));
        let (sessions, before) = floors.of_feed(7, ID, [&a].into_iter());
        assert_eq!(before, [ALL]);
        for (seen, wanted) in [(Some(5), 5), (None, 5), (Some(3), 5), (Some(9), 9)] {
            floors.seen(sessions, ID, [(&a, seen)].into_iter());
            assert_eq!(floor(&floors, 7), wanted);
        }
        assert_eq!(floors.of_feed(7, SubscriptionId(2), [&a].into_iter()).1, [ALL]);
    }

    #[test]
    fn a_new_connection_forgets_what_was_seen_before_it() {
        let (floors, a) = (Floors::default(), lane("a"));
        let seen = |sessions| floors.seen(sessions, ID, [(&a, Some(5))].into_iter());
        let swept = |settler| floors.of_sweep(settler, ID, std::slice::from_ref(&a))[0].floor;
        seen(floors.of_feed(7, ID, [&a].into_iter()).0);
        assert_eq!(swept(1), ALL, "it may have been made after a crash");
        assert_eq!(floor(&floors, 7), ALL);
        let sessions = floors.of_feed(7, ID, [&a].into_iter()).0;
        seen(sessions);
        assert_eq!((swept(1), floor(&floors, 7)), (5, 5));
        assert_eq!(floor(&floors, 8), ALL);
        seen(sessions);
        assert_eq!(floor(&floors, 8), ALL, "what was under way on the old connection is not believed");
    }

    #[test]
    fn memory_is_bounded_and_keeps_what_is_used() {
        let (floors, a) = (Floors::default(), lane("a"));
        let (sessions, _) = floors.of_feed(7, ID, [&a].into_iter());
        for n in 0..LANES_MAX * 3 {
            let other = lane(&format!("k{n}"));
            floors.seen(sessions, ID, [(&other, Some(1)), (&a, Some(2))].into_iter());
        }
        assert_eq!(floor(&floors, 7), 2);
        let memory = floors.lock();
        let known = &memory.queues[&ID];
        assert!(known.young.len() <= LANES_MAX && known.old.len() <= LANES_MAX);
    }

    #[test]
    fn lanes_of_delayed_events_have_no_floor() {
        let late = Lane { late: true, ..lane("a") };
        assert_eq!(Rest::behind(late, 5).floor, ALL);
        assert_eq!(Rest::behind(lane("a"), 5).floor, 5);
    }
}
