//! Schedules: what people put, and what relays fire.

use postrider_core::schedule::{DueSchedules, Fire, Fired, ScheduleId, ScheduleReport};
use postrider_core::{
    Headers, Key, Kind, Missed, NewSchedule, Result, Schedule, ScheduleStore, Timestamp, Topic, limits,
    refusal,
};
use tokio_postgres::Row;

use crate::admin::audit::Entry;
use crate::admin::event::by_right;
use crate::error::Doing;
use crate::server::event_row::{payload_columns, payload_read};
use crate::server::session::Tx;
use crate::server::statement::Sql;
use crate::server::values::{At, JsonText};
use crate::store::PostgresStore;

impl ScheduleStore for PostgresStore {
    async fn schedule_put(&self, new: NewSchedule, actor: &str) -> Result<Schedule> {
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        let put = schedule_put(&tx, new, actor).await?;
        tx.commit("put a schedule").await?;
        Ok(put)
    }

    async fn schedule_get(&self, name: &str) -> Result<ScheduleReport> {
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        let found = schedule_find(&tx, name).await?;
        tx.commit("end a read").await?;
        found.ok_or_else(|| refusal::schedule_missing(name))
    }

    async fn schedule_list(&self) -> Result<Vec<Schedule>> {
        let session = self.inner.operator.session().await?;
        let rows = session.query(sql!("schedule/schedule_list"), &[], "list the schedules").await?;
        rows.iter().map(schedule_read).collect()
    }

    async fn schedule_pause(&self, name: &str) -> Result<Schedule> {
        self.schedule_change(sql!("schedule/schedule_pause"), name).await
    }

    async fn schedule_resume(&self, name: &str) -> Result<Schedule> {
        self.schedule_change(sql!("schedule/schedule_resume"), name).await
    }

    async fn schedule_delete(&self, name: &str, actor: &str) -> Result<()> {
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        if !remove(&tx, name, Entry { actor, action: "schedule_delete", detail: None }).await? {
            return Err(refusal::schedule_missing(name));
        }
        tx.commit("delete a schedule").await
    }

    async fn schedules_due(&self) -> Result<DueSchedules> {
        let what = "look for due schedules";
        let session = self.inner.operator.session().await?;
        let rows = session.query(sql!("schedule/schedule_next"), &[], what).await?;
        let now = rows[0].try_get::<_, At>(0).doing(what)?.0;
        let next_at = rows[0].try_get::<_, Option<At>>(1).doing(what)?.map(|at| at.0);
        if next_at.is_none_or(|next_at| next_at > now) {
            return Ok(DueSchedules { now, due: Vec::new(), next_at });
        }
        let rows = session.query(sql!("schedule/schedule_due"), &[&At(now)], what).await?;
        let due = rows.iter().map(schedule_read).collect::<Result<_>>()?;
        Ok(DueSchedules { now, due, next_at: None })
    }

    async fn schedule_fire(&self, fire: Fire) -> Result<Fired> {
        fire.check()?;
        let what = "fire a schedule";
        let ticks: Vec<At> = fire.ticks.iter().map(|tick| At(*tick)).collect();
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        let row = tx
            .query_one(
                sql!("schedule/schedule_fire"),
                &[&fire.id.0, &At(fire.seen), &ticks, &At(fire.next_at)],
                what,
            )
            .await?;
        let fired: bool = row.try_get(0).doing(what)?;
        tx.commit(what).await?;
        if !fired {
            return Ok(Fired::No);
        }
        // Others are woken as by any producer.
        self.inner.wake.notify_waiters();
        Ok(Fired::Yes)
    }
}

impl PostgresStore {
    async fn schedule_change(&self, sql: Sql, name: &str) -> Result<Schedule> {
        let what = "change a schedule";
        let mut session = self.inner.operator.session().await?;
        let tx = session.begin().await?;
        let row = tx.query_opt(sql, &[&name], what).await?;
        tx.commit(what).await?;
        row.as_ref().map_or_else(|| Err(refusal::schedule_missing(name)), schedule_read)
    }
}

