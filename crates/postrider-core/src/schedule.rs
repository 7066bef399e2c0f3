//! What is emitted at which times: cron schedules that are stored in the database.
//!
//! A schedule names instants, its *ticks*, by a cron expression in a time zone, and an event. A process that looks
//! at a schedule when a tick is due fires it: one transaction emits the event and moves `next_at` on from the
//! value that was seen. Of any number of processes that fire the same tick one succeeds, and the others have
//! changed nothing. A process that ends in between has changed nothing either. So there is no leader, and
//! no takeover that could do something twice.
//!
//! ```text
//!      ticks already emitted      due, emitted by the next fire      to come
//!   ──────●───────●───────●───────────●───────●───────●──────┼──────────●──────►
//!                                  next_at                  now
//! ```
//!
//! `next_at` only ever moves on. A clock that is set back makes a schedule wait until the time has come
//! again.

mod cron;
mod due;
mod fire;

use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::event::{Key, Kind, NewEvent, Topic};
use crate::limits;
use crate::time::Timestamp;

pub use due::{DueTicks, due};
pub use fire::{DueSchedules, Fire, Fired, ScheduleReport};

use cron::Cron;

/// The header that says by which schedule an event was emitted.
pub const SCHEDULE_HEADER: &str = "postrider-schedule";
/// The header that says for which tick: an instant in RFC 3339 and UTC.
pub const TICK_HEADER: &str = "postrider-tick";

/// The number of a schedule in its store. A schedule that is replaced gets a new one, so that who fires what was there
/// before fires nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ScheduleId(pub i64);

/// A schedule as stored, without the payload and the headers of its event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// Its number; another one whenever it is replaced.
    pub id: ScheduleId,
    /// Its name, unique in the store.
    pub name: String,
    /// Its cron expression.
    pub cron: String,
    /// The time zone in which the expression is read.
    pub zone: String,
    /// What happens to ticks that were not fired in time.
    pub missed: Missed,
    /// The topic of its events.
    pub topic: Topic,
    /// Their type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Their key, if they have one.
    pub key: Option<Key>,
    /// When it was put, or last replaced.
    pub created_at: Timestamp,
    /// Since when it is paused, if it is.
    pub paused_at: Option<Timestamp>,
    /// The first tick that has not been dealt with.
    pub next_at: Timestamp,
    /// The last tick for which an event was emitted.
    pub ticked_at: Option<Timestamp>,
}

impl Schedule {
    /// What the audit notes of one that is replaced or deleted. Never what it emits.
    pub fn summary(&self) -> String {
        format!("{}: {} {}", self.name, self.cron, self.zone)
    }

    /// Ticks after an instant, whatever has been emitted so far: what people want to see before they trust an
    /// expression.
    pub fn ticks_after(&self, at: Timestamp, count: usize) -> Result<Vec<Timestamp>> {
        let cron = Cron::parse(&self.cron, &self.zone)?;
        Ok(cron.between(at, Timestamp::from_micros(i64::MAX)).take(count).collect())
    }

    /// What clocks in the schedule's time zone show at an instant, with their offset: `2027-03-28T03:00:00+02:00`.
    pub fn local(&self, at: Timestamp) -> Result<String> {
        let shown = Cron::parse(&self.cron, &self.zone)?.local(at);
        shown.ok_or_else(|| Error::invalid(format!("{at} is beyond all calendars")))
    }
}

/// What happens to ticks that were not fired in time: no relay ran, the store could not be reached, or the schedule was
/// paused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// They are dropped. A tick counts as missed after [`TICK_LATE_MAX`](crate::limits::TICK_LATE_MAX).
    Skip,
    /// One event is emitted for all of them, with the last one's time.
    #[default]
    Once,
    /// An event is emitted for each of them, of at most [`MISSED_TICKS_MAX`](crate::limits::MISSED_TICKS_MAX); older
    /// ones are dropped.
    All,
}

impl Missed {
    const WORDS: [(Self, &str); 3] = [(Self::Skip, "skip"), (Self::Once, "once"), (Self::All, "all")];

    /// As people write it, and as it is stored.
    pub fn word(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }

