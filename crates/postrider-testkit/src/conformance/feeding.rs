//! Mode `queue`: feeds that claim for the worker beside the feeder.

use std::sync::Arc;

use postrider_core::queue::{Ask, Claimed};
use postrider_core::{Event, EventId, LogStore, QueueStore, ShardSet, Store};

use super::owner::SUBSCRIPTION;
use super::queue::events;
use super::worker::{LEASE, Worker, events_of, queue};
use super::{Kept, Rig};

fn ask(rows: usize) -> Ask {
    Ask { rows, events: rows, bytes: usize::MAX >> 1, again: rows, all: false, lease: LEASE }
}

/// Emits, feeds and claims, with the events at hand or without.
async fn feed_and_claim<S: QueueStore>(
    worker: &Worker<S>,
    rows: usize,
    at_hand: &[EventId],
) -> Kept<Claimed> {
    let feed = worker.plan().await?;
    let mut events = Vec::new();
    for id in at_hand {
        events.extend(worker.store.event_get(*id).await?.map(Arc::new));
    }
    let (_, claimed) =
        worker.store.feed_and_claim(worker.feeder().hold(), Arc::new(feed), events, ask(rows)).await?;
    Ok(claimed?)
}

/// A feed may claim: what was ready before comes first, and the rest is there for others.
pub async fn a_feed_may_claim<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let before = worker.emit(events(2)).await?;
    let after = rig.store().event_emit(events(3)).await?;
    let claimed = feed_and_claim(&worker, 4, &after).await?;
    assert_eq!(events_of(&claimed), [&before[..], &after[..2]].concat());
    assert_eq!(&claimed.rows[3].events[0].payload[..], b"1");
    assert_eq!((claimed.rows[3].started, claimed.rows[3].finished), (1, 0));
    let again = rig.store().event_emit(events(1)).await?;
    let claimed = feed_and_claim(&worker, 9, &[]).await?;
    assert_eq!(events_of(&claimed), [after[2], again[0]]);
    assert_eq!(worker.claim_ids(9).await?, []);
    worker.ack(&claimed).await?;
    Ok(())
}

/// Of a key only the first is claimed, whether its lane was empty or not.
pub async fn a_feed_that_claims_keeps_to_lanes<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let keyed = |key: &str| Event::new("order").key(key);
    let first = rig.store().event_emit(vec![keyed("a"), keyed("a"), keyed("b")]).await?;
    let claimed = feed_and_claim(&worker, 9, &first).await?;
    assert_eq!(events_of(&claimed), [first[0], first[2]]);
    let second = rig.store().event_emit(vec![keyed("b"), keyed("c")]).await?;
    assert_eq!(events_of(&feed_and_claim(&worker, 9, &second).await?), [second[1]]);
    worker.ack(&claimed).await?;
    assert_eq!(worker.claim_ids(9).await?, [first[1], second[0]]);
    Ok(())
}

/// What is paused is fed, since positions go on, and not claimed.
pub async fn a_feed_claims_nothing_of_what_is_paused<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = rig.store().event_emit(events(2)).await?;
    let feed = worker.plan().await?;
    rig.store().subscription_pause(SUBSCRIPTION).await?;
    let hold = worker.feeder().hold().clone();
    let (_, claimed) = rig.store().feed_and_claim(&hold, Arc::new(feed), Vec::new(), ask(9)).await?;
    let claimed = claimed?;
    assert!(claimed.paused && claimed.rows.is_empty());
    rig.store().subscription_resume(SUBSCRIPTION).await?;
    assert_eq!(worker.claim_ids(9).await?, ids);
    Ok(())
}

/// A feeder that was replaced neither feeds nor claims.
pub async fn a_replaced_feeder_claims_nothing<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ready = worker.emit(events(1)).await?;
    rig.store().event_emit(events(2)).await?;
    let feed = worker.plan().await?;
    rig.store().member_leave(worker.member).await?;
    let other = rig.store().member_join("bob").await?;
    assert!(rig.store().shards_take(SUBSCRIPTION, other, ShardSet::ALL).await?.is_some());
    let hold = worker.feeder().hold().clone();
    let fed = rig.store().feed_and_claim(&hold, Arc::new(feed), Vec::new(), ask(9)).await;
    assert!(fed.is_err_and(|error| error.is_fenced()));
    assert_eq!(worker.claim_ids(9).await?, ready);
    Ok(())
}
