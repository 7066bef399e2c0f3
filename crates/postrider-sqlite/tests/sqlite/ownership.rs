//! Whose turn it is, and who is dead.

use std::process::{Child, Command};
use std::time::Duration;

use postrider_core::settle::{MemberId, Row, RowDue, Settle};
use postrider_core::{DeliveryState, ErrorKind, LogStore, Position, ShardSet, Store};
use postrider_sqlite::{SqliteOptions, SqliteStore};

use crate::scene::{ROOM, Scene, at, lane, parking, runs, single};

const LEASE: Duration = Duration::from_secs(10);

/// Makes a member look like one that runs in another process.
fn becomes(scene: &Scene, member: MemberId, process: &Child) {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let started: i64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    scene
        .raw()
        .execute(
            "update postrider_member set pid = ?2, started = ?3 where id = ?1",
            (member.0, process.id(), started),
        )
        .unwrap();
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

async fn takes(scene: &Scene, member: MemberId) -> bool {
    scene.store.shards_take("mail", member, ShardSet::ALL).await.unwrap().is_some()
}

#[tokio::test]
async fn the_shards_of_a_killed_process_are_free_at_once() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let mut process = sleeper();
    let victim = scene.store.member_join("victim").await.unwrap();
    becomes(&scene, victim, &process);
    let stale = scene.take_as("mail", victim).await;
    let heir = scene.store.member_join("heir").await.unwrap();
    assert!(!takes(&scene, heir).await, "the process still runs");
    process.kill().unwrap();
    // Dead as soon as it has ended, collected by its parent or not.
    while std::fs::read_to_string(format!("/proc/{}/stat", process.id()))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        std::thread::yield_now();
    }
    assert!(takes(&scene, heir).await, "no attempt to wait for the lease");
    process.wait().unwrap();
    assert!(scene.store.fetch(&stale, Position::START, ROOM).await.unwrap_err().is_fenced());
}

#[tokio::test]
async fn the_shards_of_a_silent_process_are_free_when_its_lease_has_run_out() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let mut process = sleeper();
    let silent = scene.store.member_join("silent").await.unwrap();
    becomes(&scene, silent, &process);
    scene.take_as("mail", silent).await;
    scene.clock.pass(LEASE);
    let heir = scene.store.member_join("heir").await.unwrap();
    assert!(!takes(&scene, heir).await, "the lease still runs");
    scene.store.member_beat(silent).await.unwrap();
    scene.clock.pass(LEASE);
    assert!(!takes(&scene, heir).await, "it has beaten since");
    scene.clock.pass(Duration::from_micros(1));
    assert!(takes(&scene, heir).await);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[tokio::test]
async fn members_of_an_earlier_start_of_the_machine_are_dead_and_forgotten() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let old = scene.store.member_join("old").await.unwrap();
    scene.take_as("mail", old).await;
    scene.raw().execute("update postrider_member set boot_id = 'earlier'", []).unwrap();
    let heir = scene.store.member_join("heir").await.unwrap();
    assert!(takes(&scene, heir).await);
    assert_eq!(scene.store.member_beat(old).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(
        scene.store.shards_take("mail", old, ShardSet::ALL).await.unwrap_err().kind(),
        ErrorKind::Fenced
    );
    assert_eq!(scene.store.stats().await.unwrap().members, ["heir"]);
}

#[tokio::test]
async fn a_process_in_another_container_is_judged_by_its_beat_alone() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let other = scene.store.member_join("other").await.unwrap();
    scene.take_as("mail", other).await;
    scene.raw().execute("update postrider_member set pid_namespace = 'pid:[1]', pid = 4194305", []).unwrap();
    let heir = scene.store.member_join("heir").await.unwrap();
    assert!(!takes(&scene, heir).await);
    scene.clock.pass(LEASE + Duration::from_secs(1));
    scene.store.member_beat(heir).await.unwrap();
    assert!(takes(&scene, heir).await);
}

#[tokio::test]
async fn what_was_handed_out_is_due_again_for_the_next_owner() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "a", "b"]).await;
    let member = scene.store.member_join("first").await.unwrap();
    let hold = scene.take_as("mail", member).await;
    let leased = |row: Row| Row { state: DeliveryState::Leased, ..row };
    let rows = vec![
        leased(parking(ids[0], "a", RowDue::Waiting)),
        parking(ids[1], "a", RowDue::Waiting),
        leased(single(ids[2], RowDue::Waiting)),
    ];
    scene.settle(&hold, Settle { mark: Some(at(ids[2])), rows, ..Settle::default() }).await;
    assert!(scene.due(&hold, &[]).await.runs.is_empty());
    scene.store.member_leave(member).await.unwrap();
    let heir = scene.store.member_join("heir").await.unwrap();
    let taken = scene.store.shards_take("mail", heir, ShardSet::ALL).await.unwrap().unwrap();
    assert_eq!(taken.parked, [lane("a")]);
    assert!(taken.hold.shards.iter().all(|held| held.position == at(ids[2])));
    let due = scene.due(&taken.hold, &[]).await;
    assert_eq!(runs(&due), [vec![ids[0].0, ids[1].0], vec![ids[2].0]]);
    assert_eq!(due.runs[0].rows[0].attempts, 1, "no attempt is counted");
}

#[tokio::test]
async fn a_lane_that_has_lost_its_head_gets_one_from_the_next_owner() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "a"]).await;
    let member = scene.store.member_join("test").await.unwrap();
    let hold = scene.take_as("mail", member).await;
    let rows = ids.iter().map(|id| parking(*id, "a", RowDue::Waiting)).collect();
    scene.settle(&hold, Settle { mark: Some(at(ids[1])), rows, ..Settle::default() }).await;
    assert!(scene.store.check().await.unwrap()[0].contains("key `a`"));
    let taken = scene.store.shards_take("mail", member, ShardSet::ALL).await.unwrap().unwrap();
    assert_eq!(taken.parked, [lane("a")]);
    assert_eq!(runs(&scene.due(&taken.hold, &[]).await), [[ids[0].0, ids[1].0]]);
    assert_eq!(scene.store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn releasing_leaves_the_shards_to_others_without_waiting() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let hold = scene.take("mail").await;
    let other = SqliteStore::open(SqliteOptions::new(scene.path())).await.unwrap();
    let heir = other.member_join("heir").await.unwrap();
    scene.store.shards_release(&hold).await.unwrap();
    assert!(other.shards_take("mail", heir, ShardSet::ALL).await.unwrap().is_some());
    assert!(scene.store.fetch(&hold, Position::START, ROOM).await.unwrap_err().is_fenced());
}
