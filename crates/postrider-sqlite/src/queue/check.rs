//! Looking for damage in queues.

use std::collections::BTreeSet;

use postrider_core::{EventId, Mode, Order, Result, Subscription};
use rusqlite::{Connection, Statement};

use crate::error::Doing;
use crate::queue::row::Queued;
use crate::subscription::subscription_list;

/// Sentences of one kind that are worth saying.
const SAID_MAX: usize = 100;

/// Every broken rule of the queues, in sentences.
pub(crate) fn queues(conn: &Connection) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for queue in subscription_list(conn)?.iter().filter(|queue| queue.mode == Mode::Queue) {
        found.extend(unclaimed(conn, queue).doing("look for leases without a claim")?);
        found.extend(lanes(conn, queue).doing("look at the keys of a queue")?);
        found.extend(rows(conn, queue).doing("look at what is queued")?);
    }
    Ok(found)
}

fn unclaimed(conn: &Connection, queue: &Subscription) -> rusqlite::Result<Vec<String>> {
    let mut unclaimed = conn.prepare(sql!("queue/check/check_unclaimed"))?;
    let lines = unclaimed.query_map([queue.id.0], |row| {
        let event: i64 = row.get(0)?;
        let name = &queue.name;
        Ok(format!(
            "event {event} is leased by subscription `{name}` under no claim, so no sweep will free it: move it with \
             `postrider subscription seek {name} {event}`, which delivers again what follows"
        ))
    })?;
    lines.collect()
}

fn lanes(conn: &Connection, queue: &Subscription) -> rusqlite::Result<Vec<String>> {
    let mut lanes = conn.prepare(sql!("queue/check/check_lanes"))?;
    let lines = lanes.query_map((queue.id.0, queue.order == Order::Key), |row| {
        let (key, heads): (String, i64) = (row.get(0)?, row.get(1)?);
        let (key, name) = (key.escape_default(), &queue.name);
        Ok(if heads == 0 {
            format!(
                "key `{key}` of subscription `{name}` waits for nothing: restart its workers, which sets it going again"
            )
        } else {
            format!("key `{key}` of subscription `{name}` is worked on {heads} times at once: its order is lost")
        })
    })?;
    lines.collect()
}

/// Walks the rows in the order of their first events. Since blocks reach over what follows them, their other events are
/// remembered until the walk has come past them.
fn rows(conn: &Connection, queue: &Subscription) -> rusqlite::Result<Vec<String>> {
    let (name, mut found) = (&queue.name, Vec::new());
    let position: Option<i64> =
        conn.query_row(sql!("queue/check/shard_position"), [queue.id.0], |row| row.get(0))?;
    let mut delivery = conn.prepare(sql!("settle/delivery_get"))?;
    let mut event = conn.prepare(sql!("log/event_get"))?;
    let mut ahead: BTreeSet<EventId> = BTreeSet::new();
    let mut walk = conn.prepare(sql!("queue/check/queued_walk"))?;
    let mut rows = walk.query([queue.id.0])?;
    while found.len() < SAID_MAX
        && let Some(row) = rows.next()?
    {
        let row = Queued::read(row)?;
        ahead = ahead.split_off(&row.id);
        for id in row.events.iter() {
            if !ahead.insert(id) || is_there(&mut delivery, (queue.id.0, id.0))? {
                found.push(format!(
                    "subscription `{name}` has two rows for event {id}: it may be delivered twice"
                ));
            }
            if position.is_some_and(|position| id.0 > position) {
                found.push(format!(
                    "subscription `{name}` has queued event {id}, but has not come past it: it may be delivered twice"
                ));
            }
            if !is_there(&mut event, [id.0])? {
                found.push(format!(
                    "event {id} is gone, but subscription `{name}` has yet to deliver it: it was deleted by hand"
                ));
            }
        }
    }
    Ok(found)
}

fn is_there(statement: &mut Statement<'_>, of: impl rusqlite::Params) -> rusqlite::Result<bool> {
    statement.exists(of)
}
