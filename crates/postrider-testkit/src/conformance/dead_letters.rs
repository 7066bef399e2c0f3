//! Dead letters: looked at, edited, replayed, discarded.

use bytes::Bytes;
use postrider_core::settle::Settle;
use postrider_core::store::{DeadLetterQuery, LetterId};
use postrider_core::time::Clock;
use postrider_core::{DeliveryState, ErrorKind, Event, EventId, NewSubscription, OnDead, Store};

use super::owner::{
    ACTOR, Owner, SECOND, SUBSCRIPTION, emit, emit_of, event_of, failed_attempt, lane_of, letter, refused,
    run_ids,
};
use super::{Kept, Rig};

/// All dead letters of [`SUBSCRIPTION`].
pub(super) fn all() -> DeadLetterQuery {
    DeadLetterQuery {
        subscription: Some(SUBSCRIPTION.to_owned()),
        limit: 1_000,
        ..DeadLetterQuery::default()
    }
}

/// One of them.
fn only(event: EventId) -> DeadLetterQuery {
    DeadLetterQuery { event_id: Some(event), ..all() }
}

/// `count` events of one key, the first of them dead after two attempts, the others waiting behind it or,
/// under `skip`, not yet read.
async fn dead<R: Rig>(rig: &R, on_dead: OnDead, count: usize) -> Kept<(Owner<R::Store>, Vec<Event>)> {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION).on_dead(on_dead)).await?;
    let events = emit_of(rig, "a", count).await?;
    let draft = owner.row(&events[0]).attempts(2);
    let attempts =
        vec![failed_attempt(events[0].id, 1, "first no"), failed_attempt(events[0].id, 2, "last no")];
    let mut settle = Settle { mark: Some(owner.behind(events[0].id).await?), attempts, ..Settle::default() };
    match on_dead {
        OnDead::Skip => {
            settle.rows.push(draft.dead_skipped());
            settle.freed.extend(lane_of(&events[0]));
        }
        OnDead::Hold => {
            settle.mark = Some(owner.behind(events[count - 1].id).await?);
            settle.rows.push(draft.dead_held());
            settle.rows.extend(events[1..].iter().map(|event| owner.row(event).waiting()));
        }
    }
    owner.settle(settle).await?;
    Ok((owner, events))
}

/// The audit, where it can be read, names the actor of each action that destroys or skips something.
async fn assert_audited<R: Rig>(rig: &R, lines: usize) {
    if let Some(audit) = rig.audit().await {
        assert_eq!(audit.iter().filter(|line| line.contains(ACTOR)).count(), lines, "{audit:?}");
    }
}

/// Listings are oldest event first, by page, by subscription and by event, with the last error.
pub async fn dead_letters_are_listed_oldest_first<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Skip, 1).await?;
    let more = emit(rig, vec![event_of("b"), event_of("c")]).await?;
    let rows = more.iter().map(|event| owner.row(event).dead_skipped()).collect();
    owner.settle_rows(more[1].id, rows).await?;
    let list = async |query| -> Kept<Vec<EventId>> {
        let letters = rig.store().dead_letter_list(query).await?;
        Ok(letters.iter().map(|letter| letter.letter.event_id).collect())
    };
    assert_eq!(list(all()).await?, [events[0].id, more[0].id, more[1].id]);
    let page = DeadLetterQuery { after: Some(events[0].id), limit: 1, ..all() };
    assert_eq!(list(page).await?, [more[0].id]);
    assert_eq!(list(only(more[1].id)).await?, [more[1].id]);
    let elsewhere = DeadLetterQuery { subscription: Some("other".to_owned()), ..all() };
    rig.store().subscription_create(NewSubscription::new("other")).await?;
    assert_eq!(list(elsewhere).await?, []);
    let everywhere = DeadLetterQuery { subscription: None, ..all() };
    assert_eq!(list(everywhere).await?.len(), 3);
    let listed = rig.store().dead_letter_list(only(events[0].id)).await?;
    assert_eq!(listed[0].history.iter().map(|last| last.error.as_str()).collect::<Vec<_>>(), ["last no"]);
    Ok(())
}

