//! How much the server looks at when the plans that it keeps were made for other tables.
//!
//! A session's plans are made when it begins to work, while nothing has failed and the tables of exceptions
//! are empty. The server does not analyse them before the day on which a receiver is down and all keys park. The
//! server itself tells what each step of a plan looked at (`auto_explain`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::settle::{AttemptRecord, Lane, Row, RowDue, Settle};
use postrider_core::{DeliveryState, Event, Key, LogStore, Shard, ShardSet};
use postrider_postgres::PostgresStore;
use postrider_testkit::postgres::{Server, Settings, Version};

use crate::stage::{AMPLE, Owner, Stage, options};

const KEYS: usize = 1_000;
const ROWS_OF_KEY: usize = 8;
/// A plan is kept from the sixth time on.
const TIMES_BEFORE: usize = 12;
/// Of one step of a plan: a few times as many as there are rows, far from half of all keys for each key (500,000).
const LOOKED_AT_MAX: f64 = (10 * KEYS * ROWS_OF_KEY) as f64;

#[tokio::test]
async fn plans_that_were_made_for_empty_tables_do_for_full_ones() {
    for version in Version::ALL {
        let settings = Settings::fast()
            .set("autovacuum", "off")
            .set("session_preload_libraries", "auto_explain")
            .set("auto_explain.log_min_duration", "0")
            .set("auto_explain.log_analyze", "on")
            .set("auto_explain.log_timing", "off");
        let server = Server::start(version, settings);
        let db = server.create_database();
        // No task beats for the member of this test.
        let options = options(&db).lease(Duration::from_secs(60));
        let stage = Stage { store: PostgresStore::open(options).await.unwrap(), db };
        let mut owner = stage.owner("orders").await;
        for time in 0..TIMES_BEFORE {
            fail_and_recover(&stage, &mut owner, [time], 2).await;
        }
        fail_and_recover(&stage, &mut owner, 0..KEYS, ROWS_OF_KEY).await;
        assert_eq!(stage.number("select count(*) from postrider.delivery"), 0, "{version:?}");
        owner.leave().await;
        let steps = steps(&server.log());
        let most = steps.iter().map(|(looked_at, _)| *looked_at).fold(0.0, f64::max);
        assert!(most >= (KEYS * ROWS_OF_KEY) as f64, "{version:?}: of {} steps none was logged", steps.len());
        for (looked_at, step) in &steps {
            assert!(*looked_at <= LOOKED_AT_MAX, "{version:?}: a step looked at {looked_at} rows: {step}");
        }
    }
}

/// All keys park with their first event, the next are delivered one after the other from rows, and all are free again.
async fn fail_and_recover(
    stage: &Stage,
    owner: &mut Owner,
    keys: impl IntoIterator<Item = usize>,
    rows_of_key: usize,
) {
    let lanes: Vec<Lane> =
        keys.into_iter().map(|key| Lane { key: Key::new(key.to_string()), late: false }).collect();
    let keys: Vec<String> = lanes.iter().map(|lane| format!("'{}'", lane.key)).collect();
    stage.run(&format!(
        "insert into postrider.event (topic, type, key, payload_bytes)
         select 'order', 'order', key, 'x' from generate_series(1, {rows_of_key}), unnest(array[{}]) as key",
        keys.join(",")
    ));
    let mut events = Vec::new();
    while events.len() < lanes.len() * rows_of_key {
        events.extend(owner.step(AMPLE).await.unwrap().events);
    }
    let rows = rows(&events, lanes.len());
    let attempts = rows[..lanes.len()].iter().map(failed_attempt).collect();
    let settle = Settle { mark: Some(owner.at), rows, attempts, ..Settle::default() };
    owner.store.settle(&owner.hold, settle.into()).await.unwrap();
    // The next owner finds them.
    owner.store.shards_release(&owner.hold).await.unwrap();
    let member = owner.store.member_join("bob").await.unwrap();
    let taken = owner.store.shards_take("orders", member, ShardSet::ALL).await.unwrap().unwrap();
    assert_eq!(taken.parked.len(), lanes.len());
    (owner.hold, owner.at) = (taken.hold, taken.start);
    for round in events.chunks(lanes.len()) {
        let due = owner.store.fetch_due(&owner.hold, HashSet::default(), AMPLE).await.unwrap();
        assert!(!due.runs.is_empty());
        let done = round.iter().map(|event| event.id).collect();
        let settle = Settle { done, freed: lanes.clone(), ..Settle::default() };
        let settled = owner.store.settle(&owner.hold, Arc::new(settle)).await.unwrap();
        let is_last = round.last().map(|event| event.id) == events.last().map(|event| event.id);
        assert_eq!(settled.unparked.len(), if is_last { lanes.len() } else { 0 });
    }
}

/// The first event of each key has failed, and the others wait for it.
fn rows(events: &[Arc<Event>], keys: usize) -> Vec<Row> {
    let row = |(place, event): (usize, &Arc<Event>)| Row {
        event_id: event.id,
        shard: Shard::of(event.key.as_ref(), event.id, postrider_postgres::SHARDS),
        lane: event.key.clone().map(|key| Lane { key, late: false }),
        turn: event.id.0,
        parks: true,
        state: DeliveryState::Pending,
        attempts: u32::from(place < keys),
        due: if place < keys { RowDue::After(Duration::ZERO) } else { RowDue::Waiting },
    };
    events.iter().enumerate().map(row).collect()
}

fn failed_attempt(row: &Row) -> AttemptRecord {
    AttemptRecord {
        event_id: row.event_id,
        attempt: 1,
        ended_ago: Duration::ZERO,
        took: Duration::ZERO,
        error: "no".to_owned(),
    }
}

/// How many rows each step of each plan in a log has looked at, all its times together, and its text.
fn steps(log: &str) -> Vec<(f64, String)> {
    let mut steps: Vec<(f64, f64, String)> = Vec::new();
    for line in log.lines() {
        if let Some((_, actual)) = line.split_once("(actual rows=") {
            let mut numbers =
                actual.trim_end_matches(')').split(" loops=").filter_map(|text| text.parse().ok());
            let (rows, loops): (f64, f64) = (numbers.next().unwrap(), numbers.next().unwrap());
            steps.push((rows * loops, loops, line.trim().to_owned()));
        } else if let Some((what, removed)) = line.trim().split_once(": ")
            && what.starts_with("Rows Removed by")
            && let (Some((looked_at, loops, text)), Ok(removed)) = (steps.last_mut(), removed.parse::<f64>())
        {
            *looked_at += removed * *loops;
            text.extend([", ", line.trim()]);
        }
    }
    steps.into_iter().map(|(looked_at, _, text)| (looked_at, text)).collect()
}
