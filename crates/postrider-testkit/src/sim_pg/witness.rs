//! What was delivered, and whether it was right.

use std::collections::BTreeMap;
use std::fmt;

use super::settlement::StoredPosition;
use super::{Row, SimPg};

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A committed event never arrived.
    Lost(usize, Row),
    /// An event arrived again although nothing had gone wrong.
    Repeated(usize, Row),
    /// An event arrived before one of its key that it must follow, or without it.
    OutOfOrder(usize, Row),
    /// What arrived was not committed, or has not survived a crash.
    Invented(usize, Row),
    /// A row refers to an event that is gone.
    Gone(usize, i64),
    /// Not everything was delivered although nothing went wrong any more.
    Stuck,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(subscription, row) => write!(f, "subscription {subscription}: lost {row:?}"),
            Self::Repeated(subscription, row) => write!(f, "subscription {subscription}: repeated {row:?}"),
            Self::OutOfOrder(subscription, row) => {
                write!(f, "subscription {subscription}: out of order {row:?}")
            }
            Self::Invented(subscription, row) => write!(f, "subscription {subscription}: invented {row:?}"),
            Self::Gone(subscription, id) => write!(f, "subscription {subscription}: event {id} is gone"),
            Self::Stuck => f.write_str("stuck: it does not come to rest"),
        }
    }
}

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Acked,
    Failed,
}

/// Sees every delivery and knows nothing of how it came about.
#[derive(Debug, Default)]
pub(super) struct Witness {
    subscriptions: Vec<Seen>,
    pub(super) violations: Vec<Violation>,
}

/// What one subscription has been given.
#[derive(Debug, Default)]
struct Seen {
    start: Option<StoredPosition>,
    /// Where it was moved back to.
    moved: Vec<StoredPosition>,
    /// How often it began again from what is stored.
    lives: u64,
    keys: BTreeMap<u32, Last>,
    /// Rows that arrived, by token, with the number of acks.
    rows: BTreeMap<u64, (Row, u64)>,
}

/// The last delivery of a key.
#[derive(Debug, Clone, Copy)]
struct Last {
    n: u64,
    attempt: Attempt,
    life: u64,
}

impl Witness {
    pub(super) fn new(subscriptions: usize) -> Self {
        Self { subscriptions: (0..subscriptions).map(|_| Seen::default()).collect(), violations: Vec::new() }
    }

    /// A subscription was created, durably, with this position.
    pub(super) fn created(&mut self, subscription: usize, start: StoredPosition) {
        self.subscriptions[subscription].start = Some(start);
    }

    /// A subscription is about to be moved back, to this position.
    pub(super) fn moved(&mut self, subscription: usize, to: StoredPosition) {
        self.subscriptions[subscription].moved.push(to);
    }

    /// A subscription goes on from what is stored: what it did since may come again.
    pub(super) fn reloaded(&mut self, subscription: usize) {
        self.subscriptions[subscription].lives += 1;
    }

    /// An event was handed out, at a moment at which the server had committed it or not.
    pub(super) fn delivered(&mut self, subscription: usize, row: &Row, attempt: Attempt, pg: &SimPg) {
        let seen = &mut self.subscriptions[subscription];
        if pg.committed_as(row.token).is_none() {
            self.violations.push(Violation::Invented(subscription, *row));
        }
        if let Some(last) = seen.keys.get(&row.key) {
            let follows = match last.attempt {
                Attempt::Acked => row.n == last.n + 1,
                Attempt::Failed => row.n == last.n,
            };
            // What is stored may be older than what was done, but leaves nothing out.
            let rewinds = last.life < seen.lives && row.n <= last.n + 1;
            if !follows && !rewinds {
                let again = seen.rows.get(&row.token).is_some_and(|(_, acks)| *acks > 0);
                let kind = if again { Violation::Repeated } else { Violation::OutOfOrder };
                self.violations.push(kind(subscription, *row));
            }
        }
        seen.keys.insert(row.key, Last { n: row.n, attempt, life: seen.lives });
        let (_, acks) = seen.rows.entry(row.token).or_insert((*row, 0));
        *acks += u64::from(attempt == Attempt::Acked);
    }

    /// Judges at the end, when all is delivered that will be.
    pub(super) fn judge(&mut self, pg: &SimPg, wants: impl Fn(usize, &Row) -> bool) {
        for (subscription, seen) in self.subscriptions.iter().enumerate() {
            let Some(start) = &seen.start else { continue };
            for row in pg.committed().filter(|row| wants(subscription, row) && !start.covers(row)) {
                let acks = seen.rows.get(&row.token).map_or(0, |(_, acks)| *acks);
                if acks == 0 {
                    self.violations.push(Violation::Lost(subscription, *row));
                }
                if acks > 1 && seen.lives == 0 {
                    self.violations.push(Violation::Repeated(subscription, *row));
                }
            }
            for (row, _) in seen.rows.values() {
                let committed = pg.committed_as(row.token);
                let covered = |row: &Row| seen.moved.iter().chain([start]).all(|place| place.covers(row));
                if !wants(subscription, row) || committed.is_none_or(covered) {
                    self.violations.push(Violation::Invented(subscription, *row));
                }
            }
        }
    }

    /// How many events arrived at how many subscriptions.
    pub(super) fn deliveries(&self) -> u64 {
        self.subscriptions.iter().map(|seen| seen.rows.len() as u64).sum()
    }
}
