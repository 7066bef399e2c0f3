//! Mode `queue`: limits of keys that have no order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::{Ask, Claimed, Fate};
use postrider_core::store::{Cancelled, DeadLetterQuery};
use postrider_core::{
    ErrorKind, Event, EventId, LeaseBy, LogStore, NewEvent, NewSubscription, OnDead, Order, QueueStore,
    Store, Tuning,
};

use super::acking::{acked, deliveries};
use super::owner::{ACTOR, SECOND, SUBSCRIPTION, event_of, refused};
use super::queue::{events, letter};
use super::worker::{LEASE, Worker, events_of, queue, retry, snooze};
use super::{Ending, Kept, Rig};

/// A queue without order that lets so many events of each key be worked on at a time.
fn limited(per_key: u32) -> NewSubscription {
    let mut new = queue().order(Order::None);
    new.tuning.queue.per_key = Some(per_key);
    new
}

fn of_a(count: usize) -> Vec<NewEvent> {
    vec![event_of("a"); count]
}

fn tuning(per_key: Option<u32>) -> Tuning {
    let mut tuning = queue().tuning;
    tuning.queue.per_key = per_key;
    tuning
}

fn set(ids: &[EventId]) -> BTreeSet<EventId> {
    ids.iter().copied().collect()
}

async fn claim_set<S: QueueStore>(worker: &Worker<S>) -> Kept<BTreeSet<EventId>> {
    Ok(set(&worker.claim_ids(99).await?))
}

async fn is_sound<R: Rig>(rig: &R) -> Kept {
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// All workers together hold no more events of a key than its limit. Events without a key have no limit.
pub async fn a_key_keeps_to_its_limit<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for lease_by in [LeaseBy::Event, LeaseBy::Block] {
        let mut new = limited(2);
        new.tuning.queue.lease_by = lease_by;
        let worker = Worker::create(rig.store(), new).await?;
        let keyed = worker.emit(of_a(5)).await?;
        let free = worker.emit(events(7)).await?;
        let second = rig.second().await;
        let other = worker.beside(&second).await?;
        let mine = worker.claim_ids(1).await?;
        assert_eq!(mine, keyed[..1]);
        let theirs = set(&other.claim_ids(99).await?);
        assert_eq!(theirs, set(&[&keyed[1..2], &free[..]].concat()), "{lease_by:?}");
        assert_eq!((worker.claim_ids(99).await?, other.claim_ids(99).await?), (vec![], vec![]));
        assert_eq!(worker.emit(of_a(1)).await?.len(), 1);
        assert_eq!(worker.claim_ids(99).await?, [], "what is fed later waits too");
        is_sound(rig).await?;
        rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
        rig.store().member_leave(worker.member).await?;
        rig.store().member_leave(other.member).await?;
    }
    Ok(())
}

/// A key that brings much keeps no other one waiting.
pub async fn other_keys_do_not_wait<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let noisy = worker.emit(of_a(300)).await?;
    let quiet = worker.emit(vec![event_of("b"), event_of("c"), event_of("b")]).await?;
    assert_eq!(worker.claim_ids(9).await?, [&noisy[..2], &quiet[..]].concat());
    is_sound(rig).await
}

/// The next event gets a place as soon as another is done, dead, or no longer wanted, however long the others
/// take.
pub async fn whoever_leaves_frees_a_place<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let ids = worker.emit(of_a(8)).await?;
    let long = worker.claim(1).await?;
    assert_eq!(events_of(&long), ids[..1]);
    for (n, fate) in [Fate::Done, Fate::Dead, Fate::Done].into_iter().enumerate() {
        let next = worker.claim(99).await?;
        assert_eq!(events_of(&next), [ids[n + 1]], "one place is taken all the time");
        worker.settle(next.token, &[(ids[n + 1], fate)]).await?;
    }
    let told = worker.claim(99).await?;
    assert_eq!(events_of(&told), [ids[4]]);
    assert_eq!(rig.store().delivery_cancel(&letter(ids[4]), ACTOR).await?, Some(Cancelled::Told));
    worker.settle(told.token, &[(ids[4], retry(SECOND))]).await?;
    assert_eq!(rig.store().delivery_cancel(&letter(ids[5]), ACTOR).await?, Some(Cancelled::Gone));
    is_sound(rig).await?;
    let last = worker.claim(99).await?;
    assert_eq!(events_of(&last), [ids[6]]);
    worker.ack(&long).await?;
    worker.ack(&last).await?;
    assert_eq!(worker.drain().await?, ids[7..]);
    Ok(())
}

