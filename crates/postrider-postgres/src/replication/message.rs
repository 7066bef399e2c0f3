//! Which event a logical message is.
//!
//! `emit_message` writes a record as the server's binary protocol has it: the number of its fields, then for each of them its
//! type, its length, which is −1 for null, and its bytes.

use std::fmt;

use bytes::Bytes;
use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::types::{FromSql, Type};

use super::cursor::Cursor;
use crate::values::At;

const FIELDS: i32 = 7;

/// An event that was emitted without a row.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct MessageEvent {
    /// Microseconds since 1970.
    pub(crate) created_at: i64,
    pub(crate) topic: String,
    pub(crate) kind: String,
    pub(crate) key: Option<String>,
    /// JSON.
    pub(crate) headers: Option<String>,
    /// JSON, if the payload is that.
    pub(crate) payload: Option<String>,
    /// Otherwise bytes; there may be none.
    pub(crate) payload_bytes: Option<Vec<u8>>,
}

impl MessageEvent {
    /// What the content of a message says. Everything is copied: a slice would keep all alive that was received with it.
    pub(crate) fn read(content: Bytes) -> Result<Self> {
        Self::fields(content).map_err(|Torn| {
            let told =
                "a message of emit_message cannot be read: is this program older than the store's schema?";
            Error::new(ErrorKind::Incompatible, told)
        })
    }

    fn fields(content: Bytes) -> Result<Self, Torn> {
        let mut cursor = Cursor::new(content);
        (cursor.i32() == Some(FIELDS)).then_some(()).ok_or(Torn)?;
        let at = field(&mut cursor, &Type::TIMESTAMPTZ)?.ok_or(Torn)?;
        let event = Self {
            created_at: At::from_sql(&Type::TIMESTAMPTZ, &at).map_err(|_| Torn)?.0.as_micros(),
            topic: text(field(&mut cursor, &Type::BYTEA)?.ok_or(Torn)?)?,
            kind: text(field(&mut cursor, &Type::BYTEA)?.ok_or(Torn)?)?,
            key: field(&mut cursor, &Type::BYTEA)?.map(text).transpose()?,
            headers: field(&mut cursor, &Type::BYTEA)?.map(text).transpose()?,
            payload: field(&mut cursor, &Type::BYTEA)?.map(text).transpose()?,
            payload_bytes: field(&mut cursor, &Type::BYTEA)?.map(|bytes| bytes.to_vec()),
        };
        cursor.whole(event).ok_or(Torn)
    }

    /// Bytes that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let bytes = self.payload_bytes.as_ref().map_or(0, Vec::len);
        self.topic.len()
            + self.kind.len()
            + text(&self.key)
            + text(&self.headers)
            + text(&self.payload)
            + bytes
    }
}

/// It is no message of ours, or not all of it.
struct Torn;

/// The bytes of the next field; none if it is null.
fn field(cursor: &mut Cursor, ty: &Type) -> Result<Option<Bytes>, Torn> {
    (cursor.u32() == Some(ty.oid())).then_some(()).ok_or(Torn)?;
    match cursor.i32().ok_or(Torn)? {
        -1 => Ok(None),
        length => {
            let length = usize::try_from(length).map_err(|_| Torn)?;
            cursor.bytes(length).map(Some).ok_or(Torn)
        }
    }
}

fn text(bytes: Bytes) -> Result<String, Torn> {
    String::from_utf8(bytes.into()).map_err(|_| Torn)
}

/// Never what it says.
impl fmt::Debug for MessageEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message of {}, {} bytes", self.topic, self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use proptest::prelude::*;

    use super::*;

    fn written(at: i64, fields: [Option<&[u8]>; 6]) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i32(FIELDS);
        out.put_u32(Type::TIMESTAMPTZ.oid());
        out.put_i32(8);
        out.put_i64(at);
        for field in fields {
            out.put_u32(Type::BYTEA.oid());
            out.put_i32(field.map_or(-1, |field| field.len() as i32));
            out.put_slice(field.unwrap_or_default());
        }
        out.freeze()
    }

    #[test]
    fn what_was_written_is_read() {
        let names: [Option<&[u8]>; 4] = [Some(b"order"), Some(b"order.created"), None, Some(b"{}")];
        let [topic, kind, key, headers] = names;
        let content = written(1, [topic, kind, key, headers, None, Some(b"\x00\xff")]);
        let event = MessageEvent::read(content).unwrap();
        assert_eq!(event.created_at, 946_684_800_000_001);
        assert_eq!((event.topic.as_str(), event.kind.as_str()), ("order", "order.created"));
        assert_eq!((event.key, event.headers.as_deref()), (None, Some("{}")));
        assert_eq!((event.payload, event.payload_bytes), (None, Some(vec![0, 255])));
        let content = written(1, [topic, kind, key, headers, Some(b"[1]"), None]);
        let event = MessageEvent::read(content).unwrap();
        assert_eq!((event.payload.as_deref(), event.payload_bytes), (Some("[1]"), None));
        let without = written(1, [None, Some(b""), None, None, None, Some(b"")]);
        assert!(MessageEvent::read(without).is_err(), "no topic");
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_reading_them_does_not_panic(bytes: Vec<u8>) {
            let _ = MessageEvent::read(Bytes::from(bytes));
        }

        #[test]
        fn a_part_of_a_message_is_none(cut in 0_usize..90, more: u8) {
            let whole = written(7, [Some(b"topic"), Some(b"type"), Some(b"key"), Some(b"{}"), Some(b"1"), Some(b"payload")]);
            prop_assert!(MessageEvent::read(whole.slice(..cut.min(whole.len() - 1))).is_err());
            let mut longer = whole.to_vec();
            longer.push(more);
            prop_assert!(MessageEvent::read(Bytes::from(longer)).is_err());
        }
    }
}
