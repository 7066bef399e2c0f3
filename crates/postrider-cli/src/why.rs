//! Sentences that explain where an event stands for one subscription.
//!
//! They tell what the store knows and guess nothing. Where it cannot say how a delivery ended, the sentence says that.

mod story;

use postrider_core::store::{DeliveryAction, DeliveryReport, ProgressReport};
use postrider_core::{DeliveryState, EventId, Timestamp};

use self::story::{Story, by, last_action, when};
use crate::output::Page;
use crate::text;

/// What must be known beside the delivery itself.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The event.
    pub(crate) id: EventId,
    /// The `--store` option that suggested commands need.
    pub(crate) store_option: String,
    /// The delivery that it waits behind.
    pub(crate) head: Option<DeliveryReport>,
    /// When it died.
    pub(crate) died_at: Option<Timestamp>,
    /// Whether a member delivers the subscription.
    pub(crate) is_held: bool,
    /// How else than by a delivery it may be done without a trace, if it may: the end of `delivered, unless …`.
    pub(crate) unless: Option<&'static str>,
}

/// Says what became of an event, or what it waits for and what can be done about it.
pub(crate) fn explain(report: &DeliveryReport, facts: &Facts, page: &Page) -> String {
    match report.state {
        DeliveryState::Done => done(report, facts, page),
        DeliveryState::Leased => leased(report, page),
        DeliveryState::Dead => dead(report, facts, page),
        DeliveryState::Pending => {
            again(report, page) + &pending(report, facts, page) + &standstill(report, facts)
        }
    }
}

/// What is over: `failed 4 times (HTTP status 500), edited by ann, replayed by ann 20 s ago, delivered`.
fn done(report: &DeliveryReport, facts: &Facts, page: &Page) -> String {
    let story = Story::of(report, page);
    if report.actions.is_none() {
        let told = story.told(Some("done"));
        return format!("{told}: delivered, unless the audit, which this role may not read, says otherwise");
    }
    match last_action(report).map(|last| last.action) {
        Some(DeliveryAction::Discarded | DeliveryAction::Cancelled) => story.told(None),
        Some(DeliveryAction::PassedOver) => story.told(Some("unless it was delivered before")),
        // It was attempted, so that only a delivery ends it.
        _ if !report.history.is_empty() => story.told(Some("delivered")),
        _ => match facts.unless {
            Some(unless) => story.told(Some(&format!("delivered, unless {unless}"))),
            None => story.told(Some("delivered")),
        },
    }
}

fn leased(report: &DeliveryReport, page: &Page) -> String {
    let mut told = format!("is being delivered now, attempt {}", (report.attempts - report.lost).max(1));
    if let Some(ProgressReport { percent: Some(percent), .. }) = &report.progress {
        told = format!("{told}, {percent}%");
    }
    if report.lost > 0 {
        told = format!("{told}; its worker was lost {} before", text::times(report.lost));
    }
    match last_action(report) {
        Some(last) if last.action == DeliveryAction::Cancelled => {
            told + &format!("; {}{}, but its handler has not ended yet", by(last), when(last, page))
        }
        _ => told,
    }
}

fn dead(report: &DeliveryReport, facts: &Facts, page: &Page) -> String {
    let since = facts.died_at.map_or_else(String::new, |at| format!(" since {}", page.when(at)));
    let did =
        last_action(report).map_or_else(String::new, |last| format!(", {}{}", by(last), when(last, page)));
    format!(
        "dead{since}, after {}{}{did}; {}",
        text::counted(u64::from(report.attempts), "attempt"),
        last_error(report),
        replay_hint(&report.subscription, facts.id, &facts.store_option)
    )
}

/// Says that it waits because an operator wanted it again, if it has not been attempted since.
fn again(report: &DeliveryReport, page: &Page) -> String {
    match last_action(report) {
        Some(last)
            if report.attempts == 0
                && matches!(last.action, DeliveryAction::Replayed | DeliveryAction::BroughtBack) =>
        {
            format!("{}{}: ", by(last), when(last, page))
        }
        _ => String::new(),
    }
}

