//! `postrider stats`.

use postrider_core::store::{SlotReport, StoreReport, Wake};
use postrider_core::{EventId, Result, Store, Timestamp};
use serde::Serialize;

use super::Context;
use super::subscription::{List, SubscriptionView};
use crate::output::{Cell, Page, Role, View};
use crate::text;

/// Shows the store as a whole.
pub(crate) async fn run<S: Store>(store: &S, context: &Context<'_>) -> Result<()> {
    let report = store.stats().await?;
    context.output.show(&Stats::new(&report))
}

#[derive(Debug, Serialize)]
struct Stats<'a> {
    store_id: &'a str,
    location: &'a str,
    schema_version: u32,
    wake: Wake,
    events: u64,
    newest_id: Option<EventId>,
    oldest_at: Option<Timestamp>,
    bytes: u64,
    members: &'a [String],
    slots: &'a [SlotReport],
    subscriptions: List<'a>,
}

impl<'a> Stats<'a> {
    fn new(report: &'a StoreReport) -> Self {
        Self {
            store_id: &report.store_id,
            location: &report.location,
            schema_version: report.schema_version,
            wake: report.wake,
            events: report.events,
            newest_id: report.newest_id,
            oldest_at: report.oldest_at,
            bytes: report.bytes,
            members: &report.members,
            slots: &report.slots,
            subscriptions: List(report.subscriptions.iter().map(SubscriptionView::new).collect()),
        }
    }

    fn events(&self, page: &Page) -> String {
        let mut text = text::count(self.events);
        if let Some(at) = self.oldest_at {
            text = format!("{text}, the oldest emitted {}", page.relative(at));
        }
        match self.newest_id {
            Some(id) => format!("{text}, newest id {id}"),
            None => text,
        }
    }
}

/// How things stand with a slot, in a line.
fn slot(report: &SlotReport, page: &Page) -> Cell {
    let (state, role) = match report.followed {
        Some(true) => ("followed", Role::Good),
        Some(false) => ("not followed", Role::Waits),
        None => ("absent", Role::Waits),
    };
    let mut text = format!(
        "{}, {state}, {} of the log kept, switches: {}",
        report.slot,
        text::bytes(report.kept_bytes),
        text::count(report.switches)
    );
    if let Some((reading, at)) = &report.reading {
        text = format!("{text}; since {} from {reading}", page.relative(*at));
    }
    Cell::new(text).role(role)
}

impl View for Stats<'_> {
    fn human(&self, page: &Page) -> String {
        let members = if self.members.is_empty() {
            Cell::new("none").role(Role::Waits)
        } else {
            Cell::new(self.members.join(", ")).role(Role::Good)
        };
        let mut fields = vec![
            ("store", Cell::new(self.location)),
            ("id", Cell::new(self.store_id)),
            ("schema", Cell::new(format!("version {}", self.schema_version))),
            ("wake", Cell::new(self.wake.word())),
            ("size", Cell::new(text::bytes(self.bytes))),
            ("events", Cell::new(self.events(page))),
            ("members", members),
        ];
        fields.extend(self.slots.iter().map(|report| ("slot", slot(report, page))));
        let mut text = page.fields(fields);
        text.push('\n');
        if self.subscriptions.0.is_empty() {
            text.push_str("no subscriptions\n");
        } else {
            text.push_str(&self.subscriptions.human(page));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_store_is_shown_without_holes() {
        let report = StoreReport {
            store_id: "8f14e45f".to_owned(),
            location: "sqlite postrider.db".to_owned(),
            schema_version: 1,
            wake: Wake::Poll,
            events: 0,
            newest_id: None,
            oldest_at: None,
            bytes: 4096,
            members: Vec::new(),
            slots: Vec::new(),
            subscriptions: Vec::new(),
        };
        let expected = "\
store    sqlite postrider.db
id       8f14e45f
schema   version 1
wake     poll
size     4.0 KiB
events   0
members  none

no subscriptions
";
        let page = Page::plain("2026-11-15T08:30:00Z".parse().unwrap());
        assert_eq!(Stats::new(&report).human(&page), expected);
        let json = serde_json::to_string(&Stats::new(&report)).unwrap();
        assert!(json.contains(r#""oldest_at":null"#) && json.contains(r#""subscriptions":[]"#), "{json}");
    }
}
