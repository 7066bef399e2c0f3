//! A transactional handler's writes and its ack commit together.

use std::sync::Arc;

use postrider_core::settle::{Settle, Settled};
use postrider_core::{DeliveryState, ErrorKind, Event, Failure, LogStore, NewSubscription, Result, Store};

use super::owner::{Owner, SECOND, SUBSCRIPTION, emit_of, failed_attempt, lane_of, refused, run_ids};
use super::{Ending, Kept, Rig};

/// An owner with one event of the log to deliver.
async fn one_event<R: Rig>(rig: &R) -> Kept<(Owner<R::Store>, Event)> {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let event = emit_of(rig, "a", 1).await?.remove(0);
    Ok((owner, event))
}

/// Acks `event` by the mark, together with the work of its handler.
async fn ack_with<R: Rig>(
    rig: &R,
    owner: &Owner<R::Store>,
    event: &Event,
    ending: Ending,
) -> Result<Result<Settled, Failure>> {
    let settle = Settle { mark: Some(owner.behind(event.id).await?), ..Settle::default() };
    rig.store().settle_with(owner.hold(), Arc::new(settle), rig.work(event.id, "paid", ending)).await
}

async fn state_of<R: Rig>(rig: &R, event: &Event) -> Kept<DeliveryState> {
    Ok(rig.store().event_deliveries(event.id).await?[0].state)
}

/// Work that succeeds is there, and so is the ack.
pub async fn work_commits_with_the_ack<R: Rig>(rig: &R) -> Kept {
    let (owner, event) = one_event(rig).await?;
    let settled = ack_with(rig, &owner, &event, Ending::Success).await?;
    assert_eq!(settled, Ok(Settled::default()));
    assert_eq!(rig.effects().await, [(event.id, "paid".to_owned())]);
    assert_eq!(state_of(rig, &event).await?, DeliveryState::Done);
    Ok(())
}

/// Work that fails leaves neither an effect nor an ack.
pub async fn failed_work_writes_nothing<R: Rig>(rig: &R) -> Kept {
    let (owner, event) = one_event(rig).await?;
    let failure = ack_with(rig, &owner, &event, Ending::Failure).await?;
    assert!(failure.is_err());
    assert_eq!(rig.effects().await, []);
    assert_eq!(state_of(rig, &event).await?, DeliveryState::Pending);
    // The store is as good as before.
    assert!(ack_with(rig, &owner, &event, Ending::Success).await?.is_ok());
    assert_eq!(rig.effects().await.len(), 1);
    Ok(())
}

/// Work that panics leaves nothing either, and the store lives on.
pub async fn panicking_work_writes_nothing<R: Rig>(rig: &R) -> Kept {
    let (owner, event) = one_event(rig).await?;
    let settle = Arc::new(Settle { mark: Some(owner.behind(event.id).await?), ..Settle::default() });
    let (store, hold) = (rig.store().clone(), owner.hold().clone());
    let work = rig.work(event.id, "paid", Ending::Panic);
    // A store may pass the panic on to the task that called it, or report it in its own words.
    let ended = tokio::spawn(async move { store.settle_with(&hold, settle, work).await }).await;
    assert!(!matches!(ended, Ok(Ok(Ok(_)))), "a panic is no success");
    assert_eq!(rig.effects().await, []);
    assert_eq!(state_of(rig, &event).await?, DeliveryState::Pending);
    assert!(ack_with(rig, &owner, &event, Ending::Success).await?.is_ok());
    assert_eq!(state_of(rig, &event).await?, DeliveryState::Done);
    Ok(())
}

/// Once its shards are given back, its work has no effect.
pub async fn work_without_ownership_does_nothing<R: Rig>(rig: &R) -> Kept {
    let (owner, event) = one_event(rig).await?;
    rig.store().shards_release(owner.hold()).await?;
    assert_eq!(refused(ack_with(rig, &owner, &event, Ending::Success).await), ErrorKind::Fenced);
    assert_eq!(rig.effects().await, []);
    assert_eq!(state_of(rig, &event).await?, DeliveryState::Pending);
    Ok(())
}

/// Work may settle rows and lanes too, whole or not at all.
pub async fn work_settles_rows_and_lanes<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 2).await?;
    let rows = vec![owner.row(&events[0]).attempts(1).failed(SECOND), owner.row(&events[1]).waiting()];
    owner.settle_rows(events[1].id, rows).await?;
    let done = Arc::new(Settle {
        done: vec![events[0].id],
        freed: lane_of(&events[0]).into_iter().collect(),
        attempts: vec![failed_attempt(events[1].id, 1, "not yet")],
        ..Settle::default()
    });
    let before = rig.store().subscription_report(SUBSCRIPTION).await?;
    let work = rig.work(events[0].id, "paid", Ending::Failure);
    assert!(rig.store().settle_with(owner.hold(), Arc::clone(&done), work).await?.is_err());
    assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?, before);
    assert_eq!(rig.store().event_deliveries(events[1].id).await?[0].history, []);
    let work = rig.work(events[0].id, "paid", Ending::Success);
    assert!(rig.store().settle_with(owner.hold(), done, work).await?.is_ok());
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id]]);
    assert_eq!(rig.effects().await, [(events[0].id, "paid".to_owned())]);
    Ok(())
}
