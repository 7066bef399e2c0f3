//! Places in the log, and moving a subscription to one.

use postrider_core::settle::Lane;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, EventId, Mode, Position, Result, Start, Timestamp};
use rusqlite::{Connection, Transaction};

use crate::audit::{Auditor, Entry};
use crate::error::Doing;
use crate::log::event::{event_issued, event_newest, event_oldest};
use crate::queue::claim::{Claims, forget};
use crate::queue::lane::queue_mend;
use crate::queue::row::{Queued, queued_take};
use crate::settle::lane::{lane_advance, lane_read};
use crate::subscription::subscription_get;

/// The position from which `start` comes next.
pub(crate) fn position_of(conn: &Connection, start: Start) -> Result<Position> {
    let issued = event_issued(conn)?;
    let first = match start {
        Start::Oldest => event_oldest(conn, EventId(0))?.map(|(id, _)| id),
        Start::Now => None,
        Start::Time(at) => first_since(conn, at)?,
        Start::Id(id) if id.0 > issued.0.saturating_add(1) => {
            return Err(Error::invalid(format!(
                "event {id} does not exist yet, the newest is {issued}: use `now` to begin with the next one"
            )));
        }
        Start::Id(id) => Some(id),
    };
    let last = first.map_or(issued.0, |first| first.0.saturating_sub(1)).max(0);
    Ok(Position::START.at(EventId(last)))
}

/// The first event emitted at or after `at`. There is no index on time, since producers would pay for it;
/// but ids grow with time, as far as the clock goes forward, so a binary search finds the place.
fn first_since(conn: &Connection, at: Timestamp) -> Result<Option<EventId>> {
    let (Some((oldest, _)), Some(newest)) = (event_oldest(conn, EventId(0))?, event_newest(conn)?) else {
        return Ok(None);
    };
    // The answer lies in low..=high, where high stands for "none".
    let (mut low, mut high) = (oldest.0, newest.0 + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match event_oldest(conn, EventId(middle - 1))? {
            Some((id, created_at)) if created_at < at => low = id.0 + 1,
            _ => high = middle,
        }
    }
    Ok((low <= newest.0).then_some(EventId(low)))
}

/// Moves all shards of a subscription and fences its owner.
pub(crate) fn subscription_seek(
    tx: &Transaction<'_>,
    name: &str,
    to: Start,
    auditor: &Auditor,
) -> Result<Position> {
    let subscription = subscription_get(tx, name)?;
    let id = subscription.id;
    let position = position_of(tx, to)?;
    let last = position.last_id.0;
    let what = "move a subscription";
    // A row above the new position may be the head of rows below it: delayed events wait in the order of
    // their due times.
    let beheaded: Vec<Lane> = tx
        .prepare_cached(sql!("admin/seek/lane_heads_above"))
        .and_then(|mut heads| heads.query_map((id.0, last), lane_read)?.collect())
        .doing(what)?;
    tx.execute(sql!("admin/seek/delivery_delete_above"), (id.0, last)).doing(what)?;
    for lane in &beheaded {
        lane_advance(tx, id, lane, auditor.now)?;
    }
    if subscription.mode == Mode::Queue {
        queue_cut(tx, id, position)?;
    }
    let from: i64 = tx.query_row(sql!("queue/check/shard_position"), [id.0], |row| row.get(0)).doing(what)?;
    tx.execute(sql!("admin/seek/shard_seek"), (id.0, last)).doing(what)?;
    let detail = format!("from {from} to {position}");
    let entry = Entry {
        action: "subscription_seek",
        subscription: Some(name),
        event_id: None,
        detail: Some(&detail),
    };
    auditor.write(tx, &entry)?;
    Ok(position)
}

/// Takes out of the queue what lies above a position, since it will be fed again. Of a block that reaches
/// over the position the part below stays, as it is: leased, if it was. Its worker is fenced from what is
/// gone.
fn queue_cut(tx: &Transaction<'_>, subscription: SubscriptionId, position: Position) -> Result<()> {
    let what = "empty a queue above a position";
    let last = position.last_id;
    tx.execute(sql!("admin/seek/queued_delete_above"), (subscription.0, last.0)).doing(what)?;
    let across: Vec<Queued> = tx
        .prepare_cached(sql!("queue/row/queued_blocks_at"))
        .and_then(|mut blocks| {
            blocks.query_map((subscription.0, last.0.saturating_add(1)), Queued::read)?.collect()
        })
        .doing(what)?;
    for block in across {
        queued_take(tx, subscription, block.id)?;
        if let Some(left) = block.shrunk(|event| position.covers(*event)) {
            left.put(tx, subscription)?;
        }
    }
    forget(tx, subscription, Claims::All)?;
    queue_mend(tx, subscription)
}
