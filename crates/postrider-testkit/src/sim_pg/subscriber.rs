//! How one subscription's events are handed out, parked and settled: a small honest model of its owner.
//!
//! What was read waits in memory, in the order of the log. Any event may be handed out whose key is not
//! parked and has nothing earlier waiting, so that keys overtake each other. One that fails parks its key;
//! a settle moves the mark over what is done, and over parked events by writing rows for them. When no row
//! of a key is left, memory is next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use postrider_core::log::{Tick, Window};
use postrider_core::{EventId, Position};

use super::flaw::Flaw;
use super::plan::SimStart;
use super::producer::commit;
use super::reader::{Attached, Reader, probe, row_of};
use super::settlement::{Settlement, StoredPosition};
use super::witness::{Attempt, Violation};
use super::world::{World, turn};
use super::{Lost, Row, Session};

/// Events in memory at the most.
const SPAN_MAX: usize = 40;
/// Turns that a key's events in memory are forgotten for by [`Flaw::HandBackBeforeMemory`].
const FORGOTTEN_TURNS: u64 = 40;

/// Ids that a subscription is moved back by at the most.
const SEEK_IDS_MAX: usize = 30;

/// Whether a subscription wants events of a key. Every other one leaves some out.
pub(super) fn wants(subscription: usize) -> fn(u32) -> bool {
    if subscription % 2 == 1 { |key| key % 3 != 1 } else { |_| true }
}

/// How an owner ends.
enum Ended {
    /// Nothing is left to do for ever.
    Done,
    /// Another member has the next turn.
    HandedOver,
    /// A seek has moved the subscription.
    Moved,
}

/// Delivers to a subscription until all is quiet and done, by one member after the other.
pub(super) async fn subscribe(world: Rc<World>, members: Vec<Rc<Reader>>, number: usize) {
    let mut crashes = 0;
    loop {
        let reader = &members[world.below(members.len())];
        let ended = match Owner::load(&world, reader, number).await {
            Ok(mut owner) => {
                // A crash that has undone the last settle may have cut off no member.
                let before = std::mem::replace(&mut crashes, world.report.borrow().crashes);
                if crashes != before {
                    world.witness.borrow_mut().reloaded(number);
                }
                owner.own().await
            }
            Err(lost) => Err(lost),
        };
        match ended {
            Ok(Ended::Done) => return,
            // In order: nothing that comes again is explained by it.
            Ok(Ended::HandedOver) => world.count(|report| report.hand_overs += 1),
            Ok(Ended::Moved) => world.count(|report| report.seeks += 1),
            Err(Lost) => {
                reader.reconnect();
                world.witness.borrow_mut().reloaded(number);
            }
        }
        turn().await;
    }
}

/// What waits in memory.
#[derive(Debug)]
struct Item {
    position: Position,
    /// None for the end of a chunk.
    row: Option<Row>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// Not to be handed out before this turn of the owner: only by mistake.
    Forgotten(u64),
    Done,
    Failed,
}

struct Owner {
    world: Rc<World>,
    reader: Rc<Reader>,
    number: usize,
    connection: Connection,
    attached: Attached,
    /// Where to read on.
    position: Position,
    span: VecDeque<Item>,
    /// Rows in the store by id, with their keys.
    rows: BTreeMap<i64, u32>,
    /// Rows that are acked and still in the store.
    done: BTreeSet<i64>,
    parked: BTreeSet<u32>,
    turns: u64,
}

impl Owner {
    /// Creates the subscription if it is not there, and loads its progress.
    async fn load(world: &Rc<World>, reader: &Rc<Reader>, number: usize) -> Result<Self, Lost> {
        let session = world.pg.borrow_mut().connect();
        let connection = Connection { world: Rc::clone(world), session };
        let stored = || world.pg.borrow().progress.get(&number).cloned();
        if stored().is_none() {
            create(world, session, number).await?;
        }
        let progress = stored().ok_or(Lost)?;
        let stored = progress.position.expect("a subscription has a position");
        let (attached, position) = reader.attach(&stored, wants(number));
        let mut owner = Self {
            world: Rc::clone(world),
            reader: Rc::clone(reader),
            number,
            connection,
            attached,
            position,
            span: VecDeque::new(),
            parked: progress.rows.values().copied().collect(),
            rows: progress.rows,
            done: BTreeSet::new(),
            turns: 0,
        };
        owner.begin_early()?;
        Ok(owner)
    }