/// Two that leave at once free two places.
pub async fn as_many_as_leave_come_next<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(3)).await?;
    let ids = worker.emit(of_a(9)).await?;
    for round in ids.chunks(3) {
        let claimed = worker.claim(99).await?;
        assert_eq!(set(&events_of(&claimed)), set(round));
        worker.ack(&claimed).await?;
    }
    assert_eq!(worker.claim_ids(99).await?, []);
    is_sound(rig).await
}

/// Whatever waits for another attempt, or asked to be left alone, has no place; when its time has come it
/// waits for one.
pub async fn what_waits_for_its_time_has_no_place<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let ids = worker.emit(of_a(4)).await?;
    let failed = worker.claim(99).await?;
    worker.settle(failed.token, &[(ids[0], retry(SECOND * 5)), (ids[1], snooze(SECOND * 5))]).await?;
    let others = worker.claim(99).await?;
    assert_eq!(set(&events_of(&others)), set(&ids[2..]));
    rig.clock().advance(SECOND * 5);
    let swept = worker.store.sweep(&worker.subscription).await?;
    assert_eq!((swept.due, swept.reaped), (2, 0));
    assert_eq!(worker.claim_ids(99).await?, [], "both places are taken");
    is_sound(rig).await?;
    worker.settle(others.token, &[(ids[2], Fate::Done)]).await?;
    let first = worker.claim(99).await?;
    assert_eq!((events_of(&first), first.rows[0].started), (vec![ids[0]], 2));
    worker.settle(others.token, &[(ids[3], Fate::Done)]).await?;
    assert_eq!(worker.claim_ids(99).await?, ids[1..2]);
    is_sound(rig).await
}

/// What is attempted again at once keeps its place.
pub async fn what_is_given_back_keeps_its_place<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let ids = worker.emit(of_a(3)).await?;
    let claimed = worker.claim(99).await?;
    let again = [(ids[0], retry(Duration::ZERO)), (ids[1], snooze(Duration::ZERO))];
    worker.settle(claimed.token, &again).await?;
    assert_eq!(claim_set(&worker).await?, set(&ids[..2]));
    assert_eq!(worker.claim_ids(99).await?, []);
    is_sound(rig).await
}

/// What an ended worker had in its hands can be claimed again, and takes no place twice.
pub async fn a_reaped_event_can_be_claimed_again<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let ids = worker.emit(of_a(4)).await?;
    worker.claim(99).await?;
    assert_eq!(rig.store().delivery_cancel(&letter(ids[0]), ACTOR).await?, Some(Cancelled::Told));
    rig.clock().advance(LEASE * 2);
    assert_eq!(worker.store.sweep(&worker.subscription).await?.reaped, 1);
    is_sound(rig).await?;
    let again = worker.claim(99).await?;
    assert_eq!(set(&events_of(&again)), set(&ids[1..3]), "the place of the cancelled one is free");
    worker.ack(&again).await?;
    assert_eq!(worker.drain().await?, ids[3..]);
    Ok(())
}

