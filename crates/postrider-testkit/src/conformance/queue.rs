//! Mode `queue`: feed, claim, lease, settle, sweep.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::queue::{Ask, EventResult, Fate, Priority, QueueSettle, SettledRow, Token};
use postrider_core::settle::AttemptRecord;
use postrider_core::store::{Cancelled, DeadLetterQuery, DeliveryAction, LetterId};
use postrider_core::subscription::Rate;
use postrider_core::{
    DeliveryState, ErrorKind, Event, EventId, Fair, LogStore, NewEvent, OnDead, Order, QueueStore, ShardSet,
    Start, Store,
};

use super::owner::{ACTOR, SECOND, SUBSCRIPTION, event_of};
use super::worker::{LEASE, Worker, blocks, events_of, only, queue, retry, snooze};
use super::{Kept, Rig};

const BYTES: usize = usize::MAX >> 1;

/// So many events without a key.
pub(super) fn events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| Event::new("order").payload(format!("{n}"))).collect()
}

pub(super) fn letter(event_id: EventId) -> LetterId {
    LetterId { subscription: SUBSCRIPTION.to_owned(), event_id }
}

fn query() -> DeadLetterQuery {
    DeadLetterQuery { limit: 100, ..DeadLetterQuery::default() }
}

/// What was fed is claimed once, in order, as it was emitted.
pub async fn fed_events_are_claimed_in_order<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(5)).await?;
    let claimed = worker.claim(3).await?;
    assert_eq!(events_of(&claimed), ids[..3]);
    assert_eq!(&claimed.rows[1].events[0].payload[..], b"1");
    assert_eq!((claimed.rows[0].started, claimed.rows[0].finished), (1, 0));
    assert_eq!(worker.claim_ids(9).await?, ids[3..]);
    assert_eq!(worker.claim_ids(9).await?, []);
    Ok(())
}

/// Nothing is there before it is fed, and what is not wanted is never fed.
pub async fn only_what_is_wanted_and_fed_can_be_claimed<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue().topic("order")?).await?;
    rig.store().event_emit(vec![Event::new("mail"), Event::new("order")]).await?;
    assert_eq!(worker.claim_ids(9).await?, []);
    worker.feed().await?;
    assert_eq!(worker.claim(9).await?.rows.len(), 1);
    Ok(())
}

/// The position moves with the rows: a next feeder goes on behind them.
pub async fn a_feed_moves_the_position<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(3)).await?;
    rig.store().shards_release(worker.feeder().hold()).await?;
    let next = super::owner::Owner::of(rig.store(), SUBSCRIPTION).await?;
    assert_eq!(next.read_all().await?.len(), 0, "all of it was fed");
    assert_eq!(worker.drain().await?, ids);
    Ok(())
}

/// A feeder that was replaced writes neither rows nor a position.
pub async fn a_replaced_feeder_feeds_nothing<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    rig.store().event_emit(events(2)).await?;
    let feed = worker.plan().await?;
    rig.store().member_leave(worker.member).await?;
    let other = rig.store().member_join("bob").await?;
    let taken = rig.store().shards_take(SUBSCRIPTION, other, ShardSet::ALL).await?;
    assert!(taken.is_some());
    let fed = rig.store().feed(worker.feeder().hold(), Arc::new(feed)).await;
    assert!(fed.is_err_and(|error| error.is_fenced()));
    assert_eq!(worker.claim_ids(9).await?, []);
    Ok(())
}

/// Two that claim at the same time never get the same event.
pub async fn no_event_is_handed_out_twice<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(60)).await?;
    let second = rig.second().await;
    let other = worker.beside(&second).await?;
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let (mine, theirs) = tokio::join!(worker.claim(3), other.claim(3));
        for id in events_of(&mine?).into_iter().chain(events_of(&theirs?)) {
            assert!(seen.insert(id), "event {id} was handed out twice");
        }
    }
    for id in worker.drain().await?.into_iter().chain(other.drain().await?) {
        assert!(seen.insert(id), "event {id} was handed out twice");
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ids);
    Ok(())
}

