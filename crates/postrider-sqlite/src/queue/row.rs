//! Queued rows: they represent events that were fed and are not done. See [`postrider_core::queue`].
//!
//! ```text
//!   waiting ──► ready ──► leased ──► (gone)
//!     ▲           ▲  ◄─ reap ─┤
//!     └─── due ───┘  ◄────────┘ again
//! ```

use bytes::Bytes;
use postrider_core::queue::{Again, Count, NewRow, Priority, Spans, Token};
use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Key, Result, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::error::Doing;
use crate::settle::due::edited;

/// A row of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Queued {
    /// Its name: the first of the events that it had when it was fed. One that has left since is no part of
    /// it any more.
    pub(crate) id: EventId,
    pub(crate) events: Spans,
    pub(crate) bytes: u32,
    pub(crate) priority: Priority,
    pub(crate) virtual_time: i64,
    pub(crate) tenant: Option<i64>,
    pub(crate) lane: Option<Lane>,
    pub(crate) turn: i64,
    /// Whether it stands in its lane. A delayed event enters its lane when its time has come.
    pub(crate) parks: bool,
    pub(crate) state: QueuedState,
    /// Of the last claim that it had.
    pub(crate) token: Token,
    pub(crate) started: u32,
    pub(crate) finished: u32,
    pub(crate) edited_payload: Option<Bytes>,
}

/// What a queued row waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuedState {
    /// A claim.
    Ready,
    /// A time.
    Due(Timestamp),
    /// The head of its lane.
    Waiting,
    /// The worker that has it.
    Leased,
}

impl Queued {
    /// As it is fed.
    pub(crate) fn new(row: &NewRow) -> Self {
        Self {
            id: row.events.first(),
            events: row.events.clone(),
            bytes: row.bytes,
            priority: row.priority,
            virtual_time: row.virtual_time,
            tenant: row.tenant,
            lane: row.lane.clone(),
            turn: row.turn,
            parks: false,
            state: row.due_at.map_or(QueuedState::Ready, QueuedState::Due),
            token: Token(0),
            started: 0,
            finished: 0,
            edited_payload: None,
        }
    }

    pub(crate) fn is_block(&self) -> bool {
        self.events.count() > 1
    }

    /// One of its events, as a row of its own.
    pub(crate) fn part(&self, event: EventId) -> Self {
        let turn = if self.is_block() { event.0 } else { self.turn };
        Self { id: event, events: Spans::one(event), bytes: self.bytes_of(1), turn, ..self.clone() }
    }

    /// A row for some of its events, with a name of its own; none if none is left.
    pub(crate) fn only(&self, is_left: impl Fn(&EventId) -> bool) -> Option<Self> {
        self.shrunk(is_left).map(|row| Self { id: row.events.first(), ..row })
    }

    /// The same row for fewer events, under the name by which its worker knows it; none if none is left.
    pub(crate) fn shrunk(&self, is_left: impl Fn(&EventId) -> bool) -> Option<Self> {
        let mut left = self.events.iter().filter(is_left);
        let mut events = Spans::one(left.next()?);
        for event in left {
            let behind = events.push(event);
            debug_assert!(behind, "the events of a row are in order");
        }
        let bytes = self.bytes_of(events.count());
        Some(Self { events, bytes, ..self.clone() })
    }