    /// Works until nothing is left to do for ever.
    async fn own(&mut self) -> Result<Ended, Lost> {
        loop {
            turn().await;
            self.turns += 1;
            let quiet = self.world.quiet.get();
            let plan = &self.world.plan;
            if plan.seek > 0.0 && !self.world.ending.get() && self.world.chance(plan.seek) {
                // What was done and not settled comes again.
                seek(&self.world, self.connection.session, self.number).await?;
                self.world.witness.borrow_mut().reloaded(self.number);
                return Ok(Ended::Moved);
            }
            if self.world.chance(self.world.plan.hand_over) {
                self.drain().await?;
                return Ok(Ended::HandedOver);
            }
            match self.world.below(6) {
                0 | 1 if self.span.len() < SPAN_MAX => {
                    let idle = self.read().await?;
                    if idle && quiet && self.span.is_empty() && self.rows.is_empty() {
                        return Ok(Ended::Done);
                    }
                }
                2 => self.settle().await?,
                // A parked key waits for a while.
                3 if quiet || self.world.chance(0.1) => self.retry(),
                _ => self.hand_out(),
            }
        }
    }

    /// Settles all that was done, so that the next owner begins with what was not. What was read and not
    /// handed out stays above the mark: an attempt that failed there is made again by the next one.
    async fn drain(&mut self) -> Result<(), Lost> {
        if self.world.has(Flaw::HandOverUnsettled) {
            return Ok(());
        }
        while self.span.iter().any(|item| item.row.is_some() && item.state == State::Done)
            || !self.done.is_empty()
        {
            // Everything that stands in the way of the mark is handed out first.
            self.turns += 1;
            self.hand_out();
            self.settle().await?;
        }
        Ok(())
    }

    /// Reads on; whether there was nothing.
    async fn read(&mut self) -> Result<bool, Lost> {
        let mut chunk = self.reader.fetch(&mut self.attached, self.position).await;
        while chunk.is_err() && self.world.has(Flaw::MemoryKeptOverCrash) {
            self.reader.reconnect();
            chunk = self.reader.fetch(&mut self.attached, self.position).await;
        }
        let chunk = chunk?;
        let idle = chunk.end == self.position && !chunk.soon;
        for event in &chunk.events {
            let row = row_of(event);
            let position = chunk.position_of(event);
            self.span.push_back(Item { position, row: Some(row), state: State::Ready });
        }
        if chunk.end != self.position {
            self.span.push_back(Item { position: chunk.end, row: None, state: State::Done });
        }
        self.world.count(|report| report.cut += u64::from(chunk.more));
        self.position = chunk.end;
        Ok(idle)
    }

    /// Hands out one event of those that may be.
    fn hand_out(&mut self) {
        let mut held: BTreeSet<u32> = self.parked.clone();
        let mut free: Vec<usize> = Vec::new();
        for (index, item) in self.span.iter().enumerate() {
            let Some(row) = &item.row else { continue };
            let ready = match item.state {
                State::Ready => true,
                State::Forgotten(until) if until > self.turns => continue,
                State::Forgotten(_) => true,
                State::Done | State::Failed => false,
            };
            if ready && held.insert(row.key) {
                free.push(index);
            }
        }
        if free.is_empty() {
            return;
        }
        let index = free[self.world.below(free.len())];
        let row = self.span[index].row.expect("ends of chunks are never handed out");
        self.span[index].state = match self.attempt(&row) {
            Attempt::Acked => State::Done,
            Attempt::Failed => {
                self.parked.insert(row.key);
                self.world.count(|report| report.parked += 1);
                State::Failed
            }
        };
    }

