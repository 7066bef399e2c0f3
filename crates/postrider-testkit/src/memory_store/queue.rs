//! Mode `queue`: queued rows, claims, and what becomes of them.

mod lanes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::queue::{
    Again, Ask, Claimed, Count, EventProgress, Extended, Fate, Fed, Feed, LeasedRow, NewRow, Priority,
    QueueSettle, QueueSettled, Remnant, SettledRow, Spans, Swept, Token,
};
use postrider_core::refusal::{lease_is_lost, subscription_missing};
use postrider_core::settle::{Hold, Lane, MemberId};
use postrider_core::store::{Cancelled, LetterId, ProgressReport};
use postrider_core::unique::is_replaceable;
use postrider_core::{
    Delivery, DeliveryState, Event, EventId, Fair, OnDead, Order, Result, Shard, Subscription, Timestamp,
    limits,
};

use super::AuditLine;
use super::state::{Progress, State, StoredRow, Time};

/// The queue of one subscription.
#[derive(Debug)]
pub(super) struct Queue {
    /// How many heads a lane may have.
    heads_max: usize,
    pub(super) rows: BTreeMap<EventId, Queued>,
    pub(super) claims: BTreeMap<Token, Claim>,
    pub(super) results: BTreeMap<EventId, String>,
    pub(super) progress: BTreeMap<EventId, ProgressReport>,
    /// What a rate still allows, and when that was known.
    allowance: Option<(f64, Duration)>,
}

#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) events: Spans,
    bytes: u32,
    priority: Priority,
    virtual_time: i64,
    tenant: Option<i64>,
    pub(super) lane: Option<Lane>,
    turn: i64,
    /// Whether its lane waits for it. A delayed event enters its lane when its time has come.
    parks: bool,
    pub(super) standing: Standing,
    /// Of the last claim that it had.
    token: Token,
    pub(super) started: u32,
    pub(super) finished: u32,
    edited: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Ready,
    Due(Timestamp),
    /// Behind the head of its lane.
    Waiting,
    Leased,
}

#[derive(Debug)]
pub(super) struct Claim {
    lease: Duration,
    until: Timestamp,
    cancelled: BTreeSet<EventId>,
}

impl Queue {
    /// An empty one.
    pub(super) fn new(subscription: &Subscription) -> Self {
        Self {
            heads_max: lanes::heads_max(subscription),
            rows: BTreeMap::new(),
            claims: BTreeMap::new(),
            results: BTreeMap::new(),
            progress: BTreeMap::new(),
            allowance: None,
        }
    }

    /// The row that stands for an event.
    pub(super) fn row_of(&self, id: EventId) -> Option<(EventId, &Queued)> {
        let (first, row) = self.rows.range(..=id).next_back()?;
        // Blocks may interleave: of those that begin before it, one holds it.
        if row.events.contains(id) {
            return Some((*first, row));
        }
        self.rows.range(..=id).find(|(_, row)| row.events.contains(id)).map(|(first, row)| (*first, row))
    }

    /// Keeps how far a handler has come.
    fn note(&mut self, noted: &EventProgress, at: Timestamp) {
        let postrider_core::queue::Progress { percent, note } = noted.progress.clone();
        self.progress.insert(noted.event_id, ProgressReport { percent, note, at });
    }

    /// The virtual time behind which rows come that are ready again: the least of those that are ready and
    /// have not failed.
    fn front(&self) -> Option<i64> {
        let fresh = |row: &&Queued| row.standing == Standing::Ready && row.finished == 0;
        self.rows.values().filter(fresh).map(|row| row.virtual_time).min()
    }

    /// Forgets those of some claims that have no row left and that no worker holds.
    fn forget_empty_claims(&mut self, some: &BTreeSet<Token>, held: &[Token]) {
        let leased: BTreeSet<Token> =
            self.rows.values().filter(|row| row.standing == Standing::Leased).map(|row| row.token).collect();
        self.claims
            .retain(|token, _| !some.contains(token) || leased.contains(token) || held.contains(token));
    }
}

