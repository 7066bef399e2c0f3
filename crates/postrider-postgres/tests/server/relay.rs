//! A running relay, what it has delivered, and whether that was right.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Delivery, EventId, Failure, Key, Kind, NewSubscription, Outcome, Topic};
use postrider_postgres::PostgresStore;
use postrider_runtime::{Relay, Worker};
use postrider_testkit::history::{Emitted, Fault, Record};
use postrider_testkit::postgres::Database;
use postrider_testkit::{Expectation, History, Incarnation, ManualClock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How long a test waits for what must happen: far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `numbered` needs: each event takes its number from its key's row, in the transaction that emits it.
pub(crate) const LEDGER: &str = "
    create table agg (k text primary key, n bigint not null);
    create table ledger (id bigint primary key, k text not null, n bigint not null);
    create function numbered(which text) returns bigint language plpgsql as $$
    declare
        turn bigint;
        emitted bigint;
    begin
        insert into agg values (which, 1) on conflict (k) do update set n = agg.n + 1 returning n into turn;
        insert into postrider.event (topic, type, key, headers)
        values ('order', 'order', which, json_build_object('n', turn::text)) returning id into emitted;
        insert into ledger values (emitted, which, turn);
        return emitted;
    end $$";

/// What all relays of a test have delivered.
#[derive(Clone)]
pub(crate) struct Witness {
    history: History,
    seen: Arc<Mutex<Vec<EventId>>>,
    moved: Arc<Notify>,
}

impl Witness {
    pub(crate) fn new() -> Self {
        Self { history: History::new(ManualClock::new()), seen: Arc::default(), moved: Arc::default() }
    }

    /// Starts a relay for one subscription.
    pub(crate) fn start(&self, store: PostgresStore, life: u64) -> JoinHandle<postrider_core::Result<()>> {
        let relay = self.relay(store, life);
        tokio::spawn(async move { relay.run(std::future::pending()).await.map(drop) })
    }

    pub(crate) fn relay(&self, store: PostgresStore, life: u64) -> Relay<PostgresStore> {
        self.relay_of(store, life, subscription())
    }

    pub(crate) fn relay_of(
        &self,
        store: PostgresStore,
        life: u64,
        subscription: NewSubscription,
    ) -> Relay<PostgresStore> {
        let witness = self.clone();
        let handler = move |delivery: Delivery| {
            let witness = witness.clone();
            async move {
                let running = witness.history.delivered(&delivery, Incarnation(life));
                running.finish(&Outcome::Ack);
                witness.seen.lock().unwrap().push(delivery.event.id);
                witness.moved.notify_waiters();
                Ok::<(), Failure>(())
            }
        };
        Relay::new(store).name(format!("life-{life}")).worker(Worker::new(subscription).each(handler))
    }

    pub(crate) fn seen(&self) -> Vec<EventId> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until these events were delivered.
    pub(crate) async fn until_seen(&self, ids: &[i64]) {
        let all = async {
            loop {
                let moved = self.moved.notified();
                let seen = self.seen();
                if ids.iter().all(|id| seen.contains(&EventId(*id))) {
                    return;
                }
                moved.await;
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            let seen = self.seen();
            let missing: Vec<_> = ids.iter().filter(|id| !seen.contains(&EventId(**id))).collect();
            panic!("not delivered: {missing:?}");
        }
    }

    /// Waits until an event was delivered so often.
    pub(crate) async fn until_seen_times(&self, id: i64, times: usize) {
        let often = async {
            loop {
                let moved = self.moved.notified();
                if self.seen().iter().filter(|seen| seen.0 == id).count() >= times {
                    return;
                }
                moved.await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, often).await.is_ok(), "{id} is not delivered {times} times");
    }

    /// Something went wrong that explains repeats.
    pub(crate) fn fault(&self, fault: Fault) {
        self.history.fault(fault, None);
    }

    /// Waits until all of the ledger was delivered, and panics if a promise was broken.
    pub(crate) async fn judge(&self, db: &Database) {
        let rows = db.query("select id, k, n from ledger order by id");
        let number = |cell: &Option<String>| cell.as_ref().unwrap().parse::<i64>().unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| number(&row[0])).collect();
        self.until_seen(&ids).await;
        for row in &rows {
            self.history.record(Record::Emitted(Emitted {
                id: EventId(number(&row[0])),
                topic: Topic::new("order"),
                kind: Kind::new("order"),
                key: Some(Key::new(row[1].as_ref().unwrap())),
                n: Some(number(&row[2]) as u64),
                delayed: false,
            }));
        }
        self.history.assert_kept(&[Expectation::from(&subscription())]);
    }
}

pub(crate) fn subscription() -> NewSubscription {
    NewSubscription::new("orders")
}

/// Emits events for a few keys until `enough`, whatever happens to the server; what was committed is in the ledger.
pub(crate) async fn produce(url: String, enough: usize, settings: &'static str) {
    let mut emitted = 0;
    while emitted < enough {
        let Ok((client, connection)) =
            postrider_postgres::tokio_postgres::connect(&url, postrider_postgres::tokio_postgres::NoTls)
                .await
        else {
            // tidy: sleep because a server that recovers has no other sign than its answer
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        tokio::spawn(connection);
        if client.batch_execute(settings).await.is_err() {
            continue;
        }
        while emitted < enough {
            let emit = format!("select numbered('k{}')", emitted % 5);
            if client.batch_execute(&emit).await.is_err() {
                break;
            }
            emitted += 1;
        }
    }
}
