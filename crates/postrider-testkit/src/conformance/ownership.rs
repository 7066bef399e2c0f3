//! One owner at a time, and a late one changes nothing.

use std::collections::HashSet;
use std::sync::Arc;

use postrider_core::settle::Settle;
use postrider_core::{DeliveryState, ErrorKind, LogStore, NewSubscription, ShardSet, Store};

use super::owner::{AMPLE, Owner, SECOND, SUBSCRIPTION, emit_of, event_of, lane_of, refused, run_ids};
use super::{Ending, Kept, Rig};

/// A subscription whose owner was just replaced: the old hold, and the new owner in another process.
async fn replaced<R: Rig>(rig: &R) -> Kept<(Owner<R::Store>, Owner<R::Store>)> {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    rig.clock().advance(rig.store().pace().lease + SECOND);
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    Ok((old, new))
}

/// The first member gets all shards, at the position of the subscription.
pub async fn the_first_member_takes_every_shard<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert!(!report.shards.is_empty());
    assert_eq!(owner.hold().shards.len(), report.shards.len());
    for (held, shard) in owner.hold().shards.iter().zip(&report.shards) {
        assert_eq!((held.shard, held.epoch), (shard.shard, shard.epoch));
        assert_eq!(held.position.last_id, shard.position.last_id);
        assert_eq!(shard.member, Some(owner.member));
    }
    assert_eq!(owner.hold().member, owner.member);
    assert_eq!(owner.hold().subscription.name, SUBSCRIPTION);
    assert_eq!(owner.taken.parked, []);
    Ok(())
}

/// While the first member lives, no other member gets a shard.
pub async fn a_second_member_gets_nothing_while_the_first_lives<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let second = rig.second().await;
    let member = second.member_join("ben").await?;
    assert!(second.shards_take(SUBSCRIPTION, member, ShardSet::ALL).await?.is_none());
    rig.clock().advance(rig.store().pace().lease / 2);
    assert!(second.shards_take(SUBSCRIPTION, member, ShardSet::ALL).await?.is_none());
    owner.fetch(owner.position(), AMPLE).await?;
    Ok(())
}

/// An owner whose take got lost on the way back takes again.
pub async fn a_take_may_be_repeated<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let again = rig.store().shards_take(SUBSCRIPTION, owner.member, ShardSet::ALL).await?;
    let again = again.expect("its own shards are not held by another member");
    rig.store().fetch(&again.hold, owner.position(), AMPLE).await?;
    Ok(())
}

/// What a member holds is free as soon as it has left.
pub async fn shards_are_free_once_their_member_left<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    rig.store().member_leave(old.member).await?;
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    assert_newer(&old, &new);
    assert_eq!(refused(old.fetch(old.position(), AMPLE).await), ErrorKind::Fenced);
    Ok(())
}

/// What a member gives back is free at once, and no longer its own.
pub async fn shards_are_free_once_they_are_released<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    rig.store().shards_release(old.hold()).await?;
    assert_eq!(refused(old.settle(Settle::default()).await), ErrorKind::Fenced);
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    assert_newer(&old, &new);
    rig.store().member_beat(old.member).await?;
    Ok(())
}

/// A member that has been silent for its lease may be replaced, and not before.
pub async fn shards_are_free_once_the_lease_ran_out<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let second = rig.second().await;
    let member = second.member_join("ben").await?;
    rig.clock().advance(rig.store().pace().lease / 10 * 9);
    assert!(second.shards_take(SUBSCRIPTION, member, ShardSet::ALL).await?.is_none());
    rig.clock().advance(rig.store().pace().lease / 5);
    second.member_beat(member).await?;
    let taken = second.shards_take(SUBSCRIPTION, member, ShardSet::ALL).await?.expect("the lease ran out");
    assert_newer(&old, &Owner::holding(&second, member, taken));
    Ok(())
}

/// A member whose process is known to be dead is replaced without waiting, where a store can know.
pub async fn shards_are_free_once_their_process_is_dead<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    if !rig.kill(old.member).await {
        rig.clock().advance(rig.store().pace().lease + SECOND);
    }
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    assert_newer(&old, &new);
    assert_eq!(refused(old.fetch(old.position(), AMPLE).await), ErrorKind::Fenced);
    Ok(())
}

/// A member that beats lives on, however long.
pub async fn a_beat_keeps_ownership<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let second = rig.second().await;
    let member = second.member_join("ben").await?;
    for _ in 0..5 {
        rig.clock().advance(rig.store().pace().lease / 10 * 9);
        rig.store().member_beat(owner.member).await?;
        second.member_beat(member).await?;
        assert!(second.shards_take(SUBSCRIPTION, member, ShardSet::ALL).await?.is_none());
    }
    owner.settle(Settle::default()).await?;
    Ok(())
}

