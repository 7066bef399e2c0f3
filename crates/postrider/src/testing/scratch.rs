//! A store for one test.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use postrider_sqlite::{SqliteOptions, SqliteStore, rusqlite};

use super::{Emitted, TestClock};

/// A store in a temporary file, with a clock that the test puts forward. It is gone when this is dropped.
///
/// ```
/// use postrider::testing::Scratch;
/// use postrider::{Event, emit};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let scratch = Scratch::new().await?;
/// let mut db = scratch.connect()?;
/// db.execute("create table orders (id integer primary key)", [])?;
/// let tx = db.transaction()?;
/// tx.execute("insert into orders values (42)", [])?;
/// emit(&tx, Event::new("order").key(42))?;
/// tx.rollback()?;
/// scratch.emitted().await?.nothing();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Scratch {
    directory: tempfile::TempDir,
    store: SqliteStore,
    clock: TestClock,
}

impl Scratch {
    /// An empty store.
    pub async fn new() -> Result<Self> {
        let directory = tempfile::tempdir().map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot make a temporary folder: {error}"))
        })?;
        let clock = TestClock::new();
        let options = SqliteOptions::new(directory.path().join("test.db")).clock(Arc::new(clock.clone()));
        let store = SqliteStore::open(options).await?;
        Ok(Self { directory, store, clock })
    }

    /// The store.
    pub fn store(&self) -> SqliteStore {
        self.store.clone()
    }

    /// Its clock.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// Its file, which may hold tables of the program too.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    /// A connection of the program's.
    pub fn connect(&self) -> Result<rusqlite::Connection> {
        let opened = rusqlite::Connection::open(self.path()).and_then(|db| {
            db.busy_timeout(Duration::from_secs(5))?;
            Ok(db)
        });
        opened.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot open the store of a test").with_source(error)
        })
    }

    /// What was emitted and committed.
    pub async fn emitted(&self) -> Result<Emitted> {
        Emitted::of(&self.store).await
    }
}