/// A claim keeps to its bounds; the first row comes whatever it holds.
pub async fn a_claim_is_bounded<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let large = |n: usize| Event::new("order").payload(vec![b'x'; n]);
    worker.emit(vec![large(5_000), large(5_000), large(5_000), large(10), large(10)]).await?;
    let ask = |rows, events, bytes| Ask { rows, events, bytes, again: rows, all: false, lease: LEASE };
    let claim = async |ask| rig.store().claim(&worker.subscription, worker.member, ask).await;
    assert_eq!(claim(ask(9, 9, 1)).await?.rows.len(), 1, "the first row comes whatever it holds");
    assert_eq!(claim(ask(9, 1, BYTES)).await?.rows.len(), 1);
    assert_eq!(claim(ask(0, 9, BYTES)).await?.rows.len(), 0);
    assert_eq!(claim(ask(2, 9, BYTES)).await?.rows.len(), 2);
    Ok(())
}

/// Of rows that have failed before, a claim brings no more than it is asked for; the others come meanwhile,
/// and they stay.
pub async fn a_claim_leaves_room_beside_what_has_failed<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let failing = worker.emit(events(6)).await?;
    let claimed = worker.claim(6).await?;
    let fates: Vec<_> = failing.iter().map(|id| (*id, retry(SECOND))).collect();
    worker.settle(claimed.token, &fates).await?;
    rig.clock().advance(SECOND);
    assert_eq!(worker.store.sweep(&worker.subscription).await?.due, 6);
    let fresh = worker.emit(events(3)).await?;
    let claim = async |rows, again| {
        let ask = Ask { rows, events: 99, bytes: BYTES, again, all: false, lease: LEASE };
        let claimed = rig.store().claim(&worker.subscription, worker.member, ask).await?;
        Ok::<Vec<EventId>, postrider_core::Error>(claimed.rows.iter().map(|row| row.id).collect())
    };
    assert_eq!(claim(1, 0).await?, fresh[..1]);
    assert_eq!(claim(2, 1).await?, [failing[0], fresh[1]], "in the order in which they were fed");
    assert_eq!(claim(9, 2).await?, [failing[1], failing[2], fresh[2]]);
    assert_eq!(claim(9, 0).await?, []);
    assert_eq!(claim(9, 9).await?, failing[3..], "what was left is still there");
    Ok(())
}

/// The urgent come first, and among equals the oldest.
pub async fn the_urgent_come_first<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let with = |level: &str| Event::new("order").header(Priority::HEADER, level);
    let ids =
        worker.emit(vec![with("-3"), Event::new("order"), with("9"), with("9"), Event::new("order")]).await?;
    assert_eq!(worker.drain().await?, [ids[2], ids[3], ids[1], ids[4], ids[0]]);
    Ok(())
}

/// A tenant with many events does not keep the others waiting, whichever feeder feeds.
pub async fn tenants_share_evenly<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let mut new = queue().order(Order::None);
    new.tuning.queue.fair = Fair::Header("tenant".to_owned());
    let worker = Worker::create(rig.store(), new).await?;
    let of = |tenant: &str| Event::new("order").header("tenant", tenant);
    worker.emit(vec![of("noisy"); 40]).await?;
    let first = worker.claim(10).await?;
    worker.ack(&first).await?;
    // Each emit is fed by a feeder of its own, which knows only what the store remembers.
    let quiet: Vec<EventId> = worker.emit(vec![of("quiet"); 2]).await?;
    worker.emit(vec![of("noisy"); 40]).await?;
    let third = worker.emit(vec![of("third")]).await?;
    let next = worker.claim_ids(8).await?;
    for id in quiet.iter().chain(&third) {
        assert!(next.contains(id), "event {id} waits behind a whole backlog: {next:?}");
    }
    Ok(())
}

/// What is done is gone.
pub async fn what_is_done_is_not_claimed_again<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(2)).await?;
    let claimed = worker.claim(1).await?;
    worker.ack(&claimed).await?;
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, ids[1..]);
    assert_eq!(rig.store().event_deliveries(ids[0]).await?[0].state, DeliveryState::Done);
    Ok(())
}

/// Tokens grow, and none is given twice.
pub async fn tokens_grow<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(1)).await?;
    let mut last = Token(0);
    for _ in 0..5 {
        let claimed = worker.claim(1).await?;
        assert!(claimed.token > last, "{:?} after {last:?}", claimed.token);
        last = claimed.token;
        worker.settle(last, &[(ids[0], retry(Duration::ZERO))]).await?;
    }
    Ok(())
}

