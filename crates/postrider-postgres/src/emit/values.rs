//! One event as parameters of a statement.

use std::borrow::Cow;
use std::error::Error as StdError;

use bytes::{BufMut, BytesMut};
use postrider_core::event::Due;
use postrider_core::{Headers, Key, NewEvent};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::{EMIT, INSERT, INSERT_AFTER};
use crate::server::statement::Sql;
use crate::server::values::{At, For, JsonBytes};

/// A parameter and its type, which saves asking the server for it.
pub(super) type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

/// The statement that suits an event. One for all would name the clock. Where it is not prepared, the server
/// plans it each time: 314k instead of 264k instructions for each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The usual case.
    Insert,
    /// With a delay.
    InsertAfter,
    /// With an idempotency key.
    Emit,
}

impl Form {
    pub(super) const fn sql(self) -> Sql {
        match self {
            Self::Insert => INSERT,
            Self::InsertAfter => INSERT_AFTER,
            Self::Emit => EMIT,
        }
    }
}

/// What is stored of an event.
pub(super) struct Values<'a> {
    pub(super) topic: &'a str,
    pub(super) kind: &'a str,
    pub(super) key: Option<&'a str>,
    /// Of these two at most one: a payload is JSON or bytes, and may be missing.
    pub(super) payload: Option<JsonBytes<'a>>,
    pub(super) payload_bytes: Option<&'a [u8]>,
    pub(super) headers: Option<HeadersJson<'a>>,
    pub(super) due_at: Option<At>,
    pub(super) due_in: Option<For>,
    pub(super) idempotency_key: Option<Cow<'a, str>>,
    pub(super) unique_for: Option<For>,
    pub(super) replaces: bool,
}

impl<'a> Values<'a> {
    pub(super) fn of(event: &'a NewEvent) -> Self {
        let (due_at, due_in) = match event.due() {
            None => (None, None),
            Some(Due::At(at)) => (Some(At(at)), None),
            Some(Due::After(delay)) => (None, Some(For(delay))),
        };
        let payload = event.payload_bytes().as_ref();
        Self {
            topic: event.topic().as_str(),
            kind: event.kind_or_topic(),
            key: event.ordering_key().map(Key::as_str),
            payload: event.is_json().then_some(JsonBytes(payload)),
            payload_bytes: (!event.is_json() && !payload.is_empty()).then_some(payload),
            headers: (!event.headers().is_empty()).then_some(HeadersJson(event.headers())),
            due_at,
            due_in,
            idempotency_key: event.idempotency(),
            unique_for: event.unique_for().map(For),
            replaces: event.replaces(),
        }
    }

    pub(super) fn form(&self) -> Form {
        match (&self.idempotency_key, self.due_in) {
            (Some(_), _) => Form::Emit,
            (None, Some(_)) => Form::InsertAfter,
            (None, None) => Form::Insert,
        }
    }

    /// Bytes of its payload.
    pub(super) fn payload_len(&self) -> usize {
        self.payload.map_or(0, |json| json.0.len()) + self.payload_bytes.map_or(0, <[u8]>::len)
    }

    /// What the statement of its form takes.
    pub(super) fn parameters(&self) -> Vec<Typed<'_>> {
        let mut parameters: Vec<Typed<'_>> = Vec::with_capacity(11);
        parameters.extend::<[Typed<'_>; 6]>([
            (&self.topic, Type::TEXT),
            (&self.kind, Type::TEXT),
            (&self.key, Type::TEXT),
            (&self.payload, Type::JSON),
            (&self.payload_bytes, Type::BYTEA),
            (&self.headers, Type::JSON),
        ]);
        match self.form() {
            Form::Insert => parameters.push((&self.due_at, Type::TIMESTAMPTZ)),
            Form::InsertAfter => parameters.push((&self.due_in, Type::INTERVAL)),
            Form::Emit => parameters.extend::<[Typed<'_>; 5]>([
                (&self.due_at, Type::TIMESTAMPTZ),
                (&self.due_in, Type::INTERVAL),
                (&self.idempotency_key, Type::TEXT),
                (&self.unique_for, Type::INTERVAL),
                (&self.replaces, Type::BOOL),
            ]),
        }
        parameters
    }
}

/// Headers in their stored form, written where they are sent from.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadersJson<'a>(pub(super) &'a Headers);

impl ToSql for HeadersJson<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        serde_json::to_writer(out.writer(), self.0)?;
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }

    to_sql_checked!();
}
