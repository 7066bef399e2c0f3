//! Queued rows, as they are stored.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::queue::Spans;
use postrider_core::{Error, ErrorKind, Event, EventId, Result};
use tokio_postgres::Row;

use crate::error::Doing;
use crate::log::turn::Turn;
use crate::server::event_row::event_read;
use crate::server::session::Session;

const WHAT: &str = "read events of a queue";

/// The events that a row stands for.
pub(super) fn spans_of(id: EventId, pairs: Option<Vec<i64>>) -> Result<Spans> {
    match pairs {
        None => Ok(Spans::one(id)),
        Some(pairs) => Spans::from_pairs(&pairs).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("queued row {id} does not say which events it stands for"))
        }),
    }
}

/// As it is stored; nothing for a single event.
pub(super) fn spans_text(spans: &Spans) -> Option<String> {
    (spans.count() > 1).then(|| {
        let pairs: Vec<String> = spans.to_pairs().iter().map(i64::to_string).collect();
        format!("{{{}}}", pairs.join(","))
    })
}

/// The events of some rows, from their leaves or from what was kept of a leaf that was emptied.
pub(super) async fn events_of(
    session: &Session,
    rows: impl Iterator<Item = &Spans> + Clone,
) -> Result<HashMap<EventId, Arc<Event>>> {
    let mut by_leaf: HashMap<u8, (Vec<i64>, Vec<i64>)> = HashMap::new();
    for pair in rows.clone().flat_map(|spans| spans.to_pairs().as_chunks::<2>().0.to_vec()) {
        let [first, length] = pair;
        let (firsts, lasts) = by_leaf.entry(Turn::of(EventId(first)).leaf()).or_default();
        firsts.push(first);
        lasts.push(first + length - 1);
    }
    let mut events = HashMap::new();
    for (leaf, (firsts, lasts)) in &by_leaf {
        let found =
            session.query(sql!("queue/rows/event_of_spans").on_leaf(*leaf), &[firsts, lasts], WHAT).await?;
        take(&found, &mut events).doing(WHAT)?;
    }
    let missing: Vec<i64> =
        rows.flat_map(Spans::iter).filter(|id| !events.contains_key(id)).map(|id| id.0).collect();
    if !missing.is_empty() {
        let found = session.query(sql!("settle/due/event_kept"), &[&missing], WHAT).await?;
        take(&found, &mut events).doing(WHAT)?;
    }
    Ok(events)
}

fn take(rows: &[Row], events: &mut HashMap<EventId, Arc<Event>>) -> Result<(), tokio_postgres::Error> {
    events.reserve(rows.len());
    for row in rows {
        let event = event_read(row, 0)?;
        events.insert(event.id, Arc::new(event));
    }
    Ok(())
}
