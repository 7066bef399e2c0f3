//! Which instants a cron expression names in a time zone.
//!
//! Where clocks are changed, a wall clock shows some times twice and some never. An expression says by its
//! hours what it means, as in cron:
//!
//! ```text
//!                       hour is `*` or `*/n`: it goes by        hours are named: it goes by
//!                       what the clock shows                    the calendar
//!   02:30 is skipped    no tick                                 one tick at the instant of the change
//!   02:30 comes twice   a tick each time                        a tick the first time
//! ```
//!
//! So `*/15 * * * *` ticks every 15 minutes of real time, and `30 2 * * *` once a day on every day. Several
//! named times that one change skips are one tick. The alternative, moving 02:30 to 03:30, was rejected: it
//! would come after what is planned for 03:00.

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil;
use jiff::tz::{self, AmbiguousOffset, TimeZone};

use crate::error::{Error, Result};
use crate::limits;
use crate::time::Timestamp;

/// An expression that was understood.
#[derive(Debug, Clone)]
pub(crate) struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
    hours: Hours,
}

/// What an expression means where clocks are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hours {
    /// What the clock shows.
    Any,
    /// The calendar.
    Named,
}

impl Cron {
    /// Understands an expression, and refuses one that names no instant at all.
    pub(crate) fn parse(expression: &str, zone: &str) -> Result<Self> {
        if expression.len() > limits::CRON_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the cron expression is {} bytes, the limit is {}",
                expression.len(),
                limits::CRON_BYTES_MAX
            )));
        }
        let shown = expression.escape_default();
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let pattern = parser.parse(expression).map_err(|error| {
            Error::invalid(format!(
                "`{shown}` is no cron expression: write minute, hour, day, month and weekday, such as `0 9 * * mon-fri`, with \
                 seconds in front if you want them, or @hourly, @daily, @weekly, @monthly, @yearly"
            ))
            .with_source(error)
        })?;
        let hours = if pattern.pattern.hours.from_wildcard { Hours::Any } else { Hours::Named };
        let cron = Self { pattern, zone: zone_of(zone)?, hours };
        // Without years an expression repeats itself, so that it does not matter from when on one looks.
        if cron.next_after(Timestamp::from_micros(0)).is_none() {
            return Err(Error::invalid(format!(
                "`{shown}` never comes: no year has such a day, check the day of the month and the month"
            )));
        }
        Ok(cron)
    }

    /// The first tick after an instant; none near the end of time.
    pub(crate) fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let at = jiff::Timestamp::from_second(at.as_micros().div_euclid(1_000_000)).ok()?;
        let next = match self.hours {
            Hours::Any => self.next_shown(at),
            Hours::Named => self.next_planned(at),
        }?;
        Some(Timestamp::from_micros(next.as_microsecond()))
    }

    /// The ticks after an instant, up to and with another.
    pub(crate) fn between(&self, after: Timestamp, up_to: Timestamp) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(self.next_after(after), |tick| self.next_after(*tick))
            .take_while(move |tick| *tick <= up_to)
    }

    /// What the clock shows at an instant, with its offset: `2027-03-28T03:00:00+02:00`.
    pub(crate) fn local(&self, at: Timestamp) -> Option<String> {
        let at = jiff::Timestamp::from_microsecond(at.as_micros()).ok()?.to_zoned(self.zone.clone());
        Some(at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
    }

    /// The zone's name as the database of zones spells it.
    pub(crate) fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The next instant at which the clock shows a time that matches.
    fn next_shown(&self, at: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let next = self.pattern.find_next_occurrence(&at.to_zoned(self.zone.clone()), false).ok()?;
        Some(next.timestamp())
    }

    /// The next instant for a time of the calendar. Later times of the calendar have no earlier instants, and
    /// no time up to the one that the clock shows now has an instant after now: so the search may begin
    /// there, and ends at the first that lies after now.
    fn next_planned(&self, at: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut planned = at.to_zoned(self.zone.clone()).datetime();
        loop {
            planned = self.pattern.find_next_occurrence(&planned, false).ok()?;
            let instant = self.instant_of(planned)?;
            if instant > at {
                return Some(instant);
            }
        }
    }

    /// When a time of the calendar comes: the first time that it does, or the instant of the change that skips it.
    fn instant_of(&self, planned: civil::DateTime) -> Option<jiff::Timestamp> {
        match self.zone.to_ambiguous_timestamp(planned).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(planned).ok()
            }
            // By the clock from after the change, the skipped time lies before it.
            AmbiguousOffset::Gap { after, .. } => {
                let early = after.to_timestamp(planned).ok()?;
                self.zone.following(early).next().map(|change| change.timestamp())
            }
        }
    }
}

fn zone_of(name: &str) -> Result<TimeZone> {
    tz::db().get(name).map_err(|error| {
        let shown = name.escape_default();
        let hint = similar_zone(name).map_or_else(
            || "use a name such as Europe/Berlin, America/New_York or UTC".to_owned(),
            |similar| format!("did you mean {similar}?"),
        );
        Error::invalid(format!("there is no time zone `{shown}`: {hint}")).with_source(error)
    })
}

/// A zone whose city, or whole name, is spelled nearly like this.
fn similar_zone(name: &str) -> Option<String> {
    let wanted = name.chars().take(limits::ZONE_BYTES_MAX).collect::<String>().to_lowercase();
    let city = |zone: &str| zone.rsplit('/').next().unwrap_or(zone).replace('_', " ");
    let distance = |zone: &str| {
        let zone = zone.to_lowercase();
        edits(&zone, &wanted).min(edits(&city(&zone), &city(&wanted)))
    };
    let near = tz::db().available().map(|zone| (distance(zone.as_str()), zone.as_str().to_owned())).min()?;
    (near.0 <= 2).then_some(near.1)
}

/// How many letters one has to add, remove or replace to make one text of the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
