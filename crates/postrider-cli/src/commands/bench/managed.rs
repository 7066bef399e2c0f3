//! A server that does not tell how far its write-ahead log has come, beside the same server when it does.

use std::time::Duration;

use postrider_core::{NewSubscription, Result};
use postrider_postgres::bare::Scratch;
use postrider_postgres::{PostgresOptions, PostgresStore};

use super::postgres::{Load, RATE, backlog, deliver_for};
use super::rounds::{Rounds, Samples};
use super::{Measure, ROUNDS_OF_DRAINS, drain};
use crate::args::BenchArgs;

/// `url` is of a server that tells it.
pub(super) async fn measure(url: &str, args: &BenchArgs) -> Result<Vec<Measure>> {
    let scratch = Scratch::create_managed(url).await?;
    let measured = both([url, scratch.url()], args).await;
    scratch.remove().await?;
    measured
}

async fn both(urls: [&str; 2], args: &BenchArgs) -> Result<Vec<Measure>> {
    let mut measures = latencies(urls, args.seconds).await?;
    measures.push(drains(urls, args.events as usize).await?);
    Ok(measures)
}

/// From the call of COMMIT to the handler, in turns.
async fn latencies(urls: [&str; 2], seconds: u64) -> Result<Vec<Measure>> {
    let mut samples = [Samples::default(), Samples::default()];
    let mut stores = Vec::new();
    for url in urls {
        stores.push(PostgresStore::open(PostgresOptions::from_url(url)?).await?);
    }
    for turn in 0..seconds.div_ceil(2) {
        for ((store, url), samples) in stores.iter().zip(urls).zip(&mut samples) {
            let load = Load { rate: RATE, seconds: 2, works: Duration::ZERO };
            let subscription = NewSubscription::new(format!("managed-{turn}"));
            samples.extend(deliver_for(store, url, subscription, load).await?);
        }
    }
    let [told, withheld] = &samples;
    Ok(vec![
        Measure::time("managed server, COMMIT to handler, p50, 1000/s", withheld.median(), told.median()),
        Measure::time("managed server, COMMIT to handler, p99, 1000/s", withheld.p99(), told.p99()),
    ])
}

/// Draining the same backlog, in turns.
async fn drains(urls: [&str; 2], events: usize) -> Result<Measure> {
    let stores = [backlog(urls[0], "large", events).await?, backlog(urls[1], "large", events).await?];
    let mut rounds = Rounds::default();
    let mut runs = 0..;
    for round in 0..ROUNDS_OF_DRAINS * 2 {
        let mut turn = [Duration::ZERO; 2];
        // Whichever goes second finds the caches warm, so that they take turns in that too.
        for which in [round % 2, 1 - round % 2] {
            turn[which] = drain(&stores[which], events, runs.next()).await?.whole;
        }
        rounds.push(turn[1], turn[0]);
    }
    let rate = |seconds: f64| events as f64 / seconds;
    Ok(Measure {
        name: "managed server, drain",
        value: rate(rounds.ours()),
        unit: "events/s",
        reference: rate(rounds.reference()),
        ratio: rounds.speed(),
    })
}
