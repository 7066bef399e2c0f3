//! Members, and the shards that they hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use postrider_core::balance::Survey;
use postrider_core::refusal::member_is_forgotten;
use postrider_core::settle::{HeldShard, Hold, MemberId, Taken};
use postrider_core::{Epoch, Error, ErrorKind, Position, Result, Shard, ShardSet};

use super::state::{Member, OwnedShard, Progress, State, Time};

impl State {
    pub(super) fn join(&mut self, name: &str, time: Time) -> MemberId {
        self.member_newest = MemberId(self.member_newest.0 + 1);
        let member = Member { name: name.to_owned(), joined: time.uptime, beat: time.uptime };
        self.members.insert(self.member_newest, member);
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
            progress.standing.remove(&member);
            let held = progress.shards.iter().enumerate().filter(|(_, shard)| shard.owner == Some(member));
            let held = ShardSet::of(held.map(|(index, _)| Shard(index as u16)));
            progress.free(held, time);
            for shard in held.iter() {
                progress.shards[usize::from(shard.0)].left = true;
            }
        }
    }

    pub(super) fn lives(&self, member: MemberId, time: Time) -> bool {
        self.members.get(&member).is_some_and(|known| time.uptime.saturating_sub(known.beat) < self.lease)
    }

    pub(super) fn survey(
        &mut self,
        name: &str,
        member: MemberId,
        stands: bool,
        time: Time,
    ) -> Result<Survey> {
        let joined = self.members.get(&member).ok_or_else(|| member_is_forgotten(member))?.joined;
        let progress = self.progress_mut(name)?;
        if stands {
            progress.standing.insert(member);
        }
        let progress = self.progress(name)?;
        let members = progress.standing.iter().copied().filter(|member| self.lives(*member, time)).collect();
        let living = |shard: &OwnedShard| shard.owner.filter(|owner| self.lives(*owner, time));
        let owners: Vec<Option<MemberId>> = progress.shards.iter().map(living).collect();
        let is_silent = |owner: &MemberId| *owner != member && self.members[owner].beat <= joined;
        let silent = owners.iter().enumerate().filter(|(_, owner)| owner.as_ref().is_some_and(is_silent));
        let silent = ShardSet::of(silent.map(|(index, _)| Shard(index as u16)));
        Ok(Survey { members, owners, silent })
    }

    pub(super) fn take(
        &mut self,
        name: &str,
        member: MemberId,
        wanted: ShardSet,
        time: Time,
    ) -> Result<Option<Taken>> {
        if !self.members.contains_key(&member) {
            return Err(member_is_forgotten(member));
        }
        // A member that loses shards is forgotten: it cannot beat again and trust a lease that did not hold.
        let owners: BTreeSet<MemberId> = self.owners(name, wanted)?.filter_map(|(_, owner)| owner).collect();
        for owner in owners {
            if owner != member && !self.lives(owner, time) {
                self.forget(owner, time);
            }
        }
        let is_free = |owner: Option<MemberId>| owner.is_none_or(|owner| owner == member);
        let free = self.owners(name, wanted)?.filter(|(_, owner)| is_free(*owner));
        let free = ShardSet::of(free.map(|(shard, _)| shard));
        if free.is_empty() {
            return Ok(None);
        }
        let progress = self.progress_mut(name)?;
        progress.reap(free, time.now);
        let is_left = |shard: Shard| {
            let shard = &progress.shards[usize::from(shard.0)];
            shard.left || shard.owner.is_some()
        };
        let taken_over = free.iter().any(is_left);
        let held: Vec<HeldShard> = free
            .iter()
            .map(|index| {
                let shard = &mut progress.shards[usize::from(index.0)];
                // The same member gets a new epoch too: a repeated take must not leave two valid holds.
                shard.epoch = Epoch(shard.epoch.0 + 1);
                shard.owner = Some(member);
                shard.left = false;
                HeldShard { shard: index, epoch: shard.epoch, position: shard.position }
            })
            .collect();
        let start = held.iter().map(|held| held.position).min().unwrap_or(Position::START);
        let hold = Hold {
            subscription: Arc::clone(&progress.subscription),
            member,
            shard_count: progress.shards.len() as u16,
            shards: Arc::from(held),
        };
        let parked = progress.parked(free);
        self.take_overs += u64::from(taken_over);
        Ok(Some(Taken { hold, start, parked }))
    }

    /// The owners of some of a subscription's shards, dead or alive.
    fn owners(
        &self,
        name: &str,
        shards: ShardSet,
    ) -> Result<impl Iterator<Item = (Shard, Option<MemberId>)> + use<'_>> {
        let owners = self.progress(name)?.shards.iter().enumerate();
        let owners = owners.map(|(index, shard)| (Shard(index as u16), shard.owner));
        Ok(owners.filter(move |(shard, _)| shards.contains(*shard)))
    }

    pub(super) fn release(&mut self, hold: &Hold, time: Time) -> Result<()> {
        self.held(hold)?.free(hold.set(), time);
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
    /// Takes shards from their owners.
    pub(super) fn free(&mut self, shards: ShardSet, time: Time) {
        self.reap(shards, time.now);
        for shard in shards.iter() {
            if let Some(shard) = self.shards.get_mut(usize::from(shard.0)) {
                shard.owner = None;
            }
        }
    }
}
