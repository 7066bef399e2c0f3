//! What people see.

use std::sync::Arc;

use postrider_core::settle::MemberId;
use postrider_core::store::{
    ActionReport, DeliveryAction, DeliveryReport, MemberReport, ParkedReport, ShardReport, StoreReport,
    SubscriptionReport, Wake,
};
use postrider_core::{
    DeliveryState, Error, ErrorKind, Event, EventId, Result, Shard, ShardSet, Subscription, limits,
};

use super::AuditLine;
use super::queue::Standing;
use super::state::{Progress, State, StoredRow, Time};

/// Parked lanes that a report names.
const PARKED_SHOWN: usize = 10;

impl State {
    pub(super) fn deliveries(&self, id: EventId) -> Result<Vec<DeliveryReport>> {
        let event = self
            .events
            .get(&id)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no event {id}")))?;
        let wants = |progress: &&Progress| {
            progress.subscription.filter.matches(event.topic.as_str(), event.kind.as_str())
        };
        Ok(self.subscriptions.values().filter(wants).map(|progress| self.delivery(progress, event)).collect())
    }

    fn delivery(&self, progress: &Progress, event: &Event) -> DeliveryReport {
        let history = progress.history(event.id);
        let mut report = DeliveryReport {
            subscription: progress.subscription.name.clone(),
            state: DeliveryState::Done,
            attempts: 0,
            lost: 0,
            due_at: None,
            behind: None,
            ahead: None,
            paused: progress.subscription.paused_at.is_some(),
            history,
            actions: Some(self.actions(progress, event)),
            result: progress.queue.results.get(&event.id).cloned(),
            progress: progress.queue.progress.get(&event.id).cloned(),
        };
        let position = progress.position(self.shard_of(event));
        if !position.covers(event.id) {
            let between = self.events.keys().filter(|id| !position.covers(**id) && **id < event.id);
            report.state = DeliveryState::Pending;
            report.due_at = event.due_at;
            report.ahead = Some(between.count() as u64);
        } else if let Some(row) = progress.rows.get(&event.id).filter(|row| !row.discarded) {
            report.state = row.state;
            report.attempts = row.attempts + u32::from(row.state == DeliveryState::Leased);
            report.due_at = row.due;
            report.behind = row.lane.as_ref().filter(|_| !row.is_head()).and_then(|lane| progress.head(lane));
        }
        progress.queue_delivery(event.id, &mut report);
        report
    }

    /// What people did to a delivery since its subscription was created.
    fn actions(&self, progress: &Progress, event: &Event) -> Vec<ActionReport> {
        let Subscription { name, created_at, .. } = &*progress.subscription;
        let (since, itself) = (event.created_at.max(*created_at), format!("event {}", event.id));
        let action = |line: &AuditLine| {
            let concerns = line.detail == itself || line.action == "subscription seek";
            if line.subscription != *name || line.at < since || !concerns {
                return None;
            }
            let word = line.action.replace([' ', '-'], "_");
            let action = DeliveryAction::read(&word, Some(&line.detail), event.id)?;
            Some(ActionReport { action, at: line.at, actor: line.actor.clone() })
        };
        let mut actions: Vec<_> = self.audit.iter().filter_map(action).collect();
        let surplus = actions.len().saturating_sub(limits::DELIVERY_ACTIONS_MAX as usize);
        actions.drain(..surplus);
        actions
    }

    pub(super) fn report(&self, progress: &Progress, time: Time) -> SubscriptionReport {
        let least = progress.least();
        let filter = &progress.subscription.filter;
        let wanted = |event: &&Arc<Event>| filter.matches(event.topic.as_str(), event.kind.as_str());
        let unread = self.events.values().filter(|event| !least.covers(event.id));
        let mut unread = unread.filter(wanted).peekable();
        let lag = unread.peek().map(|oldest| time.now.since(oldest.created_at));
        let count = |state| {
            let is = |row: &&StoredRow| row.state == state && !row.discarded;
            progress.rows.values().filter(is).count() as u64
        };
        let parked = progress.parked_reports();
        SubscriptionReport {
            subscription: Subscription::clone(&progress.subscription),
            members: self.member_reports(progress, time),
            shards: self.shard_reports(progress),
            lag_events: unread.count() as u64,
            lag,
            pending: count(DeliveryState::Pending) + progress.queue_count(false),
            leased: count(DeliveryState::Leased) + progress.queue_count(true),
            dead: count(DeliveryState::Dead),
            parked_count: parked.len() as u64,
            parked: parked.into_iter().take(PARKED_SHOWN).collect(),
        }
    }

