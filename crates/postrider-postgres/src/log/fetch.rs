//! Reading on in the log: by the windows that all subscriptions of the process share, or by one of one's own.
//!
//! ```text
//!   position inside a window ───────────────► read on in it
//!   position at a window's end
//!     └ where the tail remembers what follows ► that window, from memory
//!     └ at the tail's end ────────────────────► probe, open the next window, wait for the disk, remember it
//!     └ further behind ───────────────────────► probe, open a window of one's own up to the tail's end
//! ```
//!
//! A window's rows are found by the snapshot before it, in SQL, and by the one at its end, here: rows that became
//! visible while they were being read belong to a later window and are left out.
//!
//! Cancel safe: what is dropped here was not handed out, and is read again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::log::{LogRow, Lsn, Pending, Probe, Served, Snapshot, Tail, Tick, Window, Xid};
use postrider_core::settle::{Chunk, Hold, Room};
use postrider_core::{EventId, Mode, Position, Result, Shard, ShardSet};
use tokio::sync::MutexGuard;

use crate::log::holding::Standpoint;
use crate::log::log_rows::log_look;
use crate::log::probe::{flushed_for, probe_for};
use crate::log::straggler::window_read;
use crate::log::turn::Stretch;
use crate::options::Durability;
use crate::ownership::fence::{Standing, look_again, lost, standing};
use crate::server::session::Session;
use crate::settle::position::SHARDS;
use crate::store::Inner;
use crate::wal::{Found, Wal};

/// How far below the last id a read begins in the hope to meet transactions that were late. Those that were
/// later still are looked for once they are known to have committed.
///
/// Beside a writer that stays open every look reads that far: 2,000 ids made one look cost 0.6 ms instead of 0.2.
const REACH: i64 = 64;

/// How long a window waits for the server's own flushes before one is asked for.
const FLUSH_AFTER: Duration = Duration::from_millis(20);

/// How often a window that waits for the server's flushes asks for them before it is asked for again by its reader.
const FLUSH_LOOKS: u32 = 8;

/// How long an owner that is served from memory may go without asking whether it still is one.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The memory that all subscriptions share, and the connection that it belongs to.
#[derive(Default)]
pub(crate) struct SharedTail {
    tail: Tail,
    session: u64,
    /// When the probe began that found the newest tick; none if it was not found by one.
    newest_at: Option<Instant>,
    /// When the probe began that opened the window which waits for the disk.
    pending_at: Option<Instant>,
    /// Up to which id that window was read.
    pending_to: i64,
    /// Transactions that ticks see because they were decoded, and that no probe has found visible since.
    early: Vec<Xid>,
    /// How much of the WAL must be on disk before anybody hands out what was passed to feeders without waiting.
    owed: Lsn,
}

impl SharedTail {
    /// Whether a reader at this tick can read on in the table up to the newest one: the table shows all that the
    /// newest tick sees, and that tick leaves out nothing that was seen before. Other processes may have decoded
    /// more than this one.
    fn leads_on_from(&self, tick: &Tick) -> bool {
        let newest = self.tail.newest();
        self.early.is_empty() && newest.is_some_and(|newest| newest.snapshot.covers(&tick.snapshot))
    }
}

/// What lies behind the tail's end.
#[derive(Default, PartialEq, Eq)]
enum Next {
    #[default]
    Nothing,
    /// Something that may not be handed out yet.
    Soon,
    /// A window that may be handed out once it is on disk.
    Window,
}

/// A look at the table there.
#[derive(Default)]
struct Look {
    next: Next,
    /// What it was read by; none if it was not, because the subscription is paused.
    probe: Option<Probe>,
}

/// One fetch under way.
struct Fetch<'a> {
    store: &'a Inner,
    session: Arc<Session>,
    hold: &'a Hold,
    after: Position,
    room: Room,
    /// The shards whose rows are wanted; all if none are named.
    shards: Option<ShardSet>,
}

/// Reads the wanted events behind `after`; what it returns is durable.
pub(crate) async fn fetch(store: &Inner, hold: &Hold, after: Position, room: Room) -> Result<Chunk> {
    let session = store.reader.session().await?;
    let standpoint = store.holdings.with(hold, |holding| {
        holding.is_of_reader(session.id()).then(|| holding.standpoint(after)).flatten()
    })?;
    let fetch = |shards| Fetch { store, session, hold, after, room, shards };
    match standpoint.ok_or_else(|| lost(hold))? {
        Standpoint::Within(window, shards) => fetch(shards).read_on(&window).await,
        Standpoint::AtEnd(window, shards) => fetch(shards).next_window(&window.to).await,
        Standpoint::NextLeg(start) => Ok(Chunk { more: true, ..Chunk::empty(start) }),
    }
}

