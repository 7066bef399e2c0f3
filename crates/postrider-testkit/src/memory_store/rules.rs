//! The rules of `settle.rs`, checked after every write.

use postrider_core::DeliveryState;
use postrider_core::settle::Row;

use super::state::{Progress, State, StoredRow};

/// Every broken rule, one sentence each. Empty is healthy.
pub(super) fn violations(state: &State) -> Vec<String> {
    state.subscriptions.values().flat_map(|progress| broken(state, progress)).collect()
}

/// Panics if a rule is broken. In a debug build a test meets the write that broke it, not its consequence.
pub(super) fn assert_kept(state: &State, call: &str) {
    if cfg!(debug_assertions) {
        let broken = violations(state);
        assert!(broken.is_empty(), "{call} broke a rule of the settle: {}", broken.join("; "));
    }
}

fn broken(state: &State, progress: &Progress) -> Vec<String> {
    let name = &progress.subscription.name;
    let mut broken = Vec::new();
    for (id, row) in &progress.rows {
        if !progress.position(row.shard).covers(*id) {
            broken.push(format!("`{name}` has a row for event {id}, which its position does not cover"));
        }
        match state.events.get(id) {
            None => broken.push(format!("`{name}` has a row for event {id}, which is not there")),
            Some(event) if state.shard_of(event) != row.shard => {
                broken.push(format!("`{name}` has the row of event {id} in a foreign shard"));
            }
            Some(_) => {}
        }
        if row.parks && row.lane.is_none() {
            broken.push(format!("`{name}` has a row for event {id} that parks no lane"));
        }
        if !row.parks && !row.is_head() {
            broken.push(format!("`{name}` has a row for event {id} that waits in no lane"));
        }
        if row.state == DeliveryState::Done {
            broken.push(format!("`{name}` has a row for event {id} that is done"));
        }
    }
    for lane in progress.parked() {
        let heads = progress.lane(&lane).iter().filter(|(_, row)| row.is_head()).count();
        if heads != 1 {
            broken.push(format!("`{name}` has {heads} heads in the lane of key `{}`", lane.key));
        }
    }
    broken
}

/// Panics if the owner's row cannot follow what is stored. An owner reports results, so a pending row may
/// have been leased in its memory in between; a dead one is the operators' and out of its reach.
pub(super) fn assert_may_replace(old: Option<&StoredRow>, row: &Row) {
    let may = match old.map(|old| old.state) {
        None | Some(DeliveryState::Pending | DeliveryState::Leased) => row.state != DeliveryState::Done,
        // The same settle again.
        Some(DeliveryState::Dead) => row.state == DeliveryState::Dead,
        Some(DeliveryState::Done) => false,
    };
    debug_assert!(may, "an owner wrote event {} as {:?} over {old:?}", row.event_id, row.state);
}

/// Panics if the owner took away a dead letter.
pub(super) fn assert_may_finish(old: Option<&StoredRow>) {
    let dead = old.is_some_and(|old| old.state == DeliveryState::Dead);
    debug_assert!(!dead, "an owner finished a dead letter: {old:?}");
}
