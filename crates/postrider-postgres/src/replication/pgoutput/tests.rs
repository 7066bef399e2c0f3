//! What is told is read as it was meant, and nothing else is taken for it.

use bytes::{BufMut, BytesMut};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// A value of a row, as the server has it.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    Null,
    Unchanged,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

/// Everything that the server can tell.
#[derive(Debug, Clone)]
enum Told {
    Begin(u64, u32),
    Commit(u64, u64),
    Relation(u32, String, String, Vec<(String, u32)>),
    Insert(u32, Vec<Given>),
    Update(u32, Option<Vec<Given>>, Vec<Given>),
    Delete(u32, Vec<Given>),
    Truncate(Vec<u32>),
    Type(u32, String),
    Origin(u64, String),
}

pub(crate) fn begin(commit_lsn: u64, xid: u32) -> Bytes {
    let mut out = BytesMut::from(&b"B"[..]);
    out.put_u64(commit_lsn);
    out.put_i64(7);
    out.put_u32(xid);
    out.freeze()
}

pub(crate) fn commit(commit_lsn: u64, end_lsn: u64) -> Bytes {
    let mut out = BytesMut::from(&b"C\0"[..]);
    out.put_u64(commit_lsn);
    out.put_u64(end_lsn);
    out.put_i64(7);
    out.freeze()
}

pub(crate) fn relation(id: u32, namespace: &str, name: &str, columns: &[(String, u32)]) -> Bytes {
    let mut out = BytesMut::from(&b"R"[..]);
    out.put_u32(id);
    text(&mut out, namespace);
    text(&mut out, name);
    out.put_u8(b'd');
    out.put_u16(columns.len() as u16);
    for (name, type_oid) in columns {
        out.put_u8(1);
        text(&mut out, name);
        out.put_u32(*type_oid);
        out.put_i32(-1);
    }
    out.freeze()
}

pub(crate) fn insert(relation: u32, row: &[Given]) -> Bytes {
    let mut out = BytesMut::from(&b"I"[..]);
    out.put_u32(relation);
    out.put_u8(b'N');
    values(&mut out, row);
    out.freeze()
}

