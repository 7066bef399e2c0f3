//! What holds with every client library alike, whatever its own ways.

use diesel::{Connection as _, RunQueryDsl as _};
use postrider_core::{ErrorKind, emit};

use crate::support::{End, Rig, Way, on_each_version, order};

on_each_version!(
    a_role_without_rights_is_told_so,
    a_database_without_the_schema_is_told_what_to_do,
    a_refused_event_names_the_limit_and_spoils_nothing,
    a_blocking_savepoint_takes_only_its_own_events_with_it,
    statements_of_diesel_stay_prepared,
);

async fn a_role_without_rights_is_told_so(rig: Rig) {
    let role = format!("stranger_{}", rig.database.name);
    let make = format!("create role {role} login; grant usage on schema postrider to {role}");
    rig.client().await.batch_execute(&make).await.unwrap();
    let url = rig.database.url.replace("postgres@", &format!("{role}@"));
    for way in Way::LIBRARIES.into_iter().filter(|way| *way != Way::Plain) {
        let error = way.emit_at(&url, vec![order(1)], End::Commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{way:?}: {error}");
        let told = error.to_string();
        assert!(told.contains("cannot emit an event: permission denied for table event"), "{way:?}: {told}");
        assert!(told.contains("this role lacks the right"), "{way:?}: {told}");
    }
}

async fn a_database_without_the_schema_is_told_what_to_do(rig: Rig) {
    rig.client().await.batch_execute("drop schema postrider cascade").await.unwrap();
    for way in Way::LIBRARIES.into_iter().filter(|way| *way != Way::Plain) {
        let error = way.emit(&rig, vec![order(1)], End::Commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{way:?}: {error}");
        assert!(error.to_string().contains("run `postrider store migrate`"), "{way:?}: {error}");
    }
}

async fn a_refused_event_names_the_limit_and_spoils_nothing(rig: Rig) {
    for way in Way::LIBRARIES {
        let large = vec![order(1), order(2).payload(vec![0; (1 << 20) + 1])];
        let error = way.emit(&rig, large, End::Commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{way:?}");
        assert!(error.to_string().contains("the limit is 1048576"), "{way:?}: {error}");
        assert_eq!(rig.ids().await, [], "{way:?}: its caller gave the transaction up");
    }
}

async fn a_blocking_savepoint_takes_only_its_own_events_with_it(rig: Rig) {
    let url = rig.database.url.clone();
    let blocking = move || {
        let mut conn = diesel::PgConnection::establish(&url).unwrap();
        conn.transaction(|tx| {
            let before = emit(&mut *tx, order(1)).unwrap();
            // A transaction within one is a savepoint.
            let lost = tx.transaction(|tx| {
                emit(&mut *tx, order(2)).unwrap();
                Err::<(), _>(diesel::result::Error::RollbackTransaction)
            });
            lost.unwrap_err();
            let bad = emit(&mut *tx, order("a\0b")).unwrap_err();
            assert_eq!(bad.kind(), ErrorKind::Invalid);
            let after = emit(&mut *tx, order(3)).unwrap();
            Ok::<_, diesel::result::Error>(vec![before, after])
        })
        .unwrap()
    };
    let kept = tokio::task::spawn_blocking(blocking).await.unwrap();
    assert_eq!(rig.ids().await, kept);
}

/// The server parses and plans each form of the insert once, and not for each event.
async fn statements_of_diesel_stay_prepared(rig: Rig) {
    let url = rig.database.url.clone();
    let blocking = move || {
        let mut conn = diesel::PgConnection::establish(&url).unwrap();
        for n in 0..10 {
            emit(&mut conn, order(n)).unwrap();
            emit(&mut conn, order(n).idempotency_key(n.to_string())).unwrap();
        }
        let kept = "select name from pg_prepared_statements where statement like '%postrider.e%'";
        diesel::sql_query(kept).execute(&mut conn).unwrap()
    };
    assert_eq!(tokio::task::spawn_blocking(blocking).await.unwrap(), 2);
}
