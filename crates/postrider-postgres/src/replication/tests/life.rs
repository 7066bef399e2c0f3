//! Connections that last, and connections that end.

use std::time::Instant;

use futures_util::FutureExt;
use postrider_testkit::tcp_proxy::{Counting, Proxy, Side};

use super::*;

/// The same store with a server that gives up a client that is silent for a second.
fn impatient(scene: &Scene) -> PostgresOptions {
    let url = format!("{}?options=-c%20wal_sender_timeout%3D1s", scene.database.url);
    PostgresOptions::from_url(&url).unwrap()
}

async fn whoever_has_no_room_is_not_given_up(version: Version) {
    const COMMITS: usize = 60;
    let scene = Scene::new(version).await;
    // More than the buffers between us hold, so that the server waits for us.
    scene.emit(COMMITS, 1 << 20);
    let connected = Replication::connect(&impatient(&scene)).await.unwrap();
    let mut stream = connected.start(&scene.slot, PUBLICATION, Lsn(0)).await.unwrap();
    let first = events(&mut stream, 1).await;
    for _ in 0..3 {
        timeout(Duration::from_millis(1_200), stream.idle()).await.expect_err("it lasts for ever");
    }
    let rest = events(&mut stream, COMMITS - 1).await;
    assert_eq!(rest.last().unwrap().event.id.0, first[0].event.id.0 + COMMITS as i64 - 1);
    stream.end().await.unwrap();
}

async fn whoever_waits_is_not_given_up(version: Version) {
    let scene = Scene::new(version).await;
    let connected = Replication::connect(&impatient(&scene)).await.unwrap();
    let mut stream = connected.start(&scene.slot, PUBLICATION, Lsn(0)).await.unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(3_500) {
        let said = timeout(Duration::from_secs(2), stream.next()).await.expect("never silent").unwrap();
        assert!(matches!(said, Said::Position(_)), "{said:?}");
    }
    scene.emit(1, 1);
    assert_eq!(events(&mut stream, 1).await.len(), 1);
}

async fn whoever_says_nothing_is_given_up(version: Version) {
    let scene = Scene::new(version).await;
    let connected = Replication::connect(&impatient(&scene)).await.unwrap();
    let mut stream = connected.start(&scene.slot, PUBLICATION, Lsn(0)).await.unwrap();
    let gone = format!("select active from pg_replication_slots where slot_name = '{}'", scene.slot);
    let began = Instant::now();
    while scene.database.query(&gone)[0][0].as_deref() != Some("f") {
        assert!(began.elapsed() < WAIT_MAX, "the server waits for longer than it was told to");
        // tidy: sleep because the server's patience is what is tested, and a catalog can only be looked at
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(failure(&mut stream).await.kind(), ErrorKind::Unavailable);
}

async fn a_cut_is_an_error_wherever_it_strikes(version: Version) {
    let scene = Scene::new(version).await;
    scene.emit(3, 100);
    let proxy = Proxy::start(scene.database.address());
    let url = scene.database.through(proxy.address()).url;
    let options = PostgresOptions::from_url(&url).unwrap();
    let mut refused = 0;
    for bytes in (0..1_500).step_by(37) {
        proxy.cut_after(Side::Server, bytes, Counting::FromNow);
        let reading = async {
            let connected = Replication::connect(&options).await?;
            let mut stream = connected.start(&scene.slot, PUBLICATION, Lsn(0)).await?;
            let mut commits = 0;
            while commits < 3 {
                commits += usize::from(matches!(stream.next().await?, Said::Commit { .. }));
            }
            stream.end().await
        };
        match timeout(WAIT_MAX, reading).await.expect("it does not hang") {
            Ok(()) => break,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                refused += 1;
            }
        }
        proxy.heal();
        // A sender whose client is gone may hold the slot for a moment.
        let sql = format!(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{}' and active",
            scene.slot
        );
        scene.database.query(&sql);
    }
    assert!(refused > 20, "{refused}");
}

async fn a_server_can_be_stopped_while_we_read(version: Version) {
    let mut server = Server::start(version, settings());
    let scene = Scene::without_slot(&server).await;
    scene.connect().await.slot_create(&scene.slot, false).await.unwrap();
    let mut stream = scene.start().await;
    let reading = tokio::spawn(async move {
        loop {
            match stream.next().await {
                Ok(_) => stream.confirm(stream.position()),
                Err(error) => return error,
            }
        }
    });
    scene.emit(3, 1);
    drop(scene);
    let began = Instant::now();
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    let error = timeout(WAIT_MAX, reading).await.unwrap().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

async fn a_command_that_was_given_up_spoils_no_answer(version: Version) {
    let scene = Scene::without_slot(server(version)).await;
    let mut connected = scene.connect().await;
    assert!(connected.identify().now_or_never().is_none(), "it is given up before there is an answer");
    let error = connected.identify().await.unwrap_err();
    assert!(error.to_string().contains("connect again"), "{error}");
}

on_each_version!(
    whoever_has_no_room_is_not_given_up,
    whoever_waits_is_not_given_up,
    whoever_says_nothing_is_given_up,
    a_cut_is_an_error_wherever_it_strikes,
    a_server_can_be_stopped_while_we_read,
    a_command_that_was_given_up_spoils_no_answer,
);
