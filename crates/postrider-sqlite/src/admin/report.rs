//! What people look at: subscriptions with their progress, and where one event stands.

use std::time::Duration;

use postrider_core::settle::{Lane, MemberId};
use postrider_core::store::{
    ActionReport, AttemptReport, DeliveryAction, DeliveryReport, MemberReport, ParkedReport, ProgressReport,
    ShardReport, StoreReport, SubscriptionReport, Wake,
};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{
    DeliveryState, Epoch, Error, ErrorKind, Event, EventId, Mode, Order, Position, Result, Shard,
    Subscription, Timestamp, limits,
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::admin::event::{event_count, event_wanted};
use crate::error::Doing;
use crate::file::migrate::{SCHEMA_VERSION, store_id};
use crate::log::event::{event_get, event_newest, event_oldest};
use crate::ownership::liveness::{Observer, signs_read};
use crate::ownership::member::member_list;
use crate::ownership::shard::SHARDS;
use crate::queue::lane::queue_head;
use crate::queue::row::{QueuedState, queued_of};
use crate::settle::lane::{lane_head, lane_read};
use crate::subscription::subscription_list;

/// Parked lanes that a report shows.
const PARKED_SHOWN_MAX: i64 = 10;

/// A subscription with its progress.
pub(crate) fn subscription_report(
    conn: &Connection,
    subscription: Subscription,
    observer: &Observer,
    now: Timestamp,
) -> Result<SubscriptionReport> {
    let id = subscription.id;
    let shards = shard_list(conn, id)?;
    let least = shards.iter().map(|shard| shard.position).min().unwrap_or(Position::START).last_id;
    let [pending, leased, dead] = delivery_counts(conn, id)?;
    let [queued_pending, queued_leased] = queued_counts(conn, id)?;
    let (lag_events, oldest_at) = event_wanted(conn, least, &subscription.filter)?;
    Ok(SubscriptionReport {
        lag_events,
        lag: oldest_at.map(|oldest_at| now.since(oldest_at)),
        pending: pending + queued_pending,
        leased: leased + queued_leased,
        dead,
        parked: lane_parked(conn, id)?,
        parked_count: count(conn, sql!("admin/report/lane_count"), id)?,
        members: member_of(conn, id, observer)?,
        shards,
        subscription,
    })
}

/// Where a store is, and what it takes there.
pub(crate) struct Place {
    pub(crate) location: String,
    pub(crate) bytes: u64,
}

/// The store as a whole.
pub(crate) fn store_report(
    conn: &Connection,
    observer: &Observer,
    now: Timestamp,
    place: Place,
) -> Result<StoreReport> {
    let members = member_list(conn)?;
    let subscriptions = subscription_list(conn)?;
    Ok(StoreReport {
        store_id: store_id(conn)?,
        location: place.location,
        schema_version: SCHEMA_VERSION,
        wake: Wake::Poll,
        events: event_count(conn, EventId(0), EventId(i64::MAX))?,
        newest_id: event_newest(conn)?,
        oldest_at: event_oldest(conn, EventId(0))?.map(|(_, created_at)| created_at),
        bytes: place.bytes,
        members: members
            .into_iter()
            .filter(|member| !observer.is_dead(&member.signs))
            .map(|member| member.name)
            .collect(),
        slots: Vec::new(),
        subscriptions: subscriptions
            .into_iter()
            .map(|subscription| subscription_report(conn, subscription, observer, now))
            .collect::<Result<_>>()?,
    })
}

/// Where an event stands for each subscription that wants it; nothing if the event is gone.
pub(crate) fn event_deliveries(conn: &Connection, id: EventId) -> Result<Vec<DeliveryReport>> {
    let Some(event) = event_get(conn, id)? else { return Ok(Vec::new()) };
    subscription_list(conn)?
        .into_iter()
        .filter(|subscription| subscription.filter.matches(event.topic.as_str(), event.kind.as_str()))
        .map(|subscription| delivery_report(conn, &event, subscription))
        .collect()
}

fn delivery_report(conn: &Connection, event: &Event, subscription: Subscription) -> Result<DeliveryReport> {
    let id = subscription.id;
    let position = shard_position(conn, id, event)?;
    let row = delivery_get(conn, id, event.id)?;
    let covered = position.covers(event.id);
    let state = match &row {
        Some(row) => row.state,
        None if covered => DeliveryState::Done,
        None => DeliveryState::Pending,
    };
    // Above the position an event waits for its lane as soon as it comes up the log.
    let lane = match &row {
        Some(row) if row.waits => row.lane.clone(),
        None if !covered && subscription.order == Order::Key => {
            event.key.clone().map(|key| Lane { key, late: event.due_at.is_some() })
        }
        _ => None,
    };
    let is_queue = subscription.mode == Mode::Queue;
    let behind = match lane {
        Some(lane) if is_queue => queue_head(conn, id, &lane)?,
        Some(lane) => lane_head(conn, id, &lane)?,
        None => None,
    };
    let actions = action_list(conn, event, &subscription)?;
    let mut report = DeliveryReport {
        subscription: subscription.name,
        state,
        // A row keeps the attempts that failed; another one runs while it is leased.
        attempts: row.as_ref().map_or(0, |row| row.attempts + u32::from(row.state == DeliveryState::Leased)),
        lost: 0,
        due_at: row.as_ref().map_or(if covered { None } else { event.due_at }, |row| row.due_at),
        behind,
        ahead: if covered { None } else { Some(event_count(conn, position.last_id, event.id)?) },
        paused: subscription.paused_at.is_some(),
        history: attempt_list(conn, id, event.id, limits::ATTEMPT_RECORDS_MAX)?,
        actions: Some(actions),
        result: None,
        progress: None,
    };
    (report.result, report.progress) = result_get(conn, id, event.id)?;
    if is_queue {
        queue_report(conn, id, event, &mut report)?;
    }
    Ok(report)
}

/// What a report says of an event in a queue, whose lanes are not those of its exceptions.
fn queue_report(
    conn: &Connection,
    subscription: SubscriptionId,
    event: &Event,
    report: &mut DeliveryReport,
) -> Result<()> {
    let Some(row) = queued_of(conn, subscription, event.id)? else { return Ok(()) };
    report.state = DeliveryState::Pending;
    report.attempts = row.started;
    report.lost =
        row.started.saturating_sub(row.finished).saturating_sub((row.state == QueuedState::Leased).into());
    match (row.state, &row.lane) {
        (QueuedState::Leased, _) => report.state = DeliveryState::Leased,
        (QueuedState::Due(at), _) => report.due_at = Some(at),
        (QueuedState::Waiting, Some(lane)) => report.behind = queue_head(conn, subscription, lane)?,
        (QueuedState::Ready | QueuedState::Waiting, _) => {}
    }
    Ok(())
}

/// What people did to a delivery, oldest first. What was done under the subscription's name before it was
/// created was done to another one.
fn action_list(conn: &Connection, event: &Event, subscription: &Subscription) -> Result<Vec<ActionReport>> {
    let read = |row: &Row<'_>| {
        let (action, detail): (String, Option<String>) = (row.get(2)?, row.get(3)?);
        let (at, actor) = (Timestamp::from_micros(row.get(0)?), row.get(1)?);
        let action = DeliveryAction::read(&action, detail.as_deref(), event.id);
        Ok(action.map(|action| ActionReport { action, at, actor }))
    };
    let since = subscription.created_at.max(event.created_at).as_micros();
    let values = (&subscription.name, since, event.id.0, limits::DELIVERY_ACTIONS_MAX);
    let mut actions: Vec<Option<ActionReport>> = conn
        .prepare_cached(sql!("admin/report/audit_list"))
        .and_then(|mut list| list.query_map(values, read)?.collect())
        .doing("read the audit table")?;
    actions.reverse();
    Ok(actions.into_iter().flatten().collect())
}

