//! The protocol against random histories of a server: every row in exactly one window, and where its tick
//! said that it would be.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::event::EventId;
use crate::position::{Shard, ShardSet};

/// What a server's history consists of.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A transaction takes its xid.
    Begin,
    /// A running one writes a row.
    Insert(usize),
    /// A running one uses xids for inner transactions.
    Nest(usize, u64),
    /// A running one ends.
    End(usize, bool),
    /// A reader takes its snapshot; what it reads besides comes with the next step but one.
    Look,
    /// Ids are skipped, as on going on to the next leaf.
    Skip(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Begin),
        6 => any::<usize>().prop_map(Step::Insert),
        1 => (any::<usize>(), 1u64..9).prop_map(|(which, xids)| Step::Nest(which, xids)),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, commits)| Step::End(which, commits)),
        4 => Just(Step::Look),
        1 => (1i64..99).prop_map(Step::Skip),
    ]
}

#[derive(Debug, Clone, Copy)]
struct Row {
    xid: Xid,
    id: i64,
}

#[derive(Debug)]
struct Running {
    xid: Xid,
    highest: Xid,
    rows: Vec<Row>,
}

/// A server, and the chain of ticks that a reader makes of it.
#[derive(Debug)]
struct Server {
    next_xid: Xid,
    latest_completed: Xid,
    seq: i64,
    running: Vec<Running>,
    committed: Vec<Row>,
    /// A snapshot that was taken, with the steps left until the rest is read.
    looking: Option<(Snapshot, usize)>,
    ticks: Vec<Arc<Tick>>,
    probes: Vec<Probe>,
}

impl Server {
    fn run(first_xid: u64, steps: &[Step]) -> Self {
        let mut server = Self {
            next_xid: Xid(first_xid),
            latest_completed: Xid(first_xid - 1),
            seq: 0,
            running: Vec::new(),
            committed: Vec::new(),
            looking: None,
            ticks: vec![Arc::new(Tick::start())],
            probes: Vec::new(),
        };
        for step in steps {
            server.take(*step);
            server.look_on();
        }
        while let Some(last) = server.running.pop() {
            server.end(last, true);
        }
        (0..3).for_each(|_| server.look_on());
        server.take(Step::Look);
        (0..3).for_each(|_| server.look_on());
        server
    }

    fn issue_xid(&mut self) -> Xid {
        let xid = self.next_xid;
        self.next_xid = Xid(xid.0 + 1);
        xid
    }

    fn take(&mut self, step: Step) {
        let count = self.running.len();
        match step {
            Step::Begin => {
                let xid = self.issue_xid();
                self.running.push(Running { xid, highest: xid, rows: Vec::new() });
            }
            Step::Insert(which) if count > 0 => {
                self.seq += 1;
                let id = self.seq;
                let running = &mut self.running[which % count];
                running.rows.push(Row { xid: running.xid, id });
            }
            Step::Nest(which, xids) if count > 0 => {
                for _ in 0..xids {
                    self.running[which % count].highest = self.issue_xid();
                }
            }
            Step::End(which, commits) if count > 0 => {
                let running = self.running.swap_remove(which % count);
                self.end(running, commits);
            }
            Step::Look if self.looking.is_none() => self.looking = Some((self.snapshot(), 2)),
            Step::Skip(ids) => self.seq += ids,
            _ => {}
        }
    }

    fn end(&mut self, running: Running, commits: bool) {
        self.latest_completed = self.latest_completed.max(running.highest);
        if commits {
            self.committed.extend(running.rows);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let xmax = Xid(self.latest_completed.0 + 1);
        let running: Vec<Xid> = self.running.iter().map(|one| one.xid).filter(|xid| *xid < xmax).collect();
        let xmin = running.iter().copied().min().unwrap_or(xmax);
        Snapshot::new(xmin, xmax, running).unwrap()
    }

    fn look_on(&mut self) {
        let Some((snapshot, left)) = self.looking.take() else { return };
        if left > 0 {
            self.looking = Some((snapshot, left - 1));
            return;
        }
        let next_xid = Xid::widen(self.next_xid.0 as u32, snapshot.xmax());
        let (inserted, flushed) = (Lsn(0), Lsn(0));
        let probe = Probe { snapshot, seq: self.seq, next_xid, inserted, flushed };
        let before = self.ticks.last().unwrap();
        self.ticks.push(Arc::new(before.next(&probe)));
        self.probes.push(probe);
    }
}

fn history() -> impl Strategy<Value = Server> {
    let first = prop_oneof![Just(3u64), Just((1 << 32) - 30)];
    (first, prop::collection::vec(step(), 0..400)).prop_map(|(first, steps)| Server::run(first, &steps))
}

const SHARDS: i64 = 4;

/// Where each shard stands, and what was delivered of it.
struct Shards<'a> {
    server: &'a Server,
    places: Vec<ShardPosition>,
    delivered: Vec<Row>,
}

