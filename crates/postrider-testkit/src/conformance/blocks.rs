//! Blocks: one row of a queue that stands for many events.

use std::time::Duration;

use postrider_core::queue::{Again, Count, Fate, Remnant};
use postrider_core::store::Cancelled;
use postrider_core::{DeliveryState, Event, EventId, QueueStore, Start, Store};

use super::owner::{ACTOR, SECOND, SUBSCRIPTION};
use super::queue::{events, letter};
use super::worker::{LEASE, Worker, blocks, events_of, only, retry, snooze};
use super::{Kept, Rig};

/// One row stands for many events that need no order.
pub async fn a_block_brings_many_events<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(250)).await?;
    let claimed = worker.claim(2).await?;
    assert_eq!(claimed.rows.iter().map(|row| row.events.len()).collect::<Vec<_>>(), [100, 100]);
    assert!(claimed.rows.iter().all(|row| row.is_block));
    assert_eq!(events_of(&claimed), ids[..200]);
    worker.ack(&claimed).await?;
    assert_eq!(worker.drain().await?, ids[200..]);
    assert_eq!(worker.claim_ids(9).await?, []);
    Ok(())
}

/// A block brings exactly its own events, not those between them.
pub async fn a_block_leaves_out_what_is_not_its_own<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks().topic("order")?).await?;
    let kinds = ["order", "mail", "order", "order", "mail"];
    let ids = worker.emit(kinds.iter().map(Event::new).collect()).await?;
    let claimed = worker.claim(1).await?;
    assert_eq!(events_of(&claimed), [ids[0], ids[2], ids[3]]);
    Ok(())
}

/// Of a block, some events may fail, die or run on; the others are done.
pub async fn a_block_may_be_split<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(6)).await?;
    let claimed = worker.claim(1).await?;
    let again = |after, count| Remnant::Again(Again { after, count });
    let split = Fate::Split(vec![
        (ids[0], again(SECOND, Count::Failed)),
        (ids[1], Remnant::Dead),
        (ids[2], Remnant::Running),
        (ids[3], again(Duration::ZERO, Count::Nothing)),
    ]);
    worker.settle(claimed.token, &[(ids[0], split.clone())]).await?;
    assert_eq!(worker.settle(claimed.token, &[(ids[0], split)]).await?.fenced, ids[..1], "the block is gone");
    let untouched = worker.claim(9).await?;
    assert_eq!((events_of(&untouched), only(&untouched).started), (vec![ids[3]], 1));
    rig.clock().advance(SECOND);
    worker.store.sweep(&worker.subscription).await?;
    let failed = worker.claim(9).await?;
    assert_eq!((events_of(&failed), only(&failed).started, only(&failed).finished), (vec![ids[0]], 2, 1));
    rig.store().dead_letter_get(&letter(ids[1])).await?;
    assert_eq!(
        worker.settle(claimed.token, &[(ids[2], Fate::Done)]).await?.fenced,
        [],
        "it ran on under its lease"
    );
    assert_eq!(worker.store.extend(vec![claimed.token], vec![]).await?, []);
    Ok(())
}

/// What of a block runs on is reaped like everything else.
pub async fn what_runs_on_is_reaped<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(3)).await?;
    let claimed = worker.claim(1).await?;
    worker.settle(claimed.token, &[(ids[0], Fate::Split(vec![(ids[1], Remnant::Running)]))]).await?;
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, [ids[1]]);
    Ok(())
}

/// The events of a block whose worker has ended are handed out one by one: one of them may be to blame.
pub async fn a_reaped_block_comes_back_in_pieces<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(3)).await?;
    let stale = worker.claim(1).await?;
    rig.clock().advance(LEASE * 2);
    assert_eq!(worker.store.sweep(&worker.subscription).await?.reaped, 1);
    let pieces = worker.claim(9).await?;
    assert_eq!(pieces.rows.len(), 3);
    assert_eq!(events_of(&pieces), ids);
    assert!(pieces.rows.iter().all(|row| !row.is_block && row.crashes() == 0));
    assert_eq!(worker.settle(stale.token, &[(ids[0], Fate::Done)]).await?.fenced, ids[..1]);
    worker.ack(&pieces).await
}

