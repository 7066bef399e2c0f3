//! What was committed comes, all of it and nothing else.

use postrider_core::log::Xid;
use postrider_core::{EventId, Store};
use tokio::task::yield_now;

use super::*;

async fn rows_come_as_they_were_written(version: Version) {
    let scene = Scene::new(version).await;
    let mut stream = scene.start().await;
    let written = scene.database.query(
        r#"insert into postrider.event (topic, type, key, headers, payload, payload_bytes, due_at) values
             ('order', 'order.created', null, null, null, '', null),
             ('order', null, 'k', '{"x": null}', '{"path": "C:\\new",  "a":1.10, "a":"\u0000"}', null, null),
             ('order', 'order.paid', '4"2', '{"a": "b", "n": 7}', null, '\x00ff5c', '2030-01-02 03:04:05.000006+00'),
             ('straße', 'größer', ' ', 'null', to_json(repeat('ü', 300000)), null, 'infinity'),
             ('straße', 'größer', ' ', 'null', null, convert_to(repeat('ü', 300000), 'UTF8'), 'infinity')
           returning id, xid"#,
    );
    let Said::Begin { commit_lsn, xid } = next(&mut stream).await else { panic!("a transaction begins") };
    let mut reader = EventReader::default();
    for row in &written {
        let Said::Insert(told) = next(&mut stream).await else { panic!("a row comes") };
        assert_eq!((&*told.relation.namespace, &*told.relation.name), ("postrider", "event"), "the root");
        let read = reader.read(&told).unwrap();
        let id = EventId(row[0].as_ref().unwrap().parse().unwrap());
        assert_eq!(*read.event, scene.store.event_get(id).await.unwrap().unwrap());
        assert_eq!(read.xid, Xid(row[1].as_ref().unwrap().parse().unwrap()));
        assert_eq!(read.xid.0 as u32, xid);
    }
    let Said::Commit { commit_lsn: at, end_lsn } = next(&mut stream).await else { panic!("it commits") };
    assert!(at == commit_lsn && end_lsn > commit_lsn && stream.position() >= end_lsn);
    stream.end().await.unwrap();
}

async fn rows_of_every_leaf_are_rows_of_the_log(version: Version) {
    let scene = Scene::new(version).await;
    let mut stream = scene.start().await;
    for leaf in 0..16_u64 {
        scene.database.query(&format!(
            "select setval('postrider.event_id_seq', {});
             insert into postrider.event (topic, type) values ('t', 't')",
            (leaf << 34) + 1
        ));
    }
    let ids: Vec<u64> =
        events(&mut stream, 16).await.iter().map(|row| (row.event.id.0 as u64) >> 34).collect();
    assert_eq!(ids, (0..16).collect::<Vec<_>>());
}

/// A value by its column's name.
fn value(row: &Row, name: &str) -> Option<Value> {
    let relation: &Relation = &row.relation;
    row.columns.get(relation.columns.iter().position(|column| column.name == name)?)
}

async fn what_becomes_of_a_table_is_noticed_and_only_inserts_are_told(version: Version) {
    let scene = Scene::new(version).await;
    scene
        .database
        .query("create table other (n int primary key, word text); create publication other for table other");
    let slot = format!("{}_other", scene.slot);
    let mut connected = scene.connect().await;
    connected.slot_create(&slot, false).await.unwrap();
    scene.database.query(
        "insert into other values (7, null); update other set word = 'a'; delete from other; truncate other;
         alter table other add more bytea; insert into other values (8, 'b', '\\x00')",
    );
    let mut stream = connected.start(&slot, "other", Lsn(0)).await.unwrap();
    let mut rows = Vec::new();
    while rows.len() < 2 {
        if let Said::Insert(row) = next(&mut stream).await {
            rows.push(row);
        }
    }
    let binary = |bytes: &'static [u8]| Some(Value::Binary(bytes.into()));
    assert_eq!(value(&rows[0], "n"), binary(b"\0\0\0\x07"));
    assert_eq!((value(&rows[0], "word"), value(&rows[0], "more")), (Some(Value::Null), None));
    assert_eq!((value(&rows[1], "word"), value(&rows[1], "more")), (binary(b"b"), binary(b"\0")));
    assert_eq!(EventReader::default().read(&rows[0]).unwrap_err().kind(), ErrorKind::Incompatible);
}

async fn what_was_rolled_back_does_not_come(version: Version) {
    let scene = Scene::new(version).await;
    let mut stream = scene.start().await;
    let emit = "insert into postrider.event (topic, type) values";
    scene.database.query(&format!("begin; {emit} ('a', 'a'); rollback"));
    scene.database.query(&format!(
        "begin; {emit} ('b', 'b'); savepoint s; {emit} ('c', 'c'); rollback to s; {emit} ('d', 'd'); commit"
    ));
    let topics: Vec<String> =
        events(&mut stream, 1).await.iter().map(|row| row.event.topic.to_string()).collect();
    assert_eq!(topics, ["b", "d"]);
}

/// Waits for what comes next only for as long as others have something to do, again and again.
async fn whoever_stops_waiting_loses_nothing(version: Version) {
    const COMMITS: usize = 3_000;
    let scene = Scene::new(version).await;
    let mut stream = scene.start().await;
    let database = scene.database.clone();
    let writing = tokio::task::spawn_blocking(move || {
        for size in [1, 70_000, 10] {
            Scene::emit_in(&database, COMMITS / 3, size);
        }
    });
    let (mut reader, mut ids, mut commits, mut given_up) = (EventReader::default(), Vec::new(), 0, 0);
    while commits < COMMITS {
        let said = tokio::select! {
            biased;
            said = stream.next() => said.unwrap(),
            () = yield_now() => { given_up += 1; continue }
        };
        match said {
            Said::Insert(row) => ids.push(reader.read(&row).unwrap().event.id.0),
            Said::Commit { .. } => commits += 1,
            Said::Begin { .. }
            | Said::Position(_)
            | Said::Ahead { .. }
            | Said::AheadCommit { .. }
            | Said::AheadAbort { .. } => {}
        }
    }
    writing.await.unwrap();
    let first = ids[0];
    assert_eq!(ids, (first..first + COMMITS as i64).collect::<Vec<_>>());
    assert!(given_up > 100, "it was given up {given_up} times");
}

async fn the_bare_reader_counts_the_same(version: Version) {
    let scene = Scene::new(version).await;
    scene.emit(20, 100);
    let url = &scene.database.url;
    for _ in 0..2 {
        let read = crate::bare::wal::drain(url, &scene.slot, PUBLICATION, 20).await.unwrap();
        assert_eq!((read.commits, read.rows), (20, 20));
        assert!(read.bytes > 20 * 100);
    }
    crate::bare::wal::slot_create(url, &format!("{}_2", scene.slot)).await.unwrap();
}

on_each_version!(
    rows_come_as_they_were_written,
    rows_of_every_leaf_are_rows_of_the_log,
    what_becomes_of_a_table_is_noticed_and_only_inserts_are_told,
    what_was_rolled_back_does_not_come,
    whoever_stops_waiting_loses_nothing,
    the_bare_reader_counts_the_same,
);