/// Leases are measured by a clock that never steps, if the store has one. The clock of a server may: then a step
/// forward costs a change of owner, and no more.
pub async fn a_stepped_clock_costs_no_ownership<R: Rig>(rig: &R) -> Kept {
    if rig.clock_of_leases_steps() {
        return a_stepped_clock_costs_a_change_of_owner(rig).await;
    }
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let second = rig.second().await;
    let day = 24 * 3600 * 1_000_000;
    for step in [day, -2 * day] {
        rig.clock().step(step);
        let member = second.member_join("ben").await?;
        assert!(second.shards_take(SUBSCRIPTION, member, ShardSet::ALL).await?.is_none());
    }
    // And a step back does not make a dead member immortal.
    rig.clock().advance(rig.store().pace().lease + SECOND);
    assert_newer(&owner, &Owner::of(&second, SUBSCRIPTION).await?);
    Ok(())
}

async fn a_stepped_clock_costs_a_change_of_owner<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let second = rig.second().await;
    let day = 24 * 3600 * 1_000_000;
    rig.clock().step(-day);
    let member = second.member_join("ben").await?;
    assert!(
        second.shards_take(SUBSCRIPTION, member, ShardSet::ALL).await?.is_none(),
        "a step back makes nobody dead"
    );
    rig.clock().step(2 * day);
    let new = Owner::of(&second, SUBSCRIPTION).await?;
    assert_newer(&owner, &new);
    assert_eq!(refused(owner.settle(Settle::default()).await), ErrorKind::Fenced);
    Ok(())
}

/// Each change of owner is visible in the epoch of every shard.
fn assert_newer<S>(old: &Owner<S>, new: &Owner<S>) {
    for (old, new) in old.taken.hold.shards.iter().zip(new.taken.hold.shards.iter()) {
        assert_eq!(old.shard, new.shard);
        assert!(new.epoch > old.epoch, "{new:?} after {old:?}");
    }
}

/// A replaced owner reads neither the log nor rows.
pub async fn a_replaced_owner_reads_nothing<R: Rig>(rig: &R) -> Kept {
    let (old, _new) = replaced(rig).await?;
    emit_of(rig, "a", 1).await?;
    assert_eq!(refused(old.fetch(old.position(), AMPLE).await), ErrorKind::Fenced);
    assert_eq!(refused(old.due().await), ErrorKind::Fenced);
    Ok(())
}

/// Whatever a replaced owner settles, nothing is written.
pub async fn a_replaced_owner_writes_nothing<R: Rig>(rig: &R) -> Kept {
    let (old, new) = replaced(rig).await?;
    let events = emit_of(rig, "a", 2).await?;
    let kept = new.row(&events[0]).failed(SECOND);
    new.settle_rows(events[0].id, vec![kept]).await?;
    let before = rig.store().subscription_report(SUBSCRIPTION).await?;
    let settle = Settle {
        mark: Some(old.position().at(events[1].id)),
        rows: vec![old.row(&events[1]).waiting()],
        done: vec![events[0].id],
        freed: lane_of(&events[0]).into_iter().collect(),
        ..Settle::default()
    };
    assert_eq!(refused(old.settle(settle).await), ErrorKind::Fenced);
    assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?, before);
    Ok(())
}

/// Nor does its transactional handler.
pub async fn a_replaced_owner_does_no_work<R: Rig>(rig: &R) -> Kept {
    let (old, _new) = replaced(rig).await?;
    let events = emit_of(rig, "a", 1).await?;
    let before = rig.store().subscription_report(SUBSCRIPTION).await?;
    let settle = Arc::new(Settle { mark: Some(old.position().at(events[0].id)), ..Settle::default() });
    let work = rig.work(events[0].id, "late", Ending::Success);
    assert_eq!(refused(rig.store().settle_with(old.hold(), settle, work).await), ErrorKind::Fenced);
    assert_eq!(rig.effects().await, []);
    assert_eq!(rig.store().subscription_report(SUBSCRIPTION).await?, before);
    Ok(())
}

/// A replaced owner cannot give away what is not its own.
pub async fn a_replaced_owner_releases_nothing<R: Rig>(rig: &R) -> Kept {
    let (old, new) = replaced(rig).await?;
    assert_eq!(refused(rig.store().shards_release(old.hold()).await), ErrorKind::Fenced);
    new.settle(Settle::default()).await?;
    Ok(())
}

/// A hold is for one ownership: it is worthless even if its member owns the shards again.
pub async fn an_old_hold_stays_fenced_when_its_member_owns_again<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    rig.store().shards_release(old.hold()).await?;
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    new.store.member_leave(new.member).await?;
    let again =
        rig.store().shards_take(SUBSCRIPTION, old.member, ShardSet::ALL).await?.expect("they are free");
    assert_eq!(refused(old.settle(Settle::default()).await), ErrorKind::Fenced);
    assert_eq!(refused(old.fetch(old.position(), AMPLE).await), ErrorKind::Fenced);
    rig.store().settle(&again.hold, Arc::new(Settle::default())).await?;
    Ok(())
}

/// A member that comes back after it was replaced takes nothing from its successor by leaving.
pub async fn a_replaced_member_leaves_without_harm<R: Rig>(rig: &R) -> Kept {
    let (old, new) = replaced(rig).await?;
    rig.store().member_leave(old.member).await?;
    new.settle(Settle::default()).await?;
    let third = rig.store().member_join("cleo").await?;
    assert!(rig.store().shards_take(SUBSCRIPTION, third, ShardSet::ALL).await?.is_none());
    Ok(())
}

