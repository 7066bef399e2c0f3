//! Settings of a queue.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration_text;
use crate::error::{Error, Result};
use crate::limits;

/// What concerns mode `queue` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueTuning {
    /// How long a worker that says nothing is believed to work: after that others take over.
    #[serde(with = "duration_text")]
    pub lease: Duration,
    /// What one lease is for.
    pub lease_by: LeaseBy,
    /// Who has to share with others.
    pub fair: Fair,
    /// How many events all members together may have in their hands; none if only each member is limited.
    pub total: Option<u32>,
    /// How many events all members together may begin.
    pub rate: Option<Rate>,
    /// How many events of one key all members together may have in their hands, where keys have no order;
    /// none if keys have no limit.
    pub per_key: Option<u32>,
}

impl Default for QueueTuning {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(8),
            lease_by: LeaseBy::default(),
            fair: Fair::default(),
            total: None,
            rate: None,
            per_key: None,
        }
    }
}

impl QueueTuning {
    /// Whether nothing was chosen.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every limit.
    pub fn check(&self) -> Result<()> {
        if !(limits::LEASE_MIN..=limits::LEASE_MAX).contains(&self.lease) {
            return Err(Error::invalid("a lease lasts from 1 second to 12 hours"));
        }
        if self.total == Some(0) {
            return Err(Error::invalid(
                "the limit over all members must be at least 1: to stop delivery, pause",
            ));
        }
        if let Some(per_key) = self.per_key
            && !(1..=limits::PER_KEY_MAX).contains(&per_key)
        {
            return Err(Error::invalid(format!(
                "the limit of a key is from 1 to {}, not {per_key}: to stop delivery, pause",
                limits::PER_KEY_MAX
            )));
        }
        if let Fair::Header(name) = &self.fair
            && name.is_empty()
        {
            return Err(Error::invalid("`fair` names a header: `header:tenant`"));
        }
        self.rate.map_or(Ok(()), Rate::check)
    }
}

/// What one lease is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseBy {
    /// Up to a hundred events that need no order: the fastest.
    #[default]
    Block,
    /// One event: for jobs that take long, so that no worker sits on what another could do.
    Event,
}

/// Who has to share with others, so that one that brings much does not keep the rest waiting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Fair {
    /// First come, first served.
    #[default]
    Nobody,
    /// Keys share evenly.
    Key,
    /// Topics share evenly.
    Topic,
    /// The values of this header share evenly.
    Header(String),
}

impl fmt::Display for Fair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Key => f.write_str("key"),
            Self::Topic => f.write_str("topic"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

impl FromStr for Fair {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "nobody" => Ok(Self::Nobody),
            None if text == "key" => Ok(Self::Key),
            None if text == "topic" => Ok(Self::Topic),
            Some(("header", name)) if !name.is_empty() => Ok(Self::Header(name.to_owned())),
            _ => Err(Error::invalid(format!("`{text}` cannot share: use nobody, key, topic or header:NAME"))),
        }
    }
}

impl From<Fair> for String {
    fn from(fair: Fair) -> Self {
        fair.to_string()
    }
}

impl TryFrom<String> for Fair {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// How many events may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    /// In a second.
    pub per_second: u32,
    /// At once, after a time in which fewer came.
    pub burst: u32,
}

impl Rate {
    fn check(self) -> Result<()> {
        if self.per_second == 0 || self.burst == 0 {
            return Err(Error::invalid("a rate and its burst must be at least 1: to stop delivery, pause"));
        }
        Ok(())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s,burst={}", self.per_second, self.burst)
    }
}

/// `100/s`, or `100/s,burst=20`. Without a burst it is what one second allows.
impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("`{text}` is no rate: use 100/s or 100/s,burst=20"));
        let (rate, burst) =
            text.split_once(",burst=").map_or((text, None), |(rate, burst)| (rate, Some(burst)));
        let per_second = rate.strip_suffix("/s").ok_or_else(bad)?.parse().map_err(|_| bad())?;
        let burst = burst.map_or(Ok(per_second), str::parse).map_err(|_| bad())?;
        let rate = Self { per_second, burst };
        rate.check()?;
        Ok(rate)
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl TryFrom<String> for Rate {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_from_their_text() {
        for fair in ["nobody", "key", "topic", "header:tenant"] {
            assert_eq!(fair.parse::<Fair>().unwrap().to_string(), fair);
        }
        let rate = |text: &str| text.parse::<Rate>().map(|rate| (rate.per_second, rate.burst)).ok();
        assert_eq!((rate("5/s"), rate("100/s,burst=20")), (Some((5, 5)), Some((100, 20))));
        for bad in ["5", "0/s", "5/s,burst=0", "-1/s", "5/s,burst=", "fast"] {
            assert_eq!(rate(bad), None, "{bad}");
        }
        for bad in ["header:", "tenant", ""] {
            assert!(bad.parse::<Fair>().is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_survive_their_stored_form() {
        let tuning = QueueTuning {
            lease: Duration::from_secs(30),
            lease_by: LeaseBy::Event,
            fair: Fair::Header("tenant".to_owned()),
            total: Some(9),
            rate: Some(Rate { per_second: 7, burst: 3 }),
            per_key: Some(4),
        };
        let json = serde_json::to_string(&tuning).unwrap();
        assert_eq!(serde_json::from_str::<QueueTuning>(&json).unwrap(), tuning);
        assert!(QueueTuning { total: Some(0), ..tuning.clone() }.check().is_err());
        for per_key in [0, limits::PER_KEY_MAX + 1] {
            assert!(QueueTuning { per_key: Some(per_key), ..tuning.clone() }.check().is_err());
        }
        assert!(QueueTuning { lease: Duration::from_millis(10), ..tuning }.check().is_err());
    }
}
