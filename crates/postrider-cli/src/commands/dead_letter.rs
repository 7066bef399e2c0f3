//! `postrider dead-letter`.

use postrider_core::store::{DeadLetter, DeadLetterQuery, LetterId, Payloads};
use postrider_core::{Error, ErrorKind, EventId, Result, Store, Timestamp, limits};
use serde::Serialize;

use super::Context;
use super::event::{AttemptView, EventView};
use crate::args::{DeadLetterCommand, DeadLetterListArgs, LetterArgs, WhichArgs};
use crate::confirm::consent;
use crate::output::{Cell, Column, Page, Role, View};
use crate::payload::{self, PayloadView};
use crate::progress::Progress;
use crate::text;

/// Runs one of the verbs.
pub(crate) async fn run<S: Store>(
    store: &S,
    command: DeadLetterCommand,
    context: &Context<'_>,
) -> Result<()> {
    match command {
        DeadLetterCommand::List(args) => list(store, args, context).await,
        DeadLetterCommand::Show(args) => {
            let letter = store.dead_letter_get(&args.into()).await?;
            context.output.show(&Shown(LetterView::new(&letter, store.payloads())))
        }
        DeadLetterCommand::Edit { letter, payload, raw } => {
            let payload = payload::read(&payload, raw)?;
            check_size(payload.len())?;
            let letter = LetterId::from(letter);
            store.dead_letter_edit(&letter, payload.clone(), &context.actor).await?;
            context.output.show(&Edited { edited: letter, bytes: payload.len() as u64 })
        }
        DeadLetterCommand::Replay(which) => {
            let replayed = replay(store, &which, context).await?;
            context.output.show(&Replayed { replayed })
        }
        DeadLetterCommand::Discard { which, consent: args } => {
            let name = &which.subscription;
            let what = if let Some(id) = which.id {
                format!("event {id}")
            } else {
                let dead = store.subscription_report(name).await?.dead;
                if dead == 0 {
                    context.output.note(&format!("`{name}` has no dead letters"));
                    return context.output.show(&Discarded { discarded: 0 });
                }
                format!("all dead letters ({})", text::count(dead))
            };
            consent(&args, &format!("Give up {what} of `{name}` for good"))?;
            let discarded = discard(store, &which, context).await?;
            context.output.show(&Discarded { discarded })
        }
    }
}

async fn list<S: Store>(store: &S, args: DeadLetterListArgs, context: &Context<'_>) -> Result<()> {
    if let Some(name) = &args.subscription {
        store.subscription_get(name).await?;
    }
    let limit = args.limit as usize;
    let of_all = args.subscription.is_none();
    let query = DeadLetterQuery { subscription: args.subscription, event_id: None, after: args.after, limit };
    let mut letters = store.dead_letter_list(query).await?;
    let full = letters.len() == limit;
    if full && of_all {
        end_between_events(&mut letters);
    }
    let view = |letter| LetterView::new(letter, store.payloads());
    context.output.show(&List(letters.iter().map(view).collect()))?;
    match letters.last() {
        None => context.output.note("no dead letters"),
        Some(last) if full => context.output.note(&format!("more: add --after {}", last.event.id)),
        Some(_) => {}
    }
    Ok(())
}

/// The next page begins behind an event, which may be dead for several subscriptions: unless it is all there
/// is, a last event whose letters may not all have fitted is left to that page.
fn end_between_events(letters: &mut Vec<DeadLetter>) {
    let Some(last) = letters.last().map(|letter| letter.event.id) else { return };
    if letters[0].event.id != last {
        letters.retain(|letter| letter.event.id != last);
    }
}

async fn replay<S: Store>(store: &S, which: &WhichArgs, context: &Context<'_>) -> Result<u64> {
    let Some(id) = which.id else {
        let mut bites = Bites::new(store, which, context).await?;
        while bites.left > 0 {
            let bite = store.dead_letter_replay(bites.query(), &context.actor).await?;
            bites.took(bite);
        }
        return Ok(bites.done);
    };
    let replayed = store.dead_letter_replay(one(which, id), &context.actor).await?;
    some_or_not_found(store, which, id, replayed).await
}

async fn discard<S: Store>(store: &S, which: &WhichArgs, context: &Context<'_>) -> Result<u64> {
    let Some(id) = which.id else {
        let mut bites = Bites::new(store, which, context).await?;
        while bites.left > 0 {
            let bite = store.dead_letter_discard(bites.query(), &context.actor).await?;
            bites.took(bite);
        }
        return Ok(bites.done);
    };
    let discarded = store.dead_letter_discard(one(which, id), &context.actor).await?;
    some_or_not_found(store, which, id, discarded).await
}

