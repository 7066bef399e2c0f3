//! The mark, the rows, and the lanes that they park.

use std::time::Duration;

use postrider_core::settle::{Room, Run, Settle};
use postrider_core::time::Clock;
use postrider_core::{DeliveryState, Event, LogStore, NewSubscription, OnDead, Order, Store, limits};

use super::owner::{
    AMPLE, Owner, SECOND, SUBSCRIPTION, emit, emit_of, event_of, failed_attempt, lane_of, run_ids,
};
use super::{Kept, Rig};

async fn owner<R: Rig>(rig: &R) -> Kept<Owner<R::Store>> {
    Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await
}

/// The settle that takes the head of an event's lane away.
fn head_done(event: &Event) -> Settle {
    Settle { done: vec![event.id], freed: lane_of(event).into_iter().collect(), ..Settle::default() }
}

/// A lane whose first event has failed once, due again after a second, with the rest waiting behind it.
async fn parked<R: Rig>(rig: &R, owner: &Owner<R::Store>, events: &[Event]) -> Kept {
    let mut rows = vec![owner.row(&events[0]).attempts(1).failed(SECOND)];
    rows.extend(events[1..].iter().map(|event| owner.row(event).waiting()));
    owner.settle_rows(events[events.len() - 1].id, rows).await?;
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// An event that the mark passes without a row is done.
pub async fn the_mark_makes_events_done<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 2).await?;
    owner.settle_rows(events[0].id, Vec::new()).await?;
    let state = async |event: &Event| -> Kept<DeliveryState> {
        Ok(rig.store().event_deliveries(event.id).await?[0].state)
    };
    assert_eq!(state(&events[0]).await?, DeliveryState::Done);
    assert_eq!(state(&events[1]).await?, DeliveryState::Pending);
    Ok(())
}

/// A mark from the past changes nothing.
pub async fn the_mark_never_moves_back<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 3).await?;
    owner.settle_rows(events[2].id, Vec::new()).await?;
    owner.settle_rows(events[0].id, Vec::new()).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert!(report.shards.iter().all(|shard| shard.position.last_id == events[2].id));
    Ok(())
}

/// An empty settle is no error and changes nothing.
pub async fn an_empty_settle_changes_nothing<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    emit_of(rig, "a", 1).await?;
    let before = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!(owner.settle(Settle::default()).await?.unparked, []);
    assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?, before);
    Ok(())
}

/// A failed event comes due after its delay, not before, with its attempts.
pub async fn a_failed_event_comes_due_after_its_delay<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 1).await?;
    owner.settle_rows(events[0].id, vec![owner.row(&events[0]).attempts(2).failed(SECOND * 10)]).await?;
    rig.clock().advance(SECOND * 9);
    let early = owner.due().await?;
    assert!(early.runs.is_empty());
    assert_eq!(early.next_in, Some(SECOND));
    rig.clock().advance(SECOND);
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [vec![events[0].id]]);
    let run = &due.runs[0];
    assert!(run.parks);
    assert_eq!(run.lane, lane_of(&events[0]));
    assert_eq!((run.rows[0].attempts, run.rows[0].discarded), (2, false));
    assert_eq!(*run.rows[0].event, events[0]);
    assert_eq!(due.next_in, None);
    Ok(())
}

/// With nothing to wait for there is no next time.
pub async fn without_rows_nothing_is_due<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    emit_of(rig, "a", 1).await?;
    let due = owner.due().await?;
    assert!(due.runs.is_empty());
    assert_eq!(due.next_in, None);
    Ok(())
}

/// A row that waits has no due time, however long it waits.
pub async fn a_waiting_row_is_not_due_by_itself<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 2).await?;
    parked(rig, &owner, &events).await?;
    rig.clock().advance(SECOND * 100);
    let beside_head = owner.due_beside(&[events[0].id]).await?;
    assert!(beside_head.runs.is_empty(), "{beside_head:?}");
    assert_eq!(beside_head.next_in, None);
    Ok(())
}

/// A due head brings what waits behind it, in the order of the lane.
pub async fn a_run_is_in_lane_order<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 4).await?;
    parked(rig, &owner, &events).await?;
    rig.clock().advance(SECOND);
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [events.iter().map(|event| event.id).collect::<Vec<_>>()]);
    assert_eq!(
        due.runs[0].rows.iter().map(|row| row.turn).collect::<Vec<_>>(),
        [events[0].id.0, events[1].id.0, events[2].id.0, events[3].id.0,]
    );
    Ok(())
}

