//! What people see is what there is.

use bytes::Bytes;
use postrider_core::settle::Settle;
use postrider_core::store::{
    ActionReport, DeadLetterQuery, DeliveryAction, DeliveryReport, LetterId, MemberReport,
};
use postrider_core::time::Clock;
use postrider_core::{DeliveryState, Event, EventId, LogStore, NewSubscription, Position, Start, Store};

use super::owner::{ACTOR, Owner, SECOND, SUBSCRIPTION, emit, emit_of, event_of, lane_of};
use super::{Kept, Rig};

async fn stands<R: Rig>(rig: &R, event: EventId) -> Kept<DeliveryReport> {
    Ok(rig.store().event_deliveries(event).await?.remove(0))
}

/// Above the position an event is pending, and it is said how many are ahead of it.
pub async fn an_unread_event_is_pending_with_those_ahead<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 4).await?;
    owner.settle_rows(events[0].id, Vec::new()).await?;
    let report = stands(rig, events[3].id).await?;
    assert_eq!((report.state, report.ahead, report.attempts), (DeliveryState::Pending, Some(2), 0));
    assert_eq!((report.behind, report.paused), (None, false));
    assert_eq!(stands(rig, events[1].id).await?.ahead, Some(0));
    let done = stands(rig, events[0].id).await?;
    assert_eq!((done.state, done.ahead), (DeliveryState::Done, None));
    Ok(())
}

/// A failed event shows its attempts and its time; one that waits shows for whom.
pub async fn a_parked_event_says_what_it_waits_for<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 2).await?;
    let rows = vec![owner.row(&events[0]).attempts(3).failed(SECOND * 7), owner.row(&events[1]).waiting()];
    owner.settle_rows(events[1].id, rows).await?;
    let head = stands(rig, events[0].id).await?;
    assert_eq!((head.state, head.attempts, head.behind), (DeliveryState::Pending, 3, None));
    assert_eq!(head.due_at, Some(rig.clock().now().after(SECOND * 7)));
    let waiting = stands(rig, events[1].id).await?;
    assert_eq!((waiting.state, waiting.behind), (DeliveryState::Pending, Some(events[0].id)));
    assert_eq!((waiting.due_at, waiting.ahead), (None, None));
    Ok(())
}

/// Dead, leased and paused are said as such.
pub async fn each_state_is_reported<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit(rig, vec![event_of("a"), event_of("b"), event_of("c")]).await?;
    let rows = vec![owner.row(&events[0]).attempts(5).dead_skipped(), owner.row(&events[1]).leased()];
    owner.settle_rows(events[2].id, rows).await?;
    let dead = stands(rig, events[0].id).await?;
    assert_eq!((dead.state, dead.attempts, dead.due_at), (DeliveryState::Dead, 5, None));
    let leased = stands(rig, events[1].id).await?;
    assert_eq!(
        (leased.state, leased.attempts, leased.lost),
        (DeliveryState::Leased, 1, 0),
        "its first attempt runs"
    );
    assert_eq!(stands(rig, events[2].id).await?.state, DeliveryState::Done);
    rig.store().subscription_pause(SUBSCRIPTION).await?;
    assert!(stands(rig, events[0].id).await?.paused);
    Ok(())
}

/// What people did to a delivery is told with their name and the time, in order, and only to that delivery.
pub async fn what_people_did_is_told_of_the_delivery<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit(rig, vec![event_of("a"), event_of("b")]).await?;
    let dead = || events.iter().map(|event| owner.row(event).attempts(4).dead_skipped()).collect();
    owner.settle_rows(events[1].id, dead()).await?;
    assert_eq!(stands(rig, events[0].id).await?.actions, Some(Vec::new()));
    let letter = LetterId { subscription: SUBSCRIPTION.to_owned(), event_id: events[0].id };
    let only =
        |event_id| DeadLetterQuery { event_id: Some(event_id), limit: 10, ..DeadLetterQuery::default() };
    let mut expected = Vec::new();
    let mut tell = |action, actor: &str| {
        rig.clock().advance(SECOND);
        expected.push(ActionReport { action, at: rig.clock().now(), actor: actor.to_owned() });
        expected.clone()
    };
    let told = tell(DeliveryAction::Edited, "ann");
    rig.store().dead_letter_edit(&letter, Bytes::from_static(b"{}"), "ann").await?;
    assert_eq!(stands(rig, events[0].id).await?.actions, Some(told));
    tell(DeliveryAction::Replayed, "bob");
    rig.store().dead_letter_replay(only(events[0].id), "bob").await?;
    let row = owner.due().await?.runs.remove(0).rows.remove(0);
    let dies = owner.row(&events[0]).turn(row.turn).attempts(1).dead_skipped();
    owner.settle(Settle { rows: vec![dies], ..Settle::default() }).await?;
    let told = tell(DeliveryAction::Discarded, "cid");
    rig.store().dead_letter_discard(only(events[0].id), "cid").await?;
    let done = stands(rig, events[0].id).await?;
    assert_eq!((done.state, done.attempts, done.actions), (DeliveryState::Done, 0, Some(told)));
    assert_eq!(stands(rig, events[1].id).await?.actions, Some(Vec::new()), "nothing was done to it");
    Ok(())
}