    /// Attempts the first row of a parked key again.
    fn retry(&mut self) {
        let mut heads: BTreeMap<u32, i64> = BTreeMap::new();
        for (id, key) in self.rows.iter().filter(|(id, _)| !self.done.contains(*id)) {
            heads.entry(*key).or_insert(*id);
        }
        if heads.is_empty() {
            return;
        }
        let id = *heads.values().nth(self.world.below(heads.len())).expect("one of them");
        let found = self.world.pg.borrow().row(id).copied();
        let Some(row) = found else {
            self.world.witness.borrow_mut().violations.push(Violation::Gone(self.number, id));
            self.done.insert(id);
            return;
        };
        if self.attempt(&row) == Attempt::Acked {
            self.done.insert(id);
        }
    }

    fn attempt(&self, row: &Row) -> Attempt {
        let fails = !self.world.ending.get() && self.world.chance(self.world.plan.failing);
        let attempt = if fails { Attempt::Failed } else { Attempt::Acked };
        self.world.witness.borrow_mut().delivered(self.number, row, attempt, &self.world.pg.borrow());
        attempt
    }

    /// Stores what has changed, in a transaction that begins after all that was read.
    async fn settle(&mut self) -> Result<(), Lost> {
        let passed = self.passable();
        let items: Vec<Item> = self.span.drain(..passed).collect();
        let mark = items.last().map(|item| item.position);
        let rows: Vec<(i64, u32)> = items
            .iter()
            .filter(|item| item.state != State::Done)
            .filter_map(|item| item.row.map(|row| (row.id, row.key)))
            .collect();
        let done: Vec<i64> = self.done.iter().copied().collect();
        if mark.is_none() && done.is_empty() {
            return Ok(());
        }
        let settlement = Settlement {
            subscription: self.number,
            position: mark.map(|mark| self.stored(mark)),
            rows: rows.clone(),
            done,
        };
        let forgives = self.world.has(Flaw::MemoryKeptOverCrash) || self.world.has(Flaw::SettleOverCrash);
        if forgives && self.world.pg.borrow().alive(self.connection.session).is_err() {
            self.connection.session = self.world.pg.borrow_mut().connect();
        }
        let early = self.world.has(Flaw::SettledByOlderXid);
        if !early {
            self.world.pg.borrow_mut().begin(self.connection.session)?;
        }
        turn().await;
        self.world.pg.borrow_mut().settle(self.connection.session, settlement)?;
        turn().await;
        let flushes = self.world.chance(0.1);
        commit(&self.world, self.connection.session, flushes).await?;
        self.begin_early()?;
        self.rows.extend(rows);
        for id in std::mem::take(&mut self.done) {
            self.rows.remove(&id);
        }
        if let Some(mark) = mark {
            self.attached.forget_before(mark);
        }
        self.unpark();
        self.world.count(|report| report.settles += 1);
        Ok(())
    }

    /// How many items the mark may pass now; at times it passes fewer.
    fn passable(&self) -> usize {
        let passes = |item: &Item| match (item.state, &item.row) {
            (State::Done | State::Failed, _) | (_, None) => true,
            (State::Ready | State::Forgotten(_), Some(row)) => self.parked.contains(&row.key),
        };
        let most = self.span.iter().take_while(|item| passes(item)).count();
        if self.world.chance(0.3) { self.world.below(most + 1) } else { most }
    }

    fn stored(&self, mark: Position) -> StoredPosition {
        let window = self.attached.window(mark).clone();
        let newest = self.reader.newest();
        let window = match newest {
            Some(to) if self.world.has(Flaw::LastIdWithNewestTick) => Window { to, ..window },
            _ => window,
        };
        StoredPosition::of(&window, mark.last_id.0)
    }

