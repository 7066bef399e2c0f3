//! The log as the server's write-ahead log tells it: transactions arrive when they commit, without a
//! query.
//!
//! ```text
//!   slot ══ stream ══► follow ──► inbox ──► fetch: a window without a question to the server
//!                        │          │ nobody takes: discarded, and read from the table
//!                        ▼          ▼
//!              confirmed: all that everybody can see by now in the table
//! ```
//!
//! Why both can take turns is proved in `postrider_core::log`. Nothing depends on the stream: a reader of
//! the log reads the table whenever there is none, when it lags, and once a second anyway. So the slot is
//! never held by a subscription that is slow, paused or gone, and one that is lost costs latency only.
//!
//! The stream tells of a commit as soon as that is on the server's own disk. Where commits wait for standbys
//! as well, no session can see it yet, and it may never come to be if the server ends now and a standby takes
//! over. There only visible transactions are taken, which costs a look at the snapshot for each window.
//! The server itself can do the same (`synchronized_standby_slots`, from release 17 on) at no cost here, but
//! its operator may not have set it.

mod budget;
pub(crate) mod event;
mod follow;
mod inbox;
mod remove;
mod slot;
mod switch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use postrider_core::log::{LogRow, Lsn, Snapshot, Xid};
use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::options::Source;
use crate::server::statement::WalPlace;
use crate::store::Inner;
use inbox::Inbox;

pub(crate) use budget::slots;
pub(crate) use remove::source_drop;
pub(crate) use switch::{Switches, switches};

/// Longest silence between two looks at the table. It finds what a stream that has died unnoticed does not tell.
pub(crate) const TABLE_EVERY: Duration = Duration::from_secs(1);

/// Refuses a source that follows the write-ahead log of a server that does not tell how far that has come.
pub(crate) fn source_check(source: Source, wal: WalPlace) -> Result<()> {
    if source == Source::Poll || wal == WalPlace::Told {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Incompatible,
        "source `wal` cannot be used: this server does not tell how far its write-ahead log has come. On Amazon RDS and \
         Aurora set the parameter `rds.logical_replication` to 1 and restart it, elsewhere let this role execute \
         `pg_current_wal_insert_lsn` and `pg_current_wal_flush_lsn`; or use source `poll`",
    ))
}

/// Where the log is read at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// In its table: nothing else is wanted.
    Table,
    /// In the write-ahead log, through this slot.
    Stream {
        /// Its name.
        slot: String,
    },
    /// In its table, because of this.
    Without {
        /// Why, and what to do about it.
        why: String,
    },
}

/// What a stream has for a reader at the newest tick.
#[derive(Debug)]
pub(crate) enum Found {
    /// The table has to be read: there is no stream, it lags, or it is time to.
    InTable,
    Nothing,
    /// Something waits for standbys.
    Soon,
    /// Transactions that the tick has not seen, with all their rows in the order of ids.
    Transactions {
        xids: Vec<Xid>,
        rows: Vec<LogRow>,
    },
}

/// The stream of a process, as those see it who read the log.
pub(crate) struct Wal {
    shared: Arc<Shared>,
    /// Dropped, it ends the task that follows the stream.
    _alive: watch::Sender<()>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    reading: Mutex<Reading>,
    switches: AtomicU64,
    /// Whether commits wait for standbys, as of a second ago.
    standbys: Arc<AtomicBool>,
    /// Something has arrived.
    news: Notify,
    /// Something was taken.
    room: Notify,
    /// A relay wants to read.
    wanted: Notify,
}

impl Wal {
    /// Begins to follow the slot of a store, as soon as this process holds shards.
    pub(crate) fn begin(store: &Weak<Inner>) -> Self {
        let shared = Arc::new(Shared {
            inbox: Mutex::new(Inbox::new()),
            reading: Mutex::new(Reading::Without { why: "the stream has not begun".to_owned() }),
            switches: AtomicU64::new(0),
            standbys: Arc::new(AtomicBool::new(true)),
            news: Notify::new(),
            room: Notify::new(),
            wanted: Notify::new(),
        });
        let (alive, gone) = watch::channel(());
        tokio::spawn(follow::run(Weak::clone(store), Arc::clone(&shared), gone));
        Self { shared, _alive: alive }
    }

    /// This process holds shards.
    pub(crate) fn want(&self) {
        self.shared.wanted.notify_one();
    }

    /// A reader looks.
    pub(crate) fn look(&self) {
        self.shared.inbox().look();
    }

    /// Whether something has arrived of which only what is visible may be taken.
    pub(crate) fn waits_for_standbys(&self) -> bool {
        self.shared.standbys.load(Ordering::Relaxed) && self.shared.inbox().is_waiting()
    }

    /// What has arrived that `newest` has not seen; up to the first that is not `visible`, if that is asked for.
    pub(crate) fn take(&self, newest: &Snapshot, visible: Option<&Snapshot>) -> Found {
        let found = self.shared.inbox().take(newest, visible);
        if matches!(found, Found::Transactions { .. }) {
            self.shared.room.notify_one();
        }
        found
    }

    /// The table is about to be read. The answer goes to [`Self::was_read`].
    pub(crate) fn before_read(&self) -> u64 {
        self.shared.inbox().generation()
    }

    /// The table was read up to a tick that sees this, when the log had been written up to `written`; once
    /// the stream has come there, it may be followed.
    pub(crate) fn was_read(&self, before: u64, to: &Snapshot, written: Lsn) {
        self.shared.inbox().was_read(before, to, written);
    }

    /// The table is read on another connection, and all that was known is forgotten.
    pub(crate) fn doubt(&self) {
        self.shared.inbox().doubt();
    }

    /// Waits until something is there that no reader has looked at or heard of. Cancel safe.
    pub(crate) async fn news(&self) {
        let news = self.shared.news.notified();
        if self.shared.inbox().is_news() {
            return;
        }
        news.await;
    }

    pub(crate) fn reading(&self) -> Reading {
        self.shared.reading().clone()
    }

    /// How often the source has changed.
    pub(crate) fn switches(&self) -> u64 {
        self.shared.switches.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of where the log is read from now on, and tells people if that is new. Whether it is.
    fn now_reading(&self, now: Reading) -> bool {
        let before = std::mem::replace(&mut *self.reading(), now.clone());
        if before == now {
            return false;
        }
        self.switches.fetch_add(1, Ordering::Relaxed);
        match now {
            Reading::Stream { slot } => info!(slot, "events come from the write-ahead log now"),
            Reading::Without { why } => warn!("events are read from the table for now: {why}"),
            Reading::Table => info!("events are read from the table now"),
        }
        true
    }
}
