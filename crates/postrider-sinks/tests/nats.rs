//! The sink `nats` against a real server.
#![cfg(feature = "nats")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "parts/carrier.rs"]
mod carrier;
#[path = "support/ledger.rs"]
mod ledger;
#[path = "support/network.rs"]
mod network;

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use async_nats::jetstream::{self, Context, stream::Stream};
use carrier::Carrier;
use futures_util::{FutureExt, StreamExt as _};
use ledger::{Held, Ledger};
use postrider_core::{FailureClass, Outcome, Sink};
use postrider_sinks::envelope::names;
use postrider_sinks::nats::{NatsOptions, NatsSink};
use postrider_sinks::{SinkOptions, envelope};
use postrider_testkit::brokers::Credentials;
use postrider_testkit::brokers::nats::{self, Nats, Settings};
use postrider_testkit::receiver::{Received, check_sink};
use postrider_testkit::tcp_proxy::Proxy;

async fn sink(url: &str, subject: &str) -> NatsSink {
    let options = NatsOptions::from_text(&format!("{url}/{subject}")).unwrap();
    options.open().await.unwrap()
}

/// Impatient, for servers that do not answer.
async fn impatient(url: &str, subject: &str) -> NatsSink {
    let mut options = NatsOptions::from_text(&format!("{url}/{subject}")).unwrap();
    options.time_limit = "500ms".parse().unwrap();
    options.open().await.unwrap()
}

async fn context(url: &str) -> Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

async fn stream(url: &str, name: &str) -> Stream {
    let config = Config { name: name.to_owned(), subjects: vec![format!("{name}.>")], ..Default::default() };
    context(url).await.create_stream(config).await.unwrap()
}

async fn held_from(stream: &Stream, after: u64, count: usize) -> Vec<Received> {
    let mut received = Vec::new();
    for sequence in after + 1..=after + count as u64 {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let headers: Vec<(String, String)> = message
            .headers
            .iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name.to_string(), value.to_string())))
            .collect();
        let headers =
            envelope::decode_all(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let dedup_id = headers.iter().find(|(name, _)| name == "Nats-Msg-Id").unwrap().1.clone();
        received.push(Received { payload: message.payload.to_vec(), headers, dedup_id });
    }
    received
}

async fn held(url: &str, name: &str) -> Vec<String> {
    let mut stream = context(url).await.get_stream(name).await.unwrap();
    let count = stream.info().await.unwrap().state.messages;
    held_from(&stream, 0, count as usize).await.into_iter().map(|received| received.dedup_id).collect()
}

