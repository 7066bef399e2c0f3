//! What people see of the log: single events and pages of them.

use postrider_core::event::{Listed, beginning};
use postrider_core::store::EventQuery;
use postrider_core::{Event, EventId, Filter, NewEvent, Result, Timestamp, limits};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::emit::event_insert;
use crate::error::Doing;
use crate::file::event_row;
use crate::log::event::{event_newest, event_oldest};

/// Rows that one step of a listing looks at. A rare topic in a long log takes many steps; between them the
/// reading thread serves others.
const LIST_SCAN_MAX: usize = 20_000;

/// How far the events behind an id are counted one by one; above that the ids are subtracted.
const COUNT_MAX: u64 = 10_000;

/// Emits all of `events` or none.
pub(crate) fn event_emit(tx: &Transaction<'_>, events: &[NewEvent], now: Timestamp) -> Result<Vec<EventId>> {
    events.iter().map(|event| event_insert(tx, event, now)).collect()
}

/// What a listing shows of one event.
pub(crate) fn event_preview(conn: &Connection, id: EventId) -> Result<Option<Listed>> {
    conn.prepare_cached(sql!("admin/event/event_preview"))
        .and_then(|mut get| get.query_row([id.0], event_row::event_preview).optional())
        .doing("read an event")
}

/// All events that a connection sees, oldest first, those of its own transaction included that is not
/// committed yet. It reads every one of them: for tests.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use postrider_core::{Event, emit};
/// use postrider_sqlite::{SqliteOptions, SqliteStore, events_seen_by, rusqlite};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("app.db");
/// SqliteStore::open(SqliteOptions::new(&path)).await?;
/// let mut app = rusqlite::Connection::open(&path)?;
/// let tx = app.transaction()?;
/// emit(&tx, Event::new("order"))?;
/// assert_eq!(events_seen_by(&tx)?.len(), 1);
/// tx.rollback()?;
/// assert_eq!(events_seen_by(&app)?.len(), 0);
/// # Ok(()) }
/// ```
pub fn events_seen_by(conn: &Connection) -> Result<Vec<Event>> {
    let read = || {
        let mut list = conn.prepare_cached(sql!("log/event_fetch_cut"))?;
        let rows = list.query_map([i64::MIN], event_row::event_read)?;
        rows.collect::<rusqlite::Result<Vec<Event>>>()
    };
    let mut events = read().doing("list events")?;
    events.reverse();
    Ok(events)
}

/// A listing under way.
pub(crate) struct Listing {
    pub(crate) query: EventQuery,
    pub(crate) found: Vec<Listed>,
    pub(crate) done: bool,
}

impl Listing {
    pub(crate) fn new(query: EventQuery) -> Self {
        let done = query.limit == 0;
        Self { query, found: Vec::new(), done }
    }

    /// Looks at some more of the log, newest first.
    pub(crate) fn step(&mut self, conn: &Connection) -> Result<()> {
        self.scan(conn).doing("list events")
    }

    fn scan(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let limit = self.query.limit.min(limits::PAGE_ROWS_MAX);
        let before = self.query.before.map_or(i64::MAX, |id| id.0);
        let mut list = conn.prepare_cached(sql!("admin/event/event_list"))?;
        let mut preview = conn.prepare_cached(sql!("admin/event/event_preview"))?;
        let mut rows = list.query([before])?;
        for _ in 0..LIST_SCAN_MAX {
            let Some(row) = rows.next()? else {
                self.done = true;
                return Ok(());
            };
            self.query.before = Some(event_row::event_id(row)?);
            let topic = event_row::text(row.get_ref(1)?);
            let kind = event_row::kind(row, &topic)?;
            let wanted = self.query.filter.matches(beginning(&topic), beginning(&kind))
                && (self.query.key.is_none() || self.query.key == event_row::key(row)?);
            if wanted {
                self.found
                    .extend(preview.query_row([row.get::<_, i64>(0)?], event_row::event_preview).optional()?);
            }
            if self.found.len() >= limit {
                self.done = true;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// How many events lie between two ids, both excluded: exact up to ten thousand, else by their ids, since
/// counting walks the table.
pub(crate) fn event_count(conn: &Connection, after: EventId, before: EventId) -> Result<u64> {
    let counted: i64 = conn
        .prepare_cached(sql!("admin/event/event_count"))
        .and_then(|mut count| count.query_row((after.0, before.0, COUNT_MAX as i64 + 1), |row| row.get(0)))
        .doing("count events")?;
    let counted = counted.max(0) as u64;
    if counted <= COUNT_MAX {
        return Ok(counted);
    }
    let oldest = event_oldest(conn, after)?.map_or(before.0, |(id, _)| id.0);
    let newest = event_newest(conn)?.map_or(0, |id| id.0).min(before.0.saturating_sub(1));
    Ok(newest.saturating_sub(oldest).saturating_add(1).max(0) as u64)
}

/// How many events behind an id a filter wants, and when the first of them was emitted. Beyond a limit it is
/// an estimate, by the share of those that were looked at; never zero where no row was looked at.
pub(crate) fn event_wanted(
    conn: &Connection,
    after: EventId,
    filter: &Filter,
) -> Result<(u64, Option<Timestamp>)> {
    let oldest_of_all = |after| Ok(event_oldest(conn, after)?.map(|(_, created_at)| created_at));
    if *filter == Filter::default() {
        return Ok((event_count(conn, after, EventId(i64::MAX))?, oldest_of_all(after)?));
    }
    let (mut looked_at, mut wanted, mut oldest, mut last) = (0, 0, None, after);
    let mut look = || {
        let mut names = conn.prepare_cached(sql!("admin/event/event_names"))?;
        let mut rows = names.query((after.0, COUNT_MAX as i64))?;
        while let Some(row) = rows.next()? {
            (looked_at, last) = (looked_at + 1, EventId(row.get(0)?));
            if filter.matches(&event_row::text(row.get_ref(1)?), &event_row::text(row.get_ref(2)?)) {
                wanted += 1;
                oldest.get_or_insert(Timestamp::from_micros(row.get(3)?));
            }
        }
        Ok(())
    };
    look().doing("count events")?;
    if looked_at < COUNT_MAX {
        return Ok((wanted, oldest));
    }
    let rest = event_count(conn, last, EventId(i64::MAX))?;
    let of_rest = u128::from(rest) * u128::from(wanted.max(1)) / u128::from(looked_at);
    let of_rest = u64::try_from(of_rest).unwrap_or(u64::MAX).max(u64::from(rest > 0));
    Ok((wanted.saturating_add(of_rest), oldest.or(oldest_of_all(last)?)))
}