/// A long lane comes in pieces.
pub async fn a_run_is_bounded<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", limits::RUN_EVENTS_MAX + 20).await?;
    parked(rig, &owner, &events).await?;
    rig.clock().advance(SECOND);
    let due = owner.due().await?;
    let run = &run_ids(&due)[0];
    assert!((2..=limits::RUN_EVENTS_MAX).contains(&run.len()), "a run of {}", run.len());
    assert!(run.iter().zip(&events).all(|(id, event)| *id == event.id));
    Ok(())
}

/// Due rows of all lanes come, in the order of their due times, as far as there is room.
pub async fn due_rows_come_in_the_order_of_their_due_times<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit(rig, vec![event_of("a"), event_of("b"), event_of("c"), event_of("d")]).await?;
    let delays = [3, 1, 2, 60];
    let rows =
        events.iter().zip(delays).map(|(event, delay)| owner.row(event).failed(SECOND * delay)).collect();
    owner.settle_rows(events[3].id, rows).await?;
    rig.clock().advance(SECOND * 10);
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [[events[1].id], [events[2].id], [events[0].id]]);
    assert_eq!(due.next_in, Some(SECOND * 50));
    let first = rig.store().fetch_due(owner.hold(), [].into(), Room { events: 1, ..AMPLE }).await?;
    assert_eq!(run_ids(&first), [[events[1].id]]);
    assert_eq!(first.next_in, Some(Duration::ZERO), "what did not fit is due already");
    Ok(())
}

/// Rows that the owner has in memory are not read again, and keep no other row from being read.
pub async fn loaded_rows_starve_nobody<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit(rig, (0..40).map(|n| event_of(&format!("key-{n}"))).collect()).await?;
    let rows = events.iter().map(|event| owner.row(event).failed(SECOND)).collect();
    owner.settle_rows(events[39].id, rows).await?;
    rig.clock().advance(SECOND * 2);
    let mut loaded = Vec::new();
    for _ in 0..4 {
        let room = Room { events: 10, ..AMPLE };
        let due = rig.store().fetch_due(owner.hold(), loaded.iter().copied().collect(), room).await?;
        loaded.extend(run_ids(&due).concat());
    }
    assert_eq!(loaded.len(), 40);
    let rest = owner.due_beside(&loaded).await?;
    assert!(rest.runs.is_empty());
    assert_eq!(rest.next_in, None, "rows in memory are no reason to come back");
    loaded.sort();
    loaded.dedup();
    assert_eq!(loaded.len(), 40, "a row was read twice");
    Ok(())
}

/// When the head leaves, the next row of its lane is due at once; others stay where they are.
pub async fn the_next_row_is_promoted_when_the_head_leaves<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 3).await?;
    parked(rig, &owner, &events).await?;
    let settled = owner.settle(head_done(&events[0])).await?;
    assert_eq!(settled.unparked, [], "two rows are left");
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [[events[1].id, events[2].id]]);
    assert!(due.runs[0].parks);
    Ok(())
}

/// A lane is reported free when its last row is gone, and only then.
pub async fn a_lane_is_unparked_with_its_last_row<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 3).await?;
    parked(rig, &owner, &events).await?;
    assert_eq!(owner.settle(head_done(&events[0])).await?.unparked, []);
    let rest = Settle { done: vec![events[1].id, events[2].id], ..head_done(&events[1]) };
    let lane = lane_of(&events[0]).expect("it has a key");
    assert_eq!(owner.settle(rest).await?.unparked, [lane]);
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.pending, report.parked_count), (0, 0));
    Ok(())
}

/// A row that joins a lane in the very settle that frees it becomes its head.
pub async fn a_row_may_join_a_lane_as_it_is_freed<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 2).await?;
    parked(rig, &owner, &events[..1]).await?;
    let settle = Settle {
        mark: Some(owner.behind(events[1].id).await?),
        rows: vec![owner.row(&events[1]).waiting()],
        ..head_done(&events[0])
    };
    assert_eq!(owner.settle(settle).await?.unparked, []);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id]]);
    Ok(())
}

/// Several rows of a lane may be done at once: the first that is left is the head.
pub async fn a_whole_run_may_be_done_at_once<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 4).await?;
    parked(rig, &owner, &events).await?;
    let settle = Settle { done: vec![events[0].id, events[1].id, events[2].id], ..head_done(&events[0]) };
    assert_eq!(owner.settle(settle).await?.unparked, []);
    assert_eq!(run_ids(&owner.due().await?), [[events[3].id]]);
    Ok(())
}

/// The second of a run fails after the first was delivered: it is the head now.
pub async fn a_run_may_fail_half_way<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 3).await?;
    parked(rig, &owner, &events).await?;
    let settle =
        Settle { rows: vec![owner.row(&events[1]).attempts(1).failed(SECOND * 5)], ..head_done(&events[0]) };
    assert_eq!(owner.settle(settle).await?.unparked, []);
    assert!(owner.due().await?.runs.is_empty());
    rig.clock().advance(SECOND * 5);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id, events[2].id]]);
    Ok(())
}

