//! How a store reads the log: the half of it that lives in one process and serves all its subscriptions.
//!
//! One connection, one [`Tail`]. Memory goes with the connection: a subscription that attached before it was
//! lost has to load its position again, even if another subscription has reconnected meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use postrider_core::event::{Headers, Kind};
use postrider_core::log::{LogRow, Pending, Probe, Served, Snapshot, Tail, Tick, Window, Xid};
use postrider_core::settle::Chunk;
use postrider_core::{Event, EventId, Key, Position, Timestamp, Topic};

use super::flaw::Flaw;
use super::settlement::StoredPosition;
use super::world::{World, turn};
use super::{Lost, Row, Session};

/// See the head of this file.
pub(super) struct Reader {
    world: Rc<World>,
    session: Cell<Session>,
    /// Grows with every connection.
    life: Cell<u64>,
    tail: RefCell<Tail>,
    /// Whether a subscription is about to move the end of the tail.
    moving: Cell<bool>,
    /// Counts looks at the server.
    looks: Cell<u64>,
    /// The look that found the newest tick.
    newest_look: Cell<u64>,
    /// The look that found the window that waits for the disk.
    pending_look: Cell<u64>,
}

/// A subscription's own memory of the log.
pub(super) struct Attached {
    life: u64,
    /// Every look with a larger number was begun after the position was loaded.
    looks: u64,
    windows: BTreeMap<u64, Window>,
    /// Which events are wanted.
    pub(super) wants: fn(u32) -> bool,
}

/// What came of trying to move the end of the tail.
enum Moved {
    Nothing,
    WaitsForDisk,
    Window { window: Window, rows: Arc<[LogRow]>, cut: bool },
}

/// Which rows of a window to read.
struct Stretch<'a> {
    window: &'a Window,
    above: i64,
    room: usize,
}

/// Says that the end of the tail may be moved by another again.
struct Moving<'a>(&'a Cell<bool>);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Attached {
    pub(super) fn window(&self, position: Position) -> &Window {
        &self.windows[&position.window]
    }

    /// Forgets the windows that lie before a position.
    pub(super) fn forget_before(&mut self, position: Position) {
        self.windows = self.windows.split_off(&position.window);
    }

    fn enter(&mut self, window: Window) -> u64 {
        let number = self.windows.last_key_value().map_or(0, |(number, _)| number + 1);
        self.windows.insert(number, window);
        number
    }

    fn chunk(&self, number: u64, rows: &[LogRow], cut: bool) -> Chunk {
        let window = &self.windows[&number];
        let last = if cut { rows.last().map_or(0, |row| row.event.id.0) } else { window.to.seq() };
        let wanted = |row: &&LogRow| (self.wants)(key_of(&row.event));
        Chunk {
            events: rows.iter().filter(wanted).map(|row| Arc::clone(&row.event)).collect(),
            end: Position { window: number, last_id: EventId(last) },
            more: cut,
            soon: false,
            paused: false,
        }
    }
}

impl Reader {
    pub(super) fn new(world: &Rc<World>) -> Rc<Self> {
        let session = world.pg.borrow_mut().connect();
        Rc::new(Self {
            world: Rc::clone(world),
            session: Cell::new(session),
            life: Cell::new(0),
            tail: RefCell::default(),
            moving: Cell::new(false),
            looks: Cell::new(0),
            newest_look: Cell::new(0),
            pending_look: Cell::new(0),
        })
    }

    /// Connects again if the connection is gone; then nothing that was read on it counts any more.
    pub(super) fn reconnect(&self) {
        if self.world.pg.borrow().alive(self.session.get()).is_ok() {
            return;
        }
        let session = self.world.pg.borrow_mut().connect();
        self.session.set(session);
        if !self.world.has(Flaw::MemoryKeptOverCrash) {
            self.life.set(self.life.get() + 1);
            *self.tail.borrow_mut() = Tail::default();
            self.newest_look.set(0);
            self.pending_look.set(0);
        }
    }

    /// Ends with its process.
    pub(super) fn disconnect(&self) {
        self.world.pg.borrow_mut().disconnect(self.session.get());
    }

    /// Begins reading for a subscription, at a position that was just loaded.
    pub(super) fn attach(&self, stored: &StoredPosition, wants: fn(u32) -> bool) -> (Attached, Position) {
        let window = Window { from: Arc::new(stored.from.clone()), to: Arc::new(stored.to.clone()) };
        let mut attached =
            Attached { life: self.life.get(), looks: self.looks.get(), windows: BTreeMap::new(), wants };
        let window = attached.enter(window);
        (attached, Position { window, last_id: EventId(stored.last_id) })
    }

