//! What a worker of a queue has in its hands: mode `queue` as a pure machine.
//!
//! The worker feeds it what it claims ([`Leases::offer`]) and what became of it ([`Leases::finish`]), and
//! asks it for the next hand-out ([`Leases::hand_out`]), the next settle ([`Leases::compose`]) and how much
//! to claim ([`Leases::room`]). It does no I/O, and has neither a clock nor randomness.
//!
//! ```text
//!  claim ─► rows ─► ready ─► hand-out ─► finish ─► rows whose events all have an outcome ─► compose ─► settle
//!             │                 ▲          │ not tried                ▲
//!             │                 └──────────┘                          │ given back, slow blocks, the doomed
//!             └───────────────────────────────────────────────────────┘
//! ```
//!
//! # Why nothing is lost, and a lost lease does no harm
//!
//! A row leaves the store only by a settle that names its token, and a settle is composed only of outcomes.
//! Whatever is forgotten here stays leased until its lease runs out, and comes back. Whatever is settled
//! although the lease was lost is fenced by its token and changes nothing.
//!
//! A claim is kept until every row of it is known to be settled, so that the keeper knows which leases to
//! extend.
//!
//! *Last chances.* A worker that ends puts blame on every row that it held. A row that has ended so many
//! workers that one more makes it a dead letter is handed out alone, with nothing else in this worker's
//! hands. So the guilty row is found, and the rows that were only beside it are delivered.
//!
//! *Failures.* Events that have failed before wait in a separate line. Both lines take turns, no hand-out
//! mixes them, and the worker gives the second line half of its places at the most. However many events
//! fail, and however long that takes, the others find a place.
//!
//! *Bounds.* [`Leases::room`] allows a claim only while less than half of what the handlers need is ready, at
//! most [`CLAIM_EVENTS_MAX`] events, and while memory and what waits to be settled are within their limits.

mod compose;
mod finish;
mod recently;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use postrider_core::delivery::Origin;
use postrider_core::queue::{
    Again, Board, Claimed, Count, EventProgress, LeasedRow, Remnant, Ticket, Token, expires_at,
};
use postrider_core::settle::AttemptRecord;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Delivery, Epoch, Event, EventId, Order, RetryPolicy, Subscription, Timestamp, limits};
use slab::Slab;

use crate::dispatch::failures::Failures;
use crate::dispatch::hand_out::{Class, HandOut, Tally};
use compose::FinishedRow;
pub(crate) use finish::Judge;
use recently::Recently;

/// Events that one claim asks for at the most.
pub(crate) const CLAIM_EVENTS_MAX: usize = 10_000;
/// Rows that wait to be settled before nothing more is claimed.
const UNSETTLED_ROWS_MAX: usize = 10_000;
/// A handler that takes longer gets nothing in advance.
const PREPARED_TOOK_MAX: Duration = Duration::from_millis(50);
/// A row that is to be handed out alone waits no longer than this for the others to end, and they for it.
const ALONE_WITHIN: Duration = Duration::from_secs(1);

const NOT_TOUCHED: Again = Again { after: Duration::ZERO, count: Count::Nothing };

/// Instants in here are durations since the worker began.
#[derive(Debug)]
pub(crate) struct Leases {
    subscription: SubscriptionId,
    /// Where handlers say how far they have come.
    board: Board,
    retry: RetryPolicy,
    order: Order,
    origin: Arc<Origin>,
    claims: BTreeMap<Token, Claim>,
    /// Rows with events that have no outcome yet.
    rows: HashMap<RowKey, HeldRow, RandomState>,
    next_row: RowKey,
    /// What may be handed out, in order.
    ready: Line,
    /// The same of what has failed before.
    again: Line,
    /// Whose turn it is.
    again_next: bool,
    /// A row that is to be handed out alone, and when it is handed out at the latest.
    last_chance: Option<(RowKey, Duration)>,
    /// The hand-out of such a row, and until when nothing is claimed beside it.
    alone: Option<(usize, Duration)>,
    /// Whether the last claim brought such a row, so that others may follow.
    careful: bool,
    running: Slab<Out>,
    /// Blocks in the order in which they were claimed.
    blocks: VecDeque<(Duration, RowKey)>,
    finished: Vec<FinishedRow>,
    /// Payload bytes in memory.
    bytes: usize,
    recently: Recently,
    /// What the log has to be told.
    pub(crate) failures: Failures,
}

type RowKey = u64;

