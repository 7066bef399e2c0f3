//! Handlers that ack in transactions of their own.

use std::sync::Arc;

use postrider_core::delivery::Origin;
use postrider_core::queue::{
    Claimed, EventResult, Fate, QueueSettle, QueueSettled, Remnant, SettledRow, Ticket,
};
use postrider_core::{Delivery, DeliveryState, ErrorKind, Event, EventId, QueueStore, Store};

use super::owner::{SUBSCRIPTION, event_of, refused};
use super::queue::events;
use super::worker::{LEASE, Worker, blocks, events_of, only, queue};
use super::{Ending, Kept, Rig};

/// The deliveries that a worker would make of a claim.
pub(super) fn deliveries<S: QueueStore>(worker: &Worker<S>, claimed: &Claimed) -> Vec<Delivery> {
    let origin = Arc::new(Origin { subscription: SUBSCRIPTION.to_owned(), store_id: worker.store.id() });
    let deliver = |event: &Arc<Event>| {
        let ticket = Some(Ticket::new(worker.subscription.id, event.id, claimed.token));
        Delivery { ticket, ..Delivery::new(Arc::clone(event), 1, Arc::clone(&origin)) }
    };
    claimed.rows.iter().flat_map(|row| &row.events).map(deliver).collect()
}

/// A worker of single events with one of them in its hands.
async fn one<R: Rig<Store: QueueStore>>(rig: &R) -> Kept<(Worker<R::Store>, Claimed, Delivery)> {
    let worker = Worker::create(rig.store(), queue()).await?;
    worker.emit(events(1)).await?;
    let claimed = worker.claim(1).await?;
    let delivery = deliveries(&worker, &claimed).remove(0);
    Ok((worker, claimed, delivery))
}

async fn state_of<R: Rig>(rig: &R, event: EventId) -> Kept<DeliveryState> {
    Ok(rig.store().event_deliveries(event).await?[0].state)
}

pub(super) fn acked(id: EventId) -> (EventId, Fate) {
    (id, Fate::Acked(vec![id]))
}

/// What a handler wrote and its ack are there together, and its worker has nothing left to say.
pub async fn an_effect_and_its_ack_commit_together<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let (worker, claimed, delivery) = one(rig).await?;
    rig.ack(&delivery, "paid", Ending::Success).await?;
    assert!(delivery.ticket.as_ref().is_some_and(Ticket::is_acked));
    assert_eq!(rig.effects().await, [(delivery.id, "paid".to_owned())]);
    assert_eq!(state_of(rig, delivery.id).await?, DeliveryState::Done);
    let settled = worker.settle(claimed.token, &[acked(delivery.id)]).await?;
    assert_eq!(settled, QueueSettled::default(), "nobody has taken it over");
    assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?, [], "nothing is left of the claim");
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.claim_ids(9).await?, []);
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// A handler that rolls back, or is cut off before it commits, has acked nothing, and its worker may fail as always.
pub async fn what_is_rolled_back_was_never_acked<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for ending in [Ending::Failure, Ending::Panic] {
        let worker = Worker::create(rig.store(), queue()).await?;
        let ids = worker.emit(vec![event_of("a"), event_of("a")]).await?;
        let claimed = worker.claim(1).await?;
        rig.ack(&deliveries(&worker, &claimed)[0], "paid", ending).await?;
        assert_eq!(rig.effects().await, []);
        assert_eq!(state_of(rig, ids[0]).await?, DeliveryState::Leased);
        assert_eq!(worker.claim_ids(9).await?, [], "its key still waits for it");
        let again = super::worker::snooze(std::time::Duration::ZERO);
        assert_eq!(worker.settle(claimed.token, &[(ids[0], again)]).await?, QueueSettled::default());
        assert_eq!(worker.drain().await?, ids);
        rig.store().subscription_delete(SUBSCRIPTION, super::owner::ACTOR).await?;
    }
    Ok(())
}