    /// The newest tick, for those who store the wrong one.
    pub(super) fn newest(&self) -> Option<Arc<Tick>> {
        self.tail.borrow().newest().cloned()
    }

    /// Reads on behind a position.
    pub(super) async fn fetch(&self, at: &mut Attached, after: Position) -> Result<Chunk, Lost> {
        self.check(at)?;
        // A statement that was sent on one connection is not answered on the next.
        let session = self.session.get();
        let window = at.window(after).clone();
        if !window.ends_at(after.last_id) {
            return self.read_on(session, at, after).await;
        }
        while self.moving.replace(true) {
            turn().await;
        }
        let _moving = Moving(&self.moving);
        self.check(at)?;
        if self.tail.borrow().newest().is_none() {
            self.tail.borrow_mut().begin(&window.to);
            self.newest_look.set(at.looks);
        }
        let served = self.tail.borrow().serve(&window.to);
        match served {
            Served::Window(next) => {
                let number = at.enter(next.window);
                Ok(at.chunk(number, &next.rows, false))
            }
            Served::AtEnd => match self.advance(session, &window.to, false).await? {
                Moved::Nothing => Ok(Chunk::empty(after)),
                Moved::WaitsForDisk => Ok(Chunk { soon: true, ..Chunk::empty(after) }),
                Moved::Window { window, rows, cut } => {
                    let number = at.enter(window);
                    Ok(at.chunk(number, &rows, cut))
                }
            },
            Served::Behind => self.catch_up(session, at, after, &window.to).await,
        }
    }

    /// Reads up to the newest tick of the tail, which must be later than `own`: what one reads of a tick is
    /// not enough to tell, but a look that was begun after the position had been loaded is later.
    async fn catch_up(
        &self,
        session: Session,
        at: &mut Attached,
        after: Position,
        own: &Arc<Tick>,
    ) -> Result<Chunk, Lost> {
        while self.newest_look.get() <= at.looks && !self.world.has(Flaw::CatchUpToOlderTick) {
            let newest = self.newest().expect("there is a tail to be behind of");
            if let Moved::WaitsForDisk = self.advance(session, &newest, true).await? {
                return Ok(Chunk { soon: true, ..Chunk::empty(after) });
            }
        }
        self.world.count(|report| report.caught_up += 1);
        let to = self.newest().expect("it has just been moved");
        let window = at.enter(Window { from: Arc::clone(own), to });
        self.read_on(session, at, Position { window, last_id: EventId(0) }).await
    }

    /// Reads on within a window.
    async fn read_on(&self, session: Session, at: &Attached, after: Position) -> Result<Chunk, Lost> {
        let window = at.window(after).clone();
        let above = after.last_id.0.max(window.lowest());
        let stretch = Stretch { window: &window, above, room: self.world.plan.room };
        let (rows, cut) = self.read(session, &stretch).await?;
        self.check(at)?;
        Ok(at.chunk(after.window, &rows, cut))
    }

    /// Opens the window behind the newest tick, or hands out the one that waits for the disk. If `forced`, it
    /// is opened even if it holds nothing.
    async fn advance(&self, session: Session, from: &Arc<Tick>, forced: bool) -> Result<Moved, Lost> {
        if self.tail.borrow().pending.is_some() {
            turn().await;
            self.world.pg.borrow().alive(session)?;
            return Ok(self.publish());
        }
        self.looks.set(self.looks.get() + 1);
        let look = self.looks.get();
        let room = self.world.plan.room;
        let eager = from.eager_lowest(self.world.plan.reach);
        let (probe, mut rows) = self.look(session, from, eager).await?;
        if !forced && !from.is_outdated_by(&probe) {
            return Ok(Moved::Nothing);
        }
        let window = Window { from: Arc::clone(from), to: Arc::new(from.next(&probe)) };
        self.note(&window);
        let mut cut = rows.len() == room;
        if window.lowest() < eager {
            // A transaction of long ago has committed.
            let stretch = Stretch { window: &window, above: window.lowest(), room };
            (rows, cut) = self.read(session, &stretch).await?;
        }
        let inserted = probe.inserted;
        self.tail.borrow_mut().pending = Some(Pending { window, rows: rows.into(), cut, inserted });
        self.pending_look.set(look);
        if probe.is_flushed() || self.world.plan.trust || self.world.has(Flaw::NoFlushGate) {
            Ok(self.let_out())
        } else {
            Ok(Moved::WaitsForDisk)
        }
    }

