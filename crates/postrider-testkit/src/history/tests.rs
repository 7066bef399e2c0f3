//! The checker against histories written by hand: it must catch each anomaly and accept each legal run.

use std::time::Duration;

use postrider_core::delivery::Origin;
use postrider_core::{Failure, Headers};

use super::*;
use crate::ManualClock;

const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);

/// A history of one subscription whose events all have one key; event `n` of it has the id `n`.
struct Script {
    history: History,
    expectation: Expectation,
}

impl Script {
    fn new(events: u64) -> Self {
        Self::of(
            &NewSubscription::new("orders").retry(RetryPolicy::fixed(Duration::ZERO).attempts_max(3)),
            events,
        )
    }

    fn of(new: &NewSubscription, events: u64) -> Self {
        let history = History::new(ManualClock::new());
        for n in 1..=events {
            history.emitted(EventId(n as i64), &History::event("order", "k", n));
        }
        Self { history, expectation: Expectation::from(new) }
    }

    fn start(&self, n: u64, attempt: u32, by: Incarnation) -> Running {
        let mut headers = Headers::default();
        headers.set(ORDINAL, n.to_string());
        let event = Event {
            id: EventId(n as i64),
            topic: Topic::new("order"),
            kind: Kind::new("order"),
            key: Some(Key::new("k")),
            payload: bytes::Bytes::new(),
            headers,
            created_at: Timestamp::from_micros(0),
            due_at: None,
            flaw: None,
        };
        let origin = Origin { subscription: "orders".to_owned(), store_id: "s".to_owned() };
        self.history.delivered(&Delivery::new(Arc::new(event), attempt, Arc::new(origin)), by)
    }

    fn ack(&self, n: u64, by: Incarnation) {
        self.start(n, 1, by).finish(&Outcome::Ack);
    }

    fn fail(&self, n: u64, attempt: u32, by: Incarnation) {
        self.start(n, attempt, by).finish(&Outcome::Retry(Failure::retry("no")));
    }

    fn acks(&self, numbers: &[u64], by: Incarnation) {
        for n in numbers {
            self.ack(*n, by);
        }
    }

    fn subject(n: u64) -> Subject {
        Subject { subscription: "orders".to_owned(), event: EventId(n as i64) }
    }

