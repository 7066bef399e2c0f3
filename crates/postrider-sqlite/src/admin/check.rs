//! Looking for damage, in the file and in what it says.

use postrider_core::Result;
use rusqlite::Connection;

use crate::error::Doing;
use crate::file::open::intact;
use crate::log::event::event_issued;
use crate::ownership::shard::SHARDS;
use crate::queue::check::queues;

/// Everything that is wrong, in sentences. Reads the whole file, so it has a connection of its own.
pub(crate) fn check(conn: &Connection) -> Result<Vec<String>> {
    let lines = || conn.prepare("pragma integrity_check")?.query_map([], |row| row.get(0))?.collect();
    let mut found: Vec<String> = intact(conn, lines).doing("check the file")?;
    found.retain(|line| line != "ok");
    for line in &mut found {
        line.insert_str(0, "the file is damaged: ");
    }
    found.extend(orphans(conn).doing("look for deliveries without events")?);
    found.extend(headless(conn).doing("look for keys that wait for nothing")?);
    let issued = event_issued(conn)?.0;
    found.extend(positions(conn, issued).doing("look at the positions")?);
    found.extend(queues(conn)?);
    Ok(found)
}

fn orphans(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut orphans = conn.prepare(sql!("admin/check/check_orphans"))?;
    let lines = orphans.query_map([], |row| {
        let (event, name): (i64, Option<String>) = (row.get(0)?, row.get(1)?);
        Ok(format!(
            "event {event} is gone, but subscription `{}` has yet to deliver it: it was deleted by hand",
            name.unwrap_or_default()
        ))
    })?;
    lines.collect()
}

fn headless(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut headless = conn.prepare(sql!("admin/check/check_headless"))?;
    let lines = headless.query_map([], |row| {
        let (key, name): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        Ok(format!(
            "key `{}` of subscription `{}` waits for nothing: restart its worker, which sets it going again",
            key.escape_default(),
            name.unwrap_or_default()
        ))
    })?;
    lines.collect()
}

fn positions(conn: &Connection, issued: i64) -> rusqlite::Result<Vec<String>> {
    let mut positions = conn.prepare(sql!("admin/check/check_positions"))?;
    let lines = positions.query_map((SHARDS, issued), |row| {
        let (name, shards, position): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(if shards == i64::from(SHARDS) {
            format!(
                "subscription `{name}` stands at {position}, behind the last event {issued}: events up to there \
                 would be skipped; move it with `postrider subscription seek {name} now`"
            )
        } else {
            format!("subscription `{name}` has {shards} shards instead of {SHARDS}: delete and create it again")
        })
    })?;
    lines.collect()
}
