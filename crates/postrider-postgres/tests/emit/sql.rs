//! What clients in other languages write: by the function and by plain inserts, with parameters of whatever type.

use postrider_core::store::EventQuery;
use postrider_core::{Event, Key, Store, limits};
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::tokio_postgres::error::SqlState;
use postrider_postgres::tokio_postgres::types::Type;
use postrider_postgres::{PostgresOptions, PostgresStore, producer_grants};

use crate::support::{Rig, on_each_version};

on_each_version!(
    every_form_of_a_call_emits_the_same_event,
    parameters_of_every_type_emit_the_same_event,
    what_is_no_json_is_refused_by_the_name_of_its_type,
    a_type_may_be_left_out,
    headers_that_are_null_are_none,
    sql_keeps_the_limits,
    plain_inserts_can_be_made_to_keep_the_limits,
    all_that_the_library_accepts_fits,
);

/// Natural JSON with all that a text column of bytes would have changed or refused.
const JSON: &str = r#"{"path":"C:\\new" , "line":"a\nb", "name":"Zoë's \"\u005a\"", "b":1, "a":[[1.10]]}"#;

/// As a producer, the one with the fewest rights.
async fn producer(rig: &Rig) -> Client {
    let role = format!("sql-{}", rig.database.name);
    let owner = rig.client().await;
    owner.batch_execute(&format!("create role \"{role}\" login")).await.unwrap();
    owner.batch_execute(&producer_grants("postrider", &role).unwrap()).await.unwrap();
    rig.client_of(&role).await
}

/// All events, oldest first, read as a relay reads them.
async fn events(rig: &Rig) -> Vec<Event> {
    let store = PostgresStore::open(PostgresOptions::from_url(&rig.database.url).unwrap()).await.unwrap();
    let found = store.event_list(EventQuery { limit: 1_000, ..EventQuery::default() }).await.unwrap();
    let mut events = Vec::with_capacity(found.len());
    for listed in found.iter().rev() {
        events.push(store.event_get(listed.id).await.unwrap().unwrap());
    }
    events
}

/// Runs statements that each emit one event, and compares it: its key, and its payload.
async fn check(rig: &Rig, forms: &[(&str, Option<&str>, &str)]) {
    let client = producer(rig).await;
    for (form, ..) in forms {
        let sql = form.replace("$json", &format!("'{}'", JSON.replace('\'', "''")));
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{form}: {error:?}"));
    }
    let events = events(rig).await;
    assert_eq!(events.len(), forms.len());
    for (event, (form, key, payload)) in events.iter().zip(forms) {
        assert_eq!(event.key.as_ref().map(Key::as_str), *key, "{form}");
        assert_eq!(std::str::from_utf8(&event.payload).unwrap(), *payload, "{form}");
    }
}

async fn every_form_of_a_call_emits_the_same_event(rig: Rig) {
    let uuid = "406c07f3-1b8b-4b5f-9d6e-0d6a3f3a0d00";
    check(
        &rig,
        &[
            ("select postrider.emit('order')", None, ""),
            ("select postrider.emit('order', 'made', 'k')", Some("k"), ""),
            ("select postrider.emit('order', 'made', '42', $json)", Some("42"), JSON),
            ("select postrider.emit('order', 'made', 42, $json)", Some("42"), JSON),
            ("select postrider.emit('order', 'made', 42::smallint, $json::json)", Some("42"), JSON),
            ("select postrider.emit('order', null, 4200000000, $json::text)", Some("4200000000"), JSON),
            ("select postrider.emit('order', null, 4.20, $json::varchar)", Some("4.20"), JSON),
            (&format!("select postrider.emit('order', 'made', '{uuid}'::uuid, $json)"), Some(uuid), JSON),
            ("select postrider.emit('order', 'made', null, $json)", None, JSON),
            ("select postrider.emit('order', payload => $json)", None, JSON),
            ("select postrider.emit(topic => 'order', key => 'k', payload => $json::text)", Some("k"), JSON),
            ("select postrider.emit(topic => 'order', type => 'made', key => 7, payload => $json)", Some("7"), JSON),
            ("select postrider.emit('order', 'made', 'k', $json, '{\"h\": \"v\"}'::json)", Some("k"), JSON),
            ("select postrider.emit('order', payload => '{ \"b\":1,\"a\":2}'::jsonb)", None, "{\"a\": 2, \"b\": 1}"),
            ("select postrider.emit('order', 'made', 'k', null)", Some("k"), ""),
            ("select postrider.emit('order', 'made', 'k', 'null')", Some("k"), "null"),
            ("select postrider.emit('order', 'made', 'k', $json, due_in => '0 s', idempotency_key => 'one')", Some("k"), JSON),
            ("select postrider.emit_bytes('order', 'made', 'k', '\\x7b7d'::bytea)", Some("k"), "{}"),
            ("select postrider.emit_bytes('order', 'made', 42, '\\x7b7d')", Some("42"), "{}"),
            ("select postrider.emit_bytes('order', payload => '\\x7b7d')", None, "{}"),
            (&format!("select postrider.emit_bytes('order', null, '{uuid}'::uuid)"), Some(uuid), ""),
            ("insert into postrider.event (topic, type, key, payload) values ('order', 'made', 42, $json)", Some("42"), JSON),
            ("insert into postrider.event (topic, payload) values ('order', $json::json)", None, JSON),
            ("insert into postrider.event (topic, payload_bytes) values ('order', '\\x7b7d')", None, "{}"),
            ("insert into postrider.event (topic, payload, payload_bytes, headers) values ('order', null, null, null)", None, ""),
        ],
    )
    .await;
}

