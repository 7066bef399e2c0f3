//! Mode `queue`: an event whose place a newer one has taken is not handed out.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::{Ask, Fate, Remnant};
use postrider_core::store::DeadLetterQuery;
use postrider_core::unique::Unique;
use postrider_core::{Event, NewEvent, QueueStore, Store};

use super::owner::{ACTOR, SECOND, event_of};
use super::queue::{events, letter};
use super::worker::{LEASE, Worker, blocks, events_of, only, queue, retry};
use super::{Kept, Rig};

/// An event without an ordering key that replaces others of its name.
fn newest(name: &str) -> NewEvent {
    Event::new("order").unique(Unique::new(name).replace())
}

/// Of several that wait only the newest is handed out; the others are done.
pub async fn only_the_newest_is_handed_out<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![newest("a"), newest("b"), newest("a"), Event::new("order")]).await?;
    let newer = rig.second().await.event_emit(vec![newest("a")]).await?;
    worker.feed().await?;
    let claimed = worker.claim(9).await?;
    assert_eq!(events_of(&claimed), [ids[1], ids[3], newer[0]]);
    assert_eq!(claimed.rows.len(), 5, "rows without events are there to be settled");
    worker.ack(&claimed).await?;
    assert_eq!(worker.drain().await?, []);
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// It is not handed out even before the newer one has been fed: that one is sure to come.
pub async fn a_replaced_event_waits_for_no_feed<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    worker.emit(vec![newest("a")]).await?;
    let newer = rig.store().event_emit(vec![newest("a")]).await?;
    assert_eq!(worker.drain().await?, []);
    worker.feed().await?;
    assert_eq!(worker.drain().await?, newer);
    Ok(())
}

/// Each emit puts the delivery off: of many changes the last is delivered, once it has been quiet for a while.
pub async fn a_delayed_event_may_be_put_off<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let later = || event_of("a").unique(Unique::new("index").replace()).due_after(SECOND * 5);
    let mut last = Vec::new();
    for _ in 0..4 {
        last = worker.emit(vec![later()]).await?;
        rig.clock().advance(SECOND * 3);
        worker.store.sweep(&worker.subscription).await?;
        assert_eq!(worker.drain().await?, [], "it is not quiet yet");
    }
    rig.clock().advance(SECOND * 3);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, last);
    assert_eq!(worker.store.sweep(&worker.subscription).await?.next_due_in, None, "all others are done");
    Ok(())
}

/// One that has begun goes on, and the newer one is delivered too.
pub async fn what_has_begun_goes_on<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let older = worker.emit(vec![newest("a")]).await?;
    let begun = worker.claim(9).await?;
    assert_eq!(events_of(&begun), older);
    let newer = worker.emit(vec![newest("a")]).await?;
    assert_eq!(worker.store.extend(vec![begun.token], Vec::new()).await?.len(), 1);
    assert_eq!(worker.drain().await?, newer);
    worker.ack(&begun).await
}

/// What has failed waits like any other: a newer one spares it its next attempt. So does a dead letter that
/// is replayed.
pub async fn a_failed_event_may_be_replaced<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let older = worker.emit(vec![newest("a"), newest("b")]).await?;
    let claimed = worker.claim(9).await?;
    worker.settle(claimed.token, &[(older[0], retry(Duration::ZERO)), (older[1], Fate::Dead)]).await?;
    let newer = worker.emit(vec![newest("a"), newest("b")]).await?;
    rig.store().dead_letter_get(&letter(older[1])).await?;
    let all = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
    rig.store().dead_letter_replay(all, ACTOR).await?;
    rig.clock().advance(SECOND);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, newer);
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// A key goes on behind a head that was replaced.
pub async fn a_replaced_head_lets_its_key_go_on<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let newest = |name: &str| event_of("a").unique(Unique::new(name).replace());
    let ids = worker.emit(vec![newest("x"), event_of("a"), newest("x"), newest("y")]).await?;
    let head = worker.claim(9).await?;
    assert_eq!((only(&head).id, events_of(&head)), (ids[0], Vec::new()));
    worker.ack(&head).await?;
    assert_eq!(worker.drain().await?, ids[1..]);
    Ok(())
}

