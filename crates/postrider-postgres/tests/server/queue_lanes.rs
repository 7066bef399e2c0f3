//! Lanes of a queue with a real server: what finding the next event of a key costs, and in which order events come that
//! become visible late.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::queue::feed::Feeder;
use postrider_core::queue::{Claimed, Fate, Feed, QueueSettle, SettledRow};
use postrider_core::settle::MemberId;
use postrider_core::store::DeadLetterQuery;
use postrider_core::{LogStore, OnDead, QueueStore, Store, Subscription};
use postrider_postgres::PostgresStore;
use postrider_testkit::postgres::Version;

use crate::queues::{ack, claim, queue};
use crate::stage::{AMPLE, Owner, Stage, connect, emit, note, open, run, until};

/// One who feeds and claims.
pub(crate) struct Hand {
    pub(crate) store: PostgresStore,
    pub(crate) subscription: Subscription,
    owner: Owner,
    feeder: Feeder,
    pub(crate) member: MemberId,
}

impl Hand {
    pub(crate) async fn of(store: &PostgresStore, name: &str) -> Self {
        let owner = Owner::of(store, name).await;
        let feeder = Feeder::new(&owner.hold.subscription, &store.fed(&owner.hold).await.unwrap());
        let (subscription, member) = (owner.hold.subscription.as_ref().clone(), owner.hold.member);
        Self { store: store.clone(), subscription, owner, feeder, member }
    }

    /// Feeds all that can be read; the notes in the order in which mode `log` delivers.
    pub(crate) async fn feed(&mut self) -> Vec<String> {
        let mut read = Vec::new();
        loop {
            let chunk = self.owner.step(AMPLE).await.unwrap();
            read.extend(chunk.events.iter().map(|event| note(&event.payload)));
            let feed = Feed { mark: chunk.end, rows: self.feeder.plan(&chunk.events) };
            self.store.feed(&self.owner.hold, Arc::new(feed)).await.unwrap();
            if !chunk.more {
                return read;
            }
        }
    }

    pub(crate) async fn claim(&self, rows: usize) -> Claimed {
        claim(&self.store, &self.subscription, self.member, rows).await
    }

    /// Claims some rows and says that they are done; key and note of each.
    pub(crate) async fn work(&self, rows: usize) -> Vec<(String, String)> {
        let claimed = self.claim(rows).await;
        let events = claimed.rows.iter().flat_map(|row| &row.events);
        let key = |key: &postrider_core::Key| key.as_str().to_owned();
        let done =
            events.map(|event| (event.key.as_ref().map_or_else(String::new, key), note(&event.payload)));
        let done = done.collect();
        assert_eq!(ack(&self.store, &self.subscription, self.member, &claimed).await, []);
        done
    }

    pub(crate) async fn bury(&self, claimed: &Claimed) {
        let dead = |id| SettledRow { id, token: claimed.token, fate: Fate::Dead };
        let rows = claimed.rows.iter().map(|row| dead(row.id)).collect();
        let settle = Arc::new(QueueSettle { rows, ..QueueSettle::default() });
        self.store.queue_settle(&self.subscription, self.member, settle).await.unwrap();
    }
}

/// Pages that were looked at for queued rows, by all whose sessions have ended.
fn pages(stage: &Stage) -> i64 {
    stage.number(
        "select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
         from pg_statio_user_tables where relname = 'queued'",
    )
}

/// Some events of each of four keys.
const KEYED: &str = "insert into postrider.event (topic, type, key)
                     select 'order', 'order', 'k' || n % 4 from generate_series(1, 40) as n";
/// Events without a key, whose time has come one after the other.
const DELAYED: &str = "insert into postrider.event (topic, type, due_at)
                       select 'order', 'order', clock_timestamp() - interval '1 ms' * (40 - n)
                       from generate_series(1, 40) as n";

/// Rounds in which events are fed, come a few at a time and are done.
async fn rounds(stage: &Stage, events: &str, count: usize) {
    let store = open(&stage.db).await;
    let mut hand = Hand::of(&store, "orders").await;
    let session = stage.session().await;
    for _ in 0..count {
        run(&session, events).await;
        hand.feed().await;
        let mut done = 0;
        while done < 40 {
            store.sweep(&hand.subscription).await.unwrap();
            done += hand.work(4).await.len();
        }
    }
    store.shards_release(&hand.owner.hold).await.unwrap();
}

/// Pages that the same rounds cost, three times, beside a session that holds a snapshot.
async fn pages_beside_a_snapshot(stage: &Stage, events: &str, count: usize) -> Vec<i64> {
    let holder = stage.session().await;
    run(&holder, "begin isolation level repeatable read; select count(*) from postrider.meta").await;
    let mut spent = Vec::new();
    for _ in 0..3 {
        let before = pages(stage);
        let began = stage.number("select (extract(epoch from clock_timestamp()) * 1e6)::bigint");
        rounds(stage, events, count).await;
        // A session counts its pages at its end at the latest.
        let theirs = format!(
            "select count(*) from pg_stat_activity
             where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
                 and (extract(epoch from backend_start) * 1e6)::bigint > {began}"
        );
        until(stage, &theirs, 0).await;
        spent.push(pages(stage) - before);
    }
    run(&holder, "rollback").await;
    spent
}

