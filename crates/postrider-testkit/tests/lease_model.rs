//! Every interleaving of workers that claim, settle, stall, crash and come back too late, and of a reaper
//! between them.
//!
//! Two workers, a block of two events and an event of its own. Every settle is a message that may arrive
//! late, when its sender is long gone, or arrive without its sender learning of it; the reaper reads first
//! and acts later. What is checked is the protocol of leases in mode `queue`: who may change a row, and that
//! none is forgotten. Each rule of it has a variant without it, and the checker finds what that breaks.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, HasDiscoveries, Model, Property};

const EVENTS: usize = 3;
const WORKERS: usize = 2;
/// Attempts after which an event is a dead letter.
const ATTEMPTS: u8 = 2;
/// Settles under way at a time.
const WIRE_MAX: usize = 2;

/// The protocol, or what it would be without one of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    Sound,
    /// A settle names the row only.
    SettleById,
    /// A settle names the row, which must be leased, by any worker.
    SettleByIdAndState,
    /// The reaper frees the rows it has read, whichever worker has them by now.
    ReapUnchecked,
    /// The reaper frees a block's first event only.
    ReapForgetsParts,
}

/// Rows by the number of their first event, tokens by the number of their claim.
type Token = u8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    rows: [Option<Row>; EVENTS],
    ends: [End; EVENTS],
    /// Attempts that have failed and were settled.
    failed: [u8; EVENTS],
    /// The claims that the store knows, and whether their lease lasts.
    claims: BTreeMap<Token, bool>,
    workers: [Option<Hold>; WORKERS],
    /// Settles that were sent and have not arrived.
    wire: BTreeSet<Settle>,
    /// What the reaper has read, and not acted upon.
    reaping: Option<BTreeSet<(usize, Token)>>,
    newest: Token,
    faults: u8,
    /// Who has claimed each event last, how often it was claimed, and whether a handler has acked it.
    claimed_last: [Token; EVENTS],
    claimed: [u8; EVENTS],
    acked: [bool; EVENTS],
    broken: Broken,
}

/// A row of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Row {
    /// How many events it stands for.
    events: usize,
    /// Under which token it is leased; none if it is ready.
    leased: Option<Token>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    Open,
    Done,
    Dead,
}

/// What a worker has in its hands: one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Hold {
    row: usize,
    token: Token,
    events: usize,
    outcomes: [Outcome; 2],
    /// The settle that it has sent and of which it has heard nothing.
    sent: Option<Settle>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Outcome {
    Runs,
    Acked,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Settle {
    row: usize,
    token: Token,
    outcomes: [Outcome; 2],
}

/// What must never happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Broken {
    /// A settle was accepted that was not of the last claim of its events.
    foreign: bool,
    /// A settle under a token that its row did not have has changed something.
    zombie: bool,
    /// A row was freed whose lease lasted.
    robbed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Claim(usize, usize),
    Finish(usize, usize, Outcome),
    Send(usize),
    /// A settle arrives; whether its sender hears of it.
    Arrive(Settle, bool),
    Extend(usize),
    /// A lease runs out.
    Expire(Token),
    /// The reaper reads what has run out.
    Read,
    /// The reaper frees what it has read.
    Reap,
    Crash(usize),
}

#[derive(Debug, Clone, Copy)]
struct Leases {
    rules: Rules,
    /// Leases that run out, crashes, and answers that are lost.
    faults: u8,
    /// How often rows may be claimed.
    claims: Token,
    /// Whether there is an event beside the block.
    beside: bool,
}

/// A block alone and much trouble.
const DEEP: Leases = Leases { rules: Rules::Sound, faults: 2, claims: 4, beside: false };
/// A block, an event beside it, and a little trouble.
const WIDE: Leases = Leases { rules: Rules::Sound, faults: 2, claims: 3, beside: true };

impl Leases {
    /// Whether the store accepts a settle of a row under a token.
    fn accepts(self, state: &State, row: usize, token: Token) -> bool {
        state.rows[row].is_some_and(|row| match self.rules {
            Rules::SettleById => true,
            Rules::SettleByIdAndState => row.leased.is_some(),
            _ => row.leased == Some(token),
        })
    }

    fn claim(state: &mut State, me: usize, row: usize) -> Option<()> {
        state.newest += 1;
        let token = state.newest;
        let stored = state.rows[row].as_mut()?;
        stored.leased = Some(token);
        let events = stored.events;
        for event in row..row + events {
            state.claimed_last[event] = token;
            state.claimed[event] += 1;
        }
        state.claims.insert(token, true);
        state.workers[me] = Some(Hold { row, token, events, outcomes: [Outcome::Runs; 2], sent: None });
        Some(())
    }

    /// Sends what became of a row; of a block that is slow, what is known by now.
    fn send(state: &mut State, me: usize) -> Option<()> {
        let hold = state.workers[me].as_mut()?;
        // One that was sent before is sent again, as it was.
        let settle =
            hold.sent.unwrap_or(Settle { row: hold.row, token: hold.token, outcomes: hold.outcomes });
        hold.sent = Some(settle);
        state.wire.insert(settle);
        Some(())
    }

