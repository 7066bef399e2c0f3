//! What a database must do for schedules: the contract in prose.

use std::future::Future;

use bytes::Bytes;

use super::{NewSchedule, Schedule, ScheduleId};
use crate::error::{Error, Result};
use crate::event::Headers;
use crate::limits;
use crate::store::Store;
use crate::time::Timestamp;

/// Schedules: people put, pause and delete them, workers fire them. What the head of
/// [`store`](crate::store) says of errors, repetition and time holds here too.
pub trait ScheduleStore: Store {
    /// Creates a schedule, or replaces the one of this name, which leaves a line in the audit table. One
    /// whose expression and time zone stay the same goes on where it stands, with what it has missed; any
    /// other goes on from now. A pause lasts on. Nothing is written if nothing would change, so that a
    /// program may put its schedules whenever it starts.
    ///
    /// `Conflict` if there are [`SCHEDULES_MAX`](crate::limits::SCHEDULES_MAX) others.
    fn schedule_put(&self, new: NewSchedule, actor: &str) -> impl Future<Output = Result<Schedule>> + Send;

    /// One schedule by name, with what it emits; `NotFound` if there is none. Payload and headers are empty where they
    /// are [`Withheld`](crate::store::Payloads::Withheld).
    fn schedule_get(&self, name: &str) -> impl Future<Output = Result<ScheduleReport>> + Send;

    /// All schedules, by name.
    fn schedule_list(&self) -> impl Future<Output = Result<Vec<Schedule>>> + Send;

    /// Keeps a schedule from being fired until it is resumed; idempotent.
    fn schedule_pause(&self, name: &str) -> impl Future<Output = Result<Schedule>> + Send;

    /// Ends a pause; idempotent. What was missed meanwhile is treated like anything else that was missed.
    fn schedule_resume(&self, name: &str) -> impl Future<Output = Result<Schedule>> + Send;

    /// Removes a schedule. Its events stay.
    fn schedule_delete(&self, name: &str, actor: &str) -> impl Future<Output = Result<()>> + Send;

    /// The schedules whose time has come. Called by every relay whenever one may be due, and every few
    /// seconds: it must be cheap if none is.
    fn schedules_due(&self) -> impl Future<Output = Result<DueSchedules>> + Send;

    /// Emits the schedule's event for each of the ticks and moves it on, in one transaction, if it stands
    /// where the caller saw it, is not paused, and has not been replaced. Otherwise nothing is changed.
    /// Whatever the answer, and also if it was lost, the caller looks again.
    ///
    /// The events are made of what is stored and not of what the caller knows, so that who fires need not be
    /// allowed to emit.
    fn schedule_fire(&self, fire: Fire) -> impl Future<Output = Result<Fired>> + Send;
}

/// A schedule with what it emits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleReport {
    /// The schedule itself.
    pub schedule: Schedule,
    /// The payload of its events.
    pub payload: Bytes,
    /// Their headers, but for those that say which schedule and which tick.
    pub headers: Headers,
}

/// What a look for due schedules found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSchedules {
    /// The database's time.
    pub now: Timestamp,
    /// Those whose time has come and that are not paused, the longest due first.
    pub due: Vec<Schedule>,
    /// If none is due: when the first one will be.
    pub next_at: Option<Timestamp>,
}

/// What moves a schedule on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// Which one.
    pub id: ScheduleId,
    /// Where it stood when the caller looked.
    pub seen: Timestamp,
    /// The ticks for which its event is emitted, in order. May be empty.
    pub ticks: Vec<Timestamp>,
    /// Where it stands afterwards.
    pub next_at: Timestamp,
}

impl Fire {
    /// Refuses what would let a schedule go back, or emit without bound.
    pub fn check(&self) -> Result<()> {
        let in_order = self.ticks.is_sorted_by(|a, b| a < b)
            && self.ticks.first().is_none_or(|first| *first >= self.seen)
            && self.ticks.last().is_none_or(|last| *last < self.next_at);
        if self.next_at <= self.seen || !in_order || self.ticks.len() > limits::FIRE_TICKS_MAX {
            return Err(Error::invalid(format!(
                "a schedule moves on, over at most {} ticks in their order",
                limits::FIRE_TICKS_MAX
            )));
        }
        Ok(())
    }
}

/// Whether a fire took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fired {
    /// Its events are emitted and the schedule has moved on.
    Yes,
    /// Somebody else was faster, or it was paused, replaced or deleted; nothing was changed.
    No,
}
