//! `postrider event`.

use std::fmt::Write;

use postrider_core::event::Listed;
use postrider_core::store::{
    ActionReport, AttemptReport, Cancelled, DeliveryAction, DeliveryReport, EventQuery, LetterId, Payloads,
    ProgressReport,
};
use postrider_core::unique::is_replaceable;
use postrider_core::{
    DeliveryState, Error, ErrorKind, Event, EventId, Filter, Headers, Key, Mode, QueueStore, Result, Store,
    Timestamp,
};
use serde::Serialize;

use super::{Context, subscription};
use crate::args::{ConsentArgs, EventCommand, EventListArgs};
use crate::confirm::consent;
use crate::output::{Cell, Column, Page, Role, View};
use crate::payload::{self, PayloadView};
use crate::text;
use crate::why::{Facts, explain};

/// Runs one of the verbs.
pub(crate) async fn run<S: QueueStore>(
    store: &S,
    command: EventCommand,
    context: &Context<'_>,
) -> Result<()> {
    match command {
        EventCommand::List(args) => list(store, args, context).await,
        EventCommand::Show { id } => {
            let event = existing(store, id).await?;
            let deliveries = store.event_deliveries(id).await?;
            let deliveries = deliveries.iter().map(DeliveryView::new).collect();
            context.output.show(&Shown { event: EventView::new(&event, store.payloads()), deliveries })
        }
        EventCommand::Why { id } => why(store, id, context).await,
        EventCommand::Cancel { id, subscription, consent } => {
            cancel(store, LetterId { subscription, event_id: id }, &consent, context).await
        }
    }
}

async fn list<S: Store>(store: &S, args: EventListArgs, context: &Context<'_>) -> Result<()> {
    let filter = Filter { topics: args.topics, types: args.types };
    filter.check()?;
    let limit = args.limit as usize;
    let query = EventQuery { filter, key: args.key.map(Key::new), before: args.before, limit };
    let events = store.event_list(query).await?;
    let view = |event| EventView::listed(event, store.payloads());
    context.output.show(&List(events.iter().map(view).collect()))?;
    match events.last() {
        None => context.output.note("no events match"),
        Some(last) if events.len() == limit && last.id > EventId(1) => {
            context.output.note(&format!("older ones: add --before {}", last.id));
        }
        Some(_) => {}
    }
    Ok(())
}

async fn cancel<S: QueueStore>(
    store: &S,
    letter: LetterId,
    args: &ConsentArgs,
    context: &Context<'_>,
) -> Result<()> {
    let LetterId { subscription, event_id } = &letter;
    let mode = store.subscription_get(subscription).await?.mode;
    if mode != Mode::Queue {
        return Err(Error::invalid(format!(
            "subscription `{subscription}` is of mode log, where events are not cancelled one by one: pause it, or seek \
             past the event"
        )));
    }
    consent(args, &format!("End the delivery of event {event_id} to `{subscription}`"))?;
    let cancelled = store.delivery_cancel(&letter, &context.actor).await?;
    let Some(cancelled) = cancelled else {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "event {event_id} does not wait for `{subscription}`: `postrider event why {event_id}` says where it is"
            ),
        ));
    };
    context.output.show(&CancelledView { event_id: *event_id, subscription, cancelled })
}

/// What became of a cancelled delivery.
#[derive(Debug, Serialize)]
struct CancelledView<'a> {
    event_id: EventId,
    subscription: &'a str,
    cancelled: Cancelled,
}

impl View for CancelledView<'_> {
    fn human(&self, _: &Page) -> String {
        let Self { event_id, subscription, cancelled } = self;
        match cancelled {
            Cancelled::Gone => format!("event {event_id} will not be delivered to `{subscription}`\n"),
            Cancelled::Told => {
                format!(
                    "the worker of `{subscription}` that has event {event_id} is told; it is not attempted again\n"
                )
            }
        }
    }
}

async fn existing<S: Store>(store: &S, id: EventId) -> Result<Event> {
    store.event_get(id).await?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!(
                "event {id} is not in the store: it was never emitted, or it was pruned; `postrider event list` shows what is there"
            ),
        )
    })
}