    fn shard_reports(&self, progress: &Progress) -> Vec<ShardReport> {
        progress
            .shards
            .iter()
            .enumerate()
            .map(|(index, shard)| ShardReport {
                shard: Shard(index as u16),
                position: shard.position,
                epoch: shard.epoch,
                member: shard.owner.filter(|owner| self.members.contains_key(owner)),
            })
            .collect()
    }

    fn member_reports(&self, progress: &Progress, time: Time) -> Vec<MemberReport> {
        let owns = |id: &MemberId| progress.shards.iter().any(|shard| shard.owner == Some(*id));
        let takes_part = |id: &MemberId| progress.standing.contains(id) || owns(id);
        self.members
            .iter()
            .filter(|(id, _)| takes_part(id))
            .map(|(id, member)| MemberReport {
                id: *id,
                name: member.name.clone(),
                lives: self.lives(*id, time),
            })
            .collect()
    }

    pub(super) fn stats(&self, store_id: &str, time: Time) -> StoreReport {
        StoreReport {
            store_id: store_id.to_owned(),
            location: "memory".to_owned(),
            schema_version: 1,
            wake: Wake::Notify,
            events: self.events.len() as u64,
            newest_id: (self.newest > EventId(0)).then_some(self.newest),
            oldest_at: self.events.values().next().map(|event| event.created_at),
            bytes: self.events.values().map(|event| event.payload.len() as u64).sum(),
            members: self
                .members
                .iter()
                .filter(|(id, _)| self.lives(**id, time))
                .map(|(_, member)| member.name.clone())
                .collect(),
            slots: Vec::new(),
            subscriptions: self.subscriptions.values().map(|progress| self.report(progress, time)).collect(),
        }
    }
}

impl Progress {
    /// By the age of their head, oldest first; ids grow with age.
    fn parked_reports(&self) -> Vec<ParkedReport> {
        let mut reports: Vec<_> = self
            .parked(ShardSet::ALL)
            .into_iter()
            .filter_map(|lane| {
                let head = self.head(&lane)?;
                let waiting = self.lane(&lane).len() as u64;
                Some(ParkedReport { key: lane.key, head, waiting, due_at: self.rows[&head].due })
            })
            .collect();
        reports.sort_by_key(|report| report.head);
        reports
    }

    /// What a report says of an event in the queue.
    pub(super) fn queue_delivery(&self, event: EventId, report: &mut DeliveryReport) {
        let Some((_, row)) = self.queue.row_of(event) else { return };
        report.state = DeliveryState::Pending;
        report.attempts = row.started;
        let runs = u32::from(row.standing == Standing::Leased);
        report.lost = row.started.saturating_sub(row.finished).saturating_sub(runs);
        match row.standing {
            Standing::Leased => report.state = DeliveryState::Leased,
            Standing::Due(at) => report.due_at = Some(at),
            Standing::Ready => {}
            Standing::Waiting => {
                let lane = row.lane.as_ref().expect("only in a lane is waited");
                let ahead = self.queue.lane(lane).find(|(_, row)| row.standing != Standing::Waiting);
                report.behind = ahead.map(|(id, _)| *id);
            }
        }
    }

    /// How many events are leased, or are not.
    pub(super) fn queue_count(&self, leased: bool) -> u64 {
        let rows = self.queue.rows.values().filter(|row| (row.standing == Standing::Leased) == leased);
        rows.map(|row| row.events.count() as u64).sum()
    }
}
