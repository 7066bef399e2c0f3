//! Every interleaving of members that come, go, stall and die, over the plans that `balance.rs` really makes.
//!
//! Two members, every settle a message that may arrive late or never; one shard through much trouble, or two through a
//! little. What is checked is the protocol of ownership: who may hand out, what a settle may change, when a shard may
//! change hands. Each rule of it has a variant without it, and the checker finds what that breaks.

use std::collections::BTreeSet;

use postrider_core::balance::Survey;
use postrider_core::settle::MemberId;
use postrider_core::{Members, Shard, ShardSet};
use stateright::{Checker, HasDiscoveries, Model, Property};

const SHARDS: usize = 2;
const EVENTS: u8 = 2;
const MEMBERS: usize = 2;
/// Settles under way at a time.
const WIRE_MAX: usize = 2;

/// The protocol, or what it would be without one of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    Sound,
    /// A settle is not fenced at all.
    CommitByRevoked,
    /// A settle is fenced by its member, whatever the epoch.
    StaleEpoch,
    /// Shards are given back while a handler still runs.
    HandOverInFlight,
    /// A member that was taken for dead and lost its shards may beat again.
    Revival,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct State {
    shards: [StoredShard; SHARDS],
    members: [Member; MEMBERS],
    /// Settles that were sent and have not arrived.
    wire: BTreeSet<Settle>,
    starts: u8,
    faults: u8,
    /// How often each event was handed out, and whether a handler has ended.
    handed: [[u8; EVENTS as usize]; SHARDS],
    finished: [[bool; EVENTS as usize]; SHARDS],
    broken: Broken,
}

/// What the store knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct StoredShard {
    owner: Option<MemberId>,
    epoch: u8,
    position: u8,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Member {
    /// Who it is in the store; none if it does not run.
    id: Option<MemberId>,
    /// Whether its lease lasts: the store believes that it lives, and itself that it may hand out.
    leased: bool,
    /// Whether the store still knows it.
    known: bool,
    stopping: bool,
    work: [Option<Work>; SHARDS],
}

/// A shard in a member's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Work {
    epoch: u8,
    done: u8,
    running: bool,
    giving: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Settle {
    member: MemberId,
    shard: usize,
    epoch: u8,
    position: u8,
}

/// What must never happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Broken {
    /// A position has moved back.
    back: bool,
    /// An event was handed out before the one before it had been handled.
    inverted: bool,
    /// A member handed out what it did not own.
    foreign: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Start(usize),
    /// A shutdown in order begins.
    Stop(usize),
    /// The process is gone.
    Crash(usize),
    /// The lease runs out although the process lives, or because it does not.
    Expire(usize, MemberId),
    Beat(usize),
    /// The connection is lost, and with it what was known of a shard. Its handlers end.
    Lose(usize, usize),
    /// Survey, plan, take.
    Ask(usize),
    HandOut(usize, usize),
    Finish(usize, usize),
    Send(usize, usize),
    Arrive(Settle),
    Release(usize, usize),
}

/// A protocol, and how much may happen.
#[derive(Debug, Clone, Copy)]
struct Rebalance {
    rules: Rules,
    shards: usize,
    events: u8,
    /// How often members may start, including the first time.
    starts: u8,
    /// Crashes, and leases that run out.
    faults: u8,
}

/// One shard and much trouble: everything about a key's order.
const DEEP: Rebalance = Rebalance { rules: Rules::Sound, shards: 1, events: 2, starts: 3, faults: 2 };
/// Two shards and a little trouble: everything about sharing.
const WIDE: Rebalance = Rebalance { rules: Rules::Sound, shards: 2, events: 1, starts: 2, faults: 1 };

impl Rebalance {
    fn lives(state: &State, id: MemberId) -> bool {
        state.members.iter().any(|member| member.id == Some(id) && member.leased && member.known)
    }

    fn survey(&self, state: &State) -> Survey {
        let standing =
            state.members.iter().filter(|member| member.leased && member.known && !member.stopping);
        Survey {
            members: standing.filter_map(|member| member.id).collect(),
            owners: state.shards[..self.shards]
                .iter()
                .map(|shard| shard.owner.filter(|id| Self::lives(state, *id)))
                .collect(),
            silent: ShardSet::default(),
        }
    }