    /// The names of what is wrong, in order.
    fn broken(&self) -> Vec<String> {
        let violations = self.history.check(std::slice::from_ref(&self.expectation));
        violations
            .iter()
            .map(|violation| violation.to_string().split(':').next().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn a_run_without_faults_is_accepted() {
    let script = Script::new(3);
    script.acks(&[1, 2, 3], A);
    assert_eq!(script.broken(), [""; 0]);
    script.history.assert_kept(&[script.expectation]);
}

#[test]
fn an_event_that_never_came_is_lost() {
    let script = Script::new(3);
    script.acks(&[1, 2], A);
    assert_eq!(script.broken(), ["lost"]);
    assert_eq!(script.history.check_so_far(&[script.expectation]), []);
}

#[test]
fn an_event_that_was_delivered_but_never_acked_is_lost() {
    let script = Script::new(1);
    script.fail(1, 1, A);
    assert_eq!(script.broken(), ["lost"]);
    drop(script.start(1, 2, A));
    assert_eq!(script.broken(), ["lost"]);
}

#[test]
fn dead_and_discarded_events_are_not_lost() {
    let script = Script::new(2);
    for attempt in 1..=3 {
        script.fail(1, attempt, A);
    }
    script.start(2, 1, A).finish(&Outcome::Dead(Failure::permanent("never")));
    assert_eq!(script.broken(), [""; 0]);
    script.history.record(Record::Discarded(Script::subject(1)));
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn a_replayed_letter_that_is_forgotten_is_lost() {
    let script = Script::new(1);
    script.start(1, 1, A).finish(&Outcome::Dead(Failure::permanent("never")));
    script.history.record(Record::Replayed(Script::subject(1)));
    assert_eq!(script.broken(), ["lost"]);
    script.ack(1, A);
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn an_event_that_was_never_committed_is_a_phantom() {
    let script = Script::new(1);
    script.acks(&[1, 2], A);
    assert_eq!(script.broken(), ["phantom"]);
}

#[test]
fn an_event_with_another_number_is_altered() {
    let script = Script::new(1);
    script.history.emitted(EventId(2), &History::event("order", "k", 7));
    script.acks(&[1, 2], A);
    assert_eq!(script.broken(), ["altered"]);
}

#[test]
fn an_event_for_nobody_is_unwanted() {
    let script = Script::of(&NewSubscription::new("orders").topic("invoice").unwrap(), 1);
    script.ack(1, A);
    assert_eq!(script.broken(), ["unwanted"]);
    let nobody = Script {
        expectation: Expectation { subscription: "other".to_owned(), ..script.expectation },
        ..script
    };
    assert_eq!(nobody.broken(), ["unwanted"]);
}

#[test]
fn a_rewind_after_a_fault_is_accepted() {
    for fault in [Fault::Crash, Fault::Fenced, Fault::TakeOver, Fault::CommitUnknown] {
        let script = Script::new(4);
        script.acks(&[1, 2, 3], A);
        script.history.fault(fault, Some(A));
        script.acks(&[2, 3, 4], B);
        assert_eq!(script.broken(), [""; 0], "{fault:?}");
    }
}

#[test]
fn an_inversion_is_caught() {
    let script = Script::new(3);
    script.acks(&[1, 3, 2], A);
    assert_eq!(script.broken(), ["skipped"]);
}

#[test]
fn a_rewind_that_leaves_one_out_is_caught() {
    let script = Script::new(4);
    script.acks(&[1, 2, 3], A);
    script.history.fault(Fault::Crash, Some(A));
    script.acks(&[2, 4], B);
    assert_eq!(script.broken(), ["skipped"]);
}

#[test]
fn a_retry_is_no_rewind_and_no_duplicate() {
    let script = Script::new(2);
    script.fail(1, 1, A);
    script.fail(1, 2, A);
    script.acks(&[1, 2], A);
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn an_event_that_overtakes_a_failed_one_is_caught() {
    let script = Script::new(2);
    script.fail(1, 1, A);
    script.acks(&[2, 1], A);
    assert_eq!(script.broken(), ["overtaken"]);
}

#[test]
fn an_event_that_overtakes_one_that_fails_again_after_a_rewind_is_caught() {
    let script = Script::new(2);
    script.acks(&[1, 2], A);
    script.history.fault(Fault::Crash, Some(A));
    script.fail(1, 1, B);
    script.acks(&[2, 1], B);
    assert_eq!(script.broken(), ["overtaken"]);
}

#[test]
fn a_key_goes_on_without_a_skipped_dead_letter() {
    let script = Script::new(3);
    script.ack(1, A);
    script.start(2, 1, A).finish(&Outcome::Dead(Failure::permanent("never")));
    script.ack(3, A);
    assert_eq!(script.broken(), [""; 0]);
    script.history.record(Record::Replayed(Script::subject(2)));
    script.ack(2, A);
    assert_eq!(script.broken(), [""; 0], "a replay comes out of order");
}

#[test]
fn a_key_waits_for_a_held_dead_letter() {
    let script = Script::of(&NewSubscription::new("orders").on_dead(OnDead::Hold), 2);
    script.start(1, 1, A).finish(&Outcome::Dead(Failure::permanent("never")));
    script.ack(2, A);
    assert_eq!(script.broken(), ["overtaken"]);
    let discarded = Script::of(&NewSubscription::new("orders").on_dead(OnDead::Hold), 2);
    discarded.start(1, 1, A).finish(&Outcome::Dead(Failure::permanent("never")));
    discarded.history.record(Record::Discarded(Script::subject(1)));
    discarded.ack(2, A);
    assert_eq!(discarded.broken(), [""; 0]);
}

#[test]
fn an_unordered_subscription_may_deliver_in_any_order() {
    let script = Script::of(&NewSubscription::new("orders").order(Order::None), 3);
    script.acks(&[3, 1, 2], A);
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn two_handlers_of_one_key_in_one_process_overlap() {
    let script = Script::new(2);
    let first = script.start(1, 1, A);
    let second = script.start(2, 1, A);
    first.finish(&Outcome::Ack);
    second.finish(&Outcome::Ack);
    assert_eq!(script.broken(), ["overlap", "overtaken"]);
}

#[test]
fn one_event_twice_at_once_overlaps_even_without_order() {
    let script = Script::of(&NewSubscription::new("orders").order(Order::None), 1);
    let first = script.start(1, 1, A);
    let second = script.start(1, 1, A);
    first.finish(&Outcome::Ack);
    second.finish(&Outcome::Ack);
    assert_eq!(script.broken(), ["overlap"]);
}

#[test]
fn a_successor_may_begin_while_a_crashed_handler_never_ended() {
    let script = Script::new(1);
    std::mem::forget(script.start(1, 1, A));
    script.history.fault(Fault::Crash, Some(A));
    script.ack(1, B);
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn a_duplicate_without_a_fault_is_caught() {
    let script = Script::new(1);
    script.acks(&[1, 1], A);
    assert_eq!(script.broken(), ["duplicate"]);
}

#[test]
fn a_fault_explains_only_what_it_could_have_caused() {
    let before = Script::new(1);
    before.history.fault(Fault::Crash, Some(A));
    before.acks(&[1, 1], A);
    assert_eq!(before.broken(), ["duplicate"], "it came before");
    let another = Script::new(1);
    another.ack(1, A);
    another.history.fault(Fault::Crash, Some(B));
    another.ack(1, A);
    assert_eq!(another.broken(), ["duplicate"], "it hit somebody else");
    let once = Script::new(1);
    once.ack(1, A);
    once.history.fault(Fault::CommitUnknown, None);
    once.acks(&[1, 1], A);
    assert_eq!(once.broken(), ["duplicate"], "it explains one");
}

#[test]
fn a_delivery_after_death_is_a_duplicate() {
    let script = Script::new(1);
    script.start(1, 1, A).finish(&Outcome::Dead(Failure::permanent("never")));
    script.ack(1, A);
    assert_eq!(script.broken(), ["duplicate"]);
}

#[test]
fn an_unavailable_receiver_explains_another_attempt() {
    let script = Script::new(1);
    script.start(1, 3, A).finish(&Outcome::Retry(Failure::unavailable("down")));
    script.start(1, 3, A).finish(&Outcome::Untried);
    script.ack(1, A);
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn a_seek_back_delivers_again_and_one_forward_passes_over() {
    let script = Script::new(4);
    script.acks(&[1, 2], A);
    script.history.record(Record::Sought(Script::subject(1)));
    script.acks(&[1, 2], A);
    script.history.record(Record::Sought(Script::subject(4)));
    script.ack(4, A);
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn delayed_events_leave_their_keys_order() {
    let script = Script::new(1);
    script.history.emitted(EventId(2), &History::event("order", "k", 2).due_after(Duration::from_secs(1)));
    script.history.emitted(EventId(3), &History::event("order", "k", 3));
    script.acks(&[1, 3, 2], A);
    assert_eq!(script.broken(), [""; 0]);
}

#[test]
fn effects_are_counted() {
    let script = Script::new(4);
    script.acks(&[1, 2, 3], A);
    script.start(4, 1, A).finish(&Outcome::Dead(Failure::permanent("never")));
    let effect = |n: i64| (EventId(n), "paid".to_owned());
    let check = |effects: &[_]| script.history.check_effects(&script.expectation, effects);
    assert_eq!(check(&[effect(1), effect(2), effect(3)]), []);
    assert_eq!(check(&[effect(1), effect(3)]), [Violation::EffectMissing { event: EventId(2) }]);
    let twice = Violation::EffectRepeated { event: EventId(1), times: 2 };
    assert_eq!(check(&[effect(1), effect(2), effect(1), effect(3)]), [twice]);
    let phantom = Violation::EffectPhantom { event: EventId(9) };
    assert_eq!(check(&[effect(1), effect(2), effect(3), effect(9)]), [phantom]);
}

#[test]
fn a_failed_assertion_tells_the_story_of_the_key() {
    let script = Script::new(2);
    script.history.fault(Fault::TakeOver, None);
    script.ack(2, A);
    let story = script.history.about(&[EventId(2)].into());
    assert_eq!(story.lines().count(), 5, "two emits, a fault, a delivery and its end:\n{story}");
}