    fn arrive(self, state: &mut State, settle: Settle, heard: bool) {
        state.wire.remove(&settle);
        if self.accepts(state, settle.row, settle.token) {
            let row = state.rows[settle.row].take().expect("it is accepted because it is there");
            let events = settle.row..settle.row + row.events;
            state.broken.foreign |= events.clone().any(|event| state.claimed_last[event] != settle.token);
            state.broken.zombie |= row.leased != Some(settle.token);
            for (event, outcome) in events.zip(settle.outcomes) {
                Self::settle_event(state, event, outcome, settle.token);
            }
            forget_empty_claims(state);
        }
        if heard {
            for hold in &mut state.workers {
                *hold = hold.and_then(|hold| hold.after(settle));
            }
        } else {
            state.faults += 1;
        }
    }

    fn settle_event(state: &mut State, event: usize, outcome: Outcome, token: Token) {
        match outcome {
            Outcome::Acked => state.ends[event] = End::Done,
            Outcome::Runs => state.rows[event] = Some(Row { events: 1, leased: Some(token) }),
            Outcome::Failed => {
                state.failed[event] += 1;
                if state.failed[event] >= ATTEMPTS {
                    state.ends[event] = End::Dead;
                } else {
                    state.rows[event] = Some(Row { events: 1, leased: None });
                }
            }
        }
    }

    fn reap(self, state: &mut State) -> Option<()> {
        for (row, token) in state.reaping.take()? {
            let Some(stored) = state.rows[row] else { continue };
            let Some(leased) = stored.leased else { continue };
            let lasts = state.claims.get(&leased) == Some(&true);
            if self.rules != Rules::ReapUnchecked && (leased != token || lasts) {
                continue;
            }
            state.broken.robbed |= lasts;
            let freed = if self.rules == Rules::ReapForgetsParts { 1 } else { stored.events };
            for event in row..row + freed {
                state.rows[event] = Some(Row { events: 1, leased: None });
            }
        }
        forget_empty_claims(state);
        Some(())
    }

    /// Makes a lease last. A worker that learns that its claim is gone ends its handlers.
    fn extend(state: &mut State, me: usize) -> Option<()> {
        let hold = state.workers[me]?;
        match state.claims.get_mut(&hold.token) {
            Some(lasts) => *lasts = true,
            None => state.workers[me] = None,
        }
        Some(())
    }

    fn actions_of(self, state: &State, me: usize, actions: &mut Vec<Action>) {
        let Some(hold) = &state.workers[me] else {
            let ready = (0..EVENTS).filter(|row| state.rows[*row].is_some_and(|row| row.leased.is_none()));
            actions.extend(ready.filter(|_| state.newest < self.claims).map(|row| Action::Claim(me, row)));
            return;
        };
        let outcomes = &hold.outcomes[..hold.events];
        for (index, outcome) in outcomes.iter().enumerate() {
            // While a settle is under way, what runs has no outcome yet: the next settle would bring it.
            if *outcome == Outcome::Runs && hold.sent.is_none() {
                actions.extend(
                    [Outcome::Acked, Outcome::Failed].map(|outcome| Action::Finish(me, index, outcome)),
                );
            }
        }
        if outcomes.iter().any(|outcome| *outcome != Outcome::Runs) && state.wire.len() < WIRE_MAX {
            actions.push(Action::Send(me));
        }
        actions.push(Action::Extend(me));
        if state.faults < self.faults {
            actions.push(Action::Crash(me));
        }
    }
}

impl Hold {
    /// What is left in a worker's hands once it has heard of a settle: of a slow block, the event that runs.
    fn after(self, settle: Settle) -> Option<Self> {
        if self.sent != Some(settle) {
            return Some(self);
        }
        let runs = (0..self.events).find(|index| settle.outcomes[*index] == Outcome::Runs)?;
        Some(Self { row: self.row + runs, events: 1, outcomes: [Outcome::Runs; 2], sent: None, ..self })
    }
}

