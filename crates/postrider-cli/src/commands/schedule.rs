//! `postrider schedule`.

use std::time::Duration;

use postrider_core::schedule::ScheduleReport;
use postrider_core::store::Payloads;
use postrider_core::{Event, Headers, Missed, NewSchedule, Result, Schedule, ScheduleStore, Timestamp};
use serde::Serialize;

use super::Context;
use crate::args::{ScheduleCommand, SchedulePutArgs};
use crate::confirm::consent;
use crate::output::{Cell, Column, Page, Role, View};
use crate::payload::{self, PayloadView};
use crate::text;

/// How many ticks are shown ahead.
const TICKS_SHOWN: usize = 5;

/// A command whose input has been read and checked.
pub(crate) enum Plan {
    Put(Box<NewSchedule>),
    Other(ScheduleCommand),
}

impl Plan {
    /// Reads and checks what was typed.
    pub(crate) fn new(command: ScheduleCommand) -> Result<Self> {
        let ScheduleCommand::Put(args) = command else { return Ok(Self::Other(command)) };
        let new = new_schedule(args)?;
        new.check()?;
        Ok(Self::Put(Box::new(new)))
    }
}

fn new_schedule(args: SchedulePutArgs) -> Result<NewSchedule> {
    let mut event = Event::new(args.topic);
    if let Some(kind) = args.kind {
        event = event.kind(kind);
    }
    if let Some(key) = args.key {
        event = event.key(key);
    }
    if let Some(source) = args.payload.payload {
        event = event.json_or_bytes(payload::read(&source, args.payload.raw)?);
    }
    for (name, value) in args.headers {
        event = event.header(name, value);
    }
    Ok(NewSchedule::new(args.name, args.cron, event).zone(args.zone).missed(args.missed.into()))
}

/// Runs one of the verbs.
pub(crate) async fn run<S: ScheduleStore>(store: &S, plan: Plan, context: &Context<'_>) -> Result<()> {
    let output = context.output;
    match plan {
        Plan::Put(new) => {
            let put = store.schedule_put(*new, &context.actor).await?;
            output.show(&Changed { verb: "put", schedule: &put })
        }
        Plan::Other(ScheduleCommand::Put(_)) => unreachable!("it has been read and checked"),
        Plan::Other(ScheduleCommand::List) => {
            let schedules = store.schedule_list().await?;
            if schedules.is_empty() {
                output.note("no schedule yet: `postrider schedule put NAME --cron … --topic …` makes one");
            }
            output.show(&List(schedules))
        }
        Plan::Other(ScheduleCommand::Show { name }) => {
            let report = store.schedule_get(&name).await?;
            let now = store.schedules_due().await?.now;
            output.show(&Shown::new(&report, now, store.payloads())?)
        }
        Plan::Other(ScheduleCommand::Pause { name }) => {
            output.show(&Changed { verb: "paused", schedule: &store.schedule_pause(&name).await? })
        }
        Plan::Other(ScheduleCommand::Resume { name }) => {
            output.show(&Changed { verb: "resumed", schedule: &store.schedule_resume(&name).await? })
        }
        Plan::Other(ScheduleCommand::Delete { name, consent: args }) => {
            let Schedule { cron, topic, .. } = store.schedule_get(&name).await?.schedule;
            consent(&args, &format!("Delete `{name}`, which emits on {topic} at `{cron}`"))?;
            store.schedule_delete(&name, &context.actor).await?;
            output.show(&Deleted { name })
        }
    }
}

/// What a verb made of a schedule.
#[derive(Debug, Serialize)]
struct Changed<'a> {
    #[serde(skip)]
    verb: &'static str,
    #[serde(flatten)]
    schedule: &'a Schedule,
}

