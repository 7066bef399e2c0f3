//! The circuit breaker: a receiver that is down is asked rarely, and costs events nothing.
//!
//! ```text
//!            unavailable, or many events in a row fail
//!   closed ────────────────────────────────────────────► open ◄─────┐
//!      ▲                                                  │ cooldown│ fails: cooldown doubles
//!      └────────────── succeeds ────────────── probing ◄──┘─────────┘
//! ```

use std::time::Duration;

use postrider_core::{EventId, FailureClass, Outcome};
use tracing::warn;

/// Failures of this many different events in a row open the breaker. One event that fails over and over
/// does not: it is that event's fault, and its retries must go on until it is a dead letter.
const FAILING_EVENTS_MAX: usize = 10;
const COOLDOWN_MIN: Duration = Duration::from_millis(500);
const COOLDOWN_MAX: Duration = Duration::from_secs(30);

/// Instants are durations since the worker began, so that the breaker has no clock.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    cooldown: Duration,
    failing: Vec<EventId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Duration,
    },
    /// One hand-out is under way to find out whether the receiver is back.
    Probing,
}

/// What may be handed out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Freely,
    /// A single event, and then nothing until its outcome is known.
    One,
    /// Nothing before this instant; none if it depends on a probe that is under way.
    Not {
        until: Option<Duration>,
    },
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self { state: State::Closed, cooldown: COOLDOWN_MIN, failing: Vec::new() }
    }

    /// What may be handed out now.
    pub(crate) fn permission(&self, now: Duration) -> Permission {
        match self.state {
            State::Closed => Permission::Freely,
            State::Open { until } if now < until => Permission::Not { until: Some(until) },
            State::Open { .. } => Permission::One,
            State::Probing => Permission::Not { until: None },
        }
    }

    /// Something has been handed out under [`Permission::One`].
    pub(crate) fn probe(&mut self) {
        self.state = State::Probing;
    }

    /// Whether nothing has failed since the last success, so that a success is no news.
    pub(crate) fn is_calm(&self) -> bool {
        self.state == State::Closed && self.failing.is_empty()
    }

    /// Takes note of an outcome. Returns whether this one opened the breaker.
    pub(crate) fn note(&mut self, id: EventId, outcome: &Outcome, now: Duration) -> bool {
        match outcome {
            Outcome::Untried => self.leave_open(now),
            Outcome::Ack | Outcome::Dead(_) => self.close(),
            Outcome::Retry(failure) => match failure.class() {
                // It answered, so it is there.
                FailureClass::Permanent => self.close(),
                FailureClass::Snoozed => self.leave_open(now),
                FailureClass::Unavailable => self.open(now, failure.retry_after()),
                FailureClass::Retryable => {
                    if !self.failing.contains(&id) {
                        self.failing.push(id);
                    }
                    let sick = self.state == State::Probing || self.failing.len() >= FAILING_EVENTS_MAX;
                    sick && self.open(now, None)
                }
            },
        }
    }

    /// Whether the receiver is believed to be down.
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// A hand-out was cut off. If it was the probe, another one must find out.
    pub(crate) fn cut_off(&mut self, now: Duration) {
        self.leave_open(now);
    }

    /// A probe that was not even tried leaves the question open.
    fn leave_open(&mut self, now: Duration) -> bool {
        if self.state == State::Probing {
            self.state = State::Open { until: now };
        }
        false
    }

    fn close(&mut self) -> bool {
        self.state = State::Closed;
        self.cooldown = COOLDOWN_MIN;
        self.failing.clear();
        false
    }

    fn open(&mut self, now: Duration, asked: Option<Duration>) -> bool {
        if matches!(self.state, State::Open { .. }) {
            // Outcomes of what was under way when it opened say nothing new.
            return false;
        }
        let newly = self.state == State::Closed;
        let pause = asked.unwrap_or(self.cooldown).clamp(COOLDOWN_MIN, COOLDOWN_MAX);
        self.state = State::Open { until: now + pause };
        self.cooldown = (self.cooldown * 2).min(COOLDOWN_MAX);
        self.failing.clear();
        newly
    }
}

