//! The laws of looking: no tick twice, none before another, none missed that should not be, bounded work.

use proptest::prelude::*;

use super::*;
use crate::event::{Kind, Topic};
use crate::schedule::ScheduleId;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn schedule(cron: &str, missed: Missed, next_at: Timestamp) -> Schedule {
    Schedule {
        id: ScheduleId(1),
        name: "s".to_owned(),
        cron: cron.to_owned(),
        zone: "Europe/Berlin".to_owned(),
        missed,
        topic: Topic::new("t"),
        kind: Kind::new("t"),
        key: None,
        created_at: next_at,
        paused_at: None,
        next_at,
        ticked_at: None,
    }
}

fn look(schedule: &Schedule, now: &str) -> DueTicks {
    due(schedule, at(now)).unwrap().expect("it is due")
}

#[test]
fn a_tick_is_due_at_its_instant_and_not_before() {
    let schedule = schedule("* * * * *", Missed::Once, at("2027-01-01T00:01:00Z"));
    assert_eq!(due(&schedule, at("2027-01-01T00:00:59.999999Z")).unwrap(), None);
    let due = look(&schedule, "2027-01-01T00:01:00Z");
    assert_eq!((due.ticks, due.next_at), (vec![schedule.next_at], at("2027-01-01T00:02:00Z")));
}

#[test]
fn a_paused_schedule_is_not_due() {
    let next_at = at("2027-01-01T00:01:00Z");
    let paused = Schedule { paused_at: Some(next_at), ..schedule("* * * * *", Missed::Once, next_at) };
    assert_eq!(due(&paused, at("2028-01-01T00:00:00Z")).unwrap(), None);
}

#[test]
fn missed_ticks_are_dropped_merged_or_made_up_for() {
    let next_at = at("2027-01-01T00:01:00Z");
    let late = "2027-01-01T00:04:30Z";
    let ticks = |missed| look(&schedule("* * * * *", missed, next_at), late).ticks;
    assert_eq!(ticks(Missed::Skip), [at("2027-01-01T00:04:00Z")], "the last one is in time");
    assert_eq!(ticks(Missed::Once), [at("2027-01-01T00:04:00Z")]);
    let each = [1, 2, 3, 4].map(|minute| at(&format!("2027-01-01T00:0{minute}:00Z")));
    assert_eq!(ticks(Missed::All), each);
    let daily = schedule("0 1 * * *", Missed::Skip, at("2027-01-01T00:00:00Z"));
    assert_eq!(look(&daily, "2027-01-01T00:01:00Z").ticks, [daily.next_at], "a minute late is in time");
    let due = look(&daily, "2027-01-01T00:01:00.000001Z");
    let expected = DueTicks { ticks: Vec::new(), next_at: at("2027-01-02T00:00:00Z"), dropped: true };
    assert_eq!(due, expected);
}

#[test]
fn a_clock_that_jumps_far_costs_no_walk_through_what_lies_between() {
    // Every second for sixty years would be two billion ticks.
    let next_at = at("2027-01-01T00:00:00Z");
    let far = "2087-01-01T00:00:00.5Z";
    for missed in [Missed::Skip, Missed::Once] {
        let due = look(&schedule("* * * * * *", missed, next_at), far);
        assert_eq!((due.ticks, due.next_at), (vec![at("2087-01-01T00:00:00Z")], at("2087-01-01T00:00:01Z")));
    }
    let mut every = schedule("* * * * * *", Missed::All, next_at);
    let mut made_up = Vec::new();
    while let Some(due) = due(&every, at(far)).unwrap() {
        assert_eq!(due.dropped, made_up.is_empty(), "the first look drops what is too old");
        assert_eq!(due.ticks.len(), limits::FIRE_TICKS_MAX);
        made_up.extend(due.ticks);
        every.next_at = due.next_at;
    }
    assert_eq!(made_up.len(), limits::MISSED_TICKS_MAX);
    assert!(made_up.windows(2).all(|pair| pair[1].since(pair[0]) == Duration::from_secs(1)));
    assert_eq!(made_up.last(), Some(&at("2087-01-01T00:00:00Z")));
}

