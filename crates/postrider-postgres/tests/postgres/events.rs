//! Events wherever they are: in a leaf, or kept after it was emptied.

use postrider_core::store::EventQuery;
use postrider_core::{DeliveryState, Event, EventId, Filter, Key, Start, Store};

use crate::scene::{Scene, TURN};

const PAGE: usize = 100;

async fn listed(scene: &Scene, query: EventQuery) -> Vec<i64> {
    scene.store.event_list(query).await.unwrap().iter().map(|event| event.id.0).collect()
}

fn all() -> EventQuery {
    EventQuery { limit: PAGE, ..EventQuery::default() }
}

#[tokio::test]
async fn a_listing_goes_through_leaves_and_kept_events_newest_first() {
    let scene = Scene::new().await;
    scene.emit(&["a", "b", "a", "b"]).await;
    scene.rotate();
    scene.emit(&["a", "b"]).await;
    scene.rotate();
    scene.emit(&["a"]).await;
    let everything = [2 * TURN + 1, TURN + 2, TURN + 1, 4, 3, 2, 1];
    assert_eq!(listed(&scene, all()).await, everything);
    scene.empty_leaf(0, &[EventId(3), EventId(4)]);
    scene.empty_leaf(1, &[EventId(TURN + 1)]);
    let left = [2 * TURN + 1, TURN + 1, 4, 3];
    assert_eq!(listed(&scene, all()).await, left);
    let keyed = EventQuery { key: Some(Key::new("a")), ..all() };
    assert_eq!(listed(&scene, keyed).await, [2 * TURN + 1, TURN + 1, 3]);
    let mut pages = Vec::new();
    let mut before = None;
    loop {
        let page = listed(&scene, EventQuery { before, limit: 1, ..all() }).await;
        let [id] = page[..] else { break };
        pages.push(id);
        before = Some(EventId(id));
    }
    assert_eq!(pages, left);
    assert_eq!(listed(&scene, EventQuery { limit: 0, ..all() }).await, Vec::<i64>::new());
    let stats = scene.store.stats().await.unwrap();
    assert_eq!((stats.events, stats.newest_id), (4, Some(EventId(2 * TURN + 1))));
}

#[tokio::test]
async fn a_kept_event_is_found_when_its_leaf_serves_another_turn() {
    let scene = Scene::new().await;
    scene.subscribe("mail", Start::Oldest).await;
    let old = scene.emit(&["a", "b"]).await;
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    for _ in 0..16 {
        scene.rotate();
    }
    scene.empty_leaf(0, &[old[1]]);
    let new = scene.emit(&["c"]).await[0];
    assert_eq!(new, EventId(16 * TURN + 1), "in the leaf that the first ones were in");
    scene.rotate();
    assert_eq!(listed(&scene, all()).await, [new.0, old[1].0]);
    assert_eq!(scene.store.event_get(old[0]).await.unwrap(), None);
    let kept = scene.store.event_get(old[1]).await.unwrap().unwrap();
    assert_eq!((kept.id, kept.key), (old[1], Some(Key::new("b"))));
    assert_eq!(
        scene.stands("mail", old[1]).await.state,
        DeliveryState::Done,
        "its leaf went because of that"
    );
    assert_eq!(scene.lag("mail").await.0, 1);
    assert_eq!(scene.store.event_deliveries(old[0]).await.unwrap(), []);
}

#[tokio::test]
async fn patterns_match_as_they_do_everywhere() {
    let scene = Scene::new().await;
    let kinds = ["order.created", "order_created", "order.x.created", "orders.created", "Order.created"];
    let events = kinds.iter().map(|kind| Event::new("shop").kind(kind)).collect();
    scene.store.event_emit(events).await.unwrap();
    for pattern in ["order.*", "order_created", "*.created", "order*created", "*", "o*.c*d", "order.created"]
    {
        let filter = Filter { topics: Vec::new(), types: vec![pattern.parse().unwrap()] };
        let mut wanted: Vec<i64> =
            (1..).zip(kinds).filter(|(_, kind)| filter.matches("shop", kind)).map(|(id, _)| id).collect();
        wanted.reverse();
        assert_eq!(listed(&scene, EventQuery { filter, ..all() }).await, wanted, "{pattern}");
    }
    let filter = Filter { topics: vec!["sho".parse().unwrap()], types: Vec::new() };
    assert_eq!(listed(&scene, EventQuery { filter, ..all() }).await, Vec::<i64>::new());
}

#[tokio::test]
async fn a_rare_key_is_found_in_a_long_log() {
    let scene = Scene::new().await;
    let fill = "insert into postrider.event (topic, type, key)
                select 'order', 'order', 'k' || n from generate_series(1, 60000) as n";
    scene.run(fill);
    scene.rotate();
    scene.run(fill);
    let rare = EventQuery { key: Some(Key::new("k1")), ..all() };
    assert_eq!(listed(&scene, rare).await, [TURN + 1, 1]);
    let topics = vec!["nobody".parse().unwrap()];
    let nothing = EventQuery { filter: Filter { topics, types: Vec::new() }, ..all() };
    assert_eq!(listed(&scene, nothing).await, Vec::<i64>::new());
}
