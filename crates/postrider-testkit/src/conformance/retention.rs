//! Retention: nothing undelivered is dropped, and in the end everything else is.
//!
//! A store may remove events one by one or in whole pieces, and keep a piece until all of it may go. So these promises
//! ask what must never go, at any time, and what must be gone once all of it is delivered and old.

use postrider_core::settle::Settle;
use postrider_core::store::{EventQuery, Pruned};
use postrider_core::{Event, EventId, NewSubscription, Store, limits};

use super::owner::{Owner, SECOND, SUBSCRIPTION, emit, emit_of, event_of, ids};
use super::{Kept, Rig};

/// What every promise here keeps for long.
const RETENTION: std::time::Duration = SECOND.saturating_mul(30);

/// The ids of what is there, oldest first.
async fn left<R: Rig>(rig: &R) -> Kept<Vec<EventId>> {
    let events = rig.store().event_list(EventQuery { limit: 1_000, ..EventQuery::default() }).await?;
    Ok(events.iter().rev().map(|event| event.id).collect())
}

/// Retention as a relay runs it: bite by bite until there is no more, now and again. What went in all, and who was said
/// to pin the rest at the end.
async fn prune<R: Rig>(rig: &R) -> Kept<Pruned> {
    let mut all = Pruned::default();
    for _ in 0..3 {
        loop {
            let bite = rig.store().prune(RETENTION).await?;
            all = Pruned { removed: all.removed + bite.removed, ..bite };
            if !all.more {
                break;
            }
        }
        rig.clock().advance(SECOND);
    }
    Ok(all)
}

/// What every subscription is past goes once it is old; what is younger stays.
pub async fn old_and_delivered_events_go<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let old = emit_of(rig, "a", 2).await?;
    rig.clock().advance(SECOND * 60);
    let young = emit_of(rig, "a", 1).await?;
    rig.clock().advance(SECOND);
    owner.settle_rows(young[0].id, Vec::new()).await?;
    let first = prune(rig).await?;
    assert_eq!((first.more, first.pinned_by), (false, None));
    assert_eq!(left(rig).await?.last(), Some(&young[0].id));
    assert_eq!(left(rig).await?.len() as u64, 3 - first.removed);
    rig.clock().advance(SECOND * 60);
    let second = prune(rig).await?;
    assert_eq!((first.removed + second.removed, second.more, second.pinned_by), (3, false, None));
    assert_eq!(left(rig).await?, []);
    assert_eq!(rig.store().event_get(old[0].id).await?, None);
    assert_eq!(prune(rig).await?, Pruned::default());
    Ok(())
}

/// Ids are not given out again when their events are gone.
pub async fn ids_are_not_reused_after_pruning<R: Rig>(rig: &R) -> Kept {
    let events = emit_of(rig, "a", 2).await?;
    rig.clock().advance(SECOND * 60);
    assert_eq!(prune(rig).await?.removed, 2);
    let later = emit_of(rig, "a", 1).await?;
    assert!(later[0].id > events[1].id);
    Ok(())
}

/// An event stays until all subscriptions have read it. Pruning names the subscription that has not.
pub async fn unread_events_stay<R: Rig>(rig: &R) -> Kept {
    let fast = Owner::create(rig.store(), NewSubscription::new("fast")).await?;
    let slow = Owner::create(rig.store(), NewSubscription::new("slow")).await?;
    let events = emit_of(rig, "a", 3).await?;
    fast.settle_rows(events[2].id, Vec::new()).await?;
    slow.settle_rows(events[0].id, Vec::new()).await?;
    rig.clock().advance(SECOND * 60);
    let first = prune(rig).await?;
    assert_eq!((first.more, first.pinned_by.as_deref()), (false, Some("slow")));
    assert!(left(rig).await?.ends_with(&[events[1].id, events[2].id]));
    slow.settle_rows(events[2].id, Vec::new()).await?;
    let second = prune(rig).await?;
    assert_eq!((first.removed + second.removed, second.pinned_by), (3, None));
    assert_eq!(left(rig).await?, []);
    Ok(())
}

/// A paused subscription keeps what it has not read, even what it would not want.
pub async fn a_paused_subscription_pins_its_events<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    rig.store().subscription_pause(SUBSCRIPTION).await?;
    let events = emit_of(rig, "a", 2).await?;
    rig.clock().advance(SECOND * 1_000_000);
    let pruned = prune(rig).await?;
    assert_eq!((pruned.removed, pruned.pinned_by.as_deref()), (0, Some(SUBSCRIPTION)));
    assert_eq!(left(rig).await?, [events[0].id, events[1].id]);
    rig.store().subscription_resume(SUBSCRIPTION).await?;
    let next = Owner::of(&owner.store, SUBSCRIPTION).await?;
    assert_eq!(ids(&next.read_all().await?), [events[0].id, events[1].id]);
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
    assert_eq!(prune(rig).await?.removed, 2);
    assert_eq!(left(rig).await?, [events[0].id, events[2].id, events[3].id], "what has a row");
    let done = Settle {
        done: vec![events[0].id, events[2].id],
        freed: super::owner::lane_of(&events[0]).into_iter().collect(),
        ..Settle::default()
    };
    owner.settle(done).await?;
    assert_eq!(prune(rig).await?.removed, 2);
    assert_eq!(left(rig).await?, [events[3].id], "a dead letter stays");
    Ok(())
}

/// Without subscriptions only its age keeps an event.
pub async fn without_subscriptions_age_alone_counts<R: Rig>(rig: &R) -> Kept {
    emit_of(rig, "a", 3).await?;
    assert_eq!(prune(rig).await?.removed, 0);
    rig.clock().advance(SECOND * 60);
    assert_eq!(prune(rig).await?.removed, 3);
    assert_eq!(left(rig).await?, []);
    Ok(())
}

/// One bite is bounded where events go one by one, and says if there is more.
pub async fn retention_goes_bite_by_bite<R: Rig>(rig: &R) -> Kept {
    rig.store().event_emit(vec![Event::new("order"); limits::PRUNE_ROWS_MAX]).await?;
    rig.store().event_emit(vec![Event::new("order"); 10]).await?;
    rig.clock().advance(SECOND * 60);
    let mut bites = Vec::new();
    loop {
        let pruned = rig.store().prune(RETENTION).await?;
        bites.push(pruned.removed);
        assert!(bites.len() < 100, "there is always more: {bites:?}");
        if !pruned.more {
            break;
        }
    }
    if rig.removes_one_by_one() {
        assert!(bites.iter().all(|removed| *removed <= limits::PRUNE_ROWS_MAX as u64), "{bites:?}");
    }
    assert_eq!(bites.iter().sum::<u64>(), limits::PRUNE_ROWS_MAX as u64 + 10);
    assert_eq!(rig.store().stats().await?.events, 0);
    Ok(())
}

/// A reader passes over the gap, and a new subscription begins with what is left.
pub async fn reading_passes_over_what_is_gone<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let old = emit_of(rig, "a", 2).await?;
    owner.settle_rows(old[1].id, Vec::new()).await?;
    rig.clock().advance(SECOND * 60);
    assert_eq!(prune(rig).await?.removed, 2);
    let young = emit_of(rig, "a", 1).await?;
    assert_eq!(ids(&owner.read_all().await?), [young[0].id]);
    let new = Owner::create(rig.store(), NewSubscription::new("new")).await?;
    assert_eq!(ids(&new.read_all().await?), [young[0].id]);
    Ok(())
}
