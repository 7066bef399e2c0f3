//! SQLite keeps every promise of the contract.

use std::sync::Arc;

use postrider_core::settle::MemberId;
use postrider_core::{Delivery, Error, EventId, Failure, ack_in};
use postrider_sqlite::{SqliteOptions, SqliteStore, Work, rusqlite};
use postrider_testkit::conformance::{Ending, Planted};
use postrider_testkit::{ManualClock, Rig};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

struct SqliteRig {
    directory: TempDir,
    clock: ManualClock,
    store: SqliteStore,
}

impl SqliteRig {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let clock = ManualClock::new();
        let store = open(&directory, &clock).await;
        let rig = Self { directory, clock, store };
        rig.raw().execute("create table effect (event_id integer, note text)", []).expect("a fresh file");
        rig
    }

    /// The file as an application sees it.
    fn raw(&self) -> Connection {
        Connection::open(self.directory.path().join("store.db")).expect("the store's file")
    }
}

async fn open(directory: &TempDir, clock: &ManualClock) -> SqliteStore {
    let options = SqliteOptions::new(directory.path().join("store.db")).clock(Arc::new(clock.clone()));
    SqliteStore::open(options).await.expect("a store opens")
}

impl Rig for SqliteRig {
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn second(&self) -> SqliteStore {
        open(&self.directory, &self.clock).await
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    async fn kill(&self, member: MemberId) -> bool {
        // A process with this number and this start time does not exist.
        let killed = self
            .raw()
            .execute("update postrider_member set started = started + 1 where id = ?1", [member.0])
            .expect("members are rows");
        killed == 1 && cfg!(target_os = "linux")
    }

    fn work(&self, event: EventId, note: &str, ending: Ending) -> Work {
        let note = note.to_owned();
        Box::new(move |tx: &rusqlite::Transaction<'_>| {
            tx.execute("insert into effect values (?1, ?2)", (event.0, &note))
                .map_err(|error| Failure::retry(error.to_string()))?;
            match ending {
                Ending::Success => Ok(()),
                Ending::Failure => Err(Failure::retry("told to fail")),
                Ending::Panic => panic!("told to panic"),
            }
        })
    }

    async fn ack(&self, delivery: &Delivery, note: &str, ending: Ending) -> Result<(), Error> {
        let mut app = self.raw();
        let tx = app
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .expect("no other connection writes");
        tx.execute("insert into effect values (?1, ?2)", (delivery.id.0, note)).expect("the table is there");
        ack_in(&tx, delivery)?;
        match ending {
            Ending::Success => tx.commit().expect("it can be committed"),
            Ending::Failure => tx.rollback().expect("it can be rolled back"),
            Ending::Panic => {}
        }
        Ok(())
    }

    async fn effects(&self) -> Vec<(EventId, String)> {
        let raw = self.raw();
        let mut effects =
            raw.prepare("select event_id, note from effect order by rowid").expect("the table is there");
        let rows =
            effects.query_map([], |row| Ok((EventId(row.get(0)?), row.get(1)?))).expect("it can be read");
        rows.collect::<Result<_, _>>().expect("each row can be read")
    }

    async fn plant(&self, row: &Planted) -> EventId {
        let raw = self.raw();
        raw.pragma_update(None, "ignore_check_constraints", true).expect("SQLite knows it");
        let insert =
            "insert into postrider_event (topic, type, key, headers, payload) values (?1, ?2, ?3, ?4, ?5)";
        raw.execute(insert, (&row.topic, &row.kind, &row.key, &row.headers, &row.payload)).expect("a row");
        EventId(raw.last_insert_rowid())
    }

    async fn audit(&self) -> Option<Vec<String>> {
        let raw = self.raw();
        let mut lines = raw
            .prepare("select actor || ' ' || action || ' ' || coalesce(detail, '') from postrider_audit order by id")
            .expect("the table is there");
        let rows = lines.query_map([], |row| row.get(0)).expect("it can be read");
        Some(rows.collect::<Result<_, _>>().expect("each row can be read"))
    }
}

postrider_testkit::conformance_tests!(SqliteRig::new().await);

postrider_testkit::queue_conformance_tests!(SqliteRig::new().await);