fn forget_empty_claims(state: &mut State) {
    let leased: BTreeSet<Token> = state.rows.iter().flatten().filter_map(|row| row.leased).collect();
    state.claims.retain(|token, _| leased.contains(token));
}

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let row = |events| Some(Row { events, leased: None });
        let (beside, end) = if self.beside { (row(1), End::Open) } else { (None, End::Done) };
        vec![State {
            rows: [row(2), None, beside],
            ends: [End::Open, End::Open, end],
            failed: [0; EVENTS],
            claims: BTreeMap::new(),
            workers: [None; WORKERS],
            wire: BTreeSet::new(),
            reaping: None,
            newest: 0,
            faults: 0,
            claimed_last: [0; EVENTS],
            claimed: [0; EVENTS],
            acked: [false, false, !self.beside],
            broken: Broken::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for me in 0..WORKERS {
            self.actions_of(state, me, actions);
        }
        for settle in &state.wire {
            actions.push(Action::Arrive(*settle, true));
            if state.faults < self.faults {
                actions.push(Action::Arrive(*settle, false));
            }
        }
        if state.faults < self.faults {
            let lasting = state.claims.iter().filter(|(_, lasts)| **lasts);
            actions.extend(lasting.map(|(token, _)| Action::Expire(*token)));
        }
        match state.reaping {
            Some(_) => actions.push(Action::Reap),
            None if state.claims.values().any(|lasts| !lasts) => actions.push(Action::Read),
            None => {}
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Claim(me, row) => Self::claim(&mut state, me, row)?,
            Action::Finish(me, index, outcome) => {
                let hold = state.workers[me].as_mut()?;
                hold.outcomes[index] = outcome;
                let event = hold.row + index;
                state.acked[event] |= outcome == Outcome::Acked;
            }
            Action::Send(me) => Self::send(&mut state, me)?,
            Action::Arrive(settle, heard) => self.arrive(&mut state, settle, heard),
            Action::Extend(me) => Self::extend(&mut state, me)?,
            Action::Expire(token) => {
                state.faults += 1;
                state.claims.insert(token, false);
            }
            Action::Read => {
                let over = |token: &Token| state.claims.get(token) == Some(&false);
                let leased =
                    state.rows.iter().enumerate().filter_map(|(id, row)| Some((id, (*row)?.leased?)));
                state.reaping = Some(leased.filter(|(_, token)| over(token)).collect());
            }
            Action::Reap => self.reap(&mut state)?,
            Action::Crash(me) => {
                state.faults += 1;
                state.workers[me] = None;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no row has two holders", |model: &Self, state: &State| {
                let holds = |row: usize| {
                    let holders = state.workers.iter().flatten().filter(move |hold| hold.row == row);
                    holders.filter(move |hold| model.accepts(state, row, hold.token)).count()
                };
                (0..EVENTS).all(|row| holds(row) <= 1)
            }),
            Property::always("only the last to claim settles", |_, state: &State| !state.broken.foreign),
            Property::always("a zombie changes nothing", |_, state: &State| !state.broken.zombie),
            Property::always("a lease that lasts is kept", |_, state: &State| !state.broken.robbed),
            Property::always("nothing is lost", |_, state: &State| {
                (0..EVENTS).all(|event| is_kept(state, event))
            }),
            Property::always("without faults nothing comes twice", |_, state: &State| {
                let counted = |event: usize| state.claimed[event] <= 1 + state.failed[event];
                state.faults > 0 || (0..EVENTS).all(counted)
            }),
            Property::sometimes("all are done although much went wrong", |model: &Self, state: &State| {
                state.faults == model.faults && state.ends.iter().all(|end| *end == End::Done)
            }),
        ]
    }
}

/// Whether an event is done because a worker has done it, or dead because it has failed so often, or is in
/// exactly one row, which is ready or can be freed.
fn is_kept(state: &State, event: usize) -> bool {
    let rows = state.rows.iter().enumerate().filter_map(|(id, row)| Some((id, (*row)?)));
    let rows: Vec<Row> =
        rows.filter(|(id, row)| (*id..id + row.events).contains(&event)).map(|(_, row)| row).collect();
    match state.ends[event] {
        End::Done => rows.is_empty() && state.acked[event],
        End::Dead => rows.is_empty() && state.failed[event] >= ATTEMPTS,
        End::Open => rows.len() == 1 && rows[0].leased.is_none_or(|token| state.claims.contains_key(&token)),
    }
}

/// What a variant breaks; every state is looked at unless something is broken.
fn broken(rules: Rules, model: Leases) -> BTreeSet<&'static str> {
    let model = Leases { rules, ..model };
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{model:?}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    let good = "all are done although much went wrong";
    let found: BTreeSet<_> = checker.discoveries().into_keys().collect();
    assert!(rules != Rules::Sound || found.contains(good), "the model does too little");
    found.into_iter().filter(|name| *name != good).collect()
}

#[test]
fn the_protocol_keeps_every_promise() {
    assert_eq!(broken(Rules::Sound, DEEP), BTreeSet::new());
    assert_eq!(broken(Rules::Sound, WIDE), BTreeSet::new());
}

#[test]
fn a_settle_without_its_token_is_found() {
    assert!(!broken(Rules::SettleById, DEEP).is_empty());
}

#[test]
fn a_settle_of_whoever_holds_the_row_is_found() {
    assert!(!broken(Rules::SettleByIdAndState, DEEP).is_empty());
}

#[test]
fn a_reaper_that_does_not_look_twice_is_found() {
    assert!(broken(Rules::ReapUnchecked, DEEP).contains("a lease that lasts is kept"));
}

#[test]
fn a_block_that_is_freed_in_part_is_found() {
    assert!(broken(Rules::ReapForgetsParts, DEEP).contains("nothing is lost"));
}
