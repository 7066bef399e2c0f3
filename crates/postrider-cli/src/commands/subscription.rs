//! `postrider subscription`.

use std::fmt::Write as _;

use postrider_core::store::{MemberReport, ParkedReport, ShardReport, SubscriptionReport};
use postrider_core::time::format_duration;
use postrider_core::{
    Error, ErrorKind, Fair, Filter, LeaseBy, Members, Mode, NewSubscription, OnDead, Order, Position,
    QueueTuning, Result, RetryPolicy, Start, Store, Subscription, Tuning,
};
use serde::Serialize;

use super::Context;
use crate::args::{SubscriptionArgs, SubscriptionCommand};
use crate::confirm::consent;
use crate::output::{Cell, Column, Page, Role, View};
use crate::shard_map::shard_map;
use crate::text;

/// Runs one of the verbs.
pub(crate) async fn run<S: Store>(
    store: &S,
    command: SubscriptionCommand,
    context: &Context<'_>,
) -> Result<()> {
    let output = context.output;
    match command {
        SubscriptionCommand::Create { name, settings } => {
            let created = store.subscription_create(new_subscription(&name, &settings)).await?;
            output.show(&Changed::new("created", &created))
        }
        SubscriptionCommand::List => {
            let reports = store.subscription_list().await?;
            if reports.is_empty() {
                output.note("no subscription yet: `postrider subscription create NAME` makes one");
            }
            output.show(&List(reports.iter().map(SubscriptionView::new).collect()))
        }
        SubscriptionCommand::Show { name } => {
            let report = store.subscription_report(&name).await?;
            output.show(&SubscriptionView::new(&report))
        }
        SubscriptionCommand::Pause { name } => {
            output.show(&Changed::new("paused", &store.subscription_pause(&name).await?))
        }
        SubscriptionCommand::Resume { name } => {
            output.show(&Changed::new("resumed", &store.subscription_resume(&name).await?))
        }
        SubscriptionCommand::Seek { name, to, consent: args } => {
            store.subscription_get(&name).await?;
            consent(
                &args,
                &format!("Move `{name}` to {}, so that events are delivered again or skipped", place(to)),
            )?;
            let position = store.subscription_seek(&name, to, &context.actor).await?;
            output.show(&Sought { name, position })
        }
        SubscriptionCommand::Delete { name, consent: args } => {
            let report = store.subscription_report(&name).await?;
            consent(
                &args,
                &format!(
                    "Delete `{name}` with its position, its pending retries ({}) and its dead letters ({})",
                    text::count(report.pending),
                    text::count(report.dead)
                ),
            )?;
            store.subscription_delete(&name, &context.actor).await?;
            output.show(&Deleted { name })
        }
    }
}

/// What was typed, as a subscription to be created.
pub(crate) fn new_subscription(name: &str, settings: &SubscriptionArgs) -> NewSubscription {
    let mut new = NewSubscription::new(name);
    settings.apply_to(&mut new);
    new
}

/// What a subscription is to become.
pub(crate) enum Intended {
    /// It is not there yet.
    New(Box<NewSubscription>),
    /// It is there, and its meaning is the one that is wanted; its tuning may differ.
    Existing { wanted: Box<NewSubscription>, existing: Box<Subscription> },
}

/// What a subscription is to become. What was not typed is taken from the existing one; what may not change
/// and was typed otherwise is a conflict. Nothing is written.
pub(crate) async fn intended<S: Store>(
    store: &S,
    name: &str,
    settings: &SubscriptionArgs,
) -> Result<Intended> {
    let existing = match store.subscription_get(name).await {
        Ok(existing) => existing,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Intended::New(Box::new(new_subscription(name, settings))));
        }
        Err(error) => return Err(error),
    };
    let mut wanted = as_new(&existing);
    settings.apply_to(&mut wanted);
    wanted.check()?;
    wanted.agrees_with(&existing)?;
    Ok(Intended::Existing { wanted: Box::new(wanted), existing: Box::new(existing) })
}

