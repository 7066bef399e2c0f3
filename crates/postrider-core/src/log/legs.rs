//! Shards at different places, and the way to a place that all of them share.
//!
//! A member that takes shards of several owners finds each where its owner left it: somewhere inside a window, and
//! windows of different owners begin and end at different ticks. Reading on for all of them at once, from the
//! least place, would need positions that say "this window up to here, and of that shard also what it had
//! come past before". There are no such positions, and a position without the second part sends the shard
//! back over delivered events. So the way is cut into **legs**. In each leg only the shards at its beginning
//! move, and the others stay where they are:
//!
//! ```text
//!   ticks   ─────a───────b────────────c────────d──►
//!   shard 1      ╞═══════┊            ┊        ┊     stands inside (a, b): a leg to b
//!   shard 2              ┊            ╞════════╡     stands inside (c, d): a leg to d
//!   shard 1              ╞═════════════════════╡     at b: a leg to d, where shard 2 stands. From there on together
//! ```
//!
//! Within a leg a mark has its usual meaning, for the shards of that leg. All others are at the end of the
//! last leg in which they took part, or where they were taken. Snapshots of one server only grow, so one of
//! two places is mostly the later. Places of processes that follow the write-ahead log need not be in order:
//! then both shards go to the place that sees everything that either place sees.

use std::sync::Arc;

use super::snapshot::Xid;
use super::tick::{Tick, Window};
use crate::event::EventId;
use crate::position::ShardSet;

/// Where some shards stand: they have read a window up to an id. A window that stands at a moment if all of
/// one was read.
#[derive(Debug, Clone)]
pub struct ShardPosition {
    /// Which ones.
    pub shards: ShardSet,
    /// Of which window.
    pub window: Window,
    /// Up to which id.
    pub last_id: EventId,
}

impl ShardPosition {
    fn at_end(shards: ShardSet, tick: &Arc<Tick>) -> Self {
        Self { shards, window: Window::at(tick), last_id: EventId(tick.seq()) }
    }

    /// Whether a row lies behind it.
    pub fn covers(&self, xid: Xid, id: EventId) -> bool {
        self.window.covers(xid, id, self.last_id)
    }

    /// Where these shards stand once they were moved to what follows `last_id`, at the moment `now`.
    ///
    /// ```text
    ///   what was covered        from.sees ∨ (to.sees ∧ id ≤ old last_id)
    ///   what is covered then    to.sees ∧ id ≤ last_id
    /// ```
    ///
    /// A move back ends the window where it ended before, and not now: a transaction that was open at its end may have
    /// committed since, with ids below the new place. It was never read, so that it must stay ahead. For every
    /// `last_id` at or below the old one the new position covers only what the old one did. Ids above the window's end
    /// were drawn after it: to pass over them means to pass over all that is visible now, which is what was asked for.
    /// What is not visible now stays ahead either way.
    #[must_use]
    pub fn moved(&self, last_id: EventId, now: &Arc<Tick>) -> Self {
        let to = if last_id.0 > self.window.to.seq() { now } else { &self.window.to };
        let window = Window { from: Arc::new(Tick::start()), to: Arc::clone(to) };
        Self { shards: self.shards, window, last_id }
    }

    fn is_at_end(&self) -> bool {
        self.window.ends_at(self.last_id)
    }
}

/// The way from where shards stand to where all of them do.
#[derive(Debug)]
pub struct Legs {
    /// Each with the place at which it begins.
    legs: Vec<ShardPosition>,
    /// Where they lead to.
    end: Arc<Tick>,
}

impl Legs {
    /// The way of shards that stand at these places; none if it is one place.
    pub fn new(mut places: Vec<ShardPosition>) -> Option<Self> {
        if places.len() < 2 {
            return None;
        }
        let size = |place: &ShardPosition| {
            let snapshot = &place.window.to.snapshot;
            (snapshot.xmax(), snapshot.xmin(), usize::MAX - snapshot.running().len())
        };
        places.sort_by_key(size);
        let mut legs: Vec<ShardPosition> =
            places.iter().filter(|place| !place.is_at_end()).cloned().collect();
        let mut together: Option<(ShardSet, Arc<Tick>)> = None;
        for place in &places {
            let next = &place.window.to;
            together = Some(match together {
                None => (place.shards, Arc::clone(next)),
                Some((shards, at)) => {
                    let meeting = meeting(&at, next);
                    legs.extend(leg(shards, &at, &meeting));
                    legs.extend(leg(place.shards, next, &meeting));
                    (shards.union(place.shards), meeting)
                }
            });
        }
        let (_, end) = together?;
        Some(Self { legs, end })
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &ShardPosition> {
        self.legs.iter()
    }

    /// Where all shards stand after the last leg.
    pub fn end(&self) -> &Arc<Tick> {
        &self.end
    }

    /// Where shards stand when everything up to `last_id` of the leg `at` was read, as far as that is not
    /// known from a mark in the leg `known`: those of this leg there, and those that had a part in an earlier
    /// one at its end.
    pub fn reached(&self, known: usize, at: usize, last_id: EventId) -> Vec<ShardPosition> {
        let Some(current) = self.legs.get(at) else { return Vec::new() };
        let mut told = current.shards;
        let mut places = vec![ShardPosition { last_id, ..current.clone() }];
        for earlier in self.legs[known.min(at)..at].iter().rev() {
            let shards = ShardSet(earlier.shards.0 & !told.0);
            if !shards.is_empty() {
                places.push(ShardPosition::at_end(shards, &earlier.window.to));
            }
            told = told.union(earlier.shards);
        }
        places
    }
}

/// The moment at which all is seen that one of the two sees.
fn meeting(one: &Arc<Tick>, other: &Arc<Tick>) -> Arc<Tick> {
    if other.snapshot.covers(&one.snapshot) {
        Arc::clone(other)
    } else if one.snapshot.covers(&other.snapshot) {
        Arc::clone(one)
    } else {
        Arc::new(one.union(other))
    }
}

fn leg(shards: ShardSet, from: &Arc<Tick>, to: &Arc<Tick>) -> Option<ShardPosition> {
    let window = Window { from: Arc::clone(from), to: Arc::clone(to) };
    let last_id = EventId(window.lowest());
    (from.snapshot != to.snapshot).then_some(ShardPosition { shards, window, last_id })
}