/// A seek is told of the events that it passed over or brought back, and of none that was emitted later. What
/// was done to a subscription that had the name before is of no concern.
pub async fn a_seek_is_told_of_the_events_that_it_touched<R: Rig>(rig: &R) -> Kept {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 3).await?;
    let told = async |id| -> Kept<Vec<DeliveryAction>> {
        let actions = stands(rig, id).await?.actions.expect("a test may read the audit");
        Ok(actions.into_iter().map(|action| action.action).collect())
    };
    rig.clock().advance(SECOND);
    rig.store().subscription_seek(SUBSCRIPTION, Start::Id(events[2].id), ACTOR).await?;
    rig.clock().advance(SECOND);
    let later = emit_of(rig, "a", 1).await?;
    assert_eq!(told(events[1].id).await?, [DeliveryAction::PassedOver]);
    assert_eq!(told(events[2].id).await?, [DeliveryAction::BroughtBack]);
    assert_eq!(told(later[0].id).await?, []);
    rig.store().subscription_delete(SUBSCRIPTION, ACTOR).await?;
    rig.clock().advance(SECOND);
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    assert_eq!(told(events[1].id).await?, []);
    Ok(())
}

/// An event stands somewhere for each subscription that wants it, and for no other.
pub async fn deliveries_are_told_for_those_who_want_the_event<R: Rig>(rig: &R) -> Kept {
    for (name, topic) in [("b", "order"), ("a", "*"), ("c", "invoice")] {
        rig.store().subscription_create(NewSubscription::new(name).topic(topic)?).await?;
    }
    let events = emit_of(rig, "a", 1).await?;
    let reports = rig.store().event_deliveries(events[0].id).await?;
    let names: Vec<_> = reports.iter().map(|report| report.subscription.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    Ok(())
}

/// What a filter passes over does not count as lag.
pub async fn lag_counts_what_is_wanted<R: Rig>(rig: &R) -> Kept {
    let new = NewSubscription::new(SUBSCRIPTION).topic("wanted.*")?.types("*.paid")?;
    rig.store().subscription_create(new).await?;
    let report = async || -> Kept<_> { Ok(rig.store().subscription_report(SUBSCRIPTION).await?) };
    let event = |topic: &str, kind: &str| Event::new(topic).kind(kind);
    rig.store().event_emit(vec![event("other", "order.paid"), event("wanted.a", "order.made")]).await?;
    assert_eq!((report().await?.lag_events, report().await?.lag), (0, None), "nothing that it wants");
    rig.clock().advance(SECOND * 10);
    rig.store().event_emit(vec![event("wanted.b", "order.paid"), event("other", "x")]).await?;
    rig.clock().advance(SECOND * 5);
    assert_eq!((report().await?.lag_events, report().await?.lag), (1, Some(SECOND * 5)));
    Ok(())
}

/// Lag counts what lies behind the position, and the age of its oldest.
pub async fn lag_counts_what_is_unread<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let report = async || -> Kept<_> { Ok(rig.store().subscription_report(SUBSCRIPTION).await?) };
    assert_eq!((report().await?.lag_events, report().await?.lag), (0, None));
    let mut events = emit_of(rig, "a", 1).await?;
    rig.clock().advance(SECOND * 10);
    events.extend(emit_of(rig, "a", 2).await?);
    rig.clock().advance(SECOND * 5);
    assert_eq!((report().await?.lag_events, report().await?.lag), (3, Some(SECOND * 15)));
    owner.settle_rows(events[0].id, Vec::new()).await?;
    assert_eq!((report().await?.lag_events, report().await?.lag), (2, Some(SECOND * 5)));
    owner.settle_rows(events[2].id, Vec::new()).await?;
    assert_eq!((report().await?.lag_events, report().await?.lag), (0, None));
    Ok(())
}

/// Rows are counted by state, and parked lanes are named with what they wait for.
pub async fn parked_lanes_are_reported<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let new = vec![event_of("a"), event_of("b"), event_of("a"), event_of("c"), event_of("a")];
    let events = emit(rig, new).await?;
    let rows = vec![
        owner.row(&events[0]).failed(SECOND * 9),
        owner.row(&events[1]).dead_held(),
        owner.row(&events[2]).waiting(),
        owner.row(&events[3]).dead_skipped(),
        owner.row(&events[4]).waiting(),
    ];
    owner.settle_rows(events[4].id, rows).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.pending, report.leased, report.dead, report.parked_count), (3, 0, 2, 2));
    let [a, b] = &report.parked[..] else { panic!("two lanes are parked: {:?}", report.parked) };
    assert_eq!((a.key.as_str(), a.head, a.waiting), ("a", events[0].id, 3));
    assert_eq!(a.due_at, Some(rig.clock().now().after(SECOND * 9)));
    assert_eq!((b.key.as_str(), b.head, b.waiting, b.due_at), ("b", events[1].id, 1, None));
    let freed = Settle {
        done: vec![events[0].id],
        freed: lane_of(&events[0]).into_iter().collect(),
        ..Settle::default()
    };
    owner.settle(freed).await?;
    let report = rig.store().subscription_report(SUBSCRIPTION).await?;
    assert_eq!((report.parked[0].head, report.parked[0].waiting), (events[1].id, 1));
    assert_eq!((report.parked[1].head, report.parked[1].waiting), (events[2].id, 2));
    Ok(())
}

