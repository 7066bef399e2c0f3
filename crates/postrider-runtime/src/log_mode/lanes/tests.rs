//! The rules of the lanes, one at a time. Their interplay is the simulation's business.

use super::*;
use postrider_core::settle::{HeldShard, Hold};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Epoch, Failure, Filter, Kind, Mode, Outcome, Subscription, Timestamp, Topic, Tuning};

const NOW: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(1);
const ONE: Shape = Shape { events: 1, parts: 1, per_lane: 1 };
const RUN: Shape = Shape { events: 100, parts: 1, per_lane: 100 };

fn taken(parked: &[&str]) -> Taken {
    let subscription = Subscription {
        id: SubscriptionId(1),
        name: "s".into(),
        filter: Filter::default(),
        mode: Mode::Log,
        order: Order::Key,
        on_dead: OnDead::Skip,
        tuning: Tuning::default(),
        created_at: Timestamp::from_micros(0),
        paused_at: None,
    };
    let shards =
        (0..4).map(|n| HeldShard { shard: Shard(n), epoch: Epoch(1), position: Position::START }).collect();
    let member = postrider_core::settle::MemberId(1);
    let hold = Hold { subscription: Arc::new(subscription), member, shards, shard_count: 4 };
    Taken {
        hold,
        start: Position::START,
        parked: parked.iter().map(|key| Lane { key: Key::new(key), late: false }).collect(),
    }
}

fn lanes_with(on_dead: OnDead, attempts: u32, parked: &[&str]) -> Lanes {
    let retry = RetryPolicy::fixed(SLOW * 5).attempts_max(attempts);
    let rules = Rules {
        order: Order::Key,
        on_dead,
        retry,
        #[cfg(feature = "sabotage")]
        forget_to_park: false,
    };
    Lanes::new(rules, origin(), &taken(parked))
}

fn origin() -> Arc<Origin> {
    Arc::new(Origin { subscription: "s".into(), store_id: "store".into() })
}

fn lanes() -> Lanes {
    lanes_with(OnDead::Skip, 3, &[])
}

fn event(id: i64, key: &str) -> Arc<Event> {
    Arc::new(Event {
        id: EventId(id),
        topic: Topic::new("t"),
        kind: Kind::new("t"),
        key: (!key.is_empty()).then(|| Key::new(key)),
        payload: vec![0; 10].into(),
        headers: postrider_core::Headers::default(),
        created_at: Timestamp::from_micros(id),
        due_at: None,
        flaw: None,
    })
}

/// Reads events with ids from 1 on, with these keys.
fn offer(lanes: &mut Lanes, keys: &[&str]) {
    let first = lanes.read_to().last_id.0 + 1;
    let events: Vec<_> = (first..).zip(keys).map(|(id, key)| event(id, key)).collect();
    let end = Position::START.at(EventId(first + keys.len() as i64 - 1));
    lanes.offer(&Chunk { events, ..Chunk::empty(end) });
}

fn ids(out: &HandOut) -> Vec<i64> {
    out.deliveries.iter().map(|delivery| delivery.id.0).collect()
}

fn next_out(lanes: &mut Lanes, shape: Shape) -> Option<HandOut> {
    lanes.turns(false).into_iter().find_map(|class| lanes.hand_out(class, shape, NOW))
}

fn next(lanes: &mut Lanes, shape: Shape) -> (usize, Vec<i64>) {
    let out = next_out(lanes, shape).expect("something is ready");
    (out.ticket, ids(&out))
}

fn finish(lanes: &mut Lanes, ticket: usize, outcomes: &[Outcome]) {
    let attempted =
        outcomes.iter().map(|outcome| Attempted { outcome: outcome.clone(), took: SLOW }).collect();
    lanes.finish(ticket, attempted, NOW, &mut || 0.5);
}

fn failed() -> Outcome {
    Outcome::Retry(Failure::retry("no"))
}

fn mark(settle: &Settle) -> Option<i64> {
    settle.mark.map(|position| position.last_id.0)
}

