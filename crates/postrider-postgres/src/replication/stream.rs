//! What was committed, told by the server as it happens, and what we tell the server meanwhile.
//!
//! ```text
//!   server   Begin Insert Insert Commit          Position      Begin Insert …
//!   ─────────────────────────────────────────────────────────────────────────► position: nothing below it is to come
//!   ours            status            status            status
//!   ────────────────────► confirmed: the server may forget what lies below
//! ```
//!
//! A server that hears nothing for `wal_sender_timeout` ends the connection, and keeps its log for us until
//! we say that it may go. So a status goes out every second, whether or not there is anything new, as long as
//! a caller waits in [`Stream::next`] or [`Stream::idle`]. Each status of the former asks for an answer, so
//! that a server which has nothing else to say tells about so often how far it has come. One that is silent
//! for longer reads a large transaction, or is in trouble: which of them cannot be seen from here. A machine
//! that is gone is noticed by the kernel within half a minute.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use postgres_protocol::message::frontend;
use postrider_core::log::Lsn;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::error::SqlState;
use tracing::debug;

use super::cursor::Cursor;
use super::pgoutput::{Change, Columns, Relation};
use super::refusal::{During, Refusal, ServerSaid, lost, nonsense, refuse};
use super::wire::{Frame, Wire};

/// How often the server hears from us, unless its patience is shorter.
pub(crate) const STATUS_EVERY: Duration = Duration::from_secs(1);
/// The letter, three positions, the time and a flag.
const STATUS_BYTES: u32 = 1 + 8 * 4 + 1;
/// How long a server may take to end the stream. It sends the rest of a transaction first.
const END_MAX: Duration = Duration::from_secs(5);
/// A publication of the log has one table and its leaves; another program's may have more.
const RELATIONS_MAX: usize = 1_024;
/// Open transactions that may be told ahead: each is that of a connection, and larger than the server's memory for it.
const AHEAD_MAX: usize = 4_096;

/// What the server says.
#[derive(PartialEq, Eq)]
pub(crate) enum Said {
    /// What follows up to the commit belongs to this transaction. `xid` is the lower half of its number.
    Begin { commit_lsn: Lsn, xid: u32 },
    /// A row was inserted.
    Insert(Row),
    /// The transaction is over: a receiver that has dealt with all of it may confirm `end_lsn`.
    Commit { commit_lsn: Lsn, end_lsn: Lsn },
    /// No commit below this position is yet to come. May come within a transaction.
    Position(Lsn),
    /// A row was inserted by a transaction that may never commit. `xid` is the lower half of its number.
    Ahead { xid: u32, row: Row },
    /// A transaction of which rows were told ahead has committed.
    AheadCommit { xid: u32, commit_lsn: Lsn },
    /// It never will.
    AheadAbort { xid: u32 },
}

/// A row that was inserted.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) relation: Arc<Relation>,
    /// As many as the relation has.
    pub(crate) columns: Columns,
}

/// A slot that is being read from.
pub(crate) struct Stream {
    wire: Wire,
    what: String,
    relations: HashMap<u32, Arc<Relation>>,
    /// Those that open transactions were told to have, which others have once these commit; by their numbers.
    ahead: HashMap<u32, HashMap<u32, Arc<Relation>>>,
    /// The transaction whose block is being told.
    block: Option<u32>,
    position: Lsn,
    confirmed: Lsn,
    pace: Pace,
    status_due: Instant,
    /// The server's clock as it was last told, and when: ours need not be right.
    clock: (u64, Instant),
}

/// How often the server wants to hear from us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace(Duration);

impl Pace {
    /// A third of its patience, so that one status may be late.
    pub(super) fn of(wal_sender_timeout: Option<Duration>) -> Self {
        let patience = wal_sender_timeout.unwrap_or(Duration::MAX);
        Self((patience / 3).clamp(Duration::from_millis(1), STATUS_EVERY))
    }
}

/// Whether a status asks for an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Wanted,
    Unwanted,
}

/// What a message of the stream holds.
enum Heard {
    /// A change, and how many bytes of it were left out at the end.
    Change(Bytes, usize),
    Position(Lsn),
}

