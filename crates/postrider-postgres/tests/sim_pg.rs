//! Real servers do what the simulated one does: the same steps, and every look shows the same.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use postrider_core::log::{Lsn, Probe, Snapshot, Xid};
use postrider_postgres::tokio_postgres::types::PgLsn;
use postrider_postgres::tokio_postgres::{self, Client, NoTls};
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::{Database, Version, shared};
use postrider_testkit::sim_pg::trace::{Acted, Action, Look, Replay, Trace};

const TRACES: u64 = 200;
/// Sessions of the largest trace.
const SESSIONS: usize = 6;

/// The probe of the store, with all rows that the statement sees.
const LOOK: &str = "
    select log.last_value, age('3'::xid), pg_current_snapshot()::text,
        pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn(),
        (select coalesce(array_agg(id), '{}') from postrider.event)
    from (select coalesce(pg_sequence_last_value('postrider.event_id_seq'), 0) as last_value offset 0) as log";

struct Real {
    db: Database,
    sessions: Vec<Client>,
    reader: Client,
}

impl Real {
    async fn on(version: Version) -> Self {
        let db = shared(version).create_database();
        PostgresStore::open(PostgresOptions::from_url(&db.url).unwrap()).await.unwrap();
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(connect(&db).await);
        }
        let reader = connect(&db).await;
        Self { db, sessions, reader }
    }

    /// The name of a session's prepared transaction. All databases of a server share such names.
    fn prepared(&self, session: usize) -> String {
        format!("{}-{session}", self.db.name)
    }

    /// Ends what a trace has left open, and empties the log.
    async fn clear(&self) {
        for (number, session) in self.sessions.iter().enumerate() {
            session.batch_execute("rollback").await.unwrap();
            // Most have none.
            let _ = session.batch_execute(&format!("rollback prepared '{}'", self.prepared(number))).await;
        }
        self.reader.batch_execute("truncate postrider.event").await.unwrap();
    }
}

async fn connect(db: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&db.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Replay for Real {
    type Error = tokio_postgres::Error;

    async fn act(&mut self, session: usize, action: Action) -> Result<Acted, Self::Error> {
        let prepared = self.prepared(session);
        let client = &self.sessions[session];
        let script = match action {
            Action::Begin => "begin".to_owned(),
            Action::Savepoint => "savepoint s".to_owned(),
            Action::RollbackTo => "rollback to s; release s".to_owned(),
            Action::Release => "release s".to_owned(),
            Action::Commit => "commit".to_owned(),
            Action::Rollback => "rollback".to_owned(),
            Action::Prepare => format!("prepare transaction '{prepared}'"),
            Action::CommitPrepared => format!("commit prepared '{prepared}'"),
            Action::RollbackPrepared => format!("rollback prepared '{prepared}'"),
            Action::TakeXid => {
                let row = client.query_one("select pg_current_xact_id()::text", &[]).await?;
                return Ok(Acted { xid: Some(xid(row.get(0))), id: None });
            }
            Action::Insert => {
                let insert = "insert into postrider.event (topic, type) values ('t', 't')
                              returning xid::text, id";
                let row = client.query_one(insert, &[]).await?;
                return Ok(Acted { xid: Some(xid(row.get(0))), id: Some(row.get(1)) });
            }
        };
        client.batch_execute(&script).await?;
        Ok(Acted::default())
    }

    async fn look(&mut self) -> Result<Look, Self::Error> {
        let row = self.reader.query_one(LOOK, &[]).await?;
        let snapshot: Snapshot = row.get::<_, String>(2).parse().unwrap();
        let low = (row.get::<_, i32>(1) as u32).wrapping_add(3);
        let probe = Probe {
            next_xid: Xid::widen(low, snapshot.xmax()),
            snapshot,
            seq: row.get(0),
            inserted: Lsn(row.get::<_, PgLsn>(3).into()),
            flushed: Lsn(row.get::<_, PgLsn>(4).into()),
        };
        Ok(Look { probe, ids: row.get::<_, Vec<i64>>(5).into_iter().collect() })
    }
}

fn xid(text: &str) -> Xid {
    Xid(text.parse().unwrap())
}

async fn compare(version: Version) {
    let mut server = Real::on(version).await;
    for seed in 0..TRACES {
        let trace = Trace::random(seed);
        let found = trace.replay(&mut server).await.unwrap();
        assert_eq!(found, trace.replay_on_sim(), "seed {seed} on {version:?}");
        server.clear().await;
    }
}

#[tokio::test]
async fn postgresql_15_does_what_the_simulated_server_does() {
    compare(Version::V15).await;
}

#[tokio::test]
async fn postgresql_18_does_what_the_simulated_server_does() {
    compare(Version::V18).await;
}
