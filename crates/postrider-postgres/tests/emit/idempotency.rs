//! A repeated emit is harmless, whichever producer repeats it and whenever.

use postrider_core::{ErrorKind, emit};
use postrider_postgres::tokio_postgres::IsolationLevel;
use postrider_testkit::tcp_proxy::Proxy;

use crate::support::{End, Rig, Way, connect, on_each_version, order, pid_of, wait_for_lock};

on_each_version!(
    a_repeat_returns_the_first_id,
    a_repeat_within_a_batch_returns_the_first_id,
    a_repeat_waits_and_returns_the_id_that_was_committed,
    a_repeat_waits_and_emits_when_the_first_was_rolled_back,
    a_repeat_under_an_older_snapshot_is_told_to_try_again,
    a_key_that_is_being_forgotten_is_free_again,
    a_rolled_back_savepoint_frees_the_key,
    a_lost_commit_reply_is_found_out_by_emitting_again,
);

async fn a_repeat_returns_the_first_id(rig: Rig) {
    let first = Way::Plain.emit(&rig, vec![order(1).idempotency_key("once")], End::Commit).await.unwrap();
    for way in Way::with_ids() {
        let again = vec![order(2).idempotency_key("once").payload("changed")];
        assert_eq!(way.emit(&rig, again, End::Commit).await.unwrap(), first, "{way:?}");
    }
    assert_eq!(rig.ids().await, first);
    let sql = "select key from postrider.event";
    assert_eq!(rig.client().await.query_one(sql, &[]).await.unwrap().get::<_, &str>(0), "1");
}

async fn a_repeat_within_a_batch_returns_the_first_id(rig: Rig) {
    for (n, way) in Way::with_ids().enumerate() {
        let once = order(1).idempotency_key(format!("{n}"));
        let ids = way.emit(&rig, vec![once.clone(), order(2), once], End::Commit).await.unwrap();
        assert_eq!(ids[0], ids[2], "{way:?}");
        assert!(ids[0] < ids[1], "{way:?}");
        assert_eq!(rig.ids().await.len(), 2 * (n + 1), "{way:?}");
    }
}

async fn a_repeat_waits_and_returns_the_id_that_was_committed(rig: Rig) {
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let first = one.transaction().await.unwrap();
    let id = emit(&first, order(1).idempotency_key("once")).await.unwrap();
    let second = two.transaction().await.unwrap();
    let commit = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        first.commit().await.unwrap();
    };
    let (repeated, ()) = tokio::join!(emit(&second, order(1).idempotency_key("once")), commit);
    assert_eq!(repeated.unwrap(), id);
    second.commit().await.unwrap();
    assert_eq!(rig.ids().await, [id]);
}

async fn a_repeat_waits_and_emits_when_the_first_was_rolled_back(rig: Rig) {
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let first = one.transaction().await.unwrap();
    let id = emit(&first, order(1).idempotency_key("once")).await.unwrap();
    let second = two.transaction().await.unwrap();
    let rollback = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        first.rollback().await.unwrap();
    };
    let (emitted, ()) = tokio::join!(emit(&second, order(1).idempotency_key("once")), rollback);
    let emitted = emitted.unwrap();
    second.commit().await.unwrap();
    assert!(emitted > id);
    assert_eq!(rig.ids().await, [emitted]);
}

async fn a_repeat_under_an_older_snapshot_is_told_to_try_again(rig: Rig) {
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    let second =
        two.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
    second.query("select 1 from postrider.event", &[]).await.unwrap();
    let first = one.transaction().await.unwrap();
    let id = emit(&first, order(1).idempotency_key("once")).await.unwrap();
    first.commit().await.unwrap();
    let error = emit(&second, order(1).idempotency_key("once")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    second.rollback().await.unwrap();
    assert_eq!(rig.ids().await, [id]);
}

async fn a_key_that_is_being_forgotten_is_free_again(rig: Rig) {
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    Way::Plain.emit(&rig, vec![order(1).idempotency_key("once")], End::Commit).await.unwrap();
    let retention = one.transaction().await.unwrap();
    retention.execute("delete from postrider.idempotency", &[]).await.unwrap();
    let second = two.transaction().await.unwrap();
    let forget = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        retention.commit().await.unwrap();
    };
    let (emitted, ()) = tokio::join!(emit(&second, order(1).idempotency_key("once")), forget);
    let emitted = emitted.unwrap();
    second.commit().await.unwrap();
    assert_eq!(rig.ids().await.len(), 2);
    assert_eq!(rig.ids().await[1], emitted);
}

async fn a_rolled_back_savepoint_frees_the_key(rig: Rig) {
    let mut client = rig.client().await;
    let mut tx = client.transaction().await.unwrap();
    let savepoint = tx.savepoint("s").await.unwrap();
    emit(&savepoint, order(1).idempotency_key("once")).await.unwrap();
    savepoint.rollback().await.unwrap();
    let id = emit(&tx, order(1).idempotency_key("once")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rig.ids().await, [id]);
}

async fn a_lost_commit_reply_is_found_out_by_emitting_again(rig: Rig) {
    let proxy = Proxy::start(rig.database.address());
    let mut client = connect(&rig.database.through(proxy.address()).url).await;
    let tx = client.transaction().await.unwrap();
    let id = emit(&tx, order(1).idempotency_key("once")).await.unwrap();
    proxy.swallow_server_bytes_from(0);
    tx.commit().await.expect_err("the reply was lost");
    proxy.wait_for_cut().await;
    assert_eq!(rig.ids().await, [id], "but the commit was not");
    let again = Way::Plain.emit(&rig, vec![order(1).idempotency_key("once")], End::Commit).await.unwrap();
    assert_eq!(again, [id]);
    assert_eq!(rig.ids().await, [id]);
}
