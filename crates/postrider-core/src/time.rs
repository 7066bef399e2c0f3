//! Instants as the database sees them.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// An instant on the database's clock, in microseconds since the Unix epoch.
///
/// The database's clock decides everything: due times, leases, retention. A process compares only
/// durations with its own monotonic clock.
///
/// ```
/// use postrider_core::Timestamp;
/// let at: Timestamp = "2026-11-15T08:30:00Z".parse()?;
/// assert_eq!(at.to_string(), "2026-11-15T08:30:00Z");
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whether it lies in the years 1 to 9999, so that every receiver can read it.
    pub const fn is_datable(self) -> bool {
        self.0 >= Self::EARLIEST.0 && self.0 <= Self::LATEST.0
    }

    /// The nearest instant that does.
    #[must_use]
    pub fn clamp_to_datable(self) -> Self {
        self.clamp(Self::EARLIEST, Self::LATEST)
    }

    /// The first instant of the year 1.
    const EARLIEST: Self = Self(-62_135_596_800_000_000);
    /// The last one of the year 9999.
    const LATEST: Self = Self(253_402_300_799_999_999);

    /// This instant moved into the future; saturates at the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// This instant moved into the past; saturates at the beginning of time.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Self(micros(since)),
            Err(error) => Self(-micros(error.duration())),
        }
    }
}

/// RFC 3339 in UTC, as precise as needed.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => timestamp.fmt(f),
            // Outside the years -9999..9999; only a hand-written row can hold such an instant.
            Err(_) => write!(f, "{}µs", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse::<jiff::Timestamp>().map(|timestamp| Self(timestamp.as_microsecond())).map_err(|error| {
            Error::invalid(format!("`{text}` is not a time such as 2026-11-15T08:30:00Z")).with_source(error)
        })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where an embedded store takes its time from; a database server has its own clock.
pub trait Clock: Send + Sync + 'static {
    /// The time of day. It may step in either direction.
    fn now(&self) -> Timestamp;

    /// Time since the machine started, suspended or not. It never steps, and is the same for all
    /// processes of the machine, so that leases between them can be measured by it.
    fn uptime(&self) -> Duration;
}

/// Reads a duration as people write it: `500ms`, `10m`, `1h 30m`, `7d`.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(postrider_core::time::parse_duration("1m 30s")?, Duration::from_secs(90));
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration> {
    let invalid =
        || Error::invalid(format!("`{text}` is not a duration: write it as 500ms, 10s, 5m, 2h or 7d"));
    // Days are not part of jiff's absolute durations, since a civil day has no fixed length; here one
    // always means 24 hours.
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (days.trim().parse::<u32>().map_err(|_| invalid())?, rest.trim()),
        None => (0, text),
    };
    let days = Duration::from_secs(u64::from(days) * 24 * 3600);
    if rest.is_empty() && !days.is_zero() {
        return Ok(days);
    }
    let parsed: jiff::SignedDuration = rest.parse().map_err(|error| invalid().with_source(error))?;
    if parsed.is_negative() {
        return Err(Error::invalid(format!("`{text}` is negative: a duration counts forward")));
    }
    let rest: Duration = parsed.try_into().map_err(|_| invalid())?;
    rest.checked_add(days).ok_or_else(invalid)
}

/// Writes a duration so that [`parse_duration`] reads it back.
pub fn format_duration(duration: Duration) -> String {
    match jiff::SignedDuration::try_from(duration) {
        Ok(signed) => format!("{signed:#}"),
        Err(_) => format!("{}s", duration.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in
            [("10m", 600), ("2h", 7200), ("7d", 604_800), ("1d 12h", 129_600), ("1h 30m", 5400), ("90s", 90)]
        {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        for bad in ["", "10", "-5m", "-1d", "0d", "5 parsecs", "99999999999999999999s"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_survive_their_written_form() {
        for micros in [0, 1, 1_000, 1_500_000, 3_600_000_000, 86_400_000_000 * 30] {
            let duration = Duration::from_micros(micros);
            assert_eq!(parse_duration(&format_duration(duration)).unwrap(), duration);
        }
    }

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        let end = Timestamp::from_micros(i64::MAX);
        assert_eq!(end.after(Duration::from_secs(1)), end);
        assert_eq!(Timestamp::from_micros(5).since(end), Duration::ZERO);
        assert!(end.to_string().ends_with("µs"));
    }
}
