//! Connections that emit in every way in which a transaction can go.
//!
//! Each event takes its number from its key's row, in the transaction that emits it, and is noted in a ledger there: so
//! the database itself says what was emitted and in which order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::{EventId, Key, Kind, Topic};
use postrider_postgres::tokio_postgres::{self, Client, NoTls};
use postrider_testkit::history::Emitted;
use postrider_testkit::postgres::Database;
use tokio::sync::Notify;

const WRITERS: usize = 12;
const KEYS: usize = 60;
/// Writers that prepare transactions; a server takes only so many at a time.
const PREPARING: usize = 4;

const TABLES: &str = "
    create table agg (k text primary key, n bigint not null);
    insert into agg select 'k' || k, 0 from generate_series(0, 59) as k;
    create unlogged table scratch (n int);
    create table ledger (id bigint primary key, k text not null, n bigint not null);
    create function note(which text) returns void language plpgsql as $$
    declare
        turn bigint;
        emitted bigint;
    begin
        update agg set n = n + 1 where k = which returning n into turn;
        insert into postrider.event (topic, type, key, headers)
        values ('order', 'order', which, json_build_object('n', turn::text)) returning id into emitted;
        insert into ledger values (emitted, which, turn);
    end $$";

pub(crate) struct Writers {
    db: Database,
    seed: u64,
    wanted: AtomicUsize,
    committed: AtomicUsize,
    patient: AtomicBool,
    moved: Notify,
}

impl Writers {
    pub(crate) fn new(db: &Database, seed: u64, wanted: usize) -> Self {
        db.query(TABLES);
        let wanted = AtomicUsize::new(wanted);
        let (committed, patient) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { db: db.clone(), seed, wanted, committed, patient, moved: Notify::new() }
    }

    pub(crate) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// No commit returns before it is as safe as the server can make it.
    pub(crate) fn be_patient(&self) {
        self.patient.store(true, Ordering::Relaxed);
    }

    /// Writes until it is told to stop.
    pub(crate) fn go_on(&self) {
        self.wanted.store(usize::MAX, Ordering::Relaxed);
    }

    /// What is committed is enough.
    pub(crate) fn stop(&self) {
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Writes until enough was committed.
    pub(crate) async fn run(&self) {
        let writers = (0..WRITERS).map(|number| Box::pin(self.write(number)));
        futures_util::future::join_all(writers).await;
    }

    /// How many transactions are committed.
    pub(crate) fn committed(&self) -> usize {
        self.committed.load(Ordering::Relaxed)
    }

    /// Returns when so many transactions are committed.
    pub(crate) async fn until_committed(&self, commits: usize) {
        loop {
            let moved = self.moved.notified();
            if self.committed.load(Ordering::Relaxed) >= commits {
                return;
            }
            moved.await;
        }
    }

    /// What the ledger says.
    pub(crate) fn emitted(&self) -> Vec<Emitted> {
        let rows = self.db.query("select id, k, n from ledger order by id");
        let text = |row: &[Option<String>], column: usize| row[column].clone().unwrap();
        let emitted = |row: Vec<Option<String>>| Emitted {
            id: EventId(text(&row, 0).parse().unwrap()),
            topic: Topic::new("order"),
            kind: Kind::new("order"),
            key: Some(Key::new(text(&row, 1))),
            n: Some(text(&row, 2).parse().unwrap()),
            delayed: false,
        };
        rows.into_iter().map(emitted).collect()
    }

    async fn write(&self, number: usize) {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ (number as u64).wrapping_mul(0x9e37_79b9));
        let mut session = None;
        for turn in 0_u64.. {
            if self.committed.load(Ordering::Relaxed) >= self.wanted() {
                return;
            }
            let client = match session.take() {
                Some(client) => client,
                None => self.connect().await,
            };
            let prepares = number < PREPARING && rng.u32(0..20) == 0;
            let ended = if prepares {
                self.prepare(&client, &mut rng, &format!("{}-{number}-{turn}", self.db.name)).await
            } else {
                self.transact(&client, &mut rng).await
            };
            match ended {
                Ok(commits) => {
                    self.committed.fetch_add(commits, Ordering::Relaxed);
                    self.moved.notify_waiters();
                    session = Some(client);
                }
                // The server has crashed; only the ledger knows whether the transaction was committed.
                Err(error) => assert!(
                    error.is_closed()
                        || error.as_db_error().is_none_or(|said| said.code().code().starts_with("57")),
                    "a producer failed: {error:?}"
                ),
            }
        }
    }

