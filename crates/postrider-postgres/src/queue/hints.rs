//! Where those who claim begin to look.
//!
//! A row that is ready stays in its index while it is leased, and for as long as an old snapshot is held also
//! when it is gone. So a claim begins where the last one has found something. That is a hint and nothing
//! else: whoever makes rows ready gives them a virtual time that is not below the **front**, which all have
//! come to, and
//!
//! - tells its own claims of them ([`Hints::lower`]);
//! - others look from the front on once a second;
//! - everybody looks at everything once in ten seconds, whatever has gone wrong, and whoever ends when
//!   nothing is left does before it believes that.
//!
//! Claims of one process may overlap, the worker's and that of the feeder beside it. Each locks more rows
//! than it takes (it stops at so many events, and a row may stand for a hundred), and the other passes over
//! what is locked. So what a claim finds says nothing about the rows below it that others had in hand
//! meanwhile:
//!
//! ```text
//!   rows      a a a . . . . . b b b          A locks ten rows and takes three; B finds the eleventh and those behind it
//!                   └ nobody's: the next claim must begin here, whoever has ended last
//! ```
//!
//! Let `from(X)` be where X has begun to look, and `first(X)` where it has found something: all that X locks
//! lies from there on. When X ends, the next claim begins at the least of `first(X)`, the `first` of all that
//! have ended while X flew, and the `from` of those that still fly. So nothing begins above the `from` of one
//! that flies, and what a claim has left that fails or is dropped is found.
//!
//! A sweep that looks for rows whose time has come begins likewise where the last one has ended, for the same
//! reason. Rows that are put off are due later than that; one that was due already when it was fed is told to
//! the sweeps of its feeder's process, and the others find it when they look at everything.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::Timestamp;
use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;

/// How often the front is looked at.
const FRONT_EVERY: Duration = Duration::from_secs(1);
/// How often everything is.
const ALL_EVERY: Duration = Duration::from_secs(10);

/// A rank, and a virtual time in it.
pub(crate) type Ready = (i16, i64);

/// A rank, and whether of those in it that have failed before: a claim takes few of these, and leaves the
/// others where they are.
type Part = (i16, bool);

/// What this process knows of the queues that it works on.
#[derive(Default)]
pub(crate) struct Hints {
    queues: Arc<Mutex<HashMap<SubscriptionId, Known>>>,
}

#[derive(Default)]
struct Known {
    /// Of each part of the queue, where the last claim has found something.
    lows: BTreeMap<Part, i64>,
    /// Of each rank, the front when it was last looked at.
    fronts: BTreeMap<i16, i64>,
    front_at: Option<Instant>,
    all_at: Option<Instant>,
    /// Where the last sweep for rows whose time has come has ended; none if the next one looks at all.
    due_from: Option<Timestamp>,
    all_due_at: Option<Instant>,
    /// Lanes of which it was not known whether somebody is in them.
    unsure: HashSet<Lane>,
    /// Claims that are under way, by their numbers.
    flying: BTreeMap<u64, Flying>,
    flown: u64,
}

/// A claim that is under way.
#[derive(Default)]
struct Flying {
    /// Of each part, where it began to look.
    from: BTreeMap<Part, i64>,
    /// Of each part, the first that those have found which have ended meanwhile.
    met: BTreeMap<Part, i64>,
}

impl Known {
    /// A claim has ended, which may have locked rows from these on.
    fn land(&mut self, number: u64, first: impl Fn(Part, i64) -> i64) -> Option<Flying> {
        let landed = self.flying.remove(&number)?;
        for other in self.flying.values_mut() {
            for (part, from) in &landed.from {
                let first = first(*part, *from);
                let met = other.met.entry(*part).or_insert(first);
                *met = first.min(*met);
            }
        }
        Some(landed)
    }
}

/// Where a claim looks: of each rank, at which virtual time it begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) ranks: Vec<i16>,
    pub(crate) lows: Vec<i64>,
    /// The same for those that have failed before.
    pub(crate) again: Vec<i64>,
}

/// A row that a claim has found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) ready: Ready,
    /// Whether it has failed before.
    pub(crate) again: bool,
}

/// A claim that is under way, and where it looks. One that is dropped without having been told what it found
/// has found nothing.
pub(crate) struct Flight {
    queues: Arc<Mutex<HashMap<SubscriptionId, Known>>>,
    id: SubscriptionId,
    number: u64,
    pub(crate) scan: Scan,
}