/// Makes sure that a subscription exists as it was typed, and returns what it is.
pub(crate) async fn ensure<S: Store>(
    store: &S,
    name: &str,
    settings: &SubscriptionArgs,
) -> Result<NewSubscription> {
    let mut found = intended(store, name, settings).await?;
    if let Intended::New(new) = found {
        match store.subscription_create(*new).await {
            Ok(created) => return Ok(as_new(&created)),
            // Another process was faster; what it made is the existing one.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                found = intended(store, name, settings).await?;
            }
            Err(error) => return Err(error),
        }
    }
    match found {
        Intended::New(_) => {
            Err(Error::new(ErrorKind::Busy, format!("subscription `{name}` comes and goes: try again")))
        }
        Intended::Existing { wanted, existing } => {
            if wanted.tuning != existing.tuning {
                store.subscription_tune(name, wanted.tuning.clone()).await?;
            }
            Ok(*wanted)
        }
    }
}

fn as_new(existing: &Subscription) -> NewSubscription {
    NewSubscription {
        name: existing.name.clone(),
        filter: existing.filter.clone(),
        mode: existing.mode,
        order: existing.order,
        on_dead: existing.on_dead,
        tuning: existing.tuning.clone(),
        start: Start::default(),
    }
}

impl SubscriptionArgs {
    /// Overwrites what was typed and leaves the rest.
    fn apply_to(&self, new: &mut NewSubscription) {
        if !(self.topics.is_empty() && self.types.is_empty()) {
            new.filter = Filter { topics: self.topics.clone(), types: self.types.clone() };
        }
        if let Some(from) = self.from {
            new.start = from;
        }
        if let Some(mode) = self.mode {
            new.mode = mode.into();
        }
        if let Some(order) = self.order {
            new.order = order.into();
        }
        if let Some(on_dead) = self.on_dead {
            new.on_dead = on_dead.into();
        }
        self.tune(&mut new.tuning);
    }

    fn tune(&self, tuning: &mut Tuning) {
        let attempts = self.attempts.unwrap_or(tuning.retry.attempts());
        let retry: &RetryPolicy = self.retry.as_ref().unwrap_or(&tuning.retry);
        tuning.retry = retry.clone().attempts_max(attempts);
        tuning.members = self.members.map_or(tuning.members, Into::into);
        tuning.concurrency = self.concurrency.unwrap_or(tuning.concurrency);
        tuning.timeout = self.timeout.unwrap_or(tuning.timeout);
        let queue = &mut tuning.queue;
        queue.lease = self.lease.unwrap_or(queue.lease);
        queue.lease_by = self.lease_by.map_or(queue.lease_by, Into::into);
        queue.fair = self.fair.clone().unwrap_or_else(|| queue.fair.clone());
        queue.total = self.total.or(queue.total);
        queue.rate = self.rate.or(queue.rate);
        queue.per_key = self.per_key.or(queue.per_key);
    }
}

fn place(to: Start) -> String {
    match to {
        Start::Oldest => "the oldest event".to_owned(),
        Start::Now => "now".to_owned(),
        Start::Time(at) => at.to_string(),
        Start::Id(id) => format!("event {id}"),
    }
}

/// A subscription with its progress: the same for `list`, `show` and `stats`.
#[derive(Debug, Serialize)]
pub(super) struct SubscriptionView<'a> {
    #[serde(flatten)]
    subscription: &'a Subscription,
    lag_events: u64,
    lag_seconds: Option<f64>,
    pending: u64,
    leased: u64,
    dead: u64,
    parked_count: u64,
    parked: &'a [ParkedReport],
    members: &'a [MemberReport],
    shards: &'a [ShardReport],
    #[serde(skip)]
    lag: String,
}

impl<'a> SubscriptionView<'a> {
    pub(super) fn new(report: &'a SubscriptionReport) -> Self {
        Self {
            subscription: &report.subscription,
            lag_events: report.lag_events,
            lag_seconds: report.lag.map(|lag| lag.as_secs_f64()),
            pending: report.pending,
            leased: report.leased,
            dead: report.dead,
            parked_count: report.parked_count,
            parked: &report.parked,
            members: &report.members,
            shards: &report.shards,
            lag: report.lag.map_or_else(String::new, text::span),
        }
    }