impl<'a> Shards<'a> {
    fn new(server: &'a Server) -> Self {
        let start = &server.ticks[0];
        let place = |shard| ShardPosition {
            shards: ShardSet::of([Shard(shard)]),
            window: Window::at(start),
            last_id: EventId(0),
        };
        Self { server, places: (0..SHARDS as u16).map(place).collect(), delivered: Vec::new() }
    }

    /// One life of an owner of some shards: it reads up to a tick, but at most so many rows.
    fn live(&mut self, held: ShardSet, to: &Tick, mut most: usize) {
        let held = ShardSet(held.0 & ((1 << SHARDS) - 1));
        let mut groups: Vec<ShardPosition> = Vec::new();
        for place in self.places.iter().filter(|place| held.meets(place.shards)) {
            let same = |other: &&mut ShardPosition| {
                let (one, two) = (&other.window, &place.window);
                Arc::ptr_eq(&one.from, &two.from)
                    && Arc::ptr_eq(&one.to, &two.to)
                    && other.last_id == place.last_id
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.shards = group.shards.union(place.shards),
                None => groups.push(place.clone()),
            }
        }
        let Some(first) = groups.first().cloned() else { return };
        let (mut known, mut at) = (0, Arc::clone(&first.window.to));
        if let Some(legs) = Legs::new(groups) {
            for (index, leg) in legs.iter().enumerate() {
                let last_id = self.read(leg, &mut most);
                if index % 2 == 0 || most == 0 {
                    self.stand(legs.reached(known, index, last_id));
                    known = index;
                }
                if most == 0 {
                    return;
                }
            }
            at = Arc::clone(legs.end());
        } else if !first.window.ends_at(first.last_id) {
            let last_id = self.read(&first, &mut most);
            self.stand(vec![ShardPosition { last_id, ..first }]);
            if most == 0 {
                return;
            }
        }
        let window = Window { to: Arc::new(at.union(to)), from: at };
        let last = ShardPosition { shards: held, last_id: EventId(window.lowest()), window };
        let last_id = self.read(&last, &mut most);
        self.stand(vec![ShardPosition { last_id, ..last }]);
    }

    /// Reads on in a window; up to which id.
    fn read(&mut self, place: &ShardPosition, most: &mut usize) -> EventId {
        let is_behind = |row: &&Row| place.window.holds(row.xid) && row.id > place.last_id.0;
        let mut rows: Vec<Row> = self.server.committed.iter().filter(is_behind).copied().collect();
        rows.sort_by_key(|row| row.id);
        for row in rows {
            if *most == 0 {
                return EventId(row.id - 1);
            }
            if place.shards.contains(Shard((row.id % SHARDS) as u16)) {
                *most -= 1;
                self.delivered.push(row);
            }
        }
        EventId(place.window.to.seq())
    }

    /// Moves all shards to what follows an id; the rows that this may pass over. Those that lie between a
    /// shard's last id and the new one, and, if the new one is beyond all ids of the shard's moment, whatever
    /// is visible below it.
    fn seek(&mut self, last_id: EventId, now: &Arc<Tick>) -> Vec<i64> {
        let mut passed_over = Vec::new();
        for place in &mut self.places {
            let beyond = last_id.0 > place.window.to.seq();
            let ahead = |row: &&Row| {
                place.shards.contains(Shard((row.id % SHARDS) as u16))
                    && row.id <= last_id.0
                    && now.snapshot.sees(row.xid)
                    && (beyond || (row.id > place.last_id.0 && place.window.to.snapshot.sees(row.xid)))
            };
            passed_over.extend(self.server.committed.iter().filter(ahead).map(|row| row.id));
            *place = place.moved(last_id, now);
        }
        passed_over
    }

