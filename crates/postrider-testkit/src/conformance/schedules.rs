//! Schedules: each tick is emitted once, whichever relay fires it and whatever becomes of that relay.

use std::time::Duration;

use postrider_core::schedule::{DueSchedules, Fire, Fired, SCHEDULE_HEADER, TICK_HEADER, due};
use postrider_core::store::EventQuery;
use postrider_core::time::Clock;
use postrider_core::{
    ErrorKind, Event, Key, LogStore, Missed, NewEvent, NewSchedule, NewSubscription, Schedule, ScheduleStore,
    Store, Timestamp, limits,
};

use super::owner::{ACTOR, Owner, SECOND, SUBSCRIPTION, refused};
use super::{Kept, Rig};

const NAME: &str = "tidy-up";
const MINUTE: Duration = Duration::from_secs(60);

/// Emits an event at every full minute.
fn every_minute() -> NewSchedule {
    NewSchedule::new(NAME, "* * * * *", wanted())
}

fn wanted() -> NewEvent {
    Event::new("house").kind("house.untidy").key("kitchen").payload("plates").header("floor", "1 \"ü\"")
}

/// All events of the store, oldest first.
async fn emitted<R: Rig>(rig: &R) -> Kept<Vec<Event>> {
    let query = EventQuery { limit: limits::PAGE_ROWS_MAX, ..EventQuery::default() };
    let listed = rig.store().event_list(query).await?;
    Ok(listed.into_iter().rev().map(|listed| listed.event).collect())
}

/// The ticks for which events were emitted, oldest first.
async fn ticks<R: Rig>(rig: &R) -> Kept<Vec<Timestamp>> {
    let tick = |event: &Event| event.headers.get(TICK_HEADER).expect("a tick").parse().expect("an instant");
    Ok(emitted(rig).await?.iter().map(tick).collect())
}

/// What a relay does about a due schedule.
fn fire_of(found: &DueSchedules, schedule: &Schedule) -> Fire {
    let due = due(schedule, found.now).expect("it is understood").expect("it is due");
    Fire { id: schedule.id, seen: schedule.next_at, ticks: due.ticks, next_at: due.next_at }
}

/// Fires whatever is due until nothing is; how many fires that took.
async fn fire_all<S: LogStore>(store: &S) -> Kept<usize> {
    for fires in 0..100 {
        let found = store.schedules_due().await?;
        let Some(schedule) = found.due.first() else { return Ok(fires) };
        assert_eq!(store.schedule_fire(fire_of(&found, schedule)).await?, Fired::Yes);
    }
    panic!("something is always due");
}

/// The fire for the first due schedule, not yet done.
async fn next_fire<R: Rig>(rig: &R) -> Kept<Fire> {
    let found = rig.store().schedules_due().await?;
    Ok(fire_of(&found, found.due.first().expect("one is due")))
}

/// What was put is what is stored, for every process.
pub async fn a_schedule_is_stored_as_put<R: Rig>(rig: &R) -> Kept {
    let new = NewSchedule::new(NAME, "30 9 * * mon-fri", wanted()).zone("europe/berlin").missed(Missed::All);
    let put = rig.store().schedule_put(new, ACTOR).await?;
    assert_eq!((put.name.as_str(), put.cron.as_str()), (NAME, "30 9 * * mon-fri"));
    assert_eq!((put.zone.as_str(), put.missed), ("Europe/Berlin", Missed::All));
    assert_eq!((put.topic.as_str(), put.kind.as_str()), ("house", "house.untidy"));
    assert_eq!(put.key, Some(Key::new("kitchen")));
    assert_eq!((put.created_at, put.paused_at, put.ticked_at), (rig.clock().now(), None, None));
    assert!(put.next_at > rig.clock().now());
    let second = rig.second().await;
    let stored = second.schedule_get(NAME).await?;
    assert_eq!((&stored.schedule, &stored.payload[..]), (&put, &b"plates"[..]));
    assert_eq!(&stored.headers, wanted().headers());
    assert_eq!(second.schedule_list().await?, [put]);
    Ok(())
}

