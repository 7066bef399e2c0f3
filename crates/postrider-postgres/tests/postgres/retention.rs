//! What may go with its leaf, and what must stay.

use std::time::Duration;

use postrider_core::settle::Settle;
use postrider_core::store::DeadLetterQuery;
use postrider_core::{Event, EventId, NewSubscription, Start, Store};
use postrider_testkit::conformance::owner::{Owner, ids};
use postrider_testkit::postgres::Version;

use crate::scene::{Scene, TURN};

const DAY: Duration = Duration::from_secs(24 * 3600);

on_each_version!(
    nothing_unread_goes_whatever_its_age,
    one_shard_that_lags_keeps_the_leaf,
    a_row_that_lands_in_an_emptied_leaf_is_delivered,
    what_exceptions_need_survives_its_leaf,
    keys_and_attempts_go_with_their_events,
    a_seek_back_finds_what_is_left,
);

async fn nothing_unread_goes_whatever_its_age(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    let mut emitted = Vec::new();
    for _ in 0..5 {
        emitted.extend(scene.emit(&["a", "b"]).await);
        scene.pass(DAY * 30);
        let pruned = scene.prune(DAY).await;
        assert_eq!((pruned.removed, pruned.pinned_by.as_deref()), (0, Some("mail")));
    }
    assert_eq!((scene.turn(), scene.lag("mail").await.0), (5, 10));
    assert_eq!(ids(&owner.read_all().await.unwrap()), emitted);
    owner.settle_rows(emitted[3], Vec::new()).await.unwrap();
    let pruned = scene.prune(DAY).await;
    assert_eq!((pruned.removed, pruned.pinned_by.as_deref()), (4, Some("mail")));
    owner.settle_rows(emitted[4], Vec::new()).await.unwrap();
    assert_eq!(scene.prune(DAY).await.removed, 0, "half a leaf stays");
    owner.settle_rows(emitted[9], Vec::new()).await.unwrap();
    let pruned = scene.prune(DAY).await;
    assert_eq!((pruned.removed, pruned.pinned_by, scene.events()), (6, None, 0));
}

async fn one_shard_that_lags_keeps_the_leaf(version: Version) {
    let scene = Scene::on(version).await;
    scene.subscribe("mail", Start::Oldest).await;
    scene.emit(&["a"]).await;
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    scene.pass(DAY * 2);
    scene.run(
        "insert into postrider.position_a
         select subscription_id, nextval('postrider.position_n'), 1 << 9, from_snapshot, to_snapshot, next_xid, seq,
             bound_xids, bound_seqs, last_id, at
         from postrider.position_a order by n limit 1",
    );
    assert_eq!(scene.prune(DAY).await.pinned_by.as_deref(), Some("mail"));
    scene.store.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    assert_eq!(scene.prune(DAY).await.removed, 1);
}

/// A transaction draws its id, and comes to write the row when its leaf has long been emptied.
async fn a_row_that_lands_in_an_emptied_leaf_is_delivered(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    let late = scene.client().await;
    late.batch_execute("begin; select pg_current_xact_id()").await.unwrap();
    let drawn: i64 = late.query_one("select nextval('postrider.event_id_seq')", &[]).await.unwrap().get(0);
    let early = scene.emit(&["a"]).await;
    owner.settle_rows(early[0], Vec::new()).await.unwrap();
    for _ in 0..3 {
        scene.pass(DAY * 2);
        assert_eq!(scene.prune(DAY).await.removed, 1);
        let next = scene.emit(&["a"]).await;
        owner.settle_rows(next[0], Vec::new()).await.unwrap();
    }
    let land = "insert into postrider.event (id, topic, type, key) overriding system value
                values ($1, 'order', 'order', 'late')";
    late.execute(land, &[&drawn]).await.unwrap();
    late.batch_execute("commit").await.unwrap();
    assert_eq!((drawn, scene.number("select count(*) from postrider.event_0")), (1, 1));
    scene.pass(DAY * 2);
    let pruned = scene.prune(DAY).await;
    assert_eq!(
        (pruned.removed, pruned.pinned_by.as_deref()),
        (1, Some("mail")),
        "the others do not wait for it"
    );
    let after = owner.behind(EventId(3 * TURN + 1)).await.unwrap();
    let chunk = owner.fetch(after, postrider_testkit::conformance::owner::AMPLE).await.unwrap();
    assert_eq!(ids(&chunk.events), [EventId(drawn)]);
    owner.settle(Settle { mark: Some(chunk.end), ..Settle::default() }).await.unwrap();
    assert_eq!(scene.prune(DAY).await.removed, 1);
    assert_eq!(scene.events(), 0);
}

