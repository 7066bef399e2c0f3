//! What people see of queues.

use std::collections::HashMap;

use postrider_core::queue::Spans;
use postrider_core::settle::Lane;
use postrider_core::store::ProgressReport;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Timestamp};
use tokio_postgres::Row;

use super::rows::spans_of;
use crate::error::Doing;
use crate::server::session::Tx;
use crate::server::values::At;

const WHAT: &str = "look at a queue";

/// An event in a queue.
pub(crate) struct InQueue {
    /// The row that stands for it.
    pub(crate) id: EventId,
    pub(crate) waits: bool,
    pub(crate) leased: bool,
    pub(crate) started: u32,
    pub(crate) finished: u32,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) lane: Option<Lane>,
    pub(crate) spans: Spans,
    pub(crate) token: i64,
}

impl InQueue {
    fn read(row: &Row) -> Result<(SubscriptionId, Self)> {
        let id = EventId(row.try_get(1).doing(WHAT)?);
        let state: &str = row.try_get(2).doing(WHAT)?;
        let late = row.try_get(7).doing(WHAT)?;
        let key = row.try_get::<_, Option<&str>>(6).doing(WHAT)?.map(Key::new);
        let found = Self {
            id,
            waits: state == "w",
            leased: row.try_get(3).doing(WHAT)?,
            started: row.try_get::<_, i32>(4).doing(WHAT)? as u32,
            due_at: row.try_get::<_, Option<At>>(5).doing(WHAT)?.map(|at| at.0).filter(|_| state == "d"),
            lane: key.map(|key| Lane { key, late }),
            spans: spans_of(id, row.try_get(8).doing(WHAT)?)?,
            token: row.try_get(9).doing(WHAT)?,
            finished: row.try_get::<_, i32>(10).doing(WHAT)? as u32,
        };
        Ok((SubscriptionId(row.try_get(0).doing(WHAT)?), found))
    }

    /// Attempts that were lost with their worker.
    pub(crate) fn lost(&self) -> u32 {
        self.started.saturating_sub(self.finished).saturating_sub(self.leased.into())
    }
}

/// Where an event stands in the queues of all subscriptions, or of one.
pub(crate) async fn queued_of_event(
    tx: &Tx<'_>,
    event: EventId,
    of: Option<SubscriptionId>,
) -> Result<HashMap<SubscriptionId, InQueue>> {
    let rows = tx.query(sql!("queue/look/queued_of_event"), &[&event.0, &of.map(|id| id.0)], WHAT).await?;
    let mut found = HashMap::new();
    for row in &rows {
        let (id, row) = InQueue::read(row)?;
        if row.spans.contains(event) {
            found.insert(id, row);
        }
    }
    Ok(found)
}

/// Who is first in the lane in which a row waits.
pub(crate) async fn queue_head(tx: &Tx<'_>, id: SubscriptionId, lane: &Lane) -> Result<Option<EventId>> {
    let row = tx
        .query_opt(sql!("queue/look/queue_lane_head"), &[&id.0, &lane.key.as_str(), &lane.late], WHAT)
        .await?;
    row.map(|row| row.try_get(0).map(EventId).doing(WHAT)).transpose()
}

/// What a handler has kept of an event.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) result: Option<String>,
    pub(crate) progress: Option<ProgressReport>,
}

impl Kept {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let (note, percent): (Option<String>, Option<i16>) = (row.try_get(2)?, row.try_get(3)?);
        let at: Option<At> = row.try_get(4)?;
        let percent = percent.and_then(|percent| u8::try_from(percent).ok());
        let progress = note.zip(at).map(|(note, At(at))| ProgressReport { percent, note, at });
        Ok(Self { result: row.try_get(1)?, progress })
    }
}

/// What handlers have kept of an event, by subscription.
pub(crate) async fn results_of(tx: &Tx<'_>, event: EventId) -> Result<HashMap<SubscriptionId, Kept>> {
    let rows = tx.query(sql!("queue/look/result_get"), &[&event.0], WHAT).await?;
    let read = |row: &Row| Ok((SubscriptionId(row.try_get(0)?), Kept::read(row)?));
    rows.iter().map(read).collect::<Result<_, _>>().doing(WHAT)
}

/// How many events wait in the queues of some subscriptions, and how many workers have in hand.
pub(crate) async fn queued_counts(tx: &Tx<'_>, ids: &[i64]) -> Result<HashMap<SubscriptionId, (u64, u64)>> {
    let rows = tx.query(sql!("queue/look/queued_counts"), &[&ids], WHAT).await?;
    let count = |row: &Row, column| row.try_get::<_, i64>(column).map(|count| count.max(0) as u64);
    let read = |row: &Row| Ok((SubscriptionId(row.try_get(0)?), (count(row, 1)?, count(row, 2)?)));
    rows.iter().map(read).collect::<Result<_, _>>().doing(WHAT)
}
