//! How long a sink waits.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use postrider_core::time::{format_duration, parse_duration};
use postrider_core::{Error, Result};
use serde::{Deserialize, Deserializer};

/// A wait in config, such as `"10s"`, from a millisecond to ten minutes.
///
/// ```
/// use postrider_sinks::TimeLimit;
/// let limit: TimeLimit = "1500ms".parse()?;
/// assert_eq!(limit.get().as_millis(), 1500);
/// assert!("0s".parse::<TimeLimit>().is_err() && "1d".parse::<TimeLimit>().is_err());
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit(Duration);

impl TimeLimit {
    /// So many seconds, which must be within the bounds.
    pub const fn seconds(seconds: u64) -> Self {
        assert!(seconds >= 1 && seconds <= MAX.as_secs(), "a time limit is from 1 ms to 10 min");
        Self(Duration::from_secs(seconds))
    }

    /// The wait.
    pub fn get(self) -> Duration {
        self.0
    }
}

const MIN: Duration = Duration::from_millis(1);
const MAX: Duration = Duration::from_secs(600);

impl FromStr for TimeLimit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let limit = parse_duration(text)?;
        if (MIN..=MAX).contains(&limit) {
            return Ok(Self(limit));
        }
        Err(Error::invalid(format!(
            "a time limit of `{}` is too short or too long: use one from {} to {}",
            text.escape_debug(),
            format_duration(MIN),
            format_duration(MAX)
        )))
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for TimeLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for TimeLimit {
    fn schema_name() -> Cow<'static, str> {
        "TimeLimit".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "description": "A wait such as 10s or 500ms, at most 10m."})
    }
}
