//! The sink `http` against a receiver on loopback.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "parts/carrier.rs"]
mod carrier;
#[path = "parts/http_receiver.rs"]
mod http_receiver;
#[path = "parts/tls_front.rs"]
mod tls_front;

use std::time::Duration;

use carrier::Carrier;
use http_receiver::{Receiver, Reply, Request};
use postrider_core::{FailureClass, Outcome, Sink};
use postrider_sinks::http::{HttpOptions, HttpSink};
use postrider_sinks::{SinkOptions, envelope};
use postrider_testkit::receiver::{Received, check_sink};
use postrider_testkit::tcp_proxy::Proxy;
use tls_front::TlsFront;

fn options(url: &str) -> HttpOptions {
    let mut options = HttpOptions::from_text(url).unwrap();
    options.allow = vec!["127.0.0.1".parse().unwrap()];
    options
}

async fn sink(url: &str) -> HttpSink {
    options(url).open().await.unwrap()
}

fn received(request: Request) -> Received {
    let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let headers = envelope::decode_all(headers);
    let dedup_id = request.header("webhook-id").unwrap().to_owned();
    Received { payload: request.body, headers, dedup_id }
}

fn class(outcome: &Outcome) -> FailureClass {
    match outcome {
        Outcome::Retry(failure) | Outcome::Dead(failure) => failure.class(),
        other => panic!("{other:?}"),
    }
}

