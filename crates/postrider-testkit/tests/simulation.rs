//! Thousands of seeds keep every promise, and planted bugs do not go unnoticed.
//!
//! `POSTRIDER_SEEDS=N` sets how many seeds are tried, `POSTRIDER_SEED=S` runs one of them.

use std::ops::Range;
use std::time::Duration;

use postrider_core::Mode;
use postrider_runtime::sabotage::Sabotage;
use postrider_testkit::simulation::{Handling, Plan, Report, run};

const SEEDS: u64 = 10_000;
/// A planted bug must be found within this many seeds.
const SEEDS_TO_CATCH: u64 = 400;
/// Seeds of which the queues are tried once more, with leases that are lost often.
const SEEDS_LOSING: u64 = 4_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number of seeds"))
}

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = match number("POSTRIDER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSTRIDER_SEEDS").unwrap_or(SEEDS),
    };
    let mut total = Report::default();
    for seed in seeds.clone() {
        match run(&Plan::from_seed(seed), None) {
            Ok(report) => total.add(report),
            Err(broken) => panic!("{broken}"),
        }
    }
    println!("{} seeds: {total:?}", seeds.end - seeds.start);
    assert!(total.handled >= total.emitted, "the simulation did nothing");
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in 0..20 {
        let reports: Vec<Report> =
            (0..2).map(|_| run(&Plan::from_seed(seed), None).expect("it keeps all")).collect();
        assert_eq!(reports[0], reports[1], "seed {seed}");
    }
}

/// The first seed that shows a planted bug, among those of a mode.
fn caught(sabotage: Sabotage, mode: Mode) -> Option<u64> {
    let plans = (0..SEEDS_TO_CATCH).map(Plan::from_seed).filter(|plan| plan.mode == mode);
    plans.into_iter().find(|plan| run(plan, Some(sabotage)).is_err()).map(|plan| plan.seed)
}

#[test]
fn an_ack_before_the_handler_ends_is_caught() {
    assert!(caught(Sabotage::AckEarly, Mode::Log).is_some());
    assert!(caught(Sabotage::AckEarly, Mode::Queue).is_some());
}

#[test]
fn order_broken_on_retry_is_caught() {
    assert!(caught(Sabotage::ForgetToPark, Mode::Log).is_some());
}

#[test]
fn a_lost_wake_without_a_poll_is_caught() {
    assert!(caught(Sabotage::TrustWakes, Mode::Log).is_some());
    assert!(caught(Sabotage::TrustWakes, Mode::Queue).is_some());
}

/// Plans of queues in which leases are short, handlers slow and members cut off.
fn losing_leases(seeds: Range<u64>) -> impl Iterator<Item = Plan> {
    let plans = seeds.map(Plan::from_seed).filter(|plan| plan.mode == Mode::Queue);
    plans.map(|plan| Plan {
        claim_lease: Duration::from_secs(1),
        cut_off: 0.02,
        handling: Handling { slow: 0.5, ..plan.handling },
        ..plan
    })
}

#[test]
fn lost_leases_do_no_harm() {
    // In the last one a lost lease ends the hand-out that was to find out whether the receiver is back.
    for plan in losing_leases(0..SEEDS_LOSING).chain(losing_leases(10_002..10_003)) {
        if let Err(broken) = run(&plan, None) {
            panic!("{broken}");
        }
    }
}

#[test]
fn work_on_what_a_lost_lease_held_is_caught() {
    assert!(losing_leases(0..SEEDS_TO_CATCH).any(|plan| run(&plan, Some(Sabotage::KeepLost)).is_err()));
}
