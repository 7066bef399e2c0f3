//! Slots, and what the server keeps for them.

use postrider_core::log::LogRow;

use super::*;

async fn the_server_says_who_it_is(version: Version) {
    let scene = Scene::without_slot(server(version)).await;
    let system = scene.connect().await.identify().await.unwrap();
    let rows = scene.database.query("select system_identifier from pg_control_system()");
    assert_eq!(Some(system.id), rows[0][0]);
    assert_eq!(system.timeline, 1);
}

async fn a_snapshot_and_its_slot_hold_everything_once(version: Version) {
    let scene = Scene::without_slot(server(version)).await;
    scene.emit(3, 1);
    let mut connected = scene.connect().await;
    let made = connected.slot_create(&scene.slot, true).await.unwrap();
    scene.emit(2, 1);
    let seen = scene.database.query(&format!(
        "begin isolation level repeatable read; set transaction snapshot '{}';
         select count(*), max(id) from postrider.event; commit",
        made.snapshot
    ));
    assert_eq!(seen[0][0].as_deref(), Some("3"));
    let last: i64 = seen[0][1].as_ref().unwrap().parse().unwrap();
    let mut stream = connected.start(&scene.slot, PUBLICATION, made.consistent).await.unwrap();
    let rows: Vec<i64> = events(&mut stream, 2).await.iter().map(|row| row.event.id.0).collect();
    assert_eq!(rows, [last + 1, last + 2]);
    let failover = "to_jsonb(s) -> 'failover'";
    let sql = format!("select {failover} from pg_replication_slots as s where slot_name = '{}'", scene.slot);
    let expected = (version == Version::V18).then_some("true");
    assert_eq!(scene.database.query(&sql)[0][0].as_deref(), expected, "handed on where the server can");
}

async fn what_is_confirmed_stays_so(version: Version) {
    let scene = Scene::new(version).await;
    scene.emit(5, 1);
    let mut stream = scene.start().await;
    let first: Vec<LogRow> = events(&mut stream, 2).await;
    let done = stream.position();
    stream.confirm(done);
    stream.confirm(Lsn(1));
    stream.end().await.unwrap();
    assert_eq!(scene.confirmed(), done, "it never goes back");

    let mut stream = scene.start().await;
    let rest = events(&mut stream, 2).await;
    let later = stream.position();
    assert_eq!(rest[0].event.id.0, first[1].event.id.0 + 1, "what was confirmed does not come again");
    stream.end().await.unwrap();
    assert_eq!(scene.confirmed(), done, "what was only read is not confirmed");

    let mut stream = scene.connect().await.start(&scene.slot, PUBLICATION, later).await.unwrap();
    let last = events(&mut stream, 1).await;
    assert_eq!(last[0].event.id.0, rest[1].event.id.0 + 1, "what lies before the start is passed over");
}

async fn a_slot_at_rest_lets_the_log_of_others_go(version: Version) {
    let scene = Scene::new(version).await;
    let mut stream = scene.start().await;
    scene.database.query("create table other (n int); insert into other select generate_series(1, 1000)");
    let rows = scene.database.query("select pg_current_wal_flush_lsn()");
    let written = lsn_read(rows[0][0].as_deref().unwrap()).unwrap();
    while stream.position() < written {
        let said = timeout(WAIT_MAX, stream.next()).await.expect("it says how far it is").unwrap();
        assert!(matches!(said, Said::Position(_)), "{said:?}");
    }
    stream.confirm(stream.position());
    stream.end().await.unwrap();
    assert!(scene.confirmed() >= written);
}

async fn a_slot_that_waits_for_others_is_given_up(version: Version) {
    // Of its own, since other tests would wait too.
    let server = Server::start(version, settings());
    let scene = Scene::without_slot(&server).await;
    let (client, connection) =
        tokio_postgres::connect(&scene.database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("begin; insert into postrider.event (topic, type) values ('t', 't')").await.unwrap();
    let options = scene.options.clone().call_timeout(Duration::from_millis(1_500));
    let mut connected = Replication::connect(&options).await.unwrap();
    let error = connected.slot_create(&scene.slot, false).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && sqlstate(&error) == Some("55P03"), "{error}");
    client.batch_execute("commit").await.unwrap();
    connected.slot_create(&scene.slot, false).await.unwrap();
}

on_each_version!(
    the_server_says_who_it_is,
    a_snapshot_and_its_slot_hold_everything_once,
    what_is_confirmed_stays_so,
    a_slot_at_rest_lets_the_log_of_others_go,
    a_slot_that_waits_for_others_is_given_up,
);
