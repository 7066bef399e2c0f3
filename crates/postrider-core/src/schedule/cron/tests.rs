//! Clocks that are changed, days that do not exist, and every expression against a search that knows no shortcuts.

use super::*;

const BERLIN: &str = "Europe/Berlin";
/// Its clocks are changed by half an hour.
const LORD_HOWE: &str = "Australia/Lord_Howe";

/// The first ticks after an instant, as clocks in the zone show them.
fn shown(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let cron = Cron::parse(expression, zone).unwrap();
    let end = Timestamp::from_micros(i64::MAX);
    let ticks = cron.between(after.parse().unwrap(), end).take(count);
    ticks.map(|tick| cron.local(tick).unwrap()).collect()
}

#[test]
fn a_named_time_that_is_skipped_comes_at_the_change() {
    let ticks = shown("30 2 * * *", BERLIN, "2027-03-27T00:00:00Z", 3);
    let expected = ["2027-03-27T02:30:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"];
    assert_eq!(ticks, expected);
    // Several that one change skips are one tick, and what is planned for the end of the gap comes with them.
    let ticks = shown("*/20 2,3 * * *", BERLIN, "2027-03-27T23:00:00Z", 3);
    let expected = ["2027-03-28T03:00:00+02:00", "2027-03-28T03:20:00+02:00", "2027-03-28T03:40:00+02:00"];
    assert_eq!(ticks, expected);
}

#[test]
fn a_named_time_that_comes_twice_is_one_tick() {
    let ticks = shown("30 2 * * *", BERLIN, "2027-10-30T00:00:00Z", 3);
    let expected = ["2027-10-30T02:30:00+02:00", "2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"];
    assert_eq!(ticks, expected);
    let ticks = shown("0,30 2,14 * * *", BERLIN, "2027-10-30T22:00:00Z", 4);
    let expected = [
        "2027-10-31T02:00:00+02:00",
        "2027-10-31T02:30:00+02:00",
        "2027-10-31T14:00:00+01:00",
        "2027-10-31T14:30:00+01:00",
    ];
    assert_eq!(ticks, expected);
}

#[test]
fn a_named_time_is_one_tick_from_whichever_instant_one_looks() {
    // Looking from within the second time that the hour passes finds the next day, not the past.
    for after in ["2027-10-31T00:30:00Z", "2027-10-31T01:00:00Z", "2027-10-31T01:29:59Z"] {
        assert_eq!(shown("30 2 * * *", BERLIN, after, 1), ["2027-11-01T02:30:00+01:00"], "{after}");
    }
    assert_eq!(shown("30 2 * * *", BERLIN, "2027-10-31T00:29:59.999999Z", 1), ["2027-10-31T02:30:00+02:00"]);
}

#[test]
fn every_quarter_of_an_hour_is_one_of_real_time() {
    for after in ["2027-03-27T20:00:00Z", "2027-10-30T20:00:00Z"] {
        let cron = Cron::parse("*/15 * * * *", BERLIN).unwrap();
        let after: Timestamp = after.parse().unwrap();
        let ticks: Vec<i64> = cron
            .between(after, Timestamp::from_micros(i64::MAX))
            .take(60)
            .map(|tick| tick.as_micros() - after.as_micros())
            .collect();
        assert_eq!(ticks, (1..=60).map(|n| n * 900_000_000).collect::<Vec<_>>());
    }
}

#[test]
fn clocks_may_be_changed_by_half_an_hour() {
    // From 02:00 to 02:30 in October, from 02:00 back to 01:30 in April.
    let ticks = shown("15 2 * * *", LORD_HOWE, "2027-10-01T20:00:00Z", 2);
    assert_eq!(ticks, ["2027-10-03T02:30:00+11:00", "2027-10-04T02:15:00+11:00"]);
    let ticks = shown("45 1 * * *", LORD_HOWE, "2027-04-02T20:00:00Z", 2);
    assert_eq!(ticks, ["2027-04-04T01:45:00+11:00", "2027-04-05T01:45:00+10:30"]);
    let ticks = shown("*/15 * * * *", LORD_HOWE, "2027-04-03T14:30:00Z", 4);
    let expected = [
        "2027-04-04T01:45:00+11:00",
        "2027-04-04T01:30:00+10:30",
        "2027-04-04T01:45:00+10:30",
        "2027-04-04T02:00:00+10:30",
    ];
    assert_eq!(ticks, expected);
}

#[test]
fn a_change_at_midnight_moves_no_day() {
    // In Beirut clocks go from 00:00 to 01:00.
    let ticks = shown("@daily", "Asia/Beirut", "2027-03-27T00:00:00Z", 2);
    assert_eq!(ticks, ["2027-03-28T01:00:00+03:00", "2027-03-29T00:00:00+03:00"]);
}