/// Tells people that a receiver fails, and why if it says of itself that it is not available. Of an event's own failure the
/// text stays in the store: it may hold what is in the event.
pub(crate) fn tell(subscription: &str, event: EventId, outcome: &Outcome) {
    let reason = match outcome {
        Outcome::Retry(failure) if failure.class() == FailureClass::Unavailable => failure.message(),
        _ => "see `postrider event why`",
    };
    warn!(
        subscription,
        event = event.0,
        reason,
        "the receiver fails: fewer events are handed out until it recovers"
    );
}

#[cfg(test)]
mod tests {
    use postrider_core::Failure;

    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn retry() -> Outcome {
        Outcome::Retry(Failure::retry("no"))
    }

    fn down() -> Outcome {
        Outcome::Retry(Failure::unavailable("down"))
    }

    #[test]
    fn an_unavailable_receiver_opens_it_at_once_and_a_probe_closes_it() {
        let mut breaker = Breaker::new();
        assert!(breaker.note(EventId(1), &down(), NOW));
        let Permission::Not { until: Some(until) } = breaker.permission(NOW) else { panic!("closed") };
        assert_eq!(breaker.permission(until), Permission::One);
        breaker.probe();
        assert_eq!(breaker.permission(until), Permission::Not { until: None });
        breaker.note(EventId(1), &Outcome::Ack, until);
        assert_eq!(breaker.permission(until), Permission::Freely);
    }

    #[test]
    fn failed_probes_double_the_cooldown_up_to_its_ceiling() {
        let mut breaker = Breaker::new();
        let mut now = NOW;
        let mut waits = Vec::new();
        breaker.note(EventId(1), &down(), now);
        for _ in 0..12 {
            let Permission::Not { until: Some(until) } = breaker.permission(now) else { panic!("closed") };
            waits.push(until.abs_diff(now));
            now = until;
            assert_eq!(breaker.permission(now), Permission::One);
            breaker.probe();
            breaker.note(EventId(1), &retry(), now);
        }
        assert_eq!(waits[0], COOLDOWN_MIN);
        assert_eq!(waits[1], COOLDOWN_MIN * 2);
        assert_eq!(waits[11], COOLDOWN_MAX);
    }

    #[test]
    fn one_poisonous_event_never_opens_it_but_many_different_ones_do() {
        let mut breaker = Breaker::new();
        for _ in 0..100 {
            assert!(!breaker.note(EventId(1), &retry(), NOW));
        }
        for id in 2..FAILING_EVENTS_MAX as i64 {
            assert!(!breaker.note(EventId(id), &retry(), NOW));
        }
        assert!(breaker.note(EventId(99), &retry(), NOW));
    }

    #[test]
    fn a_success_between_failures_starts_the_count_anew() {
        let mut breaker = Breaker::new();
        for id in 0..1000 {
            assert!(!breaker.note(EventId(id), &retry(), NOW));
            if id % 5 == 0 {
                breaker.note(EventId(id), &Outcome::Ack, NOW);
            }
        }
    }

    #[test]
    fn a_probe_that_was_not_tried_is_asked_again() {
        let mut breaker = Breaker::new();
        breaker.note(EventId(1), &down(), NOW);
        assert_eq!(breaker.permission(NOW + COOLDOWN_MIN), Permission::One);
        breaker.probe();
        breaker.note(EventId(1), &Outcome::Untried, NOW + COOLDOWN_MIN);
        assert_eq!(breaker.permission(NOW + COOLDOWN_MIN), Permission::One);
        breaker.probe();
        breaker.cut_off(NOW + COOLDOWN_MIN);
        assert_eq!(breaker.permission(NOW + COOLDOWN_MIN), Permission::One);
    }
}
