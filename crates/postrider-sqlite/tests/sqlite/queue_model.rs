//! A queue in SQLite does what a queue in memory does, call by call, whatever is called.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::queue::feed::Feeder;
use postrider_core::queue::{
    Again, Ask, Claimed, Count, Fate, Feed, Priority, QueueSettle, Remnant, SettledRow, Token,
};
use postrider_core::settle::{Hold, MemberId, Room};
use postrider_core::store::{DeadLetterQuery, LetterId};
use postrider_core::subscription::Rate;
use postrider_core::{
    Event, EventId, Fair, LeaseBy, Mode, NewEvent, NewSubscription, OnDead, Order, Position, QueueStore,
    Result, ShardSet, Start, Store,
};
use postrider_sqlite::{SqliteOptions, SqliteStore};
use postrider_testkit::{ManualClock, MemoryStore};

const NAME: &str = "work";
const ROOM: Room = Room { events: 1_000, bytes: 1024 * 1024 };
const SEEDS: u64 = 24;
const STEPS: usize = 90;

/// One of the two stores, and who works on it.
struct Player<S> {
    store: S,
    member: MemberId,
    hold: Hold,
    read_to: Position,
}

impl<S: QueueStore> Player<S> {
    async fn new(store: S, new: NewSubscription) -> Self {
        store.subscription_create(new).await.unwrap();
        let member = store.member_join("ann").await.unwrap();
        let taken = store.shards_take(NAME, member, ShardSet::ALL).await.unwrap().unwrap();
        Self { store, member, hold: taken.hold, read_to: taken.start }
    }

    async fn feed(&mut self) -> Result<Vec<Vec<i64>>> {
        let fed = self.store.fed(&self.hold).await?;
        let mut feeder = Feeder::new(&self.hold.subscription, &fed);
        let chunk = self.store.fetch(&self.hold, self.read_to, ROOM).await?;
        let feed = Feed { mark: chunk.end, rows: feeder.plan(&chunk.events) };
        let planned = feed.rows.iter().map(|row| row.events.to_pairs()).collect();
        self.store.feed(&self.hold, Arc::new(feed)).await?;
        self.read_to = chunk.end;
        Ok(planned)
    }

    async fn claim(&self, rows: usize, events: usize) -> Result<Claimed> {
        let ask =
            Ask { rows, events, bytes: 1 << 30, again: rows, all: false, lease: Duration::from_secs(8) };
        self.store.claim(&self.hold.subscription, self.member, ask).await
    }

    async fn play(&mut self, call: &Call) -> Result<String> {
        let store = self.store.clone();
        let subscription = Arc::clone(&self.hold.subscription);
        Ok(match call {
            Call::Emit(events) => say(&store.event_emit(events.clone()).await?),
            Call::Feed => say(&self.feed().await?),
            Call::Settle(rows) => {
                let settle = QueueSettle { rows: rows.clone(), ..QueueSettle::default() };
                say(&store.queue_settle(&subscription, self.member, Arc::new(settle)).await?)
            }
            Call::Extend(tokens) => {
                let mut extended = store.extend(tokens.clone(), Vec::new()).await?;
                extended.sort_by_key(|claim| claim.token);
                say(&extended)
            }
            Call::Sweep => say(&store.sweep(&subscription).await?),
            Call::Cancel(id) => say(&store.delivery_cancel(&letter(*id), "ann").await?),
            Call::Replay => say(&store.dead_letter_replay(all(), "ann").await?),
            Call::Discard => say(&store.dead_letter_discard(all(), "ann").await?),
            Call::Seek(id) => {
                let to = store.subscription_seek(NAME, Start::Id(*id), "ann").await?;
                let taken = store.shards_take(NAME, self.member, ShardSet::ALL).await?.unwrap();
                (self.hold, self.read_to) = (taken.hold, taken.start);
                say(&to)
            }
            Call::Look(id) => {
                let reports = store.event_deliveries(*id).await.unwrap_or_default();
                let seen = |report: &postrider_core::store::DeliveryReport| (report.state, report.due_at);
                let counts = store.subscription_report(NAME).await?;
                let letters: Vec<_> = store.dead_letter_list(all()).await?;
                let letters: Vec<_> =
                    letters.iter().map(|dead| (dead.letter.event_id, dead.holds, dead.attempts)).collect();
                say(&(reports.first().map(seen), counts.pending, counts.leased, letters))
            }
            Call::Prune => {
                let mut removed = 0;
                loop {
                    let pruned = store.prune(Duration::from_secs(20)).await?;
                    removed += pruned.removed;
                    if !pruned.more {
                        break say(&removed);
                    }
                }
            }
        })
    }
}

