//! The primary ends, a standby takes its place, and a relay that follows the write-ahead log goes on there.

use postrider_core::Store;
use postrider_testkit::history::Fault;
use postrider_testkit::postgres::{Pair, Version};
use postrider_testkit::tcp_proxy::Proxy;

use crate::Scene;
use crate::sources::{open, until_streaming_again};

/// Transactions before it and after it.
const COMMITS: usize = 500;
const SLOTS_MADE: &str = "select count(*) from postrider.audit where action = 'slot create'";
const SLOTS_TAKEN: &str = "select count(*) from pg_replication_slots where active and to_jsonb(pg_replication_slots) -> 'synced' = 'true'";

/// Every commit that a writer has seen is delivered, in its order; what was delivered and not settled when
/// the primary ended comes again, and nothing is delivered that the standby has not got. Where standbys take
/// slots over, the relay goes on with the one it had. Elsewhere it reads the table and makes another.
pub(crate) async fn failed_over(version: Version) {
    let pair = Pair::start(version);
    let proxy = Proxy::start(pair.primary.address());
    let scene = Scene::new(pair.primary.create_database().through(proxy.address())).await;
    let there = scene.db.through(pair.standby.address());
    scene.writers.be_patient();
    scene.writers.go_on();
    let store = open(&scene.db).await;
    let before = store.id();
    let changes = async {
        until_streaming_again(&store, 0).await;
        scene.writers.until_committed(COMMITS).await;
        let (_, switches) = store.reading();
        let pair = tokio::task::spawn_blocking(move || {
            let mut pair = pair;
            if version == Version::V18 {
                pair.until_taken_over(1);
            }
            pair.fail_over();
            pair
        });
        let pair = pair.await.unwrap();
        scene.receivers.fault(Fault::CommitUnknown).await;
        proxy.set_target(pair.standby.address());
        proxy.reset_all();
        until_streaming_again(&store, switches + 1).await;
        // Until it noticed that the connection was gone it delivered what it had in memory, and could settle
        // none of it.
        scene.receivers.fault(Fault::CommitUnknown).await;
        scene.writers.until_committed(scene.writers.committed() + COMMITS).await;
        scene.writers.stop();
        pair
    };
    let working = async {
        let (pair, ()) = tokio::join!(changes, scene.writers.run());
        scene.receivers.all_of(scene.writers.emitted().len()).await;
        pair
    };
    let pair = tokio::select! {
        ended = scene.receivers.relay(store.clone()).run(std::future::pending()) => panic!("{ended:?}"),
        pair = working => pair,
    };
    let number = |query: &str| there.query(query)[0][0].as_ref().unwrap().parse::<u32>().unwrap();
    let (made, taken) = (number(SLOTS_MADE), number(SLOTS_TAKEN));
    match version {
        Version::V18 => assert_eq!((made, taken), (1, 1), "it is the one that the primary had"),
        // One that was made and not read up to where it begins is made once more.
        Version::V15 => assert!(made >= 2 && taken == 0, "{made} made, {taken} taken over"),
    }
    assert_ne!(store.id(), before, "it is another store by now");
    println!("{} events", scene.writers.emitted().len());
    scene.receivers.judge(scene.writers.emitted());
    drop(pair);
}