    /// Takes what the plan says and is still free, and marks what must be given.
    fn ask(&self, state: &mut State, me: usize) -> Option<()> {
        let id = state.members[me].id?;
        let held = state.members[me].work.iter().enumerate().filter(|(_, work)| work.is_some());
        let held = ShardSet::of(held.map(|(index, _)| Shard(index as u16)));
        let plan = self.survey(state).plan(id, held, Members::Many);
        if plan.take.is_empty() && plan.give.is_empty() {
            return None;
        }
        for shard in plan.take.iter().map(|shard| usize::from(shard.0)) {
            let owner = state.shards[shard].owner;
            if let Some(loser) = owner.filter(|owner| *owner != id) {
                for member in state.members.iter_mut().filter(|member| member.id == Some(loser)) {
                    member.known = self.rules == Rules::Revival;
                }
            }
            let stored = &mut state.shards[shard];
            stored.owner = Some(id);
            stored.epoch += 1;
            let work = Work { epoch: stored.epoch, done: stored.position, running: false, giving: false };
            state.members[me].work[shard] = Some(work);
        }
        for shard in plan.give.iter().map(|shard| usize::from(shard.0)) {
            if let Some(work) = &mut state.members[me].work[shard] {
                work.giving = true;
            }
        }
        Some(())
    }

    fn beat(state: &mut State, me: usize) {
        let member = &mut state.members[me];
        if member.known {
            member.leased = true;
        } else {
            // The member was forgotten: it ends, and joins again as another member.
            state.starts += 1;
            let id = Some(MemberId(i64::from(state.starts)));
            *member = Member { id, leased: true, known: true, ..Member::default() };
        }
    }

    fn hand_out(state: &mut State, me: usize, shard: usize) -> Option<()> {
        let id = state.members[me].id;
        let work = state.members[me].work[shard].as_mut()?;
        let event = usize::from(work.done);
        work.running = true;
        let stored = state.shards[shard];
        state.broken.foreign |= stored.owner != id || stored.epoch != work.epoch;
        state.broken.inverted |= event > 0 && !state.finished[shard][event - 1];
        state.handed[shard][event] = (state.handed[shard][event] + 1).min(2);
        Some(())
    }

    /// Whether the store refuses a settle.
    fn is_fenced(&self, state: &State, settle: Settle) -> bool {
        let stored = state.shards[settle.shard];
        match self.rules {
            Rules::CommitByRevoked => false,
            Rules::StaleEpoch => stored.owner != Some(settle.member),
            _ => stored.owner != Some(settle.member) || stored.epoch != settle.epoch,
        }
    }

    fn arrive(&self, state: &mut State, settle: Settle) {
        state.wire.remove(&settle);
        if !self.is_fenced(state, settle) {
            let stored = &mut state.shards[settle.shard];
            state.broken.back |= settle.position < stored.position;
            stored.position = settle.position;
            return;
        }
        for member in state.members.iter_mut().filter(|member| member.id == Some(settle.member)) {
            // A fenced member forgets what it knew. Its handlers end.
            let stale = |work: &Work| work.epoch == settle.epoch;
            member.work[settle.shard] = member.work[settle.shard].filter(|work| !stale(work));
        }
    }

    fn release(state: &mut State, me: usize, shard: usize) -> Option<()> {
        let id = state.members[me].id?;
        let work = state.members[me].work[shard]?;
        state.members[me].work[shard] = None;
        let stored = &mut state.shards[shard];
        if stored.owner == Some(id) && stored.epoch == work.epoch {
            stored.owner = None;
            stored.epoch += 1;
        }
        Some(())
    }

    fn actions_of(&self, state: &State, me: usize, actions: &mut Vec<Action>) {
        let member = &state.members[me];
        let Some(id) = member.id else {
            if state.starts < self.starts {
                actions.push(Action::Start(me));
            }
            return;
        };
        if state.faults < self.faults {
            actions.push(Action::Crash(me));
            if member.leased {
                actions.push(Action::Expire(me, id));
            }
        }
        if !member.leased && (member.known || state.starts < self.starts) {
            actions.push(Action::Beat(me));
        }
        if !member.stopping {
            actions.push(Action::Stop(me));
            if member.known {
                actions.push(Action::Ask(me));
            }
        }
        for shard in 0..SHARDS {
            let Some(work) = member.work[shard] else { continue };
            if member.leased && !work.running && !work.giving && work.done < self.events {
                actions.push(Action::HandOut(me, shard));
            }
            if work.running {
                actions.push(Action::Finish(me, shard));
            }
            if state.faults < self.faults {
                actions.push(Action::Lose(me, shard));
            }
            let settled = state.shards[shard].position == work.done;
            if !settled && state.wire.len() < WIRE_MAX {
                actions.push(Action::Send(me, shard));
            }
            let drained = !work.running || self.rules == Rules::HandOverInFlight;
            if work.giving && settled && drained {
                actions.push(Action::Release(me, shard));
            }
        }
    }
}

