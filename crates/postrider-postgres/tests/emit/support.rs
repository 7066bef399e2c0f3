//! A database with Postrider's schema, connections to it, and the ways to emit.

use diesel::Connection as _;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use futures_util::future::BoxFuture;
use postrider_core::{Event, EventId, NewEvent, Result, emit};
use postrider_postgres::tokio_postgres::{self, Client, NoTls};
use postrider_postgres::{PostgresOptions, PostgresStore, Prepared, Schema, copy, emit_all};
use postrider_testkit::postgres::{Database, Version, shared};
use sea_orm::TransactionTrait as _;
use sqlx::Connection as _;

tokio::task_local! {
    /// There while a test says that what it emits belongs to a trace.
    pub(crate) static TRACED: ();
}

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
        Self::on(shared(version).create_database()).await
    }

    pub(crate) async fn on(database: Database) -> Self {
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
    Diesel,
    DieselAll,
    DieselAsync,
    DieselAsyncAll,
    SeaOrm,
    SeaOrmConnection,
    SeaOrmAll,
}

impl Way {
    pub(crate) const EACH: [Self; 15] = [
        Self::Plain,
        Self::InSchema,
        Self::Prepared,
        Self::All,
        Self::Copy,
        Self::Sqlx,
        Self::SqlxConnection,
        Self::SqlxAll,
        Self::Diesel,
        Self::DieselAll,
        Self::DieselAsync,
        Self::DieselAsyncAll,
        Self::SeaOrm,
        Self::SeaOrmConnection,
        Self::SeaOrmAll,
    ];

    /// One for each client library.
    pub(crate) const LIBRARIES: [Self; 5] =
        [Self::Plain, Self::Sqlx, Self::Diesel, Self::DieselAsync, Self::SeaOrm];

    /// Those that emit many events at once and return their ids.
    pub(crate) const ALL_AT_ONCE: [Self; 5] =
        [Self::All, Self::SqlxAll, Self::DieselAll, Self::DieselAsyncAll, Self::SeaOrmAll];

    /// Those that take idempotency keys and return ids.
    pub(crate) fn with_ids() -> impl Iterator<Item = Self> {
        Self::EACH.into_iter().filter(|way| *way != Self::Copy)
    }

    /// Emits in a transaction of its own, through a connection of its own; commits or rolls back.
    pub(crate) async fn emit(self, rig: &Rig, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        self.emit_at(&rig.database.url, events, end).await
    }

    /// The same in another database, or as another role.
    pub(crate) async fn emit_at(self, url: &str, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let emitting: BoxFuture<'_, _> = match self {
            Self::Sqlx | Self::SqlxConnection | Self::SqlxAll => Box::pin(self.emit_sqlx(url, events, end)),
            Self::Diesel | Self::DieselAll => Box::pin(self.emit_diesel(url, events, end)),
            Self::DieselAsync | Self::DieselAsyncAll => Box::pin(self.emit_diesel_async(url, events, end)),
            Self::SeaOrm | Self::SeaOrmConnection | Self::SeaOrmAll => {
                Box::pin(self.emit_sea_orm(url, events, end))
            }
            _ => Box::pin(self.emit_tokio(url, events, end)),
        };
        emitting.await
    }

    async fn emit_tokio(self, url: &str, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let mut client = connect(url).await;
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

    async fn emit_sqlx(self, url: &str, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let mut conn = sqlx::PgConnection::connect(url).await.unwrap();
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

    /// Diesel blocks, so that it has a thread of its own, to which the trace goes along.
    async fn emit_diesel(self, url: &str, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let (url, is_traced) = (url.to_owned(), TRACED.try_with(|()| ()).is_ok());
        let blocking = move || {
            let mut conn = diesel::PgConnection::establish(&url).unwrap();
            let mut emitted = Ok(Vec::new());
            // Diesel commits what returns well, and rolls back what does not.
            let ended = conn.transaction(|tx| {
                emitted = match self {
                    Self::DieselAll => emit_all(tx, events),
                    _ => events.into_iter().map(|event| emit(&mut *tx, event)).collect(),
                };
                end.told(emitted.is_ok())
            });
            assert_eq!(ended.is_ok(), emitted.is_ok() && end == End::Commit, "{ended:?}");
            emitted
        };
        let on_its_thread = move || if is_traced { TRACED.sync_scope((), blocking) } else { blocking() };
        tokio::task::spawn_blocking(on_its_thread).await.unwrap()
    }

    async fn emit_diesel_async(self, url: &str, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let mut conn = AsyncPgConnection::establish(url).await.unwrap();
        let mut emitted = Ok(Vec::new());
        let ended = conn
            .transaction(async |tx| {
                emitted = match self {
                    Self::DieselAsyncAll => emit_all(tx, events).await,
                    _ => emit_each(tx, events).await,
                };
                end.told(emitted.is_ok())
            })
            .await;
        assert_eq!(ended.is_ok(), emitted.is_ok() && end == End::Commit, "{ended:?}");
        emitted
    }

    async fn emit_sea_orm(self, url: &str, events: Vec<NewEvent>, end: End) -> Result<Vec<EventId>> {
        let db = sea_orm::Database::connect(url).await.unwrap();
        let tx = db.begin().await.unwrap();
        let mut ids = Vec::new();
        if self == Self::SeaOrmAll {
            ids = emit_all(&tx, events).await?;
        } else {
            for event in events {
                ids.push(match self {
                    Self::SeaOrm => emit(&tx, event).await?,
                    _ => emit_by_any(&tx, event).await?,
                });
            }
        }
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
        }
        db.close().await.unwrap();
        Ok(ids)
    }
}

async fn emit_each(tx: &mut AsyncPgConnection, events: Vec<NewEvent>) -> Result<Vec<EventId>> {
    let mut ids = Vec::new();
    for event in events {
        ids.push(emit(&mut *tx, event).await?);
    }
    Ok(ids)
}

/// What a function does that takes whatever sea-orm can work with.
async fn emit_by_any<C: sea_orm::ConnectionTrait>(conn: &C, event: NewEvent) -> Result<EventId> {
    emit(Schema::default().on(conn), event).await
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
}

impl End {
    /// As diesel is told: by the result of what ran within the transaction.
    fn told(self, is_good: bool) -> diesel::QueryResult<()> {
        let commit = is_good && self == Self::Commit;
        if commit { Ok(()) } else { Err(diesel::result::Error::RollbackTransaction) }
    }
}

pub(crate) fn order(key: impl std::fmt::Display) -> NewEvent {
    Event::new("order").kind("order.created").key(key).payload("{}")
}

/// Returns when the server's process `pid` waits for a lock of the kind. The loop needs no pause, because each
/// turn asks the server.
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
