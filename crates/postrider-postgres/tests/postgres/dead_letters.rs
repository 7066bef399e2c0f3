//! Dead letters.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::store::{DeadLetterQuery, LetterId};
use postrider_core::{DeliveryState, ErrorKind, EventId, Start, Store};

use crate::scene::{MORNING, Row, Scene};

fn all() -> DeadLetterQuery {
    DeadLetterQuery { limit: 100, ..DeadLetterQuery::default() }
}

fn letter(id: EventId) -> LetterId {
    LetterId { subscription: "mail".to_owned(), event_id: id }
}

async fn with_letters(keys: &[&str]) -> (Scene, Vec<EventId>) {
    let scene = Scene::new().await;
    for name in ["mail", "audit"] {
        scene.subscribe(name, Start::Oldest).await;
    }
    let ids = scene.emit(keys).await;
    for name in ["mail", "audit"] {
        scene.store.subscription_seek(name, Start::Now, "setup").await.unwrap();
    }
    (scene, ids)
}

#[tokio::test]
async fn letters_are_listed_across_leaves_edited_and_replayed_behind_all() {
    let (scene, ids) = with_letters(&["a", "b", "c", "d"]).await;
    scene.put("mail", &Row::dead(ids[0], "a"));
    scene.put("mail", &Row { parks: true, ..Row::dead(ids[1], "b") });
    scene.put("audit", &Row { late: true, ..Row::dead(ids[2], "c") });
    scene.rotate();
    scene.empty_leaf(0, &ids[..3]);
    let later = scene.emit(&["d"]).await[0];
    scene.put("mail", &Row::dead(later, "d"));
    let listed = scene.store.dead_letter_list(all()).await.unwrap();
    let found: Vec<(&str, EventId, bool)> =
        listed.iter().map(|dead| (dead.letter.subscription.as_str(), dead.event.id, dead.holds)).collect();
    assert_eq!(
        found,
        [("mail", ids[0], false), ("mail", ids[1], true), ("audit", ids[2], false), ("mail", later, false)]
    );
    assert_eq!(listed[0].died_at, MORNING);
    let page = DeadLetterQuery { after: Some(ids[1]), limit: 1, ..all() };
    assert_eq!(scene.store.dead_letter_list(page).await.unwrap()[0].letter.event_id, ids[2]);
    scene.store.dead_letter_edit(&letter(ids[0]), Bytes::from("new"), "ann").await.unwrap();
    assert_eq!(scene.store.dead_letter_get(&letter(ids[0])).await.unwrap().edited_payload.unwrap(), "new");
    assert_eq!(scene.store.dead_letter_replay(all(), "ann").await.unwrap(), 4);
    let turns = "select string_agg(turn::text, ',' order by event_id) from postrider.delivery
                 where state = 'pending' and due_at = postrider.clock() and attempts = 0 and died_at is null";
    let behind = later.0 + 1;
    assert_eq!(scene.text(turns), format!("{behind},{},{},{behind}", ids[1], MORNING.as_micros()));
    let audited =
        "select count(*) from postrider.audit where actor = 'ann' and action = 'dead_letter_replay'";
    assert_eq!(scene.number(audited), 4);
    let again = scene.store.dead_letter_get(&letter(ids[0])).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn two_replays_at_once_replay_a_letter_once() {
    let (scene, ids) = with_letters(&["a", "b", "c"]).await;
    for id in &ids {
        scene.put("mail", &Row::dead(*id, "a"));
    }
    let other = scene.second().await;
    let (one, two) =
        tokio::join!(scene.store.dead_letter_replay(all(), "ann"), other.dead_letter_replay(all(), "bob"));
    assert_eq!(one.unwrap() + two.unwrap(), 3);
    assert_eq!(scene.number("select count(*) from postrider.audit where action = 'dead_letter_replay'"), 3);
}

#[tokio::test]
async fn a_discarded_letter_leaves_and_one_that_holds_is_left_to_the_owner() {
    let (scene, ids) = with_letters(&["a", "b", "b"]).await;
    scene.put("mail", &Row::dead(ids[0], "a"));
    scene.put("mail", &Row { parks: true, ..Row::dead(ids[1], "b") });
    scene.put("mail", &Row::waiting(ids[2], "b"));
    let of_mail = DeadLetterQuery { subscription: Some("mail".to_owned()), ..all() };
    let one = DeadLetterQuery { event_id: Some(ids[0]), ..of_mail.clone() };
    assert_eq!(scene.store.dead_letter_discard(one.clone(), "ann").await.unwrap(), 1);
    assert_eq!(scene.store.dead_letter_discard(one, "ann").await.unwrap(), 0);
    assert_eq!(scene.stands("mail", ids[0]).await.state, DeliveryState::Done);
    assert_eq!(scene.store.dead_letter_discard(of_mail, "ann").await.unwrap(), 1);
    let held = scene.stands("mail", ids[1]).await;
    assert_eq!((held.state, held.due_at), (DeliveryState::Done, Some(MORNING)));
    assert_eq!(scene.stands("mail", ids[2]).await.behind, Some(ids[1]));
    assert_eq!(scene.check().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_letter_that_is_none_is_refused() {
    let (scene, ids) = with_letters(&["a"]).await;
    let edit = scene.store.dead_letter_edit(&letter(ids[0]), Bytes::new(), "ann").await.unwrap_err();
    let nobody = DeadLetterQuery { subscription: Some("nobody".to_owned()), ..all() };
    let list = scene.store.dead_letter_list(nobody).await.unwrap_err();
    assert_eq!((edit.kind(), list.kind()), (ErrorKind::NotFound, ErrorKind::NotFound));
    scene.put("mail", &Row::dead(ids[0], "a"));
    let large = Bytes::from(vec![0; 1024 * 1024 + 1]);
    let large = scene.store.dead_letter_edit(&letter(ids[0]), large, "ann").await.unwrap_err();
    assert_eq!(large.kind(), ErrorKind::Invalid);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.number("select count(*) from postrider.audit where actor = 'ann'"), 0);
}
