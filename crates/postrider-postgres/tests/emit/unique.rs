//! One of the emits that want a key takes it for a period, and gives it up to an emit that replaces.

use std::time::Duration;

use postrider_core::unique::{Scope, Unique};
use postrider_core::{ErrorKind, EventId, NewEvent, emit};
use postrider_postgres::tokio_postgres::IsolationLevel;
use postrider_postgres::tokio_postgres::error::SqlState;

use crate::support::{End, Rig, Way, on_each_version, order, pid_of, wait_for_lock};

const HOUR: Duration = Duration::from_secs(3600);

on_each_version!(
    every_way_takes_a_period_and_replaces,
    of_two_who_come_after_the_period_one_emits,
    of_many_who_come_after_the_period_one_emits,
    a_rolled_back_winner_lets_the_other_emit,
    repeats_wait_for_each_other_never,
    a_repeat_waits_for_whoever_replaces,
    who_replaces_waits_for_whoever_has_the_key,
    a_rolled_back_savepoint_gives_the_key_back,
    a_key_taken_over_under_an_older_snapshot_is_tried_again,
    a_key_is_forgotten_or_taken_over_never_both,
    a_key_that_is_forgotten_meanwhile_is_free,
    the_function_says_what_it_needs,
    the_function_marks_what_may_be_replaced,
);

fn hourly(n: i64) -> NewEvent {
    order(n).unique(Unique::new("once").within(HOUR))
}

fn newest(n: i64) -> NewEvent {
    order(n).unique(Unique::new("once").replace())
}

/// Emits one event and ends its period.
async fn emit_long_ago(rig: &Rig) -> EventId {
    let ids = Way::Plain.emit(rig, vec![hourly(1)], End::Commit).await.unwrap();
    period_end(rig).await;
    ids[0]
}

/// Lets the period of every key be over.
async fn period_end(rig: &Rig) {
    let sql = "update postrider.idempotency set until = postrider.clock() where until is not null";
    rig.client().await.execute(sql, &[]).await.unwrap();
}

async fn superseded(rig: &Rig) -> Vec<EventId> {
    let sql = "select event_id from postrider.superseded order by event_id";
    let rows = rig.client().await.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| EventId(row.get(0))).collect()
}

async fn every_way_takes_a_period_and_replaces(rig: Rig) {
    for (n, way) in Way::with_ids().enumerate() {
        let unique = || Unique::new(format!("{n}")).scope(Scope::Topic).within(HOUR);
        let emit = |events| way.emit(&rig, events, End::Commit);
        let first = emit(vec![order(1).unique(unique()), order(2).unique(unique())]).await.unwrap();
        assert_eq!(first[0], first[1], "{way:?}");
        let sql = "select event.created_at + interval '1 hour' = until
            from postrider.idempotency join postrider.event on event.id = event_id
            where idempotency.key = $1";
        let key = format!("topic order {n}");
        let row = rig.client().await.query_one(sql, &[&key]).await.unwrap();
        assert!(row.get::<_, bool>(0), "{way:?}");
        period_end(&rig).await;
        let second = emit(vec![order(3).unique(unique().replace()), order(4)]).await.unwrap();
        assert!(second[0] > first[0], "{way:?}");
        assert_eq!(superseded(&rig).await, [], "{way:?}: its period was over");
        let third = emit(vec![order(5).unique(unique().replace())]).await.unwrap();
        assert!(third[0] > second[0], "{way:?}");
        assert_eq!(superseded(&rig).await, second[..1], "{way:?}");
        rig.client().await.execute("delete from postrider.superseded", &[]).await.unwrap();
    }
}

async fn of_two_who_come_after_the_period_one_emits(rig: Rig) {
    let old = emit_long_ago(&rig).await;
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let first = one.transaction().await.unwrap();
    let id = emit(&first, hourly(2)).await.unwrap();
    let second = two.transaction().await.unwrap();
    let commit = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        first.commit().await.unwrap();
    };
    let (repeated, ()) = tokio::join!(emit(&second, hourly(3)), commit);
    assert_eq!(repeated.unwrap(), id);
    second.commit().await.unwrap();
    assert_eq!(rig.ids().await, [old, id]);
}

