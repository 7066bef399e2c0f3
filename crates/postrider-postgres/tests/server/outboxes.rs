//! Outbox tables of other programs, as Debezium's event router has them: their rows become events, whole or not at all.

use postrider_core::{Event, LogStore};
use postrider_postgres::Outbox;
use postrider_testkit::postgres::Version;

use crate::stage::{AMPLE, Owner, Stage, run};

const TABLE: &str =
    "create table outbox (id uuid primary key default gen_random_uuid(), aggregatetype varchar(255) not null,
    aggregateid varchar(255) not null, type varchar(255) not null, payload jsonb)";

async fn events(owner: &mut Owner) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        let chunk = owner.store.fetch(&owner.hold, owner.at, AMPLE).await.unwrap();
        owner.at = chunk.end;
        all.extend(chunk.events.iter().map(|event| Event::clone(event)));
        if !chunk.more && !chunk.soon {
            return all;
        }
    }
}

fn line(event: &Event) -> String {
    let key = event.key.as_ref().map_or("-".to_owned(), ToString::to_string);
    let payload = String::from_utf8_lossy(&event.payload).into_owned();
    format!("{} {} {key} {payload}", event.topic, event.kind)
}

#[tokio::test]
async fn rows_become_events_as_the_event_router_makes_them() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        stage.run(TABLE);
        stage.run("insert into outbox (aggregatetype, aggregateid, type, payload) values ('order', '1', 'OrderMade', '{\"n\": 1}')");
        assert_eq!(stage.store.outbox_attach(&Outbox::new("outbox"), "ada").await.unwrap(), 0, "{version:?}");
        assert_eq!(stage.store.outbox_list().await.unwrap(), ["outbox"]);
        let p = stage.session().await;
        // Many delete at once what they have inserted.
        run(&p, "begin").await;
        run(&p, "insert into outbox values ('00000000-0000-0000-0000-000000000002', 'order', '7', 'OrderMade', '{\"n\": 2}')").await;
        run(&p, "delete from outbox where aggregateid = '7'; commit").await;
        run(&p, "begin; insert into outbox (aggregatetype, aggregateid, type) values ('order', '7', 'Undone'); rollback").await;
        run(&p, "insert into outbox (aggregatetype, aggregateid, type) values ('customer', '3', 'Gone')")
            .await;
        run(&p, "update outbox set type = 'Changed'; delete from outbox").await;
        let found = events(&mut owner).await;
        let lines: Vec<String> = found.iter().map(line).collect();
        assert_eq!(
            lines,
            ["outbox.event.order OrderMade 7 {\"n\": 2}", "outbox.event.customer Gone 3 "],
            "{version:?}"
        );
        assert_eq!(found[0].headers.get("id"), Some("00000000-0000-0000-0000-000000000002"), "{version:?}");
        assert!(stage.store.outbox_detach("outbox", "ada").await.unwrap(), "{version:?}");
        assert!(!stage.store.outbox_detach("outbox", "ada").await.unwrap(), "{version:?}");
        run(&p, "insert into outbox (aggregatetype, aggregateid, type) values ('order', '9', 'Unseen')")
            .await;
        assert_eq!(events(&mut owner).await.len(), 0, "{version:?}");
        assert_eq!(
            stage.number("select count(*) from pg_proc where proname ~ '^outbox_[0-9]'"),
            0,
            "{version:?}"
        );
        let audit =
            "select string_agg(action, ',' order by id) from postrider.audit where action like 'outbox%'";
        assert_eq!(stage.text(audit), "outbox attach,outbox detach", "{version:?}");
    }
}

#[tokio::test]
async fn other_names_bytes_partitions_and_rows_that_are_there() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        stage.run(
            "create schema \"My app\";
             create table \"My app\".\"Out box\" (\"No\" bigint, what text, who integer, \"kind of\" text, body bytea, tenant text)
             partition by range (\"No\");
             create table \"My app\".first partition of \"My app\".\"Out box\" for values from (0) to (100);
             insert into \"My app\".\"Out box\" values (2, 'order', 8, null, '\\x00ff', null), (1, 'order', 8, 'made', 'a', 'x')",
        );
        let outbox = Outbox::new("\"My app\".\"Out box\"")
            .id("No")
            .topic("what")
            .key("who")
            .kind("kind of")
            .payload("body")
            .header("tenant")
            .topic_prefix("")
            .existing(true);
        assert_eq!(stage.store.outbox_attach(&outbox, "ada").await.unwrap(), 2, "{version:?}");
        stage.run(
            "create table \"My app\".second partition of \"My app\".\"Out box\" for values from (100) to (200);
             insert into \"My app\".\"Out box\" values (100, 'order', 8, 'made', 'b', 'y')",
        );
        let found = events(&mut owner).await;
        let lines: Vec<String> = found.iter().map(line).collect();
        assert_eq!(lines[0], "order made 8 a", "{version:?}");
        assert_eq!(
            lines[1],
            format!("order order 8 {}", String::from_utf8_lossy(b"\x00\xff")),
            "{version:?}"
        );
        assert_eq!((lines[2].as_str(), lines.len()), ("order made 8 b", 3), "{version:?}");
        assert_eq!(found[1].payload[..], [0, 255], "{version:?}");
        let tenants: Vec<Option<&str>> = found.iter().map(|event| event.headers.get("tenant")).collect();
        assert_eq!(tenants, [Some("x"), None, Some("y")], "{version:?}");
        assert_eq!(stage.store.outbox_list().await.unwrap(), ["\"My app\".\"Out box\""], "{version:?}");
        // Attached again, it is attached once.
        stage.store.outbox_attach(&outbox.existing(false), "ada").await.unwrap();
        stage.run("insert into \"My app\".\"Out box\" values (101, 'order', 8, 'made', 'c', 'y')");
        assert_eq!(events(&mut owner).await.len(), 1, "{version:?}");
    }
}

/// Those who write into the table need no rights on the log.
#[tokio::test]
async fn producers_need_no_rights_and_what_is_wrong_is_said() {
    let stage = Stage::on(Version::V15).await;
    let mut owner = stage.owner("orders").await;
    stage.run(TABLE);
    let missing = stage.store.outbox_attach(&Outbox::new("outbox").key("nothing"), "ada").await.unwrap_err();
    assert!(missing.to_string().contains("no column `nothing`"), "{missing}");
    let absent = stage.store.outbox_attach(&Outbox::new("nowhere"), "ada").await.unwrap_err();
    assert!(absent.to_string().contains("nowhere"), "{absent}");
    stage.store.outbox_attach(&Outbox::new("outbox"), "ada").await.unwrap();
    let role = format!("shop_{}", stage.db.name);
    stage.run(&format!("create role {role}; grant insert on outbox to {role}"));
    stage.run(&format!(
        "set role {role}; insert into outbox (aggregatetype, aggregateid, type, payload) values ('order', '1', 'A', '{{}}')"
    ));
    assert_eq!(events(&mut owner).await.len(), 1);
    stage.run(&format!("reset role; revoke all on outbox from {role}; drop role {role}"));
}
