//! What the log says of failures: which event, for whom, which attempt, what comes next and why, in words
//! that hold nothing of the event.
//!
//! The full text of a failure stays in the store: it may hold what a receiver has said of the event's
//! content. The log gets the failure's label, or a word for its class, and names the command that shows the
//! rest.
//!
//! A thousand keys that fail must not drown the rest of the log. So the log names at most [`LINES_PER_SECOND`]
//! failures a second of each subscription one by one, and gives the others as a number.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::Origin;
use postrider_core::retry::Verdict;
use postrider_core::time::format_duration;
use postrider_core::{EventId, FailureClass, Outcome};
use tracing::{info, warn};

use crate::dispatch::breaker::Turn;

/// Failures of one subscription that are told one by one, each second.
const LINES_PER_SECOND: usize = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// An attempt that has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedAttempt {
    pub(crate) event: EventId,
    pub(crate) attempt: u32,
    /// After how long it is attempted again; none if it is a dead letter.
    pub(crate) next: Option<Duration>,
    pub(crate) reason: String,
}

/// Attempts that have failed and were not told yet: as many as a second may tell, and a count of the others.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    attempts: VecDeque<FailedAttempt>,
    more: u64,
    more_dead: u64,
}

impl Failures {
    /// Takes note of what became of an attempt.
    pub(crate) fn note(&mut self, event: EventId, attempt: u32, outcome: &Outcome, verdict: Verdict) {
        let next = match verdict {
            Verdict::Again(delay) => Some(delay),
            Verdict::Dead => None,
            Verdict::Done | Verdict::Untried | Verdict::Snooze(_) => return,
        };
        self.push(event, attempt, next, || reason(outcome));
    }

    /// Takes note of an event that is a dead letter without an attempt.
    pub(crate) fn note_buried(&mut self, event: EventId, attempt: u32, reason: &str) {
        self.push(event, attempt, None, || reason.to_owned());
    }

    fn push(
        &mut self,
        event: EventId,
        attempt: u32,
        next: Option<Duration>,
        reason: impl FnOnce() -> String,
    ) {
        if self.attempts.len() < LINES_PER_SECOND {
            self.attempts.push_back(FailedAttempt { event, attempt, next, reason: reason() });
        } else {
            self.more += 1;
            self.more_dead += u64::from(next.is_none());
        }
    }

    fn is_empty(&self) -> bool {
        self.attempts.is_empty() && self.more == 0
    }
}

/// Writes them to the log, at a bounded rate. Instants are durations since the worker began.
#[derive(Debug)]
pub(crate) struct FailureLog {
    origin: Arc<Origin>,
    window: Duration,
    lines: usize,
    more: u64,
    more_dead: u64,
}

impl FailureLog {
    pub(crate) fn new(origin: Arc<Origin>) -> Self {
        Self { origin, window: Duration::ZERO, lines: 0, more: 0, more_dead: 0 }
    }

    /// Tells what has failed, of at most so many attempts each.
    pub(crate) fn tell(&mut self, failures: &mut Failures, attempts_max: u32, now: Duration) {
        if now >= self.window + WINDOW {
            self.tell_rest();
            (self.window, self.lines) = (now, 0);
        }
        if failures.is_empty() {
            return;
        }
        for failed in failures.attempts.drain(..) {
            if self.lines < LINES_PER_SECOND {
                self.lines += 1;
                self.tell_one(&failed, attempts_max);
            } else {
                self.more += 1;
                self.more_dead += u64::from(failed.next.is_none());
            }
        }
        self.more += std::mem::take(&mut failures.more);
        self.more_dead += std::mem::take(&mut failures.more_dead);
    }

    /// When the rest is told.
    pub(crate) fn tells_at(&self) -> Option<Duration> {
        (self.more > 0).then_some(self.window + WINDOW)
    }

    /// Tells how many were not told one by one.
    pub(crate) fn tell_rest(&mut self) {
        let (more, dead) = (std::mem::take(&mut self.more), std::mem::take(&mut self.more_dead));
        if more > 0 {
            warn!(
                subscription = self.origin.subscription,
                count = more,
                dead_letters = dead,
                "more attempts failed; see `postrider subscription show` and `postrider dead-letter list`"
            );
        }
    }

