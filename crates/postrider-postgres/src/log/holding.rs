//! What this process remembers about the shards that it holds.
//!
//! Positions that go to the runtime and come back name windows by number; here is what the numbers mean. The
//! memory is bound to the two connections under which the shards were taken. That is the rule which a crash
//! of the server demands: xids that no surviving record mentions are issued again, so that a snapshot from
//! before it would hide rows of after it. A crash ends every connection; as long as the writer's is the one
//! that was there before a snapshot was taken, there was none in between.
//!
//! A connection to a pooler outlives a crash, but not its own use: each of its transactions first compares
//! the server's era with that in which the connection was made, and one that finds another gives the
//! connection up (`pooler.rs`). An era does not come back, and a transaction lies within one. So a
//! transaction that was let through on a connection says what it says on a direct one: from the making of the
//! connection to this transaction there was no crash. Binding holds to the era alone, and not to connections,
//! would not do: a settle that was cut off may still be at work in the server, and only a new taking of the
//! shards keeps it from committing after the next one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use postrider_core::log::{Legs, ShardPosition, Window};
use postrider_core::settle::{HeldShard, Hold};
use postrider_core::{EventId, Mode, Position, Result, Shard, ShardSet};

use crate::ownership::fence::{Standing, lost};
use crate::settle::position::{SHARDS, positions_apart};

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
    /// The way of shards that stood apart when they were taken, and the number of its first window.
    way: Option<(u64, Legs)>,
}

/// Where a reader stands, and what lies next.
pub(crate) enum Standpoint {
    /// Inside a window, of which the rows of these shards are wanted; of all if none are named.
    Within(Window, Option<ShardSet>),
    /// At the end of a leg: the next one begins here.
    NextLeg(Position),
    /// At the end of a window of all shards that are held.
    AtEnd(Window, Option<ShardSet>),
}

impl Holdings {
    /// Remembers what was taken.
    pub(crate) fn put(&self, hold: &Hold, mut holding: Holding) {
        let mut held = self.lock();
        holding.feeds = hold.subscription.mode == Mode::Queue;
        holding.taken_at = Instant::now();
        // Forgets lost holds: only this map still refers to their shards, so no caller asks for them any more.
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
        places: &[Arc<ShardPosition>],
        sessions: Sessions,
        standing: Standing,
    ) -> (Self, Position) {
        let places = positions_apart(places, hold_shards.iter().map(|(shard, _)| *shard));
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
            way: None,
        };
        let mut positions: Vec<(ShardSet, Position)> = Vec::with_capacity(places.len());
        for place in &places {
            let window = holding.open(place.window.clone());
            positions.push((place.shards, Position { window, last_id: place.last_id }));
        }
        holding.shards = hold_shards
            .iter()
            .map(|(shard, epoch)| {
                let found = positions.iter().find(|(shards, _)| shards.contains(*shard));
                let position = found.map_or(Position::START, |(_, position)| *position);
                HeldShard { shard: *shard, epoch: *epoch, position }
            })
            .collect();
        let only = positions.first().map_or(Position::START, |(_, position)| *position);
        let start = Legs::new(places).map_or(only, |legs| holding.set_out(legs));
        (holding, start)
    }

    /// Begins to bring shards together; where the first leg begins.
    fn set_out(&mut self, legs: Legs) -> Position {
        let first = self.next;
        for leg in legs.iter() {
            self.open(leg.window.clone());
        }
        let start = if let Some(leg) = legs.iter().next() {
            Position { window: first, last_id: leg.last_id }
        } else {
            // They stand at one moment, as different looks at it have found.
            let window = self.open(Window::at(legs.end()));
            Position { window, last_id: EventId(legs.end().seq()) }
        };
        self.way = Some((first, legs));
        start
    }

    /// The leg of a window that has this number, and which one it is.
    fn leg(&self, number: u64) -> Option<(usize, &ShardPosition)> {
        let (first, legs) = self.way.as_ref()?;
        let index = usize::try_from(number.checked_sub(*first)?).ok()?;
        legs.iter().nth(index).map(|leg| (index, leg))
    }

    /// What a position means to a reader; none if it is of another time.
    pub(crate) fn standpoint(&self, at: Position) -> Option<Standpoint> {
        let window = self.window(at.window)?;
        let ends = window.ends_at(at.last_id);
        let next_leg = at.window + 1;
        Some(match self.leg(at.window) {
            Some((_, leg)) if !ends => Standpoint::Within(window, Some(leg.shards)),
            Some(_) => match self.leg(next_leg) {
                Some((_, leg)) => Standpoint::NextLeg(Position { window: next_leg, last_id: leg.last_id }),
                None => Standpoint::AtEnd(window, self.wanted()),
            },
            None if ends => Standpoint::AtEnd(window, self.wanted()),
            None => Standpoint::Within(window, self.wanted()),
        })
    }

    /// Where shards stand when everything up to `mark` is done, as far as that was not settled before; none
    /// if it is of another time.
    pub(crate) fn reached(&self, mark: Position) -> Option<Vec<ShardPosition>> {
        let Some((at, _)) = self.leg(mark.window) else {
            let shards = ShardSet::of(self.shards.iter().map(|held| held.shard));
            return Some(vec![ShardPosition {
                shards,
                window: self.window(mark.window)?,
                last_id: mark.last_id,
            }]);
        };
        let known = self.settled.and_then(|settled| self.leg(settled.window)).map_or(0, |(known, _)| known);
        let (_, legs) = self.way.as_ref()?;
        Some(legs.reached(known, at, mark.last_id))
    }

    /// What tells this taking from others.
    pub(crate) fn shards(&self) -> Arc<[HeldShard]> {
        Arc::clone(&self.shards)
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
        let firsts = self.shards.iter().map(|held| held.position.window).max().unwrap_or_default();
        self.windows.retain(|number, _| *number <= firsts || *number >= mark.window);
    }

    /// The shards that are held, unless those are all.
    fn wanted(&self) -> Option<ShardSet> {
        let all = self.shards.len() == usize::from(SHARDS);
        (!all).then(|| ShardSet::of(self.shards.iter().map(|held| held.shard)))
    }
}

fn key(hold: &Hold) -> usize {
    Arc::as_ptr(&hold.shards).cast::<HeldShard>().addr()
}
