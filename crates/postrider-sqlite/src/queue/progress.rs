//! How far handlers have come, kept beside their results.

use postrider_core::queue::{EventProgress, Extended};
use postrider_core::{Result, Timestamp};
use rusqlite::Connection;

use crate::error::Doing;

/// Writes down how far handlers have come with events of claims that last.
pub(crate) fn progress_put_extended(
    conn: &Connection,
    progress: &[EventProgress],
    extended: &[Extended],
    now: Timestamp,
) -> Result<()> {
    let lasts = |noted: &&EventProgress| extended.iter().any(|claim| claim.token == noted.token);
    progress.iter().filter(lasts).try_for_each(|noted| progress_put(conn, noted, now))
}

/// Writes down how far a handler has come.
pub(crate) fn progress_put(conn: &Connection, noted: &EventProgress, now: Timestamp) -> Result<()> {
    let EventProgress { subscription, event_id, progress, .. } = noted;
    conn.prepare_cached(sql!("queue/progress/progress_put"))
        .and_then(|mut put| {
            put.execute((subscription.0, event_id.0, &progress.note, progress.percent, now.as_micros()))
        })
        .map(drop)
        .doing("keep how far a handler has come")
}
