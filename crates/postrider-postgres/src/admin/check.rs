//! Looking for damage: in what the tables say, and in what the order of the log rests on.

use std::sync::Arc;

use postrider_core::log::ShardPosition;
use postrider_core::{ErrorKind, Result, Subscription};
use tokio_postgres::Row;

use crate::admin::event::{LogEnd, log_end};
use crate::admin::subscription::subscription_list;
use crate::error::Doing;
use crate::log::straggler::straggler_check;
use crate::options::PostgresOptions;
use crate::ownership::lock::holders;
use crate::server::session::Tx;
use crate::settle::position::{SHARDS, position_newest};
use crate::wal::slots;

/// Where the shards of a subscription stand.
type Place = (Subscription, Vec<Arc<ShardPosition>>);

/// Everything that is wrong, in sentences.
pub(crate) async fn check(tx: &Tx<'_>, options: &PostgresOptions) -> Result<Vec<String>> {
    let mut found = log(tx).await?;
    found.extend(shards(tx).await?);
    let subscriptions = subscription_list(tx).await?;
    let mut places: Vec<Place> = Vec::with_capacity(subscriptions.len());
    for subscription in subscriptions {
        match position_newest(tx, subscription.id, SHARDS).await {
            Ok(positions) => places.push((subscription, positions)),
            Err(error) if error.kind() == ErrorKind::Corrupt => found.push(lost(&subscription)),
            Err(error) => return Err(error),
        }
    }
    // After the positions were read, so that none of them can be ahead of it.
    let end = log_end(tx).await?;
    for (subscription, positions) in &places {
        found.extend(positions.iter().find_map(|position| beyond(subscription, position, &end)));
    }
    found.extend(late(tx, options, &places, &end).await?);
    found.extend(orphans(tx).await?);
    found.extend(headless(tx).await?);
    found.extend(queues(tx).await?);
    found.extend(sources(tx, options).await?);
    found.extend(outboxes(tx).await?);
    let holders = holders(tx).await?;
    found.extend(holders.iter().filter(|holder| holder.is_foreign).map(|holder| {
        format!("{holder}, holds an advisory lock of this store, which no role of it is: relays may wait for it. End the session")
    }));
    Ok(found)
}

/// What is left of outbox tables that were dropped.
async fn outboxes(tx: &Tx<'_>) -> Result<Vec<String>> {
    let what = "look for what is left of outbox tables";
    let rows = tx.query(sql!("admin/check/check_outboxes"), &[&tx.schema().name()], what).await?;
    let names =
        rows.iter().map(|row| row.try_get::<_, &str>(0)).collect::<Result<Vec<_>, _>>().doing(what)?;
    let schema = tx.schema().name();
    let line = |name| {
        format!(
            "an outbox table was dropped without being detached: its function is left. Run `drop function {schema}.{name}()`, or \
             attach or detach another table, which removes it"
        )
    };
    Ok(names.into_iter().map(line).collect())
}

/// Slots that make the server keep its log, or have failed to.
async fn sources(tx: &Tx<'_>, options: &PostgresOptions) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for slot in slots(tx, options.schema.name()).await? {
        if slot.status == "lost" {
            found.push(format!(
                "the server has let go of what the slot `{}` needs: start a relay that follows it, or run `postrider store \
                 source drop`",
                slot.name
            ));
        } else if slot.kept > options.wal_budget.0 {
            found
                .push(format!("{slot}: start a relay that follows it, or run `postrider store source drop`"));
        }
    }
    Ok(found)
}

/// What makes a row's xid be fetched before its id is drawn.
async fn log(tx: &Tx<'_>) -> Result<Vec<String>> {
    let what = "look at the log's table";
    let event = format!("{}.event", tx.schema().name());
    let Some(row) = tx.query_opt(sql!("admin/check/check_log"), &[], what).await? else {
        return Ok(vec![format!("table {event} lacks a column or its sequence: restore the schema")]);
    };
    let lines = [
        format!("column xid of {event} must come before id, else events are lost: recreate the table"),
        format!(
            "column xid of {event} has lost its default, without which events are lost: run `alter table {event} \
             alter column xid set default pg_catalog.pg_current_xact_id()`"
        ),
        format!(
            "column id of {event} lets producers choose ids, so that events can be lost: run `alter table {event} \
             alter column id set generated always`"
        ),
        format!(
            "the sequence of {event} hands out ids in blocks, steps or circles, so that events are lost: run `alter \
             table {event} alter column id set cache 1 set increment by 1 set no cycle`"
        ),
    ];
    let mut found = Vec::new();
    for (column, line) in lines.into_iter().enumerate() {
        if !row.try_get::<_, bool>(column).doing(what)? {
            found.push(line);
        }
    }
    Ok(found)
}

