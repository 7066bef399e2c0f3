//! A batch with many events in flight, and those of one key one after the other.
//!
//! A receiver that answers each event for itself, such as a webhook or JetStream, may refuse one and take the
//! next. So the next event of a key leaves only when the one before is acked; other keys do not wait. Once an
//! event of a key fails, the rest of its key is `Untried`. That is the contract of [`Sink::keeps_order`], and
//! a batch of many keys still has all of them in flight at once.
//!
//! [`Sink::keeps_order`]: postrider_core::Sink::keeps_order

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::pin;

use foldhash::fast::RandomState;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use postrider_core::{Delivery, Failure, FailureClass, Outcome};

/// Sends a batch, at most `at_once_max` events at a time.
///
/// When `lost` resolves, whatever is in flight has failed with it. When an event fails since the receiver is
/// unavailable, or `lost` resolves, nothing more is sent. Cancel safe: what was in flight may be sent again.
pub(crate) async fn send<'a, F: Future<Output = Outcome>>(
    batch: &'a [Delivery],
    at_once_max: usize,
    lost: impl Future<Output = Failure>,
    send_one: impl Fn(&'a Delivery) -> F,
) -> Vec<Outcome> {
    let mut chains = Chains::new(batch);
    let mut sent = vec![false; batch.len()];
    let mut outcomes: Vec<Option<Outcome>> = vec![None; batch.len()];
    let mut in_flight = FuturesUnordered::new();
    let mut lost = pin!(lost);
    loop {
        while in_flight.len() < at_once_max.max(1)
            && let Some(index) = chains.next()
        {
            sent[index] = true;
            let one = send_one(&batch[index]);
            in_flight.push(async move { (index, one.await) });
        }
        match select(in_flight.next(), &mut lost).await {
            Either::Left((None, _)) => break,
            Either::Left((Some((index, outcome)), _)) => {
                chains.note(index, &outcome);
                outcomes[index] = Some(outcome);
            }
            Either::Right((failure, _)) => {
                for (outcome, sent) in outcomes.iter_mut().zip(&sent) {
                    if *sent && outcome.is_none() {
                        *outcome = Some(Outcome::Retry(failure.clone()));
                    }
                }
                break;
            }
        }
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Untried)).collect()
}

/// The outcomes of a batch that could not be tried, since the receiver cannot be reached: one event tells why.
pub(crate) fn none_sent(batch: &[Delivery], failure: Failure) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Untried; batch.len()];
    if let Some(first) = outcomes.first_mut() {
        *first = Outcome::Retry(failure);
    }
    outcomes
}

/// Which events of a batch may leave, by their places in it.
#[derive(Debug)]
pub(crate) struct Chains {
    /// For each event the next one of its key.
    following: Vec<Option<usize>>,
    ready: VecDeque<usize>,
    /// The receiver is not available: nothing more leaves.
    is_down: bool,
}

impl Chains {
    pub(crate) fn new(batch: &[Delivery]) -> Self {
        let following = following(batch);
        let mut ready: VecDeque<usize> = (0..batch.len()).collect();
        following.iter().flatten().for_each(|next| ready[*next] = batch.len());
        ready.retain(|index| *index < batch.len());
        Self { following, ready, is_down: false }
    }

    /// The next that may leave.
    pub(crate) fn next(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }

    /// One that had left has an outcome.
    pub(crate) fn note(&mut self, index: usize, outcome: &Outcome) {
        self.is_down |= is_down(outcome);
        if self.is_down {
            self.ready.clear();
        } else if *outcome == Outcome::Ack {
            self.ready.extend(self.following[index]);
        }
    }
}

fn following(batch: &[Delivery]) -> Vec<Option<usize>> {
    let mut following = vec![None; batch.len()];
    let mut last_of_key = HashMap::with_capacity_and_hasher(batch.len(), RandomState::default());
    for (index, delivery) in batch.iter().enumerate() {
        let before: Option<usize> = delivery.key.as_ref().and_then(|key| last_of_key.insert(key, index));
        if let Some(before) = before {
            following[before] = Some(index);
        }
    }
    following
}

fn is_down(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Retry(failure) if failure.class() == FailureClass::Unavailable)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{pending, ready};
    use std::sync::Arc;

    use postrider_core::Key;

    use super::*;
    use crate::sample::delivery;

    fn batch(keys: &[&str]) -> Vec<Delivery> {
        let event = |(at, key): (usize, &&str)| {
            let mut delivery = delivery(at as i64, b"");
            Arc::make_mut(&mut delivery.event).key = Some(*key).filter(|key| !key.is_empty()).map(Key::new);
            delivery
        };
        keys.iter().enumerate().map(event).collect()
    }

    #[tokio::test]
    async fn a_key_ends_with_its_first_failure_and_others_go_on() {
        let batch = batch(&["a", "b", "a", "", "", "b", "a"]);
        let calls = RefCell::new(Vec::new());
        let outcomes = send(&batch, 10, pending(), |delivery| {
            calls.borrow_mut().push(delivery.id.0);
            let failed = [2, 3].contains(&delivery.id.0);
            ready(if failed { Outcome::Dead(Failure::permanent("no")) } else { Outcome::Ack })
        });
        let outcomes = outcomes.await;
        let letter = |outcome: &Outcome| match outcome {
            Outcome::Ack => 'a',
            Outcome::Untried => 'u',
            Outcome::Retry(_) | Outcome::Dead(_) => 'f',
        };
        assert_eq!(outcomes.iter().map(letter).collect::<String>(), "aaffaau");
        assert!(!calls.borrow().contains(&6));
    }

    #[tokio::test]
    async fn an_event_leaves_when_the_one_before_of_its_key_is_acked() {
        let batch = batch(&["a", "a", "b"]);
        let in_flight = RefCell::new(Vec::new());
        let outcomes = send(&batch, 10, pending(), |delivery| {
            let in_flight = &in_flight;
            async move {
                assert!(!in_flight.borrow().contains(&delivery.key));
                in_flight.borrow_mut().push(delivery.key.clone());
                tokio::task::yield_now().await;
                in_flight.borrow_mut().retain(|key| *key != delivery.key);
                Outcome::Ack
            }
        });
        assert_eq!(outcomes.await, [Outcome::Ack, Outcome::Ack, Outcome::Ack]);
    }

    #[tokio::test]
    async fn no_more_leave_than_asked_for_and_none_after_the_receiver_is_down() {
        let batch = batch(&["", "", "", ""]);
        let calls = RefCell::new(0);
        let outcomes = send(&batch, 1, pending(), |_| {
            *calls.borrow_mut() += 1;
            ready(Outcome::Retry(Failure::unavailable("down")))
        });
        let outcomes = outcomes.await;
        assert_eq!((calls.into_inner(), &outcomes[1..]), (1, &[const { Outcome::Untried }; 3][..]));
    }

    #[tokio::test]
    async fn what_is_in_flight_when_the_connection_is_lost_has_failed() {
        let batch = batch(&["a", "a", "b"]);
        let outcomes = send(&batch, 10, ready(Failure::unavailable("lost")), |_| pending());
        let failed = Outcome::Retry(Failure::unavailable("lost"));
        assert_eq!(outcomes.await, [failed.clone(), Outcome::Untried, failed]);
    }
}