#[test]
fn beyond_the_calendar_there_is_an_error_and_no_panic() {
    let schedule = schedule("* * * * *", Missed::All, at("2027-01-01T00:00:00Z"));
    for beyond in [at("5100-01-01T00:00:00Z"), Timestamp::from_micros(i64::MAX)] {
        assert!(due(&schedule, beyond).unwrap_err().to_string().contains("check the database's clock"));
    }
}

#[test]
fn a_tick_that_was_stored_is_fired_although_the_expression_does_not_name_it() {
    // As with another database of time zones, or by hand.
    let odd = at("2027-01-01T00:00:30Z");
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let due = look(&schedule("* * * * *", missed, odd), "2027-01-01T00:00:31Z");
        assert_eq!((due.ticks, due.next_at), (vec![odd], at("2027-01-01T00:01:00Z")));
    }
}

fn expressions() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "* * * * * *",
        "*/15 * * * *",
        "30 2 * * *",
        "0,30 1-3 * * *",
        "0 */2 * * *",
        "0 9 * * mon-fri",
        "0 0 31 * *",
    ])
}

/// Steps of the clock between looks, in seconds: mostly small, at times a jump, at times back.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![6 => 0_i64..5_000, 2 => 0_i64..3_000_000, 1 => -100_000_i64..0];
    prop::collection::vec(step, 1..12)
}

/// Looks at a schedule while the clock moves by `steps`, and after each until nothing is due. The ticks that
/// were emitted.
fn looks(
    schedule: &mut Schedule,
    mut now: Timestamp,
    steps: &[i64],
) -> Result<Vec<Timestamp>, TestCaseError> {
    let mut emitted: Vec<Timestamp> = Vec::new();
    for step in steps {
        now = Timestamp::from_micros(now.as_micros() + step * 1_000_000);
        while let Some(due) = due(schedule, now).unwrap() {
            prop_assert!(due.ticks.len() <= limits::FIRE_TICKS_MAX);
            prop_assert!(due.ticks.iter().all(|tick| *tick >= schedule.next_at && *tick <= now));
            prop_assert!(due.ticks.iter().all(|tick| *tick < due.next_at) && due.next_at > schedule.next_at);
            emitted.extend(due.ticks);
            schedule.next_at = due.next_at;
        }
    }
    Ok(emitted)
}

proptest! {
    #[test]
    fn ticks_never_repeat_and_never_go_back(
        cron in expressions(),
        missed in prop::sample::select(vec![Missed::Skip, Missed::Once, Missed::All]),
        start in 1_800_000_000_i64..1_850_000_000,
        steps in steps(),
    ) {
        let start = Timestamp::from_micros(start * 1_000_000);
        let first = Cron::parse(cron, "Europe/Berlin").unwrap().next_after(start).unwrap();
        let emitted = looks(&mut schedule(cron, missed, first), start, &steps)?;
        prop_assert!(emitted.is_sorted_by(|a, b| a < b), "{emitted:?}");
    }

    #[test]
    fn below_the_bound_every_tick_is_made_up_for(
        cron in expressions(),
        start in 1_800_000_000_i64..1_850_000_000,
        steps in prop::collection::vec(-500_i64..900, 1..12),
    ) {
        let start = Timestamp::from_micros(start * 1_000_000);
        let parsed = Cron::parse(cron, "Europe/Berlin").unwrap();
        let first = parsed.next_after(start).unwrap();
        let mut schedule = schedule(cron, Missed::All, first);
        let emitted = looks(&mut schedule, start, &steps)?;
        let up_to = schedule.next_at.before(Duration::from_micros(1));
        prop_assert_eq!(emitted, parsed.between(start, up_to).collect::<Vec<_>>());
    }
}
