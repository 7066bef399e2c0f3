//! Calls that concern schedules.

use postrider_core::schedule::{DueSchedules, Fire, Fired, ScheduleReport};
use postrider_core::{NewSchedule, Result, Schedule, ScheduleStore};

use crate::file::connection::Commit;
use crate::schedule;
use crate::store::SqliteStore;

impl ScheduleStore for SqliteStore {
    async fn schedule_put(&self, new: NewSchedule, actor: &str) -> Result<Schedule> {
        let auditor = self.auditor(actor);
        self.change(move |tx| schedule::schedule_put(tx, new, &auditor)).await
    }

    async fn schedule_get(&self, name: &str) -> Result<ScheduleReport> {
        let name = name.to_owned();
        self.read(move |tx| schedule::schedule_get(tx, &name)).await
    }

    async fn schedule_list(&self) -> Result<Vec<Schedule>> {
        self.read(|tx| schedule::schedule_list(tx)).await
    }

    async fn schedule_pause(&self, name: &str) -> Result<Schedule> {
        let (name, now) = (name.to_owned(), self.now());
        self.change(move |tx| schedule::schedule_pause(tx, &name, now)).await
    }

    async fn schedule_resume(&self, name: &str) -> Result<Schedule> {
        let name = name.to_owned();
        self.change(move |tx| schedule::schedule_resume(tx, &name)).await
    }

    async fn schedule_delete(&self, name: &str, actor: &str) -> Result<()> {
        let (name, auditor) = (name.to_owned(), self.auditor(actor));
        self.change(move |tx| schedule::schedule_delete(tx, &name, &auditor)).await
    }

    async fn schedules_due(&self) -> Result<DueSchedules> {
        let now = self.now();
        self.read(move |tx| schedule::schedules_due(tx, now)).await
    }

    async fn schedule_fire(&self, fire: Fire) -> Result<Fired> {
        let now = self.now();
        // What is lost in a power cut is lost as a whole: the tick is due again, and its event was not handed
        // out, since what is fetched is flushed first.
        let fired = self.write(Commit::Plain, move |tx| schedule::schedule_fire(tx, &fire, now)).await?;
        self.give_wake();
        Ok(fired)
    }
}