#[track_caller]
fn unavailable(outcome: &Outcome, words: &str) {
    let Outcome::Retry(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class(), FailureClass::Unavailable, "{failure}");
    assert!(failure.message().contains(words), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_what_every_sink_does() {
    let url = nats::shared().url();
    let stream = stream(&url, "every").await;
    let sink = sink(&url, "every.{topic}.{type}").await;
    let mut read = 0;
    check_sink(&sink, 1_000_000, async |count| {
        let received = held_from(&stream, read, count).await;
        read += count as u64;
        // What is there besides would show in the next read.
        received
    })
    .await;
    assert_eq!(stream.get_raw_message(1).await.unwrap().subject.as_str(), "every.order.order.created");
}

/// A stream knows an id once, whichever subscription publishes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_subscriptions_into_one_stream_lose_nothing() {
    let url = nats::shared().url();
    let stream = stream(&url, "shop").await;
    let (billing, audit) = (sink(&url, "shop.billing.{type}").await, sink(&url, "shop.audit").await);
    let mut first = Carrier::with_keys(5, 1);
    let mut second = first.of_subscription("audit");
    for (carrier, sink) in [(&mut first, &billing), (&mut second, &audit)] {
        assert_eq!(carrier.send(sink, 5).await, vec![Outcome::Ack; 5]);
        assert_eq!(sink.repeats_on_first_attempts(), 0);
    }
    let held = held_from(&stream, 0, 10).await;
    let of = |name: &str| -> Vec<&str> {
        let found = held.iter().flat_map(|event| &event.headers).filter(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str()).collect()
    };
    let (events, ids) = (of(names::EVENT_ID), of(names::DEDUP_ID));
    assert_eq!(events[..5], events[5..], "the event's own id is the same for both");
    assert_eq!(ids, held.iter().map(|event| event.dedup_id.as_str()).collect::<Vec<_>>());
    assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_on_a_first_attempt_is_told_and_one_of_a_lost_ack_is_not() {
    let nats = nats::shared();
    stream(&nats.url(), "repeats").await;
    let proxy = Proxy::start(nats.address());
    let through = impatient(&format!("nats://{}", proxy.address()), "repeats.x").await;
    let mut carrier = Carrier::with_keys(6, 1);
    let mut again = carrier.clone();
    carrier.send(&through, 2).await;
    // The stream has the next events, and the sink does not hear of it.
    proxy.swallow_server_bytes_from(0);
    let outcomes = carrier.send(&through, 3).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Retry(_))), "{outcomes:?}");
    proxy.heal();
    carrier.send_all(&through, 10).await;
    assert_eq!(through.repeats_on_first_attempts(), 0, "these were to be expected");
    // Something else that publishes the same ids: another process with a copy of the store, for example.
    let other = sink(&nats.url(), "repeats.x").await;
    assert_eq!(again.send(&other, 6).await, vec![Outcome::Ack; 6]);
    assert_eq!(other.repeats_on_first_attempts(), 6);
    assert_eq!(held(&nats.url(), "repeats").await.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_in_the_middle_loses_nothing_that_was_acked() {
    let mut nats = Nats::start();
    stream(&nats.url(), "killed").await;
    let proxy = Proxy::start(nats.address());
    let sink = sink(&format!("nats://{}", proxy.address()), "killed.x").await;
    let mut carrier = Carrier::with_keys(40, 50);
    carrier.send(&sink, 100).await;
    assert_eq!(carrier.acked.len(), 100);
    // The sink hears the server's answers to a part of the next batch only, and then the server is gone.
    proxy.swallow_server_bytes_from(2000);
    let outcomes = carrier.send(&sink, 200).await;
    unavailable(outcomes.iter().find(|outcome| **outcome != Outcome::Ack).unwrap(), "connection was lost");
    // The reset may overtake the answers before it.
    assert!((100..300).contains(&carrier.acked.len()), "{}", carrier.acked.len());
    nats.kill();
    let outcomes = carrier.send(&sink, 200).await;
    unavailable(&outcomes[0], "cannot be reached");
    assert!(outcomes[1..].iter().all(|outcome| *outcome == Outcome::Untried));
    nats.start_again();
    carrier.send_all(&sink, 300).await;
    assert_eq!(carrier.acked.len(), 2000);
    assert_eq!(
        carrier.compare(&held(&nats.url(), "killed").await),
        0,
        "the stream drops repeats by their id"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_given_up_at_the_limit() {
    let nats = nats::shared();
    stream(&nats.url(), "silent").await;
    let proxy = Proxy::start(nats.address());
    let sink = impatient(&format!("nats://{}", proxy.address()), "silent.x").await;
    let mut carrier = Carrier::with_keys(3, 3);
    carrier.send(&sink, 1).await;
    proxy.black_hole();
    let outcomes = carrier.send(&sink, 100).await;
    unavailable(&outcomes[0], "acked nothing");
    assert!(!outcomes.contains(&Outcome::Ack));
    // What was given up arrives after all, before the same events again.
    proxy.heal();
    carrier.send_all(&sink, 100).await;
    assert_eq!(carrier.compare(&held(&nats.url(), "silent").await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_fails_in_every_way_loses_nothing() {
    let nats = nats::shared();
    let mut stream = stream(&nats.url(), "network").await;
    let proxy = Proxy::start(nats.address());
    let sink = impatient(&format!("nats://{}", proxy.address()), "network.x").await;
    let mut ledger = Ledger::new("network");
    network::fail_in_every_way(&sink, &proxy, &mut ledger).await;
    let count = stream.info().await.unwrap().state.messages;
    let held = held_from(&stream, 0, count as usize).await.into_iter().map(|received| {
        let key = received.headers.iter().find(|(name, _)| name == names::KEY).map(|(_, key)| key.clone());
        Held { key, dedup_id: received.dedup_id }
    });
    let held: Vec<_> = held.collect();
    ledger.compare(&held);
    let ids: std::collections::HashSet<_> = held.iter().map(|event| &event.dedup_id).collect();
    assert_eq!(ids.len(), held.len(), "the stream drops repeats by their id");
}

/// Any permitted client can answer in an inbox: each ack comes twice here, and none counts for another event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_that_comes_twice_counts_for_its_own_event_alone() {
    let url = nats::shared().url();
    let config = Config {
        name: "twice".to_owned(),
        subjects: vec!["twice.>".to_owned()],
        max_message_size: 5000,
        ..Default::default()
    };
    context(&url).await.create_stream(config).await.unwrap();
    let echo = async_nats::connect(&url).await.unwrap();
    let mut acks = echo.subscribe("_INBOX.>").await.unwrap();
    echo.flush().await.unwrap();
    let (echoed, mut echoes) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Some(ack) = acks.next().await {
            let is_echo = ack.headers.as_ref().is_some_and(|headers| headers.get("echo").is_some());
            if !is_echo && ack.payload.starts_with(b"{\"stream\":\"twice\"") {
                let mut headers = async_nats::HeaderMap::new();
                headers.insert("echo", "1");
                echo.publish_with_headers(ack.subject, headers, ack.payload).await.unwrap();
                echoed.send_modify(|count| *count += 1);
            }
        }
    });
    let sink = sink(&url, "twice.x").await;
    let mut carrier = Carrier::new();
    for turn in 0..20 {
        for key in ["a", "b", "c"] {
            // Every other event of one key is too large for the stream.
            let is_large = key == "b" && turn % 2 == 0;
            carrier.emit(Some(key), if is_large { &[b'x'; 6000] } else { b"1" });
        }
    }
    carrier.send_all(&sink, 10).await;
    echoes.wait_for(|count| *count >= 50).await.unwrap();
    assert_eq!((carrier.acked.len(), carrier.dead.len()), (50, 10), "the large ones are dead letters");
    assert_eq!(carrier.compare(&held(&url, "twice").await), 0);
    assert_eq!(held(&url, "twice").await.len(), 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_changed_is_found_by_the_next_connection() {
    let credentials = Some(Credentials::new("relay", "right"));
    let nats = Nats::start_with(&Settings { credentials, ..Default::default() });
    let login = async_nats::ConnectOptions::with_user_and_password("relay".to_owned(), "right".to_owned());
    let client = login.connect(nats.address().to_string()).await.unwrap();
    let config =
        Config { name: "rotated".to_owned(), subjects: vec!["rotated.x".to_owned()], ..Default::default() };
    let mut stream = jetstream::new(client).create_stream(config).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "canary").unwrap();
    let mut options = NatsOptions::from_text(&format!("nats://{}/rotated.x", nats.address())).unwrap();
    options.user = Some("relay".to_owned());
    options.password = Some(format!("file:{}", path.display()).parse().unwrap());
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(2, 1);
    unavailable(&carrier.send(&sink, 10).await[0], "the login is refused");
    std::fs::write(&path, "right\n").unwrap();
    carrier.send_all(&sink, 10).await;
    assert_eq!(stream.info().await.unwrap().state.messages, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_on_its_disk_holds_events_back() {
    let nats = Nats::start_with(&Settings { store_bytes_max: Some(100_000), ..Default::default() });
    let url = nats.url();
    stream(&url, "disk").await;
    let sink = sink(&url, "disk.x").await;
    let mut carrier = Carrier::new();
    for _ in 0..20 {
        carrier.emit(Some("k"), &[b'x'; 10_000]);
    }
    let outcomes = carrier.send(&sink, 20).await;
    let acked = carrier.acked.len();
    assert!((1..20).contains(&acked), "{outcomes:?}");
    unavailable(&outcomes[acked], "insufficient resources");
    assert!(outcomes[acked + 1..].iter().all(|outcome| *outcome == Outcome::Untried), "{outcomes:?}");
    assert_eq!(carrier.compare(&held(&url, "disk").await), 0);
    context(&url).await.get_stream("disk").await.unwrap().purge().await.unwrap();
    let outcomes = carrier.send(&sink, 1).await;
    assert_eq!(outcomes, [Outcome::Ack], "there is room again");
}

/// What the documentation says of replays: the window outlives what is in the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_removed_from_the_stream_is_a_repeat_all_the_same() {
    let url = nats::shared().url();
    let mut stream = stream(&url, "removed").await;
    let sink = sink(&url, "removed.x").await;
    let mut ledger = Ledger::new("removed");
    let batch = ledger.emit_turns(2, 1);
    for expected in [2, 0] {
        assert_eq!(ledger.attempt(&sink, &batch).await, [Outcome::Ack, Outcome::Ack]);
        assert_eq!(stream.info().await.unwrap().state.messages, expected);
        stream.purge().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_told_without_them() {
    let credentials = Some(Credentials::new("relay", "right"));
    let nats = Nats::start_with(&Settings { credentials, ..Default::default() });
    let url = nats.url().replace("right", "canary");
    let mut carrier = Carrier::with_keys(2, 1);
    let outcomes = carrier.send(&sink(&url, "x").await, 10).await;
    unavailable(&outcomes[0], "the login is refused");
    assert!(!format!("{outcomes:?}").contains("canary"));
    assert_eq!(outcomes[1], Outcome::Untried);
    let error = NatsOptions::from_text(&format!("{url}/x")).unwrap().check().await.unwrap_err();
    assert!(error.to_string().contains("the login is refused"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_dead_at_once_and_holds_up_its_key_alone() {
    let url = nats::shared().url();
    let config = Config {
        name: "large".to_owned(),
        subjects: vec!["large.>".to_owned()],
        max_message_size: 5000,
        ..Default::default()
    };
    context(&url).await.create_stream(config).await.unwrap();
    let sink = sink(&url, "large.x").await;
    let mut carrier = Carrier::new();
    carrier.emit(Some("a"), &vec![0; 1024 * 1024]);
    carrier.emit(Some("a"), b"1");
    carrier.emit(Some("b"), &[0; 6000]);
    carrier.emit(Some("c"), b"1");
    let outcomes = carrier.send(&sink, 10).await;
    let Outcome::Dead(server) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(server.message().contains("takes 1048576"), "{server}");
    let Outcome::Dead(stream) = &outcomes[2] else { panic!("{outcomes:?}") };
    assert!(stream.message().contains("maximum"), "{stream}");
    assert_eq!((&outcomes[1], &outcomes[3]), (&Outcome::Untried, &Outcome::Ack));
    carrier.send_all(&sink, 10).await;
    assert_eq!(carrier.compare(&held(&url, "large").await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_stream_nothing_is_acked_and_the_stream_is_asked_for() {
    let url = nats::shared().url();
    let constant = sink(&url, "absent.x").await;
    let mut carrier = Carrier::with_keys(2, 2);
    unavailable(
        &carrier.send(&constant, 10).await[0],
        "no JetStream stream listens on `absent.x`: create one",
    );
    let varying = sink(&url, "absent.{type}").await;
    let outcomes = carrier.send(&varying, 10).await;
    let Outcome::Retry(failure) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(failure.class(), FailureClass::Retryable, "other types may have a stream: {failure}");
    stream(&url, "absent").await;
    carrier.send_all(&constant, 10).await;
    assert_eq!(carrier.compare(&held(&url, "absent").await), 0);

    let other = sink(&url, "absent.x?stream=other").await;
    carrier.emit(None, b"1");
    unavailable(&carrier.send(&other, 10).await[0], "another stream than `other`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_holds_events_back_until_there_is_room() {
    let url = nats::shared().url();
    let config = Config {
        name: "full".to_owned(),
        subjects: vec!["full.>".to_owned()],
        max_messages: 2,
        discard: DiscardPolicy::New,
        ..Default::default()
    };
    let stream = context(&url).await.create_stream(config.clone()).await.unwrap();
    let sink = sink(&url, "full.x").await;
    let mut carrier = Carrier::with_keys(1, 4);
    let outcomes = carrier.send(&sink, 10).await;
    assert_eq!(outcomes[..2], [Outcome::Ack, Outcome::Ack]);
    unavailable(&outcomes[2], "make room");
    assert_eq!(outcomes[3], Outcome::Untried);
    drop(stream);
    context(&url).await.update_stream(Config { max_messages: 100, ..config }).await.unwrap();
    carrier.send_all(&sink, 10).await;
    assert_eq!(carrier.compare(&held(&url, "full").await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_looks_for_the_stream_and_changes_nothing() {
    let url = nats::shared().url();
    let check =
        async |subject: &str| NatsOptions::from_text(&format!("{url}/{subject}")).unwrap().check().await;
    assert!(check("checked.x").await.unwrap_err().to_string().contains("create one"));
    assert!(check("checked.x?stream=checked").await.unwrap_err().to_string().contains("create it"));
    stream(&url, "checked").await;
    let found = check("checked.x").await.unwrap();
    assert_eq!(found[1], "publishes into the stream `checked`, which listens on checked.>");
    assert_eq!(check("checked.{type}?stream=checked").await.unwrap()[1], found[1]);
    assert!(check("checked.{type}").await.unwrap()[1].starts_with("streams are looked up"));
    assert_eq!(held(&url, "checked").await, Vec::<String>::new());
    assert!(sink(&url, "checked.x").await.keeps_order());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_is_dropped_half_way_harms_nothing() {
    let url = nats::shared().url();
    stream(&url, "dropped").await;
    let sink = sink(&url, "dropped.x").await;
    let mut carrier = Carrier::with_keys(5, 20);
    carrier.send(&sink, 5).await;
    while !carrier.waiting.is_empty() {
        let batch: Vec<_> = carrier.waiting.iter().take(10).cloned().collect();
        let _ = sink.send(batch).now_or_never();
        carrier.send(&sink, 10).await;
    }
    assert_eq!(carrier.compare(&held(&url, "dropped").await), 0);
}
