//! The memory of the last windows, shared by all subscriptions of a process.
//!
//! ```text
//!            windows in memory             newest: a reader here opens the next window for all
//!   ……│    │    │    │    │▼
//!     └ a subscription that stands here is given four windows, one by one, without asking the server
//!  └ one that is further behind reads a window of its own, up to the newest tick, and then stands there
//! ```
//!
//! The tick itself is a reader's place, not what the tick sees, because two ticks that see the same may have
//! different bounds.

use std::collections::VecDeque;
use std::sync::Arc;

use super::snapshot::Xid;
use super::tick::{Lsn, Tick, Window};
use crate::event::Event;

/// Rows that the tail remembers.
pub const TAIL_ROWS_MAX: usize = 20_000;
/// Bytes that the tail remembers.
pub const TAIL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A row of the log as it was read.
#[derive(Debug, Clone)]
pub struct LogRow {
    /// Its transaction.
    pub xid: Xid,
    /// What it says.
    pub event: Arc<Event>,
}

/// A window that was read as a whole.
#[derive(Debug, Clone)]
pub struct TailWindow {
    /// From where to where.
    pub window: Window,
    /// What it holds, in the order of ids.
    pub rows: Arc<[LogRow]>,
}

/// A window that was read and may not be handed out yet, since the server's disk is behind.
#[derive(Debug)]
pub struct Pending {
    /// From where to where.
    pub window: Window,
    /// All of it, or its beginning.
    pub rows: Arc<[LogRow]>,
    /// Whether there is more than `rows`.
    pub cut: bool,
    /// How far the write-ahead log must be flushed first.
    pub inserted: Lsn,
}

/// What the tail has for a reader that stands at a tick.
#[derive(Debug)]
pub enum Served {
    /// The window that follows.
    Window(TailWindow),
    /// The tick is the newest: the next window has to be opened.
    AtEnd,
    /// Nothing: the tick is not part of the tail, or no longer.
    Behind,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Tail {
    newest: Option<Arc<Tick>>,
    windows: VecDeque<TailWindow>,
    rows: usize,
    bytes: usize,
    /// The window behind the newest tick that waits for the disk.
    pub pending: Option<Pending>,
}

impl Tail {
    /// The end of the newest window.
    pub fn newest(&self) -> Option<&Arc<Tick>> {
        self.newest.as_ref()
    }

    /// What follows `tick`.
    pub fn serve(&self, tick: &Arc<Tick>) -> Served {
        if self.newest.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, tick)) {
            return Served::AtEnd;
        }
        match self.windows.iter().find(|held| Arc::ptr_eq(&held.window.from, tick)) {
            Some(held) => Served::Window(held.clone()),
            None => Served::Behind,
        }
    }

    /// Begins with a tick that a reader stands at: there is no tail yet.
    pub fn begin(&mut self, tick: &Arc<Tick>) {
        *self = Self { newest: Some(Arc::clone(tick)), ..Self::default() };
    }

    /// Takes in the window behind the newest tick. Its rows are remembered if `keep` says that another
    /// subscription may want them. Of one that was cut off only the end is known, and others read it for themselves.
    pub fn push(&mut self, window: &Window, rows: &Arc<[LogRow]>, keep: bool) {
        self.newest = Some(Arc::clone(&window.to));
        if !keep {
            self.windows.clear();
            (self.rows, self.bytes) = (0, 0);
            return;
        }
        self.rows += rows.len();
        self.bytes += bytes(rows);
        self.windows.push_back(TailWindow { window: window.clone(), rows: Arc::clone(rows) });
        while self.rows > TAIL_ROWS_MAX || self.bytes > TAIL_BYTES_MAX {
            let Some(oldest) = self.windows.pop_front() else { break };
            self.rows -= oldest.rows.len();
            self.bytes -= bytes(&oldest.rows);
        }
    }
}

fn bytes(rows: &[LogRow]) -> usize {
    rows.iter().map(|row| row.event.bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventId, Headers, Key, Kind, Topic};
    use crate::time::Timestamp;

    fn rows(count: usize, bytes: usize) -> Arc<[LogRow]> {
        let event = Arc::new(Event {
            id: EventId(1),
            topic: Topic::new(""),
            kind: Kind::new(""),
            key: None::<Key>,
            payload: vec![0; bytes].into(),
            headers: Headers::default(),
            created_at: Timestamp::from_micros(0),
            due_at: None,
            flaw: None,
        });
        (0..count).map(|_| LogRow { xid: Xid::FIRST, event: Arc::clone(&event) }).collect()
    }

    fn behind(tick: &Arc<Tick>) -> Window {
        Window { from: Arc::clone(tick), to: Arc::new(Tick::start()) }
    }

    #[test]
    fn whoever_stands_at_a_tick_is_led_to_the_newest_window_by_window() {
        let start = Arc::new(Tick::start());
        let mut tail = Tail::default();
        assert!(matches!(tail.serve(&start), Served::Behind), "there is no tail yet");
        tail.begin(&start);
        let mut newest = Arc::clone(&start);
        for _ in 0..3 {
            let window = behind(&newest);
            tail.push(&window, &rows(1, 1), true);
            newest = window.to;
        }
        let (mut at, mut read) = (start, 0);
        while let Served::Window(next) = tail.serve(&at) {
            read += next.rows.len();
            at = next.window.to;
        }
        assert!(matches!(tail.serve(&at), Served::AtEnd));
        assert!(Arc::ptr_eq(&at, &newest) && read == 3);
    }

    #[test]
    fn the_oldest_windows_give_way() {
        let start = Arc::new(Tick::start());
        let mut tail = Tail::default();
        tail.begin(&start);
        let first = behind(&start);
        tail.push(&first, &rows(1, TAIL_BYTES_MAX / 2), true);
        let second = behind(&first.to);
        tail.push(&second, &rows(1, TAIL_BYTES_MAX / 2 + 1), true);
        assert!(matches!(tail.serve(&start), Served::Behind));
        assert!(matches!(tail.serve(&first.to), Served::Window(_)));
        tail.push(&behind(&second.to), &rows(TAIL_ROWS_MAX + 1, 0), true);
        assert!(matches!(tail.serve(&second.to), Served::Behind), "too large to be remembered at all");
    }

    #[test]
    fn a_window_that_was_cut_off_leaves_only_its_end() {
        let start = Arc::new(Tick::start());
        let mut tail = Tail::default();
        tail.begin(&start);
        let window = behind(&start);
        tail.push(&window, &rows(1, 1), false);
        assert!(matches!(tail.serve(&start), Served::Behind));
        assert!(matches!(tail.serve(&window.to), Served::AtEnd));
    }
}
