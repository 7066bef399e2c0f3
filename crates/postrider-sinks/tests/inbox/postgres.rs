//! An inbox on PostgreSQL.

use std::time::{Duration, Instant};

use postrider_core::{Outcome, Sink};
use postrider_postgres::tokio_postgres;
use postrider_sinks::{InboxSink, SinkOptions};
use postrider_testkit::postgres::{
    Database, Pooler, PoolerSettings, Server, Settings, Startup, Version, shared,
};
use postrider_testkit::receiver::{Received, check_sink};
use postrider_testkit::tcp_proxy::{Counting, Proxy, Side};

use super::carrier::Carrier;
use super::{check_refusals, open, options, send_with_interruptions, unavailable};

fn held(database: &Database) -> Vec<String> {
    let rows = database.query("select dedup_id from postrider_inbox_event order by arrival");
    rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
}

fn count(database: &Database, table: &str) -> String {
    database.query(&format!("select count(*) from {table}")).remove(0).remove(0).unwrap()
}

/// As a receiver does: takes the rows away.
fn take_all(database: &Database) -> Vec<Received> {
    let rows = database.query(
        "with taken as (delete from postrider_inbox_event returning *)
         select encode(payload, 'hex'), headers, dedup_id from taken order by arrival",
    );
    let received = rows.into_iter().map(|row| {
        let [payload, headers, dedup_id] =
            row.try_into().map(|row: [Option<String>; 3]| row.map(Option::unwrap)).unwrap();
        let bytes = payload.as_bytes().chunks(2);
        let payload = bytes.map(|digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap());
        let headers: std::collections::BTreeMap<String, String> = serde_json::from_str(&headers).unwrap();
        Received { payload: payload.collect(), headers: headers.into_iter().collect(), dedup_id }
    });
    received.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_what_every_sink_does() {
    for version in [Version::V15, Version::V18] {
        let database = shared(version).create_database();
        let sink = open(&database.url).await;
        check_sink(&sink, 1_000_000, async |_| take_all(&database)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_again_is_left_out_even_if_its_row_was_taken() {
    let database = shared(Version::V15).create_database();
    database.query("create schema shop");
    let mut options = options(&format!("{}&table=shop.inbox", with_query(&database.url)));
    assert_eq!(options.check().await.unwrap()[1], "would create the tables `shop.inbox` and `inbox_seen`");
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(2, 5);
    let batch = carrier.waiting.clone();
    carrier.send_all(&sink, 10).await;
    database.query("delete from shop.inbox where arrival % 2 = 0");
    assert_eq!(sink.send(batch.clone()).await, vec![Outcome::Ack; 10]);
    assert_eq!(count(&database, "shop.inbox"), "5");
    assert_eq!(options.check().await.unwrap()[1], "delivers into the table `shop.inbox`");
    let row = "select arrival, dedup_id, id, topic, type, key, convert_from(payload, 'UTF8'), headers,
                      extract(epoch from created_at)::bigint, received_at > now() - interval '1 hour', subscription
               from shop.inbox order by arrival limit 1";
    let row: Vec<String> = database.query(row).remove(0).into_iter().map(Option::unwrap).collect();
    let dedup_id = batch[0].dedup_id();
    let expected = [
        "1",
        &dedup_id,
        "1",
        "order",
        "order.created",
        "key-0",
        "{\"total\":1}",
        "{}",
        "1800000000",
        "t",
        "carry",
    ];
    assert_eq!(row, expected);

    // Ids are forgotten when they are old, two for each event that comes, and not before.
    database.query("update shop.inbox_seen set seen_at = seen_at - interval '20 days'");
    carrier.emit(None, b"1");
    carrier.send_all(&sink, 1).await;
    assert_eq!(count(&database, "shop.inbox_seen"), "11");
    options.remember = postrider_core::time::parse_duration("10d").unwrap();
    let forgetful = options.open().await.unwrap();
    carrier.emit(None, b"1");
    carrier.send_all(&forgetful, 1).await;
    assert_eq!(count(&database, "shop.inbox_seen"), "10");
}

/// So that more options can be added with `&`.
fn with_query(url: &str) -> String {
    if url.contains('?') { url.to_owned() } else { format!("{url}?sslmode=disable") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_a_connection_breaks_each_event_is_there_once() {
    let database = shared(Version::V15).create_database();
    let proxy = Proxy::start(database.address());
    let sink = open(&database.through(proxy.address()).url).await;
    let mut carrier = Carrier::with_keys(5, 60);
    carrier.send(&sink, 10).await;
    proxy.count_from_now();
    carrier.send(&sink, 10).await;
    let passed = proxy.passed();
    assert_eq!(carrier.acked.len(), 20);
    for (side, bytes) in [(Side::Client, passed.client), (Side::Server, passed.server)] {
        // From the first byte to the last: before the statement, within it, before its answer and within that.
        for step in 0..6 {
            proxy.cut_after(side, bytes * step / 6, Counting::FromNow);
            let outcomes = carrier.send(&sink, 10).await;
            unavailable(&outcomes[0], "deliver into the inbox");
            if side == Side::Server {
                assert_eq!(held(&database).len(), carrier.acked.len() + 10, "only the answer was lost");
            }
            proxy.heal();
            carrier.send(&sink, 10).await;
        }
    }
    carrier.send_all(&sink, 100).await;
    assert_eq!(carrier.acked.len(), 300);
    assert_eq!(carrier.compare(&held(&database)), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acked_survives_a_crash_though_the_database_commits_asynchronously() {
    // WAL that no commit flushes stays in memory.
    let settings = Settings::honest().set("wal_writer_delay", "10s").set("wal_writer_flush_after", "1GB");
    let mut server = Server::start(Version::V15, settings);
    let database = server.create_database();
    database.query(&format!("alter database {} set synchronous_commit = off", database.name));
    let sink = open(&database.url).await;
    let mut carrier = Carrier::with_keys(10, 30);
    for _ in 0..3 {
        carrier.send(&sink, 50).await;
    }
    server.kill_9();
    assert_eq!(carrier.acked.len(), 150);
    let outcomes = carrier.send(&sink, 50).await;
    unavailable(&outcomes[0], "");
    assert!(outcomes[1..].iter().all(|outcome| *outcome == Outcome::Untried));
    unavailable(&carrier.send(&sink, 50).await[0], "connect");
    server.start_again();
    carrier.send_all(&sink, 50).await;
    assert_eq!(carrier.compare(&held(&database)), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_several_relays_become_visible_in_the_order_of_arrival() {
    let database = shared(Version::V15).create_database();
    let (one, two) = (open(&database.url).await, open(&database.url).await);
    Carrier::with_keys(1, 1).send_all(&one, 1).await;
    // A batch of the key `slow` has its place in the order, and is not committed for as long as the test wants.
    database.query(
        "create function wait() returns trigger language plpgsql
             as $$ begin perform pg_advisory_xact_lock_shared(7); return new; end $$;
         create trigger wait before insert on postrider_inbox_event for each row when (new.key = 'slow') execute function wait()",
    );
    let (gate, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    gate.execute("select pg_advisory_lock(7)", &[]).await.unwrap();
    let send = |sink: InboxSink, key: &'static str| {
        tokio::spawn(async move {
            let mut carrier = Carrier::new();
            carrier.emit(Some(key), b"1");
            carrier.send_all(&sink, 1).await;
        })
    };
    let waiting = |count: usize| {
        let sql = "select 1 from pg_locks where locktype = 'advisory' and not granted
                   and database = (select oid from pg_database where datname = current_database())";
        let until = Instant::now() + Duration::from_secs(30);
        while database.query(sql).len() != count {
            assert!(Instant::now() < until, "nobody waits, though somebody should");
        }
    };
    let slow = send(one, "slow");
    waiting(1);
    let quick = send(two, "quick");
    waiting(2);
    assert_eq!(held(&database).len(), 1, "none of the two is there");
    gate.execute("select pg_advisory_unlock(7)", &[]).await.unwrap();
    slow.await.unwrap();
    quick.await.unwrap();
    let keys = database.query("select key from postrider_inbox_event order by arrival");
    let keys: Vec<_> = keys.into_iter().map(|row| row[0].clone().unwrap()).collect();
    assert_eq!(keys, ["key-0", "slow", "quick"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_refuses_is_dead_and_holds_up_its_key_alone() {
    let database = shared(Version::V15).create_database();
    let sink = open(&database.url).await;
    Carrier::with_keys(1, 1).send_all(&sink, 1).await;
    database.query("delete from postrider_inbox_event");
    database.query("alter table postrider_inbox_event add constraint payload_is_small check (octet_length(payload) < 100)");
    check_refusals(&sink, || held(&database)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_or_database_that_is_not_there_is_waited_for() {
    let database = shared(Version::V15).create_database();
    let absent = database.url.replace(&database.name, "absent");
    let mut carrier = Carrier::with_keys(1, 2);
    let outcomes = carrier.send(&open(&absent).await, 10).await;
    unavailable(&outcomes[0], "does not exist");
    assert_eq!(outcomes[1], Outcome::Untried);
    assert!(options(&absent).check().await.is_err());

    let sink = open(&database.url).await;
    carrier.send(&sink, 1).await;
    database.query("drop table postrider_inbox_event");
    unavailable(&carrier.send(&sink, 1).await[0], "does not exist");
    carrier.send_all(&sink, 1).await;
    assert_eq!(held(&database).len(), 1, "it was made anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_needs_few_rights_and_a_missing_one_is_told() {
    let database = shared(Version::V15).create_database();
    let mut carrier = Carrier::with_keys(3, 4);
    carrier.send(&open(&database.url).await, 3).await;
    let role = format!("relay_{}", database.name);
    database.query(&format!(
        "create role {role} login; grant insert on postrider_inbox_event to {role};
         grant select, insert on postrider_inbox_event_seen to {role}"
    ));
    let sink = open(&database.url.replacen("postgres@", &format!("{role}@"), 1)).await;
    unavailable(&carrier.send(&sink, 3).await[0], "permission denied for table postrider_inbox_event_seen");
    database.query(&format!("grant delete on postrider_inbox_event_seen to {role}"));
    carrier.send_all(&sink, 3).await;
    assert_eq!(carrier.compare(&held(&database)), 0);
    let users =
        database.query("select usename from pg_stat_activity where application_name = 'postrider/inbox'");
    assert!(users.contains(&vec![Some(role)]), "{users:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_through_a_pooler_and_for_sends_that_are_dropped_half_way() {
    let server = shared(Version::V15);
    let pooler = Pooler::start(server, PoolerSettings { sessions: 2, startup: Startup::Refuses });
    let database = server.create_database();
    let carrier = send_with_interruptions(&open(&pooler.database(&database).url).await).await;
    assert_eq!(carrier.compare(&held(&database)), 0);
}
