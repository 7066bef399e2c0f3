//! Deliveries for the tests of this crate.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::delivery::Origin;
use postrider_core::{Delivery, Event, EventId, Headers, Key, Kind, Timestamp, Topic};

pub(crate) fn delivery(id: i64, payload: &[u8]) -> Delivery {
    let event = Event {
        id: EventId(id),
        topic: Topic::new("order"),
        kind: Kind::new("order.created"),
        key: Some(Key::new("42")),
        payload: Bytes::copy_from_slice(payload),
        headers: Headers::default(),
        created_at: Timestamp::from_micros(1_800_000_000_000_000),
        due_at: None,
        flaw: None,
    };
    let origin = Origin { subscription: "audit".to_owned(), store_id: "s".to_owned() };
    Delivery::new(Arc::new(event), 1, Arc::new(origin))
}