/// What breaks a rule is refused, and what is not there is not found.
pub async fn bad_schedules_are_refused<R: Rig>(rig: &R) -> Kept {
    let bad = [
        NewSchedule::new("a b", "* * * * *", wanted()),
        NewSchedule::new(NAME, "* * * *", wanted()),
        NewSchedule::new(NAME, "0 0 30 2 *", wanted()),
        every_minute().zone("Mars/Olympus"),
        NewSchedule::new(NAME, "* * * * *", wanted().due_after(SECOND)),
    ];
    for new in bad {
        assert_eq!(refused(rig.store().schedule_put(new, ACTOR).await), ErrorKind::Invalid);
    }
    assert_eq!(rig.store().schedule_list().await?, []);
    assert_eq!(refused(rig.store().schedule_get(NAME).await), ErrorKind::NotFound);
    assert_eq!(refused(rig.store().schedule_pause(NAME).await), ErrorKind::NotFound);
    assert_eq!(refused(rig.store().schedule_resume(NAME).await), ErrorKind::NotFound);
    assert_eq!(refused(rig.store().schedule_delete(NAME, ACTOR).await), ErrorKind::NotFound);
    Ok(())
}

/// Listings are in the order of the names, whatever language the database sorts by.
pub async fn schedules_are_listed_by_name<R: Rig>(rig: &R) -> Kept {
    for name in ["b", "a-2", "B", "a.1"] {
        rig.store().schedule_put(NewSchedule::new(name, "@daily", wanted()), ACTOR).await?;
    }
    let names: Vec<String> = rig.store().schedule_list().await?.into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["B", "a-2", "a.1", "b"]);
    Ok(())
}

/// There is a bound, and what is there may still be replaced.
pub async fn schedules_are_bounded<R: Rig>(rig: &R) -> Kept {
    let new = |n: usize| NewSchedule::new(format!("s-{n}"), "@daily", Event::new("t"));
    for n in 0..limits::SCHEDULES_MAX {
        rig.store().schedule_put(new(n), ACTOR).await?;
    }
    let one_more = rig.store().schedule_put(new(limits::SCHEDULES_MAX), ACTOR).await;
    assert_eq!(refused(one_more), ErrorKind::Conflict);
    rig.store().schedule_put(new(7).missed(Missed::Skip), ACTOR).await?;
    assert_eq!(rig.store().schedule_list().await?.len(), limits::SCHEDULES_MAX);
    Ok(())
}

/// A look finds what is due, the longest due first, and otherwise says when to look again.
pub async fn a_look_says_what_is_due_and_when_to_look_again<R: Rig>(rig: &R) -> Kept {
    let found = rig.store().schedules_due().await?;
    assert_eq!(found, DueSchedules { now: rig.clock().now(), due: Vec::new(), next_at: None });
    let daily = rig.store().schedule_put(NewSchedule::new("daily", "@daily", wanted()), ACTOR).await?;
    let minute = rig.store().schedule_put(every_minute(), ACTOR).await?;
    let found = rig.store().schedules_due().await?;
    assert_eq!((found.due, found.next_at), (Vec::new(), Some(minute.next_at)));
    rig.clock().advance(minute.next_at.since(rig.clock().now()));
    let found = rig.second().await.schedules_due().await?;
    assert_eq!((found.now, &found.due), (minute.next_at, &vec![minute.clone()]), "due at its instant");
    rig.clock().advance(daily.next_at.since(rig.clock().now()));
    assert_eq!(rig.store().schedules_due().await?.due, [minute, daily]);
    Ok(())
}