impl Queued {
    fn new(row: &NewRow) -> Self {
        Self {
            events: row.events.clone(),
            bytes: row.bytes,
            priority: row.priority,
            virtual_time: row.virtual_time,
            tenant: row.tenant,
            lane: row.lane.clone(),
            turn: row.turn,
            parks: false,
            standing: row.due_at.map_or(Standing::Ready, Standing::Due),
            token: Token(0),
            started: 0,
            finished: 0,
            edited: None,
        }
    }

    /// One event of a block, as a row of its own.
    fn part(&self, event: EventId) -> Self {
        let bytes = self.bytes / self.events.count().max(1) as u32;
        Self {
            events: Spans::one(event),
            bytes,
            turn: event.0,
            // That it was begun is not known of the event, only of the block.
            started: 0,
            standing: Standing::Ready,
            ..self.clone()
        }
    }

    fn is_block(&self) -> bool {
        self.events.count() > 1
    }

    fn is_leased_under(&self, token: Token) -> bool {
        self.standing == Standing::Leased && self.token == token
    }

    /// The same row for fewer events; none if none is left.
    fn shrunk(mut self, is_left: impl Fn(EventId) -> bool) -> Option<Self> {
        let mut left = self.events.iter().filter(|event| is_left(*event));
        let first = Spans::one(left.next()?);
        self.events = left.fold(first, |mut all, event| {
            all.push(event);
            all
        });
        Some(self)
    }

    fn again(&mut self, again: Again, now: Timestamp) {
        match again.count {
            Count::Failed => self.finished += 1,
            Count::Nothing => self.started = self.started.saturating_sub(1),
        }
        self.standing =
            if again.after.is_zero() { Standing::Ready } else { Standing::Due(now.after(again.after)) };
    }
}

impl State {
    pub(super) fn fed(&mut self, hold: &Hold) -> Result<Fed> {
        let queue = &self.held(hold)?.queue;
        let mut tenants: BTreeMap<i64, i64> = BTreeMap::new();
        for row in queue.rows.values() {
            if let Some(tenant) = row.tenant {
                let last = tenants.entry(tenant).or_insert(row.virtual_time);
                *last = row.virtual_time.max(*last);
            }
        }
        let newest = queue.rows.values().map(|row| row.virtual_time).max();
        Ok(Fed { front: queue.front(), tenants: tenants.into_iter().collect(), newest })
    }

    pub(super) fn feed(&mut self, hold: &Hold, feed: &Feed) -> Result<Option<i64>> {
        let progress = self.held(hold)?;
        for held in hold.shards.iter() {
            let position = &mut progress.shards[usize::from(held.shard.0)].position;
            *position = feed.mark.max(*position);
        }
        let Progress { queue, rows: letters, subscription, .. } = progress;
        for row in &feed.rows {
            queue.put(row.events.first(), Queued::new(row), letters);
        }
        Ok((subscription.tuning.queue.fair != Fair::Nobody).then(|| queue.front()).flatten())
    }

    pub(super) fn claim(&mut self, subscription: &Subscription, ask: Ask, time: Time) -> Result<Claimed> {
        let token = Token(self.token_newest.0 + 1);
        let Self { subscriptions, events, superseded, .. } = self;
        let progress = subscriptions
            .get_mut(&subscription.name)
            .filter(|progress| progress.subscription.id == subscription.id)
            .ok_or_else(|| subscription_missing(&subscription.name))?;
        let mut claimed = Claimed {
            token,
            at: time.now,
            rows: Vec::new(),
            paused: progress.subscription.paused_at.is_some(),
        };
        if claimed.paused {
            return Ok(claimed);
        }
        let mut left = progress.allowance(ask.events, time);
        let (mut bytes, mut again) = (0, 0);
        for id in progress.ready() {
            let row = progress.queue.rows.get_mut(&id).expect("it was found just now");
            if row.finished > 0 && again >= ask.again {
                continue;
            }
            let full = claimed.rows.len() >= ask.rows.min(limits::CLAIM_ROWS_MAX) || bytes >= ask.bytes;
            if full || left == 0 {
                break;
            }
            left = left.saturating_sub(row.events.count());
            bytes += row.bytes as usize;
            again += usize::from(row.finished > 0);
            row.standing = Standing::Leased;
            row.token = token;
            row.started += 1;
            claimed.rows.push(LeasedRow {
                id,
                events: row
                    .events
                    .iter()
                    .filter_map(|id| events.get(&id))
                    .filter(|event| !(is_replaceable(event) && superseded.contains(&event.id)))
                    .map(|event| edited(event, row))
                    .collect(),
                is_block: row.is_block(),
                started: row.started,
                finished: row.finished,
            });
        }
        if !claimed.rows.is_empty() {
            progress.spend(&claimed, time);
            let claim =
                Claim { lease: ask.lease, until: time.now.after(ask.lease), cancelled: BTreeSet::new() };
            progress.queue.claims.insert(token, claim);
            self.token_newest = token;
        }
        Ok(claimed)
    }

