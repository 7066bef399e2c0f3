//! Many events as parameters of one statement: an array for each column.

use std::borrow::Cow;

use postrider_core::{NewEvent, limits};
use tokio_postgres::types::Type;

use super::values::{HeadersJson, Typed, Values};
use super::{EMIT_ALL, INSERT_ALL};
use crate::server::statement::Sql;
use crate::server::values::{At, For, JsonBytes};

/// What is stored of some events, column by column.
#[derive(Default)]
pub(super) struct Batch<'a> {
    pub(super) topics: Vec<&'a str>,
    pub(super) kinds: Vec<&'a str>,
    pub(super) keys: Vec<Option<&'a str>>,
    pub(super) payloads: Vec<Option<JsonBytes<'a>>>,
    pub(super) payloads_bytes: Vec<Option<&'a [u8]>>,
    pub(super) headers: Vec<Option<HeadersJson<'a>>>,
    pub(super) due_at: Vec<Option<At>>,
    pub(super) due_in: Vec<Option<For>>,
    pub(super) idempotency_keys: Vec<Option<Cow<'a, str>>>,
    pub(super) unique_for: Vec<Option<For>>,
    pub(super) replaces: Vec<bool>,
    bytes: usize,
}

/// Events in as few batches as the bounds on one statement allow.
pub(super) fn batches(events: &[NewEvent]) -> impl Iterator<Item = Batch<'_>> {
    let mut events = events.iter().map(Values::of).peekable();
    std::iter::from_fn(move || {
        events.peek()?;
        let mut batch = Batch::default();
        while let Some(values) = events.next_if(|_| batch.has_room()) {
            batch.push(values);
        }
        Some(batch)
    })
}

impl<'a> Batch<'a> {
    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether some event has an idempotency key.
    pub(super) fn has_idempotency_keys(&self) -> bool {
        self.idempotency_keys.iter().any(Option::is_some)
    }

    /// The statement that the parameters are for. Going through the function for each row costs several times
    /// as much, so that only a batch pays for it that has to.
    pub(super) fn sql(&self) -> Sql {
        if self.has_idempotency_keys() { EMIT_ALL } else { INSERT_ALL }
    }

    pub(super) fn parameters(&self) -> Vec<Typed<'_>> {
        let mut parameters: Vec<Typed<'_>> = vec![
            (&self.topics, Type::TEXT_ARRAY),
            (&self.kinds, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.payloads, Type::JSON_ARRAY),
            (&self.payloads_bytes, Type::BYTEA_ARRAY),
            (&self.headers, Type::JSON_ARRAY),
            (&self.due_at, Type::TIMESTAMPTZ_ARRAY),
            (&self.due_in, Type::INTERVAL_ARRAY),
        ];
        if self.has_idempotency_keys() {
            parameters.push((&self.idempotency_keys, Type::TEXT_ARRAY));
            parameters.push((&self.unique_for, Type::INTERVAL_ARRAY));
            parameters.push((&self.replaces, Type::BOOL_ARRAY));
        }
        parameters
    }

    fn has_room(&self) -> bool {
        self.len() < limits::EMIT_EVENTS_MAX && self.bytes < limits::EMIT_BYTES_MAX
    }

    fn push(&mut self, values: Values<'a>) {
        self.bytes += values.payload_len();
        self.topics.push(values.topic);
        self.kinds.push(values.kind);
        self.keys.push(values.key);
        self.payloads.push(values.payload);
        self.payloads_bytes.push(values.payload_bytes);
        self.headers.push(values.headers);
        self.due_at.push(values.due_at);
        self.due_in.push(values.due_in);
        self.idempotency_keys.push(values.idempotency_key);
        self.unique_for.push(values.unique_for);
        self.replaces.push(values.replaces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::Event;

    #[test]
    fn batches_keep_the_order_and_the_bounds() {
        let small = (0..2_500).map(|n| Event::new("t").key(n)).collect::<Vec<_>>();
        let lengths: Vec<usize> = batches(&small).map(|batch| batch.len()).collect();
        assert_eq!(lengths, [1_000, 1_000, 500]);
        let keys: Vec<String> =
            batches(&small).flat_map(|batch| batch.keys).flatten().map(str::to_owned).collect();
        assert_eq!(keys, (0..2_500).map(|n| n.to_string()).collect::<Vec<_>>());
        let large = vec![Event::new("t").payload(vec![0; limits::PAYLOAD_BYTES_MAX]); 9];
        let lengths: Vec<usize> = batches(&large).map(|batch| batch.len()).collect();
        assert_eq!(lengths, [4, 4, 1]);
        assert_eq!(batches(&[]).count(), 0);
    }
}