/// Delayed events have no limit of their own.
pub async fn delayed_events_share_the_limit<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let mut ids = worker.emit(vec![event_of("a").due_after(SECOND * 3); 3]).await?;
    ids.extend(worker.emit(of_a(2)).await?);
    let now = worker.claim(99).await?;
    assert_eq!(set(&events_of(&now)), set(&ids[3..]), "until they are due they are in nobody's way");
    rig.clock().advance(SECOND * 3);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.claim_ids(99).await?, []);
    worker.ack(&now).await?;
    let due = claim_set(&worker).await?;
    assert!(due.len() == 2 && due.is_subset(&set(&ids[..3])), "{due:?}");
    is_sound(rig).await
}

/// Dead letters have no place, whatever becomes of keys that have an order; one that is replayed needs one again.
pub async fn dead_letters_have_no_place<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2).on_dead(OnDead::Hold)).await?;
    let ids = worker.emit(of_a(4)).await?;
    let claimed = worker.claim(99).await?;
    worker.settle(claimed.token, &[(ids[0], Fate::Dead), (ids[1], Fate::Dead)]).await?;
    let others = worker.claim(99).await?;
    assert_eq!(set(&events_of(&others)), set(&ids[2..]));
    let all = DeadLetterQuery { limit: 100, ..DeadLetterQuery::default() };
    assert_eq!(rig.store().dead_letter_replay(all, ACTOR).await?, 2);
    assert_eq!(worker.claim_ids(99).await?, []);
    is_sound(rig).await?;
    worker.ack(&others).await?;
    assert_eq!(claim_set(&worker).await?, set(&ids[..2]));
    Ok(())
}

/// An ack in a handler's own transaction frees a place.
pub async fn an_ack_frees_a_place<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let ids = worker.emit(of_a(4)).await?;
    let claimed = worker.claim(99).await?;
    rig.ack(&deliveries(&worker, &claimed)[0], "paid", Ending::Success).await?;
    worker.settle(claimed.token, &[acked(ids[0])]).await?;
    let next = worker.claim(99).await?;
    assert_eq!(events_of(&next), [ids[2]]);
    rig.ack(&deliveries(&worker, &next)[0], "paid", Ending::Failure).await?;
    assert_eq!(worker.claim_ids(99).await?, [], "what was not committed frees nothing");
    is_sound(rig).await
}

/// A feed that claims keeps to the limit, whether others of the key are there or not.
pub async fn a_feed_that_claims_keeps_to_the_limit<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let claim = async || -> Kept<Claimed> {
        let ids = rig.store().event_emit(vec![event_of("a"), event_of("a"), event_of("a"), event_of("b")]);
        let mut events = Vec::new();
        for id in ids.await? {
            events.extend(rig.store().event_get(id).await?.map(Arc::new));
        }
        let feed = Arc::new(worker.plan().await?);
        let ask = Ask { rows: 99, events: 99, bytes: usize::MAX >> 1, again: 99, all: false, lease: LEASE };
        let (_, claimed) = rig.store().feed_and_claim(worker.feeder().hold(), feed, events, ask).await?;
        Ok(claimed?)
    };
    let keys = |claimed: &Claimed| {
        let events = claimed.rows.iter().flat_map(|row| &row.events);
        events
            .filter_map(|event: &Arc<Event>| event.key.clone())
            .map(|key| key.to_string())
            .collect::<String>()
    };
    assert_eq!(keys(&claim().await?), "aab");
    assert_eq!(keys(&claim().await?), "b");
    assert_eq!(keys(&claim().await?), "", "each has what it may have");
    is_sound(rig).await
}

