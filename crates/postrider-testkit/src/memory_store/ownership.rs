//! Members, and the shards that they hold.

use std::sync::Arc;

use postrider_core::refusal::member_is_forgotten;
use postrider_core::settle::{HeldShard, Hold, MemberId, Taken};
use postrider_core::{Epoch, Error, ErrorKind, Result, Shard};

use super::state::{Member, Progress, State, Time};

impl State {
    pub(super) fn join(&mut self, name: &str, time: Time) -> MemberId {
        self.member_newest = MemberId(self.member_newest.0 + 1);
        self.members.insert(self.member_newest, Member { name: name.to_owned(), beat: time.uptime });
        self.member_newest
    }

    pub(super) fn beat(&mut self, member: MemberId, time: Time) -> Result<()> {
        let known = self.members.get_mut(&member).ok_or_else(|| member_is_forgotten(member))?;
        known.beat = time.uptime;
        Ok(())
    }

    /// Leaving and dying differ only in who says it. Both may be said twice.
    pub(super) fn forget(&mut self, member: MemberId, time: Time) {
        self.members.remove(&member);
        for progress in self.subscriptions.values_mut() {
            if progress.shards.iter().any(|shard| shard.owner == Some(member)) {
                progress.free(time);
            }
        }
    }

    pub(super) fn lives(&self, member: MemberId, time: Time) -> bool {
        self.members.get(&member).is_some_and(|known| time.uptime.saturating_sub(known.beat) < self.lease)
    }

    pub(super) fn take(&mut self, name: &str, member: MemberId, time: Time) -> Result<Option<Taken>> {
        if !self.members.contains_key(&member) {
            return Err(member_is_forgotten(member));
        }
        let progress = self.progress(name)?;
        let owners = progress.shards.iter().filter_map(|shard| shard.owner);
        if owners.into_iter().any(|owner| owner != member && self.lives(owner, time)) {
            return Ok(None);
        }
        let progress = self.progress_mut(name)?;
        progress.reap(time.now);
        let mut held = Vec::with_capacity(progress.shards.len());
        for (index, shard) in progress.shards.iter_mut().enumerate() {
            // The same member gets a new epoch too: a repeated take must not leave two valid holds.
            shard.epoch = Epoch(shard.epoch.0 + 1);
            shard.owner = Some(member);
            held.push(HeldShard { shard: Shard(index as u16), epoch: shard.epoch, position: shard.position });
        }
        let hold = Hold {
            subscription: Arc::clone(&progress.subscription),
            member,
            shard_count: held.len() as u16,
            shards: Arc::from(held),
        };
        Ok(Some(Taken { hold, start: progress.least(), parked: progress.parked() }))
    }

    pub(super) fn release(&mut self, hold: &Hold, time: Time) -> Result<()> {
        self.held(hold)?.free(time);
        Ok(())
    }

    /// The fence: the subscription of `hold` if it is still held as it says.
    pub(super) fn held(&mut self, hold: &Hold) -> Result<&mut Progress> {
        let fenced = || {
            let name = &hold.subscription.name;
            Error::new(ErrorKind::Fenced, format!("the shards of `{name}` have another owner"))
        };
        let progress = self.subscriptions.get_mut(&hold.subscription.name).ok_or_else(fenced)?;
        // A subscription that was deleted and created again is another one.
        let same = progress.subscription.id == hold.subscription.id;
        let held = hold.shards.iter().all(|held| {
            let shard = &progress.shards[usize::from(held.shard.0)];
            shard.epoch == held.epoch && shard.owner == Some(hold.member)
        });
        if same && held { Ok(progress) } else { Err(fenced()) }
    }
}

impl Progress {
    /// Takes the shards from whoever has them.
    pub(super) fn free(&mut self, time: Time) {
        self.reap(time.now);
        for shard in &mut self.shards {
            shard.owner = None;
        }
    }
}
