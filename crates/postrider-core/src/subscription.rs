//! Who wants which events, and how.

pub mod balance;
pub mod filter;
mod queue_tuning;
mod stored;

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::retry::RetryPolicy;
use crate::error::{Error, Result};
use crate::event::EventId;
use crate::limits;
use crate::subscription::filter::{Filter, Pattern};
use crate::time::Timestamp;

pub use crate::position::SubscriptionId;
pub use queue_tuning::{Fair, LeaseBy, QueueTuning, Rate};
pub use stored::{StoredSubscription, SubscriptionTexts};

/// A named durable interest in events, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Subscription {
    /// Its number in the store.
    pub id: SubscriptionId,
    /// Its name, unique in the store.
    pub name: String,
    /// Which events it wants.
    pub filter: Filter,
    /// How its progress is kept.
    pub mode: Mode,
    /// Whether events of one key wait for each other.
    pub order: Order,
    /// What happens to a key when its event dies.
    pub on_dead: OnDead,
    /// Everything that may change without a meaning for what is stored.
    pub tuning: Tuning,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when it is paused, if it is.
    pub paused_at: Option<Timestamp>,
}

/// How a subscription keeps its progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A position in the log; rows exist only for exceptions.
    #[default]
    Log,
    /// Leased deliveries: for jobs that take long, priorities, and workers that compete.
    Queue,
}

/// Whether events of one key wait for each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Per key, in the order in which they were emitted; a failing key waits alone.
    #[default]
    Key,
    /// No order at all: each event stands for itself.
    None,
}

/// What happens to the later events of a key when one of its events becomes a dead letter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDead {
    /// They go on without it.
    #[default]
    Skip,
    /// They wait until it is replayed or discarded.
    Hold,
}

/// How many members share a subscription's shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Members {
    /// All that stand for it: each holds an even part of the shards.
    #[default]
    Many,
    /// One holds everything and the others stand by: for receivers that one process feeds as fast as many would.
    One,
}

/// Settings of a subscription that may change at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// How many members share the work.
    #[serde(default)]
    pub members: Members,
    /// When a failed event is attempted again.
    pub retry: RetryPolicy,
    /// How many handlers may run at a time.
    pub concurrency: u32,
    /// How long one attempt may take.
    #[serde(with = "duration_text")]
    pub timeout: Duration,
    /// What concerns mode `queue` alone.
    #[serde(default, skip_serializing_if = "QueueTuning::is_default")]
    pub queue: QueueTuning,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            members: Members::default(),
            retry: RetryPolicy::default(),
            concurrency: 16,
            timeout: Duration::from_secs(60),
            queue: QueueTuning::default(),
        }
    }
}

impl Tuning {
    /// Checks every limit.
    pub fn check(&self) -> Result<()> {
        self.retry.check()?;
        if self.concurrency == 0 || self.concurrency > limits::CONCURRENCY_MAX {
            return Err(Error::invalid(format!(
                "concurrency {}: use 1 to {}",
                self.concurrency,
                limits::CONCURRENCY_MAX
            )));
        }
        if self.timeout.is_zero() || self.timeout > limits::ATTEMPT_TIMEOUT_MAX {
            return Err(Error::invalid(
                "the time-out of an attempt must be more than zero and at most 24 hours",
            ));
        }
        self.queue.check()
    }

    /// Checks every limit, and that it suits a subscription of this mode and order.
    pub fn check_for(&self, mode: Mode, order: Order) -> Result<()> {
        self.check()?;
        if mode == Mode::Log && !self.queue.is_default() {
            return Err(Error::invalid(
                "a subscription of mode `log` has no leases, fairness or limits of a queue: choose mode `queue`",
            ));
        }
        if order == Order::Key && self.queue.per_key.is_some() {
            return Err(Error::invalid(
                "with order `key` one event of a key is worked on at a time: a limit per key is for order `none`",
            ));
        }
        Ok(())
    }
}

/// Where a new subscription begins, or where a seek moves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest event that is still there.
    #[default]
    Oldest,
    /// With the next event that is emitted.
    Now,
    /// With the first event emitted at or after this instant.
    Time(Timestamp),
    /// With this event.
    Id(EventId),
}

impl FromStr for Start {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "start" => Ok(Self::Oldest),
            "now" => Ok(Self::Now),
            _ => match text.parse::<i64>() {
                Ok(id) if id >= 0 => Ok(Self::Id(EventId(id))),
                Ok(id) => Err(Error::invalid(format!("event id {id} is negative"))),
                Err(_) => text.parse().map(Self::Time).map_err(|_| {
                    Error::invalid(format!(
                        "`{text}` is no place in the log: use start, now, a time such as 2026-11-15T08:30:00Z, or an event id"
                    ))
                }),
            },
        }
    }
}

/// A subscription to be created.
///
/// ```
/// use postrider_core::NewSubscription;
/// let subscription = NewSubscription::new("confirmations").topic("order")?.types("order.created")?;
/// subscription.check()?;
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSubscription {
    /// Its name, unique in the store.
    pub name: String,
    /// Which events it wants.
    pub filter: Filter,
    /// How its progress is kept.
    pub mode: Mode,
    /// Whether events of one key wait for each other.
    pub order: Order,
    /// What happens to a key when its event dies.
    pub on_dead: OnDead,
    /// Settings that may change at any time.
    pub tuning: Tuning,
    /// Where it begins.
    pub start: Start,
}

