//! How far handlers have come, as people see it.

use postrider_core::queue::{Claimed, EventProgress, Fate, Progress, QueueSettle, SettledRow};
use postrider_core::store::ProgressReport;
use postrider_core::time::Clock;
use postrider_core::{DeliveryState, EventId, QueueStore, Store};

use super::queue::events;
use super::worker::{LEASE, Worker, blocks, queue, retry};
use super::{Kept, Rig};

fn noted<S: QueueStore>(
    worker: &Worker<S>,
    claimed: &Claimed,
    event_id: EventId,
    progress: impl Into<Progress>,
) -> Vec<EventProgress> {
    let (subscription, token) = (worker.subscription.id, claimed.token);
    vec![EventProgress { subscription, event_id, token, progress: progress.into() }]
}

async fn progress_of<R: Rig>(rig: &R, event: EventId) -> Kept<Option<ProgressReport>> {
    Ok(rig.store().event_deliveries(event).await?.remove(0).progress)
}

/// What a handler says while it runs is written with its lease, and the last word is what people see, with its time.
pub async fn progress_is_written_with_the_lease<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for new in [queue(), blocks()] {
        let worker = Worker::create(rig.store(), new).await?;
        let ids = worker.emit(events(2)).await?;
        let claimed = worker.claim(9).await?;
        assert_eq!(progress_of(rig, ids[1]).await?, None);
        for (percent, note) in [(10, "page 1"), (20, "page 2")] {
            let progress = noted(&worker, &claimed, ids[1], (percent, note));
            assert_eq!(rig.store().extend(vec![claimed.token], progress).await?.len(), 1);
            let at = rig.clock().now();
            let report = ProgressReport { percent: Some(percent), note: note.to_owned(), at };
            assert_eq!(progress_of(rig, ids[1]).await?, Some(report));
            rig.clock().advance(LEASE / 4);
        }
        assert_eq!(progress_of(rig, ids[0]).await?, None, "it is told of each event by itself");
        rig.store().subscription_delete(super::owner::SUBSCRIPTION, super::owner::ACTOR).await?;
    }
    Ok(())
}

/// A worker that has lost its lease writes no progress.
pub async fn a_stale_token_writes_no_progress<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(1)).await?;
    let stale = worker.claim(1).await?;
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    let taken = worker.claim(1).await?;
    rig.store().extend(vec![taken.token], noted(&worker, &taken, ids[0], "theirs")).await?;
    let late = noted(&worker, &stale, ids[0], "ours");
    assert_eq!(rig.store().extend(vec![stale.token, taken.token], late.clone()).await?.len(), 1);
    let rows = vec![SettledRow { id: ids[0], token: stale.token, fate: Fate::Done }];
    worker.settle_all(QueueSettle { rows, progress: late, ..QueueSettle::default() }).await?;
    assert_eq!(progress_of(rig, ids[0]).await?.map(|report| report.note).as_deref(), Some("theirs"));
    Ok(())
}

/// What was said last is written when the handler ends, and stays for people to see, beside the result, until
/// the event goes.
pub async fn the_last_word_on_progress_stays<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(2)).await?;
    let claimed = worker.claim(9).await?;
    for (id, fate, state) in
        [(ids[0], Fate::Done, DeliveryState::Done), (ids[1], retry(LEASE), DeliveryState::Pending)]
    {
        let rows = vec![SettledRow { id, token: claimed.token, fate }];
        let progress = noted(&worker, &claimed, id, "page 9");
        worker.settle_all(QueueSettle { rows, progress, ..QueueSettle::default() }).await?;
        let report = rig.store().event_deliveries(id).await?.remove(0);
        let said = report.progress.map(|progress| (progress.percent, progress.note));
        assert_eq!((report.state, report.result, said), (state, None, Some((None, "page 9".to_owned()))));
    }
    Ok(())
}
