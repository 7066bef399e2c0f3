//! What is handed out, settled and claimed, step by step, and under any sequence of steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::Origin;
use postrider_core::queue::{
    Again, Board, Claimed, Count, EXPIRES_HEADER, Fate, LeasedRow, QueueSettle, Remnant, SettledRow, Token,
};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{
    Event, EventId, Failure, Headers, Key, Kind, Mode, NewSubscription, Outcome, RetryPolicy, Subscription,
    Timestamp, Topic, limits,
};

use super::{Judge, Leases, NOT_TOUCHED, Tally};
use crate::dispatch::hand_out::{Attempted, Class, HandOut};

const SECOND: Duration = Duration::from_secs(1);
const ZERO: Duration = Duration::ZERO;

fn subscription() -> Subscription {
    let mut new = NewSubscription::new("q").mode(Mode::Queue);
    new.tuning.retry = RetryPolicy::fixed(SECOND).attempts_max(3);
    Subscription {
        id: SubscriptionId(1),
        name: new.name,
        filter: new.filter,
        mode: new.mode,
        order: new.order,
        on_dead: new.on_dead,
        tuning: new.tuning,
        created_at: Timestamp::from_micros(0),
        paused_at: None,
    }
}

fn leases() -> Leases {
    let origin = Origin { subscription: "q".to_owned(), store_id: "s".to_owned() };
    Leases::new(&subscription(), Arc::new(origin), Board::default())
}

fn event(id: i64, key: Option<&str>) -> Event {
    Event {
        id: EventId(id),
        topic: Topic::new("t"),
        kind: Kind::new("t"),
        key: key.map(Key::new),
        payload: b"0123456789".as_slice().into(),
        headers: Headers::default(),
        created_at: Timestamp::from_micros(0),
        due_at: None,
        flaw: None,
    }
}

fn row(ids: std::ops::RangeInclusive<i64>) -> LeasedRow {
    let events: Vec<_> = ids.clone().map(|id| Arc::new(event(id, None))).collect();
    LeasedRow { id: EventId(*ids.start()), is_block: events.len() > 1, events, started: 1, finished: 0 }
}

fn claimed(token: i64, rows: Vec<LeasedRow>) -> Claimed {
    Claimed { token: Token(token), at: Timestamp::from_micros(1_000_000), rows, paused: false }
}

/// Finishes a hand-out with one outcome for all.
fn finish(leases: &mut Leases, out: usize, outcome: &Outcome, now: Duration) -> Tally {
    let attempted = Attempted { outcome: outcome.clone(), took: Duration::from_millis(1) };
    let count = leases.ids(out).len();
    leases.finish(out, vec![attempted; count], &mut Judge { now, roll: &mut || 0.5, wait: SECOND * 7 })
}

fn next_out(leases: &mut Leases, most: usize, now: Duration) -> Option<HandOut> {
    leases.turns(false).into_iter().find_map(|class| leases.hand_out(most, class, now))
}

fn next(leases: &mut Leases) -> (usize, Vec<i64>) {
    let out = next_out(leases, 1, ZERO).expect("something is ready");
    (out.ticket, out.deliveries.iter().map(|delivery| delivery.id.0).collect())
}

fn fates(settle: &QueueSettle) -> Vec<(i64, Fate)> {
    settle.rows.iter().map(|SettledRow { id, fate, .. }| (id.0, fate.clone())).collect()
}

fn failed() -> Outcome {
    Outcome::Retry(Failure::retry("no"))
}

fn failed_again(after: Duration) -> Again {
    Again { after, count: Count::Failed }
}