    /// What so many of its events have, as far as is known: their sum is stored.
    fn bytes_of(&self, count: usize) -> u32 {
        let share = u64::from(self.bytes) * count as u64 / self.events.count() as u64;
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    /// What becomes of it when it is attempted again.
    #[must_use]
    pub(crate) fn again(mut self, again: Again, now: Timestamp) -> Self {
        match again.count {
            Count::Failed => self.finished = self.finished.saturating_add(1),
            Count::Nothing => self.started = self.started.saturating_sub(1),
        }
        self.state =
            if again.after.is_zero() { QueuedState::Ready } else { QueuedState::Due(now.after(again.after)) };
        self
    }

    /// Writes it as it is. The caller makes sure that its lane has one head.
    pub(crate) fn put(&self, conn: &Connection, subscription: SubscriptionId) -> Result<()> {
        let due_at = match self.state {
            QueuedState::Due(at) => Some(at.as_micros()),
            _ => None,
        };
        let put = || {
            conn.prepare_cached(sql!("queue/row/queued_put"))?.execute(rusqlite::params![
                subscription.0,
                self.id.0,
                self.events.last().0,
                (self.events != Spans::one(self.id)).then(|| spans_text(&self.events)),
                self.events.count() as i64,
                self.bytes,
                rank(self.priority),
                self.virtual_time,
                self.tenant,
                self.lane.as_ref().map(|lane| lane.key.as_str()),
                self.lane.as_ref().is_some_and(|lane| lane.late),
                self.turn,
                self.parks,
                self.state.as_str(),
                due_at,
                self.token.0,
                self.started,
                self.finished,
                self.edited_payload.as_deref(),
            ])
        };
        put().map(drop).doing("queue an event")
    }

    /// Reads the columns event_id, spans, bytes, rank, virtual_time, tenant, key, late, turn, parks, state,
    /// due_at, token, started, finished and edited_payload.
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let late = row.get(7)?;
        let key: Option<String> = row.get(6)?;
        Ok(Self {
            id: EventId(row.get(0)?),
            events: spans_read(row)?,
            bytes: row.get(2)?,
            priority: Priority::new(row.get::<_, i8>(3)?.saturating_neg()),
            virtual_time: row.get(4)?,
            tenant: row.get(5)?,
            lane: key.map(|key| Lane { key: Key::new(key), late }),
            turn: row.get(8)?,
            parks: row.get(9)?,
            state: state_read(row)?,
            token: Token(row.get(12)?),
            started: row.get(13)?,
            finished: row.get(14)?,
            edited_payload: edited(row, 15)?,
        })
    }
}

impl QueuedState {
    /// The stored word.
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Due(_) => "due",
            Self::Waiting => "waiting",
            Self::Leased => "leased",
        }
    }
}

/// The place of a priority among ranks, which ascend in the order of claims.
pub(crate) fn rank(priority: Priority) -> i64 {
    -i64::from(priority.level())
}

/// Takes a row out, whatever its state.
pub(crate) fn queued_take(
    tx: &Transaction<'_>,
    subscription: SubscriptionId,
    id: EventId,
) -> Result<Option<Queued>> {
    tx.prepare_cached(sql!("queue/row/queued_take"))
        .and_then(|mut take| take.query_row((subscription.0, id.0), Queued::read).optional())
        .doing("take a queued event")
}

/// Takes a row out, if it is leased under this token.
pub(crate) fn queued_take_leased(
    conn: &Connection,
    subscription: SubscriptionId,
    id: EventId,
    token: Token,
) -> Result<Option<Queued>> {
    conn.prepare_cached(sql!("queue/row/queued_take_leased"))
        .and_then(|mut take| take.query_row((subscription.0, id.0, token.0), Queued::read).optional())
        .doing("take a leased event")
}

