//! What people do with deliveries that were given up.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::settle::{Hold, Row, RowDue, Settle};
use postrider_core::store::{DeadLetterQuery, LetterId};
use postrider_core::{ErrorKind, EventId, Store};

use crate::scene::{Scene, at, dead, lane, parking, runs};

const NOW: RowDue = RowDue::After(Duration::ZERO);

/// One letter of key `a` that nothing waits for, and one of key `b` that holds another event.
async fn letters() -> (Scene, Hold, Vec<EventId>) {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "b", "b", "a"]).await;
    let hold = scene.take("mail").await;
    let rows = vec![
        dead(Row { parks: false, ..parking(ids[0], "a", NOW) }),
        dead(parking(ids[1], "b", NOW)),
        parking(ids[2], "b", RowDue::Waiting),
    ];
    scene.settle(&hold, Settle { mark: Some(at(ids[3])), rows, ..Settle::default() }).await;
    (scene, hold, ids)
}

fn all() -> DeadLetterQuery {
    DeadLetterQuery { limit: 100, ..DeadLetterQuery::default() }
}

fn letter(event_id: EventId) -> LetterId {
    LetterId { subscription: "mail".to_owned(), event_id }
}

#[tokio::test]
async fn letters_are_listed_by_event_and_pages_follow_each_other() {
    let (scene, _, ids) = letters().await;
    let list = scene.store.dead_letter_list(all()).await.unwrap();
    let seen: Vec<_> = list.iter().map(|dead| (dead.letter.event_id, dead.holds, dead.died_at)).collect();
    let died_at = crate::scene::MORNING;
    assert_eq!(seen, [(ids[0], false, died_at), (ids[1], true, died_at)]);
    let next = DeadLetterQuery { after: Some(ids[0]), ..all() };
    assert_eq!(scene.store.dead_letter_list(next).await.unwrap().len(), 1);
    let one = DeadLetterQuery { event_id: Some(ids[1]), subscription: Some("mail".into()), ..all() };
    assert_eq!(scene.store.dead_letter_list(one).await.unwrap().len(), 1);
    let unknown = DeadLetterQuery { subscription: Some("nobody".into()), ..all() };
    assert_eq!(scene.store.dead_letter_list(unknown).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(scene.store.dead_letter_get(&letter(ids[2])).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_replay_delivers_the_edited_payload_and_happens_once() {
    let (scene, hold, ids) = letters().await;
    let edited = Bytes::from_static(b"better");
    scene.store.dead_letter_edit(&letter(ids[1]), edited.clone(), "ann").await.unwrap();
    assert_eq!(
        scene.store.dead_letter_get(&letter(ids[1])).await.unwrap().edited_payload,
        Some(edited.clone())
    );
    assert_eq!(scene.store.dead_letter_replay(all(), "ann").await.unwrap(), 2);
    assert_eq!(scene.store.dead_letter_replay(all(), "bob").await.unwrap(), 0);
    let due = scene.due(&hold, &[]).await;
    assert_eq!(runs(&due), [vec![ids[0].0], vec![ids[1].0, ids[2].0]]);
    let (skipped, held) = (&due.runs[0], &due.runs[1]);
    assert!(!skipped.parks && held.parks);
    assert_eq!(skipped.rows[0].turn, ids[3].0, "it goes behind what is there");
    assert_eq!((&held.rows[0].event.payload, held.rows[0].attempts), (&edited, 0));
    assert_eq!(scene.store.event_get(ids[1]).await.unwrap().unwrap().payload, "{}");
    assert_eq!(scene.number("select count(*) from postrider_audit where actor = 'ann'"), 3);
    assert_eq!(scene.number("select count(*) from postrider_audit where actor = 'bob'"), 0);
    let error = scene.store.dead_letter_edit(&letter(ids[1]), edited, "ann").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_discarded_letter_is_gone_and_a_lane_that_it_held_goes_on() {
    let (scene, hold, ids) = letters().await;
    assert_eq!(scene.store.dead_letter_discard(all(), "ann").await.unwrap(), 2);
    assert_eq!(scene.store.dead_letter_discard(all(), "ann").await.unwrap(), 0);
    let due = scene.due(&hold, &[]).await;
    assert_eq!(runs(&due), [[ids[1].0, ids[2].0]]);
    assert!(due.runs[0].rows[0].discarded && !due.runs[0].rows[1].discarded);
    let left = Settle { done: vec![ids[1]], freed: vec![lane("b")], ..Settle::default() };
    assert!(scene.settle(&hold, left).await.unparked.is_empty());
    assert_eq!(runs(&scene.due(&hold, &[]).await), [[ids[2].0]]);
    assert_eq!(scene.number("select count(*) from postrider_audit"), 2);
}
