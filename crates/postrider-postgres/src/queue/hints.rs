//! Where those who claim begin to look.
//!
//! A row that is ready stays in its index while it is leased, and for as long as an old snapshot is held also when it is
//! gone. So a claim begins where the last one has found something. That is a hint and nothing else: whoever makes rows
//! ready gives them a virtual time that is not below the **front**, which all have come to, and
//!
//! - tells its own claims of them ([`Hints::lower`]);
//! - others look from the front on once a second;
//! - everybody looks at everything once in ten seconds, whatever has gone wrong.
//!
//! A sweep that looks for rows whose time has come begins likewise where the last one has ended, for the same reason. Rows that
//! are put off are due later than that; one that was due already when it was fed is told to the sweeps of its feeder's
//! process, and the others find it when they look at everything.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// What this process knows of the queues that it works on.
#[derive(Default)]
pub(crate) struct Hints {
    queues: Mutex<HashMap<SubscriptionId, Known>>,
}

#[derive(Default)]
struct Known {
    /// Of each rank, where the last claim has found something.
    lows: BTreeMap<i16, i64>,
    /// Of each rank, the front when it was last looked at.
    fronts: BTreeMap<i16, i64>,
    front_at: Option<Instant>,
    all_at: Option<Instant>,
    /// Where the last sweep for rows whose time has come has ended; none if the next one looks at all.
    due_from: Option<Timestamp>,
    all_due_at: Option<Instant>,
    /// Lanes of which it was not known whether somebody is in them.
    unsure: HashSet<Lane>,
}

/// Where a claim looks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) ranks: Vec<i16>,
    pub(crate) lows: Vec<i64>,
}

impl Hints {
    /// What to say and ask of the front, if it is time to.
    pub(crate) fn front_due(&self, id: SubscriptionId, now: Instant) -> Option<Scan> {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        // Where nothing was ever fed, the first event must not wait for its rank to be found.
        let due =
            known.lows.is_empty() || known.front_at.is_none_or(|at| now.duration_since(at) >= FRONT_EVERY);
        due.then(|| Scan::of(&known.lows))
    }

    /// Takes in where the front stands. The next claim begins where it stood the last time: what was made ready since lies
    /// behind that.
    pub(crate) fn front_found(&self, id: SubscriptionId, fronts: BTreeMap<i16, i64>, now: Instant) {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        let before = std::mem::replace(&mut known.fronts, fronts);
        let all = known.all_at.is_none_or(|at| now.duration_since(at) >= ALL_EVERY);
        for rank in known.fronts.keys() {
            let from = if all { i64::MIN } else { before.get(rank).copied().unwrap_or(i64::MIN) };
            let low = known.lows.entry(*rank).or_insert(from);
            *low = from.min(*low);
        }
        known.front_at = Some(now);
        if all {
            known.all_at = Some(now);
        }
    }

    pub(crate) fn scan(&self, id: SubscriptionId) -> Scan {
        self.lock().get(&id).map_or_else(Scan::default, |known| Scan::of(&known.lows))
    }

    /// Takes in what a claim that looked from `scan` on has found; `full` if there may be more.
    pub(crate) fn claimed(&self, id: SubscriptionId, scan: &Scan, found: &[Ready], full: bool) {
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        for (rank, from) in scan.ranks.iter().zip(&scan.lows) {
            let Some(low) = known.lows.get_mut(rank) else { continue };
            // Somebody has told us of a row that this claim did not see.
            if *low != *from {
                continue;
            }
            let first = found.iter().filter(|(of, _)| of == rank).map(|(_, time)| *time).min();
            match first {
                Some(first) => *low = first,
                // Nothing is ready: what comes next will not lie below the front.
                None if !full => *low = known.fronts.get(rank).copied().unwrap_or(*from).max(*from),
                None => {}
            }
        }
    }

    /// Rows have been made ready.
    pub(crate) fn lower(&self, id: SubscriptionId, ready: &[Ready]) {
        if ready.is_empty() {
            return;
        }
        let mut queues = self.lock();
        let known = queues.entry(id).or_default();
        for (rank, time) in ready {
            let low = known.lows.entry(*rank).or_insert(*time);
            *low = (*low).min(*time);
        }
    }

    /// Somebody else has made rows ready, nobody knows which: the next claim looks at the front.
    pub(crate) fn look_again(&self, id: SubscriptionId) {
        self.lock().entry(id).or_default().front_at = None;
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
    fn of(lows: &BTreeMap<i16, i64>) -> Self {
        Self { ranks: lows.keys().copied().collect(), lows: lows.values().copied().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SubscriptionId = SubscriptionId(1);

    fn low(hints: &Hints) -> i64 {
        hints.scan(ID).lows[0]
    }

    #[test]
    fn a_claim_begins_where_the_last_one_found_something() {
        let (hints, now) = (Hints::default(), Instant::now());
        assert_eq!(hints.front_due(ID, now), Some(Scan::default()));
        hints.front_found(ID, BTreeMap::from([(0, 5)]), now);
        assert_eq!(low(&hints), i64::MIN, "at first everything is looked at");
        hints.claimed(ID, &hints.scan(ID), &[(0, 9), (0, 7)], true);
        assert_eq!((low(&hints), hints.front_due(ID, now)), (7, None));
        hints.lower(ID, &[(0, 6)]);
        hints.claimed(ID, &Scan { ranks: vec![0], lows: vec![7] }, &[(0, 8)], true);
        assert_eq!(low(&hints), 6, "what was made ready meanwhile is not passed over");
    }

    #[test]
    fn the_front_is_looked_at_from_where_it_stood_before() {
        let (hints, now) = (Hints::default(), Instant::now());
        hints.front_found(ID, BTreeMap::from([(0, 5)]), now);
        hints.claimed(ID, &hints.scan(ID), &[(0, 100)], true);
        let later = now + FRONT_EVERY;
        assert_eq!(hints.front_due(ID, later), Some(Scan { ranks: vec![0], lows: vec![100] }));
        hints.front_found(ID, BTreeMap::from([(0, 100)]), later);
        assert_eq!(low(&hints), 5);
        hints.claimed(ID, &hints.scan(ID), &[], false);
        assert_eq!(low(&hints), 100, "nothing was found, so that all that comes lies behind the front");
        hints.front_found(ID, BTreeMap::from([(0, 100), (3, 0)]), now + ALL_EVERY);
        assert_eq!(hints.scan(ID), Scan { ranks: vec![0, 3], lows: vec![i64::MIN, i64::MIN] });
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