/// A block brings the others, whole or split.
pub async fn a_block_leaves_out_what_was_replaced<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), blocks()).await?;
    let ids = worker.emit(vec![newest("a"), newest("b"), newest("c"), newest("a"), newest("c")]).await?;
    let claimed = worker.claim(1).await?;
    assert!(only(&claimed).is_block);
    assert_eq!(events_of(&claimed), [ids[1], ids[3], ids[4]]);
    let split = Fate::Split(vec![(ids[3], Remnant::Dead)]);
    worker.settle(claimed.token, &[(ids[0], split)]).await?;
    assert_eq!(worker.drain().await?, [], "what is not named is done");
    Ok(())
}

/// Rows whose events were replaced are reaped and swept like all others, and keep no other row waiting.
pub async fn a_sweep_goes_on_behind_what_was_replaced<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for new in [blocks(), queue()] {
        let worker = Worker::create(rig.store(), new).await?;
        let ids = worker.emit(vec![newest("a"), newest("b"), newest("b"), Event::new("order")]).await?;
        worker.claim(9).await?;
        let newer = worker.emit(vec![newest("a")]).await?;
        rig.clock().advance(LEASE * 2);
        assert_eq!(worker.store.sweep(&worker.subscription).await?.reaped, 1);
        let mut left = worker.drain().await?;
        left.sort();
        assert_eq!(left, [ids[2], ids[3], newer[0]]);
        assert_eq!(rig.store().check().await?, Vec::<String>::new());
        rig.store().subscription_delete(&worker.subscription.name, ACTOR).await?;
    }
    Ok(())
}

/// A feed that claims leaves them out too, whether the events are at hand or not.
pub async fn a_feed_that_claims_leaves_out_what_was_replaced<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    for at_hand in [true, false] {
        let ids = rig.store().event_emit(vec![newest("a"), newest("b"), newest("a")]).await?;
        let mut events = Vec::new();
        for id in ids.iter().filter(|_| at_hand) {
            events.extend(rig.store().event_get(*id).await?.map(Arc::new));
        }
        let feed = Arc::new(worker.plan().await?);
        let ask = Ask { rows: 9, events: 9, bytes: usize::MAX >> 1, again: 9, all: false, lease: LEASE };
        let fed = rig.store().feed_and_claim(worker.feeder().hold(), feed, events, ask).await?;
        let claimed = fed.1?;
        assert_eq!(events_of(&claimed), ids[1..]);
        worker.ack(&claimed).await?;
    }
    Ok(())
}

/// An event of an earlier period is delivered, and so is an event whose key no other event took over.
pub async fn only_who_holds_the_key_is_replaced<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let within = || Unique::new("a").within(SECOND * 10);
    let older = worker.emit(vec![Event::new("order").unique(within().replace())]).await?;
    rig.clock().advance(SECOND * 11);
    let newer = worker.emit(vec![Event::new("order").unique(within().replace())]).await?;
    rig.clock().advance(SECOND * 11);
    let last = worker.emit(vec![Event::new("order").unique(within())]).await?;
    assert_eq!(worker.emit(vec![Event::new("order").unique(within())]).await?, last);
    let others = worker.emit(events(1)).await?;
    assert_eq!(worker.drain().await?, [older, newer, last, others].concat());
    Ok(())
}

/// One that did not say that it may be replaced is delivered beside the newer one.
pub async fn what_may_not_be_replaced_is_handed_out<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![Event::new("order").idempotency_key("a"), newest("a")]).await?;
    assert_eq!(worker.drain().await?, ids);
    Ok(())
}
