//! Waiting for producers instead of asking for their events: who may sleep, and why nothing is slept through.
//!
//! `NOTIFY` in every commit is out of the question: such commits wait for each other, which cut sixteen
//! producers from 8,100 events a second to 3,000. So producers notify only while a relay sleeps, and an
//! advisory lock says whether one does:
//!
//! ```text
//!   producer, after each statement that emits          relay at rest, on a connection of its own that listens
//!     lock, shared, until the end of its transaction     lock, alone
//!       got it ──► nothing                                 got it ──► sentry: look once more, sleep
//!       not    ──► notify when it commits                  not    ──► lock, shared, for a moment
//!                                                            not    ──► guarded: look once more, sleep
//!   sentry, when it is notified                              got it ──► an emit is under way: poll on
//!     give the lock back, then notify `open`
//! ```
//!
//! # Why nothing is slept through
//!
//! Take an event that the last look of a sleeper did not see. Its transaction T is committed after that look,
//! so after the sentry, the sleeper itself or the one that guards it, got the lock. After the statement that
//! wrote the event, T asked for the lock.
//!
//! - *T got it before the sentry did.* T keeps it until it ends, and the server makes a commit visible before
//!   it releases locks. So the sentry got the lock after T's end: the look would have seen the event.
//! - *T did not get it.* T notifies when it commits, whichever session held the lock then. The sleeper has
//!   listened since before the look, so it hears that.
//! - *T got it after the sentry did.* Then the sentry had given it back or has died. A sentry gives it back
//!   because it was notified, which ends its own sleep, and says `open` afterwards, which ends the sleep of
//!   those it guarded. If it has died, its own sleep is over anyway, and those it guarded sleep on until
//!   their longest rest is over: a lost wake.
//!
//! It holds for savepoints: what is rolled back takes the lock, the notification and the event with it, and
//! the next statement that emits asks again. It holds for transactions that were prepared, which keep the
//! lock until they end. A producer that notified and then rolls back sends nothing, and everybody sleeps on
//! under the same lock.
//!
//! A sleeper takes a number before it asks and sleeps only until that number changes, so that what arrives
//! between the server's answer and the sleep counts. The test `wake_protocol` tries every interleaving, and
//! fails for each of the shortcuts.
//!
//! # What it costs
//!
//! While no relay sleeps, 3 µs a statement. Each sleep ends with one notification, and one `open`. A sentry
//! whose process is stopped would make every commit notify; the server ends its session after four longest
//! rests.
//!
//! Behind a pooler that gives each transaction another connection, no relay would hear a notification, and a
//! lock would be left behind: there the store is polled. For poolers that are not noticed as such, a new
//! connection first has to hear a word that another one has sent.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use postrider_core::store::Watch;
use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::{Mutex, watch};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row};
use tracing::{debug, info, warn};

use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::server::connect::{Connection, connect_told};
use crate::server::settings::PATH_OPTION;
use crate::server::statement::Sql;
use crate::store::Inner;

/// What a sentry says when it has given the lock back.
const OPEN: &str = "open";
/// How long it waits with that. A commit that notifies is written and flushed, and until then a reader would not know
/// whether the event that has woken everybody is on disk: at once, it cost the first event a flush more.
const OPEN_AFTER: Duration = Duration::from_millis(20);
/// The word by which a new connection is tried.
const TRIAL: &str = "trial";
/// How long that word may take.
const TRIAL_WITHIN: Duration = Duration::from_secs(5);
/// How soon a lost connection is made again: at first, and after many failures.
const AGAIN_MIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// After how many longest rests the server ends the session of a sentry that is silent.
const SILENT_RESTS: u32 = 4;
/// How often to look whether people have changed how relays are woken.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often to try again whether notifications arrive.
const TRY_EVERY: Duration = Duration::from_secs(600);

/// Keeps watch for all readers of this process.
#[derive(Default)]
pub(crate) struct Sentry {
    post: Mutex<Post>,
}

#[derive(Default)]
struct Post {
    line: Option<Arc<Line>>,
    /// Not to be tried before.
    again_at: Option<Instant>,
    again_wait: Duration,
    /// What people were told last.
    said: Option<Said>,
}

/// How readers at rest learn of new events, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Notify,
    /// People have not asked for more.
    Poll,
    /// What is sent does not arrive.
    Deaf,
    /// The connection is lost.
    Lost,
}

/// What the lock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Sentry,
    Guarded,
    /// An emit is under way.
    Open,
    /// No producer would notify.
    Absent,
}

/// Whether this process holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Off,
    /// A statement was sent, and its caller did not wait for the answer.
    Unsure,
    /// Since this many wakes.
    On(u64),
}

/// A connection that listens.
struct Line {
    client: Client,
    options: Arc<PostgresOptions>,
    guard: Mutex<Guard>,
    heard: watch::Sender<Heard>,
}

/// How often something has arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Heard {
    wakes: u64,
    opens: u64,
    trials: u64,
    ended: bool,
}