    /// Hands the waiting window out if the disk has come as far.
    fn publish(&self) -> Moved {
        let flushed = self.world.pg.borrow().flushed();
        let waits = self.tail.borrow().pending.as_ref().is_some_and(|pending| flushed < pending.inserted);
        if waits {
            self.world.count(|report| report.waits += 1);
            return Moved::WaitsForDisk;
        }
        self.let_out()
    }

    fn let_out(&self) -> Moved {
        let mut tail = self.tail.borrow_mut();
        let Pending { window, rows, cut, .. } = tail.pending.take().expect("a window waits");
        tail.push(&window, &rows, !cut && self.world.plan.subscriptions.len() > 1);
        self.newest_look.set(self.pending_look.get());
        Moved::Window { window, rows, cut }
    }

    /// One statement: the probe, and the rows behind `from` that its own snapshot sees.
    async fn look(&self, session: Session, from: &Tick, above: i64) -> Result<(Probe, Vec<LogRow>), Lost> {
        let probe = probe(&self.world, session).await?;
        turn().await;
        let pg = self.world.pg.borrow();
        pg.alive(session)?;
        let new = pg.rows(&probe.snapshot, above).filter(|row| !from.snapshot.sees(row.xid));
        let rows = new.take(self.world.plan.room).map(log_row).collect();
        Ok((probe, rows))
    }

    /// One statement: rows of a window by its two snapshots, and whether there may be more.
    async fn read(&self, session: Session, stretch: &Stretch<'_>) -> Result<(Vec<LogRow>, bool), Lost> {
        turn().await;
        let own: Snapshot = self.world.pg.borrow().snapshot();
        turn().await;
        let pg = self.world.pg.borrow();
        pg.alive(session)?;
        let held = pg.rows(&own, stretch.above).filter(|row| stretch.window.holds(row.xid));
        let rows: Vec<LogRow> = held.take(stretch.room).map(log_row).collect();
        let cut = rows.len() == stretch.room;
        Ok((rows, cut))
    }

    fn check(&self, at: &Attached) -> Result<(), Lost> {
        if at.life == self.life.get() || self.world.has(Flaw::NeighbourKeepsMemory) {
            Ok(())
        } else {
            Err(Lost)
        }
    }

    fn note(&self, window: &Window) {
        self.world.count(|report| {
            report.windows += 1;
            report.stragglers += u64::from(window.lowest() < window.from.seq());
        });
    }
}

/// A look at the server, at as many moments as it has members.
pub(super) async fn probe(world: &World, session: Session) -> Result<Probe, Lost> {
    turn().await;
    let snapshot = world.pg.borrow().snapshot();
    turn().await;
    let low = |world: &World| world.pg.borrow().next_xid().0 as u32;
    let early = low(world);
    turn().await;
    let seq = world.pg.borrow().seq();
    turn().await;
    let next = if world.has(Flaw::BoundBeforeSequence) { early } else { low(world) };
    turn().await;
    let inserted = world.pg.borrow().inserted();
    turn().await;
    let flushed = world.pg.borrow().flushed();
    world.pg.borrow().alive(session)?;
    let next_xid =
        if world.has(Flaw::NextXidIsXmax) { snapshot.xmax() } else { Xid::widen(next, snapshot.xmax()) };
    Ok(Probe { snapshot, seq, next_xid, inserted, flushed })
}

/// A row as the store reads it. Its token travels as the time of its creation.
fn log_row(row: &Row) -> LogRow {
    let event = Event {
        id: EventId(row.id),
        topic: Topic::new("simulated"),
        kind: Kind::new("simulated"),
        key: Some(Key::new(row.key.to_string())),
        payload: row.n.to_string().into(),
        headers: Headers::default(),
        created_at: Timestamp::from_micros(row.token as i64),
        due_at: None,
        flaw: None,
    };
    LogRow { xid: row.xid, event: Arc::new(event) }
}

/// The key of an event that [`log_row`] made.
fn key_of(event: &Event) -> u32 {
    event.key.as_ref().and_then(|key| key.as_str().parse().ok()).expect("a simulated event")
}

/// The row that [`log_row`] was made from, but for its xid, which no event has.
pub(super) fn row_of(event: &Event) -> Row {
    let n = std::str::from_utf8(&event.payload).ok().and_then(|text| text.parse().ok());
    Row {
        xid: Xid(0),
        id: event.id.0,
        key: key_of(event),
        n: n.expect("a simulated event"),
        token: event.created_at.as_micros() as u64,
    }
}