    pub(super) fn extend(&mut self, tokens: &[Token], notes: &[EventProgress], time: Time) -> Vec<Extended> {
        let mut extended = Vec::new();
        for progress in self.subscriptions.values_mut() {
            for token in tokens {
                if let Some(claim) = progress.queue.claims.get_mut(token) {
                    claim.until = time.now.after(claim.lease);
                    let cancelled = claim.cancelled.iter().copied().collect();
                    extended.push(Extended { token: *token, cancelled });
                }
            }
            for noted in notes.iter().filter(|noted| tokens.contains(&noted.token)) {
                if progress.queue.claims.contains_key(&noted.token) {
                    progress.queue.note(noted, time.now);
                }
            }
        }
        extended
    }

    pub(super) fn queue_settle(
        &mut self,
        subscription: &Subscription,
        member: MemberId,
        settle: &QueueSettle,
        time: Time,
    ) -> Result<QueueSettled> {
        let member = self.members.get(&member).map(|member| member.name.clone()).unwrap_or_default();
        let Self { subscriptions, events, shards, .. } = self;
        let shard =
            |id: EventId| Shard::of(events.get(&id).and_then(|event| event.key.as_ref()), id, *shards);
        let progress = subscriptions
            .get_mut(&subscription.name)
            .filter(|progress| progress.subscription.id == subscription.id)
            .ok_or_else(|| subscription_missing(&subscription.name))?;
        let mut settled = QueueSettled::default();
        let mut ours = BTreeSet::new();
        for row in &settle.rows {
            match progress.queue.rows.get(&row.id) {
                Some(found) if found.is_leased_under(row.token) => {
                    ours.extend(found.events.iter().chain(row.fate.acked()));
                    progress.settle_row(row, &shard, time.now);
                }
                // Its handler has taken it out already.
                _ if matches!(row.fate, Fate::Acked(_)) && progress.queue.claims.contains_key(&row.token) => {
                    ours.extend(row.fate.acked());
                }
                _ => settled.fenced.push(row.id),
            }
        }
        for attempt in settle.attempts.iter().filter(|attempt| ours.contains(&attempt.event_id)) {
            progress.record(attempt, &member, time.now);
        }
        for result in settle.results.iter().filter(|result| ours.contains(&result.event_id)) {
            progress.queue.results.insert(result.event_id, result.result.clone());
        }
        for noted in settle.progress.iter().filter(|noted| ours.contains(&noted.event_id)) {
            progress.queue.note(noted, time.now);
        }
        let said = settle.rows.iter().map(|row| row.token);
        progress.queue.forget_empty_claims(&said.collect(), &settle.held);
        Ok(settled)
    }