    fn state(&self) -> Cell {
        match (self.subscription.paused_at, is_held(self.members, self.shards)) {
            (Some(_), _) => Cell::new("paused").role(Role::Waits),
            (None, true) => Cell::new("running").role(Role::Good),
            (None, false) => Cell::new("no member").role(Role::Waits),
        }
    }

    fn settings(&self, page: &Page) -> String {
        let Subscription { filter, order, on_dead, tuning, .. } = self.subscription;
        let state = match self.subscription.paused_at {
            Some(at) => Cell::new(format!("paused since {}", page.when(at))).role(Role::Waits),
            None => self.state(),
        };
        let lag = match self.lag_events {
            0 => "none".to_owned(),
            events => {
                format!("{}, the oldest is {} old", text::counted(events, "event"), self.lag)
            }
        };
        let mut fields = vec![
            ("subscription", Cell::new(&self.subscription.name)),
            ("wants", Cell::new(filter.to_string())),
            ("mode", Cell::new(mode_word(self.subscription.mode))),
            ("order", Cell::new(order_word(*order))),
            ("on dead", Cell::new(on_dead_word(*on_dead))),
            ("retry", Cell::new(format!("{}, {} attempts", tuning.retry, tuning.retry.attempts()))),
            ("members", Cell::new(members_word(tuning.members))),
            ("concurrency", Cell::new(format!("{} in each member", tuning.concurrency))),
            ("time-out", Cell::new(format_duration(tuning.timeout))),
        ];
        if self.subscription.mode == Mode::Queue {
            fields.extend(queue_fields(&tuning.queue));
        }
        fields.extend(vec![
            ("created", Cell::new(page.when(self.subscription.created_at))),
            ("state", state),
            ("lag", Cell::new(lag)),
            ("pending", Cell::count(self.pending)),
            ("leased", Cell::count(self.leased)),
            ("dead", Cell::alarming(self.dead, Role::Bad)),
            ("parked keys", Cell::alarming(self.parked_count, Role::Waits)),
        ]);
        page.fields(fields)
    }

    fn parked_table(&self, page: &Page) -> String {
        let columns = [
            Column::left("PARKED KEY"),
            Column::right("HEAD"),
            Column::right("WAITING"),
            Column::left("NEXT ATTEMPT"),
        ];
        let mut table = page.table(columns);
        for lane in self.parked {
            let next =
                lane.due_at.map_or_else(|| "when its head moves on".to_owned(), |at| page.relative(at));
            table.row([
                Cell::short(lane.key.as_str()),
                Cell::new(lane.head.to_string()),
                Cell::count(lane.waiting),
                Cell::new(next),
            ]);
        }
        let mut text = table.finish();
        let hidden = self.parked_count.saturating_sub(self.parked.len() as u64);
        if hidden > 0 {
            let _ = writeln!(text, "and {} more", text::count(hidden));
        }
        text
    }
}

impl View for SubscriptionView<'_> {
    fn human(&self, page: &Page) -> String {
        let mut text = self.settings(page);
        if !self.shards.is_empty() {
            text.push('\n');
            text.push_str(&shard_map(page, self.members, self.shards));
        }
        if !self.parked.is_empty() {
            text.push('\n');
            text.push_str(&self.parked_table(page));
        }
        text
    }
}

/// Whether a member delivers some of it.
pub(super) fn is_held(members: &[MemberReport], shards: &[ShardReport]) -> bool {
    let holds = |member: &MemberReport| shards.iter().any(|shard| shard.member == Some(member.id));
    members.iter().any(|member| member.lives && holds(member))
}

fn order_word(order: Order) -> &'static str {
    match order {
        Order::Key => "key: events of one key wait for each other",
        Order::None => "none: each event stands for itself",
    }
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Log => "log: a position, and rows for exceptions",
        Mode::Queue => "queue: leased deliveries",
    }
}

