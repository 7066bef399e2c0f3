//! How relays are woken is chosen by one command.

use postrider_testkit::postgres::{Server, Settings, Version, shared};

use crate::harness::Place;

#[test]
fn a_relay_is_woken_by_producers_if_people_say_so() {
    let place = Place::new();
    let server = Server::start(Version::V15, Settings::fast().set("max_prepared_transactions", "0"));
    let db = server.create_database();
    let store = db.url.as_str();
    place.ok(&["store", "migrate", "--store", store]);
    assert_eq!(place.json(&["stats", "--store", store])["wake"], "poll");
    let told = place.ok(&["store", "wake", "notify", "--store", store]);
    assert_eq!(told, "notify: relays at rest are woken by the first producer that commits\n");
    assert_eq!(place.json(&["stats", "--store", store])["wake"], "notify");
    assert_eq!(place.json(&["store", "wake", "poll", "--store", store])["wake"], "poll");
    assert_eq!(place.json(&["stats", "--store", store])["wake"], "poll");
    let actors = db.query("select actor from postrider.audit where action = 'store wake'");
    assert!(actors.len() == 2 && actors[0][0].as_deref().unwrap().ends_with("(cli)"), "{actors:?}");
}

#[test]
fn where_transactions_can_be_prepared_people_have_to_say_that_none_are() {
    let place = Place::new();
    for version in Version::ALL {
        let db = shared(version).create_database();
        let store = db.url.as_str();
        place.ok(&["store", "migrate", "--store", store]);
        let refused = place.run(&["store", "wake", "notify", "--store", store]);
        assert!(refused.code == 2 && refused.stderr.contains("--no-two-phase"), "{refused:?}");
        assert_eq!(place.json(&["stats", "--store", store])["wake"], "poll");
        place.ok(&["store", "wake", "notify", "--no-two-phase", "--store", store]);
        assert_eq!(place.json(&["stats", "--store", store])["wake"], "notify");
    }
}

#[test]
fn a_file_wakes_nobody() {
    let place = Place::new();
    let ran = place.run(&["store", "wake", "notify"]);
    assert!(ran.code == 2 && ran.stderr.contains("SQLite has nobody"), "{ran:?}");
    assert!(!place.database().exists(), "nothing was made");
}