#[test]
fn a_row_is_settled_by_what_became_of_its_event() {
    let mut leases = leases();
    leases.offer(claimed(1, (1..=5).map(|id| row(id..=id)).collect()), ZERO);
    let outcomes = [
        Outcome::Ack,
        failed(),
        Outcome::Retry(Failure::permanent("never")),
        Outcome::Retry(Failure::unavailable("down")),
        Outcome::Retry(Failure::snooze(SECOND * 9)),
    ];
    let mut tally = Tally::default();
    for outcome in &outcomes {
        let (out, _) = next(&mut leases);
        let more = finish(&mut leases, out, outcome, ZERO);
        tally.delivered += more.delivered;
        tally.failed += more.failed;
        tally.dead += more.dead;
    }
    let settle = leases.compose(SECOND * 2, SECOND);
    let nothing = |after| Fate::Again(Again { after, count: Count::Nothing });
    assert_eq!(
        fates(&settle),
        [
            (1, Fate::Done),
            (2, Fate::Again(failed_again(SECOND))),
            (3, Fate::Dead),
            (4, nothing(SECOND * 7)),
            (5, nothing(SECOND * 9)),
        ]
    );
    assert_eq!(tally, Tally { delivered: 1, failed: 2, dead: 1 });
    let records = settle.attempts.iter().map(|record| (record.event_id.0, record.attempt, record.ended_ago));
    assert_eq!(records.collect::<Vec<_>>(), [(2, 1, SECOND * 2), (3, 1, SECOND * 2)]);
    assert!(!leases.is_empty(), "until the store has said so");
    assert_eq!((leases.settled(&settle), leases.is_empty()), (vec![Token(1)], true));
}

/// Hands out the next event and lets its handler ack it in a transaction of its own.
fn ack_next(leases: &mut Leases) -> usize {
    let out = next_out(leases, 1, ZERO).expect("something is ready");
    out.deliveries[0].ticket.as_ref().expect("it is a queue").note_acked();
    out.ticket
}

#[test]
fn what_a_handler_acked_itself_is_settled_as_that_unless_it_fails() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=1), row(2..=2), row(3..=4), row(5..=6)]), ZERO);
    for outcome in [Outcome::Ack, failed(), Outcome::Ack, Outcome::Ack, Outcome::Ack] {
        let out = ack_next(&mut leases);
        finish(&mut leases, out, &outcome, ZERO);
    }
    let (out, _) = next(&mut leases);
    finish(&mut leases, out, &Outcome::Ack, ZERO);
    let settle = leases.compose(ZERO, SECOND);
    let ids = |ids: &[i64]| ids.iter().copied().map(EventId).collect::<Vec<_>>();
    assert_eq!(
        fates(&settle),
        [
            (1, Fate::Acked(ids(&[1]))),
            (2, Fate::Again(failed_again(SECOND))),
            (3, Fate::Acked(ids(&[3, 4]))),
            (5, Fate::Split(vec![(EventId(5), Remnant::Acked)])),
        ]
    );
    assert_eq!((leases.settled(&settle), leases.is_empty()), (vec![Token(1)], true));
}

#[test]
fn the_next_of_a_key_may_come_while_the_handler_that_acked_the_last_one_ends() {
    let mut leases = leases();
    let of_key = |id| LeasedRow { events: vec![Arc::new(event(id, Some("k")))], ..row(id..=id) };
    leases.offer(claimed(1, vec![of_key(1)]), ZERO);
    let out = next_out(&mut leases, 1, ZERO).expect("something is ready");
    let next = claimed(2, vec![of_key(2)]);
    assert_eq!(leases.outdated_by(&next), BTreeSet::from([Token(1)]), "it should have waited");
    out.deliveries[0].ticket.as_ref().expect("it is a queue").note_acked();
    assert_eq!(leases.outdated_by(&next), BTreeSet::new());
    assert_eq!(leases.outdated_by(&claimed(2, vec![of_key(1)])), BTreeSet::from([Token(1)]));
}

#[test]
fn a_block_is_settled_when_all_its_events_have_an_outcome() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=3)]), ZERO);
    for outcome in [Outcome::Ack, failed()] {
        let (out, _) = next(&mut leases);
        finish(&mut leases, out, &outcome, ZERO);
        assert_eq!(leases.unsettled(ZERO, SECOND), 0);
    }
    let (out, _) = next(&mut leases);
    finish(&mut leases, out, &Outcome::Ack, ZERO);
    let settle = leases.compose(ZERO, SECOND);
    let rest = vec![(EventId(2), Remnant::Again(failed_again(SECOND)))];
    assert_eq!(fates(&settle), [(1, Fate::Split(rest))]);
}

