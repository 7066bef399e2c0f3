//! Follows a slot, for as long as anybody holds shards.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use postrider_core::log::{LogRow, Lsn, Probe, Xid};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;
use tracing::debug;

use super::budget::Budget;
use super::event::EventReader;
use super::inbox::{Decoded, TRANSACTION_BYTES_MAX, TRANSACTION_ROWS_MAX};
use super::slot::{self, Other, Ready};
use super::switch::save;
use super::{Reading, Shared};
use crate::error::Doing;
use crate::log::probe::probe_for;
use crate::options::OverBudget;
use crate::replication::{Refusal, Replication, Said, Stream, refusal};
use crate::server::session::Session;
use crate::store::Inner;

/// Waits between two attempts.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is found out what may be confirmed.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);
/// How often the follower checks whether transactions that no reader takes have waited for too long.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(100);

/// Until the store is gone.
pub(super) async fn run(store: Weak<Inner>, shared: Arc<Shared>, mut gone: watch::Receiver<()>) {
    let mut wait = WAIT_MIN;
    let (mut other, mut unsaved) = (None, 0);
    loop {
        while !is_wanted(&store) {
            tokio::select! {
                _ = gone.changed() => return,
                () = shared.wanted.notified() => {}
            }
        }
        let ended = follow(&store, &shared, &mut other, &mut unsaved, &mut gone).await;
        let was_followed = shared.inbox().is_followed();
        shared.inbox().end();
        shared.news.notify_waiters();
        match ended {
            Ok(Ended::StoreGone) => return,
            Ok(Ended::NobodyReads | Ended::OverBudget(_)) => {
                *shared.reading() = Reading::Without { why: "nobody reads".to_owned() };
                continue;
            }
            Err(error) => {
                let is_in_use = refusal(&error) == Some(Refusal::SlotInUse);
                let now = Reading::Without { why: error.to_string() };
                // Those who wait for their turn are no news.
                if shared.now_reading(now.clone())
                    && !is_in_use
                    && let Some(inner) = store.upgrade()
                {
                    unsaved += 1;
                    save(&inner, &now, &mut unsaved).await;
                }
            }
        }
        wait = if was_followed { WAIT_MIN } else { (wait * 2).min(WAIT_MAX) };
        tokio::select! {
            _ = gone.changed() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Whether any reader would go by the stream. Feeders of queues read the table, and a slot without a follower
/// only keeps the server from removing its log.
fn is_wanted(store: &Weak<Inner>) -> bool {
    store.upgrade().is_some_and(|store| !store.holdings.all_feed())
}

enum Ended {
    StoreGone,
    NobodyReads,
    /// The server keeps too much for the slot. What becomes of it is decided before it is followed again.
    OverBudget(String),
}

/// From the connection to its end.
async fn follow(
    store: &Weak<Inner>,
    shared: &Shared,
    other: &mut Option<Other>,
    unsaved: &mut i64,
    gone: &mut watch::Receiver<()>,
) -> Result<Ended> {
    let Some(inner) = store.upgrade() else { return Ok(Ended::StoreGone) };
    let mut replication = Replication::connect(&inner.options).await?;
    let Ready { slot, publication, must_see } = slot::prepare(&inner, &mut replication, other).await?;
    let stream = replication.start_with(&slot, &publication, Lsn::default(), inner.options.large).await;
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return Err(slot::explained(&slot, error)),
    };
    let budget = Budget::of(&inner.options, &slot);
    shared.standbys.store(standbys(&*inner.reader.session().await?).await?, Ordering::Relaxed);
    let new = must_see.as_ref().map(|_| slot.clone());
    shared.inbox().begin(must_see);
    let now = Reading::Stream { slot: slot.clone() };
    if shared.now_reading(now.clone()) {
        *unsaved += 1;
        save(&inner, &now, unsaved).await;
    }
    drop(inner);
    let mut following = Following {
        store,
        shared,
        stream,
        transaction: None,
        ahead: HashMap::new(),
        xid: 0,
        events: EventReader::default(),
        new,
        budget: Some(budget),
    };
    let ended = match following.run(gone).await {
        Ok(Ended::OverBudget(over)) => {
            let _ = following.stream.end().await;
            return Err(Error::new(ErrorKind::Unavailable, over));
        }
        Ok(ended) => ended,
        Err(error) => {
            if let Some(inner) = store.upgrade() {
                slot::give_up(&inner, &slot, &error).await?;
            }
            return Err(error);
        }
    };
    // What was confirmed is told once more, so that the next one need not hear it again.
    if let Err(error) = following.stream.end().await {
        debug!(%error, "the stream has not ended well");
    }
    Ok(ended)
}

struct Following<'a> {
    store: &'a Weak<Inner>,
    shared: &'a Shared,
    stream: Stream,
    /// The one that is being told.
    transaction: Option<Decoded>,
    /// Those that are told ahead and hold events, by the low halves of their numbers.
    ahead: HashMap<u32, Xid>,
    /// The low half of its number.
    xid: u32,
    events: EventReader,
    /// The slot, if it is new and the table was not read up to where it begins.
    new: Option<String>,
    /// None while a look is under way.
    budget: Option<Budget>,
}

/// What is visible, how far everything had been decoded before, and what to say if the server keeps too much
/// for the slot.
struct Looked {
    probe: Probe,
    position: Lsn,
    budget: Option<Budget>,
    over: Option<String>,
}

type Looking = Pin<Box<dyn Future<Output = Result<Looked>> + Send>>;

impl Following<'_> {
    async fn run(&mut self, gone: &mut watch::Receiver<()>) -> Result<Ended> {
        let mut every = tokio::time::interval(CONFIRM_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looking: Option<Looking> = None;
        loop {
            if self.shared.inbox().is_stale() {
                return Err(Error::new(ErrorKind::Unavailable, "the server was connected to anew"));
            }
            // Within a transaction it is read on, whatever its size: what is too much is not kept.
            let has_room = self.transaction.is_some() || self.shared.inbox().has_room();
            tokio::select! {
                _ = gone.changed() => return Ok(Ended::StoreGone),
                _ = every.tick(), if looking.is_none() => match self.look() {
                    Some(begun) => looking = Some(begun),
                    None => return Ok(Ended::StoreGone),
                },
                looked = optional(&mut looking) => {
                    looking = None;
                    if let Some(over) = self.looked(looked?) {
                        return Ok(Ended::OverBudget(over));
                    }
                    if !is_wanted(self.store) {
                        return Ok(Ended::NobodyReads);
                    }
                }
                said = listen(&mut self.stream, has_room, &self.shared.room) => {
                    if let Some(said) = said? {
                        self.hear(said)?;
                        // Millions of rows may be there already: others of this thread get their turn between them.
                        tokio::task::consume_budget().await;
                    }
                }
            }
        }
    }

    /// None if the store is gone.
    fn look(&mut self) -> Option<Looking> {
        let store = self.store.upgrade()?;
        let new = if self.shared.inbox().is_followed() { self.new.take() } else { None };
        // Transactions that are told later are not counted as decoded.
        let position = self.stream.position();
        let mut budget = self.budget.take();
        let has_standbys = Arc::clone(&self.shared.standbys);
        let look = async move {
            let session = store.reader.session().await?;
            // Before anything that may itself have to wait for one.
            has_standbys.store(standbys(&session).await?, Ordering::Relaxed);
            if let Some(new) = new {
                slot::was_read(&store, &new).await?;
            }
            let (probe, _) = probe_for(&session, SubscriptionId(0)).await?;
            let over = match &mut budget {
                Some(budget) => budget.look(&session).await?,
                None => None,
            };
            Ok(Looked { probe, position, budget, over })
        };
        Some(Box::pin(look))
    }

    /// Confirms what can be; says so if the slot is to be left.
    fn looked(&mut self, looked: Looked) -> Option<String> {
        let Looked { probe, position, budget, over } = looked;
        let is_left = budget.as_ref().is_some_and(|budget| budget.over != OverBudget::Alarm);
        self.budget = budget;
        self.confirm(&probe, position);
        over.filter(|_| is_left)
    }

    fn confirm(&mut self, probe: &Probe, position: Lsn) {
        if self.new.is_some() {
            // Where it begins is what its snapshot belongs to.
            return;
        }
        let confirmed = self.shared.inbox().confirmable(position, &probe.snapshot);
        self.stream.confirm(confirmed);
    }

    fn hear(&mut self, said: Said) -> Result<()> {
        match said {
            Said::Begin { commit_lsn, xid } => {
                self.xid = xid;
                self.transaction =
                    Some(Decoded { xid: Xid::FIRST, commit: commit_lsn, rows: Some(Vec::new()), bytes: 0 });
            }
            Said::Insert(row) => {
                let row = self.events.read(&row)?;
                let transaction = self.transaction.as_mut().ok_or_else(out_of_turn)?;
                // Rows that were copied from elsewhere say who wrote them there: they are as old as that, to
                // all who read.
                if row.xid.0 as u32 == self.xid {
                    keep(transaction, row);
                }
            }
            Said::Commit { .. } => {
                let transaction = self.transaction.take().ok_or_else(out_of_turn)?;
                if transaction.bytes > 0 || transaction.rows.as_ref().is_none_or(|rows| !rows.is_empty()) {
                    self.shared.inbox().put(transaction);
                    self.shared.news.notify_waiters();
                }
            }
            // They are large: all that is kept of them is that they have to be read from the table.
            Said::Ahead { xid, row } => {
                if !self.ahead.contains_key(&xid) {
                    let row = self.events.read(&row)?;
                    if row.xid.0 as u32 == xid {
                        self.ahead.insert(xid, row.xid);
                    }
                }
            }
            Said::AheadCommit { xid, commit_lsn } => {
                if let Some(xid) = self.ahead.remove(&xid) {
                    self.shared.inbox().put(Decoded { xid, commit: commit_lsn, rows: None, bytes: 0 });
                    self.shared.news.notify_waiters();
                }
            }
            Said::AheadAbort { xid } => {
                self.ahead.remove(&xid);
            }
            Said::Position(_) => {}
        }
        if self.transaction.is_none() {
            self.shared.inbox().come_to(self.stream.position());
        }
        Ok(())
    }
}

/// What the stream says next; nothing if there was no room for it, and there may be by now. Cancel safe.
async fn listen(stream: &mut Stream, has_room: bool, room: &Notify) -> Result<Option<Said>> {
    if has_room {
        return stream.next().await.map(Some);
    }
    tokio::select! {
        ended = stream.idle() => ended.map(|()| None),
        () = room.notified() => Ok(None),
        () = tokio::time::sleep(LOOK_FOR_ROOM_EVERY) => Ok(None),
    }
}

fn keep(transaction: &mut Decoded, row: LogRow) {
    transaction.xid = row.xid;
    let Some(rows) = &mut transaction.rows else { return };
    transaction.bytes += row.event.bytes();
    rows.push(row);
    if rows.len() > TRANSACTION_ROWS_MAX || transaction.bytes > TRANSACTION_BYTES_MAX {
        (transaction.rows, transaction.bytes) = (None, 0);
    }
}

/// Whether commits wait for standbys.
async fn standbys(session: &Session) -> Result<bool> {
    let what = "ask whether commits wait for standbys";
    let rows = session.query(sql!("wal/standby_waits"), &[], what).await?;
    rows[0].try_get(0).doing(what)
}

async fn optional(looking: &mut Option<Looking>) -> Result<Looked> {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

fn out_of_turn() -> Error {
    Error::new(ErrorKind::Internal, "the stream tells of a row outside of any transaction")
}
