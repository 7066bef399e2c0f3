//! Transactions that commit long after they began, beside a reader that goes on: what is read is the same whether their
//! rows are looked for by ids or by an index.

use postrider_core::Store;
use postrider_postgres::PostgresStore;
use postrider_testkit::postgres::{Server, Settings, Version};

use crate::stage::{Owner, Stage, emit, options, run};

/// More ids than this between a transaction's beginning and its end are worth a word.
const BUDGET: u32 = 1_000;

const OTHERS: &str = "insert into postrider.event (topic, type, key, payload_bytes)
                      select 'order', 'order', 'p' || n % 10, 'other' from generate_series(1, 1000) as n";

/// More than one read brings.
const MANY: &str = "insert into postrider.event (topic, type, key, payload_bytes)
                    select 'order', 'order', 'a', convert_to('a ' || n, 'utf8') from generate_series(1, 5000) as n";

/// What people are told to run for the first two leaves.
const INDEXES: [&str; 2] = [
    "create index concurrently if not exists event_0_xid on postrider.event_0 (xid, id)",
    "create index concurrently if not exists event_1_xid on postrider.event_1 (xid, id)",
];

/// The log goes on in the next leaf.
const ROTATE: &str = "select setval('postrider.event_id_seq', ((last_value >> 34) + 1) << 34, true) from postrider.event_id_seq";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    Absent,
    Made,
}

/// Two long writers, whose ids are mixed, commit in the middle of a run that goes on. What two subscriptions read: one
/// that follows, and one that comes when all is over.
async fn long_writers(server: &Server, index: Index) -> [Vec<String>; 2] {
    let stage = Stage::in_database(server.create_database()).await;
    let store = PostgresStore::open(options(&stage.db).straggler_budget(BUDGET)).await.unwrap();
    let stage = Stage { store, ..stage };
    if index == Index::Made {
        for statement in INDEXES {
            stage.run(statement);
        }
    }
    let (mut follows, mut comes_last) = (stage.owner("follows").await, stage.owner("comes-last").await);
    let (a, b, p) = (stage.session().await, stage.session().await, stage.session().await);
    run(&a, "begin").await;
    emit(&a, "a", "a 0").await;
    run(&b, "begin").await;
    emit(&b, "b", "b 1").await;
    run(&a, MANY).await;
    emit(&b, "b", "b 2").await;
    let mut read = Vec::new();
    for round in 0..4 {
        run(&p, OTHERS).await;
        read.extend(follows.read().await);
        follows.settle().await.unwrap();
        comes_last.read().await;
        if round == 1 {
            stage.run(ROTATE);
        }
    }
    assert_eq!(read.len(), 4_000, "the long writers delay nobody");
    comes_last.settle().await.unwrap();
    check(&stage, index).await;
    emit(&a, "a", "a last").await;
    run(&a, "commit").await;
    run(&b, "commit").await;
    emit(&p, "p", "after").await;
    let late = follows.read().await;
    run(&p, OTHERS).await;
    let rest = follows.read().await;
    assert_eq!(rest.len(), 1_000, "{index:?}");
    follows.leave().await;
    let mut next = Owner::of(&stage.store, "follows").await;
    assert_eq!(next.read().await, [""; 0], "nothing comes again");
    let last = comes_last.read().await;
    assert_eq!(stage.store.check().await.unwrap(), [""; 0]);
    [late, last]
}

/// What people are told while the writers are open: what to run, unless that was done before they began.
async fn check(stage: &Stage, index: Index) {
    let said = stage.store.check().await.unwrap();
    if index == Index::Made {
        assert_eq!(said, [""; 0]);
        return;
    }
    assert!(said.len() == 1 && said[0].contains("has been open for long"), "{said:?}");
    let advice: Vec<&str> = said[0].split('`').nth(1).unwrap().split("; ").collect();
    assert_eq!(advice, INDEXES, "one for each leaf that was written since");
}

#[tokio::test]
async fn late_events_are_the_same_with_and_without_an_index() {
    for version in Version::ALL {
        // Its own: long transactions of other tests would be told too.
        let server = Server::start(version, Settings::fast());
        let [by_ids, by_ids_last] = long_writers(&server, Index::Absent).await;
        let [by_xid, by_xid_last] = long_writers(&server, Index::Made).await;
        let mut wanted = vec!["a 0".to_owned(), "b 1".to_owned()];
        wanted.extend((1..=5_000).map(|n| format!("a {n}")));
        wanted.extend(["b 2", "a last", "after"].map(str::to_owned));
        assert!(by_ids == wanted, "{version:?}: {} events by ids", by_ids.len());
        assert!(by_xid == wanted, "{version:?}: {} events by transactions", by_xid.len());
        wanted.extend(vec!["other".to_owned(); 1_000]);
        assert!(by_ids_last == wanted, "{version:?}: {} events by ids", by_ids_last.len());
        assert!(by_xid_last == wanted, "{version:?}: {} events by transactions", by_xid_last.len());
    }
}

#[tokio::test]
async fn the_reader_finds_an_index_that_is_made_and_uses_it() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run("create index event_0_xid on postrider.event_0 (xid, id)");
        {
            let store = PostgresStore::open(options(&stage.db).straggler_budget(BUDGET)).await.unwrap();
            store.subscription_create(postrider_core::NewSubscription::new("orders")).await.unwrap();
            let mut owner = Owner::of(&store, "orders").await;
            let (a, p) = (stage.session().await, stage.session().await);
            run(&a, "begin").await;
            emit(&a, "a", "late").await;
            for _ in 0..4 {
                run(&p, OTHERS).await;
                owner.read().await;
            }
            run(&a, "commit").await;
            assert_eq!(owner.read().await, ["late"], "{version:?}");
        }
        // Counts of a session are there when it has ended.
        let used = "select count(*) from pg_stat_user_indexes where indexrelname = 'event_0_xid' and idx_tup_fetch = 1
                    and not exists (select from pg_stat_activity
                                    where datname = current_database() and application_name = 'postrider/reader')";
        crate::stage::until(&stage, used, 1).await;
    }
}
