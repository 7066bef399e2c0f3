//! Outbox tables of other programs, as Debezium's event router has them: their rows become events, whole or not at all.

use postrider_core::{Event, LogStore, Store};
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
        assert_eq!(stage.store.outbox_list().await.unwrap(), ["public.outbox"]);
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

/// What the owner of an attached table could have run with the rights of Postrider's owner: casts to whatever
/// a row becomes.
const CASTS: &str = "
    create table app.ran (who text);
    grant insert on app.ran to public;
    create function app.note(what text) returns text language plpgsql as $$
    begin
        insert into app.ran values (current_user);
        return what;
    end $$;
    create type app.pair as (t text);
    create type app.colour as enum ('red', 'green');
    create domain app.word as text check (app.note(value) is not null);
    create function app.pair_text(v app.pair) returns text language sql as $$ select app.note('pair') $$;
    create function app.pair_json(v app.pair) returns json language sql as $$ select app.note('{}')::json $$;
    create function app.pair_bytes(v app.pair) returns bytea language sql as $$ select app.note('x')::bytea $$;
    create function app.pair_bool(v app.pair) returns boolean language sql as $$ select app.note('x') = 'x' $$;
    create function app.colour_text(v app.colour) returns text language sql as $$ select app.note('colour') $$;
    create function app.colour_json(v app.colour) returns json language sql as $$ select app.note('{}')::json $$;
    create cast (app.pair as text) with function app.pair_text(app.pair) as implicit;
    create cast (app.pair as json) with function app.pair_json(app.pair) as implicit;
    create cast (app.pair as bytea) with function app.pair_bytes(app.pair) as implicit;
    create cast (app.pair as boolean) with function app.pair_bool(app.pair) as implicit;
    create cast (app.colour as text) with function app.colour_text(app.colour) as implicit;
    create cast (app.colour as json) with function app.colour_json(app.colour) as implicit";

/// The table is its owner's, types of columns included, before and after it is attached.
#[tokio::test]
async fn the_owner_of_an_attached_table_runs_nothing_with_our_rights() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let role = format!("app_{}", stage.db.name);
        stage.run(&format!("create role {role}; create schema app authorization {role}"));
        let as_owner =
            |sql: &str| stage.run(&format!("set role {role}; set search_path = app, public; {sql}"));
        as_owner(CASTS);
        as_owner(&TABLE.replace("outbox (", "outbox (tenant text, "));
        let outbox = Outbox::new("app.outbox").header("tenant");
        stage.store.outbox_attach(&outbox, "ada").await.unwrap();
        let insert = "insert into outbox (aggregatetype, aggregateid, type, tenant, payload) values";
        for (change, values, becomes) in [
            ("", "('a', 'b', 'c', 'd', '{\"n\": 1}')", "outbox.event.a c b {\"n\": 1}"),
            (
                "alter table outbox alter type type app.pair using row(type), alter tenant type app.pair using row(tenant)",
                "('a', 'b', row('c'), row('d'), '{}')",
                "outbox.event.a (c) b {}",
            ),
            (
                "alter table outbox alter payload type app.pair using row('x'), alter type type app.colour using 'red'",
                "('a', 'b', 'green', row('d'), row('{}'))",
                "outbox.event.a green b ({})",
            ),
            (
                "alter table outbox alter payload type bytea using 'x', alter aggregateid type app.word, alter tenant type boolean using true",
                "('a', 'b', 'green', true, '\\x00ff')",
                "outbox.event.a green b \0\u{fffd}",
            ),
            (
                "alter table outbox alter payload type app.colour using 'red', alter aggregatetype type app.pair using row('a'),
                 alter aggregateid type char(9)",
                "(row('a'), 'b', 'green', false, 'red')",
                "outbox.event.(a) green b red",
            ),
            (
                "alter table outbox drop constraint outbox_pkey, alter id drop not null, alter id drop default,
                 alter payload type app.colour[] using '{red}', alter id type app.pair using row(id)",
                "(row('a'), 'b', 'green', false, '{red,green}')",
                "outbox.event.(a) green b {red,green}",
            ),
        ] {
            as_owner(&format!("{change}; truncate ran; {insert} {values}"));
            let found = events(&mut owner).await;
            assert_eq!(found.iter().map(line).collect::<Vec<_>>(), [becomes], "{version:?}: {change}");
            // A check of a domain runs when its owner inserts, as its owner.
            let ran = format!("select count(*) from app.ran where who <> '{role}'");
            assert_eq!(stage.number(&ran), 0, "{version:?}: {change}");
            stage.run("truncate app.ran");
            stage.store.outbox_attach(&outbox.clone().existing(true), "ada").await.unwrap();
            assert!(events(&mut owner).await.iter().any(|event| line(event) == becomes), "{version:?}: {change}");
            assert_eq!(stage.number("select count(*) from app.ran"), 0, "{version:?}: {change}");
        }
    }
}

/// A policy is code of the table's owner, which would run as the role that reads the table.
#[tokio::test]
async fn a_table_with_policies_for_its_reader_is_not_read() {
    let stage = Stage::on(Version::V15).await;
    let role = format!("keeper_{}", stage.db.name);
    stage.run(&format!(
        "create role {role} login; grant create on database {} to {role}; alter schema postrider owner to {role};
         {TABLE}; grant all on outbox to {role}; alter table outbox enable row level security",
        stage.db.name
    ));
    stage.run(&format!("grant all on all tables in schema postrider to {role}; grant all on all functions in schema postrider to {role}"));
    let told = stage.db.try_query(&format!(
        "set role {role}; select postrider.outbox_attach('public.outbox', existing => true)"
    ));
    assert!(told.unwrap_err().contains("row-level security"));
}

/// An operator can restore a dump, drop a table or make partitions, and leaves nothing behind.
#[tokio::test]
async fn functions_of_outboxes_come_and_go_with_them() {
    let stage = Stage::on(Version::V15).await;
    let role = format!("parts_{}", stage.db.name);
    let functions = "select coalesce(string_agg(proname, ',' order by proname), '') from pg_proc where proname ~ '^outbox_[0-9]'";
    stage.run(&format!(
        "create role {role}; create schema app authorization {role}; set role {role};
         create table app.outbox (id bigint, aggregatetype text, aggregateid text, type text, payload text) partition by range (id);
         create table app.second (like app.outbox)"
    ));
    for table in ["app.outbox", "app.second", "app.outbox"] {
        stage.store.outbox_attach(&Outbox::new(table), "ada").await.unwrap();
    }
    assert_eq!(stage.text(functions), "outbox_1,outbox_2");
    stage.run(&format!(
        "set role {role}; create table app.first partition of app.outbox for values from (0) to (9)"
    ));
    stage.run(&format!("set role {role}; insert into app.outbox values (1, 'a', 'b', 'c', 'd')"));
    assert_eq!(stage.number("select count(*) from postrider.event"), 1);
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
    stage.run("drop table app.outbox");
    let told = stage.store.check().await.unwrap();
    assert!(told.len() == 1 && told[0].contains("drop function postrider.outbox_1()"), "{told:?}");
    stage.store.outbox_attach(&Outbox::new("app.second"), "ada").await.unwrap();
    assert_eq!(stage.text(functions), "outbox_2");
    assert!(stage.store.outbox_detach("app.second", "ada").await.unwrap());
    assert_eq!(stage.text(functions), "");
}