fn one(which: &WhichArgs, id: EventId) -> DeadLetterQuery {
    DeadLetterQuery {
        subscription: Some(which.subscription.clone()),
        event_id: Some(id),
        after: None,
        limit: 1,
    }
}

/// A letter that was named and is not there is an error; the store passes it over.
async fn some_or_not_found<S: Store>(store: &S, which: &WhichArgs, id: EventId, count: u64) -> Result<u64> {
    if count > 0 {
        return Ok(count);
    }
    let name = &store.subscription_get(&which.subscription).await?.name;
    Err(Error::new(
        ErrorKind::NotFound,
        format!(
            "event {id} is no dead letter of `{name}`: `postrider dead-letter list --subscription {name}` shows them"
        ),
    ))
}

/// All dead letters of a subscription, some at a time.
struct Bites {
    subscription: String,
    left: u64,
    done: u64,
    progress: Progress,
}

impl Bites {
    /// As many as there are now. Letters that die again while this runs are left alone: otherwise a
    /// receiver that refuses everything would keep a replay going for ever.
    async fn new<S: Store>(store: &S, which: &WhichArgs, context: &Context<'_>) -> Result<Self> {
        let left = store.subscription_report(&which.subscription).await?.dead;
        let progress = Progress::new(context.output, Some(left));
        Ok(Self { subscription: which.subscription.clone(), left, done: 0, progress })
    }

    fn query(&self) -> DeadLetterQuery {
        let limit = self.left.min(limits::PAGE_ROWS_MAX as u64) as usize;
        DeadLetterQuery { subscription: Some(self.subscription.clone()), event_id: None, after: None, limit }
    }

    fn took(&mut self, bite: u64) {
        self.done += bite;
        self.left = if bite == 0 { 0 } else { self.left.saturating_sub(bite) };
        self.progress.advance(bite);
    }
}

fn check_size(bytes: usize) -> Result<()> {
    let limit = limits::PAYLOAD_BYTES_MAX;
    if bytes > limit {
        return Err(Error::invalid(format!(
            "payload is {bytes} bytes, the limit is {limit}: make it smaller"
        )));
    }
    Ok(())
}

impl From<LetterArgs> for LetterId {
    fn from(args: LetterArgs) -> Self {
        Self { subscription: args.subscription, event_id: args.id }
    }
}

/// A dead letter: the same for `list`, where only the last attempt is told, and `show`.
#[derive(Debug, Serialize)]
struct LetterView<'a> {
    subscription: &'a str,
    event: EventView<'a>,
    edited: Option<PayloadView<'a>>,
    holds: bool,
    died_at: Timestamp,
    attempts: u32,
    history: Vec<AttemptView<'a>>,
    #[serde(skip)]
    letter: &'a DeadLetter,
}

impl<'a> LetterView<'a> {
    fn new(letter: &'a DeadLetter, payloads: Payloads) -> Self {
        Self {
            subscription: &letter.letter.subscription,
            event: EventView::listed(&letter.event, payloads),
            edited: letter
                .edited_payload
                .as_deref()
                .map(|edited| PayloadView::of_length(edited, letter.edited_bytes)),
            holds: letter.holds,
            died_at: letter.died_at,
            attempts: letter.attempts,
            history: letter.history.iter().map(AttemptView::new).collect(),
            letter,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct List<'a>(Vec<LetterView<'a>>);

impl View for List<'_> {
    fn human(&self, page: &Page) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut table = page.table([
            Column::left("SUBSCRIPTION"),
            Column::right("ID"),
            Column::left("TYPE"),
            Column::left("KEY"),
            Column::left("DIED"),
            Column::right("ATTEMPTS"),
            Column::left("ERROR"),
        ]);
        for LetterView { letter, .. } in &self.0 {
            let event = &letter.event;
            let error = letter.history.last().map_or("", |attempt| &attempt.error);
            table.row([
                Cell::new(&letter.letter.subscription),
                Cell::new(event.id.to_string()),
                Cell::short(event.kind.as_str()),
                event
                    .key
                    .as_ref()
                    .map_or_else(|| Cell::new("-").role(Role::Faint), |key| Cell::short(key.as_str())),
                Cell::new(page.relative(letter.died_at)),
                Cell::count(u64::from(letter.attempts)),
                Cell::short(error).role(Role::Bad),
            ]);
        }
        table.finish()
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Shown<'a>(LetterView<'a>);

impl View for Shown<'_> {
    fn human(&self, page: &Page) -> String {
        let letter = self.0.letter;
        let mut fields = vec![
            ("subscription", Cell::new(&letter.letter.subscription)),
            ("died", Cell::new(page.when(letter.died_at)).role(Role::Bad)),
            ("attempts", Cell::count(u64::from(letter.attempts))),
        ];
        if letter.holds {
            let waits = "later events of its key wait until it is replayed or discarded";
            fields.push(("holds", Cell::new(waits).role(Role::Waits)));
        }
        fields.extend(self.0.event.fields(page));
        let mut text = page.fields(fields);
        text.push('\n');
        text.push_str(&self.0.event.block());
        if let Some(edited) = &letter.edited_payload {
            text.push('\n');
            text.push_str(&page.paint(Role::Waits, "edited: a replay delivers this instead"));
            text.push('\n');
            text.push_str(&payload::block(edited));
        }
        if !self.0.history.is_empty() {
            text.push('\n');
            text.push_str(&AttemptView::table(&self.0.history, page));
        }
        text
    }
}

