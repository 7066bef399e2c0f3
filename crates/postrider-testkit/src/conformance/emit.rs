//! An event exists once it is emitted, as it was emitted.

use std::cell::Cell;
use std::time::Duration;

use postrider_core::emit::set_trace_source;
use postrider_core::store::EventQuery;
use postrider_core::time::Clock;
use postrider_core::{ErrorKind, Event, EventId, Filter, Key, NewSubscription, Start, Store, limits};

use super::owner::{Owner, emit, event_of, refused};
use super::{Kept, Rig};

/// All events of the store, newest first.
async fn all<R: Rig>(rig: &R) -> Kept<Vec<Event>> {
    let listed = rig.store().event_list(EventQuery { limit: 1_000, ..EventQuery::default() }).await?;
    Ok(listed.into_iter().map(|listed| listed.event).collect())
}

/// Ids grow, within a batch and from one to the next.
pub async fn ids_come_in_order<R: Rig>(rig: &R) -> Kept {
    let mut given = rig.store().event_emit(vec![event_of("a"); 3]).await?;
    given.extend(rig.store().event_emit(vec![event_of("b")]).await?);
    given.extend(rig.second().await.event_emit(vec![event_of("a"); 2]).await?);
    assert_eq!(given.len(), 6);
    assert!(given.is_sorted_by(|a, b| a < b), "{given:?}");
    assert!(given[0] > EventId(0), "positions start at zero, so no event may have that id");
    Ok(())
}

/// One bad event of a batch, and none of it is written, idempotency keys included.
pub async fn a_batch_is_written_whole_or_not_at_all<R: Rig>(rig: &R) -> Kept {
    let good = event_of("a").idempotency_key("once");
    let both = rig.store().event_emit(vec![good.clone(), Event::new("not a name")]).await;
    assert_eq!(refused(both), ErrorKind::Invalid);
    assert_eq!(all(rig).await?, []);
    let given = rig.store().event_emit(vec![good]).await?;
    assert_eq!(all(rig).await?.iter().map(|event| event.id).collect::<Vec<_>>(), given);
    Ok(())
}

/// What breaks a limit is refused with a reason.
pub async fn a_bad_event_is_refused<R: Rig>(rig: &R) -> Kept {
    let bad = [
        Event::new(""),
        Event::new("order*"),
        Event::new("order").key(""),
        Event::new("order").key("a\0b"),
        Event::new("order").header("x", "1\r\n2"),
        Event::new("order").payload(vec![0; limits::PAYLOAD_BYTES_MAX + 1]),
        Event::new("order").due_after(Duration::MAX),
        Event::new("order").idempotency_key(""),
    ];
    for event in bad {
        let what = format!("{:?} {:?}", event.topic(), event.ordering_key());
        assert_eq!(refused(rig.store().event_emit(vec![event]).await), ErrorKind::Invalid, "{what}");
    }
    assert_eq!(all(rig).await?, []);
    Ok(())
}

/// An empty batch is no error and writes nothing.
pub async fn an_empty_batch_writes_nothing<R: Rig>(rig: &R) -> Kept {
    assert_eq!(rig.store().event_emit(Vec::new()).await?, []);
    assert_eq!(all(rig).await?, []);
    Ok(())
}

/// A repeat with the same idempotency key, from whichever process, returns the first id.
pub async fn a_repeated_emit_returns_the_first_id<R: Rig>(rig: &R) -> Kept {
    let once = event_of("a").idempotency_key("once");
    let first = rig.store().event_emit(vec![once.clone()]).await?;
    let again = rig.second().await.event_emit(vec![once.payload("changed")]).await?;
    assert_eq!(again, first);
    let other = rig.store().event_emit(vec![event_of("a").idempotency_key("other")]).await?;
    assert_ne!(other, first);
    let stored = all(rig).await?;
    assert_eq!(stored.len(), 2);
    assert_eq!(&stored[1].payload[..], b"a", "the first one stays as it was");
    Ok(())
}

/// The same within one batch, with the ids in the order of the batch.
pub async fn a_repeat_within_a_batch_returns_the_first_id<R: Rig>(rig: &R) -> Kept {
    let once = event_of("a").idempotency_key("once");
    let given = rig.store().event_emit(vec![once.clone(), event_of("b"), once]).await?;
    assert_eq!(given[0], given[2]);
    assert!(given[1] > given[0]);
    assert_eq!(all(rig).await?.len(), 2);
    Ok(())
}