async fn what_exceptions_need_survives_its_leaf(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    scene.emit(&["a", "b", "c"]).await;
    let events = owner.read_all().await.unwrap();
    let rows = vec![owner.row(&events[0]).failed(DAY * 30), owner.row(&events[1]).dead_skipped()];
    owner.settle_rows(events[2].id, rows).await.unwrap();
    scene.pass(DAY * 2);
    assert_eq!(scene.prune(DAY).await.removed, 1);
    assert_eq!((scene.events(), scene.number("select count(*) from postrider.kept_event")), (0, 2));
    assert_eq!(scene.check().await, Vec::<String>::new());
    // The ring comes round to the leaf again, and it is emptied again.
    for _ in 0..17 {
        let next = scene.emit(&["d"]).await;
        owner.settle_rows(next[0], Vec::new()).await.unwrap();
        scene.pass(DAY * 2);
        assert_eq!(scene.prune(DAY).await.removed, 1);
    }
    assert!(scene.turn() > 16);
    let all = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
    assert_eq!(scene.store.dead_letter_replay(all, "ann").await.unwrap(), 1);
    let due = owner.due().await.unwrap();
    let due: Vec<_> = due.runs.iter().flat_map(|run| run.rows.iter().map(|row| &row.event)).collect();
    assert_eq!(due.len(), 2);
    for event in due {
        let known = events.iter().find(|known| known.id == event.id).unwrap();
        assert_eq!(event, known, "it comes back to the byte");
    }
    let done = vec![events[0].id, events[1].id];
    owner.settle(Settle { done, ..Settle::default() }).await.unwrap();
    assert_eq!(scene.prune(DAY).await.removed, 2);
    assert_eq!(scene.store.stats().await.unwrap().events, 0);
}

async fn keys_and_attempts_go_with_their_events(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    for key in ["x", "y"] {
        let emit = format!("select postrider.emit('order', 'order', '{key}', idempotency_key => '{key}')");
        scene.run(&emit);
    }
    scene.run("insert into postrider.superseded values (1), (2)");
    let events = owner.read_all().await.unwrap();
    let rows = vec![owner.row(&events[1]).dead_skipped()];
    owner.settle_rows(events[1].id, rows).await.unwrap();
    scene.run(
        "insert into postrider.attempt
         select (select id from postrider.subscription), n, 1, postrider.clock(), interval '1 s', 'ada', 'no'
         from generate_series(1, 2) as n",
    );
    scene.pass(DAY * 2);
    assert_eq!(scene.prune(DAY).await.removed, 1);
    let left = "select string_agg(key, '') || (select string_agg(event_id::text, '') from postrider.attempt)
                from postrider.idempotency";
    assert_eq!(scene.text(left), "y2", "what is kept keeps what is known about it");
    assert_eq!(scene.number("select sum(event_id)::bigint from postrider.superseded"), 2);
    let all = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
    scene.store.dead_letter_discard(all, "ann").await.unwrap();
    assert_eq!(scene.prune(DAY).await.removed, 1);
    let left =
        "select (select count(*) from postrider.idempotency) + (select count(*) from postrider.attempt)
                + (select count(*) from postrider.superseded)";
    assert_eq!(scene.number(left), 0);
}

async fn a_seek_back_finds_what_is_left(version: Version) {
    let scene = Scene::on(version).await;
    let owner = Owner::create(&scene.store, NewSubscription::new("mail")).await.unwrap();
    let old = scene.emit(&["a", "a"]).await;
    owner.settle_rows(old[1], Vec::new()).await.unwrap();
    scene.pass(DAY * 2);
    assert_eq!(scene.prune(DAY).await.removed, 2);
    let young = scene.store.event_emit(vec![Event::new("order").key("a"); 2]).await.unwrap();
    owner.settle_rows(young[1], Vec::new()).await.unwrap();
    for to in [Start::Oldest, Start::Id(EventId(1)), Start::Id(young[0])] {
        scene.store.subscription_seek("mail", to, "ann").await.unwrap();
        let next = Owner::of(&scene.store, "mail").await.unwrap();
        assert_eq!(ids(&next.read_all().await.unwrap()), young);
    }
}
