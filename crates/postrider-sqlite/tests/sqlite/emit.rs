//! Events exist if and only if the transaction that emitted them committed.

use std::time::Duration;

use postrider_core::{ErrorKind, Event, EventId, LogStore, Store, emit};
use postrider_sqlite::rusqlite::{Connection, TransactionBehavior};

use crate::scene::{ROOM, Scene, at};

#[tokio::test]
async fn rows_of_plain_sql_are_delivered_whatever_they_hold() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let conn = scene.raw();
    conn.execute_batch(
        r#"
        insert into postrider_event (topic, type, key, payload) values ('order', 'order.created', 42, '{"a":1}');
        insert into postrider_event (topic, type) values ('order', 'bare');
        insert into postrider_event (topic, type, payload, headers) values ('order', 'n', 7, 'no json');
        insert into postrider_event (topic, type, key) values (x'ff', 'bytes', x'6b');
        "#,
    )
    .unwrap();
    let hold = scene.take("mail").await;
    let chunk = scene.store.fetch(&hold, at(EventId(0)), ROOM).await.unwrap();
    let [first, bare, number, bytes] = chunk.events.as_slice() else { panic!("{chunk:?}") };
    assert_eq!(first.payload, r#"{"a":1}"#);
    assert_eq!(first.key.as_ref().unwrap().as_str(), "42");
    let now = postrider_core::Timestamp::from(std::time::SystemTime::now());
    assert!(now.since(first.created_at) < Duration::from_secs(60), "{}", first.created_at);
    assert!(first.created_at <= now.after(Duration::from_secs(60)));
    assert!(bare.payload.is_empty() && bare.key.is_none() && bare.headers.is_empty());
    assert_eq!(number.payload, "7");
    assert_eq!(number.headers.get("malformed"), Some("no json"));
    assert_eq!((bytes.topic.as_str(), bytes.key.as_ref().unwrap().as_str()), ("\u{fffd}", "k"));
}

#[tokio::test]
async fn plain_sql_cannot_write_what_could_not_be_read() {
    let scene = Scene::new().await;
    let conn = scene.raw();
    for (columns, values, promise) in [
        ("topic, type, payload", "'t', 't', zeroblob(1048577)", "payload_has_at_most_1_mib"),
        // Bytes count, not characters, and also those behind a NUL.
        ("topic, payload", "'t', replace(hex(zeroblob(262145)), '00', 'ää')", "payload_has_at_most_1_mib"),
        ("topic, payload", "'t', char(0) || hex(zeroblob(524288))", "payload_has_at_most_1_mib"),
        ("type", "'t'", "NOT NULL constraint failed: postrider_event.topic"),
    ] {
        let sql = format!("insert into postrider_event ({columns}) values ({values})");
        let error = conn.execute(&sql, []).unwrap_err().to_string();
        assert!(error.contains(promise), "{error}");
    }
    assert_eq!(scene.number("select count(*) from postrider_event"), 0);
}

#[tokio::test]
async fn a_type_may_be_left_out_and_null_headers_are_none() {
    let scene = Scene::new().await;
    scene
        .raw()
        .execute_batch(
            r#"insert into postrider_event (topic, headers) values ('a.b', 'null');
               insert into postrider_event (topic, type, payload, headers) values ('a.b', null, null, '{"x": null}');"#,
        )
        .unwrap();
    let filter = postrider_core::Filter { types: vec!["a.*".parse().unwrap()], ..Default::default() };
    let events =
        scene.store.event_list(postrider_core::store::EventQuery { filter, ..query() }).await.unwrap();
    assert_eq!(events.len(), 2, "a filter by type finds them");
    assert!(events.iter().all(|event| event.kind.as_str() == "a.b" && event.headers.is_empty()));
    scene.subscribe("mail").await;
    let hold = scene.take("mail").await;
    let chunk = scene.store.fetch(&hold, at(EventId(0)), ROOM).await.unwrap();
    assert!(chunk.events.iter().all(|event| event.kind.as_str() == "a.b" && event.payload.is_empty()));
}