    fn tell_one(&self, failed: &FailedAttempt, attempts_max: u32) {
        let FailedAttempt { event, attempt, next, reason } = failed;
        let (event, subscription) = (event.0, self.origin.subscription.as_str());
        if let Some(next) = next {
            warn!(
                event,
                subscription,
                attempt = format!("{attempt}/{attempts_max}"),
                next = rounded(*next),
                reason,
                "attempt failed; see `postrider event why {event}`"
            );
        } else {
            warn!(
                event,
                subscription,
                attempt,
                reason,
                "dead letter; see `postrider dead-letter show {subscription} {event}`"
            );
        }
    }

    /// Tells that a receiver cannot be reached, or can be again. Of an outage the text is the receiver's
    /// alone, whatever the event.
    pub(crate) fn turned(&self, turn: Turn, outcome: &Outcome) {
        let subscription = self.origin.subscription.as_str();
        match turn {
            Turn::Down => warn!(
                subscription,
                reason = reason(outcome),
                "receiver down: one event at a time is tried until it answers"
            ),
            Turn::Up(after) => info!(subscription, after = rounded(after), "receiver works again"),
        }
    }
}

/// Why, in words that hold nothing of the event.
fn reason(outcome: &Outcome) -> String {
    let (Outcome::Retry(failure) | Outcome::Dead(failure)) = outcome else {
        return "no outcome was given".to_owned();
    };
    let of_class = match failure.class() {
        FailureClass::Unavailable => failure.message(),
        FailureClass::Permanent => "refused for good",
        FailureClass::Retryable | FailureClass::Snoozed => "failed",
    };
    failure.label().unwrap_or(of_class).to_owned()
}

/// To what a person cares about.
fn rounded(duration: Duration) -> String {
    let unit = if duration < Duration::from_secs(1) { 1 } else { 1_000 };
    format_duration(Duration::from_millis(duration.as_millis() as u64 / unit * unit))
}

#[cfg(test)]
mod tests {
    use postrider_core::Failure;

    use super::*;

    #[test]
    fn the_reason_in_a_log_holds_nothing_of_the_event() {
        let text = "card 4929 of Zoë";
        let cases = [
            (Outcome::Retry(Failure::retry(text)), "failed"),
            (Outcome::Retry(Failure::permanent(text)), "refused for good"),
            (Outcome::Dead(Failure::permanent(text).labelled("no such account")), "no such account"),
            (Outcome::Retry(Failure::from_http_status(500, text)), "HTTP status 500"),
            (Outcome::Retry(Failure::unavailable("connection refused")), "connection refused"),
        ];
        for (outcome, wanted) in cases {
            assert_eq!(reason(&outcome), wanted);
        }
    }

    #[test]
    fn what_is_kept_to_be_told_is_bounded() {
        let mut failures = Failures::default();
        let failed = Outcome::Retry(Failure::retry("no"));
        for id in 0..1_000 {
            let verdict = if id % 2 == 0 { Verdict::Dead } else { Verdict::Again(WINDOW) };
            failures.note(EventId(id), 1, &failed, verdict);
        }
        assert_eq!((failures.attempts.len(), failures.more), (LINES_PER_SECOND, 990));
        let origin = Origin { subscription: "mail".into(), store_id: "x".into() };
        let mut log = FailureLog::new(Arc::new(origin));
        log.tell(&mut failures, 20, WINDOW);
        assert_eq!((log.lines, log.more, log.more_dead), (10, 990, 495));
        assert!(failures.is_empty() && log.tells_at() == Some(WINDOW * 2));
        failures.note(EventId(9), 1, &failed, Verdict::Dead);
        log.tell(&mut failures, 20, WINDOW);
        assert_eq!((log.lines, log.more), (10, 991), "no more than so many a second");
        log.tell(&mut failures, 20, WINDOW * 2);
        assert_eq!((log.lines, log.more, log.tells_at()), (0, 0, None));
    }

    #[test]
    fn delays_are_told_as_people_say_them() {
        let ms = Duration::from_millis;
        assert_eq!([ms(0), ms(37), ms(4_321)].map(rounded), ["0s", "37ms", "4s"]);
    }
}
