//! A database with Postrider's schema, connections to it, and the ways to emit.

use postrider_core::{Event, EventId, NewEvent, Result, emit};
use postrider_postgres::tokio_postgres::{self, Client, NoTls};
use postrider_postgres::{PostgresOptions, PostgresStore, Prepared, Schema, copy, emit_all};
use postrider_testkit::postgres::{Database, Version, shared};
use sqlx::Connection;

/// Runs each test on the oldest and the newest release, with a database of its own.
macro_rules! on_each_version {
    ($($name:ident),+ $(,)?) => {
        mod v15 {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::support::Rig::new(postrider_testkit::postgres::Version::V15).await).await;
            })+
        }
        mod v18 {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::support::Rig::new(postrider_testkit::postgres::Version::V18).await).await;
            })+
        }
    };
}
pub(crate) use on_each_version;

pub(crate) struct Rig {
    pub(crate) database: Database,
}

impl Rig {
    pub(crate) async fn new(version: Version) -> Self {
        let database = shared(version).create_database();
        let options = PostgresOptions::from_url(&database.url).unwrap();
        PostgresStore::open(options).await.unwrap();
        Self { database }
    }

    pub(crate) async fn client(&self) -> Client {
        connect(&self.database.url).await
    }

    /// A connection of another role.
    pub(crate) async fn client_of(&self, role: &str) -> Client {
        connect(&self.database.url.replace("postgres@", &format!("{role}@"))).await
    }

    pub(crate) async fn sqlx(&self) -> sqlx::PgConnection {
        sqlx::PgConnection::connect(&self.database.url).await.unwrap()
    }

    /// The ids of all events that anybody can see.
    pub(crate) async fn ids(&self) -> Vec<EventId> {
        let rows =
            self.client().await.query("select id from postrider.event order by id", &[]).await.unwrap();
        rows.iter().map(|row| EventId(row.get(0))).collect()
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Every way of this crate to emit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    InSchema,
    Prepared,
    All,
    Copy,
    Sqlx,
    SqlxConnection,
    SqlxAll,
}

impl Way {
    pub(crate) const EACH: [Self; 8] = [
        Self::Plain,
        Self::InSchema,
        Self::Prepared,
        Self::All,
        Self::Copy,
        Self::Sqlx,
        Self::SqlxConnection,
        Self::SqlxAll,
    ];

    /// Those that take idempotency keys and return ids.
    pub(crate) fn with_ids() -> impl Iterator<Item = Self> {
        Self::EACH.into_iter().filter(|way| *way != Self::Copy)
    }

    /// Emits in a transaction of its own, through a connection of its own; commits or rolls back.
    pub(crate) async fn emit(self, rig: &Rig, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        match self {
            Self::Sqlx | Self::SqlxConnection | Self::SqlxAll => self.emit_sqlx(rig, events, end).await,
            _ => self.emit_tokio(rig, events, end).await,
        }
    }

    async fn emit_tokio(self, rig: &Rig, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let mut client = rig.client().await;
        let (schema, prepared) = (Schema::default(), Prepared::new(&client).await?);
        let tx = client.transaction().await.unwrap();
        let mut ids = Vec::new();
        match self {
            Self::All => ids = emit_all(&tx, events).await?,
            Self::Copy => assert_eq!(copy(&tx, events.clone()).await?, events.len() as u64),
            _ => {
                for event in events {
                    ids.push(match self {
                        Self::Plain => emit(&tx, event).await?,
                        Self::InSchema => emit(schema.on(&tx), event).await?,
                        _ => emit(prepared.on(&tx), event).await?,
                    });
                }
            }
        }
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
        }
        Ok(ids)
    }

    async fn emit_sqlx(self, rig: &Rig, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let mut conn = rig.sqlx().await;
        let mut tx = conn.begin().await.unwrap();
        let mut ids = Vec::new();
        if self == Self::SqlxAll {
            ids = emit_all(&mut tx, events).await?;
        } else {
            for event in events {
                ids.push(match self {
                    Self::Sqlx => emit(&mut tx, event).await?,
                    _ => emit(Schema::default().on(&mut *tx), event).await?,
                });
            }
        }
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
        }
        Ok(ids)
    }
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
}

pub(crate) fn order(key: impl std::fmt::Display) -> NewEvent {
    Event::new("order").kind("order.created").key(key).payload("{}")
}

/// Returns when the server's process `pid` waits for a lock of the kind; whoever asks again asks the server, which
/// is wait enough.
pub(crate) async fn wait_for_lock(observer: &Client, pid: i32, kind: &str) {
    loop {
        let sql = "select 1 from pg_locks where pid = $1 and not granted and locktype = $2";
        if observer.query_opt(sql, &[&pid, &kind]).await.unwrap().is_some() {
            return;
        }
    }
}

pub(crate) async fn pid_of(client: &Client) -> i32 {
    client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}
