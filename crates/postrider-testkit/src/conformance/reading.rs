//! Reading the log: each wanted event once and in order.

use postrider_core::settle::Room;
use postrider_core::{Event, NewSubscription, Store, limits};

use super::owner::{AMPLE, Owner, SUBSCRIPTION, emit_of, event_of, ids};
use super::{Kept, Rig};

/// As the reader moves from chunk to chunk it meets every event once, in the order of the ids.
pub async fn each_event_is_read_once_and_in_order<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let new = (0..25).map(|n| event_of(&format!("key-{}", n % 4))).collect();
    let given = rig.store().event_emit(new).await?;
    let (mut read, mut after) = (Vec::new(), owner.position());
    loop {
        let chunk = owner.fetch(after, Room { events: 4, ..AMPLE }).await?;
        assert!(chunk.events.len() <= 4);
        read.extend(ids(&chunk.events));
        if !chunk.more {
            break;
        }
        assert!(chunk.end > after, "there is more, but reading on would bring the same again");
        after = chunk.end;
    }
    assert_eq!(read, given);
    Ok(())
}

/// A reader stays at the end until something is emitted, and then goes on from there.
pub async fn reading_goes_on_where_it_ended<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    emit_of(rig, "a", 2).await?;
    let end = owner.fetch(owner.position(), AMPLE).await?.end;
    let nothing = owner.fetch(end, AMPLE).await?;
    assert!(nothing.events.is_empty() && !nothing.more && !nothing.paused);
    assert_eq!(nothing.end.last_id, end.last_id);
    let later = rig.second().await.event_emit(vec![event_of("a")]).await?;
    assert_eq!(ids(&owner.fetch(nothing.end, AMPLE).await?.events), later);
    Ok(())
}

/// The position of an event is right behind it.
pub async fn a_reader_can_resume_behind_any_event<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let given = rig.store().event_emit(vec![event_of("a"); 3]).await?;
    let chunk = owner.fetch(owner.position(), AMPLE).await?;
    let behind_first = chunk.position_of(&chunk.events[0]);
    assert_eq!(ids(&owner.fetch(behind_first, AMPLE).await?.events), given[1..]);
    Ok(())
}

/// Reading changes nothing: the same read brings the same events.
pub async fn reading_again_brings_the_same<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    emit_of(rig, "a", 3).await?;
    let first = owner.fetch(owner.position(), AMPLE).await?;
    let again = owner.fetch(owner.position(), AMPLE).await?;
    assert_eq!(first.events.len(), 3);
    assert_eq!(first.events, again.events);
    assert_eq!(first.end.last_id, again.end.last_id);
    Ok(())
}

/// What is read is the event as it was emitted.
pub async fn a_read_event_is_the_emitted_one<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let new = Event::new("order").kind("x").key("k").payload(vec![0, 255, 0]).header("h", "v");
    let given = rig.store().event_emit(vec![new, Event::new("bare")]).await?;
    for (event, id) in owner.read_all().await?.iter().zip(given) {
        assert_eq!(Some(Event::clone(event)), rig.store().event_get(id).await?);
    }
    Ok(())
}

/// Only events that the filter wants come up, by topic and by type.
pub async fn the_filter_chooses_by_topic_and_type<R: Rig>(rig: &R) -> Kept {
    let new = NewSubscription::new(SUBSCRIPTION).topic("order")?.types("*.created")?.types("exact")?;
    let owner = Owner::create(rig.store(), new).await?;
    let kinds = [
        ("order", "order.created", true),
        ("order", "order.deleted", false),
        ("orders", "order.created", false),
        ("order", "exact", true),
        ("order", "exactly", false),
    ];
    let new = kinds.iter().map(|(topic, kind, _)| Event::new(topic).kind(kind)).collect();
    let given = rig.store().event_emit(new).await?;
    let wanted: Vec<_> = given.iter().zip(kinds).filter(|(_, kind)| kind.2).map(|(id, _)| *id).collect();
    assert_eq!(ids(&owner.read_all().await?), wanted);
    Ok(())
}

/// A read over unwanted events moves on, so that they are never looked at again.
pub async fn the_end_covers_unwanted_events<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION).topic("invoice")?).await?;
    let given = rig.store().event_emit(vec![event_of("a"); 5]).await?;
    let chunk = owner.fetch(owner.position(), AMPLE).await?;
    assert!(chunk.events.is_empty() && !chunk.more);
    assert!(given.iter().all(|id| chunk.end.covers(*id)), "{:?}", chunk.end);
    Ok(())
}

