//! Follows the slot of messages and stores what it tells.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::Result;
use postrider_core::log::Lsn;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tracing::debug;

use super::slot;
use super::stored::{self, Place};
use crate::options::PostgresOptions;
use crate::replication::{MessageEvent, Said, Stream};
use crate::session::Session;
use crate::store::Inner;
use crate::wal::budget::Budget;
use crate::wal::slot::Other;

/// Messages and bytes that are stored at once, give or take one.
const BATCH_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// How long a message waits for others to be stored with.
const GATHER: Duration = Duration::from_millis(1);
/// How often the follower says that it lives, and for how long that counts.
const TEND_EVERY: Duration = Duration::from_secs(2);
const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// Places that wait to be confirmed. Where there are more, the newest stands for those before it.
const UNCONFIRMED_MAX: usize = 64;

pub(super) struct Following {
    slot: String,
    prefix: String,
    budget: Budget,
    stream: Stream,
    session: Session,
    /// Up to where all that was told is stored or in the batch, apart from the transaction that is being told.
    complete: Lsn,
    /// The one that is being told: where it commits, and how many messages it had so far.
    telling: Option<(Lsn, u64)>,
    batch: Vec<Told>,
    bytes: usize,
    /// Whether something was stored that nobody was told of.
    has_news: bool,
    stored: Place,
    /// Where the log stood after a place was written, and the place.
    unconfirmed: VecDeque<(Lsn, Lsn)>,
    /// How far the log had come when the follower last said that it lives, and the time before.
    written: [Lsn; 2],
}

struct Told {
    commit: Lsn,
    n: u64,
    event: MessageEvent,
}

impl Following {
    /// Connects, and makes what is absent.
    pub(super) async fn begin(store: &Inner, other: &mut Option<Other>) -> Result<Self> {
        let slot::Ready { slot, stream, session, prefix, stored } = slot::prepare(store, other).await?;
        let options: &PostgresOptions = &store.options;
        Ok(Self {
            budget: Budget::of(options, &slot),
            slot,
            prefix,
            complete: stored.lsn.unwrap_or_default().max(stream.position()),
            stream,
            session,
            telling: None,
            batch: Vec::new(),
            bytes: 0,
            has_news: false,
            stored,
            unconfirmed: VecDeque::new(),
            written: [Lsn(u64::MAX); 2],
        })
    }

    pub(super) fn slot(&self) -> &str {
        &self.slot
    }

