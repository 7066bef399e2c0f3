//! Retention: nothing undelivered is dropped.

use postrider_core::settle::Settle;
use postrider_core::store::EventQuery;
use postrider_core::{Event, EventId, NewSubscription, Store, limits};

use super::owner::{Owner, SECOND, SUBSCRIPTION, emit, emit_of, event_of};
use super::{Kept, Rig};

/// The ids of what is there, oldest first.
async fn left<R: Rig>(rig: &R) -> Kept<Vec<EventId>> {
    let events = rig.store().event_list(EventQuery { limit: 1_000, ..EventQuery::default() }).await?;
    Ok(events.iter().rev().map(|event| event.id).collect())
}

/// What every subscription is past and what is old enough goes; what is younger stays.
pub async fn old_and_delivered_events_go<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let old = emit_of(rig, "a", 2).await?;
    rig.clock().advance(SECOND * 60);
    let young = emit_of(rig, "a", 1).await?;
    rig.clock().advance(SECOND);
    owner.settle_rows(young[0].id, Vec::new()).await?;
    let pruned = rig.store().prune(SECOND * 30).await?;
    assert_eq!((pruned.removed, pruned.more, pruned.pinned_by), (2, false, None));
    assert_eq!(left(rig).await?, [young[0].id]);
    assert_eq!(rig.store().event_get(old[0].id).await?, None);
    assert_eq!(rig.store().prune(SECOND * 30).await?.removed, 0);
    Ok(())
}

/// Ids are not given out again when their events are gone.
pub async fn ids_are_not_reused_after_pruning<R: Rig>(rig: &R) -> Kept {
    let events = emit_of(rig, "a", 2).await?;
    rig.clock().advance(SECOND * 60);
    assert_eq!(rig.store().prune(SECOND).await?.removed, 2);
    let later = emit_of(rig, "a", 1).await?;
    assert!(later[0].id > events[1].id);
    Ok(())
}

/// What one subscription has not read stays, whoever else has, and it is named.
pub async fn unread_events_stay<R: Rig>(rig: &R) -> Kept {
    let fast = Owner::create(rig.store(), NewSubscription::new("fast")).await?;
    let slow = Owner::create(rig.store(), NewSubscription::new("slow")).await?;
    let events = emit_of(rig, "a", 3).await?;
    fast.settle_rows(events[2].id, Vec::new()).await?;
    slow.settle_rows(events[0].id, Vec::new()).await?;
    rig.clock().advance(SECOND * 60);
    let pruned = rig.store().prune(SECOND).await?;
    assert_eq!((pruned.removed, pruned.more), (1, false));
    assert_eq!(pruned.pinned_by.as_deref(), Some("slow"));
    assert_eq!(left(rig).await?, [events[1].id, events[2].id]);
    slow.settle_rows(events[2].id, Vec::new()).await?;
    let pruned = rig.store().prune(SECOND).await?;
    assert_eq!((pruned.removed, pruned.pinned_by), (2, None));
    Ok(())
}

/// A paused subscription keeps what it has not read, even what it would not want.
pub async fn a_paused_subscription_pins_its_events<R: Rig>(rig: &R) -> Kept {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    rig.store().subscription_pause(SUBSCRIPTION).await?;
    let events = emit_of(rig, "a", 2).await?;
    rig.clock().advance(SECOND * 1_000_000);
    let pruned = rig.store().prune(SECOND).await?;
    assert_eq!((pruned.removed, pruned.pinned_by.as_deref()), (0, Some(SUBSCRIPTION)));
    assert_eq!(left(rig).await?, [events[0].id, events[1].id]);
    Ok(())
}

/// What a row refers to stays until the row goes: retries, those that wait, and dead letters.
pub async fn events_with_a_row_stay<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let new = vec![event_of("a"), event_of("b"), event_of("a"), event_of("c"), event_of("d")];
    let events = emit(rig, new).await?;
    let rows = vec![
        owner.row(&events[0]).failed(SECOND),
        owner.row(&events[2]).waiting(),
        owner.row(&events[3]).dead_skipped(),
    ];
    owner.settle_rows(events[4].id, rows).await?;
    rig.clock().advance(SECOND * 60);
    assert_eq!(rig.store().prune(SECOND).await?.removed, 2);
    let kept = [events[0].id, events[2].id, events[3].id];
    for id in kept {
        assert!(owner.store.event_get(id).await?.is_some(), "event {id} has a row");
    }
    let done = Settle {
        done: vec![events[0].id, events[2].id],
        freed: super::owner::lane_of(&events[0]).into_iter().collect(),
        ..Settle::default()
    };
    owner.settle(done).await?;
    assert_eq!(rig.store().prune(SECOND).await?.removed, 2);
    assert!(owner.store.event_get(events[3].id).await?.is_some(), "a dead letter stays");
    Ok(())
}

/// Without subscriptions nobody keeps anything but its age.
pub async fn without_subscriptions_age_alone_counts<R: Rig>(rig: &R) -> Kept {
    emit_of(rig, "a", 3).await?;
    assert_eq!(rig.store().prune(SECOND * 60).await?.removed, 0);
    rig.clock().advance(SECOND * 120);
    assert_eq!(rig.store().prune(SECOND * 60).await?.removed, 3);
    Ok(())
}

/// One bite is bounded, and says that there is more.
pub async fn retention_goes_bite_by_bite<R: Rig>(rig: &R) -> Kept {
    rig.store().event_emit(vec![Event::new("order"); limits::PRUNE_ROWS_MAX]).await?;
    rig.store().event_emit(vec![Event::new("order"); 10]).await?;
    rig.clock().advance(SECOND * 60);
    let mut bites = Vec::new();
    loop {
        let pruned = rig.store().prune(SECOND).await?;
        assert!(pruned.removed <= limits::PRUNE_ROWS_MAX as u64);
        bites.push(pruned.removed);
        if !pruned.more {
            break;
        }
        assert!(pruned.removed > 0, "there is more, but a bite removed nothing");
    }
    assert_eq!(bites.iter().sum::<u64>(), limits::PRUNE_ROWS_MAX as u64 + 10);
    assert!(bites.len() >= 2, "{bites:?}");
    assert_eq!(rig.store().stats().await?.events, 0);
    Ok(())
}

/// A reader passes over the gap, and a new subscription begins with what is left.
pub async fn reading_passes_over_what_is_gone<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let old = emit_of(rig, "a", 2).await?;
    owner.settle_rows(old[1].id, Vec::new()).await?;
    rig.clock().advance(SECOND * 60);
    rig.store().prune(SECOND).await?;
    let young = emit_of(rig, "a", 1).await?;
    assert_eq!(super::owner::ids(&owner.read_all().await?), [young[0].id]);
    let new = Owner::create(rig.store(), NewSubscription::new("new")).await?;
    assert_eq!(super::owner::ids(&new.read_all().await?), [young[0].id]);
    Ok(())
}
