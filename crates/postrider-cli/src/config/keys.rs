//! Every key of a config, with its meaning: what can be written, and what the JSON schema says.

use std::collections::BTreeMap;
use std::path::PathBuf;

use postrider_core::{Fair, Pattern, Rate, RetryPolicy, Start, limits};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::values::{DrainWithin, Length, Retention, Said, Several, UpTo, WalBudget};
use crate::args::{
    LeaseByArg, LogFormatArg, MembersArg, ModeArg, OnDeadArg, OrderArg, OverBudgetArg, SourceArg, SourceArgs,
    SubscriptionArgs,
};

/// Keys outside of tables that may also be environment variables.
pub(super) const TOP: [&str; 6] =
    ["store", "log_format", "drain_within", "retention", "pid_file", "health_file"];

/// The config of `postrider relay`: stores, subscriptions and where their events go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "postrider.toml")]
pub(super) struct FileKeys {
    /// The store, if there is one: sqlite://PATH, postgres://USER@HOST/DATABASE, or where that is written:
    /// env:NAME or file:/PATH
    pub(super) store: Option<String>,
    /// Form of the log on stderr; human if left out
    pub(super) log_format: Option<LogFormatArg>,
    /// Longest time that a drain may take; 30s if left out
    pub(super) drain_within: Option<Said<DrainWithin>>,
    /// How long delivered events are kept; 7d if left out
    pub(super) retention: Option<Said<Retention>>,
    /// File that holds the process's number while it runs
    pub(super) pid_file: Option<PathBuf>,
    /// File that is there, and was touched within the last 10 seconds, while all stores take the relay's beats
    pub(super) health_file: Option<PathBuf>,
    /// Stores, by a name of this file; for several of them, instead of the key store
    #[schemars(with = "BTreeMap<String, StoreKeys>")]
    stores: IgnoredAny,
    /// Where events go, by a name of this file
    #[schemars(with = "BTreeMap<String, super::sink::SinkKeys>")]
    sinks: IgnoredAny,
    /// Subscriptions to deliver, by their names in the store
    #[schemars(with = "BTreeMap<String, SubscriptionKeys>")]
    subscriptions: IgnoredAny,
}

/// A store.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StoreKeys {
    /// sqlite://PATH, postgres://USER@HOST/DATABASE, or where that is written: env:NAME or file:/PATH
    #[schemars(required)]
    pub(super) url: Option<String>,
    /// Where events are read, unless a subscription says otherwise; poll if left out
    pub(super) source: Option<SourceArg>,
    /// How much of its write-ahead log the server may keep for a slot: 512MB; 10GB if left out
    pub(super) wal_budget: Option<Said<WalBudget>>,
    /// What to do if it keeps more; alarm if left out
    pub(super) over_budget: Option<OverBudgetArg>,
    /// Whether the server tells of large transactions while they are open, instead of keeping them on its
    /// disk; false if left out
    pub(super) wal_streaming: Option<bool>,
}

impl StoreKeys {
    /// How its events are read.
    pub(super) fn source(&self) -> SourceArgs {
        let unless_said = SourceArgs::from(self.source.unwrap_or_default());
        SourceArgs {
            wal_budget: self.wal_budget.as_ref().map_or(unless_said.wal_budget, |budget| budget.0.0),
            over_budget: self.over_budget.unwrap_or(unless_said.over_budget),
            wal_streaming: self.wal_streaming.unwrap_or(unless_said.wal_streaming),
            ..unless_said
        }
    }
}

/// A subscription and where its events go. It is created if it is absent; for one that exists, what is left
/// out stays as it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SubscriptionKeys {
    /// Name of the sink that gets its events
    #[schemars(required)]
    pub(super) sink: Option<String>,
    /// Name of the store that it is in; not needed if there is one store
    pub(super) store: Option<String>,
    /// Only events of topics like these, with * for any text
    pub(super) topics: Several<Pattern>,
    /// Only events of types like these, with * for any text
    pub(super) types: Several<Pattern>,
    /// Where it begins when it is created: start, now, a time or an event's id; start if left out
    pub(super) from: Option<Said<Start>>,
    /// How progress is kept; log if left out
    pub(super) mode: Option<ModeArg>,
    /// Where events are read: poll in their table, wal in the server's write-ahead log, and in the table
    /// whenever that cannot be
    pub(super) source: Option<SourceArg>,
    /// Whether events of one key wait for each other; key if left out
    pub(super) order: Option<OrderArg>,
    /// What later events of a key do when one becomes a dead letter; skip if left out
    pub(super) on_dead: Option<OnDeadArg>,
    /// When a failed event is attempted again: fixed:5s, exponential:1s..10m or schedule:1s,10s,1m
    pub(super) retry: Option<Said<RetryPolicy>>,
    /// How many attempts an event gets, the first included; 20 if left out
    pub(super) attempts: Option<UpTo<{ limits::ATTEMPTS_MAX }>>,
    /// Whether all relays of this subscription share its work, or one does all and the others stand by; many
    /// if left out
    pub(super) members: Option<MembersArg>,
    /// How many attempts run at a time in each member; 16 if left out
    pub(super) concurrency: Option<UpTo<{ limits::CONCURRENCY_MAX }>>,
    /// How long one attempt may take; 1m if left out
    pub(super) timeout: Option<Said<Length>>,
    /// Events that its sink gets in one batch at the most
    pub(super) batch_events: Option<UpTo<{ limits::BATCH_EVENTS_MAX as u32 }>>,
    /// Makes batches as large as the sink deals with in this time; batch_events is then the most they may have
    pub(super) latency_goal: Option<Said<Length>>,
    /// In mode queue, how long a worker that says nothing is believed to work; 8s if left out
    pub(super) lease: Option<Said<Length>>,
    /// In mode queue, what one lease is for; block if left out
    pub(super) lease_by: Option<LeaseByArg>,
    /// In mode queue, who shares evenly: nobody, key, topic or header:NAME
    pub(super) fair: Option<Said<Fair>>,
    /// In mode queue, how many events all members together may have in their hands
    pub(super) total: Option<UpTo<{ u32::MAX }>>,
    /// In mode queue with order none, how many events of one key all members together may have in their hands
    pub(super) per_key: Option<UpTo<{ limits::PER_KEY_MAX }>>,
    /// In mode queue, how many events all members together may begin in a second: 100/s or 100/s,burst=20
    pub(super) rate: Option<Said<Rate>>,
}

impl SubscriptionKeys {
    /// The same as it would be typed on the command line.
    pub(super) fn settings(&self) -> SubscriptionArgs {
        SubscriptionArgs {
            topics: self.topics.0.clone(),
            types: self.types.0.clone(),
            from: self.from.as_ref().map(|from| from.0),
            mode: self.mode,
            order: self.order,
            on_dead: self.on_dead,
            retry: self.retry.as_ref().map(|retry| retry.0.clone()),
            attempts: self.attempts.map(|attempts| attempts.0),
            members: self.members,
            concurrency: self.concurrency.map(|concurrency| concurrency.0),
            timeout: self.timeout.as_ref().map(|timeout| timeout.0.0),
            lease: self.lease.as_ref().map(|lease| lease.0.0),
            lease_by: self.lease_by,
            fair: self.fair.as_ref().map(|fair| fair.0.clone()),
            total: self.total.map(|total| total.0),
            per_key: self.per_key.map(|per_key| per_key.0),
            rate: self.rate.as_ref().map(|rate| rate.0),
        }
    }
}
