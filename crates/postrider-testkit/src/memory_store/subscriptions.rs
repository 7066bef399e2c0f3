//! Subscriptions as people change them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postrider_core::refusal::subscription_exists;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Epoch, NewSubscription, Position, Result, ShardSet, Start, Subscription, Tuning};

use super::AuditLine;
use super::state::{OwnedShard, Progress, State, Time};

impl State {
    pub(super) fn create(&mut self, new: NewSubscription, time: Time) -> Result<Subscription> {
        new.check()?;
        if self.subscriptions.contains_key(&new.name) {
            return Err(subscription_exists(&new.name));
        }
        let position = self.position_before(new.start);
        self.subscription_newest = SubscriptionId(self.subscription_newest.0 + 1);
        let subscription = Subscription {
            id: self.subscription_newest,
            name: new.name.clone(),
            filter: new.filter,
            mode: new.mode,
            order: new.order,
            on_dead: new.on_dead,
            tuning: new.tuning,
            created_at: time.now,
            paused_at: None,
        };
        let shard = OwnedShard { position, epoch: Epoch(0), owner: None, left: false };
        let progress = Progress {
            subscription: Arc::new(subscription.clone()),
            shards: vec![shard; usize::from(self.shards)],
            standing: BTreeSet::new(),
            rows: BTreeMap::new(),
            attempts: BTreeMap::new(),
            queue: super::queue::Queue::new(&subscription),
        };
        self.subscriptions.insert(new.name, progress);
        Ok(subscription)
    }

    pub(super) fn tune(&mut self, name: &str, tuning: Tuning, time: Time) -> Result<Subscription> {
        let progress = self.progress_mut(name)?;
        let before = Arc::clone(&progress.subscription);
        tuning.check_for(before.mode, before.order)?;
        if before.tuning.queue.per_key.is_some() != tuning.queue.per_key.is_some() {
            // The feeder has to know whether keys have a limit.
            progress.free(ShardSet::ALL, time);
        }
        let tuned = self.change(name, |subscription| subscription.tuning = tuning)?;
        self.progress_mut(name)?.queue_retune();
        Ok(tuned)
    }

    pub(super) fn pause(&mut self, name: &str, time: Time) -> Result<Subscription> {
        self.change(name, |subscription| {
            subscription.paused_at.get_or_insert(time.now);
        })
    }

    pub(super) fn resume(&mut self, name: &str) -> Result<Subscription> {
        self.change(name, |subscription| subscription.paused_at = None)
    }

    fn change(&mut self, name: &str, by: impl FnOnce(&mut Subscription)) -> Result<Subscription> {
        let progress = self.progress_mut(name)?;
        let mut subscription = Subscription::clone(&progress.subscription);
        by(&mut subscription);
        progress.subscription = Arc::new(subscription.clone());
        Ok(subscription)
    }

    pub(super) fn seek(&mut self, name: &str, to: Start, actor: &str, time: Time) -> Result<Position> {
        let position = self.position_before(to);
        let progress = self.progress_mut(name)?;
        progress.free(ShardSet::ALL, time);
        for shard in &mut progress.shards {
            shard.position = position;
        }
        progress.rows.retain(|id, _| position.covers(*id));
        progress.queue_cut(|id| position.covers(id));
        // Their events will be read and attempted as if for the first time.
        progress.attempts.retain(|id, _| position.covers(*id));
        // A head above the position may have left rows below it behind.
        for lane in progress.parked(ShardSet::ALL) {
            progress.promote(&lane, time.now);
        }
        self.audit(AuditLine::new(time.now, actor, "subscription seek", name, position.to_string()));
        Ok(position)
    }

    pub(super) fn delete(&mut self, name: &str, actor: &str, time: Time) -> Result<()> {
        self.progress(name)?;
        self.subscriptions.remove(name);
        self.audit(AuditLine::new(time.now, actor, "subscription delete", name, String::new()));
        Ok(())
    }

    pub(super) fn audit(&mut self, line: AuditLine) {
        self.audit.push(line);
    }
}