#[test]
fn a_slow_block_is_settled_in_parts_and_what_runs_stays_leased() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=4)]), ZERO);
    let (slow, _) = next(&mut leases);
    let (fast, _) = next(&mut leases);
    finish(&mut leases, fast, &Outcome::Ack, ZERO);
    assert_eq!(leases.slow_at(SECOND), Some(SECOND));
    let settle = leases.compose(SECOND, SECOND);
    let given = |id| (EventId(id), Remnant::Again(NOT_TOUCHED));
    let parts = vec![(EventId(1), Remnant::Running), given(3), given(4)];
    assert_eq!(fates(&settle), [(1, Fate::Split(parts))]);
    assert_eq!(leases.settled(&settle), [], "one event still runs under the claim");
    assert!(next_out(&mut leases, 9, SECOND).is_none());
    finish(&mut leases, slow, &failed(), SECOND);
    let settle = leases.compose(SECOND, SECOND);
    assert_eq!(fates(&settle), [(1, Fate::Again(failed_again(SECOND)))]);
    assert_eq!((leases.settled(&settle), leases.is_empty()), (vec![Token(1)], true));
}

#[test]
fn what_was_not_tried_is_handed_out_again_in_its_order() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=4)]), ZERO);
    let out = next_out(&mut leases, 3, ZERO).unwrap().ticket;
    let ack = Attempted { outcome: Outcome::Ack, took: ZERO };
    let untried = Attempted { outcome: Outcome::Untried, took: ZERO };
    let outcomes = vec![ack, untried.clone(), untried];
    leases.finish(out, outcomes, &mut Judge { now: ZERO, roll: &mut || 0.5, wait: ZERO });
    let again = next_out(&mut leases, 9, ZERO).unwrap();
    assert_eq!(again.deliveries.iter().map(|delivery| delivery.id.0).collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn a_lost_claim_is_forgotten_and_its_handlers_are_told() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=1), row(2..=2), row(3..=3)]), ZERO);
    leases.offer(claimed(2, vec![row(4..=4)]), ZERO);
    let (done, _) = next(&mut leases);
    finish(&mut leases, done, &Outcome::Ack, ZERO);
    let out = next_out(&mut leases, 1, ZERO).unwrap();
    assert_eq!(leases.lose(Token(1)), [out.ticket]);
    assert!(out.deliveries[0].is_cancelled());
    assert_eq!(fates(&leases.compose(ZERO, SECOND)), [], "not even the ack: it would be fenced");
    assert_eq!((next(&mut leases).1, leases.tokens()), (vec![4], vec![Token(2)]));
}

#[test]
fn a_hand_out_that_a_lost_claim_ends_gives_others_another_chance() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=1)]), ZERO);
    leases.offer(claimed(2, vec![row(2..=2)]), ZERO);
    let out = next_out(&mut leases, 2, ZERO).unwrap();
    assert_eq!(leases.lose(Token(1)), [out.ticket]);
    assert_eq!(next(&mut leases).1, [2]);
}

#[test]
fn a_doubted_claim_gives_back_what_has_not_begun() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=3)]), ZERO);
    let out = next_out(&mut leases, 1, ZERO).unwrap();
    assert_eq!(leases.doubt(Token(1)), [out.ticket]);
    assert!(out.deliveries[0].is_cancelled() && next_out(&mut leases, 9, ZERO).is_none());
    finish(&mut leases, out.ticket, &Outcome::Ack, ZERO);
    let given = |id| (EventId(id), Remnant::Again(NOT_TOUCHED));
    assert_eq!(fates(&leases.compose(ZERO, SECOND)), [(1, Fate::Split(vec![given(2), given(3)]))]);
}

/// They are gone from the log or superseded.
#[test]
fn events_that_are_left_out_are_done() {
    let mut leases = leases();
    let nothing = LeasedRow { events: Vec::new(), ..row(1..=1) };
    let empty_block = LeasedRow { events: Vec::new(), ..row(2..=4) };
    let mut holed = row(5..=8);
    holed.events.remove(1);
    leases.offer(claimed(1, vec![nothing, empty_block, holed]), ZERO);
    assert_eq!(leases.unsettled(ZERO, SECOND), 2);
    let out = next_out(&mut leases, 9, ZERO).unwrap();
    assert_eq!(out.deliveries.iter().map(|delivery| delivery.id.0).collect::<Vec<_>>(), [5, 7, 8]);
    finish(&mut leases, out.ticket, &Outcome::Ack, ZERO);
    let settle = leases.compose(ZERO, SECOND);
    assert_eq!(fates(&settle), [(1, Fate::Done), (2, Fate::Done), (5, Fate::Done)]);
    assert_eq!((leases.settled(&settle), leases.is_empty()), (vec![Token(1)], true));
}