impl View for Changed<'_> {
    fn human(&self, page: &Page) -> String {
        let Schedule { name, topic, next_at, paused_at, .. } = self.schedule;
        let name = page.paint(Role::Heading, name);
        let next = match paused_at {
            Some(_) => "when it is resumed".to_owned(),
            None => page.when(*next_at),
        };
        format!("{} {name}, which emits on {topic}: next {next}\n", self.verb)
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

/// All schedules.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct List(Vec<Schedule>);

impl View for List {
    fn human(&self, page: &Page) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut table = page.table([
            Column::left("SCHEDULE"),
            Column::left("CRON"),
            Column::left("ZONE"),
            Column::left("TOPIC"),
            Column::left("STATE"),
            Column::left("LAST TICK"),
            Column::left("NEXT"),
        ]);
        for schedule in &self.0 {
            table.row([
                Cell::new(&schedule.name),
                Cell::short(&schedule.cron),
                Cell::new(&schedule.zone),
                Cell::short(schedule.topic.as_str()),
                state(schedule, page),
                Cell::new(schedule.ticked_at.map_or_else(|| "none".to_owned(), |at| page.relative(at))),
                Cell::new(page.relative(schedule.next_at)),
            ]);
        }
        table.finish()
    }
}

/// Waits, is paused, or waits for a relay that has not come.
fn state(schedule: &Schedule, page: &Page) -> Cell {
    // Relays look every few seconds, and this machine's clock may be another one than the database's.
    const LATE: Duration = Duration::from_secs(10);
    match schedule.paused_at {
        Some(_) => Cell::new("paused").role(Role::Waits),
        None if page.is_future(schedule.next_at.after(LATE)) => Cell::new("active").role(Role::Good),
        None => Cell::new("no relay").role(Role::Waits),
    }
}

/// One schedule with what it emits, and when.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    schedule: &'a Schedule,
    headers: Option<&'a Headers>,
    #[serde(flatten)]
    payload: PayloadView<'a>,
    next: Vec<Tick>,
    #[serde(skip)]
    report: &'a ScheduleReport,
}

#[derive(Debug, Serialize)]
struct Tick {
    at: Timestamp,
    local: String,
}

impl<'a> Shown<'a> {
    fn new(report: &'a ScheduleReport, now: Timestamp, payloads: Payloads) -> Result<Self> {
        let schedule = &report.schedule;
        // From now on if it is late or paused, else from where it stands, which may be far ahead of the clock.
        let after = schedule.next_at.before(Duration::from_secs(1)).max(now);
        let tick = |at| Ok(Tick { at, local: schedule.local(at)? });
        let next = schedule.ticks_after(after, TICKS_SHOWN)?.into_iter().map(tick).collect::<Result<_>>()?;
        Ok(match payloads {
            Payloads::Shown => {
                let payload = PayloadView::new(&report.payload);
                Self { schedule, headers: Some(&report.headers), payload, next, report }
            }
            Payloads::Withheld => {
                Self { schedule, headers: None, payload: PayloadView::withheld(), next, report }
            }
        })
    }

    fn settings(&self, page: &Page) -> String {
        let schedule = self.schedule;
        let state = match schedule.paused_at {
            Some(at) => Cell::new(format!("paused since {}", page.when(at))).role(Role::Waits),
            None => state(schedule, page),
        };
        let last = schedule.ticked_at.map_or_else(|| "none".to_owned(), |at| page.when(at));
        let mut fields = vec![
            ("schedule", Cell::new(&schedule.name)),
            ("cron", Cell::new(&schedule.cron)),
            ("zone", Cell::new(&schedule.zone)),
            ("missed", Cell::new(missed_word(schedule.missed))),
            ("topic", Cell::new(schedule.topic.as_str())),
            ("type", Cell::new(schedule.kind.as_str())),
            ("key", Cell::new(schedule.key.as_ref().map_or("none", |key| key.as_str()))),
            ("put", Cell::new(page.when(schedule.created_at))),
            ("state", state),
            ("last tick", Cell::new(last)),
        ];
        for (name, value) in self.headers.into_iter().flat_map(Headers::iter) {
            fields.push(("header", Cell::new(format!("{name}: {value}"))));
        }
        page.fields(fields)
    }

