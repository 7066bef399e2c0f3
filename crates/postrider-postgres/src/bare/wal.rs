//! Reading from a replication slot and doing nothing with it: what the server and the network allow.

use std::time::{Duration, Instant};

use postrider_core::Result;
use postrider_core::log::Lsn;

use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::replication::{Replication, Stream};

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

/// Reads from a slot until so many transactions were seen, and only counts; the first byte of each change
/// says what it is. Nothing is confirmed, so that the same can be read again.
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

/// The number of the event that was told last, of events whose payloads begin with one.
pub struct Listener {
    stream: Stream,
    payload_bytes: usize,
}

impl Listener {
    /// Follows a slot from where it was confirmed. All payloads have this length, and are the last column of the log.
    pub async fn begin(url: &str, slot: &str, publication: &str, payload_bytes: usize) -> Result<Self> {
        let connected = Replication::connect(&PostgresOptions::from_url(url)?).await?;
        Ok(Self { stream: connected.start(slot, publication, Lsn(0)).await?, payload_bytes })
    }

    /// The number of the next one.
    pub async fn next(&mut self) -> Result<u64> {
        loop {
            let change = self.stream.next_unread().await?;
            let payload = change.len().checked_sub(self.payload_bytes).and_then(|at| change.get(at..at + 8));
            if let (Some(b'I'), Some(payload)) = (change.first(), payload) {
                return Ok(payload.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
            }
        }
    }

    /// Confirms all that was told.
    pub async fn end(mut self) -> Result<()> {
        let position = self.stream.position();
        self.stream.confirm(position);
        self.stream.end().await
    }
}

/// Makes what a slot of the log in `schema` needs, as a relay does.
pub async fn publication_create(url: &str, schema: &str) -> Result<()> {
    let script = format!(
        "create publication {schema} for table {schema}.event with (publish = 'insert', publish_via_partition_root = true)"
    );
    super::connect(url).await?.batch_execute(&script).await.doing(super::WHAT)
}

/// Removes a slot.
pub async fn slot_drop(url: &str, slot: &str) -> Result<()> {
    let client = super::connect(url).await?;
    client.query(&*super::text(sql!("wal/slot_drop")), &[&slot]).await.map(drop).doing(super::WHAT)
}

/// Commits so many transactions, each with so many events, on the server.
pub async fn commit_each(url: &str, schema: &str, transactions: u64, events: u64) -> Result<()> {
    let script = format!(
        "set synchronous_commit = off;
         do $$ begin
             for n in 1..{transactions} loop
                 insert into {schema}.event (topic, type, key, payload)
                 select 'order', 'order.created', (n % 1000)::text, to_json(repeat('x', 98))
                 from generate_series(1, {events});
                 commit;
             end loop;
         end $$"
    );
    let client = super::connect(url).await?;
    // Two statements in one message would be one transaction.
    for statement in script.splitn(2, ';') {
        client.batch_execute(statement).await.doing(super::WHAT)?;
    }
    Ok(())
}
