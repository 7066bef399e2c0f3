//! Moving a subscription to another place in the log.

use postrider_core::settle::Lane;
use postrider_core::{ErrorKind, Mode, Position, Result, ShardSet, Start};

use crate::admin::audit::Entry;
use crate::admin::place::place_of;
use crate::admin::subscription::subscription_lock;
use crate::error::Doing;
use crate::ownership::lock::lock_retention;
use crate::ownership::shard::shards_free;
use crate::queue::letters::queue_cut;
use crate::server::session::Tx;
use crate::settle::lane::{lane_advance, lane_read};
use crate::settle::position::{SHARDS, position_newest, position_put, positions_apart};

/// Moves all shards of a subscription and fences its owner.
pub(crate) async fn subscription_seek(tx: &Tx<'_>, name: &str, to: Start, actor: &str) -> Result<Position> {
    lock_retention(tx).await?;
    // Every settle has ended: the events its rows refer to were visible before the place is looked for.
    let subscription = subscription_lock(tx, name).await?;
    let id = subscription.id;
    let place = place_of(tx, to).await?;
    // A seek is also how a lost position is mended.
    let stood = match position_newest(tx, id, SHARDS).await {
        Ok(places) => Some(positions_apart(&places, ShardSet::ALL.iter())),
        Err(error) if error.kind() == ErrorKind::Corrupt => None,
        Err(error) => return Err(error),
    };
    let what = "move a subscription";
    // A row above the new position may be the head of rows below it: delayed events wait in the order of their
    // due times.
    let gone = match to {
        Start::Now => Vec::new(),
        _ => tx.query(sql!("admin/seek/delivery_delete_above"), &[&id.0, &place.last_id.0], what).await?,
    };
    let beheaded: Vec<Lane> = gone.iter().map(lane_read).collect::<Result<_, _>>().doing(what)?;
    lane_advance(tx, id, &beheaded).await?;
    if subscription.mode == Mode::Queue && to != Start::Now {
        queue_cut(tx, &subscription, place.last_id).await?;
    }
    shards_free(tx, id, None, ShardSet::ALL).await?;
    let stands = stood.as_ref().map_or_else(|| vec![place.of_all()], |stood| place.of_moved(to, stood));
    for stands in &stands {
        position_put(tx, id, stands).await?;
    }
    let from = stood.iter().flatten().map(|stood| stood.last_id).min();
    let from = from.map_or_else(|| "nowhere".to_owned(), |last_id| last_id.to_string());
    let detail = format!("from {from} to {}", place.position());
    Entry { actor, action: "subscription_seek", detail: Some(&detail) }.write(tx, name).await?;
    Ok(place.position())
}
