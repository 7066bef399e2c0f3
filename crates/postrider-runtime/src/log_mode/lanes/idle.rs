//! Tracks that are parked and have nothing in memory: only their existence must be known.
//!
//! There may be as many as a receiver has refused keys, so each costs no more than two hashes under random
//! seeds. Two lanes are mistaken for each other only if they agree in 128 bits that cannot be foreseen.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use postrider_core::Key;

#[derive(Debug, Default)]
pub(super) struct Idle {
    seeds: (RandomState, RandomState),
    tracks: HashSet<(u64, u64), foldhash::fast::RandomState>,
}

impl Idle {
    /// Whether it was not known.
    pub(super) fn insert(&mut self, key: &Key, late: usize) -> bool {
        self.tracks.insert(self.name(key, late))
    }

    /// Whether it was known.
    pub(super) fn remove(&mut self, key: &Key, late: usize) -> bool {
        !self.tracks.is_empty() && self.tracks.remove(&self.name(key, late))
    }

    fn name(&self, key: &Key, late: usize) -> (u64, u64) {
        let track = (key.as_str(), late);
        (self.seeds.0.hash_one(track), self.seeds.1.hash_one(track))
    }
}
