//! Moving, pausing and deleting a subscription.

use std::time::Duration;

use postrider_core::{DeliveryState, ErrorKind, EventId, Start, Store, Tuning};

use crate::scene::{Row, Scene};

/// Makes a member hold all shards, as taking them does.
fn hold(scene: &Scene) {
    scene.run(
        "insert into postrider.member (name, joined_at, beat_at, steady_since, lease, version)
             values ('test', postrider.clock(), postrider.clock(), postrider.clock(), interval '8 s', 1);
         update postrider.shard set member_id = (select max(id) from postrider.member), epoch = epoch + 1",
    );
}

fn fence(scene: &Scene) -> i64 {
    scene.number("select fence from postrider.subscription")
}

#[tokio::test]
async fn a_seek_fences_the_owner_and_takes_only_the_rows_above() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let ids = scene.emit(&["a", "b", "a", "b"]).await;
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    hold(&scene);
    let before = fence(&scene);
    // The head of the late lane lies above the new position, and what waits behind it below.
    let late = |row: Row<'static>, turn| Row { late: true, turn: Some(turn), ..row };
    scene.put("mail", &late(Row::head(ids[2], "a"), 1));
    scene.put("mail", &late(Row::waiting(ids[0], "a"), 2));
    scene.put("mail", &Row::head(ids[3], "b"));
    let to = scene.store.subscription_seek("mail", Start::Id(ids[1]), "ann").await.unwrap();
    assert_eq!((to.window, to.last_id), (0, ids[0]));
    assert_eq!(scene.check().await, Vec::<String>::new());
    assert_eq!(
        scene.unread("mail", &ids).await,
        ids,
        "the first has a row that is due, the others are read again"
    );
    assert!(scene.stands("mail", ids[0]).await.due_at.is_some());
    assert_eq!(scene.number("select count(*) from postrider.delivery"), 1);
    assert_eq!(
        scene.number("select count(*) from postrider.shard where member_id is null and epoch = 3"),
        64
    );
    assert!(fence(&scene) > before);
    let report = scene.store.subscription_report("mail").await.unwrap();
    assert!(report.shards.iter().all(|shard| shard.position == to && shard.epoch.0 == 3));
    let audit =
        "select string_agg(actor || ': ' || action || ' ' || detail, '; ' order by id) from postrider.audit";
    assert_eq!(scene.text(audit), "ann: subscription_seek from 0 to 4; ann: subscription_seek from 4 to 1");
}

#[tokio::test]
async fn a_seek_to_now_keeps_every_row_and_reaps_what_was_handed_out() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let ids = scene.emit(&["a", "a", "b"]).await;
    hold(&scene);
    scene.put("mail", &Row { state: DeliveryState::Leased, due_in: None, ..Row::head(ids[0], "a") });
    scene.put("mail", &Row::waiting(ids[1], "a"));
    scene.put("mail", &Row::dead(ids[2], "b"));
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    let report = scene.store.subscription_report("mail").await.unwrap();
    assert_eq!((report.pending, report.leased, report.dead, report.lag_events), (2, 0, 1, 0));
    assert_eq!(scene.stands("mail", ids[1]).await.behind, Some(ids[0]));
}

#[tokio::test]
async fn a_row_whose_leaf_was_emptied_survives_a_seek_to_the_beginning() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let ids = scene.emit(&["a", "b", "c"]).await;
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    scene.put("mail", &Row::dead(ids[1], "b"));
    scene.rotate();
    scene.empty_leaf(0, &[ids[1]]);
    let later = scene.emit(&["a"]).await;
    scene.put("mail", &Row::dead(later[0], "a"));
    scene.store.subscription_seek("mail", Start::Oldest, "ann").await.unwrap();
    assert_eq!(
        scene.text("select string_agg(event_id::text, ',') from postrider.delivery"),
        ids[1].to_string()
    );
    assert_eq!(scene.stands("mail", ids[1]).await.state, DeliveryState::Dead);
    assert_eq!(scene.lag("mail").await.0, 1);
    assert_eq!(scene.check().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_seek_comes_after_the_settles_that_run() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let id = scene.subscription_id("mail");
    let settle = scene.client().await;
    settle.batch_execute("begin").await.unwrap();
    let lock = format!(
        "select pg_advisory_xact_lock_shared(('postrider.shard'::regclass::oid::bigint << 32) | {id})"
    );
    settle.batch_execute(&lock).await.unwrap();
    let store = scene.store.clone();
    let seek = tokio::spawn(async move { store.subscription_seek("mail", Start::Now, "ann").await });
    while scene.number("select count(*) from pg_locks where locktype = 'advisory' and not granted") == 0 {
        tokio::task::yield_now().await;
    }
    // What the settle has seen and written a row for must not be read again.
    let emitted = scene.emit_by_hand("a");
    let row = format!(
        "insert into postrider.delivery (subscription_id, event_id, shard, key, late, turn, parks, state, attempts, due_at)
         values ({id}, {emitted}, 0, 'a', false, 1, true, 'pending', 1, now())"
    );
    settle.batch_execute(&row).await.unwrap();
    settle.batch_execute("commit").await.unwrap();
    let to = seek.await.unwrap().unwrap();
    assert_eq!(to.last_id, emitted, "the place was looked for when the settle had ended");
}

impl Scene {
    /// Emits without the store, which is busy.
    fn emit_by_hand(&self, key: &str) -> EventId {
        EventId(self.number(&format!(
            "insert into postrider.event (topic, type, key) values ('order', 'order', '{key}') returning id"
        )))
    }
}

#[tokio::test]
async fn pauses_move_the_fence_once_each_way() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let start = fence(&scene);
    let paused = scene.store.subscription_pause("mail").await.unwrap();
    scene.pass(Duration::from_secs(9));
    assert_eq!(scene.store.subscription_pause("mail").await.unwrap(), paused);
    assert_eq!(fence(&scene), start + 1);
    for _ in 0..2 {
        assert_eq!(scene.store.subscription_resume("mail").await.unwrap().paused_at, None);
    }
    assert_eq!(fence(&scene), start + 2);
    let tuning = Tuning { concurrency: 3, ..Tuning::default() };
    assert_eq!(scene.store.subscription_tune("mail", tuning.clone()).await.unwrap().tuning, tuning);
    assert_eq!(scene.store.subscription_get("mail").await.unwrap().tuning, tuning);
}

#[tokio::test]
async fn a_deleted_subscription_leaves_nothing_but_the_audit() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let ids = scene.emit(&["a"]).await;
    scene.put("mail", &Row::head(ids[0], "a"));
    scene.store.subscription_delete("mail", "ann").await.unwrap();
    for table in ["subscription", "shard", "delivery", "attempt", "position_a", "position_b"] {
        assert_eq!(scene.number(&format!("select count(*) from postrider.{table}")), 0, "{table}");
    }
    assert_eq!(scene.number("select count(*) from postrider.audit where actor = 'ann'"), 1);
    let gone = scene.store.subscription_delete("mail", "ann").await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}