/// One letter comes with the event as emitted and with every attempt.
pub async fn a_dead_letter_has_its_full_history<R: Rig>(rig: &R) -> Kept {
    let (_owner, events) = dead(rig, OnDead::Skip, 1).await?;
    let found = rig.store().dead_letter_get(&letter(events[0].id)).await?;
    assert_eq!(found.letter, letter(events[0].id));
    assert_eq!(found.event.event, events[0]);
    assert_eq!((found.attempts, found.holds, found.edited_payload), (2, false, None));
    assert_eq!(found.died_at, rig.clock().now());
    let errors: Vec<_> = found.history.iter().map(|attempt| attempt.error.as_str()).collect();
    assert_eq!(errors, ["first no", "last no"]);
    assert!(found.history.iter().all(|attempt| attempt.member == "ada"));
    Ok(())
}

/// A letter says whether its key waits for it.
pub async fn a_held_dead_letter_says_so<R: Rig>(rig: &R) -> Kept {
    let (_owner, events) = dead(rig, OnDead::Hold, 2).await?;
    assert!(rig.store().dead_letter_get(&letter(events[0].id)).await?.holds);
    Ok(())
}

/// A delivery that is not dead is no dead letter.
pub async fn only_the_dead_are_dead_letters<R: Rig>(rig: &R) -> Kept {
    let (_owner, events) = dead(rig, OnDead::Hold, 2).await?;
    let elsewhere = LetterId { subscription: "nobody".to_owned(), event_id: events[0].id };
    for other in [letter(events[1].id), letter(EventId(events[1].id.0 + 1)), elsewhere] {
        assert_eq!(refused(rig.store().dead_letter_get(&other).await), ErrorKind::NotFound, "{other:?}");
        let edited = rig.store().dead_letter_edit(&other, Bytes::new(), ACTOR).await;
        assert_eq!(refused(edited), ErrorKind::NotFound, "{other:?}");
    }
    Ok(())
}

/// An edit changes what a replay delivers, and nothing else; it lasts until the event is done.
pub async fn an_edit_changes_only_the_replayed_payload<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Skip, 1).await?;
    let edited = Bytes::from_static(b"\0fixed\xff");
    rig.store().dead_letter_edit(&letter(events[0].id), edited.clone(), ACTOR).await?;
    let found = rig.store().dead_letter_get(&letter(events[0].id)).await?;
    assert_eq!((found.edited_payload.as_ref(), &found.event.event), (Some(&edited), &events[0]));
    assert_eq!(rig.store().event_get(events[0].id).await?.as_ref(), Some(&events[0]));
    assert_audited(rig, 1).await;
    rig.store().dead_letter_replay(all(), ACTOR).await?;
    let delivered = owner.due().await?.runs.remove(0).rows.remove(0);
    assert_eq!(*delivered.event, Event { payload: edited.clone(), ..events[0].clone() });
    let fails = owner.row(&events[0]).turn(delivered.turn).attempts(1).failed(SECOND);
    owner.settle(Settle { rows: vec![fails], ..Settle::default() }).await?;
    rig.clock().advance(SECOND);
    assert_eq!(owner.due().await?.runs[0].rows[0].event.payload, edited, "it fails, but stays edited");
    Ok(())
}

/// A replayed letter is due at once, is no longer dead, and starts a new count of attempts.
pub async fn a_replay_counts_attempts_anew<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Skip, 1).await?;
    assert!(owner.due().await?.runs.is_empty());
    assert_eq!(rig.store().dead_letter_replay(all(), ACTOR).await?, 1);
    assert_audited(rig, 1).await;
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [[events[0].id]]);
    let run = &due.runs[0];
    assert_eq!((run.parks, run.rows[0].attempts, run.rows[0].discarded), (false, 0, false));
    let missing = rig.store().dead_letter_get(&letter(events[0].id)).await;
    assert_eq!(refused(missing), ErrorKind::NotFound);
    let report = rig.store().event_deliveries(events[0].id).await?.remove(0);
    assert_eq!((report.state, report.attempts), (DeliveryState::Pending, 0));
    Ok(())
}