impl Flight {
    /// Takes in what the claim has found; `full` if there may be more.
    pub(crate) fn found(&self, found: &[Hit], full: bool) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let known = queues.entry(self.id).or_default();
        let first = |(rank, again): Part| {
            let of_it = found.iter().filter(|hit| hit.again == again && hit.ready.0 == rank);
            of_it.map(|hit| hit.ready.1).min()
        };
        let Some(landed) = known.land(self.number, |part, from| first(part).unwrap_or(from)) else { return };
        for (part, from) in &landed.from {
            let Some(low) = known.lows.get_mut(part) else { continue };
            // Somebody has told us of a row that this claim did not see.
            if *low != *from {
                continue;
            }
            let next = match first(*part) {
                Some(first) => first,
                // Nothing is ready: what comes next will not lie below the front.
                None if !full => known.fronts.get(&part.0).copied().unwrap_or(*from).max(*from),
                // What a claim takes is the beginning of both parts in one order: before what it took of the
                // one there is nothing of the other.
                None if part.1 => first((part.0, false)).unwrap_or(*from),
                None => *from,
            };
            let met = landed.met.get(part).copied();
            let others = known.flying.values().filter_map(|other| other.from.get(part).copied());
            *low = others.chain(met).fold(next, i64::min).max(*from);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = queues.get_mut(&self.id) {
            known.land(self.number, |_, from| from);
        }
    }
}

impl Hints {
    /// What to say and ask of the front, if it is time to.
    pub(crate) fn front_due(&self, id: SubscriptionId, now: Instant) -> Option<Scan> {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        // Where nothing was ever fed, the first event must not wait for its rank to be found.
        let due =
            known.lows.is_empty() || known.front_at.is_none_or(|at| now.duration_since(at) >= FRONT_EVERY);
        // Nobody has come further than to the least of what there may be.
        due.then(|| {
            let scan = Scan::of(&known.lows);
            let lows = scan.lows.iter().zip(&scan.again).map(|(low, again)| *low.min(again)).collect();
            Scan { lows, ..scan }
        })
    }

    /// Takes in where the front stands. The next claim begins where it stood the last time: what was made
    /// ready since lies behind that.
    pub(crate) fn front_found(&self, id: SubscriptionId, fronts: BTreeMap<i16, i64>, now: Instant) {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        let before = std::mem::replace(&mut known.fronts, fronts);
        let all = known.all_at.is_none_or(|at| now.duration_since(at) >= ALL_EVERY);
        for rank in known.fronts.keys() {
            let from = if all { i64::MIN } else { before.get(rank).copied().unwrap_or(i64::MIN) };
            for again in [false, true] {
                let low = known.lows.entry((*rank, again)).or_insert(from);
                *low = from.min(*low);
            }
        }
        known.front_at = Some(now);
        if all {
            known.all_at = Some(now);
        }
    }

    /// Begins a claim, where there was something to find lately; one that looks for what has failed before too, or not.
    pub(crate) fn fly(&self, id: SubscriptionId, again: bool) -> Flight {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        known.flown += 1;
        let number = known.flown;
        let looked_at = known.lows.iter().filter(|(part, _)| again || !part.1);
        let from = looked_at.map(|(part, low)| (*part, *low)).collect();
        known.flying.insert(number, Flying { from, met: BTreeMap::new() });
        Flight { queues: Arc::clone(&self.queues), id, number, scan: Scan::of(&known.lows) }
    }

    /// Rows have been made ready.
    pub(crate) fn lower(&self, id: SubscriptionId, ready: &[Ready]) {
        if ready.is_empty() {
            return;
        }
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        for (rank, time) in ready {
            for again in [false, true] {
                let low = known.lows.entry((*rank, again)).or_insert(*time);
                *low = (*low).min(*time);
            }
        }
    }

    /// Somebody else has made rows ready, nobody knows which: the next claim looks at the front.
    pub(crate) fn look_again(&self, id: SubscriptionId) {
        self.lock().entry(id).or_default().front_at = None;
    }

    /// The next claim looks at everything.
    pub(crate) fn look_at_all(&self, id: SubscriptionId) {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        (known.front_at, known.all_at) = (None, None);
    }

