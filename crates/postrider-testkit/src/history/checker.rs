//! One walk over a history for each subscription.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::retry::Verdict;
use postrider_core::{EventId, Failure, Key, OnDead, Order, Outcome};

use super::{
    Delivered, DeliveryRef, Emitted, Entry, Expectation, Fault, Incarnation, Record, Subject, Violation,
};

/// Everything but loss: what must hold at every moment of a run.
pub(super) fn safety(entries: &[Entry], expectations: &[Expectation]) -> Vec<Violation> {
    let mut violations = strangers(entries, expectations);
    for expectation in expectations {
        violations.extend(walk(entries, expectation).violations);
    }
    violations
}

/// Events that were committed and never dealt with.
pub(super) fn losses(entries: &[Entry], expectations: &[Expectation]) -> Vec<Violation> {
    let mut losses = Vec::new();
    for expectation in expectations {
        let walked = walk(entries, expectation);
        let lost = walked.wanted.keys().filter(|id| !walked.track(**id).is_settled());
        losses.extend(lost.map(|id| Violation::Lost {
            subscription: expectation.subscription.clone(),
            event: *id,
            deliveries: walked.track(*id).deliveries,
        }));
    }
    losses
}

/// Effects against the events that should have had one.
pub(super) fn effects(
    entries: &[Entry],
    expectation: &Expectation,
    effects: &[(EventId, String)],
) -> Vec<Violation> {
    let walked = walk(entries, expectation);
    let mut times: BTreeMap<EventId, usize> = BTreeMap::new();
    for (id, _) in effects {
        *times.entry(*id).or_default() += 1;
    }
    let mut violations = Vec::new();
    for (event, times) in &times {
        if !walked.wanted.contains_key(event) {
            violations.push(Violation::EffectPhantom { event: *event });
        } else if *times > 1 {
            violations.push(Violation::EffectRepeated { event: *event, times: *times });
        }
    }
    let missing =
        walked.wanted.keys().filter(|id| !times.contains_key(id) && !walked.track(**id).is_given_up());
    violations.extend(missing.map(|event| Violation::EffectMissing { event: *event }));
    violations
}

/// The entries about the keys of these events, and those about everybody.
pub(super) fn relevant<'a>(entries: &'a [Entry], events: &BTreeSet<EventId>) -> Vec<(usize, &'a Entry)> {
    let emitted = entries.iter().filter_map(|entry| match &entry.record {
        Record::Emitted(emitted) => Some(emitted),
        _ => None,
    });
    let keys: BTreeSet<_> = emitted
        .clone()
        .filter(|emitted| events.contains(&emitted.id))
        .filter_map(|emitted| emitted.key.clone())
        .collect();
    let mut of_keys = events.clone();
    of_keys.extend(
        emitted
            .filter(|emitted| emitted.key.as_ref().is_some_and(|key| keys.contains(key)))
            .map(|emitted| emitted.id),
    );
    let concerns = |record: &Record| match record {
        Record::Emitted(emitted) => of_keys.contains(&emitted.id),
        Record::Delivered(delivered) => of_keys.contains(&delivered.delivery.event),
        Record::Finished { delivery, .. } | Record::Abandoned { delivery, .. } => {
            of_keys.contains(&delivery.event)
        }
        Record::Died(subject) | Record::Replayed(subject) | Record::Discarded(subject) => {
            of_keys.contains(&subject.event)
        }
        Record::Fault { .. } | Record::Sought(_) => true,
    };
    entries.iter().enumerate().filter(|(_, entry)| concerns(&entry.record)).collect()
}

/// Deliveries for subscriptions that no expectation names.
fn strangers(entries: &[Entry], expectations: &[Expectation]) -> Vec<Violation> {
    let known: BTreeSet<_> = expectations.iter().map(|expectation| &expectation.subscription).collect();
    let mut violations = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Record::Delivered(Delivered { delivery, .. }) = &entry.record
            && !known.contains(&delivery.subscription)
        {
            let (subscription, event) = (delivery.subscription.clone(), delivery.event);
            violations.push(Violation::Unwanted { subscription, event, at });
        }
    }
    violations
}

