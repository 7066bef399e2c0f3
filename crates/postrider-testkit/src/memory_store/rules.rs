//! The rules of `settle.rs`, checked after every write.

use postrider_core::settle::Row;
use postrider_core::{DeliveryState, ShardSet};

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
    for lane in progress.parked(ShardSet::ALL) {
        let heads = progress.lane(&lane).iter().filter(|(_, row)| row.is_head()).count();
        if heads != 1 {
            broken.push(format!("`{name}` has {heads} heads in the lane of key `{}`", lane.key));
        }
    }
    broken.extend(progress.queue_broken(|id| state.events.contains_key(&id)));
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

#[cfg(all(test, debug_assertions))]
mod tests {
    use postrider_core::settle::Settle;
    use postrider_core::{Event, NewSubscription, Store};

    use crate::conformance::owner::{Owner, SECOND, SUBSCRIPTION, event_of};
    use crate::conformance::run;
    use crate::{ManualClock, MemoryStore};

    /// Two events of one key and their owner, which then settles as the test says.
    fn settle(steps: impl Fn(&Owner<MemoryStore>, &[Event]) -> Vec<Settle>) {
        let store = MemoryStore::new(ManualClock::new());
        run(async {
            let owner = Owner::create(&store, NewSubscription::new(SUBSCRIPTION)).await?;
            let mut events = Vec::new();
            for id in store.event_emit(vec![event_of("a"); 2]).await? {
                events.extend(store.event_get(id).await?);
            }
            for step in steps(&owner, &events) {
                owner.settle(step).await?;
            }
            Ok(())
        });
    }

    #[test]
    #[should_panic(expected = "which its position does not cover")]
    fn a_row_above_the_mark_is_met_in_the_act() {
        settle(|owner, events| {
            let rows = vec![owner.row(&events[1]).failed(SECOND)];
            vec![Settle { mark: Some(owner.position().at(events[0].id)), rows, ..Settle::default() }]
        });
    }

    #[test]
    #[should_panic(expected = "2 heads in the lane")]
    fn a_second_head_is_met_in_the_act() {
        settle(|owner, events| {
            let rows = events.iter().map(|event| owner.row(event).failed(SECOND)).collect();
            vec![Settle { mark: Some(owner.position().at(events[1].id)), rows, ..Settle::default() }]
        });
    }

    #[test]
    #[should_panic(expected = "0 heads in the lane")]
    fn a_lane_that_nobody_frees_is_met_in_the_act() {
        settle(|owner, events| {
            let rows = vec![owner.row(&events[0]).failed(SECOND), owner.row(&events[1]).waiting()];
            let parked = Settle { mark: Some(owner.position().at(events[1].id)), rows, ..Settle::default() };
            vec![parked, Settle { done: vec![events[0].id], ..Settle::default() }]
        });
    }

    #[test]
    #[should_panic(expected = "an owner finished a dead letter")]
    fn an_owner_that_touches_a_dead_letter_is_met_in_the_act() {
        settle(|owner, events| {
            let rows = vec![owner.row(&events[0]).dead_skipped()];
            let died = Settle { mark: Some(owner.position().at(events[0].id)), rows, ..Settle::default() };
            vec![died, Settle { done: vec![events[0].id], ..Settle::default() }]
        });
    }
}
