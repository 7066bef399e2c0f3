//! What this process remembers about the shards that it holds.
//!
//! Positions that go to the runtime and come back name windows by number; here is what the numbers mean. The
//! memory is bound to the two connections under which the shards were taken. That is the rule which a crash of
//! the server demands: xids that no surviving record mentions are issued again, so that a snapshot from before
//! it would hide rows of after it. A crash ends every connection; as long as the writer's is the one that was
//! there before a snapshot was taken, there was none in between.
//!
//! A connection to a pooler outlives a crash, but not its own use: each of its transactions first compares the server's
//! era with that in which the connection was made, and one that finds another gives the connection up
//! (`pooler.rs`). An era does not come back, and a transaction lies within one. So a transaction that was let through
//! on a connection says what it says on a direct one: from the making of the connection to this transaction there was
//! no crash. Binding holds to the era alone, and not to connections, would not do: a settle that was cut off may still be
//! at work in the server, and only a new taking of the shards keeps it from committing after the next one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use postrider_core::log::Window;
use postrider_core::settle::{HeldShard, Hold};
use postrider_core::{EventId, Mode, Position, Result, Shard, ShardSet};

use crate::fence::{Standing, lost};
use crate::position::{SHARDS, StoredPosition};

/// Everything that this process holds, by the address of what tells one taking of shards from another. A member can
/// hold several sets of shards of one subscription.
#[derive(Default)]
pub(crate) struct Holdings {
    held: Mutex<HashMap<usize, Holding>>,
}

/// The two connections under which shards were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sessions {
    pub(crate) reader: u64,
    pub(crate) writer: u64,
}

pub(crate) struct Holding {
    /// Tells one taking of the shards from another.
    shards: Arc<[HeldShard]>,
    sessions: Sessions,
    /// The connection for transactional handlers that was found to be of the same time.
    pub(crate) worker: Option<u64>,
    pub(crate) standing: Standing,
    /// When that was found.
    pub(crate) looked_at: Instant,
    /// When others could see that it was taken.
    pub(crate) taken_at: Instant,
    /// Whether what is read is fed to a queue.
    feeds: bool,
    windows: BTreeMap<u64, Window>,
    next: u64,
    pub(crate) settled: Option<Position>,
    starts: Arc<[Start]>,
}

/// Where some of the shards stood when they were taken.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) shards: ShardSet,
    pub(crate) at: Arc<StoredPosition>,
}

impl Holdings {
    /// Remembers what was taken.
    pub(crate) fn put(&self, hold: &Hold, mut holding: Holding) {
        let mut held = self.lock();
        holding.feeds = hold.subscription.mode == Mode::Queue;
        holding.taken_at = Instant::now();
        // Nobody asks any more for what only this memory knows: a hold that was lost.
        held.retain(|_, holding| Arc::strong_count(&holding.shards) > 1);
        held.insert(key(hold), holding);
    }

    pub(crate) fn forget(&self, hold: &Hold) {
        self.lock().remove(&key(hold));
    }

    /// How many subscriptions this process works for.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Whether all that this process reads is fed to queues.
    pub(crate) fn all_feed(&self) -> bool {
        self.lock().values().all(|holding| holding.feeds)
    }

