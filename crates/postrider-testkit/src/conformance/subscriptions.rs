//! Subscriptions as people create, change, move and delete them.

use std::time::Duration;

use postrider_core::settle::Settle;
use postrider_core::time::Clock;
use postrider_core::{
    ErrorKind, EventId, LogStore, NewSubscription, OnDead, Order, RetryPolicy, ShardSet, Start, Store, Tuning,
};

use super::owner::{
    ACTOR, AMPLE, Owner, SECOND, SUBSCRIPTION, emit_of, event_of, ids, lane_of, refused, run_ids,
};
use super::{Kept, Rig};

/// What was asked for is what is stored, for every process.
pub async fn a_subscription_is_stored_as_created<R: Rig>(rig: &R) -> Kept {
    let new = NewSubscription::new(SUBSCRIPTION)
        .topic("order.*")?
        .types("*.created")?
        .order(Order::None)
        .on_dead(OnDead::Hold)
        .retry(RetryPolicy::fixed(SECOND * 3).attempts_max(7))
        .concurrency(5)
        .timeout(SECOND * 9);
    let made = rig.store().subscription_create(new.clone()).await?;
    new.agrees_with(&made)?;
    assert_eq!((&made.name, &made.tuning), (&new.name, &new.tuning));
    assert_eq!((made.created_at, made.paused_at), (rig.clock().now(), None));
    assert_eq!(rig.second().await.subscription_get(SUBSCRIPTION).await?, made);
    Ok(())
}

/// A name is given once.
pub async fn a_taken_name_is_a_conflict<R: Rig>(rig: &R) -> Kept {
    let made = rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let again = NewSubscription::new(SUBSCRIPTION).topic("other")?;
    assert_eq!(refused(rig.second().await.subscription_create(again).await), ErrorKind::Conflict);
    assert_eq!(rig.store().subscription_get(SUBSCRIPTION).await?, made);
    Ok(())
}

/// What breaks a limit is refused and not stored.
pub async fn a_bad_subscription_is_refused<R: Rig>(rig: &R) -> Kept {
    for bad in [NewSubscription::new("a b"), NewSubscription::new(SUBSCRIPTION).concurrency(0)] {
        assert_eq!(refused(rig.store().subscription_create(bad).await), ErrorKind::Invalid);
    }
    assert_eq!(rig.store().subscription_list().await?, []);
    Ok(())
}

/// Every call that names a subscription that is not there says so.
pub async fn an_unknown_subscription_is_not_found<R: Rig>(rig: &R) -> Kept {
    let store = rig.store();
    let kinds = [
        refused(store.subscription_get("nobody").await),
        refused(store.subscription_report("nobody").await),
        refused(store.subscription_tune("nobody", Tuning::default()).await),
        refused(store.subscription_pause("nobody").await),
        refused(store.subscription_resume("nobody").await),
        refused(store.subscription_seek("nobody", Start::Now, ACTOR).await),
        refused(store.subscription_delete("nobody", ACTOR).await),
    ];
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::NotFound), "{kinds:?}");
    Ok(())
}

/// Listings are by name.
pub async fn subscriptions_are_listed_by_name<R: Rig>(rig: &R) -> Kept {
    for name in ["b", "c", "a"] {
        rig.store().subscription_create(NewSubscription::new(name)).await?;
    }
    let listed = rig.store().subscription_list().await?;
    let names: Vec<_> = listed.iter().map(|report| report.subscription.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(rig.store().subscription_report("b").await?, listed[1]);
    Ok(())
}

/// A new subscription begins where it says.
pub async fn a_subscription_begins_at_its_start<R: Rig>(rig: &R) -> Kept {
    let events = three_minutes(rig).await?;
    let starts = [
        ("oldest", Start::Oldest, &events[..]),
        ("now", Start::Now, &events[3..]),
        ("time", Start::Time(rig.clock().now().before(SECOND * 90)), &events[2..]),
        ("exact", Start::Time(rig.clock().now().before(SECOND * 120)), &events[1..]),
        ("future", Start::Time(rig.clock().now().after(SECOND)), &events[3..]),
        ("id", Start::Id(events[1]), &events[1..]),
    ];
    for (name, start, expected) in starts {
        let owner = Owner::create(rig.store(), NewSubscription::new(name).start(start)).await?;
        assert_eq!(ids(&owner.read_all().await?), expected, "{name}");
    }
    Ok(())
}

/// What is emitted once it exists is its own, wherever it began.
pub async fn a_subscription_that_begins_now_reads_what_follows<R: Rig>(rig: &R) -> Kept {
    three_minutes(rig).await?;
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION).start(Start::Now)).await?;
    let later = rig.store().event_emit(vec![event_of("later")]).await?;
    assert_eq!(ids(&owner.read_all().await?), later);
    Ok(())
}

