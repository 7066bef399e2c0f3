//! The bare loops that benchmarks compare with: what rusqlite does without Postrider, in the same binary and
//! on the same file.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, TransactionBehavior};

/// The application's side of a benchmark: one connection that emits, or inserts bare rows.
pub struct Producer {
    conn: Connection,
}

impl Producer {
    /// Opens the file of a store, and makes the bare table beside Postrider's: the same columns, nothing
    /// checked.
    pub fn open(path: &Path, flushed: bool) -> rusqlite::Result<Self> {
        let conn = Connection::open(path)?;
        conn.busy_timeout(Duration::from_secs(60))?;
        let synchronous = if flushed { "full" } else { "normal" };
        conn.execute_batch(&format!("pragma synchronous = {synchronous}; {}", sql!("bench/bare_table")))?;
        Ok(Self { conn })
    }

    /// Does `work` in one transaction and returns how long it took, from its beginning to its commit.
    pub fn transaction(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<Duration> {
        let began = Instant::now();
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        work(&tx)?;
        tx.commit()?;
        Ok(began.elapsed())
    }
}

/// Inserts a bare row.
pub fn insert(tx: &Connection, key: usize, payload: &str) -> rusqlite::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
    tx.prepare_cached(sql!("bench/bare_insert"))?.execute((
        "order",
        "order.created",
        key.to_string(),
        payload,
        None::<String>,
        now,
        None::<i64>,
    ))?;
    Ok(())
}

/// Reads the whole log in chunks of a thousand rows into owned values; returns how many and how long it took.
pub fn select(path: &Path) -> rusqlite::Result<(usize, Duration)> {
    let conn = Connection::open(path)?;
    let began = Instant::now();
    let mut statement = conn.prepare(sql!("bench/bare_select"))?;
    let (mut after, mut count) = (0_i64, 0);
    loop {
        let mut rows = statement.query([after])?;
        let mut chunk = Vec::with_capacity(1000);
        while let Some(row) = rows.next()? {
            chunk.push(OwnedRow {
                id: row.get(0)?,
                topic: row.get(1)?,
                kind: row.get(2)?,
                key: row.get(3)?,
                payload: row.get(4)?,
                headers: row.get(5)?,
                created_at: row.get(6)?,
                due_at: row.get(7)?,
            });
        }
        let Some(last) = chunk.last() else { return Ok((count, began.elapsed())) };
        after = last.id;
        count += chunk.len();
        std::hint::black_box(&chunk);
    }
}

/// A row as any application would read it.
#[expect(dead_code, reason = "reading it is the point")]
struct OwnedRow {
    id: i64,
    topic: String,
    kind: String,
    key: Option<String>,
    payload: String,
    headers: Option<String>,
    created_at: i64,
    due_at: Option<i64>,
}
