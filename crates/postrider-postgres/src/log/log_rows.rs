//! Rows of the log, as many as fit.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::TryStreamExt;
use postrider_core::log::{LogRow, Probe, Snapshot};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, Event, EventId, Result, limits};
use tokio_postgres::{Row, RowStream};

use crate::error::Doing;
use crate::log::probe::{PROBE_COLUMNS, probe_read};
use crate::log::turn::Stretch;
use crate::ownership::fence::Standing;
use crate::server::event_row::{EVENT_COLUMNS, event_read, payload_read};
use crate::server::session::Session;
use crate::server::values::{SnapshotValue, XidValue};

const WHAT: &str = "read the log";

/// Payloads larger than this do not come with their rows, as `event_fetch.sql` says.
const LARGE_BYTES: usize = 32 * 1024;
/// Fewest rows that one read asks for.
const ROWS_MIN: usize = 64;

/// How large events were of late, so that a read asks for about as many as fit.
pub(crate) struct Appetite {
    bytes: AtomicUsize,
}

impl Default for Appetite {
    fn default() -> Self {
        Self { bytes: AtomicUsize::new(1024) }
    }
}

impl Appetite {
    /// How many rows to ask for.
    pub(crate) fn rows(&self) -> usize {
        let each = self.bytes.load(Ordering::Relaxed).max(1);
        (limits::CHUNK_BYTES_MAX / each).clamp(ROWS_MIN, limits::CHUNK_EVENTS_MAX)
    }

    fn learn(&self, rows: usize, bytes: usize) {
        if let Some(each) = bytes.checked_div(rows) {
            self.bytes.store(each, Ordering::Relaxed);
        }
    }
}

/// What was read.
pub(crate) struct RowsRead {
    pub(crate) rows: Vec<LogRow>,
    /// Up to which id everything was read; none if it was the whole stretch.
    pub(crate) cut_at: Option<EventId>,
}

/// Reads what lies in the stretch and `from` did not see, in the order of ids, until the rows or their bytes are
/// enough for one chunk.
///
/// A stretch that turns out large is given up in the middle: rows that are under way are thrown away by the
/// connection, so that memory is bounded by the chunk whatever lies in the log.
pub(crate) async fn rows_read(
    session: &Session,
    stretch: Stretch,
    from: &Snapshot,
    appetite: &Appetite,
) -> Result<RowsRead> {
    let leaf = stretch.turn.leaf();
    let asked = appetite.rows();
    let from = SnapshotValue(from.clone());
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&stretch.above, &stretch.up_to, &from, &(asked as i64)];
    let stream = session.stream(sql!("log/event_fetch").on_leaf(leaf), &parameters, WHAT).await?;
    rows_take(session, leaf, stream, asked, appetite).await
}

/// Takes in what a statement sends that was `asked` for so many rows of a leaf.
pub(crate) async fn rows_take(
    session: &Session,
    leaf: u8,
    stream: RowStream,
    asked: usize,
    appetite: &Appetite,
) -> Result<RowsRead> {
    let mut read = Reading::new(asked);
    let collect = async {
        let mut stream = pin!(stream);
        while let Some(row) = stream.try_next().await? {
            if !read.take(&row, 0)? {
                break;
            }
        }
        Ok(())
    };
    session.bounded(WHAT, collect).await?;
    read.finish(session, leaf, appetite).await
}