/// What a handler wanted to be kept, and how far it has come.
fn result_get(
    conn: &Connection,
    subscription: SubscriptionId,
    event: EventId,
) -> Result<(Option<String>, Option<ProgressReport>)> {
    let read = |row: &Row<'_>| {
        let (note, at): (Option<String>, Option<i64>) = (row.get(1)?, row.get(3)?);
        let progress = match note.zip(at) {
            Some((note, at)) => {
                Some(ProgressReport { percent: row.get(2)?, note, at: Timestamp::from_micros(at) })
            }
            None => None,
        };
        Ok((row.get(0)?, progress))
    };
    conn.prepare_cached(sql!("admin/report/result_get"))
        .and_then(|mut get| get.query_row((subscription.0, event.0), read).optional())
        .map(Option::unwrap_or_default)
        .doing("read a result")
}

/// The last `most` attempts, oldest first.
pub(crate) fn attempt_list(
    conn: &Connection,
    subscription: SubscriptionId,
    event: EventId,
    most: u32,
) -> Result<Vec<AttemptReport>> {
    let mut attempts: Vec<AttemptReport> = conn
        .prepare_cached(sql!("admin/report/attempt_list"))
        .and_then(|mut list| list.query_map((subscription.0, event.0, most), attempt_read)?.collect())
        .doing("read attempts")?;
    attempts.reverse();
    Ok(attempts)
}

fn attempt_read(row: &Row<'_>) -> rusqlite::Result<AttemptReport> {
    Ok(AttemptReport {
        attempt: row.get(0)?,
        started_at: Timestamp::from_micros(row.get(1)?),
        took: Duration::from_micros(row.get::<_, i64>(2)?.max(0) as u64),
        member: row.get(3)?,
        error: row.get(4)?,
    })
}

fn member_of(
    conn: &Connection,
    subscription: SubscriptionId,
    observer: &Observer,
) -> Result<Vec<MemberReport>> {
    let read = |row: &Row<'_>| {
        let lives = signs_read(row, 2)?.is_some_and(|signs| !observer.is_dead(&signs));
        Ok(MemberReport { id: MemberId(row.get(0)?), name: row.get(1)?, lives })
    };
    conn.prepare_cached(sql!("admin/report/member_of"))
        .and_then(|mut list| list.query_map([subscription.0], read)?.collect())
        .doing("read a subscription's members")
}

