//! Source `wal`, beside a bare reader of a slot.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, NewSubscription, Result};
use postrider_postgres::bare::wal;
use postrider_postgres::{PostgresOptions, PostgresStore, Source};

use super::postgres::{Load, RATE, Stamps, deliver_for, paced};
use super::rounds::{Rounds, Samples};
use super::{Measure, PAYLOAD, drain, panicked};

const SLOT: &str = "postrider_bench";
const PUBLICATION: &str = "postrider";
/// Transactions of the two backlogs, and how many events each of them has.
const BACKLOGS: [(u64, u64, &str); 2] = [
    (200_000, 1, "wal, drain of 1-event transactions against a bare slot"),
    (500, 1_000, "wal, drain of 1000-event transactions against it"),
];

pub(super) async fn measure(url: &str, seconds: u64) -> Result<Vec<Measure>> {
    let store = PostgresStore::open(PostgresOptions::from_url(url)?.source(Source::Wal)).await?;
    // The first relay makes what it needs.
    let load = Load { rate: RATE, seconds: 1, works: Duration::ZERO };
    deliver_for(&store, url, NewSubscription::new("first"), load).await?;
    let mut measures = latencies(&store, url, seconds).await?;
    for (transactions, events, name) in BACKLOGS {
        measures.push(drains(url, transactions, events, name).await?);
    }
    Ok(measures)
}

/// From the call of COMMIT to the handler, beside a bare reader that is told of the same commits.
async fn latencies(store: &PostgresStore, url: &str, seconds: u64) -> Result<Vec<Measure>> {
    let (mut bare, mut ours) = (Samples::default(), Samples::default());
    for turn in 0..seconds.div_ceil(2) {
        bare.extend(listen_for(url, 2).await?);
        let load = Load { rate: RATE, seconds: 2, works: Duration::ZERO };
        ours.extend(deliver_for(store, url, NewSubscription::new(format!("wal-{turn}")), load).await?);
    }
    Ok(vec![
        Measure::time("wal, COMMIT to handler, p50, 1000/s", ours.median(), bare.median()),
        Measure::time("wal, COMMIT to handler, p99, 1000/s", ours.p99(), bare.p99()),
    ])
}

async fn listen_for(url: &str, seconds: u64) -> Result<Samples> {
    let events = RATE * seconds;
    let stamps = Stamps::new(events);
    // One that has heard nothing of the turns before.
    wal::slot_create(url, SLOT).await?;
    let mut listener = wal::Listener::begin(url, SLOT, PUBLICATION, PAYLOAD.len()).await?;
    let heard = Arc::clone(&stamps);
    let listening = tokio::spawn(async move {
        for _ in 0..events {
            let number = listener.next().await?;
            heard.note(&heard.came, number);
        }
        listener.end().await
    });
    paced(url, &stamps, RATE, Some(())).await?;
    listening.await.map_err(panicked)??;
    wal::slot_drop(url, SLOT).await?;
    Ok(stamps.latencies())
}

/// A relay that was away, against a bare reader of a slot that has kept the same.
async fn drains(url: &str, transactions: u64, events: u64, name: &'static str) -> Result<Measure> {
    let schema = format!("wal_{events}");
    let options = PostgresOptions::from_url(url)?.schema(&schema)?.source(Source::Wal);
    let store = PostgresStore::open(options).await?;
    wal::publication_create(url, &schema).await?;
    wal::slot_create(url, SLOT).await?;
    wal::commit_each(url, &schema, transactions, events).await?;
    let mut rounds = Rounds::default();
    let count = transactions * events;
    for run in 0..3 {
        let ours = drain(&store, count as usize, Some(run)).await?;
        let read = wal::drain(url, SLOT, &schema, transactions).await?;
        if read.rows != count {
            let message = format!("{} of {count} events were read from the slot", read.rows);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        rounds.push(ours.whole, read.took);
    }
    wal::slot_drop(url, SLOT).await?;
    Ok(Measure {
        name,
        value: count as f64 / rounds.ours(),
        unit: "events/s",
        reference: count as f64 / rounds.reference(),
        ratio: rounds.speed(),
    })
}