/// Events that are done leave entries behind that a held snapshot keeps. No query walks over these entries, even while
/// a key is parked.
#[tokio::test]
async fn a_held_snapshot_does_not_make_the_next_event_of_a_key_dearer() {
    const ROUNDS: usize = 20;
    let stage = Stage::on(Version::V15).await;
    stage.store.subscription_create(queue().on_dead(OnDead::Hold)).await.unwrap();
    let session = stage.session().await;
    for n in ["p1", "p2"] {
        emit(&session, "parked", n).await;
    }
    {
        let store = open(&stage.db).await;
        let mut hand = Hand::of(&store, "orders").await;
        hand.feed().await;
        hand.bury(&hand.claim(10).await).await;
        store.shards_release(&hand.owner.hold).await.unwrap();
    }
    let spent = pages_beside_a_snapshot(&stage, KEYED, ROUNDS).await;
    assert!(spent[2] * 2 < spent[0] * 3, "pages in three times the same work: {spent:?}");
    assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
}

/// Nor does a sweep, which looks for due events, walk over events that were due before.
#[tokio::test]
async fn a_held_snapshot_does_not_make_sweeps_dearer() {
    let stage = Stage::on(Version::V15).await;
    stage.store.subscription_create(queue()).await.unwrap();
    let spent = pages_beside_a_snapshot(&stage, DELAYED, 20).await;
    // Once in a while everything is looked at.
    assert!(spent[2] < spent[0] * 2, "pages in three times the same work: {spent:?}");
}

/// A little randomness that is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// However transactions overlap that emit events of a key, a queue delivers them in the order in which mode
/// `log` does, and each of them: also those that become visible when events with larger ids have been fed.
#[tokio::test]
async fn events_that_become_visible_late_are_neither_missed_nor_reordered() {
    for seed in 1..=6 {
        let stage = Stage::on(Version::V15).await;
        stage.store.subscription_create(queue()).await.unwrap();
        let mut hand = Hand::of(&stage.store, "orders").await;
        let mut writers = Vec::new();
        for _ in 0..4 {
            writers.push((connect(&stage.db.url).await, false));
        }
        let (mut dice, mut emitted) = (Dice(seed), 0);
        let (mut read, mut done) = (Vec::new(), Vec::new());
        for step in 0..160 {
            let ending = step >= 140;
            match dice.roll(8) {
                0..=3 if !ending => {
                    let (session, open) = &mut writers[dice.roll(4) as usize];
                    if !*open {
                        run(session, "begin").await;
                        *open = true;
                    }
                    let key = ["a", "b"][dice.roll(2) as usize];
                    emit(session, key, &format!("{key}{emitted}")).await;
                    emitted += 1;
                }
                4 | 5 => {
                    let (session, open) = &mut writers[dice.roll(4) as usize];
                    if *open {
                        run(session, "commit").await;
                        *open = false;
                    }
                }
                6 => read.extend(hand.feed().await),
                _ => done.extend(hand.work(1).await),
            }
        }
        for (session, open) in &writers {
            if *open {
                run(session, "commit").await;
            }
        }
        for _ in 0..1_000 {
            read.extend(hand.feed().await);
            if read.len() == emitted {
                break;
            }
        }
        while done.len() < emitted {
            let more = hand.work(2).await;
            assert!(!more.is_empty(), "seed {seed}: {} of {emitted} events come", done.len());
            done.extend(more);
        }
        let mut lanes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, note) in done {
            lanes.entry(key).or_default().push(note);
        }
        for (key, notes) in lanes {
            let wanted: Vec<_> = read.iter().filter(|note| note.starts_with(&key)).cloned().collect();
            assert_eq!(notes, wanted, "seed {seed}, key {key}");
        }
        assert_eq!(stage.store.check().await.unwrap(), Vec::<String>::new());
    }
}

/// A dead letter that holds its lane comes before all that wait behind it, also if they were fed after it
/// with a lower id, and the lane goes on from there; one that holds nothing comes behind them.
#[tokio::test]
async fn a_replayed_letter_has_its_turn_again_or_a_new_one() {
    for (on_dead, wanted) in [(OnDead::Hold, ["b", "a", "c"]), (OnDead::Skip, ["a", "c", "b"])] {
        let stage = Stage::on(Version::V15).await;
        stage.store.subscription_create(queue().on_dead(on_dead)).await.unwrap();
        let mut hand = Hand::of(&stage.store, "orders").await;
        let (early, session) = (stage.session().await, stage.session().await);
        run(&early, "begin").await;
        emit(&early, "k", "a").await;
        emit(&session, "k", "b").await;
        hand.feed().await;
        hand.bury(&hand.claim(1).await).await;
        run(&early, "commit").await;
        hand.feed().await;
        emit(&session, "k", "c").await;
        hand.feed().await;
        let all = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
        assert_eq!(stage.store.dead_letter_replay(all, "ann").await.unwrap(), 1);
        let mut notes = Vec::new();
        while notes.len() < 3 {
            let done = hand.work(1).await;
            assert!(!done.is_empty(), "{notes:?}");
            notes.extend(done.into_iter().map(|(_, note)| note));
        }
        assert_eq!(notes, wanted, "{on_dead:?}");
    }
}
