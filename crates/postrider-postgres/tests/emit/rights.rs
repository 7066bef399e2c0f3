//! A producer can emit and nothing else, and no role can make the function `emit` do anything else.

use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use postrider_core::{ErrorKind, emit};
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::tokio_postgres::error::SqlState;
use postrider_postgres::{Prepared, copy, emit_all, producer_grants};
use postrider_testkit::postgres::{Version, shared};

use crate::support::{End, Rig, Way, on_each_version, order};

on_each_version!(
    a_producer_can_emit_every_way,
    a_producer_can_neither_choose_ids_nor_read_events,
    without_grants_nothing_can_be_emitted,
    execute_alone_is_enough_for_the_function,
    the_function_cannot_be_hijacked,
);

/// A role of this test's own. Roles belong to the whole server.
async fn role_of(rig: &Rig, kind: &str) -> String {
    let role = format!("{kind}-{}", rig.database.name);
    rig.client().await.batch_execute(&format!("create role \"{role}\" login")).await.unwrap();
    role
}

async fn producer(rig: &Rig) -> Client {
    let role = role_of(rig, "Producer").await;
    let grants = producer_grants("postrider", &role).unwrap();
    rig.client().await.batch_execute(&grants).await.unwrap();
    rig.client_of(&role).await
}

async fn refused(client: &Client, sql: &str) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {error:?}");
}

