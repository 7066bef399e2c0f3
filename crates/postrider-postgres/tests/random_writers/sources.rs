//! The write-ahead log and the table take turns at any moment, and no receiver notices.

use std::time::Duration;

use postrider_postgres::{PostgresOptions, PostgresStore, Reading, Source};
use postrider_testkit::postgres::{Database, Server, Settings, Version};

use crate::{Scene, number};

/// How long the stream may take to come back.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn open(db: &Database) -> PostgresStore {
    let options = PostgresOptions::from_url(&db.url).unwrap().source(Source::Wal);
    PostgresStore::open(options.lease(Duration::from_secs(1))).await.unwrap()
}

async fn until_streaming(store: &PostgresStore) {
    until_streaming_again(store, 0).await;
}

/// Waits until events come from the stream, and the source has changed more than so often.
pub(crate) async fn until_streaming_again(store: &PostgresStore, before: u64) {
    let streaming = async {
        while !matches!(store.reading(), (Reading::Stream { .. }, switches) if switches > before) {
            // tidy: sleep because the stream comes back when it can
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let streams = tokio::time::timeout(PATIENCE, streaming).await;
    assert!(streams.is_ok(), "{:?}", store.reading());
}

/// Ends the session that follows the slot. With `and_drop` it drops the slot too.
async fn cut(db: &Database, and_drop: bool) {
    let db = db.clone();
    let cut = move || {
        db.query("select pg_terminate_backend(pid) from pg_stat_replication where application_name = 'postrider/wal'");
        let drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots
                    where database = current_database() and not active";
        // Its follower ends in its own time, and may be followed by the next.
        and_drop && db.try_query(drop).is_ok_and(|rows| !rows.is_empty())
    };
    tokio::task::spawn_blocking(cut).await.unwrap();
}

/// Nothing but the source goes wrong: every event is delivered once, in its order.
pub(crate) async fn switched(version: Version) {
    let server = Server::start(version, Settings::fast().set("wal_level", "logical"));
    let scene = Scene::new(server.create_database()).await;
    scene.writers.go_on();
    let store = open(&scene.db).await;
    let mut rng = fastrand::Rng::with_seed(scene.seed);
    let changes = async {
        for _ in 0..number("POSTRIDER_SWITCHES").unwrap_or(10) {
            until_streaming(&store).await;
            // tidy: sleep because the stream is to end at any moment of what it does
            tokio::time::sleep(Duration::from_millis(rng.u64(0..800))).await;
            cut(&scene.db, rng.bool()).await;
        }
        scene.writers.stop();
    };
    let working = async {
        tokio::join!(changes, scene.writers.run());
        scene.receivers.all_of(scene.writers.emitted().len()).await;
    };
    tokio::select! {
        ended = scene.receivers.relay(store.clone()).run(std::future::pending()) => panic!("{ended:?}"),
        () = working => {}
    }
    let (_, switches) = store.reading();
    println!("{} events, {switches} switches", scene.writers.emitted().len());
    assert!(switches >= 10, "{switches} switches");
    // No fault was noted, so that each repeat would be one too many.
    scene.receivers.judge(scene.writers.emitted());
}