/// The row that stands for an event.
pub(crate) fn queued_of(
    conn: &Connection,
    subscription: SubscriptionId,
    event: EventId,
) -> Result<Option<Queued>> {
    let find = || {
        let own = conn
            .prepare_cached(sql!("queue/row/queued_get"))?
            .query_row((subscription.0, event.0), Queued::read)
            .optional()?;
        if own.as_ref().is_some_and(|row| row.events.contains(event)) {
            return Ok(own);
        }
        // Blocks may interleave: of those that begin before it, one holds it.
        let mut blocks = conn.prepare_cached(sql!("queue/row/queued_blocks_at"))?;
        let mut rows = blocks.query((subscription.0, event.0))?;
        while let Some(row) = rows.next()? {
            let block = Queued::read(row)?;
            if block.events.contains(event) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    };
    find().doing("find a queued event")
}

fn spans_text(spans: &Spans) -> String {
    let pairs: Vec<String> = spans.to_pairs().iter().map(i64::to_string).collect();
    format!("[{}]", pairs.join(","))
}

fn spans_read(row: &Row<'_>) -> rusqlite::Result<Spans> {
    let first = EventId(row.get(0)?);
    let Some(text) = row.get_ref(1)?.as_str_or_null()? else { return Ok(Spans::one(first)) };
    let pairs: Option<Vec<i64>> = serde_json::from_str(text).ok();
    pairs
        .and_then(|pairs| Spans::from_pairs(&pairs))
        .filter(|spans| spans.first() >= first)
        .ok_or_else(|| rusqlite::Error::InvalidColumnType(1, "spans".to_owned(), Type::Text))
}

fn state_read(row: &Row<'_>) -> rusqlite::Result<QueuedState> {
    let due_at = row.get::<_, Option<i64>>(11)?.map(Timestamp::from_micros);
    match (row.get_ref(10)?.as_str()?, due_at) {
        ("ready", None) => Ok(QueuedState::Ready),
        ("due", Some(at)) => Ok(QueuedState::Due(at)),
        ("waiting", None) => Ok(QueuedState::Waiting),
        ("leased", None) => Ok(QueuedState::Leased),
        _ => Err(rusqlite::Error::InvalidColumnType(10, "state".to_owned(), Type::Text)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn block(ids: &[i64]) -> Queued {
        let mut events = Spans::one(EventId(ids[0]));
        ids[1..].iter().for_each(|id| assert!(events.push(EventId(*id))));
        let row = NewRow {
            events,
            bytes: 40,
            priority: Priority::new(3),
            virtual_time: 7,
            tenant: None,
            lane: None,
            turn: ids[0],
            due_at: None,
        };
        Queued::new(&row)
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&crate::schema_sql()).unwrap();
        let tx = conn.transaction().unwrap();
        let lane = Some(Lane { key: Key::new("a"), late: true });
        let again = Again { after: Duration::from_secs(1), count: Count::Failed };
        let rows = [
            block(&[1, 2, 9]),
            Queued { lane, parks: true, state: QueuedState::Waiting, turn: 99, ..block(&[3]) },
            Queued { edited_payload: Some(Bytes::from_static(b"x")), tenant: Some(-5), ..block(&[4]) }
                .again(again, Timestamp::from_micros(8)),
            Queued { state: QueuedState::Leased, token: Token(6), started: 2, ..block(&[5, 10]) },
            block(&[12, 13]).shrunk(|event| event.0 > 12).unwrap(),
        ];
        for row in &rows {
            row.put(&tx, SubscriptionId(1)).unwrap();
        }
        for row in &rows {
            for event in row.events.iter() {
                let found = queued_of(&tx, SubscriptionId(1), event).unwrap().unwrap();
                assert_eq!(format!("{found:?}"), format!("{row:?}"));
            }
        }
        for missing in [0, 6, 8, 11, 12] {
            assert!(queued_of(&tx, SubscriptionId(1), EventId(missing)).unwrap().is_none(), "{missing}");
        }
        assert!(queued_take_leased(&tx, SubscriptionId(1), EventId(5), Token(5)).unwrap().is_none());
        assert!(queued_take_leased(&tx, SubscriptionId(1), EventId(5), Token(6)).unwrap().is_some());
        assert!(queued_take(&tx, SubscriptionId(1), EventId(5)).unwrap().is_none());
    }

    #[test]
    fn a_block_shrinks_to_what_is_left_of_it() {
        let block = block(&[1, 2, 3, 7]);
        let left = block.only(|event| event.0 > 1).unwrap();
        assert_eq!((left.id, left.events.to_pairs(), left.bytes), (EventId(2), vec![2, 2, 7, 1], 30));
        assert!(block.only(|_| false).is_none());
        assert_eq!(block.shrunk(|event| event.0 > 3).unwrap().id, EventId(1), "a leased row keeps its name");
        let part = block.part(EventId(3));
        assert_eq!((part.turn, part.bytes, part.is_block()), (3, 10, false));
    }
}