fn queue_fields(queue: &QueueTuning) -> Vec<(&'static str, Cell)> {
    let by = match queue.lease_by {
        LeaseBy::Block => "up to a hundred events",
        LeaseBy::Event => "one event",
    };
    let mut fields = vec![("lease", Cell::new(format!("{}, for {by}", format_duration(queue.lease))))];
    if queue.fair != Fair::Nobody {
        fields.push(("fair", Cell::new(format!("{} share evenly", queue.fair))));
    }
    if let Some(total) = queue.total {
        fields.push(("total", Cell::new(format!("{} in all members", text::counted(total.into(), "event")))));
    }
    if let Some(per_key) = queue.per_key {
        fields.push((
            "per key",
            Cell::new(format!("{} in all members", text::counted(per_key.into(), "event"))),
        ));
    }
    if let Some(rate) = queue.rate {
        fields.push(("rate", Cell::new(rate.to_string())));
    }
    fields
}

fn members_word(members: Members) -> &'static str {
    match members {
        Members::Many => "many: each holds an even part of the shards",
        Members::One => "one: it holds all shards, others stand by",
    }
}

fn on_dead_word(on_dead: OnDead) -> &'static str {
    match on_dead {
        OnDead::Skip => "skip: later events of the key go on",
        OnDead::Hold => "hold: later events of the key wait for a replay or discard",
    }
}

/// All subscriptions.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct List<'a>(pub(super) Vec<SubscriptionView<'a>>);

impl View for List<'_> {
    fn human(&self, page: &Page) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut table = page.table([
            Column::left("SUBSCRIPTION"),
            Column::left("WANTS"),
            Column::left("STATE"),
            Column::right("LAG"),
            Column::right("BEHIND"),
            Column::right("PENDING"),
            Column::right("PARKED"),
            Column::right("DEAD"),
        ]);
        for view in &self.0 {
            table.row([
                Cell::new(&view.subscription.name),
                Cell::short(view.subscription.filter.to_string()),
                view.state(),
                Cell::count(view.lag_events),
                Cell::new(&view.lag),
                Cell::count(view.pending),
                Cell::alarming(view.parked_count, Role::Waits),
                Cell::alarming(view.dead, Role::Bad),
            ]);
        }
        table.finish()
    }
}

/// What a verb made of a subscription.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    #[serde(skip)]
    verb: &'static str,
    #[serde(flatten)]
    subscription: &'a Subscription,
}

impl<'a> Changed<'a> {
    fn new(verb: &'static str, subscription: &'a Subscription) -> Self {
        Self { verb, subscription }
    }
}

impl View for Changed<'_> {
    fn human(&self, page: &Page) -> String {
        let Subscription { name, filter, .. } = self.subscription;
        format!("{} {}, which wants {filter}\n", self.verb, page.paint(Role::Heading, name))
    }
}

#[derive(Debug, Serialize)]
struct Sought {
    name: String,
    position: Position,
}

impl View for Sought {
    fn human(&self, page: &Page) -> String {
        let name = page.paint(Role::Heading, &self.name);
        if self.position == Position::START {
            format!("{name} goes on with the oldest event\n")
        } else {
            format!("{name} goes on behind event {}\n", self.position)
        }
    }
}

#[derive(Debug, Serialize)]
struct Deleted {
    #[serde(rename = "deleted")]
    name: String,
}

