//! Rows that break a limit and are there all the same: by plain SQL, past the checks of the schema.

use postrider_core::event::Flaw;
use postrider_core::settle::{Row, RowDue, Settle};
use postrider_core::store::EventQuery;
use postrider_core::{
    DeliveryState, Event, EventId, Filter, NewSubscription, OnDead, Shard, Start, Store, limits,
};

use super::owner::{ACTOR, AMPLE, Owner, SECOND, SUBSCRIPTION, letter};
use super::{Kept, Planted, Rig};

/// One row for each limit, and the reason that each must come with.
fn rows() -> Vec<(Planted, &'static str)> {
    let long = |bytes: usize| "x".repeat(bytes);
    let many = |pairs: usize| {
        let pairs: Vec<String> = (0..pairs).map(|n| format!("\"h{n}\": \"v\"")).collect();
        format!("{{{}}}", pairs.join(", "))
    };
    let row = Planted::default;
    vec![
        (Planted { topic: long(256), ..row() }, "topic has 256 bytes, the limit is 255"),
        (Planted { topic: long(1_500_000), ..row() }, "topic has 1,500,000 bytes, the limit is 255"),
        (Planted { kind: long(9_000), ..row() }, "type has 9,000 bytes, the limit is 255"),
        (Planted { key: Some(long(2_880)), ..row() }, "key has 2,880 bytes, the limit is 1,024"),
        (Planted { key: Some(long(3_000_000)), ..row() }, "key has 3,000,000 bytes, the limit is 1,024"),
        (
            Planted { headers: Some(format!("{{\"h\": \"{}\"}}", long(20_000))), ..row() },
            "the headers have 20,001 bytes, the limit is 16,384",
        ),
        (
            Planted { headers: Some(format!("{{\"h\": \"{}\"}}", long(4_000_000))), ..row() },
            "the headers have 4,000,009 bytes, the limit is 131,072",
        ),
        (Planted { headers: Some(many(65)), ..row() }, "there are more than 64 headers"),
        (
            Planted { payload: vec![b' '; limits::PAYLOAD_BYTES_MAX + 1], ..row() },
            "payload has 1,048,577 bytes, the limit is 1,048,576",
        ),
        (
            Planted { payload: vec![b' '; 5 * limits::PAYLOAD_BYTES_MAX], ..row() },
            "payload has 5,242,880 bytes, the limit is 1,048,576",
        ),
    ]
}

pub(super) async fn plant<R: Rig>(rig: &R) -> Kept<(Vec<EventId>, Vec<&'static str>)> {
    let (mut ids, mut reasons) = (Vec::new(), Vec::new());
    for (row, reason) in rows() {
        ids.push(rig.plant(&row).await);
        reasons.push(reason);
    }
    Ok((ids, reasons))
}

pub(super) fn reason(event: &Event) -> &str {
    event.flaw.as_deref().map_or("", Flaw::reason)
}

/// The event holds nothing that could hurt a process that holds many such events.
pub(super) fn assert_small(event: &Event) {
    assert!(event.bytes() <= limits::HEADERS_BYTES_MAX, "{event:?}");
    assert!(event.topic.as_str().len() <= limits::NAME_BYTES_MAX);
    assert!(event.due_at.is_none());
}

fn everything() -> NewSubscription {
    NewSubscription::new(SUBSCRIPTION).start(Start::Now)
}

/// Each is read in its place, without what breaks a limit, and says which limit that is; its neighbours are
/// as they were emitted.
pub async fn an_event_that_breaks_a_limit_is_read_without_what_does<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), everything()).await?;
    let before = rig.store().event_emit(vec![Event::new("order").key("a").payload("1")]).await?;
    let (planted, reasons) = plant(rig).await?;
    let after = rig.store().event_emit(vec![Event::new("order").key("a").payload("2")]).await?;
    let (mut read, mut position) = (Vec::new(), owner.position());
    loop {
        let chunk = owner.fetch(position, AMPLE).await?;
        read.extend(chunk.events.iter().cloned());
        position = chunk.end;
        if !chunk.more {
            break;
        }
    }
    let ids: Vec<EventId> = read.iter().map(|event| event.id).collect();
    assert_eq!(ids, [before, planted.clone(), after].concat());
    let told: Vec<&str> = read.iter().map(|event| reason(event)).collect();
    assert_eq!(told, [vec![""], reasons.clone(), vec![""]].concat());
    read[1..=reasons.len()].iter().for_each(|event| assert_small(event));
    for (id, reason_of_it) in planted.iter().zip(reasons) {
        let event = rig.store().event_get(*id).await?.expect("it is there");
        assert_eq!(reason(&event), reason_of_it);
        assert_small(&event);
    }
    Ok(())
}

/// A filter looks at the beginning of a name that is too long.
pub async fn a_name_that_is_too_long_is_filtered_by_its_beginning<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), everything().topic("order*")?).await?;
    let order = Planted { topic: "order".repeat(100), ..Planted::default() };
    let id = rig.plant(&order).await;
    rig.plant(&Planted { topic: "other".repeat(100), ..Planted::default() }).await;
    let chunk = owner.fetch(owner.position(), AMPLE).await?;
    assert_eq!(chunk.events.iter().map(|event| event.id).collect::<Vec<_>>(), [id]);
    let filter = Filter { topics: vec!["order*".parse()?], types: Vec::new() };
    let listed = rig.store().event_list(EventQuery { filter, limit: 9, ..EventQuery::default() }).await?;
    assert_eq!(listed.iter().map(|event| event.id).collect::<Vec<_>>(), [id]);
    Ok(())
}