async fn of_many_who_come_after_the_period_one_emits(rig: Rig) {
    let old = emit_long_ago(&rig).await;
    let emitting = (0..8).map(|n| {
        let rig = &rig;
        async move { Way::EACH[n % 4].emit(rig, vec![hourly(2)], End::Commit).await.unwrap()[0] }
    });
    let ids = futures_util::future::join_all(emitting).await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(rig.ids().await, [old, ids[0]]);
}

async fn a_rolled_back_winner_lets_the_other_emit(rig: Rig) {
    let old = emit_long_ago(&rig).await;
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let first = one.transaction().await.unwrap();
    let id = emit(&first, hourly(2)).await.unwrap();
    let second = two.transaction().await.unwrap();
    let rollback = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        first.rollback().await.unwrap();
    };
    let (emitted, ()) = tokio::join!(emit(&second, hourly(3)), rollback);
    let emitted = emitted.unwrap();
    second.commit().await.unwrap();
    assert!(emitted > id);
    assert_eq!(rig.ids().await, [old, emitted]);
    assert_eq!(Way::All.emit(&rig, vec![hourly(4)], End::Commit).await.unwrap(), [emitted]);
}

async fn repeats_wait_for_each_other_never(rig: Rig) {
    let held = Way::Plain.emit(&rig, vec![hourly(1)], End::Commit).await.unwrap();
    let mut one = rig.client().await;
    let open = one.transaction().await.unwrap();
    assert_eq!([emit(&open, hourly(2)).await.unwrap()], held[..]);
    assert_eq!(Way::Plain.emit(&rig, vec![hourly(3)], End::Commit).await.unwrap(), held);
    open.commit().await.unwrap();
    assert_eq!(rig.ids().await, held);
}

async fn a_repeat_waits_for_whoever_replaces(rig: Rig) {
    let held = Way::Plain.emit(&rig, vec![hourly(1)], End::Commit).await.unwrap();
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let replacing = one.transaction().await.unwrap();
    emit(&replacing, newest(2)).await.unwrap();
    let second = two.transaction().await.unwrap();
    let rollback = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        replacing.rollback().await.unwrap();
    };
    let (repeated, ()) = tokio::join!(emit(&second, hourly(3)), rollback);
    assert_eq!(repeated.unwrap(), held[0]);
    second.commit().await.unwrap();
    assert_eq!((rig.ids().await, superseded(&rig).await), (held, vec![]));
}

async fn who_replaces_waits_for_whoever_has_the_key(rig: Rig) {
    let old = Way::Plain.emit(&rig, vec![newest(1)], End::Commit).await.unwrap()[0];
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let first = one.transaction().await.unwrap();
    let id = emit(&first, newest(2)).await.unwrap();
    let second = two.transaction().await.unwrap();
    let commit = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        first.commit().await.unwrap();
    };
    let (last, ()) = tokio::join!(emit(&second, newest(3)), commit);
    let last = last.unwrap();
    second.commit().await.unwrap();
    assert_eq!(superseded(&rig).await, [old, id]);
    assert_eq!(Way::Plain.emit(&rig, vec![hourly(4)], End::Commit).await.unwrap(), [last]);
}

async fn a_rolled_back_savepoint_gives_the_key_back(rig: Rig) {
    let old = Way::Plain.emit(&rig, vec![newest(1)], End::Commit).await.unwrap()[0];
    let mut client = rig.client().await;
    let mut tx = client.transaction().await.unwrap();
    let savepoint = tx.savepoint("s").await.unwrap();
    emit(&savepoint, newest(2)).await.unwrap();
    savepoint.rollback().await.unwrap();
    assert_eq!(emit(&tx, hourly(3)).await.unwrap(), old);
    tx.commit().await.unwrap();
    assert_eq!((rig.ids().await, superseded(&rig).await), (vec![old], vec![]));
}