async fn shards(tx: &Tx<'_>) -> Result<Vec<String>> {
    let what = "look at the shards";
    let rows = tx.query(sql!("admin/check/check_shards"), &[], what).await?;
    let line = |row: &Row| {
        let (name, shards, wanted): (&str, i64, i16) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(format!(
            "subscription `{name}` has {shards} shards instead of {wanted}: delete and create it again"
        ))
    };
    rows.iter().map(line).collect::<Result<_, _>>().doing(what)
}

fn lost(subscription: &Subscription) -> String {
    let name = &subscription.name;
    format!(
        "a shard of subscription `{name}` has no position, so that nothing is delivered: was a table emptied by hand? \
         Move it with `postrider subscription seek {name} start`, which delivers again what is still there"
    )
}

/// A position that knows of ids or transactions that the server has yet to issue: new events would look as if they
/// had been delivered.
pub(crate) fn beyond(subscription: &Subscription, position: &ShardPosition, end: &LogEnd) -> Option<String> {
    let name = &subscription.name;
    let to = &position.window.to;
    let advice = format!(
        "the database, or a part of it, is older than the position: stop the producers, restore all of the schema \
         from one backup, or give up what was delivered and move it with `postrider subscription seek {name} now`"
    );
    let known = to.seq().max(position.last_id.0);
    if known > end.issued.0 {
        return Some(format!(
            "subscription `{name}` has read up to event {known}, but the last id that was issued is {}; {advice}",
            end.issued
        ));
    }
    // Snapshots of one server only grow.
    (to.snapshot.xmax() > end.snapshot.xmax()).then(|| {
        format!(
            "subscription `{name}` has seen transaction {}, which the server has yet to issue; {advice}",
            to.snapshot.xmax().0
        )
    })
}

/// A transaction that is going to hold everybody up when it commits.
async fn late(
    tx: &Tx<'_>,
    options: &PostgresOptions,
    places: &[Place],
    end: &LogEnd,
) -> Result<Option<String>> {
    let Some(oldest) = end.snapshot.running().first().copied() else { return Ok(None) };
    let ticks = places.iter().flat_map(|(_, positions)| positions).map(|position| &position.window.to);
    let floors = ticks.filter(|tick| !tick.snapshot.sees(oldest)).map(|tick| tick.xid_bounds.floor(oldest));
    let Some(floor) = floors.min() else { return Ok(None) };
    straggler_check(tx, options, oldest, floor, end.issued.0).await
}

async fn orphans(tx: &Tx<'_>) -> Result<Vec<String>> {
    let what = "look for deliveries without events";
    let schema = tx.schema().name();
    let rows = tx.query(sql!("admin/check/check_orphans"), &[], what).await?;
    let line = |row: &Row| {
        let (event, name): (i64, &str) = (row.try_get(0)?, row.try_get(1)?);
        Ok(format!(
            "event {event} is gone, but subscription `{name}` has yet to deliver it: it was deleted by hand; restore \
             it, or give it up by deleting its row from {schema}.delivery"
        ))
    };
    rows.iter().map(line).collect::<Result<_, _>>().doing(what)
}

async fn headless(tx: &Tx<'_>) -> Result<Vec<String>> {
    let what = "look for keys that wait for nothing";
    let rows = tx.query(sql!("admin/check/check_headless"), &[], what).await?;
    let line = |row: &Row| {
        let (key, name): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        Ok(format!(
            "key `{}` of subscription `{name}` waits for nothing: restart its worker, which sets it going again",
            key.escape_default()
        ))
    };
    rows.iter().map(line).collect::<Result<_, _>>().doing(what)
}

async fn queues(tx: &Tx<'_>) -> Result<Vec<String>> {
    let what = "look at the queues";
    let rows = tx.query(sql!("admin/check/check_queue"), &[], what).await?;
    let line = |row: &Row| {
        let (name, said): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        Ok(format!(
            "the queue of subscription `{name}` {said}: restart its worker, which sets it going again"
        ))
    };
    rows.iter().map(line).collect::<Result<_, _>>().doing(what)
}