impl Fetch<'_> {
    /// Goes on within a window that was opened before.
    async fn read_on(&self, window: &Window) -> Result<Chunk> {
        let above = self.after.last_id.0.max(window.lowest());
        let (probed, read) = tokio::join!(
            probe_for(&self.session, self.hold.subscription.id),
            window_read(self.store, &self.session, window, above),
        );
        let (probe, standing) = probed?;
        if self.is_paused(standing).await? {
            return Ok(Chunk { paused: true, ..Chunk::empty(self.after) });
        }
        let (stretch, read) = read?;
        if !probe.snapshot.covers(&window.to.snapshot) {
            // It was decoded before all of it can be read: the rest of it comes soon.
            return Ok(Chunk { soon: true, ..Chunk::empty(self.after) });
        }
        let end = read.cut_at.unwrap_or(EventId(stretch.up_to));
        let chunk = self.chunk(window, self.after.window, &read.rows, end);
        // A window that took long to read may have others behind it by now.
        Ok(Chunk { more: chunk.more || window.to.is_outdated_by(&probe), ..chunk })
    }

    /// Finds the window that begins where this subscription stands.
    async fn next_window(&self, tick: &Arc<Tick>) -> Result<Chunk> {
        let mut shared = self.store.tail.lock().await;
        if let Some(wal) = &self.store.wal {
            wal.look();
        }
        if shared.session != self.session.id() {
            // What was remembered under another connection may be from before a crash of the server.
            *shared = SharedTail { session: self.session.id(), ..SharedTail::default() };
            self.store.wal.iter().for_each(Wal::doubt);
        }
        if shared.tail.newest().is_none() {
            shared.tail.begin(tick);
        }
        match shared.tail.serve(tick) {
            // Others claim what is fed, and look for it in the table.
            Served::Window(_) if self.feeds() && !self.is_visible(&mut shared).await? => {
                Ok(Chunk { soon: true, ..Chunk::empty(self.after) })
            }
            Served::Window(next) => {
                let newest = shared.tail.newest().is_some_and(|newest| Arc::ptr_eq(newest, &next.window.to));
                drop(shared);
                if self.is_paused_lately().await? {
                    return Ok(Chunk { paused: true, ..Chunk::empty(self.after) });
                }
                let end = EventId(next.window.to.seq());
                let chunk = self.chunk(&next.window, self.number(&next.window)?, &next.rows, end);
                Ok(Chunk { more: chunk.more || !newest, ..chunk })
            }
            Served::AtEnd => self.open(shared, tick, false).await,
            Served::Behind => self.open(shared, tick, true).await,
        }
    }

    /// Opens the window behind the tail's end, for all. `behind` says that this subscription does not stand there:
    /// then a window of its own leads up to the tail's end. That must be a later moment than the one it stands at, or
    /// it would go back in the log; so it has to have been found after the position was loaded, by a probe that is made
    /// even if nothing is new.
    async fn open(
        &self,
        mut shared: MutexGuard<'_, SharedTail>,
        tick: &Arc<Tick>,
        behind: bool,
    ) -> Result<Chunk> {
        let taken_at = self.store.holdings.with(self.hold, |holding| holding.taken_at)?;
        let is_later = |at: Option<Instant>| at.is_some_and(|at| at > taken_at);
        if behind && is_later(shared.newest_at) && shared.leads_on_from(tick) {
            let newest = shared.tail.newest().cloned().ok_or_else(|| lost(self.hold))?;
            return self.own_window(tick, newest);
        }
        if shared.tail.pending.is_none() {
            let next = self.find(&mut shared, behind).await?;
            if next != Next::Window {
                let soon = next == Next::Soon;
                return Ok(Chunk { paused: self.known()?.paused, soon, ..Chunk::empty(self.after) });
            }
        }
        if !self.is_on_disk(&mut shared).await? {
            return Ok(Chunk { soon: true, ..Chunk::empty(self.after) });
        }
        if self.is_paused_lately().await? {
            // Others may take the window; this subscription finds it again when it goes on.
            return Ok(Chunk { paused: true, ..Chunk::empty(self.after) });
        }
        let read_to = EventId(shared.pending_to);
        let Some(Pending { window, rows, cut, .. }) = shared.tail.pending.take() else {
            return Ok(Chunk::empty(self.after));
        };
        let keep = !cut && self.store.holdings.count() > 1;
        shared.tail.push(&window, &rows, keep);
        shared.newest_at = shared.pending_at.take();
        if Arc::ptr_eq(&window.from, tick) {
            drop(shared);
            let chunk = self.chunk(&window, self.number(&window)?, &rows, read_to);
            // Ids were drawn whose rows are not visible: a commit is near.
            Ok(Chunk { soon: rows.is_empty() && !cut, ..chunk })
        } else if is_later(shared.newest_at) && shared.leads_on_from(tick) {
            self.own_window(tick, window.to)
        } else {
            Ok(Chunk { soon: true, ..Chunk::empty(self.after) })
        }
    }

    /// Enters a window of this subscription's own.
    fn own_window(&self, from: &Arc<Tick>, to: Arc<Tick>) -> Result<Chunk> {
        let own = Window { from: Arc::clone(from), to };
        let start = Position { window: self.number(&own)?, last_id: EventId(own.lowest()) };
        Ok(Chunk { more: true, ..Chunk::empty(start) })
    }

    /// Finds what lies behind the tail's end: in the stream if that is followed, else in the table. `behind`
    /// says that the caller does not stand there, and will read from the table.
    async fn find(&self, shared: &mut SharedTail, behind: bool) -> Result<Next> {
        let Some(wal) = &self.store.wal else { return Ok(Box::pin(self.look(shared, behind)).await?.next) };
        let Some(from) = shared.tail.newest().cloned() else { return Ok(Next::Nothing) };
        let found =
            if behind || self.feeds() { Found::InTable } else { self.take(wal, &from.snapshot).await? };
        match found {
            Found::Nothing => Ok(Next::Nothing),
            Found::Soon => Ok(Next::Soon),
            Found::Transactions { xids, rows } => {
                let last_id = rows.last().map_or(EventId(0), |row| row.event.id);
                let window = Window { to: Arc::new(from.decoded(&xids, last_id)), from };
                shared.early.extend(xids);
                (shared.pending_at, shared.pending_to) = (Some(Instant::now()), window.to.seq());
                let (rows, inserted) = (rows.into(), shared.owed);
                shared.tail.pending = Some(Pending { window, rows, cut: false, inserted });
                Ok(Next::Window)
            }
            Found::InTable => {
                let before = wal.before_read();
                let look = Box::pin(self.look(shared, behind)).await?;
                // Its window, if there is one, is read before anything that comes after it.
                if let Some(probe) = look.probe {
                    wal.was_read(before, &probe.snapshot.union(&from.snapshot), probe.inserted);
                }
                Ok(look.next)
            }
        }
    }

    /// What the stream has. What waits for standbys is left there until it is visible, as it is to those who
    /// read the table.
    async fn take(&self, wal: &Wal, newest: &Snapshot) -> Result<Found> {
        if self.store.options.durability == Durability::Trust || !wal.waits_for_standbys() {
            return Ok(wal.take(newest, None));
        }
        let (probe, _) = probe_for(&self.session, self.hold.subscription.id).await?;
        Ok(wal.take(newest, Some(&probe.snapshot)))
    }

    fn feeds(&self) -> bool {
        self.hold.subscription.mode == Mode::Queue
    }

    /// Whether all that was decoded can be found in the table by now.
    async fn is_visible(&self, shared: &mut SharedTail) -> Result<bool> {
        if !shared.early.is_empty() {
            let (probe, _) = probe_for(&self.session, self.hold.subscription.id).await?;
            shared.early.retain(|xid| !probe.snapshot.sees(*xid));
        }
        Ok(shared.early.is_empty())
    }

    /// Probes, and reads what lies behind the tail's end while at it.
    async fn look(&self, shared: &mut SharedTail, forced: bool) -> Result<Look> {
        let Some(from) = shared.tail.newest().cloned() else { return Ok(Look::default()) };
        let began = Instant::now();
        let above = from.eager_lowest(REACH);
        let stretch = Stretch::behind(above, i64::MAX);
        let id = self.hold.subscription.id;
        let (probe, standing, mut read) =
            log_look(&self.session, id, stretch, &from.snapshot, &self.store.appetite).await?;
        if self.is_paused(standing).await? {
            return Ok(Look::default());
        }
        shared.early.retain(|xid| !probe.snapshot.sees(*xid));
        if !forced && !from.is_outdated_by(&probe) {
            return Ok(Look { next: Next::Nothing, probe: Some(probe) });
        }
        let window = Window { to: Arc::new(from.next(&probe)), from };
        let mut stretch = Stretch::behind(above, window.to.seq());
        let lowest = window.lowest();
        if lowest < above {
            // A transaction from long ago has committed: its rows lie below.
            (stretch, read) = window_read(self.store, &self.session, &window, lowest).await?;
        }
        let rows: Arc<[LogRow]> =
            read.rows.into_iter().filter(|row| window.to.snapshot.sees(row.xid)).collect();
        // Not the last row that is left: none of those that were read may be visible at the window's end.
        let read_to = read.cut_at.unwrap_or(EventId(stretch.up_to));
        let cut = !window.ends_at(read_to);
        (shared.pending_at, shared.pending_to) = (Some(began), read_to.0);
        let inserted = match probe.is_flushed() {
            true => Lsn::default(),
            // Without rows, as of ids that were drawn and not committed yet: it hands nothing out itself.
            false if rows.is_empty() && !cut => shared.owed,
            false => probe.inserted,
        };
        shared.tail.pending = Some(Pending { window, rows, cut, inserted });
        Ok(Look { next: Next::Window, probe: Some(probe) })
    }

    /// Whether the window that waits may be handed out. If it had to wait, the subscription may have been
    /// paused since it was read: that is asked for too, and the caller looks at what is known.
    ///
    /// What is fed to a queue is handed out with a claim, which is flushed, and so is all WAL before it: the
    /// feed, and what was emitted. A crash that undoes an event has undone its feed. But windows are shared
    /// with those who hand out what they read, and lead on from each other: what was not waited for is owed
    /// by the next one that is.
    async fn is_on_disk(&self, shared: &mut SharedTail) -> Result<bool> {
        let Some(pending) = &shared.tail.pending else { return Ok(false) };
        let inserted = pending.inserted;
        if self.store.holdings.all_feed() {
            shared.owed = inserted;
            return Ok(true);
        }
        let trusted = self.store.options.durability == Durability::Trust;
        if !trusted && inserted != Lsn::default() && !self.is_flushed(shared, inserted).await? {
            return Ok(false);
        }
        shared.owed = Lsn::default();
        Ok(true)
    }

    /// Waits a moment for the server to flush its WAL by itself, and lets it do so if it has not for long.
    async fn is_flushed(&self, shared: &SharedTail, inserted: Lsn) -> Result<bool> {
        // A server that does not tell how far it has flushed is made to.
        let told = inserted != Lsn::BEYOND;
        for _ in (0..FLUSH_LOOKS).filter(|_| told) {
            if let Some(standing) = flushed_for(&self.session, self.hold.subscription.id, inserted).await? {
                self.is_paused(standing).await?;
                return Ok(true);
            }
        }
        if !told || shared.pending_at.is_some_and(|since| since.elapsed() >= FLUSH_AFTER) {
            Box::pin(self.store.flush()).await?;
            self.is_paused(standing(&self.session, self.hold).await?).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// What is wanted of some rows that end at `end`, as far as there is room.
    fn chunk(&self, window: &Window, number: u64, rows: &[LogRow], end: EventId) -> Chunk {
        let filter = &self.hold.subscription.filter;
        let mut chunk = Chunk::empty(Position { window: number, last_id: end });
        chunk.events.reserve(rows.len());
        let mut bytes = 0;
        let mut last = None;
        for row in rows {
            if !window.to.snapshot.sees(row.xid) {
                continue;
            }
            if let Some(last) =
                last.filter(|_| chunk.events.len() >= self.room.events || bytes >= self.room.bytes)
            {
                chunk.end.last_id = last;
                break;
            }
            last = Some(row.event.id);
            if filter.matches(row.event.topic.as_str(), row.event.kind.as_str()) && self.is_ours(row) {
                bytes += row.event.bytes();
                chunk.events.push(Arc::clone(&row.event));
            }
        }
        chunk.more = !window.ends_at(chunk.end.last_id);
        chunk
    }

    /// Whether a row is of a shard that is read for.
    fn is_ours(&self, row: &LogRow) -> bool {
        let of = || Shard::of(row.event.key.as_ref(), row.event.id, SHARDS);
        self.shards.is_none_or(|shards| shards.contains(of()))
    }

    fn number(&self, window: &Window) -> Result<u64> {
        self.store.holdings.with(self.hold, |holding| holding.open(window.clone()))
    }

    fn known(&self) -> Result<Standing> {
        self.store.holdings.with(self.hold, |holding| holding.standing)
    }

    /// Takes in how the subscription stands; fenced if it is ours no more.
    async fn is_paused(&self, found: Option<Standing>) -> Result<bool> {
        let found = found.ok_or_else(|| lost(self.hold))?;
        let known = self.known()?;
        let found =
            if known.fence == found.fence { found } else { look_again(&self.session, self.hold).await? };
        self.store.holdings.with(self.hold, |holding| {
            holding.standing = found;
            holding.looked_at = Instant::now();
        })?;
        Ok(found.paused)
    }

    /// The same for one who has not asked the server, if it is time to.
    async fn is_paused_lately(&self) -> Result<bool> {
        let looked_at = self.store.holdings.with(self.hold, |holding| holding.looked_at)?;
        if looked_at.elapsed() < LOOK_EVERY {
            return Ok(self.known()?.paused);
        }
        self.is_paused(standing(&self.session, self.hold).await?).await
    }
}