/// As drivers send them: some name no types, some those of their own language.
async fn parameters_of_every_type_emit_the_same_event(rig: Rig) {
    let client = producer(&rig).await;
    let emit = "select postrider.emit($1, $2, $3, $4)";
    let insert = "insert into postrider.event (topic, type, key, payload) values ($1, $2, $3, $4)";
    let prepared = client.prepare(emit).await.unwrap();
    assert_eq!(
        prepared.params(),
        [Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT],
        "without types all are text"
    );
    client.query(&prepared, &[&"order", &"made", &"42", &JSON]).await.unwrap();
    let prepared = client.prepare(insert).await.unwrap();
    assert_eq!(prepared.params()[3], Type::JSON);
    let typed = [Type::VARCHAR, Type::TEXT, Type::VARCHAR, Type::VARCHAR];
    let prepared = client.prepare_typed(emit, &typed).await.unwrap();
    client.query(&prepared, &[&"order", &"made", &"42", &JSON]).await.unwrap();
    for key in [Type::INT2, Type::INT4, Type::INT8] {
        let prepared =
            client.prepare_typed(emit, &[Type::UNKNOWN, Type::UNKNOWN, key.clone()]).await.unwrap();
        assert_eq!(prepared.params()[2..], [key.clone(), Type::TEXT]);
        match key {
            Type::INT2 => client.query(&prepared, &[&"order", &"made", &42_i16, &JSON]).await,
            Type::INT4 => client.query(&prepared, &[&"order", &"made", &42_i32, &JSON]).await,
            _ => client.query(&prepared, &[&"order", &"made", &42_i64, &JSON]).await,
        }
        .unwrap();
    }
    let events = events(&rig).await;
    assert_eq!(events.len(), 5);
    for event in events {
        assert_eq!((event.kind.as_str(), event.key.unwrap().as_str()), ("made", "42"));
        assert_eq!(event.payload, JSON.as_bytes());
    }
}

async fn what_is_no_json_is_refused_by_the_name_of_its_type(rig: Rig) {
    let client = producer(&rig).await;
    for (sql, says) in [
        ("select postrider.emit('order', 'made', 'k', '\\x7b7d'::bytea)", "cannot cast type bytea to json"),
        ("select postrider.emit('order', 'made', 'k', 42)", "cannot cast type integer to json"),
        ("select postrider.emit('order', 'made', 'k', 'total: 12')", "invalid input syntax for type json"),
        (
            "insert into postrider.event (topic, payload) values ('order', 'total: 12')",
            "invalid input syntax for type json",
        ),
    ] {
        let error = client.batch_execute(sql).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains(says), "{sql}: {error:?}");
    }
    assert_eq!(rig.ids().await.len(), 0);
}

async fn a_type_may_be_left_out(rig: Rig) {
    let client = producer(&rig).await;
    client
        .batch_execute(
            "insert into postrider.event (topic) values ('a.b');
             insert into postrider.event (topic, type) values ('a.b', null);
             select postrider.emit('a.b'); select postrider.emit_bytes('a.b')",
        )
        .await
        .unwrap();
    let store = PostgresStore::open(PostgresOptions::from_url(&rig.database.url).unwrap()).await.unwrap();
    let filter = postrider_core::Filter { types: vec!["a.*".parse().unwrap()], ..Default::default() };
    let found = store.event_list(EventQuery { filter, limit: 10, ..EventQuery::default() }).await.unwrap();
    assert_eq!(found.len(), 4, "a filter by type finds them");
    assert!(found.iter().all(|event| event.kind.as_str() == "a.b"));
}

