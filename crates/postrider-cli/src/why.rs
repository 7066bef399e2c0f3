//! Sentences that explain where an event stands for one subscription.

use postrider_core::store::DeliveryReport;
use postrider_core::{DeliveryState, EventId, Timestamp};

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
}

/// Says what became of an event, or what it waits for and what can be done about it.
pub(crate) fn explain(report: &DeliveryReport, facts: &Facts, page: &Page) -> String {
    match report.state {
        DeliveryState::Done if report.attempts == 0 && report.history.is_empty() => "delivered".to_owned(),
        DeliveryState::Done => {
            format!(
                "done after it failed {}: delivered at last, or discarded",
                text::times(report.attempts.max(1))
            )
        }
        DeliveryState::Leased => format!("is being delivered now, attempt {}", report.attempts + 1),
        DeliveryState::Dead => dead(report, facts, page),
        DeliveryState::Pending => pending(report, facts, page) + &standstill(report, facts),
    }
}

fn dead(report: &DeliveryReport, facts: &Facts, page: &Page) -> String {
    let since = facts.died_at.map_or_else(String::new, |at| format!(" since {}", page.when(at)));
    format!(
        "dead{since}, after {}{}; {}",
        text::counted(u64::from(report.attempts), "attempt"),
        last_error(report),
        replay_hint(&report.subscription, facts.id, &facts.store_option)
    )
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
    format!("failed {}{}; {next}", text::times(report.attempts), last_error(report))
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

/// The last error in brackets; the whole of it is in `dead-letter show`.
fn last_error(report: &DeliveryReport) -> String {
    match report.history.last() {
        Some(attempt) if !attempt.error.is_empty() => format!(" ({})", text::shorten(&attempt.error, 120)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::store::AttemptReport;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T08:30:00Z".parse().unwrap()
    }

    fn report(state: DeliveryState) -> DeliveryReport {
        DeliveryReport {
            subscription: "audit".to_owned(),
            state,
            attempts: 0,
            due_at: None,
            behind: None,
            ahead: None,
            paused: false,
            history: Vec::new(),
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
        Facts { id: EventId(17), store_option: String::new(), head: None, died_at: None, is_held: true }
    }

    fn check(report: &DeliveryReport, facts: &Facts, sentence: &str) {
        assert_eq!(explain(report, facts, &Page::plain(now())), sentence);
    }

    #[test]
    fn what_is_over_is_told_as_such() {
        check(&report(DeliveryState::Done), &facts(), "delivered");
        check(
            &failed_report(DeliveryState::Done),
            &facts(),
            "done after it failed 3 times: delivered at last, or discarded",
        );
        check(&report(DeliveryState::Leased), &facts(), "is being delivered now, attempt 1");
        check(
            &failed_report(DeliveryState::Dead),
            &Facts { died_at: Some(now().before(Duration::from_secs(180))), ..facts() },
            "dead since 3 min ago (2026-11-15T08:27:00Z), after 3 attempts (connection refused); `postrider dead-letter replay audit 17` sends it round again",
        );
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
