//! What is emitted at which times? What people put, and what relays fire.

use postrider_core::schedule::{DueSchedules, Fire, Fired, ScheduleId, ScheduleReport};
use postrider_core::{
    Headers, Key, Kind, Missed, NewSchedule, Result, Schedule, Timestamp, Topic, limits, refusal,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::audit::{Auditor, Entry};
use crate::emit::event_insert;
use crate::error::Doing;
use crate::file::event_row::{bytes, headers};

/// Puts a schedule, in place of the one that has its name.
pub(crate) fn schedule_put(tx: &Transaction<'_>, new: NewSchedule, auditor: &Auditor) -> Result<Schedule> {
    let what = "put a schedule";
    let name = new.name.clone();
    let old = schedule_find(tx, &name)?;
    if let Some(stored) = new.put_over(old.as_ref(), auditor.now)? {
        if let Some(old) = &old {
            remove(tx, &old.schedule, "schedule_put", auditor)?;
        } else {
            let count: i64 =
                tx.query_row(sql!("schedule/schedule_count"), [], |row| row.get(0)).doing(what)?;
            if count as usize >= limits::SCHEDULES_MAX {
                return Err(refusal::schedules_are_too_many());
            }
        }
        insert(tx, &stored).doing(what)?;
    }
    Ok(schedule_get(tx, &name)?.schedule)
}

fn insert(tx: &Transaction<'_>, stored: &ScheduleReport) -> rusqlite::Result<usize> {
    let schedule = &stored.schedule;
    tx.execute(
        sql!("schedule/schedule_put"),
        (
            &schedule.name,
            &schedule.cron,
            &schedule.zone,
            schedule.missed.word(),
            schedule.topic.as_str(),
            schedule.kind.as_str(),
            schedule.key.as_ref().map(Key::as_str),
            stored.payload.as_ref(),
            stored.headers.to_json(),
            schedule.created_at.as_micros(),
            schedule.paused_at.map(Timestamp::as_micros),
            schedule.next_at.as_micros(),
            schedule.ticked_at.map(Timestamp::as_micros),
        ),
    )
}

/// Removes a schedule, for good or to be replaced.
fn remove(tx: &Transaction<'_>, old: &Schedule, action: &'static str, auditor: &Auditor) -> Result<()> {
    tx.execute(sql!("schedule/schedule_delete"), [&old.name]).doing("delete a schedule")?;
    let detail = old.summary();
    auditor.write(tx, &Entry { action, subscription: None, event_id: None, detail: Some(&detail) })
}

/// One schedule by name, or `NotFound`.
pub(crate) fn schedule_get(conn: &Connection, name: &str) -> Result<ScheduleReport> {
    schedule_find(conn, name)?.ok_or_else(|| refusal::schedule_missing(name))
}

/// All schedules by name.
pub(crate) fn schedule_list(conn: &Connection) -> Result<Vec<Schedule>> {
    schedules_read(conn, sql!("schedule/schedule_list"), [])
}

/// Stops a schedule until it is resumed.
pub(crate) fn schedule_pause(tx: &Transaction<'_>, name: &str, now: Timestamp) -> Result<Schedule> {
    tx.execute(sql!("schedule/schedule_pause"), (name, now.as_micros())).doing("pause a schedule")?;
    Ok(schedule_get(tx, name)?.schedule)
}

/// Ends a pause.
pub(crate) fn schedule_resume(tx: &Transaction<'_>, name: &str) -> Result<Schedule> {
    tx.execute(sql!("schedule/schedule_resume"), [name]).doing("resume a schedule")?;
    Ok(schedule_get(tx, name)?.schedule)
}

/// Removes a schedule for good.
pub(crate) fn schedule_delete(tx: &Transaction<'_>, name: &str, auditor: &Auditor) -> Result<()> {
    let old = schedule_get(tx, name)?.schedule;
    remove(tx, &old, "schedule_delete", auditor)
}

fn schedule_find(conn: &Connection, name: &str) -> Result<Option<ScheduleReport>> {
    let found = conn
        .prepare_cached(sql!("schedule/schedule_get"))
        .and_then(|mut get| get.query_row([name], report_read).optional())
        .doing("read a schedule")?;
    found.transpose()
}

/// Schedules that are due, and when the next one is.
pub(crate) fn schedules_due(tx: &Transaction<'_>, now: Timestamp) -> Result<DueSchedules> {
    let next_at: Option<i64> = tx
        .prepare_cached(sql!("schedule/schedule_next"))
        .and_then(|mut next| next.query_row([], |row| row.get(0)))
        .doing("look for due schedules")?;
    match next_at.map(Timestamp::from_micros) {
        Some(next_at) if next_at <= now => {
            let due = schedules_read(tx, sql!("schedule/schedule_due"), [now.as_micros()])?;
            Ok(DueSchedules { now, due, next_at: None })
        }
        next_at => Ok(DueSchedules { now, due: Vec::new(), next_at }),
    }
}

/// Emits the ticks of a schedule, unless another member has fired it.
pub(crate) fn schedule_fire(tx: &Transaction<'_>, fire: &Fire, now: Timestamp) -> Result<Fired> {
    fire.check()?;
    let last = fire.ticks.last().map(|tick| tick.as_micros());
    let moved = tx
        .prepare_cached(sql!("schedule/schedule_fire"))
        .and_then(|mut moved| {
            let parameters = (fire.id.0, fire.seen.as_micros(), fire.next_at.as_micros(), last);
            moved.query_row(parameters, report_read).optional()
        })
        .doing("fire a schedule")?;
    let Some(stored) = moved.transpose()? else { return Ok(Fired::No) };
    for tick in &fire.ticks {
        event_insert(tx, &stored.event_at(*tick), now)?;
    }
    Ok(Fired::Yes)
}

fn schedules_read(conn: &Connection, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<Schedule>> {
    let found: Vec<Result<Schedule>> = conn
        .prepare_cached(sql)
        .and_then(|mut list| list.query_map(parameters, schedule_read)?.collect())
        .doing("list the schedules")?;
    found.into_iter().collect()
}

/// The schedule in the first twelve columns; the inner error is one of meaning.
fn schedule_read(row: &Row<'_>) -> rusqlite::Result<Result<Schedule>> {
    let instant = |column| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
    };
    let name: String = row.get(1)?;
    let missed = match Missed::from_stored(&name, &row.get::<_, String>(4)?) {
        Ok(missed) => missed,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(Schedule {
        id: ScheduleId(row.get(0)?),
        name,
        cron: row.get(2)?,
        zone: row.get(3)?,
        missed,
        topic: Topic::new(row.get::<_, String>(5)?),
        kind: Kind::new(row.get::<_, String>(6)?),
        key: row.get::<_, Option<String>>(7)?.map(Key::new),
        created_at: Timestamp::from_micros(row.get(8)?),
        paused_at: instant(9)?,
        next_at: Timestamp::from_micros(row.get(10)?),
        ticked_at: instant(11)?,
    }))
}

/// The same with what it emits behind it.
fn report_read(row: &Row<'_>) -> rusqlite::Result<Result<ScheduleReport>> {
    let (payload, headers): (_, Headers) = (bytes(row.get_ref(12)?), headers(row.get_ref(13)?));
    Ok(schedule_read(row)?.map(|schedule| ScheduleReport { schedule, payload, headers }))
}