fn text(out: &mut BytesMut, text: &str) {
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

fn values(out: &mut BytesMut, row: &[Given]) {
    out.put_u16(row.len() as u16);
    for value in row {
        let (kind, bytes) = match value {
            Given::Null => (b'n', None),
            Given::Unchanged => (b'u', None),
            Given::Text(bytes) => (b't', Some(bytes)),
            Given::Binary(bytes) => (b'b', Some(bytes)),
        };
        out.put_u8(kind);
        if let Some(bytes) = bytes {
            out.put_u32(bytes.len() as u32);
            out.put_slice(bytes);
        }
    }
}

fn encode(told: &Told) -> Bytes {
    let mut out = BytesMut::new();
    match told {
        Told::Begin(lsn, xid) => return begin(*lsn, *xid),
        Told::Commit(lsn, end) => return commit(*lsn, *end),
        Told::Relation(id, namespace, name, columns) => return relation(*id, namespace, name, columns),
        Told::Insert(id, row) => return insert(*id, row),
        Told::Update(id, before, after) => {
            out.put_u8(b'U');
            out.put_u32(*id);
            if let Some(before) = before {
                out.put_u8(b'O');
                values(&mut out, before);
            }
            out.put_u8(b'N');
            values(&mut out, after);
        }
        Told::Delete(id, before) => {
            out.put_u8(b'D');
            out.put_u32(*id);
            out.put_u8(b'K');
            values(&mut out, before);
        }
        Told::Truncate(ids) => {
            out.put_u8(b'T');
            out.put_u32(ids.len() as u32);
            out.put_u8(0);
            for id in ids {
                out.put_u32(*id);
            }
        }
        Told::Type(id, name) => {
            out.put_u8(b'Y');
            out.put_u32(*id);
            text(&mut out, "public");
            text(&mut out, name);
        }
        Told::Origin(lsn, name) => {
            out.put_u8(b'O');
            out.put_u64(*lsn);
            text(&mut out, name);
        }
    }
    out.freeze()
}

fn name() -> impl Strategy<Value = String> {
    "[^\0]{0,12}"
}

fn given() -> impl Strategy<Value = Given> {
    let bytes = || vec(any::<u8>(), 0..40);
    prop_oneof![
        Just(Given::Null),
        Just(Given::Unchanged),
        bytes().prop_map(Given::Text),
        bytes().prop_map(Given::Binary),
    ]
}

fn row() -> impl Strategy<Value = Vec<Given>> {
    vec(given(), 0..12)
}

fn told() -> impl Strategy<Value = Told> {
    let id = any::<u32>;
    let columns = vec((name(), any::<u32>()), 0..12);
    prop_oneof![
        (any::<u64>(), id()).prop_map(|(lsn, xid)| Told::Begin(lsn, xid)),
        (any::<u64>(), any::<u64>()).prop_map(|(lsn, end)| Told::Commit(lsn, end)),
        (id(), name(), name(), columns)
            .prop_map(|(id, space, name, all)| Told::Relation(id, space, name, all)),
        (id(), row()).prop_map(|(id, row)| Told::Insert(id, row)),
        (id(), option::of(row()), row()).prop_map(|(id, before, after)| Told::Update(id, before, after)),
        (id(), row()).prop_map(|(id, row)| Told::Delete(id, row)),
        vec(id(), 0..5).prop_map(Told::Truncate),
        (id(), name()).prop_map(|(id, name)| Told::Type(id, name)),
        (any::<u64>(), name()).prop_map(|(lsn, name)| Told::Origin(lsn, name)),
    ]
}

/// Whether what was read says what was told.
fn agrees(told: &Told, read: &Change) -> bool {
    match (told, read) {
        (Told::Begin(lsn, id), Change::Begin { commit_lsn, xid }) => commit_lsn.0 == *lsn && xid == id,
        (Told::Commit(lsn, end), Change::Commit { commit_lsn, end_lsn }) => {
            commit_lsn.0 == *lsn && end_lsn.0 == *end
        }
        (Told::Relation(id, namespace, name, columns), Change::Relation(read)) => {
            let found: Vec<(String, u32)> =
                read.columns.iter().map(|column| (column.name.clone(), column.type_oid)).collect();
            read.id == *id && read.namespace == *namespace && read.name == *name && found == *columns
        }
        (Told::Insert(id, row), Change::Insert { relation, columns }) => {
            let all_agree = row.iter().enumerate().all(|(index, given)| match (given, columns.get(index)) {
                (Given::Null, Some(Value::Null)) | (Given::Unchanged, Some(Value::Unchanged)) => true,
                (Given::Text(bytes), Some(Value::Text(read))) => read == bytes,
                (Given::Binary(bytes), Some(Value::Binary(read))) => read == bytes,
                _ => false,
            });
            relation == id && columns.len() == row.len() && columns.get(row.len()).is_none() && all_agree
        }
        (
            Told::Update(..) | Told::Delete(..) | Told::Truncate(..) | Told::Type(..) | Told::Origin(..),
            Change::Other,
        ) => true,
        _ => false,
    }
}

/// Looks at every value of a row, as its receiver does.
fn look(change: &Change) {
    if let Change::Insert { columns, .. } = change {
        assert_eq!(columns.iter().count(), columns.len());
        assert!((0..columns.len()).all(|index| columns.get(index).is_some()));
    }
}

/// As it stands in a block.
pub(crate) fn in_block(xid: u32, body: &Bytes) -> Bytes {
    let mut out = BytesMut::from(&body[..1]);
    out.put_u32(xid);
    out.put_slice(&body[1..]);
    out.freeze()
}

pub(crate) fn block_start(xid: u32) -> Bytes {
    in_block(xid, &Bytes::from_static(b"S\x01"))
}

pub(crate) fn blocks_commit(xid: u32, commit_lsn: u64, end_lsn: u64) -> Bytes {
    let mut out = in_block(xid, &commit(commit_lsn, end_lsn)).to_vec();
    out[0] = b'c';
    out.into()
}

pub(crate) fn blocks_abort(xid: u32, part: u32) -> Bytes {
    in_block(xid, &[&b"A"[..], &part.to_be_bytes()].concat().into())
}

#[test]
fn blocks_and_their_end_are_read() {
    assert_eq!(Change::read(block_start(7)), Some(Change::BlockStart { xid: 7 }));
    assert_eq!(Change::read_in_block(Bytes::from_static(b"E")), Some(Change::BlockStop));
    let (commit_lsn, end_lsn) = (Lsn(3), Lsn(4));
    assert_eq!(
        Change::read(blocks_commit(7, 3, 4)),
        Some(Change::BlocksCommit { xid: 7, commit_lsn, end_lsn })
    );
    assert_eq!(Change::read(blocks_abort(7, 9)), Some(Change::BlocksAbort { xid: 7, part: 9 }));
    for whole in [block_start(7), blocks_commit(7, 3, 4), blocks_abort(7, 9)] {
        assert_eq!(Change::read(whole.slice(..whole.len() - 1)), None);
        assert_eq!(Change::read_in_block(whole), None, "a block within a block");
    }
}

proptest! {
    #[test]
    fn in_a_block_everything_is_read_but_the_ends_of_a_transaction(told in told(), xid in any::<u32>()) {
        let body = encode(&told);
        let read = match told {
            Told::Origin(..) => Change::read_in_block(body.clone()),
            _ => Change::read_in_block(in_block(xid, &body)),
        };
        match told {
            Told::Begin(..) | Told::Commit(..) => prop_assert_eq!(read, None),
            _ => prop_assert_eq!(read, Change::read(body)),
        }
    }

    #[test]
    fn what_is_told_is_read_as_it_was_meant(told in told()) {
        let read = Change::read(encode(&told));
        prop_assert!(read.as_ref().is_some_and(|read| agrees(&told, read)), "{read:?}");
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_refused(told in told(), more in 1..9_usize) {
        let whole = encode(&told);
        for end in 0..whole.len() {
            prop_assert_eq!(Change::read(whole.slice(..end)), None);
        }
        let mut longer = whole.to_vec();
        longer.resize(whole.len() + more, 0);
        prop_assert_eq!(Change::read(longer.into()), None);
    }

    #[test]
    fn damage_is_an_error_or_another_message_and_no_panic(
        told in told(),
        places in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&told).to_vec();
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(change) = Change::read(bytes.into()) {
            look(&change);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_message_and_no_panic(
        kind in prop::sample::select(&b"BCRIMUDTYOSEcA?"[..]),
        bytes in vec(any::<u8>(), 0..200),
    ) {
        let body: Bytes = [kind].into_iter().chain(bytes).collect();
        for change in [Change::read(body.clone()), Change::read_in_block(body)].iter().flatten() {
            look(change);
        }
    }
}

#[test]
fn lengths_that_lie_take_no_memory() {
    for lie in [i32::MAX, -1, i32::MIN] {
        let mut out = BytesMut::from(&b"I\0\0\0\x01N\0\x01b"[..]);
        out.put_i32(lie);
        out.put_slice(b"abc");
        assert_eq!(Change::read(out.freeze()), None);
    }
    assert_eq!(Change::read(Bytes::from_static(b"T\xff\xff\xff\xff\0")), None);
    assert_eq!(Change::read(Bytes::from_static(b"R\0\0\0\x01a\0b\0d\xff\xff")), None);
    assert_eq!(Change::read(Bytes::new()), None);
}

#[test]
fn what_a_row_says_is_not_shown() {
    let Some(Change::Insert { columns, .. }) = Change::read(insert(1, &[Given::Text(b"secret".to_vec())]))
    else {
        panic!("it is an insert");
    };
    assert_eq!(format!("{columns:?} {:?}", columns.get(0)), "1 columns of 11 bytes Some(6 bytes)");
}
