//! What a hand-out holds, and what came of it. Both modes hand events out in these terms.

use std::time::Duration;

use postrider_core::{Delivery, Outcome};

/// Events that have failed before, and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Fresh,
    Again,
}

/// What is handed to a handler or sink, and the ticket under which to report.
#[derive(Debug)]
pub(crate) struct HandOut {
    pub(crate) ticket: usize,
    pub(crate) deliveries: Vec<Delivery>,
}

/// How much one hand-out may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Events in all.
    pub(crate) events: usize,
    /// Different lanes, or events without one.
    pub(crate) parts: usize,
    /// Events of one lane.
    pub(crate) per_lane: usize,
}

/// The outcome of one attempt, and how long it took.
#[derive(Debug, Clone)]
pub(crate) struct Attempted {
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// What a finished hand-out amounted to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) delivered: u64,
    pub(crate) failed: u64,
    pub(crate) dead: u64,
}