/// Events that may be handed out, in order.
#[derive(Debug, Default)]
struct Line {
    /// Some of these may have gone since.
    items: VecDeque<Item>,
    /// How many are still there.
    count: usize,
}

impl Line {
    fn push_back(&mut self, item: Item) {
        self.items.push_back(item);
        self.count += 1;
    }

    fn push_front(&mut self, item: Item) {
        self.items.push_front(item);
        self.count += 1;
    }
}

#[derive(Debug, Default)]
struct Claim {
    rows: BTreeSet<RowKey>,
    /// Rows that are leased in the store as far as is known: those above, and those that wait to be settled.
    unsettled: usize,
}

#[derive(Debug)]
struct HeldRow {
    id: EventId,
    token: Token,
    is_block: bool,
    finished: u32,
    events: Vec<Held>,
    /// How many of them have no outcome.
    left: usize,
    /// Failed attempts, with the instant at which each ended.
    attempts: Vec<(Duration, AttemptRecord)>,
}

/// An event of a row.
#[derive(Debug)]
struct Held {
    event: Arc<Event>,
    state: HeldState,
    result: Option<String>,
    progress: Option<EventProgress>,
    /// Whether it was cancelled while it ran.
    unwanted: bool,
}

impl Held {
    /// Whether its handler, which still runs, has acked it in a transaction of its own.
    fn is_acked(&self) -> bool {
        matches!(&self.state, HeldState::Running { ticket, .. } if ticket.is_acked())
    }
}

#[derive(Debug)]
enum HeldState {
    Ready,
    Running { out: usize, ticket: Ticket },
    Done,
    Stays(Remnant),
}

/// An event by its row and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    row: RowKey,
    index: usize,
}

/// A hand-out that is under way.
#[derive(Debug)]
struct Out {
    items: Vec<Item>,
}

impl Leases {
    pub(crate) fn new(subscription: &Subscription, origin: Arc<Origin>, board: Board) -> Self {
        Self {
            board,
            subscription: subscription.id,
            retry: subscription.tuning.retry.clone(),
            order: subscription.order,
            origin,
            claims: BTreeMap::new(),
            rows: HashMap::default(),
            next_row: 0,
            ready: Line::default(),
            again: Line::default(),
            again_next: false,
            last_chance: None,
            alone: None,
            careful: false,
            running: Slab::new(),
            blocks: VecDeque::new(),
            finished: Vec::new(),
            bytes: 0,
            recently: Recently::default(),
            failures: Failures::default(),
        }
    }

    /// What is attempted again, and how often, from now on.
    pub(crate) fn set_retry(&mut self, retry: RetryPolicy) {
        self.retry = retry;
    }

    /// How many events to claim for so many that could be begun now; none while there is enough.
    pub(crate) fn room(&self, free: usize, now: Duration) -> Option<usize> {
        let full = self.bytes + limits::CHUNK_BYTES_MAX > limits::SPAN_BYTES_MAX
            || self.finished.len() >= UNSETTLED_ROWS_MAX
            || self.last_chance.is_some()
            || self.alone.is_some_and(|(_, until)| now < until);
        let soon = if self.took() < PREPARED_TOOK_MAX { self.recently.finished(now) } else { 0 };
        let wanted = free.saturating_add(soon).min(CLAIM_EVENTS_MAX);
        let ready = self.ready.count;
        // Little by little would cost a transaction each time.
        (!full && wanted > 0 && ready * 2 <= wanted).then(|| wanted - ready)
    }

    /// How many rows of these may be such as have failed before: up to half of them, less those that are here already.
    pub(crate) fn room_again(&self, rows: usize) -> usize {
        rows.div_ceil(2).saturating_sub(self.again.count)
    }

    /// How long a handler takes for an event, on average; long if that is not known.
    pub(crate) fn took(&self) -> Duration {
        self.recently.took()
    }

    /// Whether rows should be claimed one by one.
    pub(crate) fn is_careful(&self) -> bool {
        self.careful
    }

