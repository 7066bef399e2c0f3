//! PostgreSQL keeps every promise of the contract, on each version that is tested, for the owner of the
//! schema and for those who have no more than the rights of their roles; directly, and through a pooler, even
//! one with a single session; and on a server that tells nothing of its write-ahead log.

use std::sync::OnceLock;

use postrider_core::settle::MemberId;
use postrider_core::time::Clock;
use postrider_core::{Delivery, Error, EventId, Failure, ack_in};
use postrider_postgres::tokio_postgres::types::{ToSql, Type};
use postrider_postgres::tokio_postgres::{self, NoTls, Transaction};
use postrider_postgres::{PostgresOptions, PostgresStore, RoleKind, Roles, Work};
use postrider_testkit::conformance::{Ending, Planted};
use postrider_testkit::postgres::{Database, Pooler, PoolerSettings, Startup, Version, shared};
use postrider_testkit::{ManualClock, Rig};

struct PostgresRig {
    database: Database,
    /// How the store is reached, as whom.
    url: String,
    clock: ManualClock,
    store: PostgresStore,
}

/// Puts the database's clock into the hands of the test.
const CLOCK: &str = "
    create table hands (now_us bigint not null);
    insert into hands values (0);
    create or replace function postrider.clock() returns timestamptz
    language sql volatile parallel safe
    return (
        select timestamptz 'epoch' operator(pg_catalog.+) (now_us operator(pg_catalog.*) interval '1 microsecond')
        from public.hands
    );
    create table effect (n bigint generated always as identity, event_id bigint, note text);
    grant select on hands to public;
    grant insert on effect to public";

impl PostgresRig {
    /// As the owner of everything.
    async fn new(version: Version) -> Self {
        Self::owning(shared(version).create_database()).await
    }

    async fn owning(database: Database) -> Self {
        let store = open(&database.url).await;
        database.query(CLOCK);
        Self::with(database.url.clone(), database, store)
    }

    /// As a login that owns nothing and has the roles that the suite needs, in a database with planted objects.
    async fn by_roles(version: Version) -> Self {
        let Self { database, store, .. } = Self::owning(planted(version)).await;
        let roles = Roles::new("postrider", &database.name).expect("a good name");
        store.roles_create(&roles).await.expect("roles are made");
        let kinds = [RoleKind::Producer, RoleKind::Relay, RoleKind::Operator];
        let granted = kinds.map(|kind| roles.name(kind)).join(", ");
        database.query(&format!("create role {}_ada login in role {granted}", database.name));
        let url = database.url.replace("postgres@", &format!("{}_ada@", database.name));
        let store = open(&url).await;
        Self::with(url, database, store)
    }

    /// As the owner of the schema, on a server that keeps to itself what managed ones may.
    async fn managed(version: Version) -> Self {
        let database = shared(version).create_database();
        let url = database.managed();
        let store = open(&url).await;
        database.query(CLOCK);
        Self::with(url, database, store)
    }

    /// As the owner of everything, through a pooler.
    async fn pooled(version: Version, pooler: &Pooler) -> Self {
        let database = planted(version);
        let url = pooler.database(&database).url;
        let store = open(&url).await;
        assert!(store.is_pooled(), "the pooler is noticed");
        database.query(CLOCK);
        Self::with(url, database, store)
    }

    fn with(url: String, database: Database, store: PostgresStore) -> Self {
        let clock = ManualClock::new();
        let followed = database.clone();
        clock.followed_by(move |now| {
            followed.query(&format!("update hands set now_us = {}", now.as_micros()));
        });
        assert!(clock.now().as_micros() > 0);
        Self { database, url, clock, store }
    }
}

/// A database with functions and operators in it that no statement must call: each raises an error.
fn planted(version: Version) -> Database {
    static V15: OnceLock<Database> = OnceLock::new();
    static V18: OnceLock<Database> = OnceLock::new();
    let template = if version == Version::V15 { &V15 } else { &V18 };
    let template = template.get_or_init(|| {
        let database = shared(version).create_database();
        database.query(include_str!("planted/scripts/plant.sql"));
        database
    });
    shared(version).copy_database(&template.name)
}

async fn open(url: &str) -> PostgresStore {
    let options = PostgresOptions::from_url(url).expect("a URL of our own");
    PostgresStore::open(options).await.expect("a store opens")
}

impl Rig for PostgresRig {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn second(&self) -> PostgresStore {
        open(&self.url).await
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn clock_of_leases_steps(&self) -> bool {
        true
    }

    fn removes_one_by_one(&self) -> bool {
        // A leaf of the ring goes as a whole.
        false
    }

    async fn kill(&self, _: MemberId) -> bool {
        // Processes of other machines are known by their beats only.
        false
    }