fn due(rows: &[i64], key: &str, parks: bool) -> DueRows {
    let rows =
        rows.iter().map(|id| DueRow { event: event(*id, key), attempts: 1, turn: *id, discarded: false });
    let lane = Some(Lane { key: Key::new(key), late: false });
    DueRows { runs: vec![Run { lane, parks, rows: rows.collect() }], next_in: None }
}

#[test]
fn the_mark_waits_for_the_oldest_event_without_an_outcome() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a", "b", "c"]);
    let (a, _) = next(&mut lanes, ONE);
    let (b, _) = next(&mut lanes, ONE);
    finish(&mut lanes, b, &[Outcome::Ack]);
    assert_eq!(mark(&lanes.compose(NOW, SLOW)), None);
    finish(&mut lanes, a, &[Outcome::Ack]);
    assert_eq!(mark(&lanes.compose(NOW, SLOW)), Some(2));
}

#[test]
fn a_key_hands_out_one_run_at_a_time_and_other_keys_flow() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a", "a", "b", "a"]);
    let (_, run) = next(&mut lanes, ONE);
    assert_eq!(run, [1]);
    assert_eq!(next(&mut lanes, ONE).1, [3]);
    assert!(next_out(&mut lanes, ONE).is_none());
}

#[test]
fn events_without_a_key_that_were_not_tried_keep_their_order() {
    let mut lanes = lanes();
    offer(&mut lanes, &["", "", "", ""]);
    let three = Shape { events: 3, parts: 3, per_lane: 1 };
    let (ticket, run) = next(&mut lanes, three);
    assert_eq!(run, [1, 2, 3]);
    finish(&mut lanes, ticket, &[Outcome::Untried, Outcome::Ack, Outcome::Untried]);
    assert_eq!(next(&mut lanes, three).1, [1, 3, 4]);
}

#[test]
fn a_failed_event_parks_its_key_and_later_ones_become_waiting_rows() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a", "a", "b"]);
    let (ticket, run) = next(&mut lanes, RUN);
    assert_eq!(run, [1, 2]);
    finish(&mut lanes, ticket, &[failed(), Outcome::Untried]);
    let (b, _) = next(&mut lanes, RUN);
    finish(&mut lanes, b, &[Outcome::Ack]);
    assert!(next_out(&mut lanes, RUN).is_none(), "the key waits");
    let settle = lanes.compose(NOW, SLOW);
    assert_eq!(mark(&settle), Some(3));
    let dues: Vec<_> = settle.rows.iter().map(|row| (row.event_id.0, row.parks, row.due)).collect();
    assert_eq!(dues, [(1, true, RowDue::After(SLOW * 5)), (2, true, RowDue::Waiting)]);
    assert_eq!(settle.attempts.len(), 1);
    assert!(lanes.compose(NOW, SLOW).is_empty(), "nothing is written twice");
}

#[test]
fn the_tail_in_memory_follows_once_the_store_says_that_no_row_is_left() {
    let mut lanes = lanes_with(OnDead::Skip, 3, &["a"]);
    offer(&mut lanes, &["a"]);
    // Nothing has been composed yet, so that 1 is still in memory.
    assert!(next_out(&mut lanes, RUN).is_none());
    lanes.load(due(&[-2, -1], "a", true));
    let (ticket, run) = next(&mut lanes, RUN);
    assert_eq!(run, [-2, -1]);
    finish(&mut lanes, ticket, &[Outcome::Ack, Outcome::Ack]);
    assert!(next_out(&mut lanes, RUN).is_none(), "only the store knows whether more rows wait");
    lanes.settled(&Settled { unparked: vec![Lane { key: Key::new("a"), late: false }] });
    assert_eq!(next(&mut lanes, RUN).1, [1]);
}

#[test]
fn a_failure_above_the_mark_outlives_the_stores_word_that_its_lane_is_free() {
    let mut lanes = lanes();
    offer(&mut lanes, &["hold", "a", "a"]);
    let (_hold, _) = next(&mut lanes, ONE);
    let (a, _) = next(&mut lanes, ONE);
    finish(&mut lanes, a, &[failed()]);
    lanes.settled(&Settled { unparked: vec![Lane { key: Key::new("a"), late: false }] });
    assert!(next_out(&mut lanes, ONE).is_none(), "2 failed and is still above the mark");
}

