//! What a relay is to do, read and checked: the same whether it was typed or is written in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Error, Result};
use postrider_sinks::SinkSpec;

use crate::args::{
    DRAIN_WITHIN_DEFAULT, GlobalArgs, LogFormatArg, RETENTION_DEFAULT, RelayArgs, SourceArg, SourceArgs,
    SubscriptionArgs,
};
use crate::commands::subscription;
use crate::store_url::{StoreUrl, url_of};

/// What a relay is to do.
#[derive(Clone)]
pub(crate) struct Plan {
    /// By subscription.
    pub(crate) routes: BTreeMap<String, Route>,
    pub(crate) ends: Ends,
    pub(crate) drain_within: Duration,
    pub(crate) retention: Duration,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) health_file: Option<PathBuf>,
    pub(crate) log_format: Option<LogFormatArg>,
    /// What may not be as it was meant.
    pub(crate) warnings: Vec<String>,
}

/// A subscription, the store that it is in, and the sink that gets its events.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) store: StoreSpec,
    pub(crate) settings: SubscriptionArgs,
    /// What the sink is called in the file.
    pub(crate) sink_name: Option<String>,
    pub(crate) sink: SinkSpec,
    pub(crate) batch_events: Option<usize>,
    pub(crate) latency_goal: Option<Duration>,
}

/// A store and how its log is read. The URL may hold a password; what is shown is what the store's own options show.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoreSpec {
    url: String,
    pub(crate) source: SourceArgs,
}

/// When a relay ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Never,
    WhenIdle,
}

impl Ends {
    pub(crate) fn once(once: bool) -> Self {
        if once { Self::WhenIdle } else { Self::Never }
    }
}

impl Plan {
    /// What was typed.
    pub(crate) fn typed(args: RelayArgs, global: &GlobalArgs) -> Result<Self> {
        let (Some(name), Some(sink)) = (args.subscription, args.sink) else {
            return Err(Error::invalid("name a subscription and a sink, or a config file"));
        };
        subscription::new_subscription(&name, &args.settings).check()?;
        let store = StoreSpec::new(&url_of(global.store_url())?, args.source)?;
        let route = Route {
            store,
            settings: args.settings,
            sink_name: None,
            sink: SinkSpec::from_argument(&sink)?,
            batch_events: None,
            latency_goal: None,
        };
        Ok(Self {
            ends: Ends::once(args.once),
            drain_within: args.drain_within.unwrap_or(DRAIN_WITHIN_DEFAULT),
            retention: args.retention.unwrap_or(RETENTION_DEFAULT),
            pid_file: args.pid,
            ..Self::of(name, route)
        })
    }

    /// One route, and nothing else that is out of the ordinary.
    pub(crate) fn of(subscription: String, route: Route) -> Self {
        Self {
            routes: BTreeMap::from([(subscription, route)]),
            ends: Ends::Never,
            drain_within: DRAIN_WITHIN_DEFAULT,
            retention: RETENTION_DEFAULT,
            pid_file: None,
            health_file: None,
            log_format: None,
            warnings: Vec::new(),
        }
    }

    /// The stores that some route needs.
    pub(crate) fn stores(&self) -> BTreeSet<StoreSpec> {
        self.routes.values().map(|route| route.store.clone()).collect()
    }

    /// Whether events go to standard output, where then nothing else goes.
    pub(crate) fn uses_stdout(&self) -> bool {
        self.routes.values().any(|route| route.sink.is_stdout())
    }
}

impl StoreSpec {
    /// Reads a URL, and checks that such a store can be read in this way.
    pub(crate) fn new(url: &str, source: impl Into<SourceArgs>) -> Result<Self> {
        let (parsed, source) = (StoreUrl::parse(url)?, source.into());
        if matches!(parsed, StoreUrl::Sqlite(_)) && source.source != SourceArg::Poll {
            return Err(Error::invalid(
                "SQLite passes no write-ahead log on: its events are read in their table. Leave the source out",
            ));
        }
        Ok(Self { url: url.to_owned(), source })
    }

    /// The store's URL. It was read before, so that this cannot fail.
    pub(crate) fn url(&self) -> Result<StoreUrl> {
        StoreUrl::parse(&self.url)
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.url() {
            Ok(url) => url.fmt(f),
            Err(_) => f.write_str("a store"),
        }
    }
}

impl fmt::Debug for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} by {:?}", self.source.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_its_password() {
        let spec = StoreSpec::new("postgres://u:hunter2@h/db", SourceArg::Wal).unwrap();
        assert_eq!(format!("{spec} {spec:?}"), "postgres://h/db postgres://h/db by Wal");
        let error = StoreSpec::new("sqlite://p.db", SourceArg::Wal).unwrap_err().to_string();
        assert!(error.contains("Leave the source out"), "{error}");
    }
}
