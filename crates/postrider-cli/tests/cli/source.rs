//! Slots and outbox tables, from the command line.

use postrider_testkit::postgres::{Server, Settings, Version, shared};

use crate::harness::Place;

#[test]
fn a_slot_that_nobody_follows_is_shown_and_removed() {
    let place = Place::new();
    let server = Server::start(Version::V18, Settings::fast().set("wal_level", "logical"));
    let db = server.create_database();
    let store = db.url.as_str();
    place.ok(&["store", "migrate", "--store", store]);
    let nothing = place.ok(&["store", "source", "drop", "--store", store]);
    assert!(nothing.contains("nothing to do"), "{nothing}");
    db.query(
        "select pg_create_logical_replication_slot('postrider_' || oid, 'pgoutput') from pg_database
         where datname = current_database()",
    );
    let stats = place.json(&["stats", "--store", store]);
    assert_eq!(stats["slots"][0]["followed"], false, "{stats}");
    let shown = place.ok(&["stats", "--store", store]);
    assert!(shown.contains(", not followed") && shown.contains("switches: 0"), "{shown}");
    let dropped = place.ok(&["store", "source", "drop", "--store", store]);
    assert!(dropped.contains("removed slot postrider_"), "{dropped}");
    assert_eq!(db.query("select count(*) from pg_replication_slots")[0][0].as_deref(), Some("0"));
}

#[test]
fn an_outbox_table_is_attached_and_detached() {
    let place = Place::new();
    let db = shared(Version::V15).create_database();
    let store = db.url.as_str();
    place.ok(&["store", "migrate", "--store", store]);
    db.query("create table box (id serial, aggregatetype text, aggregateid text, kind text, payload text)");
    let refused = place.run(&["store", "outbox", "attach", "box", "--store", store]);
    assert!(refused.code != 0 && refused.stderr.contains("no column `type`"), "{refused:?}");
    let told = place.ok(&["store", "outbox", "attach", "box", "--type", "kind", "--store", store]);
    assert!(told.starts_with("attached box: its rows become events"), "{told}");
    db.query(
        "insert into box (aggregatetype, aggregateid, kind, payload) values ('order', '7', 'made', '{}')",
    );
    assert_eq!(place.json(&["store", "outbox", "list", "--store", store])["tables"][0], "public.box");
    assert_eq!(place.json(&["stats", "--store", store])["events"], 1);
    assert_eq!(place.ok(&["store", "outbox", "detach", "box", "--store", store]), "detached box\n");
    assert_eq!(place.ok(&["store", "outbox", "list", "--store", store]), "no outbox tables\n");
}

#[test]
fn a_file_has_neither() {
    let place = Place::new();
    for typed in [["store", "source", "drop"], ["store", "outbox", "list"]] {
        let ran = place.run(&typed);
        assert!(ran.code == 2 && ran.stderr.contains("SQLite has no replication slots"), "{ran:?}");
    }
    let ran = place.run(&["relay", "--subscription", "a", "--sink", "null", "--wal-budget", "much"]);
    assert!(ran.code == 2 && ran.stderr.contains("512MB"), "{ran:?}");
    assert!(!place.database().exists(), "nothing was made");
}