    /// Understands what is stored of the schedule `name`; `Incompatible` if a newer version wrote it.
    pub fn from_stored(name: &str, word: &str) -> Result<Self> {
        word.parse().map_err(|_| {
            let message =
                format!("schedule `{name}` has a rule for missed ticks that this version does not know");
            Error::new(ErrorKind::Incompatible, message)
        })
    }
}

impl FromStr for Missed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::WORDS
            .iter()
            .find(|(_, word)| *word == text)
            .map(|(missed, _)| *missed)
            .ok_or_else(|| Error::invalid(format!("`{}`: use skip, once or all", text.escape_default())))
    }
}

/// A schedule to be put into a store.
///
/// ```
/// use postrider_core::{Event, NewSchedule};
/// let report = Event::new("report").kind("report.wanted").json_text("{}");
/// let schedule = NewSchedule::new("daily-report", "0 9 * * mon-fri", report).zone("Europe/Berlin");
/// schedule.check()?;
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSchedule {
    /// Its name, unique in the store.
    pub name: String,
    /// Its cron expression: five fields, or six with seconds in front, or a nickname such as `@daily`.
    pub cron: String,
    /// The IANA name of the time zone in which the expression is read.
    pub zone: String,
    /// What happens to ticks that were not fired in time.
    pub missed: Missed,
    /// What is emitted at each tick, without a delay or an idempotency key of its own.
    pub event: NewEvent,
}

impl NewSchedule {
    /// Emits `event` at the ticks of a cron expression in UTC, once for all ticks that were missed.
    pub fn new(name: impl Into<String>, cron: impl Into<String>, event: NewEvent) -> Self {
        Self {
            name: name.into(),
            cron: cron.into(),
            zone: "UTC".to_owned(),
            missed: Missed::default(),
            event,
        }
    }

    /// The time zone in which the expression is read.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// What happens to ticks that were not fired in time.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Checks every limit, the expression and the time zone.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        Cron::parse(&self.cron, &self.zone)?;
        if self.event.due().is_some() || self.event.idempotency().is_some() {
            return Err(Error::invalid(
                "the event of a schedule has neither a delay nor an idempotency key: its ticks say when, and each is emitted once",
            ));
        }
        for header in [SCHEDULE_HEADER, TICK_HEADER] {
            if self.event.headers().get(header).is_some() {
                return Err(Error::invalid(format!("header `{header}` is set at each tick: leave it out")));
            }
        }
        let bytes = self.event.payload_bytes().len();
        if bytes > limits::SCHEDULE_PAYLOAD_BYTES_MAX {
            return Err(Error::invalid(format!(
                "payload is {bytes} bytes, the limit for a schedule is {}: store the content elsewhere and emit a reference to it",
                limits::SCHEDULE_PAYLOAD_BYTES_MAX
            )));
        }
        // With the headers that each tick adds, so that nothing can be refused when its time has come.
        tick_event(&self.name, self.event.clone(), Timestamp::from_micros(0)).check()
    }

    /// What is stored when this is put at `now` over what is there: none if nothing would change. The store
    /// gives it a new number.
    pub fn put_over(
        mut self,
        old: Option<&ScheduleReport>,
        now: Timestamp,
    ) -> Result<Option<ScheduleReport>> {
        self.check()?;
        let cron = Cron::parse(&self.cron, &self.zone)?;
        cron.zone_name().clone_into(&mut self.zone);
        if old.is_some_and(|old| self.is_stored_as(old)) {
            return Ok(None);
        }
        let from_now = cron.next_after(now).ok_or_else(|| due::beyond(&self.name, now))?;
        let old = old.map(|old| &old.schedule);
        let goes_on = old.filter(|old| self.ticks_as(old));
        let schedule = Schedule {
            id: ScheduleId(0),
            missed: self.missed,
            topic: self.event.topic().clone(),
            kind: Kind::new(self.event.kind_or_topic()),
            key: self.event.ordering_key().cloned(),
            created_at: now,
            paused_at: old.and_then(|old| old.paused_at),
            next_at: goes_on.map_or(from_now, |old| old.next_at),
            ticked_at: old.and_then(|old| old.ticked_at),
            name: self.name,
            cron: self.cron,
            zone: self.zone,
        };
        let payload = self.event.payload_bytes().clone();
        Ok(Some(ScheduleReport { schedule, payload, headers: self.event.headers }))
    }

    fn ticks_as(&self, stored: &Schedule) -> bool {
        self.cron == stored.cron && self.zone == stored.zone
    }

    fn is_stored_as(&self, stored: &ScheduleReport) -> bool {
        let schedule = &stored.schedule;
        self.ticks_as(schedule)
            && self.missed == schedule.missed
            && *self.event.topic() == schedule.topic
            && self.event.kind_or_topic() == schedule.kind.as_str()
            && self.event.ordering_key() == schedule.key.as_ref()
            && *self.event.payload_bytes() == stored.payload
            && *self.event.headers() == stored.headers
    }
}

