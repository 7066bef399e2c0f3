//! Databases and schemas with unusual names, and servers that work in the order that reading rests on.

use postrider_core::LogStore;
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::{Version, shared};

use crate::stage::{Owner, connect};

/// Each member that joins tests the server first.
#[tokio::test]
async fn each_version_works_in_the_order_that_reading_rests_on() {
    for version in Version::ALL {
        let db = shared(version).create_database();
        let store = PostgresStore::open(PostgresOptions::from_url(&db.url).unwrap()).await.unwrap();
        for _ in 0..2 {
            store.member_join("ada").await.unwrap_or_else(|error| panic!("{version:?}: {error}"));
        }
    }
}

#[tokio::test]
async fn unusual_names_are_no_obstacle() {
    for version in Version::ALL {
        let server = shared(version);
        let name = format!("Ödn \"{}\" ' $1", std::process::id());
        server.query(
            "postgres",
            &format!("create database \"{}\" template template0", name.replace('"', "\"\"")),
        );
        let url = server.url(&encoded(&name));
        let options = PostgresOptions::from_url(&url).unwrap().schema("select_2").unwrap();
        let store = PostgresStore::open(options).await.unwrap();
        let new = postrider_core::NewSubscription::new("orders");
        postrider_core::Store::subscription_create(&store, new).await.unwrap();
        let mut owner = Owner::of(&store, "orders").await;
        let p = connect(&url).await;
        let emit = "insert into select_2.event (topic, type, key, payload_bytes) values ('order', 'order', 'k', 'x')";
        p.batch_execute(emit).await.unwrap();
        assert_eq!(owner.read().await, ["x"], "{version:?}");
        owner.leave().await;
        assert_eq!(postrider_core::Store::check(&store).await.unwrap(), [""; 0], "{version:?}");
    }
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |url, byte| format!("{url}%{byte:02X}"))
}