fn walk<'a>(entries: &'a [Entry], expectation: &'a Expectation) -> Walk<'a> {
    let mut walk = Walk::new(entries, expectation);
    for (at, entry) in entries.iter().enumerate() {
        walk.step(at, &entry.record);
    }
    walk
}

/// What the checker knows at one point of the history, for one subscription.
struct Walk<'a> {
    expectation: &'a Expectation,
    emitted: BTreeMap<EventId, &'a Emitted>,
    wanted: BTreeMap<EventId, &'a Emitted>,
    /// The events of each key that keep its order, by their numbers.
    order: BTreeMap<&'a Key, BTreeMap<u64, EventId>>,
    /// The number that each key's receiver saw last.
    last: BTreeMap<&'a Key, u64>,
    tracks: BTreeMap<EventId, Track>,
    /// What runs, each with the entry at which it began.
    running: Vec<(DeliveryRef, usize)>,
    faults: Vec<(usize, Option<Incarnation>)>,
    violations: Vec<Violation>,
}

/// One event on its way.
#[derive(Debug, Clone, Copy, Default)]
struct Track {
    deliveries: usize,
    /// Acked at least once since it was emitted or replayed.
    acked: bool,
    stand: Stand,
    place: Place,
    /// The delivery that acked or killed it: where it began, and who did it.
    finished: Option<(usize, Incarnation)>,
}

/// What became of an event since it was last handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stand {
    #[default]
    Open,
    Acked,
    Dead,
    /// Its last attempt was abandoned. Good enough to let its key go on, not to call it dealt with.
    PerhapsDead,
}

/// Whether an event still has its place among those of its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    InOrder,
    /// Sent round again after its key had gone on without it.
    Replayed,
    /// Given up by an operator.
    Discarded,
    /// A seek has moved past it.
    Passed,
}

impl Track {
    fn is_given_up(&self) -> bool {
        self.stand == Stand::Dead || matches!(self.place, Place::Discarded | Place::Passed)
    }

    fn is_settled(&self) -> bool {
        self.acked || self.is_given_up()
    }

    /// A late end of an earlier delivery says nothing about a later one.
    fn finish(&mut self, begun: usize, by: Incarnation, stand: Stand) {
        if self.finished.is_none_or(|(latest, _)| begun > latest) {
            self.finished = Some((begun, by));
        }
        self.stand = stand;
        self.acked |= stand == Stand::Acked;
    }
}

impl<'a> Walk<'a> {
    fn new(entries: &'a [Entry], expectation: &'a Expectation) -> Self {
        let emitted: BTreeMap<EventId, &Emitted> = entries
            .iter()
            .filter_map(|entry| match &entry.record {
                Record::Emitted(emitted) => Some((emitted.id, emitted)),
                _ => None,
            })
            .collect();
        let wants = |emitted: &Emitted| {
            emitted.id >= expectation.first
                && expectation.filter.matches(emitted.topic.as_str(), emitted.kind.as_str())
        };
        let wanted: BTreeMap<_, _> = emitted
            .iter()
            .filter(|(_, emitted)| wants(emitted))
            .map(|(id, emitted)| (*id, *emitted))
            .collect();
        let mut order: BTreeMap<&Key, BTreeMap<u64, EventId>> = BTreeMap::new();
        for emitted in wanted.values().filter(|_| expectation.order == Order::Key) {
            if let (Some(key), Some(n), false) = (&emitted.key, emitted.n, emitted.delayed) {
                order.entry(key).or_default().insert(n, emitted.id);
            }
        }
        Self {
            expectation,
            emitted,
            wanted,
            order,
            last: BTreeMap::new(),
            tracks: BTreeMap::new(),
            running: Vec::new(),
            faults: Vec::new(),
            violations: Vec::new(),
        }
    }

    fn track(&self, id: EventId) -> Track {
        self.tracks.get(&id).copied().unwrap_or_default()
    }

    fn track_mut(&mut self, id: EventId) -> &mut Track {
        self.tracks.entry(id).or_default()
    }