/// The event of a tick is the one that was put, with the schedule and the tick in its headers, and is
/// delivered like any other.
pub async fn a_tick_emits_what_was_put<R: Rig>(rig: &R) -> Kept {
    let owner = Owner::create(rig.store(), NewSubscription::new(SUBSCRIPTION)).await?;
    let put = rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE);
    assert_eq!(fire_all(rig.store()).await?, 1);
    let events = owner.read_all().await?;
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!((event.topic.as_str(), event.kind.as_str()), ("house", "house.untidy"));
    assert_eq!((event.key.as_ref(), &event.payload[..]), (Some(&Key::new("kitchen")), &b"plates"[..]));
    assert_eq!((event.created_at, event.due_at), (rig.clock().now(), None));
    let tick = put.next_at.to_string();
    let headers: Vec<(&str, &str)> = event.headers.iter().collect();
    assert_eq!(headers, [("floor", "1 \"ü\""), (SCHEDULE_HEADER, NAME), (TICK_HEADER, tick.as_str())]);
    let stored = rig.store().schedule_get(NAME).await?.schedule;
    assert_eq!((stored.ticked_at, stored.next_at), (Some(put.next_at), put.next_at.after(MINUTE)));
    Ok(())
}

/// Without key, payload and headers of its own, too.
pub async fn a_bare_event_is_emitted_as_well<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(NewSchedule::new(NAME, "* * * * *", Event::new("t")), ACTOR).await?;
    rig.clock().advance(MINUTE);
    fire_all(rig.store()).await?;
    let events = emitted(rig).await?;
    assert_eq!((events[0].kind.as_str(), &events[0].key, events[0].payload.len()), ("t", &None, 0));
    assert_eq!(events[0].headers.iter().count(), 2);
    Ok(())
}

/// Of any number that fire the same tick at once, one succeeds, and there is one event.
pub async fn a_tick_is_emitted_once_however_many_fire_it<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE);
    let fire = next_fire(rig).await?;
    let mut members = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, fire) = (rig.second().await, fire.clone());
        members.spawn(async move { store.schedule_fire(fire).await });
    }
    let answers: Vec<Fired> =
        members.join_all().await.into_iter().collect::<Result<_, postrider_core::Error>>()?;
    assert_eq!(answers.iter().filter(|fired| **fired == Fired::Yes).count(), 1, "{answers:?}");
    assert_eq!(ticks(rig).await?, fire.ticks);
    Ok(())
}

/// Fault 73: a slow relay fires a tick that another relay has fired meanwhile. Nothing is emitted, and the
/// schedule does not go back.
pub async fn a_late_second_fire_changes_nothing<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE);
    let slow = next_fire(rig).await?;
    fire_all(&rig.second().await).await?;
    rig.clock().advance(MINUTE * 3);
    assert_eq!(rig.store().schedule_fire(slow.clone()).await?, Fired::No);
    fire_all(&rig.second().await).await?;
    assert_eq!(rig.store().schedule_fire(slow).await?, Fired::No);
    let emitted = ticks(rig).await?;
    assert_eq!(emitted.len(), 2, "{emitted:?}");
    assert!(emitted.is_sorted_by(|a, b| a < b), "{emitted:?}");
    Ok(())
}

/// A fire whose answer was lost may be repeated.
pub async fn a_fire_may_be_repeated<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE);
    let fire = next_fire(rig).await?;
    assert_eq!(rig.store().schedule_fire(fire.clone()).await?, Fired::Yes);
    assert_eq!(rig.store().schedule_fire(fire).await?, Fired::No);
    assert_eq!(ticks(rig).await?.len(), 1);
    Ok(())
}

/// A fire is refused as a whole or done as a whole.
pub async fn a_fire_is_all_or_nothing<R: Rig>(rig: &R) -> Kept {
    let put = rig.store().schedule_put(every_minute().missed(Missed::All), ACTOR).await?;
    rig.clock().advance(MINUTE * 3);
    let good = next_fire(rig).await?;
    assert_eq!(good.ticks.len(), 3);
    let many = (0..=limits::FIRE_TICKS_MAX as u32).map(|n| put.next_at.after(SECOND * n)).collect();
    let bad = [
        Fire { next_at: good.seen, ..good.clone() },
        Fire { next_at: good.ticks[2], ..good.clone() },
        Fire { ticks: vec![good.ticks[1], good.ticks[0]], ..good.clone() },
        Fire { ticks: vec![good.ticks[0], good.ticks[0]], ..good.clone() },
        Fire { ticks: vec![good.seen.before(SECOND)], ..good.clone() },
        Fire { ticks: many, next_at: good.next_at.after(MINUTE * 9), ..good.clone() },
    ];
    for fire in bad {
        assert_eq!(refused(rig.store().schedule_fire(fire).await), ErrorKind::Invalid);
    }
    assert_eq!(ticks(rig).await?, []);
    assert_eq!(rig.store().schedule_get(NAME).await?.schedule, put);
    assert_eq!(rig.store().schedule_fire(good.clone()).await?, Fired::Yes);
    assert_eq!(ticks(rig).await?, good.ticks, "each in its place");
    Ok(())
}

