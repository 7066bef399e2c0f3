//! What every loop of a relay is given, and what it answers when it ends.
//!
//! Both modes use it, so it knows neither of them.

use std::time::Duration;

use postrider_core::position::MemberId;
use postrider_core::{Error, ErrorKind};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::dispatch::permits::Permits;
use crate::handoff::Fed;

/// An event that runs longer than this does not hold back the mark.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How often positions move over events that the filter passes over.
pub(crate) const SETTLE_GAPS_EVERY: Duration = Duration::from_secs(1);
/// The waits after a store call that failed: the first one, and the longest.
pub(crate) const ERROR_WAIT_MIN: Duration = Duration::from_millis(50);
pub(crate) const ERROR_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often the last settle is tried, and how long apart.
pub(crate) const LAST_TRIES: u32 = 20;
pub(crate) const LAST_TRY_WAIT: Duration = Duration::from_millis(100);

/// What a worker gets from its relay.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) membership: watch::Receiver<Membership>,
    /// Cancelled when it is time to drain.
    pub(crate) stop: CancellationToken,
    /// The limits that it shares with others.
    pub(crate) permits: Permits,
    /// The further limits, taken first, for hand-outs of what has failed before.
    pub(crate) again: Permits,
    pub(crate) drain_within: Duration,
    /// Whether to end when nothing is left that can be delivered now.
    pub(crate) until_idle: bool,
    pub(crate) seed: u64,
    /// What a queue's feeder and worker tell each other.
    pub(crate) fed: Fed,
    /// Cancelled by the part that finds the subscription deleted.
    pub(crate) gone: CancellationToken,
    #[cfg(feature = "sabotage")]
    pub(crate) sabotage: Option<crate::sabotage::Sabotage>,
}

/// Which member this process is, and until when no other member may take it for dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) member: MemberId,
    /// On this process's monotonic clock: measured from before the last successful beat was sent, with a
    /// fifth of the lease as margin. Nothing is handed out past it.
    pub(crate) trusted_until: Instant,
}

impl Membership {
    pub(crate) fn is_trusted(&self) -> bool {
        Instant::now() < self.trusted_until
    }
}

/// Why an owner's loop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing is left to do; ownership was given back.
    Drained,
    /// Another member owns the subscription, or it cannot be known what was written last: memory is
    /// worthless.
    Lost,
}

/// What a relay has done by the time it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Events that became dead letters.
    pub dead: u64,
    /// Hand-outs that were cut off because draining took too long; they will be delivered again.
    pub cut_off: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: Self) {
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.dead += other.dead;
        self.cut_off += other.cut_off;
    }
}

pub(crate) fn panicked(error: &JoinError) -> Error {
    Error::new(ErrorKind::Internal, format!("a task of the relay ended unexpectedly: {error}"))
}