    /// A transaction that is prepared and resolved, even if the server crashes in between.
    async fn prepare(
        &self,
        client: &Client,
        rng: &mut fastrand::Rng,
        name: &str,
    ) -> Result<usize, tokio_postgres::Error> {
        let script = format!("begin; {}; prepare transaction '{name}'", body(rng));
        let prepared = client.batch_execute(&script).await;
        let commits = rng.u32(0..4) > 0;
        let end = format!("{} prepared '{name}'", if commits { "commit" } else { "rollback" });
        let mut ended = match prepared {
            Ok(()) => client.batch_execute(&end).await,
            Err(error) => Err(error),
        };
        // One that was left would keep its key locked for ever.
        while ended.is_err() {
            let client = self.connect().await;
            let left = client.query("select from pg_prepared_xacts where gid = $1", &[&name]).await;
            if left.is_ok_and(|rows| rows.is_empty()) {
                return Ok(0);
            }
            ended = client.batch_execute(&end).await;
        }
        Ok(usize::from(commits))
    }

    /// A transaction of one session; how many commits it was.
    async fn transact(
        &self,
        client: &Client,
        rng: &mut fastrand::Rng,
    ) -> Result<usize, tokio_postgres::Error> {
        let commits = rng.u32(0..5) > 0;
        // What is not flushed may vanish in a crash, with all traces; then it must not have been delivered.
        let is_hasty = rng.u32(0..10) == 0 && !self.patient.load(Ordering::Relaxed);
        let hasty = if is_hasty { "set local synchronous_commit = off; " } else { "" };
        let end = if commits { "commit" } else { "rollback" };
        client.batch_execute(&format!("begin; {hasty}{}; {end}", body(rng))).await?;
        Ok(usize::from(commits))
    }

    async fn connect(&self) -> Client {
        loop {
            if let Ok((client, connection)) = tokio_postgres::connect(&self.db.url, NoTls).await {
                tokio::spawn(connection);
                return client;
            }
            // tidy: sleep because a server that recovers has no other sign than its answer
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What a transaction does before it ends.
fn body(rng: &mut fastrand::Rng) -> String {
    let key = rng.usize(0..KEYS);
    let nap = f64::from(rng.u32(0..20)) / 1000.0;
    let one = format!("select note('k{key}')");
    match rng.u32(0..40) {
        0 => format!("select pg_current_xact_id(), pg_sleep({nap}); {one}"),
        1 => format!("{one}; select pg_sleep({nap})"),
        2 => format!("savepoint a; {one}; rollback to a; select pg_sleep({nap}); {one}; release a"),
        3 => format!("savepoint a; {one}; savepoint b; {one}; rollback to b; release a; {one}"),
        4 => format!(
            "do $$ begin for n in 1..8 loop begin perform note('k{key}'); if n % 3 = 0 then raise 'undone'; end if; \
             exception when raise_exception then null; end; end loop; end $$"
        ),
        5 => format!(
            "do $$ begin for n in 1..300 loop begin insert into scratch values (n); exception when others then null; \
             end; end loop; end $$; {one}"
        ),
        6..=9 => {
            // In the order of their names, so that no two wait for each other.
            let mut keys: Vec<usize> = (0..rng.usize(2..8)).map(|_| rng.usize(0..KEYS)).collect();
            keys.sort_unstable();
            let notes = keys.iter().map(|key| format!("select note('k{key}')"));
            notes.collect::<Vec<_>>().join("; ")
        }
        _ => one,
    }
}
