//! When a failed delivery is attempted again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::{FailureClass, Outcome};
use crate::error::{Error, Result};
use crate::limits;
use crate::time::{format_duration, parse_duration};

/// From the number of an attempt to the delay before the next one, and when to give up.
///
/// Written as text in the CLI and in config: `fixed:5s`, `exponential:1s..10m` (full jitter: a random
/// delay between zero and the doubled base, so that a thousand failures do not come back together),
/// `schedule:1s,10s,1m` (the last entry repeats).
///
/// ```
/// use std::time::Duration;
/// use postrider_core::RetryPolicy;
/// let policy: RetryPolicy = "exponential:1s..1m".parse()?;
/// let policy = policy.attempts_max(5);
/// assert_eq!(policy.delay(3, 0.5), Duration::from_secs(2)); // half of 1 s doubled twice
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    backoff: Backoff,
    attempts_max: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
enum Backoff {
    Fixed(Duration),
    Exponential { base: Duration, cap: Duration },
    Schedule(Vec<Duration>),
}

/// What the policy makes of one finished attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered; nothing more to do.
    Done,
    /// Attempt it again after this long.
    Again(Duration),
    /// Give up: it becomes a dead letter.
    Dead,
    /// As if it had never been handed out: no attempt is counted.
    Untried,
    /// The same, but not before this long.
    Snooze(Duration),
}

impl RetryPolicy {
    /// The same delay before every attempt.
    pub fn fixed(delay: Duration) -> Self {
        Self { backoff: Backoff::Fixed(delay), ..Self::default() }
    }

    /// Doubling delays with full jitter, from `base` up to `cap`.
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        Self { backoff: Backoff::Exponential { base, cap }, ..Self::default() }
    }

    /// Listed delays; the last one repeats.
    pub fn schedule(delays: impl Into<Vec<Duration>>) -> Self {
        Self { backoff: Backoff::Schedule(delays.into()), ..Self::default() }
    }

    /// How many attempts there are in all, the first included.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// How many attempts there are in all.
    pub fn attempts(&self) -> u32 {
        self.attempts_max
    }

    /// The delay after `attempt` (counted from 1) has failed. `roll` is a random number in `[0, 1)`.
    pub fn delay(&self, attempt: u32, roll: f64) -> Duration {
        let delay = match &self.backoff {
            Backoff::Fixed(delay) => *delay,
            Backoff::Exponential { base, cap } => {
                let doubled =
                    base.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
                doubled.min(*cap).mul_f64(roll.clamp(0.0, 1.0))
            }
            Backoff::Schedule(delays) => {
                let index = (attempt.saturating_sub(1) as usize).min(delays.len().saturating_sub(1));
                delays.get(index).copied().unwrap_or_default()
            }
        };
        delay.min(limits::RETRY_DELAY_MAX)
    }

    /// Decides what becomes of a delivery whose `attempt` (counted from 1) ended with `outcome`.
    ///
    /// A receiver that asks for a delay (`Retry-After`) gets it. One that is unavailable costs the event
    /// no attempt: an outage must not turn a backlog into dead letters.
    pub fn judge(&self, attempt: u32, outcome: &Outcome, roll: f64) -> Verdict {
        match outcome {
            Outcome::Ack => Verdict::Done,
            Outcome::Untried => Verdict::Untried,
            Outcome::Dead(_) => Verdict::Dead,
            Outcome::Retry(failure) => match failure.class() {
                FailureClass::Unavailable => Verdict::Untried,
                FailureClass::Snoozed => {
                    Verdict::Snooze(failure.retry_after().unwrap_or_default().min(limits::RETRY_DELAY_MAX))
                }
                FailureClass::Permanent => Verdict::Dead,
                FailureClass::Retryable if attempt >= self.attempts_max => Verdict::Dead,
                FailureClass::Retryable => Verdict::Again(
                    failure
                        .retry_after()
                        .unwrap_or_else(|| self.delay(attempt, roll))
                        .min(limits::RETRY_DELAY_MAX),
                ),
            },
        }
    }

    /// Checks every limit.
    pub fn check(&self) -> Result<()> {
        if self.attempts_max == 0 || self.attempts_max > limits::ATTEMPTS_MAX {
            return Err(Error::invalid(format!(
                "{} attempts: use 1 to {}",
                self.attempts_max,
                limits::ATTEMPTS_MAX
            )));
        }
        let longest = match &self.backoff {
            Backoff::Fixed(delay) => *delay,
            Backoff::Exponential { base, cap } if base > cap => {
                return Err(Error::invalid(format!(
                    "retry delays from {} up to {}: the first must not exceed the last",
                    format_duration(*base),
                    format_duration(*cap)
                )));
            }
            Backoff::Exponential { cap, .. } => *cap,
            Backoff::Schedule(delays) if delays.is_empty() || delays.len() > limits::RETRY_SCHEDULE_MAX => {
                return Err(Error::invalid(format!(
                    "a schedule has 1 to {} delays",
                    limits::RETRY_SCHEDULE_MAX
                )));
            }
            Backoff::Schedule(delays) => delays.iter().max().copied().unwrap_or_default(),
        };
        if longest > limits::RETRY_DELAY_MAX {
            return Err(Error::invalid(format!(
                "a retry delay of {} is longer than 30 days: check its unit",
                format_duration(longest)
            )));
        }
        Ok(())
    }
}

