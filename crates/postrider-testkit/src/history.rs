//! What happened, and whether it was right.
//!
//! Producers, sinks and the simulation append [`Record`]s to a [`History`] as things happen; at the end
//! [`History::check`] walks it once and names every broken promise. The history is the only witness: the
//! checker knows nothing of stores or workers, so that neither can fool it.
//!
//! Each event of a key carries its number `n` among them in the header [`ORDINAL`], written by the producer
//! that owns the key. Per subscription and key a receiver may see
//!
//! ```text
//!   1 2 3 4          everything once, in order
//!   1 2 2 3          2 failed and was attempted again
//!   1 2 3 2 3 4      a rewind after a fault: from 2 on, everything again
//!   1 3              legal only if 2 is a dead letter that its key goes on without
//! ```
//!
//! and never `1 3 2`, nor `1 2 3 2 4`, which leaves the receiver with a 2 that came after its 3.

mod checker;
mod violation;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::time::Clock;
use postrider_core::{
    Delivery, Event, EventId, Filter, Key, Kind, NewEvent, NewSubscription, OnDead, Order, Outcome,
    RetryPolicy, Timestamp, Topic,
};

pub use violation::Violation;

/// The header in which an event carries its number among the events of its key.
pub const ORDINAL: &str = "n";

/// One life of a member: a process that starts again is another incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// An event was committed. May be recorded at any time, also at the end from the store's log.
    Emitted(Emitted),
    /// A handler or sink began to work on an event.
    Delivered(Delivered),
    /// It said what became of it.
    Finished {
        /// Which delivery.
        delivery: DeliveryRef,
        /// Which attempt.
        attempt: u32,
        /// The outcome.
        outcome: Outcome,
    },
    /// It never said: it panicked, or its future was dropped.
    Abandoned {
        /// Which delivery.
        delivery: DeliveryRef,
        /// Which attempt.
        attempt: u32,
    },
    /// Something went wrong that may cause events to be delivered again.
    Fault {
        /// What it was.
        fault: Fault,
        /// Whom it hit; none if everybody.
        incarnation: Option<Incarnation>,
    },
    /// The event became a dead letter.
    Died(Subject),
    /// An operator sent a dead letter round again.
    Replayed(Subject),
    /// An operator gave a dead letter up.
    Discarded(Subject),
    /// An operator moved a subscription: `event` is the next one to be read.
    Sought(Subject),
}

/// An event of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The subscription's name.
    pub subscription: String,
    /// The event.
    pub event: EventId,
}

/// One delivery, while it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRef {
    /// The subscription's name.
    pub subscription: String,
    /// The event.
    pub event: EventId,
    /// Who delivers.
    pub by: Incarnation,
}

/// An event as its producer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// Its id.
    pub id: EventId,
    /// Its topic.
    pub topic: Topic,
    /// Its type.
    pub kind: Kind,
    /// Its key.
    pub key: Option<Key>,
    /// Its number among the events of its key.
    pub n: Option<u64>,
    /// Whether it was delayed and so has left its key's order.
    pub delayed: bool,
}

/// An event as its receiver saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// Which delivery.
    pub delivery: DeliveryRef,
    /// The key that came with it.
    pub key: Option<Key>,
    /// The number that came with it.
    pub n: Option<u64>,
    /// Which attempt.
    pub attempt: u32,
}

/// What may cause events to be delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A process died. What it worked on ends here.
    Crash,
    /// A member lost its shards while it worked.
    Fenced,
    /// Another member took shards whose lease had run out.
    TakeOver,
    /// A call returned an error after it was applied.
    CommitUnknown,
}

/// What a subscription promises about the events in a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// Its name.
    pub subscription: String,
    /// Which events it wants.
    pub filter: Filter,
    /// Whether events of one key wait for each other.
    pub order: Order,
    /// What happens to a key when its event dies.
    pub on_dead: OnDead,
    /// When an event dies.
    pub retry: RetryPolicy,
    /// The first event that it reads.
    pub first: EventId,
}

impl From<&NewSubscription> for Expectation {
    fn from(new: &NewSubscription) -> Self {
        Self {
            subscription: new.name.clone(),
            filter: new.filter.clone(),
            order: new.order,
            on_dead: new.on_dead,
            retry: new.tuning.retry.clone(),
            first: EventId(0),
        }
    }
}

/// A record with the time of the store's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What.
    pub record: Record,
}