/// So that people can read it, and SQLite's own functions take it.
#[tokio::test]
async fn json_is_stored_as_text_and_bytes_as_a_blob() {
    let scene = Scene::new().await;
    let events = vec![
        Event::new("a").json_text(r#"{"total": 12}"#),
        Event::new("a").json(&["b"]).unwrap(),
        Event::new("a").payload(r#"{"total": 12}"#),
    ];
    scene.store.event_emit(events).await.unwrap();
    let kinds = "select group_concat(typeof(payload)) = 'text,text,blob' from postrider_event";
    assert_eq!(scene.number(kinds), 1);
    assert_eq!(scene.number("select payload ->> 'total' from postrider_event where id = 1"), 12);
}

#[tokio::test]
async fn odd_values_of_plain_sql_are_delivered_and_stop_no_worker() {
    let scene = Scene::new().await;
    let conn = scene.raw();
    conn.execute_batch(
        "insert into postrider_event (topic, type, key, created_at, due_at) values ('', '', '', 'yesterday', 'soon');
         insert into postrider_event (topic, type) values ('fine', 'fine');",
    )
    .unwrap();
    let events = scene.store.event_list(query()).await.unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!((events[1].topic.as_str(), events[1].due_at), ("", None));
}

#[tokio::test]
async fn plain_sql_can_make_a_repeat_harmless() {
    let scene = Scene::new().await;
    let conn = scene.raw();
    for _ in 0..2 {
        conn.execute_batch(
            "begin immediate;
             insert into postrider_idempotency (key) values ('once') on conflict do nothing;
             insert into postrider_event (topic, type) select 'order', 'order.created' where changes() = 1;
             update postrider_idempotency set event_id = last_insert_rowid()
             where key = 'once' and event_id is null;
             commit;",
        )
        .unwrap();
    }
    let first = emit(&conn, Event::new("order").idempotency_key("once")).unwrap();
    assert_eq!(first.0, 1);
    assert_eq!(scene.number("select count(*) from postrider_event"), 1);
}

#[tokio::test]
async fn a_rolled_back_emit_leaves_its_idempotency_key_free() {
    let scene = Scene::new().await;
    let mut conn = scene.raw();
    let event = || Event::new("order").idempotency_key("a");
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    emit(&tx, event()).unwrap();
    tx.rollback().unwrap();
    let id = emit(&conn, event()).unwrap();
    assert!(scene.store.event_get(id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_rollback_takes_its_events_with_it_and_so_does_a_savepoint() {
    let scene = Scene::new().await;
    let mut conn = scene.raw();
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    emit(&tx, Event::new("order")).unwrap();
    tx.rollback().unwrap();

    let mut tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    emit(&tx, Event::new("kept")).unwrap();
    let mut savepoint = tx.savepoint().unwrap();
    emit(&savepoint, Event::new("undone")).unwrap();
    savepoint.rollback().unwrap();
    drop(savepoint);
    tx.commit().unwrap();

    let events = scene.store.event_list(query()).await.unwrap();
    assert_eq!(events.iter().map(|event| event.topic.as_str()).collect::<Vec<_>>(), ["kept"]);
}

#[tokio::test]
async fn a_repeated_emit_returns_the_first_id_inside_one_transaction_too() {
    let scene = Scene::new().await;
    let mut conn = scene.raw();
    let event = |key: &str| Event::new("order").idempotency_key(key);
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let first = emit(&tx, event("a")).unwrap();
    assert_eq!(emit(&tx, event("a")).unwrap(), first);
    tx.commit().unwrap();
    assert_eq!(emit(&conn, event("a")).unwrap(), first);
    assert_ne!(emit(&conn, event("b")).unwrap(), first);
    let ids = scene.store.event_emit(vec![event("a"), event("c"), event("c")]).await.unwrap();
    assert_eq!(ids[0], first);
    assert_eq!(ids[1], ids[2]);
    assert_eq!(scene.number("select count(*) from postrider_event"), 3);
}

#[tokio::test]
async fn ids_are_never_handed_out_twice_even_when_the_newest_rows_are_gone() {
    let scene = Scene::new().await;
    let ids = scene.emit(&["a", "b", "c"]).await;
    scene.raw().execute("delete from postrider_event", []).unwrap();
    let next = scene.emit(&["d"]).await[0];
    assert!(next > ids[2], "{next} after {}", ids[2]);
}

/// Why producers should begin with `BEGIN IMMEDIATE`: the busy time-out does not help here.
#[tokio::test]
async fn a_transaction_that_began_by_reading_is_told_how_to_begin() {
    let scene = Scene::new().await;
    let conn = scene.raw();
    conn.execute_batch("begin; select count(*) from postrider_event").unwrap();
    scene.emit(&["a"]).await;
    let error = emit(&conn, Event::new("order")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("BEGIN IMMEDIATE"), "{error}");
}

#[tokio::test]
async fn the_stores_own_transactions_take_the_writer_lock_first() {
    let scene = Scene::with(|options| options.busy_timeout(Duration::ZERO)).await;
    let other = scene.raw();
    other.execute_batch("begin immediate").unwrap();
    let error = scene.store.event_emit(vec![Event::new("order")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().starts_with("cannot begin a transaction"), "{error}");
    assert!(error.is_retryable());
    other.execute_batch("rollback").unwrap();
    scene.emit(&["a"]).await;
}

#[tokio::test]
async fn a_refused_event_leaves_nothing_of_its_batch() {
    let scene = Scene::new().await;
    let batch = vec![Event::new("order"), Event::new("not a name")];
    assert_eq!(scene.store.event_emit(batch).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(scene.number("select count(*) from postrider_event"), 0);
}

#[test]
fn a_file_that_is_no_store_says_how_to_make_it_one() {
    let conn = Connection::open_in_memory().unwrap();
    let error = emit(&conn, Event::new("order")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("postrider store migrate"), "{error}");
}

fn query() -> postrider_core::store::EventQuery {
    postrider_core::store::EventQuery { limit: 100, ..Default::default() }
}
