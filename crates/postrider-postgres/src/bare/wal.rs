//! Reading from a replication slot and doing nothing with it: what the server and the network allow.

use std::time::{Duration, Instant};

use postrider_core::Result;
use postrider_core::log::Lsn;

use crate::options::PostgresOptions;
use crate::replication::Replication;

/// What came from a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalRead {
    /// Transactions that were seen whole.
    pub commits: u64,
    /// Rows that were inserted.
    pub rows: u64,
    /// Bytes of all changes, without the headers of their messages.
    pub bytes: u64,
    /// From the start of the stream to the last commit.
    pub took: Duration,
}

/// Reads from a slot until so many transactions were seen, and only counts; the first byte of each change says what it is.
/// Nothing is confirmed, so that the same can be read again.
pub async fn drain(url: &str, slot: &str, publication: &str, commits: u64) -> Result<WalRead> {
    let connected = Replication::connect(&PostgresOptions::from_url(url)?).await?;
    let mut read = WalRead::default();
    let began = Instant::now();
    let mut stream = connected.start(slot, publication, Lsn(0)).await?;
    while read.commits < commits {
        let change = stream.next_unread().await?;
        read.bytes += change.len() as u64;
        match change.first() {
            Some(b'I') => read.rows += 1,
            Some(b'C') => read.commits += 1,
            _ => {}
        }
    }
    read.took = began.elapsed();
    stream.end().await?;
    Ok(read)
}

/// Makes a slot to [`drain`]. Its publication has to exist before.
pub async fn slot_create(url: &str, slot: &str) -> Result<()> {
    let mut connected = Replication::connect(&PostgresOptions::from_url(url)?).await?;
    connected.slot_create(slot, false).await.map(drop)
}