/// A clock that is set back makes no token smaller.
pub async fn tokens_grow_when_the_clock_steps<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(1)).await?;
    let first = worker.claim(1).await?;
    worker.settle(first.token, &[(ids[0], retry(Duration::ZERO))]).await?;
    rig.clock().step(-3_600_000_000);
    worker.store.sweep(&worker.subscription).await?;
    let second = worker.claim(1).await?;
    assert!(second.token > first.token);
    assert_eq!(worker.settle(first.token, &[(ids[0], Fate::Done)]).await?.fenced, ids);
    worker.ack(&second).await
}

/// A worker that has lost its lease changes nothing, whatever it settles.
pub async fn an_old_token_changes_nothing<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(1)).await?;
    let stale = worker.claim(1).await?;
    rig.clock().advance(LEASE * 2);
    assert_eq!(worker.store.sweep(&worker.subscription).await?.reaped, 1);
    let fates = || [Fate::Done, Fate::Dead, retry(SECOND), snooze(Duration::ZERO)];
    for fate in fates() {
        assert_eq!(worker.settle(stale.token, &[(ids[0], fate)]).await?.fenced, ids, "it is free by now");
    }
    let claimed = worker.claim(1).await?;
    assert_eq!(events_of(&claimed), ids);
    for fate in fates() {
        assert_eq!(worker.settle(stale.token, &[(ids[0], fate)]).await?.fenced, ids, "another one has it");
    }
    assert_eq!(worker.store.extend(vec![stale.token], vec![]).await?, []);
    worker.ack(&claimed).await
}

/// What does not concern a row that was fenced is written all the same.
pub async fn one_fenced_row_does_not_spoil_the_rest<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(3)).await?;
    let claimed = worker.claim(3).await?;
    let row = |id, token| SettledRow { id, token, fate: Fate::Done };
    let rows =
        vec![row(ids[0], claimed.token), row(ids[1], Token(claimed.token.0 + 1)), row(ids[2], claimed.token)];
    let settled = worker.settle_all(QueueSettle { rows, ..QueueSettle::default() }).await?;
    assert_eq!(settled.fenced, [ids[1]]);
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, [ids[1]]);
    Ok(())
}

/// A settle that is sent again does nothing.
pub async fn a_queue_settle_may_be_repeated<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(2)).await?;
    let claimed = worker.claim(2).await?;
    let fates = [(ids[0], Fate::Done), (ids[1], retry(Duration::ZERO))];
    assert_eq!(worker.settle(claimed.token, &fates).await?.fenced, []);
    assert_eq!(worker.settle(claimed.token, &fates).await?.fenced, ids);
    let again = worker.claim(2).await?;
    assert_eq!((only(&again).started, only(&again).finished), (2, 1), "the failure was counted once");
    Ok(())
}

/// A lease lasts, and no other claim gets the event before it has run out.
pub async fn a_lease_lasts<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    worker.emit(events(1)).await?;
    let claimed = worker.claim(1).await?;
    rig.clock().advance(LEASE.saturating_sub(SECOND));
    assert_eq!(worker.store.sweep(&worker.subscription).await?.reaped, 0);
    assert_eq!(worker.claim_ids(1).await?, []);
    worker.ack(&claimed).await
}

/// A lease that is extended lasts on, however long its work takes.
pub async fn an_extended_lease_lasts_on<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    worker.emit(events(2)).await?;
    let (kept, lost) = (worker.claim(1).await?, worker.claim(1).await?);
    for _ in 0..5 {
        rig.clock().advance(LEASE / 2);
        let extended = worker.store.extend(vec![kept.token], vec![]).await?;
        assert_eq!(extended.iter().map(|one| one.token).collect::<Vec<_>>(), [kept.token]);
        worker.store.sweep(&worker.subscription).await?;
    }
    assert_eq!(worker.store.extend(vec![lost.token, kept.token], vec![]).await?.len(), 1);
    worker.ack(&kept).await
}