async fn why<S: Store>(store: &S, id: EventId, context: &Context<'_>) -> Result<()> {
    let event = existing(store, id).await?;
    let reports = store.event_deliveries(id).await?;
    let mut subscriptions = Vec::with_capacity(reports.len());
    for report in &reports {
        let facts = gather(store, &event, report, context).await?;
        let explanation = explain(report, &facts, context.output.page());
        subscriptions.push(Explained { delivery: DeliveryView::new(report), explanation });
    }
    context.output.show(&Why { event: EventView::new(&event, store.payloads()), subscriptions })
}

/// What else must be known to explain where an event stands.
async fn gather<S: Store>(
    store: &S,
    event: &Event,
    report: &DeliveryReport,
    context: &Context<'_>,
) -> Result<Facts> {
    let (id, store_option) = (event.id, context.store_url.option());
    let mut facts = Facts { id, store_option, head: None, died_at: None, is_held: false, unless: None };
    let name = &report.subscription;
    match report.state {
        DeliveryState::Dead => {
            let letter = LetterId { subscription: name.clone(), event_id: id };
            facts.died_at = found(store.dead_letter_get(&letter).await)?.map(|letter| letter.died_at);
        }
        DeliveryState::Pending => {
            if let Some(head) = report.behind {
                let deliveries = store.event_deliveries(head).await?;
                facts.head = deliveries.into_iter().find(|delivery| delivery.subscription == *name);
            }
            let progress = found(store.subscription_report(name).await)?;
            facts.is_held =
                progress.is_some_and(|progress| subscription::is_held(&progress.members, &progress.shards));
        }
        DeliveryState::Done => {
            facts.unless = match found(store.subscription_get(name).await)? {
                Some(subscription) if subscription.created_at > event.created_at => {
                    Some("the subscription began behind it: it is newer")
                }
                Some(subscription) if subscription.mode == Mode::Queue && is_replaceable(event) => {
                    Some("a newer event took its place")
                }
                _ => None,
            };
        }
        DeliveryState::Leased => {}
    }
    Ok(facts)
}

/// Between two calls a letter may be replayed or a subscription deleted; that is no error here.
fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An event, in the words that the sinks use.
#[derive(Debug, Serialize)]
pub(super) struct EventView<'a> {
    id: EventId,
    topic: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    key: Option<&'a str>,
    #[serde(flatten)]
    payload: PayloadView<'a>,
    headers: Option<&'a Headers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers_cut: Option<bool>,
    created_at: Timestamp,
    due_at: Option<Timestamp>,
    /// Why it is not handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    flaw: Option<&'a str>,
    /// None if it is withheld.
    #[serde(skip)]
    bytes: Option<&'a [u8]>,
    #[serde(skip)]
    length: u64,
}

impl<'a> EventView<'a> {
    pub(super) fn new(event: &'a Event, payloads: Payloads) -> Self {
        let is_shown = payloads == Payloads::Shown;
        Self {
            id: event.id,
            topic: event.topic.as_str(),
            kind: event.kind.as_str(),
            key: event.key.as_ref().map(Key::as_str),
            payload: if is_shown { PayloadView::new(&event.payload) } else { PayloadView::withheld() },
            headers: is_shown.then_some(&event.headers),
            headers_cut: None,
            created_at: event.created_at,
            due_at: event.due_at,
            flaw: event.flaw.as_ref().map(|flaw| flaw.reason()),
            bytes: is_shown.then_some(&event.payload),
            length: event.payload.len() as u64,
        }
    }

    /// One of a listing, which may be cut.
    pub(super) fn listed(listed: &'a Listed, payloads: Payloads) -> Self {
        let mut view = Self::new(&listed.event, payloads);
        if view.bytes.is_some() {
            view.payload = PayloadView::of_length(&listed.event.payload, listed.payload_bytes);
            view.length = listed.payload_bytes;
            view.headers_cut = listed.headers_cut.then_some(true);
        }
        view
    }