    /// Takes an event out of the queue for its handler.
    pub(super) fn ack(&mut self, delivery: &Delivery) -> Result<()> {
        let (ticket, event) = (delivery.lease()?, delivery.event.id);
        let of_it = |progress: &&mut Progress| progress.subscription.id == ticket.subscription();
        let progress = self.subscriptions.values_mut().find(of_it);
        let progress = progress.ok_or_else(|| lease_is_lost(event))?;
        let found = progress.queue.row_of(event).filter(|(_, row)| row.is_leased_under(ticket.token()));
        let (id, row) = found.map(|(id, row)| (id, row.clone())).ok_or_else(|| lease_is_lost(event))?;
        progress.queue.rows.remove(&id);
        let lane = row.lane.clone();
        if let Some(left) = row.shrunk(|other| other != event) {
            progress.queue.rows.insert(id, left);
        }
        if let Some(lane) = &lane {
            progress.queue.promote(lane, &progress.rows);
        }
        ticket.note_acked();
        Ok(())
    }

    pub(super) fn sweep(&mut self, subscription: &Subscription, time: Time) -> Result<Swept> {
        let progress = self.progress_mut(&subscription.name)?;
        let mut swept = Swept::default();
        let expired: Vec<Token> = progress
            .queue
            .claims
            .iter()
            .filter(|(_, claim)| claim.until <= time.now)
            .map(|(token, _)| *token)
            .collect();
        for token in expired {
            progress.reap_claim(token);
            swept.reaped += 1;
        }
        let Progress { queue, rows: letters, .. } = progress;
        let is_due = |row: &Queued| matches!(row.standing, Standing::Due(at) if at <= time.now);
        let due = queue.rows.iter().filter(|(_, row)| is_due(row)).map(|(id, row)| (row.turn, *id));
        let due: BTreeSet<(i64, EventId)> = due.collect();
        for (_, id) in due {
            let mut row = queue.rows.remove(&id).expect("it was found just now");
            row.standing = Standing::Ready;
            queue.put(id, row, letters);
            swept.due += 1;
        }
        let next = queue.rows.values().filter_map(|row| match row.standing {
            Standing::Due(at) => Some(at),
            _ => None,
        });
        swept.next_due_in = next.min().map(|at| at.since(time.now));
        self.reaps += swept.reaped;
        Ok(swept)
    }

    pub(super) fn cancel(&mut self, letter: &LetterId, actor: &str, time: Time) -> Result<Option<Cancelled>> {
        let progress = self.progress_mut(&letter.subscription)?;
        let Some((id, row)) = progress.queue.row_of(letter.event_id) else { return Ok(None) };
        let (standing, token, lane) = (row.standing, row.token, row.lane.clone());
        let cancelled = if standing == Standing::Leased {
            let claim = progress.queue.claims.get_mut(&token).expect("a leased row has a claim");
            claim.cancelled.insert(letter.event_id);
            Cancelled::Told
        } else {
            let row = progress.queue.rows.remove(&id).expect("it was found just now");
            for event in row.events.iter().filter(|event| row.is_block() && *event != letter.event_id) {
                progress.queue.rows.insert(event, row.part(event));
            }
            if let Some(lane) = &lane {
                progress.queue.promote(lane, &progress.rows);
            }
            Cancelled::Gone
        };
        let event = format!("event {}", letter.event_id);
        self.audit(AuditLine::new(time.now, actor, "delivery cancel", &letter.subscription, event));
        Ok(Some(cancelled))
    }
}

impl Progress {
    /// What may be claimed, in order.
    fn ready(&self) -> Vec<EventId> {
        let ready = self.queue.rows.iter().filter(|(_, row)| row.standing == Standing::Ready);
        let mut ready: Vec<_> =
            ready.map(|(id, row)| (std::cmp::Reverse(row.priority), row.virtual_time, *id)).collect();
        ready.sort();
        ready.into_iter().map(|(_, _, id)| id).collect()
    }

    /// How many of so many events may be claimed.
    fn allowance(&mut self, asked: usize, time: Time) -> usize {
        let tuning = &self.subscription.tuning.queue;
        let leased: usize = self
            .queue
            .rows
            .values()
            .filter(|row| row.standing == Standing::Leased)
            .map(|row| row.events.count())
            .sum();
        let total = tuning.total.map_or(usize::MAX, |total| (total as usize).saturating_sub(leased));
        let rate = tuning.rate.map_or(usize::MAX, |rate| {
            let burst = f64::from(rate.burst);
            let (left, at) = self.queue.allowance.unwrap_or((burst, time.uptime));
            let gained = (time.uptime.saturating_sub(at)).as_secs_f64() * f64::from(rate.per_second);
            let now = (left + gained).min(burst);
            self.queue.allowance = Some((now, time.uptime));
            now.max(0.0) as usize
        });
        asked.min(total).min(rate)
    }