/// A claim that is settled needs no extension any more.
pub async fn a_settled_claim_is_forgotten<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(2)).await?;
    let claimed = worker.claim(2).await?;
    worker.settle(claimed.token, &[(ids[0], Fate::Done)]).await?;
    assert_eq!(worker.store.extend(vec![claimed.token], vec![]).await?.len(), 1, "a row of it is left");
    worker.settle(claimed.token, &[(ids[1], Fate::Done)]).await?;
    assert_eq!(worker.store.extend(vec![claimed.token], vec![]).await?, []);
    Ok(())
}

/// What an ended worker had is handed out again, and it shows that it was begun.
pub async fn a_reaped_row_shows_that_it_was_begun<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    worker.emit(events(1)).await?;
    for crashes in 0..3 {
        let claimed = worker.claim(1).await?;
        assert_eq!(only(&claimed).crashes(), crashes);
        let report = rig.store().event_deliveries(only(&claimed).id).await?.remove(0);
        assert_eq!(
            (report.attempts, report.lost),
            (crashes + 1, crashes),
            "to its handler this is attempt 1"
        );
        rig.clock().advance(LEASE * 2);
        worker.store.sweep(&worker.subscription).await?;
    }
    Ok(())
}

/// A retry waits for its time and costs an attempt.
pub async fn a_retry_waits_and_counts<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(1)).await?;
    let claimed = worker.claim(1).await?;
    worker.settle(claimed.token, &[(ids[0], retry(SECOND * 10))]).await?;
    let swept = worker.store.sweep(&worker.subscription).await?;
    assert_eq!((swept.due, swept.next_due_in), (0, Some(SECOND * 10)));
    assert_eq!(worker.claim_ids(1).await?, []);
    rig.clock().advance(SECOND * 10);
    assert_eq!(worker.store.sweep(&worker.subscription).await?.due, 1);
    let again = worker.claim(1).await?;
    assert_eq!((only(&again).started, only(&again).finished), (2, 1));
    Ok(())
}

/// Being left alone for a while costs nothing.
pub async fn a_snooze_costs_no_attempt<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(1)).await?;
    for _ in 0..3 {
        let claimed = worker.claim(1).await?;
        assert_eq!((only(&claimed).started, only(&claimed).finished), (1, 0));
        worker.settle(claimed.token, &[(ids[0], snooze(SECOND))]).await?;
        assert_eq!(worker.claim_ids(1).await?, []);
        rig.clock().advance(SECOND);
        worker.store.sweep(&worker.subscription).await?;
    }
    Ok(())
}

/// An event that is emitted with a delay is not handed out before its time.
pub async fn a_delayed_event_is_claimed_at_its_time<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![event_of("a").due_after(SECOND * 30), event_of("a")]).await?;
    assert_eq!(worker.drain().await?, ids[1..], "it is in nobody's way");
    assert_eq!(worker.store.sweep(&worker.subscription).await?.next_due_in, Some(SECOND * 30));
    rig.clock().advance(SECOND * 30);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, ids[..1]);
    Ok(())
}

/// Delayed events of one key come one after the other, in the order of their times.
pub async fn delayed_events_of_a_key_keep_their_order<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids =
        worker.emit(vec![event_of("a").due_after(SECOND * 3), event_of("a").due_after(SECOND * 2)]).await?;
    rig.clock().advance(SECOND * 5);
    worker.store.sweep(&worker.subscription).await?;
    let first = worker.claim(9).await?;
    assert_eq!(events_of(&first), ids[1..]);
    assert_eq!(worker.claim_ids(9).await?, []);
    worker.ack(&first).await?;
    assert_eq!(worker.claim_ids(9).await?, ids[..1]);
    Ok(())
}

/// Of one key, one at a time, in order; other keys do not wait.
pub async fn a_key_is_worked_on_one_by_one<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![event_of("a"), event_of("a"), event_of("b"), event_of("a")]).await?;
    let first = worker.claim(9).await?;
    assert_eq!(events_of(&first), [ids[0], ids[2]]);
    let more = worker.emit(vec![event_of("a"), event_of("b")]).await?;
    assert_eq!(worker.claim_ids(9).await?, [], "what is fed later waits too");
    worker.ack(&first).await?;
    assert_eq!(worker.claim_ids(1).await?, [ids[1]]);
    assert_eq!(worker.claim_ids(9).await?, [more[1]]);
    Ok(())
}

