//! What is emitted is what is stored.

use std::time::{Duration, SystemTime};

use diesel::Connection as _;
use diesel_async::AsyncConnection as _;
use postrider_core::emit::set_trace_source;
use postrider_core::{ErrorKind, Event, NewEvent, Timestamp, emit, limits};
use postrider_postgres::{PostgresOptions, PostgresStore, Prepared, Schema, copy, emit_all};

use crate::support::{End, Rig, TRACED, Way, on_each_version, order};

on_each_version!(
    payloads_come_back_to_the_byte,
    json_comes_back_to_the_letter,
    json_that_is_too_deep_for_the_server_is_refused_in_words,
    topic_type_key_and_headers_come_back,
    delays_count_from_the_emit_and_instants_stay,
    another_schema_has_its_own_events,
    what_was_prepared_elsewhere_says_so,
    events_carry_the_trace_in_which_they_are_emitted,
);

async fn payloads_come_back_to_the_byte(rig: Rig) {
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let payloads: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        (0..=255).collect(),
        vec![0xff, 0xfe, 0xc3, 0x28],
        b"\\x00 \\000 \\N".to_vec(),
        br#""\ud800 \u0000""#.to_vec(),
        b"[1e400, 123456789012345678901234567890.123]".to_vec(),
        nested.into_bytes(),
        b"{\"a\": 1, \"a\": 2,  \"b\":3}".to_vec(),
        vec![7; limits::PAYLOAD_BYTES_MAX],
    ];
    for way in Way::EACH {
        let events = payloads.iter().map(|payload| Event::new("t").payload(payload.clone())).collect();
        way.emit(&rig, events, End::Commit).await.unwrap();
        let client = rig.client().await;
        let sql = "select coalesce(payload_bytes, ''), payload is null from postrider.event order by id";
        let rows = client.query(sql, &[]).await.unwrap();
        assert_eq!(rows.len(), payloads.len());
        for (row, payload) in rows.iter().zip(&payloads) {
            assert!(row.get::<_, &[u8]>(0) == &payload[..], "{way:?}: {} bytes changed", payload.len());
            assert!(row.get::<_, bool>(1), "{way:?}");
        }
        client.batch_execute("truncate postrider.event").await.unwrap();
    }
}

/// In the column that the server knows to be JSON, beside bytes in one statement.
async fn json_comes_back_to_the_letter(rig: Rig) {
    let large = format!("\"{}\"", "\u{ab}".repeat(limits::PAYLOAD_BYTES_MAX / 2 - 1));
    let nested = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let digits = "1234567890".repeat(6);
    let payloads = [
        r#"{"path":"C:\\new"}"#,
        "{\n  \"b\" : 1,\t\"a\":\"it's \\\"quoted\\\"\", \"a\": 2 }\n",
        r#"{"name": "Zoë \u005a", "none": "\u0000", "half": "\ud800"}"#,
        digits.as_str(),
        "[1.10, 1e400, -0]",
        "null",
        "\"\"",
        nested.as_str(),
        large.as_str(),
    ];
    for way in Way::EACH {
        let mut events: Vec<NewEvent> =
            payloads.iter().map(|payload| Event::new("t").json_text(*payload)).collect();
        events.push(Event::new("t").payload(b"\x00".as_slice()));
        events.push(Event::new("t").json(&["a"]).unwrap());
        way.emit(&rig, events, End::Commit).await.unwrap();
        let client = rig.client().await;
        let sql = "select payload::text, payload_bytes from postrider.event order by id";
        let rows = client.query(sql, &[]).await.unwrap();
        let found: Vec<Option<&str>> = rows.iter().map(|row| row.get(0)).collect();
        let mut wanted: Vec<Option<&str>> = payloads.iter().map(|payload| Some(*payload)).collect();
        wanted.extend([None, Some("[\"a\"]")]);
        assert!(found == wanted, "{way:?}");
        let bytes: Vec<&[u8]> = rows.iter().filter_map(|row| row.get(1)).collect();
        assert_eq!(bytes, [b"\x00"], "{way:?}");
        client.batch_execute("truncate postrider.event").await.unwrap();
    }
}