    fn is_mine(&self, subscription: &str) -> bool {
        self.expectation.subscription == subscription
    }

    fn step(&mut self, at: usize, record: &Record) {
        match record {
            Record::Emitted(_) => {}
            Record::Delivered(delivered) if self.is_mine(&delivered.delivery.subscription) => {
                self.begin(at, delivered);
            }
            Record::Finished { delivery, attempt, outcome } if self.is_mine(&delivery.subscription) => {
                self.end(delivery, *attempt, outcome);
            }
            Record::Abandoned { delivery, attempt } if self.is_mine(&delivery.subscription) => {
                self.abandon(delivery, *attempt);
            }
            Record::Fault { fault, incarnation } => self.fault(at, *fault, *incarnation),
            Record::Died(subject) if self.is_mine(&subject.subscription) => {
                self.track_mut(subject.event).stand = Stand::Dead;
            }
            Record::Replayed(subject) if self.is_mine(&subject.subscription) => self.replay(subject),
            Record::Discarded(subject) if self.is_mine(&subject.subscription) => {
                self.track_mut(subject.event).place = Place::Discarded;
            }
            Record::Sought(subject) if self.is_mine(&subject.subscription) => self.seek(at, subject.event),
            _ => {}
        }
    }

    fn begin(&mut self, at: usize, delivered: &Delivered) {
        let event = delivered.delivery.event;
        let subscription = self.expectation.subscription.clone();
        let Some(emitted) = self.emitted.get(&event).copied() else {
            self.violations.push(Violation::Phantom { subscription, event, at });
            return;
        };
        if (&emitted.key, emitted.n) != (&delivered.key, delivered.n) {
            self.violations.push(Violation::Altered { subscription: subscription.clone(), event, at });
        }
        if !self.wanted.contains_key(&event) {
            self.violations.push(Violation::Unwanted { subscription, event, at });
            return;
        }
        self.check_overlap(at, emitted, delivered.delivery.by);
        self.check_duplicate(at, event);
        self.check_order(at, emitted);
        self.running.push((delivered.delivery.clone(), at));
        let track = self.track_mut(event);
        track.deliveries += 1;
        track.stand = Stand::Open;
        track.finished = None;
    }

    /// Two handlers of one lane in one process: the process alone could have prevented it.
    fn check_overlap(&mut self, at: usize, emitted: &Emitted, by: Incarnation) {
        let lane = |emitted: &Emitted| match self.expectation.order {
            Order::Key => emitted.key.clone().map(|key| (key, emitted.delayed)),
            Order::None => None,
        };
        let mine = lane(emitted);
        let overlaps = |running: &DeliveryRef| {
            let same_lane = || {
                let theirs = self.emitted.get(&running.event).and_then(|emitted| lane(emitted));
                mine.is_some() && mine == theirs
            };
            running.by == by && (running.event == emitted.id || same_lane())
        };
        let running = self.running.iter().map(|(running, _)| running).find(|running| overlaps(running));
        if let Some(running) = running.map(|running| running.event) {
            let subscription = self.expectation.subscription.clone();
            self.violations.push(Violation::Overlap { subscription, event: emitted.id, running, by, at });
        }
    }

    /// A fault explains a repeated delivery if it came after the delivery that should have been the last had
    /// begun, and hit the incarnation that made that delivery.
    fn check_duplicate(&mut self, at: usize, event: EventId) {
        let Some((finished_at, by)) = self.track(event).finished else { return };
        let first = self.faults.partition_point(|(fault_at, _)| *fault_at < finished_at);
        let explained = self.faults[first..].iter().any(|(_, hit)| hit.is_none_or(|hit| hit == by));
        if !explained {
            let subscription = self.expectation.subscription.clone();
            self.violations.push(Violation::Duplicate { subscription, event, finished_at, at });
        }
    }

