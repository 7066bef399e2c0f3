//! The circuit breaker: a receiver that is down is asked rarely, and costs events nothing.
//!
//! ```text
//!            it cannot be reached
//!   closed ───────────────────────► open ◄─────┐
//!      ▲                             │ cooldown│ not reached: cooldown doubles
//!      └────── it answers ── probing ◄─────────┘
//! ```
//!
//! Only a failure that says that the receiver is not there opens it ([`FailureClass::Unavailable`]). A failure
//! that concerns the event is an answer, however many events fail so and in whatever order: each of them
//! waits for its own next attempt, and the others go on.

use std::time::Duration;

use postrider_core::{FailureClass, Outcome};

const COOLDOWN_MIN: Duration = Duration::from_millis(500);
const COOLDOWN_MAX: Duration = Duration::from_secs(30);

/// Instants are durations since the worker began, so that the breaker has no clock.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    cooldown: Duration,
    /// Since when the receiver is believed to be down.
    down_since: Option<Duration>,
}

/// What an outcome says that was not known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The receiver cannot be reached.
    Down,
    /// It answers again, after this long.
    Up(Duration),
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
        Self { state: State::Closed, cooldown: COOLDOWN_MIN, down_since: None }
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

    /// Takes note of an outcome.
    pub(crate) fn note(&mut self, outcome: &Outcome, now: Duration) -> Option<Turn> {
        let class = match outcome {
            Outcome::Retry(failure) => Some(failure.class()),
            Outcome::Ack | Outcome::Dead(_) | Outcome::Untried => None,
        };
        match (outcome, class) {
            (Outcome::Untried, _) | (_, Some(FailureClass::Snoozed)) => {
                self.leave_open(now);
                None
            }
            (Outcome::Retry(failure), Some(FailureClass::Unavailable)) => {
                self.open(now, failure.retry_after()).then_some(Turn::Down)
            }
            // Whatever it says of the event: it answered, so it is there.
            _ => self.close(now).map(Turn::Up),
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
    fn leave_open(&mut self, now: Duration) {
        if self.state == State::Probing {
            self.state = State::Open { until: now };
        }
    }

    /// For how long it was open, if it was.
    fn close(&mut self, now: Duration) -> Option<Duration> {
        self.state = State::Closed;
        self.cooldown = COOLDOWN_MIN;
        self.down_since.take().map(|since| now.saturating_sub(since))
    }

    /// Whether it was closed.
    fn open(&mut self, now: Duration, asked: Option<Duration>) -> bool {
        if matches!(self.state, State::Open { .. }) {
            // Outcomes of what was under way when it opened say nothing new.
            return false;
        }
        let newly = self.state == State::Closed;
        let pause = asked.unwrap_or(self.cooldown).clamp(COOLDOWN_MIN, COOLDOWN_MAX);
        self.state = State::Open { until: now + pause };
        self.cooldown = (self.cooldown * 2).min(COOLDOWN_MAX);
        self.down_since.get_or_insert(now);
        newly
    }
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
        assert_eq!(breaker.note(&down(), NOW), Some(Turn::Down));
        let Permission::Not { until: Some(until) } = breaker.permission(NOW) else { panic!("closed") };
        assert_eq!(breaker.permission(until), Permission::One);
        breaker.probe();
        assert_eq!(breaker.permission(until), Permission::Not { until: None });
        breaker.note(&Outcome::Ack, until);
        assert_eq!(breaker.permission(until), Permission::Freely);
    }

    #[test]
    fn failed_probes_double_the_cooldown_up_to_its_ceiling() {
        let mut breaker = Breaker::new();
        let mut now = NOW;
        let mut waits = Vec::new();
        breaker.note(&down(), now);
        for _ in 0..12 {
            let Permission::Not { until: Some(until) } = breaker.permission(now) else { panic!("closed") };
            waits.push(until.abs_diff(now));
            now = until;
            assert_eq!(breaker.permission(now), Permission::One);
            breaker.probe();
            assert_eq!(breaker.note(&down(), now), None, "that is no news");
        }
        assert_eq!(waits[0], COOLDOWN_MIN);
        assert_eq!(waits[1], COOLDOWN_MIN * 2);
        assert_eq!(waits[11], COOLDOWN_MAX);
    }

    #[test]
    fn failures_that_speak_of_their_events_never_open_it() {
        let mut breaker = Breaker::new();
        for _ in 0..10_000 {
            assert_eq!(breaker.note(&retry(), NOW), None);
            assert_eq!(breaker.permission(NOW), Permission::Freely);
        }
    }

    #[test]
    fn an_answer_closes_it_whatever_it_says_of_the_event() {
        for answer in
            [retry(), Outcome::Retry(Failure::permanent("no")), Outcome::Dead(Failure::permanent("no"))]
        {
            let mut breaker = Breaker::new();
            assert_eq!(breaker.note(&down(), NOW), Some(Turn::Down));
            let later = NOW + COOLDOWN_MIN;
            breaker.probe();
            assert_eq!(breaker.note(&answer, later), Some(Turn::Up(COOLDOWN_MIN)));
            assert_eq!(breaker.permission(later), Permission::Freely);
        }
    }

    #[test]
    fn a_probe_that_was_not_tried_is_asked_again() {
        let mut breaker = Breaker::new();
        breaker.note(&down(), NOW);
        assert_eq!(breaker.permission(NOW + COOLDOWN_MIN), Permission::One);
        breaker.probe();
        breaker.note(&Outcome::Untried, NOW + COOLDOWN_MIN);
        assert_eq!(breaker.permission(NOW + COOLDOWN_MIN), Permission::One);
        breaker.probe();
        breaker.cut_off(NOW + COOLDOWN_MIN);
        assert_eq!(breaker.permission(NOW + COOLDOWN_MIN), Permission::One);
    }
}