    /// Until the store is gone.
    pub(super) async fn run(&mut self, gone: &mut watch::Receiver<()>, store: &Weak<Inner>) -> Result<()> {
        let mut every = tokio::time::interval(TEND_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = gone.changed() => return Ok(()),
                _ = every.tick() => self.tend().await?,
                said = next(&mut self.stream, !self.batch.is_empty()) => match said? {
                    Some(said) => self.hear(said)?,
                    None => self.flush().await?,
                },
            }
            if self.batch.len() >= BATCH_MAX || self.bytes >= BATCH_BYTES_MAX {
                self.flush().await?;
            }
            if std::mem::take(&mut self.has_news) {
                let Some(store) = store.upgrade() else { return Ok(()) };
                store.wake.notify_waiters();
            }
            self.confirm();
        }
    }

    /// Says the last word, so that the next one need not hear it all again.
    pub(super) async fn end(self) {
        if let Err(error) = self.stream.end().await {
            debug!(%error, "the stream of messages has not ended well");
        }
    }

    fn hear(&mut self, said: Said) -> Result<()> {
        match said {
            Said::Begin { commit_lsn, .. } => self.telling = Some((commit_lsn, 0)),
            Said::Message { transactional: true, prefix, content, .. } if prefix == self.prefix => {
                self.take(content)?;
            }
            Said::Commit { .. } => self.telling = None,
            Said::Message { .. } | Said::Insert(_) | Said::Position(_) => {}
            // Not asked for: what a message says is nowhere else.
            Said::Ahead { .. } | Said::AheadCommit { .. } | Said::AheadAbort { .. } => {}
        }
        if self.telling.is_none() {
            self.complete = self.complete.max(self.stream.position());
        }
        Ok(())
    }

    fn take(&mut self, content: Bytes) -> Result<()> {
        let Some((commit, count)) = &mut self.telling else { return Ok(()) };
        *count += 1;
        let (commit, n) = (*commit, *count);
        if self.stored.covers(commit, n) {
            return Ok(());
        }
        let event = MessageEvent::read(content)?;
        self.bytes += event.bytes();
        self.batch.push(Told { commit, n, event });
        Ok(())
    }

    /// Stores the batch, and between its messages the events that waited for them.
    async fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let mut rest = batch.as_slice();
        while let Some(first) = rest.first() {
            let next =
                beside(&mut self.stream, stored::move_waiting(&mut self.session, first.commit)).await?;
            let count = rest.partition_point(|told| next.is_none_or(|next| told.commit < next));
            let (now, later) = rest.split_at(count);
            let place = match later.first() {
                Some(Told { commit, n, .. }) => Place { lsn: Some(*commit), part: Some((*commit, n - 1)) },
                None => self.place(),
            };
            let events: Vec<&MessageEvent> = now.iter().map(|told| &told.event).collect();
            self.store(place, &events).await?;
            rest = later;
        }
        Ok(())
    }

    /// Where the source stands when all that was told is stored.
    fn place(&self) -> Place {
        self.stored.after(self.complete, self.telling)
    }

    async fn store(&mut self, place: Place, events: &[&MessageEvent]) -> Result<()> {
        let storing = async {
            stored::store(&mut self.session, self.stored, place, events).await?;
            stored::written(&self.session).await
        };
        let written = beside(&mut self.stream, storing).await?;
        self.stored = place;
        self.has_news |= !events.is_empty();
        if let Some(lsn) = place.lsn {
            if self.unconfirmed.len() >= UNCONFIRMED_MAX {
                self.unconfirmed.pop_back();
            }
            self.unconfirmed.push_back((written, lsn));
        }
        Ok(())
    }

    /// See rule 2 at the head of `message.rs`.
    fn confirm(&mut self) {
        while let Some((_, lsn)) =
            self.unconfirmed.pop_front_if(|(written, _)| *written <= self.stream.position())
        {
            self.stream.confirm(lsn);
        }
    }

    /// Writes down how far the stream has come, moves what has waited for that, and says that somebody is there, unless the
    /// stream lags or the slot keeps too much.
    async fn tend(&mut self) -> Result<()> {
        self.flush().await?;
        let place = self.place();
        if place != self.stored {
            self.store(place, &[]).await?;
        }
        let (complete, lags) = (self.complete, self.complete < self.written[1]);
        let tending = async {
            stored::move_waiting(&mut self.session, complete).await?;
            let over = self.budget.look(&self.session).await?;
            let during = (!lags && over.is_none()).then_some(ALLOWED_FOR);
            stored::allow(&mut self.session, during).await?;
            stored::written(&self.session).await
        };
        let written = beside(&mut self.stream, tending).await?;
        self.written = [written, if self.written[0] == Lsn(u64::MAX) { written } else { self.written[0] }];
        Ok(())
    }
}

/// Stores all messages there are, and all that waits; for whoever ends the source. Nobody may write any by then.
pub(in crate::wal) async fn drain(store: &Inner, max: Duration) -> Result<()> {
    let mut following = Following::begin(store, &mut None).await?;
    // A commit that is waited for, behind all others: the stream comes there even if nobody writes on.
    let target = stored::written(&following.session).await?;
    following.store(following.stored, &[]).await?;
    let until = Instant::now() + max;
    while following.complete < target {
        let Ok(said) = tokio::time::timeout_at(until, following.stream.next()).await else {
            return Err(slot::too_slow(max));
        };
        following.hear(said?)?;
        if following.batch.len() >= BATCH_MAX || following.bytes >= BATCH_BYTES_MAX {
            following.flush().await?;
        }
    }
    following.flush().await?;
    following.store(following.place(), &[]).await?;
    stored::move_waiting(&mut following.session, Lsn(u64::MAX)).await?;
    following.stream.confirm(following.complete);
    following.end().await;
    Ok(())
}

/// What the stream says next; nothing if there is something to be stored and it says nothing for a while. Cancel safe.
async fn next(stream: &mut Stream, hurries: bool) -> Result<Option<Said>> {
    if !hurries {
        return stream.next().await.map(Some);
    }
    match timeout(GATHER, stream.next()).await {
        Ok(said) => said.map(Some),
        Err(_) => Ok(None),
    }
}

/// Does something while the server hears that we live.
async fn beside<T>(stream: &mut Stream, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        ended = stream.idle() => Err(ended.expect_err("it ends with an error only")),
    }
}