/// A key goes on with rows that are fed after earlier ones are done.
pub async fn a_key_goes_on_with_what_is_fed_later<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(worker.emit(vec![event_of("a"), event_of("a")]).await?);
        let claimed = worker.claim(1).await?;
        worker.ack(&claimed).await?;
    }
    assert_eq!(worker.drain().await?, all[3..]);
    Ok(())
}

/// A failed event keeps its key waiting, also once it is due again and when another claim takes it over.
pub async fn a_failed_event_keeps_its_key_waiting<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![event_of("a"), event_of("a")]).await?;
    let claimed = worker.claim(9).await?;
    worker.settle(claimed.token, &[(ids[0], retry(SECOND))]).await?;
    assert_eq!(worker.claim_ids(9).await?, []);
    rig.clock().advance(SECOND);
    worker.store.sweep(&worker.subscription).await?;
    let again = worker.claim(9).await?;
    assert_eq!(events_of(&again), ids[..1]);
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, ids);
    Ok(())
}

/// A dead letter lets its key go on, or keeps it waiting, as was chosen.
pub async fn a_dead_letter_skips_or_holds_its_key<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for on_dead in [OnDead::Skip, OnDead::Hold] {
        let worker = Worker::create(rig.store(), queue().on_dead(on_dead)).await?;
        let ids = worker.emit(vec![event_of("a"), event_of("a")]).await?;
        let claimed = worker.claim(9).await?;
        worker.settle(claimed.token, &[(ids[0], Fate::Dead)]).await?;
        let found = rig.store().dead_letter_get(&letter(ids[0])).await?;
        assert_eq!((found.holds, found.attempts), (on_dead == OnDead::Hold, 1));
        let skipped = if on_dead == OnDead::Skip { &ids[1..] } else { &[] };
        assert_eq!(worker.drain().await?, skipped);
        rig.store().dead_letter_discard(query(), ACTOR).await?;
        assert_eq!(worker.drain().await?, if on_dead == OnDead::Hold { &ids[1..] } else { &[] });
        rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
        rig.store().member_leave(worker.member).await?;
    }
    Ok(())
}

/// A replayed letter goes round again, as edited, with a new count of attempts.
pub async fn a_replayed_letter_is_claimed_again<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for on_dead in [OnDead::Skip, OnDead::Hold] {
        let worker = Worker::create(rig.store(), queue().on_dead(on_dead)).await?;
        let ids = worker.emit(vec![event_of("a"), event_of("a"), event_of("a")]).await?;
        let claimed = worker.claim(9).await?;
        worker.settle(claimed.token, &[(ids[0], Fate::Dead)]).await?;
        rig.store().dead_letter_edit(&letter(ids[0]), Bytes::from_static(b"mended"), ACTOR).await?;
        assert_eq!(rig.store().dead_letter_replay(query(), ACTOR).await?, 1);
        assert_eq!(rig.store().dead_letter_replay(query(), ACTOR).await?, 0, "it is dead no more");
        let (mut order, mut payload) = (Vec::new(), Bytes::new());
        while let claimed = worker.claim(1).await?
            && !claimed.rows.is_empty()
        {
            let row = only(&claimed);
            order.push(row.id);
            if row.id == ids[0] {
                assert_eq!((row.started, row.finished), (1, 0));
                payload = row.events[0].payload.clone();
            }
            worker.ack(&claimed).await?;
        }
        let behind =
            if on_dead == OnDead::Skip { [ids[1], ids[2], ids[0]] } else { [ids[0], ids[1], ids[2]] };
        assert_eq!((order, &payload[..]), (behind.to_vec(), &b"mended"[..]), "{on_dead:?}");
        rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
        rig.store().member_leave(worker.member).await?;
    }
    Ok(())
}

/// While a subscription is paused nothing is claimed; what runs is finished.
pub async fn a_paused_queue_hands_out_nothing<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(2)).await?;
    let claimed = worker.claim(1).await?;
    rig.store().subscription_pause(SUBSCRIPTION).await?;
    let paused = worker.claim(1).await?;
    assert!(paused.paused && paused.rows.is_empty());
    worker.ack(&claimed).await?;
    rig.store().subscription_resume(SUBSCRIPTION).await?;
    assert_eq!(worker.drain().await?, ids[1..]);
    Ok(())
}