/// A failing key waits alone.
pub async fn lanes_do_not_wait_for_each_other<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit(rig, vec![event_of("a"), event_of("b"), event_of("a"), event_of("b")]).await?;
    let rows = vec![
        owner.row(&events[0]).failed(SECOND),
        owner.row(&events[1]).failed(SECOND * 100),
        owner.row(&events[2]).waiting(),
        owner.row(&events[3]).waiting(),
    ];
    owner.settle_rows(events[3].id, rows).await?;
    owner.settle(head_done(&events[0])).await?;
    assert_eq!(run_ids(&owner.due().await?), [[events[2].id]]);
    Ok(())
}

/// Under `skip` a dead letter leaves its lane, which goes on.
pub async fn a_skipped_dead_letter_frees_its_lane<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 2).await?;
    parked(rig, &owner, &events).await?;
    let dies = |event| Settle {
        rows: vec![owner.row(event).attempts(2).dead_skipped()],
        freed: lane_of(event).into_iter().collect(),
        ..Settle::default()
    };
    assert_eq!(owner.settle(dies(&events[0])).await?.unparked, []);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id]]);
    let lane = lane_of(&events[0]).expect("it has a key");
    assert_eq!(owner.settle(dies(&events[1])).await?.unparked, [lane], "a skipped dead letter parks nothing");
    assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?.dead, 2);
    Ok(())
}

/// Under `hold` it keeps its lane waiting.
pub async fn a_held_dead_letter_keeps_its_lane<R: Rig>(rig: &R) -> Kept {
    let new = NewSubscription::new(SUBSCRIPTION).on_dead(OnDead::Hold);
    let owner = Owner::create(rig.store(), new).await?;
    let events = emit_of(rig, "a", 2).await?;
    parked(rig, &owner, &events).await?;
    let dies = Settle { rows: vec![owner.row(&events[0]).attempts(2).dead_held()], ..Settle::default() };
    owner.settle(dies).await?;
    rig.clock().advance(SECOND * 1000);
    let due = owner.due().await?;
    assert!(due.runs.is_empty(), "{due:?}");
    assert_eq!(due.next_in, None);
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.dead, report.pending, report.parked_count), (1, 1, 1));
    Ok(())
}

/// An owner that does not know whether its settle was committed sends it again, and nothing is amiss.
pub async fn a_settle_may_be_repeated<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit(rig, vec![event_of("a"), event_of("a"), event_of("b"), event_of("c")]).await?;
    let first = Settle {
        mark: Some(owner.behind(events[3].id).await?),
        rows: vec![
            owner.row(&events[0]).attempts(1).failed(SECOND),
            owner.row(&events[1]).waiting(),
            owner.row(&events[2]).attempts(1).dead_skipped(),
        ],
        freed: lane_of(&events[2]).into_iter().collect(),
        attempts: vec![failed_attempt(events[0].id, 1, "no"), failed_attempt(events[2].id, 1, "never")],
        ..Settle::default()
    };
    for settle in [first, head_done(&events[0]), head_done(&events[1])] {
        let once = owner.settle(settle.clone()).await?;
        let report = rig.store().subscription_report(SUBSCRIPTION).await?;
        let stands = rig.store().event_deliveries(events[0].id).await?;
        assert_eq!(owner.settle(settle).await?, once);
        assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?, report);
        assert_eq!(rig.store().event_deliveries(events[0].id).await?, stands);
    }
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// A slow event that the mark passes has a row, which goes when the event is done.
pub async fn a_leased_row_is_done_in_the_end<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 2).await?;
    let rows = vec![owner.row(&events[0]).leased(), owner.row(&events[1]).waiting()];
    owner.settle_rows(events[1].id, rows).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.leased, report.pending), (1, 1));
    assert_eq!(rig.store().event_deliveries(events[0].id).await?[0].state, DeliveryState::Leased);
    owner.settle(head_done(&events[0])).await?;
    assert_eq!(rig.store().event_deliveries(events[0].id).await?[0].state, DeliveryState::Done);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id]]);
    Ok(())
}

/// A slow event may also fail: then its row comes due like any other.
pub async fn a_leased_row_may_fail<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 1).await?;
    owner.settle_rows(events[0].id, vec![owner.row(&events[0]).leased()]).await?;
    let fails = Settle { rows: vec![owner.row(&events[0]).attempts(1).failed(SECOND)], ..Settle::default() };
    owner.settle(fails).await?;
    rig.clock().advance(SECOND);
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [[events[0].id]]);
    assert_eq!(due.runs[0].rows[0].attempts, 1);
    Ok(())
}

