//! What we send, read by the libraries that receivers use: the SDKs of CloudEvents for Python, Node and Java,
//! Standard Webhooks, OpenTelemetry's baggage, and Debezium's outbox event router as the measure of envelope
//! `debezium`.
//!
//! The programs are in `tests/receivers` at the root; `cargo xtask setup` fetches what they need. Each reads
//! messages from its input and says what its libraries make of them.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[allow(dead_code, reason = "nothing goes wrong here")]
#[path = "parts/http_receiver.rs"]
mod http_receiver;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_receiver::{Receiver, Reply, Request};
use postrider_core::delivery::Origin;
use postrider_core::{Delivery, Event, EventId, Headers, Key, Kind, Outcome, Sink, Timestamp, Topic};
use postrider_sinks::envelope::{Format, decode};
use postrider_sinks::http::HttpOptions;
use postrider_sinks::{Binding, Envelope, SinkOptions};
use serde_json::{Value, json};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PAYLOAD: &str = r#"{"note":"für Zoë ☕"}"#;
const ROW: &str = "406c07f3-26f0-4eea-a50c-109940064b8f";

/// An event with all that receivers have stumbled over.
fn delivery() -> Delivery {
    let mut headers = Headers::default();
    for (name, value) in [
        ("id", ROW),
        ("tenant", "Zürich"),
        ("ce-region", "eu west"),
        ("ce-dataschema", "https://schemas.example.com/order 1"),
        ("baggage", "user=Zo%C3%AB"),
        ("traceparent", ""),
        ("correlation-id", "c-1"),
    ] {
        headers.set(name, value);
    }
    let event = Event {
        id: EventId(7),
        topic: Topic::new("order"),
        kind: Kind::new("order.created"),
        key: Some(Key::new("Zoë 42")),
        payload: PAYLOAD.into(),
        headers,
        created_at: Timestamp::from_micros(1_800_000_000_000_000),
        due_at: None,
        flaw: None,
    };
    let origin = Origin { subscription: "billing.eu".to_owned(), store_id: "5f2c".to_owned() };
    Delivery::new(Arc::new(event), 1, Arc::new(origin))
}

const ID: &str = "5f2c-7-1800000000000000-billing~eu";

fn receivers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/receivers")
}

fn python() -> Command {
    let mut command = Command::new(receivers().join("python/.venv/bin/python"));
    command.arg(receivers().join("python/read.py"));
    command
}

fn node() -> Command {
    let mut command = Command::new("node");
    command.arg(receivers().join("node/read.mjs"));
    command
}

/// The artifacts stand in the cache, where Kafka's are too.
fn java() -> Command {
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let own = own.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let caches = [own.map(|cache| cache.join("postrider")), Some("/var/cache/postrider".into())];
    let libraries =
        caches.into_iter().flatten().map(|cache| cache.join("receivers/lib")).find(|lib| lib.is_dir());
    let libraries = libraries.expect("`cargo xtask setup` fetches the artifacts for Java");
    let mut command = Command::new("java");
    // Most of its time is the start.
    command.args(["-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp"]).arg(libraries.join("*"));
    command.arg(receivers().join("java/Read.java"));
    command
}

/// What a program makes of each message.
fn read(mut program: Command, messages: &[Value]) -> Vec<Value> {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?}: {error}; run `cargo xtask setup`"));
    let mut input = child.stdin.take().unwrap();
    for message in messages {
        writeln!(input, "{message}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {stderr}");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), messages.len(), "{program:?}: {answers:?} {stderr}");
    answers
}

fn of_request(what: &str, request: &Request) -> Value {
    json!({"as": what, "headers": request.headers, "body": STANDARD.encode(&request.body), "secret": SECRET})
}

fn wrapped(what: &str, format: Format, binding: Binding) -> Value {
    let (envelope, delivery) = (Envelope::new(format), delivery());
    let message = envelope.wrap(&delivery, binding).unwrap();
    let headers: Vec<_> = message.pairs().collect();
    json!({
        "as": what, "headers": headers, "body": STANDARD.encode(&message.body), "key": "Zoë 42",
        "content_type": message.content_type,
    })
}

/// What a webhook sends with these options.
async fn sent(options: Value, deliveries: Vec<Delivery>) -> Request {
    let receiver = Receiver::start(|_| Reply::ok()).await;
    let mut options: serde_json::Map<_, _> = options.as_object().unwrap().clone();
    options.insert("url".to_owned(), receiver.url().into());
    options.insert("allow".to_owned(), json!(["127.0.0.1"]));
    let options: HttpOptions = serde_json::from_value(Value::Object(options)).unwrap();
    let count = deliveries.len();
    let outcomes = options.open().await.unwrap().send(deliveries).await;
    assert_eq!(outcomes, vec![Outcome::Ack; count]);
    receiver.take().remove(0)
}