#[test]
fn days_that_a_month_or_a_year_has_not_are_passed_over() {
    let ticks = shown("0 0 31 * *", "UTC", "2027-01-31T00:00:00Z", 3);
    assert_eq!(
        ticks,
        ["2027-03-31T00:00:00+00:00", "2027-05-31T00:00:00+00:00", "2027-07-31T00:00:00+00:00"]
    );
    let ticks = shown("0 12 29 2 *", "UTC", "2026-11-16T00:00:00Z", 2);
    assert_eq!(ticks, ["2028-02-29T12:00:00+00:00", "2032-02-29T12:00:00+00:00"]);
    // 2100 has none.
    assert_eq!(shown("0 12 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), ["2104-02-29T12:00:00+00:00"]);
}

#[test]
fn what_never_comes_is_refused() {
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * * 30 feb *"] {
        let refused = Cron::parse(never, BERLIN).unwrap_err().to_string();
        assert!(refused.contains("never comes"), "{refused}");
    }
}

#[test]
fn seconds_nicknames_and_names_are_understood() {
    let after = "2026-11-16T08:59:58Z";
    for (expression, next) in [
        ("*/10 * * * * *", "2026-11-16T09:00:00+00:00"),
        ("0 9 * * mon-fri", "2026-11-16T09:00:00+00:00"),
        ("0 9 * * SUN", "2026-11-22T09:00:00+00:00"),
        ("@hourly", "2026-11-16T09:00:00+00:00"),
        ("@daily", "2026-11-17T00:00:00+00:00"),
        ("@weekly", "2026-11-22T00:00:00+00:00"),
        ("@monthly", "2026-12-01T00:00:00+00:00"),
        ("@yearly", "2027-01-01T00:00:00+00:00"),
    ] {
        assert_eq!(shown(expression, "UTC", after, 1), [next], "{expression}");
    }
    for bad in [
        "",
        " ",
        "*",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "@often",
        "a b c d e",
        "*/0 * * * *",
        "1/5 * * * *",
    ] {
        assert!(Cron::parse(bad, "UTC").is_err(), "{bad:?}");
    }
}

/// The rule of this file's head without any cleverness: every second is looked at.
fn by_looking(cron: &Cron, after: jiff::Timestamp, seconds: i64) -> Vec<Timestamp> {
    let matches = |time: civil::DateTime| cron.pattern.is_time_matching(&time).unwrap();
    let mut found = Vec::new();
    let mut before = after.to_zoned(cron.zone.clone());
    // The latest time that any clock has shown, for a while before as well.
    let mut latest = before.datetime();
    for _ in 0..seconds {
        let at = before.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
        let time = at.datetime();
        let ticks = match cron.hours {
            Hours::Any => matches(time),
            Hours::Named => {
                let mut skipped = latest;
                let mut any = false;
                while skipped < time {
                    skipped = skipped.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
                    any |= matches(skipped);
                }
                any
            }
        };
        if ticks {
            found.push(Timestamp::from_micros(at.timestamp().as_microsecond()));
        }
        latest = latest.max(time);
        before = at;
    }
    found
}

#[test]
fn a_search_without_shortcuts_finds_the_same() {
    let expressions = [
        "*/7 * * * *",
        "30 */2 * * *",
        "0,20,40 1-3 * * *",
        "59 59 1,2 * * *",
        "0 0 * * *",
        "*/25 */10 2 * * *",
    ];
    let changes = [
        (BERLIN, "2027-03-27T23:00:00Z"),
        (BERLIN, "2027-10-30T22:30:00Z"),
        (LORD_HOWE, "2027-10-02T13:00:00Z"),
        (LORD_HOWE, "2027-04-03T13:00:00Z"),
        ("America/New_York", "2027-11-07T04:00:00Z"),
        ("Asia/Beirut", "2027-03-27T20:00:00Z"),
    ];
    for expression in expressions {
        for (zone, after) in changes {
            let cron = Cron::parse(expression, zone).unwrap();
            let from: jiff::Timestamp = after.parse().unwrap();
            let seconds = 6 * 3600;
            let end = Timestamp::from_micros(from.as_microsecond() + seconds * 1_000_000);
            let found: Vec<Timestamp> =
                cron.between(Timestamp::from_micros(from.as_microsecond()), end).collect();
            assert_eq!(found, by_looking(&cron, from, seconds), "`{expression}` in {zone} after {after}");
        }
    }
}
