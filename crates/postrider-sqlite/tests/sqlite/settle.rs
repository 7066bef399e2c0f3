//! Writing down what has been delivered and what has not.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::Origin;
use postrider_core::settle::{AttemptRecord, Row, RowDue, Settle};
use postrider_core::{
    Delivery, DeliveryState, Event, EventId, Failure, FailureClass, LogStore, Position, Store, limits,
};
use postrider_sqlite::rusqlite::{self, Transaction};
use postrider_sqlite::{Work, in_transaction};

use crate::scene::{Scene, at, dead, lane, parking, runs};

const NOW: RowDue = RowDue::After(Duration::ZERO);

#[tokio::test]
async fn the_mark_moves_all_shards_and_never_back() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let hold = scene.take("mail").await;
    for (mark, expected) in [(7, 7), (5, 7), (9, 9)] {
        let mark = Some(at(EventId(mark)));
        scene.settle(&hold, Settle { mark, ..Settle::default() }).await;
        let (least, most) = (
            scene.number("select min(last_id) from postrider_shard"),
            scene.number("select max(last_id) from postrider_shard"),
        );
        assert_eq!((least, most), (expected, expected));
    }
}

#[tokio::test]
async fn a_fenced_settle_changes_nothing() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "a"]).await;
    let member = scene.store.member_join("test").await.unwrap();
    let stale = scene.take_as("mail", member).await;
    scene.take_as("mail", member).await;
    let before = scene.dump();
    let settle = Arc::new(Settle {
        mark: Some(at(ids[1])),
        rows: vec![parking(ids[0], "a", NOW)],
        done: vec![ids[1]],
        freed: vec![lane("a")],
        attempts: vec![attempt(ids[0], 1)],
    });
    assert!(scene.store.settle(&stale, Arc::clone(&settle)).await.unwrap_err().is_fenced());
    let work: Work = Box::new(|_| panic!("the fence comes before the work"));
    assert!(scene.store.settle_with(&stale, settle, work).await.unwrap_err().is_fenced());
    assert!(scene.store.shards_release(&stale).await.unwrap_err().is_fenced());
    assert_eq!(scene.dump(), before);
}

#[tokio::test]
async fn the_same_settle_twice_is_the_same_as_once() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "a", "a", "b"]).await;
    let hold = scene.take("mail").await;
    scene.settle(&hold, Settle { rows: vec![parking(ids[3], "b", NOW)], ..Settle::default() }).await;
    let settle = Settle {
        mark: Some(at(ids[3])),
        rows: vec![
            dead(Row { parks: false, ..parking(ids[0], "a", NOW) }),
            parking(ids[1], "a", RowDue::Waiting),
            parking(ids[2], "a", RowDue::Waiting),
        ],
        done: vec![ids[3]],
        freed: vec![lane("a"), lane("b")],
        attempts: vec![attempt(ids[0], 1)],
    };
    let settled = scene.settle(&hold, settle.clone()).await;
    assert_eq!(settled.unparked, [lane("b")]);
    let before = scene.dump();
    assert_eq!(scene.settle(&hold, settle).await, settled);
    assert_eq!(scene.dump(), before);
}

#[tokio::test]
async fn a_lane_moves_on_one_head_at_a_time_until_it_is_free() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "a", "a"]).await;
    let hold = scene.take("mail").await;
    let rows = vec![
        parking(ids[0], "a", NOW),
        parking(ids[1], "a", RowDue::Waiting),
        parking(ids[2], "a", RowDue::Waiting),
    ];
    scene.settle(&hold, Settle { mark: Some(at(ids[2])), rows, ..Settle::default() }).await;
    for n in 0..3 {
        let due = scene.due(&hold, &[]).await;
        assert_eq!(runs(&due), [ids[n..].iter().map(|id| id.0).collect::<Vec<_>>()]);
        let done = Settle { done: vec![ids[n]], freed: vec![lane("a")], ..Settle::default() };
        let settled = scene.settle(&hold, done).await;
        assert_eq!(settled.unparked.is_empty(), n < 2);
    }
    assert_eq!(scene.number("select count(*) from postrider_delivery"), 0);
}