/// Replaying what was replayed already does nothing.
pub async fn a_letter_is_replayed_once<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Skip, 1).await?;
    assert_eq!(rig.store().dead_letter_replay(only(events[0].id), ACTOR).await?, 1);
    let row = owner.due().await?.runs.remove(0).rows.remove(0);
    let fails = owner.row(&events[0]).turn(row.turn).attempts(1).failed(SECOND * 60);
    owner.settle(Settle { rows: vec![fails], ..Settle::default() }).await?;
    assert_eq!(rig.second().await.dead_letter_replay(only(events[0].id), ACTOR).await?, 0);
    assert!(owner.due().await?.runs.is_empty(), "a second replay must not hurry it");
    assert_audited(rig, 1).await;
    Ok(())
}

/// A replayed letter that dies again is a dead letter again, with its new attempt on record.
pub async fn a_replayed_letter_may_die_again<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Skip, 1).await?;
    rig.store().dead_letter_replay(all(), ACTOR).await?;
    rig.clock().advance(SECOND * 60);
    let row = owner.due().await?.runs.remove(0).rows.remove(0);
    let dies = Settle {
        rows: vec![owner.row(&events[0]).turn(row.turn).attempts(1).dead_skipped()],
        attempts: vec![failed_attempt(events[0].id, 1, "still no")],
        ..Settle::default()
    };
    owner.settle(dies).await?;
    let found = rig.store().dead_letter_get(&letter(events[0].id)).await?;
    assert_eq!((found.attempts, found.died_at), (1, rig.clock().now()));
    assert_eq!(found.history.last().map(|last| last.error.as_str()), Some("still no"));
    assert_eq!(rig.store().dead_letter_replay(all(), ACTOR).await?, 1);
    Ok(())
}

/// A replay takes no more letters than it was asked to, oldest first.
pub async fn a_replay_keeps_to_its_query<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let events = emit(rig, vec![event_of("a"), event_of("b"), event_of("c")]).await?;
    let rows = events.iter().map(|event| owner.row(event).dead_skipped()).collect();
    owner.settle_rows(events[2].id, rows).await?;
    let two = DeadLetterQuery { limit: 2, ..all() };
    assert_eq!(rig.store().dead_letter_replay(two, ACTOR).await?, 2);
    let left = rig.store().dead_letter_list(all()).await?;
    assert_eq!(left.iter().map(|letter| letter.letter.event_id).collect::<Vec<_>>(), [events[2].id]);
    Ok(())
}

/// Under `skip` its key has gone on: it re-enters behind what waits there.
pub async fn a_skipped_letter_is_replayed_behind_what_waits<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Skip, 3).await?;
    let rows = vec![owner.row(&events[1]).attempts(1).failed(SECOND * 10), owner.row(&events[2]).waiting()];
    owner.settle_rows(events[2].id, rows).await?;
    rig.store().dead_letter_replay(all(), ACTOR).await?;
    owner.admit_due().await?;
    assert!(owner.due().await?.runs.is_empty(), "its key waits");
    rig.clock().advance(SECOND * 10);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id, events[2].id, events[0].id]]);
    // What is emitted from now on comes behind it.
    let later = emit_of(rig, "a", 1).await?;
    owner.settle_rows(later[0].id, vec![owner.row(&later[0]).waiting()]).await?;
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id, events[2].id, events[0].id, later[0].id]]);
    Ok(())
}