#[test]
fn a_slow_event_is_leased_and_the_mark_passes_it() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a", "b", "a"]);
    let (a, _) = next(&mut lanes, ONE);
    let (b, _) = next(&mut lanes, ONE);
    finish(&mut lanes, b, &[Outcome::Ack]);
    let settle = lanes.compose(NOW + SLOW, SLOW);
    assert_eq!(mark(&settle), Some(3));
    let rows: Vec<_> = settle.rows.iter().map(|row| (row.event_id.0, row.state, row.due)).collect();
    assert_eq!(
        rows,
        [(1, DeliveryState::Leased, RowDue::Waiting), (3, DeliveryState::Pending, RowDue::Waiting)]
    );
    finish(&mut lanes, a, &[Outcome::Ack]);
    let settle = lanes.compose(NOW + SLOW, SLOW);
    assert_eq!((settle.done.len(), settle.freed.len()), (1, 1));
}

/// Its rows would park all of its keys, and make rows of all that comes behind.
#[test]
fn a_batch_holds_the_mark_longer_than_an_event() {
    const BATCH: usize = 20;
    let batch = |events| Shape { events, parts: events, per_lane: 1 };
    let leased =
        |settle: &Settle| settle.rows.iter().filter(|row| row.state == DeliveryState::Leased).count();
    let keys: Vec<String> = (0..limits::SPAN_EVENTS_MAX).map(|key| key.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut lanes = lanes();
    offer(&mut lanes, &keys);
    assert_eq!(next(&mut lanes, batch(BATCH)).1.len(), BATCH);
    let (rest, ids) = next(&mut lanes, batch(limits::SPAN_EVENTS_MAX));
    finish(&mut lanes, rest, &vec![Outcome::Ack; ids.len()]);
    assert_eq!(lanes.slow_at(SLOW), Some(NOW + SLOW * 10));
    assert_eq!(leased(&lanes.compose(NOW + SLOW * 9, SLOW)), 0);
    assert_eq!(leased(&lanes.compose(NOW + SLOW * 10, SLOW)), BATCH);
}

#[test]
fn lanes_share_a_batch_and_get_what_nobody_else_wants() {
    let batch = |events| Shape { events, parts: events, per_lane: 100 };
    let keys: Vec<String> = (0..400).map(|number| (number % 40).to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut lanes = lanes();
    offer(&mut lanes, &keys);
    // The first two events of each of the first ten keys, so that three more batches find keys.
    let first: Vec<i64> = (1..=10).flat_map(|id| [id, id + 40]).collect();
    assert_eq!(next(&mut lanes, batch(20)).1, first);
    assert_eq!(next(&mut lanes, batch(20)).1.len(), 20);
    // One busy key among few.
    let mut lanes = super::tests::lanes();
    offer(&mut lanes, &["a", "b", "a", "a", "a", "a", "a", "a", "a", "a"]);
    assert_eq!(next(&mut lanes, batch(4)).1, [1, 3, 4, 5]);
    assert_eq!(next(&mut lanes, batch(4)).1, [2]);
    let mut lanes = super::tests::lanes();
    offer(&mut lanes, &["a", "b", "a", "a", "a", "a", "a", "a", "a", "a"]);
    let (_, ids) = next(&mut lanes, Shape { events: 20, parts: 20, per_lane: 9 });
    assert_eq!(ids, [1, 3, 4, 5, 6, 7, 8, 9, 10, 2]);
}

#[test]
fn a_batch_is_one_however_few_keys_it_has() {
    let deep = |events, lanes| Shape { events, parts: lanes, per_lane: events / lanes };
    let keys: Vec<String> = (0..limits::SPAN_EVENTS_MAX).map(|number| (number % 100).to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for (shape, holds_for) in [(deep(100, 1), SLOW / 20), (deep(16, 2), SLOW / 20), (deep(100, 2), SLOW * 10)]
    {
        let mut lanes = lanes();
        offer(&mut lanes, &keys);
        let (_, held) = next(&mut lanes, shape);
        assert_eq!(held.len(), shape.events);
        let (rest, ids) = next(&mut lanes, deep(100_000, 100));
        assert_eq!(lanes.slow_at(SLOW), Some(NOW + if holds_for > SLOW { holds_for } else { SLOW }));
        finish(&mut lanes, rest, &vec![Outcome::Ack; ids.len()]);
        assert_eq!(
            lanes.slow_at(SLOW),
            Some(NOW + holds_for),
            "{shape:?}, others have done half of the span"
        );
    }
}

#[test]
fn delayed_events_never_leave_the_span_but_as_rows_of_the_late_lane() {
    let mut lanes = lanes();
    let at = Timestamp::from_micros(77);
    let delayed = Arc::new(Event { due_at: Some(at), ..(*event(1, "a")).clone() });
    let end = Position::START.at(EventId(2));
    lanes.offer(&Chunk { events: vec![delayed, event(2, "a")], ..Chunk::empty(end) });
    assert_eq!(next(&mut lanes, RUN).1, [2]);
    let settle = lanes.compose(NOW, SLOW);
    let row = &settle.rows[0];
    assert_eq!((row.turn, row.parks, row.due), (77, false, RowDue::At(at)));
    assert_eq!(row.lane, Some(Lane { key: Key::new("a"), late: true }));
}

#[test]
fn a_dead_event_frees_its_key_under_skip_and_keeps_it_under_hold() {
    for (on_dead, freed) in [(OnDead::Skip, true), (OnDead::Hold, false)] {
        let mut lanes = lanes_with(on_dead, 1, &[]);
        offer(&mut lanes, &["a", "a"]);
        let (a, _) = next(&mut lanes, ONE);
        finish(&mut lanes, a, &[failed()]);
        assert_eq!(next_out(&mut lanes, ONE).is_some(), freed, "{on_dead:?}");
        let settle = lanes.compose(NOW, SLOW);
        assert_eq!(settle.rows[0].state, DeliveryState::Dead);
        assert_eq!(settle.rows[0].parks, !freed);
    }
}

#[test]
fn an_event_that_wants_to_enter_a_parked_lane_waits_behind_it() {
    let mut lanes = lanes_with(OnDead::Skip, 3, &["a"]);
    lanes.load(due(&[7], "a", false));
    assert!(next_out(&mut lanes, RUN).is_none());
    let settle = lanes.compose(NOW, SLOW);
    assert_eq!(
        (settle.rows[0].event_id.0, settle.rows[0].parks, settle.rows[0].due),
        (7, true, RowDue::Waiting)
    );
}

#[test]
fn a_drain_settles_every_outcome_and_charges_nobody_for_being_cut_off() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a", "b", "", "a", "c"]);
    let (_a, _) = next(&mut lanes, ONE);
    let (b, _) = next(&mut lanes, ONE);
    finish(&mut lanes, b, &[Outcome::Ack]);
    let (keyless, run) = next(&mut lanes, ONE);
    assert_eq!(run, [3]);
    finish(&mut lanes, keyless, &[Outcome::Ack]);
    let settle = lanes.compose_last(NOW);
    assert_eq!(mark(&settle), Some(3), "4 and 5 were never begun and will simply be read again");
    let rows: Vec<_> = settle.rows.iter().map(|row| (row.event_id.0, row.attempts, row.due)).collect();
    assert_eq!(rows, [(1, 0, RowDue::After(Duration::ZERO))]);
}

#[test]
fn a_missing_outcome_counts_as_failed() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a"]);
    let (a, _) = next(&mut lanes, ONE);
    finish(&mut lanes, a, &[]);
    assert_eq!(lanes.compose(NOW, SLOW).attempts.len(), 1);
}

#[test]
fn what_the_filter_passes_over_moves_the_mark_without_hurry() {
    let mut lanes = lanes();
    let end = Position::START.at(EventId(40));
    lanes.offer(&Chunk::empty(end));
    assert_eq!(lanes.wanted(NOW, SLOW), Wanted::Sometime);
    assert_eq!(mark(&lanes.compose(NOW, SLOW)), Some(40));
    assert_eq!(lanes.wanted(NOW, SLOW), Wanted::Nothing);
}

#[test]
fn transactional_hand_outs_follow_the_log_so_that_the_mark_can_pass_each_one() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a", "a", "b", ""]);
    for expected in 1..=4 {
        let out = lanes.hand_out_in_order(false, NOW).expect("ready");
        assert_eq!(ids(&out), [expected]);
        let composed = lanes.compose(NOW, SLOW);
        assert_eq!(mark(&lanes.with_ack(composed, out.ticket)), Some(expected));
        finish(&mut lanes, out.ticket, &[Outcome::Ack]);
    }
}