impl Stream {
    /// `confirmed` is what the server has forgotten already.
    pub(super) fn new(wire: Wire, what: String, confirmed: Lsn, pace: Pace) -> Self {
        let now = Instant::now();
        Self {
            wire,
            what,
            relations: HashMap::new(),
            ahead: HashMap::new(),
            block: None,
            position: confirmed,
            confirmed,
            pace,
            status_due: now,
            clock: (0, now),
        }
    }

    /// The next thing that the server says. Sends statuses on time while it is awaited. Nothing is lost if it is
    /// dropped before it is done. After an error there is nothing more to come.
    pub(crate) async fn next(&mut self) -> Result<Said> {
        loop {
            match self.heard().await? {
                Heard::Position(lsn) => return Ok(Said::Position(lsn)),
                Heard::Change(body, left_out) => {
                    if let Some(said) = self.take(body, left_out)? {
                        return Ok(said);
                    }
                }
            }
        }
    }

    /// Sends statuses on time and does nothing else: for a caller that has no room for more. It does not read, so
    /// the bytes that the server has sent wait where they are; a server that asks for a status gets the next one,
    /// which comes soon enough. Ends with an error only, and nothing is lost if it is dropped.
    pub(crate) async fn idle(&mut self) -> Result<()> {
        loop {
            self.status_if_due(Answer::Unwanted);
            if !self.wire.is_sent() {
                self.wire.send().await.map_err(|error| lost(error, &self.what))?;
            }
            sleep_until(self.status_due).await;
        }
    }

    /// What the server may forget, from the next status on. Never goes back.
    ///
    /// A server that is shut down waits until all that it has sent is confirmed: a receiver with nothing left to do
    /// should confirm the [`position`](Stream::position), too.
    pub(crate) fn confirm(&mut self, lsn: Lsn) {
        self.confirmed = self.confirmed.max(lsn);
    }

    /// How far the server has sent: the end of the last commit, or what it said itself.
    pub(crate) fn position(&self) -> Lsn {
        self.position
    }