    /// Older claims that a new one shows to be lost: it brings what they hold, or what should wait behind
    /// that. Nothing waits behind an event that its handler has acked itself.
    pub(crate) fn outdated_by(&self, claimed: &Claimed) -> BTreeSet<Token> {
        if self.rows.is_empty() {
            return BTreeSet::new();
        }
        let new = || claimed.rows.iter().flat_map(|row| &row.events);
        let ordered = |_: &&Arc<Event>| self.order == Order::Key;
        let ids: HashSet<EventId, RandomState> = new().map(|event| event.id).collect();
        let lanes: HashSet<_, RandomState> = new().filter(ordered).filter_map(|event| lane(event)).collect();
        let met = |held: &Held| {
            let waited_for = || lane(&held.event).is_some_and(|lane| lanes.contains(&lane));
            ids.contains(&held.event.id) || (!held.is_acked() && waited_for())
        };
        self.rows.values().filter(|row| row.events.iter().any(met)).map(|row| row.token).collect()
    }

    /// Takes in what was claimed. What must not be handed out any more is finished at once.
    pub(crate) fn offer(&mut self, claimed: Claimed, now: Duration) -> Tally {
        let mut tally = Tally::default();
        let Claimed { token, at, rows, .. } = claimed;
        if rows.is_empty() {
            return tally;
        }
        self.careful = false;
        self.claims.insert(token, Claim { rows: BTreeSet::new(), unsettled: rows.len() });
        for row in rows {
            self.take_row(&row, token, at, now, &mut tally);
        }
        tally
    }

    fn take_row(&mut self, row: &LeasedRow, token: Token, at: Timestamp, now: Duration, tally: &mut Tally) {
        let crashes = if row.is_block { 0 } else { row.crashes() };
        let doomed = crashes >= limits::CRASHES_MAX || (crashes > 0 && row.started > self.retry.attempts());
        let key = self.hold(token, row);
        if row.is_block {
            self.blocks.push_back((now, key));
        }
        if row.events.is_empty() {
            return self.close(key);
        }
        for (index, event) in row.events.iter().enumerate() {
            let item = Item { row: key, index };
            if let Some(flaw) = &event.flaw {
                self.bury(item, flaw.reason().to_owned(), now, tally);
            } else if doomed {
                let error = format!("its worker has ended {crashes} times while it ran");
                self.bury(item, error, now, tally);
            } else if let Some(expired) = expires_at(event).filter(|expires| *expires <= at) {
                self.bury(item, format!("expired at {expired}"), now, tally);
            } else if crashes + 1 >= limits::CRASHES_MAX {
                self.careful = true;
                self.give_last_chance(key, now);
            } else {
                self.line(row.finished > 0).push_back(item);
            }
        }
    }

    fn line(&mut self, again: bool) -> &mut Line {
        if again { &mut self.again } else { &mut self.ready }
    }

    /// Whether a row has failed before.
    fn is_again(&self, row: RowKey) -> bool {
        self.rows.get(&row).is_some_and(|row| row.finished > 0)
    }

    fn hold(&mut self, token: Token, row: &LeasedRow) -> RowKey {
        let ready = |event: &Arc<Event>| Held {
            event: Arc::clone(event),
            state: HeldState::Ready,
            result: None,
            progress: None,
            unwanted: false,
        };
        let events: Vec<Held> = row.events.iter().map(ready).collect();
        let left = events.len();
        self.insert(HeldRow {
            id: row.id,
            token,
            is_block: row.is_block,
            finished: row.finished,
            events,
            left,
            attempts: Vec::new(),
        })
    }

    fn insert(&mut self, row: HeldRow) -> RowKey {
        let key = self.next_row;
        self.next_row += 1;
        self.bytes += bytes(&row);
        if let Some(claim) = self.claims.get_mut(&row.token) {
            claim.rows.insert(key);
        }
        self.rows.insert(key, row);
        key
    }

    fn remove(&mut self, key: RowKey) -> Option<HeldRow> {
        let row = self.rows.remove(&key)?;
        self.bytes -= bytes(&row);
        if let Some(claim) = self.claims.get_mut(&row.token) {
            claim.rows.remove(&key);
        }
        Some(row)
    }

    /// One row waits for its last chance; if there is one already, this one is left to others or to later.
    fn give_last_chance(&mut self, key: RowKey, now: Duration) {
        match self.last_chance {
            None => self.last_chance = Some((key, now + ALONE_WITHIN)),
            Some(_) => {
                self.finish_item(Item { row: key, index: 0 }, HeldState::Stays(Remnant::Again(NOT_TOUCHED)));
            }
        }
    }

    /// From which lines to hand out next, in this order; a probe is made by what has not failed, if there is any.
    pub(crate) fn turns(&self, probes: bool) -> [Class; 2] {
        if self.again_next && !probes { [Class::Again, Class::Fresh] } else { [Class::Fresh, Class::Again] }
    }

