//! `postrider store source` and `postrider store outbox`: only PostgreSQL has them, so that they are no part
//! of the contract.

use postrider_core::Result;
use postrider_postgres::{Outbox, PostgresStore};
use serde::Serialize;

use super::Context;
use crate::args::{OutboxArgs, OutboxCommand, SourceCommand};
use crate::output::{Page, Role, View};
use crate::{exit, text};

/// Runs one of the verbs of `source`.
pub(crate) async fn source(
    store: &PostgresStore,
    command: SourceCommand,
    context: &Context<'_>,
) -> Result<u8> {
    let SourceCommand::Drop = command;
    let removed = Removed { removed: store.source_drop(&context.actor).await? };
    context.output.show(&removed).map(|()| exit::OK)
}

/// Runs one of the verbs of `outbox`.
pub(crate) async fn outbox(
    store: &PostgresStore,
    command: OutboxCommand,
    context: &Context<'_>,
) -> Result<u8> {
    match command {
        OutboxCommand::Attach(args) => {
            let table = args.table.clone();
            let events = store.outbox_attach(&attached(args), &context.actor).await?;
            context.output.show(&Attached { table, events })?;
        }
        OutboxCommand::Detach { table } => {
            let detached = store.outbox_detach(&table, &context.actor).await?;
            context.output.show(&Detached { table, detached })?;
        }
        OutboxCommand::List => context.output.show(&Tables { tables: store.outbox_list().await? })?,
    }
    Ok(exit::OK)
}

fn attached(args: OutboxArgs) -> Outbox {
    let outbox = Outbox::new(args.table)
        .id(args.id)
        .topic(args.topic)
        .topic_prefix(args.topic_prefix)
        .key(args.key)
        .kind(args.kind)
        .payload(args.payload)
        .existing(args.existing);
    args.headers.into_iter().fold(outbox, Outbox::header)
}

#[derive(Debug, Serialize)]
struct Removed {
    removed: Vec<String>,
}

impl View for Removed {
    fn human(&self, page: &Page) -> String {
        if self.removed.is_empty() {
            return "the store has no slot and no publication: there was nothing to do\n".to_owned();
        }
        let removed = self.removed.join(", ");
        format!("{} {removed}; events are read from the table\n", page.paint(Role::Good, "removed"))
    }
}

#[derive(Debug, Serialize)]
struct Attached {
    table: String,
    events: u64,
}

impl View for Attached {
    fn human(&self, page: &Page) -> String {
        format!(
            "{} {}: its rows become events from now on; {} of the rows that were there\n",
            page.paint(Role::Good, "attached"),
            self.table,
            text::counted(self.events, "event")
        )
    }
}

#[derive(Debug, Serialize)]
struct Detached {
    table: String,
    detached: bool,
}

impl View for Detached {
    fn human(&self, page: &Page) -> String {
        if self.detached {
            format!("{} {}\n", page.paint(Role::Good, "detached"), self.table)
        } else {
            format!("{} was not attached: there was nothing to do\n", self.table)
        }
    }
}

#[derive(Debug, Serialize)]
struct Tables {
    tables: Vec<String>,
}

impl View for Tables {
    fn human(&self, _page: &Page) -> String {
        if self.tables.is_empty() {
            return "no outbox tables\n".to_owned();
        }
        self.tables.join("\n") + "\n"
    }
}