/// Missed ticks are dropped, merged into one, or made up for.
pub async fn missed_ticks_follow_the_policy<R: Rig>(rig: &R) -> Kept {
    let mut firsts = Vec::new();
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let hourly = NewSchedule::new(missed.word(), "@hourly", wanted()).missed(missed);
        firsts.push(rig.store().schedule_put(hourly, ACTOR).await?.next_at);
    }
    rig.clock().advance(firsts[0].since(rig.clock().now()) + MINUTE * 200);
    fire_all(rig.store()).await?;
    let mut emitted_by: Vec<(String, String)> = Vec::new();
    for event in emitted(rig).await? {
        let header = |name| event.headers.get(name).expect("it is there").to_owned();
        emitted_by.push((header(SCHEDULE_HEADER), header(TICK_HEADER)));
    }
    emitted_by.sort();
    let tick = |hour: u32| firsts[0].after(MINUTE * 60 * hour).to_string();
    let expected = [("all", 0), ("all", 1), ("all", 2), ("all", 3), ("once", 3)];
    assert_eq!(emitted_by, expected.map(|(name, hour)| (name.to_owned(), tick(hour))));
    for schedule in rig.store().schedule_list().await? {
        assert_eq!(schedule.next_at, firsts[0].after(MINUTE * 240), "{}", schedule.name);
        assert_eq!(schedule.ticked_at.is_none(), schedule.missed == Missed::Skip);
    }
    Ok(())
}

/// More than one transaction may emit takes several.
pub async fn many_missed_ticks_take_several_fires<R: Rig>(rig: &R) -> Kept {
    let every_second = NewSchedule::new(NAME, "* * * * * *", wanted()).missed(Missed::All);
    rig.store().schedule_put(every_second, ACTOR).await?;
    rig.clock().advance(SECOND * 250);
    assert_eq!(fire_all(rig.store()).await?, 3);
    let emitted = ticks(rig).await?;
    assert_eq!(emitted.len(), 250);
    assert!(emitted.is_sorted_by(|a, b| a < b), "{emitted:?}");
    Ok(())
}

/// A paused schedule is not fired, not even by a relay that saw it due. Missed ticks follow its policy.
pub async fn a_paused_schedule_does_not_fire<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE);
    let fire = next_fire(rig).await?;
    let paused = rig.second().await.schedule_pause(NAME).await?;
    assert_eq!(paused.paused_at, Some(rig.clock().now()));
    assert_eq!(rig.store().schedule_fire(fire).await?, Fired::No);
    rig.clock().advance(MINUTE * 5);
    assert_eq!(rig.store().schedule_pause(NAME).await?, paused, "a second pause keeps the time of the first");
    let found = rig.store().schedules_due().await?;
    assert_eq!((found.due, found.next_at), (Vec::new(), None));
    assert_eq!(ticks(rig).await?, []);
    let resumed = rig.store().schedule_resume(NAME).await?;
    assert_eq!((resumed.paused_at, resumed.next_at), (None, paused.next_at));
    assert_eq!(rig.store().schedule_resume(NAME).await?, resumed);
    fire_all(rig.store()).await?;
    assert_eq!(ticks(rig).await?, [paused.next_at.after(MINUTE * 5)], "one for all that were missed");
    Ok(())
}