    /// From which due time on a sweep looks for rows whose time has come.
    pub(crate) fn due_from(&self, id: SubscriptionId, now: Instant) -> Option<Timestamp> {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        if known.all_due_at.is_none_or(|at| now.duration_since(at) >= ALL_EVERY) {
            (known.due_from, known.all_due_at) = (None, Some(now));
        }
        known.due_from
    }

    /// Takes in where a sweep has ended that looked from `from` on.
    pub(crate) fn came_due(&self, id: SubscriptionId, from: Option<Timestamp>, to: Option<Timestamp>) {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        // Otherwise somebody has told us of a row that this sweep did not see.
        if known.due_from == from {
            known.due_from = to;
        }
    }

    /// Rows were fed, the first of which is due then.
    pub(crate) fn due(&self, id: SubscriptionId, first: Option<Timestamp>) {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        known.due_from = known.due_from.map(|from| first.map_or(from, |first| first.min(from)));
    }

    /// Which of some ranks have not been used before, as far as is known.
    pub(crate) fn new_ranks(&self, id: SubscriptionId, ranks: impl Iterator<Item = i16>) -> Vec<i16> {
        let queues = self.lock();
        let known = queues.get(&id);
        let mut new: Vec<i16> =
            ranks.filter(|rank| known.is_none_or(|known| !known.fronts.contains_key(rank))).collect();
        new.sort_unstable();
        new.dedup();
        new
    }

    /// These are known by now.
    pub(crate) fn put_ranks(&self, id: SubscriptionId, ranks: &[i16]) {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        for rank in ranks {
            known.fronts.entry(*rank).or_insert(0);
        }
    }

    /// Notes lanes of which it was not known whether somebody is in them.
    pub(crate) fn unsure(&self, id: SubscriptionId, lanes: Vec<Lane>) {
        if !lanes.is_empty() {
            self.lock().entry(id).or_default().unsure.extend(lanes);
        }
    }

    /// These lanes, for whoever looks at them again. They stay noted until that is done: a look may fail.
    pub(crate) fn unsure_lanes(&self, id: SubscriptionId) -> Vec<Lane> {
        self.lock().get(&id).map(|known| known.unsure.iter().cloned().collect()).unwrap_or_default()
    }