    /// Looks into the memory that belongs to a hold; it is fenced if there is none.
    pub(crate) fn with<T>(&self, hold: &Hold, look: impl FnOnce(&mut Holding) -> T) -> Result<T> {
        match self.lock().get_mut(&key(hold)) {
            Some(holding) if Arc::ptr_eq(&holding.shards, &hold.shards) => Ok(look(holding)),
            _ => Err(lost(hold)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Holding>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holding {
    /// The memory of shards that were taken just now, and the position at which reading begins.
    pub(crate) fn new(
        hold_shards: &[(Shard, postrider_core::Epoch)],
        places: &[Arc<StoredPosition>],
        sessions: Sessions,
        standing: Standing,
    ) -> (Self, Position) {
        let starts = group(hold_shards, places);
        let mut holding = Self {
            shards: Arc::new([]),
            sessions,
            worker: None,
            standing,
            looked_at: Instant::now(),
            taken_at: Instant::now(),
            feeds: false,
            windows: BTreeMap::new(),
            next: 1,
            settled: None,
            starts: starts.into(),
        };
        let starts = Arc::clone(&holding.starts);
        let positions: Vec<(ShardSet, Position)> = starts
            .iter()
            .map(|start| {
                (
                    start.shards,
                    Position { window: holding.open(start.at.window.clone()), last_id: start.at.last_id },
                )
            })
            .collect();
        holding.shards = hold_shards
            .iter()
            .map(|(shard, epoch)| {
                let found = positions.iter().find(|(shards, _)| shards.contains(*shard));
                let position = found.map_or(Position::START, |(_, position)| *position);
                HeldShard { shard: *shard, epoch: *epoch, position }
            })
            .collect();
        let start = match positions.as_slice() {
            [(_, only)] => *only,
            _ => holding.least(),
        };
        (holding, start)
    }

    /// What tells this taking from others.
    pub(crate) fn shards(&self) -> Arc<[HeldShard]> {
        Arc::clone(&self.shards)
    }

    /// A place that no shard has not yet come past. Snapshots of one server only grow, so one of them is the least.
    fn least(&mut self) -> Position {
        let froms = self.starts.iter().map(|start| {
            let window = &start.at.window;
            if window.ends_at(start.at.last_id) { &window.to } else { &window.from }
        });
        let size = |tick: &Arc<postrider_core::log::Tick>| {
            let snapshot = &tick.snapshot;
            (snapshot.xmax(), snapshot.xmin(), usize::MAX - snapshot.running().len())
        };
        let least = froms.min_by_key(|tick| size(tick)).map(Window::at);
        let window = least.unwrap_or_else(|| Window::at(&Arc::new(postrider_core::log::Tick::start())));
        let last_id = EventId(window.to.seq());
        Position { window: self.open(window), last_id }
    }

    /// Whether these are the connections under which the shards were taken.
    pub(crate) fn is_of_reader(&self, session: u64) -> bool {
        self.sessions.reader == session
    }

    /// The same for the writer.
    pub(crate) fn is_of_writer(&self, session: u64) -> bool {
        self.sessions.writer == session
    }

    /// Gives a window a number.
    pub(crate) fn open(&mut self, window: Window) -> u64 {
        let number = self.next;
        self.next += 1;
        self.windows.insert(number, window);
        number
    }

    pub(crate) fn window(&self, number: u64) -> Option<Window> {
        self.windows.get(&number).cloned()
    }

    /// Windows before a settled position are of no use to anybody, but those where the shards stood at first, which
    /// the hold itself names.
    pub(crate) fn settle(&mut self, mark: Position) {
        self.settled = self.settled.max(Some(mark));
        let starts = self.starts.len() as u64 + 1;
        self.windows.retain(|number, _| *number <= starts || *number >= mark.window);
    }

    /// Where shards stood that must be passed over for a while; none if all stood at one place and are held, which
    /// is the usual case: then every row behind the start is wanted.
    pub(crate) fn starts(&self) -> Option<Arc<[Start]>> {
        let all = self.shards.len() == usize::from(SHARDS);
        let uniform = all && self.starts.len() == 1;
        (!uniform).then(|| Arc::clone(&self.starts))
    }
}

fn key(hold: &Hold) -> usize {
    Arc::as_ptr(&hold.shards).cast::<HeldShard>().addr()
}

/// Puts shards together that stand at the same place.
fn group(shards: &[(Shard, postrider_core::Epoch)], places: &[Arc<StoredPosition>]) -> Vec<Start> {
    let mut starts: Vec<Start> = Vec::new();
    for (shard, _) in shards {
        let Some(place) = places.get(usize::from(shard.0)) else { continue };
        match starts.iter_mut().find(|start| Arc::ptr_eq(&start.at, place)) {
            Some(start) => start.shards.0 |= ShardSet::of([*shard]).0,
            None => starts.push(Start { shards: ShardSet::of([*shard]), at: Arc::clone(place) }),
        }
    }
    starts
}