/// What is not there cannot be claimed.
pub async fn a_deleted_queue_is_not_found<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(1)).await?;
    let claimed = worker.claim(1).await?;
    rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
    assert!(worker.claim(1).await.is_err_and(|error| error.kind() == ErrorKind::NotFound));
    let settled = worker.settle(claimed.token, &[(ids[0], Fate::Done)]).await;
    assert!(settled.is_err_and(|error| error.kind() == ErrorKind::NotFound));
    Ok(())
}

/// Members together have no more in their hands than was allowed.
pub async fn a_limit_holds_over_all_members<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let mut new = queue().order(Order::None);
    new.tuning.queue.total = Some(3);
    let worker = Worker::create(rig.store(), new).await?;
    worker.emit(events(9)).await?;
    let second = rig.second().await;
    let other = worker.beside(&second).await?;
    let (mine, theirs) = (worker.claim(2).await?, other.claim(9).await?);
    assert_eq!((mine.rows.len(), theirs.rows.len()), (2, 1));
    assert_eq!(other.claim_ids(9).await?, []);
    worker.settle(mine.token, &[(mine.rows[0].id, Fate::Done)]).await?;
    assert_eq!(other.claim(9).await?.rows.len(), 1);
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.claim(9).await?.rows.len(), 3, "what was reaped is in nobody's hands");
    Ok(())
}

/// No more begin in a second than was allowed, but for a burst after a pause.
pub async fn a_rate_holds_over_all_members<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let mut new = queue().order(Order::None);
    new.tuning.queue.rate = Some(Rate { per_second: 2, burst: 3 });
    let worker = Worker::create(rig.store(), new).await?;
    worker.emit(events(20)).await?;
    let second = rig.second().await;
    let other = worker.beside(&second).await?;
    assert_eq!((worker.claim(2).await?.rows.len(), other.claim(9).await?.rows.len()), (2, 1));
    assert_eq!(worker.claim_ids(9).await?, []);
    rig.clock().advance(SECOND);
    assert_eq!((other.claim(9).await?.rows.len(), worker.claim(9).await?.rows.len()), (2, 0));
    rig.clock().advance(SECOND * 60);
    assert_eq!(worker.claim(9).await?.rows.len(), 3, "what was not used is not saved up beyond the burst");
    Ok(())
}

/// What waits is cancelled at once, and its key goes on.
pub async fn a_waiting_delivery_is_cancelled_at_once<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![event_of("a"), event_of("a"), event_of("a")]).await?;
    assert_eq!(rig.store().delivery_cancel(&letter(ids[0]), ACTOR).await?, Some(Cancelled::Gone));
    assert_eq!(rig.store().delivery_cancel(&letter(ids[1]), ACTOR).await?, Some(Cancelled::Gone));
    assert_eq!(rig.store().delivery_cancel(&letter(ids[0]), ACTOR).await?, None);
    assert_eq!(worker.drain().await?, ids[2..]);
    let actions = rig.store().event_deliveries(ids[0]).await?.remove(0).actions.unwrap_or_default();
    let told: Vec<_> = actions.iter().map(|line| (line.action, line.actor.as_str())).collect();
    assert_eq!(told, [(DeliveryAction::Cancelled, ACTOR)]);
    let lines = rig.audit().await.unwrap_or_else(|| vec![ACTOR.to_owned(); 2]);
    assert_eq!(lines.iter().filter(|line| line.contains(ACTOR)).count(), 2);
    Ok(())
}

/// A worker learns that its event was cancelled. Whatever it settles, the event is not attempted again.
pub async fn a_worker_is_told_of_a_cancellation<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![event_of("a"), event_of("b"), event_of("a")]).await?;
    let claimed = worker.claim(2).await?;
    assert_eq!(rig.store().delivery_cancel(&letter(ids[0]), ACTOR).await?, Some(Cancelled::Told));
    let extended = worker.store.extend(vec![claimed.token], vec![]).await?;
    assert_eq!(extended[0].cancelled, ids[..1]);
    worker.settle(claimed.token, &[(ids[0], retry(Duration::ZERO)), (ids[1], retry(Duration::ZERO))]).await?;
    let left: BTreeSet<EventId> = worker.drain().await?.into_iter().collect();
    assert_eq!(left, BTreeSet::from([ids[1], ids[2]]), "its key goes on without it");
    Ok(())
}

