//! `postrider emit`.

use postrider_core::event::NewEvent;
use postrider_core::unique::Unique;
use postrider_core::{Error, Event, EventId, Result, Store};
use serde::Serialize;

use super::Context;
use crate::args::{DueArg, EmitArgs};
use crate::jsonl::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Batch, Lines};
use crate::output::{Page, View};
use crate::progress::Progress;
use crate::{payload, text};

/// What is to be emitted.
pub(crate) enum Emission {
    /// One event.
    One(Box<NewEvent>),
    /// Many equal events.
    Same { event: Box<NewEvent>, count: u64 },
    /// One event a line. The first lines have been read, so that a bad one leaves no trace.
    Lines { first: Option<Batch>, rest: Lines },
}

/// What was emitted.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Emitted {
    One { id: EventId },
    Many { count: u64, first_id: Option<EventId>, last_id: Option<EventId> },
}

impl Emission {
    /// Reads and checks what was typed.
    pub(crate) fn new(args: EmitArgs) -> Result<Self> {
        if let Some(path) = &args.jsonl {
            let mut rest = Lines::open(path)?;
            let first = rest.next_batch().map_err(|error| Progressed::default().stopped_by(error))?;
            return Ok(Self::Lines { first, rest });
        }
        let count = args.count;
        let event = Box::new(event(args)?);
        event.check()?;
        Ok(match count {
            None => Self::One(event),
            Some(count) => Self::Same { event, count },
        })
    }
}

fn event(args: EmitArgs) -> Result<NewEvent> {
    let mut event = Event::new(args.topic.unwrap_or_default());
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
    if let Some(key) = args.idempotency_key {
        let unique = Unique::new(key).scope(args.scope.into());
        let unique = args.unique_for.into_iter().fold(unique, Unique::within);
        event = event.unique(if args.replace { unique.replace() } else { unique });
    }
    Ok(match args.due {
        None => event,
        Some(DueArg::After(delay)) => event.due_after(delay),
        Some(DueArg::At(at)) => event.due_at(at),
    })
}

/// Emits, and prints the ids.
pub(crate) async fn run<S: Store>(store: &S, emission: Emission, context: &Context<'_>) -> Result<()> {
    let emitted = match emission {
        Emission::One(event) => {
            let ids = store.event_emit(vec![*event]).await?;
            let id = ids.first().copied().ok_or_else(|| Error::invalid("the store returned no id"))?;
            Emitted::One { id }
        }
        Emission::Same { event, count } => emit_same(store, &event, count, context).await?,
        Emission::Lines { first, rest } => emit_lines(store, first, rest, context).await?,
    };
    context.output.show(&emitted)
}

async fn emit_same<S: Store>(
    store: &S,
    event: &NewEvent,
    count: u64,
    context: &Context<'_>,
) -> Result<Emitted> {
    let progress = Progress::new(context.output, Some(count));
    let fitting = (BATCH_BYTES_MAX / event.payload_bytes().len().max(1)).clamp(1, BATCH_EVENTS_MAX);
    let mut done = Progressed::default();
    while done.events < count {
        let batch = (count - done.events).min(fitting as u64);
        let ids = store.event_emit(vec![event.clone(); batch as usize]).await;
        done.add(&ids.map_err(|error| done.stopped_by(error))?);
        progress.advance(batch);
    }
    Ok(done.into())
}

async fn emit_lines<S: Store>(
    store: &S,
    first: Option<Batch>,
    mut rest: Lines,
    context: &Context<'_>,
) -> Result<Emitted> {
    let progress = Progress::new(context.output, None);
    let mut done = Progressed::default();
    let mut next = first;
    while let Some(batch) = next {
        if !batch.events.is_empty() {
            let ids = store.event_emit(batch.events).await.map_err(|error| done.stopped_by(error))?;
            done.add(&ids);
            progress.advance(ids.len() as u64);
        }
        done.lines = Some(batch.last_line);
        next = rest.next_batch().map_err(|error| done.stopped_by(error))?;
    }
    Ok(done.into())
}

/// How far an emission has come, for its result and for the message if it ends early.
#[derive(Debug, Default)]
struct Progressed {
    events: u64,
    first_id: Option<EventId>,
    last_id: Option<EventId>,
    /// The last line of the input that was written.
    lines: Option<u64>,
}

impl Progressed {
    fn add(&mut self, ids: &[EventId]) {
        self.events += ids.len() as u64;
        self.first_id = self.first_id.or(ids.first().copied());
        self.last_id = ids.last().copied().or(self.last_id);
    }

    /// The error with what was written before it, so that the user can go on from there.
    fn stopped_by(&self, error: Error) -> Error {
        let written = match (self.lines, self.events) {
            (_, 0) => "nothing was written".to_owned(),
            (Some(lines), events) => format!(
                "{} before it, up to line {lines}, {} written: go on from line {}",
                text::counted(events, "event"),
                if events == 1 { "was" } else { "were" },
                lines + 1
            ),
            (None, events) => {
                format!(
                    "{} {} written before that",
                    text::counted(events, "event"),
                    if events == 1 { "was" } else { "were" }
                )
            }
        };
        Error::new(error.kind(), format!("{error}; {written}")).with_source(error)
    }
}

impl From<Progressed> for Emitted {
    fn from(done: Progressed) -> Self {
        Self::Many { count: done.events, first_id: done.first_id, last_id: done.last_id }
    }
}

impl View for Emitted {
    fn human(&self, _page: &Page) -> String {
        match self {
            Self::One { id } => format!("emitted {id}\n"),
            Self::Many { count, first_id: Some(first), last_id: Some(last) } => {
                format!("emitted {}: {first} to {last}\n", text::counted(*count, "event"))
            }
            Self::Many { .. } => "nothing to emit\n".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::ErrorKind;

    use super::*;

    fn page() -> Page {
        Page::plain("2026-11-15T08:30:00Z".parse().unwrap())
    }

    #[test]
    fn results_for_people_and_machines() {
        let (first, last) = (Some(EventId(1)), Some(EventId(2_000)));
        for (emitted, human, json) in [
            (Emitted::One { id: EventId(1) }, "emitted 1\n", r#"{"id":1}"#),
            (
                Emitted::Many { count: 2_000, first_id: first, last_id: last },
                "emitted 2,000 events: 1 to 2000\n",
                r#"{"count":2000,"first_id":1,"last_id":2000}"#,
            ),
            (
                Emitted::Many { count: 0, first_id: None, last_id: None },
                "nothing to emit\n",
                r#"{"count":0,"first_id":null,"last_id":null}"#,
            ),
        ] {
            assert_eq!(emitted.human(&page()), human);
            assert_eq!(serde_json::to_string(&emitted).unwrap(), json);
        }
    }

    #[test]
    fn an_early_end_says_what_was_written() {
        let bad = || Error::new(ErrorKind::Busy, "locked");
        let mut done = Progressed::default();
        assert_eq!(done.stopped_by(bad()).to_string(), "locked; nothing was written");
        done.add(&[EventId(7)]);
        assert_eq!(done.stopped_by(bad()).to_string(), "locked; 1 event was written before that");
        done.lines = Some(3);
        let error = done.stopped_by(bad());
        assert_eq!(
            error.to_string(),
            "locked; 1 event before it, up to line 3, was written: go on from line 4"
        );
        assert_eq!(error.kind(), ErrorKind::Busy);
    }
}