    /// The lines that describe it, without its payload.
    pub(super) fn fields(&self, page: &Page) -> Vec<(&'static str, Cell)> {
        let mut fields = vec![
            ("event", Cell::new(self.id.to_string())),
            ("topic", Cell::new(self.topic)),
            ("type", Cell::new(self.kind)),
            ("key", self.key_cell()),
            ("emitted", Cell::new(page.when(self.created_at))),
        ];
        if let Some(at) = self.due_at {
            fields.push(("due", Cell::new(page.when(at))));
        }
        if let Some(flaw) = self.flaw {
            fields.push(("flaw", Cell::new(format!("{flaw}: it is not handed out")).role(Role::Bad)));
        }
        for (index, (name, value)) in self.headers.into_iter().flat_map(Headers::iter).enumerate() {
            let label = if index == 0 { "headers" } else { "" };
            fields.push((label, Cell::new(format!("{name}={value}"))));
        }
        let size = |bytes: &[u8]| text::bytes(bytes.len() as u64);
        fields.push(("payload", Cell::new(self.bytes.map_or_else(|| payload::WITHHELD.to_owned(), size))));
        fields
    }

    /// Its payload in full, for people; nothing if it is withheld.
    pub(super) fn block(&self) -> String {
        self.bytes.map(payload::block).unwrap_or_default()
    }

    /// Its payload on one line, or what is wrong with the event.
    fn preview(&self) -> Cell {
        let preview = |bytes: &[u8]| payload::preview(bytes, self.length);
        match self.flaw {
            Some(flaw) => Cell::short(format!("({flaw})")).role(Role::Bad),
            None => {
                Cell::short(self.bytes.map_or_else(|| "(withheld)".to_owned(), preview)).role(Role::Faint)
            }
        }
    }

    fn key_cell(&self) -> Cell {
        self.key.map_or_else(|| Cell::new("none").role(Role::Faint), Cell::new)
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct List<'a>(Vec<EventView<'a>>);

impl View for List<'_> {
    fn human(&self, page: &Page) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut table = page.table([
            Column::right("ID"),
            Column::left("TOPIC"),
            Column::left("TYPE"),
            Column::left("KEY"),
            Column::left("EMITTED"),
            Column::left("PAYLOAD"),
        ]);
        for event in &self.0 {
            table.row([
                Cell::new(event.id.to_string()),
                Cell::short(event.topic),
                Cell::short(event.kind),
                event.key.map_or_else(|| Cell::new("-").role(Role::Faint), Cell::short),
                Cell::new(page.relative(event.created_at)),
                event.preview(),
            ]);
        }
        table.finish()
    }
}

/// Where an event stands for one subscription.
#[derive(Debug, Serialize)]
struct DeliveryView<'a> {
    subscription: &'a str,
    state: DeliveryState,
    attempts: u32,
    lost: u32,
    due_at: Option<Timestamp>,
    behind: Option<EventId>,
    ahead: Option<u64>,
    paused: bool,
    history: Vec<AttemptView<'a>>,
    /// Null if the audit may not be read.
    actions: Option<&'a [ActionReport]>,
    /// A text, by convention JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
    /// How far its handler has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'a ProgressReport>,
}

impl<'a> DeliveryView<'a> {
    fn new(report: &'a DeliveryReport) -> Self {
        Self {
            subscription: &report.subscription,
            state: report.state,
            attempts: report.attempts,
            lost: report.lost,
            due_at: report.due_at,
            behind: report.behind,
            ahead: report.ahead,
            paused: report.paused,
            history: report.history.iter().map(AttemptView::new).collect(),
            actions: report.actions.as_deref(),
            result: report.result.as_deref(),
            progress: report.progress.as_ref(),
        }
    }

    /// The last edit of what this subscription gets. A seek brings back the event as it was emitted.
    fn edit(&self) -> Option<&ActionReport> {
        let actions = self.actions.unwrap_or_default();
        let since = actions.iter().rposition(|action| action.action == DeliveryAction::BroughtBack);
        let actions = &actions[since.map_or(0, |place| place + 1)..];
        actions.iter().rfind(|action| action.action == DeliveryAction::Edited)
    }

    fn state_cell(&self) -> Cell {
        let role = match self.state {
            DeliveryState::Done | DeliveryState::Leased => Role::Good,
            DeliveryState::Pending => Role::Waits,
            DeliveryState::Dead => Role::Bad,
        };
        Cell::new(self.state.as_str()).role(role)
    }
}