#[test]
fn a_new_claim_shows_what_is_lost() {
    let keyed = |id, key| {
        let events = vec![Arc::new(event(id, Some(key)))];
        LeasedRow { id: EventId(id), is_block: false, events, started: 1, finished: 0 }
    };
    let mut leases = leases();
    leases.offer(claimed(1, vec![keyed(1, "a")]), ZERO);
    leases.offer(claimed(2, vec![keyed(2, "b")]), ZERO);
    let outdated = |rows| leases.outdated_by(&claimed(3, rows)).into_iter().collect::<Vec<_>>();
    assert_eq!(outdated(vec![keyed(3, "c")]), []);
    assert_eq!(outdated(vec![keyed(1, "a")]), [Token(1)]);
    assert_eq!(outdated(vec![keyed(9, "b")]), [Token(2)], "it should wait behind what is held");
}

#[test]
fn who_ended_many_workers_is_doomed_and_a_last_chance_is_taken_alone() {
    let crashed = |id, started| LeasedRow { started, ..row(id..=id) };
    let mut leases = leases();
    leases.set_retry(RetryPolicy::fixed(SECOND).attempts_max(20));
    let rows = vec![crashed(1, 4), crashed(2, 3), crashed(3, 3), crashed(4, 2), crashed(5, 1)];
    assert_eq!(leases.offer(claimed(1, rows), ZERO).dead, 1);
    assert!(leases.is_careful());
    assert_eq!((next(&mut leases), next(&mut leases)), ((0, vec![4]), (1, vec![5])));
    assert!(next_out(&mut leases, 1, ZERO).is_none() && leases.room(16, ZERO).is_none());
    for out in [0, 1] {
        finish(&mut leases, out, &Outcome::Ack, ZERO);
    }
    let settle = leases.compose(ZERO, SECOND);
    let expected = [(1, Fate::Dead), (3, Fate::Again(NOT_TOUCHED)), (4, Fate::Done), (5, Fate::Done)];
    assert_eq!(fates(&settle), expected);
    assert_eq!(settle.attempts[0].error, "its worker has ended 3 times while it ran");
    assert!(next_out(&mut leases, 1, ZERO).is_none(), "the others are not settled yet");
    leases.settled(&settle);
    let (alone, ids) = next(&mut leases);
    assert_eq!((ids, leases.room(16, ZERO)), (vec![2], None));
    finish(&mut leases, alone, &Outcome::Ack, ZERO);
    assert!(leases.room(16, ZERO).is_some());
}

#[test]
fn a_last_chance_does_not_wait_for_ever() {
    let mut leases = leases();
    leases.set_retry(RetryPolicy::fixed(SECOND).attempts_max(20));
    leases.offer(claimed(1, vec![row(1..=1), LeasedRow { started: 3, ..row(2..=2) }]), ZERO);
    next(&mut leases);
    assert!(next_out(&mut leases, 1, ZERO).is_none());
    let at = leases.alone_until().unwrap();
    assert!(next_out(&mut leases, 1, at).is_some());
}

#[test]
fn expired_events_are_not_handed_out() {
    let mut leases = leases();
    let mut old = event(1, None);
    old.headers.set(EXPIRES_HEADER, "1970-01-01T00:00:01Z");
    let block = LeasedRow { events: vec![Arc::new(old), Arc::new(event(2, None))], ..row(1..=2) };
    assert_eq!(leases.offer(claimed(1, vec![block]), ZERO).dead, 1);
    let (out, ids) = next(&mut leases);
    assert_eq!(ids, [2]);
    finish(&mut leases, out, &Outcome::Ack, ZERO);
    let settle = leases.compose(ZERO, SECOND);
    assert_eq!(fates(&settle), [(1, Fate::Split(vec![(EventId(1), Remnant::Dead)]))]);
    assert_eq!(settle.attempts[0].error, "expired at 1970-01-01T00:00:01Z");
}

