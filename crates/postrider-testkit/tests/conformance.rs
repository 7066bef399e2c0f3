//! The memory store keeps every promise of the contract.

use postrider_core::event::StoredEvent;
use postrider_core::settle::MemberId;
use postrider_core::time::Clock;
use postrider_core::{Delivery, Error, EventId, Failure};
use postrider_testkit::conformance::{Ending, Planted};
use postrider_testkit::{ManualClock, MemoryStore, MemoryTx, MemoryWork, Rig};

struct MemoryRig {
    store: MemoryStore,
    clock: ManualClock,
}

impl MemoryRig {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self { store: MemoryStore::new(clock.clone()), clock }
    }
}

impl Rig for MemoryRig {
    type Store = MemoryStore;

    fn store(&self) -> &MemoryStore {
        &self.store
    }

    async fn second(&self) -> MemoryStore {
        self.store.clone()
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    async fn kill(&self, member: MemberId) -> bool {
        self.store.kill(member);
        true
    }

    fn work(&self, event: EventId, note: &str, ending: Ending) -> MemoryWork {
        let note = note.to_owned();
        Box::new(move |tx: &mut MemoryTx| {
            tx.note(event, note);
            match ending {
                Ending::Success => Ok(()),
                Ending::Failure => Err(Failure::retry("told to fail")),
                Ending::Panic => panic!("told to panic"),
            }
        })
    }

    async fn ack(&self, delivery: &Delivery, note: &str, ending: Ending) -> Result<(), Error> {
        // A failure of the work was told to happen, and is no error of the store.
        let ending = if ending == Ending::Panic { Ending::Failure } else { ending };
        self.store.ack_with(delivery, self.work(delivery.id, note, ending)).map(drop)
    }

    async fn effects(&self) -> Vec<(EventId, String)> {
        self.store.effects()
    }

    async fn plant(&self, row: &Planted) -> EventId {
        self.store.plant(StoredEvent {
            id: EventId(0),
            topic: &row.topic,
            kind: &row.kind,
            key: row.key.as_deref(),
            headers: row.headers.as_deref(),
            payload: row.payload.clone().into(),
            created_at: self.clock.now(),
            due_at: None,
            lengths: None,
        })
    }

    async fn audit(&self) -> Option<Vec<String>> {
        let lines = self.store.audit();
        Some(lines.iter().map(|line| format!("{} {} {}", line.actor, line.action, line.detail)).collect())
    }
}

postrider_testkit::conformance_tests!(MemoryRig::new());
postrider_testkit::queue_conformance_tests!(MemoryRig::new());
