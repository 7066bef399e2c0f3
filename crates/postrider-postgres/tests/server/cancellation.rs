//! Any future may be dropped at any await.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use postrider_core::LogStore;
use postrider_core::settle::Settle;
use postrider_postgres::Work;
use postrider_postgres::tokio_postgres::Transaction;
use postrider_testkit::postgres::Version;

use crate::stage::{AMPLE, Owner, Stage, emit};

/// Polls a future so many times at the most.
async fn polled<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

fn work() -> Work {
    Box::new(|tx: &mut Transaction<'_>| {
        Box::pin(async move {
            tx.execute("insert into effect values (1)", &[])
                .await
                .map_err(|error| postrider_core::Failure::retry(error.to_string()))?;
            Ok(())
        })
    })
}

async fn one(owner: &Owner, what: usize, polls: usize) -> bool {
    let settle = Arc::new(Settle { mark: Some(owner.at), ..Settle::default() });
    match what {
        0 => polled(Box::pin(owner.store.fetch(&owner.hold, owner.at, AMPLE)), polls).await.is_some(),
        1 => polled(owner.store.settle(&owner.hold, settle), polls).await.is_some(),
        2 => polled(owner.store.settle_with(&owner.hold, settle, work()), polls).await.is_some(),
        _ => polled(owner.store.member_beat(owner.hold.member), polls).await.is_some(),
    }
}

/// Drops calls of an owner at random moments, and sees that the next ones work and that nothing stays open.
pub(crate) async fn drop_calls(stage: &Stage) {
    stage.run("create table effect (n int)");
    let p = stage.session().await;
    let mut owner = stage.owner("orders").await;
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut dropped, mut ended) = (0, 0);
    for round in 0..300 {
        emit(&p, "k", &format!("{round}")).await;
        for _ in 0..rng.usize(1..4) {
            if one(&owner, rng.usize(0..4), rng.usize(0..16)).await {
                ended += 1;
            } else {
                dropped += 1;
            }
        }
        let read = owner.read().await;
        assert_eq!(read, [format!("{round}")], "seed {seed}");
        owner.settle().await.unwrap();
    }
    assert!(dropped > 50 && ended > 20, "seed {seed}: {dropped} dropped, {ended} ended");
    let open = "select count(*) from pg_stat_activity
                where datname = current_database() and state like 'idle in transaction%'";
    for _ in 0..300 {
        if stage.number(open) == 0 {
            break;
        }
        // tidy: sleep because the server has no other sign than its views
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stage.number(open), 0, "seed {seed}");
}

#[tokio::test]
async fn a_dropped_call_leaves_no_transaction_open_and_the_next_one_works() {
    for version in Version::ALL {
        drop_calls(&Stage::on(version).await).await;
    }
}