/// How an event was sent, and what its reader does about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Binary,
    /// The SDK for Node leaves the attributes in headers as they are.
    BinaryUndecoded,
    Structured,
}

/// The attributes and the data that each library must find.
#[track_caller]
fn check(answer: &Value, mode: Mode) {
    let (attributes, data) = (&answer["attributes"], &answer["data"]);
    for (name, value) in [
        ("id", ID),
        ("source", "postrider/5f2c"),
        ("type", "order.created"),
        ("region", "eu west"),
        ("dataschema", "https://schemas.example.com/order%201"),
        ("postridereventid", "5f2c-7-1800000000000000"),
    ] {
        let found = attributes[name].as_str().unwrap_or_else(|| panic!("{name}: {answer}"));
        let found = if mode == Mode::BinaryUndecoded { decode(found) } else { found.into() };
        assert_eq!(found, value, "{name}: {answer}");
    }
    assert_eq!(attributes.get("traceparent"), None, "{answer}");
    if mode == Mode::Structured {
        assert_eq!(attributes["tenant"], "Zürich", "{answer}");
        let rest: Value = serde_json::from_str(attributes["postriderheaders"].as_str().unwrap()).unwrap();
        assert_eq!(rest["correlation-id"], "c-1", "{answer}");
    }
    let expected: Value = serde_json::from_str(PAYLOAD).unwrap();
    let data = match data {
        Value::String(text) => serde_json::from_str(text)
            .unwrap_or_else(|_| serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap()),
        data => data.clone(),
    };
    assert_eq!(data, expected, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_what_the_libraries_of_receivers_expect() {
    let structured = json!({"envelope": "cloudevents-structured", "secrets": [SECRET]});
    let batch = json!({"envelope": "cloudevents-structured", "batch": 10});
    let requests = [
        ("http", sent(json!({"envelope": "cloudevents"}), vec![delivery()]).await),
        ("http", sent(structured.clone(), vec![delivery()]).await),
        ("batch", sent(batch, vec![delivery(), delivery()]).await),
        ("signed", sent(structured, vec![delivery()]).await),
        ("baggage", sent(json!({}), vec![delivery()]).await),
    ];
    let messages: Vec<_> = requests.iter().map(|(what, request)| of_request(what, request)).collect();
    for program in [python(), node()] {
        let who = format!("{:?}", program.get_program());
        let answers = read(program, &messages);
        let [binary, structured, batch, signed, baggage] = &answers[..] else { panic!("{answers:?}") };
        check(&binary["read"], if who.contains("node") { Mode::BinaryUndecoded } else { Mode::Binary });
        check(&structured["read"], Mode::Structured);
        let batch = batch["read"].as_array().unwrap_or_else(|| panic!("{who}: {batch}"));
        for event in batch {
            check(event, Mode::Structured);
        }
        assert_eq!(batch.len(), 2, "{who}");
        assert_eq!(signed["read"], "verified", "{who}: {signed}");
        assert_eq!(baggage["read"], json!({"user": "Zoë"}), "{who}: {baggage}");
    }
}

#[test]
fn records_and_messages_are_what_the_sdks_of_cloudevents_expect() {
    let kafka = [
        wrapped("kafka", Format::CloudEvents, Binding::Kafka),
        wrapped("kafka", Format::CloudEventsStructured, Binding::Kafka),
    ];
    for program in [python(), java()] {
        let answers = read(program, &kafka);
        check(&answers[0]["read"], Mode::Binary);
        check(&answers[1]["read"], Mode::Structured);
    }
    let rabbitmq = [
        wrapped("rabbitmq", Format::CloudEvents, Binding::AmqpCe),
        wrapped("rabbitmq", Format::CloudEventsStructured, Binding::Amqp),
    ];
    let answers = read(python(), &rabbitmq);
    check(&answers[0]["read"], Mode::Binary);
    check(&answers[1]["read"], Mode::Structured);
}

#[test]
fn envelope_debezium_says_what_debeziums_router_says() {
    let row = json!({
        "as": "row", "id": ROW, "aggregatetype": "order", "aggregateid": "Zoë 42", "type": "order.created", "payload": PAYLOAD,
    });
    let routed = &read(java(), &[row])[0]["read"];
    let (envelope, delivery) = (Envelope::new(Format::Debezium), delivery());
    let message = envelope.wrap(&delivery, Binding::Kafka).unwrap();
    assert_eq!(routed["value"], std::str::from_utf8(&message.body).unwrap());
    assert_eq!(routed["key"], delivery.key.as_ref().unwrap().as_str());
    let headers = routed["headers"].as_object().unwrap_or_else(|| panic!("{routed}"));
    assert_eq!(headers.len(), 2, "{routed}");
    for (name, value) in headers {
        let ours: Vec<_> = message.pairs().filter(|(own, _)| own == name).map(|(_, value)| value).collect();
        assert_eq!(ours, [value.as_str().unwrap()], "{name}");
    }
}
