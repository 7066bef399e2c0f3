//! Roles are made by one command, and each can use the others.

use postrider_testkit::postgres::{Version, shared};
use serde_json::json;

use crate::harness::Place;

#[test]
fn roles_are_made_on_a_server_and_a_reader_sees_no_payloads() {
    let place = Place::new();
    for version in Version::ALL {
        let db = shared(version).create_database();
        let owner = db.url.as_str();
        place.ok(&["store", "migrate", "--store", owner]);
        let made = place.json(&["store", "roles", "--prefix", &db.name, "--store", owner]);
        let names: Vec<&str> =
            made["roles"].as_array().unwrap().iter().map(|role| role["name"].as_str().unwrap()).collect();
        let expected = ["producer", "relay", "operator", "reader"].map(|kind| format!("{}_{kind}", db.name));
        assert_eq!(names, expected);
        let table = place.ok(&["store", "roles", "--prefix", &db.name, "--store", owner]);
        assert!(table.contains("looks at everything but payloads and headers"), "{table}");
        place.ok(&["emit", "order", "--payload", "{\"a\":1}", "--header", "b=2", "--store", owner]);
        db.query(&format!("create role {0}_ada login in role {0}_reader", db.name));
        let reader = db.url.replace("postgres@", &format!("{}_ada@", db.name));
        let listed = place.json(&["event", "list", "--store", &reader]);
        assert_eq!(listed[0]["payload_withheld"], true);
        assert_eq!((listed[0].get("payload"), &listed[0]["headers"]), (None, &json!(null)));
        assert_eq!(place.json(&["event", "list", "--store", owner])[0]["payload"], json!({"a": 1}));
        let refused = place.run(&["emit", "order", "--store", &reader]);
        assert!(refused.code != 0 && refused.stderr.contains("this role lacks the right"), "{refused:?}");
    }
}

#[test]
fn the_sql_is_printed_without_a_server() {
    let place = Place::new();
    let nowhere = "postgres://app:secret@127.0.0.1:1/shop?schema=shop";
    let sql = place.ok(&["store", "roles", "--sql", "--store", nowhere]);
    assert!(sql.starts_with("begin;") && sql.contains("create role \"shop_relay\" nologin;"), "{sql}");
    assert!(!sql.contains("secret"), "{sql}");
    assert_eq!(place.json(&["store", "roles", "--sql", "--store", nowhere])["sql"], sql);
    let bad = place.run(&["store", "roles", "--sql", "--prefix", "pg", "--store", nowhere]);
    assert!(bad.code == 2 && bad.stderr.contains("cannot name a role"), "{bad:?}");
}

#[test]
fn a_file_has_no_roles() {
    let place = Place::new();
    let ran = place.run(&["store", "roles"]);
    assert!(ran.code == 2 && ran.stderr.contains("SQLite has no roles"), "{ran:?}");
    assert!(!place.database().exists(), "nothing was made");
}
