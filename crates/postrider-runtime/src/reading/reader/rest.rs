//! Waiting at the store instead of asking it again and again.
//!
//! ```text
//!   Awake ──► Asking ──► Watched ──► Asleep
//!     ▲  none given │       │ one last look that finds nothing
//!     └─────────────┴───────┴──────────┘ anything new, a wake, or the longest rest is over
//! ```
//!
//! Only a reader that has come to its longest wait goes this way, so a busy reader pays nothing for it. The
//! watch says nothing about events from before it was given. So the reader looks once more, and that look must
//! have begun afterwards.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use postrider_core::LogStore;
use postrider_core::settle::Chunk;
use postrider_core::store::Watch;

use super::Reader;

/// How a reader that finds nothing waits.
pub(crate) enum Rest {
    /// As long as the poller says.
    Awake,
    /// The same, until the store has said whether it keeps watch.
    Asking(Pin<Box<dyn Future<Output = Option<Watch>> + Send>>),
    /// The store keeps watch; `looking` says that the last look has begun.
    Watched { watch: Watch, looking: bool },
    /// Until the watch ends, or for as long as the store's pace says.
    Asleep(Watch),
}

/// What a rest has waited for.
pub(crate) enum Rested {
    Woken,
    /// Whether the store keeps watch.
    Watch(Option<Watch>),
}

impl<S: LogStore> Reader<S> {
    /// A read begins.
    pub(super) fn rest_before_read(&mut self) {
        match &mut self.rest {
            Rest::Watched { looking, .. } => *looking = true,
            // The rest is over. The reader asks again whether the store keeps watch.
            Rest::Asleep(_) => self.rest = Rest::Awake,
            Rest::Awake | Rest::Asking(_) => {}
        }
    }

    /// A read has ended: how long to wait for the next one.
    pub(super) fn rest_after_read(&mut self, chunk: &Chunk, now: Duration) -> Duration {
        let wait = self.poller.wait(now);
        // A reader whose position moves has read from memory, which says nothing about this moment. A paused reader
        // waits for an operator, not for events.
        let is_idle = chunk.is_empty_at(self.read_to) && !chunk.paused && wait >= self.pace.poll_max;
        let (Some(rest_max), true) = (self.pace.rest_max, is_idle) else {
            self.rest = Rest::Awake;
            return wait;
        };
        match std::mem::replace(&mut self.rest, Rest::Awake) {
            Rest::Awake => {
                let store = self.store.clone();
                self.rest = Rest::Asking(Box::pin(async move { store.watch().await }));
                wait
            }
            Rest::Watched { watch, looking: true } => {
                self.rest = Rest::Asleep(watch);
                rest_max
            }
            Rest::Watched { watch, .. } => {
                self.rest = Rest::Watched { watch, looking: false };
                Duration::ZERO
            }
            asking => {
                self.rest = asking;
                wait
            }
        }
    }
}

impl Rest {
    /// Waits for what a rest waits for. A watch that ends during a read is still ended after it, when it is known what
    /// the read has found. Cancel safe.
    pub(crate) async fn next(&mut self, reading: bool) -> Rested {
        match self {
            Self::Asking(asked) => Rested::Watch(asked.await),
            Self::Watched { watch, .. } | Self::Asleep(watch) if !reading => {
                watch.await;
                *self = Self::Awake;
                Rested::Woken
            }
            _ => std::future::pending().await,
        }
    }
}