fn pending(report: &DeliveryReport, facts: &Facts, page: &Page) -> String {
    if let Some(head) = report.behind {
        return format!("waits behind event {head} of its key, {}", behind(head, report, facts, page));
    }
    if let Some(ahead) = report.ahead {
        let due = match report.due_at {
            Some(at) if page.is_future(at) => format!(", and due {}", page.relative(at)),
            _ => String::new(),
        };
        return match ahead {
            0 => format!("not reached yet: it comes next{due}"),
            _ => format!("not reached yet: {} ahead of it{due}", text::counted(ahead, "event")),
        };
    }
    match (report.attempts, report.due_at) {
        (0, Some(at)) if page.is_future(at) => format!("delayed, due {}", page.relative(at)),
        (0, _) => "due, and waits for its turn".to_owned(),
        _ => failed(report, page),
    }
}

/// What the event at the head of the key waits for, as the end of a sentence.
fn behind(id: EventId, report: &DeliveryReport, facts: &Facts, page: &Page) -> String {
    let Some(head) = &facts.head else {
        return "which was not delivered when this was looked up".to_owned();
    };
    match head.state {
        DeliveryState::Done => "which has just been delivered".to_owned(),
        DeliveryState::Leased => "which is being delivered now".to_owned(),
        DeliveryState::Dead => {
            let hint = replay_hint(&report.subscription, id, &facts.store_option);
            format!("which is a dead letter{}; {hint}", last_error(head))
        }
        DeliveryState::Pending if head.attempts > 0 => format!("which {}", failed(head, page)),
        DeliveryState::Pending => match head.due_at {
            Some(at) if page.is_future(at) => format!("which is due {}", page.relative(at)),
            _ => "which is due and waits for its turn".to_owned(),
        },
    }
}

fn failed(report: &DeliveryReport, page: &Page) -> String {
    let next = match report.due_at {
        Some(at) if page.is_future(at) => format!("next attempt {}", page.relative(at)),
        _ => "next attempt as soon as possible".to_owned(),
    };
    let (failed, lost) = (report.attempts - report.lost, report.lost);
    let failures = format!("failed {}{}", text::times(failed), last_error(report));
    let losses = format!("lost its worker {}", text::times(lost));
    let told = match (failed, lost) {
        (_, 0) => failures,
        (0, _) => losses,
        _ => format!("{failures} and {losses}"),
    };
    format!("{told}; {next}")
}

/// Why nothing will happen, if that is so.
fn standstill(report: &DeliveryReport, facts: &Facts) -> String {
    let (name, option) = (&report.subscription, &facts.store_option);
    if report.paused {
        format!("; the subscription is paused: `postrider subscription resume {name}{option}` ends that")
    } else if facts.is_held {
        String::new()
    } else {
        "; no member delivers the subscription: start a relay or the application's worker".to_owned()
    }
}

fn replay_hint(subscription: &str, id: EventId, option: &str) -> String {
    format!("`postrider dead-letter replay {subscription} {id}{option}` sends it round again")
}

/// The last error in brackets.
fn last_error(report: &DeliveryReport) -> String {
    report.history.last().map_or_else(String::new, |attempt| reason(&attempt.error))
}