/// A changed limit holds at once; events that workers hold by then stay with them.
pub async fn a_changed_limit_holds_at_once<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), limited(2)).await?;
    let mut ids = worker.emit(of_a(8)).await?;
    let first = worker.claim(1).await?;
    let mut change = tuning(Some(4));
    rig.store().subscription_tune(SUBSCRIPTION, change.clone()).await?;
    is_sound(rig).await?;
    let more = worker.claim(1).await?;
    assert_eq!(events_of(&more), ids[1..2]);
    // Two more might be claimed, and now they may not.
    change.queue.per_key = Some(1);
    rig.store().subscription_tune(SUBSCRIPTION, change.clone()).await?;
    assert_eq!(worker.claim_ids(99).await?, []);
    ids.extend(worker.emit(of_a(1)).await?);
    worker.ack(&first).await?;
    assert_eq!(worker.claim_ids(99).await?, [], "one is still in somebody's hands");
    is_sound(rig).await?;
    worker.ack(&more).await?;
    assert_eq!(worker.claim_ids(99).await?, ids[2..3]);
    change.queue.per_key = Some(3);
    rig.store().subscription_tune(SUBSCRIPTION, change).await?;
    assert_eq!(claim_set(&worker).await?, set(&ids[3..5]));
    is_sound(rig).await
}

/// A feeder learns that keys have a limit now, or have none any more, because it loses its shards. Events
/// that were fed before such a limit have none.
pub async fn a_feeder_learns_of_a_limit<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let mut worker = Worker::create(rig.store(), queue().order(Order::None)).await?;
    let mut before = worker.emit(of_a(3)).await?;
    for (per_key, claimed) in [(Some(1), 4), (None, 5)] {
        let new = rig.store().event_emit(of_a(3)).await?;
        let feed = Arc::new(worker.plan().await?);
        rig.store().subscription_tune(SUBSCRIPTION, tuning(per_key)).await?;
        assert_eq!(refused(rig.store().feed(worker.feeder().hold(), feed).await), ErrorKind::Fenced);
        worker.take_again().await?;
        worker.feed().await?;
        before.extend(new);
        let left = before.split_off(claimed);
        assert_eq!(claim_set(&worker).await?, set(&before), "{per_key:?}");
        before = left;
    }
    assert_eq!(before, []);
    is_sound(rig).await
}

/// A limit of keys is for queues without order, and lets at least one through.
pub async fn a_limit_that_makes_no_sense_is_refused<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let mut log = limited(2);
    log.mode = postrider_core::Mode::Log;
    for bad in [limited(0), limited(2).order(Order::Key), log] {
        assert_eq!(refused(rig.store().subscription_create(bad).await), ErrorKind::Invalid);
    }
    rig.store().subscription_create(queue()).await?;
    let tuned = rig.store().subscription_tune(SUBSCRIPTION, tuning(Some(2))).await;
    assert_eq!(refused(tuned), ErrorKind::Invalid);
    Ok(())
}

/// Two processes that claim and settle as fast as they can keep to the limit, and nothing is left over.
pub async fn a_limit_holds_while_many_claim_and_settle<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    const LIMIT: usize = 3;
    let worker = Worker::create(rig.store(), limited(LIMIT as u32)).await?;
    let keyed = |n: usize| event_of(["a", "b"][usize::from(n.is_multiple_of(5))]);
    let ids = worker.emit((0..100).map(keyed).collect()).await?;
    let second = rig.second().await;
    let other = worker.beside(&second).await?;
    let (mut seen, mut rounds) = (BTreeSet::new(), 0);
    while seen.len() < ids.len() {
        rounds += 1;
        let (mine, theirs) = tokio::join!(worker.claim(2), other.claim(2));
        let (mine, theirs) = (mine?, theirs?);
        let mut of_key: BTreeMap<String, usize> = BTreeMap::new();
        for event in mine.rows.iter().chain(&theirs.rows).flat_map(|row| &row.events) {
            *of_key.entry(event.key.as_ref().map(ToString::to_string).unwrap_or_default()).or_default() += 1;
            assert!(seen.insert(event.id), "event {} was handed out twice", event.id);
        }
        assert!(of_key.values().all(|count| *count <= LIMIT), "{of_key:?}");
        let (first, second) = tokio::join!(worker.ack(&mine), other.ack(&theirs));
        first.and(second)?;
        assert!(rounds < 1_000_000, "{} of {} events were handed out", seen.len(), ids.len());
    }
    is_sound(rig).await
}