#[test]
fn it_is_recorded_when_a_cancelled_attempt_was_over() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=1), row(2..=2), row(3..=3)]), ZERO);
    let outs = [1, 2, 3].map(|_| leases.hand_out(1, Class::Fresh, ZERO).unwrap().ticket);
    leases.cancel(Token(1), &[EventId(1), EventId(2)]);
    finish(&mut leases, outs[0], &Outcome::Ack, SECOND);
    leases.abandon(outs[1], SECOND * 2);
    finish(&mut leases, outs[2], &Outcome::Ack, SECOND * 3);
    let settle = leases.compose(SECOND * 3, SECOND);
    let told: Vec<_> = settle
        .attempts
        .iter()
        .map(|record| (record.event_id.0, record.ended_ago, record.error.as_str()))
        .collect();
    let dropped = "cancelled: its handler did not end, and was dropped";
    assert_eq!(told, [(1, SECOND * 2, "cancelled"), (2, SECOND, dropped)]);
}

#[test]
fn a_cancelled_event_is_not_handed_out_again() {
    let mut leases = leases();
    leases.offer(claimed(1, vec![row(1..=1), row(2..=2), row(3..=3)]), ZERO);
    let out = next_out(&mut leases, 2, ZERO).unwrap();
    let over = leases.cancel(Token(1), &[EventId(1), EventId(3)]);
    assert!(over.is_empty(), "2 of the same hand-out is still wanted");
    assert!(out.deliveries[0].is_cancelled() && !out.deliveries[1].is_cancelled());
    assert_eq!(leases.cancel(Token(1), &[EventId(2)]), [out.ticket]);
    finish(&mut leases, out.ticket, &Outcome::Untried, ZERO);
    assert!(next_out(&mut leases, 9, ZERO).is_none());
    assert_eq!(leases.compose(ZERO, SECOND).rows.len(), 3);
}

#[test]
fn slow_handlers_get_nothing_in_advance_and_fast_ones_what_they_need() {
    let mut leases = leases();
    assert_eq!((leases.room(16, ZERO), leases.room(0, ZERO)), (Some(16), None));
    leases.offer(claimed(1, vec![row(1..=100)]), ZERO);
    assert_eq!(leases.room(16, ZERO), None);
    let out = next_out(&mut leases, 100, ZERO).unwrap().ticket;
    finish(&mut leases, out, &Outcome::Ack, ZERO);
    assert_eq!((leases.room(16, ZERO), leases.room(0, ZERO)), (Some(116), Some(100)));
    let slow = Attempted { outcome: Outcome::Ack, took: SECOND * 60 };
    leases.offer(claimed(2, vec![row(101..=101)]), ZERO);
    let (out, _) = next(&mut leases);
    leases.finish(out, vec![slow], &mut Judge { now: ZERO, roll: &mut || 0.5, wait: ZERO });
    assert_eq!((leases.room(16, ZERO), leases.room(0, ZERO)), (Some(16), None));
}

#[test]
fn memory_is_bounded() {
    let mut leases = leases();
    let large = Event { payload: vec![0; limits::PAYLOAD_BYTES_MAX].into(), ..event(1, None) };
    let rows = (0..30).map(|id| LeasedRow {
        events: vec![Arc::new(Event { id: EventId(id), ..large.clone() })],
        ..row(id..=id)
    });
    leases.offer(claimed(1, rows.collect()), ZERO);
    assert_eq!(leases.room(1_000, ZERO), None);
}

/// Whatever happens in whatever order, every row that was claimed is settled once under its token, unless its claim was
/// lost, and nothing is handed out twice at a time.
#[test]
fn every_row_is_settled_once_whatever_happens() {
    for seed in 0..2_000 {
        Walk::new(seed).run();
    }
}

