//! What is said on a stream, without a server: the other end of a pipe plays it.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::super::pgoutput::tests::{
    Given, begin, block_start, blocks_abort, blocks_commit, commit, in_block, insert, relation,
};
use super::super::refusal::refusal;
use super::*;

fn pair() -> (Stream, DuplexStream) {
    let (ours, theirs) = duplex(1 << 16);
    (Stream::new(Wire::new(ours), "read".to_owned(), Lsn(5), Pace::of(None)), theirs)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn change(body: &[u8]) -> Vec<u8> {
    message(b'd', &[&b"w"[..], &[0; 24], body].concat())
}

fn keepalive(end: u64, asks: bool) -> Vec<u8> {
    let mut body = BytesMut::from(&b"k"[..]);
    body.put_u64(end);
    body.put_u64(0);
    body.put_u8(u8::from(asks));
    message(b'd', &body)
}

/// What a status says: received, flushed, applied, and whether it wants an answer.
async fn status(theirs: &mut DuplexStream) -> (u64, u64, u64, bool) {
    let mut bytes = [0; 39];
    theirs.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes[..6], *b"d\0\0\0\x26r");
    let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    (number(6), number(14), number(22), bytes[38] == 1)
}

/// What a stream makes of some messages and their end.
async fn told(messages: &[Vec<u8>]) -> (Vec<Said>, Error) {
    let (mut stream, mut theirs) = pair();
    theirs.write_all(&messages.concat()).await.unwrap();
    theirs.shutdown().await.unwrap();
    let mut said = Vec::new();
    loop {
        match stream.next().await {
            Ok(next) => said.push(next),
            Err(error) => return (said, error),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_goes_out_every_second_and_asks_for_an_answer() {
    let (mut stream, mut theirs) = pair();
    stream.confirm(Lsn(9));
    stream.confirm(Lsn(7));
    let began = Instant::now();
    tokio::select! {
        said = stream.next() => panic!("nothing was said: {said:?}"),
        () = async {
            for _ in 0..4 {
                assert_eq!(status(&mut theirs).await, (5, 9, 9, true));
            }
        } => {}
    }
    assert_eq!(began.elapsed().as_secs(), 3, "the first at once");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_idle_sends_statuses_and_reads_nothing() {
    let (mut stream, mut theirs) = pair();
    theirs.write_all(&keepalive(8, true)).await.unwrap();
    tokio::select! {
        ended = stream.idle() => panic!("it lasts for ever: {ended:?}"),
        () = async {
            for _ in 0..3 {
                assert_eq!(status(&mut theirs).await, (5, 5, 5, false));
            }
        } => {}
    }
    assert_eq!(stream.next().await.unwrap(), Said::Position(Lsn(8)), "it is still there");
    drop(theirs);
    assert_eq!(stream.idle().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_is_answered_at_once() {
    let (mut stream, mut theirs) = pair();
    theirs.write_all(&[keepalive(8, true), keepalive(9, false)].concat()).await.unwrap();
    let began = Instant::now();
    assert_eq!(stream.next().await.unwrap(), Said::Position(Lsn(8)));
    assert_eq!(stream.next().await.unwrap(), Said::Position(Lsn(9)));
    assert_eq!(status(&mut theirs).await, (5, 5, 5, true), "the first");
    assert_eq!(status(&mut theirs).await, (8, 5, 5, false), "the answer");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn statuses_do_not_pile_up_for_a_server_that_does_not_read() {
    let (ours, mut theirs) = duplex(100);
    let mut stream = Stream::new(Wire::new(ours), "read".to_owned(), Lsn(5), Pace::of(None));
    timeout(Duration::from_secs(1_000), stream.next()).await.expect_err("nothing was said");
    theirs.write_all(&keepalive(6, false)).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Said::Position(Lsn(6)));
    assert!(stream.wire.outgoing().len() <= 39, "{}", stream.wire.outgoing().len());
}

#[test]
fn the_servers_patience_sets_the_pace() {
    for (patience_ms, pace_ms) in [(None, 1_000), (Some(60_000), 1_000), (Some(1_500), 500), (Some(1), 1)] {
        let pace = Pace::of(patience_ms.map(Duration::from_millis));
        assert_eq!(pace.0, Duration::from_millis(pace_ms));
    }
}

#[tokio::test]
async fn a_transaction_is_told_in_order() {
    let columns = [("n".to_owned(), 23)];
    let (said, _) = told(&[
        change(&begin(20, 7)),
        change(&relation(1, "s", "t", &columns)),
        change(&insert(1, &[Given::Null])),
        keepalive(10, false),
        message(b'S', b"a\0b\0"),
        change(&commit(20, 21)),
    ])
    .await;
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[0], Said::Begin { commit_lsn: Lsn(20), xid: 7 });
    let Said::Insert(row) = &said[1] else { panic!("a row comes: {said:?}") };
    assert_eq!((&*row.relation.name, row.columns.len()), ("t", 1));
    assert_eq!(said[2], Said::Position(Lsn(10)));
    assert_eq!(said[3], Said::Commit { commit_lsn: Lsn(20), end_lsn: Lsn(21) });
}

#[tokio::test]
async fn what_cannot_be_is_an_error() {
    let columns = [("n".to_owned(), 23)];
    let table = || change(&relation(1, "s", "t", &columns));
    for (messages, says) in [
        (vec![change(b"?")], "a change '?' that cannot be read"),
        (vec![change(b"")], "cannot be read"),
        (vec![change(&insert(1, &[]))], "a table that it has not told of"),
        (vec![table(), change(&insert(1, &[]))], "more or fewer columns"),
        (vec![message(b'd', b"w\0")], "a message that cannot be read"),
        (vec![message(b'd', b"?")], "a message that cannot be read"),
        (vec![message(b'?', b"")], "'?' in the stream"),
        (vec![message(b'E', b"")], "half an error"),
        (vec![message(b'c', b"")], "has ended the stream"),
        (vec![message(b'd', b"w")[..4].to_vec()], "ended within a message"),
        (vec![], "the connection has ended"),
    ] {
        let (said, error) = told(&messages).await;
        assert!(said.is_empty() && error.to_string().contains(says), "{said:?} {error}");
    }
    let tables: Vec<_> = (0..=RELATIONS_MAX as u32).map(|id| change(&relation(id, "s", "t", &[]))).collect();
    let (mut stream, mut theirs) = pair();
    let telling = tokio::spawn(async move { theirs.write_all(&tables.concat()).await });
    assert!(stream.next().await.unwrap_err().to_string().contains("more than 1024 tables"));
    telling.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_warning_that_something_was_left_out_is_an_error() {
    let warning = |code: &str| message(b'N', format!("SWARNING\0C{code}\0Mskipped\0\0").as_bytes());
    let (_, error) = told(&[warning("01000"), warning("55000")]).await;
    assert_eq!(refusal(&error), Some(Refusal::PublicationMissing), "{error}");
}

/// A table as an open transaction has changed it is another one for all others, until that commits.
#[tokio::test]
async fn what_open_transactions_tell_of_tables_is_theirs_until_they_commit() {
    let column = |name: &str| (name.to_owned(), 25);
    let (narrow, wide) =
        (relation(1, "s", "t", &[column("a")]), relation(1, "s", "t", &[column("a"), column("b")]));
    let one = insert(1, &[Given::Null]);
    let two = insert(1, &[Given::Null, Given::Null]);
    let stop = change(b"E");
    let messages = [
        change(&begin(3, 7)),
        change(&narrow),
        change(&one),
        change(&commit(3, 4)),
        change(&block_start(8)),
        change(&in_block(8, &wide)),
        change(&in_block(9, &two)),
        stop.clone(),
        change(&block_start(10)),
        change(&in_block(10, &wide)),
        change(&in_block(10, &two)),
        stop,
        change(&blocks_abort(8, 9)),
        change(&blocks_abort(10, 10)),
        change(&begin(5, 11)),
        change(&one),
        change(&commit(5, 6)),
        change(&blocks_commit(8, 7, 8)),
        change(&begin(9, 12)),
        change(&two),
        change(&commit(9, 10)),
    ];
    let (said, _) = told(&messages).await;
    let letters: Vec<String> = said
        .iter()
        .map(|said| match said {
            Said::Begin { xid, .. } => format!("begin {xid}"),
            Said::Insert(row) => format!("row of {}", row.columns.len()),
            Said::Commit { .. } => "commit".to_owned(),
            Said::Ahead { xid, row } => format!("{xid} ahead, row of {}", row.columns.len()),
            Said::AheadCommit { xid, commit_lsn } => format!("{xid} commits at {}", commit_lsn.0),
            Said::AheadAbort { xid } => format!("{xid} is undone"),
            Said::Position(_) => "?".to_owned(),
        })
        .collect();
    let expected = [
        "begin 7",
        "row of 1",
        "commit",
        "8 ahead, row of 2",
        "10 ahead, row of 2",
        "10 is undone",
        "begin 11",
        "row of 1",
        "commit",
        "8 commits at 7",
        "begin 12",
        "row of 2",
        "commit",
    ];
    assert_eq!(letters, expected);
}
