//! Which event a row of the log is.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::event::{Lengths, StoredEvent};
use postrider_core::log::{LogRow, Xid};
use postrider_core::{Error, ErrorKind, Event, EventId, Result, Timestamp};
use tokio_postgres::types::{FromSql, Type};

use crate::replication::{Cell, Column, Relation, Row};
use crate::server::values::At;

/// The columns of the log and their types.
static COLUMNS: [(&str, Type); FIELDS] = [
    ("xid", Type::XID8),
    ("id", Type::INT8),
    ("created_at", Type::TIMESTAMPTZ),
    ("due_at", Type::TIMESTAMPTZ),
    ("topic", Type::VARCHAR),
    ("type", Type::VARCHAR),
    ("key", Type::VARCHAR),
    ("headers", Type::JSON),
    ("payload", Type::JSON),
    ("payload_bytes", Type::BYTEA),
];
const XID: usize = 0;
const ID: usize = 1;
const CREATED_AT: usize = 2;
const DUE_AT: usize = 3;
const TOPIC: usize = 4;
const TYPE: usize = 5;
const KEY: usize = 6;
const HEADERS: usize = 7;
const PAYLOAD: usize = 8;
const PAYLOAD_BYTES: usize = 9;
const FIELDS: usize = 10;

/// Reads rows of the log. Where which column is, is found out once for each relation.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    known: Option<Known>,
}

/// The values of a row, in the order of [`COLUMNS`].
type Cells<'a> = [Cell<'a>; FIELDS];

#[derive(Debug)]
struct Known {
    relation: Arc<Relation>,
    /// For each column of the relation, which of [`COLUMNS`] it is.
    fields: Vec<usize>,
}

impl EventReader {
    /// The event that a row of the log is. Its payload is copied: a slice would keep all alive that was
    /// received with it.
    pub(crate) fn read(&mut self, row: &Row) -> Result<LogRow> {
        let known = match self.known.take() {
            Some(known) if Arc::ptr_eq(&known.relation, &row.relation) => known,
            _ => Known::of(&row.relation)?,
        };
        let known = self.known.insert(known);
        let mut cells = [Cell::Null; FIELDS];
        for (field, cell) in known.fields.iter().zip(row.columns.iter()) {
            cells[*field] = cell;
        }
        let event = event(&cells, row.columns.left_out())?;
        Ok(LogRow { xid: Xid(u64::from_be_bytes(fixed(&cells, XID)?)), event: Arc::new(event) })
    }
}

impl Known {
    fn of(relation: &Arc<Relation>) -> Result<Self> {
        let mut fields = Vec::with_capacity(FIELDS);
        for column in &relation.columns {
            let field = field(relation, column)?;
            if fields.contains(&field) {
                return Err(unfit(relation, &format!("has the column {} twice", column.name)));
            }
            fields.push(field);
        }
        match (0..FIELDS).find(|field| !fields.contains(field)) {
            None => Ok(Self { relation: Arc::clone(relation), fields }),
            Some(missing) => {
                Err(unfit(relation, &format!("is sent without the column {}", COLUMNS[missing].0)))
            }
        }
    }
}

fn field(relation: &Relation, column: &Column) -> Result<usize> {
    let found = COLUMNS.iter().position(|(name, _)| *name == column.name);
    let field = found.ok_or_else(|| {
        unfit(relation, &format!("has a column {} that this version does not know", column.name))
    })?;
    if COLUMNS[field].1.oid() == column.type_oid {
        return Ok(field);
    }
    Err(unfit(relation, &format!("has a column {} of another type (oid {})", column.name, column.type_oid)))
}

fn unfit(relation: &Relation, told: &str) -> Error {
    let Relation { namespace, name, .. } = relation;
    let advice = "publish the log whole, and upgrade this program if the schema is newer";
    Error::new(ErrorKind::Incompatible, format!("the table {namespace}.{name} {told}: {advice}"))
}