impl View for Deleted {
    fn human(&self, page: &Page) -> String {
        format!("deleted {}\n", page.paint(Role::Heading, &self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::settle::MemberId;
    use postrider_core::subscription::SubscriptionId;
    use postrider_core::{Epoch, EventId, Key, Mode, Shard};

    use super::*;

    fn page() -> Page {
        Page::plain("2026-11-15T08:30:00Z".parse().unwrap())
    }

    fn subscription(name: &str) -> Subscription {
        Subscription {
            id: SubscriptionId(1),
            name: name.to_owned(),
            filter: Filter { topics: vec!["order.*".parse().unwrap()], types: Vec::new() },
            mode: Mode::Log,
            order: Order::Key,
            on_dead: OnDead::Skip,
            tuning: Tuning::default(),
            created_at: "2026-11-15T08:00:00Z".parse().unwrap(),
            paused_at: None,
        }
    }

    const MEMBER: MemberId = MemberId(7);

    fn shard(shard: u16) -> ShardReport {
        ShardReport {
            shard: Shard(shard),
            position: Position::START.at(EventId(1200)),
            epoch: Epoch(1),
            member: (shard != 2).then_some(MEMBER),
        }
    }

    fn report() -> SubscriptionReport {
        SubscriptionReport {
            subscription: subscription("audit"),
            members: vec![MemberReport { id: MEMBER, name: "host:1".to_owned(), lives: true }],
            shards: (0..4).map(shard).collect(),
            lag_events: 1234,
            lag: Some(Duration::from_secs(3)),
            pending: 3,
            leased: 0,
            dead: 1,
            parked: vec![ParkedReport {
                key: Key::new("42"),
                head: EventId(17),
                waiting: 3,
                due_at: Some("2026-11-15T08:30:12Z".parse().unwrap()),
            }],
            parked_count: 2,
        }
    }

    #[test]
    fn a_list_is_aligned() {
        let busy = report();
        let mut idle = report();
        idle.subscription = subscription("b");
        idle.subscription.filter = Filter::default();
        idle.subscription.paused_at = Some(idle.subscription.created_at);
        idle.shards.clear();
        (idle.lag_events, idle.lag, idle.pending, idle.dead, idle.parked_count) = (0, None, 0, 0, 0);
        let expected = "\
SUBSCRIPTION  WANTS          STATE      LAG  BEHIND  PENDING  PARKED  DEAD
audit         topic order.*  running  1,234     3 s        3       2     1
b             everything     paused       0                0       0     0
";
        let list = List([&busy, &idle].map(SubscriptionView::new).into());
        assert_eq!(list.human(&page()), expected);
    }

    #[test]
    fn one_subscription_is_told_in_full() {
        let expected = "\
subscription  audit
wants         topic order.*
mode          log: a position, and rows for exceptions
order         key: events of one key wait for each other
on dead       skip: later events of the key go on
retry         exponential:500ms..10m, 20 attempts
members       many: each holds an even part of the shards
concurrency   16 in each member
time-out      1m
created       30 min ago (2026-11-15T08:00:00Z)
state         running
lag           1,234 events, the oldest is 3 s old
pending       3
leased        0
dead          1
parked keys   2

MEMBER  HOLDS  POSITION  SHARDS
host:1      3      1200  ■■·■
nobody      1      1200  ··■·

PARKED KEY  HEAD  WAITING  NEXT ATTEMPT
42            17        3  in 12 s
and 1 more
";
        assert_eq!(SubscriptionView::new(&report()).human(&page()), expected);
        let json = serde_json::to_value(SubscriptionView::new(&report())).unwrap();
        assert_eq!(json["name"], "audit");
        assert_eq!(json["lag_seconds"], 3.0);
        assert_eq!(json["tuning"]["retry"]["attempts_max"], 20);
        assert_eq!(json["shards"][2]["member"], serde_json::Value::Null);
    }

    #[test]
    fn what_was_not_typed_stays_and_what_was_typed_counts() {
        let existing = subscription("audit");
        let mut wanted = as_new(&existing);
        SubscriptionArgs::default().apply_to(&mut wanted);
        assert_eq!(wanted, as_new(&existing));
        wanted.agrees_with(&existing).unwrap();

        let typed = SubscriptionArgs {
            attempts: Some(3),
            retry: Some("fixed:5s".parse().unwrap()),
            timeout: Some(Duration::from_secs(5)),
            ..SubscriptionArgs::default()
        };
        typed.apply_to(&mut wanted);
        assert_eq!(
            (wanted.tuning.retry.to_string(), wanted.tuning.retry.attempts()),
            ("fixed:5s".to_owned(), 3)
        );
        assert_eq!(wanted.tuning.concurrency, existing.tuning.concurrency);
        wanted.agrees_with(&existing).unwrap();

        let other = SubscriptionArgs { types: vec!["*".parse().unwrap()], ..SubscriptionArgs::default() };
        other.apply_to(&mut wanted);
        assert_eq!(wanted.agrees_with(&existing).unwrap_err().kind(), ErrorKind::Conflict);
    }
}
