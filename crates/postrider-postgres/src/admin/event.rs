//! What people see of the log: single events and pages of them.

use std::collections::HashMap;

use postrider_core::event::Listed;
use postrider_core::log::{Snapshot, Xid};
use postrider_core::store::{EventQuery, Payloads};
use postrider_core::{Event, EventId, Pattern, Result, Timestamp, limits};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::log::turn::{Stretch, Turn, stretches};
use crate::server::event_row::{EVENT_COLUMNS, event_read, preview_read};
use crate::server::link::Link;
use crate::server::session::Tx;
use crate::server::statement::Sql;
use crate::server::values::{At, SnapshotValue, XidValue};

/// Rows that one step of a listing looks at. A rare topic in a long log takes many steps, each with the time of a
/// whole call.
const LIST_SCAN_MAX: i64 = 50_000;

/// An event, and the transaction that emitted it. One that was kept after its leaf was emptied has none any more:
/// its leaf could go only because every position covered it.
pub(crate) struct Found {
    pub(crate) event: Event,
    pub(crate) xid: Option<Xid>,
}

/// Those of some events that are there.
pub(crate) async fn event_get(
    tx: &Tx<'_>,
    ids: impl IntoIterator<Item = EventId>,
) -> Result<HashMap<EventId, Found>> {
    let what = "read events";
    let mut by_leaf: HashMap<u8, Vec<i64>> = HashMap::new();
    for id in ids {
        by_leaf.entry(Turn::of(id).leaf()).or_default().push(id.0);
    }
    let mut found = HashMap::new();
    for (leaf, ids) in by_leaf {
        let sql =
            by_right(tx.payloads(), sql!("admin/event/event_get"), sql!("admin/event/event_get_withheld"));
        for row in tx.query(sql.on_leaf(leaf), &[&ids], what).await? {
            let event = event_read(&row, 0).doing(what)?;
            let xid = row.try_get::<_, Option<XidValue>>(EVENT_COLUMNS).doing(what)?.map(|xid| xid.0);
            found.insert(event.id, Found { event, xid });
        }
    }
    Ok(found)
}

/// What listings show of those of some events that are there.
pub(crate) async fn event_preview(
    tx: &Tx<'_>,
    ids: impl IntoIterator<Item = EventId>,
) -> Result<HashMap<EventId, Listed>> {
    let what = "read events";
    let mut by_leaf: HashMap<u8, Vec<i64>> = HashMap::new();
    for id in ids {
        by_leaf.entry(Turn::of(id).leaf()).or_default().push(id.0);
    }
    let mut found = HashMap::new();
    for (leaf, ids) in by_leaf {
        let sql = by_right(
            tx.payloads(),
            sql!("admin/event/event_preview"),
            sql!("admin/event/event_preview_withheld"),
        );
        for row in tx.query(sql.on_leaf(leaf), &[&ids], what).await? {
            let listed = preview_read(&row).doing(what)?;
            found.insert(listed.id, listed);
        }
    }
    Ok(found)
}

/// The statement for those who may read payloads, or the one for those who may not.
pub(crate) fn by_right(payloads: Payloads, shown: Sql, withheld: Sql) -> Sql {
    match payloads {
        Payloads::Shown => shown,
        Payloads::Withheld => withheld,
    }
}

/// Where the log ends at a moment.
pub(crate) struct LogEnd {
    /// The last id that was issued; 0 before the first.
    pub(crate) issued: EventId,
    pub(crate) snapshot: Snapshot,
    pub(crate) now: Timestamp,
}

/// Looks where the log ends.
pub(crate) async fn log_end(tx: &Tx<'_>) -> Result<LogEnd> {
    let what = "look at the end of the log";
    let row = tx.query_one(sql!("admin/event/log_end"), &[], what).await?;
    Ok(LogEnd {
        issued: EventId(row.try_get(0).doing(what)?),
        snapshot: row.try_get::<_, SnapshotValue>(1).doing(what)?.0,
        now: row.try_get::<_, At>(2).doing(what)?.0,
    })
}

/// The oldest event of a stretch, and when it was emitted.
pub(crate) async fn event_oldest(tx: &Tx<'_>, stretch: Stretch) -> Result<Option<(EventId, Timestamp)>> {
    event_at_end(tx, sql!("admin/event/event_oldest"), stretch).await
}

