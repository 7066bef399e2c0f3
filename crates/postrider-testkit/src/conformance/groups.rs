//! Several members share a subscription's shards, and none notices the others.

use std::collections::HashSet;

use postrider_core::settle::Settle;
use postrider_core::{DeliveryState, ErrorKind, EventId, LogStore, NewSubscription, Shard, ShardSet, Store};

use super::owner::{Owner, SECOND, SUBSCRIPTION, emit, emit_of, event_of, refused, run_ids};
use super::{Kept, Rig};

/// Every other shard, beginning with the first or the second.
fn half(first: u16) -> ShardSet {
    ShardSet::of((first..64).step_by(2).map(Shard))
}

/// Joins and takes some of the shards.
async fn part<S: LogStore>(store: &S, name: &str, shards: ShardSet) -> Kept<Owner<S>> {
    let member = store.member_join(name).await?;
    let taken = store.shards_take(SUBSCRIPTION, member, shards).await?.expect("they are free");
    Ok(Owner::holding(store, member, taken))
}

/// Two members in two processes with half of the shards each.
async fn two<R: Rig>(rig: &R) -> Kept<(Owner<R::Store>, Owner<R::Store>)> {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let even = part(rig.store(), "ada", half(0)).await?;
    let odd = part(&rig.second().await, "ben", half(1)).await?;
    Ok((even, odd))
}

/// Events of many keys and of none, so that every shard gets some.
async fn many<R: Rig>(rig: &R) -> Kept<Vec<EventId>> {
    let mut events = Vec::new();
    for n in 0..200 {
        events.push(event_of(&format!("k{n}")));
    }
    Ok(emit(rig, events).await?.iter().map(|event| event.id).collect())
}

async fn all<S: LogStore>(owner: &Owner<S>) -> Kept<Vec<EventId>> {
    Ok(owner.read_all().await?.iter().map(|event| event.id).collect())
}

/// Each gets the events of its shards and nothing else, and together they get everything once.
pub async fn members_divide_the_events_by_their_shards<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let emitted = many(rig).await?;
    let (first, second) = (all(&even).await?, all(&odd).await?);
    assert!(!first.is_empty() && !second.is_empty());
    let mut together: Vec<EventId> = first.iter().chain(&second).copied().collect();
    together.sort_unstable();
    assert_eq!(together, emitted);
    Ok(())
}

/// A part of the wanted shards is better than none.
pub async fn what_is_free_of_the_wanted_shards_is_taken<R: Rig>(rig: &R) -> Kept {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let even = part(rig.store(), "ada", half(0)).await?;
    let rest = part(&rig.second().await, "ben", ShardSet::ALL).await?;
    assert!(!rest.hold().set().meets(even.hold().set()));
    let count = usize::from(rest.hold().shard_count);
    assert_eq!(rest.hold().shards.len() + even.hold().shards.len(), count);
    Ok(())
}

/// What one settles says nothing about the shards of the other.
pub async fn a_mark_moves_only_the_shards_that_are_held<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    many(rig).await?;
    let (first, second) = (all(&even).await?, all(&odd).await?);
    even.settle_rows(*first.last().expect("it has some"), Vec::new()).await?;
    rig.store().shards_release(even.hold()).await?;
    odd.store.shards_release(odd.hold()).await?;
    let heir = part(rig.store(), "eve", ShardSet::ALL).await?;
    assert_eq!(all(&heir).await?, second, "the odd ones are still to be delivered, and only these");
    Ok(())
}

/// Shards with different positions can be held together: each goes on where it stands.
pub async fn shards_that_stand_apart_go_on_from_where_they_stand<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let early = many(rig).await?;
    let (first, second) = (all(&even).await?, all(&odd).await?);
    even.settle_rows(first[first.len() / 2], Vec::new()).await?;
    odd.settle_rows(second[second.len() / 4], Vec::new()).await?;
    let late = many(rig).await?;
    rig.store().shards_release(even.hold()).await?;
    odd.store.shards_release(odd.hold()).await?;
    let heir = part(rig.store(), "eve", ShardSet::ALL).await?;
    let done: HashSet<EventId> =
        first[..=first.len() / 2].iter().chain(&second[..=second.len() / 4]).copied().collect();
    let rest: Vec<EventId> = early.into_iter().chain(late).filter(|id| !done.contains(id)).collect();
    // Events of one shard come in their order; a shard that is behind may come first.
    let mut read = all(&heir).await?;
    read.sort_unstable();
    assert_eq!(read, rest);
    Ok(())
}