impl Model for Rebalance {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for me in 0..MEMBERS {
            self.actions_of(state, me, actions);
        }
        // Those of one hold arrive in the order in which they were sent: a hold ends with its connection.
        let is_first = |settle: &&Settle| {
            let same = |other: &&Settle| {
                (other.member, other.shard, other.epoch) == (settle.member, settle.shard, settle.epoch)
            };
            state.wire.iter().filter(same).all(|other| settle.position <= other.position)
        };
        actions.extend(state.wire.iter().filter(is_first).copied().map(Action::Arrive));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Start(me) => {
                state.starts += 1;
                let id = Some(MemberId(i64::from(state.starts)));
                state.members[me] = Member { id, leased: true, known: true, ..Member::default() };
            }
            Action::Stop(me) => {
                let member = &mut state.members[me];
                member.stopping = true;
                member.work.iter_mut().flatten().for_each(|work| work.giving = true);
                if member.work.iter().all(Option::is_none) {
                    *member = Member::default();
                }
            }
            Action::Crash(me) => {
                state.faults += 1;
                state.members[me] = Member::default();
            }
            Action::Expire(me, _) => {
                state.faults += 1;
                state.members[me].leased = false;
            }
            Action::Lose(me, shard) => {
                state.faults += 1;
                state.members[me].work[shard] = None;
            }
            Action::Beat(me) => Self::beat(&mut state, me),
            Action::Ask(me) => self.ask(&mut state, me)?,
            Action::HandOut(me, shard) => Self::hand_out(&mut state, me, shard)?,
            Action::Finish(me, shard) => {
                let work = state.members[me].work[shard].as_mut()?;
                state.finished[shard][usize::from(work.done)] = true;
                work.running = false;
                work.done += 1;
            }
            Action::Send(me, shard) => {
                let (member, work) = (state.members[me].id?, state.members[me].work[shard]?);
                state.wire.insert(Settle { member, shard, epoch: work.epoch, position: work.done });
            }
            Action::Arrive(settle) => self.arrive(&mut state, settle),
            Action::Release(me, shard) => {
                Self::release(&mut state, me, shard)?;
                if state.members[me].stopping && state.members[me].work.iter().all(Option::is_none) {
                    state.members[me] = Member::default();
                }
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is lost", |_, state: &State| {
                let passed = |shard: usize| 0..usize::from(state.shards[shard].position);
                (0..SHARDS).all(|shard| passed(shard).all(|event| state.finished[shard][event]))
            }),
            Property::always("positions never move back", |_, state: &State| !state.broken.back),
            Property::always("keys keep their order", |_, state: &State| !state.broken.inverted),
            Property::always("only the owner hands out", |_, state: &State| !state.broken.foreign),
            Property::always("without faults nothing comes twice", |_, state: &State| {
                state.faults > 0 || state.handed.iter().flatten().all(|times| *times <= 1)
            }),
        ]
    }
}

/// What a variant breaks; every state is looked at unless something is broken.
fn broken(rules: Rules, model: Rebalance) -> Vec<&'static str> {
    let model = Rebalance { rules, ..model };
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{model:?}: {} states", checker.unique_state_count());
    checker.discoveries().into_keys().collect()
}

#[test]
fn the_protocol_keeps_every_promise() {
    assert_eq!(broken(Rules::Sound, DEEP), Vec::<&str>::new());
    assert_eq!(broken(Rules::Sound, WIDE), Vec::<&str>::new());
}

#[test]
fn a_commit_by_a_revoked_owner_is_found() {
    assert_eq!(broken(Rules::CommitByRevoked, DEEP), ["positions never move back"]);
}

#[test]
fn a_stale_epoch_is_found() {
    assert_eq!(broken(Rules::StaleEpoch, DEEP), ["positions never move back"]);
}

#[test]
fn a_hand_over_with_handlers_in_flight_is_found() {
    assert_eq!(broken(Rules::HandOverInFlight, DEEP), ["without faults nothing comes twice"]);
}

#[test]
fn a_member_that_revives_is_found() {
    assert_eq!(broken(Rules::Revival, DEEP), ["only the owner hands out"]);
}