/// A deleted schedule is gone, also for a relay that is about to fire it. The events it has emitted stay.
pub async fn a_deleted_schedule_does_not_fire<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE);
    fire_all(rig.store()).await?;
    rig.clock().advance(MINUTE);
    let fire = next_fire(rig).await?;
    rig.second().await.schedule_delete(NAME, ACTOR).await?;
    assert_eq!(rig.store().schedule_fire(fire.clone()).await?, Fired::No);
    assert_eq!(rig.store().schedule_list().await?, []);
    assert_eq!(rig.store().schedules_due().await?.next_at, None);
    // One of the same name that stands at the same place is another one.
    rig.clock().step(-120_000_000);
    let again = rig.store().schedule_put(every_minute(), ACTOR).await?;
    assert_eq!(rig.store().schedule_fire(Fire { seen: again.next_at, ..fire }).await?, Fired::No);
    assert_eq!(ticks(rig).await?.len(), 1);
    if let Some(audit) = rig.audit().await {
        assert!(audit.iter().any(|line| line.contains(ACTOR) && line.contains(NAME)), "{audit:?}");
    }
    Ok(())
}

/// A schedule that is put again keeps its place, its missed ticks and its pause. A relay that fires the
/// replaced schedule emits nothing.
pub async fn a_replaced_schedule_goes_on<R: Rig>(rig: &R) -> Kept {
    let put = rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE);
    assert_eq!(rig.store().schedule_put(every_minute(), ACTOR).await?, put, "nothing has changed");
    let old = next_fire(rig).await?;
    let other = NewSchedule { event: wanted().payload("pans"), ..every_minute() };
    let replaced = rig.second().await.schedule_put(other.clone(), ACTOR).await?;
    assert_eq!(replaced.next_at, put.next_at, "it is still due");
    assert_ne!(replaced.id, put.id);
    assert_eq!(rig.store().schedule_fire(old).await?, Fired::No);
    fire_all(rig.store()).await?;
    let events = emitted(rig).await?;
    assert_eq!((events.len(), &events[0].payload[..]), (1, &b"pans"[..]));
    rig.store().schedule_pause(NAME).await?;
    let paused = rig.store().schedule_put(other.missed(Missed::All), ACTOR).await?;
    assert_eq!((paused.paused_at, paused.ticked_at), (Some(rig.clock().now()), Some(put.next_at)));
    if let Some(audit) = rig.audit().await {
        let lines = audit.iter().filter(|line| line.contains(NAME)).count();
        assert_eq!(lines, 2, "one for each that was replaced: {audit:?}");
    }
    Ok(())
}

/// A schedule that is given another expression or time zone goes on from now.
pub async fn a_schedule_with_other_ticks_goes_on_from_now<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(every_minute(), ACTOR).await?;
    rig.clock().advance(MINUTE * 3);
    let other = NewSchedule::new(NAME, "*/5 * * * *", wanted());
    let put = rig.store().schedule_put(other.clone(), ACTOR).await?;
    assert!(put.next_at > rig.clock().now());
    assert_eq!(fire_all(rig.store()).await?, 0);
    rig.clock().advance(MINUTE * 6);
    let elsewhere = rig.store().schedule_put(other.zone("Asia/Kathmandu"), ACTOR).await?;
    assert!(elsewhere.next_at > rig.clock().now());
    assert_eq!(ticks(rig).await?, []);
    Ok(())
}

/// A clock that is set back makes nothing happen twice, and one that jumps forward costs a bounded number of events.
pub async fn a_stepped_clock_repeats_no_tick<R: Rig>(rig: &R) -> Kept {
    rig.store().schedule_put(every_minute().missed(Missed::All), ACTOR).await?;
    rig.clock().advance(MINUTE * 2);
    fire_all(rig.store()).await?;
    rig.clock().step(-120_000_000);
    assert_eq!(fire_all(rig.store()).await?, 0);
    rig.clock().advance(MINUTE * 2);
    assert_eq!(fire_all(rig.store()).await?, 0, "these ticks have been");
    rig.clock().advance(MINUTE);
    assert_eq!(fire_all(rig.store()).await?, 1);
    assert_eq!(ticks(rig).await?.len(), 3);
    rig.clock().step(20 * 365 * 24 * 3600 * 1_000_000);
    let fires = limits::MISSED_TICKS_MAX / limits::FIRE_TICKS_MAX;
    assert_eq!(fire_all(rig.store()).await?, fires);
    Ok(())
}
