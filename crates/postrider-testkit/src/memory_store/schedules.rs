//! Schedules: put, look, fire.

use postrider_core::refusal::{schedule_missing, schedules_are_too_many};
use postrider_core::schedule::{DueSchedules, Fire, Fired, ScheduleId, ScheduleReport};
use postrider_core::{NewSchedule, Result, Schedule, ScheduleStore, limits};

use super::state::{State, Time};
use super::{AuditLine, MemoryStore};

impl ScheduleStore for MemoryStore {
    async fn schedule_put(&self, new: NewSchedule, actor: &str) -> Result<Schedule> {
        self.call("schedule_put", None, |state, time| state.schedule_put(new, actor, time)).await
    }

    async fn schedule_get(&self, name: &str) -> Result<ScheduleReport> {
        self.call("schedule_get", None, |state, _| state.schedule(name).cloned()).await
    }

    async fn schedule_list(&self) -> Result<Vec<Schedule>> {
        self.call("schedule_list", None, |state, _| {
            Ok(state.schedules.values().map(|stored| stored.schedule.clone()).collect())
        })
        .await
    }

    async fn schedule_pause(&self, name: &str) -> Result<Schedule> {
        self.call("schedule_pause", None, |state, time| {
            state.schedule_change(name, |schedule| {
                schedule.paused_at.get_or_insert(time.now);
            })
        })
        .await
    }

    async fn schedule_resume(&self, name: &str) -> Result<Schedule> {
        self.call("schedule_resume", None, |state, _| {
            state.schedule_change(name, |schedule| schedule.paused_at = None)
        })
        .await
    }

    async fn schedule_delete(&self, name: &str, actor: &str) -> Result<()> {
        self.call("schedule_delete", None, |state, time| state.schedule_delete(name, actor, time)).await
    }

    async fn schedules_due(&self) -> Result<DueSchedules> {
        self.call("schedules_due", None, |state, time| Ok(state.schedules_due(time))).await
    }

    async fn schedule_fire(&self, fire: Fire) -> Result<Fired> {
        self.call_and_wake("schedule_fire", |state, time| state.schedule_fire(&fire, time)).await
    }
}

impl State {
    fn schedule(&self, name: &str) -> Result<&ScheduleReport> {
        self.schedules.get(name).ok_or_else(|| schedule_missing(name))
    }

    fn schedule_put(&mut self, new: NewSchedule, actor: &str, time: Time) -> Result<Schedule> {
        let name = new.name.clone();
        let old = self.schedules.get(&name).cloned();
        let Some(mut stored) = new.put_over(old.as_ref(), time.now)? else {
            return Ok(self.schedule(&name)?.schedule.clone());
        };
        if old.is_none() && self.schedules.len() >= limits::SCHEDULES_MAX {
            return Err(schedules_are_too_many());
        }
        self.schedule_newest = ScheduleId(self.schedule_newest.0 + 1);
        stored.schedule.id = self.schedule_newest;
        let schedule = stored.schedule.clone();
        self.schedules.insert(name, stored);
        if let Some(old) = old {
            let detail = old.schedule.summary();
            self.audit(AuditLine::new(time.now, actor, "schedule put", "", detail));
        }
        Ok(schedule)
    }

    fn schedule_change(&mut self, name: &str, by: impl FnOnce(&mut Schedule)) -> Result<Schedule> {
        let stored = self.schedules.get_mut(name).ok_or_else(|| schedule_missing(name))?;
        by(&mut stored.schedule);
        Ok(stored.schedule.clone())
    }

    fn schedule_delete(&mut self, name: &str, actor: &str, time: Time) -> Result<()> {
        let detail = self.schedule(name)?.schedule.summary();
        self.schedules.remove(name);
        self.audit(AuditLine::new(time.now, actor, "schedule delete", "", detail));
        Ok(())
    }

    fn schedules_due(&self, time: Time) -> DueSchedules {
        let running = self.schedules.values().map(|stored| &stored.schedule);
        let mut running: Vec<&Schedule> = running.filter(|found| found.paused_at.is_none()).collect();
        running.sort_by_key(|schedule| (schedule.next_at, schedule.id));
        let due: Vec<Schedule> =
            running.iter().copied().filter(|schedule| schedule.next_at <= time.now).cloned().collect();
        let next_at = running.first().filter(|_| due.is_empty()).map(|schedule| schedule.next_at);
        DueSchedules { now: time.now, due, next_at }
    }

    fn schedule_fire(&mut self, fire: &Fire, time: Time) -> Result<Fired> {
        fire.check()?;
        let found = self.schedules.values_mut().find(|stored| {
            let schedule = &stored.schedule;
            schedule.id == fire.id && schedule.next_at == fire.seen && schedule.paused_at.is_none()
        });
        let Some(stored) = found else { return Ok(Fired::No) };
        stored.schedule.next_at = fire.next_at;
        stored.schedule.ticked_at = fire.ticks.last().copied().or(stored.schedule.ticked_at);
        let events: Vec<_> = fire.ticks.iter().map(|tick| stored.event_at(*tick)).collect();
        self.emit(&events, time)?;
        Ok(Fired::Yes)
    }
}
