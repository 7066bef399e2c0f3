//! What was decoded and waits to be taken, and what may be confirmed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use postrider_core::log::{LogRow, Lsn, Snapshot, Xid};

use super::{Found, TABLE_EVERY};

/// Rows and bytes that wait at the most, give or take one transaction.
const ROWS_MAX: usize = 20_000;
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Rows and bytes of a transaction that is read from the table instead.
pub(super) const TRANSACTION_ROWS_MAX: usize = 10_000;
pub(super) const TRANSACTION_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows of one window.
const WINDOW_ROWS: usize = 4_000;
/// How long arrived transactions wait for a reader while there is no room for more.
const PATIENCE: Duration = Duration::from_secs(1);
/// Transactions between the last one that was decoded and those that a tick sees, beyond which the table is
/// read: ticks are written with each settle.
const GAPS_MAX: usize = 256;

/// A transaction that has committed.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) xid: Xid,
    pub(super) commit: Lsn,
    /// None if they were too many.
    pub(super) rows: Option<Vec<LogRow>>,
    pub(super) bytes: usize,
}

impl Decoded {
    fn count(&self) -> usize {
        self.rows.as_ref().map_or(0, Vec::len)
    }
}

/// See the head of `wal.rs`. Commits are in their order: first those that were taken or discarded, then those
/// that wait.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Grows whenever what was told from now on does not follow what was taken.
    generation: u64,
    /// Whether there is a stream.
    streaming: bool,
    /// Whether the table has to be read before anything is taken.
    unread: bool,
    /// How far the stream has come, and where it must have come before it is followed: until then the table tells more.
    position: Lsn,
    target: Option<Lsn>,
    /// How far the log had come when the table was last read, and the time before.
    written: [Lsn; 2],
    /// Whether the stream may be another server's than the one whose table is read.
    stale: bool,
    /// What the table must show by then.
    must_see: Option<Snapshot>,
    waiting: VecDeque<Decoded>,
    rows: usize,
    bytes: usize,
    /// Not waiting any more, and not known to be visible.
    gone: Vec<(Xid, Lsn)>,
    /// How many have arrived, how many of them a reader has looked at, and how many were announced.
    arrived: u64,
    looked: u64,
    told: u64,
    read_at: Instant,
    full_since: Option<Instant>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            generation: 0,
            streaming: false,
            unread: true,
            position: Lsn::default(),
            target: None,
            written: [Lsn::default(); 2],
            stale: false,
            must_see: None,
            waiting: VecDeque::new(),
            rows: 0,
            bytes: 0,
            gone: Vec::new(),
            arrived: 0,
            looked: 0,
            told: 0,
            read_at: Instant::now(),
            full_since: None,
        }
    }

    /// A stream begins. All that committed before where it begins is visible, or seen by `must_see`.
    pub(super) fn begin(&mut self, must_see: Option<Snapshot>) {
        *self = Self { generation: self.generation + 1, streaming: true, must_see, ..Self::new() };
    }

    /// There is no stream any more.
    pub(super) fn end(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::new() };
    }

    pub(super) fn put(&mut self, decoded: Decoded) {
        self.rows += decoded.count();
        self.bytes += decoded.bytes;
        self.waiting.push_back(decoded);
        self.arrived += 1;
    }

    /// Whether more may be put. Transactions that no reader takes in time are discarded.
    pub(super) fn has_room(&mut self) -> bool {
        if self.rows < ROWS_MAX && self.bytes < BYTES_MAX {
            self.full_since = None;
            return true;
        }
        let since = *self.full_since.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return false;
        }
        self.discard();
        true
    }

    /// The table is read on another connection from now on, maybe of another server. Only a stream that
    /// begins after this is followed.
    pub(super) fn doubt(&mut self) {
        self.stale = true;
        self.forget();
    }

    pub(super) fn is_stale(&self) -> bool {
        self.streaming && self.stale
    }

    fn discard(&mut self) {
        self.gone.extend(self.waiting.drain(..).map(|decoded| (decoded.xid, decoded.commit)));
        (self.rows, self.bytes, self.full_since) = (0, 0, None);
        self.forget();
    }

    /// What was taken is not followed by what comes.
    fn forget(&mut self) {
        self.generation += 1;
        (self.unread, self.target) = (true, None);
    }

    /// Whether a reader goes by the stream.
    pub(super) fn is_followed(&self) -> bool {
        self.streaming && !self.unread
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether there is something that no reader has looked at. Says so once, because a reader that has no
    /// room, or works for a queue, does not look, and would hear of it for ever.
    pub(super) fn is_news(&mut self) -> bool {
        let is_news = self.arrived != self.looked && self.arrived != self.told;
        self.told = self.arrived;
        is_news
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A reader looks: only transactions that arrive from now on, or that it leaves over, are news.
    pub(super) fn look(&mut self) {
        self.looked = self.arrived;
    }

    fn leave_over(&mut self) {
        if !self.waiting.is_empty() {
            self.looked = self.arrived.wrapping_sub(1);
            self.told = self.looked;
        }
    }

    /// The stream has told all that committed before this. It may be followed by that, and a new slot is then
    /// confirmed, whether or not anybody reads on just now.
    pub(super) fn come_to(&mut self, position: Lsn) {
        self.position = self.position.max(position);
        self.join();
    }

    /// See [`super::Wal::was_read`]. `to` must see what is gone, because the inbox does not tell of it again. A
    /// stream that has come no further than the log had two looks ago is not waited for.
    pub(super) fn was_read(&mut self, before: u64, to: &Snapshot, written: Lsn) {
        let lags = self.position < self.written[1];
        self.read_at = Instant::now();
        self.written = [written, self.written[0]];
        let sees_all = self.gone.iter().all(|(xid, _)| to.sees(*xid))
            && self.must_see.as_ref().is_none_or(|snapshot| to.covers(snapshot));
        if !self.streaming || self.stale || before != self.generation || !sees_all {
            return;
        }
        self.must_see = None;
        if lags || (self.unread && self.target.is_none()) {
            (self.unread, self.target) = (true, Some(written));
        }
        self.join();
    }

    /// Lets the stream be followed once it has come as far as the table had.
    fn join(&mut self) {
        if self.unread && self.target.is_some_and(|target| self.position >= target) {
            (self.unread, self.target) = (false, None);
            self.leave_over();
        }
    }

    /// See [`super::Wal::take`].
    pub(super) fn take(&mut self, newest: &Snapshot, visible: Option<&Snapshot>) -> Found {
        self.join();
        if !self.streaming || self.unread || self.read_at.elapsed() >= TABLE_EVERY {
            return Found::InTable;
        }
        let (mut xids, mut rows, mut is_early) = (Vec::new(), Vec::new(), false);
        while let Some(next) = self.waiting.front() {
            let is_seen = newest.sees(next.xid);
            is_early = !is_seen && visible.is_some_and(|visible| !visible.sees(next.xid));
            let is_full = rows.len() + next.count() > WINDOW_ROWS.max(next.count());
            let is_far = gaps(newest, next.xid) > GAPS_MAX + xids.len();
            if is_early || !is_seen && (next.rows.is_none() || is_full || is_far) {
                break;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            self.rows -= next.count();
            self.bytes -= next.bytes;
            self.gone.push((next.xid, next.commit));
            if !is_seen {
                xids.push(next.xid);
                rows.extend(next.rows.unwrap_or_default());
            }
        }
        self.leave_over();
        match (xids.is_empty(), self.waiting.is_empty()) {
            (true, true) => Found::Nothing,
            (true, false) if is_early => {
                self.look();
                Found::Soon
            }
            (true, false) => {
                self.look();
                Found::InTable
            }
            (false, _) => {
                rows.sort_unstable_by_key(|row: &LogRow| row.event.id);
                Found::Transactions { xids, rows }
            }
        }
    }

    /// What may be confirmed now that all below `position` was decoded, and `visible` is visible: a relay that
    /// starts over finds everything before it in the table.
    pub(super) fn confirmable(&mut self, position: Lsn, visible: &Snapshot) -> Lsn {
        self.gone.retain(|(xid, _)| !visible.sees(*xid));
        let waiting = self.waiting.iter().filter(|decoded| !visible.sees(decoded.xid));
        let first = self.gone.first().map(|(_, commit)| *commit);
        first
            .or_else(|| waiting.map(|decoded| decoded.commit).next())
            .map_or(position, |lsn| lsn.min(position))
    }
}

/// How many transactions a tick would have to name as running that has seen this one, too.
fn gaps(newest: &Snapshot, xid: Xid) -> usize {
    let beyond = (xid.0 + 1).saturating_sub(newest.xmax().0);
    newest.running().len().saturating_add(usize::try_from(beyond).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::event::{Headers, Kind, Topic};
    use postrider_core::{Event, EventId, Timestamp};

    use super::*;

    fn row(xid: u64, id: i64, bytes: usize) -> LogRow {
        let event = Event {
            id: EventId(id),
            topic: Topic::new("order"),
            kind: Kind::new("order"),
            key: None,
            payload: vec![0; bytes].into(),
            headers: Headers::default(),
            created_at: Timestamp::from_micros(0),
            due_at: None,
            flaw: None,
        };
        LogRow { xid: Xid(xid), event: Arc::new(event) }
    }

    fn decoded(xid: u64, ids: &[i64]) -> Decoded {
        let rows = ids.iter().map(|id| row(xid, *id, 10)).collect();
        Decoded { xid: Xid(xid), commit: Lsn(xid * 10), rows: Some(rows), bytes: 10 * ids.len() }
    }

    fn snapshot(text: &str) -> Snapshot {
        text.parse().unwrap()
    }

    /// An inbox whose reader sees everything below 100.
    fn followed() -> Inbox {
        let mut inbox = Inbox::new();
        inbox.begin(None);
        inbox.was_read(inbox.generation(), &snapshot("100:100:"), Lsn(1));
        inbox.come_to(Lsn(1));
        assert!(matches!(inbox.take(&snapshot("100:100:"), None), Found::Nothing));
        inbox
    }

    fn ids(found: &Found) -> Option<Vec<i64>> {
        match found {
            Found::Transactions { rows, .. } => Some(rows.iter().map(|row| row.event.id.0).collect()),
            Found::InTable | Found::Nothing | Found::Soon => None,
        }
    }

    #[test]
    fn a_window_holds_what_was_not_seen_in_the_order_of_ids() {
        let mut inbox = followed();
        inbox.put(decoded(103, &[5, 9]));
        inbox.put(decoded(101, &[4, 7]));
        inbox.put(decoded(102, &[6]));
        assert!(inbox.is_news());
        inbox.look();
        let found = inbox.take(&snapshot("101:102:101"), None);
        assert_eq!(ids(&found), Some(vec![4, 5, 6, 7, 9]));
        assert!(!inbox.is_news());
        inbox.put(decoded(104, &[10]));
        assert!(
            matches!(inbox.take(&snapshot("105:105:"), None), Found::Nothing),
            "the table has told of it"
        );
    }

    #[test]
    fn nothing_is_taken_before_the_table_shows_what_will_not_be_told() {
        let mut inbox = Inbox::new();
        assert!(matches!(inbox.take(&snapshot("100:100:"), None), Found::InTable), "there is no stream");
        inbox.begin(Some(snapshot("90:95:91")));
        inbox.come_to(Lsn(1));
        inbox.put(decoded(100, &[1]));
        let before = inbox.generation();
        inbox.was_read(before, &snapshot("90:95:90,91"), Lsn(1));
        assert!(!inbox.is_followed(), "90 was committed before the slot begins");
        inbox.was_read(before, &snapshot("91:95:91"), Lsn(1));
        assert!(inbox.is_followed() && inbox.is_news());
        assert_eq!(ids(&inbox.take(&snapshot("91:95:91"), None)), Some(vec![1]));
        inbox.forget();
        inbox.was_read(before, &snapshot("200:200:"), Lsn(1));
        assert!(!inbox.is_followed(), "it was read before that");
        inbox.was_read(inbox.generation(), &snapshot("100:100:"), Lsn(1));
        assert!(!inbox.is_followed(), "100 was taken, and whoever took it is forgotten");
        inbox.was_read(inbox.generation(), &snapshot("101:101:"), Lsn(1));
        assert!(inbox.is_followed());
        inbox.doubt();
        inbox.was_read(inbox.generation(), &snapshot("101:101:"), Lsn(1));
        assert!(inbox.is_stale() && !inbox.is_followed(), "it may be another server's");
    }

    #[test]
    fn what_nobody_takes_is_let_go_and_read_from_the_table() {
        let mut inbox = followed();
        for xid in 100..103 {
            let rows = Some(vec![row(xid, xid as i64, BYTES_MAX / 2)]);
            inbox.put(Decoded { xid: Xid(xid), commit: Lsn(xid), rows, bytes: BYTES_MAX / 2 });
        }
        assert!(!inbox.has_room());
        inbox.full_since = Instant::now().checked_sub(PATIENCE);
        assert!(inbox.has_room() && inbox.bytes == 0 && inbox.waiting.is_empty());
        assert!(matches!(inbox.take(&snapshot("100:100:"), None), Found::InTable));
        inbox.was_read(inbox.generation(), &snapshot("102:102:"), Lsn(1));
        assert!(!inbox.is_followed(), "one of them is not visible yet");
        assert_eq!(inbox.confirmable(Lsn(500), &snapshot("102:102:")), Lsn(102));
        inbox.was_read(inbox.generation(), &snapshot("103:103:"), Lsn(1));
        assert!(inbox.is_followed());
        assert_eq!(inbox.confirmable(Lsn(500), &snapshot("103:103:")), Lsn(500));
    }

    #[test]
    fn one_that_is_too_large_is_left_to_the_table() {
        let mut inbox = followed();
        inbox.put(decoded(100, &[1]));
        inbox.put(Decoded { xid: Xid(101), commit: Lsn(7), rows: None, bytes: 0 });
        inbox.put(decoded(102, &[9]));
        assert_eq!(ids(&inbox.take(&snapshot("100:100:"), None)), Some(vec![1]));
        assert!(matches!(inbox.take(&snapshot("101:101:"), None), Found::InTable));
        assert_eq!(
            ids(&inbox.take(&snapshot("102:102:"), None)),
            Some(vec![9]),
            "once the table has told of it"
        );
    }

    #[test]
    fn one_that_is_far_ahead_of_the_tick_is_left_to_the_table() {
        let mut inbox = followed();
        inbox.put(decoded(100, &[1]));
        inbox.put(decoded(5_000_000, &[2]));
        assert_eq!(ids(&inbox.take(&snapshot("100:100:"), None)), Some(vec![1]));
        assert!(matches!(inbox.take(&snapshot("101:101:"), None), Found::InTable));
        assert_eq!(ids(&inbox.take(&snapshot("4999999:4999999:"), None)), Some(vec![2]));
    }

    #[test]
    fn a_stream_that_lags_is_not_waited_for() {
        let mut inbox = Inbox::new();
        inbox.begin(None);
        let sees = snapshot("100:100:");
        inbox.was_read(inbox.generation(), &sees, Lsn(50));
        inbox.come_to(Lsn(40));
        assert!(matches!(inbox.take(&sees, None), Found::InTable));
        inbox.was_read(inbox.generation(), &sees, Lsn(60));
        inbox.come_to(Lsn(50));
        assert!(
            matches!(inbox.take(&sees, None), Found::Nothing),
            "the first look is what it had to come to"
        );
        inbox.was_read(inbox.generation(), &sees, Lsn(70));
        assert!(inbox.is_followed());
        inbox.was_read(inbox.generation(), &sees, Lsn(80));
        assert!(!inbox.is_followed(), "it has come no further since");
        inbox.come_to(Lsn(80));
        assert!(matches!(inbox.take(&sees, None), Found::Nothing));
    }

    #[test]
    fn where_standbys_are_waited_for_only_what_is_visible_is_taken() {
        let mut inbox = followed();
        inbox.put(decoded(100, &[1]));
        inbox.put(decoded(101, &[2]));
        inbox.put(decoded(102, &[3]));
        let sees = |xids: &str| Some(snapshot(xids));
        let newest = snapshot("100:100:");
        assert!(matches!(inbox.take(&newest, sees("100:103:100,101").as_ref()), Found::Soon));
        assert!(!inbox.is_news(), "nobody is woken by what was looked at");
        assert_eq!(ids(&inbox.take(&newest, sees("101:103:101").as_ref())), Some(vec![1]), "none overtakes");
        assert_eq!(ids(&inbox.take(&snapshot("101:101:"), sees("103:103:").as_ref())), Some(vec![2, 3]));
    }

    #[test]
    fn nobody_is_told_twice_of_what_nobody_looks_at() {
        let mut inbox = followed();
        inbox.put(decoded(100, &[1]));
        assert!(inbox.is_news() && !inbox.is_news());
        inbox.put(decoded(5_000_000, &[2]));
        assert!(inbox.is_news() && !inbox.is_news());
        inbox.look();
        assert_eq!(ids(&inbox.take(&snapshot("100:100:"), None)), Some(vec![1]));
        assert!(inbox.is_news() && !inbox.is_news(), "one is left over");
    }

    #[test]
    fn what_waits_and_is_visible_does_not_hold_the_slot() {
        let mut inbox = followed();
        inbox.put(decoded(100, &[1]));
        inbox.put(decoded(101, &[2]));
        assert_eq!(inbox.confirmable(Lsn(5_000), &snapshot("101:102:101")), Lsn(1_010));
        assert_eq!(inbox.confirmable(Lsn(5_000), &snapshot("102:102:")), Lsn(5_000));
    }
}