fn say(outcome: &impl Debug) -> String {
    format!("{outcome:?}")
}

fn letter(event_id: EventId) -> LetterId {
    LetterId { subscription: NAME.to_owned(), event_id }
}

fn all() -> DeadLetterQuery {
    DeadLetterQuery { limit: 100, ..DeadLetterQuery::default() }
}

#[derive(Debug)]
enum Call {
    Emit(Vec<NewEvent>),
    Feed,
    Settle(Vec<SettledRow>),
    Extend(Vec<Token>),
    Sweep,
    Cancel(EventId),
    Replay,
    Discard,
    Seek(EventId),
    Look(EventId),
    Prune,
}

/// Small numbers that look random, the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn event(&mut self, ordered: bool) -> NewEvent {
        let mut event = Event::new("order").header("tenant", format!("{}", self.roll(3)));
        if ordered && self.roll(5) > 0 {
            event = event.key(self.roll(3));
        }
        if self.roll(4) == 0 {
            event = event.header(Priority::HEADER, format!("{}", self.roll(5) as i64 - 2));
        }
        if self.roll(6) == 0 {
            event = event.due_after(Duration::from_secs(self.roll(12)));
        }
        event
    }

    fn again(&mut self) -> Again {
        let count = if self.roll(2) == 0 { Count::Failed } else { Count::Nothing };
        Again { after: Duration::from_secs(self.roll(3) * 2), count }
    }

    fn fate(&mut self, row: &Held) -> Fate {
        match self.roll(6) {
            0..3 => Fate::Done,
            _ if row.events.len() > 1 => {
                let left: Vec<EventId> = row.events.iter().copied().filter(|_| self.roll(4) == 0).collect();
                Fate::Split(left.into_iter().map(|event| (event, self.remnant())).collect())
            }
            3 => Fate::Dead,
            _ => Fate::Again(self.again()),
        }
    }

    fn remnant(&mut self) -> Remnant {
        match self.roll(4) {
            0 => Remnant::Dead,
            1 => Remnant::Running,
            _ => Remnant::Again(self.again()),
        }
    }
}

/// A row that a worker believes to have.
#[derive(Debug, Clone)]
struct Held {
    id: EventId,
    token: Token,
    events: Vec<EventId>,
}

struct Game {
    dice: Dice,
    ordered: bool,
    blocks: bool,
    newest: i64,
    held: Vec<Held>,
}

impl Game {
    /// What is called next; some calls need others before them.
    fn calls(&mut self) -> Vec<Call> {
        let count = 1 + self.dice.roll(if self.blocks { 40 } else { 4 });
        let any = EventId(1 + self.dice.roll(self.newest.max(1) as u64) as i64);
        match self.dice.roll(20) {
            0..4 => {
                let events = (0..count).map(|_| self.dice.event(self.ordered)).collect();
                vec![Call::Emit(events), Call::Feed]
            }
            4 => vec![Call::Feed],
            5..11 => vec![Call::Settle(self.settle())],
            11 => vec![Call::Extend(self.held.iter().map(|held| held.token).collect())],
            12..15 => vec![Call::Sweep],
            // What a block has lost in between is told apart by the stores' own tests.
            15 if !self.blocks => vec![Call::Cancel(any)],
            // A letter comes behind what is ready, so something is.
            16 => vec![Call::Emit(vec![Event::new("order")]), Call::Feed, Call::Replay],
            17 => vec![Call::Discard],
            18 if !self.blocks && self.dice.roll(3) == 0 => vec![Call::Seek(any)],
            19 if !self.blocks => vec![Call::Prune],
            _ => vec![Call::Look(any)],
        }
    }