/// One event of a block can be cancelled; the others stay.
pub async fn an_event_of_a_block_is_cancelled_alone<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(4)).await?;
    assert_eq!(rig.store().delivery_cancel(&letter(ids[1]), ACTOR).await?, Some(Cancelled::Gone));
    assert_eq!(worker.drain().await?, [ids[0], ids[2], ids[3]]);
    Ok(())
}

/// A block is reported by its events.
pub async fn a_block_is_reported_by_its_events<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(150)).await?;
    worker.claim(1).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.pending, report.leased), (50, 100));
    assert_eq!(rig.store().event_deliveries(ids[70]).await?[0].state, DeliveryState::Leased);
    assert_eq!(rig.store().event_deliveries(ids[140]).await?[0].state, DeliveryState::Pending);
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// A split that is sent again brings nothing back, although what runs on has the name and the token of the block.
pub async fn a_split_may_be_repeated<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(4)).await?;
    let claimed = worker.claim(1).await?;
    let again = Remnant::Again(Again { after: Duration::ZERO, count: Count::Nothing });
    let split = Fate::Split(vec![(ids[0], Remnant::Running), (ids[1], again), (ids[2], Remnant::Dead)]);
    worker.settle(claimed.token, &[(ids[0], split.clone())]).await?;
    let untouched = worker.claim(9).await?;
    assert_eq!(events_of(&untouched), ids[1..2]);
    worker.ack(&untouched).await?;
    worker.settle(claimed.token, &[(ids[0], split)]).await?;
    assert_eq!(worker.claim_ids(9).await?, [], "what is done stays done");
    worker.settle(claimed.token, &[(ids[0], Fate::Done)]).await?;
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.claim_ids(9).await?, []);
    Ok(())
}

/// What is said of a block as a whole holds for each of its events.
pub async fn a_block_may_fail_or_die_as_a_whole<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(3)).await?;
    let claimed = worker.claim(1).await?;
    worker.settle(claimed.token, &[(ids[0], retry(SECOND))]).await?;
    assert_eq!(worker.claim_ids(9).await?, []);
    rig.clock().advance(SECOND);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, ids);
    let ids = worker.emit(events(3)).await?;
    let claimed = worker.claim(1).await?;
    worker.settle(claimed.token, &[(ids[0], Fate::Dead)]).await?;
    for id in ids {
        rig.store().dead_letter_get(&letter(id)).await?;
    }
    assert_eq!(worker.claim_ids(9).await?, []);
    Ok(())
}

/// Whatever becomes of a block, what was cancelled of it does not come back.
pub async fn a_cancelled_event_of_a_block_does_not_come_back<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    for place in [0, 1] {
        let ids = worker.emit(events(3)).await?;
        let claimed = worker.claim(1).await?;
        assert_eq!(rig.store().delivery_cancel(&letter(ids[place]), ACTOR).await?, Some(Cancelled::Told));
        worker.settle(claimed.token, &[(ids[0], snooze(Duration::ZERO))]).await?;
        let left: Vec<EventId> = ids.iter().copied().filter(|id| *id != ids[place]).collect();
        assert_eq!(worker.drain().await?, left);
        let ids = worker.emit(events(3)).await?;
        worker.claim(1).await?;
        rig.store().delivery_cancel(&letter(ids[place]), ACTOR).await?;
        rig.clock().advance(LEASE * 2);
        worker.store.sweep(&worker.subscription).await?;
        let left: Vec<EventId> = ids.iter().copied().filter(|id| *id != ids[place]).collect();
        assert_eq!(worker.drain().await?, left, "nor when its worker has ended");
    }
    Ok(())
}

/// A worker that had a block in its hands when the subscription was moved brings nothing back that will be fed again.
pub async fn a_split_after_a_seek_brings_back_only_what_is_left<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(events(4)).await?;
    let claimed = worker.claim(1).await?;
    rig.store().subscription_seek(SUBSCRIPTION, Start::Id(ids[2]), ACTOR).await?;
    let again = Remnant::Again(Again { after: Duration::ZERO, count: Count::Nothing });
    let split = Fate::Split(ids.iter().map(|id| (*id, again)).collect());
    worker.settle(claimed.token, &[(ids[0], split)]).await?;
    assert_eq!(worker.drain().await?, ids[..2]);
    Ok(())
}
