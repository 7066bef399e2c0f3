//! An event exists if and only if its transaction committed.

use postrider_core::{ErrorKind, emit};
use postrider_postgres::{copy, emit_all};

use crate::support::{End, Rig, Way, on_each_version, order};

on_each_version!(
    a_rollback_emits_nothing,
    a_commit_emits_everything,
    a_savepoint_takes_only_its_own_events_with_it,
    a_prepared_transaction_emits_when_it_is_committed,
    a_refused_event_leaves_the_transaction_in_order,
    a_failed_copy_emits_nothing,
    a_batch_with_a_bad_event_writes_none_of_it,
);

async fn a_rollback_emits_nothing(rig: Rig) {
    for way in Way::EACH {
        way.emit(&rig, vec![order(1), order(2)], End::Rollback).await.unwrap();
        assert_eq!(rig.ids().await, [], "{way:?}");
    }
}

async fn a_commit_emits_everything(rig: Rig) {
    let mut count = 0;
    for way in Way::EACH {
        let ids = way.emit(&rig, vec![order(1), order(2)], End::Commit).await.unwrap();
        count += 2;
        let stored = rig.ids().await;
        assert_eq!(stored.len(), count, "{way:?}");
        assert!(stored.ends_with(&ids), "{way:?}");
    }
}

async fn a_savepoint_takes_only_its_own_events_with_it(rig: Rig) {
    let mut client = rig.client().await;
    let mut tx = client.transaction().await.unwrap();
    let before = emit(&tx, order(1)).await.unwrap();
    let lost = tx.savepoint("lost").await.unwrap();
    emit(&lost, order(2)).await.unwrap();
    emit_all(&lost, vec![order(3), order(4)]).await.unwrap();
    copy(&lost, [order(5)]).await.unwrap();
    lost.rollback().await.unwrap();
    let kept = tx.savepoint("kept").await.unwrap();
    let within = emit(&kept, order(6)).await.unwrap();
    kept.commit().await.unwrap();
    let after = emit(&mut tx, order(7)).await.unwrap();
    assert_eq!(rig.ids().await, [], "nothing before the commit");
    tx.commit().await.unwrap();
    assert_eq!(rig.ids().await, [before, within, after]);
    let xids = "select count(distinct xid) from postrider.event";
    let count: i64 = rig.client().await.query_one(xids, &[]).await.unwrap().get(0);
    assert_eq!(count, 1, "a savepoint's rows carry the number of the whole transaction");
}

async fn a_prepared_transaction_emits_when_it_is_committed(rig: Rig) {
    let name = &rig.database.name;
    let mut client = rig.client().await;
    let tx = client.transaction().await.unwrap();
    let id = emit(&tx, order(1)).await.unwrap();
    tx.batch_execute(&format!("prepare transaction '{name}'")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(rig.ids().await, []);
    rig.client().await.batch_execute(&format!("commit prepared '{name}'")).await.unwrap();
    assert_eq!(rig.ids().await, [id]);
}

async fn a_refused_event_leaves_the_transaction_in_order(rig: Rig) {
    let mut client = rig.client().await;
    let tx = client.transaction().await.unwrap();
    let first = emit(&tx, order(1)).await.unwrap();
    for (bad, says) in [
        (order("a\0b"), "key contains a NUL character"),
        (postrider_core::Event::new("a\0b"), "topic contains a NUL character"),
        (order(1).kind("a\0b"), "type contains a NUL character"),
        (order(1).idempotency_key("a\0b"), "idempotency key contains a NUL character"),
        (order(1).header("h", "a\0b"), "NUL character"),
        (order(1).payload(vec![0; (1 << 20) + 1]), "the limit is 1048576"),
    ] {
        let error = emit(&tx, bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
    }
    let second = emit(&tx, order(2)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rig.ids().await, [first, second]);
}

async fn a_failed_copy_emits_nothing(rig: Rig) {
    let mut client = rig.client().await;
    for (bad, says) in [
        (order(1).idempotency_key("once"), "idempotency key"),
        (order("a\0b"), "NUL character"),
        (order(1).payload(vec![0; (1 << 20) + 1]), "the limit is 1048576"),
    ] {
        let tx = client.transaction().await.unwrap();
        // Enough of them that some have been sent before the bad one comes.
        let events = (0..10_000).map(order).chain([bad]);
        let error = copy(&tx, events).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
        emit(&tx, order(2)).await.unwrap_err();
        tx.commit().await.unwrap();
        assert_eq!(rig.ids().await, []);
    }
    let tx = client.transaction().await.unwrap();
    assert_eq!(copy(&tx, []).await.unwrap(), 0, "an empty one is none");
    assert_eq!(copy(&tx, [order(1)]).await.unwrap(), 1, "and the connection is as good as before");
    tx.commit().await.unwrap();
}

async fn a_batch_with_a_bad_event_writes_none_of_it(rig: Rig) {
    for way in Way::ALL_AT_ONCE {
        let bad = vec![order(1).idempotency_key("once"), order(2), order("a\0b")];
        let error = way.emit(&rig, bad, End::Commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(rig.ids().await, [], "{way:?}");
        assert_eq!(way.emit(&rig, vec![], End::Commit).await.unwrap(), []);
    }
}