    /// The next hand-out of at most so many events of a line, if anything is ready.
    pub(crate) fn hand_out(&mut self, most: usize, class: Class, now: Duration) -> Option<HandOut> {
        let again = class == Class::Again;
        let mut items = Vec::new();
        while items.len() < most
            && let Some(item) = self.line(again).items.pop_front()
        {
            if !self.is_ready(item) {
                continue;
            }
            if self.meets_its_key(&items, item) {
                self.line(again).items.push_front(item);
                break;
            }
            self.line(again).count -= 1;
            items.push(item);
        }
        if !items.is_empty() {
            self.again_next = !again;
            return Some(self.start(items));
        }
        if again {
            return None;
        }
        let out = self.take_last_chance(now).map(|item| self.start(vec![item]))?;
        self.alone = Some((out.ticket, now + ALONE_WITHIN));
        Some(out)
    }

    fn take_last_chance(&mut self, now: Duration) -> Option<Item> {
        let (row, at_the_latest) = self.last_chance?;
        let unsettled: usize = self.claims.values().map(|claim| claim.unsettled).sum();
        if unsettled > 1 && now < at_the_latest {
            return None;
        }
        self.last_chance = None;
        Some(Item { row, index: 0 }).filter(|item| self.is_ready(*item))
    }

    /// Whether a delayed event and another one of its key would be in one hand-out: their lanes are two,
    /// their key is one.
    fn meets_its_key(&self, items: &[Item], item: Item) -> bool {
        let event = |item: &Item| &self.rows[&item.row].events[item.index].event;
        let new = event(&item);
        self.order == Order::Key
            && new.key.is_some()
            && items
                .iter()
                .map(event)
                .any(|other| (other.due_at.is_some() || new.due_at.is_some()) && other.key == new.key)
    }

    fn is_ready(&self, item: Item) -> bool {
        let row = self.rows.get(&item.row);
        row.is_some_and(|row| matches!(row.events[item.index].state, HeldState::Ready))
    }

    fn start(&mut self, items: Vec<Item>) -> HandOut {
        let out = self.running.vacant_key();
        let mut deliveries = Vec::with_capacity(items.len());
        for item in &items {
            let row = self.rows.get_mut(&item.row).expect("what is ready is held");
            let held = &mut row.events[item.index];
            let ticket = Ticket::on(&self.board, self.subscription, held.event.id, row.token);
            held.state = HeldState::Running { out, ticket: ticket.clone() };
            let delivery = Delivery::new(Arc::clone(&held.event), row.finished + 1, Arc::clone(&self.origin));
            let epoch = Some(Epoch(row.token.0));
            deliveries.push(Delivery { ticket: Some(ticket), epoch, ..delivery });
        }
        self.running.insert(Out { items });
        HandOut { ticket: out, deliveries }
    }

    /// The events of a hand-out, in its order.
    #[cfg(test)]
    pub(crate) fn ids(&self, out: usize) -> Vec<EventId> {
        self.running[out].items.iter().map(|item| self.rows[&item.row].events[item.index].event.id).collect()
    }

    /// When it is over that a row waits to be alone, or that others wait for it.
    pub(crate) fn alone_until(&self) -> Option<Duration> {
        let waiting = self.last_chance.map(|(_, at)| at);
        waiting.or_else(|| self.alone.map(|(_, until)| until))
    }

    /// Whether something could be handed out now.
    pub(crate) fn has_ready(&self, now: Duration) -> bool {
        let alone = |at| now >= at || (self.running.is_empty() && self.finished.is_empty());
        self.ready.count > 0 || self.again.count > 0 || self.last_chance.is_some_and(|(_, at)| alone(at))
    }

    /// The same of one line; a last chance counts to what has not failed.
    pub(crate) fn has_ready_of(&self, class: Class, now: Duration) -> bool {
        match class {
            Class::Fresh => self.ready.count > 0 || (self.again.count == 0 && self.has_ready(now)),
            Class::Again => self.again.count > 0,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// All claims that are held.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.claims.keys().copied().collect()
    }

    /// Whether nothing is held and nothing is left to settle.
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.finished.is_empty()
    }
}

/// The lane of an event, where events of a key wait for each other.
fn lane(event: &Event) -> Option<(&str, bool)> {
    event.key.as_ref().map(|key| (key.as_str(), event.due_at.is_some()))
}

fn bytes(row: &HeldRow) -> usize {
    row.events.iter().map(|held| held.event.bytes()).sum()
}
