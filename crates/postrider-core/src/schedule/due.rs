//! Which ticks a look at a schedule has to deal with. Pure: the time is an argument.

use std::time::Duration;

use super::cron::Cron;
use super::{Missed, Schedule};
use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use crate::time::Timestamp;

/// What is to be done about a schedule whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTicks {
    /// The ticks for which an event is to be emitted, oldest first. At most
    /// [`FIRE_TICKS_MAX`](crate::limits::FIRE_TICKS_MAX); what remains is due at the next look.
    pub ticks: Vec<Timestamp>,
    /// Where the schedule stands afterwards.
    pub next_at: Timestamp,
    /// Whether ticks were missed for which no event stands.
    pub dropped: bool,
}

/// What is to be done about a schedule now; none if its time has not come or it is paused.
///
/// The work is bounded however far the clock has jumped: ticks in between are not walked through.
pub fn due(schedule: &Schedule, now: Timestamp) -> Result<Option<DueTicks>> {
    let seen = schedule.next_at;
    if schedule.paused_at.is_some() || seen > now {
        return Ok(None);
    }
    let cron = Cron::parse(&schedule.cron, &schedule.zone)?;
    let next_at = cron.next_after(now).ok_or_else(|| beyond(&schedule.name, now))?;
    let due = match schedule.missed {
        Missed::All => each(&cron, seen, now, next_at),
        Missed::Once => DueTicks { ticks: vec![last(&cron, seen, now)], next_at, dropped: false },
        Missed::Skip => {
            let last = last(&cron, seen, now);
            let late = now.since(last) > limits::TICK_LATE_MAX;
            DueTicks {
                ticks: if late { Vec::new() } else { vec![last] },
                next_at,
                dropped: late || last > seen,
            }
        }
    };
    Ok(Some(due))
}

/// The last tick up to now, of which `seen` is one.
///
/// Each round goes on by a tick and then halves the time that is left, so that some sixty are enough for any distance.
fn last(cron: &Cron, seen: Timestamp, now: Timestamp) -> Timestamp {
    let mut last = seen;
    // After it there is no tick up to now.
    let mut end = now;
    while let Some(next) = cron.next_after(last).filter(|next| *next <= now) {
        last = next;
        let middle = last.after(end.since(last) / 2);
        match cron.next_after(middle).filter(|next| *next <= now) {
            Some(next) => last = next,
            None => end = middle,
        }
    }
    last
}

/// Every tick up to now, but for those before the newest thousand.
fn each(cron: &Cron, seen: Timestamp, now: Timestamp, next_at: Timestamp) -> DueTicks {
    // The one that was seen is not looked for: another database of time zones may have named it.
    let rest = ticks_up_to(cron, seen, now);
    let dropped = rest.len() >= limits::MISSED_TICKS_MAX;
    let mut ticks = if dropped {
        ticks_up_to(cron, newest_after(cron, seen, now), now)
    } else {
        std::iter::once(seen).chain(rest).collect()
    };
    let next_at = ticks.get(limits::FIRE_TICKS_MAX).copied().unwrap_or(next_at);
    ticks.truncate(limits::FIRE_TICKS_MAX);
    DueTicks { ticks, next_at, dropped }
}

/// The instant after which there are as many ticks up to now as may be made up for. After `seen` there are
/// that many or more.
fn newest_after(cron: &Cron, seen: Timestamp, now: Timestamp) -> Timestamp {
    // Ticks are whole seconds.
    const SECOND: Duration = Duration::from_secs(1);
    let (mut many, mut few) = (seen.before(SECOND), now);
    while few.since(many) > SECOND {
        let middle = many.after(few.since(many) / 2);
        if ticks_up_to(cron, middle, now).len() > limits::MISSED_TICKS_MAX {
            many = middle;
        } else {
            few = middle;
        }
    }
    few
}

/// Ticks after an instant up to now, and no more than one beyond the bound.
fn ticks_up_to(cron: &Cron, after: Timestamp, now: Timestamp) -> Vec<Timestamp> {
    cron.between(after, now).take(limits::MISSED_TICKS_MAX + 1).collect()
}

/// The clock is beyond what calendars are made for.
pub(super) fn beyond(name: &str, now: Timestamp) -> Error {
    let message = format!("schedule `{name}` has no tick after {now}: check the database's clock");
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests;