    fn ticks(&self, page: &Page) -> String {
        let columns = [Column::left("NEXT TICKS"), Column::left("UTC"), Column::left("")];
        let mut table = page.table(columns);
        for tick in &self.next {
            table.row([
                Cell::new(&tick.local),
                Cell::new(text::moment(tick.at)),
                Cell::new(page.relative(tick.at)),
            ]);
        }
        table.finish()
    }
}

impl View for Shown<'_> {
    fn human(&self, page: &Page) -> String {
        let payload = match self.headers {
            Some(_) => payload::block(&self.report.payload),
            None => format!("{}\n", payload::WITHHELD),
        };
        format!("{}\n{}\n{payload}", self.settings(page), self.ticks(page))
    }
}

fn missed_word(missed: Missed) -> &'static str {
    match missed {
        Missed::Skip => "skip: missed ticks are dropped",
        Missed::Once => "once: one event for all missed ticks",
        Missed::All => "all: one event for each missed tick, for the last 1,000",
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_core::schedule::ScheduleId;
    use postrider_core::{Key, Kind, Topic};

    use super::*;

    fn page() -> Page {
        Page::plain(now())
    }

    fn now() -> Timestamp {
        "2027-10-30T10:00:00Z".parse().unwrap()
    }

    fn report() -> ScheduleReport {
        let mut headers = Headers::default();
        headers.set("floor", "1");
        let schedule = Schedule {
            id: ScheduleId(7),
            name: "tidy-up".to_owned(),
            cron: "30 2 * * *".to_owned(),
            zone: "Europe/Berlin".to_owned(),
            missed: Missed::Once,
            topic: Topic::new("house"),
            kind: Kind::new("house.untidy"),
            key: Some(Key::new("kitchen")),
            created_at: "2027-10-29T10:00:00Z".parse().unwrap(),
            paused_at: None,
            next_at: "2027-10-31T00:30:00Z".parse().unwrap(),
            ticked_at: Some("2027-10-30T00:30:00Z".parse().unwrap()),
        };
        ScheduleReport { schedule, payload: Bytes::from_static(b"{\"a\": 1}"), headers }
    }

    #[test]
    fn one_schedule_is_shown_with_its_next_ticks_in_both_zones() {
        let report = report();
        let shown = Shown::new(&report, now(), Payloads::Shown).unwrap();
        let text = shown.human(&page());
        for told in [
            "once: one event for all missed ticks",
            "floor: 1",
            "10 h ago (2027-10-30T00:30:00Z)",
            "2027-10-31T02:30:00+02:00",
            "2027-10-31T00:30:00Z",
            "2027-11-01T02:30:00+01:00",
            "2027-11-01T01:30:00Z",
            "{\"a\": 1}",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!((&json["name"], &json["type"]), (&"tidy-up".into(), &"house.untidy".into()));
        assert_eq!(json["payload"]["a"], 1);
        assert_eq!(json["next"].as_array().unwrap().len(), TICKS_SHOWN);
        assert_eq!(json["next"][0]["at"], "2027-10-31T00:30:00Z");
        assert_eq!(json["next"][1]["local"], "2027-11-01T02:30:00+01:00");
    }

    #[test]
    fn what_may_not_be_read_is_not_taken_for_empty() {
        let report = report();
        let shown = Shown::new(&report, now(), Payloads::Withheld).unwrap();
        let text = shown.human(&page());
        assert!(text.contains(payload::WITHHELD) && !text.contains("floor"), "{text}");
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!((&json["payload_withheld"], &json["headers"]), (&true.into(), &serde_json::Value::Null));
    }

    #[test]
    fn a_list_says_who_waits_for_what() {
        let active = report().schedule;
        let paused = Schedule { paused_at: Some(now()), ..active.clone() };
        let late = Schedule { next_at: "2027-10-30T09:00:00Z".parse().unwrap(), ..active.clone() };
        let text = List(vec![active, paused, late]).human(&page());
        for told in ["active", "paused", "no relay", "in 15 h"] {
            assert!(text.contains(told), "{told}: {text}");
        }
    }
}