    /// Lanes were looked at again; those that are left have to be once more.
    pub(crate) fn sure(&self, id: SubscriptionId, looked_at: &[Lane], left: &[Lane]) {
        if let Some(known) = self.lock().get_mut(&id) {
            known.unsure.retain(|lane| !looked_at.contains(lane) || left.contains(lane));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SubscriptionId, Known>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scan {
    fn of(lows: &BTreeMap<Part, i64>) -> Self {
        let part = |again| lows.iter().filter(move |(part, _)| part.1 == again);
        Self {
            ranks: part(false).map(|(part, _)| part.0).collect(),
            lows: part(false).map(|(_, low)| *low).collect(),
            again: part(true).map(|(_, low)| *low).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SubscriptionId = SubscriptionId(1);

    fn hits(times: &[i64]) -> Vec<Hit> {
        times.iter().map(|time| Hit { ready: (0, *time), again: false }).collect()
    }

    fn low(hints: &Hints) -> i64 {
        hints.fly(ID, true).scan.lows[0]
    }

    #[test]
    fn a_claim_begins_where_the_last_one_found_something() {
        let (hints, now) = (Hints::default(), Instant::now());
        assert_eq!(hints.front_due(ID, now), Some(Scan::default()));
        hints.front_found(ID, BTreeMap::from([(0, 5)]), now);
        assert_eq!(low(&hints), i64::MIN, "at first everything is looked at");
        hints.fly(ID, true).found(&hits(&[9, 7]), true);
        assert_eq!((low(&hints), hints.front_due(ID, now)), (7, None));
        let flight = hints.fly(ID, true);
        hints.lower(ID, &[(0, 6)]);
        flight.found(&hits(&[8]), true);
        assert_eq!(low(&hints), 6, "what was made ready meanwhile is not passed over");
    }

    #[test]
    fn what_one_claim_had_in_hand_and_left_is_not_passed_over_by_another() {
        // Both overlap; the first one has rows 1 to 10 in hand and takes 1 to 3, the other one finds 11 and
        // those behind it.
        for first_lands_first in [true, false] {
            let hints = Hints::default();
            hints.front_found(ID, BTreeMap::from([(0, 1)]), Instant::now());
            let (first, second) = (hints.fly(ID, true), hints.fly(ID, true));
            let land_first = |flight: Flight| flight.found(&hits(&[1, 2, 3]), true);
            let land_second = |flight: Flight| flight.found(&hits(&[11]), true);
            if first_lands_first {
                land_first(first);
                land_second(second);
            } else {
                land_second(second);
                assert_eq!(low(&hints), i64::MIN, "nobody knows yet what the first one leaves");
                land_first(first);
            }
            assert!(low(&hints) <= 4, "row 4 is nobody's: {}", low(&hints));
            hints.fly(ID, true).found(&hits(&[4]), true);
            assert_eq!(low(&hints), 4);
        }
    }

    #[test]
    fn those_that_have_failed_are_looked_for_from_where_they_were_left() {
        let (hints, now) = (Hints::default(), Instant::now());
        hints.front_found(ID, BTreeMap::from([(0, 1)]), now);
        hints
            .fly(ID, true)
            .found(&[Hit { ready: (0, 3), again: true }, Hit { ready: (0, 90), again: false }], true);
        hints.fly(ID, false).found(&hits(&[95]), true);
        let flight = hints.fly(ID, true);
        assert_eq!((&flight.scan.lows, &flight.scan.again), (&vec![95], &vec![3]));
        let told = hints.front_due(ID, now + FRONT_EVERY).unwrap();
        assert_eq!(told.lows, [3], "others must not pass over them either");
    }

    #[test]
    fn what_a_claim_had_in_hand_that_failed_is_not_passed_over() {
        let hints = Hints::default();
        hints.front_found(ID, BTreeMap::from([(0, 1)]), Instant::now());
        let (fails, other) = (hints.fly(ID, true), hints.fly(ID, true));
        drop(fails);
        other.found(&hits(&[11]), true);
        assert_eq!(low(&hints), i64::MIN);
    }

    #[test]
    fn whoever_wants_to_know_that_nothing_is_left_looks_at_everything() {
        let (hints, now) = (Hints::default(), Instant::now());
        hints.front_found(ID, BTreeMap::from([(0, 1)]), now);
        hints.fly(ID, true).found(&hits(&[7]), true);
        hints.look_at_all(ID);
        assert!(hints.front_due(ID, now).is_some());
        hints.front_found(ID, BTreeMap::from([(0, 7)]), now);
        assert_eq!(low(&hints), i64::MIN);
    }

    #[test]
    fn the_front_is_looked_at_from_where_it_stood_before() {
        let (hints, now) = (Hints::default(), Instant::now());
        hints.front_found(ID, BTreeMap::from([(0, 5)]), now);
        hints.fly(ID, true).found(&hits(&[100]), true);
        let later = now + FRONT_EVERY;
        assert_eq!(
            hints.front_due(ID, later),
            Some(Scan { ranks: vec![0], lows: vec![100], again: vec![100] })
        );
        hints.front_found(ID, BTreeMap::from([(0, 100)]), later);
        assert_eq!(low(&hints), 5);
        hints.fly(ID, true).found(&[], false);
        assert_eq!(low(&hints), 100, "nothing was found, so that all that comes lies behind the front");
        hints.front_found(ID, BTreeMap::from([(0, 100), (3, 0)]), now + ALL_EVERY);
        assert_eq!(
            hints.fly(ID, true).scan,
            Scan { ranks: vec![0, 3], lows: vec![i64::MIN; 2], again: vec![i64::MIN; 2] }
        );
    }

    #[test]
    fn a_sweep_begins_where_the_last_one_ended() {
        let (hints, now) = (Hints::default(), Instant::now());
        let at = |us| Some(Timestamp::from_micros(us));
        assert_eq!(hints.due_from(ID, now), None, "at first everything is looked at");
        hints.came_due(ID, None, at(50));
        hints.due(ID, at(70));
        assert_eq!(hints.due_from(ID, now), at(50));
        hints.due(ID, at(30));
        assert_eq!(hints.due_from(ID, now), at(30), "it was late when it was fed");
        hints.came_due(ID, at(50), at(60));
        assert_eq!(hints.due_from(ID, now), at(30), "the sweep did not see it");
        hints.came_due(ID, at(30), at(60));
        assert_eq!(hints.due_from(ID, now), at(60));
        assert_eq!(hints.due_from(ID, now + ALL_EVERY), None);
        assert_eq!(hints.due_from(ID, now + ALL_EVERY), None, "until a sweep has looked at all");
    }
}