#[test]
fn memory_is_given_back() {
    let mut lanes = lanes();
    offer(&mut lanes, &["a", "a", "b", ""]);
    assert_eq!(lanes.bytes, 4 * 12 + 3, "payload, topic, type and key");
    while let Some(out) = next_out(&mut lanes, RUN) {
        let n = out.deliveries.len();
        finish(&mut lanes, out.ticket, &vec![Outcome::Ack; n]);
    }
    lanes.compose(NOW, SLOW);
    assert_eq!((lanes.bytes, lanes.slots.len(), lanes.span.len(), lanes.finished), (0, 0, 0, 0));
    assert!(lanes.is_empty());
}

#[test]
fn a_row_whose_outcome_is_not_settled_yet_is_not_read_again() {
    let mut lanes = lanes_with(OnDead::Skip, 3, &["a", "b"]);
    for (id, key, outcome) in [(1, "a", Outcome::Ack), (2, "b", failed())] {
        lanes.load(due(&[id], key, true));
        let (ticket, _) = next(&mut lanes, RUN);
        finish(&mut lanes, ticket, &[outcome]);
        assert!(lanes.loaded().contains(&EventId(id)), "the store still shows it as due");
    }
    lanes.compose(NOW, SLOW);
    assert!(lanes.loaded().is_empty());
}