/// What the server cannot take is the insert's error, in words.
async fn json_that_is_too_deep_for_the_server_is_refused_in_words(rig: Rig) {
    for way in Way::LIBRARIES {
        let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
        let error = way.emit(&rig, vec![Event::new("t").json_text(deep)], End::Commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{way:?}: {error}");
        assert!(error.to_string().contains("nested"), "{way:?}: {error}");
    }
    assert_eq!(rig.ids().await.len(), 0);
}

async fn topic_type_key_and_headers_come_back(rig: Rig) {
    let headers = |event: NewEvent| event.header("b", "2 \"ü\" \\ \u{1}").header("a", "");
    for way in Way::EACH {
        let events = vec![
            headers(Event::new("order").kind("order.created").key("ключ, any text\n\t\\")),
            Event::new("invoice"),
            order("k".repeat(limits::KEY_BYTES_MAX)),
        ];
        way.emit(&rig, events.clone(), End::Commit).await.unwrap();
        let client = rig.client().await;
        let sql = "select topic, type, key, headers::text, due_at is null from postrider.event order by id";
        let rows = client.query(sql, &[]).await.unwrap();
        assert_eq!(rows.len(), events.len());
        for (row, event) in rows.iter().zip(&events) {
            assert_eq!(row.get::<_, &str>(0), event.topic().as_str(), "{way:?}");
            assert_eq!(row.get::<_, &str>(1), event.kind_or_topic(), "{way:?}");
            assert_eq!(row.get::<_, Option<&str>>(2), event.ordering_key().map(postrider_core::Key::as_str));
            assert_eq!(row.get::<_, Option<String>>(3), event.headers().to_json(), "{way:?}");
            assert!(row.get::<_, bool>(4), "{way:?}");
        }
        client.batch_execute("truncate postrider.event").await.unwrap();
    }
}

async fn delays_count_from_the_emit_and_instants_stay(rig: Rig) {
    let at = Timestamp::from(SystemTime::now()).after(Duration::from_micros(99_000_001));
    for way in Way::EACH {
        let events = vec![
            order(1).due_after(Duration::from_millis(1_500)),
            order(2).due_at(at),
            order(3).due_after(limits::DUE_AFTER_MAX),
            order(4),
        ];
        way.emit(&rig, events, End::Commit).await.unwrap();
        let client = rig.client().await;
        // The copy counts from its beginning, a little before the row was written.
        let sql = "select (extract(epoch from due_at - created_at) * 1000000)::int8,
                (extract(epoch from due_at) * 1000000)::int8
            from postrider.event order by id";
        let rows = client.query(sql, &[]).await.unwrap();
        let delay = |row: usize| rows[row].get::<_, i64>(0);
        assert!((1_000_000..1_600_000).contains(&delay(0)), "{way:?}: {}", delay(0));
        assert_eq!(rows[1].get::<_, i64>(1), at.as_micros(), "{way:?}");
        let years = limits::DUE_AFTER_MAX.as_micros() as i64;
        assert!((years - 500_000..years + 100_000).contains(&delay(2)), "{way:?}: {}", delay(2));
        assert_eq!(rows[3].get::<_, Option<i64>>(1), None, "{way:?}");
        client.batch_execute("truncate postrider.event").await.unwrap();
    }
}

async fn another_schema_has_its_own_events(rig: Rig) {
    let options = PostgresOptions::from_url(&rig.database.url).unwrap().schema("order").unwrap();
    PostgresStore::open(options).await.unwrap();
    let shop = Schema::new("order").unwrap();
    let mut client = rig.client().await;
    let prepared = shop.prepare(&client).await.unwrap();
    let tx = client.transaction().await.unwrap();
    emit(shop.on(&tx), order(1)).await.unwrap();
    emit(prepared.on(&tx), order(2)).await.unwrap();
    let once = emit(shop.on(&tx), order(3).idempotency_key("once")).await.unwrap();
    assert_eq!(emit(prepared.on(&tx), order(3).idempotency_key("once")).await.unwrap(), once);
    emit_all(shop.on(&tx), vec![order(4)]).await.unwrap();
    emit_all(prepared.on(&tx), vec![order(5)]).await.unwrap();
    copy(shop.on(&tx), [order(6)]).await.unwrap();
    tx.execute("select \"order\".emit('order', 'order.created', due_in => '1 s')", &[]).await.unwrap();
    tx.commit().await.unwrap();
    let mut sqlx = rig.sqlx().await;
    emit(shop.on(&mut sqlx), order(7)).await.unwrap();
    let mut diesel = diesel_async::AsyncPgConnection::establish(&rig.database.url).await.unwrap();
    emit(shop.on(&mut diesel), order(8)).await.unwrap();
    emit_all(shop.on(&mut diesel), vec![order(9)]).await.unwrap();
    let sea_orm = sea_orm::Database::connect(&rig.database.url).await.unwrap();
    emit(shop.on(&sea_orm), order(10)).await.unwrap();
    let url = rig.database.url.clone();
    let blocking = move || {
        let (mut diesel, shop) =
            (diesel::PgConnection::establish(&url).unwrap(), Schema::new("order").unwrap());
        emit(shop.on(&mut diesel), order(11)).unwrap();
        emit_all(shop.on(&mut diesel), vec![order(12)]).unwrap();
    };
    tokio::task::spawn_blocking(blocking).await.unwrap();
    assert_eq!(rig.ids().await, []);
    let sql = "select count(*), (select count(*) from \"order\".idempotency) from \"order\".event";
    let row = client.query_one(sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (13, 1));
}

async fn what_was_prepared_elsewhere_says_so(rig: Rig) {
    let (one, mut two) = (rig.client().await, rig.client().await);
    let prepared = Prepared::new(&one).await.unwrap();
    let tx = two.transaction().await.unwrap();
    let error = emit(prepared.on(&tx), order(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("prepared on another connection"), "{error}");
}

async fn events_carry_the_trace_in_which_they_are_emitted(rig: Rig) {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    set_trace_source(|| TRACED.try_with(|()| TRACE.to_owned()).ok());
    let emitted = async {
        for way in Way::EACH {
            way.emit(&rig, vec![order(1)], End::Commit).await.unwrap();
        }
    };
    TRACED.scope((), emitted).await;
    let sql = "select count(*) from postrider.event where headers ->> 'traceparent' = $1";
    let count: i64 = rig.client().await.query_one(sql, &[&TRACE]).await.unwrap().get(0);
    assert_eq!(count, Way::EACH.len() as i64);
}