async fn a_producer_can_emit_every_way(rig: Rig) {
    let mut client = producer(&rig).await;
    let prepared = Prepared::new(&client).await.unwrap();
    let tx = client.transaction().await.unwrap();
    let once = order(2).idempotency_key("once");
    let ids = [
        emit(&tx, order(1).due_after(std::time::Duration::from_secs(1))).await.unwrap(),
        emit(&tx, once.clone()).await.unwrap(),
        emit(prepared.on(&tx), order(3)).await.unwrap(),
        emit_all(&tx, vec![order(4).header("a", "b")]).await.unwrap()[0],
    ];
    assert_eq!(emit(prepared.on(&tx), once).await.unwrap(), ids[1]);
    copy(&tx, [order(5)]).await.unwrap();
    let insert = "insert into postrider.event (topic, type) values ('a', 'b'), ('c', 'd') returning id";
    assert_eq!(tx.query(insert, &[]).await.unwrap().len(), 2);
    let mut sink = Box::pin(tx.copy_in("copy postrider.event (topic, type) from stdin").await.unwrap());
    sink.send(Bytes::from("a\tb\n")).await.unwrap();
    assert_eq!(sink.as_mut().finish().await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(rig.ids().await.len(), 8);
}

async fn a_producer_can_neither_choose_ids_nor_read_events(rig: Rig) {
    let client = producer(&rig).await;
    client.batch_execute("insert into postrider.event (topic, type) values ('a', 'b')").await.unwrap();
    for sql in [
        "insert into postrider.event (topic, type, id) overriding system value values ('a', 'b', 7)",
        "insert into postrider.event (topic, type, xid) values ('a', 'b', '7')",
        "insert into postrider.event (topic, type, created_at) values ('a', 'b', now())",
        "copy postrider.event (topic, type, id) from stdin",
        "copy postrider.event (topic, type, xid) from stdin",
        "copy postrider.event from stdin",
        "select payload from postrider.event",
        "select * from postrider.event",
        "select xid from postrider.event",
        "insert into postrider.event (topic, type) values ('a', 'b') returning payload",
        "update postrider.event set topic = 'c'",
        "delete from postrider.event",
        "truncate postrider.event",
        "insert into postrider.event_0 (topic, type) values ('a', 'b')",
        "select id from postrider.event_0",
        "select nextval('postrider.event_id_seq')",
        "select setval('postrider.event_id_seq', 1)",
        "select last_value from postrider.event_id_seq",
        "select * from postrider.idempotency",
        "insert into postrider.idempotency (key) values ('once')",
        "update postrider.meta set value = ''",
        "select * from postrider.subscription",
        "create table postrider.mine (a int)",
    ] {
        refused(&client, sql).await;
    }
    // `generated always` refuses this even to those who may write the column.
    let chosen = "insert into postrider.event (topic, type, id) values ('a', 'b', 7)";
    client.batch_execute(chosen).await.unwrap_err();
    let ids: i64 = client.query_one("select count(id) from postrider.event", &[]).await.unwrap().get(0);
    assert_eq!(ids, 1, "ids may be read, which `returning id` needs");
}

async fn without_grants_nothing_can_be_emitted(rig: Rig) {
    let role = role_of(&rig, "stranger").await;
    let mut client = rig.client_of(&role).await;
    let error = emit(&client.transaction().await.unwrap(), order(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    let usage = format!("grant usage on schema postrider to \"{role}\"");
    rig.client().await.batch_execute(&usage).await.unwrap();
    refused(&client, "select postrider.emit('a', 'b')").await;
    refused(&client, "insert into postrider.event (topic, type) values ('a', 'b')").await;
}

async fn execute_alone_is_enough_for_the_function(rig: Rig) {
    let role = role_of(&rig, "caller").await;
    let grants = format!(
        "grant usage on schema postrider to \"{role}\";
         grant execute on function postrider.event_emit,
             postrider.emit(text, text, text, anycompatiblenonarray, json, interval, text, timestamptz, interval, boolean)
             to \"{role}\""
    );
    rig.client().await.batch_execute(&grants).await.unwrap();
    let client = rig.client_of(&role).await;
    let sql = "select postrider.emit('order', 'order.created', '42', '{\"a\":1}', '{\"b\":\"c\"}', '1 minute', 'once')";
    let first: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    let again: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(first, again);
    let sql = "select topic, type, key, payload::text, headers ->> 'b',
            due_at - created_at between '59 s' and '61 s', created_at > now() - interval '1 minute'
        from postrider.event";
    let row = rig.client().await.query_one(sql, &[]).await.unwrap();
    let texts: Vec<&str> = (0..5).map(|column| row.get(column)).collect();
    assert_eq!(texts, ["order", "order.created", "42", "{\"a\":1}", "c"]);
    assert!(row.get::<_, bool>(5) && row.get::<_, bool>(6));
    // An instant instead of a delay, and nothing but what is needed.
    client.batch_execute("select postrider.emit('a', 'b', due_at => '2100-01-01')").await.unwrap();
    let null = client.batch_execute("select postrider.emit(null, 'b', idempotency_key => 'other')").await;
    assert_eq!(null.unwrap_err().code(), Some(&SqlState::NOT_NULL_VIOLATION));
    refused(&client, "insert into postrider.event (topic, type) values ('a', 'b')").await;
    refused(&client, "select id from postrider.event").await;
}

async fn the_function_cannot_be_hijacked(rig: Rig) {
    let role = role_of(&rig, "attacker").await;
    let owner = rig.client().await;
    owner.batch_execute(&producer_grants("postrider", &role).unwrap()).await.unwrap();
    owner.batch_execute(&format!("create schema trap authorization \"{role}\"")).await.unwrap();
    let client = rig.client_of(&role).await;
    // Everything that the function names, under the same names and to be found first; whatever is called fails.
    client
        .batch_execute(
            "create function trap.sprung(text, text) returns boolean language plpgsql as
                $$ begin raise exception 'the trap has sprung as %', current_user; end $$;
            create function trap.sprung(timestamptz, interval) returns timestamptz language plpgsql as
                $$ begin raise exception 'the trap has sprung as %', current_user; end $$;
            create operator trap.= (function = trap.sprung, leftarg = text, rightarg = text);
            create operator trap.+ (function = trap.sprung, leftarg = timestamptz, rightarg = interval);
            create function trap.clock() returns timestamptz language plpgsql as
                $$ begin raise exception 'the trap has sprung as %', current_user; end $$;
            create function trap.clock_timestamp() returns timestamptz language plpgsql as
                $$ begin raise exception 'the trap has sprung as %', current_user; end $$;
            create function trap.pg_current_xact_id() returns xid8 language plpgsql as
                $$ begin raise exception 'the trap has sprung as %', current_user; end $$;
            create table trap.event (topic text, type text, key text, payload json, payload_bytes bytea, headers json, due_at timestamptz, id int);
            create table trap.idempotency (key text primary key, event_id bigint);
            create temp table event (like trap.event);
            create temp table idempotency (like trap.idempotency including all);
            create domain pg_temp.text as pg_catalog.text check (false);
            create domain pg_temp.bigint as pg_catalog.int8 check (false);
            set search_path = pg_temp, trap, pg_catalog",
        )
        .await
        .unwrap();
    client
        .batch_execute(
            "select postrider.emit('a'::pg_catalog.text, 'b', due_in => '1 s', idempotency_key => 'once');
            select postrider.emit('a'::pg_catalog.text, 'b', due_in => '1 s', idempotency_key => 'once');
            insert into postrider.event (topic, type) values ('a', 'b')",
        )
        .await
        .unwrap();
    assert_eq!(rig.ids().await.len(), 2);
    let sql = "select (select count(*) from trap.event) + (select count(*) from trap.idempotency)
        + (select count(*) from pg_temp.event) + (select count(*) from pg_temp.idempotency)";
    assert_eq!(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
}

/// Of two functions of one name the better match is called, in whichever schema of the path it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_planted_is_not_called() {
    let database = shared(Version::V15).create_database();
    database.query(include_str!("../planted/scripts/plant.sql"));
    let rig = Rig::on(database).await;
    for way in Way::EACH {
        let events = || vec![order(1), order(2).due_after(Duration::from_secs(1))];
        way.emit(&rig, events(), End::Commit).await.unwrap();
        if way != Way::Copy {
            let keyed = vec![order(3).idempotency_key(format!("{way:?}"))];
            way.emit(&rig, keyed, End::Commit).await.unwrap();
        }
    }
    let called = rig.database.query("select is_called from public.planted_call");
    assert_eq!(called, [[Some("f".to_owned())]]);
}