/// A member that holds shards at different positions moves some of them before the others. No shard goes
/// back by that, however often they change hands.
pub async fn a_mark_takes_no_shard_back<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let mut emitted = many(rig).await?;
    let (first, second) = (all(&even).await?, all(&odd).await?);
    even.settle_rows(*first.last().expect("it has some"), Vec::new()).await?;
    odd.settle_rows(second[second.len() / 4], Vec::new()).await?;
    emitted.extend(many(rig).await?);
    rig.store().shards_release(even.hold()).await?;
    odd.store.shards_release(odd.hold()).await?;
    let mut done: Vec<EventId> = first.iter().chain(&second[..=second.len() / 4]).copied().collect();
    for some in [1, 20, 60, 100] {
        let heir = part(rig.store(), "eve", ShardSet::ALL).await?;
        let read = all(&heir).await?;
        heir.settle_rows(read[some - 1], Vec::new()).await?;
        done.extend(&read[..some]);
        rig.store().shards_release(heir.hold()).await?;
        rig.store().member_leave(heir.member).await?;
    }
    let heir = part(rig.store(), "eve", ShardSet::ALL).await?;
    done.extend(all(&heir).await?);
    done.sort_unstable();
    assert_eq!(done, emitted, "each came once");
    Ok(())
}

/// A member that dies takes no other member with it.
pub async fn others_go_on_when_a_members_shards_are_taken<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    many(rig).await?;
    rig.clock().advance(rig.store().pace().lease + SECOND);
    rig.store().member_beat(even.member).await?;
    let heir = part(&rig.second().await, "eve", ShardSet::ALL).await?;
    assert_eq!(heir.hold().set(), odd.hold().set(), "the shards of whoever lives stay where they are");
    let first = all(&even).await?;
    even.settle_rows(*first.last().expect("it has some"), Vec::new()).await?;
    assert_eq!(refused(odd.settle_rows(EventId(1), Vec::new()).await), ErrorKind::Fenced);
    assert!(!all(&heir).await?.is_empty());
    Ok(())
}

/// A lease that did not protect a member's shards is not renewed: it would hand out what others work on.
pub async fn a_member_that_lost_its_shards_cannot_beat_again<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let heir = rig.store().member_join("eve").await?;
    rig.clock().advance(rig.store().pace().lease + SECOND);
    rig.store().member_beat(heir).await?;
    rig.store().shards_take(SUBSCRIPTION, heir, half(0)).await?.expect("their lease ran out");
    assert_eq!(refused(rig.store().member_beat(even.member).await), ErrorKind::Fenced);
    odd.store.member_beat(odd.member).await?;
    let survey = odd.store.shards_survey(SUBSCRIPTION, odd.member, false).await?;
    let holds = |member| survey.owners.iter().filter(|owner| **owner == Some(member)).count();
    assert_eq!(holds(heir), even.hold().shards.len());
    assert_eq!(holds(odd.member), odd.hold().shards.len(), "who was late but lost nothing lives on");
    Ok(())
}

/// Two holds of one member are as separate as those of two.
pub async fn one_member_may_hold_two_parts<R: Rig>(rig: &R) -> Kept {
    rig.store().subscription_create(NewSubscription::new(SUBSCRIPTION)).await?;
    let even = part(rig.store(), "ada", half(0)).await?;
    let taken = rig.store().shards_take(SUBSCRIPTION, even.member, half(1)).await?.expect("they are free");
    let odd = Owner::holding(rig.store(), even.member, taken);
    many(rig).await?;
    let (first, second) = (all(&even).await?, all(&odd).await?);
    even.settle_rows(*first.last().expect("it has some"), Vec::new()).await?;
    rig.store().shards_release(even.hold()).await?;
    odd.settle_rows(second[0], Vec::new()).await?;
    let heir = part(rig.store(), "eve", half(0)).await?;
    assert_eq!(all(&heir).await?, []);
    assert_eq!(heir.hold().set().len(), even.hold().set().len(), "the other part was not given");
    Ok(())
}

/// Rows are loaded by who holds their shard, and only by them.
pub async fn due_rows_and_parked_lanes_belong_to_their_shard<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let event = emit_of(rig, "k", 1).await?.remove(0);
    let shard = Shard::of(event.key.as_ref(), event.id, even.hold().shard_count);
    let (mine, other) = if even.hold().set().contains(shard) { (even, odd) } else { (odd, even) };
    let row = mine.row(&event).attempts(1).failed(SECOND);
    mine.settle_rows(event.id, vec![row]).await?;
    rig.clock().advance(SECOND * 2);
    assert_eq!(run_ids(&mine.due().await?), [[event.id]]);
    assert!(other.due().await?.runs.is_empty());
    other.store.shards_release(other.hold()).await?;
    mine.store.shards_release(mine.hold()).await?;
    let again = part(rig.store(), "eve", other.hold().set()).await?;
    assert_eq!(again.taken.parked, [], "the lane is of another shard");
    let heir = part(rig.store(), "fay", mine.hold().set()).await?;
    assert_eq!(heir.taken.parked.len(), 1);
    Ok(())
}