/// Rows of as many keys, each of which has failed before and is due again.
fn failing(lanes: &mut Lanes, first: i64, keys: usize) {
    for n in 0..keys {
        lanes.load(due(&[first + n as i64], &format!("failing{n}"), true));
    }
}

#[test]
fn a_new_event_does_not_wait_behind_a_thousand_keys_that_fail() {
    for shape in [ONE, RUN, Shape { events: 500, parts: 500, per_lane: 1 }] {
        let mut lanes = lanes();
        failing(&mut lanes, -1000, 1000);
        offer(&mut lanes, &["healthy"]);
        let outs: Vec<Vec<i64>> = (0..2).map(|_| next(&mut lanes, shape).1).collect();
        assert!(outs.contains(&vec![1]), "one of two hand-outs is its own: {outs:?}");
        let (mut rows, mut news) = (0, 0);
        for n in 0..10 {
            offer(&mut lanes, &[&format!("healthy{n}")]);
            for out in [next(&mut lanes, ONE).1, next(&mut lanes, ONE).1] {
                (rows, news) = (rows + usize::from(out[0] < 0), news + usize::from(out[0] > 0));
            }
        }
        assert_eq!(
            (rows, news),
            (10, 10),
            "they take turns, so that those that fail are attempted again too"
        );
    }
}

#[test]
fn a_probe_is_made_by_what_has_not_failed() {
    let mut lanes = lanes();
    failing(&mut lanes, -3, 3);
    offer(&mut lanes, &["a", "b"]);
    for wanted in [Class::Fresh, Class::Fresh] {
        assert_eq!(lanes.turns(true)[0], wanted);
        assert!(lanes.hand_out(wanted, ONE, NOW).unwrap().deliveries[0].id.0 > 0);
    }
    assert!(lanes.hand_out(Class::Fresh, ONE, NOW).is_none());
    assert!(lanes.hand_out(Class::Again, ONE, NOW).is_some(), "nothing else is ready");
}

#[test]
fn a_handler_in_a_transaction_takes_turns_between_what_fails_and_all_else() {
    let mut lanes = lanes();
    failing(&mut lanes, -1000, 1000);
    offer(&mut lanes, &["a", "b"]);
    let mut ids = Vec::new();
    for _ in 0..4 {
        let out = lanes.hand_out_in_order(false, NOW).expect("ready");
        ids.push(out.deliveries[0].id.0);
        finish(&mut lanes, out.ticket, &[Outcome::Ack]);
        lanes.compose(NOW, SLOW);
    }
    assert_eq!(ids.iter().filter(|id| **id > 0).count(), 2, "{ids:?}");
}