/// Looks at the log's end and reads what lies in the stretch and `from` did not see, in one statement: the rows are
/// visible at the moment that the probe names.
pub(crate) async fn log_look(
    session: &Session,
    id: SubscriptionId,
    stretch: Stretch,
    from: &Snapshot,
    appetite: &Appetite,
) -> Result<(Probe, Option<Standing>, RowsRead)> {
    let leaf = stretch.turn.leaf();
    let asked = appetite.rows();
    let from = SnapshotValue(from.clone());
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&stretch.above, &stretch.up_to, &from, &(asked as i64), &id.0];
    let look = sql!("log/event_look").on_leaf(leaf).where_wal_is(session.wal_place());
    let stream = session.stream(look, &parameters, WHAT).await?;
    let mut read = Reading::new(asked);
    let mut probed = None;
    let collect = async {
        let mut stream = pin!(stream);
        while let Some(row) = stream.try_next().await? {
            if probed.is_none() {
                probed = Some(probe_read(&row)?);
            }
            let nothing = row.try_get::<_, Option<i64>>(PROBE_COLUMNS + 1)?.is_none();
            if nothing || !read.take(&row, PROBE_COLUMNS)? {
                break;
            }
        }
        Ok(())
    };
    session.bounded(WHAT, collect).await?;
    let (probe, standing) = probed
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("cannot {WHAT}: the sequence has no row")))?;
    Ok((probe, standing, read.finish(session, leaf, appetite).await?))
}

/// A read under way.
struct Reading {
    asked: usize,
    rows: Vec<LogRow>,
    /// The rows whose payload did not come with them.
    large: Vec<usize>,
    bytes: usize,
}

impl Reading {
    fn new(asked: usize) -> Self {
        Self { asked, rows: Vec::new(), large: Vec::new(), bytes: 0 }
    }

    /// Takes in what a row holds from column `first` on; whether there is room for another.
    fn take(&mut self, row: &Row, first: usize) -> Result<bool, tokio_postgres::Error> {
        let xid = row.try_get::<_, XidValue>(first)?.0;
        let event = event_read(row, first + 1)?;
        let size = row.try_get::<_, Option<i32>>(first + EVENT_COLUMNS)?.unwrap_or_default() as usize;
        self.bytes += event.bytes();
        // One that is larger than it may be is not fetched.
        if size > LARGE_BYTES && event.flaw.is_none() {
            self.large.push(self.rows.len());
            self.bytes += size;
        }
        self.rows.push(LogRow { xid, event: Arc::new(event) });
        Ok(self.bytes < limits::CHUNK_BYTES_MAX)
    }

    /// Fetches what is missing.
    async fn finish(self, session: &Session, leaf: u8, appetite: &Appetite) -> Result<RowsRead> {
        let Self { asked, mut rows, large, bytes } = self;
        appetite.learn(rows.len(), bytes);
        let full = rows.len() == asked || bytes >= limits::CHUNK_BYTES_MAX;
        if !large.is_empty() {
            payloads_add(session, leaf, &mut rows, &large).await?;
        }
        let cut_at = rows.last().filter(|_| full).map(|row| row.event.id);
        Ok(RowsRead { rows, cut_at })
    }
}

/// Fetches the payloads that did not come with their rows. Their sizes are counted already.
async fn payloads_add(session: &Session, leaf: u8, rows: &mut [LogRow], large: &[usize]) -> Result<()> {
    let ids: Vec<i64> = large.iter().map(|index| rows[*index].event.id.0).collect();
    let found = session.query(sql!("log/event_payloads").on_leaf(leaf), &[&ids], WHAT).await?;
    let mut payloads: HashMap<i64, Bytes> = HashMap::with_capacity(found.len());
    for row in &found {
        let payload = payload_read(row, 1).doing(WHAT)?.unwrap_or_default();
        payloads.insert(row.try_get(0).doing(WHAT)?, payload);
    }
    for index in large {
        let event = &mut rows[*index].event;
        let payload = payloads.remove(&event.id.0).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("cannot {WHAT}: event {} has just gone", event.id))
        })?;
        *event = Arc::new(Event::clone(event).with_payload(payload));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appetite_follows_the_size_of_events() {
        let appetite = Appetite::default();
        appetite.learn(10, 1_000);
        assert_eq!(appetite.rows(), limits::CHUNK_EVENTS_MAX);
        appetite.learn(10, 10 << 20);
        assert_eq!(appetite.rows(), ROWS_MIN);
        appetite.learn(0, 0);
        assert_eq!(appetite.rows(), ROWS_MIN, "a read without rows teaches nothing");
    }
}
