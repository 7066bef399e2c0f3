//! Each visible event is delivered, once and in the order of its key, whatever other writers there are.

use bytes::BytesMut;
use postrider_core::{NewSubscription, Store};
use postrider_postgres::tokio_postgres::Client;
use postrider_postgres::tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use postrider_testkit::postgres::{Version, shared};

use crate::stage::{AMPLE, Owner, Stage, connect, emit, run};

const TABLES: &str = "create table agg (k text primary key, n int not null default 0);
                      insert into agg values ('k'), ('other')";

#[tokio::test]
async fn a_lower_id_that_commits_later_is_delivered() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let (a, b) = (stage.session().await, stage.session().await);
        run(&a, "begin").await;
        let low = emit(&a, "a", "low").await;
        let high = emit(&b, "b", "high").await;
        assert!(low < high);
        assert_eq!(owner.read().await, ["high"]);
        run(&a, "commit").await;
        assert_eq!(owner.read().await, ["low"], "{version:?}");
        assert_eq!(owner.read().await, [""; 0]);
    }
}

/// Other subscriptions get from memory the events that one has read; memory ends where that one has looked.
/// A subscription stays where it is only when the server has said that nothing is new.
#[tokio::test]
async fn whoever_stays_where_it_is_has_read_all_that_was_committed() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.store.subscription_create(NewSubscription::new("few").topic("rare").unwrap()).await.unwrap();
        let mut few = Owner::of(&stage.store, "few").await;
        let mut all = stage.owner("all").await;
        let p = stage.session().await;
        let mut ends = 0;
        for round in 0..30 {
            emit(&p, "k", "not wanted").await;
            // The rare one of the last round, and this.
            assert_eq!(
                to_the_end(&mut all).await.0,
                if round == 0 { 1 } else { 2 },
                "round {round} on {version:?}"
            );
            run(&p, "insert into postrider.event (topic, type) values ('rare', 'rare')").await;
            let (read, seeming) = to_the_end(&mut few).await;
            assert_eq!(read, 1, "round {round} on {version:?}");
            ends += seeming;
        }
        assert!(ends > 0, "nothing was given from memory on {version:?}");
    }
}

/// Reads until it stays where it is. How many events there were, and how often it might have seemed to be the
/// end before.
async fn to_the_end(owner: &mut Owner) -> (usize, usize) {
    let (mut read, mut seeming) = (0, 0);
    loop {
        let before = owner.at;
        let chunk = owner.step(AMPLE).await.unwrap();
        if chunk.is_empty_at(before) {
            return (read, seeming);
        }
        read += chunk.events.len();
        seeming += usize::from(chunk.events.is_empty() && !chunk.more);
    }
}

/// Ways in which a session keeps a transaction open.
async fn hold_open(stage: &Stage, a: &Client, way: &str) {
    match way {
        "emitted" => {
            run(a, "begin").await;
            emit(a, "a", "held").await;
        }
        "prepared" => {
            run(a, "begin").await;
            emit(a, "a", "held").await;
            run(a, "prepare transaction 'held'").await;
        }
        "for update" => run(a, "begin; select from agg where k = 'other' for update").await,
        "another database" => run(a, "begin; create table held (n int); insert into held values (1)").await,
        other => panic!("nobody holds a transaction open by {other} in {}", stage.db.name),
    }
}

#[tokio::test]
async fn an_open_transaction_delays_nobody_else() {
    for version in Version::ALL {
        for way in ["emitted", "prepared", "for update", "another database"] {
            let stage = Stage::on(version).await;
            stage.run(TABLES);
            let elsewhere = shared(version).create_database();
            let a = connect(if way == "another database" { &elsewhere.url } else { &stage.db.url }).await;
            let mut owner = stage.owner("orders").await;
            hold_open(&stage, &a, way).await;
            let p = stage.session().await;
            for n in 0..3 {
                emit(&p, "p", &format!("free {n}")).await;
                assert_eq!(owner.read().await, [format!("free {n}")], "{way} on {version:?}");
            }
            owner.settle().await.unwrap();
            run(&a, if way == "prepared" { "commit prepared 'held'" } else { "commit" }).await;
            let held: &[&str] = if matches!(way, "emitted" | "prepared") { &["held"] } else { &[] };
            assert_eq!(owner.read().await, held, "{way} on {version:?}");
        }
    }
}

/// Emits under the lock of the key's row, as producers do.
async fn emit_locked(session: &Client, note: &str) {
    run(session, "update agg set n = n + 1 where k = 'k'").await;
    emit(session, "k", note).await;
}

#[tokio::test]
async fn an_early_xid_and_a_late_write_keep_the_order_of_the_key() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(TABLES);
        let (a, b) = (stage.session().await, stage.session().await);
        run(&a, "begin; select pg_current_xact_id()").await;
        run(&b, "begin").await;
        emit_locked(&b, "1st").await;
        run(&b, "commit").await;
        emit_locked(&a, "2nd").await;
        run(&a, "commit").await;
        let mut owner = stage.owner("orders").await;
        assert_eq!(owner.read().await, ["1st", "2nd"], "{version:?}");
    }
}