async fn a_key_taken_over_under_an_older_snapshot_is_tried_again(rig: Rig) {
    emit_long_ago(&rig).await;
    let mut client = rig.client().await;
    let strict =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
    strict.query("select 1 from postrider.event", &[]).await.unwrap();
    let taken = Way::Plain.emit(&rig, vec![hourly(2)], End::Commit).await.unwrap();
    let error = emit(&strict, hourly(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    strict.rollback().await.unwrap();
    assert_eq!(rig.ids().await[1..], taken);
}

/// Retention forgets keys by the event that they stand for: one that is another's by then stays.
async fn a_key_is_forgotten_or_taken_over_never_both(rig: Rig) {
    let old = emit_long_ago(&rig).await;
    let (mut one, two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let taking = one.transaction().await.unwrap();
    let id = emit(&taking, hourly(2)).await.unwrap();
    let commit = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        taking.commit().await.unwrap();
    };
    let forget =
        async { two.execute("delete from postrider.idempotency where event_id = $1", &[&old.0]).await };
    let (forgotten, ()) = tokio::join!(forget, commit);
    assert_eq!(forgotten.unwrap(), 0);
    assert_eq!(Way::Plain.emit(&rig, vec![hourly(3)], End::Commit).await.unwrap(), [id]);
}

async fn a_key_that_is_forgotten_meanwhile_is_free(rig: Rig) {
    let old = emit_long_ago(&rig).await;
    let (mut one, mut two, observer) = (rig.client().await, rig.client().await, rig.client().await);
    let pid = pid_of(&two).await;
    let retention = one.transaction().await.unwrap();
    retention.execute("delete from postrider.idempotency", &[]).await.unwrap();
    let second = two.transaction().await.unwrap();
    let forget = async {
        wait_for_lock(&observer, pid, "transactionid").await;
        retention.commit().await.unwrap();
    };
    let (emitted, ()) = tokio::join!(emit(&second, hourly(2)), forget);
    second.commit().await.unwrap();
    assert_eq!(rig.ids().await, [old, emitted.unwrap()]);
}

async fn the_function_says_what_it_needs(rig: Rig) {
    let client = rig.client().await;
    for (arguments, problem) in [
        ("replace => true", "need an idempotency_key"),
        ("unique_for => '1 hour'", "need an idempotency_key"),
        ("idempotency_key => 'a', unique_for => '0'", "longer than nothing"),
        ("idempotency_key => 'a', unique_for => '-1 day'", "longer than nothing"),
    ] {
        let sql = format!("select postrider.emit('order', 'order', {arguments})");
        let error = client.execute(&sql, &[]).await.unwrap_err();
        let said = error.as_db_error().unwrap();
        assert_eq!(said.code(), &SqlState::INVALID_PARAMETER_VALUE, "{arguments}");
        assert!(said.message().contains(problem), "{arguments}: {said}");
    }
    assert_eq!(rig.ids().await, []);
}

async fn the_function_marks_what_may_be_replaced(rig: Rig) {
    let client = rig.client().await;
    for headers in ["null", r#"'{"z": "1", "a": "ü"}'"#, r#"'{"postrider-replaces": "yes"}'"#] {
        let sql = format!(
            "select postrider.emit('order', 'order', headers => {headers}, idempotency_key => 'a', replace => true)"
        );
        client.execute(&sql, &[]).await.unwrap();
    }
    client
        .execute("select postrider.emit('a', 'a', idempotency_key => 'b', replace => null)", &[])
        .await
        .unwrap();
    let sql = "select replace(headers::text, ' ', '') from postrider.event order by id";
    let rows = client.query(sql, &[]).await.unwrap();
    let headers: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    let wanted = [
        Some(r#"{"postrider-replaces":"true"}"#.to_owned()),
        Some(r#"{"z":"1","a":"ü","postrider-replaces":"true"}"#.to_owned()),
        Some(r#"{"postrider-replaces":"yes"}"#.to_owned()),
        None,
    ];
    assert_eq!(headers, wanted);
    assert_eq!(superseded(&rig).await, rig.ids().await[..2]);
}
