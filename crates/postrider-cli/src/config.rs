//! The config of a relay: a TOML file, environment variables over it, and options of the command line over both.
//!
//! | file | question it answers |
//! |---|---|
//! | `keys`, `values`, `sink` | what can be written? |
//! | `document` | what is written where, and what is all wrong with it? |
//! | `environment` | which variables are keys? |
//! | `problem` | how is a mistake told? |
//! | `schema` | how do editors know the keys? |
//!
//! A config is read as a whole: either everything in it is right, or all mistakes are told and nothing begins. What is
//! wrong is told with its place and without its value, which may be a secret.

mod document;
mod environment;
mod keys;
mod problem;
mod schema;
mod sink;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use postrider_sinks::{Secret, SinkSpec};
use toml::Spanned;

pub(crate) use problem::{Problem, Problems};
pub(crate) use schema::schema;

use self::document::{Document, Table};
use self::keys::{FileKeys, StoreKeys, SubscriptionKeys};
use self::problem::did_you_mean;
use crate::args::{
    DRAIN_WITHIN_DEFAULT, GlobalArgs, RETENTION_DEFAULT, RelayArgs, STORE_DEFAULT, SourceArgs,
};
use crate::commands::relay::{Ends, Plan, Route, StoreSpec};
use crate::commands::subscription;

/// Where a config is, and what was typed beside it. It can be read again.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    path: PathBuf,
    store: Option<String>,
    once: bool,
    drain_within: Option<Duration>,
    retention: Option<Duration>,
    pid_file: Option<PathBuf>,
}

impl Source {
    /// As it was typed; none if no file was named.
    pub(crate) fn typed(args: &RelayArgs, global: &GlobalArgs) -> Option<Self> {
        Some(Self {
            path: args.config.clone()?,
            store: global.store.clone(),
            once: args.once,
            drain_within: args.drain_within,
            retention: args.retention,
            pid_file: args.pid.clone(),
        })
    }

    /// Reads the file and this process's environment.
    pub(crate) fn read(&self) -> Result<Plan> {
        let text = read_file(&self.path)?;
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        self.understand(&text, environment).map_err(|problems| {
            let count = problems.0.len();
            let what = if count == 1 { "a mistake".to_owned() } else { format!("{count} mistakes") };
            Error::invalid(format!("`{}` has {what}", self.path.display())).with_source(problems)
        })
    }

    fn understand(
        &self,
        text: &str,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Plan, Problems> {
        let variables = environment::variables(environment, &keys::TOP);
        let mut document = Document::parse(&self.path.display().to_string(), text)?;
        document.put_variables(&variables);
        let top = document.top();
        let keys = document.read::<FileKeys>(&top).unwrap_or_default();
        let mut reader = Reader { stores: BTreeMap::new(), sinks: BTreeMap::new(), document };
        reader.read_stores(self.store.as_ref().or(keys.store.as_ref()), self.store.is_some());
        reader.read_sinks();
        let routes = reader.read_subscriptions();
        reader.document.is_sound()?;
        Ok(Plan {
            routes,
            ends: Ends::once(self.once),
            drain_within: self
                .drain_within
                .or(keys.drain_within.map(|said| said.0.0))
                .unwrap_or(DRAIN_WITHIN_DEFAULT),
            retention: self.retention.or(keys.retention.map(|said| said.0.0)).unwrap_or(RETENTION_DEFAULT),
            pid_file: self.pid_file.clone().or(keys.pid_file),
            health_file: keys.health_file,
            log_format: keys.log_format,
        })
    }
}

fn read_file(path: &Path) -> Result<String> {
    /// A config of thousands of subscriptions fits.
    const BYTES_MAX: u64 = 8 * 1024 * 1024;
    let shown = path.display();
    let size = std::fs::metadata(path).map(|found| found.len());
    if size.as_ref().is_ok_and(|size| *size > BYTES_MAX) {
        return Err(Error::invalid(format!("`{shown}` has more than {BYTES_MAX} bytes: it is no config")));
    }
    std::fs::read_to_string(path).map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Invalid,
        };
        Error::new(kind, format!("cannot read the config `{shown}`")).with_source(error)
    })
}

/// What has been understood so far.
struct Reader<'t> {
    document: Document<'t>,
    /// By name; none if what is written of it is wrong. The store of the key `store` has no name.
    stores: BTreeMap<Option<String>, Option<(String, SourceArgs)>>,
    sinks: BTreeMap<String, Option<SinkSpec>>,
}

impl<'t> Reader<'t> {
    /// The key `store` and the tables `stores`.
    fn read_stores(&mut self, store: Option<&String>, typed: bool) {
        for (name, table) in self.document.section("stores") {
            let keys = self.document.read::<StoreKeys>(&table).unwrap_or_default();
            let source = keys.source();
            let url = self.required(&table, "url", keys.url, "a store");
            let url = url.and_then(|url| self.store_url(&url, source, &at(&table, "url")));
            self.stores.insert(Some(name.into_inner()), url.map(|url| (url, source)));
        }
        let at = if typed { 0..0 } else { at(&self.document.top(), "store") };
        let url = match store {
            Some(url) => Some(url.clone()),
            None if self.stores.is_empty() => Some(STORE_DEFAULT.to_owned()),
            None => None,
        };
        if let Some(url) = url {
            let source = SourceArgs::default();
            let url = self.store_url(&url, source, &at);
            self.stores.insert(None, url.map(|url| (url, source)));
        }
    }