    /// Tells what is confirmed and ends the stream. On return the server has heard it, or there is an error.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.status_put(Answer::Unwanted);
        frontend::copy_done(self.wire.outgoing());
        let what = self.what.clone();
        let ending = async {
            loop {
                let frame = self.wire.frame_wait().await.map_err(|error| lost(error, &self.what))?;
                match frame.tag {
                    // Ready for another command.
                    b'Z' => break,
                    b'E' => return Err(self.refused(frame)),
                    _ => {}
                }
            }
            frontend::terminate(self.wire.outgoing());
            // It is gone before it can say that it has heard that.
            let _ = self.wire.send().await;
            Ok(())
        };
        timeout(END_MAX, ending).await.unwrap_or_else(|_| {
            let told = format!("the server has not ended the stream within {END_MAX:?}");
            Err(Error::new(ErrorKind::Unavailable, format!("cannot {what} to the end: {told}")))
        })
    }

    /// The bytes of the next change, unread.
    #[cfg(feature = "bench")]
    pub(crate) async fn next_unread(&mut self) -> Result<Bytes> {
        loop {
            if let Heard::Change(body, _) = self.heard().await? {
                return Ok(body);
            }
        }
    }

    async fn heard(&mut self) -> Result<Heard> {
        loop {
            self.status_if_due(Answer::Wanted);
            if !self.wire.is_sent() {
                // Not waited for: a server that is busy sending may hear us only when we have read on.
                self.wire.send_some().await.map_err(|error| lost(error, &self.what))?;
            }
            match self.wire.frame().map_err(|error| lost(error, &self.what))? {
                Some(frame) => {
                    if let Some(heard) = self.hear(frame)? {
                        return Ok(heard);
                    }
                }
                None => self.wait().await?,
            }
        }
    }

    /// Waits for more bytes or until a status is due.
    async fn wait(&mut self) -> Result<()> {
        tokio::select! {
            received = self.wire.receive() => received.map_err(|error| lost(error, &self.what)),
            () = sleep_until(self.status_due) => Ok(()),
        }
    }

    fn hear(&mut self, frame: Frame) -> Result<Option<Heard>> {
        match frame.tag {
            b'd' => {
                let heard = self.copied(frame.body, frame.left_out);
                heard.map(Some).ok_or_else(|| nonsense(&self.what, "a message that cannot be read"))
            }
            b'E' => Err(self.refused(frame)),
            b'N' => self.notice(frame).map(|()| None),
            b'S' => Ok(None),
            b'c' | b'C' => {
                let told =
                    format!("cannot {}: the server has ended the stream; it may be shutting down", self.what);
                Err(Error::new(ErrorKind::Unavailable, told))
            }
            tag => Err(nonsense(&self.what, &format!("{:?} in the stream", char::from(tag)))),
        }
    }

    /// What lies in a message of the stream, if it is one of the two that there are.
    fn copied(&mut self, body: Bytes, left_out: usize) -> Option<Heard> {
        let mut cursor = Cursor::new(body);
        match cursor.u8()? {
            b'w' => {
                let (_from, _end, _sent_at) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
                Some(Heard::Change(cursor.rest(), left_out))
            }
            b'k' => {
                let (end, sent_at) = (cursor.lsn()?, cursor.u64()?);
                self.clock = (sent_at, Instant::now());
                let is_asked = cursor.u8()? != 0;
                self.position = self.position.max(end);
                if is_asked {
                    self.status_put(Answer::Unwanted);
                }
                Some(Heard::Position(self.position))
            }
            _ => None,
        }
    }

    /// What a change says, if it is to be told.
    fn take(&mut self, body: Bytes, left_out: usize) -> Result<Option<Said>> {
        let kind = body.first().copied().unwrap_or_default();
        let change = match (left_out, self.block) {
            (0, None) => Change::read(body),
            (0, Some(_)) => Change::read_in_block(body),
            (_, None) => Change::read_cut(body, left_out),
            (_, Some(_)) => Change::read_cut_in_block(body, left_out),
        };
        let change = change.ok_or_else(|| {
            nonsense(&self.what, &format!("a change {:?} that cannot be read", char::from(kind)))
        })?;
        if let Some(xid) = self.block {
            return self.take_ahead(xid, change);
        }
        Ok(Some(match change {
            Change::Begin { commit_lsn, xid } => Said::Begin { commit_lsn, xid },
            Change::Commit { commit_lsn, end_lsn } => {
                self.position = self.position.max(end_lsn);
                Said::Commit { commit_lsn, end_lsn }
            }
            Change::Insert { relation, columns } => {
                Said::Insert(self.row(self.relations.get(&relation), columns)?)
            }
            Change::BlocksCommit { xid, commit_lsn, end_lsn } => {
                self.position = self.position.max(end_lsn);
                for (_, relation) in self.ahead.remove(&xid).into_iter().flatten() {
                    self.remember(relation)?;
                }
                Said::AheadCommit { xid, commit_lsn }
            }
            Change::BlocksAbort { xid, part } if xid == part => {
                self.ahead.remove(&xid);
                Said::AheadAbort { xid }
            }
            Change::BlockStart { xid } => {
                self.begin_block(xid)?;
                return Ok(None);
            }
            Change::Relation(relation) => {
                self.remember(Arc::new(relation))?;
                return Ok(None);
            }
            // Of a part that is undone some rows may have been told: a reader of the table does not find them.
            Change::BlocksAbort { .. } | Change::BlockStop | Change::Other => return Ok(None),
        }))
    }

    /// What a change of a block says. Tables are as this transaction sees them; the server tells of each to
    /// each of them.
    fn take_ahead(&mut self, xid: u32, change: Change) -> Result<Option<Said>> {
        match change {
            Change::BlockStop => self.block = None,
            Change::Relation(relation) => {
                let relations = self.ahead.entry(xid).or_default();
                relations.insert(relation.id, Arc::new(relation));
                check_count(relations.len(), &self.what)?;
            }
            Change::Insert { relation, columns } => {
                let relation = self.ahead.get(&xid).and_then(|relations| relations.get(&relation));
                return Ok(Some(Said::Ahead { xid, row: self.row(relation, columns)? }));
            }
            _ => {}
        }
        Ok(None)
    }

    fn begin_block(&mut self, xid: u32) -> Result<()> {
        self.block = Some(xid);
        self.ahead.entry(xid).or_default();
        if self.ahead.len() <= AHEAD_MAX {
            return Ok(());
        }
        let told =
            format!("more than {AHEAD_MAX} large transactions are open: raise logical_decoding_work_mem");
        Err(Error::new(ErrorKind::Unavailable, format!("cannot {}: {told}", self.what)))
    }

    fn row(&self, relation: Option<&Arc<Relation>>, columns: Columns) -> Result<Row> {
        let relation =
            relation.ok_or_else(|| nonsense(&self.what, "a row of a table that it has not told of"))?;
        if relation.columns.len() != columns.len() {
            return Err(nonsense(&self.what, "a row with more or fewer columns than its table"));
        }
        Ok(Row { relation: Arc::clone(relation), columns })
    }

    /// Takes note of a table, or of what has become of it. None may be forgotten, since the server tells of each once.
    fn remember(&mut self, relation: Arc<Relation>) -> Result<()> {
        self.relations.insert(relation.id, relation);
        check_count(self.relations.len(), &self.what)
    }

    fn refused(&self, frame: Frame) -> Error {
        match ServerSaid::read(frame.body) {
            Some(said) => said.into_error(&self.what, During::Stream),
            None => nonsense(&self.what, "half an error"),
        }
    }

    /// From release 18 on, a publication that was missing when something was written is no error: the change is left
    /// out, with a warning of this code. It would be lost.
    fn notice(&self, frame: Frame) -> Result<()> {
        let Some(said) = ServerSaid::read(frame.body) else { return Ok(()) };
        if said.code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE {
            let told = "the publication did not exist yet when this was written";
            return Err(refuse(Refusal::PublicationMissing, &self.what, told));
        }
        debug!(code = said.code.code(), "the server has given a notice");
        Ok(())
    }

    fn status_if_due(&mut self, answer: Answer) {
        let now = Instant::now();
        if self.status_due > now {
            return;
        }
        if self.wire.is_sent() {
            self.status_put(answer);
        } else {
            // One that still waits to be sent is enough: what the server does not take must not pile up here.
            self.status_due = now + self.pace.0;
        }
    }

    fn status_put(&mut self, answer: Answer) {
        let (told, heard_at) = self.clock;
        let now = told + heard_at.elapsed().as_micros() as u64;
        let out = self.wire.outgoing();
        out.put_u8(b'd');
        out.put_u32(4 + STATUS_BYTES);
        out.put_u8(b'r');
        // Received, flushed and applied. Only the second counts for a slot.
        for lsn in [self.position, self.confirmed, self.confirmed] {
            out.put_u64(lsn.0);
        }
        out.put_u64(now);
        out.put_u8(u8::from(answer == Answer::Wanted));
        self.status_due = Instant::now() + self.pace.0;
    }
}

/// Never what rows and messages say.
impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { commit_lsn, xid } => write!(f, "begin of {xid}, to commit at {commit_lsn:?}"),
            Self::Insert(row) => row.fmt(f),
            Self::Commit { commit_lsn, end_lsn } => write!(f, "commit at {commit_lsn:?}, end {end_lsn:?}"),
            Self::Position(lsn) => write!(f, "position {lsn:?}"),
            Self::Ahead { xid, row } => write!(f, "ahead of the commit of {xid}, {row:?}"),
            Self::AheadCommit { xid, commit_lsn } => write!(f, "commit of {xid} at {commit_lsn:?}"),
            Self::AheadAbort { xid } => write!(f, "{xid} undone"),
        }
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row of {}.{}: {:?}", self.relation.namespace, self.relation.name, self.columns)
    }
}

fn check_count(relations: usize, what: &str) -> Result<()> {
    if relations <= RELATIONS_MAX {
        return Ok(());
    }
    let told = format!("the publication has more than {RELATIONS_MAX} tables: publish the log's only");
    Err(Error::new(ErrorKind::Invalid, format!("cannot {what}: {told}")))
}

#[cfg(test)]
mod tests;
