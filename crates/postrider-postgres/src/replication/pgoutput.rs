//! What the server's plugin `pgoutput` tells of a transaction, protocol version 1. Pure: bytes in, changes out.
//!
//! ```text
//!   B commit lsn, time, xid                        R id, namespace, name, identity, n × (flags, name, type, modifier)
//!   C flags, commit lsn, end lsn, time             I id, 'N', columns
//!   M flags, lsn, prefix, length, content          columns: n × ('n' | 'u' | 't' length bytes | 'b' length bytes)
//! ```
//!
//! Version 2 could tell of large transactions before they commit (`streaming`). Measured with a transaction of a million rows, a bare
//! receiver and PostgreSQL 15, two rounds of each in one run, on a busy machine, and with streaming values came as text instead of
//! binary: the server then spilled nothing to its disk instead of 277 MB, had told all 4 s after the commit instead of 9 to 10 s,
//! and the INSERT took 8.2 to 8.4 s instead of 6.2 to 6.9. It is not used: transactions above some thousand rows are read from
//! the table, which is looked at once a second while the stream lags (in another run a relay had the first event of such a
//! one 1.3 s after its commit), and one that is undone would be told as well. What is left to gain is the server's disk.
//!
//! Updates, deletes, truncates, types and origins are read, so that damage shows, and told as [`Change::Other`]. Whatever
//! the bytes are, reading them neither panics nor looks beyond their end.

use std::fmt;

use bytes::Bytes;
use postrider_core::log::Lsn;

use super::cursor::Cursor;

/// One message of the plugin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Begin { commit_lsn: Lsn, xid: u32 },
    Commit { commit_lsn: Lsn, end_lsn: Lsn },
    Relation(Relation),
    Insert { relation: u32, columns: Columns },
    Message(Message),
    Other,
}

/// A table that rows belong to, as it was when they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) id: u32,
    /// Its schema; empty for `pg_catalog`.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

/// A column of a [`Relation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) type_oid: u32,
}

/// What `pg_logical_emit_message` wrote.
#[derive(PartialEq, Eq)]
pub(crate) struct Message {
    /// Whether it belongs to the transaction that is being told. Others come whether theirs commits or not.
    pub(crate) transactional: bool,
    pub(crate) lsn: Lsn,
    pub(crate) prefix: String,
    pub(crate) content: Bytes,
}

/// The values of a row, in the order of its relation's columns. They lie where they were received.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    count: u16,
    body: Bytes,
}

/// One value.
#[cfg(test)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    /// Large, stored elsewhere and not changed by an update. No row that was inserted has one.
    Unchanged,
    Text(Bytes),
    Binary(Bytes),
}

/// One value, borrowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    Null,
    Unchanged,
    Text(&'a [u8]),
    Binary(&'a [u8]),
}

impl Change {
    /// Reads one message; none if it is none of protocol version 1, whole and nothing else.
    pub(super) fn read(body: Bytes) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        let change = match cursor.u8()? {
            b'B' => begin(&mut cursor)?,
            b'C' => commit(&mut cursor)?,
            b'R' => Self::Relation(relation(&mut cursor)?),
            b'I' => insert(&mut cursor)?,
            b'M' => Self::Message(message(&mut cursor)?),
            b'U' => update(&mut cursor)?,
            b'D' => delete(&mut cursor)?,
            b'T' => truncate(&mut cursor)?,
            b'Y' => {
                cursor.u32()?;
                cursor.text()?;
                cursor.text()?;
                Self::Other
            }
            b'O' => {
                cursor.lsn()?;
                cursor.text()?;
                Self::Other
            }
            _ => return None,
        };
        cursor.whole(change)
    }
}

impl Columns {
    pub(crate) fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// The value of a column, counted from 0.
    #[cfg(test)]
    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        Some(match self.iter().nth(index)? {
            Cell::Null => Value::Null,
            Cell::Unchanged => Value::Unchanged,
            Cell::Text(bytes) => Value::Text(self.body.slice_ref(bytes)),
            Cell::Binary(bytes) => Value::Binary(self.body.slice_ref(bytes)),
        })
    }

    /// All values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut rest = &self.body[..];
        std::iter::from_fn(move || {
            let (cell, after) = cell(rest)?;
            rest = after;
            Some(cell)
        })
    }

    /// Looks at every value once, so that later looks find each of them.
    fn take(cursor: &mut Cursor) -> Option<Self> {
        let count = cursor.u16()?;
        let all = cursor.as_slice();
        let mut rest = all;
        for _ in 0..count {
            (_, rest) = cell(rest)?;
        }
        let length = all.len() - rest.len();
        Some(Self { count, body: cursor.bytes(length)? })
    }
}

