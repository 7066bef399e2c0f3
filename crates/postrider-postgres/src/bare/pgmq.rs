//! PGMQ, whose SQL the caller brings, as a peer to compare queues with: the same server, the same client library.

use std::time::{Duration, Instant};

use postrider_core::Result;
use tokio_postgres::Client;

use super::{WHAT, connect, text};
use crate::error::Doing;

/// Installs it in the database and makes a queue of its.
pub async fn install(url: &str, script: &str) -> Result<()> {
    let client = connect(url).await?;
    client.batch_execute("create schema if not exists pgmq").await.doing(WHAT)?;
    client.batch_execute(script).await.doing(WHAT)?;
    client.query(&*text(sql!("bench/pgmq/bare_pgmq_create")), &[]).await.map(drop).doing(WHAT)
}

/// Sends so many messages with payloads of 100 bytes.
pub async fn fill(url: &str, messages: usize) -> Result<()> {
    let client = connect(url).await?;
    let mut left = messages;
    while left > 0 {
        let batch = left.min(10_000);
        client.query(&*text(sql!("bench/pgmq/bare_pgmq_send")), &[&(batch as i32)]).await.doing(WHAT)?;
        left -= batch;
    }
    client.batch_execute("vacuum analyze pgmq.q_bench").await.doing(WHAT)
}

/// Reads and deletes all messages, so many at a time on so many connections; how many there were, and how long it took.
pub async fn drain(url: &str, connections: usize, batch: usize) -> Result<(usize, Duration)> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(connect(url).await?);
    }
    let began = Instant::now();
    let tasks: Vec<_> =
        clients.into_iter().map(|client| tokio::spawn(drain_by_one(client, batch as i32))).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.map_err(|error| {
            postrider_core::Error::new(postrider_core::ErrorKind::Internal, "a reader panicked")
                .with_source(error)
        })??;
    }
    Ok((count, began.elapsed()))
}

async fn drain_by_one(client: Client, batch: i32) -> Result<usize> {
    let read = client.prepare(&text(sql!("bench/pgmq/bare_pgmq_read"))).await.doing(WHAT)?;
    let delete = client.prepare(&text(sql!("bench/pgmq/bare_pgmq_delete"))).await.doing(WHAT)?;
    let mut count = 0;
    loop {
        let rows = client.query(&read, &[&batch]).await.doing(WHAT)?;
        if rows.is_empty() {
            return Ok(count);
        }
        let mut bytes = 0;
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            ids.push(row.try_get(0).doing(WHAT)?);
            bytes += row.try_get::<_, &str>(1).doing(WHAT)?.len();
        }
        debug_assert!(bytes > 0);
        client.query(&delete, &[&ids]).await.doing(WHAT)?;
        count += ids.len();
    }
}