thread_local! {
    static TRACE: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// An event carries the trace of its emitter: the trace of the caller's own thread, not of a connection.
pub async fn an_emitted_event_carries_the_callers_trace<R: Rig>(rig: &R) -> Kept {
    const MINE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    // The same function for all tests of a process, so that it does not matter which of them is the first.
    set_trace_source(|| TRACE.get().map(str::to_owned));
    TRACE.set(Some(MINE));
    let given = rig.store().event_emit(vec![event_of("a"), event_of("b").header("traceparent", "set")]).await;
    TRACE.set(None);
    let mut given = given?;
    given.extend(rig.store().event_emit(vec![event_of("c")]).await?);
    let mut traces = Vec::new();
    for id in given {
        let event = rig.store().event_get(id).await?.expect("it was just emitted");
        traces.push(event.headers.get("traceparent").map(str::to_owned));
    }
    assert_eq!(traces, [Some(MINE.to_owned()), Some("set".to_owned()), None]);
    Ok(())
}

/// Payloads are bytes and come back as they went in.
pub async fn payloads_come_back_to_the_byte<R: Rig>(rig: &R) -> Kept {
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads = [
        Vec::new(),
        vec![0],
        b"a\0b\0".to_vec(),
        vec![0xff, 0xfe, 0xc3, 0x28],
        every_byte,
        b"{\"n\":1}".to_vec(),
        vec![7; limits::PAYLOAD_BYTES_MAX],
    ];
    let new = payloads.iter().map(|payload| Event::new("order").payload(payload.clone())).collect();
    let stored = emit(rig, new).await?;
    for (event, payload) in stored.iter().zip(&payloads) {
        assert!(event.payload[..] == payload[..], "a payload of {} bytes changed", payload.len());
    }
    Ok(())
}

/// JSON comes back to the letter: no store rewrites it, however large it is and however its reader gets it.
pub async fn json_comes_back_to_the_letter<R: Rig>(rig: &R) -> Kept {
    let large = format!("\"{}\"", "\u{ab}".repeat(limits::PAYLOAD_BYTES_MAX / 2 - 1));
    let nested = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let digits = "1234567890".repeat(6);
    let payloads = [
        r#"{"path":"C:\\new"}"#,
        "{\n  \"b\" : 1,\t\"a\":\"it's \\\"quoted\\\"\", \"a\": 2 }\n",
        r#"{"name": "Zoë \u005a", "none": "\u0000", "half": "\ud800"}"#,
        digits.as_str(),
        "[1.10, 1e400, -0]",
        "null",
        nested.as_str(),
        large.as_str(),
    ];
    let new = payloads.iter().map(|payload| Event::new("order").json_text(*payload)).collect();
    let stored = emit(rig, new).await?;
    let owner = Owner::create(rig.store(), NewSubscription::new("letters").start(Start::Oldest)).await?;
    let read = owner.read_all().await?;
    assert_eq!(read.len(), payloads.len());
    for ((event, read), payload) in stored.iter().zip(&read).zip(&payloads) {
        assert!(event.payload[..] == *payload.as_bytes(), "{} bytes changed", payload.len());
        assert_eq!(**read, *event);
    }
    let not_json = rig.store().event_emit(vec![Event::new("order").json_text("total: 12")]).await;
    assert_eq!(refused(not_json), ErrorKind::Invalid);
    Ok(())
}

/// Everything else about an event comes back too.
pub async fn topic_type_key_headers_and_time_come_back<R: Rig>(rig: &R) -> Kept {
    let new = vec![
        Event::new("order")
            .kind("order.created")
            .key("ключ, any text")
            .header("b", "2 \"ü\"")
            .header("a", ""),
        Event::new("invoice"),
    ];
    let stored = emit(rig, new).await?;
    assert_eq!(stored[0].topic.as_str(), "order");
    assert_eq!(stored[0].kind.as_str(), "order.created");
    assert_eq!(stored[0].key, Some(Key::new("ключ, any text")));
    assert_eq!(stored[0].headers.get("b"), Some("2 \"ü\""));
    assert_eq!(stored[0].headers.get("a"), Some(""));
    assert_eq!(stored[0].headers.iter().count(), 2);
    assert_eq!(stored[0].created_at, rig.clock().now());
    assert_eq!(stored[0].due_at, None);
    assert_eq!((stored[1].kind.as_str(), &stored[1].key), ("invoice", &None));
    assert!(stored[1].headers.is_empty());
    Ok(())
}

/// A delay counts from the emit, on the store's clock; an instant is kept as it is.
pub async fn a_delay_counts_from_the_emit<R: Rig>(rig: &R) -> Kept {
    let at = rig.clock().now().after(Duration::from_secs(99));
    rig.clock().advance(Duration::from_secs(5));
    let delay = Duration::from_millis(1500);
    let stored = emit(rig, vec![event_of("a").due_after(delay), event_of("a").due_at(at)]).await?;
    assert_eq!(stored[0].due_at, Some(rig.clock().now().after(delay)));
    assert_eq!(stored[1].due_at, Some(at));
    Ok(())
}

/// What one process has emitted, another one finds.
pub async fn another_process_sees_an_emitted_event<R: Rig>(rig: &R) -> Kept {
    let stored = emit(rig, vec![event_of("a")]).await?;
    assert_eq!(rig.second().await.event_get(stored[0].id).await?.as_ref(), stored.first());
    Ok(())
}

/// An id that was never given out has no event.
pub async fn an_unknown_event_is_not_there<R: Rig>(rig: &R) -> Kept {
    let stored = emit(rig, vec![event_of("a")]).await?;
    assert_eq!(rig.store().event_get(EventId(stored[0].id.0 + 1)).await?, None);
    assert_eq!(rig.store().event_get(EventId(0)).await?, None);
    Ok(())
}

/// Listings are newest first, by page, by topic and type, and by key.
pub async fn events_are_listed_newest_first<R: Rig>(rig: &R) -> Kept {
    let new = vec![event_of("a"), Event::new("invoice").key("a"), event_of("b"), event_of("a")];
    let given = rig.store().event_emit(new).await?;
    let list = async |query| -> Kept<Vec<EventId>> {
        Ok(rig.store().event_list(query).await?.iter().map(|event| event.id).collect())
    };
    let page = EventQuery { limit: 3, ..EventQuery::default() };
    assert_eq!(list(page.clone()).await?, [given[3], given[2], given[1]]);
    assert_eq!(list(EventQuery { before: Some(given[1]), ..page.clone() }).await?, [given[0]]);
    let of_a = EventQuery { key: Some(Key::new("a")), ..page.clone() };
    assert_eq!(list(of_a).await?, [given[3], given[1], given[0]]);
    let orders = Filter { topics: vec!["ord*".parse()?], types: vec!["order.created".parse()?] };
    assert_eq!(list(EventQuery { filter: orders, ..page }).await?, [given[3], given[2], given[0]]);
    Ok(())
}