/// As `event_row.rs` reads one that was selected. `left_out` says how many bytes of it were not kept.
fn event(cells: &Cells<'_>, left_out: usize) -> Result<Event> {
    let topic = text(cells, TOPIC)?.ok_or_else(|| damaged(TOPIC))?;
    let stored = StoredEvent {
        id: EventId(i64::from_be_bytes(fixed(cells, ID)?)),
        topic,
        kind: text(cells, TYPE)?.unwrap_or(topic),
        key: text(cells, KEY)?,
        payload: payload(cells)?,
        headers: text(cells, HEADERS)?,
        created_at: at(cells, CREATED_AT)?.ok_or_else(|| damaged(CREATED_AT))?,
        due_at: at(cells, DUE_AT)?,
        lengths: lengths(cells, left_out),
    };
    Ok(stored.into_event())
}

/// How long what was cut is, and whether there are two payloads. What is not known is the last column's.
fn lengths(cells: &Cells<'_>, left_out: usize) -> Option<Lengths> {
    let cut = |field: usize| match cells[field] {
        Cell::Cut(_, length) => length as u64,
        Cell::Null | Cell::Unchanged | Cell::Text(_) | Cell::Binary(_) => 0,
    };
    let lengths = Lengths {
        topic: cut(TOPIC),
        kind: cut(TYPE),
        key: cut(KEY),
        headers: cut(HEADERS),
        payload: cut(PAYLOAD).max(cut(PAYLOAD_BYTES)),
        payloads: [PAYLOAD, PAYLOAD_BYTES].into_iter().filter(|field| cells[*field] != Cell::Null).count()
            as u64,
    };
    if left_out > 0 && !cells.iter().any(|cell| matches!(cell, Cell::Cut(..))) {
        return Some(Lengths { payload: left_out as u64, ..lengths });
    }
    (left_out > 0 || lengths.payloads > 1).then_some(lengths)
}

/// JSON is the same in both formats, bytes are not. Of two, and of what was cut, none.
fn payload(cells: &Cells<'_>) -> Result<Bytes> {
    match (cells[PAYLOAD], cells[PAYLOAD_BYTES]) {
        (Cell::Binary(json) | Cell::Text(json), Cell::Null) => Ok(Bytes::copy_from_slice(json)),
        (Cell::Null, Cell::Binary(bytes)) => Ok(Bytes::copy_from_slice(bytes)),
        (Cell::Unchanged, _) => Err(damaged(PAYLOAD)),
        (_, Cell::Unchanged | Cell::Text(_)) => Err(damaged(PAYLOAD_BYTES)),
        (Cell::Null, Cell::Null) | (Cell::Cut(..), _) | (_, Cell::Cut(..) | Cell::Binary(_)) => {
            Ok(Bytes::new())
        }
    }
}

fn fixed(cells: &Cells<'_>, field: usize) -> Result<[u8; 8]> {
    match cells[field] {
        Cell::Binary(bytes) => bytes.try_into().map_err(|_| damaged(field)),
        Cell::Null | Cell::Unchanged | Cell::Text(_) | Cell::Cut(..) => Err(damaged(field)),
    }
}

fn at(cells: &Cells<'_>, field: usize) -> Result<Option<Timestamp>> {
    if cells[field] == Cell::Null {
        return Ok(None);
    }
    let raw = fixed(cells, field)?;
    At::from_sql(&Type::TIMESTAMPTZ, &raw).map(|at| Some(at.0)).map_err(|_| damaged(field))
}

/// Texts are the same in both formats. Of one that was cut the whole characters.
fn text<'a>(cells: &Cells<'a>, field: usize) -> Result<Option<&'a str>> {
    match cells[field] {
        Cell::Null => Ok(None),
        Cell::Text(bytes) | Cell::Binary(bytes) => {
            std::str::from_utf8(bytes).map(Some).map_err(|_| damaged(field))
        }
        Cell::Cut(bytes, _) => Ok(bytes.utf8_chunks().next().map(|chunk| chunk.valid())),
        Cell::Unchanged => Err(damaged(field)),
    }
}

