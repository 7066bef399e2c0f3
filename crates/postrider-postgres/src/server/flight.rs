//! Statements of one transaction, sent in one go.
//!
//! ```text
//!   begin ──►       one after the other: each waits for the answer to the one before
//!         ◄── ok
//!   a ─► b ─► c ─► commit ──►       in flight: nobody waits in between
//!         ◄── a, b, c, ok
//! ```
//!
//! A statement cannot depend on the answers to earlier ones, only on whether they failed: then the server
//! passes over all that follows, and `commit` rolls back. So a caller that has a condition lets a statement
//! fail. `begin` does not fly with them: if only `begin` were cancelled, each of them would commit by itself.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures_util::future::maybe_done;
use tokio_postgres::{Error, Row, Transaction};

use crate::server::session::{Parameters, Ready};

/// Runs statements that are ready, and commits; the answers in their order, or the first failure.
///
/// All of it is sent when this is first polled, or nothing is done. Dropped later, it is committed or not.
pub(crate) async fn fly(
    tx: Transaction<'_>,
    steps: Vec<(Ready, &Parameters<'_>)>,
) -> Result<Vec<Vec<Row>>, Error> {
    let calls = steps.into_iter().map(|(ready, parameters)| call(&tx, ready, parameters));
    let Sent { answers, ended } = in_one_go(calls.collect(), tx.batch_execute("commit")).await;
    if ended {
        // Dropped, it would be rolled back once more, and the server's log would wonder at that.
        std::mem::forget(tx);
    }
    answers
}

struct Sent<T, E> {
    answers: Result<Vec<T>, E>,
    /// Whether the last call was sent too.
    ended: bool,
}

/// Begins all calls, which send something when they are first polled, one after the other; then waits for
/// them.
///
/// One that fails at once could not be sent. Then nothing may follow it: it would be committed without it.
/// One that succeeds at once was answered while it was being sent, by a server on another processor.
async fn in_one_go<T, E>(
    calls: Vec<impl Future<Output = Result<T, E>>>,
    last: impl Future<Output = Result<(), E>>,
) -> Sent<T, E> {
    let mut calls: Vec<_> = calls.into_iter().map(|call| Box::pin(maybe_done(call))).collect();
    let mut last = pin!(maybe_done(last));
    let begun = poll_fn(|context| {
        for call in &mut calls {
            let _ = call.as_mut().poll(context);
            if let Some(Err(_)) = call.as_mut().output_mut() {
                let failed = call.as_mut().take_output();
                return Poll::Ready(failed.transpose().map(drop));
            }
        }
        let _ = last.as_mut().poll(context);
        Poll::Ready(Ok(()))
    });
    if let Err(error) = begun.await {
        return Sent { answers: Err(error), ended: false };
    }
    for call in &mut calls {
        call.as_mut().await;
    }
    last.as_mut().await;
    let output = calls.iter_mut().map(|call| call.as_mut().take_output().expect("it was awaited"));
    let answers: Result<Vec<T>, E> = output.collect();
    let ended = last.take_output().expect("it was awaited");
    Sent { answers: answers.and_then(|answers| ended.map(|()| answers)), ended: true }
}

async fn call(tx: &Transaction<'_>, ready: Ready, parameters: &Parameters<'_>) -> Result<Vec<Row>, Error> {
    match ready {
        Ready::Named(statement) => tx.query(&statement, parameters).await,
        Ready::Typed(form) => tx.query_typed(&form.text, &form.typed(parameters)).await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use postrider_testkit::postgres::{Version, shared};
    use tokio_postgres::types::ToSql;

    use super::*;

    async fn prepared(tx: &Transaction<'_>, text: &str) -> Ready {
        Ready::Named(tx.prepare(text).await.unwrap())
    }

    #[tokio::test]
    async fn what_is_answered_at_once_keeps_nothing_back_but_what_fails_does() {
        let answered = std::cell::Cell::new(false);
        let last = || async {
            answered.set(true);
            Ok::<(), &str>(())
        };
        let sent = in_one_go(vec![ready(Ok(1)), ready(Ok(2))], last()).await;
        assert_eq!((sent.answers, sent.ended, answered.take()), (Ok(vec![1, 2]), true, true));
        let sent = in_one_go(vec![ready(Ok(1)), ready(Err("too long")), ready(Ok(3))], last()).await;
        assert_eq!((sent.answers, sent.ended, answered.take()), (Err("too long"), false, false));
    }

    #[tokio::test]
    async fn all_that_was_sent_is_done_or_nothing() {
        let database = shared(Version::V15).create_database();
        let (mut client, connection) =
            tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("create table t (n integer)").await.unwrap();
        let good: &Parameters<'_> = &[&1_i32];
        // Fails on the server, fails to be sent, succeeds.
        for (divisor, kept) in [(&0_i32 as &(dyn ToSql + Sync), 0), (&"one", 0), (&1_i32, 2)] {
            let tx = client.transaction().await.unwrap();
            let insert = "insert into t values ($1) returning n";
            let divisor = [divisor];
            let steps = vec![
                (prepared(&tx, insert).await, good),
                (prepared(&tx, "select 1 / $1::integer").await, &divisor[..]),
                (prepared(&tx, insert).await, good),
            ];
            let answers = fly(tx, steps).await;
            assert_eq!(
                answers.map(|answers| answers.iter().map(Vec::len).sum()).ok(),
                (kept > 0).then_some(3)
            );
            // The connection is fit for use, and no transaction is open on it.
            let row = client
                .query_one("select count(*), pg_current_xact_id_if_assigned() is null from t", &[])
                .await
                .unwrap();
            assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (kept, true));
        }
    }
}