    /// Keys of which no row is left, and nothing failed above the mark, are free: memory is next.
    fn unpark(&mut self) {
        let failed = self.span.iter().filter(|item| item.state == State::Failed);
        let mut parked: BTreeSet<u32> = failed.filter_map(|item| item.row.map(|row| row.key)).collect();
        parked.extend(self.rows.values());
        let freed = std::mem::replace(&mut self.parked, parked);
        if !self.world.has(Flaw::HandBackBeforeMemory) {
            return;
        }
        let until = self.turns + FORGOTTEN_TURNS;
        for item in &mut self.span {
            let waits =
                item.row.is_some_and(|row| freed.contains(&row.key) && !self.parked.contains(&row.key));
            if waits && item.state == State::Ready {
                item.state = State::Forgotten(until);
            }
        }
    }

    /// The mistake of [`Flaw::SettledByOlderXid`]: the next settle's xid is taken now.
    fn begin_early(&mut self) -> Result<(), Lost> {
        if self.world.has(Flaw::SettledByOlderXid) {
            let mut pg = self.world.pg.borrow_mut();
            pg.begin(self.connection.session)?;
            pg.take_xid(self.connection.session)?;
        }
        Ok(())
    }
}

/// A connection that ends when this is dropped.
struct Connection {
    world: Rc<World>,
    session: Session,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.world.pg.borrow_mut().disconnect(self.session);
    }
}

/// Stores the position at which a subscription starts, durably, by a transaction that begins after the look.
async fn create(world: &World, session: Session, number: usize) -> Result<(), Lost> {
    let probe = probe(world, session).await?;
    let fresh = Arc::new(Tick::fresh(&probe));
    let start = Arc::new(Tick::start());
    let (window, last_id) = match world.plan.subscriptions[number] {
        SimStart::Oldest => (Window::at(&start), 0),
        SimStart::Now => (Window::at(&fresh), fresh.seq()),
        SimStart::Back(ids) => (Window { from: start, to: fresh }, (probe.seq - ids).max(0)),
    };
    let stored = StoredPosition::of(&window, EventId(last_id).0);
    let position = Some(stored.clone());
    let settlement = Settlement { subscription: number, position, rows: Vec::new(), done: Vec::new() };
    place(world, session, settlement).await?;
    world.witness.borrow_mut().created(number, stored);
    world.created.set(world.created.get() + 1);
    turn().await;
    world.pg.borrow_mut().commit_show(session)
}

/// Moves a subscription back, by what is stored of it and what the server looks like, whatever its owner has read.
async fn seek(world: &World, session: Session, number: usize) -> Result<(), Lost> {
    let probe = probe(world, session).await?;
    let now = Arc::new(Tick::fresh(&probe));
    let progress = world.pg.borrow().progress.get(&number).cloned().ok_or(Lost)?;
    let stored = progress.position.ok_or(Lost)?;
    let last_id = stored.last_id.saturating_sub(world.below(SEEK_IDS_MAX) as i64).max(0);
    let moved = if world.has(Flaw::MovedToNow) {
        Window { from: Arc::new(Tick::start()), to: now }
    } else {
        stored.place().moved(EventId(last_id), &now).window
    };
    let position = StoredPosition::of(&moved, last_id);
    world.witness.borrow_mut().moved(number, position.clone());
    let done = progress.rows.keys().copied().filter(|id| *id > last_id).collect();
    let settlement = Settlement { subscription: number, position: Some(position), rows: Vec::new(), done };
    place(world, session, settlement).await?;
    turn().await;
    world.pg.borrow_mut().commit_show(session)
}

/// Writes a position that is on disk before any session sees it, even if the server dies before it confirms.
async fn place(world: &World, session: Session, settlement: Settlement) -> Result<(), Lost> {
    world.pg.borrow_mut().begin(session)?;
    world.pg.borrow_mut().settle(session, settlement)?;
    turn().await;
    let written = world.pg.borrow_mut().commit_write(session)?;
    world.pg.borrow_mut().flush(written);
    Ok(())
}