#[tokio::test]
async fn a_dead_head_frees_its_lane_or_holds_it_as_its_row_says() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let ids = scene.emit(&["a", "a", "b", "b"]).await;
    let hold = scene.take("mail").await;
    let skipped = Row { parks: false, ..parking(ids[0], "a", NOW) };
    let rows = vec![
        dead(skipped),
        parking(ids[1], "a", RowDue::Waiting),
        dead(parking(ids[2], "b", NOW)),
        parking(ids[3], "b", RowDue::Waiting),
    ];
    let freed = vec![lane("a"), lane("b")];
    scene.settle(&hold, Settle { mark: Some(at(ids[3])), rows, freed, ..Settle::default() }).await;
    assert_eq!(runs(&scene.due(&hold, &[]).await), [[ids[1].0]]);
    let report = scene.store.subscription_report("mail").await.unwrap();
    assert_eq!((report.dead, report.pending, report.parked_count), (2, 2, 2));
    assert_eq!(report.parked[1].waiting, 2);
    let waits = scene.store.event_deliveries(ids[3]).await.unwrap();
    assert_eq!((waits[0].state, waits[0].behind), (DeliveryState::Pending, Some(ids[2])));
}

#[tokio::test]
async fn only_the_last_attempts_are_kept() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    let id = scene.emit(&["a"]).await[0];
    let hold = scene.take("mail").await;
    let attempts = (1..=limits::ATTEMPT_RECORDS_MAX + 5).map(|n| attempt(id, n)).collect();
    scene.settle(&hold, Settle { attempts, ..Settle::default() }).await;
    let history = &scene.store.event_deliveries(id).await.unwrap()[0].history;
    assert_eq!(history.len(), limits::ATTEMPT_RECORDS_MAX as usize);
    assert_eq!(history.last().unwrap().attempt, limits::ATTEMPT_RECORDS_MAX + 5);
    assert_eq!((history[0].member.as_str(), history[0].error.as_str()), ("test", "refused"));
}

#[tokio::test]
async fn a_transactional_handlers_writes_commit_with_the_settle_or_not_at_all() {
    let scene = Scene::new().await;
    scene.subscribe("mail").await;
    scene.raw().execute_batch("create table invoice (event_id)").unwrap();
    let id = scene.emit(&["a"]).await[0];
    let hold = scene.take("mail").await;
    let settle = Arc::new(Settle { mark: Some(at(id)), ..Settle::default() });
    let event = Arc::new(scene.store.event_get(id).await.unwrap().unwrap());
    let origin = Arc::new(Origin { subscription: "mail".to_owned(), store_id: String::new() });
    let delivery = Delivery::new(event, 1, origin);
    let write = |tx: &Transaction<'_>, event: &Delivery| {
        tx.execute("insert into invoice values (?1)", [event.id.0]).map(drop)
    };
    let handlers: [(Work, FailureClass, &str); 3] = [
        (
            in_transaction(move |tx: &Transaction<'_>, event: &Delivery| {
                write(tx, event)?;
                tx.execute("insert into nowhere values (1)", []).map(drop)
            })(delivery.clone()),
            FailureClass::Retryable,
            "no such table",
        ),
        (
            Box::new(move |tx| {
                tx.execute("insert into invoice values (0)", []).unwrap();
                panic!("out of luck")
            }),
            FailureClass::Retryable,
            "handler panicked: out of luck",
        ),
        (
            Box::new(|tx| {
                tx.execute_batch("rollback").unwrap();
                Ok(())
            }),
            FailureClass::Permanent,
            "has ended the transaction",
        ),
    ];
    let before = scene.dump();
    for (work, class, words) in handlers {
        let failure: Failure =
            scene.store.settle_with(&hold, Arc::clone(&settle), work).await.unwrap().unwrap_err();
        assert_eq!(failure.class(), class);
        assert!(failure.message().contains(words), "{failure}");
        assert_eq!(scene.number("select count(*) from invoice"), 0);
        assert_eq!(scene.dump(), before);
    }
    let work = in_transaction(move |tx: &Transaction<'_>, event: &Delivery| {
        write(tx, event)?;
        postrider_core::emit(tx, Event::new("invoice"))
            .map(drop)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
    })(delivery);
    scene.store.settle_with(&hold, settle, work).await.unwrap().unwrap();
    assert_eq!(scene.number("select count(*) from invoice"), 1);
    assert_eq!(scene.number("select min(last_id) from postrider_shard"), id.0);
    assert_eq!(scene.store.fetch(&hold, at(id), crate::scene::ROOM).await.unwrap().events.len(), 1);
    assert_ne!(at(id), Position::START);
}

fn attempt(event_id: EventId, attempt: u32) -> AttemptRecord {
    AttemptRecord {
        event_id,
        attempt,
        ended_ago: Duration::from_millis(5),
        took: Duration::from_millis(20),
        error: "refused".to_owned(),
    }
}
