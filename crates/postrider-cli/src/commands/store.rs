//! `postrider store`.

use std::fmt::Write as _;
use std::time::Duration;

use postrider_core::store::Wake;
use postrider_core::{Result, Store};
use postrider_postgres::Adopted;
use serde::Serialize;

use super::Context;
use crate::args::StoreCommand;
use crate::output::{Cell, Column, Page, Role, View};
use crate::progress::Progress;
use crate::{exit, text};

/// Runs one of the verbs.
pub(crate) async fn run<S: Store>(store: &S, command: StoreCommand, context: &Context<'_>) -> Result<u8> {
    match command {
        // Opening the store has migrated it; the SQL itself is printed without opening one.
        StoreCommand::Migrate { .. } => {
            let report = store.stats().await?;
            let migrated = Migrated {
                store_id: report.store_id,
                location: report.location,
                schema_version: report.schema_version,
            };
            context.output.show(&migrated).map(|()| exit::OK)
        }
        StoreCommand::Roles { .. }
        | StoreCommand::Wake { .. }
        | StoreCommand::Adopt
        | StoreCommand::Source(_)
        | StoreCommand::Outbox(_) => {
            unreachable!("the place that knows PostgreSQL has done it")
        }
        StoreCommand::Check => {
            let checked = Checked { findings: store.check().await? };
            context.output.show(&checked)?;
            Ok(if checked.findings.is_empty() { exit::OK } else { exit::FINDINGS })
        }
        StoreCommand::Prune { retention } => {
            let pruned = prune(store, retention, context).await?;
            context.output.show(&pruned).map(|()| exit::OK)
        }
    }
}

async fn prune<S: Store>(store: &S, retention: Duration, context: &Context<'_>) -> Result<Pruned> {
    let progress = Progress::new(context.output, None);
    let mut removed = 0;
    loop {
        let bite = store.prune(retention).await?;
        removed += bite.removed;
        progress.advance(bite.removed);
        if !bite.more || bite.removed == 0 {
            return Ok(Pruned { removed, pinned_by: bite.pinned_by });
        }
    }
}

/// The statements that make a store.
#[derive(Debug, Serialize)]
pub(crate) struct Script {
    pub(crate) sql: String,
}

impl View for Script {
    fn human(&self, _page: &Page) -> String {
        self.sql.clone()
    }
}

/// The roles of a store.
#[derive(Debug, Serialize)]
pub(crate) struct RolesView {
    pub(crate) roles: Vec<RoleView>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(crate) struct RoleView {
    pub(crate) name: String,
    pub(crate) purpose: &'static str,
}

impl View for RolesView {
    fn human(&self, page: &Page) -> String {
        let mut table = page.table([Column::left("ROLE"), Column::left("WHAT IT DOES")]);
        for role in &self.roles {
            table.row([Cell::new(&role.name), Cell::new(role.purpose)]);
        }
        table.finish()
    }
}

/// What an adoption did; nothing if the store was at home.
#[derive(Debug, Serialize)]
pub(crate) struct AdoptedView {
    adopted: bool,
    store_id: Option<String>,
    events: u64,
    sequence_to: Option<i64>,
}

impl AdoptedView {
    pub(crate) fn new(adopted: Option<Adopted>) -> Self {
        Self {
            adopted: adopted.is_some(),
            events: adopted.as_ref().map_or(0, |adopted| adopted.events),
            sequence_to: adopted.as_ref().and_then(|adopted| adopted.sequence_to),
            store_id: adopted.map(|adopted| adopted.store_id),
        }
    }
}

impl View for AdoptedView {
    fn human(&self, page: &Page) -> String {
        let Some(store_id) = &self.store_id else {
            return "the store is at home on this server: there was nothing to do\n".to_owned();
        };
        let mut text = format!(
            "{} the store, now {store_id}: {} renumbered; relays and producers can go on\n",
            page.paint(Role::Good, "adopted"),
            text::counted(self.events, "event"),
        );
        if let Some(last) = self.sequence_to {
            let _ = writeln!(
                text,
                "the sequence of ids had not been restored and goes on behind {last}; events that were emitted here before \
                 may be delivered again"
            );
        }
        text
    }
}

/// How relays at rest learn of new events from now on.
#[derive(Debug, Serialize)]
pub(crate) struct WakeView {
    pub(crate) wake: Wake,
}

impl View for WakeView {
    fn human(&self, page: &Page) -> String {
        let meaning = match self.wake {
            Wake::Poll => "relays at rest look for new events ten times a second",
            Wake::Notify => "relays at rest are woken by the first producer that commits",
        };
        format!("{}: {meaning}\n", page.paint(Role::Heading, self.wake.word()))
    }
}

#[derive(Debug, Serialize)]
struct Migrated {
    store_id: String,
    location: String,
    schema_version: u32,
}

impl View for Migrated {
    fn human(&self, page: &Page) -> String {
        let location = page.paint(Role::Heading, &self.location);
        format!("{location} is at schema version {}\n", self.schema_version)
    }
}

#[derive(Debug, Serialize)]
struct Checked {
    findings: Vec<String>,
}

impl View for Checked {
    fn human(&self, page: &Page) -> String {
        if self.findings.is_empty() {
            return page.paint(Role::Good, "no damage found") + "\n";
        }
        let heading = format!("{} found", text::counted(self.findings.len() as u64, "problem"));
        let mut text = page.paint(Role::Bad, &heading) + "\n";
        for finding in &self.findings {
            text.push_str("- ");
            text.push_str(&text::escape(finding));
            text.push('\n');
        }
        text
    }
}

#[derive(Debug, Serialize)]
struct Pruned {
    removed: u64,
    pinned_by: Option<String>,
}

impl View for Pruned {
    fn human(&self, page: &Page) -> String {
        let removed = format!("removed {}\n", text::counted(self.removed, "event"));
        match &self.pinned_by {
            None => removed,
            Some(name) => format!(
                "{removed}older events stay for {}, which has not delivered them yet\n",
                page.paint(Role::Waits, name)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn human(view: &impl View) -> String {
        view.human(&Page::plain("2026-11-15T08:30:00Z".parse().unwrap()))
    }

    #[test]
    fn results_for_people() {
        assert_eq!(human(&Checked { findings: Vec::new() }), "no damage found\n");
        assert_eq!(
            human(&Checked { findings: vec!["page 3: \x1b[2J".to_owned(), "row 7".to_owned()] }),
            "2 problems found\n- page 3: \\u{1b}[2J\n- row 7\n"
        );
        assert_eq!(
            human(&WakeView { wake: Wake::Notify }),
            "notify: relays at rest are woken by the first producer that commits\n"
        );
        assert_eq!(human(&Pruned { removed: 1, pinned_by: None }), "removed 1 event\n");
        assert_eq!(
            human(&Pruned { removed: 0, pinned_by: Some("audit".to_owned()) }),
            "removed 0 events\nolder events stay for audit, which has not delivered them yet\n"
        );
    }
}