    fn settle(&mut self) -> Vec<SettledRow> {
        let mut rows = Vec::new();
        for held in self.held.clone() {
            if self.dice.roll(2) == 0 {
                rows.push(SettledRow { id: held.id, token: held.token, fate: self.dice.fate(&held) });
                // Now and then it is settled again, which must do nothing. A block is settled once: what runs on of it
                // may have its name.
                if held.events.len() > 1 || self.dice.roll(4) > 0 {
                    self.held.retain(|other| (other.id, other.token) != (held.id, held.token));
                }
            }
        }
        for row in &rows {
            if let Fate::Split(left) = &row.fate {
                let running = left.iter().filter(|(_, remnant)| *remnant == Remnant::Running);
                let running = running.map(|(id, _)| Held { id: *id, token: row.token, events: vec![*id] });
                self.held.extend(running);
            }
        }
        rows
    }
}

fn subscription(seed: u64) -> NewSubscription {
    let ordered = seed.is_multiple_of(3);
    let mut new = NewSubscription::new(NAME).mode(Mode::Queue).start(Start::Now);
    new = new.order(if ordered { Order::Key } else { Order::None });
    new = new.on_dead(if seed.is_multiple_of(2) { OnDead::Hold } else { OnDead::Skip });
    let queue = &mut new.tuning.queue;
    queue.lease_by = if seed % 3 == 2 { LeaseBy::Block } else { LeaseBy::Event };
    if seed % 3 == 1 {
        queue.fair = Fair::Header("tenant".to_owned());
    }
    queue.total = (seed % 5 == 1).then_some(6);
    queue.rate = (seed % 7 == 3).then_some(Rate { per_second: 2, burst: 5 });
    new
}

async fn play(seed: u64) {
    let clock = ManualClock::new();
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(dir.path().join("app.db")).clock(Arc::new(clock.clone()));
    let new = subscription(seed);
    let mut game = Game {
        dice: Dice(seed),
        ordered: new.order == Order::Key,
        blocks: new.tuning.queue.lease_by == LeaseBy::Block,
        newest: 0,
        held: Vec::new(),
    };
    let mut model = Player::new(MemoryStore::new(clock.clone()), new.clone()).await;
    let mut sqlite = Player::new(SqliteStore::open(options).await.unwrap(), new).await;
    let mut told: Vec<String> = Vec::new();
    for step in 0..STEPS {
        clock.advance(Duration::from_secs(game.dice.roll(4)));
        for call in game.calls() {
            if let Call::Emit(events) = &call {
                game.newest += events.len() as i64;
            }
            told.push(say(&call));
            let (expected, found) = (model.play(&call).await.unwrap(), sqlite.play(&call).await.unwrap());
            assert_eq!(found, expected, "seed {seed}, step {step}:\n{}", told.join("\n"));
        }
        if game.dice.roll(2) == 0 {
            let (rows, events) = (game.dice.roll(6) as usize, 1 + game.dice.roll(50) as usize);
            told.push(format!("Claim {rows} {events}"));
            let expected = model.claim(rows, events).await.unwrap();
            let found = sqlite.claim(rows, events).await.unwrap();
            let tell = |claimed: &Claimed| say(&(claimed.at, &claimed.rows, claimed.paused));
            assert_eq!(tell(&found), tell(&expected), "seed {seed}, step {step}:\n{}", told.join("\n"));
            assert!(found.rows.is_empty() || found.token == expected.token);
            told.push(tell(&found));
            game.held.extend(found.rows.iter().map(|row| Held {
                id: row.id,
                token: found.token,
                events: row.events.iter().map(|event| event.id).collect(),
            }));
        }
        if step % 6 == 0 {
            let broken = sqlite.store.check().await.unwrap();
            assert_eq!(broken, Vec::<String>::new(), "seed {seed}, step {step}:\n{}", told.join("\n"));
        }
    }
}

#[tokio::test]
async fn a_queue_does_what_the_model_does() {
    for seed in 0..SEEDS {
        play(seed).await;
    }
}