/// What is handed out for long stays so while its own shard does.
pub async fn leased_rows_are_taken_back_with_their_shard_only<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let event = emit_of(rig, "k", 1).await?.remove(0);
    let shard = Shard::of(event.key.as_ref(), event.id, even.hold().shard_count);
    let (mine, other) = if even.hold().set().contains(shard) { (even, odd) } else { (odd, even) };
    let row = mine.row(&event).attempts(1).leased();
    mine.settle_rows(event.id, vec![row]).await?;
    other.store.shards_release(other.hold()).await?;
    part(rig.store(), "eve", other.hold().set()).await?;
    let state = |reports: Vec<postrider_core::store::DeliveryReport>| reports[0].state;
    assert_eq!(state(rig.store().event_deliveries(event.id).await?), DeliveryState::Leased);
    mine.store.shards_release(mine.hold()).await?;
    assert_eq!(state(rig.store().event_deliveries(event.id).await?), DeliveryState::Pending);
    Ok(())
}

/// Who stands and lives is known to all, and so is who holds what.
pub async fn a_survey_names_who_stands_and_who_holds<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let (store, other) = (rig.store(), &odd.store);
    assert_eq!(store.shards_survey(SUBSCRIPTION, even.member, false).await?.members, []);
    store.shards_survey(SUBSCRIPTION, even.member, true).await?;
    let survey = other.shards_survey(SUBSCRIPTION, odd.member, true).await?;
    assert_eq!(survey.members, [even.member, odd.member]);
    for (index, owner) in survey.owners.iter().enumerate() {
        let expected = if index % 2 == 0 { even.member } else { odd.member };
        assert_eq!(*owner, Some(expected));
    }
    assert!(survey.is_settled());
    store.member_leave(even.member).await?;
    let survey = other.shards_survey(SUBSCRIPTION, odd.member, true).await?;
    assert_eq!(survey.members, [odd.member]);
    assert_eq!(survey.owners[0], None);
    assert_eq!(refused(store.shards_survey(SUBSCRIPTION, even.member, true).await), ErrorKind::Fenced);
    assert_eq!(refused(store.shards_survey("nobody", odd.member, true).await), ErrorKind::NotFound);
    Ok(())
}

/// Members that have given no sign since a member joined may be dead, and its survey names their shards. A
/// store that knows which members live names none.
pub async fn a_survey_tells_who_is_silent<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    let (evens, odds) = (even.hold().set(), odd.hold().set());
    let store = rig.store();
    rig.clock().advance(SECOND);
    let eve = store.member_join("eve").await?;
    let silent = store.shards_survey(SUBSCRIPTION, eve, false).await?.silent;
    assert!(silent.is_empty() || silent == evens.union(odds), "{silent:?}");
    rig.clock().advance(SECOND);
    store.member_beat(even.member).await?;
    assert_eq!(store.shards_survey(SUBSCRIPTION, eve, false).await?.silent, silent.without(evens));
    assert!(!odd.store.shards_survey(SUBSCRIPTION, odd.member, false).await?.silent.meets(odds));
    rig.clock().advance(SECOND);
    odd.store.member_beat(odd.member).await?;
    assert!(store.shards_survey(SUBSCRIPTION, eve, false).await?.silent.is_empty());
    Ok(())
}

/// A member that does not beat stands for nothing and holds nothing, even before anybody takes its shards.
pub async fn a_survey_leaves_out_the_dead<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    rig.store().shards_survey(SUBSCRIPTION, even.member, true).await?;
    odd.store.shards_survey(SUBSCRIPTION, odd.member, true).await?;
    rig.clock().advance(rig.store().pace().lease + SECOND);
    odd.store.member_beat(odd.member).await?;
    let survey = odd.store.shards_survey(SUBSCRIPTION, odd.member, true).await?;
    assert_eq!(survey.members, [odd.member]);
    assert_eq!((survey.owners[0], survey.owners[1]), (None, Some(odd.member)));
    Ok(())
}

/// Moving the subscription takes all shards from all members.
pub async fn a_seek_fences_every_member<R: Rig>(rig: &R) -> Kept {
    let (even, odd) = two(rig).await?;
    many(rig).await?;
    let start = postrider_core::Start::Now;
    rig.store().subscription_seek(SUBSCRIPTION, start, super::owner::ACTOR).await?;
    for owner in [&even, &odd] {
        assert_eq!(refused(owner.settle(Settle::default()).await), ErrorKind::Fenced);
    }
    Ok(())
}
