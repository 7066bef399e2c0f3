//! The sink `redis` against a real server.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "parts/carrier.rs"]
mod carrier;
#[path = "support/ledger.rs"]
mod ledger;
#[path = "support/network.rs"]
mod network;
#[path = "parts/tls_front.rs"]
mod tls_front;

use carrier::Carrier;
use futures_util::FutureExt;
use ledger::{Held, Ledger};
use postrider_core::{Event, FailureClass, NewSubscription, Outcome, Sink, Store};
use postrider_runtime::{Relay, Worker};
use postrider_sinks::SinkOptions;
use postrider_sinks::envelope::{BODY_FIELD, names};
use postrider_sinks::redis::{RedisOptions, RedisSink};
use postrider_testkit::brokers::redis::{self as server, Redis, Settings};
use postrider_testkit::receiver::{Received, check_sink};
use postrider_testkit::tcp_proxy::Proxy;
use postrider_testkit::{ManualClock, MemoryStore};
use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use tls_front::TlsFront;

fn options(url: &str, stream: &str) -> RedisOptions {
    RedisOptions::from_text(&format!("{url}{stream}")).unwrap()
}

async fn sink(url: &str, stream: &str) -> RedisSink {
    options(url, stream).open().await.unwrap()
}

async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

async fn ask<T: redis::FromRedisValue>(url: &str, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query_async(&mut connect(url).await).await.unwrap()
}

async fn entries(url: &str, stream: &str) -> Vec<Received> {
    let reply: StreamRangeReply = ask(url, &["XRANGE", stream, "-", "+"]).await;
    let received = reply.ids.into_iter().map(|entry| {
        let bytes = |value: &redis::Value| redis::from_redis_value::<Vec<u8>>(value.clone()).unwrap();
        let payload = bytes(&entry.map[BODY_FIELD]);
        let headers: Vec<_> = entry
            .map
            .iter()
            .filter(|(name, _)| *name != BODY_FIELD)
            .map(|(name, value)| (name.clone(), String::from_utf8(bytes(value)).unwrap()))
            .collect();
        let dedup_id = headers.iter().find(|(name, _)| name == names::DEDUP_ID).unwrap().1.clone();
        Received { payload, headers, dedup_id }
    });
    received.collect()
}

async fn held(url: &str, stream: &str) -> Vec<String> {
    entries(url, stream).await.into_iter().map(|entry| entry.dedup_id).collect()
}