/// What was cancelled does not come back when its worker ends.
pub async fn a_cancelled_delivery_is_not_reaped_back<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![event_of("a"), event_of("a")]).await?;
    worker.claim(1).await?;
    rig.store().delivery_cancel(&letter(ids[0]), ACTOR).await?;
    rig.clock().advance(LEASE * 2);
    worker.store.sweep(&worker.subscription).await?;
    assert_eq!(worker.drain().await?, ids[1..]);
    Ok(())
}

/// Failures are recorded with the attempt, and a result is kept with the event.
pub async fn attempts_and_results_are_kept<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(events(2)).await?;
    let claimed = worker.claim(2).await?;
    let attempt = |event_id| AttemptRecord {
        event_id,
        attempt: 1,
        ended_ago: Duration::ZERO,
        took: SECOND,
        error: "no such order".to_owned(),
    };
    let result = |event_id| EventResult { event_id, result: r#"{"sum":3}"#.to_owned() };
    let row = |id, token, fate| SettledRow { id, token, fate };
    let settle = QueueSettle {
        rows: vec![
            row(ids[0], claimed.token, retry(SECOND)),
            row(ids[1], Token(claimed.token.0 + 1), Fate::Done),
        ],
        attempts: vec![attempt(ids[0]), attempt(ids[1])],
        results: vec![result(ids[0]), result(ids[1])],
        ..QueueSettle::default()
    };
    assert_eq!(worker.settle_all(settle).await?.fenced, ids[1..]);
    let report = rig.store().event_deliveries(ids[0]).await?.remove(0);
    assert_eq!(
        (report.state, report.attempts, report.result.as_deref()),
        (DeliveryState::Pending, 1, Some(r#"{"sum":3}"#))
    );
    assert_eq!((report.history.len(), &*report.history[0].error), (1, "no such order"));
    let fenced = rig.store().event_deliveries(ids[1]).await?.remove(0);
    assert_eq!((fenced.history.len(), fenced.result), (0, None), "a fenced worker leaves nothing behind");
    Ok(())
}

/// People see what waits, what is leased, and what waits for what.
pub async fn a_queue_is_reported<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    let worker = Worker::create(rig.store(), queue()).await?;
    let ids = worker.emit(vec![event_of("a"), event_of("a"), event_of("b").due_after(SECOND * 9)]).await?;
    worker.claim(1).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.pending, report.leased, report.dead, report.lag_events), (2, 1, 0, 0));
    let state = async |id| Kept::Ok(rig.store().event_deliveries(id).await?.remove(0));
    let (leased, waiting, delayed) = (state(ids[0]).await?, state(ids[1]).await?, state(ids[2]).await?);
    assert_eq!((leased.state, leased.attempts, leased.lost), (DeliveryState::Leased, 1, 0));
    assert_eq!((waiting.state, waiting.behind), (DeliveryState::Pending, Some(ids[0])));
    assert!(delayed.state == DeliveryState::Pending && delayed.due_at.is_some());
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// What is queued stays, however old it is.
pub async fn queued_events_stay<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for new in [queue().order(Order::None), blocks()] {
        let worker = Worker::create(rig.store(), new).await?;
        let ids = worker.emit(events(5)).await?;
        rig.clock().advance(SECOND * 3600);
        while rig.store().prune(SECOND).await?.more {}
        assert_eq!(worker.drain().await?, ids);
        rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
        rig.store().member_leave(worker.member).await?;
    }
    Ok(())
}

/// A seek back feeds again what lies behind it, once; what lies before it stays.
pub async fn a_seek_empties_the_queue_above_it<R: Rig<Store: QueueStore>>(rig: &R) -> Kept {
    for new in [queue(), blocks()] {
        let worker = Worker::create(rig.store(), new.clone()).await?;
        let ids = worker.emit(vec![event_of("a"); 4]).await?;
        rig.store().subscription_seek(SUBSCRIPTION, Start::Id(ids[2]), ACTOR).await?;
        assert_eq!(worker.drain().await?, ids[..2]);
        let owner = super::owner::Owner::of(rig.store(), SUBSCRIPTION).await?;
        assert_eq!(owner.read_all().await?.len(), 2);
        rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
        rig.store().member_leave(worker.member).await?;
        rig.store().member_leave(owner.member).await?;
    }
    Ok(())
}