/// The name as people type it, in commands and in the header of each event.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::SCHEDULE_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a schedule's name has 1 to {} bytes",
            limits::SCHEDULE_NAME_BYTES_MAX
        )));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
        None => Ok(()),
        Some(c) => Err(Error::invalid(format!(
            "schedule name `{}` contains {c:?}: use letters, digits and . _ -",
            name.escape_default()
        ))),
    }
}

/// What is emitted at a tick.
fn tick_event(name: &str, event: NewEvent, tick: Timestamp) -> NewEvent {
    event.header(SCHEDULE_HEADER, name).header(TICK_HEADER, tick.to_string())
}

impl ScheduleReport {
    /// What is emitted at a tick.
    pub fn event_at(&self, tick: Timestamp) -> NewEvent {
        let Self { schedule, payload, headers } = self;
        let mut event = crate::Event::new(schedule.topic.as_str()).kind(schedule.kind.as_str());
        event.key.clone_from(&schedule.key);
        event.headers = headers.clone();
        tick_event(&schedule.name, event.json_or_bytes(payload.clone()), tick)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Event;

    #[test]
    fn a_good_schedule_is_accepted_and_a_bad_one_is_refused_with_a_reason() {
        let good = NewSchedule::new("a", "@daily", Event::new("t"));
        good.check().unwrap();
        let event = |event| NewSchedule { event, ..good.clone() };
        let bad = [
            (NewSchedule { name: String::new(), ..good.clone() }, "1 to 100 bytes"),
            (NewSchedule { name: "a b".to_owned(), ..good.clone() }, "contains ' '"),
            (NewSchedule { cron: "61 * * * *".to_owned(), ..good.clone() }, "no cron expression"),
            (NewSchedule { cron: "* * * * * * 2027".to_owned(), ..good.clone() }, "no cron expression"),
            (NewSchedule { cron: "* ".repeat(200), ..good.clone() }, "the limit is 255"),
            (NewSchedule { cron: "0 0 30 2 *".to_owned(), ..good.clone() }, "never comes"),
            (NewSchedule { zone: "Europe/Berlim".to_owned(), ..good.clone() }, "did you mean Europe/Berlin?"),
            (NewSchedule { zone: "berlin".to_owned(), ..good.clone() }, "did you mean Europe/Berlin?"),
            (NewSchedule { zone: "Nowhere".to_owned(), ..good.clone() }, "such as Europe/Berlin"),
            (event(Event::new("t t")), "topic"),
            (event(Event::new("t").due_after(Duration::from_secs(1))), "neither a delay"),
            (event(Event::new("t").idempotency_key("k")), "idempotency key"),
            (event(Event::new("t").header(TICK_HEADER, "now")), "set at each tick"),
            (event(Event::new("t").payload(vec![0; 65_537])), "the limit for a schedule is 65536"),
            (
                event((0..63).fold(Event::new("t"), |event, n| event.header(n.to_string(), ""))),
                "65 headers, the limit is 64",
            ),
        ];
        for (schedule, reason) in bad {
            let refused = schedule.check().unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn the_zone_is_stored_as_the_database_of_zones_spells_it() {
        let new = NewSchedule::new("a", "@daily", Event::new("t")).zone("europe/berlin");
        let put = new.put_over(None, "2027-01-01T00:00:00Z".parse().unwrap()).unwrap().unwrap().schedule;
        assert_eq!(
            (put.zone.as_str(), put.next_at.to_string().as_str()),
            ("Europe/Berlin", "2027-01-01T23:00:00Z")
        );
    }

    #[test]
    fn words_are_read_back() {
        for (missed, word) in Missed::WORDS {
            assert_eq!((missed.word(), word.parse::<Missed>().unwrap()), (word, missed));
        }
        assert!("never".parse::<Missed>().is_err());
    }
}