    fn stand(&mut self, reached: Vec<ShardPosition>) {
        for place in reached {
            for shard in place.shards.iter() {
                self.places[usize::from(shard.0)] =
                    ShardPosition { shards: ShardSet::of([shard]), ..place.clone() };
            }
        }
    }
}

proptest! {
    /// However often shards change hands, wherever their owners stop, and whatever these have decoded before
    /// it was visible.
    #[test]
    fn shards_that_stand_apart_come_together_over_each_row_once(
        server in history(),
        lives in prop::collection::vec((any::<u64>(), any::<usize>(), any::<Option<usize>>(), 0usize..40), 0..12),
    ) {
        let mut shards = Shards::new(&server);
        for (held, tick, decoded, most) in lives {
            let tick = &server.ticks[tick % server.ticks.len()];
            // Before the first look no reader follows a stream.
            let follows = !server.committed.is_empty() && tick.snapshot != Snapshot::empty();
            let early = decoded.filter(|_| follows).map(|row| {
                let xid = server.committed[row % server.committed.len()].xid;
                let last = server.committed.iter().filter(|row| row.xid == xid).map(|row| row.id).max();
                tick.decoded(&[xid], EventId(last.unwrap_or_default()))
            });
            shards.live(ShardSet(held), early.as_ref().unwrap_or(tick), most);
        }
        shards.live(ShardSet::ALL, server.ticks.last().unwrap(), usize::MAX);
        let mut delivered: Vec<i64> = shards.delivered.iter().map(|row| row.id).collect();
        delivered.sort_unstable();
        let mut all: Vec<i64> = server.committed.iter().map(|row| row.id).collect();
        all.sort_unstable();
        prop_assert_eq!(delivered, all);
    }

    /// However owners stop, shards stand apart, and moves follow each other.
    #[test]
    fn a_move_never_passes_over_what_was_not_asked_for(
        server in history(),
        lives in prop::collection::vec((any::<u64>(), any::<usize>(), 0usize..40, any::<Option<i64>>()), 0..12),
    ) {
        let mut shards = Shards::new(&server);
        let mut passed_over: BTreeSet<i64> = BTreeSet::new();
        let mut tick = 0;
        for (held, ticks, most, to) in lives {
            // Moments follow each other; the shards are moved at a moment that the reader has not seen.
            tick = (tick + ticks % 3).min(server.ticks.len() - 1);
            shards.live(ShardSet(held), &server.ticks[tick], most);
            if let Some(to) = to {
                tick = (tick + ticks / 3 % 2).min(server.ticks.len() - 1);
                let now = &server.ticks[tick];
                let last_id = EventId(to.rem_euclid(now.seq() + 1));
                passed_over.extend(shards.seek(last_id, now));
            }
        }
        shards.live(ShardSet::ALL, server.ticks.last().unwrap(), usize::MAX);
        let delivered: BTreeSet<i64> = shards.delivered.iter().map(|row| row.id).collect();
        for row in &server.committed {
            prop_assert!(delivered.contains(&row.id) || passed_over.contains(&row.id), "{:?} is lost", row);
        }
    }

    #[test]
    fn each_row_is_in_exactly_one_window_and_above_its_lowest(server in history()) {
        for row in &server.committed {
            let windows = server.ticks.windows(2).map(|pair| Window {
                from: Arc::clone(&pair[0]),
                to: Arc::clone(&pair[1]),
            });
            let holding: Vec<Window> = windows.filter(|window| window.holds(row.xid)).collect();
            prop_assert_eq!(holding.len(), 1, "{:?}", row);
            prop_assert!(row.id > holding[0].lowest(), "{:?}", row);
            prop_assert!(row.id <= holding[0].to.seq(), "{:?}", row);
        }
    }

    #[test]
    fn whoever_skips_windows_finds_the_same_rows(server in history(), from: usize, to: usize) {
        let count = server.ticks.len();
        let (from, to) = (from % count, to % count);
        let window = Window {
            from: Arc::clone(&server.ticks[from.min(to)]),
            to: Arc::clone(&server.ticks[from.max(to)]),
        };
        for row in server.committed.iter().filter(|row| window.holds(row.xid)) {
            prop_assert!(row.id > window.lowest() && row.id <= window.to.seq(), "{:?}", row);
        }
    }

    #[test]
    fn a_tick_is_outdated_by_whatever_became_visible(server in history()) {
        for (tick, probe) in server.ticks.iter().zip(&server.probes) {
            let new = |row: &&Row| probe.snapshot.sees(row.xid) && !tick.snapshot.sees(row.xid);
            if let Some(row) = server.committed.iter().find(new) {
                prop_assert!(tick.is_outdated_by(probe), "{:?} {:?}", row, tick);
            }
        }
    }

    #[test]
    fn what_an_eager_read_misses_is_told_by_the_lowest(server in history(), reach in 0i64..60) {
        for pair in server.ticks.windows(2) {
            let window = Window { from: Arc::clone(&pair[0]), to: Arc::clone(&pair[1]) };
            let eager = window.from.eager_lowest(reach);
            prop_assert!(eager <= window.from.seq());
            let missed = server.committed.iter().any(|row| window.holds(row.xid) && row.id <= eager);
            prop_assert!(!missed || window.lowest() < eager);
        }
    }

    #[test]
    fn rows_below_a_windows_beginning_are_of_its_stragglers(server in history(), from: usize, max in 0usize..9) {
        let first = from % server.ticks.len();
        let (begin, rest) = (&server.ticks[first], &server.ticks[first..]);
        for to in rest {
            let window = Window { from: Arc::clone(begin), to: Arc::clone(to) };
            let all = window.stragglers(usize::MAX).unwrap();
            prop_assert!(all.iter().all(|xid| window.holds(*xid)));
            for row in server.committed.iter().filter(|row| window.holds(row.xid) && row.id <= begin.seq()) {
                prop_assert!(all.contains(&row.xid), "{:?} {:?}", row, all);
            }
            prop_assert_eq!(window.stragglers(max), (all.len() <= max).then_some(all));
        }
    }

    #[test]
    fn a_position_covers_more_and_more_and_at_last_everything(server in history(), cut in 0i64..200) {
        let mut covered: BTreeSet<i64> = BTreeSet::new();
        for pair in server.ticks.windows(2) {
            let window = Window { from: Arc::clone(&pair[0]), to: Arc::clone(&pair[1]) };
            for last in [cut.min(window.to.seq()), window.to.seq()].map(EventId) {
                let behind = |row: &&Row| window.covers(row.xid, EventId(row.id), last);
                let now: BTreeSet<i64> = server.committed.iter().filter(behind).map(|row| row.id).collect();
                prop_assert!(now.is_superset(&covered));
                covered = now;
            }
            prop_assert!(window.ends_at(EventId(window.to.seq())));
        }
        prop_assert_eq!(covered.len(), server.committed.len());
    }

    #[test]
    fn a_thinned_list_of_bounds_is_true_and_keeps_the_newest(bounds in prop::collection::vec((1u64..50, 1i64..50), 1..600)) {
        let (mut xid_bounds, mut all, mut xid, mut seq) = (XidBounds::default(), Vec::new(), 3, 0);
        for (xids, ids) in bounds {
            (xid, seq) = (xid + xids, seq + ids);
            let bound = XidBound { next_xid: Xid(xid), seq };
            all.push(bound);
            xid_bounds = xid_bounds.climb(bound, &Snapshot::empty());
            prop_assert!(xid_bounds.bounds().len() <= XID_BOUNDS_MAX);
            prop_assert_eq!(xid_bounds.floor(Xid(xid)), seq);
        }
        prop_assert!(xid_bounds.bounds().iter().all(|bound| all.contains(bound)));
        prop_assert_eq!(xid_bounds.bounds()[0], all[0], "the lowest stays, for the oldest straggler");
    }
}
