//! What a store reports about a schedule, and what a worker writes when it fires one.

use bytes::Bytes;

use super::{Schedule, ScheduleId};
use crate::error::{Error, Result};
use crate::event::Headers;
use crate::limits;
use crate::time::Timestamp;

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
    /// Another process was faster, or it was paused, replaced or deleted; nothing was changed.
    No,
}