/// Events without a key stand for themselves.
pub async fn rows_without_a_lane_park_nothing<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit(rig, vec![Event::new("order"), Event::new("order")]).await?;
    let rows = events.iter().map(|event| owner.row(event).failed(SECOND)).collect();
    owner.settle_rows(events[1].id, rows).await?;
    assert_stand_for_themselves(rig, &owner, &events).await
}

/// So do all events of an unordered subscription, whatever their key.
pub async fn an_unordered_subscription_parks_nothing<R: Rig>(rig: &R) -> Kept {
    let new = NewSubscription::new(SUBSCRIPTION).order(Order::None);
    let owner = Owner::create(rig.store(), new).await?;
    let events = emit_of(rig, "a", 2).await?;
    let rows = events.iter().map(|event| owner.row(event).without_lane().failed(SECOND)).collect();
    owner.settle_rows(events[1].id, rows).await?;
    assert_stand_for_themselves(rig, &owner, &events).await
}

/// Two failed rows are two runs; one of them done leaves the other.
async fn assert_stand_for_themselves<R: Rig>(rig: &R, owner: &Owner<R::Store>, events: &[Event]) -> Kept {
    assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?.parked_count, 0);
    rig.clock().advance(SECOND);
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [[events[0].id], [events[1].id]]);
    assert!(due.runs.iter().all(|run: &Run| !run.parks && run.lane.is_none()), "{due:?}");
    owner.settle(Settle { done: vec![events[0].id], ..Settle::default() }).await?;
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id]]);
    rig.store().member_leave(owner.member).await?;
    assert_eq!(Owner::of(rig.store(), SUBSCRIPTION).await?.taken.parked, []);
    Ok(())
}

/// Each failed attempt is kept: which, when, for how long, by whom and why.
pub async fn attempts_are_recorded<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 1).await?;
    for attempt in 1..=2 {
        rig.clock().advance(SECOND * 60);
        let settle = Settle {
            mark: Some(owner.behind(events[0].id).await?),
            rows: vec![owner.row(&events[0]).attempts(attempt).failed(SECOND)],
            attempts: vec![failed_attempt(events[0].id, attempt, &format!("no {attempt}: ü"))],
            ..Settle::default()
        };
        owner.settle(settle).await?;
    }
    let history = rig.store().event_deliveries(events[0].id).await?.remove(0).history;
    assert_eq!(history.len(), 2);
    assert_eq!((history[0].attempt, history[1].attempt), (1, 2));
    let last = &history[1];
    assert_eq!((last.error.as_str(), last.member.as_str()), ("no 2: ü", "ada"));
    assert_eq!((last.started_at, last.took), (rig.clock().now().before(SECOND * 5), SECOND * 2));
    Ok(())
}

/// The record of attempts is bounded: older ones give way.
pub async fn the_record_of_attempts_is_bounded<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 1).await?;
    let most = limits::ATTEMPT_RECORDS_MAX;
    for attempt in 1..=most + 5 {
        let settle = Settle {
            mark: Some(owner.behind(events[0].id).await?),
            rows: vec![owner.row(&events[0]).attempts(attempt).failed(SECOND)],
            attempts: vec![failed_attempt(events[0].id, attempt, "no")],
            ..Settle::default()
        };
        owner.settle(settle).await?;
    }
    let report = rig.store().event_deliveries(events[0].id).await?.remove(0);
    assert_eq!(report.attempts, most + 5);
    assert!(report.history.len() <= most as usize, "{} records", report.history.len());
    assert_eq!(report.history.last().map(|last| last.attempt), Some(most + 5));
    Ok(())
}

/// Only hand-out stops in a pause: what runs is finished and settled.
pub async fn a_paused_subscription_settles_but_hands_out_nothing<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 2).await?;
    rig.store().subscription_pause(SUBSCRIPTION).await?;
    let row = owner.row(&events[0]).failed(Duration::ZERO);
    owner.settle_rows(events[0].id, vec![row]).await?;
    rig.clock().advance(SECOND);
    assert!(owner.due().await?.runs.is_empty());
    rig.store().subscription_resume(SUBSCRIPTION).await?;
    assert_eq!(run_ids(&owner.due().await?), [[events[0].id]]);
    Ok(())
}

/// A stepped clock moves due times; it loses no row.
pub async fn a_stepped_clock_loses_no_row<R: Rig>(rig: &R) -> Kept {
    let owner = owner(rig).await?;
    let events = emit_of(rig, "a", 1).await?;
    owner.settle_rows(events[0].id, vec![owner.row(&events[0]).failed(SECOND)]).await?;
    rig.clock().step(-60_000_000);
    assert!(owner.due().await?.runs.is_empty());
    rig.clock().advance(SECOND * 61);
    assert_eq!(run_ids(&owner.due().await?), [[events[0].id]]);
    Ok(())
}
