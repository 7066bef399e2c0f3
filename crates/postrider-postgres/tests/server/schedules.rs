//! Schedules with several processes and a real server: each tick once, through crashes and whichever process waits.

use std::time::Duration;

use postrider_core::schedule::{Fire, Fired, due};
use postrider_core::{Delivery, Event, Failure, Missed, NewSchedule, NewSubscription, Result, ScheduleStore};
use postrider_postgres::PostgresStore;
use postrider_runtime::{Relay, Summary, Worker};
use postrider_testkit::postgres::{Server, Settings, Version};
use tokio::task::JoinHandle;

use crate::stage::{Stage, open, run, until};

const EVENTS: &str = "select count(*) from postrider.event";
/// Whether no tick came twice, and whether there is one for each second.
const SOUND: &str = "
    select (count(*) = count(distinct tick))::text || ' '
        || (count(distinct tick) = extract(epoch from max(tick) - min(tick)) + 1)::text
    from (select (headers ->> 'postrider-tick')::timestamptz as tick from postrider.event) as ticks";

fn every_second() -> NewSchedule {
    NewSchedule::new("second", "* * * * * *", Event::new("tick")).missed(Missed::All)
}

/// Until it is aborted, which is what a crash is.
fn relay(store: PostgresStore) -> JoinHandle<Result<Summary>> {
    let nothing = NewSubscription::new("s").topic("nothing").unwrap();
    let worker = Worker::new(nothing).each(|_: Delivery| std::future::ready(Ok::<(), Failure>(())));
    tokio::spawn(Relay::new(store).retention(None).worker(worker).run(std::future::pending()))
}

async fn until_there_are(stage: &Stage, events: i64) {
    until(stage, &format!("select ({events} <= ({EVENTS}))::int"), 1).await;
}

#[tokio::test]
async fn relays_and_servers_that_crash_neither_repeat_nor_lose_a_tick() {
    for version in Version::ALL {
        let mut server = Server::start(version, Settings::fast());
        let stage = Stage::in_database(server.create_database()).await;
        stage.store.schedule_put(every_second(), "test").await.unwrap();
        let doomed = relay(open(&stage.db).await);
        let survivor = relay(open(&stage.db).await);
        until_there_are(&stage, 2).await;
        doomed.abort();
        until_there_are(&stage, stage.number(EVENTS) + 2).await;
        let server = tokio::task::spawn_blocking(move || {
            server.kill_immediate();
            server.start_again();
            server
        })
        .await
        .unwrap();
        until_there_are(&stage, stage.number(EVENTS) + 2).await;
        assert!(!survivor.is_finished(), "the relay has lived through it");
        survivor.abort();
        let emitted = stage.db.query("select headers ->> 'postrider-tick' from postrider.event order by id");
        assert_eq!(stage.text(SOUND), "true true", "{emitted:?}");
        drop(server);
    }
}

/// The second relay to fire waits for the first: it changes nothing if the first commits, and goes on in its
/// place if the first ends.
#[tokio::test]
async fn a_second_fire_waits_for_the_first_to_commit_or_to_end() {
    for version in Version::ALL {
        for (ending, fired, events) in [("commit", Fired::No, 1), ("rollback", Fired::Yes, 1)] {
            let stage = Stage::on(version).await;
            stage.store.schedule_put(every_second(), "test").await.unwrap();
            stage.run("update postrider.schedule set next_at = next_at - interval '10 s'");
            let found = stage.store.schedules_due().await.unwrap();
            let schedule = &found.due[0];
            let next_at = due(schedule, found.now).unwrap().unwrap().next_at.after(Duration::from_secs(1));
            let fire =
                Fire { id: schedule.id, seen: schedule.next_at, ticks: vec![schedule.next_at], next_at };
            let first = stage.session().await;
            run(&first, "begin").await;
            let statement = format!(
                "select postrider.fire({}, next_at, array[next_at], next_at + interval '1 h') from postrider.schedule",
                schedule.id.0
            );
            assert!(first.query_one(&statement, &[]).await.unwrap().get::<_, bool>(0));
            let store = stage.store.clone();
            let second = tokio::spawn(async move { store.schedule_fire(fire).await });
            let waits = "select count(*) from pg_stat_activity
                         where datname = current_database() and wait_event_type = 'Lock'";
            until(&stage, waits, 1).await;
            run(&first, ending).await;
            assert_eq!(second.await.unwrap().unwrap(), fired, "{ending}");
            assert_eq!(stage.number(EVENTS), events);
        }
    }
}
