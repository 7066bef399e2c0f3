//! Which member of a group holds which shard, without a coordinator.
//!
//! Every member computes the same answer from the same facts: which members stand for the subscription and
//! live. Each shard has a preference among the members, by rendezvous hashing, so that a change of members
//! moves few shards; and no member gets more than its even part, so that few shards are spread well too.
//!
//! Views differ for a moment when members come and go. That does no harm: shards are taken only while they
//! are free, and only their holder gives them.

use xxhash_rust::xxh3::xxh3_64;

use crate::position::{MemberId, Shard, ShardSet};
use crate::subscription::Members;

/// Who could hold a subscription's shards, and who does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The members that stand for the subscription and live.
    pub members: Vec<MemberId>,
    /// By shard: the member that holds it and lives; none if it is free.
    pub owners: Vec<Option<MemberId>>,
    /// Shards whose owner counts as living and has given no sign since the asking member joined: it may be
    /// dead. None in a store that knows at once who has died.
    pub silent: ShardSet,
}

/// What a member ought to do about its shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Plan {
    /// Free shards that it should have.
    pub take: ShardSet,
    /// Shards that it holds and another member should have.
    pub give: ShardSet,
}

impl Survey {
    /// What `me` ought to do, who is at work on `held`. A member that does not stand takes whatever is free, and gives
    /// nothing.
    pub fn plan(&self, me: MemberId, held: ShardSet, members: Members) -> Plan {
        let targets = targets(self.owners.len() as u16, &self.members, members);
        let stands = self.members.contains(&me);
        let mut plan = Plan::default();
        for (index, owner) in self.owners.iter().enumerate() {
            let shard = Shard(index as u16);
            let mine = targets.get(index).is_none_or(|target| *target == me) || !stands;
            if held.contains(shard) {
                // Even if the store calls it free: the task that works on it must find that out and end first, or two
                // would work on the same keys in one process.
                if !mine {
                    plan.give.insert(shard);
                }
                continue;
            }
            // Of a hold that was lost: ours in the store but not in memory. It is taken again even if it
            // should be given, because no other member can free it.
            let lost = *owner == Some(me);
            if lost || (mine && owner.is_none()) {
                plan.take.insert(shard);
            }
        }
        plan
    }

    /// Whether every shard has an owner.
    pub fn is_settled(&self) -> bool {
        self.owners.iter().all(Option::is_some)
    }
}

/// Who should hold each shard; empty if there is no member.
fn targets(shards: u16, members: &[MemberId], rule: Members) -> Vec<MemberId> {
    let Some(oldest) = members.iter().min() else { return Vec::new() };
    if rule == Members::One {
        return vec![*oldest; usize::from(shards)];
    }
    let even = usize::from(shards) / members.len();
    // So many members get one more.
    let mut more = usize::from(shards) % members.len();
    let mut loads = vec![0; members.len()];
    let place = |shard: u16| {
        let wanted = (0..members.len())
            .filter(|index| loads[*index] < even || (loads[*index] == even && more > 0))
            .max_by_key(|index| (weight(members[*index], Shard(shard)), members[*index]));
        // There is always one: these parts add up to all shards.
        let index = wanted.unwrap_or_default();
        more -= usize::from(loads[index] == even);
        loads[index] += 1;
        members[index]
    };
    (0..shards).map(place).collect()
}

fn weight(member: MemberId, shard: Shard) -> u64 {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&member.0.to_le_bytes());
    bytes[8..].copy_from_slice(&shard.0.to_le_bytes());
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ids: std::ops::RangeInclusive<i64>) -> Vec<MemberId> {
        ids.map(MemberId).collect()
    }

    fn free(members: Vec<MemberId>) -> Survey {
        Survey { members, owners: vec![None; 64], silent: ShardSet::default() }
    }

    #[test]
    fn everybody_gets_an_even_part_and_every_shard_has_one_target() {
        for count in [1, 2, 3, 4, 7, 50, 64, 100] {
            let survey = free(members(1..=count));
            let mut all = ShardSet::default();
            for member in &survey.members {
                let take = survey.plan(*member, ShardSet::default(), Members::Many).take;
                let even = 64 / count as usize;
                assert!((even..=even + 1).contains(&take.len()), "{count}: {}", take.len());
                assert!(all.iter().all(|shard| !take.contains(shard)), "{count}");
                all = all.union(take);
            }
            assert_eq!(all, ShardSet::ALL, "{count}");
        }
    }

    #[test]
    fn the_order_of_the_members_says_nothing() {
        let (there, mut back) = (members(1..=5), members(1..=5));
        back.reverse();
        assert_eq!(targets(64, &there, Members::Many), targets(64, &back, Members::Many));
    }

    #[test]
    fn a_change_of_members_moves_about_its_part() {
        for count in 1..12 {
            let before = targets(64, &members(1..=count), Members::Many);
            let after = targets(64, &members(1..=count + 1), Members::Many);
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
            let part = 64_usize.div_ceil(count as usize + 1);
            assert!(moved <= 3 * part, "{moved} of 64 moved when {count} became {}", count + 1);
        }
    }

    #[test]
    fn one_takes_all_and_stays() {
        let survey = free(members(3..=5));
        assert_eq!(survey.plan(MemberId(3), ShardSet::default(), Members::One).take, ShardSet::ALL);
        let held = Survey { owners: vec![Some(MemberId(3)); 64], ..survey };
        assert_eq!(held.plan(MemberId(3), ShardSet::ALL, Members::One), Plan::default());
        assert_eq!(held.plan(MemberId(4), ShardSet::default(), Members::One), Plan::default());
    }

    #[test]
    fn what_others_should_have_is_given_and_only_what_is_free_is_taken() {
        let owners = vec![Some(MemberId(1)); 64];
        let survey = Survey { owners, ..free(members(1..=2)) };
        let first = survey.plan(MemberId(1), ShardSet::ALL, Members::Many);
        assert_eq!((first.give.len(), first.take), (32, ShardSet::default()));
        assert_eq!(survey.plan(MemberId(2), ShardSet::default(), Members::Many), Plan::default());
    }

    #[test]
    fn a_lost_hold_is_taken_again() {
        let survey = Survey { owners: vec![Some(MemberId(1)); 64], ..free(members(1..=1)) };
        assert_eq!(survey.plan(MemberId(1), ShardSet::default(), Members::Many).take, ShardSet::ALL);
    }

    #[test]
    fn what_is_still_worked_on_is_not_taken_again() {
        let survey = free(members(1..=1));
        assert_eq!(survey.plan(MemberId(1), ShardSet::ALL, Members::Many), Plan::default());
    }

    #[test]
    fn who_does_not_stand_takes_what_is_free_and_gives_nothing() {
        let mut survey = free(members(1..=2));
        survey.owners[7] = Some(MemberId(1));
        let plan = survey.plan(MemberId(9), ShardSet::default(), Members::Many);
        assert_eq!((plan.take.len(), plan.give), (63, ShardSet::default()));
    }
}
