//! Delayed events: a lane of their own, in the order of their due times.

use postrider_core::settle::{Row, Settle};
use postrider_core::{Event, LogStore, NewSubscription, Start, Store};

use super::owner::{ACTOR, Owner, SECOND, SUBSCRIPTION, emit, emit_of, event_of, lane_of, run_ids};
use super::{Kept, Rig};

/// Events of one key that are due after so many seconds each, all with the row that their owner writes.
async fn delayed<R: Rig>(rig: &R, seconds: &[u32]) -> Kept<(Owner<R::Store>, Vec<Event>)> {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let new = seconds.iter().map(|delay| event_of("a").due_after(SECOND * *delay)).collect();
    let events = emit(rig, new).await?;
    let rows: Vec<Row> = events.iter().map(|event| owner.row(event).delayed()).collect();
    owner.settle_rows(events[events.len() - 1].id, rows).await?;
    Ok((owner, events))
}

/// A delayed event comes up the log like any other; its owner decides by its due time.
pub async fn a_delayed_event_comes_up_the_log<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit(rig, vec![event_of("a").due_after(SECOND * 60), event_of("a")]).await?;
    let read = owner.read_all().await?;
    assert_eq!(read.iter().map(|event| event.id).collect::<Vec<_>>(), [events[0].id, events[1].id]);
    assert_eq!(read[0].due_at, events[0].due_at);
    Ok(())
}

/// Its row is due at its time, not before, and parks nothing until it has been attempted.
pub async fn a_delayed_event_is_due_at_its_time<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = delayed(rig, &[60]).await?;
    assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?.parked_count, 0);
    rig.clock().advance(SECOND * 59);
    let early = owner.due().await?;
    assert!(early.runs.is_empty());
    assert_eq!(early.next_in, Some(SECOND));
    rig.clock().advance(SECOND);
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [[events[0].id]]);
    assert_eq!(due.runs[0].lane, lane_of(&events[0]));
    assert!(!due.runs[0].parks, "it has yet to enter its lane");
    Ok(())
}

/// Delayed events of a key come in the order (due_at, id), whatever the order of their emits.
pub async fn delayed_events_come_in_the_order_of_their_due_times<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = delayed(rig, &[30, 10, 20, 10]).await?;
    rig.clock().advance(SECOND * 60);
    let order: Vec<_> = run_ids(&owner.due().await?).concat();
    assert_eq!(order, [events[1].id, events[3].id, events[2].id, events[0].id]);
    Ok(())
}

/// A delayed event that fails parks the later delayed ones of its key, and they follow in their order.
pub async fn a_failed_delayed_event_parks_the_later_ones<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = delayed(rig, &[30, 10, 20]).await?;
    rig.clock().advance(SECOND * 10);
    let fails = owner.row(&events[1]).attempts(1).failed(SECOND * 60);
    owner.settle(Settle { rows: vec![fails], ..Settle::default() }).await?;
    rig.clock().advance(SECOND * 30);
    owner.admit_due().await?;
    assert!(owner.due().await?.runs.is_empty(), "they wait for the head of their lane");
    rig.clock().advance(SECOND * 30);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id, events[2].id, events[0].id]]);
    let done = Settle {
        done: vec![events[1].id, events[2].id, events[0].id],
        freed: lane_of(&events[1]).into_iter().collect(),
        ..Settle::default()
    };
    let lane = lane_of(&events[0]).expect("it has a key");
    assert_eq!(owner.settle(done).await?.unparked, [lane]);
    Ok(())
}

/// The key's other events neither wait for the delayed ones nor keep them waiting.
pub async fn the_late_lane_is_independent_of_the_keys_own<R: Rig>(rig: &R) -> Kept {
    let (owner, late) = delayed(rig, &[10]).await?;
    let events = emit_of(rig, "a", 2).await?;
    let rows = vec![owner.row(&events[0]).failed(SECOND * 100), owner.row(&events[1]).waiting()];
    owner.settle_rows(events[1].id, rows).await?;
    rig.clock().advance(SECOND * 10);
    assert_eq!(run_ids(&owner.due().await?), [[late[0].id]]);
    // And the other way round: a failing reminder stops no order.
    let fails = owner.row(&late[0]).attempts(1).failed(SECOND * 1000);
    let settle = Settle {
        rows: vec![fails],
        done: vec![events[0].id],
        freed: lane_of(&events[0]).into_iter().collect(),
        ..Settle::default()
    };
    assert_eq!(owner.settle(settle).await?.unparked, []);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id]]);
    rig.store().member_leave(owner.member).await?;
    let mut parked = Owner::of(rig.store(), SUBSCRIPTION).await?.taken.parked;
    parked.sort();
    let lanes: Vec<_> = [&events[0], &late[0]].into_iter().filter_map(lane_of).collect();
    assert_eq!(parked, lanes);
    Ok(())
}

/// A delayed event whose time passed before anybody read it is due at once.
pub async fn an_overdue_event_is_due_at_once<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = delayed(rig, &[0]).await?;
    assert_eq!(run_ids(&owner.due().await?), [[events[0].id]]);
    Ok(())
}

/// A seek that takes a lane's head away leaves what waited behind it with a head of its own.
pub async fn a_seek_leaves_no_lane_without_a_head<R: Rig>(rig: &R) -> Kept {
    // The later one is due first, so it is the head, and the only one above the place of the seek.
    let (owner, events) = delayed(rig, &[20, 10]).await?;
    rig.clock().advance(SECOND * 10);
    let fails = owner.row(&events[1]).attempts(1).failed(SECOND * 1000);
    owner.settle(Settle { rows: vec![fails], ..Settle::default() }).await?;
    rig.clock().advance(SECOND * 10);
    owner.admit_due().await?;
    assert!(owner.due().await?.runs.is_empty());
    rig.store().subscription_seek(SUBSCRIPTION, Start::Id(events[1].id), ACTOR).await?;
    let new = Owner::of(rig.store(), SUBSCRIPTION).await?;
    assert_eq!(run_ids(&new.due().await?), [[events[0].id]]);
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}