    fn work(&self, event: EventId, note: &str, ending: Ending) -> Work {
        let note = note.to_owned();
        Box::new(move |tx: &mut Transaction<'_>| {
            Box::pin(async move {
                tx.execute("insert into effect (event_id, note) values ($1, $2)", &[&event.0, &note])
                    .await
                    .map_err(|error| Failure::retry(error.to_string()))?;
                match ending {
                    Ending::Success => Ok(()),
                    Ending::Failure => Err(Failure::retry("told to fail")),
                    Ending::Panic => panic!("told to panic"),
                }
            })
        })
    }

    async fn ack(&self, delivery: &Delivery, note: &str, ending: Ending) -> Result<(), Error> {
        let (mut app, connection) =
            tokio_postgres::connect(&self.url, NoTls).await.expect("the server is there");
        let connection = tokio::spawn(connection);
        let tx = app.transaction().await.expect("it begins");
        let effect = "insert into effect (event_id, note) values ($1, $2)";
        let types = [(&delivery.id.0 as &(dyn ToSql + Sync), Type::INT8), (&note, Type::TEXT)];
        tx.query_typed(effect, &types).await.expect("the table is there");
        ack_in(&tx, delivery).await?;
        match ending {
            Ending::Success => tx.commit().await.expect("it can be committed"),
            Ending::Failure => tx.rollback().await.expect("it can be rolled back"),
            Ending::Panic => {
                drop(tx);
                connection.abort();
            }
        }
        Ok(())
    }

    async fn effects(&self) -> Vec<(EventId, String)> {
        let rows = self.database.query("select event_id, note from effect order by n");
        let text = |value: &Option<String>| value.clone().expect("both columns are written");
        rows.iter().map(|row| (EventId(text(&row[0]).parse().expect("a number")), text(&row[1]))).collect()
    }

    async fn plant(&self, row: &Planted) -> EventId {
        // Names and keys that the types of the columns would refuse.
        self.database.query(
            "set search_path = pg_catalog; update pg_attribute set atttypmod = -1
             where attrelid in (select relid from pg_partition_tree('postrider.event'))
                 and attname in ('topic', 'type', 'key')",
        );
        let (app, connection) =
            tokio_postgres::connect(&self.database.url, NoTls).await.expect("the server is there");
        let connection = tokio::spawn(connection);
        let insert = "insert into postrider.event (topic, type, key, headers, payload_bytes)
            values ($1, $2, $3, $4::text::json, $5) returning id";
        let planted = app
            .query_one(insert, &[&row.topic, &row.kind, &row.key, &row.headers, &row.payload])
            .await
            .expect("a row");
        connection.abort();
        EventId(planted.get(0))
    }

    async fn audit(&self) -> Option<Vec<String>> {
        let lines =
            "select actor || ' ' || action || ' ' || coalesce(detail, '') from postrider.audit order by id";
        let rows = self.database.query(lines);
        Some(rows.into_iter().map(|row| row[0].clone().expect("a line is never null")).collect())
    }
}

mod postgresql_15 {
    use super::*;
    postrider_testkit::conformance_tests!(PostgresRig::new(Version::V15).await);
    postrider_testkit::queue_conformance_tests!(PostgresRig::new(Version::V15).await);
}

mod postgresql_18 {
    use super::*;
    postrider_testkit::conformance_tests!(PostgresRig::new(Version::V18).await);
    postrider_testkit::queue_conformance_tests!(PostgresRig::new(Version::V18).await);
}

mod postgresql_18_by_roles {
    use super::*;
    postrider_testkit::conformance_tests!(PostgresRig::by_roles(Version::V18).await);
    postrider_testkit::queue_conformance_tests!(PostgresRig::by_roles(Version::V18).await);
}

mod postgresql_18_managed {
    use super::*;
    postrider_testkit::conformance_tests!(PostgresRig::managed(Version::V18).await);
    postrider_testkit::queue_conformance_tests!(PostgresRig::managed(Version::V18).await);
}

mod postgresql_15_pooled {
    use super::*;

    fn pooler() -> &'static Pooler {
        static POOLER: OnceLock<Pooler> = OnceLock::new();
        let settings = PoolerSettings { sessions: 4, startup: Startup::Refuses };
        POOLER.get_or_init(|| Pooler::start(shared(Version::V15), settings))
    }

    postrider_testkit::conformance_tests!(PostgresRig::pooled(Version::V15, pooler()).await);
    postrider_testkit::queue_conformance_tests!(PostgresRig::pooled(Version::V15, pooler()).await);
}

/// A call that holds the only session and waits for another waits for ever.
mod postgresql_18_pooled_by_one {
    use super::*;

    fn pooler() -> &'static Pooler {
        static POOLER: OnceLock<Pooler> = OnceLock::new();
        let settings = PoolerSettings { sessions: 1, startup: Startup::Ignores };
        POOLER.get_or_init(|| Pooler::start(shared(Version::V18), settings))
    }

    postrider_testkit::conformance_tests!(PostgresRig::pooled(Version::V18, pooler()).await);
    postrider_testkit::queue_conformance_tests!(PostgresRig::pooled(Version::V18, pooler()).await);
}
