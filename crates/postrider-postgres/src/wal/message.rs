//! Events that were emitted without a row: `postrider.emit_message` writes a message into the write-ahead log, and whoever follows
//! the slot of messages writes it into the log of events, a thousand at a time.
//!
//! ```text
//!   emit_message ──► message ══ slot ══► follower ──► rows of `event`, and how far that is, in one transaction
//!        │ nobody has said lately that there is a follower           ▲
//!        └─────────────► `waiting_event`, by their place ──────────┘
//! ```
//!
//! From there on they are events as all others, for every subscription, mode and source. So nothing below the follower knows of
//! messages, and what it has to get right is one thing: that each becomes a row once, in its order.
//!
//! # Why none is lost or repeated
//!
//! 1. *Rows and place are one transaction.* It names the place that the follower knows, and does nothing if that is not the place any
//!    more: of two who believe to follow the slot one succeeds. What committed below the place is passed over when it is told
//!    again. A transaction of millions is stored in parts: the place counts how many of its messages are.
//! 2. *The slot is confirmed behind the place,* and only once the stream has come to where that was written. A standby has the slot as
//!    far as its own log reaches (`synchronized_standby_slots`), and then it has the rows as well.
//! 3. *Messages are written only while there is a follower.* It says so every other second, for ten; the word is a sequence, which
//!    all see as it is, whatever their snapshot. Otherwise events are rows of `waiting_event`. They have the place of the log
//!    where they were written: the messages that committed below come first, those above after. The owner of a key emits while
//!    it holds the key's lock, so that its earlier message has committed below that place, and its later one above; and what
//!    it wrote before a message is visible to whoever has been told of the message.
//!
//! What remains is the slot: who drops it, or lets it exceed the server's `max_slot_wal_keep_size`, takes the messages that were not
//! stored with it. Then the audit says from which place on. Nothing else loses any.

mod follow;
mod slot;
mod stored;

use std::sync::Weak;
use std::time::Duration;

use postrider_core::Result;
use tokio::sync::watch;
use tracing::{info, warn};

use super::slot::Other;
use crate::store::Inner;

pub(super) use follow::drain;
pub(super) use slot::{SUFFIX, missed};

/// Waits between two attempts.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Until the store is gone.
pub(super) async fn run(store: Weak<Inner>, mut gone: watch::Receiver<()>) {
    let (mut wait, mut other, mut told) = (WAIT_MIN, None, String::new());
    loop {
        let mut was_followed = false;
        let ended = follow(&store, &mut other, &mut gone, &mut was_followed).await;
        let Err(error) = ended else { return };
        let why = error.to_string();
        if was_followed || why != told {
            warn!("messages wait for now: {why}");
        }
        (told, wait) = (why, if was_followed { WAIT_MIN } else { (wait * 2).min(WAIT_MAX) });
        tokio::select! {
            _ = gone.changed() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// From the connection to its end; without an error if the store is gone.
async fn follow(
    store: &Weak<Inner>,
    other: &mut Option<Other>,
    gone: &mut watch::Receiver<()>,
    was_followed: &mut bool,
) -> Result<()> {
    let Some(inner) = store.upgrade() else { return Ok(()) };
    let mut following = follow::Following::begin(&inner, other).await?;
    drop(inner);
    *was_followed = true;
    info!(slot = following.slot(), "messages are stored from now on");
    following.run(gone, store).await?;
    following.end().await;
    Ok(())
}