/// With an ack that was committed, the next event of its key can be claimed.
pub async fn an_ack_makes_the_next_of_its_key_ready<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let mut ids = worker.emit(vec![event_of("a"), event_of("a")]).await?;
    let first = worker.claim(9).await?;
    assert_eq!(events_of(&first), ids[..1]);
    ids.extend(worker.emit(vec![event_of("a")]).await?);
    rig.ack(&deliveries(&worker, &first)[0], "paid", Ending::Success).await?;
    worker.settle(first.token, &[acked(ids[0])]).await?;
    let second = worker.claim(9).await?;
    assert_eq!(events_of(&second), ids[1..2], "one at a time");
    rig.ack(&deliveries(&worker, &second)[0], "paid", Ending::Success).await?;
    worker.settle(second.token, &[acked(ids[1])]).await?;
    assert_eq!(worker.drain().await?, ids[2..], "what was fed meanwhile is not forgotten");
    Ok(())
}

/// A worker that has lost its lease gets an error, and has neither written nor acked anything.
pub async fn an_ack_after_the_lease_was_lost_changes_nothing<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let (worker, claimed, delivery) = one(rig).await?;
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    let lost = rig.ack(&delivery, "late", Ending::Success).await;
    assert_eq!(refused(lost), ErrorKind::Fenced);
    let taken = worker.claim(9).await?;
    assert_eq!(events_of(&taken), [delivery.id]);
    let lost = rig.ack(&delivery, "late", Ending::Success).await;
    assert_eq!(refused(lost), ErrorKind::Fenced, "others have it");
    assert!(!delivery.ticket.as_ref().is_some_and(Ticket::is_acked));
    assert_eq!(worker.settle(claimed.token, &[acked(delivery.id)]).await?.fenced, [delivery.id]);
    rig.ack(&deliveries(&worker, &taken)[0], "paid", Ending::Success).await?;
    assert_eq!(rig.effects().await, [(delivery.id, "paid".to_owned())]);
    Ok(())
}

/// A handler that says it has acked, but has not committed that, is handed the event again; so it cannot be lost.
pub async fn an_ack_that_was_not_committed_is_found_out<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let (worker, claimed, delivery) = one(rig).await?;
    rig.ack(&delivery, "paid", Ending::Failure).await?;
    worker.settle(claimed.token, &[acked(delivery.id)]).await?;
    let again = worker.claim(9).await?;
    assert_eq!((events_of(&again), only(&again).started), (vec![delivery.id], 2));
    assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?, []);
    worker.ack(&again).await
}

/// A settle whose answer was lost is sent again, and takes nothing away from what the claim still has.
pub async fn a_repeated_settle_of_an_ack_counts_once<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(3)).await?;
    let claimed = worker.claim(9).await?;
    let deliveries = deliveries(&worker, &claimed);
    rig.ack(&deliveries[0], "paid", Ending::Success).await?;
    for _ in 0..4 {
        assert_eq!(worker.settle(claimed.token, &[acked(ids[0])]).await?, QueueSettled::default());
    }
    assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?.len(), 1, "two are left");
    rig.ack(&deliveries[1], "paid", Ending::Success).await?;
    worker.settle(claimed.token, &[acked(ids[1]), (ids[2], Fate::Done)]).await?;
    assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?, []);
    assert_eq!(worker.settle(claimed.token, &[acked(ids[1])]).await?.fenced, [ids[1]], "the claim is gone");
    Ok(())
}

/// A claim lasts while a handler of it still runs, also when all that it has was acked; with the last one it is over.
pub async fn a_claim_lasts_while_those_who_have_acked_still_run<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(3)).await?;
    let claimed = worker.claim(9).await?;
    for delivery in &deliveries(&worker, &claimed)[..2] {
        rig.ack(delivery, "paid", Ending::Success).await?;
    }
    for said in [acked(ids[0]), (ids[2], Fate::Done)] {
        let (id, fate) = said;
        let rows = vec![SettledRow { id, token: claimed.token, fate }];
        let settle = QueueSettle { rows, held: vec![claimed.token], ..QueueSettle::default() };
        assert_eq!(worker.settle_all(settle).await?, QueueSettled::default());
        assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?.len(), 1, "the second still runs");
    }
    assert_eq!(worker.settle(claimed.token, &[acked(ids[1])]).await?, QueueSettled::default());
    assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?, []);
    Ok(())
}

