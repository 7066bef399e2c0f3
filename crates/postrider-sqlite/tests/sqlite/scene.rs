//! A store in a directory of its own, with a clock that stands still until a test moves it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use postrider_core::settle::{DueRows, Hold, Lane, MemberId, Room, Row, RowDue, Settle};
use postrider_core::time::Clock;
use postrider_core::{
    DeliveryState, Event, EventId, Key, LogStore, NewSubscription, Position, Shard, ShardSet, Store,
    Timestamp,
};
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::{SHARDS, SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// 2026-11-15T08:00:00Z.
pub(crate) const MORNING: Timestamp = Timestamp::from_micros(1_794_729_600_000_000);

pub(crate) const ROOM: Room = Room { events: 1_000, bytes: 1024 * 1024 };

/// Stands still until it is moved.
pub(crate) struct StillClock {
    now_us: AtomicI64,
    uptime_us: AtomicI64,
}

impl StillClock {
    pub(crate) fn pass(&self, time: Duration) {
        self.now_us.fetch_add(time.as_micros() as i64, Ordering::SeqCst);
        self.uptime_us.fetch_add(time.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now_us.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        Duration::from_micros(self.uptime_us.load(Ordering::SeqCst) as u64)
    }
}

pub(crate) struct Scene {
    pub(crate) store: SqliteStore,
    pub(crate) clock: Arc<StillClock>,
    pub(crate) dir: TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(|options| options).await
    }

    pub(crate) async fn with(set: impl FnOnce(SqliteOptions) -> SqliteOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(StillClock {
            now_us: AtomicI64::new(MORNING.as_micros()),
            uptime_us: AtomicI64::new(3_600_000_000),
        });
        let as_clock: Arc<dyn Clock> = Arc::<StillClock>::clone(&clock);
        let options = set(SqliteOptions::new(dir.path().join("app.db")).clock(as_clock));
        let store = SqliteStore::open(options).await.unwrap();
        Self { store, clock, dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("app.db")
    }

    /// A connection such as a producer or an operator has.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// Emits one event for each key.
    pub(crate) async fn emit(&self, keys: &[&str]) -> Vec<EventId> {
        let events = keys.iter().map(|key| Event::new("order").key(key).payload("{}")).collect();
        self.store.event_emit(events).await.unwrap()
    }

    pub(crate) async fn subscribe(&self, name: &str) {
        self.store.subscription_create(NewSubscription::new(name)).await.unwrap();
    }

    /// Joins and takes the subscription.
    pub(crate) async fn take(&self, name: &str) -> Hold {
        let member = self.store.member_join("test").await.unwrap();
        self.take_as(name, member).await
    }

    pub(crate) async fn take_as(&self, name: &str, member: MemberId) -> Hold {
        self.store
            .shards_take(name, member, ShardSet::ALL)
            .await
            .unwrap()
            .expect("no other member holds it")
            .hold
    }

    pub(crate) async fn settle(&self, hold: &Hold, settle: Settle) -> postrider_core::settle::Settled {
        self.store.settle(hold, Arc::new(settle)).await.unwrap()
    }

    pub(crate) async fn due(&self, hold: &Hold, loaded: &[EventId]) -> DueRows {
        let loaded: HashSet<EventId> = loaded.iter().copied().collect();
        self.store.fetch_due(hold, loaded, ROOM).await.unwrap()
    }

    /// The only value of a query, as a number.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.raw().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// All rows of the store's own tables as text, to compare before and after.
    pub(crate) fn dump(&self) -> String {
        let conn = self.raw();
        let mut lines = Vec::new();
        for table in ["event", "subscription", "shard", "delivery", "attempt", "audit"] {
            let mut select = conn.prepare(&format!("select * from postrider_{table}")).unwrap();
            let columns = select.column_count();
            let mut rows = select.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let values: Vec<_> = (0..columns).map(|n| format!("{:?}", row.get_ref(n).unwrap())).collect();
                lines.push(format!("{table}: {}", values.join(" ")));
            }
        }
        lines.join("\n")
    }
}

pub(crate) fn at(id: EventId) -> Position {
    Position::START.at(id)
}

pub(crate) fn lane(key: &str) -> Lane {
    Lane { key: Key::new(key), late: false }
}

/// A row that parks the lane of its key.
pub(crate) fn parking(id: EventId, key: &str, due: RowDue) -> Row {
    Row {
        event_id: id,
        shard: Shard::of(Some(&Key::new(key)), id, SHARDS),
        lane: Some(lane(key)),
        turn: id.0,
        parks: true,
        state: DeliveryState::Pending,
        attempts: 1,
        due,
    }
}

/// A row that stands for itself.
pub(crate) fn single(id: EventId, due: RowDue) -> Row {
    Row { lane: None, parks: false, shard: Shard::of(None, id, SHARDS), ..parking(id, "x", due) }
}

pub(crate) fn dead(row: Row) -> Row {
    Row { state: DeliveryState::Dead, due: RowDue::Waiting, ..row }
}

/// The ids of due rows, run by run.
pub(crate) fn runs(due: &DueRows) -> Vec<Vec<i64>> {
    due.runs.iter().map(|run| run.rows.iter().map(|row| row.event.id.0).collect()).collect()
}