/// The successor begins where the last settle ended.
pub async fn a_new_owner_starts_where_the_old_one_settled<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 3).await?;
    old.settle_rows(events[1].id, Vec::new()).await?;
    rig.store().member_leave(old.member).await?;
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    assert!(new.hold().shards.iter().all(|held| held.position.last_id == events[1].id));
    let rest = new.read_all().await?;
    assert_eq!(rest.iter().map(|event| event.id).collect::<Vec<_>>(), [events[2].id]);
    Ok(())
}

/// It learns which lanes wait, so that it hands nothing of theirs out too early.
pub async fn a_new_owner_learns_the_parked_lanes<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let new =
        vec![event_of("a"), event_of("b"), event_of("c").due_after(SECOND), event_of("a"), event_of("d")];
    let events = super::owner::emit(rig, new).await?;
    let rows = vec![
        old.row(&events[0]).failed(SECOND),
        old.row(&events[1]).dead_held(),
        old.row(&events[2]).delayed(),
        old.row(&events[3]).waiting(),
        old.row(&events[4]).dead_skipped(),
    ];
    old.settle_rows(events[4].id, rows).await?;
    rig.store().member_leave(old.member).await?;
    let mut parked = Owner::of(&rig.second().await, SUBSCRIPTION).await?.taken.parked;
    parked.sort();
    // Neither a delayed event nor a skipped dead letter keeps anybody waiting.
    let expected: Vec<_> = [&events[0], &events[1]].into_iter().filter_map(lane_of).collect();
    assert_eq!(parked, expected);
    Ok(())
}

/// What was handed out when its owner was lost is due at once, and the lost attempt is not counted.
pub async fn leased_rows_come_back_without_an_attempt<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 2).await?;
    let rows = vec![old.row(&events[0]).attempts(3).leased(), old.row(&events[1]).waiting()];
    old.settle_rows(events[1].id, rows).await?;
    assert_eq!(run_ids(&old.due().await?), Vec::<Vec<_>>::new(), "a leased row is not handed out again");
    rig.clock().advance(rig.store().pace().lease + SECOND);
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    let due = new.due().await?;
    assert_eq!(run_ids(&due), [vec![events[0].id, events[1].id]]);
    assert_eq!(due.runs[0].rows[0].attempts, 3);
    assert!(due.runs[0].parks);
    Ok(())
}

/// The same when they are given back.
pub async fn leased_rows_come_back_when_released<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 1).await?;
    old.settle_rows(events[0].id, vec![old.row(&events[0]).leased()]).await?;
    rig.store().shards_release(old.hold()).await?;
    let report = rig.store().event_deliveries(events[0].id).await?;
    assert_eq!(report[0].state, DeliveryState::Pending);
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    assert_eq!(run_ids(&new.due().await?), [vec![events[0].id]]);
    Ok(())
}

/// An identity is never used twice, not even under the same name.
pub async fn every_join_is_a_new_identity<R: Rig>(rig: &R) -> Kept {
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let member = rig.store().member_join("ada").await?;
        assert!(seen.insert(member), "{member:?} was given out before");
        rig.store().member_leave(member).await?;
        assert!(seen.insert(rig.second().await.member_join("ada").await?));
    }
    Ok(())
}

/// The store no longer knows a member that left: it has to join again.
pub async fn a_forgotten_member_is_fenced<R: Rig>(rig: &R) -> Kept {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let member = rig.store().member_join("ada").await?;
    rig.store().member_leave(member).await?;
    assert_eq!(refused(rig.store().member_beat(member).await), ErrorKind::Fenced);
    assert_eq!(
        refused(rig.store().shards_take(SUBSCRIPTION, member, ShardSet::ALL).await),
        ErrorKind::Fenced
    );
    Ok(())
}

/// A leave whose answer got lost may be repeated.
pub async fn leaving_twice_is_harmless<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    rig.store().member_leave(owner.member).await?;
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    rig.store().member_leave(owner.member).await?;
    new.settle(Settle::default()).await?;
    Ok(())
}

/// There is nothing to take of a subscription that does not exist.
pub async fn an_unknown_subscription_cannot_be_taken<R: Rig>(rig: &R) -> Kept {
    let member = rig.store().member_join("ada").await?;
    assert_eq!(refused(rig.store().shards_take("nobody", member, ShardSet::ALL).await), ErrorKind::NotFound);
    Ok(())
}

/// Each subscription has an owner of its own.
pub async fn ownership_is_per_subscription<R: Rig>(rig: &R) -> Kept {
    let first = Owner::create(rig.store(), NewSubscription::new("first")).await?;
    let second = Owner::create(&rig.second().await, NewSubscription::new("second")).await?;
    rig.store().shards_release(first.hold()).await?;
    second.settle(Settle::default()).await?;
    assert_ne!(first.member, second.member);
    Ok(())
}
