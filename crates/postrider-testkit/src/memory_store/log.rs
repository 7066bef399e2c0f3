//! The event log: emit, look up, prune.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::event::{Listed, StoredEvent};
use postrider_core::store::{EventQuery, Pruned};
use postrider_core::{Event, EventId, Kind, NewEvent, Position, Result, Start, limits};

use super::state::{Progress, State, Taken, Time};

impl State {
    pub(super) fn emit(&mut self, events: &[NewEvent], time: Time) -> Result<Vec<EventId>> {
        // All are checked before any is written: that is what makes it all or none.
        for event in events {
            event.check()?;
        }
        Ok(events.iter().map(|event| self.emit_one(event, time)).collect())
    }

    fn emit_one(&mut self, new: &NewEvent, time: Time) -> EventId {
        let key = new.idempotency();
        let holder = key.as_deref().and_then(|key| self.holder(key, time));
        if let Some(first) = holder.filter(|_| !new.replaces()) {
            return first;
        }
        let id = EventId(self.newest.0 + 1);
        self.newest = id;
        self.superseded.extend(holder);
        if let Some(key) = key {
            let until = new.unique_for().map(|period| time.now.after(period));
            self.idempotency.insert(key.into_owned(), Taken { by: id, until });
        }
        let event = Event {
            id,
            topic: new.topic().clone(),
            kind: Kind::new(new.kind_or_topic()),
            key: new.ordering_key().cloned(),
            payload: new.payload_bytes().clone(),
            headers: new.headers().clone(),
            created_at: time.now,
            due_at: new.due_from(time.now),
            flaw: None,
        };
        self.events.insert(id, Arc::new(event));
        id
    }

    /// Puts an event into the log past all checks, as plain SQL may.
    pub(super) fn plant(&mut self, stored: StoredEvent<'_>) -> EventId {
        let id = EventId(self.newest.0 + 1);
        self.newest = id;
        self.events.insert(id, Arc::new(StoredEvent { id, ..stored }.into_event()));
        id
    }

    /// The event that holds an idempotency key and has not given it back.
    fn holder(&self, key: &str, time: Time) -> Option<EventId> {
        let taken = self.idempotency.get(key)?;
        taken.until.is_none_or(|until| until > time.now).then_some(taken.by)
    }

    pub(super) fn event_list(&self, query: &EventQuery) -> Vec<Listed> {
        self.events
            .values()
            .rev()
            .filter(|event| query.before.is_none_or(|before| event.id < before))
            .filter(|event| query.filter.matches(event.topic.as_str(), event.kind.as_str()))
            .filter(|event| query.key.is_none() || event.key == query.key)
            .take(query.limit.min(limits::PAGE_ROWS_MAX))
            .map(|event| Listed::preview(Event::clone(event)))
            .collect()
    }

    /// The position from which the next event read is the one that `start` names.
    pub(super) fn position_before(&self, start: Start) -> Position {
        let end = self.newest.0;
        let last_id = match start {
            Start::Oldest => 0,
            Start::Now => end,
            Start::Time(at) => {
                self.events.values().find(|event| event.created_at >= at).map_or(end, |event| event.id.0 - 1)
            }
            // Beyond the end of the log, events that have no id yet would be skipped unseen.
            Start::Id(id) => id.0.saturating_sub(1).clamp(0, end),
        };
        Position::START.at(EventId(last_id))
    }

    pub(super) fn prune(&mut self, retention: Duration, time: Time) -> Pruned {
        let horizon = time.now.before(retention);
        let referred: BTreeSet<EventId> = self.subscriptions.values().flat_map(Progress::referred).collect();
        let past = |id| self.subscriptions.values().all(|progress| progress.least().covers(id));
        let (gone, pinned): (Vec<_>, Vec<_>) = self
            .events
            .values()
            .filter(|event| event.created_at < horizon)
            .map(|event| event.id)
            .partition(|id| past(*id) && !referred.contains(id));
        let pinned_by = pinned.first().and_then(|id| self.keeper_of(*id));
        let bite = &gone[..gone.len().min(limits::PRUNE_ROWS_MAX)];
        for id in bite {
            self.events.remove(id);
            self.idempotency.retain(|_, taken| taken.by != *id);
            self.superseded.remove(id);
            for progress in self.subscriptions.values_mut() {
                progress.attempts.remove(id);
                progress.queue.results.remove(id);
                progress.queue.progress.remove(id);
            }
        }
        Pruned { removed: bite.len() as u64, more: gone.len() > bite.len(), pinned_by }
    }

    /// The subscription that an event is kept for: the one that is least far, else one with a row.
    fn keeper_of(&self, id: EventId) -> Option<String> {
        let behind = self.subscriptions.values().filter(|progress| !progress.least().covers(id));
        let referring =
            self.subscriptions.values().filter(|progress| progress.referred().any(|other| other == id));
        behind
            .min_by_key(|progress| progress.least())
            .or_else(|| referring.min_by_key(|progress| progress.subscription.id))
            .map(|progress| progress.subscription.name.clone())
    }
}