struct Walk {
    rng: fastrand::Rng,
    leases: Leases,
    now: Duration,
    token: i64,
    id: i64,
    /// Rows that the store has leased, by token.
    leased: BTreeMap<Token, BTreeSet<EventId>>,
    outs: BTreeMap<usize, Vec<i64>>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let (leased, outs) = (BTreeMap::new(), BTreeMap::new());
        Self {
            rng: fastrand::Rng::with_seed(seed),
            leases: leases(),
            now: ZERO,
            token: 0,
            id: 0,
            leased,
            outs,
        }
    }

    fn run(mut self) {
        for _ in 0..60 {
            self.now += Duration::from_millis(self.rng.u64(0..400));
            match self.rng.u32(0..12) {
                0..3 => self.claim(),
                3..6 => self.hand_out(),
                6..9 => self.finish(),
                9 | 10 => self.settle(),
                _ => self.trouble(),
            }
        }
        while let Some(out) = self.outs.keys().next().copied() {
            self.outs.remove(&out);
            finish(&mut self.leases, out, &Outcome::Ack, self.now);
        }
        self.leases.give_back(ZERO);
        self.settle();
        assert!(self.leases.is_empty() && self.leases.bytes == 0 && self.leases.rows.is_empty());
        assert_eq!(self.leased, BTreeMap::new());
    }

    fn claim(&mut self) {
        self.token += 1;
        let mut rows = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let first = self.id + 1;
            self.id += self.rng.i64(1..5);
            rows.push(LeasedRow { started: self.rng.u32(1..5), ..row(first..=self.id) });
        }
        self.leased.insert(Token(self.token), rows.iter().map(|row| row.id).collect());
        self.leases.offer(claimed(self.token, rows), self.now);
    }

    fn hand_out(&mut self) {
        let Some(out) = next_out(&mut self.leases, self.rng.usize(1..4), self.now) else { return };
        let ids: Vec<i64> = out.deliveries.iter().map(|delivery| delivery.id.0).collect();
        assert!(self.outs.values().flatten().all(|running| !ids.contains(running)), "{ids:?} twice");
        self.outs.insert(out.ticket, ids);
    }

    fn finish(&mut self) {
        let outs: Vec<usize> = self.outs.keys().copied().collect();
        if let Some(out) = self.rng.choice(outs) {
            self.outs.remove(&out);
            let outcome = self.rng.choice([Outcome::Ack, failed(), Outcome::Untried]).unwrap();
            finish(&mut self.leases, out, &outcome, self.now);
        }
    }

    /// What the store makes of a settle.
    fn settle(&mut self) {
        let settle = self.leases.compose(self.now, SECOND);
        for SettledRow { id, token, fate } in &settle.rows {
            let Some(rows) = self.leased.get_mut(token) else { panic!("{token:?} is gone") };
            assert!(rows.remove(id), "{id} is settled twice");
            if let Fate::Split(parts) = fate {
                let running = parts.iter().filter(|(_, remnant)| *remnant == Remnant::Running);
                rows.extend(running.map(|(id, _)| *id));
            }
            if rows.is_empty() {
                self.leased.remove(token);
            }
        }
        for token in self.leases.settled(&settle) {
            assert!(!self.leased.contains_key(&token), "{token:?} is not over");
        }
    }

    fn trouble(&mut self) {
        let tokens: Vec<Token> = self.leased.keys().copied().collect();
        let Some(token) = self.rng.choice(tokens) else { return };
        match self.rng.u32(0..4) {
            0 => {
                for out in self.leases.lose(token) {
                    self.outs.remove(&out);
                }
                self.leased.remove(&token);
            }
            1 => drop(self.leases.doubt(token)),
            2 => drop(self.leases.cancel(token, &[EventId(self.rng.i64(1..=self.id))])),
            _ => self.leases.give_back(ZERO),
        }
    }
}

#[test]
fn a_new_event_does_not_wait_behind_those_that_fail() {
    let mut leases = leases();
    let failing = (1..=10).map(|id| LeasedRow { started: 2, finished: 1, ..row(id..=id) });
    leases.offer(claimed(7, failing.chain([row(11..=11)]).collect()), ZERO);
    assert_eq!(leases.room_again(16), 0, "there are enough of those that fail");
    assert!(leases.room(16, ZERO).is_some_and(|room| room == 15), "they take no room from others");
    let outs: Vec<Vec<i64>> = (0..2).map(|_| next(&mut leases).1).collect();
    assert!(outs.contains(&vec![11]), "{outs:?}");
    leases.offer(claimed(8, vec![row(12..=12)]), ZERO);
    assert_eq!(leases.turns(true)[0], Class::Fresh, "a probe is made by what has not failed");
    let batch = leases.hand_out(99, Class::Again, ZERO).unwrap();
    assert!(batch.deliveries.iter().all(|delivery| delivery.id.0 <= 10), "no batch holds of both");
}