fn damaged(field: usize) -> Error {
    let name = COLUMNS[field].0;
    Error::new(ErrorKind::Corrupt, format!("cannot read the log: an event's {name} is not as it has to be"))
}

#[cfg(test)]
mod tests {
    use postrider_core::Key;

    use super::*;
    use crate::replication::pgoutput::Change;
    use crate::replication::pgoutput::tests::{Given, insert, relation};

    fn columns() -> Vec<(String, u32)> {
        COLUMNS.iter().map(|(name, known)| ((*name).to_owned(), known.oid())).collect()
    }

    fn values() -> Vec<Given> {
        let number = |number: i64| Given::Binary(number.to_be_bytes().to_vec());
        let text = |text: &str| Given::Binary(text.as_bytes().to_vec());
        let (key, headers) = (text("42"), text("{\"a\": \"b\"}"));
        let payload = [Given::Null, Given::Binary(vec![0, 255])];
        let mut values =
            vec![number(7), number(8), number(0), Given::Null, text("order"), text("made"), key, headers];
        values.extend(payload);
        values
    }

    fn row(columns: &[(String, u32)], values: &[Given]) -> Row {
        let Some(Change::Relation(relation)) = Change::read(relation(1, "postrider", "event", columns))
        else {
            panic!("it is a relation");
        };
        let Some(Change::Insert { columns, .. }) = Change::read(insert(1, values)) else {
            panic!("it is an insert");
        };
        Row { relation: Arc::new(relation), columns }
    }

    #[test]
    fn a_row_is_an_event_in_whatever_order_its_columns_come() {
        let mut reader = EventReader::default();
        let (mut columns, mut values) = (columns(), values());
        for _ in 0..FIELDS {
            let LogRow { xid, event } = reader.read(&row(&columns, &values)).unwrap();
            assert_eq!((xid, event.id), (Xid(7), EventId(8)));
            assert_eq!((event.topic.as_str(), event.kind.as_str()), ("order", "made"));
            assert_eq!(event.key.as_ref().map(Key::as_str), Some("42"));
            assert_eq!(event.headers.get("a"), Some("b"));
            assert_eq!(event.payload[..], [0, 255]);
            assert_eq!((event.created_at.as_micros(), event.due_at), (946_684_800_000_000, None));
            columns.rotate_left(1);
            values.rotate_left(1);
        }
    }

