//! How far a subscription has come, and who may say so.
//!
//! A subscription's keys are spread over a fixed number of **shards**. Each shard has one **position**
//! and one owner at a time; the **epoch** grows with every change of owner and is checked by every
//! write, so that a member that slept through losing its shards can change nothing.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::event::{EventId, Key};

/// The number of a subscription in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubscriptionId(pub i64);

/// The number of one running process in a store; a fresh one at every start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct MemberId(pub i64);

/// A fixed hash range of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shard(pub u16);

/// Grows with every change of a shard's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub i64);

impl Shard {
    /// The shard of an event among `shards`. Keyless events are spread by id, which is as stable.
    ///
    /// The hash is part of the stored format: another one would move keys between owners.
    pub fn of(key: Option<&Key>, id: EventId, shards: u16) -> Self {
        let hash = match key {
            Some(key) => xxh3_64(key.as_str().as_bytes()),
            None => id.0 as u64,
        };
        Self((hash % u64::from(shards.max(1))) as u16)
    }
}

/// Some of a subscription's shards: one bit each, so that there can be 64 of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ShardSet(pub u64);

impl ShardSet {
    /// All that there can be.
    pub const ALL: Self = Self(u64::MAX);

    /// These.
    pub fn of(shards: impl IntoIterator<Item = Shard>) -> Self {
        Self(shards.into_iter().fold(0, |set, shard| set | 1 << (shard.0 & 63)))
    }

    /// Whether a shard is one of them.
    pub fn contains(self, shard: Shard) -> bool {
        self.0 & (1 << (shard.0 & 63)) != 0
    }

    /// Adds one.
    pub fn insert(&mut self, shard: Shard) {
        self.0 |= 1 << (shard.0 & 63);
    }

    /// These and those.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without those.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether one is in both.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// How many.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Shard> {
        (0..64).map(Shard).filter(move |shard| self.contains(*shard))
    }
}

/// How far a shard has come in the log.
///
/// Members treat it as opaque: they get positions with what they read and hand the last one back. Only
/// the store that gave it knows what lies behind it. A store with a single writer needs just the last id,
/// since there ids become visible in their order; one with many writers also says of which
/// [`Window`](crate::log::Window) that is the last id that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the window in the memory of the store that gave this position; 0 where there is but one.
    pub window: u64,
    /// The last event of the window that is covered.
    pub last_id: EventId,
}

impl Position {
    /// Before the first event of a store with a single writer.
    pub const START: Self = Self { window: 0, last_id: EventId(0) };

    /// The position right behind the event `id`, in the same window.
    #[must_use]
    pub fn at(self, id: EventId) -> Self {
        Self { last_id: id, ..self }
    }

    /// Whether the event `id` of this window, or of the only one, lies at or before this position, so that
    /// it must not be delivered again from the log: it is done, or a row says otherwise.
    pub fn covers(self, id: EventId) -> bool {
        id <= self.last_id
    }
}

/// For people a position is the last id: window numbers mean nothing outside the process that gave them.
impl Serialize for Position {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown {
            last_id: EventId,
        }
        Shown { last_id: self.last_id }.serialize(serializer)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.last_id.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_a_stored_format_and_never_change() {
        let shard = |key: &str| Shard::of(Some(&Key::new(key)), EventId(1), 16).0;
        assert_eq!([shard("order-1"), shard("order-2"), shard("ü"), shard("")], [6, 12, 14, 2]);
        assert_eq!(Shard::of(None, EventId(35), 16), Shard(3));
    }

    #[test]
    fn a_position_covers_itself_and_what_lies_before() {
        let position = Position::START.at(EventId(7));
        assert!(position.covers(EventId(7)) && position.covers(EventId(1)) && !position.covers(EventId(8)));
    }
}