async fn headers_that_are_null_are_none(rig: Rig) {
    let client = producer(&rig).await;
    for headers in ["null", "'null'", "'{}'", "'{\"x\": null}'"] {
        let insert = format!("insert into postrider.event (topic, headers) values ('order', {headers})");
        client.batch_execute(&insert).await.unwrap();
        let emit = format!(
            "select postrider.emit('order', headers => {headers}, idempotency_key => 'k', replace => true)"
        );
        client.batch_execute(&emit).await.unwrap();
    }
    for event in events(&rig).await {
        let names: Vec<&str> = event.headers.iter().map(|(name, _)| name).collect();
        assert!(matches!(names[..], [] | ["postrider-replaces"]), "{names:?}");
    }
}

async fn sql_keeps_the_limits(rig: Rig) {
    let client = producer(&rig).await;
    for (column, value, says) in [
        ("topic", "repeat('ä', 128)", "topic: 256 bytes, the limit is 255"),
        ("topic", "''", "topic is empty"),
        ("type", "repeat('t', 256)", "type: 256 bytes, the limit is 255"),
        ("type", "''", "type is empty"),
        ("key", "repeat('k', 1025)", "key: 1025 bytes, the limit is 1024"),
        ("key", "repeat(' ', 100000000)", "key: 100000000 bytes, the limit is 1024"),
        ("key", "''", "key is empty"),
        (
            "headers",
            "json_build_object('h', repeat('v', 131072))",
            "headers: 131082 bytes, the limit is 131072",
        ),
        ("payload", "to_json(repeat('p', 1048576))", "payload: 1048578 bytes, the limit is 1048576"),
        ("payload_bytes", "convert_to(repeat('p', 1048577), 'UTF8')", "payload_bytes: 1048577 bytes"),
    ] {
        let payload = if column == "payload_bytes" { "payload" } else { column };
        let bytes = if column == "payload_bytes" { "_bytes" } else { "" };
        let topic = if column == "topic" { "" } else { "topic => 'order', " };
        let emit = format!("select postrider.emit{bytes}({topic}{payload} => {value})");
        let error = client.batch_execute(&emit).await.expect_err(&emit);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code(), &SqlState::CHECK_VIOLATION, "{emit}: {error:?}");
        assert!(error.message().starts_with(says), "{emit}: {}", error.message());
    }
    for (column, value) in [("topic", 256), ("type", 256), ("key", 1025)] {
        let columns = if column == "topic" { "type, topic".to_owned() } else { format!("topic, {column}") };
        let insert =
            format!("insert into postrider.event ({columns}) values ('order', repeat('x', {value}))");
        let error = client.batch_execute(&insert).await.expect_err(&insert);
        assert_eq!(error.code(), Some(&SqlState::STRING_DATA_RIGHT_TRUNCATION), "{insert}");
    }
    assert_eq!(rig.ids().await.len(), 0);
}

/// What the documentation offers to those who want all limits checked.
async fn plain_inserts_can_be_made_to_keep_the_limits(rig: Rig) {
    let client = producer(&rig).await;
    rig.client()
        .await
        .batch_execute(
            "alter table postrider.event add constraint an_event_keeps_its_limits
                 check (postrider.event_fits(topic, type, key, headers, payload, payload_bytes))",
        )
        .await
        .unwrap();
    let both = "insert into postrider.event (topic, payload, payload_bytes) values ('order', '{}', '')";
    let error = client.batch_execute(both).await.unwrap_err();
    assert_eq!(error.as_db_error().unwrap().message(), "an event has a payload or payload_bytes, not both");
    // Also when it comes compressed from another table.
    rig.client()
        .await
        .batch_execute("create table large as select to_json(repeat('p', 2000000)) as payload; grant select on large to public")
        .await
        .unwrap();
    let error = client
        .batch_execute("insert into postrider.event (topic, payload) select 'order', payload from large")
        .await
        .unwrap_err();
    assert!(error.as_db_error().unwrap().message().starts_with("payload: 2000002 bytes"), "{error:?}");
    assert_eq!(rig.ids().await.len(), 0);
}

/// Each limit of the library at once, with what takes the most room when it is stored.
async fn all_that_the_library_accepts_fits(rig: Rig) {
    let name = |n: usize| format!("{n:0>100}");
    let left = limits::HEADERS_BYTES_MAX / limits::HEADERS_MAX - 100;
    let mut event = Event::new("t".repeat(limits::NAME_BYTES_MAX))
        .kind("k".repeat(limits::NAME_BYTES_MAX))
        .key("ä".repeat(limits::KEY_BYTES_MAX / 2))
        .json_text(format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2)));
    for n in 0..limits::HEADERS_MAX {
        event = event.header(name(n), "\u{1}".repeat(left));
    }
    for way in crate::support::Way::EACH {
        way.emit(&rig, vec![event.clone()], crate::support::End::Commit).await.unwrap();
    }
    assert_eq!(rig.ids().await.len(), crate::support::Way::EACH.len());
}