fn message(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Retry(failure) | Outcome::Dead(failure) => failure.message(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn it_does_what_every_sink_does() {
    let receiver = Receiver::start(|_| Reply::ok()).await;
    let sink = sink(&format!("{}/{{topic}}", receiver.url())).await;
    check_sink(&sink, 2 * 1024 * 1024, async |_| receiver.take().into_iter().map(received).collect()).await;
    assert!(sink.keeps_order());
}

#[tokio::test]
async fn a_request_says_who_it_is_and_is_signed() {
    let receiver = Receiver::start(|_| Reply::Status(200, String::new())).await;
    let mut options = options(&format!("{}/hooks/{{type}}?t=1", receiver.url()));
    options.headers = [("Authorization".to_owned(), "Bearer x".parse().unwrap())].into();
    options.secrets = vec![
        "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".parse().unwrap(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap(),
    ];
    let mut carrier = Carrier::with_keys(1, 1);
    carrier.send_all(&options.open().await.unwrap(), 10).await;
    let [request] = &receiver.take()[..] else { panic!() };
    assert_eq!(request.line, "POST /hooks/order.created?t=1");
    assert_eq!(request.header("webhook-id").unwrap(), carrier.acked[0]);
    assert_eq!(request.header("idempotency-key").unwrap(), carrier.acked[0]);
    assert_eq!(request.header("authorization"), Some("Bearer x"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert!(request.header("user-agent").unwrap().starts_with("postrider/"));
    assert!(request.header("webhook-timestamp").unwrap().parse::<u64>().unwrap() > 1_700_000_000);
    let signatures: Vec<_> = request.header("webhook-signature").unwrap().split(' ').collect();
    assert!(signatures.len() == 2 && signatures.iter().all(|one| one.starts_with("v1,") && one.len() == 47));
}

#[tokio::test]
async fn statuses_become_outcomes_and_a_failed_key_waits() {
    let receiver = Receiver::start(|request| match request.header("postrider-key") {
        Some("key-1") => Reply::Status(422, String::new()),
        Some("key-2") => Reply::Status(429, "retry-after: 7\r\n".to_owned()),
        Some("key-3") => Reply::Status(302, "location: http://169.254.169.254/\r\n".to_owned()),
        _ => Reply::ok(),
    })
    .await;
    let sink = sink(&receiver.url()).await;
    let mut carrier = Carrier::with_keys(4, 2);
    let outcomes = carrier.send(&sink, 10).await;
    assert_eq!((&outcomes[0], &outcomes[4]), (&Outcome::Ack, &Outcome::Ack));
    let Outcome::Dead(refused) = &outcomes[1] else { panic!("{outcomes:?}") };
    let host = receiver.url().replace("http://", "");
    assert_eq!(refused.message(), format!("HTTP status 422: POST to {host}"));
    assert_eq!(refused.record(), format!("HTTP status 422: POST to {host}: ok"), "with what it answered");
    let Outcome::Retry(later) = &outcomes[2] else { panic!("{outcomes:?}") };
    assert_eq!(later.retry_after(), Some(Duration::from_secs(7)));
    assert!(message(&outcomes[3]).contains("redirects, which is not followed"));
    assert_eq!(outcomes[5..], [Outcome::Untried, Outcome::Untried, Outcome::Untried]);
    receiver.answer(|_| Reply::ok());
    carrier.send_all(&sink, 10).await;
    assert_eq!(carrier.compare(&receiver.ids()), 2, "those that were told to come again");
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_asked_no_more_and_no_event_is_lost() {
    let receiver = Receiver::start(|_| Reply::Status(410, String::new())).await;
    let gone = sink(&receiver.url()).await;
    let mut carrier = Carrier::with_keys(1, 3);
    let outcomes = carrier.send(&gone, 10).await;
    assert_eq!(class(&outcomes[0]), FailureClass::Unavailable);
    receiver.answer(|_| Reply::ok());
    let outcomes = carrier.send(&gone, 10).await;
    assert!(message(&outcomes[0]).contains("restart or reload the relay"), "{outcomes:?}");
    assert_eq!((receiver.take().len(), carrier.waiting.len()), (1, 3));
    carrier.send_all(&sink(&receiver.url()).await, 10).await;
    // Where each event has its own URL, one that is gone is the end of that event alone.
    receiver.answer(|_| Reply::Status(410, String::new()));
    carrier.emit(None, b"1");
    let outcomes = carrier.send(&sink(&format!("{}/{{id}}", receiver.url())).await, 10).await;
    assert!(matches!(&outcomes[0], Outcome::Dead(_)), "{outcomes:?}");
}

#[tokio::test]
async fn what_does_not_answer_is_cut_at_the_limit_and_what_answers_too_much_is_not_read() {
    let receiver = Receiver::start(|_| Reply::Silence).await;
    let mut options = options(&receiver.url());
    options.time_limit = "200ms".parse().unwrap();
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(2, 2);
    let outcomes = carrier.send(&sink, 10).await;
    assert!(message(&outcomes[0]).contains("no answer within 200ms"), "{outcomes:?}");
    assert_eq!((class(&outcomes[1]), &outcomes[2]), (FailureClass::Retryable, &Outcome::Untried));
    receiver.answer(|_| Reply::HangUp);
    let outcomes = carrier.send(&sink, 10).await;
    assert!(
        outcomes.iter().all(|outcome| !matches!(outcome, Outcome::Ack | Outcome::Dead(_))),
        "{outcomes:?}"
    );
    receiver.answer(|_| Reply::Endless(500));
    assert_eq!(class(&carrier.send(&sink, 10).await[0]), FailureClass::Retryable);
    receiver.answer(|_| Reply::Endless(200));
    carrier.send_all(&sink, 10).await;
    carrier.compare(&receiver.ids());
}

#[tokio::test]
async fn an_answer_that_is_lost_makes_the_event_come_again_with_its_id() {
    let receiver = Receiver::start(|_| Reply::ok()).await;
    let proxy = Proxy::start(receiver.address());
    let sink = sink(&format!("http://{}/", proxy.address())).await;
    let mut carrier = Carrier::with_keys(4, 10);
    carrier.send(&sink, 4).await;
    for _ in 0..5 {
        proxy.swallow_server_bytes_from(0);
        carrier.send(&sink, 20).await;
    }
    carrier.send_all(&sink, 20).await;
    let repeats = carrier.compare(&receiver.ids());
    assert!(repeats >= 5, "{repeats}");
    drop(proxy);
    carrier.emit(None, b"1");
    assert_eq!(
        class(&carrier.send(&sink, 10).await[0]),
        FailureClass::Unavailable,
        "nobody listens any more"
    );
}

#[tokio::test]
async fn no_more_requests_are_in_flight_than_allowed() {
    let receiver = Receiver::start(|_| Reply::ok()).await;
    let mut options = options(&receiver.url());
    options.concurrency = 3.try_into().unwrap();
    let sink = options.open().await.unwrap();
    let mut carriers = [Carrier::with_keys(20, 2), Carrier::with_keys(20, 2)];
    let [one, two] = &mut carriers;
    tokio::join!(one.send_all(&sink, 100), two.send_all(&sink, 100));
    assert!((1..=3).contains(&receiver.busiest()), "{}", receiver.busiest());
    assert_eq!(receiver.take().len(), 80);
}

#[tokio::test]
async fn batches_are_arrays_and_one_refused_event_does_not_take_the_others_along() {
    let receiver = Receiver::start(|request| {
        let events: Vec<serde_json::Value> = serde_json::from_slice(&request.body).unwrap();
        let poison = events.iter().any(|event| event["payload"] == "poison");
        Reply::Status(if poison { 400 } else { 200 }, String::new())
    })
    .await;
    let mut options = options(&receiver.url());
    options.batch = Some(4.try_into().unwrap());
    assert!(options.clone().open().await.is_err(), "raw payloads are no array");
    options.envelope = "json".parse().unwrap();
    let sink = options.open().await.unwrap();
    let mut carrier = Carrier::with_keys(3, 2);
    carrier.emit(Some("p"), b"\"poison\"");
    carrier.emit(Some("p"), b"1");
    carrier.emit(Some("q"), b"1");
    let outcomes = carrier.send(&sink, 20).await;
    assert_eq!(outcomes[..6], vec![Outcome::Ack; 6]);
    assert!(matches!(&outcomes[6..], [Outcome::Dead(_), Outcome::Untried, Outcome::Ack]), "{outcomes:?}");
    let requests = receiver.take();
    // Four; the two and two with the poison among them; three of those by themselves; the last.
    let sizes: Vec<_> = requests
        .iter()
        .map(|request| serde_json::from_slice::<Vec<serde_json::Value>>(&request.body).unwrap().len())
        .collect();
    assert_eq!(sizes, [4, 4, 1, 1, 1, 1]);
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    assert!(requests[0].header("webhook-id").unwrap().starts_with("batch-"));
    let events: Vec<serde_json::Value> = serde_json::from_slice(&requests[0].body).unwrap();
    let ids: Vec<_> = events.iter().map(|event| event["dedup_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, carrier.acked[..4], "each event has an id of its own");
    carrier.send_all(&sink, 20).await;
    receiver.answer(|_| Reply::Status(500, String::new()));
    let mut carrier = Carrier::with_keys(2, 2);
    receiver.take();
    let outcomes = carrier.send(&sink, 3).await;
    assert!(
        matches!(&outcomes[..], [Outcome::Retry(_), Outcome::Retry(_), Outcome::Untried]),
        "{outcomes:?}"
    );
    let id = receiver.take()[0].header("webhook-id").unwrap().to_owned();
    carrier.send(&sink, 3).await;
    assert_eq!(receiver.take()[0].header("webhook-id").unwrap(), id, "the same events have the same id");
}

#[tokio::test]
async fn what_is_not_public_is_not_spoken_to_unless_it_is_allowed() {
    let receiver = Receiver::start(|_| Reply::ok()).await;
    let port = receiver.address().port();
    let mut carrier = Carrier::new();
    carrier.emit_to(None, b"1", "127.0.0.1");
    for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "0x7f.1"] {
        let open = HttpOptions::from_text(&format!("http://{host}:{port}/")).unwrap().open().await;
        assert!(open.unwrap_err().to_string().contains("without encryption"), "{host}");
        let opened = HttpOptions::from_text(&format!("https://{host}:{port}/")).unwrap().open().await;
        let sink = match opened {
            Ok(sink) => sink,
            Err(error) => {
                assert!(error.to_string().contains("neither a host's name nor an address"), "{error}");
                continue;
            }
        };
        let outcomes = carrier.send(&sink, 10).await;
        assert_eq!(class(&outcomes[0]), FailureClass::Unavailable, "config can be mended: {outcomes:?}");
        assert!(message(&outcomes[0]).contains("nothing is sent"), "{outcomes:?}");
    }
    // Where an event chooses the host, it is the event that is refused.
    let chosen =
        HttpOptions::from_text(&format!("https://{{header.to}}:{port}/")).unwrap().open().await.unwrap();
    let outcomes = carrier.send(&chosen, 10).await;
    assert!(matches!(&outcomes[0], Outcome::Dead(_)), "{outcomes:?}");
    assert!(receiver.take().is_empty());
    let found = options(&receiver.url()).check().await.unwrap();
    assert_eq!(found[0], format!("reaches {}", receiver.address()));
    assert!(receiver.take().is_empty(), "a check sends nothing");
}

#[tokio::test]
async fn a_receiver_behind_tls_must_be_who_it_claims_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    let receiver = Receiver::start(|_| Reply::ok()).await;
    let front = TlsFront::start(receiver.address(), &ca_file).await;
    let port = front.address.port();
    let mut options = HttpOptions::from_text(&format!("https://localhost:{port}/x/{{type}}")).unwrap();
    options.allow = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    let mut carrier = Carrier::with_keys(1, 2);
    let outcomes = carrier.send(&options.open().await.unwrap(), 10).await;
    assert!(message(&outcomes[0]).contains("certificate"), "{outcomes:?}");
    assert!(receiver.take().is_empty() && options.check().await.is_err());
    options.ca_file = Some(ca_file.clone());
    carrier.send_all(&options.open().await.unwrap(), 10).await;
    assert_eq!(receiver.take().len(), 2);
    assert_eq!(options.check().await.unwrap()[0], format!("reaches localhost:{port}"));
    // The same certificate under another name.
    let mut other = HttpOptions::from_text(&format!("https://127.0.0.1:{port}/")).unwrap();
    (other.allow, other.ca_file) = (options.allow, Some(ca_file));
    carrier.emit(None, b"1");
    let outcomes = carrier.send(&other.open().await.unwrap(), 10).await;
    assert!(message(&outcomes[0]).contains("certificate"), "{outcomes:?}");
    assert!(receiver.take().is_empty());
}