fn shard_list(conn: &Connection, subscription: SubscriptionId) -> Result<Vec<ShardReport>> {
    conn.prepare_cached(sql!("admin/report/shard_list"))
        .and_then(|mut list| {
            list.query_map([subscription.0], |row| {
                Ok(ShardReport {
                    shard: Shard(row.get(0)?),
                    position: Position::START.at(EventId(row.get(1)?)),
                    epoch: Epoch(row.get(2)?),
                    member: row.get::<_, Option<i64>>(3)?.map(MemberId),
                })
            })?
            .collect()
        })
        .doing("read a subscription's shards")
}

fn shard_position(conn: &Connection, subscription: SubscriptionId, event: &Event) -> Result<Position> {
    let shard = Shard::of(event.key.as_ref(), event.id, SHARDS);
    let shards = shard_list(conn, subscription)?;
    let found = shards.iter().find(|report| report.shard == shard);
    found.map(|report| report.position).ok_or_else(|| {
        Error::new(
            ErrorKind::Corrupt,
            format!("shard {} of subscription {} is missing", shard.0, subscription.0),
        )
    })
}

/// What a report needs of a row.
struct DeliveryRow {
    lane: Option<Lane>,
    state: DeliveryState,
    attempts: u32,
    due_at: Option<Timestamp>,
    waits: bool,
}

fn delivery_get(conn: &Connection, subscription: SubscriptionId, id: EventId) -> Result<Option<DeliveryRow>> {
    conn.prepare_cached(sql!("settle/delivery_get"))
        .and_then(|mut get| get.query_row((subscription.0, id.0), delivery_read).optional())
        .doing("read a delivery")
}

fn delivery_read(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    let keyed = row.get_ref(0)?.data_type() != rusqlite::types::Type::Null;
    Ok(DeliveryRow {
        lane: if keyed { Some(lane_read(row)?) } else { None },
        state: state_read(row, 4)?,
        attempts: row.get(5)?,
        due_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
        waits: row.get(7)?,
    })
}

fn state_read(row: &Row<'_>, column: usize) -> rusqlite::Result<DeliveryState> {
    let word = row.get_ref(column)?.as_str()?;
    DeliveryState::from_word(word).ok_or_else(|| {
        rusqlite::Error::InvalidColumnType(column, "state".to_owned(), rusqlite::types::Type::Text)
    })
}

/// How many rows are pending, leased and dead.
fn delivery_counts(conn: &Connection, subscription: SubscriptionId) -> Result<[u64; 3]> {
    let counted: Vec<(DeliveryState, i64)> = conn
        .prepare_cached(sql!("admin/report/delivery_counts"))
        .and_then(|mut counts| {
            counts.query_map([subscription.0], |row| Ok((state_read(row, 0)?, row.get(1)?)))?.collect()
        })
        .doing("count deliveries")?;
    let of = |state| counted.iter().find(|(found, _)| *found == state).map_or(0, |(_, n)| *n as u64);
    Ok([of(DeliveryState::Pending), of(DeliveryState::Leased), of(DeliveryState::Dead)])
}

/// How many events of a queue wait, and how many are leased.
fn queued_counts(conn: &Connection, subscription: SubscriptionId) -> Result<[u64; 2]> {
    conn.prepare_cached(sql!("admin/report/queued_counts"))
        .and_then(|mut counts| {
            counts.query_row([subscription.0], |row| {
                Ok([row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64])
            })
        })
        .doing("count queued events")
}

fn lane_parked(conn: &Connection, subscription: SubscriptionId) -> Result<Vec<ParkedReport>> {
    let read = |row: &Row<'_>| {
        Ok((lane_read(row)?, EventId(row.get(2)?), row.get::<_, Option<i64>>(3)?.map(Timestamp::from_micros)))
    };
    let heads: Vec<_> = conn
        .prepare_cached(sql!("admin/report/lane_parked"))
        .and_then(|mut heads| heads.query_map((subscription.0, PARKED_SHOWN_MAX), read)?.collect())
        .doing("read the parked keys")?;
    heads
        .into_iter()
        .map(|(lane, head, due_at)| {
            let waiting: i64 = conn
                .prepare_cached(sql!("admin/report/lane_waiting"))
                .and_then(|mut count| {
                    count.query_row((subscription.0, lane.key.as_str(), lane.late), |row| row.get(0))
                })
                .doing("count what waits for a key")?;
            Ok(ParkedReport { key: lane.key, head, waiting: waiting as u64 + 1, due_at })
        })
        .collect()
}

fn count(conn: &Connection, sql: &str, subscription: SubscriptionId) -> Result<u64> {
    conn.prepare_cached(sql)
        .and_then(|mut count| count.query_row([subscription.0], |row| row.get::<_, i64>(0)))
        .map(|n| n as u64)
        .doing("count rows")
}