/// One recorded attempt.
#[derive(Debug, Serialize)]
pub(super) struct AttemptView<'a> {
    attempt: u32,
    started_at: Timestamp,
    took_seconds: f64,
    member: &'a str,
    error: &'a str,
    #[serde(skip)]
    took: String,
}

impl<'a> AttemptView<'a> {
    pub(super) fn new(report: &'a AttemptReport) -> Self {
        Self {
            attempt: report.attempt,
            started_at: report.started_at,
            took_seconds: report.took.as_secs_f64(),
            member: &report.member,
            error: &report.error,
            took: text::span(report.took),
        }
    }

    /// The recorded attempts of one delivery.
    pub(super) fn table(attempts: &[Self], page: &Page) -> String {
        let mut table = page.table([
            Column::right("ATTEMPT"),
            Column::left("STARTED"),
            Column::right("TOOK"),
            Column::left("MEMBER"),
            Column::left("ERROR"),
        ]);
        for attempt in attempts {
            table.row([
                Cell::new(attempt.attempt.to_string()),
                Cell::new(page.relative(attempt.started_at)),
                Cell::new(&attempt.took),
                Cell::short(attempt.member),
                Cell::new(attempt.error),
            ]);
        }
        table.finish()
    }
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    event: EventView<'a>,
    deliveries: Vec<DeliveryView<'a>>,
}

impl View for Shown<'_> {
    fn human(&self, page: &Page) -> String {
        let mut text = page.fields(self.event.fields(page));
        text.push('\n');
        text.push_str(&self.event.block());
        text.push('\n');
        if self.deliveries.is_empty() {
            text.push_str("no subscription wants it\n");
            return text;
        }
        let mut table = page.table([
            Column::left("SUBSCRIPTION"),
            Column::left("STATE"),
            Column::right("ATTEMPTS"),
            Column::left("DUE"),
        ]);
        for delivery in &self.deliveries {
            table.row([
                Cell::new(delivery.subscription),
                delivery.state_cell(),
                Cell::count(u64::from(delivery.attempts)),
                Cell::new(delivery.due_at.map_or_else(String::new, |at| page.relative(at))),
            ]);
        }
        text.push_str(&table.finish());
        for delivery in &self.deliveries {
            if let Some(edit) = delivery.edit() {
                let (by, when) = (text::escape(&edit.actor), page.relative(edit.at));
                let _ = writeln!(
                    text,
                    "\nedited for {} by {by} {when}: what is shown above is not what it is sent",
                    delivery.subscription
                );
            }
            if let Some(ProgressReport { percent, note, at }) = delivery.progress {
                let percent = percent.map_or_else(String::new, |percent| format!("{percent}% "));
                let (note, when) = (text::escape(note), page.relative(*at));
                let _ = writeln!(text, "\nprogress of {}: {percent}{note} ({when})", delivery.subscription);
            }
            if let Some(result) = delivery.result {
                let _ = writeln!(text, "\nresult of {}: {}", delivery.subscription, text::escape(result));
            }
        }
        text
    }
}

#[derive(Debug, Serialize)]
struct Why<'a> {
    event: EventView<'a>,
    subscriptions: Vec<Explained<'a>>,
}

#[derive(Debug, Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    delivery: DeliveryView<'a>,
    explanation: String,
}