/// Three events, emitted a minute apart, the last a minute ago.
async fn three_minutes<R: Rig>(rig: &R) -> Kept<Vec<EventId>> {
    let mut given = Vec::new();
    for _ in 0..3 {
        given.extend(rig.store().event_emit(vec![event_of("a")]).await?);
        rig.clock().advance(SECOND * 60);
    }
    Ok(given)
}

/// Tuning changes what may change, and is checked.
pub async fn tuning_may_change_at_any_time<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let tuning = Tuning { concurrency: 3, timeout: Duration::from_millis(1500), ..Tuning::default() };
    let tuned = rig.store().subscription_tune(SUBSCRIPTION, tuning.clone()).await?;
    assert_eq!(tuned.tuning, tuning);
    assert_eq!(rig.second().await.subscription_get(SUBSCRIPTION).await?, tuned);
    let bad = Tuning { concurrency: 0, ..tuning.clone() };
    assert_eq!(refused(rig.store().subscription_tune(SUBSCRIPTION, bad).await), ErrorKind::Invalid);
    assert_eq!(rig.store().subscription_get(SUBSCRIPTION).await?.tuning, tuning);
    // Its owner is not disturbed, and takes it up with its next take.
    owner.settle(Settle::default()).await?;
    rig.store().shards_release(owner.hold()).await?;
    let taken =
        rig.store().shards_take(SUBSCRIPTION, owner.member, ShardSet::ALL).await?.expect("it is free");
    assert_eq!(taken.hold.subscription.tuning, tuning);
    Ok(())
}

/// Pausing a paused subscription changes nothing; neither does resuming a running one.
pub async fn pause_and_resume_are_idempotent<R: Rig>(rig: &R) -> Kept {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    assert_eq!(rig.store().subscription_resume(SUBSCRIPTION).await?.paused_at, None);
    let since = rig.clock().now();
    assert_eq!(rig.store().subscription_pause(SUBSCRIPTION).await?.paused_at, Some(since));
    rig.clock().advance(SECOND);
    assert_eq!(rig.store().subscription_pause(SUBSCRIPTION).await?.paused_at, Some(since));
    assert_eq!(rig.second().await.subscription_get(SUBSCRIPTION).await?.paused_at, Some(since));
    assert_eq!(rig.store().subscription_resume(SUBSCRIPTION).await?.paused_at, None);
    assert_eq!(rig.store().subscription_resume(SUBSCRIPTION).await?.paused_at, None);
    Ok(())
}

/// A seek moves every shard to the place it names, in either direction.
pub async fn a_seek_moves_to_the_named_place<R: Rig>(rig: &R) -> Kept {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let events = three_minutes(rig).await?;
    let places = [
        (Start::Now, &events[3..]),
        (Start::Oldest, &events[..]),
        (Start::Time(rig.clock().now().before(SECOND * 90)), &events[2..]),
        (Start::Id(events[1]), &events[1..]),
        (Start::Time(rig.clock().now().after(SECOND)), &events[3..]),
    ];
    for (to, expected) in places {
        let position = rig.store().subscription_seek(SUBSCRIPTION, to, ACTOR).await?;
        let report = rig.store().subscription_report(SUBSCRIPTION).await?;
        assert!(report.shards.iter().all(|shard| shard.position == position), "{to:?}");
        let owner = Owner::of(rig.store(), SUBSCRIPTION).await?;
        assert_eq!(ids(&owner.read_all().await?), expected, "{to:?}");
        rig.store().member_leave(owner.member).await?;
    }
    if let Some(audit) = rig.audit().await {
        assert_eq!(audit.iter().filter(|line| line.contains(ACTOR)).count(), places.len(), "{audit:?}");
    }
    Ok(())
}

/// What the owner has in memory is about another place in the log: it is fenced.
pub async fn a_seek_fences_the_owner<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 2).await?;
    rig.second().await.subscription_seek(SUBSCRIPTION, Start::Id(events[1].id), ACTOR).await?;
    assert_eq!(refused(owner.settle_rows(events[1].id, Vec::new()).await), ErrorKind::Fenced);
    assert_eq!(refused(owner.fetch(owner.position(), AMPLE).await), ErrorKind::Fenced);
    // It is still a member and may take the shards again.
    let taken =
        rig.store().shards_take(SUBSCRIPTION, owner.member, ShardSet::ALL).await?.expect("they are free");
    let chunk = rig.store().fetch(&taken.hold, taken.hold.shards[0].position, AMPLE).await?;
    assert_eq!(ids(&chunk.events), [events[1].id]);
    Ok(())
}