    fn check_order(&mut self, at: usize, emitted: &'a Emitted) {
        let (Some(key), Some(n)) = (&emitted.key, emitted.n) else { return };
        // A replayed dead letter has lost its place: its key has gone on.
        if emitted.delayed || self.track(emitted.id).place == Place::Replayed || !self.order.contains_key(key)
        {
            return;
        }
        let seen = self.last.insert(key, n).unwrap_or(0);
        let must_come_first = |(_, id): &(&u64, &EventId)| !self.may_be_skipped(**id);
        let unseen = self.order[key].range(n.min(seen + 1)..n).find(must_come_first);
        let before = self.order[key].range(..n).rfind(must_come_first);
        let missing = unseen.map(|(_, id)| *id);
        let unfinished = before.map(|(_, id)| *id).filter(|id| self.track(*id).stand != Stand::Acked);
        let (subscription, key) = (self.expectation.subscription.clone(), key.clone());
        if let Some(missing) = missing {
            self.violations.push(Violation::Skipped { subscription, key, event: emitted.id, missing, at });
        } else if let Some(unfinished) = unfinished {
            self.violations.push(Violation::Overtaken {
                subscription,
                key,
                event: emitted.id,
                unfinished,
                at,
            });
        }
    }

    /// Whether later events of its key need not wait for this one.
    fn may_be_skipped(&self, id: EventId) -> bool {
        let track = self.track(id);
        let skips = self.expectation.on_dead == OnDead::Skip;
        track.place != Place::InOrder || (skips && matches!(track.stand, Stand::Dead | Stand::PerhapsDead))
    }

    fn end(&mut self, delivery: &DeliveryRef, attempt: u32, outcome: &Outcome) {
        // An end without a beginning is that of a phantom, which has been told.
        let Some(begun) = self.stop(delivery) else { return };
        // The roll decides only how long a delay is, which is nothing to us.
        let verdict = self.expectation.retry.judge(attempt, outcome, 0.0);
        let track = self.track_mut(delivery.event);
        match verdict {
            Verdict::Done => track.finish(begun, delivery.by, Stand::Acked),
            Verdict::Dead => track.finish(begun, delivery.by, Stand::Dead),
            Verdict::Again(_) | Verdict::Untried | Verdict::Snooze(_) => {}
        }
    }

    fn abandon(&mut self, delivery: &DeliveryRef, attempt: u32) {
        let running = self.stop(delivery).is_some();
        let failed = Outcome::Retry(Failure::retry("abandoned"));
        let final_attempt = self.expectation.retry.judge(attempt, &failed, 0.0) == Verdict::Dead;
        let track = self.track_mut(delivery.event);
        if running && final_attempt && track.stand == Stand::Open {
            track.stand = Stand::PerhapsDead;
        }
    }

    /// Ends what runs, and says where it began.
    fn stop(&mut self, delivery: &DeliveryRef) -> Option<usize> {
        let index = self.running.iter().position(|(running, _)| running == delivery)?;
        Some(self.running.swap_remove(index).1)
    }

    fn fault(&mut self, at: usize, fault: Fault, incarnation: Option<Incarnation>) {
        self.faults.push((at, incarnation));
        if fault == Fault::Crash {
            self.running.retain(|(running, _)| incarnation.is_some_and(|crashed| crashed != running.by));
        }
    }

    fn replay(&mut self, subject: &Subject) {
        let out_of_order = self.expectation.on_dead == OnDead::Skip;
        let track = self.track_mut(subject.event);
        track.stand = Stand::Open;
        track.acked = false;
        track.finished = None;
        if out_of_order {
            track.place = Place::Replayed;
        }
    }

    /// What lies before the new place and is not done is passed over; what lies behind it comes again.
    fn seek(&mut self, at: usize, first: EventId) {
        self.faults.push((at, None));
        let ids: Vec<_> = self.wanted.keys().copied().collect();
        for id in ids {
            let before = id < first;
            let track = self.track_mut(id);
            if before && !track.is_settled() {
                track.place = Place::Passed;
            } else if !before && track.place != Place::Discarded {
                track.place = Place::InOrder;
            }
        }
        for (key, numbers) in &self.order {
            let last = numbers.iter().filter(|(_, id)| **id < first).map(|(n, _)| *n).max();
            self.last.insert(key, last.unwrap_or(0));
        }
    }
}
