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
const DEDUP_ID: &str = "s-7-1800000000000000-audit";
const EVENT_ID: &str = "s-7-1800000000000000";
const BINDINGS: [Binding; 6] =
    [Binding::Kafka, Binding::Nats, Binding::Http, Binding::Amqp, Binding::AmqpCe, Binding::Redis];

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

const PLAIN: [&str; 1] = ["tenant: Zürich"];
const ENCODED: [&str; 2] = ["tenant: Z%C3%BCrich", "postrider-encoded: tenant"];

#[test]
fn raw_is_the_payload_with_what_a_receiver_must_know() {
    let common = [
        "postrider-topic: order",
        "postrider-type: order.created",
        "postrider-key: 42",
        "postrider-event-id: s-7-1800000000000000",
        "postrider-dedup-id: s-7-1800000000000000-audit",
        "postrider-attempt: 2",
        TRACEPARENT,
    ];
    let expected = |first: &[&'static str], tenant: &[&'static str]| {
        [first, &common, tenant, &[r#"{"total":9.50}"#]].concat()
    };
    let content_type = ["content-type: application/json"];
    check(Format::Raw, Binding::Kafka, &expected(&[], &PLAIN));
    check(Format::Raw, Binding::Redis, &expected(&[], &PLAIN));
    check(Format::Raw, Binding::Nats, &expected(&[], &ENCODED));
    check(Format::Raw, Binding::Http, &expected(&content_type, &ENCODED));
    check(Format::Raw, Binding::Amqp, &expected(&content_type, &PLAIN));
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
    assert_eq!(names, [names::EVENT_ID, names::DEDUP_ID, names::ATTEMPT]);
}

#[test]
fn cloudevents_in_binary_mode_for_each_protocol() {
    let expected = |prefix: &str, inner: &[&str], tenant: &[&str]| {
        let attributes = [
            "specversion: 1.0",
            "id: s-7-1800000000000000-audit",
            "source: postrider/s",
            "type: order.created",
            "subject: 42",
            "time: 2027-01-15T08:00:00Z",
            "partitionkey: 42",
            TRACEPARENT,
            "postridereventid: s-7-1800000000000000",
        ];
        let mut lines = vec!["content-type: application/json".to_owned()];
        lines.extend(attributes.iter().chain(inner).map(|attribute| format!("{prefix}{attribute}")));
        let own = [
            "postrider-event-id: s-7-1800000000000000",
            "postrider-dedup-id: s-7-1800000000000000-audit",
            "postrider-attempt: 2",
            TRACEPARENT,
        ];
        lines.extend(own.iter().chain(tenant).map(|line| (*line).to_owned()));
        lines.push(r#"{"total":9.50}"#.to_owned());
        lines
    };
    for (binding, lines) in [
        (Binding::Kafka, expected("ce_", &[], &PLAIN)),
        (Binding::Redis, expected("ce_", &[], &PLAIN)),
        (Binding::Amqp, expected("cloudEvents:", &[], &PLAIN)),
        (Binding::AmqpCe, expected("ce-", &[], &PLAIN)),
        (Binding::Http, expected("ce-", &[], &ENCODED)),
        (Binding::Nats, expected("ce-", &["datacontenttype: application/json"], &ENCODED)),
    ] {
        check(Format::CloudEvents, binding, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn an_event_sets_attributes_but_not_who_sent_it_or_what_it_is() {
    let own = [
        ("ce-tenant", "acme"),
        ("ce_dataschema", "https://h/a b"),
        ("Ce-Subject", "other"),
        ("cloudEvents:partitionkey", "p"),
        ("ce-traceparent", ""),
        ("traceparent", ""),
        ("ce-id", "forged"),
        ("ce-source", "forged"),
        ("ce-not-a-name", "x"),
    ];
    let envelope =
        Envelope { source: "/shop/{header.city}".parse().unwrap(), ..Envelope::new(Format::CloudEvents) };
    let mut delivery = delivery(b"{}", &own);
    Arc::make_mut(&mut delivery.event).headers.set("city", "Zürich a/b");
    let message = envelope.wrap(&delivery, Binding::Kafka).unwrap();
    let all =
        |name: &str| -> Vec<&str> { message.pairs().filter(|(n, _)| *n == name).map(|(_, v)| v).collect() };
    assert_eq!(all("ce_tenant"), ["acme"]);
    assert_eq!(all("ce_dataschema"), ["https://h/a%20b"]);
    assert_eq!((all("ce_subject"), all("ce_partitionkey")), (vec!["other"], vec!["p"]));
    assert_eq!(all("ce_source"), ["/shop/Z%C3%BCrich%20a%2Fb"]);
    assert_eq!(all("ce_id"), [DEDUP_ID]);
    assert!(all("ce_traceparent").is_empty(), "an attribute is never empty");
    assert_eq!(all("postrider-header-ce-id"), ["forged"]);
    assert_eq!(all("postrider-header-ce-not-a-name"), ["x"]);
    // Elsewhere such a header would make a CloudEvent of what is none.
    let raw = shown(Format::Raw, Binding::Http, &delivery);
    assert!(raw.contains("\npostrider-header-ce-tenant: acme\n"), "{raw}");
}

#[test]
fn a_structured_event_has_the_other_headers_in_it() {
    let own = [
        ("tenant", "Zürich"),
        ("ce-region", "eu"),
        ("correlation-id", "c\u{1}"),
        ("subject", "s"),
        ("averylongnameforanextension", "l"),
        ("empty", ""),
        ("content-type", "application/json"),
    ];
    let delivery = delivery(b"{}", &own);
    let envelope = Envelope::new(Format::CloudEventsStructured);
    let message = envelope.wrap(&delivery, Binding::Http).unwrap();
    let event: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!(
        (&event["tenant"], &event["region"], &event["subject"]),
        (&"Zürich".into(), &"eu".into(), &"42".into())
    );
    assert_eq!(event.get("empty"), None);
    let rest: serde_json::Value = serde_json::from_str(event["postriderheaders"].as_str().unwrap()).unwrap();
    let expected =
        serde_json::json!({"correlation-id": "c\u{1}", "subject": "s", "averylongnameforanextension": "l"});
    assert_eq!(rest, expected);
}

#[test]
fn cloudevents_in_structured_mode_are_one_object() {
    let object = |rest: &str| {
        format!(
            concat!(
                r#"{{"specversion":"1.0","id":"s-7-1800000000000000-audit","source":"postrider/s","#,
                r#""type":"order.created","subject":"42","time":"2027-01-15T08:00:00Z","partitionkey":"42","#,
                r#""postridereventid":"s-7-1800000000000000","#,
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
        text.contains(r#""tracestate":"a=1","postridereventid":"s-7-1800000000000000","datacontenttype":"text/plain","data_base64":"MQ==""#),
        "{text}"
    );
}

#[test]
fn debezium_gets_the_headers_of_the_outbox_event_router_with_the_id_of_the_row() {
    let own = |headers: &[(&str, &str)], id: &str| {
        let expected = format!(
            "id: {id}\neventType: order.created\npostrider-event-id: {EVENT_ID}\npostrider-dedup-id: {DEDUP_ID}\n\
             postrider-attempt: 2\n{TRACEPARENT}\n{{}}"
        );
        let delivery = delivery(b"{}", &[headers, &[("traceparent", TRACE)]].concat());
        assert_eq!(shown(Format::Debezium, Binding::Kafka, &delivery), expected);
    };
    own(&[("id", "406c07f3-26f0-4eea-a50c-109940064b8f")], "406c07f3-26f0-4eea-a50c-109940064b8f");
    own(&[], DEDUP_ID);
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
            vec!["ce-id", "ce_id", "cloudEvents:id", "host", "postrider-dedup-id", "payload", "CC"], 0..7),
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
            let pairs = message.headers.iter().map(|(name, value)| (&**name, &**value));
            let carried: Vec<(String, String)> = if binding.is_ascii() {
                decode_all(pairs)
            } else {
                pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
            };
            let ids: Vec<_> = message.headers.iter().filter(|(name, _)| name == names::DEDUP_ID).collect();
            assert_eq!(ids.len(), 1);
            assert_eq!(ids[0].1, DEDUP_ID);
            for (name, value) in headers.iter() {
                let found =
                    carried.iter().any(|(n, v)| n.strip_prefix(MOVED).unwrap_or(n) == name && v == value);
                assert!(found, "{format} {binding:?}: {name:?} {value:?} in {:?}", message.headers);
            }
        }
    }
}
