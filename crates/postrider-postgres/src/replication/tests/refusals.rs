//! Why a server says no is told apart.

use std::time::Instant;

use super::*;

async fn refused(scene: &Scene, slot: &str, publication: &str) -> Error {
    let connected = scene.connect().await;
    connected.start(slot, publication, Lsn(0)).await.err().expect("it is refused")
}

async fn a_slot_in_use_is_refused_at_once(version: Version) {
    let scene = Scene::new(version).await;
    let mut stream = scene.start().await;
    let began = Instant::now();
    let error = refused(&scene, &scene.slot, PUBLICATION).await;
    assert_eq!((refusal(&error), sqlstate(&error)), (Some(Refusal::SlotInUse), Some("55006")), "{error}");
    assert!(error.is_retryable() && began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    scene.emit(1, 1);
    assert_eq!(events(&mut stream, 1).await.len(), 1, "whoever reads goes on");
}

async fn what_is_missing_is_named(version: Version) {
    let scene = Scene::new(version).await;
    for (slot, publication, expected, says) in [
        ("no'such\\slot", PUBLICATION, Refusal::SlotMissing, "no'such\\slot"),
        (&*scene.slot, "no'such\\publication", Refusal::PublicationMissing, "no'such\\publication"),
    ] {
        let error = refused(&scene, slot, publication).await;
        assert_eq!(refusal(&error), Some(expected), "{error}");
        assert!(error.to_string().contains(says) && error.kind() == ErrorKind::NotFound, "{error}");
    }
    let error = scene.connect().await.slot_create(&scene.slot, false).await.unwrap_err();
    assert_eq!(refusal(&error), Some(Refusal::SlotExists), "{error}");
    assert!(refused(&scene, "nul\0", PUBLICATION).await.kind() == ErrorKind::Invalid);
}

async fn a_publication_that_came_too_late_is_refused_before_anything_is_lost(version: Version) {
    let scene = Scene::new(version).await;
    scene.emit(1, 1);
    scene.database.query("create publication late for table postrider.event");
    scene.emit(1, 1);
    let mut stream = scene.connect().await.start(&scene.slot, "late", Lsn(0)).await.unwrap();
    let error = failure(&mut stream).await;
    assert_eq!(refusal(&error), Some(Refusal::PublicationMissing), "{error}");
}

async fn a_slot_of_something_else_is_refused(version: Version) {
    let scene = Scene::new(version).await;
    let elsewhere = Scene::without_slot(server(version)).await;
    let error = refused(&elsewhere, &scene.slot, PUBLICATION).await;
    assert_eq!(refusal(&error), Some(Refusal::SlotForeign), "{error}");
    let physical = format!("{}_physical", scene.slot);
    scene.database.query(&format!("select pg_create_physical_replication_slot('{physical}')"));
    let error = refused(&scene, &physical, PUBLICATION).await;
    assert_eq!(refusal(&error), Some(Refusal::SlotForeign), "{error}");
}

async fn a_lost_slot_is_told_from_a_missing_one(version: Version) {
    let server = Server::start(version, settings().set("max_slot_wal_keep_size", "1MB"));
    let scene = Scene::without_slot(&server).await;
    scene.connect().await.slot_create(&scene.slot, false).await.unwrap();
    for _ in 0..6 {
        scene.database.query("select pg_logical_emit_message(false, 'a', 'b'); select pg_switch_wal()");
    }
    // tidy: foreign because it is the server's own command
    scene.database.query("checkpoint");
    let error = refused(&scene, &scene.slot, PUBLICATION).await;
    assert_eq!(refusal(&error), Some(Refusal::SlotLost), "{error}");
    assert!(!error.is_retryable());
}

async fn a_server_that_logs_too_little_says_what_to_do(version: Version) {
    let server = postrider_testkit::postgres::shared(version);
    let scene = Scene::without_slot(server).await;
    let error = scene.connect().await.slot_create(&scene.slot, false).await.unwrap_err();
    assert_eq!(
        (refusal(&error), sqlstate(&error)),
        (Some(Refusal::WalLevelTooLow), Some("55000")),
        "{error}"
    );
    assert!(error.to_string().contains("wal_level = logical"), "{error}");
}

async fn a_role_that_may_not_replicate_is_told_so(version: Version) {
    let scene = Scene::without_slot(server(version)).await;
    let role = format!("plain_{}", scene.database.name);
    scene.database.query(&format!("create role {role} login"));
    let url = scene.database.url.replace("postgres@", &format!("{role}@"));
    let error = Replication::connect(&PostgresOptions::from_url(&url).unwrap()).await.err().unwrap();
    assert_eq!((refusal(&error), sqlstate(&error)), (Some(Refusal::NotPermitted), Some("42501")), "{error}");
    scene.database.query(&format!("alter role {role} replication"));
    let mut connected = Replication::connect(&PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    connected.slot_create(&scene.slot, false).await.unwrap();
}

on_each_version!(
    a_slot_in_use_is_refused_at_once,
    what_is_missing_is_named,
    a_publication_that_came_too_late_is_refused_before_anything_is_lost,
    a_slot_of_something_else_is_refused,
    a_lost_slot_is_told_from_a_missing_one,
    a_server_that_logs_too_little_says_what_to_do,
    a_role_that_may_not_replicate_is_told_so,
);
