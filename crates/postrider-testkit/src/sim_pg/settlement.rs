//! What subscriptions store: a position, and rows for exceptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::log::{ShardPosition, Tick, Window};
use postrider_core::{EventId, ShardSet};

use super::Row;

/// A position as it is stored: by what the ticks say, since their places in memory mean nothing later.
#[derive(Debug, Clone)]
pub(super) struct StoredPosition {
    pub(super) from: Tick,
    pub(super) to: Tick,
    pub(super) last_id: i64,
}

/// What one settle writes.
#[derive(Debug, Clone)]
pub(super) struct Settlement {
    pub(super) subscription: usize,
    pub(super) position: Option<StoredPosition>,
    /// Events that have failed or wait behind one that has, with their keys.
    pub(super) rows: Vec<(i64, u32)>,
    /// Events whose rows are done.
    pub(super) done: Vec<i64>,
}

/// What is stored of a subscription.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub(super) position: Option<StoredPosition>,
    /// Parked events by id, with their keys.
    pub(super) rows: BTreeMap<i64, u32>,
}

impl StoredPosition {
    pub(super) fn of(window: &Window, last_id: i64) -> Self {
        Self { from: Tick::clone(&window.from), to: Tick::clone(&window.to), last_id }
    }

    /// The same as a place of shards.
    pub(super) fn place(&self) -> ShardPosition {
        ShardPosition {
            shards: ShardSet::ALL,
            window: Window { from: Arc::new(self.from.clone()), to: Arc::new(self.to.clone()) },
            last_id: EventId(self.last_id),
        }
    }

    /// Whether the row is behind it: the rule of [`Window::covers`].
    pub(super) fn covers(&self, row: &Row) -> bool {
        let seen = |tick: &Tick| tick.snapshot.sees(row.xid);
        seen(&self.from) || (seen(&self.to) && row.id <= self.last_id)
    }
}

impl Settlement {
    pub(super) fn apply(&self, all: &mut BTreeMap<usize, Progress>) {
        let progress = all.entry(self.subscription).or_default();
        if let Some(position) = &self.position {
            progress.position = Some(position.clone());
        }
        progress.rows.extend(self.rows.iter().copied());
        for id in &self.done {
            progress.rows.remove(id);
        }
    }
}