/// Everything that happened, in the order in which it was recorded. All clones are the same history.
#[derive(Clone)]
pub struct History {
    clock: Arc<dyn Clock>,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl History {
    /// Nothing has happened yet.
    pub fn new(clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), entries: Arc::default() }
    }

    /// An event that says which one of its key it is; the first is 1.
    pub fn event(topic: &str, key: &str, n: u64) -> NewEvent {
        Event::new(topic).key(key).header(ORDINAL, n.to_string())
    }

    /// Appends.
    pub fn record(&self, record: Record) {
        let at = self.clock.now();
        self.lock().push(Entry { at, record });
    }

    /// An event was committed under this id.
    pub fn emitted(&self, id: EventId, event: &NewEvent) {
        self.record(Record::Emitted(Emitted {
            id,
            topic: event.topic().clone(),
            kind: Kind::new(event.kind_or_topic()),
            key: event.ordering_key().cloned(),
            n: ordinal(event.headers().get(ORDINAL)),
            delayed: event.due_from(Timestamp::from_micros(0)).is_some(),
        }));
    }

    /// A handler or sink begins to work. The returned guard records the end: as it is told, or as
    /// abandoned when it is dropped.
    pub fn delivered(&self, delivery: &Delivery, by: Incarnation) -> Running {
        let reference =
            DeliveryRef { subscription: delivery.origin.subscription.clone(), event: delivery.event.id, by };
        self.record(Record::Delivered(Delivered {
            delivery: reference.clone(),
            key: delivery.event.key.clone(),
            n: ordinal(delivery.event.headers.get(ORDINAL)),
            attempt: delivery.attempt,
        }));
        Running { history: self.clone(), delivery: Some((reference, delivery.attempt)) }
    }

    /// Something went wrong, for one incarnation or for all.
    pub fn fault(&self, fault: Fault, incarnation: Option<Incarnation>) {
        self.record(Record::Fault { fault, incarnation });
    }

    /// All that was recorded so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// Every broken promise of a run that has come to rest: nothing is left to deliver.
    pub fn check(&self, expectations: &[Expectation]) -> Vec<Violation> {
        let entries = self.entries();
        let mut violations = checker::safety(&entries, expectations);
        violations.extend(checker::losses(&entries, expectations));
        violations
    }

    /// Every broken promise of a run that still goes on: what is yet to come counts as neither lost nor
    /// delivered.
    pub fn check_so_far(&self, expectations: &[Expectation]) -> Vec<Violation> {
        checker::safety(&self.entries(), expectations)
    }

    /// Whether each event that a transactional handler had to deal with took effect exactly once.
    pub fn check_effects(&self, expectation: &Expectation, effects: &[(EventId, String)]) -> Vec<Violation> {
        checker::effects(&self.entries(), expectation, effects)
    }

    /// Panics if any promise was broken, with the part of the history that matters.
    #[track_caller]
    pub fn assert_kept(&self, expectations: &[Expectation]) {
        let violations = self.check(expectations);
        if violations.is_empty() {
            return;
        }
        let about: BTreeSet<EventId> = violations.iter().map(Violation::event).collect();
        let told: Vec<_> = violations.iter().map(ToString::to_string).collect();
        panic!("{} promises broken:\n{}\n\n{}", told.len(), told.join("\n"), self.about(&about));
    }

    /// The entries that concern the keys of these events, and all faults, one a line.
    pub fn about(&self, events: &BTreeSet<EventId>) -> String {
        let entries = self.entries();
        let lines = checker::relevant(&entries, events).into_iter();
        let lines = lines.map(|(index, entry)| format!("{index:>6} {} {:?}", entry.at, entry.record));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

fn ordinal(header: Option<&str>) -> Option<u64> {
    header.and_then(|text| text.parse().ok())
}

/// A delivery that has begun and not yet ended.
#[derive(Debug)]
#[must_use = "dropping it says that the delivery was abandoned"]
pub struct Running {
    history: History,
    delivery: Option<(DeliveryRef, u32)>,
}

impl Running {
    /// The handler or sink said what became of it.
    pub fn finish(mut self, outcome: &Outcome) {
        if let Some((delivery, attempt)) = self.delivery.take() {
            self.history.record(Record::Finished { delivery, attempt, outcome: outcome.clone() });
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((delivery, attempt)) = self.delivery.take() {
            self.history.record(Record::Abandoned { delivery, attempt });
        }
    }
}

#[cfg(test)]
mod tests;
