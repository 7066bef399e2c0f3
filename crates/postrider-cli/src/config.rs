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
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use postrider_sinks::SinkSpec;
use toml::Spanned;

pub(crate) use problem::Problems;
pub(crate) use schema::schema;

use self::document::{Document, Table};
use self::keys::{FileKeys, StoreKeys, SubscriptionKeys};
use self::problem::did_you_mean;
use crate::args::{
    DRAIN_WITHIN_DEFAULT, GlobalArgs, RETENTION_DEFAULT, RelayArgs, STORE_DEFAULT, SourceArgs,
};
use crate::commands::relay::{Ends, Plan, Route, StoreSpec};
use crate::commands::subscription;
use crate::store_url::url_of;

/// Where a config is, and what was typed beside it. It can be read again.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    path: PathBuf,
    store: Option<String>,
    store_from: StoreFrom,
    once: bool,
    drain_within: Option<Duration>,
    retention: Option<Duration>,
    pid_file: Option<PathBuf>,
}

/// Who named a store beside the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreFrom {
    /// `--store`: that is meant for this file.
    Typed,
    /// `POSTRIDER_STORE`, which may be set for other commands.
    Environment,
}

impl StoreFrom {
    fn of_this_process() -> Self {
        let is_option = |word: std::ffi::OsString| {
            word == "--store" || word.to_str().is_some_and(|word| word.starts_with("--store="))
        };
        if std::env::args_os().any(is_option) { Self::Typed } else { Self::Environment }
    }
}

impl Source {
    /// As it was typed; none if no file was named.
    pub(crate) fn typed(args: &RelayArgs, global: &GlobalArgs) -> Option<Self> {
        Some(Self {
            path: args.config.clone()?,
            store: global.store.clone(),
            store_from: StoreFrom::of_this_process(),
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
            let what = match problems.told.len() {
                1 => "a mistake".to_owned(),
                count if problems.more => format!("{count} mistakes or more"),
                count => format!("{count} mistakes"),
            };
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
        let is_set = self.store.is_some() && self.store_from == StoreFrom::Environment;
        let mut reader = Reader { stores: BTreeMap::new(), sinks: BTreeMap::new(), document, is_set };
        reader.read_stores(self.store.as_ref().or(keys.store.as_ref()), self.store.is_some());
        reader.read_sinks();
        let routes = reader.read_subscriptions();
        let log_format = keys.log_format;
        reader.document.is_sound().map_err(|problems| Problems { log_format, ..problems })?;
        let takes_over = is_set && keys.store.as_ref().is_some_and(|key| Some(key) != self.store.as_ref());
        let takes_over =
            takes_over.then(|| "POSTRIDER_STORE is used instead of the file's key `store`".to_owned());
        Ok(Plan {
            warnings: takes_over.into_iter().collect(),
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

/// Reads a config, of which there is so much and no more. A device never ends, and a pipe may never begin;
/// `/dev/null` stands for a config that the environment has all of.
fn read_file(path: &Path) -> Result<String> {
    /// A config of thousands of subscriptions fits.
    const BYTES_MAX: u64 = 1024 * 1024;
    let shown = path.display();
    if path == Path::new("/dev/null") {
        return Ok(String::new());
    }
    let read = || {
        let mut text = String::new();
        let found = std::fs::metadata(path)?;
        if !found.is_file() {
            return Err(std::io::Error::other("it is not a file"));
        }
        std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Invalid,
        };
        Error::new(kind, format!("cannot read the config `{shown}`")).with_source(error)
    })?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Error::invalid(format!("`{shown}` has more than {BYTES_MAX} bytes: it is no config")));
    }
    Ok(text)
}

/// What has been understood so far.
struct Reader<'t> {
    document: Document<'t>,
    /// By name; none if what is written of it is wrong. The store of the key `store` has no name.
    stores: BTreeMap<Option<String>, Option<(String, SourceArgs)>>,
    sinks: BTreeMap<String, Option<SinkSpec>>,
    /// Whether the store without a name comes from the environment.
    is_set: bool,
}

impl<'t> Reader<'t> {
    /// The key `store` and the tables `stores`.
    fn read_stores(&mut self, store: Option<&String>, typed: bool) {
        for (name, table) in self.document.section("stores") {
            if self.document.is_full() {
                return;
            }
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
        let checked = url_of(written).and_then(|url| StoreSpec::new(&url, source).map(|_| url));
        checked.map_err(|error| self.document.problem(at.clone(), error.to_string(), None)).ok()
    }

    fn read_sinks(&mut self) {
        for (name, table) in self.document.section("sinks") {
            if self.document.is_full() {
                return;
            }
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
            if self.document.is_full() {
                break;
            }
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
            None if self.is_set && self.stores.len() > 1 => return self.store_set(name, keys),
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

    /// The store of a subscription that names none, where the file has stores of its own and the environment
    /// names one too. That may be meant for other commands, so it counts only if it is the store that the
    /// file would have chosen.
    fn store_set(&mut self, name: &Spanned<String>, keys: &SubscriptionKeys) -> Option<StoreSpec> {
        let set = self.stores.get(&None).cloned().flatten().map(|(url, _)| url);
        let others: Vec<_> =
            self.stores.iter().filter_map(|(name, store)| Some((name.as_ref()?, store))).collect();
        let chosen = match others.as_slice() {
            [(_, Some((url, source)))] if Some(url) == set.as_ref() => Some((url.clone(), *source)),
            _ => None,
        };
        let Some((url, source)) = chosen else {
            let known = others.first().map_or("NAME", |(name, _)| name.as_str());
            let message = format!(
                "POSTRIDER_STORE names another store than [stores.{known}], and this does not say in which it is"
            );
            let hint = format!("write store = \"{known}\", or unset POSTRIDER_STORE");
            self.document.problem(name.span(), message, Some(hint));
            return None;
        };
        StoreSpec::new(&url, SourceArgs { source: keys.source.unwrap_or(source.source), ..source }).ok()
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
