//! Every interleaving of a few producers and relays under the protocol by which relays sleep, as it stands at
//! the head of `sentry.rs`: no event is slept through. Each shortcut that suggests itself sleeps through one.

use std::collections::HashSet;

/// What one tries to do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shortcut {
    None,
    /// Sleep without asking for the lock.
    NoLock,
    /// Look, then ask for the lock, then sleep.
    LookFirst,
    /// Begin to count what is heard when the answer is there.
    CountLate,
    /// Give the lock back without a word.
    NoOpen,
    /// A server that releases a transaction's locks before others can see what it wrote.
    LocksFirst,
    /// A sentry that is killed: the wake that the documentation gives up.
    Death,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Producer {
    Begun,
    Inserted,
    Asked {
        locked: bool,
    },
    /// Visible, with its locks still held, or the other way round.
    Ending {
        locked: bool,
        visible: bool,
    },
    Ended {
        visible: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Message {
    Wake,
    Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Polls,
    /// Counts what it hears, and has yet to ask.
    Counts,
    Watches {
        guarded: bool,
    },
    Sleeps {
        guarded: bool,
    },
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact about a process")]
struct Relay {
    phase: Phase,
    /// Events by their producers, as bits.
    seen: u8,
    /// What the server has sent and the process has yet to read, in any order.
    wakes: u8,
    opens: u8,
    /// What it has heard since it began to count.
    woken: bool,
    opened: bool,
    holds: bool,
    /// Was woken while it held the lock, and has to give it back.
    stale: bool,
    /// Has given it back, and has to say so.
    to_say: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    producers: Vec<Producer>,
    relays: Vec<Relay>,
}

impl World {
    fn new(producers: usize, relays: usize) -> Self {
        let relay = Relay {
            phase: Phase::Polls,
            seen: 0,
            wakes: 0,
            opens: 0,
            woken: false,
            opened: false,
            holds: false,
            stale: false,
            to_say: false,
        };
        Self { producers: vec![Producer::Begun; producers], relays: vec![relay; relays] }
    }

    fn visible(&self) -> u8 {
        let is_visible = |producer: &Producer| {
            matches!(producer, Producer::Ending { visible: true, .. } | Producer::Ended { visible: true })
        };
        self.producers.iter().rev().fold(0, |bits, producer| bits << 1 | u8::from(is_visible(producer)))
    }

    fn is_shared(&self) -> bool {
        self.producers.iter().any(|producer| {
            matches!(producer, Producer::Asked { locked: true } | Producer::Ending { locked: true, .. })
        })
    }

    fn is_held(&self) -> bool {
        self.relays.iter().any(|relay| relay.holds)
    }

    fn tell(&mut self, message: Message, but: Option<usize>) {
        for (index, relay) in self.relays.iter_mut().enumerate() {
            if Some(index) == but || relay.phase == Phase::Dead {
                continue;
            }
            match message {
                Message::Wake => relay.wakes += 1,
                Message::Open => relay.opens += 1,
            }
        }
    }

    /// Where a producer's next step leads to.
    fn producer_steps(&self, index: usize, shortcut: Shortcut, next: &mut Vec<Self>) {
        let mut go = |to: Producer, notifies: bool| {
            let mut world = self.clone();
            world.producers[index] = to;
            if notifies {
                world.tell(Message::Wake, None);
            }
            next.push(world);
        };
        match self.producers[index] {
            Producer::Begun => go(Producer::Inserted, false),
            Producer::Inserted => go(Producer::Asked { locked: !self.is_held() }, false),
            Producer::Asked { locked: true } if shortcut == Shortcut::LocksFirst => {
                go(Producer::Ending { locked: false, visible: false }, false);
            }
            Producer::Asked { locked } => {
                go(Producer::Ending { locked, visible: true }, !locked);
                // It rolls back instead.
                go(Producer::Ended { visible: false }, false);
            }
            Producer::Ending { .. } => go(Producer::Ended { visible: true }, false),
            Producer::Ended { .. } => {}
        }
    }

    /// Where the next step of a relay's process leads to.
    fn relay_steps(&self, index: usize, shortcut: Shortcut, next: &mut Vec<Self>) {
        let relay = &self.relays[index];
        let mut go = |change: &dyn Fn(&mut Relay)| {
            let mut world = self.clone();
            change(&mut world.relays[index]);
            next.push(world);
        };
        if relay.wakes > 0 {
            go(&|relay| {
                relay.wakes -= 1;
                relay.woken = true;
                relay.stale |= relay.holds;
            });
        }
        if relay.opens > 0 {
            go(&|relay| {
                relay.opens -= 1;
                relay.opened = true;
            });
        }
        if relay.stale {
            go(&|relay| {
                (relay.holds, relay.stale, relay.to_say) = (false, false, shortcut != Shortcut::NoOpen);
            });
        }
        if relay.to_say {
            let mut world = self.clone();
            world.relays[index].to_say = false;
            world.tell(Message::Open, Some(index));
            next.push(world);
        }
        if shortcut == Shortcut::Death && relay.holds {
            let mut world = self.clone();
            world.relays[index] = Relay { phase: Phase::Dead, wakes: 0, opens: 0, holds: false, ..*relay };
            next.push(world);
        }
        self.reader_steps(index, shortcut, next);
    }

    /// Where the next step of what reads the log leads to.
    fn reader_steps(&self, index: usize, shortcut: Shortcut, next: &mut Vec<Self>) {
        let visible = self.visible();
        let relay = &self.relays[index];
        let finds = relay.seen != visible;
        let mut go = |change: &dyn Fn(&mut Relay)| {
            let mut world = self.clone();
            change(&mut world.relays[index]);
            next.push(world);
        };
        let count = |relay: &mut Relay| (relay.woken, relay.opened) = (false, false);
        match relay.phase {
            Phase::Polls => {
                go(&|relay| relay.seen = visible);
                // It rests only after a look that finds nothing.
                if !finds && !relay.stale && !relay.to_say {
                    go(&|relay| {
                        relay.phase = Phase::Counts;
                        count(relay);
                    });
                }
            }
            Phase::Counts => {
                let (others, shared) = (self.is_held() && !relay.holds, self.is_shared());
                go(&|relay| {
                    let alone = !others && !shared && !relay.stale;
                    relay.phase = match () {
                        () if shortcut == Shortcut::NoLock => Phase::Watches { guarded: false },
                        () if alone => Phase::Watches { guarded: false },
                        () if others => Phase::Watches { guarded: true },
                        () => Phase::Polls,
                    };
                    relay.holds |= alone && shortcut != Shortcut::NoLock;
                    if shortcut == Shortcut::LookFirst
                        && let Phase::Watches { guarded } = relay.phase
                    {
                        relay.phase = Phase::Sleeps { guarded };
                    }
                });
            }
            Phase::Watches { guarded } => go(&|relay| {
                relay.seen = visible;
                relay.phase = if finds { Phase::Polls } else { Phase::Sleeps { guarded } };
                if shortcut == Shortcut::CountLate {
                    count(relay);
                }
            }),
            Phase::Sleeps { .. } if relay.is_over() => go(&|relay| relay.phase = Phase::Polls),
            Phase::Sleeps { .. } | Phase::Dead => {}
        }
    }

    /// Forgets flags that no step asks for any more, so that there are fewer worlds.
    fn forget(&mut self) {
        for relay in self.relays.iter_mut().filter(|relay| relay.phase == Phase::Polls) {
            (relay.woken, relay.opened) = (false, false);
        }
        // Relays are alike.
        self.relays.sort_unstable();
    }

    /// Whether a relay sleeps although there is something new, and nothing is under way that could wake it.
    fn is_slept_through(&self) -> bool {
        let still = self.producers.iter().all(|producer| matches!(producer, Producer::Ended { .. }))
            && self
                .relays
                .iter()
                .all(|relay| relay.wakes + relay.opens == 0 && !relay.stale && !relay.to_say);
        let misses = |relay: &Relay| {
            matches!(relay.phase, Phase::Sleeps { .. }) && !relay.is_over() && relay.seen != self.visible()
        };
        still && self.relays.iter().any(misses)
    }
}

impl Relay {
    fn is_over(&self) -> bool {
        self.woken || (self.opened && self.phase == Phase::Sleeps { guarded: true })
    }
}

/// How many worlds there are, and whether an event is slept through in one of them.
fn explore(producers: usize, relays: usize, shortcut: Shortcut) -> (usize, Option<World>) {
    let begin = World::new(producers, relays);
    let mut known = HashSet::from([begin.clone()]);
    let mut open = vec![begin];
    let mut next = Vec::new();
    while let Some(world) = open.pop() {
        if world.is_slept_through() {
            return (known.len(), Some(world));
        }
        (0..producers).for_each(|index| world.producer_steps(index, shortcut, &mut next));
        (0..relays).for_each(|index| world.relay_steps(index, shortcut, &mut next));
        next.iter_mut().for_each(World::forget);
        open.extend(next.drain(..).filter(|world| known.insert(world.clone())));
    }
    (known.len(), None)
}

#[test]
fn nothing_is_slept_through_in_any_interleaving() {
    for (producers, relays) in [(1, 1), (3, 1), (2, 2), (1, 3)] {
        let (worlds, slept_through) = explore(producers, relays, Shortcut::None);
        assert_eq!(slept_through, None);
        assert!(worlds > 20, "{producers} producers and {relays} relays have {worlds} worlds only");
    }
}

#[test]
fn every_shortcut_sleeps_through_something() {
    let shortcuts = [
        Shortcut::NoLock,
        Shortcut::LookFirst,
        Shortcut::CountLate,
        Shortcut::NoOpen,
        Shortcut::LocksFirst,
        Shortcut::Death,
    ];
    for shortcut in shortcuts {
        assert!(explore(2, 2, shortcut).1.is_some(), "{shortcut:?} is harmless");
    }
}
