//! Golden messages for each envelope and protocol, and what holds for all of them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Epoch, FailureClass, Headers};
use proptest::prelude::{any, proptest};

use super::*;
use crate::sample;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const DEDUP_ID: &str = "s-7-1800000000000000";
const BINDINGS: [Binding; 5] = [Binding::Kafka, Binding::Nats, Binding::Http, Binding::Amqp, Binding::Redis];

fn delivery(payload: &[u8], headers: &[(&str, &str)]) -> Delivery {
    let mut delivery = sample::delivery(7, payload);
    delivery.attempt = 2;
    let event = Arc::make_mut(&mut delivery.event);
    for (name, value) in headers {
        event.headers.set(name, *value);
    }
    delivery
}

/// The message as lines of `name: value`, then the body.
fn shown(format: Format, binding: Binding, delivery: &Delivery) -> String {
    let envelope = Envelope::new(format);
    let message = envelope.wrap(delivery, binding).unwrap();
    let mut text = String::new();
    for (name, value) in message.pairs() {
        text.extend([name, ": ", value, "\n"]);
    }
    text.push_str(&String::from_utf8_lossy(&message.body));
    text
}

#[track_caller]
fn check(format: Format, binding: Binding, expected: &[&str]) {
    let delivery = delivery(br#"{"total":9.50}"#, &[("traceparent", TRACE), ("tenant", "Zürich")]);
    assert_eq!(shown(format, binding, &delivery).lines().collect::<Vec<_>>(), expected);
}

const TRACEPARENT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn raw_is_the_payload_with_what_a_receiver_must_know() {
    let common = [
        "postrider-topic: order",
        "postrider-type: order.created",
        "postrider-key: 42",
        "postrider-dedup-id: s-7-1800000000000000",
        "postrider-attempt: 2",
        TRACEPARENT,
    ];
    let expected = |first: &[&'static str], tenant| [first, &common, &[tenant, r#"{"total":9.50}"#]].concat();
    check(Format::Raw, Binding::Kafka, &expected(&[], "tenant: Zürich"));
    check(Format::Raw, Binding::Redis, &expected(&[], "tenant: Zürich"));
    check(Format::Raw, Binding::Nats, &expected(&[], "tenant: Z%C3%BCrich"));
    check(Format::Raw, Binding::Http, &expected(&["content-type: application/json"], "tenant: Z%C3%BCrich"));
    check(Format::Raw, Binding::Amqp, &expected(&["content-type: application/json"], "tenant: Zürich"));
}

#[test]
fn json_is_the_line_without_its_end() {
    let delivery = delivery(b"1", &[]);
    let mut line = Vec::new();
    line::write_line(&mut line, &delivery);
    let envelope = Envelope::new(Format::Json);
    let message = envelope.wrap(&delivery, Binding::Http).unwrap();
    assert_eq!(&message.body[..], &line[..line.len() - 1]);
    assert_eq!(message.content_type.as_deref(), Some("application/json"));
    let names: Vec<_> = message.headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, [names::DEDUP_ID, names::ATTEMPT]);
}

#[test]
fn cloudevents_in_binary_mode_for_each_protocol() {
    let expected = |prefix: &str, inner: &[&str], tenant: &str| {
        let attributes = [
            "specversion: 1.0",
            "id: s-7-1800000000000000",
            "source: postrider/s",
            "type: order.created",
            "subject: 42",
            "time: 2027-01-15T08:00:00Z",
        ];
        let attributes = attributes.iter().chain(inner).chain(&["partitionkey: 42", TRACEPARENT]);
        let mut lines = vec!["content-type: application/json".to_owned()];
        lines.extend(attributes.map(|attribute| format!("{prefix}{attribute}")));
        let own = ["postrider-dedup-id: s-7-1800000000000000", "postrider-attempt: 2", TRACEPARENT, tenant];
        lines.extend(own.map(str::to_owned));
        lines.push(r#"{"total":9.50}"#.to_owned());
        lines
    };
    for (binding, lines) in [
        (Binding::Kafka, expected("ce_", &[], "tenant: Zürich")),
        (Binding::Redis, expected("ce_", &[], "tenant: Zürich")),
        (Binding::Amqp, expected("cloudEvents:", &[], "tenant: Zürich")),
        (Binding::Http, expected("ce-", &[], "tenant: Z%C3%BCrich")),
        (Binding::Nats, expected("ce-", &["datacontenttype: application/json"], "tenant: Z%C3%BCrich")),
    ] {
        check(Format::CloudEvents, binding, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn cloudevents_in_structured_mode_are_one_object() {
    let object = |rest: &str| {
        format!(
            concat!(
                r#"{{"specversion":"1.0","id":"s-7-1800000000000000","source":"postrider/s","#,
                r#""type":"order.created","subject":"42","time":"2027-01-15T08:00:00Z","partitionkey":"42","#,
                "{}}}"
            ),
            rest
        )
    };
    for (payload, rest) in [
        (&b"{\"b\":1.50,\"b\":2}"[..], r#""datacontenttype":"application/json","data":{"b":1.50,"b":2}"#),
        (b"\xff\n", r#""datacontenttype":"application/octet-stream","data_base64":"/wo=""#),
        (b"", r#""datacontenttype":"application/octet-stream""#),
    ] {
        let delivery = delivery(payload, &[]);
        for binding in BINDINGS {
            let envelope = Envelope::new(Format::CloudEventsStructured);
            let message = envelope.wrap(&delivery, binding).unwrap();
            assert_eq!(String::from_utf8_lossy(&message.body), object(rest));
            assert_eq!(message.content_type.as_deref(), Some(cloudevents::STRUCTURED));
        }
    }
    let text = shown(
        Format::CloudEventsStructured,
        Binding::Kafka,
        &delivery(b"1", &[("content-type", "text/plain"), ("tracestate", "a=1")]),
    );
    assert!(
        text.contains(r#""tracestate":"a=1","datacontenttype":"text/plain","data_base64":"MQ==""#),
        "{text}"
    );
}

#[test]
fn debezium_gets_the_headers_of_the_outbox_event_router() {
    let delivery = delivery(b"{}", &[("id", "mine"), ("traceparent", TRACE)]);
    let expected = format!(
        "id: {DEDUP_ID}\neventType: order.created\npostrider-dedup-id: {DEDUP_ID}\npostrider-attempt: 2\n\
         postrider-header-id: mine\n{TRACEPARENT}\n{{}}"
    );
    assert_eq!(shown(Format::Debezium, Binding::Kafka, &delivery), expected);
}

#[test]
fn the_events_own_content_type_counts_before_config_and_before_a_look_at_the_payload() {
    let with = |headers: &[(&str, &str)], configured: Option<&str>| {
        let delivery = delivery(b"1", headers);
        let envelope = Envelope { content_type: configured.map(str::to_owned), ..Envelope::default() };
        let message = envelope.wrap(&delivery, Binding::Http).unwrap();
        assert!(!message.headers.iter().any(|(name, _)| name.to_lowercase().contains("content-type")));
        message.content_type.map(Cow::into_owned)
    };
    assert_eq!(with(&[("Content-Type", "text/plain")], Some("a/b")).as_deref(), Some("text/plain"));
    assert_eq!(with(&[], Some("a/b")).as_deref(), Some("a/b"));
    assert_eq!(with(&[], None).as_deref(), Some("application/json"));
    assert_eq!(with(&[("content-type", "a\r\nb: c")], None).as_deref(), Some("a%0D%0Ab:%20c"));
}

#[test]
fn an_epoch_is_told_where_it_is_known_and_an_absent_key_is_left_out() {
    let mut delivery = delivery(b"1", &[]);
    delivery.epoch = Some(Epoch(3));
    Arc::make_mut(&mut delivery.event).key = None;
    let text = shown(Format::CloudEvents, Binding::Kafka, &delivery);
    assert!(text.contains("\npostrider-epoch: 3\n"), "{text}");
    assert!(!text.contains("subject") && !text.contains("partitionkey"), "{text}");
}

#[test]
fn what_cannot_be_wrapped_fails_for_good() {
    let strict = Envelope { source: "{header.none}".parse().unwrap(), ..Envelope::new(Format::CloudEvents) };
    let failure = strict.wrap(&delivery(b"", &[]), Binding::Kafka).unwrap_err();
    assert_eq!(failure.class(), FailureClass::Permanent);

    let long = "n".repeat(256);
    let delivery = delivery(b"", &[(&long, "v")]);
    let failure = Envelope::default().wrap(&delivery, Binding::Amqp).unwrap_err();
    assert_eq!(failure.class(), FailureClass::Permanent);
    assert!(Envelope::default().wrap(&delivery, Binding::Kafka).is_ok());
}

#[test]
fn an_envelope_is_read_as_a_word_or_as_a_table() {
    for format in Format::ALL {
        let word: Envelope = serde_json::from_str(&format!("\"{format}\"")).unwrap();
        let table: Envelope = serde_json::from_str(&format!(r#"{{"format":"{format}"}}"#)).unwrap();
        assert_eq!((word.format, &word), (format, &table));
    }
    for (bad, reason) in [
        (r#""avro""#, "use one of raw, json, cloudevents, cloudevents-structured, debezium"),
        (r#"{"format":"raw","sauce":"x"}"#, "unknown field `sauce`"),
        (r#"{"format":"raw","source":"{x}"}"#, "there is no placeholder"),
        (r#"{"source":"x"}"#, "missing field `format`"),
        ("1", "the word for an envelope"),
    ] {
        let error = serde_json::from_str::<Envelope>(bad).unwrap_err().to_string();
        assert!(error.contains(reason), "{bad}: {error}");
    }
}

#[test]
fn a_payload_that_is_the_body_is_shared() {
    let delivery = delivery(&[7; 1000], &[]);
    for format in [Format::Raw, Format::CloudEvents, Format::Debezium] {
        let envelope = Envelope::new(format);
        let message = envelope.wrap(&delivery, Binding::Kafka).unwrap();
        assert_eq!(message.body.as_ptr(), delivery.payload.as_ptr(), "{format}");
    }
}

proptest! {
    #[test]
    fn structured_is_json_and_gives_back_any_bytes(payload in any::<Vec<u8>>(), json in any::<HashMap<String, i64>>()) {
        let json = serde_json::to_vec(&json).unwrap();
        for payload in [payload, json] {
            let delivery = delivery(&payload, &[]);
            let envelope = Envelope::new(Format::CloudEventsStructured);
            let message = envelope.wrap(&delivery, Binding::Kafka).unwrap();
            let mut event: serde_json::Map<_, _> = serde_json::from_slice(&message.body).unwrap();
            match (event.remove("data"), event.remove("data_base64")) {
                (Some(data), None) => {
                    assert_eq!(data, serde_json::from_slice::<serde_json::Value>(&payload).unwrap());
                }
                (None, Some(data)) => assert_eq!(STANDARD.decode(data.as_str().unwrap()).unwrap(), payload),
                (None, None) => assert!(payload.is_empty()),
                (Some(_), Some(_)) => panic!("both kinds of data"),
            }
        }
    }

    #[test]
    fn every_message_has_the_deduplication_id_once_and_all_own_headers(
        own in proptest::collection::vec((".{0,12}", ".{0,12}"), 0..5),
        reserved in proptest::sample::subsequence(
            vec!["id", "ce-id", "ce_id", "cloudEvents:id", "host", "postrider-dedup-id", "payload", "CC"], 0..8),
    ) {
        let mut headers = Headers::default();
        for (name, value) in &own {
            headers.set(name, value);
        }
        for name in &reserved {
            headers.set(name, "forged");
        }
        let mut delivery = delivery(b"x", &[]);
        Arc::make_mut(&mut delivery.event).headers = headers.clone();
        for (format, binding) in Format::ALL.into_iter().flat_map(|f| BINDINGS.map(|b| (f, b))) {
            let envelope = Envelope::new(format);
            let message = envelope.wrap(&delivery, binding).unwrap();
            let carried =
                |name: &str| if binding.is_ascii() { decode(name).into_owned() } else { name.to_owned() };
            let ids: Vec<_> = message.headers.iter().filter(|(name, _)| name == names::DEDUP_ID).collect();
            assert_eq!(ids.len(), 1);
            assert_eq!(ids[0].1, DEDUP_ID);
            for (name, value) in headers.iter() {
                let found = message.headers.iter().any(|(n, v)| {
                    let n = carried(n);
                    n.strip_prefix(MOVED).unwrap_or(&n) == name && carried(v) == value
                });
                assert!(found, "{format} {binding:?}: {name:?} {value:?} in {:?}", message.headers);
            }
        }
    }
}
