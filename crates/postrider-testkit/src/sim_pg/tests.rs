//! The server by itself: what the documentation and measurements of PostgreSQL say that it does.

use postrider_core::log::Xid;

use super::{Inner, Lost, Session, SimPg};

fn server() -> SimPg {
    SimPg::new(Xid(100))
}

fn emit(pg: &mut SimPg, session: Session) -> i64 {
    pg.take_xid(session).unwrap();
    let id = pg.draw_id(session).unwrap();
    pg.insert(session, id, 1).unwrap().id
}

fn visible(pg: &SimPg) -> Vec<i64> {
    pg.rows(&pg.snapshot(), 0).map(|row| row.id).collect()
}

#[test]
fn an_xid_that_nobody_has_completed_lies_between_xmax_and_the_next() {
    let mut pg = server();
    let (a, b) = (pg.connect(), pg.connect());
    pg.begin(a).unwrap();
    pg.begin(b).unwrap();
    pg.take_xid(a).unwrap();
    pg.take_xid(b).unwrap();
    assert_eq!(pg.snapshot().to_string(), "100:100:");
    assert_eq!(pg.next_xid(), Xid(102));
    pg.commit(b).unwrap();
    assert_eq!(pg.snapshot().to_string(), "100:102:100");
}

#[test]
fn xids_of_inner_transactions_are_never_running_and_widen_the_gap() {
    let mut pg = server();
    let session = pg.connect();
    pg.begin(session).unwrap();
    pg.nest(session, 20, Inner::Released).unwrap();
    assert_eq!((pg.snapshot().to_string(), pg.next_xid()), ("100:100:".to_owned(), Xid(121)));
    pg.nest(session, 1, Inner::Undone).unwrap();
    assert_eq!(pg.snapshot().to_string(), "100:122:100");
    pg.commit(session).unwrap();
    assert_eq!(pg.snapshot().to_string(), "122:122:");
}

#[test]
fn rows_vanish_with_their_savepoint_and_ids_do_not_come_back() {
    let mut pg = server();
    let session = pg.connect();
    pg.begin(session).unwrap();
    emit(&mut pg, session);
    pg.savepoint(session).unwrap();
    emit(&mut pg, session);
    pg.rollback_to(session).unwrap();
    assert_eq!(emit(&mut pg, session), 3);
    assert!(visible(&pg).is_empty());
    pg.commit(session).unwrap();
    assert_eq!(visible(&pg), [1, 3]);
    assert_eq!(pg.committed().map(|row| row.n).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_crash_takes_what_is_not_flushed_and_issues_its_xids_again() {
    let mut pg = server();
    let session = pg.connect();
    pg.begin(session).unwrap();
    emit(&mut pg, session);
    pg.commit(session).unwrap();
    pg.begin(session).unwrap();
    emit(&mut pg, session);
    pg.commit_write(session).unwrap();
    pg.commit_show(session).unwrap();
    assert_eq!((visible(&pg), pg.next_xid()), (vec![1, 2], Xid(102)));
    pg.crash();
    assert_eq!((visible(&pg), pg.next_xid()), (vec![1], Xid(101)));
    assert_eq!(pg.begin(session), Err(Lost));
    // The sequence goes on behind what it had written ahead.
    let session = pg.connect();
    pg.begin(session).unwrap();
    assert_eq!(emit(&mut pg, session), 34);
}

#[test]
fn what_is_prepared_survives_with_its_locks() {
    let mut pg = server();
    let session = pg.connect();
    pg.begin(session).unwrap();
    assert!(pg.lock(session, 1).unwrap());
    emit(&mut pg, session);
    pg.prepare(session).unwrap();
    pg.crash();
    assert_eq!(pg.snapshot().to_string(), "100:101:100");
    let other = pg.connect();
    pg.begin(other).unwrap();
    assert!(!pg.lock(other, 1).unwrap());
    pg.resolve(session, true);
    assert_eq!(visible(&pg), [1]);
    assert!(pg.lock(other, 1).unwrap());
}

#[test]
fn a_commit_is_on_disk_before_it_is_seen_if_it_waits_for_the_disk() {
    let mut pg = server();
    let session = pg.connect();
    pg.begin(session).unwrap();
    emit(&mut pg, session);
    let written = pg.commit_write(session).unwrap();
    assert!(pg.flushed() < written && visible(&pg).is_empty());
    pg.flush(written);
    pg.crash();
    assert_eq!(visible(&pg), [1], "on disk, although nobody had seen it");
}