#[track_caller]
fn unavailable(outcome: &Outcome, words: &str) {
    let Outcome::Retry(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class(), FailureClass::Unavailable, "{failure}");
    assert!(failure.message().contains(words), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_what_every_sink_does() {
    let url = server::shared().url();
    let sink = sink(&url, "every:{topic}:{type}").await;
    let mut read = 0;
    check_sink(&sink, 2 * 1024 * 1024, async |_| {
        let new = entries(&url, "every:order:order.created").await.split_off(read);
        read += new.len();
        new
    })
    .await;
    assert!(sink.keeps_order());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_in_the_middle_loses_nothing_that_was_acked() {
    let mut redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let sink = sink(&format!("redis://{}/", proxy.address()), "killed").await;
    let mut carrier = Carrier::with_keys(40, 50);
    carrier.send(&sink, 100).await;
    assert_eq!(carrier.acked.len(), 100);
    // The sink hears a part of the server's answer to the next batch only, and then the server is gone.
    proxy.swallow_server_bytes_from(100);
    let outcomes = carrier.send(&sink, 200).await;
    unavailable(&outcomes[0], "cannot be used");
    assert!(outcomes[1..].iter().all(|outcome| *outcome == Outcome::Untried), "{outcomes:?}");
    redis.kill();
    unavailable(&carrier.send(&sink, 200).await[0], "cannot be used");
    redis.start_again();
    carrier.send_all(&sink, 300).await;
    assert_eq!(carrier.acked.len(), 2000);
    let repeats = carrier.compare(&held(&redis.url(), "killed").await);
    assert!([0, 200].contains(&repeats), "{repeats}: a batch takes effect whole or not at all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_given_up_at_the_limit() {
    let redis = server::shared();
    let proxy = Proxy::start(redis.address());
    let mut options = options(&format!("redis://{}/", proxy.address()), "silent");
    options.time_limit = "500ms".parse().unwrap();
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(3, 3);
    carrier.send(&sink, 3).await;
    proxy.black_hole();
    unavailable(&carrier.send(&sink, 100).await[0], "no answer within 500ms");
    proxy.heal();
    carrier.send_all(&sink, 100).await;
    carrier.compare(&held(&redis.url(), "silent").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_fails_in_every_way_loses_nothing() {
    let redis = server::shared();
    let proxy = Proxy::start(redis.address());
    let mut options = options(&format!("redis://{}/", proxy.address()), "network");
    options.time_limit = "1s".parse().unwrap();
    let mut ledger = Ledger::new("network");
    network::fail_in_every_way(&options.open().await.unwrap(), &proxy, &mut ledger).await;
    let held = entries(&redis.url(), "network").await.into_iter().map(|entry| {
        let key = entry.headers.iter().find(|(name, _)| name == names::KEY).map(|(_, key)| key.clone());
        Held { key, dedup_id: entry.dedup_id }
    });
    ledger.compare(&held.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_changed_is_found_by_the_next_connection() {
    let redis = Redis::start_with(&Settings { password: Some("right".to_owned()), ..Default::default() });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "canary").unwrap();
    let mut options = options(&format!("redis://{}/", redis.address()), "rotated");
    options.password = Some(format!("file:{}", path.display()).parse().unwrap());
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(2, 1);
    unavailable(&carrier.send(&sink, 10).await[0], "the login is refused");
    std::fs::write(&path, "right\n").unwrap();
    carrier.send_all(&sink, 10).await;
    assert_eq!(carrier.compare(&held(&redis.url(), "rotated").await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_told_without_them() {
    let redis = Redis::start_with(&Settings { password: Some("right".to_owned()), ..Default::default() });
    let url = redis.url().replace("right", "canary");
    let mut carrier = Carrier::with_keys(2, 1);
    let outcomes = carrier.send(&sink(&url, "s").await, 10).await;
    unavailable(&outcomes[0], "the login is refused");
    assert_eq!(outcomes[1], Outcome::Untried);
    assert!(!format!("{outcomes:?}").contains("canary"));
    assert!(options(&url, "s").check().await.unwrap_err().to_string().contains("the login is refused"));
    carrier.send_all(&sink(&redis.url(), "s").await, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_a_batch_is_held_back_whole() {
    let redis = Redis::start();
    let url = redis.url();
    let sink = sink(&url, "oom").await;
    let mut carrier = Carrier::with_keys(3, 3);
    carrier.send(&sink, 3).await;
    let _: String = ask(&url, &["CONFIG", "SET", "maxmemory", "1"]).await;
    unavailable(&carrier.send(&sink, 10).await[0], "OOM");
    assert_eq!(held(&url, "oom").await.len(), 3, "nothing of the batch took effect");
    let _: String = ask(&url, &["CONFIG", "SET", "maxmemory", "0"]).await;
    let _: String = ask(&url, &["REPLICAOF", "127.0.0.1", "1"]).await;
    unavailable(&carrier.send(&sink, 10).await[0], "READONLY");
    let _: String = ask(&url, &["REPLICAOF", "NO", "ONE"]).await;
    carrier.send_all(&sink, 10).await;
    assert_eq!(carrier.compare(&held(&url, "oom").await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_stream_fails_its_own_events_and_the_rest_of_their_keys() {
    let url = server::shared().url();
    let _: () = ask(&url, &["SET", "part:bad", "no stream"]).await;
    let sink = sink(&url, "part:{header.to|good}").await;
    let mut carrier = Carrier::new();
    carrier.emit(Some("a"), b"1");
    carrier.emit_to(Some("a"), b"2", "bad");
    carrier.emit(Some("a"), b"3");
    carrier.emit(Some("b"), b"4");
    carrier.emit_to(None, b"5", "");
    let outcomes = carrier.send(&sink, 10).await;
    let Outcome::Retry(failure) = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(failure.class(), FailureClass::Retryable, "{failure}");
    assert_eq!((&outcomes[0], &outcomes[2], &outcomes[3]), (&Outcome::Ack, &Outcome::Untried, &Outcome::Ack));
    assert_eq!(held(&url, "part:good").await.len(), 2);
    assert_eq!(outcomes[4], Outcome::Ack, "`part:` is a name as good as any");
    let _: () = ask(&url, &["DEL", "part:bad"]).await;
    carrier.send_all(&sink, 10).await;
    assert_eq!((held(&url, "part:good").await.len(), held(&url, "part:bad").await.len()), (3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_trimmed_if_asked_for_and_checks_create_nothing() {
    let url = server::shared().url();
    let checked = async |stream: &str| options(&url, stream).check().await;
    assert_eq!(checked("trim").await.unwrap()[1], "would create the stream `trim`");
    assert_eq!(ask::<u64>(&url, &["EXISTS", "trim"]).await, 0);
    let mut carrier = Carrier::with_keys(1, 1000);
    carrier.send_all(&sink(&url, "trim?maxlen=10").await, 100).await;
    let length: u64 = ask(&url, &["XLEN", "trim"]).await;
    assert!((10..300).contains(&length), "{length}");
    assert_eq!(checked("trim").await.unwrap()[1], "appends to the stream `trim`");
    let _: () = ask(&url, &["SET", "text", "x"]).await;
    assert!(checked("text").await.unwrap_err().to_string().contains("holds a string and no stream"));
    assert!(checked("a:{type}").await.unwrap()[1].starts_with("creates streams"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_tls_must_be_who_it_claims_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    let redis = server::shared();
    let front = TlsFront::start(redis.address(), &ca_file).await;
    let mut options = options(&format!("rediss://localhost:{}/", front.address.port()), "tls");
    let mut carrier = Carrier::with_keys(1, 2);
    unavailable(&carrier.send(&options.open().await.unwrap(), 10).await[0], "certificate");
    options.ca_file = Some(ca_file);
    carrier.send_all(&options.open().await.unwrap(), 10).await;
    assert_eq!(carrier.compare(&held(&redis.url(), "tls").await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_tells_receivers_the_epoch_and_the_attempt() {
    let url = server::shared().url();
    let store = MemoryStore::new(ManualClock::new());
    for _ in 0..2 {
        store.event_emit(vec![Event::new("t").key("a")]).await.unwrap();
        let worker = Worker::new(NewSubscription::new("s")).sink(sink(&url, "epochs").await);
        Relay::new(store.clone()).worker(worker).run_until_idle(std::future::pending()).await.unwrap();
    }
    let numbers = entries(&url, "epochs").await.into_iter().map(|entry| {
        let number = |name: &str| -> i64 {
            entry.headers.iter().find(|(header, _)| header == name).unwrap().1.parse().unwrap()
        };
        (number(names::EPOCH), number(names::ATTEMPT))
    });
    let [(first, 1), (second, 1)] = numbers.collect::<Vec<_>>()[..] else { panic!("two, at first attempt") };
    assert!(first < second, "another owner, another epoch: {first}, {second}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_is_dropped_half_way_harms_nothing() {
    let redis = server::shared();
    let sink = sink(&redis.url(), "dropped").await;
    let mut carrier = Carrier::with_keys(5, 20);
    carrier.send(&sink, 5).await;
    while !carrier.waiting.is_empty() {
        let batch: Vec<_> = carrier.waiting.iter().take(10).cloned().collect();
        let _ = sink.send(batch).now_or_never();
        carrier.send(&sink, 10).await;
    }
    carrier.compare(&held(&redis.url(), "dropped").await);
}
