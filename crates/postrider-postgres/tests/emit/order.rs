//! A transaction's number is fetched before its first id is drawn, and ids come in the order of the events.
//!
//! The opposite of the first is hard to see, because both happen within one statement. So the test locks the
//! sequence: an emit stops where it would draw an id, and the server tells whether it has a number by then.

use std::future::Future;

use postrider_core::Event;

use crate::support::{End, Rig, Way, on_each_version, order};

on_each_version!(
    every_way_fetches_the_xid_before_the_id,
    plain_sql_fetches_the_xid_before_the_id,
    ids_come_in_the_order_of_the_events,
);

/// What a process of the server that waits to draw an id has got so far.
#[derive(Debug, PartialEq, Eq)]
enum Number {
    Fetched,
    Missing,
}

/// Lets `emitting` run until it would draw an id, looks, and lets it finish.
async fn number_before_the_id<T>(rig: &Rig, emitting: impl Future<Output = T>) -> (Number, T) {
    let (observer, holder) = (rig.client().await, rig.client().await);
    holder.batch_execute("begin; alter sequence postrider.event_id_seq increment by 1").await.unwrap();
    let look = async {
        let waiting = "select pid from pg_locks
            where not granted and relation = 'postrider.event_id_seq'::regclass
                and database = (select oid from pg_database where datname = current_database())";
        let pid: i32 = loop {
            if let Some(row) = observer.query_opt(waiting, &[]).await.unwrap() {
                break row.get(0);
            }
        };
        // Asked afterwards: in one statement with the locks it may have been looked up before them.
        let number = "select backend_xid is not null from pg_stat_activity where pid = $1";
        let fetched: bool = observer.query_one(number, &[&pid]).await.unwrap().get(0);
        holder.batch_execute("rollback").await.unwrap();
        if fetched { Number::Fetched } else { Number::Missing }
    };
    tokio::join!(look, emitting)
}

async fn every_way_fetches_the_xid_before_the_id(rig: Rig) {
    let delay = std::time::Duration::from_secs(1);
    for way in Way::EACH {
        let events = vec![order(1), order(2).due_after(delay)];
        let (number, emitted) = number_before_the_id(&rig, way.emit(&rig, events, End::Commit)).await;
        emitted.unwrap();
        assert_eq!(number, Number::Fetched, "{way:?}");
    }
    for way in Way::with_ids() {
        let once = vec![order(1).idempotency_key(format!("{way:?}")), order(2)];
        let (number, emitted) = number_before_the_id(&rig, way.emit(&rig, once, End::Commit)).await;
        emitted.unwrap();
        assert_eq!(number, Number::Fetched, "{way:?} with an idempotency key");
    }
}

/// What applications write by hand, in any language.
async fn plain_sql_fetches_the_xid_before_the_id(rig: Rig) {
    let client = rig.client().await;
    client
        .batch_execute("create table wrong (xid xid8 default pg_current_xact_id(), id bigint)")
        .await
        .unwrap();
    for sql in [
        "insert into postrider.event (topic, type) values ('a', 'b')",
        "insert into postrider.event (topic, type) values ('a', 'b'), ('c', 'd')",
        "insert into postrider.event (topic, type, id) values ('a', 'b', default), ('c', 'd', default)",
        "insert into postrider.event (topic, type) select 'a', n::text from generate_series(1, 3) n",
        "insert into postrider.event (topic, type)
            select 'a', n::text from generate_series(1, 9) n order by md5(n::text)",
        "insert into postrider.event (topic, type)
            select 'a', n::text from generate_series(1, 9) n order by -n limit 3",
        "with x as (insert into postrider.event (topic, type) values ('a', 'b') returning id) select * from x",
        "merge into postrider.event e using (values ('a')) v (topic) on false
            when not matched then insert (topic, type) values (v.topic, 'b')",
        "select postrider.emit('a', 'b')",
        "select postrider.emit('a', 'b', due_in => '1 s', idempotency_key => 'once')",
        "do $$ begin
            begin
                insert into postrider.event (topic, type) values ('a', 'b');
            exception when division_by_zero then null;
            end;
        end $$",
    ] {
        let (number, done) = number_before_the_id(&rig, client.batch_execute(sql)).await;
        done.unwrap();
        assert_eq!(number, Number::Fetched, "{sql}");
    }
    // What shows that the opposite would be seen.
    let wrong = "insert into wrong (id)
        select nextval('postrider.event_id_seq') from generate_series(1, 2) order by 1";
    let (number, done) = number_before_the_id(&rig, client.batch_execute(wrong)).await;
    done.unwrap();
    assert_eq!(number, Number::Missing);
}

async fn ids_come_in_the_order_of_the_events(rig: Rig) {
    for way in Way::EACH {
        // More than fit into one statement, where it is one.
        let count = if [Way::All, Way::Copy, Way::SqlxAll].contains(&way) { 2_100 } else { 50 };
        let events = (0..count).map(|n| Event::new("t").key(format!("{way:?}-{n}"))).collect();
        let ids = way.emit(&rig, events, End::Commit).await.unwrap();
        assert!(ids.is_sorted_by(|a, b| a < b), "{way:?}");
        let sql = "select id, key from postrider.event where key like $1 order by id";
        let rows = rig.client().await.query(sql, &[&format!("{way:?}-%")]).await.unwrap();
        assert_eq!(rows.len(), count);
        for (n, row) in rows.iter().enumerate() {
            assert_eq!(row.get::<_, &str>(1), format!("{way:?}-{n}"));
        }
        let stored: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        assert!(way == Way::Copy || ids.iter().map(|id| id.0).eq(stored), "{way:?}");
    }
}