/// Rows above the new position go, since their events are read again; rows below it stay.
pub async fn a_seek_removes_the_rows_above_it<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = super::owner::emit(
        rig,
        vec![event_of("a"), event_of("b"), event_of("a"), event_of("c"), event_of("d")],
    )
    .await?;
    let rows = vec![
        owner.row(&events[0]).failed(SECOND),
        owner.row(&events[1]).dead_skipped(),
        owner.row(&events[2]).waiting(),
        owner.row(&events[3]).dead_skipped(),
        owner.row(&events[4]).leased(),
    ];
    owner.settle_rows(events[4].id, rows).await?;
    rig.store().subscription_seek(SUBSCRIPTION, Start::Id(events[2].id), ACTOR).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.pending, report.leased, report.dead), (1, 0, 1));
    let new = Owner::of(rig.store(), SUBSCRIPTION).await?;
    assert_eq!(new.taken.parked, lane_of(&events[0]).into_iter().collect::<Vec<_>>());
    let read = new.read_all().await?;
    assert_eq!(ids(&read), events[2..].iter().map(|event| event.id).collect::<Vec<_>>());
    rig.clock().advance(SECOND);
    assert_eq!(run_ids(&new.due().await?), [[events[0].id]]);
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// A seek forward keeps every row: what failed is still to be delivered.
pub async fn a_seek_forward_keeps_the_rows<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 3).await?;
    owner.settle_rows(events[0].id, vec![owner.row(&events[0]).leased()]).await?;
    rig.store().subscription_seek(SUBSCRIPTION, Start::Now, ACTOR).await?;
    let new = Owner::of(rig.store(), SUBSCRIPTION).await?;
    assert!(new.read_all().await?.is_empty());
    assert_eq!(run_ids(&new.due().await?), [[events[0].id]]);
    Ok(())
}

/// What a subscription had not read before it was moved back is read as well, once.
pub async fn a_seek_back_keeps_what_was_not_read<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let read = emit_of(rig, "a", 3).await?;
    owner.settle_rows(read[2].id, Vec::new()).await?;
    let unread = emit_of(rig, "b", 2).await?;
    let all: Vec<EventId> = read.iter().chain(&unread).map(|event| event.id).collect();
    for (to, expected) in [(all[2], &all[2..]), (all[1], &all[1..]), (all[3], &all[3..])] {
        rig.store().subscription_seek(SUBSCRIPTION, Start::Id(to), ACTOR).await?;
        let owner = Owner::of(rig.store(), SUBSCRIPTION).await?;
        assert_eq!(ids(&owner.read_all().await?), expected);
        rig.store().member_leave(owner.member).await?;
    }
    Ok(())
}

/// A deleted subscription is gone with all its state, and its owner is fenced.
pub async fn a_deleted_subscription_is_gone<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 1).await?;
    owner.settle_rows(events[0].id, vec![owner.row(&events[0]).dead_skipped()]).await?;
    rig.second().await.subscription_delete(SUBSCRIPTION, ACTOR).await?;
    assert_eq!(refused(rig.store().subscription_get(SUBSCRIPTION).await), ErrorKind::NotFound);
    assert_eq!(rig.store().subscription_list().await?, []);
    assert_eq!(rig.store().event_deliveries(events[0].id).await?, []);
    assert_eq!(refused(owner.fetch(owner.position(), AMPLE).await), ErrorKind::Fenced);
    assert_eq!(refused(owner.settle(Settle::default()).await), ErrorKind::Fenced);
    if let Some(audit) = rig.audit().await {
        assert!(audit.iter().any(|line| line.contains(ACTOR)), "{audit:?}");
    }
    Ok(())
}

/// A subscription of the same name is another one: it begins afresh, and the old hold stays fenced.
pub async fn a_recreated_subscription_begins_afresh<R: Rig>(rig: &R) -> Kept {
    let old = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 2).await?;
    old.settle_rows(events[1].id, vec![old.row(&events[0]).dead_skipped()]).await?;
    rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let taken = rig.store().shards_take(SUBSCRIPTION, old.member, ShardSet::ALL).await?.expect("it is free");
    assert_eq!(refused(old.settle_rows(events[1].id, Vec::new()).await), ErrorKind::Fenced);
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.dead, report.lag_events), (0, 2));
    let new = Owner::holding(rig.store(), old.member, taken);
    assert_eq!(new.read_all().await?.len(), 2);
    Ok(())
}
