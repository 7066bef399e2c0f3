//! Idempotency keys with a scope and a period, and emits that replace each other.

use postrider_core::store::EventQuery;
use postrider_core::unique::{REPLACES_HEADER, Scope, Unique};
use postrider_core::{ErrorKind, Event, EventId, NewEvent, NewSubscription, Store};

use super::owner::{Owner, SECOND, SUBSCRIPTION, event_of, ids, refused};
use super::{Kept, Rig};

async fn emit_one<R: Rig>(rig: &R, event: NewEvent) -> Kept<EventId> {
    Ok(rig.store().event_emit(vec![event]).await?[0])
}

async fn count<R: Rig>(rig: &R) -> Kept<usize> {
    Ok(rig.store().event_list(EventQuery { limit: 1_000, ..EventQuery::default() }).await?.len())
}

fn within(seconds: u32) -> NewEvent {
    event_of("a").unique(Unique::new("once").within(SECOND * seconds))
}

fn replacing(key: &str) -> NewEvent {
    event_of("a").unique(Unique::new(key).replace())
}

/// The same key of another topic or type is another key, if the producer says so.
pub async fn a_scoped_key_counts_in_its_scope<R: Rig>(rig: &R) -> Kept {
    let of = |topic: &str, kind: &str, scope| {
        Event::new(topic).kind(kind).unique(Unique::new("once").scope(scope))
    };
    let all = [
        of("order", "paid", Scope::Store),
        of("order", "paid", Scope::Topic),
        of("mail", "paid", Scope::Topic),
        of("order", "paid", Scope::Kind),
        of("order", "sent", Scope::Kind),
    ];
    let first = rig.store().event_emit(all.to_vec()).await?;
    assert!(first.is_sorted_by(|a, b| a < b), "{first:?}");
    assert_eq!(rig.second().await.event_emit(all.to_vec()).await?, first);
    let repeats = [
        (of("mail", "sent", Scope::Store), first[0]),
        (of("order", "sent", Scope::Topic), first[1]),
        (of("mail", "sent", Scope::Topic), first[2]),
    ];
    for (event, holder) in repeats {
        assert_eq!(emit_one(rig, event).await?, holder);
    }
    assert_eq!(count(rig).await?, 5);
    Ok(())
}

/// A key is taken until its period is over, and can then be taken again.
pub async fn a_key_is_free_after_its_period<R: Rig>(rig: &R) -> Kept {
    let first = emit_one(rig, within(10)).await?;
    rig.clock().advance(SECOND * 9);
    assert_eq!(emit_one(rig, within(10)).await?, first);
    rig.clock().advance(SECOND * 2);
    let second = emit_one(rig, within(10)).await?;
    assert!(second > first, "nor did the repeat make the period longer");
    rig.clock().advance(SECOND * 9);
    assert_eq!(rig.second().await.event_emit(vec![within(10)]).await?, [second]);
    rig.clock().advance(SECOND * 2);
    let forever = emit_one(rig, event_of("a").idempotency_key("once")).await?;
    assert!(forever > second);
    rig.clock().advance(SECOND * 100);
    assert_eq!(emit_one(rig, within(10)).await?, forever, "the period is that of whoever holds the key");
    assert_eq!(count(rig).await?, 3);
    Ok(())
}

/// Repeats in a batch get the id of the event that holds the key. A conflict stops none of the other events.
pub async fn conflicts_in_a_batch_stop_nobody<R: Rig>(rig: &R) -> Kept {
    let old = emit_one(rig, within(10)).await?;
    let taken = emit_one(rig, event_of("a").idempotency_key("taken")).await?;
    rig.clock().advance(SECOND * 11);
    let batch = vec![
        event_of("a"),
        event_of("b").idempotency_key("taken"),
        within(10),
        within(10),
        replacing("newest"),
        event_of("b").idempotency_key("fresh"),
        replacing("newest"),
        event_of("b").idempotency_key("fresh"),
    ];
    let given = rig.store().event_emit(batch).await?;
    assert_eq!((given[1], given[3], given[7]), (taken, given[2], given[5]));
    assert!(given[2] > old && given[6] > given[4]);
    assert_eq!(count(rig).await?, 2 + 5);
    Ok(())
}

/// A batch in which one is refused takes no key over.
pub async fn a_refused_batch_takes_no_key_over<R: Rig>(rig: &R) -> Kept {
    let first = emit_one(rig, replacing("newest")).await?;
    let both = rig.store().event_emit(vec![replacing("newest"), Event::new("not a name")]).await;
    assert_eq!(refused(both), ErrorKind::Invalid);
    assert_eq!(emit_one(rig, event_of("a").idempotency_key("newest")).await?, first);
    Ok(())
}

/// A period is refused if it is zero, which keeps no repeat out, or too long.
pub async fn a_bad_period_is_refused<R: Rig>(rig: &R) -> Kept {
    for bad in [within(0), within(u32::MAX)] {
        assert_eq!(refused(rig.store().event_emit(vec![bad]).await), ErrorKind::Invalid);
    }
    assert_eq!(count(rig).await?, 0);
    Ok(())
}

/// The newest has the key, with a period of its own.
pub async fn a_replacing_emit_takes_the_key_over<R: Rig>(rig: &R) -> Kept {
    let first = emit_one(rig, within(10)).await?;
    rig.clock().advance(SECOND * 6);
    let newer = event_of("a").unique(Unique::new("once").within(SECOND * 10).replace());
    let second = rig.second().await.event_emit(vec![newer]).await?[0];
    assert!(second > first);
    rig.clock().advance(SECOND * 6);
    assert_eq!(emit_one(rig, within(10)).await?, second, "the period began with the newer one");
    rig.clock().advance(SECOND * 6);
    assert!(emit_one(rig, within(10)).await? > second);
    let stored = rig.store().event_get(second).await?.expect("it was just emitted");
    assert_eq!(stored.headers.get(REPLACES_HEADER), Some("true"));
    Ok(())
}

/// In mode `log` both are delivered: their place in the log is what it is.
pub async fn a_log_delivers_what_was_replaced<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let given = rig.store().event_emit(vec![replacing("newest"); 3]).await?;
    assert_eq!(ids(&owner.read_all().await?), given);
    Ok(())
}

/// A key is free once its event is gone, whatever its period, and nothing is left of what it replaced.
pub async fn a_key_is_forgotten_with_its_event<R: Rig>(rig: &R) -> Kept {
    let old = rig.store().event_emit(vec![replacing("newest"), replacing("newest"), within(1_000)]).await?;
    rig.clock().advance(SECOND * 60);
    for _ in 0..3 {
        while rig.store().prune(SECOND * 30).await?.more {}
        rig.clock().advance(SECOND);
    }
    assert_eq!(count(rig).await?, 0);
    let given = rig.store().event_emit(vec![event_of("a").idempotency_key("newest"), within(10)]).await?;
    assert!(given.iter().all(|id| *id > old[2]), "{given:?}");
    assert_eq!(rig.store().check().await?, Vec::<String>::new());
    Ok(())
}
