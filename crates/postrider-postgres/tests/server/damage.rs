//! A database that is older than what was delivered from it.

use postrider_core::{ErrorKind, LogStore, ShardSet, Start, Store};
use postrider_testkit::postgres::Version;

use crate::relay::Witness;
use crate::stage::{Owner, Stage, emit, open};

const DAMAGES: [(&str, &str); 3] = [
    ("the sequence was set back", "select setval('postrider.event_id_seq', 2)"),
    (
        "transactions are yet to come",
        "update postrider.position_a set next_xid = '90000000', to_snapshot = '90000000:90000000:'",
    ),
    ("the last id is yet to come", "update postrider.position_a set last_id = 1000000"),
];

#[tokio::test]
async fn a_position_ahead_of_the_server_is_refused_with_words() {
    for version in Version::ALL {
        for (what, damage) in DAMAGES {
            let stage = Stage::on(version).await;
            let mut owner = stage.owner("orders").await;
            let p = stage.session().await;
            for n in 0..5 {
                emit(&p, "k", &format!("{n}")).await;
            }
            owner.read().await;
            owner.leave().await;
            stage.run(damage);
            let store = open(&stage.db).await;
            let member = store.member_join("ada").await.unwrap();
            let refused = store.shards_take("orders", member, ShardSet::ALL).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{what} on {version:?}");
            assert!(!refused.is_retryable(), "a worker must not go on trying");
            let told = refused.to_string();
            assert!(told.contains("`orders`") && told.contains("subscription seek orders now"), "{told}");
            assert!(store.check().await.unwrap().contains(&told), "check says the same");
            // A relay that ends when all is done ends with it, instead of delivering nothing in silence. One
            // that runs for good tells it again and again, since others of its process go on.
            let ended = Witness::new().relay(store.clone(), 1).run_until_idle(std::future::pending()).await;
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::Corrupt, "{what}");
            // And the advice helps.
            stage.run("truncate postrider.event");
            store.subscription_seek("orders", Start::Now, "ann").await.unwrap();
            let mut owner = Owner::of(&store, "orders").await;
            emit(&p, "k", "new").await;
            assert_eq!(owner.read().await, ["new"], "{what} on {version:?}");
        }
    }
}

#[tokio::test]
async fn a_sequence_with_a_cache_is_reported() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        assert_eq!(stage.store.check().await.unwrap(), [""; 0]);
        stage.run("alter sequence postrider.event_id_seq cache 50");
        let told = stage.store.check().await.unwrap();
        assert!(told.len() == 1 && told[0].contains("set cache 1"), "{told:?} on {version:?}");
    }
}
