//! A standby takes over, and with it the slot of messages.

use postrider_postgres::{PostgresStore, Source};
use postrider_testkit::postgres::{Pair, Version};
use postrider_testkit::tcp_proxy::Proxy;

use crate::relay::produce;
use crate::stage::{Stage, options, until};

/// As `relay::LEDGER`, but that events are emitted as messages.
const LEDGER: &str = "
    create table agg (k text primary key, n bigint not null);
    create function numbered(which text) returns text language plpgsql as $$
    declare
        turn bigint;
    begin
        insert into agg values (which, 1) on conflict (k) do update set n = agg.n + 1 returning n into turn;
        return postrider.emit_message_bytes('order', 'order', which, convert_to(turn::text, 'utf8'));
    end $$";
const ALLOWED: &str = "select (last_value > extract(epoch from clock_timestamp()) * 1000)::integer from postrider.message_until";
const EVENTS: &str = "select count(*) from postrider.event";
const EMITTED: &str = "select coalesce(sum(n), 0)::bigint from agg";
/// Events that are not the one of their key which should come here.
const MISPLACED: &str = "select count(*) from (
    select convert_from(payload_bytes, 'utf8')::bigint as n, row_number() over (partition by key order by id) as place
    from postrider.event) as events where n <> place";
const LOST: &str = "select count(*) from postrider.audit where action = 'messages lost'";

#[tokio::test]
async fn a_standby_takes_the_slot_of_messages_over_and_stores_each_once() {
    let pair = Pair::start(Version::V18);
    let proxy = Proxy::start(pair.primary.address());
    let db = pair.primary.create_database().through(proxy.address());
    let store = PostgresStore::open(options(&db).source(Source::Wal)).await.unwrap();
    let there = db.through(pair.standby.address());
    let stage = Stage { db, store };
    stage.run(LEDGER);
    until(&stage, ALLOWED, 1).await;
    let pair = tokio::task::spawn_blocking(move || {
        pair.until_taken_over(1);
        pair
    });
    let mut pair = pair.await.unwrap();
    let writers: Vec<_> =
        (0..4).map(|_| tokio::spawn(produce(stage.db.url.clone(), 1_000, "select"))).collect();
    until(&stage, &format!("select (({EMITTED}) >= 1000)::integer"), 1).await;
    let pair = tokio::task::spawn_blocking(move || {
        pair.fail_over();
        pair
    });
    let pair = pair.await.unwrap();
    let stage = Stage { db: there, store: stage.store };
    let (before, stored) = (stage.number(EMITTED), stage.number(EVENTS));
    assert!(before < 4_000, "writers are at work when it happens: {before}, of which {stored} are stored");
    proxy.set_target(pair.standby.address());
    proxy.reset_all();
    for writer in writers {
        writer.await.unwrap();
    }
    let total = stage.number(EMITTED);
    until(&stage, EVENTS, total).await;
    assert_eq!(stage.number(MISPLACED), 0, "of {total}");
    assert_eq!(stage.number(LOST), 0);
    assert_eq!(stage.number("select count(*) from postrider.audit where action = 'slot create'"), 1);
}