#[tokio::test]
async fn no_window_is_cut_between_an_event_and_what_came_before_it() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(TABLES);
        let mut owner = stage.owner("orders").await;
        let (a, b, c) = (stage.session().await, stage.session().await, stage.session().await);
        run(&a, "begin; select pg_current_xact_id()").await;
        run(&c, "begin; select pg_current_xact_id()").await;
        run(&b, "begin").await;
        emit_locked(&b, "1st").await;
        // While the first is not committed, and c runs between the two.
        assert_eq!(owner.read().await, [""; 0]);
        run(&b, "commit").await;
        let between = owner.read().await;
        emit_locked(&a, "2nd").await;
        run(&a, "commit").await;
        let after = owner.read().await;
        run(&c, "commit").await;
        assert_eq!((between, after), (vec!["1st".to_owned()], vec!["2nd".to_owned()]), "{version:?}");
        assert_eq!(owner.read().await, [""; 0]);
    }
}

/// Why the rule is to lock first: ids say who emitted first, not who came first.
#[tokio::test]
async fn an_event_that_is_emitted_before_its_lock_comes_out_of_order() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(TABLES);
        let mut owner = stage.owner("orders").await;
        let (a, b) = (stage.session().await, stage.session().await);
        run(&a, "begin").await;
        emit(&a, "k", "changes last").await;
        run(&b, "begin").await;
        emit_locked(&b, "changes first").await;
        run(&b, "commit").await;
        run(&a, "update agg set n = n + 1 where k = 'k'; commit").await;
        assert_eq!(owner.read().await, ["changes last", "changes first"], "{version:?}");
    }
}

/// What an ORM needs that flushes inserts before updates.
#[tokio::test]
async fn a_version_check_keeps_the_order_of_events_that_are_emitted_before_their_lock() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(TABLES);
        let mut owner = stage.owner("orders").await;
        let (a, b) = (stage.session().await, stage.session().await);
        let mut won = 0;
        for (session, note) in [(&a, "loses"), (&b, "wins")] {
            run(session, "begin; select n from agg where k = 'k'").await;
            emit(session, "k", note).await;
        }
        for session in [&b, &a] {
            let updated =
                session.execute("update agg set n = n + 1 where k = 'k' and n = 0", &[]).await.unwrap();
            run(session, if updated == 1 { "commit" } else { "rollback" }).await;
            won += updated;
        }
        assert_eq!((won, owner.read().await), (1, vec!["wins".to_owned()]), "{version:?}");
    }
}

/// Why the sequence keeps no cache: each session would draw from a block of its own.
#[tokio::test]
async fn a_cache_of_ids_inverts_a_key_and_check_says_so() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(TABLES);
        stage.run("alter sequence postrider.event_id_seq cache 50");
        let mut owner = stage.owner("orders").await;
        let (a, b) = (stage.session().await, stage.session().await);
        emit(&a, "other", "a has a block").await;
        for (session, note) in [(&b, "1st"), (&a, "2nd")] {
            run(session, "begin").await;
            emit_locked(session, note).await;
            run(session, "commit").await;
        }
        assert_eq!(owner.read().await, ["a has a block", "2nd", "1st"], "{version:?}");
        let said = stage.store.check().await.unwrap();
        assert!(said.iter().any(|line| line.contains("set cache 1")), "{said:?}");
    }
}

#[tokio::test]
async fn two_producers_of_one_topic_never_wait_for_each_other() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let (a, b) = (stage.session().await, stage.session().await);
        run(&a, "begin").await;
        emit(&a, "k", "open").await;
        // Would fail at once if it had to wait for the other's lock.
        run(&b, "set lock_timeout = '1ms'").await;
        emit(&b, "k", "free").await;
        assert_eq!(owner.read().await, ["free"]);
        assert_eq!(stage.number("select count(*) from pg_locks where not granted"), 0, "{version:?}");
        run(&a, "rollback").await;
    }
}

#[tokio::test]
async fn what_savepoints_keep_is_delivered_and_what_they_undo_is_not() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let a = stage.session().await;
        run(&a, "begin").await;
        emit(&a, "a", "outer").await;
        run(&a, "savepoint one").await;
        emit(&a, "a", "undone").await;
        run(&a, "rollback to one; savepoint two").await;
        emit(&a, "a", "kept").await;
        run(&a, "release two").await;
        assert_eq!(owner.read().await, [""; 0]);
        run(&a, "commit").await;
        assert_eq!(owner.read().await, ["outer", "kept"], "{version:?}");
        assert_eq!(owner.read().await, [""; 0]);
    }
}