/// Of a block each event is acked by its own handler, the first one too, and then the block is gone.
pub async fn events_of_a_block_are_acked_one_by_one<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(3)).await?;
    let claimed = worker.claim(1).await?;
    let deliveries = deliveries(&worker, &claimed);
    for n in [0, 2, 1] {
        rig.ack(&deliveries[n], "paid", Ending::Success).await?;
        assert_eq!(state_of(rig, ids[n]).await?, DeliveryState::Done);
        assert_eq!(refused(rig.ack(&deliveries[n], "twice", Ending::Success).await), ErrorKind::Fenced);
    }
    assert_eq!(rig.effects().await.len(), 3);
    let settled = worker.settle(claimed.token, &[(ids[0], Fate::Acked(ids.clone()))]).await?;
    assert_eq!(settled, QueueSettled::default());
    assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?, []);
    Ok(())
}

/// Of a block some events may be acked by their handlers, some not, and one only as its handler believes.
pub async fn a_block_that_is_acked_in_part_is_settled_in_part<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(4)).await?;
    let claimed = worker.claim(1).await?;
    let deliveries = deliveries(&worker, &claimed);
    rig.ack(&deliveries[0], "paid", Ending::Success).await?;
    rig.ack(&deliveries[1], "paid", Ending::Failure).await?;
    // The last one is done in the usual way.
    let parts = vec![(ids[0], Remnant::Acked), (ids[1], Remnant::Acked), (ids[2], Remnant::Running)];
    assert_eq!(worker.settle(claimed.token, &[(ids[0], Fate::Split(parts))]).await?, QueueSettled::default());
    let again = worker.claim(9).await?;
    assert_eq!(events_of(&again), [ids[1]]);
    worker.ack(&again).await?;
    rig.ack(&deliveries[2], "paid", Ending::Success).await?;
    assert_eq!(worker.settle(claimed.token, &[acked(ids[2])]).await?, QueueSettled::default());
    assert_eq!(rig.store().extend(vec![claimed.token], vec![]).await?, []);
    assert_eq!(worker.claim_ids(9).await?, []);
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// What was acked of a block does not come back with the rest of it.
pub async fn a_reaped_block_leaves_out_what_was_acked<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for count in [2, 4] {
        let worker = Worker::create(rig.store(), blocks()).await?;
        let ids = worker.emit(events(count)).await?;
        let claimed = worker.claim(1).await?;
        rig.ack(&deliveries(&worker, &claimed)[0], "paid", Ending::Success).await?;
        rig.clock().advance(LEASE * 2);
        worker.store.sweep(&worker.subscription).await?;
        assert_eq!(worker.drain().await?, ids[1..]);
        rig.store().subscription_delete(SUBSCRIPTION, super::owner::ACTOR).await?;
    }
    Ok(())
}

/// The result of a handler that acks itself is kept as any other.
pub async fn results_of_what_was_acked_are_kept<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let (worker, claimed, delivery) = one(rig).await?;
    rig.ack(&delivery, "paid", Ending::Success).await?;
    let (id, fate) = acked(delivery.id);
    let result = EventResult { event_id: id, result: "42".to_owned() };
    let rows = vec![SettledRow { id, token: claimed.token, fate }];
    worker.settle_all(QueueSettle { rows, results: vec![result], ..QueueSettle::default() }).await?;
    let report = rig.store().event_deliveries(id).await?.remove(0);
    assert_eq!((report.state, report.result.as_deref()), (DeliveryState::Done, Some("42")));
    Ok(())
}

/// In mode `log` there is nothing that a handler could ack.
pub async fn an_ack_needs_a_lease<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let (_, _, delivery) = one(rig).await?;
    let without = Delivery { ticket: None, ..delivery };
    assert_eq!(refused(rig.ack(&without, "paid", Ending::Success).await), ErrorKind::Invalid);
    assert_eq!(rig.effects().await, []);
    Ok(())
}