    #[test]
    fn a_payload_is_json_or_bytes_or_missing_and_a_type_may_be_missing() {
        let json = || Given::Binary(br#"{"path": "C:\\new"}"#.to_vec());
        for (in_json, in_bytes, read) in [
            (json(), Given::Null, br#"{"path": "C:\\new"}"#.as_slice()),
            (Given::Null, Given::Binary(vec![0, 255]), [0, 255].as_slice()),
            (Given::Null, Given::Null, [].as_slice()),
        ] {
            let mut values = values();
            (values[PAYLOAD], values[PAYLOAD_BYTES], values[TYPE]) = (in_json, in_bytes, Given::Null);
            let event = EventReader::default().read(&row(&columns(), &values)).unwrap().event;
            assert_eq!((&event.payload[..], event.kind.as_str()), (read, "order"));
        }
    }

    #[test]
    fn two_payloads_are_a_flaw() {
        let mut values = values();
        (values[PAYLOAD], values[PAYLOAD_BYTES]) = (Given::Binary(b"{}".to_vec()), Given::Binary(vec![0]));
        let event = EventReader::default().read(&row(&columns(), &values)).unwrap().event;
        assert_eq!(
            event.flaw.as_ref().unwrap().reason(),
            "an event has a payload or payload_bytes, not both"
        );
        assert!(event.payload.is_empty());
    }

    /// Wherever it is cut, its number is known, and it is never handed out.
    #[test]
    fn a_row_of_which_the_beginning_was_kept_is_an_event_with_a_flaw() {
        for (field, says) in [
            (TOPIC, "topic has 2,000,000 bytes, the limit is 255"),
            (TYPE, "type has 2,000,000 bytes, the limit is 255"),
            (KEY, "key has 2,000,000 bytes, the limit is 1,024"),
            (HEADERS, "the headers have 2,000,000 bytes, the limit is 131,072"),
            (PAYLOAD, "payload has 2,000,000 bytes, the limit is 1,048,576"),
            (PAYLOAD_BYTES, "payload has 2,000,000 bytes, the limit is 1,048,576"),
        ] {
            let mut values = values();
            values[PAYLOAD_BYTES] = Given::Null;
            values[field] = Given::Binary("ä".repeat(1_000_000).into_bytes());
            let whole = insert(1, &values);
            // Within the value, whatever comes behind it.
            for kept in [whole.len() - 1_999_001, whole.len() - 1_200_000] {
                let cut = Change::read_cut(whole.slice(..kept), whole.len() - kept);
                let Some(Change::Insert { columns: cut, .. }) = cut else { panic!("it is an insert") };
                let row = Row { columns: cut, ..row(&columns(), &values) };
                let event = EventReader::default().read(&row).unwrap().event;
                assert_eq!(event.id, EventId(8));
                assert_eq!(event.flaw.as_ref().unwrap().reason(), says);
                assert!(event.payload.is_empty());
            }
        }
    }

    #[test]
    fn a_row_that_is_cut_between_two_values_has_a_flaw_too() {
        let mut values = values();
        values[PAYLOAD_BYTES] = Given::Binary(vec![7; 5_000_000]);
        let whole = insert(1, &values);
        for header in 0..=5 {
            let kept = whole.len() - 5_000_000 - header;
            let cut = Change::read_cut(whole.slice(..kept), whole.len() - kept);
            let Some(Change::Insert { columns: cut, .. }) = cut else { panic!("it is an insert") };
            let row = Row { columns: cut, ..row(&columns(), &values) };
            let event = EventReader::default().read(&row).unwrap().event;
            let flaw = event.flaw.as_ref().unwrap().reason();
            assert!(flaw.starts_with("payload has 5,000,00"), "{flaw}");
        }
    }

    #[test]
    fn a_table_that_is_another_is_refused_in_words() {
        let mut without = columns();
        without.remove(KEY);
        let mut with = columns();
        with.push(("more".to_owned(), 25));
        let mut twice = columns();
        twice.push(("key".to_owned(), 1043));
        let mut other = columns();
        other[ID].1 = 23;
        for (columns, says) in [
            (without, "without the column key"),
            (with, "has a column more that this version does not know"),
            (twice, "has the column key twice"),
            (other, "has a column id of another type (oid 23)"),
        ] {
            let error = EventReader::default().read(&row(&columns, &values())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Incompatible);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn values_that_cannot_be_are_refused_without_repeating_them() {
        let long = || Given::Binary(b"secret".to_vec());
        for (field, bad) in [
            (XID, Given::Null),
            (XID, long()),
            (ID, Given::Text(b"secret".to_vec())),
            (CREATED_AT, Given::Null),
            (DUE_AT, long()),
            (TOPIC, Given::Null),
            (TYPE, Given::Unchanged),
            (KEY, Given::Binary(b"secret\xff".to_vec())),
            (PAYLOAD, Given::Unchanged),
            (PAYLOAD_BYTES, Given::Unchanged),
            (PAYLOAD_BYTES, Given::Text(b"secret".to_vec())),
        ] {
            let mut values = values();
            values[field] = bad;
            let error = EventReader::default().read(&row(&columns(), &values)).unwrap_err().to_string();
            assert!(error.contains(COLUMNS[field].0) && !error.contains("secret"), "{error}");
        }
    }
}