#[tokio::test]
async fn twenty_thousand_subtransactions_delay_nobody() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let (a, p) = (stage.session().await, stage.session().await);
        run(&a, "begin").await;
        emit(&a, "a", "first").await;
        for round in 0..4 {
            run(
                &a,
                "create temporary table if not exists sub (n int);
                 do $$ begin for n in 1..5000 loop begin insert into sub values (n); exception when others then null;
                 end; end loop; end $$",
            )
            .await;
            emit(&p, "p", &format!("free {round}")).await;
            assert_eq!(owner.read().await, [format!("free {round}")], "{version:?}");
        }
        emit(&a, "a", "last").await;
        run(&a, "commit").await;
        assert_eq!(owner.read().await, ["first", "last"], "{version:?}");
        owner.leave().await;
        let mut next = crate::stage::Owner::of(&stage.store, "orders").await;
        assert_eq!(next.read().await, [""; 0], "nothing comes again");
    }
}

#[tokio::test]
async fn gaps_and_rollbacks_stop_nobody() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let a = stage.session().await;
        let (mut expected, mut read) = (Vec::new(), Vec::new());
        for n in 0..300 {
            let note = format!("{n}");
            run(&a, "begin").await;
            emit(&a, &format!("k{}", n % 7), &note).await;
            if n % 10 < 3 {
                run(&a, "rollback").await;
            } else {
                run(&a, "commit").await;
                expected.push(note);
            }
            if n % 17 == 0 {
                run(&a, "select nextval('postrider.event_id_seq') from generate_series(1, 50)").await;
                read.extend(owner.read().await);
            }
        }
        read.extend(owner.read().await);
        assert_eq!(read, expected, "{version:?}");
    }
}

#[tokio::test]
async fn a_long_writer_delays_nobody_and_is_delivered_once_when_it_commits() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(TABLES);
        let mut owner = stage.owner("orders").await;
        let (long, p) = (stage.session().await, stage.session().await);
        run(&long, "begin").await;
        emit(&long, "long", "long 1").await;
        emit_locked(&long, "k 1").await;
        let mut others = 0;
        for _ in 0..13 {
            run(
                &p,
                "insert into postrider.event (topic, type, key, payload_bytes)
                 select 'order', 'order', 'p' || n % 10, 'other' from generate_series(1, 1000) as n",
            )
            .await;
            others += owner.read().await.len();
            owner.settle().await.unwrap();
        }
        assert_eq!(others, 13_000, "{version:?}");
        emit(&long, "long", "long 2").await;
        run(&long, "commit").await;
        run(&p, "begin").await;
        emit_locked(&p, "k 2").await;
        run(&p, "commit").await;
        assert_eq!(owner.read().await, ["long 1", "k 1", "long 2", "k 2"], "{version:?}");
        owner.leave().await;
        assert_eq!(crate::stage::Owner::of(&stage.store, "orders").await.read().await, [""; 0]);
    }
}

/// At every 32nd draw a sequence's row says for a moment that 32 more were drawn. A reader without its lock
/// believes that, and passes over the events that get these ids.
#[tokio::test]
async fn ids_that_are_not_drawn_yet_are_not_taken_for_drawn() {
    let cut = format!("({})", include_str!("../../sql/server/event_cut.sql"));
    let look = include_str!("../../sql/log/event_look.sql")
        .replace("postrider.event_cut", &cut)
        .replace("event_leaf", "event_0");
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run("select nextval('postrider.event_id_seq')");
        let mut drawing = Vec::new();
        for _ in 0..2 {
            let p = stage.session().await;
            drawing.push(tokio::spawn(async move {
                run(&p, "select count(nextval('postrider.event_id_seq')) from generate_series(1, 1000000)")
                    .await;
            }));
        }
        let reader = stage.session().await;
        let probe = reader.prepare(&and_then(include_str!("../../sql/log/probe.sql"))).await.unwrap();
        let look = reader.prepare(&and_then(&look)).await.unwrap();
        let snapshot = "select pg_current_snapshot()";
        let snapshot = reader.query_one(snapshot, &[]).await.unwrap().get::<_, AnyValue>(0);
        while drawing.iter().any(|drawing| !drawing.is_finished()) {
            let probed = reader.query_one(&probe, &[&1_i64]).await.unwrap();
            let parameters: [&(dyn ToSql + Sync); 5] = [&0_i64, &i64::MAX, &snapshot, &10_i64, &1_i64];
            let looked = reader.query_one(&look, &parameters).await.unwrap();
            for found in [probed, looked] {
                let (seen, drawn): (i64, i64) = (found.get(0), found.get(1));
                assert!(seen <= drawn, "{seen} of {drawn} on {version:?}");
            }
        }
        for drawing in drawing {
            drawing.await.unwrap();
        }
    }
}

/// What a statement says about the sequence, and what is true right after it.
fn and_then(statement: &str) -> String {
    format!(
        "with found as materialized ({statement})
         select last_value, pg_sequence_last_value('postrider.event_id_seq') from found"
    )
}

/// A value of the server's that is only handed back.
#[derive(Debug)]
struct AnyValue(Vec<u8>);

impl<'a> FromSql<'a> for AnyValue {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for AnyValue {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