/// A report names who holds something and who only stands for it, and tells two of one name apart.
pub async fn members_are_named_with_their_part<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let second = rig.second().await;
    let namesake = second.member_join("ada").await?;
    let stranger = second.member_join("eve").await?;
    second.shards_survey(SUBSCRIPTION, namesake, true).await?;
    second.shards_survey(SUBSCRIPTION, stranger, false).await?;
    let members = async || -> Kept<_> { Ok(rig.store().subscription_report(SUBSCRIPTION).await?.members) };
    let here = |id| MemberReport { id, name: "ada".to_owned(), lives: true };
    assert_eq!(members().await?, [here(owner.member), here(namesake)]);
    rig.clock().advance(rig.store().pace().lease + SECOND);
    second.member_beat(namesake).await?;
    assert_eq!(members().await?, [MemberReport { lives: false, ..here(owner.member) }, here(namesake)]);
    Ok(())
}

/// A shard names its holder while it has one.
pub async fn shards_name_their_holder<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let shards = async || -> Kept<_> { Ok(rig.store().subscription_report(SUBSCRIPTION).await?.shards) };
    assert!(shards().await?.iter().all(|shard| shard.member == Some(owner.member)));
    assert!(shards().await?.is_sorted_by(|a, b| a.shard < b.shard));
    rig.store().member_leave(owner.member).await?;
    assert!(shards().await?.iter().all(|shard| shard.member.is_none()));
    assert!(shards().await?.iter().all(|shard| shard.position == Position::START));
    Ok(())
}

/// The store as a whole: what is there, since when, and who lives.
pub async fn stats_tell_the_whole<R: Rig>(rig: &R) -> Kept {
    let empty = rig.store().stats().await?;
    assert_eq!(empty.store_id, rig.store().id());
    assert_eq!((empty.events, empty.newest_id, empty.oldest_at), (0, None, None));
    assert_eq!((empty.members, empty.subscriptions), (vec![], vec![]));
    let since = rig.clock().now();
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 3).await?;
    rig.clock().advance(SECOND);
    let stats = rig.store().stats().await?;
    assert_eq!((stats.events, stats.newest_id), (3, Some(events[2].id)));
    assert_eq!((stats.oldest_at, stats.members), (Some(since), vec!["ada".to_owned()]));
    assert_eq!(stats.subscriptions, rig.store().subscription_list().await?);
    rig.store().member_leave(owner.member).await?;
    assert_eq!(rig.store().stats().await?.members, Vec::<String>::new());
    Ok(())
}

/// The identity of a store is the same for all, and a healthy store has no damage.
pub async fn a_healthy_store_checks_out<R: Rig>(rig: &R) -> Kept {
    assert!(!rig.store().id().is_empty());
    assert_eq!(rig.second().await.id(), rig.store().id());
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit_of(rig, "a", 2).await?;
    let rows = vec![owner.row(&events[0]).failed(SECOND), owner.row(&events[1]).waiting()];
    owner.settle_rows(events[1].id, rows).await?;
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}

/// A wake comes when something was emitted, or is lost; either way a waiting task can be woken again.
pub async fn a_wake_is_a_hint<R: Rig>(rig: &R) -> Kept {
    let pace = rig.store().pace();
    assert!(pace.poll_min <= pace.poll_max, "losing every wake must cost latency only: {pace:?}");
    let store = rig.store().clone();
    let waits = tokio::spawn(async move { store.wake().await });
    tokio::task::yield_now().await;
    let events = emit_of(rig, "a", 1).await?;
    waits.abort();
    let ended = waits.await;
    assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "waiting must not fail");
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    assert_eq!(owner.read_all().await?.len(), events.len());
    Ok(())
}

/// A watch ends when something was emitted since it was given, and what was emitted before is read by a look
/// that follows.
pub async fn a_watch_misses_nothing<R: Rig>(rig: &R) -> Kept {
    let pace = rig.store().pace();
    assert!(pace.rest_max.is_none_or(|rest_max| rest_max >= pace.poll_max), "{pace:?}");
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let before = emit_of(rig, "a", 1).await?;
    let watch = rig.store().watch().await;
    assert_eq!(owner.read_all().await?.len(), before.len());
    let after = emit_of(rig, "a", 1).await?;
    if let Some(watch) = watch {
        watch.await;
    }
    assert_eq!(owner.read_all().await?.len(), before.len() + after.len());
    Ok(())
}