/// One read looks at a bounded stretch, and a reader behind it still finds what it wants.
pub async fn a_wanted_event_is_found_behind_a_long_stretch_of_others<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION).topic("invoice")?).await?;
    for _ in 0..=limits::CHUNK_SCAN_MAX / 1_000 {
        rig.store().event_emit(vec![Event::new("order"); 1_000]).await?;
    }
    let given = rig.store().event_emit(vec![Event::new("invoice")]).await?;
    let first = owner.fetch_once(owner.position(), AMPLE).await?;
    assert!(first.more && first.end > owner.position());
    assert!(!first.end.covers(given[0]), "one read looked at {} events", limits::CHUNK_SCAN_MAX + 1);
    assert_eq!(ids(&owner.read_all().await?), given);
    Ok(())
}

/// Room for so many events brings no more of them, and says that there are.
pub async fn room_bounds_the_events<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let given = rig.store().event_emit(vec![event_of("a"); 5]).await?;
    let chunk = owner.fetch(owner.position(), Room { events: 2, ..AMPLE }).await?;
    assert_eq!(ids(&chunk.events), given[..2]);
    assert!(chunk.more);
    assert!(chunk.end.covers(given[1]) && !chunk.end.covers(given[2]));
    let rest = owner.fetch(chunk.end, AMPLE).await?;
    assert_eq!(ids(&rest.events), given[2..]);
    // Whether there is more is a hint: of a server's other transactions it may be known only later that they left
    // nothing here.
    let end = owner.fetch(rest.end, AMPLE).await?;
    assert!(end.events.is_empty() && !end.more);
    Ok(())
}

/// Room for so many bytes brings at most one event beyond them, and always one.
pub async fn room_bounds_the_bytes<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let given = rig.store().event_emit(vec![Event::new("order").payload(vec![1; 100]); 10]).await?;
    let chunk = owner.fetch(owner.position(), Room { bytes: 250, ..AMPLE }).await?;
    assert!((2..=3).contains(&chunk.events.len()), "{} events of 100 bytes", chunk.events.len());
    assert!(chunk.more);
    let tight = owner.fetch(chunk.end, Room { bytes: 1, ..AMPLE }).await?;
    assert_eq!(ids(&tight.events), [given[chunk.events.len()]], "an event larger than the room is read");
    Ok(())
}

/// However much room there is, one read has its limits.
pub async fn a_read_is_bounded_whatever_the_room<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    rig.store().event_emit(vec![Event::new("order"); limits::CHUNK_EVENTS_MAX + 1]).await?;
    let chunk = owner.fetch(owner.position(), AMPLE).await?;
    assert!(chunk.events.len() <= limits::CHUNK_EVENTS_MAX);
    assert!(chunk.more);
    assert_eq!(owner.read_all().await?.len(), limits::CHUNK_EVENTS_MAX + 1);
    Ok(())
}

/// A paused subscription is handed nothing, and says why.
pub async fn a_paused_subscription_reads_nothing<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let given = rig.store().event_emit(vec![event_of("a")]).await?;
    rig.second().await.subscription_pause(SUBSCRIPTION).await?;
    let chunk = owner.fetch(owner.position(), AMPLE).await?;
    assert!(chunk.paused && chunk.events.is_empty());
    assert_eq!(chunk.end, owner.position());
    rig.second().await.subscription_resume(SUBSCRIPTION).await?;
    let chunk = owner.fetch(owner.position(), AMPLE).await?;
    assert!(!chunk.paused);
    assert_eq!(ids(&chunk.events), given);
    Ok(())
}

/// What one subscription reads and settles is nothing to the others, and fan-out costs no row.
pub async fn subscriptions_read_independently<R: Rig>(rig: &R) -> Kept {
    let first = Owner::create(rig.store(), NewSubscription::new("first")).await?;
    let second = Owner::create(rig.store(), NewSubscription::new("second")).await?;
    let given = rig.store().event_emit(vec![event_of("a"); 3]).await?;
    first.settle_rows(given[2], Vec::new()).await?;
    rig.store().subscription_pause("first").await?;
    assert_eq!(ids(&second.read_all().await?), given);
    for report in rig.store().subscription_list().await? {
        assert_eq!((report.pending, report.leased, report.dead), (0, 0, 0));
    }
    Ok(())
}

/// An empty log is read as such.
pub async fn an_empty_log_has_an_end<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let chunk = owner.fetch(owner.position(), AMPLE).await?;
    assert!(chunk.events.is_empty() && !chunk.more && !chunk.paused);
    assert_eq!(chunk.end, owner.position());
    Ok(())
}