/// Half a second, doubling up to ten minutes with full jitter, twenty attempts: about an hour and a half.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff: Backoff::Exponential { base: Duration::from_millis(500), cap: Duration::from_secs(600) },
            attempts_max: 20,
        }
    }
}

impl FromStr for RetryPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let policy = Self { backoff: text.parse()?, ..Self::default() };
        policy.check()?;
        Ok(policy)
    }
}

/// The delays, as [`FromStr`] reads them; how many attempts there are is a setting of its own.
impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backoff.fmt(f)
    }
}

impl FromStr for Backoff {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let shape = || {
            Error::invalid(format!(
                "`{text}` is not a retry policy: write fixed:5s, exponential:1s..10m or schedule:1s,10s,1m"
            ))
        };
        let (kind, rest) = text.split_once(':').ok_or_else(shape)?;
        match kind {
            "fixed" => Ok(Self::Fixed(parse_duration(rest)?)),
            "exponential" => {
                let (base, cap) = rest.split_once("..").ok_or_else(shape)?;
                Ok(Self::Exponential { base: parse_duration(base)?, cap: parse_duration(cap)? })
            }
            "schedule" => Ok(Self::Schedule(rest.split(',').map(parse_duration).collect::<Result<_>>()?)),
            _ => Err(shape()),
        }
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(delay) => write!(f, "fixed:{}", format_duration(*delay)),
            Self::Exponential { base, cap } => {
                write!(f, "exponential:{}..{}", format_duration(*base), format_duration(*cap))
            }
            Self::Schedule(delays) => {
                let delays: Vec<_> = delays.iter().map(|delay| format_duration(*delay)).collect();
                write!(f, "schedule:{}", delays.join(","))
            }
        }
    }
}

impl TryFrom<String> for Backoff {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Backoff> for String {
    fn from(backoff: Backoff) -> Self {
        backoff.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::Failure;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_schedule_repeats_its_last_delay() {
        let policy = RetryPolicy::schedule([SECOND, SECOND * 10]);
        assert_eq!([1, 2, 3, 50].map(|n| policy.delay(n, 0.9).as_secs()), [1, 10, 10, 10]);
    }

    #[test]
    fn the_last_attempt_is_final_and_a_permanent_failure_ends_at_once() {
        let policy = RetryPolicy::fixed(SECOND).attempts_max(3);
        let failed = Outcome::Retry(Failure::retry("no"));
        assert_eq!(policy.judge(2, &failed, 0.0), Verdict::Again(SECOND));
        assert_eq!(policy.judge(3, &failed, 0.0), Verdict::Dead);
        assert_eq!(policy.judge(1, &Outcome::Retry(Failure::permanent("never")), 0.0), Verdict::Dead);
        assert_eq!(policy.judge(1, &Outcome::Ack, 0.0), Verdict::Done);
    }

    #[test]
    fn an_unavailable_receiver_costs_no_attempt() {
        let policy = RetryPolicy::default().attempts_max(1);
        assert_eq!(policy.judge(1, &Outcome::Retry(Failure::unavailable("down")), 0.0), Verdict::Untried);
        assert_eq!(policy.judge(9, &Outcome::Untried, 0.0), Verdict::Untried);
    }

    #[test]
    fn a_snooze_costs_no_attempt_and_is_bounded() {
        let policy = RetryPolicy::default().attempts_max(1);
        let snooze = |delay| policy.judge(1, &Outcome::Retry(Failure::snooze(delay)), 0.0);
        assert_eq!(snooze(SECOND), Verdict::Snooze(SECOND));
        assert_eq!(snooze(Duration::MAX), Verdict::Snooze(limits::RETRY_DELAY_MAX));
    }

    #[test]
    fn the_receivers_own_delay_wins_within_the_limit() {
        let policy = RetryPolicy::fixed(SECOND);
        let asked = |delay| Outcome::Retry(Failure::retry("busy").after(delay));
        assert_eq!(policy.judge(1, &asked(SECOND * 7), 0.0), Verdict::Again(SECOND * 7));
        assert_eq!(policy.judge(1, &asked(Duration::MAX), 0.0), Verdict::Again(limits::RETRY_DELAY_MAX));
    }

    #[test]
    fn bad_policies_are_refused() {
        for bad in [
            "",
            "fixed",
            "fixed:",
            "fixed:-1s",
            "exponential:1s",
            "exponential:10s..1s",
            "schedule:",
            "linear:1s",
            "fixed:31d",
        ] {
            assert!(bad.parse::<RetryPolicy>().is_err(), "{bad}");
        }
        assert!(RetryPolicy::default().attempts_max(0).check().is_err());
    }

    proptest! {
        #[test]
        fn delays_stay_between_zero_and_the_cap(attempt in 1_u32..2000, roll in 0.0_f64..1.0, base in 1_u64..10_000, factor in 1_u64..1000) {
            let base = Duration::from_millis(base);
            let cap = base * factor as u32;
            let delay = RetryPolicy::exponential(base, cap).delay(attempt, roll);
            prop_assert!(delay <= cap);
        }

        #[test]
        fn policies_survive_their_written_form(a in 0_u64..100_000, b in 0_u64..100_000) {
            let (a, b) = (Duration::from_millis(a.min(b)), Duration::from_millis(a.max(b)));
            for policy in [RetryPolicy::fixed(a), RetryPolicy::exponential(a, b), RetryPolicy::schedule([a, b])] {
                prop_assert_eq!(policy.to_string().parse::<RetryPolicy>().unwrap(), policy);
            }
        }
    }
}
