//! What a plan would create or change, and what would keep it from working. Nothing is changed by looking.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use postrider_core::time::format_duration;
use postrider_core::{Error, ErrorKind, Result, Store, Tuning};
use serde::Serialize;

use super::plan::{Plan, StoreSpec};
use crate::args::SubscriptionArgs;
use crate::commands::subscription::{Intended, intended};
use crate::commands::{Absent, FirstLook};
use crate::exit;
use crate::output::{Page, Role, View};
use crate::store_url;

/// How long a sink may take to say whether it would work.
const SINK_CHECK_WITHIN: Duration = Duration::from_secs(15);

/// What would become of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub(crate) enum Outlook {
    /// It is as it should be.
    None,
    /// It is not there yet.
    Create,
    /// Its tuning would change.
    Tune { tuning: Vec<String> },
}

/// What would become of a subscription; an error if it cannot be what is wanted.
pub(crate) async fn subscription<S: Store>(
    store: &S,
    name: &str,
    settings: &SubscriptionArgs,
) -> Result<Outlook> {
    Ok(match intended(store, name, settings).await? {
        Intended::New(new) => {
            new.check()?;
            Outlook::Create
        }
        Intended::Existing { wanted, existing } if wanted.tuning == existing.tuning => Outlook::None,
        Intended::Existing { wanted, existing } => {
            Outlook::Tune { tuning: differences(&existing.tuning, &wanted.tuning) }
        }
    })
}

/// What differs, each as `name before → after`.
fn differences(before: &Tuning, after: &Tuning) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |name: &str, before: String, after: String| {
        if before != after {
            differences.push(format!("{name} {before} → {after}"));
        }
    };
    compare("retry", before.retry.to_string(), after.retry.to_string());
    compare("attempts", before.retry.attempts().to_string(), after.retry.attempts().to_string());
    compare("members", word(before.members), word(after.members));
    compare("concurrency", before.concurrency.to_string(), after.concurrency.to_string());
    compare("timeout", format_duration(before.timeout), format_duration(after.timeout));
    let (before, after) = (&before.queue, &after.queue);
    compare("lease", format_duration(before.lease), format_duration(after.lease));
    compare("lease_by", word(before.lease_by), word(after.lease_by));
    compare("fair", word(&before.fair), word(&after.fair));
    compare("total", word(before.total), word(after.total));
    compare("per_key", word(before.per_key), word(after.per_key));
    compare("rate", word(before.rate), word(after.rate));
    differences
}

/// A setting as it is stored.
fn word(setting: impl Serialize) -> String {
    match serde_json::to_value(setting) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(serde_json::Value::Null) => "none".to_owned(),
        Ok(value) => value.to_string(),
        Err(_) => "?".to_owned(),
    }
}

/// Looks at every store and sink of a plan.
pub(crate) async fn look(plan: &Plan) -> Report {
    let mut report = Report::default();
    for spec in plan.stores() {
        look_at_store(plan, &spec, &mut report).await;
    }
    let mut sinks = BTreeMap::new();
    for route in plan.routes.values() {
        let name = route.sink_name.clone().unwrap_or_else(|| route.sink.kind().to_owned());
        sinks.entry(name).or_insert(&route.sink);
    }
    for (name, sink) in sinks {
        let (findings, problem) = match tokio::time::timeout(SINK_CHECK_WITHIN, sink.check()).await {
            Ok(Ok(findings)) => (findings, None),
            Ok(Err(error)) => (Vec::new(), Some(told(&error))),
            Err(_) => (Vec::new(), Some(format!("it says nothing within {} s", SINK_CHECK_WITHIN.as_secs()))),
        };
        report.sinks.push(SinkLine { name, sink: sink.to_string(), findings, problem });
    }
    report
}

async fn look_at_store(plan: &Plan, spec: &StoreSpec, report: &mut Report) {
    let opened = store_url::open(spec, Absent::Refuse, FirstLook::Brief).await;
    let routes = plan.routes.iter().filter(|(_, route)| route.store == *spec);
    let mut line = StoreLine { store: spec.to_string(), found: true, problem: None };
    let store = match opened {
        Ok(store) => Some(store),
        Err(error) if would_be_made(&error) => {
            line.found = false;
            None
        }
        Err(error) => {
            line.problem = Some(told(&error));
            report.stores.push(line);
            return;
        }
    };
    report.stores.push(line);
    for (name, route) in routes {
        let outlook = match &store {
            Some(store) => store.outlook(name, &route.settings).await,
            None => Ok(Outlook::Create),
        };
        let (outlook, problem) = match outlook {
            Ok(outlook) => (Some(outlook), None),
            Err(error) => (None, Some(told(&error))),
        };
        let sink = route.sink_name.clone().unwrap_or_else(|| route.sink.to_string());
        let line = SubscriptionLine { name: name.clone(), store: spec.to_string(), sink, outlook, problem };
        report.subscriptions.push(line);
    }
    if let Some(store) = store {
        store.close().await;
    }
}

/// Whether a store is missing that a relay would make or migrate. A folder or a database it would not make, and there
/// stores give other advice.
fn would_be_made(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && error.to_string().contains("`postrider store migrate`")
}

fn told(error: &Error) -> String {
    crate::output::chain(error)
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    stores: Vec<StoreLine>,
    subscriptions: Vec<SubscriptionLine>,
    sinks: Vec<SinkLine>,
}

#[derive(Debug, Serialize)]
struct StoreLine {
    store: String,
    /// Whether it is there, with a schema of this version.
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct SubscriptionLine {
    name: String,
    store: String,
    sink: String,
    #[serde(flatten)]
    outlook: Option<Outlook>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct SinkLine {
    name: String,
    sink: String,
    findings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Report {
    /// The code with which a check ends.
    pub(crate) fn exit_code(&self) -> u8 {
        let problems = self.stores.iter().map(|line| &line.problem);
        let problems = problems.chain(self.subscriptions.iter().map(|line| &line.problem));
        let problems = problems.chain(self.sinks.iter().map(|line| &line.problem));
        if problems.flatten().next().is_none() { exit::OK } else { exit::FINDINGS }
    }
}

impl View for Report {
    fn human(&self, page: &Page) -> String {
        let mut text = String::new();
        let mut line = |what: &str, name: &str, then: String, problem: Option<&String>| {
            let (role, then) = match problem {
                Some(problem) => (Role::Bad, format!("PROBLEM: {problem}")),
                None => (Role::Good, then),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{} {}: {}",
                page.paint(Role::Heading, what),
                page.paint(Role::Heading, name),
                page.paint(role, &then)
            );
        };
        for store in &self.stores {
            let then = if store.found { "answers" } else { "would be created or migrated" };
            line("store", &store.store, then.to_owned(), store.problem.as_ref());
        }
        for subscription in &self.subscriptions {
            let then = match &subscription.outlook {
                Some(Outlook::Create) => format!("would be created, to sink {}", subscription.sink),
                Some(Outlook::Tune { tuning }) => format!("would be tuned: {}", tuning.join(", ")),
                _ => format!("stays as it is, to sink {}", subscription.sink),
            };
            line("subscription", &subscription.name, then, subscription.problem.as_ref());
        }
        for sink in &self.sinks {
            let then = format!("{}: {}", sink.sink, sink.findings.join("; "));
            line("sink", &sink.name, then, sink.problem.as_ref());
        }
        text
    }
}