async fn schedule_put(tx: &Tx<'_>, new: NewSchedule, actor: &str) -> Result<Schedule> {
    let what = "put a schedule";
    new.check()?;
    let name = new.name.clone();
    tx.execute(sql!("schedule/schedule_lock"), &[], what).await?;
    let now = tx.query_one(sql!("emit/clock_read"), &[], what).await?.try_get::<_, At>(0).doing(what)?.0;
    let old = schedule_find(tx, &name).await?;
    let Some(stored) = new.put_over(old.as_ref(), now)? else {
        return old.map(|old| old.schedule).ok_or_else(|| refusal::schedule_missing(&name));
    };
    if !remove(tx, &name, Entry { actor, action: "schedule_put", detail: None }).await? {
        let count: i64 =
            tx.query_one(sql!("schedule/schedule_count"), &[], what).await?.try_get(0).doing(what)?;
        if count as usize >= limits::SCHEDULES_MAX {
            return Err(refusal::schedules_are_too_many());
        }
    }
    insert(tx, &stored).await
}

async fn insert(tx: &Tx<'_>, stored: &ScheduleReport) -> Result<Schedule> {
    let schedule = &stored.schedule;
    let headers = stored.headers.to_json();
    let (json, bytes) = payload_columns(&stored.payload);
    let at = |instant: Option<Timestamp>| instant.map(At);
    let row = tx
        .query_one(
            sql!("schedule/schedule_put"),
            &[
                &schedule.name,
                &schedule.cron,
                &schedule.zone,
                &schedule.missed.word(),
                &schedule.topic.as_str(),
                &schedule.kind.as_str(),
                &schedule.key.as_ref().map(Key::as_str),
                &json,
                &bytes,
                &headers.as_deref().map(JsonText),
                &At(schedule.created_at),
                &at(schedule.paused_at),
                &At(schedule.next_at),
                &at(schedule.ticked_at),
            ],
            "put a schedule",
        )
        .await?;
    schedule_read(&row)
}

/// Removes a schedule, for good or to be replaced; false if there is none.
async fn remove(tx: &Tx<'_>, name: &str, entry: Entry<'_>) -> Result<bool> {
    let Some(row) = tx.query_opt(sql!("schedule/schedule_delete"), &[&name], "delete a schedule").await?
    else {
        return Ok(false);
    };
    let detail = schedule_read(&row)?.summary();
    Entry { detail: Some(&detail), ..entry }.write_of_store(tx).await?;
    Ok(true)
}

async fn schedule_find(tx: &Tx<'_>, name: &str) -> Result<Option<ScheduleReport>> {
    let what = "read a schedule";
    let sql = by_right(tx.payloads(), sql!("schedule/schedule_get"), sql!("schedule/schedule_get_withheld"));
    let Some(row) = tx.query_opt(sql, &[&name], what).await? else { return Ok(None) };
    let headers = row.try_get::<_, Option<JsonText<'_>>>(14).doing(what)?;
    Ok(Some(ScheduleReport {
        schedule: schedule_read(&row)?,
        payload: payload_read(&row, 12).doing(what)?.unwrap_or_default(),
        headers: headers.map_or_else(Headers::default, |json| Headers::from_json(json.0)),
    }))
}

/// The schedule in the first twelve columns.
fn schedule_read(row: &Row) -> Result<Schedule> {
    let read = || {
        let instant =
            |column| Ok::<_, tokio_postgres::Error>(row.try_get::<_, Option<At>>(column)?.map(|at| at.0));
        let schedule = Schedule {
            id: ScheduleId(row.try_get(0)?),
            name: row.try_get(1)?,
            cron: row.try_get(2)?,
            zone: row.try_get(3)?,
            missed: Missed::default(),
            topic: Topic::new(row.try_get::<_, &str>(5)?),
            kind: Kind::new(row.try_get::<_, &str>(6)?),
            key: row.try_get::<_, Option<&str>>(7)?.map(Key::new),
            created_at: row.try_get::<_, At>(8)?.0,
            paused_at: instant(9)?,
            next_at: row.try_get::<_, At>(10)?.0,
            ticked_at: instant(11)?,
        };
        Ok::<_, tokio_postgres::Error>((schedule, row.try_get(4)?))
    };
    let (schedule, missed): (Schedule, &str) = read().doing("read a schedule")?;
    Ok(Schedule { missed: Missed::from_stored(&schedule.name, missed)?, ..schedule })
}