    fn spend(&mut self, claimed: &Claimed, time: Time) {
        let spent: usize = claimed.rows.iter().map(|row| row.events.len()).sum();
        if let Some((left, _)) = self.queue.allowance {
            self.queue.allowance = Some((left - spent as f64, time.uptime));
        }
    }

    fn settle_row(&mut self, settled: &SettledRow, shards: &Shards<'_>, now: Timestamp) {
        let claim = self.queue.claims.get(&settled.token);
        let cancelled = claim.map(|claim| claim.cancelled.clone()).unwrap_or_default();
        let mut row = self.queue.rows.remove(&settled.id).expect("it was found just now");
        let lane = row.lane.clone();
        if row.events != Spans::one(settled.id) || matches!(settled.fate, Fate::Split(_)) {
            for (event, remnant) in remnants(&row, &settled.fate) {
                if !cancelled.contains(&event) {
                    self.settle_part(&row, event, remnant, shards, now);
                }
            }
        } else if !cancelled.contains(&settled.id) {
            match &settled.fate {
                Fate::Done | Fate::Split(_) => {}
                // It was not committed.
                Fate::Acked(_) => {
                    row.standing = Standing::Ready;
                    self.queue.rows.insert(settled.id, row);
                }
                Fate::Again(again) => {
                    row.again(*again, now);
                    // Without order no other row waits for it meanwhile.
                    row.parks &= again.after.is_zero() || self.subscription.order == Order::Key;
                    self.queue.rows.insert(settled.id, row);
                }
                Fate::Dead => self.bury(settled.id, row, shards, now),
            }
        }
        if let Some(lane) = &lane {
            self.queue.promote(lane, &self.rows);
        }
    }

    /// What is left of an event of a block becomes a row of its own.
    fn settle_part(
        &mut self,
        row: &Queued,
        event: EventId,
        remnant: Remnant,
        shards: &Shards<'_>,
        now: Timestamp,
    ) {
        let mut part = row.part(event);
        part.started = row.started;
        match remnant {
            Remnant::Acked => drop(self.queue.rows.insert(event, part)),
            Remnant::Again(again) => {
                part.again(again, now);
                self.queue.rows.insert(event, part);
            }
            Remnant::Dead => self.bury(event, part, shards, now),
            Remnant::Running => {
                part.standing = Standing::Leased;
                self.queue.rows.insert(event, part);
            }
        }
    }

    /// Makes an event a dead letter.
    fn bury(&mut self, event: EventId, row: Queued, shards: &Shards<'_>, now: Timestamp) {
        let letter = StoredRow {
            shard: shards(event),
            parks: row.lane.is_some()
                && self.subscription.on_dead == OnDead::Hold
                && self.subscription.order == Order::Key,
            lane: row.lane,
            turn: row.turn,
            state: DeliveryState::Dead,
            attempts: row.started.max(1),
            due: None,
            edited: row.edited,
            died_at: Some(now),
            discarded: false,
            round: self.rows.get(&event).map_or(0, |old| old.round),
        };
        self.rows.insert(event, letter);
    }

    /// Frees the rows of a claim; a block becomes one row for each of its events.
    fn reap_claim(&mut self, token: Token) {
        let claim = self.queue.claims.remove(&token);
        let leased =
            self.queue.rows.iter().filter(|(_, row)| row.standing == Standing::Leased && row.token == token);
        let ids: Vec<EventId> = leased.map(|(id, _)| *id).collect();
        for id in ids {
            let mut row = self.queue.rows.remove(&id).expect("it was found just now");
            let cancelled =
                |event: &EventId| claim.as_ref().is_some_and(|claim| claim.cancelled.contains(event));
            let lane = row.lane.clone();
            if row.events != Spans::one(id) {
                for event in row.events.iter().filter(|event| !cancelled(event)) {
                    self.queue.rows.insert(event, row.part(event));
                }
            } else if !cancelled(&id) {
                row.standing = Standing::Ready;
                self.queue.rows.insert(id, row);
            }
            if let Some(lane) = &lane {
                self.queue.promote(lane, &self.rows);
            }
        }
    }