/// The newest event of a stretch, and when it was emitted.
pub(crate) async fn event_newest(tx: &Tx<'_>, stretch: Stretch) -> Result<Option<(EventId, Timestamp)>> {
    event_at_end(tx, sql!("log/event_newest"), stretch).await
}

async fn event_at_end(tx: &Tx<'_>, sql: Sql, stretch: Stretch) -> Result<Option<(EventId, Timestamp)>> {
    let what = "find an event";
    let sql = sql.on_leaf(stretch.turn.leaf());
    let Some(row) = tx.query_opt(sql, &[&stretch.above, &stretch.up_to], what).await? else {
        return Ok(None);
    };
    Ok(Some((EventId(row.try_get(0).doing(what)?), row.try_get::<_, At>(1).doing(what)?.0)))
}

/// A page of events, newest first: turn by turn, with what was kept of each, and at the end what was kept of turns
/// whose leaf serves another by now. Between the steps others may use the connection.
pub(crate) async fn event_list(link: &Link, query: &EventQuery) -> Result<Vec<Listed>> {
    let mut listing = Listing::new(query);
    let issued = {
        let mut session = link.session().await?;
        let tx = session.begin().await?;
        log_end(&tx).await?.issued
    };
    let before = query.before.map_or(i64::MAX, |id| id.0);
    let turns: Vec<Stretch> = stretches(-1, before.saturating_sub(1), issued).collect();
    let oldest = turns.first().map_or(0, |stretch| *stretch.turn.ids().start());
    for stretch in turns.into_iter().rev() {
        let range = Range { leaf: stretch.turn.leaf(), from: stretch.above + 1, before: stretch.up_to + 1 };
        listing.walk(link, range).await?;
    }
    listing.walk(link, Range { leaf: 0, from: 0, before: oldest.min(before) }).await?;
    Ok(listing.found)
}

/// Ids of one leaf, or of none that is in use.
struct Range {
    leaf: u8,
    from: i64,
    before: i64,
}

/// A listing under way.
struct Listing {
    topics: Option<Vec<String>>,
    types: Option<Vec<String>>,
    key: Option<String>,
    limit: usize,
    found: Vec<Listed>,
}

impl Listing {
    fn new(query: &EventQuery) -> Self {
        Self {
            topics: like(&query.filter.topics),
            types: like(&query.filter.types),
            key: query.key.as_ref().map(|key| key.as_str().to_owned()),
            limit: query.limit.min(limits::PAGE_ROWS_MAX),
            found: Vec::new(),
        }
    }

    /// Looks at a range step by step, until there is enough or it ends.
    async fn walk(&mut self, link: &Link, mut range: Range) -> Result<()> {
        let what = "list events";
        while self.found.len() < self.limit && range.from < range.before {
            let missing = (self.limit - self.found.len()) as i64;
            let wants_all = self.topics.is_none() && self.types.is_none() && self.key.is_none();
            let scan = if wants_all { missing } else { LIST_SCAN_MAX };
            let session = link.session().await?;
            let sql = by_right(
                session.payloads(),
                sql!("admin/event/event_list"),
                sql!("admin/event/event_list_withheld"),
            );
            let rows = session
                .query(
                    sql.on_leaf(range.leaf),
                    &[&range.from, &range.before, &scan, &self.topics, &self.types, &self.key, &missing],
                    what,
                )
                .await?;
            let (looked, lowest) = self.take(&rows).doing(what)?;
            match lowest {
                Some(lowest) if looked >= scan => range.before = lowest,
                _ => break,
            }
        }
        Ok(())
    }

    /// Takes in what one step found. How many rows it looked at, and down to which id.
    fn take(&mut self, rows: &[Row]) -> Result<(i64, Option<i64>), tokio_postgres::Error> {
        for row in rows {
            if row.try_get::<_, Option<i64>>(0)?.is_some() {
                self.found.push(preview_read(row)?);
            }
        }
        match rows.first() {
            Some(row) => Ok((row.try_get(EVENT_COLUMNS + 2)?, row.try_get(EVENT_COLUMNS + 3)?)),
            None => Ok((0, None)),
        }
    }
}

/// Patterns for `like`; none if everything is wanted. A pattern has no other special character than these.
fn like(patterns: &[Pattern]) -> Option<Vec<String>> {
    let like = |pattern: &Pattern| pattern.as_str().replace('_', "\\_").replace('*', "%");
    (!patterns.is_empty()).then(|| patterns.iter().map(like).collect())
}
