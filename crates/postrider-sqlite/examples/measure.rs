//! How fast are fetch, settle and emit beside bare loops over the same rows? Every bar is a ratio taken in
//! one run: `cargo run --release -p postrider-sqlite --example measure [EVENTS]`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::settle::{Room, Settle};
use postrider_core::{Event, LogStore, NewSubscription, Position, Store, emit};
use postrider_sqlite::rusqlite::{Connection, TransactionBehavior};
use postrider_sqlite::{Durability, SqliteOptions, SqliteStore};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROOM: Room = Room { events: 1_000, bytes: 4 * 1024 * 1024 };
const PAYLOAD: &[u8] = br#"{"order": 42, "total": "12.50", "currency": "EUR", "lines": [1, 2, 3]}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let events: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |n| n.parse())?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("measure.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
    fill(&path, events)?;

    for round in 1..=3 {
        let raw = raw_select(&path)?;
        let ours = fetch_all(&path, Durability::Flush, round).await?;
        println!(
            "fetch   raw {:>9.0}/s   ours {:>9.0}/s   ratio {:.2}",
            events as f64 / raw.as_secs_f64(),
            events as f64 / ours.as_secs_f64(),
            raw.as_secs_f64() / ours.as_secs_f64()
        );
    }
    settle_many(&store).await?;
    for per_transaction in [1, 1_000] {
        for _ in 0..3 {
            emit_beside_insert(dir.path(), per_transaction)?;
        }
    }
    Ok(())
}

fn fill(path: &Path, events: usize) -> Result<()> {
    let mut conn = Connection::open(path)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for n in 0..events {
        emit(&tx, Event::new("order").kind("order.created").key(n % 1000).payload(PAYLOAD))?;
    }
    tx.commit()?;
    Ok(())
}

/// The bare loop: the same columns, owned, a thousand rows a query.
fn raw_select(path: &Path) -> Result<Duration> {
    let conn = Connection::open(path)?;
    let began = Instant::now();
    let mut select = conn.prepare(
        "select id, topic, type, key, payload, headers, created_at, due_at from postrider_event \
         where id > ?1 order by id limit 1000",
    )?;
    let mut after = 0;
    loop {
        let mut chunk = Vec::new();
        let mut rows = select.query([after])?;
        while let Some(row) = rows.next()? {
            chunk.push((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, Option<String>>(3)?,
                row.get::<_, Vec<u8>>(4)?,
                row.get::<_, Option<String>>(5)?,
                row.get::<_, i64>(6)?,
                row.get::<_, Option<i64>>(7)?,
            ));
        }
        match chunk.last() {
            Some(last) => after = last.0,
            None => return Ok(began.elapsed()),
        }
        std::hint::black_box(chunk);
    }
}

async fn fetch_all(path: &Path, durability: Durability, round: u32) -> Result<Duration> {
    let store = SqliteStore::open(SqliteOptions::new(path).check(false).durability(durability)).await?;
    let name = format!("round-{round}");
    store.subscription_create(NewSubscription::new(&name)).await?;
    let member = store.member_join("measure").await?;
    let hold = store.shards_take(&name, member).await?.ok_or("held by another")?.hold;
    let began = Instant::now();
    let mut after = Position::START;
    loop {
        let chunk = store.fetch(&hold, after, ROOM).await?;
        if chunk.end == after {
            break;
        }
        after = chunk.end;
        std::hint::black_box(chunk);
    }
    let took = began.elapsed();
    store.member_leave(member).await?;
    Ok(took)
}

async fn settle_many(store: &SqliteStore) -> Result<()> {
    store.subscription_create(NewSubscription::new("settle")).await?;
    let member = store.member_join("measure").await?;
    let hold = store.shards_take("settle", member).await?.ok_or("held by another")?.hold;
    let mut took = Vec::new();
    for n in 1..=1_000 {
        let mark = Some(Position::START.at(postrider_core::EventId(n * 1_000)));
        let began = Instant::now();
        store.settle(&hold, Arc::new(Settle { mark, ..Settle::default() })).await?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    println!("settle  p50 {:?}   p99 {:?}", took[500], took[990]);
    let mut probes = Vec::new();
    let end = Position::START.at(postrider_core::EventId(i64::MAX - 1));
    for _ in 0..1_000 {
        let began = Instant::now();
        store.fetch(&hold, end, ROOM).await?;
        probes.push(began.elapsed());
    }
    probes.sort_unstable();
    println!("probe   p50 {:?}   p99 {:?}", probes[500], probes[990]);
    Ok(())
}

/// Emits beside bare inserts of the same row into a table without Postrider's constraints.
fn emit_beside_insert(dir: &Path, per_transaction: usize) -> Result<()> {
    let transactions = 200_000 / per_transaction.max(10);
    let mut conn = Connection::open(dir.join("measure.db"))?;
    conn.execute_batch(
        "pragma synchronous = normal;
         create table if not exists bare (
             id integer primary key autoincrement, topic text not null, type text not null, key text,
             payload blob not null, headers text, created_at integer not null, due_at integer,
             idempotency_key text
         );",
    )?;
    let mut rate = |ours: bool| -> Result<f64> {
        let began = Instant::now();
        for n in 0..transactions {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for _ in 0..per_transaction {
                if ours {
                    emit(&tx, Event::new("order").kind("order.created").key(n).payload(PAYLOAD))?;
                } else {
                    insert_bare(&tx, n)?;
                }
            }
            tx.commit()?;
        }
        Ok((transactions * per_transaction) as f64 / began.elapsed().as_secs_f64())
    };
    let (bare, ours) = (rate(false)?, rate(true)?);
    println!(
        "emit    {per_transaction:>4} a transaction: bare {bare:>8.0}/s   ours {ours:>8.0}/s   ratio {:.2}",
        ours / bare
    );
    Ok(())
}

fn insert_bare(tx: &Connection, n: usize) -> Result<i64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros() as i64;
    tx.prepare_cached(
        "insert into bare (topic, type, key, payload, headers, created_at, due_at) \
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(("order", "order.created", n.to_string(), PAYLOAD, None::<String>, now, None::<i64>))?;
    Ok(tx.last_insert_rowid())
}
