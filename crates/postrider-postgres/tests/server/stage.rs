//! A store in a database of its own, sessions of producers, and an owner that reads step by step.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::settle::{Chunk, Hold, Room, Settle};
use postrider_core::{LogStore, NewSubscription, Position, Result, ShardSet, Store};
use postrider_postgres::tokio_postgres::{Client, NoTls};
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::{Database, Version, shared};

/// More room than any test fills.
pub(crate) const AMPLE: Room = Room { events: 1_000_000, bytes: 1_000_000_000 };

pub(crate) struct Stage {
    pub(crate) db: Database,
    pub(crate) store: PostgresStore,
}

impl Stage {
    /// On the server that all tests share.
    pub(crate) async fn on(version: Version) -> Self {
        Self::in_database(shared(version).create_database()).await
    }

    pub(crate) async fn in_database(db: Database) -> Self {
        let store = open(&db).await;
        Self { db, store }
    }

    /// What an operator does with psql.
    pub(crate) fn run(&self, statements: &str) {
        self.db.query(statements);
    }

    /// The only value of a query, as text.
    pub(crate) fn text(&self, query: &str) -> String {
        self.db.query(query)[0][0].clone().unwrap_or_default()
    }

    pub(crate) fn number(&self, query: &str) -> i64 {
        self.text(query).parse().unwrap()
    }

    /// A producer's connection.
    pub(crate) async fn session(&self) -> Client {
        connect(&self.db.url).await
    }

    /// Creates a subscription and owns it.
    pub(crate) async fn owner(&self, subscription: &str) -> Owner {
        self.store.subscription_create(NewSubscription::new(subscription)).await.unwrap();
        Owner::of(&self.store, subscription).await
    }
}

pub(crate) fn options(db: &Database) -> PostgresOptions {
    // The shortest lease: owners who are gone are soon followed by others.
    PostgresOptions::from_url(&db.url).unwrap().lease(Duration::from_secs(1))
}

pub(crate) async fn open(db: &Database) -> PostgresStore {
    PostgresStore::open(options(db)).await.unwrap()
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = postrider_postgres::tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until a query gives a number.
pub(crate) async fn until(stage: &Stage, query: &str, wanted: i64) {
    for _ in 0..6_000 {
        if stage.number(query) == wanted {
            return;
        }
        // tidy: sleep because the server has no other sign than its tables
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("`{query}` never gives {wanted}");
}

/// Emits in whatever transaction the session is in; the payload is a note by which the event is recognised.
pub(crate) async fn emit(session: &Client, key: &str, note: &str) -> i64 {
    let insert = "insert into postrider.event (topic, type, key, payload_bytes)
                  values ('order', 'order', $1, convert_to($2, 'utf8')) returning id";
    session.query_one(insert, &[&key, &note]).await.unwrap().get(0)
}

pub(crate) async fn run(session: &Client, script: &str) {
    session.batch_execute(script).await.unwrap();
}

/// A member that holds a subscription and reads on in the log when told to.
pub(crate) struct Owner {
    pub(crate) store: PostgresStore,
    pub(crate) hold: Hold,
    pub(crate) at: Position,
}

impl Owner {
    pub(crate) async fn of(store: &PostgresStore, subscription: &str) -> Self {
        for _ in 0..300 {
            let member = store.member_join("ada").await.unwrap();
            match store.shards_take(subscription, member, ShardSet::ALL).await {
                Ok(Some(taken)) => return Self { store: store.clone(), hold: taken.hold, at: taken.start },
                Ok(None) => {}
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            // tidy: sleep because the lease of an owner that is gone has to run out
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the shards of `{subscription}` never become free");
    }

    /// One step; only what is not durable yet is waited for.
    pub(crate) async fn step(&mut self, room: Room) -> Result<Chunk> {
        loop {
            let chunk = self.store.fetch(&self.hold, self.at, room).await?;
            if !chunk.soon {
                self.at = chunk.end;
                return Ok(chunk);
            }
            tokio::task::yield_now().await;
        }
    }

    /// The notes of everything that can be read now.
    pub(crate) async fn read(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        loop {
            let chunk = self.step(AMPLE).await.unwrap();
            notes.extend(chunk.events.iter().map(|event| note(&event.payload)));
            if !chunk.more {
                return notes;
            }
        }
    }

    /// Writes down that all that was read is done.
    pub(crate) async fn settle(&self) -> Result<()> {
        let settle = Settle { mark: Some(self.at), ..Settle::default() };
        self.store.settle(&self.hold, Arc::new(settle)).await.map(drop)
    }

    /// Settles and gives the shards back, so that the next owner begins where the store says.
    pub(crate) async fn leave(self) {
        self.settle().await.unwrap();
        self.store.shards_release(&self.hold).await.unwrap();
    }
}

pub(crate) fn note(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}
