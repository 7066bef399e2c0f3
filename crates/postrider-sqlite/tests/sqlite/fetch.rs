//! Reading on in the log.

use postrider_core::settle::Room;
use postrider_core::{Event, EventId, LogStore, NewSubscription, Position, Store, limits};

use crate::scene::{ROOM, Scene, at};

#[tokio::test]
async fn chunks_follow_each_other_without_gap_or_repeat() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let keys: Vec<String> = (0..25).map(|n| n.to_string()).collect();
    let emitted = scene.emit(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let hold = scene.take("mail").await;
    let (mut after, mut read) = (Position::START, Vec::new());
    loop {
        let room = Room { events: 10, ..ROOM };
        let chunk = scene.store.fetch(&hold, after, room).await.unwrap();
        read.extend(chunk.events.iter().map(|event| event.id));
        after = chunk.end;
        if !chunk.more {
            break;
        }
    }
    assert_eq!(read, emitted);
    let first = scene.store.event_get(emitted[0]).await.unwrap().unwrap();
    let room = Room { events: 10, bytes: first.bytes() + 1 };
    let bytes = scene.store.fetch(&hold, Position::START, room).await.unwrap();
    assert_eq!((bytes.events.len(), bytes.more), (2, true), "the last event may exceed the bytes");
}

#[tokio::test]
async fn what_is_not_wanted_is_passed_and_a_scan_has_an_end() {
    let scene = Scene::new().await;
    let wants = NewSubscription::new("mail").topic("wanted").unwrap();
    scene.store.subscription_create(wants).await.unwrap();
    let noise = (0..limits::CHUNK_SCAN_MAX).map(|_| Event::new("noise")).collect();
    scene.store.event_emit(noise).await.unwrap();
    let wanted = scene.store.event_emit(vec![Event::new("wanted")]).await.unwrap()[0];
    let hold = scene.take("mail").await;
    let first = scene.store.fetch(&hold, Position::START, ROOM).await.unwrap();
    assert!(first.events.is_empty() && first.more);
    assert_eq!(first.end, at(EventId(limits::CHUNK_SCAN_MAX as i64)));
    let second = scene.store.fetch(&hold, first.end, ROOM).await.unwrap();
    assert_eq!(second.events[0].id, wanted);
    assert!(!second.more);
}

#[tokio::test]
async fn a_fetch_keeps_no_snapshot_open() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    scene.emit(&["a", "b"]).await;
    let hold = scene.take("mail").await;
    let chunk = scene.store.fetch(&hold, Position::START, ROOM).await.unwrap();
    scene.store.fetch(&hold, chunk.end, ROOM).await.unwrap();
    scene.store.fetch(&hold, chunk.end, ROOM).await.unwrap();
    scene.due(&hold, &[]).await;
    let busy: i64 = scene.raw().query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
    assert_eq!(std::fs::metadata(scene.dir.path().join("app.db-wal")).unwrap().len(), 0);
}

#[tokio::test]
async fn an_idle_fetch_sees_what_is_new_and_who_is_new() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let member = scene.store.member_join("test").await.unwrap();
    let hold = scene.take_as("mail", member).await;
    for _ in 0..3 {
        assert!(scene.store.fetch(&hold, Position::START, ROOM).await.unwrap().events.is_empty());
    }
    // An event of another connection.
    postrider_core::emit(&scene.raw(), Event::new("order")).unwrap();
    let chunk = scene.store.fetch(&hold, Position::START, ROOM).await.unwrap();
    assert_eq!(chunk.events.len(), 1);
    // Another owner at the same place.
    scene.store.fetch(&hold, chunk.end, ROOM).await.unwrap();
    let newer = scene.take_as("mail", member).await;
    scene.store.fetch(&newer, chunk.end, ROOM).await.unwrap();
    assert!(scene.store.fetch(&hold, chunk.end, ROOM).await.unwrap_err().is_fenced());
}

#[tokio::test]
async fn a_paused_subscription_hands_nothing_out_until_it_is_resumed() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    scene.emit(&["a"]).await;
    let hold = scene.take("mail").await;
    scene.store.subscription_pause("mail").await.unwrap();
    for _ in 0..2 {
        let chunk = scene.store.fetch(&hold, Position::START, ROOM).await.unwrap();
        assert!(chunk.paused && chunk.events.is_empty() && chunk.end == Position::START);
    }
    scene.store.subscription_resume("mail").await.unwrap();
    assert_eq!(scene.store.fetch(&hold, Position::START, ROOM).await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_wake_comes_when_something_is_emitted_through_the_store() {
    let scene = Scene::new().await;
    let wake = scene.store.wake();
    tokio::pin!(wake);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(wake.as_mut().poll(&mut context).is_pending());
    scene.emit(&["a"]).await;
    assert!(wake.as_mut().poll(&mut context).is_ready());
}