    /// The URL itself, read from where it is; none, with a mistake noted, if it names no store.
    fn store_url(&mut self, written: &str, source: SourceArgs, at: &Range<usize>) -> Option<String> {
        let read = written.parse::<Secret>().and_then(|secret| secret.read());
        let checked =
            read.and_then(|url| StoreSpec::new(url.expose(), source).map(|_| url.expose().to_owned()));
        checked.map_err(|error| self.document.problem(at.clone(), error.to_string(), None)).ok()
    }

    fn read_sinks(&mut self) {
        for (name, table) in self.document.section("sinks") {
            let spec = sink::read(&mut self.document, &table);
            self.sinks.insert(name.into_inner(), spec);
        }
    }

    fn read_subscriptions(&mut self) -> BTreeMap<String, Route> {
        let mut routes = BTreeMap::new();
        let mut used = BTreeSet::new();
        let subscriptions = self.document.section("subscriptions");
        if subscriptions.is_empty() {
            let hint = "write [subscriptions.NAME] with a sink".to_owned();
            self.document.problem(0..0, "there is no subscription to deliver", Some(hint));
        }
        for (name, table) in subscriptions {
            let keys = self.document.read::<SubscriptionKeys>(&table).unwrap_or_default();
            let settings = keys.settings();
            if let Err(error) = subscription::new_subscription(name.get_ref(), &settings).check() {
                self.document.problem(name.span(), error.to_string(), None);
            }
            let store = self.store_of(&name, &table, &keys);
            let sink = self.sink_of(&table, keys.sink);
            used.extend(sink.as_ref().map(|(name, _)| name.clone()));
            let (Some(store), Some((sink_name, Some(sink)))) = (store, sink) else { continue };
            let batch_events = keys.batch_events.map(|events| events.0 as usize);
            let latency_goal = keys.latency_goal.map(|goal| goal.0.0);
            let route =
                Route { store, settings, sink_name: Some(sink_name), sink, batch_events, latency_goal };
            routes.insert(name.into_inner(), route);
        }
        routes
    }

    /// The store that a subscription is in.
    fn store_of(
        &mut self,
        name: &Spanned<String>,
        table: &Table<'t>,
        keys: &SubscriptionKeys,
    ) -> Option<StoreSpec> {
        let named = keys.store.clone();
        let found = match &named {
            Some(_) => self.stores.get(&named),
            None => self
                .stores
                .get(&None)
                .or_else(|| self.stores.values().next().filter(|_| self.stores.len() == 1)),
        };
        let Some(found) = found.cloned() else {
            self.no_store(name, table, named);
            return None;
        };
        let (url, source) = found?;
        let source = SourceArgs { source: keys.source.unwrap_or(source.source), ..source };
        let spec = StoreSpec::new(&url, source);
        let at = at(table, "source");
        spec.map_err(|error| self.document.problem(at, error.to_string(), None)).ok()
    }

    /// Notes that a subscription is in no store that there is.
    fn no_store(&mut self, name: &Spanned<String>, table: &Table<'t>, named: Option<String>) {
        let known: Vec<&str> = self.stores.keys().flatten().map(String::as_str).collect();
        let (at, message, hint) = match named {
            Some(written) => (
                at(table, "store"),
                format!("there is no store `{written}`"),
                did_you_mean(&written, known.iter().copied())
                    .unwrap_or_else(|| format!("write [stores.{written}]")),
            ),
            None => (
                name.span(),
                "it does not say in which store it is".to_owned(),
                format!("write store = \"{}\"", known.first().unwrap_or(&"NAME")),
            ),
        };
        self.document.problem(at, message, Some(hint));
    }

    /// The sink that gets a subscription's events: its name, and what it is unless that is wrong.
    fn sink_of(&mut self, table: &Table<'t>, written: Option<String>) -> Option<(String, Option<SinkSpec>)> {
        let written = self.required(table, "sink", written, "a subscription")?;
        if let Some(found) = self.sinks.get(&written) {
            return Some((written, found.clone()));
        }
        let hint = did_you_mean(&written, self.sinks.keys().map(String::as_str))
            .unwrap_or_else(|| format!("write [sinks.{written}]"));
        self.document.problem(at(table, "sink"), format!("there is no sink `{written}`"), Some(hint));
        None
    }

    /// A key that must be there. One that is there and wrong was told before.
    fn required(
        &mut self,
        table: &Table<'t>,
        key: &str,
        value: Option<String>,
        what: &str,
    ) -> Option<String> {
        if value.is_none() && !table.get_ref().contains_key(key) {
            self.document.problem(
                table.span(),
                format!("the key `{key}` is missing"),
                Some(format!("{what} needs it")),
            );
        }
        value
    }
}

/// Where a key's value stands; the table's heading if it is not there.
fn at(table: &Table<'_>, key: &str) -> Range<usize> {
    table.get_ref().get(key).map_or_else(|| table.span(), Spanned::span)
}