impl View for Why<'_> {
    fn human(&self, page: &Page) -> String {
        let EventView { id, topic, kind, key, created_at, .. } = &self.event;
        let key = key.map_or_else(|| "no key".to_owned(), |key| format!("key {key}"));
        let emitted = page.relative(*created_at);
        let about = format!("event {id}: topic {topic}, type {kind}, {key}, emitted {emitted}");
        let mut text = page.paint(Role::Faint, &about) + "\n";
        if self.subscriptions.is_empty() {
            text.push_str("no subscription wants it\n");
            return text;
        }
        text.push_str(
            &page.fields(
                self.subscriptions
                    .iter()
                    .map(|explained| (explained.delivery.subscription, Cell::new(&explained.explanation))),
            ),
        );
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use postrider_core::event::StoredEvent;
    use postrider_core::{Kind, Topic};

    use super::*;

    fn page() -> Page {
        Page::plain("2026-11-15T08:30:00Z".parse().unwrap())
    }

    pub(in super::super) fn sample(id: i64) -> Event {
        let mut headers = Headers::default();
        headers.set("trace", "abc");
        Event {
            id: EventId(id),
            topic: Topic::new("order"),
            kind: Kind::new("order.created"),
            key: Some(Key::new("42")),
            payload: Bytes::from_static(b"{\"total\": 99}"),
            headers,
            created_at: "2026-11-15T08:29:57Z".parse().unwrap(),
            due_at: None,
            flaw: None,
        }
    }

    fn shown(event: &Event) -> EventView<'_> {
        EventView::new(event, Payloads::Shown)
    }

    #[test]
    fn what_may_not_be_read_is_not_taken_for_empty() {
        let event = Event { payload: Bytes::new(), headers: Headers::default(), ..sample(7) };
        let view = || EventView::new(&event, Payloads::Withheld);
        let listed = List(vec![view()]).human(&page());
        assert!(listed.contains("(withheld)") && !listed.contains("empty"), "{listed}");
        let told = Shown { event: view(), deliveries: Vec::new() }.human(&page());
        assert!(told.contains("withheld: this role may not read it") && !told.contains("0 bytes"), "{told}");
        let json = serde_json::to_value(view()).unwrap();
        assert_eq!((&json["payload_withheld"], &json["headers"]), (&true.into(), &serde_json::Value::Null));
    }

    fn pending() -> DeliveryReport {
        DeliveryReport {
            subscription: "audit".to_owned(),
            state: DeliveryState::Pending,
            attempts: 3,
            lost: 0,
            due_at: Some("2026-11-15T08:30:12Z".parse().unwrap()),
            behind: None,
            ahead: None,
            paused: false,
            history: vec![AttemptReport {
                attempt: 3,
                started_at: "2026-11-15T08:29:58Z".parse().unwrap(),
                took: Duration::from_millis(12),
                member: "host:1".to_owned(),
                error: "refused".to_owned(),
            }],
            actions: Some(Vec::new()),
            result: None,
            progress: None,
        }
    }

    #[test]
    fn a_list_is_aligned_and_harmless() {
        let mut odd = sample(1234);
        odd.key = None;
        odd.payload = Bytes::from_static(b"\xff");
        let mut evil = sample(5);
        evil.key = Some(Key::new("\x1b]0;pwned\x07"));
        let events = [odd, evil];
        let expected = "\
\x20 ID  TOPIC  TYPE           KEY                  EMITTED  PAYLOAD
1234  order  order.created  -                    3 s ago  (1 byte, not text)
   5  order  order.created  \\u{1b}]0;pwned\\u{7}  3 s ago  {\"total\": 99}
";
        assert_eq!(List(events.iter().map(shown).collect()).human(&page()), expected);
    }

    #[test]
    fn what_is_cut_is_said_to_be() {
        let mut large = sample(7);
        large.payload = Bytes::from("{\"text\": \"".to_owned() + &"ä".repeat(4_000));
        large.headers.set("h", "v".repeat(5_000));
        let listed = Listed::preview(large);
        let json = serde_json::to_value(EventView::listed(&listed, Payloads::Shown)).unwrap();
        assert_eq!((&json["payload_cut"], &json["payload_bytes"]), (&true.into(), &8_010.into()));
        assert_eq!((&json["headers_cut"], &json["payload"]), (&true.into(), &serde_json::Value::Null));
        let beginning = json["payload_beginning"].as_str().unwrap();
        assert!(beginning.starts_with("{\"text\": \"ää") && beginning.len() <= 4_096);
        let mut odd = listed.clone();
        odd.event.payload = Bytes::from_static(b"\xff");
        let view = EventView::listed(&odd, Payloads::Shown);
        assert_eq!(serde_json::to_value(&view).unwrap()["payload_base64"], "/w==");
        assert!(List(vec![view]).human(&page()).contains("(7.8 KiB, not text)"));
    }

    #[test]
    fn an_event_that_breaks_a_limit_says_which() {
        let key = "k".repeat(2_880);
        let stored = StoredEvent {
            id: EventId(7),
            topic: "order",
            kind: "order.created",
            key: Some(&key),
            headers: None,
            payload: Bytes::new(),
            created_at: "2026-11-15T08:29:57Z".parse().unwrap(),
            due_at: None,
            lengths: None,
        };
        let event = stored.into_event();
        let reason = "key has 2,880 bytes, the limit is 1,024";
        assert_eq!(serde_json::to_value(shown(&event)).unwrap()["flaw"], reason);
        let told = Shown { event: shown(&event), deliveries: Vec::new() }.human(&page());
        assert!(told.contains(&format!("flaw     {reason}: it is not handed out\n")), "{told}");
        assert!(List(vec![shown(&event)]).human(&page()).contains("(key has 2,880 bytes"));
    }

    #[test]
    fn one_event_is_told_with_its_deliveries() {
        let (event, report) = (sample(7), pending());
        let shown = Shown { event: shown(&event), deliveries: vec![DeliveryView::new(&report)] };
        let expected = "\
event    7
topic    order
type     order.created
key      42
emitted  3 s ago (2026-11-15T08:29:57Z)
headers  trace=abc
payload  13 bytes

{\"total\": 99}

SUBSCRIPTION  STATE    ATTEMPTS  DUE
audit         pending         3  in 12 s
";
        assert_eq!(shown.human(&page()), expected);
        let json = serde_json::to_string(&shown).unwrap();
        assert!(json.starts_with(
            r#"{"id":7,"topic":"order","type":"order.created","key":"42","payload":{"total": 99},"headers":{"trace":"abc"},"created_at":"2026-11-15T08:29:57Z","due_at":null,"deliveries":[{"subscription":"audit","state":"pending","attempts":3,"lost":0,"#
        ), "{json}");
    }

    #[test]
    fn how_far_a_handler_has_come_is_told_with_its_time() {
        let mut report = pending();
        let at = "2026-11-15T08:29:58Z".parse().unwrap();
        report.progress = Some(ProgressReport { percent: Some(25), note: "page 3\x07".to_owned(), at });
        let event = sample(7);
        let shown = Shown { event: shown(&event), deliveries: vec![DeliveryView::new(&report)] };
        let text = shown.human(&page());
        assert!(text.ends_with("\nprogress of audit: 25% page 3\\u{7} (2 s ago)\n"), "{text}");
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(
            json["deliveries"][0]["progress"],
            serde_json::json!({ "percent": 25, "note": "page 3\u{7}", "at": "2026-11-15T08:29:58Z" })
        );
    }

    #[test]
    fn an_edit_is_told_of_the_subscription_that_gets_it() {
        let (event, mut report) = (sample(7), pending());
        let did =
            |action, at: &str| ActionReport { action, at: at.parse().unwrap(), actor: "ann\x1b".to_owned() };
        let edited = did(DeliveryAction::Edited, "2026-11-15T08:29:40Z");
        report.actions = Some(vec![edited.clone(), did(DeliveryAction::Replayed, "2026-11-15T08:29:50Z")]);
        let told = |report: &DeliveryReport| {
            Shown { event: shown(&event), deliveries: vec![DeliveryView::new(report)] }.human(&page())
        };
        let text = told(&report);
        let line = "\nedited for audit by ann\\u{1b} 20 s ago: what is shown above is not what it is sent\n";
        assert!(text.ends_with(line), "{text}");
        report.actions = Some(vec![edited, did(DeliveryAction::BroughtBack, "2026-11-15T08:29:50Z")]);
        assert!(!told(&report).contains("edited"), "a seek brings back what was emitted");
    }

    #[test]
    fn why_is_told_in_sentences() {
        let (event, report) = (sample(7), pending());
        let explanation = "failed 3 times (refused); next attempt in 12 s".to_owned();
        let subscriptions = vec![Explained { delivery: DeliveryView::new(&report), explanation }];
        let why = Why { event: shown(&event), subscriptions };
        let expected = "\
event 7: topic order, type order.created, key 42, emitted 3 s ago
audit  failed 3 times (refused); next attempt in 12 s
";
        assert_eq!(why.human(&page()), expected);
        let json = serde_json::to_value(&why).unwrap();
        assert_eq!(json["subscriptions"][0]["explanation"], "failed 3 times (refused); next attempt in 12 s");
        assert_eq!(json["subscriptions"][0]["state"], "pending");
    }
}