impl NewSubscription {
    /// Wants every event, in order per key, from the oldest one on.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            filter: Filter::default(),
            mode: Mode::default(),
            order: Order::default(),
            on_dead: OnDead::default(),
            tuning: Tuning::default(),
            start: Start::default(),
        }
    }

    /// Wants events of this topic (a [`Pattern`]); several calls add up.
    pub fn topic(mut self, pattern: &str) -> Result<Self> {
        self.filter.topics.push(pattern.parse::<Pattern>()?);
        Ok(self)
    }

    /// Wants events of this type (a [`Pattern`]); several calls add up.
    pub fn types(mut self, pattern: &str) -> Result<Self> {
        self.filter.types.push(pattern.parse::<Pattern>()?);
        Ok(self)
    }

    /// How its progress is kept.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether events of one key wait for each other.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What happens to a key when its event dies.
    #[must_use]
    pub fn on_dead(mut self, on_dead: OnDead) -> Self {
        self.on_dead = on_dead;
        self
    }

    /// How many members share the work.
    #[must_use]
    pub fn members(mut self, members: Members) -> Self {
        self.tuning.members = members;
        self
    }

    /// When a failed event is attempted again.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.tuning.retry = retry;
        self
    }

    /// How many handlers may run at a time.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.tuning.concurrency = concurrency;
        self
    }

    /// How long one attempt may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.tuning.timeout = timeout;
        self
    }

    /// Where it begins.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Checks every limit.
    pub fn check(&self) -> Result<()> {
        let name = &self.name;
        if name.is_empty() || name.len() > limits::SUBSCRIPTION_NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a subscription's name has 1 to {} bytes",
                limits::SUBSCRIPTION_NAME_BYTES_MAX
            )));
        }
        if let Some(c) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
            return Err(Error::invalid(format!(
                "subscription name `{}` contains {c:?}: use letters, digits and . _ -",
                name.escape_default()
            )));
        }
        self.filter.check()?;
        self.tuning.check_for(self.mode, self.order)
    }

    /// Whether an existing subscription means the same. What it tunes may differ.
    pub fn agrees_with(&self, existing: &Subscription) -> Result<()> {
        let differs = |what: &str, theirs: String, ours: String| {
            Error::new(
                crate::ErrorKind::Conflict,
                format!(
                    "subscription `{}` exists with {what} {theirs}, not {ours}: use another name, or delete it first",
                    self.name
                ),
            )
        };
        if self.filter != existing.filter {
            return Err(differs("filter", existing.filter.to_string(), self.filter.to_string()));
        }
        if self.mode != existing.mode {
            return Err(differs("mode", format!("{:?}", existing.mode), format!("{:?}", self.mode)));
        }
        if self.order != existing.order {
            return Err(differs("order", format!("{:?}", existing.order), format!("{:?}", self.order)));
        }
        if self.on_dead != existing.on_dead {
            return Err(differs("on_dead", format!("{:?}", existing.on_dead), format!("{:?}", self.on_dead)));
        }
        Ok(())
    }
}

/// Durations in stored settings are text, as in the CLI.
mod duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::time::{format_duration, parse_duration};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(*duration))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_log_are_read_as_people_write_them() {
        assert_eq!("start".parse::<Start>().unwrap(), Start::Oldest);
        assert_eq!("17".parse::<Start>().unwrap(), Start::Id(EventId(17)));
        assert!(matches!("2026-11-15T08:30:00Z".parse(), Ok(Start::Time(_))));
        for bad in ["", "-1", "yesterday"] {
            assert!(bad.parse::<Start>().is_err(), "{bad}");
        }
    }

    #[test]
    fn tuning_survives_its_stored_form_and_refuses_unknown_keys() {
        let tuning = Tuning { concurrency: 3, timeout: Duration::from_millis(1500), ..Tuning::default() };
        let json = serde_json::to_string(&tuning).unwrap();
        assert_eq!(serde_json::from_str::<Tuning>(&json).unwrap(), tuning);
        assert!(serde_json::from_str::<Tuning>(&json.replace("concurrency", "concurency")).is_err());
    }

    #[test]
    fn bad_subscriptions_are_refused() {
        assert!(NewSubscription::new("").check().is_err());
        assert!(NewSubscription::new("a b").check().is_err());
        assert!(NewSubscription::new("a").concurrency(0).check().is_err());
        assert!(NewSubscription::new("a").timeout(Duration::ZERO).check().is_err());
        assert!(NewSubscription::new("a").topic("x y").is_err());
        NewSubscription::new("a-b_c.d").check().unwrap();
    }

    #[test]
    fn a_limit_per_key_is_for_queues_without_order() {
        let limited = |mode, order, per_key| {
            let mut new = NewSubscription::new("a").mode(mode).order(order);
            new.tuning.queue.per_key = Some(per_key);
            new.check().map_err(|error| error.to_string())
        };
        limited(Mode::Queue, Order::None, 1).unwrap();
        for (mode, order, per_key, why) in [
            (Mode::Queue, Order::Key, 2, "order `none`"),
            (Mode::Log, Order::None, 2, "mode `queue`"),
            (Mode::Queue, Order::None, 0, "pause"),
        ] {
            let refused = limited(mode, order, per_key).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