#[derive(Debug, Serialize)]
struct Edited {
    edited: LetterId,
    bytes: u64,
}

impl View for Edited {
    fn human(&self, _page: &Page) -> String {
        let LetterId { subscription, event_id } = &self.edited;
        let bytes = text::bytes(self.bytes);
        format!("edited event {event_id} of {subscription}: a replay delivers the new payload ({bytes})\n")
    }
}

#[derive(Debug, Serialize)]
struct Replayed {
    replayed: u64,
}

impl View for Replayed {
    fn human(&self, _page: &Page) -> String {
        format!("replayed {}\n", text::counted(self.replayed, "dead letter"))
    }
}

#[derive(Debug, Serialize)]
struct Discarded {
    discarded: u64,
}

impl View for Discarded {
    fn human(&self, _page: &Page) -> String {
        format!("discarded {}\n", text::counted(self.discarded, "dead letter"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use postrider_core::event::Listed;
    use postrider_core::store::AttemptReport;

    use super::*;
    use crate::commands::event::tests::sample;

    fn page() -> Page {
        Page::plain("2026-11-15T08:30:00Z".parse().unwrap())
    }

    fn letter() -> DeadLetter {
        DeadLetter {
            letter: LetterId { subscription: "audit".to_owned(), event_id: EventId(7) },
            event: Listed::whole(sample(7)),
            edited_payload: Some(Bytes::from_static(b"{\"total\": 10}")),
            edited_bytes: 13,
            holds: true,
            died_at: "2026-11-15T08:29:00Z".parse().unwrap(),
            attempts: 20,
            history: vec![AttemptReport {
                attempt: 20,
                started_at: "2026-11-15T08:29:00Z".parse().unwrap(),
                took: Duration::from_millis(3_200),
                member: "host:1".to_owned(),
                error: "HTTP status 422: \x1b[2Jno".to_owned(),
            }],
        }
    }

    #[test]
    fn a_list_is_aligned() {
        let expected = "\
SUBSCRIPTION  ID  TYPE           KEY  DIED      ATTEMPTS  ERROR
audit          7  order.created  42   60 s ago        20  HTTP status 422: \\u{1b}[2Jno
";
        assert_eq!(List(vec![LetterView::new(&letter(), Payloads::Shown)]).human(&page()), expected);
    }

    #[test]
    fn one_letter_is_told_in_full() {
        let expected = "\
subscription  audit
died          60 s ago (2026-11-15T08:29:00Z)
attempts      20
holds         later events of its key wait until it is replayed or discarded
event         7
topic         order
type          order.created
key           42
emitted       3 s ago (2026-11-15T08:29:57Z)
headers       trace=abc
payload       13 bytes

{\"total\": 99}

edited: a replay delivers this instead
{\"total\": 10}

ATTEMPT  STARTED   TOOK  MEMBER  ERROR
     20  60 s ago   3 s  host:1  HTTP status 422: \\u{1b}[2Jno
";
        assert_eq!(Shown(LetterView::new(&letter(), Payloads::Shown)).human(&page()), expected);
    }

    #[test]
    fn machines_get_the_same() {
        let letter = letter();
        let json = serde_json::to_value(LetterView::new(&letter, Payloads::Shown)).unwrap();
        assert_eq!(json["event"]["payload"]["total"], 99);
        assert_eq!(json["edited"]["payload"]["total"], 10);
        assert_eq!(json["history"][0]["took_seconds"], 3.2);
        assert_eq!(json["died_at"], "2026-11-15T08:29:00Z");
    }
}