/// Under `hold` its key has waited: it is the head again, and the others follow.
pub async fn a_held_letter_is_replayed_at_the_head<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Hold, 3).await?;
    assert_eq!(rig.store().dead_letter_replay(all(), ACTOR).await?, 1);
    let due = owner.due().await?;
    assert_eq!(run_ids(&due), [[events[0].id, events[1].id, events[2].id]]);
    assert!(due.runs[0].parks);
    assert_eq!(due.runs[0].rows[0].attempts, 0);
    let done = Settle {
        done: vec![events[0].id],
        freed: lane_of(&events[0]).into_iter().collect(),
        ..Settle::default()
    };
    assert_eq!(owner.settle(done).await?.unparked, []);
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id, events[2].id]]);
    Ok(())
}

/// Under `skip` a discarded letter is gone at once.
pub async fn a_skipped_letter_is_discarded_at_once<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Skip, 1).await?;
    assert_eq!(rig.store().dead_letter_discard(all(), ACTOR).await?, 1);
    assert_audited(rig, 1).await;
    assert_eq!(rig.store().dead_letter_list(all()).await?, []);
    assert!(owner.due().await?.runs.is_empty());
    assert_eq!(rig.store().event_deliveries(events[0].id).await?[0].state, DeliveryState::Done);
    assert_eq!(rig.store().dead_letter_discard(all(), ACTOR).await?, 0);
    assert_eq!(rig.store().dead_letter_replay(all(), ACTOR).await?, 0);
    Ok(())
}

/// Under `hold` the owner takes a discarded letter out of its lane, which goes on.
pub async fn a_held_letter_is_discarded_through_its_owner<R: Rig>(rig: &R) -> Kept {
    let (owner, events) = dead(rig, OnDead::Hold, 2).await?;
    assert_eq!(rig.store().dead_letter_discard(all(), ACTOR).await?, 1);
    assert_audited(rig, 1).await;
    assert_eq!(rig.store().dead_letter_list(all()).await?, []);
    let due = owner.due().await?;
    let run = &due.runs[0];
    assert_eq!((run.parks, run.rows[0].event.id, run.rows[0].discarded), (true, events[0].id, true));
    assert!(run.rows[1..].iter().all(|row| !row.discarded));
    let done = Settle {
        done: vec![events[0].id],
        freed: lane_of(&events[0]).into_iter().collect(),
        ..Settle::default()
    };
    owner.settle(done).await?;
    assert_eq!(run_ids(&owner.due().await?), [[events[1].id]]);
    assert_eq!(rig.store().event_deliveries(events[0].id).await?[0].state, DeliveryState::Done);
    Ok(())
}

/// A discarded letter survives a change of owner: it is still to be taken out.
pub async fn a_discard_survives_a_change_of_owner<R: Rig>(rig: &R) -> Kept {
    let (old, events) = dead(rig, OnDead::Hold, 2).await?;
    rig.store().dead_letter_discard(all(), ACTOR).await?;
    rig.clock().advance(postrider_core::LogStore::pace(rig.store()).lease + SECOND);
    let new = Owner::of(&rig.second().await, SUBSCRIPTION).await?;
    let due = new.due().await?;
    assert_eq!(due.runs[0].rows[0].event.id, events[0].id);
    assert!(due.runs[0].rows[0].discarded);
    assert_eq!(refused(old.due().await), ErrorKind::Fenced);
    Ok(())
}

/// One event may be dead for one subscription and fine for another.
pub async fn dead_letters_are_per_subscription<R: Rig>(rig: &R) -> Kept {
    let (_owner, events) = dead(rig, OnDead::Skip, 1).await?;
    let other = Owner::create(rig.store(), NewSubscription::new("other")).await?;
    other.settle_rows(events[0].id, vec![other.row(&events[0]).dead_skipped()]).await?;
    assert_eq!(rig.store().dead_letter_discard(all(), ACTOR).await?, 1);
    let left = rig.store().dead_letter_list(DeadLetterQuery { subscription: None, ..all() }).await?;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].letter, LetterId { subscription: "other".to_owned(), event_id: events[0].id });
    Ok(())
}