impl Sentry {
    /// Keeps watch, if that is possible now.
    pub(crate) async fn watch(&self, store: &Inner) -> Option<Watch> {
        let mut post = self.post.lock().await;
        if post.again_at.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        match post.watch(store).await {
            Ok(watch) => watch,
            Err(error) => {
                post.fail(store, &error);
                None
            }
        }
    }

    /// Lets others stand sentry, before this process ends.
    pub(crate) async fn leave(&self) {
        let Some(line) = self.post.lock().await.line.clone() else { return };
        let mut guard = line.guard.lock().await;
        if let Err(error) = line.disarm_aloud(&mut guard).await {
            debug!(%error, "could not give the lock of wakes back; the server will");
        }
        // Sleepers in this process have relied on it too.
        line.heard.send_modify(|heard| heard.wakes += 1);
    }
}

impl Post {
    async fn watch(&mut self, store: &Inner) -> Result<Option<Watch>> {
        let line = match self.line.clone() {
            Some(line) if line.client.is_closed() => return Err(lost()),
            Some(line) => line,
            None if !is_wanted(store).await? => return Ok(self.poll(Said::Poll, store)),
            // Not even tried: what a lent session listens for, it would go on to hear for others.
            None if store.way.is_pooled() => return Ok(self.poll(Said::Deaf, store)),
            None => match Line::connect(store).await? {
                Some(line) => line,
                None => return Ok(self.poll(Said::Deaf, store)),
            },
        };
        self.line = Some(Arc::clone(&line));
        self.again_wait = Duration::ZERO;
        let (found, watch) = line.watch().await?;
        match found {
            Found::Sentry | Found::Guarded => {
                self.say(Said::Notify, store);
                Ok(Some(watch))
            }
            Found::Open => Ok(None),
            Found::Absent => Ok(self.poll(Said::Poll, store)),
        }
    }

    /// No watch for a while, and no connection that has no use.
    fn poll(&mut self, why: Said, store: &Inner) -> Option<Watch> {
        self.line = None;
        let again = if why == Said::Deaf { TRY_EVERY } else { LOOK_EVERY };
        self.again_at = Some(Instant::now() + again);
        self.say(why, store);
        None
    }

    fn fail(&mut self, store: &Inner, error: &Error) {
        self.line = None;
        self.again_wait = (self.again_wait * 2).clamp(AGAIN_MIN, AGAIN_MAX);
        self.again_at = Some(Instant::now() + self.again_wait);
        debug!(%error, "nobody keeps watch");
        self.say(Said::Lost, store);
    }

    /// Tells people, once.
    fn say(&mut self, now: Said, store: &Inner) {
        if self.said.replace(now) == Some(now) {
            return;
        }
        match now {
            Said::Notify | Said::Poll => {
                info!(store = %store.options, wake = %now, "how this relay is woken");
            }
            Said::Deaf | Said::Lost => warn!(store = %store.options, wake = %now, "how this relay is woken"),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notify => "notify",
            Self::Poll => "poll",
            Self::Deaf => {
                "poll: notifications do not arrive, as behind a pooler by transactions; connect to the server itself"
            }
            Self::Lost => "poll, until the connection for notifications is made again",
        })
    }
}

/// Whether people have asked for it. No connection is made where they have not.
async fn is_wanted(store: &Inner) -> Result<bool> {
    let what = "ask how relays are woken";
    let rows = store.reader.session().await?.query(sql!("wake/wake_look"), &[], what).await?;
    rows.first().map_or(Ok(false), |row| row.try_get(0)).doing(what)
}

impl Line {
    /// Connects and listens; none if what is sent does not arrive.
    async fn connect(store: &Inner) -> Result<Option<Arc<Self>>> {
        let options = &store.options;
        let connecting = connect_told(options, "postrider/sentry", PATH_OPTION);
        let connecting = tokio::time::timeout(options.call_timeout, connecting);
        // A pooler that takes no settings would pass no notifications on either.
        let Some((client, connection)) = connecting.await.map_err(|_| lost())?? else { return Ok(None) };
        let (heard, mut hears) = watch::channel(Heard::default());
        let line =
            Arc::new(Self { client, options: Arc::clone(options), guard: Mutex::new(Guard::Off), heard });
        tokio::spawn(serve(connection, Arc::downgrade(&line)));
        line.listen().await?;
        // Only what arrives while nothing of ours is under way has found its way by itself.
        let before = *hears.borrow_and_update();
        store.sentry_trial().await?;
        let arrived = hears.wait_for(|heard| heard.trials > before.trials || heard.ended);
        match tokio::time::timeout(TRIAL_WITHIN, arrived).await {
            Ok(Ok(heard)) if !heard.ended => {}
            Ok(_) => return Err(lost()),
            Err(_) => return Ok(None),
        }
        Ok(Some(line))
    }

    async fn listen(&self) -> Result<()> {
        let what = "listen for wakes";
        let rows = self.run(sql!("wake/wake_channel"), &[], what).await?;
        let channel: &str = rows.first().ok_or_else(lost)?.try_get(0).doing(what)?;
        // A session that listens is idle by nature, whatever the database's default.
        let listen = format!("set idle_session_timeout = 0; listen {channel}");
        self.bounded(what, self.client.batch_execute(&listen)).await
    }