#[test]
fn parked_keys_cost_little_and_stop_nothing() {
    let keys: Vec<String> = (0..100_001).map(|n| format!("dead{n}")).collect();
    let mut lanes = lanes_with(OnDead::Hold, 1, &keys.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        (lanes.parked(), lanes.slots.len()),
        (100_001, 0),
        "nothing of them is in memory but that they are"
    );
    assert!(lanes.room().is_some());
    offer(&mut lanes, &["dead7", "healthy", "dead8"]);
    assert_eq!(next(&mut lanes, ONE).1, [2]);
    assert!(next_out(&mut lanes, ONE).is_none(), "the others wait behind the failed events of their keys");
    lanes.settled(&Settled { unparked: vec![Lane { key: Key::new("dead7"), late: false }] });
    assert_eq!(next(&mut lanes, ONE).1, [1]);
    lanes.settled(&Settled { unparked: vec![Lane { key: Key::new("dead9"), late: false }] });
    assert_eq!(lanes.parked(), 99_999);
    offer(&mut lanes, &["dead9"]);
    assert_eq!(next(&mut lanes, ONE).1, [4]);
}

/// Reads events of one key with ids from 1 on, of which the second breaks a limit.
fn offer_with_flaw(lanes: &mut Lanes) {
    let flawed = || {
        let flaw = postrider_core::event::Flaw::new("payload has 9 bytes, the limit is 8");
        Arc::new(Event { flaw: Some(Box::new(flaw)), ..(*event(2, "a")).clone() })
    };
    let events = vec![event(1, "a"), flawed(), event(3, "a"), event(4, "b")];
    lanes.offer(&Chunk { events, ..Chunk::empty(Position::START.at(EventId(4))) });
}

#[test]
fn an_event_with_a_flaw_takes_its_turn_and_is_not_handed_out() {
    let mut lanes = lanes();
    offer_with_flaw(&mut lanes);
    let (first, run) = next(&mut lanes, RUN);
    assert_eq!(run, [1], "it does not come along with one before it");
    let (other, _) = next(&mut lanes, RUN);
    assert!(next_out(&mut lanes, RUN).is_none(), "not before its turn");
    assert_eq!(lanes.take_buried(), Tally::default());
    finish(&mut lanes, first, &[Outcome::Ack]);
    let (last, run) = next(&mut lanes, RUN);
    assert_eq!(run, [3]);
    assert_eq!(lanes.take_buried().dead, 1);
    finish(&mut lanes, last, &[Outcome::Ack]);
    finish(&mut lanes, other, &[Outcome::Ack]);
    let settle = lanes.compose(NOW, SLOW);
    assert_eq!(mark(&settle), Some(4));
    let rows: Vec<_> = settle.rows.iter().map(|row| (row.event_id.0, row.state)).collect();
    assert_eq!(rows, [(2, DeliveryState::Dead)]);
    assert_eq!(settle.attempts[0].error, "payload has 9 bytes, the limit is 8");
}

#[test]
fn an_event_with_a_flaw_holds_its_key_if_dead_letters_do() {
    let mut lanes = lanes_with(OnDead::Hold, 3, &[]);
    offer_with_flaw(&mut lanes);
    let (first, _) = next(&mut lanes, RUN);
    finish(&mut lanes, first, &[Outcome::Ack]);
    assert_eq!(next(&mut lanes, RUN).1, [4]);
    assert!(next_out(&mut lanes, RUN).is_none());
    assert_eq!((lanes.take_buried().dead, lanes.parked()), (1, 1));
}

#[test]
fn transactional_work_passes_over_an_event_with_a_flaw() {
    let mut lanes = lanes();
    offer_with_flaw(&mut lanes);
    let first = lanes.hand_out_in_order(false, NOW).unwrap();
    finish(&mut lanes, first.ticket, &[Outcome::Ack]);
    assert_eq!(ids(&lanes.hand_out_in_order(false, NOW).unwrap()), [3]);
}