/// An error in brackets. Of a long one, whole clauses: an error says what is wrong and then what to do about
/// it. The rest of it is in `dead-letter show`.
fn reason(error: &str) -> String {
    const CHARS_MAX: usize = 160;
    if error.is_empty() {
        return String::new();
    }
    let Some((cut, _)) = error.char_indices().nth(CHARS_MAX) else { return format!(" ({error})") };
    let end = [": ", "; ", ". ", ", "].iter().filter_map(|mark| error[..cut].rfind(mark)).max();
    match end {
        Some(end) if end > 0 => format!(" ({} …)", &error[..end]),
        _ => format!(" ({})", text::shorten(error, CHARS_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::store::{ActionReport, AttemptReport};

    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T08:30:00Z".parse().unwrap()
    }

    fn report(state: DeliveryState) -> DeliveryReport {
        DeliveryReport {
            subscription: "audit".to_owned(),
            state,
            attempts: 0,
            lost: 0,
            due_at: None,
            behind: None,
            ahead: None,
            paused: false,
            history: Vec::new(),
            actions: Some(Vec::new()),
            result: None,
            progress: None,
        }
    }

    fn failed_report(state: DeliveryState) -> DeliveryReport {
        let attempt = AttemptReport {
            attempt: 3,
            started_at: now(),
            took: Duration::from_millis(5),
            member: "host:1".to_owned(),
            error: "connection refused".to_owned(),
        };
        let due_at = Some(now().after(Duration::from_secs(12)));
        DeliveryReport { attempts: 3, due_at, history: vec![attempt], ..report(state) }
    }

    fn facts() -> Facts {
        Facts {
            id: EventId(17),
            store_option: String::new(),
            head: None,
            died_at: None,
            is_held: true,
            unless: None,
        }
    }

    fn check(report: &DeliveryReport, facts: &Facts, sentence: &str) {
        assert_eq!(explain(report, facts, &Page::plain(now())), sentence);
    }

    fn ago(secs: u64) -> Timestamp {
        now().before(Duration::from_secs(secs))
    }

    /// An operator's action so many seconds ago.
    fn did(action: DeliveryAction, secs: u64) -> ActionReport {
        ActionReport { action, at: ago(secs), actor: "ann (cli)".to_owned() }
    }

    fn failure(attempt: u32, secs: u64) -> AttemptReport {
        let took = Duration::ZERO;
        let (member, error) = ("host:1".to_owned(), "HTTP status 500".to_owned());
        AttemptReport { attempt, started_at: ago(secs), took, member, error }
    }

    #[test]
    fn what_is_over_is_told_as_such() {
        check(&report(DeliveryState::Done), &facts(), "delivered");
        check(
            &failed_report(DeliveryState::Done),
            &facts(),
            "failed 3 times (connection refused), delivered",
        );
        let unless = Facts { unless: Some("the subscription began behind it"), ..facts() };
        check(&report(DeliveryState::Done), &unless, "delivered, unless the subscription began behind it");
        check(
            &failed_report(DeliveryState::Dead),
            &Facts { died_at: Some(ago(180)), ..facts() },
            "dead since 3 min ago (2026-11-15T08:27:00Z), after 3 attempts (connection refused); `postrider dead-letter replay audit 17` sends it round again",
        );
    }

    #[test]
    fn what_runs_has_the_number_that_its_handler_sees() {
        let leased = |attempts, lost| DeliveryReport { attempts, lost, ..report(DeliveryState::Leased) };
        check(&leased(1, 0), &facts(), "is being delivered now, attempt 1");
        check(&leased(3, 1), &facts(), "is being delivered now, attempt 2; its worker was lost once before");
        let lost = DeliveryReport { attempts: 2, lost: 2, ..report(DeliveryState::Pending) };
        check(&lost, &facts(), "lost its worker twice; next attempt as soon as possible");
    }

    #[test]
    fn what_people_did_is_told_with_their_name_and_the_time() {
        use DeliveryAction::{BroughtBack, Cancelled, Discarded, Edited, PassedOver, Replayed};
        let four = || (1..=4).map(|attempt| failure(attempt, 100 - u64::from(attempt))).collect::<Vec<_>>();
        let of = |state, history: Vec<AttemptReport>, actions: Vec<ActionReport>| DeliveryReport {
            history,
            actions: Some(actions),
            ..report(state)
        };
        let done = |history, actions| of(DeliveryState::Done, history, actions);
        let mut twice = four();
        twice.push(failure(1, 15));
        let cancelled = vec![failure(1, 8)];
        for (report, sentence) in [
            (
                done(four(), vec![did(Edited, 40), did(Replayed, 20)]),
                "failed 4 times (HTTP status 500), edited by ann, replayed by ann 20 s ago, delivered",
            ),
            (
                done(twice, vec![did(Replayed, 20)]),
                "failed 4 times (HTTP status 500), replayed by ann 20 s ago, failed once (HTTP status 500), delivered",
            ),
            (
                done(four(), vec![did(Discarded, 30)]),
                "failed 4 times (HTTP status 500), discarded by ann 30 s ago",
            ),
            (
                done(cancelled, vec![did(Cancelled, 10)]),
                "cancelled by ann 10 s ago; its handler ended 2 s later",
            ),
            (done(Vec::new(), vec![did(Cancelled, 10)]), "cancelled by ann 10 s ago"),
            (
                of(DeliveryState::Leased, Vec::new(), vec![did(Cancelled, 10)]),
                "is being delivered now, attempt 1; cancelled by ann 10 s ago, but its handler has not ended yet",
            ),
            (
                done(Vec::new(), vec![did(PassedOver, 10)]),
                "passed over by a seek of ann 10 s ago, unless it was delivered before",
            ),
            (
                of(DeliveryState::Pending, four(), vec![did(Replayed, 20)]),
                "replayed by ann 20 s ago: due, and waits for its turn",
            ),
            (
                done(Vec::new(), vec![did(BroughtBack, 20)]),
                "brought back by a seek of ann 20 s ago, delivered",
            ),
        ] {
            check(&report, &facts(), sentence);
        }
        let unknown = DeliveryReport { actions: None, ..report(DeliveryState::Done) };
        check(
            &unknown,
            &facts(),
            "done: delivered, unless the audit, which this role may not read, says otherwise",
        );
    }

    #[test]
    fn a_long_reason_ends_with_a_clause() {
        let hint = "use letters ".repeat(20);
        assert_eq!(reason(&format!("`a b` is no subject: {hint}")), " (`a b` is no subject …)");
        assert_eq!(reason("short: all of it"), " (short: all of it)");
        assert_eq!(reason(&"x".repeat(200)).chars().count(), 160 + 3);
    }

    #[test]
    fn what_waits_says_for_what() {
        let pending = report(DeliveryState::Pending);
        let later = Some(now().after(Duration::from_secs(600)));
        check(&pending, &facts(), "due, and waits for its turn");
        check(&DeliveryReport { due_at: later, ..pending.clone() }, &facts(), "delayed, due in 10 min");
        check(
            &DeliveryReport { ahead: Some(1), ..pending.clone() },
            &facts(),
            "not reached yet: 1 event ahead of it",
        );
        check(
            &DeliveryReport { ahead: Some(1_200), due_at: later, ..pending.clone() },
            &facts(),
            "not reached yet: 1,200 events ahead of it, and due in 10 min",
        );
        check(&DeliveryReport { ahead: Some(0), ..pending }, &facts(), "not reached yet: it comes next");
        check(
            &failed_report(DeliveryState::Pending),
            &facts(),
            "failed 3 times (connection refused); next attempt in 12 s",
        );
    }

    #[test]
    fn what_waits_behind_another_event_tells_that_ones_story() {
        let behind = DeliveryReport { behind: Some(EventId(12)), ..report(DeliveryState::Pending) };
        let with = |head| Facts { head: Some(head), ..facts() };
        for (head, story) in [
            (
                failed_report(DeliveryState::Pending),
                "which failed 3 times (connection refused); next attempt in 12 s",
            ),
            (report(DeliveryState::Leased), "which is being delivered now"),
            (
                failed_report(DeliveryState::Dead),
                "which is a dead letter (connection refused); `postrider dead-letter replay audit 12` sends it round again",
            ),
        ] {
            check(&behind, &with(head), &format!("waits behind event 12 of its key, {story}"));
        }
    }

    #[test]
    fn a_standstill_is_named_with_its_remedy() {
        let paused = DeliveryReport { paused: true, ahead: Some(2), ..report(DeliveryState::Pending) };
        check(
            &paused,
            &Facts { store_option: " --store sqlite://x.db".to_owned(), is_held: false, ..facts() },
            "not reached yet: 2 events ahead of it; the subscription is paused: `postrider subscription resume audit --store sqlite://x.db` ends that",
        );
        check(
            &DeliveryReport { paused: false, ..paused },
            &Facts { is_held: false, ..facts() },
            "not reached yet: 2 events ahead of it; no member delivers the subscription: start a relay or the application's worker",
        );
    }
}