    /// Asks for the lock, or shows that its holder lives. The watch counts from before the answer.
    async fn watch(&self) -> Result<(Found, Watch)> {
        let mut guard = self.guard.lock().await;
        let mut hears = self.heard.subscribe();
        let before = *hears.borrow();
        let found = if *guard == Guard::On(before.wakes) {
            self.run(sql!("wake/wake_keep"), &[], "keep watch").await?;
            Found::Sentry
        } else {
            self.disarm_aloud(&mut guard).await?;
            *guard = Guard::Unsure;
            let found = self.arm().await?;
            *guard = if found == Found::Sentry { Guard::On(before.wakes) } else { Guard::Off };
            found
        };
        let watch = Box::pin(async move {
            // What another sentry says is of no account to one who holds the lock.
            let is_over = |heard: &Heard| {
                let opened = found == Found::Guarded && heard.opens != before.opens;
                heard.ended || heard.wakes != before.wakes || opened
            };
            // If the line that hears is gone, the watch is over too.
            let _ = hears.wait_for(is_over).await;
        });
        Ok((found, watch))
    }

    async fn arm(&self) -> Result<Found> {
        let what = "stand sentry";
        let silent_max = format!("{}ms", (self.options.rest_max * SILENT_RESTS).as_millis());
        let rows = self.run(sql!("wake/wake_arm"), &[&silent_max], what).await?;
        match rows.first().ok_or_else(lost)?.try_get(0).doing(what)? {
            "sentry" => Ok(Found::Sentry),
            "guarded" => Ok(Found::Guarded),
            "open" => Ok(Found::Open),
            _ => Ok(Found::Absent),
        }
    }

    /// Gives the lock back, if it may be held; says whether it may have been.
    async fn disarm(&self, guard: &mut Guard) -> Result<bool> {
        if *guard == Guard::Off {
            return Ok(false);
        }
        *guard = Guard::Unsure;
        self.run(sql!("wake/wake_disarm"), &[], "give the lock of wakes back").await?;
        *guard = Guard::Off;
        Ok(true)
    }

    /// The same, and tells those who relied on it.
    async fn disarm_aloud(&self, guard: &mut Guard) -> Result<()> {
        if self.disarm(guard).await? {
            self.say_open().await?;
        }
        Ok(())
    }

    async fn say_open(&self) -> Result<()> {
        self.run(sql!("wake/wake_say"), &[OPEN], "say that nobody keeps watch").await.map(drop)
    }

    /// Runs a statement in one piece, which passes through any pooler.
    async fn run(&self, sql: Sql, words: &[&str], what: &str) -> Result<Vec<Row>> {
        let text = sql.text(&self.options.schema);
        let words: Vec<_> = words.iter().map(|word| (word as &(dyn ToSql + Sync), Type::TEXT)).collect();
        self.bounded(what, self.client.query_typed(&text, &words)).await
    }

    /// A line on which something took too long is given up, and with it the lock.
    async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.options.call_timeout, call).await {
            Ok(answer) => answer.doing(what),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("cannot {what}: no answer"))),
        }
    }
}

/// Moves a connection's bytes until it ends, and gives the lock back whenever a sleeper is woken: at once,
/// because from then on every commit of a producer would notify for nothing. Readers are woken first.
async fn serve(connection: Connection, line: Weak<Line>) {
    let Some(hears) = line.upgrade().map(|line| line.heard.subscribe()) else { return };
    tokio::select! {
        () = hear(connection, &line) => {}
        () = stand_down(hears, &line) => {}
    }
    if let Some(line) = line.upgrade() {
        line.heard.send_modify(|heard| heard.ended = true);
    }
}

async fn hear(mut connection: Connection, line: &Weak<Line>) {
    let mut messages = poll_fn(|context| connection.poll_message(context));
    while let Some(Ok(message)) = messages.next().await {
        let (AsyncMessage::Notification(told), Some(line)) = (message, line.upgrade()) else { continue };
        line.heard.send_modify(|heard| match told.payload() {
            OPEN => heard.opens += 1,
            TRIAL => heard.trials += 1,
            _ => heard.wakes += 1,
        });
    }
}

/// Ends if the lock cannot be given back: it goes with the connection then.
async fn stand_down(mut hears: watch::Receiver<Heard>, line: &Weak<Line>) {
    while hears.changed().await.is_ok() {
        let Some(line) = line.upgrade() else { return };
        let disarmed = {
            let mut guard = line.guard.lock().await;
            let wakes = hears.borrow_and_update().wakes;
            if *guard == Guard::On(wakes) { Ok(false) } else { line.disarm(&mut guard).await }
        };
        match disarmed {
            Ok(false) => {}
            Ok(true) => {
                tokio::time::sleep(OPEN_AFTER).await;
                if line.say_open().await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

impl Inner {
    /// Sends a word to all that listen, by another connection than theirs.
    async fn sentry_trial(&self) -> Result<()> {
        let what = "try whether notifications arrive";
        let mut session = self.operator.session().await?;
        let tx = session.begin().await?;
        tx.query(sql!("wake/wake_say"), &[&TRIAL], what).await?;
        tx.commit(what).await
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection for notifications was lost")
}