/// The same among due rows, where another payload mends one that was too large.
pub async fn a_due_row_that_breaks_a_limit_is_read_without_what_does<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), everything()).await?;
    let (planted, reasons) = plant(rig).await?;
    let shard = |id: EventId| Shard::of(None, id, owner.hold().shard_count);
    let row = |id: &EventId| Row {
        event_id: *id,
        shard: shard(*id),
        lane: None,
        turn: id.0,
        parks: false,
        state: DeliveryState::Dead,
        attempts: 1,
        due: RowDue::Waiting,
    };
    let last = *planted.last().expect("there are some");
    let mark = Some(owner.behind(last).await?);
    owner.settle(Settle { mark, rows: planted.iter().map(row).collect(), ..Settle::default() }).await?;
    let mend = letter(last);
    for (id, reason_of_it) in planted.iter().zip(&reasons) {
        let found = rig.store().dead_letter_get(&letter(*id)).await?;
        assert_eq!(reason(&found.event), *reason_of_it);
    }
    rig.store().dead_letter_edit(&mend, b"mended".as_slice().into(), ACTOR).await?;
    rig.store().dead_letter_replay(super::dead_letters::all(), ACTOR).await?;
    rig.clock().advance(SECOND);
    let due = owner.due().await?;
    let mut found: Vec<(EventId, String)> = due
        .runs
        .iter()
        .flat_map(|run| &run.rows)
        .map(|row| (row.event.id, reason(&row.event).to_owned()))
        .collect();
    found.sort();
    let mut expected: Vec<(EventId, String)> =
        planted.iter().copied().zip(reasons.iter().map(|reason| (*reason).to_owned())).collect();
    expected.last_mut().expect("there are some").1 = String::new();
    assert_eq!(found, expected);
    let rows = due.runs.iter().flat_map(|run| &run.rows);
    assert!(rows.filter(|row| row.event.id == last).all(|row| &row.event.payload[..] == b"mended"));
    Ok(())
}

/// A page shows the beginning of what is large, and one event is read whole.
pub async fn listings_show_the_beginning_of_what_is_large<R: Rig>(rig: &R) -> Kept {
    let payload = vec![b'p'; limits::PAYLOAD_BYTES_MAX];
    let mut large = Event::new("order").payload(payload.clone());
    for n in 0..4 {
        large = large.header(format!("h{n}"), "v".repeat(limits::HEADERS_BYTES_MAX / 5));
    }
    let small = Event::new("order").payload("p").header("h", "v");
    let ids = rig.store().event_emit(vec![large, small]).await?;
    let listed = rig.store().event_list(EventQuery { limit: 9, ..EventQuery::default() }).await?;
    assert_eq!((listed[0].payload_bytes, listed[0].headers_cut), (1, false));
    assert_eq!((listed[0].is_payload_cut(), listed[0].headers.get("h")), (false, Some("v")));
    assert_eq!(listed[1].payload_bytes, payload.len() as u64);
    assert_eq!(listed[1].payload[..], payload[..limits::PREVIEW_BYTES_MAX]);
    assert!(listed[1].headers_cut && listed[1].headers.is_empty() && listed[1].flaw.is_none());
    let whole = rig.store().event_get(ids[0]).await?.expect("it is there");
    assert_eq!((whole.payload.len(), whole.headers.iter().count()), (payload.len(), 4));
    Ok(())
}

/// The same for dead letters, and for the payloads that people have put in place of others.
pub async fn listed_dead_letters_show_the_beginning_of_what_is_large<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), everything().on_dead(OnDead::Skip)).await?;
    let ids = rig.store().event_emit(vec![Event::new("order").payload(vec![b'p'; 100_000])]).await?;
    let row = Row {
        event_id: ids[0],
        shard: Shard::of(None, ids[0], owner.hold().shard_count),
        lane: None,
        turn: ids[0].0,
        parks: false,
        state: DeliveryState::Dead,
        attempts: 1,
        due: RowDue::Waiting,
    };
    let mark = Some(owner.behind(ids[0]).await?);
    owner.settle(Settle { mark, rows: vec![row], ..Settle::default() }).await?;
    rig.store().dead_letter_edit(&letter(ids[0]), vec![b'e'; 50_000].into(), ACTOR).await?;
    let listed = rig.store().dead_letter_list(super::dead_letters::all()).await?;
    assert_eq!((listed[0].event.payload.len(), listed[0].event.payload_bytes), (4_096, 100_000));
    assert_eq!(listed[0].edited_payload.as_ref().map(bytes::Bytes::len), Some(4_096));
    assert_eq!(listed[0].edited_bytes, 50_000);
    let whole = rig.store().dead_letter_get(&letter(ids[0])).await?;
    assert_eq!((whole.event.payload.len(), whole.edited_bytes), (100_000, 50_000));
    assert_eq!(whole.edited_payload.map(|edited| edited.len()), Some(50_000));
    Ok(())
}