/// How many there are and how long they are, never what they say.
impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} columns of {} bytes", self.count, self.body.len())
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transactional, lsn, prefix, content } = self;
        let length = content.len();
        write!(f, "message {prefix:?} at {lsn:?}, transactional: {transactional}, {length} bytes")
    }
}

#[cfg(test)]
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Unchanged => f.write_str("unchanged"),
            Self::Text(bytes) | Self::Binary(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// The first value of some, and the others.
fn cell(values: &[u8]) -> Option<(Cell<'_>, &[u8])> {
    let (kind, rest) = values.split_first()?;
    match kind {
        b'n' => Some((Cell::Null, rest)),
        b'u' => Some((Cell::Unchanged, rest)),
        b't' | b'b' => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
            let (bytes, rest) = rest.split_at_checked(length)?;
            Some((if *kind == b't' { Cell::Text(bytes) } else { Cell::Binary(bytes) }, rest))
        }
        _ => None,
    }
}

fn begin(cursor: &mut Cursor) -> Option<Change> {
    let commit_lsn = cursor.lsn()?;
    let _committed_at = cursor.u64()?;
    Some(Change::Begin { commit_lsn, xid: cursor.u32()? })
}

fn commit(cursor: &mut Cursor) -> Option<Change> {
    let _flags = cursor.u8()?;
    let (commit_lsn, end_lsn) = (cursor.lsn()?, cursor.lsn()?);
    let _committed_at = cursor.u64()?;
    Some(Change::Commit { commit_lsn, end_lsn })
}

fn relation(cursor: &mut Cursor) -> Option<Relation> {
    let id = cursor.u32()?;
    let (namespace, name) = (cursor.text()?, cursor.text()?);
    let _identity = cursor.u8()?;
    let count = cursor.u16()?;
    // Grows as columns are found: a count that lies takes no memory.
    let mut columns = Vec::new();
    for _ in 0..count {
        let _flags = cursor.u8()?;
        let name = cursor.text()?;
        let type_oid = cursor.u32()?;
        let _modifier = cursor.u32()?;
        columns.push(Column { name, type_oid });
    }
    Some(Relation { id, namespace, name, columns })
}

fn insert(cursor: &mut Cursor) -> Option<Change> {
    let relation = cursor.u32()?;
    (cursor.u8()? == b'N').then_some(())?;
    Some(Change::Insert { relation, columns: Columns::take(cursor)? })
}

fn message(cursor: &mut Cursor) -> Option<Message> {
    let transactional = cursor.u8()? & 1 == 1;
    let lsn = cursor.lsn()?;
    let prefix = cursor.text()?;
    let length = usize::try_from(cursor.i32()?).ok()?;
    Some(Message { transactional, lsn, prefix, content: cursor.bytes(length)? })
}

/// What the row was, if its identity says so, and what it is.
fn update(cursor: &mut Cursor) -> Option<Change> {
    cursor.u32()?;
    let mut kind = cursor.u8()?;
    if matches!(kind, b'K' | b'O') {
        Columns::take(cursor)?;
        kind = cursor.u8()?;
    }
    (kind == b'N').then_some(())?;
    Columns::take(cursor)?;
    Some(Change::Other)
}

fn delete(cursor: &mut Cursor) -> Option<Change> {
    cursor.u32()?;
    matches!(cursor.u8()?, b'K' | b'O').then_some(())?;
    Columns::take(cursor)?;
    Some(Change::Other)
}

fn truncate(cursor: &mut Cursor) -> Option<Change> {
    let count = cursor.u32()?;
    let _options = cursor.u8()?;
    for _ in 0..count {
        cursor.u32()?;
    }
    Some(Change::Other)
}

#[cfg(test)]
pub(super) mod tests;