    /// Every broken rule of the queue, one sentence each.
    pub(super) fn queue_broken(&self, is_there: impl Fn(EventId) -> bool) -> Vec<String> {
        let name = &self.subscription.name;
        let mut broken = Vec::new();
        let mut seen = BTreeSet::new();
        for (id, row) in &self.queue.rows {
            if row.standing == Standing::Leased && !self.queue.claims.contains_key(&row.token) {
                broken.push(format!("`{name}` has leased row {id} under no claim"));
            }
            for event in row.events.iter() {
                if !seen.insert(event) || self.rows.contains_key(&event) {
                    broken.push(format!("`{name}` has two rows for event {event}"));
                }
                if !self.least().covers(event) || !is_there(event) {
                    broken.push(format!("`{name}` has queued event {event}, which it has not come past"));
                }
            }
        }
        broken.extend(self.lanes_broken());
        broken
    }

    /// A dead letter goes round again.
    pub(super) fn queue_replay(&mut self, event: &Arc<Event>, turn: i64) {
        let Some(letter) = self.rows.remove(&event.id) else { return };
        let virtual_time = self.queue.front().unwrap_or_default();
        let row = Queued {
            events: Spans::one(event.id),
            bytes: event.bytes() as u32,
            priority: Priority::of(event),
            virtual_time,
            tenant: None,
            turn: if letter.parks { letter.turn } else { turn },
            lane: letter.lane,
            parks: false,
            standing: Standing::Ready,
            token: Token(0),
            started: 0,
            finished: 0,
            edited: letter.edited,
        };
        self.queue.put(event.id, row, &self.rows);
    }

    /// A dead letter is given up.
    pub(super) fn queue_discard(&mut self, event: EventId) {
        let lane = self.rows.remove(&event).and_then(|letter| letter.lane);
        if let Some(lane) = lane {
            self.queue.promote(&lane, &self.rows);
        }
    }

    /// Forgets what lies above a new position, since it will be read again.
    pub(super) fn queue_cut(&mut self, covers: impl Fn(EventId) -> bool) {
        let ids: Vec<EventId> = self.queue.rows.keys().copied().collect();
        for id in ids {
            let row = self.queue.rows.remove(&id).expect("it was listed just now");
            if let Some(left) = row.shrunk(&covers) {
                self.queue.rows.insert(id, left);
            }
        }
        let all = self.queue.claims.keys().copied().collect();
        self.queue.forget_empty_claims(&all, &[]);
        let lanes: BTreeSet<Lane> = self.queue.rows.values().filter_map(|row| row.lane.clone()).collect();
        for lane in lanes {
            self.queue.promote(&lane, &self.rows);
        }
    }
}

/// The shard of an event.
type Shards<'a> = dyn Fn(EventId) -> Shard + 'a;

/// The remnant of each event of a row that is taken apart. Parts for events of other rows are ignored.
fn remnants(row: &Queued, fate: &Fate) -> Vec<(EventId, Remnant)> {
    let all = |remnant| row.events.iter().map(|event| (event, remnant)).collect();
    match fate {
        Fate::Done => Vec::new(),
        Fate::Again(again) => all(Remnant::Again(*again)),
        Fate::Dead => all(Remnant::Dead),
        Fate::Acked(_) => all(Remnant::Acked),
        Fate::Split(parts) => {
            parts.iter().copied().filter(|(event, _)| row.events.contains(*event)).collect()
        }
    }
}

fn edited(event: &Arc<Event>, row: &Queued) -> Arc<Event> {
    match &row.edited {
        Some(payload) => Arc::new(Event::clone(event).with_payload(payload.clone())),
        None => Arc::clone(event),
    }
}
